//! `tsdb snapshot` and `tsdb restore`: backups of the embedded store.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use oxtsdb_client::proto::data::v1::create_snapshot_response::Snapshot;
use oxtsdb_command::progress;
use oxtsdb_command::stdout::print;
use oxtsdb_command::target::DataTarget;
use oxtsdb_maintenance::store_admin::restore;
use serde_json::json;

/// Make a snapshot of the embedded store, while it is used
///
/// A snapshot is a folder on the server, of hard links to files that never change and copies of the others: it
/// takes little space until the store merges or drops these files. It has all points that were acknowledged before,
/// with the names and metadata of their series. Copy it elsewhere for a backup; `tsdb restore` makes a data folder
/// of it.
///
/// Exit status: 1 if there is no snapshot.
#[derive(Debug, Args)]
pub(crate) struct SnapshotArgs {
    #[command(flatten)]
    target: DataTarget,

    /// Print the snapshot as JSON
    #[arg(long)]
    json: bool,

    /// The folder, absent or empty: a path within --snapshot-dir of the server, which is `snapshots` in its data
    /// folder, or an absolute path below it
    #[arg(value_name = "DIR")]
    folder: String,
}

/// Make a data folder of a snapshot
///
/// Reads all files and compares their checksums first; then copies them. Calls no server: start one with --data-dir
/// and the new folder afterwards. Exit status: 1 if nothing was restored; then nothing was written.
#[derive(Debug, Args)]
pub(crate) struct RestoreArgs {
    /// The folder of the snapshot
    #[arg(value_name = "SNAPSHOT")]
    snapshot: PathBuf,

    /// The data folder, which must be empty or absent
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
}

/// Makes a snapshot.
///
/// # Errors
///
/// If the call fails.
pub(crate) async fn snapshot(args: SnapshotArgs) -> anyhow::Result<ExitCode> {
    let server = args.target.data()?;
    // Its duration depends on the store.
    let client = server.client.without_deadline();
    let bar = progress::progress();
    let made = client.create_snapshot(&args.folder, |store| bar.set_message(store.to_owned()));
    let made = made.await;
    bar.finish_and_clear();
    let snapshot = made.map_err(|error| server.error("snapshot", &error))?;
    let text = if args.json {
        as_json(&snapshot)
    } else {
        as_text(&snapshot)
    };
    print(&text)?;
    if !snapshot.stores.iter().any(|store| store == NAMES) {
        eprintln!("tsdb: the snapshot has no names: back up the UID service of this server, too");
    }
    Ok(ExitCode::SUCCESS)
}

/// The store of names.
const NAMES: &str = "uid";

fn seconds(snapshot: &Snapshot) -> f64 {
    let elapsed = snapshot.elapsed.unwrap_or_default();
    #[expect(clippy::cast_precision_loss, reason = "shown with milliseconds")]
    let seconds = elapsed.seconds as f64;
    seconds + f64::from(elapsed.nanos / 1_000_000) / 1e3
}

fn as_text(snapshot: &Snapshot) -> String {
    format!(
        "{}: {} files, {} MiB of {}, in {:.1} s\n",
        snapshot.folder,
        snapshot.files,
        snapshot.bytes >> 20,
        snapshot.stores.join(", "),
        seconds(snapshot)
    )
}

fn as_json(snapshot: &Snapshot) -> String {
    let json = json!({
        "folder": snapshot.folder,
        "files": snapshot.files,
        "bytes": snapshot.bytes,
        "stores": snapshot.stores,
        "seconds": seconds(snapshot),
    });
    format!("{json}\n")
}

/// Restores a snapshot.
///
/// # Errors
///
/// If the snapshot is damaged, or the data folder is not empty or cannot be written.
pub(crate) async fn run_restore(args: RestoreArgs) -> anyhow::Result<ExitCode> {
    let bar = progress::progress();
    let data = args.data.clone();
    let restored = tokio::task::spawn_blocking({
        let bar = bar.clone();
        move || {
            restore(&args.snapshot, &args.data, |done, bytes| {
                bar.set_message(format!("{done} {} MiB", bytes >> 20));
            })
        }
    });
    let restored = restored.await?;
    bar.finish_and_clear();
    let restored = restored.map_err(|error| anyhow::Error::from(error).context("restore"))?;
    print(&format!(
        "{}: {} files, {} MiB\n",
        data.display(),
        restored.files,
        restored.bytes >> 20
    ))?;
    if !restored.has_names {
        eprintln!("tsdb: the snapshot has no names: restore a backup of its UID service, too");
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_is_a_line() {
        let snapshot = Snapshot {
            folder: "/data/snapshots/a".to_owned(),
            files: 7,
            bytes: 3 << 20,
            stores: vec!["points".to_owned(), "uid".to_owned()],
            elapsed: Some(prost_types::Duration {
                seconds: 1,
                nanos: 250_000_000,
            }),
        };
        assert_eq!(
            as_text(&snapshot),
            "/data/snapshots/a: 7 files, 3 MiB of points, uid, in 1.2 s\n"
        );
        assert_eq!(
            as_json(&snapshot),
            "{\"bytes\":3145728,\"files\":7,\"folder\":\"/data/snapshots/a\",\"seconds\":1.25,\
             \"stores\":[\"points\",\"uid\"]}\n"
        );
    }
}
