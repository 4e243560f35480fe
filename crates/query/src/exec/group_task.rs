//! Group tasks: the aggregation of a group's series, for the instants that are final.

use std::sync::Arc;

use oxtsdb_resources::ComputePool;
use tokio_util::sync::CancellationToken;

use crate::context::budget::{Budget, Held};
use crate::context::query_context::QueryContext;
use crate::error::QueryError;
use crate::exec::group::SeriesGroup;
use crate::function::aggregate::{Aggregation, Series, aggregate};
use crate::plan::hours::Hours;
use crate::points::{Points, Values};
use crate::spec::{QuerySpec, SubQuery};

/// Groups are computed together until they have so many points, which makes the hand-over between
/// threads cheap.
const POINTS_PER_TASK: usize = 65_536;

/// Up to so many steps are taken inline; it takes less than a millisecond. Where instants differ,
/// each point is a step for every series of its group.
const STEPS_INLINE: usize = 100_000;

/// The cost of a task without points.
const STEPS_OF_A_PIECE: usize = 100;

/// How the groups of a sub-query are aggregated.
#[derive(Debug)]
pub(crate) struct AggregationContext {
    aggregation: Aggregation,
    /// First and last instant of the result.
    start_ms: i64,
    end_ms: i64,
    cancelled: CancellationToken,
    budget: Budget,
    compute: ComputePool,
}

/// A group and the instants to aggregate.
#[derive(Debug)]
pub(crate) struct GroupTask {
    /// Which group.
    pub index: usize,
    /// Its series, with all points that these instants need.
    pub group: SeriesGroup,
    /// First instant that is to be computed.
    pub from_ms: i64,
    /// First instant that is not, or [`i64::MAX`]: all.
    pub until_ms: i64,
    /// The result.
    pub points: Points,
    /// Its memory, once it is computed.
    pub held: Option<Held>,
}

impl AggregationContext {
    /// For a sub-query that reads these hours. It stops early when the query is cancelled and when a result
    /// exceeds the budget.
    pub(crate) fn new(
        query: &QuerySpec,
        sub_query: &SubQuery,
        hours: &Hours,
        context: &QueryContext,
        compute: ComputePool,
    ) -> Self {
        let (start_ms, end_ms) = if query.with_surroundings {
            (hours.start.millis(), hours.stop_ms())
        } else {
            (query.start_ms, query.end_ms)
        };
        Self {
            aggregation: Aggregation {
                aggregator: sub_query.aggregator.under(query.quirks),
                holds: sub_query.rate.is_some(),
                floats_to_come_count: query.quirks.floats_to_come_count,
            },
            start_ms,
            end_ms,
            cancelled: context.cancellation().clone(),
            budget: context.budget().clone(),
            compute,
        }
    }

    /// Aggregates groups, in the computation pool if that takes long.
    ///
    /// # Errors
    ///
    /// [`QueryError::Infinite`], and [`QueryError::OverBudget`] if a result is too large.
    pub(crate) async fn run(self: Arc<Self>, tasks: Vec<GroupTask>) -> Result<Vec<GroupTask>, QueryError> {
        let steps: usize = tasks
            .iter()
            .map(|task| task.group.point_count() * task.group.series.len() + STEPS_OF_A_PIECE)
            .sum();
        let pool = self.compute.clone();
        let compute = move || tasks.into_iter().map(|task| self.compute(task)).collect();
        if steps <= STEPS_INLINE {
            return compute();
        }
        pool.run(compute).await?
    }

    /// Aggregates, cut to the instants of the result.
    fn compute(&self, mut task: GroupTask) -> Result<GroupTask, QueryError> {
        let series: Vec<Series<'_>> = task
            .group
            .series
            .iter()
            .map(|one| Series {
                points: &one.points,
                before: one.from_epoch,
            })
            .collect();
        let from_ms = task.from_ms.max(self.start_ms);
        let to_ms = self.end_ms.min(task.until_ms.saturating_sub(1));
        let goes_on = |bytes| !self.cancelled.is_cancelled() && self.budget.has_capacity_for(bytes);
        task.points = aggregate(&series, self.aggregation, (from_ms, to_ms), &goes_on);
        task.held = Some(self.budget.hold(task.points.held_bytes())?);
        if self.cancelled.is_cancelled() {
            // No client receives it; the remaining groups need not be aggregated.
            return Err(QueryError::DeadlineExceeded);
        }
        check_finite(&task.points)?;
        Ok(task)
    }
}

/// Cuts tasks into batches of about [`POINTS_PER_TASK`] points.
pub(crate) fn batches(tasks: impl IntoIterator<Item = GroupTask>) -> Vec<Vec<GroupTask>> {
    let mut batches: Vec<Vec<GroupTask>> = Vec::new();
    let mut left = 0;
    for task in tasks {
        let points = task.group.point_count();
        match batches.last_mut().filter(|_| left >= points) {
            Some(batch) => batch.push(task),
            None => {
                batches.push(vec![task]);
                left = POINTS_PER_TASK;
            }
        }
        left = left.saturating_sub(points);
    }
    batches
}

/// Rejects infinite results, as OpenTSDB does.
fn check_finite(points: &Points) -> Result<(), QueryError> {
    let infinite = match points.values() {
        Values::Ints(_) => None,
        Values::Doubles(values) => values.iter().position(|value| value.is_infinite()),
        Values::Mixed(values) => values.iter().position(|value| value.as_f64().is_infinite()),
    };
    match infinite {
        None => Ok(()),
        Some(index) => Err(QueryError::Infinite {
            time_ms: points.times_ms()[index],
            value: points.values().get(index).as_f64(),
        }),
    }
}
