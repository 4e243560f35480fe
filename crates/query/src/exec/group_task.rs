//! Group tasks: a group's series, and the final instants that are aggregated next.

use crate::context::budget::Held;
use crate::exec::frame::Frame;
use crate::exec::group::SeriesGroup;
use crate::points::Points;

/// Points of the groups that are computed together, at least: larger tasks make the hand-over between threads cheap.
const POINTS_PER_TASK: usize = 16_384;

/// Most groups of a task: each has a frame until all of the task are encoded.
const GROUPS_PER_TASK: usize = 1024;

/// A group, and the instants to aggregate next.
#[derive(Debug)]
pub(crate) struct GroupTask {
    /// Index of the group.
    pub index: usize,
    /// Its series, with all points that these instants need.
    pub group: SeriesGroup,
    /// First instant that is to be computed.
    pub from_ms: i64,
    /// First instant that is not, or [`i64::MAX`]: all.
    pub until_ms: i64,
    /// The result that is not in a frame yet.
    pub points: Points,
    /// Memory of the task and of `frames`.
    pub held: Option<Held>,
    /// Frames to send.
    pub frames: Vec<Frame>,
}

impl GroupTask {
    /// A task before its computation.
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

    /// Returns the group with all remaining instants.
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
    pub(super) fn drop_computed(&mut self) -> u64 {
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
