//! Operations on the embedded store: snapshots, checks, figures.
//!
//! ```text
//!   <snapshot>/SNAPSHOT       the other files with lengths and checksums; written last
//!              data/points/   points: hard links, the keys of series
//!              data/rollups/  rollups, a folder for each table, likewise
//!              data/          the other tables of the data service
//!              uid/           names, if the UID service is in the same process
//! ```
//!
//! A snapshot has the folders of a data folder. Points are copied first and names last: a point is written after its
//! series' metadata has begun to be, and acknowledged after both, and a series has its names before.

mod manifest;
mod restore;

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use oxtsdb_point_store::parts::PartsStore;
use oxtsdb_point_store::parts::days::check::Checked;
use oxtsdb_point_store::{DamagedPart, PointStore as _, PointStoreError};
use oxtsdb_row_store::cells::CellStore;
use oxtsdb_row_store::{StoreError, TableName};
use oxtsdb_storage_file::disk::Disk as _;
use oxtsdb_storage_file::disk::real::RealDisk;
use oxtsdb_storage_file::folder::create_dir_durably;
use tokio::sync::Mutex;

pub use self::restore::{RestoreError, Restored, restore};

/// The folder of points.
pub const POINTS: &str = "points";

/// The folder of rollups, beside [`POINTS`]; it has a folder for each table.
pub const ROLLUPS: &str = "rollups";

/// The folder of the service in a data folder.
const DATA: &str = "data";

/// The embedded store of a data service. Clones share it.
#[derive(Clone, Debug)]
pub struct StoreAdmin(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    points: Arc<PartsStore>,
    /// Rollups by their tables.
    rollups: Vec<(TableName, Arc<PartsStore>)>,
    /// The other stores by their folders, in the order in which a snapshot copies them.
    stores: Vec<(&'static str, Arc<CellStore>)>,
    /// The only folder of snapshots, absolute.
    snapshot_dir: PathBuf,
    /// Age at which points are dropped.
    retention: Option<Duration>,
    /// Bytes that a check reads per second; 0: no limit.
    check_bytes_per_second: u64,
    /// Held by the snapshot that is being made.
    snapshot: Arc<Mutex<()>>,
    /// Held by the check that is running.
    check: Arc<Mutex<()>>,
}

/// A complete snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// The folder.
    pub folder: PathBuf,
    /// Files.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// What it has: `points`, `rollups` if there are any, and the folders of other stores.
    pub stores: Vec<&'static str>,
    /// Time that it took.
    pub elapsed: Duration,
}

