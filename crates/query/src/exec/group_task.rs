//! Group tasks: the aggregation of a group's series, for the instants that are final.

use std::sync::Arc;

use oxtsdb_resources::ComputePool;
use tokio_util::sync::CancellationToken;

use crate::context::budget::{Budget, Held};
use crate::context::query_context::QueryContext;
use crate::error::QueryError;
use crate::exec::frame::Frame;
use crate::exec::group::SeriesGroup;
use crate::exec::group_frames::GroupFrames;
use crate::function::aggregate::{Aggregation, Series, aggregate};
use crate::plan::hours::Hours;
use crate::points::{Points, Values};
use crate::spec::{QuerySpec, SubQuery};

/// Groups are computed together until they have so many points, which makes the hand-over between
/// threads cheap.
const POINTS_PER_TASK: usize = 16_384;

/// Most groups of a task: each has a frame until all of the task are encoded.
const GROUPS_PER_TASK: usize = 1024;

/// Up to so many steps are taken inline; it takes less than a millisecond. Where instants differ,
/// each point is a step for every series of its group.
const STEPS_INLINE: usize = 100_000;

/// The cost of encoding a point.
const STEPS_OF_AN_ENCODED_POINT: usize = 10;

/// The cost of a task without points.
const STEPS_OF_A_PIECE: usize = 100;

/// How the groups of a sub-query are aggregated.
#[derive(Debug)]
pub(crate) struct AggregationContext {
    frames: GroupFrames,
    aggregation: Aggregation,
    /// First and last instant of the result.
    start_ms: i64,
    end_ms: i64,
    cancelled: CancellationToken,
    budget: Budget,
    compute: ComputePool,
}

/// A group, and the instants to aggregate next.
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
    /// The result that is not in a frame yet.
    pub points: Points,
    /// Its memory, and that of `frames`.
    pub held: Option<Held>,
    /// What is to be sent.
    pub frames: Vec<Frame>,
}

impl GroupTask {
    /// A group of which nothing was computed.
    pub(crate) fn new(index: usize, group: SeriesGroup) -> Self {
        Self {
            index,
            group,
            from_ms: i64::MIN,
            until_ms: i64::MIN,
            points: Points::default(),
            held: None,
            frames: Vec::new(),
        }
    }

    /// The same group with all instants that are left.
    pub(crate) fn finished(self) -> Self {
        Self {
            until_ms: i64::MAX,
            ..self
        }
    }

    /// Whether all points of the series were read.
    pub(crate) const fn is_last(&self) -> bool {
        self.until_ms == i64::MAX
    }

    /// Whether a series has a point at the instants to aggregate.
    pub(crate) fn has_new_points(&self) -> bool {
        let is_new = |points: &Points| {
            let next = points.times_ms();
            let next = &next[next.partition_point(|time_ms| *time_ms < self.from_ms)..];
            next.first().is_some_and(|time_ms| *time_ms < self.until_ms)
        };
        self.group.series.iter().any(|one| is_new(&one.points))
    }

    /// Drops the points that later instants do not need, and returns their memory, in bytes.
    fn drop_computed(&mut self) -> u64 {
        let before = self.group.held_bytes();
        for one in &mut self.group.series {
            if self.until_ms == i64::MAX {
                one.points = Points::default();
                continue;
            }
            let times_ms = one.points.times_ms();
            let computed = times_ms.partition_point(|time_ms| *time_ms < self.until_ms);
            // Interpolation may need the last one.
            one.points.drop_front(computed.saturating_sub(1));
        }
        self.from_ms = self.until_ms;
        before.saturating_sub(self.group.held_bytes())
    }
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
        frames: GroupFrames,
    ) -> Self {
        let (start_ms, end_ms) = if query.with_surroundings {
            (hours.start.millis(), hours.stop_ms())
        } else {
            (query.start_ms, query.end_ms)
        };
        Self {
            frames,
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
        let steps_of_a_point = if self.frames.encoder.is_some() {
            STEPS_OF_AN_ENCODED_POINT
        } else {
            0
        };
        let steps = tasks.iter().map(|task| {
            let steps = task.group.series.len() + steps_of_a_point;
            task.group.point_count() * steps + STEPS_OF_A_PIECE
        });
        let steps: usize = steps.sum();
        let pool = self.compute.clone();
        let compute = move || {
            let computed = tasks.into_iter().map(|task| self.compute(task));
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
        let goes_on = |bytes| !self.cancelled.is_cancelled() && self.budget.has_capacity_for(bytes);
        let points = aggregate(&series, self.aggregation, (from_ms, to_ms), &goes_on);
        let more = self.budget.hold(points.held_bytes())?;
        if self.cancelled.is_cancelled() {
            // No client receives it; the remaining groups need not be aggregated.
            return Err(QueryError::DeadlineExceeded);
        }
        check_finite(&points)?;
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
        task.frames = self.frames.of(&mut task)?;
        if task.is_last() {
            // Freed here: there may be a million groups.
            task.group = SeriesGroup::default();
        }
        Ok(task)
    }
}

/// Cuts tasks into batches of about [`POINTS_PER_TASK`] points, as they are taken.
pub(crate) fn batches(tasks: Vec<GroupTask>) -> impl Iterator<Item = Vec<GroupTask>> {
    let mut tasks = tasks.into_iter().peekable();
    std::iter::from_fn(move || {
        let mut batch = vec![tasks.next()?];
        let mut points = batch.first().map_or(0, |task| task.group.point_count());
        let fits = |points: usize| points <= POINTS_PER_TASK;
        while batch.len() < GROUPS_PER_TASK
            && let Some(task) = tasks.next_if(|task| fits(points + task.group.point_count()))
        {
            points += task.group.point_count();
            batch.push(task);
        }
        Some(batch)
    })
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
