//! The memory account of a process.
//!
//! ```text
//!   --memory-limit-mib
//!   ├── fixed        caches and the store: sized at startup, at most half of the limit
//!   ├── ingest pool  bodies and messages of writes between their arrival and their acknowledgement
//!   └── query pool   request bodies, rows, points, and results that wait for their client
//! ```
//!
//! The pools do not borrow from each other, so queries cannot starve writes. A component that holds memory on
//! behalf of a caller owns a [`Reservation`] of those bytes and releases them by dropping it.
//!
//! Growing an existing reservation never waits by default: holders that waited for each other to release memory
//! would deadlock. Only new work waits, for a bounded time and in order of arrival.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::{Mutex, Notify};

/// The setting that bounds all memory, named in error messages.
pub const LIMIT_SETTING: &str = "--memory-limit-mib";

/// Memory outside the account: the program itself, stacks, connections, fragmentation.
const OVERHEAD_BYTES: u64 = 64 << 20;

/// The smallest limit that a server can run with.
pub const MIN_LIMIT_BYTES: u64 = 256 << 20;

/// All memory that callers can make a process hold. Clones share the pools.
#[derive(Clone, Debug)]
pub struct MemoryAccount {
    limit_bytes: u64,
    fixed_bytes: u64,
    ingest: MemoryPool,
    query: MemoryPool,
}

impl MemoryAccount {
    /// Creates an account of `limit_bytes`, of which `fixed_bytes` belong to caches and the store. Of the rest, a
    /// quarter goes to the ingest pool and three quarters to the query pool.
    pub fn new(limit_bytes: u64, fixed_bytes: u64) -> Self {
        let limit_bytes = limit_bytes.max(MIN_LIMIT_BYTES);
        let rest = limit_bytes
            .saturating_sub(fixed_bytes)
            .saturating_sub(OVERHEAD_BYTES);
        // An oversized fixed share leaves the pools small rather than empty.
        let rest = rest.max(limit_bytes / 4);
        Self {
            limit_bytes,
            fixed_bytes,
            ingest: MemoryPool::new("ingest", rest / 4),
            query: MemoryPool::new("query", rest - rest / 4),
        }
    }

    /// An account without limits, for tests and tools.
    pub fn unlimited() -> Self {
        Self {
            limit_bytes: u64::MAX,
            fixed_bytes: 0,
            ingest: MemoryPool::unlimited("ingest"),
            query: MemoryPool::unlimited("query"),
        }
    }

    /// Half of the memory of the machine, or of the control group if that is smaller.
    pub fn default_limit_bytes() -> u64 {
        available_bytes() / 2
    }

    /// The limit, in bytes.
    pub const fn limit_bytes(&self) -> u64 {
        self.limit_bytes
    }

    /// The share of caches and the store, in bytes.
    pub const fn fixed_bytes(&self) -> u64 {
        self.fixed_bytes
    }

    /// The pool of writes.
    pub const fn ingest(&self) -> &MemoryPool {
        &self.ingest
    }

    /// The pool of queries.
    pub const fn query(&self) -> &MemoryPool {
        &self.query
    }
}

/// The size of the fixed parts under a memory limit: as configured, or scaled down proportionally.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FixedShare {
    requested_bytes: u64,
    allowed_bytes: u64,
}

impl FixedShare {
    /// For parts configured to take `requested_bytes` in total, under a limit of all memory.
    pub const fn new(requested_bytes: u64, limit_bytes: u64) -> Self {
        Self {
            requested_bytes,
            allowed_bytes: limit_bytes / 2,
        }
    }

    /// For parts that are never scaled down.
    pub const fn unlimited() -> Self {
        Self::new(0, u64::MAX)
    }

    /// Whether the parts are smaller than configured.
    pub const fn is_reduced(&self) -> bool {
        self.requested_bytes > self.allowed_bytes
    }

    /// The size of all parts together.
    pub fn total_bytes(&self) -> u64 {
        self.requested_bytes.min(self.allowed_bytes)
    }

    /// The size of a part configured to take `bytes`.
    pub fn of(&self, bytes: u64) -> u64 {
        if !self.is_reduced() {
            return bytes;
        }
        let scaled = u128::from(bytes) * u128::from(self.allowed_bytes) / u128::from(self.requested_bytes);
        u64::try_from(scaled).unwrap_or(bytes)
    }
}

