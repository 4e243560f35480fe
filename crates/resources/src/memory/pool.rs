//! A pool of memory, and reservations of its bytes.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::{Mutex, Notify};

/// The setting that bounds all memory, named in error messages.
pub const LIMIT_SETTING: &str = "--memory-limit-mib";

/// A part of the account. Clones share it.
#[derive(Clone)]
pub struct MemoryPool(Arc<Pool>);

struct Pool {
    name: &'static str,
    limit: u64,
    used: AtomicU64,
    peak: AtomicU64,
    rejected: AtomicU64,
    released: Notify,
    /// Held by the waiter at the head of the queue; the others wait for it in FIFO order.
    turn: Mutex<()>,
}

/// Statistics of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolUsage {
    /// The pool: `ingest` or `query`.
    pub name: &'static str,
    /// Size in bytes.
    pub limit_bytes: u64,
    /// Reserved bytes.
    pub used_bytes: u64,
    /// The maximum of `used_bytes` since the process started.
    pub peak_bytes: u64,
    /// Rejected reservations since the process started.
    pub rejected: u64,
}

impl fmt::Debug for MemoryPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.usage().fmt(f)
    }
}

impl MemoryPool {
    /// A pool of `limit` bytes.
    pub fn new(name: &'static str, limit: u64) -> Self {
        Self(Arc::new(Pool {
            name,
            limit,
            used: AtomicU64::new(0),
            peak: AtomicU64::new(0),
            rejected: AtomicU64::new(0),
            released: Notify::new(),
            turn: Mutex::new(()),
        }))
    }

    /// A pool without a limit, for tests and tools.
    pub fn unlimited(name: &'static str) -> Self {
        Self::new(name, u64::MAX)
    }

    /// Size in bytes.
    pub fn limit_bytes(&self) -> u64 {
        self.0.limit
    }

    /// The current statistics.
    pub fn usage(&self) -> PoolUsage {
        let pool = &*self.0;
        PoolUsage {
            name: pool.name,
            limit_bytes: pool.limit,
            used_bytes: pool.used.load(Ordering::Relaxed),
            peak_bytes: pool.peak.load(Ordering::Relaxed),
            rejected: pool.rejected.load(Ordering::Relaxed),
        }
    }

    /// Checks that the pool could hold `bytes` for one holder, regardless of current use.
    ///
    /// # Errors
    ///
    /// A final error if the pool is smaller.
    pub fn check_fits(&self, bytes: u64) -> Result<(), MemoryError> {
        if bytes <= self.0.limit {
            return Ok(());
        }
        Err(self.reject(MemoryError {
            pool: self.0.name,
            held: 0,
            requested: bytes,
            used: self.usage().used_bytes,
            limit: self.0.limit,
        }))
    }

    /// Reserves bytes without waiting.
    ///
    /// # Errors
    ///
    /// If they are not free.
    pub fn try_reserve(&self, bytes: u64) -> Result<Reservation, MemoryError> {
        self.take(0, bytes).map_err(|error| self.reject(error))?;
        Ok(self.reservation(bytes))
    }

    /// Accounts for bytes that are already held and can no longer be rejected, even beyond the limit. Nothing is
    /// free until enough of them are released.
    pub fn charge(&self, bytes: u64) -> Reservation {
        let before = self.0.used.fetch_add(bytes, Ordering::AcqRel);
        self.0.peak.fetch_max(before + bytes, Ordering::Relaxed);
        self.reservation(bytes)
    }

    /// An empty reservation that can grow.
    pub fn empty_reservation(&self) -> Reservation {
        self.reservation(0)
    }

    /// Reserves bytes, waiting up to `wait` behind earlier requests.
    ///
    /// # Errors
    ///
    /// If they do not become free in time; immediately if the pool is too small.
    pub async fn reserve(&self, bytes: u64, wait: Duration) -> Result<Reservation, MemoryError> {
        self.wait_for(0, bytes, wait).await?;
        Ok(self.reservation(bytes))
    }

    const fn reservation_in(pool: Self, bytes: u64) -> Reservation {
        Reservation { pool, bytes }
    }

    fn reservation(&self, bytes: u64) -> Reservation {
        Self::reservation_in(self.clone(), bytes)
    }

    /// Takes bytes for a holder that already has `held` of them.
    fn take(&self, held: u64, bytes: u64) -> Result<(), MemoryError> {
        // An empty request succeeds even if charges have overdrawn the pool.
        if bytes == 0 {
            return Ok(());
        }
        let pool = &*self.0;
        let taken = pool
            .used
            .fetch_update(Ordering::AcqRel, Ordering::Relaxed, |used| {
                used.checked_add(bytes).filter(|sum| *sum <= pool.limit)
            });
        match taken {
            Ok(before) => {
                pool.peak.fetch_max(before + bytes, Ordering::Relaxed);
                Ok(())
            }
            Err(used) => Err(MemoryError {
                pool: pool.name,
                held,
                requested: bytes,
                used,
                limit: pool.limit,
            }),
        }
    }

