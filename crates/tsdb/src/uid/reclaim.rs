//! `tsdb uid reclaim`: makes the UIDs that nothing references assignable again.
//!
//! A plan is a file of JSON lines: the time of the search, then a mapping each. An operator may remove lines.

use std::fs::File;
use std::io::{BufRead as _, BufReader, BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::SystemTime;

use anyhow::{Context as _, bail};
use clap::{Args, Subcommand};
use oxtsdb_client::{
    DataClient, ErrorReason, ReclaimState, ReclaimedUid, ReferencedUids, Rejection, Uid, UidClient, UidKind,
    UidMapping, UidSet,
};
use oxtsdb_command::stdout::print;
use oxtsdb_command::target::{DataTarget, Server};
use oxtsdb_schema::PerKind;
use serde_json::json;

/// Make UIDs that nothing references assignable again
///
/// Steps: `plan` lists the mappings that no row references. `quarantine` takes their names away: new
/// points of such a name get another UID. After the quarantine (--reclaim-quarantine-seconds of the
/// UID service), `release` searches again, restores what is referenced meanwhile, and frees the
/// rest. A free UID is assigned when its kind has no other left.
#[derive(Debug, Args)]
pub(super) struct ReclaimArgs {
    #[command(subcommand)]
    command: ReclaimCommand,
}

/// A step.
#[derive(Debug, Subcommand)]
enum ReclaimCommand {
    /// Search all tables, and write the mappings that nothing references to a file
    Plan {
        /// The file, as JSON lines
        file: PathBuf,
        #[command(flatten)]
        search: SearchArgs,
    },
    /// Put the mappings of a plan into quarantine
    ///
    /// Those that are too young or were changed since are skipped. Exit status: 1 if one failed.
    Quarantine {
        /// The plan
        file: PathBuf,
    },
    /// Put mappings of a plan back from quarantine
    ///
    /// Exit status: 1 if one failed.
    Restore {
        /// The plan
        file: PathBuf,
    },
    /// Search again; restore what is referenced, release the rest
    ///
    /// Exit status: 1 if one failed.
    Release {
        /// Other programs that write to the tables have dropped their caches of UIDs since the
        /// quarantine, or there are none (OpenTSDB: /api/dropcaches on every TSD); required on HBase
        #[arg(long)]
        other_caches_dropped: bool,
        #[command(flatten)]
        search: SearchArgs,
    },
    /// Print how many UIDs are in quarantine, and how many are free
    Status,
}

/// Where to search.
#[derive(Debug, Args)]
struct SearchArgs {
    #[command(flatten)]
    target: DataTarget,
    /// Another table with row keys of points, for example a rollup table; can be repeated
    #[arg(long, value_name = "TABLE")]
    table: Vec<String>,
    /// Go on although rows of unknown form may reference UIDs
    #[arg(long)]
    ignore_unknown_rows: bool,
}

/// Runs `tsdb uid reclaim`.
///
/// # Errors
///
/// If a call fails as a whole, or a file cannot be used.
pub(super) async fn run(server: &Server<UidClient>, args: &ReclaimArgs) -> anyhow::Result<ExitCode> {
    match &args.command {
        ReclaimCommand::Plan { file, search } => plan(server, file, search).await,
        ReclaimCommand::Quarantine { file } => {
            let (search_time, mappings) = read_plan(file)?;
            let results = server.client.without_deadline();
            let results = results.quarantine_uids(&mappings, search_time).await;
            let results = results.map_err(|error| server.error("uid reclaim quarantine", &error))?;
            report("in quarantine", &mappings, results)
        }
        ReclaimCommand::Restore { file } => {
            let (_, mappings) = read_plan(file)?;
            let results = server.client.without_deadline().restore_uids(&mappings).await;
            let results = results.map_err(|error| server.error("uid reclaim restore", &error))?;
            report("restored", &mappings, results)
        }
        ReclaimCommand::Release {
            other_caches_dropped,
            search,
        } => release(server, search, *other_caches_dropped).await,
        ReclaimCommand::Status => status(server).await,
    }
}

async fn plan(server: &Server<UidClient>, file: &Path, args: &SearchArgs) -> anyhow::Result<ExitCode> {
    let failed = |error| server.error("uid reclaim plan", &error);
    let references = search(server, args).await?;
    // A UID with two names is damage, which the check of UIDs repairs.
    let mut seen = PerKind::<UidSet>::default();
    let mut twice = PerKind::<UidSet>::default();
    let client = server.client.without_deadline();
    let mut export = client.export_uids(&[]);
    while let Some(mappings) = export.next().await.map_err(failed)? {
        for mapping in mappings {
            let number = mapping.uid.number();
            if !seen.get_mut(mapping.kind).insert(number) {
                twice.get_mut(mapping.kind).insert(number);
            }
        }
    }
    let output = File::create_new(file).with_context(|| file.display().to_string())?;
    let mut output = BufWriter::new(output);
    let time = jiff::Timestamp::try_from(references.search_time)?;
    writeln!(output, "{}", json!({ "search_time": time.to_string() }))?;
    let mut count = 0_u64;
    let mut export = client.export_uids(&[]);
    while let Some(mappings) = export.next().await.map_err(failed)? {
        for mapping in mappings {
            let (kind, number) = (mapping.kind, mapping.uid.number());
            // UIDs that were assigned during the search are not in `seen`.
            let candidate = seen.get(kind).contains(number) && !twice.get(kind).contains(number);
            if candidate && !references.get(kind).contains(number) {
                let (kind, uid) = (kind.as_str(), mapping.uid.to_string());
                writeln!(
                    output,
                    "{}",
                    json!({ "kind": kind, "uid": uid, "name": mapping.name })
                )?;
                count += 1;
            }
        }
    }
    output.into_inner()?.sync_all()?;
    print(&format!(
        "{count} mappings without a reference in {} rows\n",
        references.rows
    ))?;
    Ok(ExitCode::SUCCESS)
}

async fn release(
    server: &Server<UidClient>,
    args: &SearchArgs,
    other_caches_dropped: bool,
) -> anyhow::Result<ExitCode> {
    let failed = |error| server.error("uid reclaim release", &error);
    let client = server.client.without_deadline();
    let started = SystemTime::now();
    let due = |uid: &ReclaimedUid| match uid.state {
        ReclaimState::Quarantined => uid.not_before.is_some_and(|not_before| not_before <= started),
        ReclaimState::Releasing | ReclaimState::Restoring => true,
        _ => false,
    };
    let records = client.list_reclaimed_uids().await.map_err(failed)?;
    let records: Vec<ReclaimedUid> = records.collect().await.map_err(failed)?;
    let records: Vec<ReclaimedUid> = records.into_iter().filter(due).collect();
    if records.is_empty() {
        print("no UID has been in quarantine long enough\n")?;
        return Ok(ExitCode::SUCCESS);
    }
    let references = search(server, args).await?;
    // A mapping that another program has put is a reference as well.
    let mut mapped = PerKind::<UidSet>::default();
    let mut export = client.export_uids(&[]);
    while let Some(mappings) = export.next().await.map_err(failed)? {
        for mapping in mappings {
            mapped.get_mut(mapping.kind).insert(mapping.uid.number());
        }
    }
    let is_referenced = |uid: &ReclaimedUid| {
        let (kind, number) = (uid.mapping.kind, uid.mapping.uid.number());
        references.get(kind).contains(number) || mapped.get(kind).contains(number)
    };
    let (restore, release): (Vec<_>, Vec<_>) = records.into_iter().partition(|uid| {
        uid.state == ReclaimState::Restoring || (uid.state == ReclaimState::Quarantined && is_referenced(uid))
    });
    let mappings = |uids: Vec<ReclaimedUid>| uids.into_iter().map(|uid| uid.mapping).collect::<Vec<_>>();
    let (restore, release) = (mappings(restore), mappings(release));
    let restored = client.restore_uids(&restore).await.map_err(failed)?;
    let released = client
        .release_uids(&release, references.search_time, other_caches_dropped)
        .await;
    let released = released.map_err(failed)?;
    let restored = report("restored, as they are referenced", &restore, restored)?;
    let released = report("released", &release, released)?;
    Ok(if restored == ExitCode::SUCCESS {
        released
    } else {
        restored
    })
}

/// Searches the tables of the data service.
async fn search(server: &Server<UidClient>, args: &SearchArgs) -> anyhow::Result<ReferencedUids> {
    let data: Server<DataClient> = args.target.data()?;
    let layout = server.client.get_uid_layout().await;
    let layout = layout.map_err(|error| server.error("uid reclaim", &error))?;
    let client = data.client.without_deadline();
    let references = client.list_referenced_uids(&layout, &args.table, |_| {}).await;
    let references = references.map_err(|error| data.error("uid reclaim", &error))?;
    if references.unknown > 0 && !args.ignore_unknown_rows {
        bail!(
            "{} rows or cells of unknown form may reference UIDs; repair them, or pass --ignore-unknown-rows",
            references.unknown
        );
    }
    Ok(references)
}

async fn status(server: &Server<UidClient>) -> anyhow::Result<ExitCode> {
    let failed = |error| server.error("uid reclaim status", &error);
    let client = server.client.without_deadline();
    let mut records = client.list_reclaimed_uids().await.map_err(failed)?;
    let mut counts = std::collections::BTreeMap::<(UidKind, &str), u64>::new();
    while let Some(uid) = records.next().await.map_err(failed)? {
        let state = match uid.state {
            ReclaimState::Quarantined => "in quarantine",
            ReclaimState::Free => "free",
            _ => "unfinished",
        };
        *counts.entry((uid.mapping.kind, state)).or_default() += 1;
    }
    let lines = counts
        .iter()
        .map(|((kind, state), count)| format!("{kind} {state}: {count}\n"));
    print(&lines.collect::<String>())?;
    Ok(ExitCode::SUCCESS)
}

/// Prints the count of successes, and the failures.
fn report(
    done: &str,
    mappings: &[UidMapping],
    results: Vec<Result<(), Rejection>>,
) -> anyhow::Result<ExitCode> {
    let mut code = ExitCode::SUCCESS;
    let (mut count, mut early) = (0_u64, 0_u64);
    for (mapping, result) in mappings.iter().zip(results) {
        match result {
            Ok(()) => count += 1,
            Err(rejection) if rejection.reason == Some(ErrorReason::ReclaimTooEarly) => early += 1,
            Err(rejection) => {
                eprintln!("{} {}: {rejection}", mapping.kind, mapping.name);
                code = ExitCode::FAILURE;
            }
        }
    }
    let skipped = if early > 0 {
        format!(", {early} skipped because it is too early")
    } else {
        String::new()
    };
    print(&format!("{count} {done}{skipped}\n"))?;
    Ok(code)
}

fn read_plan(path: &Path) -> anyhow::Result<(SystemTime, Vec<UidMapping>)> {
    let file = File::open(path).with_context(|| path.display().to_string())?;
    let mut lines = BufReader::new(file).lines().enumerate();
    let text = |value: &serde_json::Value, key: &str| {
        let text = value.get(key).and_then(serde_json::Value::as_str);
        text.map(str::to_owned).with_context(|| format!("no `{key}`"))
    };
    let first = lines
        .next()
        .map(|(_, line)| line)
        .transpose()?
        .unwrap_or_default();
    let time = || -> anyhow::Result<SystemTime> {
        let value: serde_json::Value = serde_json::from_str(&first)?;
        Ok(text(&value, "search_time")?.parse::<jiff::Timestamp>()?.into())
    };
    let time = time().with_context(|| format!("{}: line 1 is not that of a plan", path.display()))?;
    let mut mappings = Vec::new();
    for (index, line) in lines {
        let line = line?;
        let mapping = || -> anyhow::Result<UidMapping> {
            let value: serde_json::Value = serde_json::from_str(&line)?;
            Ok(UidMapping {
                kind: text(&value, "kind")?.parse()?,
                uid: Uid::parse(&text(&value, "uid")?)?,
                name: text(&value, "name")?,
            })
        };
        let mapping = mapping().with_context(|| format!("{}: line {}", path.display(), index + 1))?;
        mappings.push(mapping);
    }
    Ok((time, mappings))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_is_json_lines() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("plan");
        let plan = |text: &str| {
            std::fs::write(&path, text).unwrap();
            read_plan(&path).map_err(|error| format!("{error:#}"))
        };
        let (time, mappings) = plan(
            "{\"search_time\":\"2026-11-22T13:00:00Z\"}\n{\"kind\":\"tagv\",\"uid\":\"00000A\",\"name\":\"a\\tb\"}\n",
        )
        .unwrap();
        assert_eq!(
            jiff::Timestamp::try_from(time).unwrap().to_string(),
            "2026-11-22T13:00:00Z"
        );
        assert_eq!(
            (mappings[0].kind, mappings[0].name.as_str()),
            (UidKind::Tagv, "a\tb")
        );
        let error = plan("{}").unwrap_err();
        assert!(
            error.ends_with("plan: line 1 is not that of a plan: no `search_time`"),
            "{error}"
        );
        let error = plan("{\"search_time\":\"2026-11-22T13:00:00Z\"}\n{\"kind\":\"tagv\"}").unwrap_err();
        assert!(error.ends_with("plan: line 2: no `uid`"), "{error}");
    }
}
