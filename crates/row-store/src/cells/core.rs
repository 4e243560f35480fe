//! The core of a store: the state that its operations and threads share, and its recovery.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::Bytes;
use oxtsdb_storage_file::journal::{Journal, JournalFiles, JournalOptions, Rejected};
use parking_lot::{Condvar, Mutex};

use super::catalog::Catalog;
use super::config::CellConfig;
use super::folder::{self, Folder, io_error};
use super::frame;
use super::key::{self, TIME_KEY};
use super::prefixes::RowPrefixes;
use super::queue::closed;
use super::set_aside::SetAside;
use super::time::StoreTime;
use super::tree::Tree;
use crate::StoreError;

/// Space that must be free beside the cells in memory.
const DISK_RESERVE: u64 = 1 << 20;

/// How the journal of a new store is opened.
pub(super) const JOURNAL: JournalOptions = JournalOptions {
    magic: *b"oxtsdbcj",
    cut: Some(0),
    has_list: false,
    accept_losses: false,
};

/// The state that the threads of a store share.
#[derive(Debug)]
pub(super) struct Core {
    pub(super) catalog: Arc<Catalog>,
    pub(super) tree: Tree,
    pub(super) time: StoreTime,
    pub(super) groups: AtomicU64,
    pub(super) prefixes: RowPrefixes,
    pub(super) journal: Arc<JournalFiles>,
    /// The size at which a memtable is flushed, in bytes.
    pub(super) memtable_bytes: u64,
    pub(super) background: Mutex<Background>,
    /// A flush or merge ended, failed, or has something to do; or the store stops.
    pub(super) background_changed: Condvar,
    pub(super) stopping: AtomicBool,
    /// Losses that opening has accepted.
    pub(super) losses: Vec<StoreError>,
    // Dropped last, since it holds the lock.
    pub(super) folder: Folder,
}

/// The last flushes and failures of the threads of a store.
#[derive(Debug, Default)]
pub(super) struct Background {
    pub(super) flushes: u64,
    /// Why the last attempts failed, if they did.
    pub(super) write_error: Option<StoreError>,
    pub(super) flush_error: Option<StoreError>,
    pub(super) merge_error: Option<StoreError>,
}

impl Core {
    /// Opens the files of a store. Its threads are still to be started.
    pub(super) fn open(config: CellConfig) -> Result<(Self, Journal), StoreError> {
        let disk = config.disk;
        let mut losses = Vec::new();
        let mut accepted = config.accept_losses.then_some(&mut losses);
        let mut folder = Folder::open(&*disk, &config.path, accepted.as_deref_mut())?;
        let path = folder.path().to_owned();
        let catalog = Arc::new(Catalog::open(Arc::clone(&disk), folder::definitions(&path))?);
        let time = StoreTime::new(config.clock);
        let set_aside = SetAside::open(
            Arc::clone(&disk),
            &path,
            Arc::clone(&catalog),
            key::rows_of,
            accepted.as_deref_mut(),
        )?;
        let tree = Tree::open(
            Arc::clone(&disk),
            path.clone(),
            folder.is_new(),
            accepted,
            config.cache_bytes,
            set_aside,
        )?;
        let options = JournalOptions {
            cut: Some(tree.cut()),
            has_list: !folder.is_new(),
            accept_losses: config.accept_losses,
            ..JOURNAL
        };
        let replay = &mut |commit, content: &[u8]| {
            let active = Arc::clone(&tree.version().active);
            frame::decode(content, |key, value| {
                active.insert(key, value.map(Bytes::copy_from_slice), commit);
            })
            .map_err(Rejected::<StoreError>::Content)
        };
        let (mut journal, recovered) =
            Journal::open(Arc::clone(&disk), &folder::journal(&path), options, replay)?;
        // No read may see a commit that a power loss would take back.
        journal.make_durable()?;
        tree.show(journal.durable());
        folder.complete(&*disk)?;
        if recovered.frames > 0 {
            tracing::info!(commits = recovered.frames, folder = %path.display(), "replayed the journal of cells");
        }
        losses.extend(recovered.losses.into_iter().map(StoreError::from));
        check_definitions(&tree, &catalog, &path)?;
        let last_ms = tree.get(&TIME_KEY)?;
        if let Some(last_ms) = last_ms.and_then(|bytes| bytes.as_ref().try_into().ok()) {
            time.advance_to(i64::from_be_bytes(last_ms));
        }
        let core = Self {
            catalog,
            tree,
            time,
            groups: AtomicU64::new(0),
            prefixes: RowPrefixes::default(),
            journal: journal.files(),
            memtable_bytes: config.memory_bytes / 4,
            background: Mutex::default(),
            background_changed: Condvar::new(),
            stopping: AtomicBool::new(false),
            losses,
            folder,
        };
        Ok((core, journal))
    }

