//! Budgets: the limits of a query and its usage so far.
//!
//! Memory is charged where it is held: for rows between scan and decoder, for points of series, for results until the
//! client has received them. It comes from the query pool of the process. A query reserves the memory that it needs
//! before it reads ([`crate::context::demand`]), so up to that other queries cannot make it fail; above it, the query
//! takes what is free. While it waits for its client, and after the scan, it keeps only the memory that it holds.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use oxtsdb_resources::{MemoryError, MemoryPool, Reservation};
use oxtsdb_row_store::FetchMemory;
use parking_lot::Mutex;

use crate::context::limits::Limits;
use crate::context::resource::Resource;
use crate::error::QueryError;

/// Memory of a point: timestamp and value.
pub(crate) const POINT_BYTES: u64 = 16;

/// Memory of a series beside its points: entries of hash tables, its TSUID, the group that it may be by itself. An
/// estimate from the sizes of types.
pub(crate) const SERIES_BYTES: u64 = 512;

/// Smallest increment of a reservation.
const GROWTH_BYTES: u64 = 1 << 20;

/// Resources that a query has used so far.
#[derive(Debug, Default)]
pub struct Usage {
    series: AtomicU64,
    rows: AtomicU64,
    bytes: AtomicU64,
    points: AtomicU64,
    memory: AtomicU64,
    /// The part of `memory` that points of series take.
    series_memory: AtomicU64,
    /// The part of `memory` that series take beside their points.
    series_overhead: AtomicU64,
}

impl Usage {
    /// How much of a resource; of memory, how much now.
    pub fn get(&self, resource: Resource) -> u64 {
        let used = match resource {
            Resource::Series => &self.series,
            Resource::Rows => &self.rows,
            Resource::Bytes => &self.bytes,
            Resource::Points => &self.points,
            Resource::Memory => &self.memory,
        };
        used.load(Ordering::Relaxed)
    }
}

/// The memory of a query in the pool of the process.
#[derive(Debug)]
struct Memory {
    reservation: Mutex<Reservation>,
    /// Its size, to be read without the lock.
    reserved: AtomicU64,
    /// Whether memory goes back to the pool as soon as it is released.
    is_shrinking: AtomicBool,
}

impl Memory {
    /// Grows the reservation to at least `bytes`.
    fn grow_to(&self, bytes: u64) -> Result<(), MemoryError> {
        if bytes <= self.reserved.load(Ordering::Acquire) {
            return Ok(());
        }
        let mut reservation = self.reservation.lock();
        let missing = bytes.saturating_sub(reservation.bytes());
        if missing > 0 {
            reservation
                .try_grow(missing.max(GROWTH_BYTES))
                .or_else(|_| reservation.try_grow(missing))?;
        }
        self.reserved.store(reservation.bytes(), Ordering::Release);
        Ok(())
    }

    /// Grows the reservation to at least `bytes`, waiting behind earlier requests.
    async fn wait_for(&self, bytes: u64, wait: Duration) -> Result<(), MemoryError> {
        let (pool, reserved) = {
            let reservation = self.reservation.lock();
            (reservation.pool().clone(), reservation.bytes())
        };
        let missing = bytes.saturating_sub(reserved);
        let more = pool.reserve_beside(reserved, missing, wait).await?;
        let mut reservation = self.reservation.lock();
        reservation.merge(more);
        self.reserved.store(reservation.bytes(), Ordering::Release);
        Ok(())
    }

    /// Returns unused memory above `least` bytes to the pool. Memory that is taken concurrently is reserved again.
    fn shrink_to_held(&self, held: &AtomicU64, least: u64) -> Result<(), MemoryError> {
        {
            let mut reservation = self.reservation.lock();
            reservation.shrink_to(held.load(Ordering::Acquire).max(least));
            self.reserved.store(reservation.bytes(), Ordering::Release);
        }
        self.grow_to(held.load(Ordering::Acquire))
    }
}

/// Limits and usage of a query. Clones share the usage.
#[derive(Clone, Debug)]
pub struct Budget(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    usage: Arc<Usage>,
    limits: Limits,
    memory: Memory,
}

impl Budget {
    /// A budget with `usage` already used and memory already reserved for it.
    pub fn new(limits: Limits, usage: Arc<Usage>, reservation: Reservation) -> Self {
        let memory = Memory {
            reserved: reservation.bytes().into(),
            reservation: Mutex::new(reservation),
            is_shrinking: AtomicBool::new(false),
        };
        Self(Arc::new(Inner {
            usage,
            limits,
            memory,
        }))
    }

