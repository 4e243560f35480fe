//! `tsdb uid fsck`: checks the table of UIDs, and repairs it by a plan.

mod repair;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use oxtsdb_client::proto::uid::v1::fsck_uids_response::{Event, Summary};
use oxtsdb_client::proto::uid::v1::{UidFinding, UidFindingSeverity, UidFindingType, UidRepair};
use oxtsdb_client::{UidClient, UidKind};
use oxtsdb_command::stdout::print;
use oxtsdb_command::target::Server;

use crate::repair_plan::{self, PlanWriter};

/// Check names and UIDs, plan repairs, apply and undo them
///
/// Without options, reports what is wrong and changes nothing. Writers need not stop.
///
/// --plan FILE also writes a line of JSON for each finding that can be repaired. `repair` has the changes
/// that are made; edit it, delete the line, or move one of `alternatives` there. --apply FILE makes the
/// changes. Each is conditional: if a cell is no longer what the plan saw, its repair is not made, and the
/// others are. --undo FILE records how to make each change back, before it is made; --apply of that record
/// restores every cell.
///
/// Exit status: 0 if there is no error and all repairs were made, otherwise 1. (OpenTSDB's is the number of errors
/// modulo 256, which is 0 for 256 errors.)
#[derive(Debug, Args)]
pub(super) struct FsckArgs {
    /// metrics, tagk or tagv; all three without it
    kind: Option<UidKind>,
    /// Write the repairs of the findings to a new file
    #[arg(long, value_name = "FILE", conflicts_with = "apply")]
    plan: Option<PathBuf>,
    /// Plan the deletion of cells of no known meaning; same as --prefer delete-unknown
    #[arg(long, requires = "plan")]
    delete_unknown: bool,
    /// Where several names have one UID, plan to replace them by a name `fsck.` and the names; same as
    /// --prefer like-opentsdb
    #[arg(long, requires = "plan")]
    like_opentsdb: bool,
    /// Plan the alternative with this label where a finding has it; may be repeated
    #[arg(long, value_name = "LABEL", requires = "plan")]
    prefer: Vec<String>,
    /// Leave mappings alone while one of their cells is younger [default: 60, the server's]
    #[arg(long, value_name = "SECONDS", conflicts_with = "apply")]
    grace_seconds: Option<u32>,
    /// Apply a plan, or the record of --undo, which is applied from its end
    #[arg(long, value_name = "FILE", conflicts_with = "kind")]
    apply: Option<PathBuf>,
    /// Record how to make the changes back in a new file; required with a plan
    #[arg(long, value_name = "FILE", requires = "apply")]
    undo: Option<PathBuf>,
}

/// Runs `tsdb uid fsck`.
///
/// # Errors
///
/// If a call fails, or a file cannot be read or written.
pub(super) async fn run(server: &Server<UidClient>, args: FsckArgs) -> anyhow::Result<ExitCode> {
    match &args.apply {
        Some(file) => repair_plan::apply::<UidRepair>(server, file, args.undo.as_deref()).await,
        None => check(server, &args).await,
    }
}

async fn check(server: &Server<UidClient>, args: &FsckArgs) -> anyhow::Result<ExitCode> {
    let failed = |error| server.error("uid fsck", &error);
    let kinds: Vec<UidKind> = args.kind.into_iter().collect();
    let grace = args
        .grace_seconds
        .map(|seconds| std::time::Duration::from_secs(seconds.into()));
    let mut preferred = args.prefer.clone();
    for (is_set, label) in [
        (args.delete_unknown, "delete-unknown"),
        (args.like_opentsdb, "like-opentsdb"),
    ] {
        if is_set {
            preferred.push(label.to_owned());
        }
    }
    let plan = args.plan.as_deref();
    let mut plan = plan.map(PlanWriter::create::<UidRepair>).transpose()?;
    let client = server.client.without_deadline();
    let mut events = client.fsck_uids(&kinds, grace).await.map_err(failed)?;
    let bar = indicatif::ProgressBar::new_spinner();
    let mut summary = Summary::default();
    while let Some(event) = events.next().await.map_err(failed)? {
        match event {
            Event::Findings(batch) => {
                let lines: String = batch.findings.iter().map(line).collect();
                bar.suspend(|| print(&lines))?;
                if let Some(plan) = &mut plan {
                    for finding in batch.findings {
                        repair::add(plan, select(finding, &preferred))?;
                    }
                }
            }
            Event::Progress(progress) => {
                bar.set_message(format!("{} rows, {} findings", progress.rows, progress.findings));
                bar.tick();
            }
            Event::Summary(last) => summary = last,
        }
    }
    bar.finish_and_clear();
    print(&totals(&summary))?;
    if let Some(plan) = plan {
        let file = args.plan.as_deref().unwrap_or(Path::new(""));
        let (repairs, unrepaired) = plan.finish()?;
        print(&format!(
            "plan: {repairs} repairs, {unrepaired} findings without one, in {}\n",
            file.display()
        ))?;
    }
    let is_error = |severity| severity == i32::from(UidFindingSeverity::Error);
    let errors = summary.findings.iter().any(|count| is_error(count.severity));
    Ok(ExitCode::from(u8::from(errors)))
}

/// The finding with the first preferred alternative that it has as its repair.
fn select(mut finding: UidFinding, preferred: &[String]) -> UidFinding {
    let labels = preferred.iter();
    let place = labels
        .filter_map(|label| {
            finding
                .alternatives
                .iter()
                .position(|repair| repair.label == *label)
        })
        .next();
    if let Some(place) = place {
        let chosen: UidRepair = finding.alternatives.remove(place);
        finding.alternatives.extend(finding.repair.replace(chosen));
    }
    finding
}

/// `ERROR MISSING_REVERSE: metrics `a` has the UID 000001, which has no name`
fn line(finding: &UidFinding) -> String {
    format!(
        "{} {}: {}\n",
        severity_name(finding.severity),
        type_name(finding.r#type),
        finding.message
    )
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
    let errors: u64 = summary
        .findings
        .iter()
        .filter(|count| count.severity == i32::from(UidFindingSeverity::Error))
        .map(|count| count.count)
        .sum();
    format!(
        "{findings}{} names, {} rows read: {errors} errors{left_alone}\n",
        summary.names, summary.rows
    )
}

fn severity_name(number: i32) -> &'static str {
    match UidFindingSeverity::try_from(number) {
        Ok(UidFindingSeverity::Error) => "ERROR",
        Ok(UidFindingSeverity::Warning) => "WARNING",
        Ok(UidFindingSeverity::Note) => "NOTE",
        // Of a newer server.
        Ok(UidFindingSeverity::Unspecified) | Err(_) => "OTHER",
    }
}

fn type_name(number: i32) -> String {
    let finding = UidFindingType::try_from(number).ok();
    repair_plan::type_name(
        finding.map(|finding| finding.as_str_name()),
        "UID_FINDING_TYPE_",
        number,
    )
}
