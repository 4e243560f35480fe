//! Aggregation: computes the group tasks of a sub-query, and their frames.

use std::sync::Arc;

use oxtsdb_resources::{ComputePool, yield_to_others};
use tokio_util::sync::CancellationToken;

use crate::context::budget::Budget;
use crate::context::query_context::QueryContext;
use crate::error::QueryError;
use crate::exec::group::SeriesGroup;
use crate::exec::group_frames::GroupFrames;
use crate::exec::group_task::GroupTask;
use crate::function::aggregate::{Aggregation, Series, aggregate};
use crate::plan::query_plan::Plan;
use crate::points::{Points, Values};
use crate::spec::{QuerySpec, SubQuery};

/// Steps that are taken inline, at most; they take less than a millisecond. Where instants differ, each point is a step
/// for every series of its group.
const STEPS_INLINE: usize = 100_000;

/// The cost of encoding a point.
const STEPS_PER_ENCODED_POINT: usize = 10;

/// The cost of a task without points.
const STEPS_PER_TASK: usize = 100;

/// The aggregation of the groups of a sub-query.
#[derive(Debug)]
pub(crate) struct AggregationContext {
    frames: GroupFrames,
    aggregation: Aggregation,
    /// First and last instant of the result.
    start_ms: i64,
    end_ms: i64,
    with_infinities: bool,
    cancelled: CancellationToken,
    budget: Budget,
    compute: ComputePool,
}

impl AggregationContext {
    /// For a sub-query with this plan. It stops early when the query is cancelled and when a result exceeds the budget.
    pub(crate) fn new(
        query: &QuerySpec,
        sub_query: &SubQuery,
        plan: &Plan,
        context: &QueryContext,
        compute: ComputePool,
        frames: GroupFrames,
    ) -> Self {
        let (start_ms, end_ms) = plan.result_range_ms(query);
        Self {
            frames,
            aggregation: Aggregation {
                aggregator: sub_query.aggregator.under(query.quirks),
                holds: sub_query.rate.is_some(),
                floats_to_come_count: query.quirks.floats_to_come_count,
            },
            start_ms,
            end_ms,
            with_infinities: query.with_infinities,
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
        let steps_of_a_point = if self.frames.encoder.is_some() {
            STEPS_PER_ENCODED_POINT
        } else {
            0
        };
        let steps = tasks.iter().map(|task| {
            let steps = task.group.series.len() + steps_of_a_point;
            task.group.point_count() * steps + STEPS_PER_TASK
        });
        let steps: usize = steps.sum();
        let pool = self.compute.clone();
        let compute = move || {
            let computed = tasks.into_iter().map(|task| {
                yield_to_others();
                self.compute(task)
            });
            let mut computed = computed.collect::<Result<Vec<_>, _>>()?;
            self.frames.encode(&mut computed, &self.budget)?;
            Ok(computed)
        };
        if steps <= STEPS_INLINE {
            return compute();
        }
        pool.run(compute).await?
    }

    /// Aggregates, cut to the instants of the result, and builds the frames.
    fn compute(&self, mut task: GroupTask) -> Result<GroupTask, QueryError> {
        let series = task.group.series.iter().map(|one| Series {
            points: &one.points,
            before: one.from_epoch,
        });
        let series: Vec<_> = series.collect();
        let from_ms = task.from_ms.max(self.start_ms);
        let to_ms = self.end_ms.min(task.until_ms.saturating_sub(1));
        let goes_on = |bytes| {
            yield_to_others();
            !self.cancelled.is_cancelled() && self.budget.has_capacity_for(bytes)
        };
        let points = aggregate(&series, self.aggregation, (from_ms, to_ms), &goes_on);
        let more = self.budget.hold(points.held_bytes())?;
        if self.cancelled.is_cancelled() {
            // No client receives it; the remaining groups need not be aggregated.
            return Err(QueryError::DeadlineExceeded);
        }
        if !self.with_infinities {
            check_finite(&points)?;
        }
        task.points.append(points);
        match &mut task.held {
            Some(held) => {
                held.merge(more);
                let bytes = task.points.held_bytes();
                held.grow(bytes.saturating_sub(held.bytes()))?;
                held.shrink_to(bytes);
            }
            None => task.held = Some(more),
        }
        self.budget.release_series(task.drop_computed());
        task.frames = self.frames.emit(&mut task)?;
        if task.is_last() {
            // Freed here: there may be a million groups.
            task.group = SeriesGroup::default();
        }
        Ok(task)
    }
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
