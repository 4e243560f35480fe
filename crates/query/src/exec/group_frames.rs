//! The frames of groups: their names, points and annotations.

use std::sync::Arc;

use oxtsdb_schema::{Annotation, Tsuid, Uid, UidKind, UidWidths};

use crate::annotation;
use crate::context::budget::Budget;
use crate::error::QueryError;
use crate::exec::encoded::GroupEncoder;
use crate::exec::frame::{EncodedGroups, Frame, Group};
use crate::exec::group::SeriesGroup;
use crate::exec::group_task::GroupTask;
use crate::names::Names;
use crate::points::Points;
use crate::quirks::Quirks;

/// Builds the frames of the groups of a sub-query.
#[derive(Debug)]
pub(crate) struct GroupFrames {
    /// The interval of the rollups that are read.
    pub(crate) rollup: Option<Arc<str>>,
    /// The sub-query.
    pub(crate) query: usize,
    /// Number of its first group in the result.
    pub(crate) first_group: usize,
    /// Name of the metric, if the sub-query has one.
    pub(crate) metric: Option<Arc<str>>,
    /// The names of the groups: [`uids_of`].
    pub(crate) names: Names,
    pub(crate) widths: UidWidths,
    /// Annotations outside of this range are left out.
    pub(crate) range_ms: (i64, i64),
    pub(crate) quirks: Quirks,
    /// Whether the heads of all groups were sent, and points follow as soon as they are final.
    pub(crate) is_early: bool,
    /// Encodes whole groups.
    pub(crate) encoder: Option<Arc<dyn GroupEncoder>>,
    /// Global annotations, for the encoder.
    pub(crate) global: Option<Arc<[Arc<Annotation>]>>,
}

/// The UIDs that occur in groups, by kind.
pub(crate) fn uids_of<'a>(
    groups: impl IntoIterator<Item = &'a SeriesGroup>,
    widths: &UidWidths,
) -> [Vec<Uid>; 3] {
    let mut needed: [Vec<Uid>; 3] = Default::default();
    let [metrics, tagks, tagvs] = &mut needed;
    for group in groups {
        let metric = group.series.first().map(|series| series.tsuid.metric(widths));
        metrics.extend(metric.map(|metric| metric.uid()));
        tagks.extend(group.tags.iter().map(|(tagk, _)| tagk.uid()));
        tagks.extend(group.aggregate_tags.iter().map(|tagk| tagk.uid()));
        tagvs.extend(group.tags.iter().map(|(_, tagv)| tagv.uid()));
    }
    for uids in &mut needed {
        uids.sort_unstable();
        uids.dedup();
    }
    needed
}

impl GroupFrames {
    /// A group without points; frames with its points follow.
    pub(crate) fn head(&self, index: usize, group: &SeriesGroup) -> Result<Group, QueryError> {
        let name = |kind, uid| self.names.name(kind, uid);
        let metric = match (self.metric.as_ref(), group.series.first()) {
            (Some(metric), _) => Arc::clone(metric),
            (None, Some(series)) => name(UidKind::Metric, series.tsuid.metric(&self.widths).uid())?,
            (None, None) => Arc::from(""),
        };
        let mut tags = Vec::with_capacity(group.tags.len());
        for (tagk, tagv) in &group.tags {
            tags.push((name(UidKind::Tagk, tagk.uid())?, name(UidKind::Tagv, tagv.uid())?));
        }
        let aggregate_tags = group.aggregate_tags.iter();
        let aggregate_tags = aggregate_tags.map(|tagk| name(UidKind::Tagk, tagk.uid()));
        // Series of salted tables are in another order.
        let mut tsuids: Vec<Tsuid> = group.named().map(|series| series.tsuid.clone()).collect();
        tsuids.sort_unstable();
        Ok(Group {
            number: self.first_group + index,
            is_whole: false,
            query: self.query,
            metric,
            part: None,
            tags,
            aggregate_tags: aggregate_tags.collect::<Result<_, _>>()?,
            annotations: None,
            rollup: self.rollup.clone(),
            tsuids,
            points: Points::default(),
        })
    }

    /// The frames that can be sent once a task is computed. Of a group that is sent as a whole, the task keeps the
    /// points until the last one.
    pub(crate) fn emit(&self, task: &mut GroupTask) -> Result<Vec<Frame>, QueryError> {
        let number = self.first_group + task.index;
        if !self.is_early {
            if !task.is_last() {
                return Ok(Vec::new());
            }
            let group = Group {
                is_whole: true,
                annotations: self.annotations_of(&task.group),
                points: std::mem::take(&mut task.points),
                ..self.head(task.index, &task.group)?
            };
            return Ok(vec![Frame::Group(group)]);
        }
        let mut frames = Vec::new();
        if !task.points.is_empty() {
            let points = std::mem::take(&mut task.points);
            frames.push(Frame::More { number, points });
        }
        let annotations = task.is_last().then(|| self.annotations_of(&task.group));
        frames.extend(
            annotations
                .flatten()
                .map(|annotations| Frame::Annotations { number, annotations }),
        );
        Ok(frames)
    }

    /// Encodes the groups of tasks, if the protocol takes them so; the last task gets all of them.
    pub(crate) fn encode(&self, tasks: &mut [GroupTask], budget: &Budget) -> Result<(), QueryError> {
        let Some(encoder) = &self.encoder else {
            return Ok(());
        };
        let points = tasks
            .iter()
            .flat_map(|task| &task.frames)
            .map(Frame::point_count)
            .sum();
        if tasks.iter().all(|task| task.frames.is_empty()) {
            return Ok(());
        }
        let mut groups = tasks.iter_mut().filter_map(|task| {
            let held = task.held.take();
            match task.frames.pop() {
                Some(Frame::Group(group)) => Some((group, held)),
                _ => {
                    task.held = held;
                    None
                }
            }
        });
        let (parts, held) = encoder.encode(&mut groups, self.global.as_deref(), budget)?;
        if let Some(last) = tasks.last_mut() {
            last.frames.push(Frame::Encoded(EncodedGroups { parts, points }));
            last.held = Some(held);
        }
        Ok(())
    }

    /// The annotations of a group that begin in the range of the query.
    fn annotations_of(&self, group: &SeriesGroup) -> Option<Vec<Arc<Annotation>>> {
        annotation::group_annotations(group.series.iter(), self.range_ms, self.quirks)
    }
}
