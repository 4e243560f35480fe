//! `tsdb uid metapurge`: deletes the metadata of all UIDs and series.

use std::process::ExitCode;

use clap::Args;
use oxtsdb_client::{PurgedMeta, PurgedUidMeta, UidClient};
use oxtsdb_command::progress::progress;
use oxtsdb_command::stdout::print;
use oxtsdb_command::target::{DataTarget, Server};

/// Delete the metadata of all UIDs and series
///
/// UIDs and points stay. On the embedded store, and with --trust-tsuid-tracking, the counters of series stay too:
/// series are found by them. Calls the UID service and the data service.
#[derive(Debug, Args)]
pub(super) struct MetapurgeArgs {
    #[command(flatten)]
    target: DataTarget,

    /// Only print what would be deleted
    #[arg(long)]
    dry_run: bool,
}

/// Runs `tsdb uid metapurge`.
///
/// # Errors
///
/// If a call fails.
pub(super) async fn run(server: &Server<UidClient>, args: &MetapurgeArgs) -> anyhow::Result<ExitCode> {
    let bar = progress();
    let mut purge = server.client.without_deadline().purge_uid_meta(args.dry_run);
    let mut uids = PurgedUidMeta {
        documents: 0,
        deleted: 0,
        is_done: false,
    };
    while let Some(purged) = purge
        .next()
        .await
        .map_err(|error| server.error("uid metapurge", &error))?
    {
        bar.set_message(format!("{} documents of UIDs", purged.documents));
        bar.tick();
        uids = purged;
    }
    let data = args.target.data()?;
    let mut purge = data.client.without_deadline().purge_meta(args.dry_run);
    let mut series = PurgedMeta::default();
    while let Some(purged) = purge
        .next()
        .await
        .map_err(|error| data.error("uid metapurge", &error))?
    {
        bar.set_message(format!("{} documents of series", purged.documents));
        bar.tick();
        series = purged;
    }
    bar.finish_and_clear();
    let counters = if series.keeps_counters {
        "counters are kept".to_owned()
    } else {
        format!("{} counters deleted", series.counters_deleted)
    };
    print(&format!(
        "UIDs: {} documents, {} deleted; series: {} documents, {} deleted, {counters}\n",
        uids.documents, uids.deleted, series.documents, series.documents_deleted
    ))?;
    Ok(ExitCode::SUCCESS)
}
