//! The time of a store.

use std::sync::atomic::{AtomicI64, Ordering};

use crate::Clock;

/// A clock that never decreases, not even across restarts: each group stores its time with its cells.
#[derive(Debug)]
pub(super) struct StoreTime {
    clock: Clock,
    last_ms: AtomicI64,
}

impl StoreTime {
    pub(super) fn new(clock: Clock) -> Self {
        Self {
            clock,
            last_ms: AtomicI64::new(i64::MIN),
        }
    }

    /// Ensures that the time is at least `time_ms`.
    pub(super) fn advance_to(&self, time_ms: i64) {
        self.last_ms.fetch_max(time_ms, Ordering::Relaxed);
    }

    /// Milliseconds since the epoch.
    pub(super) fn now_ms(&self) -> i64 {
        let now_ms = self.clock.now_ms();
        self.last_ms.fetch_max(now_ms, Ordering::Relaxed).max(now_ms)
    }
}
