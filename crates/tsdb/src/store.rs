//! `tsdb store`: checks, figures and salvage of the embedded store.

mod salvage;

use std::process::ExitCode;

use clap::{Args, Subcommand};
use oxtsdb_client::CheckedStore;
use oxtsdb_client::proto::common::v1::time_range::{End, Start};
use oxtsdb_client::proto::data::v1::GetStoreStatsResponse;
use oxtsdb_command::progress;
use oxtsdb_command::stdout::print;
use oxtsdb_command::target::DataTarget;
use serde_json::{Value, json};

use crate::uid::top::{name, table};

/// Check the embedded store, print its figures, or accept its losses
#[derive(Debug, Args)]
pub(crate) struct StoreArgs {
    #[command(subcommand)]
    command: StoreCommand,
}

#[derive(Debug, Subcommand)]
enum StoreCommand {
    Check(CheckArgs),
    Stats(StatsArgs),
    Salvage(salvage::SalvageArgs),
}

/// Read all files of points and check their checksums, while the store is used
///
/// Prints a line for each damaged file, also for those that were found before. Damaged files are set aside; all
/// other points are served. Exit status: 1 if files are damaged.
#[derive(Debug, Args)]
struct CheckArgs {
    #[command(flatten)]
    target: DataTarget,

    /// MiB to read per second at most; 0: no limit [default: --merge-mib-per-second of the server]
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u64).range(..=1 << 20))]
    mib_per_second: Option<u64>,

    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

/// Print the figures of the embedded store
///
/// Files, merges, memory, retention, damage, days, and the metrics with the most series.
#[derive(Debug, Args)]
struct StatsArgs {
    #[command(flatten)]
    target: DataTarget,

    /// Maximum number of metrics
    #[arg(long, value_name = "COUNT", default_value_t = 10, value_parser = clap::value_parser!(u32).range(..=1000))]
    max: u32,

    /// Print the figures as JSON
    #[arg(long)]
    json: bool,
}

/// Runs `tsdb store`.
///
/// # Errors
///
/// If the call fails.
pub(crate) async fn run(args: StoreArgs) -> anyhow::Result<ExitCode> {
    match args.command {
        StoreCommand::Check(args) => check(args).await,
        StoreCommand::Stats(args) => stats(args).await,
        StoreCommand::Salvage(args) => salvage::run(args).await,
    }
}

async fn check(args: CheckArgs) -> anyhow::Result<ExitCode> {
    let server = args.target.data()?;
    // Its duration depends on the store.
    let client = server.client.without_deadline();
    let bar = progress::progress();
    let rate = args.mib_per_second.map(|mib| mib << 20);
    let checked = client.check_store(rate, |bytes, total| {
        bar.set_message(format!("{} of {} MiB", bytes >> 20, total >> 20));
    });
    let checked = checked.await;
    bar.finish_and_clear();
    let checked = checked.map_err(|error| server.error("store check", &error))?;
    let text = if args.json {
        check_json(&checked)
    } else {
        check_text(&checked)
    };
    print(&text)?;
    Ok(ExitCode::from(u8::from(!checked.findings.is_empty())))
}

fn check_text(checked: &CheckedStore) -> String {
    let mut text = String::new();
    for finding in &checked.findings {
        text += &format!("{}: {}\n", finding.path, finding.detail);
    }
    let (files, mib, damaged) = (checked.files, checked.bytes >> 20, checked.findings.len());
    text + &format!("{files} files, {mib} MiB, {damaged} damaged\n")
}

fn check_json(checked: &CheckedStore) -> String {
    let findings = checked.findings.iter();
    let findings = findings.map(|finding| json!({"path": finding.path, "detail": finding.detail}));
    let json = json!({
        "files": checked.files,
        "bytes": checked.bytes,
        "damaged": findings.collect::<Vec<_>>(),
    });
    format!("{json}\n")
}

