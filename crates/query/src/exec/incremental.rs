//! Incremental aggregation: the groups of a sub-query, from their series to their results.
//!
//! ```text
//!                           push: later points of the series
//!                             ┌──────┐
//!                             ▼      │
//!   series, extents ──new──► groups ─┴─ advance: the groups with new final results ──► group tasks
//!                             ▲ │                                                          │
//!                             │ └────── finish: all groups, all results ──► group tasks    │
//!                             └────────────────────── put_back ────────────────────────────┘
//! ```
//!
//! Most sub-queries fit in memory: their groups are finished at once. The others advance whenever a slice of the scan
//! was read.
//!
//! Interpolation at time *t* needs each series' last point at or before *t* and its first point after *t*, or the
//! fact that the series has not started or has ended. A rate that begins at the epoch needs the first point of a series
//! that has not started, too. A group's results are therefore final up to its
//! *watermark*: the smallest timestamp up to which every live series has been read. Once aggregated, only each
//! series' last point is retained.
//!
//! ```text
//!   read up to                                     │
//!   a   x───x───x───x───x───x───x───x───x───x───x──│
//!   b   x───x───x───x───x───┤ ended                │     known from its extent
//!   c   x───────x───────x───────x                  │     its next point is not read yet
//!   d                                              │ x   not begun
//!    aggregated ───────────────► final ►│
//! ```

use std::sync::Arc;

use hashbrown::HashMap;
use oxtsdb_schema::{RowKeyLayout, Tsuid};
use rustc_hash::FxBuildHasher;

use crate::context::budget::Budget;
use crate::error::QueryError;
use crate::exec::extents::SeriesExtents;
use crate::exec::group::{Grouping, SeriesGroup, group};
use crate::exec::group_task::GroupTask;
use crate::exec::series_points::SeriesPoints;

/// The groups of a sub-query, in the order of the result.
#[derive(Debug)]
pub(crate) struct IncrementalAggregator {
    /// `None` while a group is being aggregated; empty once all are finished.
    groups: Vec<Option<GroupTask>>,
    /// How many groups there are.
    count: usize,
    early: Option<Early>,
}

/// State for emitting results before the scan ends.
#[derive(Debug)]
struct Early {
    /// Group, and place in it, of each series.
    places: HashMap<Tsuid, (usize, usize), FxBuildHasher>,
    extents: Arc<SeriesExtents>,
    needs: PointsToCome,
}

/// The later points of each series that a result depends on.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PointsToCome {
    /// The type of the next point, also of series that have not begun.
    pub types: bool,
    /// The first point: the series contributes before it.
    pub first: bool,
}

impl IncrementalAggregator {
    /// Groups series, which ascend by TSUID. Without the extents of all series of the sub-query, these are all points.
    /// The later points that results depend on come with the extents.
    pub(crate) fn new(
        series: Vec<SeriesPoints>,
        extents: Option<(Arc<SeriesExtents>, PointsToCome)>,
        grouping: &Grouping,
        layout: &RowKeyLayout,
    ) -> Self {
        let series = match &extents {
            Some((extents, _)) => extents.with_series(series),
            None => series,
        };
        let groups = group(series, grouping, layout);
        let early = extents.map(|(extents, needs)| Early {
            places: places_of(&groups),
            extents,
            needs,
        });
        let task = |(index, group)| Some(GroupTask::new(index, group));
        Self {
            count: groups.len(),
            groups: groups.into_iter().enumerate().map(task).collect(),
            early,
        }
    }

    /// How many groups there are.
    pub(crate) const fn len(&self) -> usize {
        self.count
    }

    /// The groups that are not being aggregated.
    pub(crate) fn groups(&self) -> impl Iterator<Item = &SeriesGroup> {
        self.groups.iter().flatten().map(|task| &task.group)
    }

    /// Adds later points of series, and counts their memory anew. Points of a series that is in no group are
    /// dropped: it was written after its extent was read.
    ///
    /// # Errors
    ///
    /// [`QueryError::OverBudget`].
    pub(crate) fn push(&mut self, series: Vec<SeriesPoints>, budget: &Budget) -> Result<(), QueryError> {
        let (mut before, mut after) = (0, 0);
        for one in series {
            before += one.points.held_bytes();
            let place = self.early.as_ref().and_then(|early| early.places.get(&one.tsuid));
            let own = place.and_then(|(group, place)| {
                let task = self.groups[*group].as_mut()?;
                task.group.series.get_mut(*place)
            });
            if let Some(own) = own {
                before += own.points.held_bytes();
                own.points.append(one.points);
                own.from_epoch = own.from_epoch.or(one.from_epoch);
                if let Some(mut annotations) = one.annotations {
                    own.annotations.get_or_insert_default().append(&mut annotations);
                }
                after += own.points.held_bytes();
            }
        }
        budget.recount_series(before, after)
    }

    /// Takes out the groups that have new final results, once all points before an instant were added.
    pub(crate) fn advance(&mut self, read_until_ms: i64) -> Vec<GroupTask> {
        let Some(early) = &self.early else {
            return Vec::new();
        };
        let mut tasks = Vec::new();
        for open in &mut self.groups {
            let advanced = open.take_if(|task| {
                task.until_ms = early.watermark_of(&task.group, read_until_ms);
                task.has_new_points()
            });
            tasks.extend(advanced);
        }
        tasks
    }

    /// Takes out all groups, with the results that are left, once all points were added.
    pub(crate) fn finish(&mut self) -> Vec<GroupTask> {
        // In place: there may be a million groups.
        let groups = std::mem::take(&mut self.groups).into_iter();
        groups.filter_map(|open| open.map(GroupTask::finished)).collect()
    }

    /// Puts a group back after its task, unless it is finished.
    pub(crate) fn put_back(&mut self, task: GroupTask) {
        let index = task.index;
        if let Some(open) = self.groups.get_mut(index) {
            *open = Some(task);
        }
    }
}

fn places_of(groups: &[SeriesGroup]) -> HashMap<Tsuid, (usize, usize), FxBuildHasher> {
    let mut places = HashMap::default();
    for (index, group) in groups.iter().enumerate() {
        for (place, one) in group.series.iter().enumerate() {
            places.insert(one.tsuid.clone(), (index, place));
        }
    }
    places
}

impl Early {
    /// The watermark of a group.
    fn watermark_of(&self, group: &SeriesGroup, read_until_ms: i64) -> i64 {
        let of_series = |one: &SeriesPoints| {
            if self.extents.has_ended(&one.tsuid, read_until_ms) {
                return read_until_ms;
            }
            let last = one.points.times_ms().last();
            match last {
                // The type of the result depends on the next point already at the last one.
                Some(last) if self.needs.types => read_until_ms.min(*last),
                None if self.needs.types || self.needs.first => i64::MIN,
                // The contribution of a series after its last point depends on its next one.
                Some(last) => read_until_ms.min(last.saturating_add(1)),
                None => read_until_ms,
            }
        };
        group.series.iter().map(of_series).min().unwrap_or(read_until_ms)
    }
}
