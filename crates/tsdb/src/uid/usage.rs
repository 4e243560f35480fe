//! `tsdb uid usage`: how many UIDs are in use and left, until when, and the use of quotas.

use std::process::ExitCode;
use std::time::SystemTime;

use clap::Args;
use comfy_table::{CellAlignment, Table, presets};
use oxtsdb_client::{KindUsage, QuotaUsage, UidClient, UidKind};
use oxtsdb_command::stdout::print;
use oxtsdb_command::target::Server;

/// The figures to print.
#[derive(Debug, Args)]
pub(super) struct UsageArgs {
    /// Start to count the names of the quotas again, which corrects what a crash left behind
    #[arg(long)]
    count_quotas: bool,
}

/// Runs `tsdb uid usage`.
///
/// # Errors
///
/// If the call fails.
pub(super) async fn run(server: &Server<UidClient>, args: &UsageArgs) -> anyhow::Result<ExitCode> {
    if args.count_quotas {
        let counting = server.client.count_uid_quotas().await;
        counting.map_err(|error| server.error("uid usage", &error))?;
    }
    let usage = server.client.get_uid_usage().await;
    let usage = usage.map_err(|error| server.error("uid usage", &error))?;
    let mut output = kinds(&usage.kinds);
    output.extend(usage.kinds.iter().filter_map(blocked));
    if !usage.quotas.is_empty() {
        output.push('\n');
        output += &quotas(&usage.quotas);
    }
    print(&output)?;
    Ok(ExitCode::SUCCESS)
}

fn kinds(usages: &[KindUsage]) -> String {
    let mut table = table(&["kind", "used", "available", "names", "per day", "exhausted"]);
    for kind in UidKind::ALL {
        for usage in usages.iter().filter(|usage| usage.kind == kind) {
            table.add_row([
                kind.to_string(),
                usage.used.to_string(),
                usage.available.to_string(),
                usage.names.map_or_else(unknown, |names| names.to_string()),
                usage
                    .assigned_per_day
                    .map_or_else(unknown, |rate| format!("{rate:.1}")),
                usage.exhaustion_time.map_or_else(unknown, date),
            ]);
        }
    }
    format!("{table}\n")
}

/// A line for a kind that assigns no UIDs.
fn blocked(usage: &KindUsage) -> Option<String> {
    let KindUsage {
        kind,
        used,
        highest_in_use,
        ..
    } = usage;
    (used < highest_in_use).then(|| {
        format!(
            "{kind} assigns no UIDs: series use UIDs up to {highest_in_use}; restore the table of UIDs, or run \
             `tsdb uid recover`\n"
        )
    })
}

fn quotas(quotas: &[QuotaUsage]) -> String {
    let mut table = table(&["quota of", "used", "limit"]);
    for quota in quotas {
        let scope = match &quota.tag_key {
            Some(tag_key) => format!("{} of {tag_key}", quota.kind),
            None => quota.kind.to_string(),
        };
        // Without a count it has no effect.
        let used = quota
            .counted_time
            .map_or_else(unknown, |_| quota.used.to_string());
        table.add_row([scope, used, quota.limit.to_string()]);
    }
    format!("{table}\n")
}

fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(header);
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

fn unknown() -> String {
    "-".to_owned()
}

/// The day of a time, in UTC.
fn date(time: SystemTime) -> String {
    match jiff::Timestamp::try_from(time) {
        Ok(timestamp) => timestamp.strftime("%Y-%m-%d").to_string(),
        Err(_) => unknown(),
    }
}
