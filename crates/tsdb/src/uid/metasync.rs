//! `tsdb uid metasync`: brings metadata in line with the points.

use std::process::ExitCode;

use clap::Args;
use oxtsdb_client::SyncedMeta;
use oxtsdb_command::progress::progress;
use oxtsdb_command::stdout::print;
use oxtsdb_command::target::DataTarget;

/// Create missing metadata of series and UIDs, and correct times of creation
///
/// Reads the row keys of all points. A time of creation is corrected if it is not known, or is more than an hour
/// after the first point. Deletes nothing. Calls the data service. Exit status: 1 if something stored cannot be read.
#[derive(Debug, Args)]
pub(super) struct MetasyncArgs {
    #[command(flatten)]
    target: DataTarget,

    /// Only print what would be done
    #[arg(long)]
    dry_run: bool,
}

/// Runs `tsdb uid metasync`.
///
/// # Errors
///
/// If the call fails.
pub(super) async fn run(args: &MetasyncArgs) -> anyhow::Result<ExitCode> {
    let server = args.target.data()?;
    let bar = progress();
    let mut sync = server.client.without_deadline().sync_meta(args.dry_run);
    let mut last = SyncedMeta::default();
    while let Some(synced) = sync
        .next()
        .await
        .map_err(|error| server.error("uid metasync", &error))?
    {
        bar.set_message(format!("{} rows, {} series", synced.rows, synced.series));
        bar.tick();
        last = synced;
    }
    bar.finish_and_clear();
    print(&report(&last, args.dry_run))?;
    Ok(ExitCode::from(u8::from(last.failed > 0)))
}

fn report(synced: &SyncedMeta, is_plan: bool) -> String {
    let done = if is_plan { "to do" } else { "done" };
    format!(
        "{} rows, {} series; {done}: {} series created, {} corrected, {} UIDs created, {} corrected; {} failed\n",
        synced.rows,
        synced.series,
        synced.series_created,
        synced.series_corrected,
        synced.uids_created,
        synced.uids_corrected,
        synced.failed
    )
}