    /// A budget that is bounded by its limits alone, for tests and tools.
    pub fn from_limits(limits: Limits) -> Self {
        let reservation = MemoryPool::unlimited("query").empty_reservation();
        Self::new(limits, Arc::default(), reservation)
    }

    /// The limits of the query.
    pub fn limits(&self) -> &Limits {
        &self.0.limits
    }

    /// The usage of the query.
    pub fn usage(&self) -> &Arc<Usage> {
        &self.0.usage
    }

    /// Counts rows and their bytes.
    ///
    /// # Errors
    ///
    /// [`QueryError::OverBudget`].
    pub fn use_rows(&self, rows: u64, bytes: u64) -> Result<(), QueryError> {
        self.add(Resource::Rows, &self.0.usage.rows, rows)?;
        self.add(Resource::Bytes, &self.0.usage.bytes, bytes)
    }

    /// Uses points.
    pub(crate) fn use_points(&self, points: u64) -> Result<(), QueryError> {
        self.add(Resource::Points, &self.0.usage.points, points)
    }

    /// Counts series, and holds the memory that they take beside their points.
    ///
    /// # Errors
    ///
    /// [`QueryError::OverBudget`].
    pub fn use_series(&self, count: u64) -> Result<(), QueryError> {
        self.add(Resource::Series, &self.0.usage.series, count)?;
        self.hold_series_overhead(count)
    }

    /// Counts series that hold no memory but their TSUIDs: a limit that was derived from their memory does not apply.
    pub(crate) fn count_series(&self, series: u64) -> Result<(), QueryError> {
        let before = self.0.usage.series.fetch_add(series, Ordering::Relaxed);
        if self.0.limits.is_set(Resource::Series) {
            self.0.limits.check(Resource::Series, before + series)?;
        }
        Ok(())
    }

    /// Holds the memory that series take beside their points, until [`Budget::release_all_series`].
    pub(crate) fn hold_series_overhead(&self, count: u64) -> Result<(), QueryError> {
        let overhead = &self.0.usage.series_overhead;
        overhead.fetch_add(count * SERIES_BYTES, Ordering::Relaxed);
        self.take(count * SERIES_BYTES)
    }

    /// Holds the memory of annotations of series, until [`Budget::release_all_series`].
    pub(crate) fn hold_annotation(&self, bytes: u64) -> Result<(), QueryError> {
        let overhead = &self.0.usage.series_overhead;
        overhead.fetch_add(bytes, Ordering::Relaxed);
        self.take(bytes)
    }

    /// Releases all memory of series, with their points.
    pub(crate) fn release_all_series(&self) {
        let usage = &self.0.usage;
        let points = usage.series_memory.swap(0, Ordering::Relaxed);
        let overhead = usage.series_overhead.swap(0, Ordering::Relaxed);
        self.give_back(points + overhead);
    }

    /// Holds memory until the guard is dropped.
    ///
    /// # Errors
    ///
    /// [`QueryError::OverBudget`], and [`QueryError::NoMemory`] if the pool has no more.
    pub fn hold(&self, bytes: u64) -> Result<Held, QueryError> {
        self.take(bytes).inspect_err(|_| self.give_back(bytes))?;
        Ok(Held {
            budget: self.clone(),
            bytes,
        })
    }

    /// Holds memory for points of series, until [`Budget::release_series`].
    pub(crate) fn hold_series(&self, bytes: u64) -> Result<(), QueryError> {
        self.0.usage.series_memory.fetch_add(bytes, Ordering::Relaxed);
        self.take(bytes)
    }

    /// Releases memory of points of series.
    pub(crate) fn release_series(&self, bytes: u64) {
        self.0.usage.series_memory.fetch_sub(bytes, Ordering::Relaxed);
        self.give_back(bytes);
    }

    /// Counts memory of series anew that changed from `before` bytes to `after`.
    pub(crate) fn recount_series(&self, before: u64, after: u64) -> Result<(), QueryError> {
        match after.checked_sub(before) {
            Some(more) => self.hold_series(more),
            None => {
                self.release_series(before - after);
                Ok(())
            }
        }
    }

    /// Bytes that points of series take.
    pub(crate) fn series_bytes(&self) -> u64 {
        self.0.usage.series_memory.load(Ordering::Relaxed)
    }

