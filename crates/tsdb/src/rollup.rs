//! `tsdb rollup`: builds rollups from points.

use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use jiff::tz::TimeZone;
use oxtsdb_client::proto::common::v1::{TimeRange, time_range};
use oxtsdb_client::proto::data::v1::{BuildRollupsRequest, BuildRollupsResponse};
use oxtsdb_command::stdout::print;
use oxtsdb_command::target::DataTarget;
use oxtsdb_command::time_zone::{self, TimeZoneArgs};
use serde_json::json;

/// Draws per second, at most.
const DRAWS_PER_SECOND: u8 = 5;

/// Build rollups from points, on a server that has rollups (--rollups-config)
///
/// `tsdb rollup START [END] METRIC` or `tsdb rollup START [END] --all`. Writes sum, count, min and max, as far as the
/// configuration has them, of each interval that lies within START and END as a whole and has points; END is the
/// server's time unless it is given. Times are as for `tsdb query`. The numbers equal a query of the points that
/// downsamples by the interval.
///
/// A build can be repeated: cells that have their value are not written again. Build again what got late points.
/// Intervals without points keep the rollups that they have. A build that is interrupted prints a token, with which
/// --resume goes on.
///
/// Exit status: 1 if not all was built.
#[derive(Debug, Args)]
pub(crate) struct RollupArgs {
    #[command(flatten)]
    target: DataTarget,

    /// All metrics
    #[arg(long)]
    all: bool,

    /// Build this interval, for example `1h`; can be repeated [default: all intervals]
    #[arg(long, value_name = "INTERVAL")]
    interval: Vec<String>,

    /// Go on where an interrupted build with the same arguments was; times must not be relative
    #[arg(long, value_name = "TOKEN")]
    resume: Option<String>,

    /// Print the result as JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    time_zone: TimeZoneArgs,

    /// START [END] [METRIC]
    #[arg(value_name = "WORD", required = true)]
    words: Vec<String>,
}

/// Builds, and prints what was done.
///
/// # Errors
///
/// If the arguments are no build, or the call fails.
pub(crate) async fn run(args: RollupArgs) -> anyhow::Result<ExitCode> {
    let zone = args.time_zone.zone()?;
    let mut request = request(&args.words, args.all, time_zone::now_ms()?, &zone)?;
    request.intervals = args.interval;
    if let Some(token) = &args.resume {
        let token = hex::decode(token).with_context(|| format!("--resume `{token}` is no token"))?;
        request.resume_token = token.into();
    }
    let server = args.target.data()?;
    // Its duration depends on the points.
    let mut results = server.client.without_deadline().build_rollups(request);
    let bar = progress_bar();
    let mut last = BuildRollupsResponse::default();
    loop {
        match results.next().await {
            Ok(Some(progress)) => {
                bar.set_length(progress.parts);
                bar.set_position(progress.parts_done);
                bar.set_message(format!("{} {} points", progress.metric, progress.points));
                last = progress;
            }
            Ok(None) => break,
            Err(error) => {
                bar.abandon();
                if !last.resume_token.is_empty() {
                    eprintln!("tsdb: go on with --resume {}", hex::encode(&last.resume_token));
                }
                return Err(server.error("rollup", &error));
            }
        }
    }
    bar.finish_and_clear();
    print(&if args.json { as_json(&last) } else { as_text(&last) })?;
    Ok(ExitCode::SUCCESS)
}

