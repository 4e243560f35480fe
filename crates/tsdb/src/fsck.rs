//! `tsdb fsck`: checks the rows of table `tsdb`, and repairs them by a plan.

mod repair;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap::Args;
use oxtsdb_client::DataClient;
use oxtsdb_client::proto::common::v1::{TimeRange, time_range};
use oxtsdb_client::proto::data::v1::fsck_rows_response::{Event, Summary};
use oxtsdb_client::proto::data::v1::{
    CheckedRow, DuplicateChoice, FsckRowsRequest, RowFindingSeverity, RowFindingType, RowRepair,
};
use oxtsdb_command::progress;
use oxtsdb_command::stdout::print;
use oxtsdb_command::target::{DataTarget, Server};
use oxtsdb_command::time_zone::{self, TimeZoneArgs};
use oxtsdb_schema::timestamp::MAX_MILLIS;

use crate::repair_plan::{self, PlanWriter};

/// Check the rows of points, plan repairs, apply and undo them
///
/// Without options, reports what is wrong in table `tsdb` and changes nothing. Writers need not stop.
///
/// --plan FILE also writes a line of JSON for each row with findings; `repairs` has the changes that are made. Delete a line
/// to leave a row alone. --apply FILE makes the changes. Each is conditional: if a cell is no longer what the plan saw,
/// its row is not changed, and the others are. Points and cells that cannot be corrected are removed. --undo FILE records how to make each
/// change back, before it is made, and so holds all removed cells; --apply of that record restores every cell.
///
/// Not in a plan, except with --also, are rows with an UNKNOWN_UID (`tsdb uid fsck` may restore the name), a TAG_ORDER or
/// WRONG_SALT in their key, and what harms no query: FUTURE_CELL, META_BYTE_MISMATCH, LONG_INTEGER.
///
/// On the embedded store most points are not in rows, and `tsdb store check` checks them; this command checks all other
/// cells.
///
/// Exit status: 0 if there is no error and all repairs were made, otherwise 1.
#[derive(Debug, Args)]
pub(crate) struct FsckArgs {
    #[command(flatten)]
    target: DataTarget,

    /// Check only rows of this metric
    #[arg(long, value_name = "NAME", conflicts_with = "apply")]
    metric: Option<String>,
    /// Check only hours from this time, as in `tsdb query`
    #[arg(long, value_name = "TIME", conflicts_with = "apply")]
    start: Option<String>,
    /// Check only hours up to this time
    #[arg(long, value_name = "TIME", conflicts_with = "apply")]
    end: Option<String>,
    /// Check only rows after this row key, in hex, to resume a check
    #[arg(long, value_name = "ROW_KEY", value_parser = hex_bytes, conflicts_with = "apply")]
    start_after: Option<HexBytes>,
    /// Write the repairs of the findings to a new file
    #[arg(long, value_name = "FILE", conflicts_with = "apply")]
    plan: Option<PathBuf>,
    /// Of several values of an instant keep the newest [default: the oldest]
    #[arg(long, conflicts_with = "apply")]
    last_write_wins: bool,
    /// Plan no repair of findings of this type; may be repeated
    #[arg(long, value_name = "TYPE", value_parser = finding_type, conflicts_with = "apply")]
    leave: Vec<RowFindingType>,
    /// Plan repairs of findings of this type, too; may be repeated
    #[arg(long, value_name = "TYPE", value_parser = finding_type, conflicts_with = "apply")]
    also: Vec<RowFindingType>,
    /// Leave rows alone while one of their cells is younger [default: 60, the server's]
    #[arg(long, value_name = "SECONDS", conflicts_with = "apply")]
    grace_seconds: Option<u32>,
    /// Apply a plan, or the record of --undo, which is applied from its end
    #[arg(long, visible_alias = "repair", value_name = "FILE")]
    apply: Option<PathBuf>,
    /// Record how to make the changes back in a new file; required with a plan
    #[arg(long, value_name = "FILE", requires = "apply")]
    undo: Option<PathBuf>,

    #[command(flatten)]
    time_zone: TimeZoneArgs,
}

/// Bytes of an argument.
#[derive(Debug, Clone)]
struct HexBytes(Vec<u8>);

fn hex_bytes(text: &str) -> Result<HexBytes, hex::FromHexError> {
    hex::decode(text).map(HexBytes)
}

fn finding_type(text: &str) -> Result<RowFindingType, String> {
    let name = format!("ROW_FINDING_TYPE_{}", text.to_uppercase().replace('-', "_"));
    RowFindingType::from_str_name(&name)
        .filter(|finding| *finding != RowFindingType::Unspecified)
        .ok_or_else(|| "unknown type, for example `UNKNOWN_UID`".to_owned())
}

/// Runs `tsdb fsck`.
///
/// # Errors
///
/// If a call fails, or a file cannot be read or written.
pub(crate) async fn run(args: FsckArgs) -> anyhow::Result<ExitCode> {
    let server = args.target.data()?;
    match &args.apply {
        Some(file) => repair_plan::apply::<RowRepair>(&server, file, args.undo.as_deref()).await,
        None => check(&server, &args).await,
    }
}