/// The memory of the machine or of the control group, in bytes; 4 GiB if neither can be read.
fn available_bytes() -> u64 {
    const UNKNOWN: u64 = 4 << 30;
    let read = |path: &str| std::fs::read_to_string(path).ok();
    let machine = read("/proc/meminfo").and_then(|text| {
        let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
        let kib: u64 = line.trim().trim_end_matches("kB").trim().parse().ok()?;
        kib.checked_mul(1024)
    });
    // cgroup v2, then v1. The value `max` does not parse and means unlimited.
    let group = [
        "/sys/fs/cgroup/memory.max",
        "/sys/fs/cgroup/memory/memory.limit_in_bytes",
    ]
    .into_iter()
    .find_map(|path| read(path)?.trim().parse::<u64>().ok());
    machine.into_iter().chain(group).min().unwrap_or(UNKNOWN)
}

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
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_secs(5);

    #[tokio::test(start_paused = true)]
    async fn growth_beyond_the_pool_fails_permanently() {
        let pool = MemoryPool::new("ingest", 100 << 20);
        let mut held = pool.try_reserve(60 << 20).unwrap();
        let began = tokio::time::Instant::now();
        let error = held.grow(41 << 20, SOON).await.unwrap_err();
        assert!(error.is_final() && began.elapsed().is_zero(), "{error:?}");
        assert_eq!(
            error.to_string(),
            "needs 103424 KiB of ingest memory, more than all of 100 MiB (--memory-limit-mib); \
             send or request less at a time"
        );
        assert!(held.try_grow(41 << 20).unwrap_err().is_final());
        assert!(pool.check_fits(100 << 20).is_ok());
        assert!(pool.check_fits(101 << 20).unwrap_err().is_final());
        // Other holders may release these.
        let _other = pool.try_reserve(40 << 20).unwrap();
        let error = held.grow(40 << 20, SOON).await.unwrap_err();
        assert!(!error.is_final() && began.elapsed() == SOON, "{error:?}");
        assert_eq!(
            error.to_string(),
            "ingest memory is in use: 100 of 100 MiB, 40960 KiB more requested (--memory-limit-mib); retry later"
        );
        assert!(!pool.try_reserve(100 << 20).unwrap_err().is_final());
        assert!(pool.reserve(101 << 20, SOON).await.unwrap_err().is_final());
        assert_eq!(began.elapsed(), SOON, "a final error does not wait");
    }

    #[test]
    fn dropping_a_reservation_releases_its_bytes() {
        let pool = MemoryPool::new("query", 100);
        let mut first = pool.try_reserve(60).unwrap();
        let error = pool.try_reserve(41).unwrap_err();
        assert_eq!((error.requested, error.used, error.limit), (41, 60, 100));
        assert_eq!(pool.usage().rejected, 1);
        first.try_grow(40).unwrap();
        assert!(first.try_grow(1).is_err());
        assert_eq!(first.bytes(), 100, "a rejected growth changes nothing");
        first.shrink_to(10);
        let second = first.split(4);
        assert_eq!(
            (first.bytes(), second.bytes(), pool.usage().used_bytes),
            (6, 4, 10)
        );
        first.merge(second);
        assert_eq!((first.bytes(), pool.usage().used_bytes), (10, 10));
        drop(first);
        assert_eq!((pool.usage().used_bytes, pool.usage().peak_bytes), (0, 100));
    }

    #[tokio::test(start_paused = true)]
    async fn reservations_wait_in_order_for_a_bounded_time() {
        let pool = MemoryPool::new("ingest", 100);
        let held = pool.try_reserve(100).unwrap();
        let large = tokio::spawn({
            let pool = pool.clone();
            async move { pool.reserve(80, SOON).await }
        });
        tokio::task::yield_now().await;
        let small = tokio::spawn({
            let pool = pool.clone();
            async move { pool.reserve(30, SOON).await }
        });
        tokio::task::yield_now().await;
        drop(held);
        let large = large.await.unwrap().unwrap();
        assert!(!small.is_finished(), "20 bytes are left");
        drop(large);
        assert_eq!(small.await.unwrap().unwrap().bytes(), 30);

        let held = pool.try_reserve(100).unwrap();
        let began = tokio::time::Instant::now();
        let error = pool.reserve(1, SOON).await.unwrap_err();
        assert_eq!((began.elapsed(), error.used), (SOON, 100));
        drop(held);
    }

    #[test]
    fn charges_may_exceed_the_limit() {
        let pool = MemoryPool::new("query", 100);
        let held = pool.charge(150);
        assert!(pool.try_reserve(1).is_err());
        assert!(pool.try_reserve(0).is_ok(), "requests without content are served");
        drop(held);
        assert!(pool.try_reserve(100).is_ok());
    }

    #[test]
    fn account_splits_its_limit_into_pools() {
        let account = MemoryAccount::new(1 << 30, 256 << 20);
        let pools = account.ingest().limit_bytes() + account.query().limit_bytes();
        assert_eq!(pools + account.fixed_bytes() + OVERHEAD_BYTES, 1 << 30);
        assert_eq!(account.ingest().limit_bytes(), pools / 4);
        let share = FixedShare::new(768 << 20, 1 << 30);
        assert!(share.is_reduced());
        assert_eq!((share.of(768 << 20), share.total_bytes()), (512 << 20, 512 << 20));
        assert_eq!(FixedShare::new(100, 1 << 30).of(100), 100);
        let crowded = MemoryAccount::new(1 << 30, 1 << 30);
        assert!(crowded.query().limit_bytes() >= 128 << 20);
        assert!(MemoryAccount::default_limit_bytes() > MIN_LIMIT_BYTES);
    }
}