/// Reads `START [END] [METRIC]`.
fn request(words: &[String], all: bool, now_ms: i64, zone: &TimeZone) -> anyhow::Result<BuildRollupsRequest> {
    let time = |what: &'static str, word: &String| time_zone::parse(word, now_ms, zone).context(what);
    let (start, rest) = words
        .split_first()
        .context("missing start time, for example `7d-ago`")?;
    let start_ms = time("start", start)?;
    let (end_ms, rest) = match rest {
        // With two words left, the first must be a time; a single one is the metric, unless there is none.
        [end, metric] => (Some(time("end", end)?), std::slice::from_ref(metric)),
        [end] if all => (Some(time("end", end)?), &[][..]),
        rest => (None, rest),
    };
    let metric = match (rest, all) {
        ([metric], false) => metric.clone(),
        ([], true) => String::new(),
        ([], false) => bail!("nothing to build: missing a metric or --all"),
        (_, true) => bail!("a metric and --all are mutually exclusive"),
        (words, false) => bail!("too many words: {}", words.join(" ")),
    };
    if let Some(end_ms) = end_ms.filter(|end_ms| *end_ms <= start_ms) {
        bail!("end {end_ms} ms is not after start {start_ms} ms");
    }
    Ok(BuildRollupsRequest {
        metric,
        range: Some(TimeRange {
            start: Some(time_range::Start::StartMs(start_ms)),
            end: end_ms.map(time_range::End::EndMs),
        }),
        ..BuildRollupsRequest::default()
    })
}

fn progress_bar() -> ProgressBar {
    let target = ProgressDrawTarget::stderr_with_hz(DRAWS_PER_SECOND);
    let bar = ProgressBar::with_draw_target(Some(0), target);
    if let Ok(style) = ProgressStyle::with_template("{wide_bar} {pos}/{len} {msg} {elapsed} left {eta}") {
        bar.set_style(style);
    }
    bar
}

fn as_text(done: &BuildRollupsResponse) -> String {
    format!(
        "{} points, intervals {}: {} cells written, {} unchanged, {} removed\n",
        done.points,
        done.intervals.join(" "),
        done.cells_written,
        done.cells_unchanged,
        done.cells_removed
    )
}

fn as_json(done: &BuildRollupsResponse) -> String {
    let json = json!({
        "points": done.points,
        "intervals": done.intervals,
        "cellsWritten": done.cells_written,
        "cellsUnchanged": done.cells_unchanged,
        "cellsRemoved": done.cells_removed,
    });
    format!("{json}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_400_000_000_000;

    fn read(words: &str, all: bool) -> Result<(String, i64, Option<i64>), String> {
        let words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
        let request = request(&words, all, NOW, &TimeZone::UTC).map_err(|error| format!("{error:#}"))?;
        let range = request.range.unwrap();
        let Some(time_range::Start::StartMs(start_ms)) = range.start else {
            panic!("a start in ms");
        };
        let end_ms = range.end.map(|end| match end {
            time_range::End::EndMs(end_ms) => end_ms,
            time_range::End::EndAgo(_) => panic!("an end in ms"),
        });
        Ok((request.metric, start_ms, end_ms))
    }

    #[test]
    fn words_are_times_and_a_metric() {
        let day = 86_400_000;
        assert_eq!(read("1d-ago m", false), Ok(("m".to_owned(), NOW - day, None)));
        assert_eq!(
            read("2d-ago 1d-ago m", false),
            Ok(("m".to_owned(), NOW - 2 * day, Some(NOW - day)))
        );
        assert_eq!(read("2d-ago", true), Ok((String::new(), NOW - 2 * day, None)));
        assert_eq!(
            read("2d-ago 1d-ago", true),
            Ok((String::new(), NOW - 2 * day, Some(NOW - day)))
        );
    }

    #[test]
    fn rejects_other_words() {
        for (words, all, expected) in [
            ("1d-ago", false, "missing a metric or --all"),
            ("1d-ago 1h-ago m", true, "too many words"),
            ("1h-ago 1d-ago m", false, "is not after start"),
            ("m", true, "start: `m`"),
            ("1d-ago x m", false, "end: `x`"),
        ] {
            let error = read(words, all).unwrap_err();
            assert!(
                error.contains(expected) || error.contains("mutually exclusive"),
                "{words}: {error}"
            );
        }
    }
}
