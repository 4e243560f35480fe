//! The store: opening, flushing, closing, and what its operations share.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use parking_lot::{Condvar, Mutex, RwLock};

use super::catalog::Catalog;
use super::commit;
use super::config::{CellConfig, CellStats, MIN_TABLE_DESCRIPTORS};
use super::expiry::Expiry;
use super::folder::Folder;
use super::key::{self, TIME_KEY};
use super::prefixes::RowPrefixes;
use super::queue::Queue;
use super::set_aside::SetAside;
use super::time::StoreTime;
use super::tree::{Settings, Tree};
use crate::StoreError;

/// The format of the folder.
pub(super) const FORMAT: u32 = 2;
/// How often a stopped engine is looked for. A write finds it at once.
const HEAL: Duration = Duration::from_millis(500);

/// A [`RowStore`](crate::RowStore) in a local folder.
///
/// Dropping it stops its threads; nothing has to be written for that.
#[derive(Debug)]
pub struct CellStore {
    opened: RwLock<Option<Opened>>,
}

/// The state that the threads of a store share.
#[derive(Debug)]
pub(super) struct Core {
    pub(super) catalog: Arc<Catalog>,
    pub(super) tree: Tree,
    pub(super) time: Arc<StoreTime>,
    pub(super) groups: AtomicU64,
    pub(super) prefixes: RowPrefixes,
    stopping: Mutex<bool>,
    stopped: Condvar,
    /// Limits of the tree.
    limits: Limits,
    // Dropped last, since it holds the lock.
    pub(super) folder: Folder,
}

/// Limits of a tree.
#[derive(Clone, Copy, Debug)]
struct Limits {
    cache_bytes: u64,
    table_descriptors: usize,
    memtable_bytes: u64,
}

impl Limits {
    fn settings(self, path: PathBuf, catalog: &Arc<Catalog>, time: &Arc<StoreTime>) -> Settings {
        Settings {
            path,
            cache_bytes: self.cache_bytes,
            table_descriptors: self.table_descriptors,
            memtable_bytes: self.memtable_bytes,
            expiry: Arc::new(Expiry::new(catalog.clone(), time.clone())),
        }
    }
}

impl Core {
    /// The settings of a tree of the same tables in another folder.
    pub(super) fn settings(&self, path: PathBuf) -> Settings {
        self.limits.settings(path, &self.catalog, &self.time)
    }
}

#[derive(Debug)]
pub(super) struct Opened {
    core: Arc<Core>,
    queue: Arc<Queue>,
    commit: JoinHandle<()>,
    heal: JoinHandle<()>,
}

impl CellStore {
    /// Opens a store, creating it if necessary. Blocks while the journal is replayed.
    ///
    /// # Errors
    ///
    /// - [`StoreError::Unavailable`] if another process has it open.
    /// - [`StoreError::Invalid`] if it has another format.
    /// - [`StoreError::Corrupt`] with the place of the damage. An incomplete batch at the end of the journal is
    ///   not damage: it is cut off.
    /// - [`StoreError::Io`] and [`StoreError::Full`] from the operating system.
    pub fn open(config: CellConfig) -> Result<Self, StoreError> {
        let folder = Folder::open(&config.path, FORMAT)?;
        let catalog = Arc::new(Catalog::open(folder.tables())?);
        let time = Arc::new(StoreTime::new(config.clock));
        let limits = Limits {
            cache_bytes: config.cache_bytes,
            table_descriptors: config.table_descriptors.max(MIN_TABLE_DESCRIPTORS),
            memtable_bytes: config.memory_bytes / 4,
        };
        let settings = limits.settings(folder.cells(), &catalog, &time);
        let set_aside = SetAside::open(folder.damage(), folder.set_aside(), catalog.clone(), key::rows_of)?;
        let tree = Tree::open(settings, set_aside)?;
        let (last_key, last_ms) = tree.with(|engine| Ok((engine.last_key()?, engine.get(&TIME_KEY)?)))?;
        let last_table = last_key.and_then(|key| key.first_chunk().map(|id| u16::from_be_bytes(*id)));
        if let Some(id) = last_table.filter(|id| *id != 0)
            && !catalog.by_id().contains_key(&id)
        {
            return Err(StoreError::Corrupt {
                place: folder.tables().display().to_string(),
                detail: format!("table {id} is not defined, and there are cells of it"),
            });
        }
        if let Some(last_ms) = last_ms.and_then(|bytes| bytes.as_ref().try_into().ok()) {
            time.advance_to(i64::from_be_bytes(last_ms));
        }
        let core = Arc::new(Core {
            catalog,
            tree,
            time,
            groups: AtomicU64::new(0),
            prefixes: RowPrefixes::default(),
            stopping: Mutex::new(false),
            stopped: Condvar::new(),
            limits,
            folder,
        });
        let queue = Arc::new(Queue::new(config.queue_bytes));
        let commit = spawn("oxtsdb-commit", {
            let (core, queue) = (core.clone(), queue.clone());
            move || commit::run(&core, &queue)
        })?;
        let heal = spawn("oxtsdb-heal", {
            let core = core.clone();
            move || heal(&core)
        })?;
        Ok(Self {
            opened: RwLock::new(Some(Opened {
                core,
                queue,
                commit,
                heal,
            })),
        })
    }

