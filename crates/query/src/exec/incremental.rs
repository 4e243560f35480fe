//! Incremental aggregation: emits the final results of groups before the scan ends.
//!
//! Interpolation at time *t* needs each series' last point at or before *t* and its first point after *t*, or the
//! fact that the series has not started or has ended. A group's results are therefore final up to its
//! *watermark*: the smallest timestamp up to which every live series has been read. Once emitted, only each
//! series' last point is retained.
//!
//! ```text
//!   read up to                                     │
//!   a   x───x───x───x───x───x───x───x───x───x───x──│
//!   b   x───x───x───x───x───┤ ended                │     known from its extent
//!   c   x───────x───────x───────x                  │     its next point is not read yet
//!   d                                              │ x   not begun
//!       emitted ───────────────► final ►│
//! ```

use std::sync::Arc;

use hashbrown::HashMap;
use oxtsdb_schema::Tsuid;
use rustc_hash::FxBuildHasher;

use crate::context::budget::Budget;
use crate::error::QueryError;
use crate::exec::extents::SeriesExtents;
use crate::exec::group::SeriesGroup;
use crate::exec::group_task::GroupTask;
use crate::exec::series_points::SeriesPoints;
use crate::points::Points;

/// The groups of a sub-query, and what was emitted of them.
#[derive(Debug)]
pub(crate) struct IncrementalAggregator {
    groups: Vec<PendingGroup>,
    /// Group, and place in it, of each series.
    places: HashMap<Tsuid, (usize, usize), FxBuildHasher>,
    extents: Arc<SeriesExtents>,
}

#[derive(Debug, Default)]
struct PendingGroup {
    /// `None` while it is being aggregated.
    group: Option<SeriesGroup>,
    /// First instant that was not emitted yet.
    emitted_until_ms: i64,
}

impl IncrementalAggregator {
    /// Groups of all series, of whose points none was emitted.
    pub(crate) fn new(groups: Vec<SeriesGroup>, extents: Arc<SeriesExtents>) -> Self {
        let mut places = HashMap::default();
        for (index, group) in groups.iter().enumerate() {
            for (place, one) in group.series.iter().enumerate() {
                places.insert(one.tsuid.clone(), (index, place));
            }
        }
        let groups = groups
            .into_iter()
            .map(|group| PendingGroup {
                group: Some(group),
                emitted_until_ms: i64::MIN,
            })
            .collect();
        Self {
            groups,
            places,
            extents,
        }
    }

    /// Adds later points of series, and counts their memory anew. Points of a series that is in no group are
    /// dropped: it was written after its extent was read.
    ///
    /// # Errors
    ///
    /// [`QueryError::OverBudget`].
    pub(crate) fn add(&mut self, series: Vec<SeriesPoints>, budget: &Budget) -> Result<(), QueryError> {
        let (mut before, mut after) = (0, 0);
        for one in series {
            before += one.points.held_bytes();
            let place = self.places.get(&one.tsuid);
            let own = place.and_then(|(group, place)| {
                let group = self.groups[*group].group.as_mut()?;
                group.series.get_mut(*place)
            });
            if let Some(own) = own {
                before += own.points.held_bytes();
                own.points.append(one.points);
                if let Some(mut annotations) = one.annotations {
                    own.annotations.get_or_insert_default().append(&mut annotations);
                }
                after += own.points.held_bytes();
            }
        }
        budget.recount_series(before, after)
    }

    /// Takes out the groups that have new final results, once all points before an instant were added.
    pub(crate) fn take_final(&mut self, final_until_ms: i64) -> Vec<GroupTask> {
        let mut tasks = Vec::new();
        for (index, open) in self.groups.iter_mut().enumerate() {
            let Some(group) = &open.group else { continue };
            let until_ms = watermark_of(group, final_until_ms, &self.extents);
            let is_new = |one: &SeriesPoints| {
                let next = one.points.times_ms();
                let next = &next[next.partition_point(|time_ms| *time_ms < open.emitted_until_ms)..];
                next.first().is_some_and(|time_ms| *time_ms < until_ms)
            };
            if !group.series.iter().any(is_new) {
                continue;
            }
            if let Some(group) = open.group.take() {
                tasks.push(GroupTask {
                    index,
                    group,
                    from_ms: open.emitted_until_ms,
                    until_ms,
                    points: Points::default(),
                    held: None,
                });
            }
        }
        tasks
    }

    /// Puts a group back when its task is done, without the points that are not needed any more. Returns
    /// their memory, in bytes.
    pub(crate) fn put_back(&mut self, task: GroupTask) -> u64 {
        let GroupTask {
            index,
            mut group,
            until_ms,
            ..
        } = task;
        let before = group.held_bytes();
        for one in &mut group.series {
            let emitted = one
                .points
                .times_ms()
                .partition_point(|time_ms| *time_ms < until_ms);
            // Interpolation may need the last one.
            one.points.drop_front(emitted.saturating_sub(1));
        }
        let released = before.saturating_sub(group.held_bytes());
        self.groups[index] = PendingGroup {
            group: Some(group),
            emitted_until_ms: until_ms,
        };
        released
    }

    /// All groups, with what was not emitted yet.
    pub(crate) fn finish(self) -> impl Iterator<Item = GroupTask> {
        let rest = |(index, open): (usize, PendingGroup)| {
            Some(GroupTask {
                index,
                group: open.group?,
                from_ms: open.emitted_until_ms,
                until_ms: i64::MAX,
                points: Points::default(),
                held: None,
            })
        };
        self.groups.into_iter().enumerate().filter_map(rest)
    }
}

/// The watermark of a group.
fn watermark_of(group: &SeriesGroup, final_until_ms: i64, extents: &SeriesExtents) -> i64 {
    let of_series = |one: &SeriesPoints| {
        if extents.has_ended(&one.tsuid, final_until_ms) {
            return final_until_ms;
        }
        // What a series contributes after its last point depends on the next one.
        one.points
            .times_ms()
            .last()
            .map_or(final_until_ms, |last| final_until_ms.min(last.saturating_add(1)))
    };
    group.series.iter().map(of_series).min().unwrap_or(final_until_ms)
}
