//! The open connections of a process.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::state::State;

#[derive(Debug)]
pub(super) struct Shared {
    /// Of all listeners together.
    pub(super) limit: usize,
    pub(super) open: Mutex<Open>,
    /// A connection was closed.
    pub(super) released: Notify,
    pub(super) started: Instant,
}

#[derive(Debug, Default)]
pub(super) struct Open {
    pub(super) connections: HashMap<u64, Arc<State>>,
    pub(super) next_id: u64,
    pub(super) next_listener: usize,
}

/// What became of the connections of a listener since the start.
#[derive(Debug, Default)]
pub struct ConnectionCounts {
    /// Admitted.
    pub accepted: AtomicU64,
    /// Refused, because all others were busy.
    pub refused: AtomicU64,
    /// Closed while idle, because another client needed the place.
    pub evicted: AtomicU64,
    /// Open now.
    pub open: AtomicU64,
}

impl Shared {
    pub(super) fn now_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

/// The place of a connection among the open ones; free when it is dropped.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) id: u64,
    pub(super) shared: Weak<Shared>,
    pub(super) counts: Arc<ConnectionCounts>,
}

impl Drop for Place {
    fn drop(&mut self) {
        let Some(shared) = self.shared.upgrade() else {
            return;
        };
        let mut open = shared.open.lock();
        open.connections.remove(&self.id);
        self.counts.open.fetch_sub(1, Ordering::Relaxed);
        drop(open);
        shared.released.notify_waiters();
    }
}