    /// Whether `bytes` more could be held.
    pub(crate) fn has_capacity_for(&self, bytes: u64) -> bool {
        self.0.usage.get(Resource::Memory).saturating_add(bytes) <= self.0.limits.memory.most
    }

    /// Returns reserved memory that is not held to the pool, now and at each release.
    pub(crate) fn keep_only_what_is_held(&self) {
        self.0.memory.is_shrinking.store(true, Ordering::Release);
        self.shrink();
    }

    /// Reserves memory again, as far as the pool has it. The rest is reserved when it is needed.
    pub(crate) fn reserve_again(&self, bytes: u64) {
        self.0.memory.is_shrinking.store(false, Ordering::Release);
        // Not an error: the query continues with the memory that it has.
        let _ = self.0.memory.grow_to(bytes);
    }

    /// The pool that the memory comes from.
    pub(crate) fn pool(&self) -> MemoryPool {
        self.0.memory.reservation.lock().pool().clone()
    }

    /// Memory that is reserved and so certain to be there, in bytes; without a limit of the pool, the limit of the query.
    pub(crate) fn reserved_bytes(&self) -> u64 {
        if self.pool().limit_bytes() == u64::MAX {
            return self.0.limits.memory.most;
        }
        self.0.memory.reserved.load(Ordering::Acquire)
    }

    /// Reserves memory up to `bytes` without waiting; returns whether it was free.
    pub(crate) fn try_reserve(&self, bytes: u64) -> bool {
        self.0.memory.grow_to(bytes).is_ok()
    }

    /// Reserves memory up to `bytes`, behind queries that already wait for memory.
    ///
    /// # Errors
    ///
    /// [`QueryError::NoMemory`] if it does not become free in time, and if it never can.
    pub(crate) async fn wait_for(&self, bytes: u64, wait: Duration) -> Result<(), QueryError> {
        Ok(self.0.memory.wait_for(bytes, wait).await?)
    }

    /// Returns reserved memory above `least` bytes that is not held to the pool.
    pub(crate) fn return_unused_above(&self, least: u64) {
        // Memory that another thread took meanwhile is held, whether the pool still has it or not.
        let _ = self.0.memory.shrink_to_held(&self.0.usage.memory, least);
    }

    /// Returns all memory to the pool: everything that the query held is dropped. Jobs of the query that still run on other
    /// threads fail with their next allocation.
    pub(crate) fn abandon(&self) {
        let mut reservation = self.0.memory.reservation.lock();
        *reservation = MemoryPool::new("query", 0).empty_reservation();
        self.0.memory.reserved.store(0, Ordering::Release);
    }

    fn take(&self, bytes: u64) -> Result<(), QueryError> {
        let before = self.0.usage.memory.fetch_add(bytes, Ordering::AcqRel);
        let held = before.saturating_add(bytes);
        self.0.limits.check(Resource::Memory, held)?;
        self.0.memory.grow_to(held).map_err(QueryError::NoMemory)
    }

    fn give_back(&self, bytes: u64) {
        self.0.usage.memory.fetch_sub(bytes, Ordering::AcqRel);
        if self.0.memory.is_shrinking.load(Ordering::Acquire) {
            self.shrink();
        }
    }

    fn shrink(&self) {
        self.return_unused_above(0);
    }

    fn add(&self, resource: Resource, used: &AtomicU64, more: u64) -> Result<(), QueryError> {
        let before = used.fetch_add(more, Ordering::Relaxed);
        self.0.limits.check(resource, before.saturating_add(more))
    }
}

impl FetchMemory for Budget {
    fn fetched(&self, bytes: u64) {
        // Counted in any case. If it is too much, the next rows are rejected.
        let _ = self.take(bytes);
    }

    fn returned(&self, bytes: u64) {
        self.give_back(bytes);
    }
}

/// Memory that a query holds; released when this is dropped.
#[derive(Debug)]
#[must_use = "dropping it releases the memory"]
pub struct Held {
    budget: Budget,
    bytes: u64,
}

impl Held {
    /// How many bytes are held.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The budget that they are held of.
    pub const fn budget(&self) -> &Budget {
        &self.budget
    }

    /// Takes over the memory that another `Held` of the same budget holds.
    pub fn merge(&mut self, mut other: Self) {
        self.bytes += std::mem::take(&mut other.bytes);
    }

