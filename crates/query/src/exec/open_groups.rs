//! Groups whose points become known bit by bit, while rows are still being read.
//!
//! A result at an instant needs, of each series of its group, the last point up to it and the next one
//! behind it, or to know that there is none: the series has not begun, or has ended. So what is known of
//! a group goes up to the series that has said least. Of what was told only the last point of each
//! series is kept.
//!
//! ```text
//!   read up to                                     │
//!   a   x───x───x───x───x───x───x───x───x───x───x──│
//!   b   x───x───x───x───x───┤ ended                │     the survey knows
//!   c   x───────x───────x───────x                  │     silent: its next point is not known yet
//!   d                                              │ x   not begun
//!       told ──────────────────► known ►│
//! ```

use std::sync::Arc;

use hashbrown::HashMap;
use oxtsdb_schema::Tsuid;
use rustc_hash::FxBuildHasher;

use crate::error::QueryError;
use crate::exec::budget::Budget;
use crate::exec::compute::Piece;
use crate::exec::group::SpanGroup;
use crate::exec::span::Span;
use crate::exec::survey::Survey;
use crate::points::Points;

/// The groups of a question.
#[derive(Debug)]
pub struct OpenGroups {
    groups: Vec<OpenGroup>,
    /// Group, and place in it, of each series.
    places: HashMap<Tsuid, (usize, usize), FxBuildHasher>,
    survey: Arc<Survey>,
}

#[derive(Debug, Default)]
struct OpenGroup {
    /// `None` while it is being computed with.
    group: Option<SpanGroup>,
    /// First instant that has not been told.
    told_until_ms: i64,
}

impl OpenGroups {
    /// Groups of all series that there are, of whose points nothing was told.
    pub fn new(groups: Vec<SpanGroup>, survey: Arc<Survey>) -> Self {
        let mut places = HashMap::default();
        for (index, group) in groups.iter().enumerate() {
            for (place, span) in group.spans.iter().enumerate() {
                places.insert(span.tsuid.clone(), (index, place));
            }
        }
        let groups = groups
            .into_iter()
            .map(|group| OpenGroup {
                group: Some(group),
                told_until_ms: i64::MIN,
            })
            .collect();
        Self {
            groups,
            places,
            survey,
        }
    }

    /// Adds later points of series, and counts their memory anew. Those of a series that is in no group are
    /// dropped: it was not there when the survey was made.
    ///
    /// # Errors
    ///
    /// [`QueryError::OverBudget`].
    pub fn add(&mut self, spans: Vec<Span>, budget: &Budget) -> Result<(), QueryError> {
        let (mut before, mut after) = (0, 0);
        for span in spans {
            before += span.points.held_bytes();
            let place = self.places.get(&span.tsuid);
            let own = place.and_then(|(group, place)| {
                let group = self.groups[*group].group.as_mut()?;
                group.spans.get_mut(*place)
            });
            if let Some(own) = own {
                before += own.points.held_bytes();
                own.points.append(span.points);
                after += own.points.held_bytes();
            }
        }
        budget.recount_series(before, after)
    }

    /// Takes out the groups of which something new is known, when all points before an instant are.
    pub fn take_known(&mut self, known_until_ms: i64) -> Vec<Piece> {
        let mut pieces = Vec::new();
        for (index, open) in self.groups.iter_mut().enumerate() {
            let Some(group) = &open.group else { continue };
            let until_ms = known_of(group, known_until_ms, &self.survey);
            let is_new = |span: &Span| {
                let next = span.points.times_ms();
                let next = &next[next.partition_point(|time_ms| *time_ms < open.told_until_ms)..];
                next.first().is_some_and(|time_ms| *time_ms < until_ms)
            };
            if !group.spans.iter().any(is_new) {
                continue;
            }
            if let Some(group) = open.group.take() {
                pieces.push(Piece {
                    index,
                    group,
                    from_ms: open.told_until_ms,
                    until_ms,
                    points: Points::default(),
                    held: None,
                });
            }
        }
        pieces
    }

    /// Puts a group back when its piece was computed, without the points that are not needed any more. Gives
    /// the memory that these took, in bytes.
    pub fn put_back(&mut self, piece: Piece) -> u64 {
        let Piece {
            index,
            mut group,
            until_ms,
            ..
        } = piece;
        let before = group.held_bytes();
        for span in &mut group.spans {
            let told = span
                .points
                .times_ms()
                .partition_point(|time_ms| *time_ms < until_ms);
            // The last one may have a say later.
            span.points.drop_front(told.saturating_sub(1));
        }
        let released = before.saturating_sub(group.held_bytes());
        self.groups[index] = OpenGroup {
            group: Some(group),
            told_until_ms: until_ms,
        };
        released
    }

    /// All groups, with what has not been told.
    pub fn finish(self) -> impl Iterator<Item = Piece> {
        let rest = |(index, open): (usize, OpenGroup)| {
            Some(Piece {
                index,
                group: open.group?,
                from_ms: open.told_until_ms,
                until_ms: i64::MAX,
                points: Points::default(),
                held: None,
            })
        };
        self.groups.into_iter().enumerate().filter_map(rest)
    }
}

/// Up to where a group is known.
fn known_of(group: &SpanGroup, known_until_ms: i64, survey: &Survey) -> i64 {
    let of_span = |span: &Span| {
        if survey.has_ended(&span.tsuid, known_until_ms) {
            return known_until_ms;
        }
        // At its last point a series says what it contributes, behind it only with the next one.
        span.points
            .times_ms()
            .last()
            .map_or(known_until_ms, |last| known_until_ms.min(last.saturating_add(1)))
    };
    group.spans.iter().map(of_span).min().unwrap_or(known_until_ms)
}
