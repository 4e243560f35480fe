//! The engine's tree of cells, and its repair.
//!
//! A read, flush or compaction that encounters a damaged table file fails. [`Tree::with`] then looks for damaged
//! files, records which rows their damaged blocks may have had (see `set_aside`), closes the tree, replaces each
//! file by one with its intact blocks (see `salvage`), and reopens the tree. Afterwards the tree is consistent:
//! flushes and compactions need no special cases, and only reads consult the record of lost rows.
//!
//! The engine's threads end with their first error, and a failed write leaves its journal in an unknown state; in
//! both cases it rejects further writes. Reopening replays the journal, which keeps all acknowledged writes.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fjall::config::{BlockSizePolicy, CompressionPolicy, PartitioningPolicy};
use fjall::{
    AbstractTree as _, CompressionType, Database, Iter, Keyspace, KeyspaceCreateOptions, OwnedWriteBatch,
    PersistMode, Readable as _, Slice,
};
use parking_lot::{MappedRwLockReadGuard, Mutex, RwLock, RwLockReadGuard};

use super::engine::{TREE_BLOCK, engine_error, files, is_damage};
use super::expiry::Expiry;
use super::folder::{io_error, make_private, sync_folder};
use super::journal;
use super::opening;
use super::replacement::Replacement;
use super::set_aside::SetAside;
use super::table_list;
use crate::StoreError;

/// The engine's threads: one of them prefers flushes to compactions.
const THREADS: usize = 2;
/// Memtables in use: the active one and those that may wait for their flush. The engine would block the writer
/// at four waiting ones, forever if its threads have ended.
const WAITING_MEMTABLES: usize = 3;
/// Overlapping table files at which writes wait for compactions; the engine would block the writer at 30.
const MAX_RUNS: usize = 20;
/// The shortest time between two reopenings that repair nothing.
const REOPEN_PAUSE: Duration = Duration::from_secs(1);
/// How long a repair may take before health checks fail.
const REPAIR_LIMIT: Duration = Duration::from_secs(60);
/// Free space that a write must leave beside the cells that are to be flushed.
const DISK_RESERVE: u64 = 1 << 20;
/// How often a condition of the engine, which signals none, is checked.
const POLL: Duration = Duration::from_millis(1);

/// The parameters of the tree.
pub(super) struct Settings {
    pub(super) path: PathBuf,
    pub(super) cache_bytes: u64,
    pub(super) table_descriptors: usize,
    pub(super) memtable_bytes: u64,
    pub(super) expiry: Arc<Expiry>,
}

/// The open engine.
pub(super) struct Engine {
    // Dropped before the database.
    cells: Keyspace,
    database: Database,
    memtable_bytes: u64,
}

/// Why an operation on the engine failed.
pub(super) enum TreeError {
    Engine(fjall::Error),
    Store(StoreError),
}

impl From<fjall::Error> for TreeError {
    fn from(error: fjall::Error) -> Self {
        Self::Engine(error)
    }
}

impl From<StoreError> for TreeError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl Engine {
    fn open(settings: &Settings) -> Result<Self, fjall::Error> {
        let expiry = settings.expiry.clone();
        let database = Database::builder(&settings.path)
            .cache_size(settings.cache_bytes)
            .max_cached_files(Some(settings.table_descriptors))
            .worker_threads_unchecked(THREADS)
            .with_compaction_filter_factories(Arc::new(move |_| Some(expiry.clone())))
            .open()?;
        let options = || {
            KeyspaceCreateOptions::default()
                // The engine keeps the first setting of a tree, so this code decides when to flush.
                .max_memtable_size(u64::MAX)
                .data_block_size_policy(BlockSizePolicy::all(TREE_BLOCK))
                .data_block_compression_policy(CompressionPolicy::all(CompressionType::Lz4))
                // A whole filter or index of a large table exceeds what the cache admits as one entry.
                .filter_block_partitioning_policy(PartitioningPolicy::all(true))
                .index_block_partitioning_policy(PartitioningPolicy::all(true))
        };
        let cells = database.keyspace("cells", options)?;
        Ok(Self {
            cells,
            database,
            memtable_bytes: settings.memtable_bytes,
        })
    }

    /// The value of a key.
    pub(super) fn get(&self, key: &[u8]) -> Result<Option<Slice>, fjall::Error> {
        self.cells.get(key)
    }

    /// The last key.
    pub(super) fn last_key(&self) -> Result<Option<Slice>, fjall::Error> {
        self.cells.last_key_value().map(fjall::Guard::key).transpose()
    }

    /// The keys from `start` (inclusive) to `end` (exclusive), as of now: a group is visible as a whole or not at
    /// all.
    pub(super) fn range(&self, start: &[u8], end: &[u8]) -> Iter {
        // The engine panics when a range ends before its start.
        self.database.snapshot().range(&self.cells, start..end.max(start))
    }

