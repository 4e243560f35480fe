//! `tsdb store salvage`: opens the stores of a data folder without what they have lost.
//!
//! ```text
//!   each folder ─► compare its generation ─► open with accepted losses ─► flush ─► next generation ─► close
//!                  on a disk in memory over the folder, unless --yes is set
//! ```

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, ensure};
use clap::Args;
use oxtsdb_command::stdout::print;
use oxtsdb_point_store::parts::{PartsConfig, PartsStore};
use oxtsdb_point_store::{DamagedPart, PointStore as _};
use oxtsdb_row_store::cells::{CellConfig, CellStore};
use oxtsdb_row_store::{StoreControl as _, StoreError};
use oxtsdb_schema::{UidWidth, UidWidths};
use oxtsdb_server::store::Generation;
use oxtsdb_storage_file::disk::Disk;
use oxtsdb_storage_file::disk::overlay::OverlayDisk;
use oxtsdb_storage_file::disk::real::RealDisk;
use uid_service::settings::UidTableSettings;

/// The folders of stores in a data folder, and the folder of more stores of points.
const UID: &str = "uid";
const DATA: &str = "data";
const POINTS: &str = "data/points";
const ROLLUPS: &str = "data/rollups";

/// Accept what the stores of a data folder have lost, so that a server starts
///
/// For a folder with which a server does not start because files of a store are missing or damaged, or the whole store
/// is missing or an older copy. Prints what is lost. With --yes the stores continue without it: intact data is served,
/// lost data is gone, unless `tsdb restore` has a snapshot. Calls no server, and none may run with the data folder.
///
/// Exit status: 1 if losses are left, because --yes is not set or because a store cannot be opened without what it lost.
#[derive(Debug, Args)]
pub(crate) struct SalvageArgs {
    /// The data folder
    #[arg(long, env = "OXTSDB_DATA_DIR", value_name = "DIR")]
    data_dir: PathBuf,

    /// Accept the losses; without it nothing is changed
    #[arg(long)]
    yes: bool,

    /// Widths of the UIDs in the keys of series.
    #[command(flatten)]
    uids: UidTableSettings,
}

/// The losses of a store.
#[derive(Debug, Default)]
struct Found {
    /// Why a server does not start with its folder.
    losses: Vec<String>,
    /// Damage that is set aside: all else is served.
    damage: Vec<String>,
    /// Why it cannot be opened nevertheless.
    failure: Option<String>,
}

/// Salvages all stores of a data folder.
///
/// # Errors
///
/// There is no store in the folder, or a server uses it; errors of the disk.
pub(super) async fn run(args: SalvageArgs) -> anyhow::Result<ExitCode> {
    let widths = UidWidths {
        metric: UidWidth::new(args.uids.uid_width_metric).context("--uid-width-metric")?,
        tagk: UidWidth::new(args.uids.uid_width_tagk).context("--uid-width-tagk")?,
        tagv: UidWidth::new(args.uids.uid_width_tagv).context("--uid-width-tagv")?,
    };
    let data_dir = &args.data_dir;
    let names = stores(data_dir).with_context(|| data_dir.display().to_string())?;
    ensure!(
        !names.is_empty(),
        "{}: no data folder of an embedded store",
        data_dir.display()
    );
    let disk: Arc<dyn Disk> = match args.yes {
        true => Arc::new(RealDisk),
        false => Arc::new(OverlayDisk::new(Arc::new(RealDisk))),
    };
    let (mut lost, mut failed) = (BTreeSet::new(), false);
    let mut losses = 0;
    for name in &names {
        let salvaged = salvage(&disk, data_dir, name, widths).await?;
        print(&text_of(name, &salvaged))?;
        failed |= salvaged.failure.is_some();
        losses += salvaged.losses.len();
        if !salvaged.losses.is_empty() {
            lost.insert(name.as_str());
        }
    }
    print(&advice(&lost, losses, args.yes, failed, data_dir))?;
    let is_left = failed || (losses > 0 && !args.yes);
    Ok(ExitCode::from(u8::from(is_left)))
}

