//! `tsdb compact`: rows of HBase become one cell each.

use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap::Args;
use indicatif::ProgressBar;
use oxtsdb_client::proto::data::v1::compact_rows_response::{Finding, Problem};
use oxtsdb_client::proto::data::v1::{CompactRowsRequest, CompactRowsResponse};
use oxtsdb_command::progress;
use oxtsdb_command::stdout::print;
use oxtsdb_command::target::DataTarget;
use oxtsdb_command::time_zone::{self, TimeZoneArgs};
use oxtsdb_proto::common::v1::{TimeRange, time_range};
use oxtsdb_schema::timestamp::MAX_MILLIS;
use serde_json::{Value, json};

/// Compact rows of points on HBase: all points of an hour in one cell
///
/// Reads the rows of a metric, or of the whole table, in a range of hours, and leaves each as OpenTSDB's compaction
/// does. Safe while points are written and queried, and beside OpenTSDB. Rows that are compact cost one read, so a
/// second run is cheap. Prints what became of the rows; if it is interrupted, --start-after continues behind the last
/// row that it names. The embedded store has no rows to compact.
///
/// Exit status: 1 if rows are left that an operator has to look at: damaged ones, and ones with two values of one
/// instant.
#[derive(Debug, Args)]
pub(crate) struct CompactArgs {
    #[command(flatten)]
    target: DataTarget,

    /// Hours from this time on [default: all]
    #[arg(long, value_name = "TIME")]
    start: Option<String>,

    /// Hours up to this time [default: those that are over]
    #[arg(long, value_name = "TIME")]
    end: Option<String>,

    /// Rows to read per second at most; 0: no limit
    #[arg(long, value_name = "ROWS", default_value_t = 0)]
    rate: u64,

    /// MiB of rows to read per second at most; 0: no limit
    #[arg(long, value_name = "MIB", default_value_t = 0, value_parser = clap::value_parser!(u64).range(..=1 << 20))]
    mib_per_second: u64,

    /// Leave rows with a younger last write alone; more than the clocks of the server and of HBase differ
    #[arg(long, value_name = "SECONDS", default_value_t = 600, value_parser = clap::value_parser!(u32).range(5..))]
    min_age: u32,

    /// Only rows behind this one, a row key as hex
    #[arg(long, value_name = "KEY")]
    start_after: Option<String>,

    /// Print the result as JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    time_zone: TimeZoneArgs,

    /// The metric; without it all rows
    #[arg(value_name = "METRIC")]
    metric: Option<String>,
}

/// Runs `tsdb compact`.
///
/// # Errors
///
/// If a call fails; the error names the last row that is done.
pub(crate) async fn run(args: CompactArgs) -> anyhow::Result<ExitCode> {
    let request = request(&args, time_zone::now_ms()?)?;
    let server = args.target.data()?;
    // Its duration depends on the table.
    let client = server.client.without_deadline();
    let bar = progress::progress();
    let mut messages = client.compact_rows(request);
    let mut sum = CompactRowsResponse::default();
    let ended = loop {
        match messages.next().await {
            Ok(Some(message)) => {
                add(&mut sum, message);
                show(&bar, &sum);
            }
            Ok(None) => break Ok(()),
            Err(error) => break Err(error),
        }
    };
    bar.finish_and_clear();
    let text = if args.json { to_json(&sum) } else { to_text(&sum) };
    match ended {
        Ok(()) => {
            print(&text)?;
            let is_clean = sum.damaged + sum.conflicting + sum.invalid_keys == 0;
            Ok(ExitCode::from(u8::from(!is_clean)))
        }
        Err(error) => {
            let error = server.error("compact", &error);
            if sum.last_row_key.is_empty() {
                return Err(error);
            }
            print(&text)?;
            let resume = hex::encode_upper(&sum.last_row_key);
            Err(error.context(format!("interrupted, continue with --start-after {resume}")))
        }
    }
}