    /// Adds all cells of another tree, as of now, to this one, which is empty. They are written once, to table files, which
    /// join the tree together: nothing remains of an interrupted copy. The inner error is of reading the other tree.
    pub(super) fn copy_all(&self, other: &Self) -> Result<Result<(), fjall::Error>, fjall::Error> {
        let mut tables = self.cells.start_ingestion()?;
        for cell in other.database.snapshot().iter(&other.cells) {
            match cell.into_inner() {
                Ok((key, value)) => tables.write(key, value)?,
                Err(error) => return Ok(Err(error)),
            }
        }
        tables.finish().map(Ok)
    }

    /// The pairs of these keys that exist, as of now.
    pub(super) fn get_all(&self, keys: Vec<Vec<u8>>) -> Result<Vec<(Slice, Slice)>, fjall::Error> {
        let snapshot = self.database.snapshot();
        let get = |key: Vec<u8>| Ok(snapshot.get(&self.cells, &key)?.map(|value| (key.into(), value)));
        keys.into_iter().filter_map(|key| get(key).transpose()).collect()
    }

    /// Commits puts and removals as one batch, durable before it is visible.
    pub(super) fn commit<'a>(
        &self,
        changes: impl Iterator<Item = (&'a [u8], Option<&'a [u8]>)>,
    ) -> Result<(), fjall::Error> {
        self.wait_while(|tree| {
            tree.sealed_memtable_count() >= WAITING_MEMTABLES || tree.l0_run_count() >= MAX_RUNS
        })?;
        let mut batch = OwnedWriteBatch::with_capacity(self.database.clone(), changes.size_hint().0)
            .durability(Some(PersistMode::SyncData));
        for (key, value) in changes {
            match value {
                Some(value) => batch.insert(&self.cells, key, value),
                None => batch.remove(&self.cells, key),
            }
        }
        batch.commit()?;
        if self.memory_bytes() >= self.memtable_bytes {
            self.cells.rotate_memtable()?;
        }
        Ok(())
    }

    /// Waits while the engine's threads are behind.
    fn wait_while(&self, is_behind: impl Fn(&fjall::AnyTree) -> bool) -> Result<(), fjall::Error> {
        while is_behind(&self.cells.tree) {
            self.check_running()?;
            thread::park_timeout(POLL);
        }
        Ok(())
    }

    /// Fails with [`fjall::Error::Poisoned`] if the engine rejects writes.
    fn check_running(&self) -> Result<(), fjall::Error> {
        self.database.persist(PersistMode::Buffer)
    }

    /// Writes all cells in memory to table files.
    pub(super) fn flush(&self) -> Result<(), fjall::Error> {
        self.cells.rotate_memtable()?;
        self.wait_while(|tree| tree.sealed_memtable_count() > 0)
    }

    /// Bytes of the active memtable.
    fn memory_bytes(&self) -> u64 {
        self.cells.tree.active_memtable().size()
    }

    /// Closes the engine and waits until its threads have released its files.
    fn close(self) {
        let files = Arc::downgrade(&self.database.config.cache);
        drop(self);
        while files.strong_count() > 0 {
            thread::park_timeout(POLL);
        }
    }
}

/// The tree, which is closed while it is repaired.
pub(super) struct Tree {
    settings: Settings,
    pub(super) set_aside: SetAside,
    /// The engine, or why it could not be reopened.
    engine: RwLock<Result<Engine, StoreError>>,
    /// The last time that the engine was reopened although no file was damaged.
    repairing: Mutex<Option<Instant>>,
    repairs: AtomicU64,
    closed_since: Mutex<Option<Instant>>,
}

impl fmt::Debug for Tree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tree")
            .field("path", &self.settings.path)
            .finish_non_exhaustive()
    }
}

impl Tree {
    /// Opens the tree, creating it if necessary. Damaged files that prevent opening are replaced.
    pub(super) fn open(settings: Settings, set_aside: SetAside) -> Result<Self, StoreError> {
        if !settings.path.exists() {
            create(&settings)?;
        }
        make_private(&settings.path)?;
        let engine = open(&settings, &set_aside)?;
        Ok(Self {
            settings,
            set_aside,
            engine: RwLock::new(Ok(engine)),
            repairing: Mutex::default(),
            repairs: AtomicU64::new(0),
            closed_since: Mutex::default(),
        })
    }

