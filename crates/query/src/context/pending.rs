//! Budget use of a worker, reported in batches: all workers of the query share the counters, and each waits for the
//! cache lines that another one changed.

use crate::context::budget::Budget;
use crate::error::QueryError;

/// Use that is reported at once, at the latest: series, points and bytes of memory.
const SERIES: u64 = 64;
const POINTS: u64 = 64 << 10;
const HELD_BYTES: u64 = 256 << 10;

/// The resources that reading a series uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Used {
    /// Rows that the points would be.
    pub(crate) rows: u64,
    /// Bytes that were read.
    pub(crate) bytes: u64,
    /// Points.
    pub(crate) points: u64,
    /// Series that were not seen before.
    pub(crate) new_series: u64,
    /// Memory that points of series take more than before.
    pub(crate) held_bytes: u64,
}

/// Use that was not reported yet.
#[derive(Debug, Default)]
pub(crate) struct PendingUse {
    used: Used,
    /// How many uses these are.
    count: u64,
}

impl PendingUse {
    /// Adds the use of a series.
    ///
    /// # Errors
    ///
    /// As [`PendingUse::report`].
    pub(crate) fn add(&mut self, used: Used, budget: &Budget) -> Result<(), QueryError> {
        let sum = &mut self.used;
        sum.rows += used.rows;
        sum.bytes += used.bytes;
        sum.points += used.points;
        sum.new_series += used.new_series;
        sum.held_bytes += used.held_bytes;
        self.count += 1;
        if self.count < SERIES && sum.points < POINTS && sum.held_bytes < HELD_BYTES {
            return Ok(());
        }
        self.report(budget)
    }

    /// Reports the use since the last report.
    ///
    /// # Errors
    ///
    /// [`QueryError::OverBudget`], and [`QueryError::NoMemory`] if the pool has no more.
    pub(crate) fn report(&mut self, budget: &Budget) -> Result<(), QueryError> {
        let Self { used, .. } = std::mem::take(self);
        budget.use_rows(used.rows, used.bytes)?;
        budget.use_series(used.new_series)?;
        budget.use_points(used.points)?;
        budget.hold_series(used.held_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::limits::Limits;
    use crate::context::resource::Resource;

    #[test]
    fn reports_all_uses_in_batches() {
        let budget = Budget::from_limits(Limits::NONE);
        let mut pending = PendingUse::default();
        let used = Used {
            rows: 2,
            bytes: 30,
            points: 4,
            new_series: 1,
            held_bytes: 500,
        };
        for _ in 0..SERIES - 1 {
            pending.add(used, &budget).unwrap();
        }
        assert_eq!(budget.usage().get(Resource::Rows), 0);
        pending.add(used, &budget).unwrap();
        pending.add(used, &budget).unwrap();
        pending.report(&budget).unwrap();
        pending.report(&budget).unwrap();
        let used = [
            Resource::Rows,
            Resource::Bytes,
            Resource::Points,
            Resource::Series,
        ];
        let used = used.map(|resource| budget.usage().get(resource));
        assert_eq!(used, [2, 30, 4, 1].map(|each| each * (SERIES + 1)));
        assert_eq!(budget.series_bytes(), 500 * (SERIES + 1));
    }

    #[test]
    fn large_uses_are_reported_at_once() {
        let budget = Budget::from_limits(Limits::NONE);
        let mut pending = PendingUse::default();
        let points = Used {
            points: POINTS,
            ..Used::default()
        };
        pending.add(points, &budget).unwrap();
        assert_eq!(budget.usage().get(Resource::Points), POINTS);
        let memory = Used {
            held_bytes: HELD_BYTES,
            ..Used::default()
        };
        pending.add(memory, &budget).unwrap();
        assert_eq!(budget.series_bytes(), HELD_BYTES);
    }
}