async fn check(server: &Server<DataClient>, args: &FsckArgs) -> anyhow::Result<ExitCode> {
    let request = request(args)?;
    let plan = args.plan.as_deref();
    let mut plan = plan.map(PlanWriter::create::<RowRepair>).transpose()?;
    let client = server.client.without_deadline();
    let failed = |error| server.error("fsck", &error);
    let mut events = client.fsck_rows(request).await.map_err(failed)?;
    let bar = progress::progress();
    let mut summary = Summary::default();
    let mut last_row_key = bytes::Bytes::new();
    loop {
        let event = match events.next().await {
            Ok(Some(event)) => event,
            Ok(None) => break,
            Err(error) => {
                bar.finish_and_clear();
                if !last_row_key.is_empty() {
                    let key = hex::encode_upper(&last_row_key);
                    eprintln!("checked up to row {key}; --start-after {key} resumes the check");
                }
                return Err(failed(error));
            }
        };
        match event {
            Event::Findings(batch) => {
                let lines: String = batch.rows.iter().flat_map(lines).collect();
                bar.suspend(|| print(&lines))?;
                if let Some(plan) = &mut plan {
                    for row in batch.rows {
                        repair::add(plan, row)?;
                    }
                }
            }
            Event::Progress(progress) => {
                bar.set_message(format!(
                    "{} rows, {} cells, {} findings",
                    progress.rows, progress.cells, progress.findings
                ));
                last_row_key = progress.last_row_key;
            }
            Event::Summary(last) => summary = last,
        }
    }
    bar.finish_and_clear();
    print(&totals(&summary))?;
    if let Some(plan) = plan {
        let file = args.plan.as_deref().unwrap_or(Path::new(""));
        let (repaired, unrepaired) = plan.finish()?;
        print(&format!(
            "plan: repairs of {repaired} rows, {unrepaired} rows without one, in {}\n",
            file.display()
        ))?;
    }
    Ok(ExitCode::from(u8::from(errors(&summary) > 0)))
}

fn request(args: &FsckArgs) -> anyhow::Result<FsckRowsRequest> {
    let grace = args.grace_seconds.map(|seconds| prost_types::Duration {
        seconds: seconds.into(),
        nanos: 0,
    });
    let keep = if args.last_write_wins {
        DuplicateChoice::Newest
    } else {
        DuplicateChoice::Oldest
    };
    Ok(FsckRowsRequest {
        metric: args.metric.clone().unwrap_or_default(),
        range: range(args)?,
        start_row_key: bytes::Bytes::new(),
        stop_row_key: bytes::Bytes::new(),
        start_after_row_key: args
            .start_after
            .as_ref()
            .map(|key| key.0.clone().into())
            .unwrap_or_default(),
        keep: keep.into(),
        leave: args.leave.iter().map(|finding| i32::from(*finding)).collect(),
        also_repair: args.also.iter().map(|finding| i32::from(*finding)).collect(),
        grace_period: grace,
    })
}

/// The range of time; both ends are inclusive, as in queries.
fn range(args: &FsckArgs) -> anyhow::Result<Option<TimeRange>> {
    if args.start.is_none() && args.end.is_none() {
        return Ok(None);
    }
    let (now_ms, zone) = (time_zone::now_ms()?, args.time_zone.zone()?);
    let time = |flag: &'static str, text: &Option<String>| {
        let parsed = text.as_deref().map(|text| time_zone::parse(text, now_ms, &zone));
        parsed.transpose().context(flag)
    };
    let start_ms = time("--start", &args.start)?.unwrap_or(0);
    let end_ms = time("--end", &args.end)?.unwrap_or(MAX_MILLIS);
    if end_ms < start_ms {
        bail!("end {end_ms} ms is before start {start_ms} ms");
    }
    Ok(Some(TimeRange {
        start: Some(time_range::Start::StartMs(start_ms)),
        end: Some(time_range::End::EndMs(end_ms.saturating_add(1))),
    }))
}

/// `ERROR DUPLICATE 00000150473EC0000001000001: ...`, and ` (and 2 more)`
fn lines(row: &CheckedRow) -> Vec<String> {
    let key = hex::encode_upper(&row.row_key);
    let findings = row.findings.iter();
    let line = findings.map(|finding| {
        let more = match finding.count {
            0 | 1 => String::new(),
            count => format!(" (and {} more)", count - 1),
        };
        format!(
            "{} {} {key}: {}{more}\n",
            severity_name(finding.severity),
            type_name(finding.r#type),
            finding.message
        )
    });
    line.collect()
}

fn errors(summary: &Summary) -> u64 {
    let errors = summary.findings.iter();
    errors
        .filter(|count| count.severity == i32::from(RowFindingSeverity::Error))
        .map(|count| count.count)
        .sum()
}

fn totals(summary: &Summary) -> String {
    let counts = summary.findings.iter().map(|count| {
        let (severity, finding) = (severity_name(count.severity), type_name(count.r#type));
        (severity, finding, count.count)
    });
    let (findings, left_alone) = (
        repair_plan::table(counts),
        repair_plan::left_alone(summary.left_alone),
    );
    let other = if summary.has_other_points {
        "most points are not in rows: `tsdb store check` checks them\n"
    } else {
        ""
    };
    format!(
        "{findings}{} rows, {} cells read: {} errors{left_alone}\n{other}",
        summary.rows,
        summary.cells,
        errors(summary)
    )
}

fn severity_name(number: i32) -> &'static str {
    match RowFindingSeverity::try_from(number) {
        Ok(RowFindingSeverity::Error) => "ERROR",
        Ok(RowFindingSeverity::Warning) => "WARNING",
        Ok(RowFindingSeverity::Note) => "NOTE",
        // Of a newer server.
        Ok(RowFindingSeverity::Unspecified) | Err(_) => "OTHER",
    }
}

fn type_name(number: i32) -> String {
    let finding = RowFindingType::try_from(number).ok();
    repair_plan::type_name(
        finding.map(|finding| finding.as_str_name()),
        "ROW_FINDING_TYPE_",
        number,
    )
}