fn request(args: &CompactArgs, now_ms: i64) -> anyhow::Result<CompactRowsRequest> {
    let zone = args.time_zone.zone()?;
    let time = |flag: &'static str, text: &Option<String>| {
        let parsed = text.as_deref().map(|text| time_zone::parse(text, now_ms, &zone));
        parsed.transpose().context(flag)
    };
    let (start, end) = (time("--start", &args.start)?, time("--end", &args.end)?);
    let range = match (start, end) {
        (None, None) => None,
        (start, end) => {
            let start_ms = start.unwrap_or(0);
            let end_ms = end.unwrap_or(MAX_MILLIS);
            if end_ms <= start_ms {
                bail!("--end {end_ms} ms is not after --start {start_ms} ms");
            }
            Some(TimeRange {
                start: Some(time_range::Start::StartMs(start_ms)),
                end: Some(time_range::End::EndMs(end_ms)),
            })
        }
    };
    let start_after = args.start_after.as_deref().unwrap_or_default();
    let start_after = hex::decode(start_after)
        .with_context(|| format!("--start-after `{start_after}` is not a row key as hex"))?;
    Ok(CompactRowsRequest {
        metric: args.metric.clone().unwrap_or_default(),
        range,
        start_after_row_key: start_after.into(),
        rows_per_second: args.rate,
        bytes_per_second: args.mib_per_second << 20,
        min_age: Some(prost_types::Duration {
            seconds: i64::from(args.min_age),
            nanos: 0,
        }),
    })
}

/// Adds a message, which has the counts since the one before.
fn add(sum: &mut CompactRowsResponse, message: CompactRowsResponse) {
    for (sum, (_, more)) in counts_mut(sum).into_iter().zip(counts(&message)) {
        *sum += more;
    }
    if !message.last_row_key.is_empty() {
        sum.last_row_key = message.last_row_key;
    }
    sum.findings.extend(message.findings);
}