    /// Holds more.
    ///
    /// # Errors
    ///
    /// As [`Budget::hold`]; the held memory is then unchanged.
    pub fn grow(&mut self, bytes: u64) -> Result<(), QueryError> {
        self.budget
            .take(bytes)
            .inspect_err(|_| self.budget.give_back(bytes))?;
        self.bytes += bytes;
        Ok(())
    }

    /// Releases the memory above `bytes`.
    pub fn shrink_to(&mut self, bytes: u64) {
        if let Some(released) = self.bytes.checked_sub(bytes) {
            self.bytes = bytes;
            self.budget.give_back(released);
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.budget.give_back(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::resource::Limit;

    #[test]
    fn series_take_no_more_than_is_charged() {
        use crate::exec::group::SeriesGroup;
        use crate::exec::group_task::GroupTask;
        use crate::exec::series_builder::LARGEST_BYTES;
        use crate::exec::series_points::SeriesPoints;

        assert!(LARGEST_BYTES as u64 <= SERIES_BYTES, "{LARGEST_BYTES} bytes");
        // The series and its group, which become a task.
        let grouped = size_of::<SeriesPoints>() + size_of::<SeriesGroup>() + size_of::<GroupTask>();
        assert!(grouped as u64 <= SERIES_BYTES, "{grouped} bytes");
    }

    #[test]
    fn rejects_with_figure_and_setting() {
        let budget = Budget::from_limits(Limits::NONE.with_points(10));
        budget.use_points(10).unwrap();
        let error = budget.use_points(1).unwrap_err();
        assert_eq!(
            error.to_string(),
            "query needs more than 10 points, the limit of --query-max-points"
        );
        let requested = Limits::NONE.with_points(10).with_request(Some(3));
        let error = requested.check(Resource::Points, 4).unwrap_err();
        assert!(error.to_string().ends_with("of max_scanned_points"), "{error}");
        assert_eq!(
            Limits::NONE.with_points(10).with_request(Some(11)).points.most,
            10
        );
    }

    fn limits(bytes: u64) -> Limits {
        Limits {
            memory: Limit::from_setting("--query-max-memory-mib", bytes),
            ..Limits::NONE
        }
    }

    #[test]
    fn fetched_rows_count_and_fail_the_next_allocation() {
        let budget = Budget::from_limits(limits(160));
        budget.fetched(200);
        assert_eq!(budget.usage().get(Resource::Memory), 200);
        assert!(budget.hold(1).is_err());
        budget.returned(200);
        assert!(budget.hold(160).is_ok());
    }

    #[test]
    fn released_memory_can_be_held_again() {
        let budget = Budget::from_limits(limits(160));
        let held = budget.hold(160).unwrap();
        assert!(budget.hold(1).is_err());
        assert_eq!(
            budget.usage().get(Resource::Memory),
            160,
            "a rejected request holds nothing"
        );
        drop(held);
        budget.hold_series(160).unwrap();
        assert_eq!(budget.series_bytes(), 160);
        budget.recount_series(160, 100).unwrap();
        let mut held = budget.hold(50).unwrap();
        assert!(held.grow(11).is_err());
        held.grow(10).unwrap();
        held.shrink_to(5);
        assert_eq!(budget.usage().get(Resource::Memory), 105);
    }

    #[test]
    fn memory_comes_from_the_pool_and_goes_back_to_it() {
        let pool = MemoryPool::new("query", 10 << 20);
        let budget = Budget::new(
            limits(8 << 20),
            Arc::default(),
            pool.try_reserve(8 << 20).unwrap(),
        );
        let held = budget.hold(3 << 20).unwrap();
        assert_eq!(pool.usage().used_bytes, 8 << 20, "reserved in advance");
        budget.keep_only_what_is_held();
        assert_eq!(pool.usage().used_bytes, 3 << 20);
        let other = pool.try_reserve(6 << 20).unwrap();
        budget.reserve_again(8 << 20);
        let error = budget.hold(2 << 20).unwrap_err();
        assert!(matches!(error, QueryError::NoMemory(_)), "{error}");
        drop(other);
        drop(budget.hold(2 << 20).unwrap());
        budget.keep_only_what_is_held();
        drop(budget);
        assert_eq!(pool.usage().used_bytes, 3 << 20, "as long as something is held");
        drop(held);
        assert_eq!(pool.usage().used_bytes, 0);
    }
}
