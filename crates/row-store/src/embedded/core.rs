//! State shared by the threads of a store.

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
    /// The newest timestamp assigned so far.
    pub(super) last_ms: AtomicI64,
    pub(super) flush: FlushState,
    pub(super) compaction: CompactionState,
    pub(super) counters: Counters,
    /// The error of the last write to the journal, if it failed.
    pub(super) write_error: Mutex<Option<StoreError>>,
    // Dropped last, since it holds the lock.
    pub(super) folder: Folder,
}

impl Core {
    /// The store's time, which never decreases.
    pub(super) fn now_ms(&self) -> i64 {
        let now_ms = self.config.clock.now_ms();
        self.last_ms.fetch_max(now_ms, Ordering::Relaxed).max(now_ms)
    }
}

/// State shared by the commit thread and the flush thread.
#[derive(Debug, Default)]
pub(super) struct FlushState {
    pub(super) state: Mutex<FlushJob>,
    pub(super) changed: Condvar,
}

/// A pending or running flush.
#[derive(Debug, Default)]
pub(super) struct FlushJob {
    /// The last journal segment of the frozen rows; `None`: nothing is frozen.
    pub(super) through_segment: Option<u64>,
    /// The error of the last attempt, which will be retried.
    pub(super) error: Option<StoreError>,
    pub(super) stopping: bool,
    /// Callers waiting for the flush.
    pub(super) waiting: Vec<oneshot::Sender<Result<(), StoreError>>>,
}

/// Counters for [`super::EmbeddedStats`].
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) journal_frozen_bytes: AtomicU64,
    pub(super) journal_active_bytes: AtomicU64,
    pub(super) flushes: AtomicU64,
    pub(super) groups: AtomicU64,
}

impl Counters {
    /// Unflushed journal, in bytes.
    pub(super) fn journal_bytes(&self) -> u64 {
        self.journal_frozen_bytes.load(Ordering::Relaxed) + self.journal_active_bytes.load(Ordering::Relaxed)
    }
}
