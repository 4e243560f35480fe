//! A pool of memory, and reservations of its bytes.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::{Mutex, Notify};

use crate::{ClientId, Figure};

/// The setting that bounds all memory, named in error messages.
pub const LIMIT_SETTING: &str = "--memory-limit-mib";

/// A part of the account. Clones share it.
#[derive(Clone)]
pub struct MemoryPool {
    shared: Arc<Pool>,
    /// The client that the memory is charged to; `None`: the server itself.
    client: Option<Arc<ClientUse>>,
}

struct Pool {
    name: &'static str,
    limit: u64,
    used: AtomicU64,
    peak: AtomicU64,
    rejected: AtomicU64,
    /// The clients with handles of the pool.
    clients: parking_lot::Mutex<HashMap<ClientId, Weak<ClientUse>>>,
    /// How many of them hold memory.
    active_clients: AtomicU64,
    released: Notify,
    /// Held by the waiter at the head of the queue; the others wait for it in FIFO order.
    turn: Mutex<()>,
}

/// The memory of a client in a pool.
struct ClientUse {
    pool: Weak<Pool>,
    client: ClientId,
    used: AtomicU64,
}

impl Drop for ClientUse {
    fn drop(&mut self) {
        let Some(pool) = self.pool.upgrade() else { return };
        let mut clients = pool.clients.lock();
        // A new one may have come meanwhile.
        if clients
            .get(&self.client)
            .is_some_and(|client| client.strong_count() == 0)
        {
            clients.remove(&self.client);
        }
    }
}

impl Pool {
    /// Bytes shared by clients that hold little: a quarter.
    const fn shared_bytes(&self) -> u64 {
        self.limit / 4
    }

    /// The most that a client can hold.
    const fn client_limit(&self) -> u64 {
        self.limit - self.shared_bytes()
    }

    /// The share of each client in that part.
    fn client_share(&self) -> u64 {
        self.shared_bytes() / self.active_clients.load(Ordering::Relaxed).max(1)
    }

    fn add_to(&self, client: Option<&Arc<ClientUse>>, bytes: u64) {
        if let Some(client) = client
            && bytes > 0
            && client.used.fetch_add(bytes, Ordering::AcqRel) == 0
        {
            self.active_clients.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn take_from(&self, client: Option<&Arc<ClientUse>>, bytes: u64) {
        if let Some(client) = client
            && bytes > 0
            && client.used.fetch_sub(bytes, Ordering::AcqRel) == bytes
        {
            self.active_clients.fetch_sub(1, Ordering::Relaxed);
        }
    }
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

type Row = Figure<PoolUsage>;

/// Metrics of pools and lines of `/api/stats`, in their order.
pub static POOL_FIGURES: &[Row] = &[
    Row::gauge(
        "memory_pool_limit_bytes",
        "Size of a pool: of writes that are not stored, and of queries",
        |pool| Some(pool.limit_bytes),
    )
    .statistic("oxtsdb.memory.limit_bytes"),
    Row::gauge("memory_pool_used_bytes", "Reserved bytes of a pool", |pool| {
        Some(pool.used_bytes)
    })
    .statistic("oxtsdb.memory.used_bytes"),
    Row::gauge(
        "memory_pool_peak_bytes",
        "The most reserved bytes of a pool since the start",
        |pool| Some(pool.peak_bytes),
    )
    .statistic("oxtsdb.memory.peak_bytes"),
    Row::counter(
        "memory_pool_rejected",
        "Reservations that a pool had no memory for",
        |pool| Some(pool.rejected),
    )
    .statistic("oxtsdb.memory.rejected"),
];

impl fmt::Debug for MemoryPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.usage().fmt(f)
    }
}

impl MemoryPool {
    /// A pool of `limit` bytes.
    pub fn new(name: &'static str, limit: u64) -> Self {
        let shared = Arc::new(Pool {
            name,
            limit,
            used: AtomicU64::new(0),
            peak: AtomicU64::new(0),
            rejected: AtomicU64::new(0),
            clients: parking_lot::Mutex::default(),
            active_clients: AtomicU64::new(0),
            released: Notify::new(),
            turn: Mutex::new(()),
        });
        Self { shared, client: None }
    }