/// Why there is no snapshot.
#[derive(Clone, Debug, thiserror::Error)]
pub enum SnapshotError {
    /// The folder breaks a rule.
    #[error("`{folder}` {rule}")]
    Folder {
        /// The folder.
        folder: String,
        /// The rule.
        rule: String,
    },
    /// Another snapshot is being made.
    #[error("another snapshot is being made, retry when it is complete")]
    Busy,
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl StoreAdmin {
    /// Operations on points, and on the other stores of the process by their folders, in the order in which a
    /// snapshot copies them.
    pub fn new(
        points: Arc<PartsStore>,
        rollups: Vec<(TableName, Arc<PartsStore>)>,
        stores: Vec<(&'static str, Arc<CellStore>)>,
        snapshot_dir: PathBuf,
        retention: Option<Duration>,
        check_bytes_per_second: u64,
    ) -> Self {
        Self(Arc::new(Inner {
            points,
            rollups,
            stores,
            snapshot_dir,
            retention,
            check_bytes_per_second,
            snapshot: Arc::default(),
            check: Arc::default(),
        }))
    }

    /// The points.
    pub fn points(&self) -> &Arc<PartsStore> {
        &self.0.points
    }

    /// The stores of points and of rollups.
    fn parts(&self) -> impl Iterator<Item = &Arc<PartsStore>> {
        let rollups = self.0.rollups.iter().map(|(_, store)| store);
        std::iter::once(&self.0.points).chain(rollups)
    }

    /// The bytes of the files of points and of rollups.
    pub fn part_bytes(&self) -> u64 {
        let figures = self.parts().filter_map(|parts| parts.figures());
        figures.map(|figures| figures.bytes).sum()
    }

    /// What points and rollups have lost.
    pub fn damage(&self) -> Vec<DamagedPart> {
        self.parts().flat_map(|parts| parts.damage()).collect()
    }

    /// Checks points and rollups as [`PartsStore::check`] does: `progress` gets the bytes read so far, and returns
    /// whether to go on.
    ///
    /// # Errors
    ///
    /// Those of [`PartsStore::check`].
    pub fn check(
        &self,
        bytes_per_second: u64,
        progress: &mut (dyn FnMut(u64) -> bool + Send),
    ) -> Result<Checked, PointStoreError> {
        let mut all = Checked::default();
        for parts in self.parts() {
            let before = all.bytes;
            let checked = parts.check(bytes_per_second, &mut |bytes| progress(before + bytes))?;
            all.files += checked.files;
            all.bytes += checked.bytes;
            all.damaged.extend(checked.damaged);
            all.was_stopped = checked.was_stopped;
            if all.was_stopped {
                break;
            }
        }
        Ok(all)
    }

    /// Age at which points are dropped; `None`: never.
    pub fn retention(&self) -> Option<Duration> {
        self.0.retention
    }

    /// Bytes that a check reads per second, unless its caller says otherwise; 0: no limit.
    pub fn check_bytes_per_second(&self) -> u64 {
        self.0.check_bytes_per_second
    }

    /// The lock of checks.
    pub fn check_lock(&self) -> &Arc<Mutex<()>> {
        &self.0.check
    }

    /// Makes a snapshot in a folder of the snapshot folder: a relative path, or an absolute one below it. Calls
    /// `progress` with each store that is being copied.
    ///
    /// # Errors
    ///
    /// As [`SnapshotError`] says. The folder is removed.
    pub async fn create_snapshot(
        &self,
        folder: &str,
        progress: impl Fn(&'static str) + Send,
    ) -> Result<Snapshot, SnapshotError> {
        let start = Instant::now();
        let lock = Arc::clone(&self.0.snapshot);
        let _one_at_a_time = lock.try_lock_owned().map_err(|_| SnapshotError::Busy)?;
        let target = self.target(folder)?;
        let copied = self.copy_to(&target, progress).await;
        if copied.is_err()
            && let Err(error) = fs::remove_dir_all(&target)
            && error.kind() != ErrorKind::NotFound
        {
            tracing::warn!(folder = %target.display(), %error, "cannot remove a failed snapshot");
        }
        let (files, bytes) = copied?;
        let elapsed = start.elapsed();
        tracing::info!(folder = %target.display(), files, bytes, ?elapsed, "made a snapshot");
        let rollups = (!self.0.rollups.is_empty()).then_some(ROLLUPS);
        let others = self.0.stores.iter().map(|(name, _)| *name);
        Ok(Snapshot {
            folder: target,
            files,
            bytes,
            stores: std::iter::once(POINTS).chain(rollups).chain(others).collect(),
            elapsed,
        })
    }

    /// Copies all stores. Returns the number of files and their bytes.
    async fn copy_to(
        &self,
        target: &Path,
        progress: impl Fn(&'static str) + Send,
    ) -> Result<(u64, u64), StoreError> {
        progress(POINTS);
        create_dir_durably(&RealDisk, target).map_err(|error| io_error(target, &error))?;
        // Into the folder of the service once that is copied, since copies are made in empty folders.
        let points = target.join(POINTS);
        self.0.points.snapshot(&points).await?;
        let rollups = target.join(ROLLUPS);
        if !self.0.rollups.is_empty() {
            progress(ROLLUPS);
            create_dir_durably(&RealDisk, &rollups).map_err(|error| io_error(target, &error))?;
        }
        for (table, store) in &self.0.rollups {
            store.snapshot(&rollups.join(table.to_string())).await?;
        }
        for (name, store) in &self.0.stores {
            progress(name);
            store.snapshot(&target.join(name)).await?;
        }
        let target = target.to_owned();
        let complete = tokio::task::spawn_blocking(move || {
            let data = target.join(DATA);
            RealDisk.rename(&points, &data.join(POINTS))?;
            if rollups.exists() {
                RealDisk.rename(&rollups, &data.join(ROLLUPS))?;
            }
            RealDisk.sync_dir(&data)?;
            manifest::write(&target)
        });
        let complete = complete.await.map_err(std::io::Error::other);
        complete
            .flatten()
            .map_err(|error| io_error(&self.0.snapshot_dir, &error))
    }

    /// The folder of a snapshot.
    fn target(&self, folder: &str) -> Result<PathBuf, SnapshotError> {
        let root = &self.0.snapshot_dir;
        let rule = |rule: String| SnapshotError::Folder {
            folder: folder.escape_default().take(MAX_SHOWN).collect(),
            rule,
        };
        let path = Path::new(folder);
        let below = path.strip_prefix(root).unwrap_or(path);
        let is_name = |component| matches!(component, Component::Normal(_));
        if below.as_os_str().is_empty() || !below.components().all(is_name) {
            return Err(rule(format!(
                "is not a folder below {}, the only place of snapshots (--snapshot-dir)",
                root.display()
            )));
        }
        if folder.chars().any(char::is_control) {
            return Err(rule("has control characters".to_owned()));
        }
        let target = root.join(below);
        let is_snapshot = |folder: &&Path| folder.join(manifest::NAME).exists();
        let parents = target.ancestors().skip(1).take_while(|parent| *parent != root);
        if let Some(other) = parents.into_iter().find(is_snapshot) {
            return Err(rule(format!("is within another snapshot, {}", other.display())));
        }
        match fs::read_dir(&target) {
            Ok(mut entries) => {
                if entries.next().is_some() {
                    return Err(rule("is not empty".to_owned()));
                }
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(rule(format!("cannot be used: {error}"))),
        }
        let device = |path: &Path| Some(path.ancestors().find_map(|path| fs::metadata(path).ok())?.dev());
        if device(&target) != device(self.0.points.path()) {
            return Err(rule(format!(
                "is on another disk than {}, so that files cannot be linked (--snapshot-dir)",
                self.0.points.path().display()
            )));
        }
        Ok(target)
    }
}

/// Characters of a folder that an error shows.
const MAX_SHOWN: usize = 200;

fn io_error(path: &Path, error: &std::io::Error) -> StoreError {
    match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => StoreError::Full {
            detail: error.to_string(),
        },
        _ => StoreError::Io {
            place: path.display().to_string(),
            detail: error.to_string(),
        },
    }
}