    /// Writes all cells in memory to table files and waits until that is done.
    ///
    /// # Errors
    ///
    /// If they cannot be written; no data is lost.
    pub async fn flush(&self) -> Result<(), StoreError> {
        let (_, queue) = self.opened()?;
        queue.flush().await
    }

    /// Statistics for metrics.
    ///
    /// # Errors
    ///
    /// [`StoreError::Unavailable`] if the store is closed.
    pub fn stats(&self) -> Result<CellStats, StoreError> {
        let (core, _) = self.opened()?;
        let (journal_bytes, memory_bytes, table_bytes) = core.tree.sizes();
        Ok(CellStats {
            journal_bytes,
            memory_bytes,
            table_bytes,
            groups_committed: core.groups.load(Ordering::Relaxed),
        })
    }

    pub(super) fn opened(&self) -> Result<(Arc<Core>, Arc<Queue>), StoreError> {
        match &*self.opened.read() {
            Some(opened) => Ok((opened.core.clone(), opened.queue.clone())),
            None => Err(StoreError::Unavailable {
                detail: "the store is closed".to_owned(),
            }),
        }
    }

    /// Closes the store for further calls.
    pub(super) fn take(&self) -> Option<Opened> {
        self.opened.write().take()
    }
}

impl Opened {
    /// Stops the threads after the queued requests. The tree closes once its last reader is done.
    pub(super) fn stop(self) {
        self.queue.close();
        *self.core.stopping.lock() = true;
        self.core.stopped.notify_all();
        for thread in [self.commit, self.heal] {
            if thread.join().is_err() {
                tracing::error!("a thread of the store panicked");
            }
        }
    }
}

impl Drop for CellStore {
    fn drop(&mut self) {
        if let Some(opened) = self.take() {
            opened.stop();
        }
    }
}

/// Reopens the engine whenever it stops.
fn heal(core: &Core) {
    let mut last = None;
    let mut stopping = core.stopping.lock();
    while !*stopping {
        core.stopped.wait_for(&mut stopping, HEAL);
        if *stopping {
            return;
        }
        drop(stopping);
        let error = core.tree.heal().err().map(|error| error.to_string());
        if let Some(error) = error.as_ref().filter(|_| error != last) {
            tracing::error!(error, "the engine of the cells cannot be reopened");
        }
        last = error;
        stopping = core.stopping.lock();
    }
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, StoreError> {
    thread::Builder::new()
        .name(name.to_owned())
        .spawn(run)
        .map_err(|error| StoreError::Io {
            place: format!("thread {name}"),
            detail: error.to_string(),
        })
}