/// The folders that have or had a store, each before those within it.
fn stores(data_dir: &Path) -> anyhow::Result<Vec<String>> {
    let mut rollups: BTreeSet<String> = Generation::known(data_dir, ROLLUPS)?.into_iter().collect();
    match fs::read_dir(data_dir.join(ROLLUPS)) {
        Ok(entries) => {
            for entry in entries {
                rollups.insert(entry?.file_name().to_string_lossy().into_owned());
            }
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(error.into()),
    }
    let rollups = rollups.into_iter().map(|table| format!("{ROLLUPS}/{table}"));
    let all = [UID, DATA, POINTS].map(str::to_owned).into_iter().chain(rollups);
    let exists = |name: &String| data_dir.join(name).exists() || Generation::new(data_dir, name).exists();
    Ok(all.filter(exists).collect())
}

async fn salvage(
    disk: &Arc<dyn Disk>,
    data_dir: &Path,
    name: &str,
    widths: UidWidths,
) -> anyhow::Result<Found> {
    let mut salvaged = Found::default();
    let generation = Generation::new(data_dir, name);
    match generation.check(&**disk) {
        Err(error @ StoreError::Corrupt { .. }) => salvaged.losses.push(error.to_string()),
        checked => checked?,
    }
    let folder = data_dir.join(name);
    let opened = match name {
        UID | DATA => cells(disk, folder, &generation, &mut salvaged).await,
        _ => points(disk, folder, widths, &generation, &mut salvaged).await,
    };
    match opened {
        Ok(()) => {}
        Err(error @ StoreError::Unavailable { .. }) => {
            anyhow::bail!("{name}: {error}; stop the server first");
        }
        Err(error) => salvaged.failure = Some(error.to_string()),
    }
    Ok(salvaged)
}

async fn cells(
    disk: &Arc<dyn Disk>,
    folder: PathBuf,
    generation: &Generation,
    salvaged: &mut Found,
) -> Result<(), StoreError> {
    let store = CellStore::open(CellConfig {
        disk: Arc::clone(disk),
        accept_losses: true,
        ..CellConfig::new(folder)
    })?;
    store.flush().await?;
    salvaged.losses.extend(texts(&store.losses()?));
    salvaged.damage.extend(texts(&store.damage()));
    generation.reset(&**disk)?;
    store.close().await
}

async fn points(
    disk: &Arc<dyn Disk>,
    folder: PathBuf,
    widths: UidWidths,
    generation: &Generation,
    salvaged: &mut Found,
) -> Result<(), StoreError> {
    let store = PartsStore::open(PartsConfig {
        widths,
        accept_losses: true,
        ..PartsConfig::new(folder, Arc::clone(disk))
    })?;
    store.flush().await?;
    let text = |part: &DamagedPart| format!("{}: {}", part.path.display(), part.detail);
    let losses: Vec<String> = store.losses().iter().map(text).collect();
    let damage = store.damage();
    // It has the losses, too.
    let damage = damage.iter().map(text).filter(|damage| !losses.contains(damage));
    salvaged.damage.extend(damage);
    salvaged.losses.extend(losses);
    generation.reset(&**disk)?;
    store.close().await?;
    Ok(())
}

fn texts(items: &[impl ToString]) -> impl Iterator<Item = String> {
    items.iter().map(ToString::to_string)
}

fn text_of(name: &str, salvaged: &Found) -> String {
    let mut text = String::new();
    for loss in &salvaged.losses {
        text += &format!("{name}: lost: {loss}\n");
    }
    for damage in &salvaged.damage {
        text += &format!("{name}: damaged, reads of it fail: {damage}\n");
    }
    if let Some(failure) = &salvaged.failure {
        text += &format!("{name}: cannot be opened without what it lost: {failure}\n");
    }
    if text.is_empty() {
        text = format!("{name}: nothing is lost\n");
    }
    text
}

/// Advice on the next step.
fn advice(lost: &BTreeSet<&str>, losses: usize, yes: bool, failed: bool, data_dir: &Path) -> String {
    if failed {
        return "restore a snapshot to a new data folder (`tsdb restore`)\n".to_owned();
    }
    let losses = match losses {
        0 => return "the server can be started\n".to_owned(),
        1 => "1 loss".to_owned(),
        losses => format!("{losses} losses"),
    };
    if !yes {
        return format!(
            "{losses}, nothing is changed: restore a snapshot to a new data folder (`tsdb restore`), or accept with \
             `tsdb store salvage --data-dir {} --yes`\n",
            data_dir.display()
        );
    }
    let mut text = format!("{losses} accepted, the server can be started\n");
    if lost.contains(UID) {
        text += "then: `tsdb uid recover` raises counters above the UIDs in use and names UIDs without a name; \
                 `tsdb uid fsck` checks the rest. If the names are gone as a whole, the data service starts with \
                 --accept-uid-table only, once\n";
    }
    if lost.contains(DATA) {
        text += "then: `tsdb uid fsck` and `tsdb fsck` check metadata, annotations and trees\n";
    }
    text
}

#[cfg(test)]
mod tests {
    use oxtsdb_row_store::{ColumnSelection, RowStore as _, TableDef, WriteBatch};

    use super::*;

    fn args(data_dir: &Path, yes: bool) -> SalvageArgs {
        SalvageArgs {
            data_dir: data_dir.to_owned(),
            yes,
            uids: UidTableSettings::default(),
        }
    }

    async fn salvaged(data_dir: &Path, yes: bool) -> bool {
        let code = run(args(data_dir, yes)).await.unwrap();
        code == ExitCode::SUCCESS
    }

    /// As a server opens it.
    fn open(data_dir: &Path) -> anyhow::Result<CellStore> {
        oxtsdb_server::store::open_folder(data_dir, UID, |folder| CellStore::open(CellConfig::new(folder)))
    }

    /// A row in a table file, and one in the journal.
    async fn fill(data_dir: &Path) {
        let store = open(data_dir).unwrap();
        let table = TableDef::new("t".parse().unwrap(), &["f"]);
        store.create_table(&table).await.unwrap();
        for row in [b"a", b"b"] {
            let mut batch = WriteBatch::new(table.name.clone());
            let family = batch.family("f");
            batch.row(row).put(family, b"q", b"v");
            store.write(batch).await.unwrap();
            if row == b"a" {
                store.flush().await.unwrap();
            }
        }
    }

    async fn rows(store: &CellStore) -> Vec<bool> {
        let (table, columns) = ("t".parse().unwrap(), ColumnSelection::default());
        let rows = [b"a".to_vec(), b"b".to_vec()];
        let read = store.get_rows(&table, &rows, &columns, None).await.unwrap();
        read.iter().map(Option::is_some).collect()
    }

    #[tokio::test]
    async fn a_lost_journal_and_manifest_are_accepted_with_yes_only() {
        let folder = tempfile::tempdir().unwrap();
        let data_dir = folder.path();
        fill(data_dir).await;
        let uid = data_dir.join(UID);
        assert!(salvaged(data_dir, false).await, "nothing is lost");
        for file in ["STORE", "MANIFEST"] {
            fs::remove_file(uid.join(file)).unwrap();
            let error = format!("{:#}", open(data_dir).unwrap_err());
            assert!(error.contains(file) && error.contains("salvage"), "{error}");
            assert!(!salvaged(data_dir, false).await);
            assert!(!uid.join(file).exists(), "nothing is changed");
            assert!(salvaged(data_dir, true).await);
            assert_eq!(rows(&open(data_dir).unwrap()).await, [true, true], "{file}");
        }
    }

    #[tokio::test]
    async fn a_folder_that_is_gone_or_older_is_accepted() {
        let folder = tempfile::tempdir().unwrap();
        let data_dir = folder.path();
        fill(data_dir).await;
        for file in ["uid/GENERATION", "uid/journal/GENERATION"] {
            fs::write(data_dir.join(file), "oxtsdb generation 0\n").unwrap();
        }
        open(data_dir).unwrap_err();
        assert!(!salvaged(data_dir, false).await);
        assert!(salvaged(data_dir, true).await);
        assert_eq!(rows(&open(data_dir).unwrap()).await, [true, true]);

        fs::remove_dir_all(data_dir.join(UID)).unwrap();
        open(data_dir).unwrap_err();
        assert!(!salvaged(data_dir, false).await);
        assert!(!data_dir.join(UID).exists(), "nothing is created");
        assert!(salvaged(data_dir, true).await);
        open(data_dir).unwrap();
    }

    #[tokio::test]
    async fn rejects_folders_in_use_and_other_folders() {
        let folder = tempfile::tempdir().unwrap();
        let data_dir = folder.path();
        let error = run(args(data_dir, true)).await.unwrap_err().to_string();
        assert!(error.contains("no data folder"), "{error}");
        let _store = open(data_dir).unwrap();
        for yes in [false, true] {
            let error = run(args(data_dir, yes)).await.unwrap_err().to_string();
            assert!(error.contains("stop the server first"), "{error}");
        }
    }

    #[test]
    fn says_what_to_do_next() {
        let lost = BTreeSet::from([UID]);
        let text = |losses, yes, failed| advice(&lost, losses, yes, failed, Path::new("/d"));
        assert!(text(0, false, false).contains("can be started"));
        assert!(text(2, false, false).contains("2 losses, nothing is changed"));
        assert!(text(1, false, false).contains("`tsdb store salvage --data-dir /d --yes`"));
        assert!(text(1, true, false).contains("`tsdb uid recover`"));
        assert!(text(1, true, true).starts_with("restore a snapshot"));
    }
}
