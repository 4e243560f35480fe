//! The names of groups.

use std::sync::Arc;

use oxtsdb_schema::{Uid, UidKind, UidWidths};

use crate::error::QueryError;
use crate::exec::frame::Group;
use crate::exec::group::SeriesGroup;
use crate::names::Names;
use crate::points::Points;

/// The UIDs that occur in groups, by kind.
pub(super) fn uids_of<'a>(
    groups: impl IntoIterator<Item = &'a SeriesGroup>,
    widths: &UidWidths,
) -> [Vec<Uid>; 3] {
    let mut needed: [Vec<Uid>; 3] = Default::default();
    let [metrics, tagks, tagvs] = &mut needed;
    for group in groups {
        metrics.extend(
            group
                .series
                .first()
                .map(|series| series.tsuid.metric(widths).uid()),
        );
        tagks.extend(group.tags.iter().map(|(tagk, _)| tagk.uid()));
        tagks.extend(group.aggregate_tags.iter().map(|tagk| tagk.uid()));
        tagvs.extend(group.tags.iter().map(|(_, tagv)| tagv.uid()));
    }
    needed
}

/// Where a group is in a result.
#[derive(Clone, Copy, Debug)]
pub(super) struct GroupPlace<'a> {
    /// Its number in the result.
    pub(super) number: usize,
    /// Its sub-query.
    pub(super) query: usize,
    /// Name of the metric, if the sub-query has one.
    pub(super) metric: Option<&'a Arc<str>>,
}

/// A group without points, of which more will be sent.
pub(super) fn named_group(
    names: &Names,
    place: GroupPlace<'_>,
    group: &SeriesGroup,
    widths: &UidWidths,
) -> Result<Group, QueryError> {
    let mut named = group.series.iter().filter(|series| series.is_named).peekable();
    let metric = match (place.metric.filter(|_| named.peek().is_some()), named.peek()) {
        (Some(metric), _) => Arc::clone(metric),
        (None, Some(series)) => names.name(UidKind::Metric, series.tsuid.metric(widths).uid())?,
        (None, None) => Arc::from(""),
    };
    let mut tags = Vec::with_capacity(group.tags.len());
    for (tagk, tagv) in &group.tags {
        tags.push((
            names.name(UidKind::Tagk, tagk.uid())?,
            names.name(UidKind::Tagv, tagv.uid())?,
        ));
    }
    let aggregate_tags = group
        .aggregate_tags
        .iter()
        .map(|tagk| names.name(UidKind::Tagk, tagk.uid()))
        .collect::<Result<_, _>>()?;
    Ok(Group {
        number: place.number,
        is_whole: false,
        query: place.query,
        metric,
        tags,
        aggregate_tags,
        annotations: None,
        tsuids: named.map(|series| series.tsuid.clone()).collect(),
        points: Points::default(),
    })
}