    fn engine(&self) -> Result<MappedRwLockReadGuard<'_, Engine>, StoreError> {
        RwLockReadGuard::try_map(self.engine.read(), |engine| engine.as_ref().ok())
            .map_err(|guard| guard.as_ref().err().cloned().unwrap_or_else(|| self.closed()))
    }

    fn closed(&self) -> StoreError {
        StoreError::Unavailable {
            detail: format!("{} is being repaired", self.settings.path.display()),
        }
    }

    /// Whether an operation would wait until the tree is reopened.
    pub(super) fn is_closed(&self) -> bool {
        self.engine.is_locked_exclusive()
    }

    /// Runs an operation once; `None` if it failed in a way that a repair may fix.
    pub(super) fn try_with<T>(
        &self,
        attempt: impl FnOnce(&Engine) -> Result<T, TreeError>,
    ) -> Option<Result<T, StoreError>> {
        let engine = match self.engine() {
            Ok(engine) => engine,
            Err(error) => return Some(Err(error)),
        };
        match attempt(&engine) {
            Ok(done) => Some(Ok(done)),
            Err(TreeError::Store(error)) => Some(Err(error)),
            Err(TreeError::Engine(error)) if is_stopped(&error) || is_damage(&error) => None,
            Err(TreeError::Engine(error)) => Some(Err(engine_error(&self.settings.path, &error))),
        }
    }

    /// Runs an operation; if it fails in a way that a repair may fix, repairs the tree and retries. The operation
    /// must not use the tree other than by its argument.
    pub(super) fn with<T>(
        &self,
        mut attempt: impl FnMut(&Engine) -> Result<T, TreeError>,
    ) -> Result<T, StoreError> {
        loop {
            let repairs = self.repairs.load(Ordering::SeqCst);
            let error = match attempt(&*self.engine()?) {
                Ok(done) => return Ok(done),
                Err(TreeError::Store(error)) => return Err(error),
                Err(TreeError::Engine(error)) => error,
            };
            let is_repaired = match error {
                ref error if is_stopped(error) => self.restart(repairs).map(|()| true)?,
                ref error if is_damage(error) => self.repair(repairs)?,
                _ => false,
            };
            if !is_repaired {
                return Err(engine_error(&self.settings.path, &error));
            }
        }
    }

    /// Finds and replaces the damaged files; `false` if there are none.
    fn repair(&self, repairs: u64) -> Result<bool, StoreError> {
        let _repairing = self.repairing.lock();
        if self.repairs.load(Ordering::SeqCst) != repairs {
            return Ok(true);
        }
        tracing::warn!("the tree of cells encountered damage; looking for damaged files");
        let files = files(&self.engine()?.cells);
        let mut replacements = Vec::new();
        for file in files {
            replacements.extend(Replacement::prepare(&self.set_aside, &file)?);
        }
        if replacements.is_empty() {
            return Ok(false);
        }
        self.reopen(|current| {
            // A compaction may have replaced a file in the meantime.
            replacements.retain(|replacement| current.iter().any(|file| file.id == replacement.id));
            Ok(replacements)
        })
        .map(|_| true)
    }

    /// Reopens an engine that rejects writes, and replaces damaged files.
    fn restart(&self, repairs: u64) -> Result<(), StoreError> {
        let mut restarted = self.repairing.lock();
        if self.repairs.load(Ordering::SeqCst) != repairs {
            return Ok(());
        }
        if restarted.is_some_and(|last| last.elapsed() < REOPEN_PAUSE) {
            return Err(StoreError::Unavailable {
                detail: format!("{} failed repeatedly", self.settings.path.display()),
            });
        }
        tracing::warn!("the engine of the cells stopped; reopening it");
        let replaced = self.reopen(|current| {
            let mut replacements = Vec::new();
            for file in current {
                replacements.extend(Replacement::prepare(&self.set_aside, file)?);
            }
            Ok(replacements)
        })?;
        *restarted = (replaced == 0).then(Instant::now);
        Ok(())
    }

    /// Closes the engine, replaces files, and reopens it. Returns the number of replaced files.
    fn reopen(
        &self,
        replacements: impl FnOnce(&[table_list::TableFile]) -> Result<Vec<Replacement>, StoreError>,
    ) -> Result<usize, StoreError> {
        *self.closed_since.lock() = Some(Instant::now());
        let mut engine = self.engine.write();
        if let Ok(open) = std::mem::replace(&mut *engine, Err(self.closed())) {
            open.close();
        }
        let path = &self.settings.path;
        let replaced = table_list::closed_files(path)
            .and_then(|(current, _)| replacements(&current))
            .and_then(|replacements| {
                replacements
                    .iter()
                    .try_for_each(|replacement| replacement.put(&self.set_aside))?;
                Ok(replacements.len())
            });
        // Reopened even if a replacement failed, so that other rows can be read.
        *engine = open(&self.settings, &self.set_aside);
        self.repairs.fetch_add(1, Ordering::SeqCst);
        *self.closed_since.lock() = None;
        engine.as_ref().map_err(StoreError::clone)?;
        replaced
    }

    /// Reopens the engine if it stopped or an earlier attempt to reopen it failed.
    pub(super) fn heal(&self) -> Result<(), StoreError> {
        let repairs = self.repairs.load(Ordering::SeqCst);
        let is_running = self.engine().is_ok_and(|engine| engine.check_running().is_ok());
        if is_running {
            return Ok(());
        }
        self.restart(repairs)
    }

    /// Whether the tree accepts writes.
    ///
    /// # Errors
    ///
    /// Why it does not.
    pub(super) fn check(&self) -> Result<(), StoreError> {
        if let Some(since) = *self.closed_since.lock() {
            if since.elapsed() >= REPAIR_LIMIT {
                let (path, seconds) = (self.settings.path.display(), since.elapsed().as_secs());
                return Err(StoreError::Unavailable {
                    detail: format!("the repair of {path} has taken {seconds} s"),
                });
            }
            return Ok(());
        }
        let engine = self.engine()?;
        let running = engine.check_running();
        running.map_err(|error| engine_error(&self.settings.path, &error))?;
        self.check_space(&engine, 0)
    }

    /// Fails unless the disk has space for `bytes` more and for the table files of the cells in memory.
    fn check_space(&self, engine: &Engine, bytes: u64) -> Result<(), StoreError> {
        let path = &self.settings.path;
        let available = fs4::available_space(path).map_err(|error| io_error(path, &error))?;
        let waiting = engine.cells.tree.sealed_memtable_count() as u64 * engine.memtable_bytes;
        if available < 2 * bytes + engine.memory_bytes() + waiting + DISK_RESERVE {
            return Err(StoreError::Full {
                place: path.display().to_string(),
            });
        }
        Ok(())
    }

    /// Commits puts and removals, about `bytes` bytes of keys and values, as one batch.
    ///
    /// # Errors
    ///
    /// [`StoreError::Full`] and [`StoreError::Unavailable`] if there was no effect.
    pub(super) fn commit<'a, I>(&self, bytes: u64, changes: impl Fn() -> I) -> Result<(), StoreError>
    where
        I: Iterator<Item = (&'a [u8], Option<&'a [u8]>)>,
    {
        let mut is_unknown = false;
        let committed = self.with(|engine| {
            self.check_space(engine, bytes)?;
            engine.commit(changes()).map_err(|error| {
                is_unknown |= !is_stopped(&error);
                TreeError::Engine(error)
            })
        });
        committed.map_err(|error| match error {
            // The journal may hold the batch although the write or the sync failed.
            StoreError::Full { place } | StoreError::Unavailable { detail: place } if is_unknown => {
                StoreError::Io {
                    place: self.settings.path.display().to_string(),
                    detail: format!("a write to the journal failed: {place}"),
                }
            }
            error => error,
        })
    }

    /// Writes all cells in memory to table files.
    pub(super) fn flush(&self) -> Result<(), StoreError> {
        self.with(|engine| Ok(engine.flush()?))
    }

    /// Bytes of the journal, of the active memtable, and of table files; 0 while the tree is closed.
    pub(super) fn sizes(&self) -> (u64, u64, u64) {
        match self.engine.try_read_recursive().as_deref() {
            Some(Ok(engine)) => (
                engine.database.journal_disk_space().unwrap_or(0),
                engine.memory_bytes(),
                engine.cells.disk_space(),
            ),
            _ => (0, 0, 0),
        }
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        let closed = Err(self.closed());
        if let Ok(engine) = std::mem::replace(self.engine.get_mut(), closed) {
            engine.close();
        }
    }
}

/// Whether the engine rejects writes until it is reopened.
fn is_stopped(error: &fjall::Error) -> bool {
    matches!(error, fjall::Error::Poisoned)
}

/// Opens the tree, cutting off an interrupted write and replacing the damaged files that prevent it.
fn open(settings: &Settings, set_aside: &SetAside) -> Result<Engine, StoreError> {
    let path = &settings.path;
    journal::check(path)?;
    opening::open(path, set_aside, || Engine::open(settings))
}

/// Creates an empty tree in a temporary folder and renames it: the engine cannot open a tree whose creation was
/// interrupted.
fn create(settings: &Settings) -> Result<(), StoreError> {
    let path: &Path = &settings.path;
    let aside = path.with_extension("new");
    let failed = |error| io_error(&aside, &error);
    if aside.exists() {
        fs::remove_dir_all(&aside).map_err(failed)?;
    }
    make_private(&aside)?;
    let settings = Settings {
        path: aside.clone(),
        expiry: settings.expiry.clone(),
        ..*settings
    };
    Engine::open(&settings)
        .map_err(|error| engine_error(&aside, &error))?
        .close();
    fs::rename(&aside, path).map_err(failed)?;
    path.parent().map_or(Ok(()), sync_folder)
}