    /// The pool for the requests of a client: three quarters of the pool are first come, first served, and the last
    /// quarter is for clients that hold less than their equal share of that quarter. So a client can fill three
    /// quarters, and small requests of others have memory at once.
    #[must_use]
    pub fn for_client(&self, client: ClientId) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
            client: (client != ClientId::Local).then(|| self.use_of(client)),
        }
    }

    /// The client that the memory is charged to.
    pub fn client(&self) -> ClientId {
        self.client
            .as_ref()
            .map_or(ClientId::Local, |client| client.client)
    }

    /// The memory of a client, which all of the client's handles share.
    fn use_of(&self, client: ClientId) -> Arc<ClientUse> {
        let mut clients = self.shared.clients.lock();
        let known = clients.get(&client).and_then(Weak::upgrade);
        known.unwrap_or_else(|| {
            let used = Arc::new(ClientUse {
                pool: Arc::downgrade(&self.shared),
                client,
                used: AtomicU64::new(0),
            });
            clients.insert(client, Arc::downgrade(&used));
            used
        })
    }

    /// The most that this handle can hold, in bytes: the pool, or three quarters of it for a client.
    pub fn most_bytes(&self) -> u64 {
        self.most()
    }

    /// Bytes of [`MemoryPool::most_bytes`] that no holder has reserved.
    pub fn free_bytes(&self) -> u64 {
        let used = self.shared.used.load(Ordering::Relaxed);
        self.most().saturating_sub(used)
    }

    /// Whether requests wait for memory.
    pub fn has_waiting_requests(&self) -> bool {
        self.shared.turn.try_lock().is_err()
    }

    fn most(&self) -> u64 {
        match self.client {
            Some(_) => self.shared.client_limit(),
            None => self.shared.limit,
        }
    }

    /// A pool without a limit, for tests and tools.
    pub fn unlimited(name: &'static str) -> Self {
        Self::new(name, u64::MAX)
    }

    /// Size in bytes.
    pub fn limit_bytes(&self) -> u64 {
        self.shared.limit
    }

    /// The current statistics.
    pub fn usage(&self) -> PoolUsage {
        let pool = &*self.shared;
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
        if bytes <= self.most() {
            return Ok(());
        }
        Err(self.reject(self.error(0, bytes)))
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
        let before = self.shared.used.fetch_add(bytes, Ordering::AcqRel);
        self.shared.peak.fetch_max(before + bytes, Ordering::Relaxed);
        self.shared.add_to(self.client.as_ref(), bytes);
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
        self.reserve_beside(0, bytes, wait).await
    }

    /// As [`MemoryPool::reserve`], for a holder that already has `held` bytes. See [`Reservation::grow`].
    ///
    /// # Errors
    ///
    /// As [`Reservation::grow`].
    pub async fn reserve_beside(
        &self,
        held: u64,
        bytes: u64,
        wait: Duration,
    ) -> Result<Reservation, MemoryError> {
        self.wait_for(held, bytes, wait).await?;
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
        let pool = &*self.shared;
        let most = if self.is_within_share(bytes) {
            pool.limit
        } else {
            self.most()
        };
        let taken = pool
            .used
            .fetch_update(Ordering::AcqRel, Ordering::Relaxed, |used| {
                used.checked_add(bytes).filter(|sum| *sum <= most)
            });
        let Ok(before) = taken else {
            return Err(self.error(held, bytes));
        };
        pool.peak.fetch_max(before + bytes, Ordering::Relaxed);
        pool.add_to(self.client.as_ref(), bytes);
        Ok(())
    }

    /// Whether the client still holds no more than its share of the last quarter with `bytes` more.
    fn is_within_share(&self, bytes: u64) -> bool {
        self.client.as_ref().is_some_and(|client| {
            client.used.load(Ordering::Relaxed).saturating_add(bytes) <= self.shared.client_share()
        })
    }

    fn error(&self, held: u64, requested: u64) -> MemoryError {
        MemoryError {
            pool: self.shared.name,
            held,
            requested,
            used: self.shared.used.load(Ordering::Relaxed),
            limit: self.most(),
            waited: Duration::ZERO,
        }
    }

    async fn wait_for(&self, held: u64, bytes: u64, wait: Duration) -> Result<(), MemoryError> {
        if bytes == 0 {
            return Ok(());
        }
        // Requests that are already waiting come first, except before clients that hold little.
        let is_first = self.shared.turn.try_lock().is_ok();
        if (is_first || self.is_within_share(bytes)) && self.take(held, bytes).is_ok() {
            return Ok(());
        }
        let error = self.error(held, bytes);
        if error.is_final() || wait.is_zero() {
            return Err(self.reject(error));
        }
        let taken = async {
            let _turn = self.shared.turn.lock().await;
            loop {
                let released = self.shared.released.notified();
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
                let waited = wait;
                Err(self.reject(MemoryError {
                    used,
                    waited,
                    ..error
                }))
            }
        }
    }

    fn reject(&self, error: MemoryError) -> MemoryError {
        self.shared.rejected.fetch_add(1, Ordering::Relaxed);
        error
    }

    fn release(&self, bytes: u64) {
        if bytes > 0 {
            self.shared.take_from(self.client.as_ref(), bytes);
            self.shared.used.fetch_sub(bytes, Ordering::AcqRel);
            self.shared.released.notify_waiters();
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

    /// Takes over the bytes of another reservation of the same pool and client.
    pub fn merge(&mut self, mut other: Reservation) {
        let bytes = std::mem::take(&mut other.bytes);
        let pool = &self.pool.shared;
        pool.take_from(other.pool.client.as_ref(), bytes);
        pool.add_to(self.pool.client.as_ref(), bytes);
        self.bytes += bytes;
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
    /// The most that the holder can have, in bytes: the pool, or three quarters of it for a client.
    pub limit: u64,
    /// How long the request waited.
    pub waited: Duration,
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
                "needs {needed_kib} KiB of {pool} memory, more than the {limit_mib} MiB that a request can \
                 have ({LIMIT_SETTING}); send or request less at a time"
            );
        }
        let waited = match self.waited.as_secs_f64() {
            0.0 => String::new(),
            seconds => format!(", which did not become free within {seconds:.1} s"),
        };
        format!(
            "{pool} memory is in use: {} of {limit_mib} MiB, {} KiB more requested ({LIMIT_SETTING}){waited}; retry later",
            used >> 20,
            self.requested.div_ceil(1024)
        )
    }
}

#[cfg(test)]
mod tests;