/// Counts with their names, in the order in which they are printed.
fn counts(message: &CompactRowsResponse) -> [(&'static str, u64); 17] {
    [
        ("rows", message.rows),
        ("compacted", message.compacted),
        ("already compact", message.already_compact),
        ("appended", message.appended),
        ("recent", message.recent),
        ("too large", message.too_large),
        ("data timestamps", message.data_timestamps),
        ("damaged", message.damaged),
        ("conflicting", message.conflicting),
        ("invalid keys", message.invalid_keys),
        ("changed meanwhile", message.unconfirmed),
        ("points", message.points),
        ("cells before", message.cells_before),
        ("cells after", message.cells_after),
        ("bytes before", message.bytes_before),
        ("bytes after", message.bytes_after),
        ("bytes read", message.bytes),
    ]
}

/// The same, to be changed.
fn counts_mut(message: &mut CompactRowsResponse) -> [&mut u64; 17] {
    [
        &mut message.rows,
        &mut message.compacted,
        &mut message.already_compact,
        &mut message.appended,
        &mut message.recent,
        &mut message.too_large,
        &mut message.data_timestamps,
        &mut message.damaged,
        &mut message.conflicting,
        &mut message.invalid_keys,
        &mut message.unconfirmed,
        &mut message.points,
        &mut message.cells_before,
        &mut message.cells_after,
        &mut message.bytes_before,
        &mut message.bytes_after,
        &mut message.bytes,
    ]
}

fn show(bar: &ProgressBar, sum: &CompactRowsResponse) {
    let (rows, compacted, last) = (sum.rows, sum.compacted, hex::encode_upper(&sum.last_row_key));
    bar.set_message(format!("{rows} rows, {compacted} compacted, at {last}"));
}

fn to_text(sum: &CompactRowsResponse) -> String {
    let mut text = String::new();
    for (label, count) in counts(sum) {
        // Reasons that did not occur are left out.
        if count > 0 || label == "rows" || label == "compacted" {
            text += &format!("{label}: {count}\n");
        }
    }
    for finding in &sum.findings {
        let (row_key, problem) = (hex::encode_upper(&finding.row_key), problem(finding));
        text += &format!("row {row_key}: {problem}: {}\n", finding.detail);
    }
    text
}

fn to_json(sum: &CompactRowsResponse) -> String {
    let findings = sum.findings.iter().map(|finding| {
        json!({
            "row_key": hex::encode_upper(&finding.row_key),
            "problem": problem(finding),
            "detail": finding.detail,
        })
    });
    let mut object = json!({
        "findings": findings.collect::<Vec<_>>(),
        "last_row_key": hex::encode_upper(&sum.last_row_key),
    });
    for (label, count) in counts(sum) {
        object[label.replace(' ', "_")] = Value::from(count);
    }
    format!("{object}\n")
}

fn problem(finding: &Finding) -> &'static str {
    match finding.problem() {
        Problem::Damaged => "damaged",
        Problem::Conflicting => "conflicting",
        Problem::InvalidKey => "invalid key",
        Problem::Unconfirmed => "changed meanwhile",
        Problem::Unspecified => "unknown",
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    const NOW: i64 = 1_400_000_000_000;

    #[derive(Debug, clap::Parser)]
    struct Command {
        #[command(flatten)]
        args: CompactArgs,
    }

    fn parse(words: &str) -> anyhow::Result<CompactRowsRequest> {
        let words = std::iter::once("compact").chain(words.split_whitespace());
        request(&Command::try_parse_from(words)?.args, NOW)
    }

    #[test]
    fn words_become_a_request() {
        let all = parse("").unwrap();
        assert_eq!(
            (all.metric.as_str(), all.range, all.rows_per_second),
            ("", None, 0)
        );
        assert_eq!(all.min_age.unwrap().seconds, 600);
        let some = parse("sys.cpu --start 1h-ago --rate 50 --mib-per-second 2 --start-after 0a").unwrap();
        assert_eq!(some.metric, "sys.cpu");
        assert_eq!((some.rows_per_second, some.bytes_per_second), (50, 2 << 20));
        assert_eq!(some.start_after_row_key.as_ref(), [10]);
        let range = some.range.unwrap();
        assert_eq!(range.start, Some(time_range::Start::StartMs(NOW - 3_600_000)));
        assert_eq!(range.end, Some(time_range::End::EndMs(MAX_MILLIS)));
    }

    #[test]
    fn rejects_invalid_words() {
        let error = |words: &str| format!("{:#}", parse(words).unwrap_err());
        assert_eq!(
            error("--start 20 --end 10"),
            "--end 10000 ms is not after --start 20000 ms"
        );
        assert!(error("--start-after xy").starts_with("--start-after `xy` is not a row key as hex"));
        assert!(error("--start soon").starts_with("--start: `soon`"));
        assert!(error("--min-age 4").contains("4 is not in 5.."));
    }

    #[test]
    fn messages_add_up() {
        let mut sum = CompactRowsResponse::default();
        let first = CompactRowsResponse {
            rows: 5,
            compacted: 3,
            damaged: 1,
            last_row_key: vec![1, 2].into(),
            findings: vec![Finding {
                row_key: vec![1].into(),
                problem: Problem::Damaged.into(),
                detail: "cell is damaged".to_owned(),
            }],
            ..CompactRowsResponse::default()
        };
        add(&mut sum, first);
        let last = CompactRowsResponse {
            rows: 2,
            already_compact: 2,
            bytes: 7,
            done: true,
            ..CompactRowsResponse::default()
        };
        add(&mut sum, last);
        assert_eq!(
            to_text(&sum),
            "rows: 7\ncompacted: 3\nalready compact: 2\ndamaged: 1\nbytes read: 7\nrow 01: damaged: cell is damaged\n"
        );
        let json: Value = serde_json::from_str(&to_json(&sum)).unwrap();
        assert_eq!(
            (&json["rows"], &json["last_row_key"]),
            (&json!(7), &json!("0102"))
        );
        assert_eq!(json["findings"][0]["problem"], "damaged");
    }
}