    pub(super) fn free_bytes(&self) -> Result<u64, StoreError> {
        let path = self.folder.path();
        let free = self.tree.disk.free_bytes(path);
        free.map_err(|error| io_error(path, &error))
    }

    /// Memory of the cells that are in no table.
    fn memory_bytes(&self) -> u64 {
        let version = self.tree.version();
        let frozen = version.frozen.iter().map(|frozen| frozen.memtable.byte_len());
        frozen.sum::<u64>() + version.active.byte_len()
    }

    /// Fails unless the disk has space for `bytes` bytes and for the tables of the cells in memory.
    ///
    /// Measured for each group of writes: flushes and merges take space meanwhile, and a call takes a microsecond where a sync
    /// takes many.
    pub(super) fn check_space(&self, bytes: u64) -> Result<(), StoreError> {
        let free = self.free_bytes()?;
        let needed = 2 * bytes + self.memory_bytes() + DISK_RESERVE;
        if free < needed {
            return Err(StoreError::Full {
                detail: format!("{free} bytes are free, {needed} are needed"),
            });
        }
        Ok(())
    }

    /// Whether the store accepts writes.
    ///
    /// # Errors
    ///
    /// The reason why it does not, or the error of a failed thread.
    pub(super) fn check(&self) -> Result<(), StoreError> {
        {
            let state = self.background.lock();
            let errors = [&state.write_error, &state.flush_error, &state.merge_error];
            if let Some(error) = errors.into_iter().flatten().next() {
                return Err(error.clone());
            }
        }
        self.check_space(0)
    }

    /// Waits until all frozen memtables are in tables.
    ///
    /// # Errors
    ///
    /// The error of the last failed flush; the attempts continue.
    pub(super) fn wait_for_flush(&self) -> Result<(), StoreError> {
        let mut state = self.background.lock();
        while !self.tree.version().frozen.is_empty() {
            if self.stopping.load(Ordering::Relaxed) {
                return Err(closed());
            }
            if let Some(error) = &state.flush_error {
                return Err(error.clone());
            }
            self.background_changed.wait(&mut state);
        }
        Ok(())
    }
}

/// Fails if there are cells of a table that is not defined.
fn check_definitions(tree: &Tree, catalog: &Catalog, path: &Path) -> Result<(), StoreError> {
    let last_key = tree.read(|snapshot| {
        let mut keys = snapshot.range(&[], &key::AFTER_ALL, true)?;
        Ok(keys.advance()?.then(|| keys.key().to_vec()))
    })?;
    let last_table = last_key.and_then(|key| key.first_chunk().map(|id| u16::from_be_bytes(*id)));
    match last_table.filter(|id| *id != 0) {
        Some(id) if !catalog.by_id().contains_key(&id) => Err(StoreError::Corrupt {
            place: folder::definitions(path).display().to_string(),
            detail: format!("table {id} is not defined, and there are cells of it"),
        }),
        _ => Ok(()),
    }
}