    async fn wait_for(&self, held: u64, bytes: u64, wait: Duration) -> Result<(), MemoryError> {
        if bytes == 0 {
            return Ok(());
        }
        // Requests that are already waiting come first.
        let error = match self.0.turn.try_lock() {
            Ok(_turn) => match self.take(held, bytes) {
                Ok(()) => return Ok(()),
                Err(error) => error,
            },
            Err(_) => MemoryError {
                pool: self.0.name,
                held,
                requested: bytes,
                used: self.usage().used_bytes,
                limit: self.0.limit,
            },
        };
        if error.is_final() || wait.is_zero() {
            return Err(self.reject(error));
        }
        let taken = async {
            let _turn = self.0.turn.lock().await;
            loop {
                let released = self.0.released.notified();
                if self.take(held, bytes).is_ok() {
                    return;
                }
                released.await;
            }
        };
        match tokio::time::timeout(wait, taken).await {
            Ok(()) => Ok(()),
            Err(_elapsed) => {
                let used = self.usage().used_bytes;
                Err(self.reject(MemoryError { used, ..error }))
            }
        }
    }

    fn reject(&self, error: MemoryError) -> MemoryError {
        self.0.rejected.fetch_add(1, Ordering::Relaxed);
        error
    }

    fn release(&self, bytes: u64) {
        if bytes > 0 {
            self.0.used.fetch_sub(bytes, Ordering::AcqRel);
            self.0.released.notify_waiters();
        }
    }
}

/// Reserved bytes of a pool; dropping the reservation releases them.
#[derive(Debug)]
#[must_use = "dropping a reservation releases its memory"]
pub struct Reservation {
    pool: MemoryPool,
    bytes: u64,
}

impl Reservation {
    /// The number of reserved bytes.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The pool.
    pub const fn pool(&self) -> &MemoryPool {
        &self.pool
    }

    /// Reserves `bytes` more without waiting.
    ///
    /// # Errors
    ///
    /// If they are not free; the reservation is unchanged.
    pub fn try_grow(&mut self, bytes: u64) -> Result<(), MemoryError> {
        let taken = self.pool.take(self.bytes, bytes);
        taken.map_err(|error| self.pool.reject(error))?;
        self.bytes += bytes;
        Ok(())
    }

    /// Reserves `bytes` more, waiting up to `wait`. Only for holders that no other holder waits for; see the module
    /// documentation.
    ///
    /// # Errors
    ///
    /// If they do not become free in time; immediately if the pool is smaller than the resulting reservation. The
    /// reservation is unchanged.
    pub async fn grow(&mut self, bytes: u64, wait: Duration) -> Result<(), MemoryError> {
        self.pool.wait_for(self.bytes, bytes, wait).await?;
        self.bytes += bytes;
        Ok(())
    }

    /// Releases all bytes above `bytes`.
    pub fn shrink_to(&mut self, bytes: u64) {
        if let Some(released) = self.bytes.checked_sub(bytes) {
            self.bytes = bytes;
            self.pool.release(released);
        }
    }

    /// Splits off `bytes`, or all bytes if there are fewer.
    pub fn split(&mut self, bytes: u64) -> Reservation {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        self.pool.reservation(bytes)
    }

    /// Takes over the bytes of another reservation of the same pool.
    pub fn merge(&mut self, mut other: Reservation) {
        self.bytes += std::mem::take(&mut other.bytes);
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.pool.release(self.bytes);
    }
}

/// A reservation that the pool could not satisfy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.text())]
pub struct MemoryError {
    /// The pool: `ingest` or `query`.
    pub pool: &'static str,
    /// Bytes that the same holder already had.
    pub held: u64,
    /// Requested bytes.
    pub requested: u64,
    /// Bytes of the pool in use at that time.
    pub used: u64,
    /// Size of the pool in bytes.
    pub limit: u64,
}

impl MemoryError {
    /// Whether the holder needs more than the whole pool, so that no retry can succeed.
    pub const fn is_final(&self) -> bool {
        self.held.saturating_add(self.requested) > self.limit
    }

    fn text(&self) -> String {
        let Self { pool, used, .. } = self;
        let limit_mib = self.limit >> 20;
        if self.is_final() {
            let needed_kib = self.held.saturating_add(self.requested).div_ceil(1024);
            return format!(
                "needs {needed_kib} KiB of {pool} memory, more than all of {limit_mib} MiB ({LIMIT_SETTING}); \
                 send or request less at a time"
            );
        }
        format!(
            "{pool} memory is in use: {} of {limit_mib} MiB, {} KiB more requested ({LIMIT_SETTING}); retry later",
            used >> 20,
            self.requested.div_ceil(1024)
        )
    }
}

#[cfg(test)]
mod tests;
