//! Totals of all queries of an engine, and the durations of their stages.

use std::sync::atomic::{AtomicU64, Ordering};

use oxtsdb_resources::Durations;

use crate::context::resource::Resource;
use crate::error::QueryError;
use crate::exec::statistics::Statistics;

/// Counts since the start, of all protocols.
#[derive(Debug, Default)]
pub struct QueryTotals {
    succeeded: AtomicU64,
    failed: AtomicU64,
    read: [AtomicU64; 5],
    over_budget: [AtomicU64; Resource::ALL.len()],
    /// Waiting for a permit and for memory.
    pub queue: Durations,
    /// Resolving names, and selecting access paths.
    pub plan: Durations,
    /// Reading and decoding the points of a sub-query.
    pub scan: Durations,
    /// Aggregating a sub-query and emitting its results.
    pub aggregate: Durations,
    /// Waiting until the client has read earlier results; a part of scan and aggregate.
    pub client: Durations,
}

impl QueryTotals {
    /// Counts a query that has ended.
    pub(super) fn end(&self, result: &Result<(), QueryError>) {
        match result {
            Ok(()) => add(&self.succeeded, 1),
            Err(error) => {
                add(&self.failed, 1);
                if let QueryError::NeverFits { .. } = error {
                    add(&self.over_budget[Resource::Memory.place()], 1);
                }
                if let QueryError::OverBudget { resource, .. } = error {
                    self.over_budget[resource.place()].fetch_add(1, Ordering::Relaxed);
                }
            }
        }
    }

    /// Adds the reads and results of a query.
    pub(super) fn add_read(&self, statistics: &Statistics) {
        let read = [
            statistics.series,
            statistics.rows,
            statistics.bytes,
            statistics.points,
            statistics.points_sent,
        ];
        for (total, read) in self.read.iter().zip(read) {
            add(total, read);
        }
    }

    /// Queries that returned their results, and queries that failed.
    pub fn results(&self) -> [(&'static str, u64); 2] {
        [("ok", load(&self.succeeded)), ("failed", load(&self.failed))]
    }

    /// Series, rows and bytes read, points decoded, and points in results; of queries that succeeded.
    pub fn read(&self) -> [(&'static str, u64); 5] {
        let names = ["series", "rows", "bytes", "points", "points_sent"];
        std::array::from_fn(|place| (names[place], load(&self.read[place])))
    }

    /// Queries that exceeded the limit of each resource.
    pub fn over_budget(&self) -> [(&'static str, u64); Resource::ALL.len()] {
        Resource::ALL.map(|resource| (resource.name(), load(&self.over_budget[resource.place()])))
    }

    /// The stages.
    pub fn stages(&self) -> [(&'static str, &Durations); 5] {
        [
            ("queue", &self.queue),
            ("plan", &self.plan),
            ("scan", &self.scan),
            ("aggregate", &self.aggregate),
            ("client", &self.client),
        ]
    }
}

fn add(total: &AtomicU64, number: u64) {
    total.fetch_add(number, Ordering::Relaxed);
}

fn load(total: &AtomicU64) -> u64 {
    total.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::limits::Limits;

    #[test]
    fn counts_results_and_exceeded_limits() {
        let totals = QueryTotals::default();
        totals.end(&Ok(()));
        totals.end(&Err(QueryError::Cancelled));
        totals.end(&Err(QueryError::OverBudget {
            resource: Resource::Rows,
            limit: Limits::NONE.rows,
        }));
        assert_eq!(totals.results(), [("ok", 1), ("failed", 2)]);
        for (resource, exceeded) in totals.over_budget() {
            assert_eq!(exceeded, u64::from(resource == "rows"), "{resource}");
        }
        totals.add_read(&Statistics {
            series: 1,
            points: 4,
            points_sent: 2,
            ..Statistics::default()
        });
        assert_eq!(totals.read()[3..], [("points", 4), ("points_sent", 2)]);
    }
}
