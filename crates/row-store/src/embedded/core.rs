//! What the threads of a store share.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use parking_lot::{Condvar, Mutex};
use tokio::sync::oneshot;

use super::EmbeddedConfig;
use super::blocks::Blocks;
use super::catalog::Catalog;
use super::compaction_state::CompactionState;
use super::folder::Folder;
use crate::StoreError;

/// An open store.
#[derive(Debug)]
pub(super) struct Core {
    pub(super) config: EmbeddedConfig,
    pub(super) catalog: Arc<Catalog>,
    pub(super) blocks: Blocks,
    /// The newest time that was used.
    pub(super) last_ms: AtomicI64,
    pub(super) flush: FlushState,
    pub(super) compaction: CompactionState,
    pub(super) counters: Counters,
    /// Why the last write failed, if the operating system did not take it.
    pub(super) write_error: Mutex<Option<StoreError>>,
    // Dropped last: it has the lock.
    pub(super) folder: Folder,
}

impl Core {
    /// The store's time: it never runs backwards.
    pub(super) fn now_ms(&self) -> i64 {
        let now_ms = self.config.clock.now_ms();
        self.last_ms.fetch_max(now_ms, Ordering::Relaxed).max(now_ms)
    }
}

/// What the commit thread and the flush thread tell each other.
#[derive(Debug, Default)]
pub(super) struct FlushState {
    pub(super) state: Mutex<FlushJob>,
    pub(super) changed: Condvar,
}

/// A flush that is to be done or being done.
#[derive(Debug, Default)]
pub(super) struct FlushJob {
    /// The last segment of the journal that the frozen rows are from; `None`: there is nothing frozen.
    pub(super) through_segment: Option<u64>,
    /// Why the last attempt failed. The next is made after a while.
    pub(super) error: Option<StoreError>,
    pub(super) stopping: bool,
    /// Who wants to know that the flush ended.
    pub(super) waiting: Vec<oneshot::Sender<Result<(), StoreError>>>,
}

/// Numbers for [`super::EmbeddedStats`].
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) journal_frozen_bytes: AtomicU64,
    pub(super) journal_active_bytes: AtomicU64,
    pub(super) flushes: AtomicU64,
    pub(super) groups: AtomicU64,
}

impl Counters {
    /// Bytes of journal that are not flushed yet.
    pub(super) fn journal_bytes(&self) -> u64 {
        self.journal_frozen_bytes.load(Ordering::Relaxed) + self.journal_active_bytes.load(Ordering::Relaxed)
    }
}