async fn stats(args: StatsArgs) -> anyhow::Result<ExitCode> {
    let server = args.target.data()?;
    let stats = server.client.store_stats(args.max).await;
    let stats = stats.map_err(|error| server.error("store stats", &error))?;
    let text = if args.json {
        stats_json(&stats)
    } else {
        stats_text(&stats)
    };
    print(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// Figures by their names, in the order in which they are printed.
fn figures(stats: &GetStoreStatsResponse) -> Vec<(&'static str, u64)> {
    vec![
        ("series", stats.series),
        ("points in files", stats.points),
        ("points written", stats.points_written),
        ("files", stats.parts),
        ("bytes of files", stats.bytes),
        ("bytes of journal", stats.journal_bytes),
        ("bytes written to journal", stats.journal_bytes_written),
        ("bytes written by merges", stats.merged_bytes),
        ("bytes to merge", stats.merge_debt_bytes),
        ("memory of points", stats.head_memory_bytes),
        ("memory of series", stats.series_memory_bytes),
        ("memory of indexes", stats.index_memory_bytes),
        ("flushes", stats.flushes),
        ("merges", stats.merges),
        ("failed merges", stats.failed_merges),
        ("dropped days", stats.dropped_days),
        ("dropped bytes", stats.dropped_bytes),
        ("points before retention", stats.points_before_retention),
        ("clock jumps", stats.clock_jumps),
    ]
}

fn stats_text(stats: &GetStoreStatsResponse) -> String {
    let rows = figures(stats).into_iter();
    let rows = rows.map(|(name, value)| [name.to_owned(), value.to_string()]);
    let mut text = format!("{}\n", table(["figure", "value"], rows));
    if let Some(retention) = &stats.retention {
        text += &format!("\nretention: {} days", retention.seconds / 86_400);
        let edge = stats
            .retention_edge_ms
            .and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
        if let Some(edge) = edge {
            text += &format!(", points since {edge} are kept");
        }
        text.push('\n');
    }
    if let Some(held_back) = &stats.clock_held_back {
        let seconds = held_back.seconds;
        let is_unexplained = stats
            .retention
            .as_ref()
            .is_some_and(|retention| seconds > retention.seconds);
        let when = match is_unexplained {
            true => {
                "retention does not follow: set the clock right, or restart with --confirm-clock and today's date"
            }
            false => "retention follows after a day",
        };
        text += &format!("the server's clock has jumped ahead by {seconds} s; {when}\n");
    }
    if !stats.days.is_empty() {
        let header = ["day", "files", "bytes", "points", "tombstones", "bytes to merge"];
        let rows = stats.days.iter().map(|day| {
            let [parts, bytes, points, tombstones, debt] = [
                day.parts,
                day.bytes,
                day.points,
                day.tombstones,
                day.merge_debt_bytes,
            ]
            .map(|n| n.to_string());
            [day.day.clone(), parts, bytes, points, tombstones, debt]
        });
        text += &format!("\n{}\n", table(header, rows));
    }
    if !stats.metrics.is_empty() {
        let rows = stats.metrics.iter();
        let rows = rows.map(|metric| [name(&metric.name, &metric.uid), metric.series.to_string()]);
        text += &format!("\n{}\n", table(["metric", "series"], rows));
    }
    if !stats.damage.is_empty() {
        text += "\ndamaged files, which were set aside:\n";
    }
    for damage in &stats.damage {
        text += &format!("{}: {}\n", damage.path, damage.detail);
    }
    text
}

fn stats_json(stats: &GetStoreStatsResponse) -> String {
    let days = stats.days.iter().map(|day| {
        json!({
            "day": day.day,
            "files": day.parts,
            "bytes": day.bytes,
            "points": day.points,
            "tombstones": day.tombstones,
            "bytes_to_merge": day.merge_debt_bytes,
        })
    });
    let metrics = stats.metrics.iter().map(
        |metric| json!({"uid": hex::encode_upper(&metric.uid), "name": metric.name, "series": metric.series}),
    );
    let damage = stats.damage.iter().map(|damage| {
        let range = damage.range.as_ref();
        let start = range.and_then(|range| range.start.as_ref());
        let end = range.and_then(|range| range.end.as_ref());
        json!({
            "path": damage.path,
            "detail": damage.detail,
            "start_ms": match start { Some(Start::StartMs(ms)) => Some(ms), _ => None },
            "end_ms": match end { Some(End::EndMs(ms)) => Some(ms), _ => None },
        })
    });
    let mut object = json!({
        "retention_seconds": stats.retention.as_ref().map(|retention| retention.seconds),
        "retention_edge_ms": stats.retention_edge_ms,
        "clock_held_back_seconds": stats.clock_held_back.as_ref().map(|held_back| held_back.seconds),
        "days": days.collect::<Vec<_>>(),
        "metrics": metrics.collect::<Vec<_>>(),
        "damage": damage.collect::<Vec<_>>(),
    });
    for (name, value) in figures(stats) {
        object[name.replace(' ', "_")] = Value::from(value);
    }
    format!("{object}\n")
}

#[cfg(test)]
mod tests {
    use oxtsdb_client::proto::data::v1::check_store_response::Finding;
    use oxtsdb_client::proto::data::v1::get_store_stats_response::{Day, Metric};

    use super::*;

    fn stats() -> GetStoreStatsResponse {
        GetStoreStatsResponse {
            series: 3,
            points: 1200,
            retention: Some(prost_types::Duration {
                seconds: 400 * 86_400,
                nanos: 0,
            }),
            retention_edge_ms: Some(1_700_000_000_000),
            days: vec![Day {
                day: "2026-11-22".to_owned(),
                parts: 2,
                bytes: 4096,
                points: 1200,
                ..Day::default()
            }],
            metrics: vec![Metric {
                uid: vec![0, 0, 0xa1].into(),
                name: String::new(),
                series: 3,
            }],
            ..GetStoreStatsResponse::default()
        }
    }

    #[test]
    fn figures_are_tables() {
        let text = stats_text(&stats());
        // Without the padding of columns.
        let text = text
            .split(' ')
            .filter(|word| !word.is_empty())
            .collect::<Vec<_>>()
            .join(" ");
        for line in [
            "points in files 1200",
            "retention: 400 days, points since 2023-11-14T22:13:20Z are kept",
            "2026-11-22 2 4096 1200 0 0",
            "[0000A1] 3",
        ] {
            assert!(text.contains(line), "{line} in\n{text}");
        }
        assert!(stats_text(&GetStoreStatsResponse::default()).contains("series"));
    }

    #[test]
    fn json_has_all_figures() {
        let json: Value = serde_json::from_str(&stats_json(&stats())).unwrap();
        assert_eq!(json["points_in_files"], 1200);
        assert_eq!(json["retention_seconds"], 34_560_000);
        assert_eq!(json["days"][0]["day"], "2026-11-22");
        assert_eq!(json["metrics"][0]["uid"], "0000A1");
        assert_eq!(json["damage"], json!([]));
    }

    #[test]
    fn findings_are_lines() {
        let checked = CheckedStore {
            files: 5,
            bytes: 7 << 20,
            findings: vec![Finding {
                path: "/d/x.part".to_owned(),
                detail: "page 7: checksum differs".to_owned(),
            }],
        };
        assert_eq!(
            check_text(&checked),
            "/d/x.part: page 7: checksum differs\n5 files, 7 MiB, 1 damaged\n"
        );
        assert!(check_json(&checked).contains("\"files\":5"));
    }
}
