//! What is computed for each group: aggregation of its series, for the instants that are final.

use std::sync::Arc;

use oxtsdb_resources::ComputePool;
use tokio_util::sync::CancellationToken;

use crate::error::QueryError;
use crate::exec::budget::{Budget, Held};
use crate::exec::group::SpanGroup;
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

/// What a piece without points costs.
const STEPS_OF_A_PIECE: usize = 100;

/// What is computed for each group of a question.
#[derive(Debug)]
pub struct Computation {
    aggregation: Aggregation,
    /// First and last instant of the answer.
    start_ms: i64,
    end_ms: i64,
    cancelled: CancellationToken,
    budget: Budget,
    compute: ComputePool,
}

/// A group of which some instants are to be computed.
#[derive(Debug)]
pub struct Piece {
    /// Which group.
    pub index: usize,
    /// Its series, with all points that these instants need.
    pub group: SpanGroup,
    /// First instant that is to be computed.
    pub from_ms: i64,
    /// First instant that is not, or [`i64::MAX`]: all.
    pub until_ms: i64,
    /// The result.
    pub points: Points,
    /// Its memory, once it is computed.
    pub held: Option<Held>,
}

impl Computation {
    /// For a sub-query of a query, for which these hours are read. Once `cancelled`, or when a result does
    /// not fit into the budget, it ends soon.
    pub fn new(
        query: &QuerySpec,
        sub_query: &SubQuery,
        hours: &Hours,
        cancelled: CancellationToken,
        budget: Budget,
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
            cancelled,
            budget,
            compute,
        }
    }

    /// Computes pieces, in the computation pool if it takes long.
    ///
    /// # Errors
    ///
    /// [`QueryError::Infinite`], and [`QueryError::OverBudget`] if a result is too large.
    pub async fn run(self: Arc<Self>, pieces: Vec<Piece>) -> Result<Vec<Piece>, QueryError> {
        let steps: usize = pieces
            .iter()
            .map(|piece| piece.group.point_count() * piece.group.spans.len() + STEPS_OF_A_PIECE)
            .sum();
        let pool = self.compute.clone();
        let compute = move || pieces.into_iter().map(|piece| self.compute(piece)).collect();
        if steps <= STEPS_INLINE {
            return compute();
        }
        pool.run(compute).await?
    }

    /// Aggregation, cut to the instants of the answer.
    fn compute(&self, mut piece: Piece) -> Result<Piece, QueryError> {
        let series: Vec<Series<'_>> = piece
            .group
            .spans
            .iter()
            .map(|span| Series {
                points: &span.points,
                before: span.from_epoch,
            })
            .collect();
        let from_ms = piece.from_ms.max(self.start_ms);
        let to_ms = self.end_ms.min(piece.until_ms.saturating_sub(1));
        let goes_on = |bytes| !self.cancelled.is_cancelled() && self.budget.has_room_for(bytes);
        piece.points = aggregate(&series, self.aggregation, (from_ms, to_ms), &goes_on);
        piece.held = Some(self.budget.hold(piece.points.held_bytes())?);
        if self.cancelled.is_cancelled() {
            // Nobody hears it; the groups that are left need not be looked at.
            return Err(QueryError::DeadlineExceeded);
        }
        check_finite(&piece.points)?;
        Ok(piece)
    }
}

/// Cuts pieces into tasks of about [`POINTS_PER_TASK`] points.
pub fn tasks(pieces: impl IntoIterator<Item = Piece>) -> Vec<Vec<Piece>> {
    let mut tasks: Vec<Vec<Piece>> = Vec::new();
    let mut room = 0;
    for piece in pieces {
        let points = piece.group.point_count();
        match tasks.last_mut().filter(|_| room >= points) {
            Some(task) => task.push(piece),
            None => {
                tasks.push(vec![piece]);
                room = POINTS_PER_TASK;
            }
        }
        room = room.saturating_sub(points);
    }
    tasks
}

impl SpanGroup {
    /// Points of all its series.
    pub fn point_count(&self) -> usize {
        self.spans.iter().map(|span| span.points.len()).sum()
    }

    /// Memory of the points of all its series, in bytes.
    pub fn held_bytes(&self) -> u64 {
        self.spans.iter().map(|span| span.points.held_bytes()).sum()
    }
}

/// Refuses infinite results, as OpenTSDB does.
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
