//! The open connections of a process.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::Entry;
use super::state::{State, millis};

#[derive(Debug)]
pub(super) struct Shared {
    /// Most connections of all listeners together.
    pub(super) limit: usize,
    pub(super) open: Mutex<Open>,
    /// Notified when a connection has closed.
    pub(super) released: Notify,
    pub(super) started: Instant,
}

#[derive(Debug, Default)]
pub(super) struct Open {
    pub(super) connections: HashMap<u64, Arc<State>>,
    pub(super) next_id: u64,
    pub(super) next_listener: usize,
}

/// Counters of a listener's connections since the start.
#[derive(Debug, Default)]
pub struct ConnectionCounts {
    /// Admitted.
    pub accepted: AtomicU64,
    /// Rejected, because all others were busy and their address had its share.
    pub refused: AtomicU64,
    /// Closed while idle, to admit another connection.
    pub evicted: AtomicU64,
    /// Closed while busy, to admit one of an address with fewer connections.
    pub displaced: AtomicU64,
    /// Closed for a flood of HTTP/2's control frames.
    pub flooded: AtomicU64,
    pub(super) flooded_logged: Mutex<Entry>,
    /// Handshakes of TLS that failed.
    pub tls_failed: AtomicU64,
    /// Clients without TLS on a port with it, or the reverse.
    pub tls_mismatched: AtomicU64,
    /// Open now.
    pub open: AtomicU64,
    /// Most that can be open: the smaller of the listener's own limit and the limit of all listeners together.
    pub limit: AtomicU64,
}

impl Shared {
    pub(super) fn now_ms(&self) -> u64 {
        millis(self.started.elapsed())
    }
}

/// The entry of a connection in the registry; removed on drop.
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
