//! Series that expressions take and make.

use std::collections::BTreeMap;
use std::sync::Arc;

use oxtsdb_schema::{Annotation, Tsuid, Uid, UidWidths};

use super::error::ExpressionError;
use crate::{Group, Points};

/// A series: a group that a query returned, or a result of such groups.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// The metrics of its values, by UID.
    pub metrics: BTreeMap<Uid, Arc<str>>,
    /// A name in place of metrics and tags.
    pub alias: Option<Arc<str>>,
    /// Tags with one value, by the UID of their key.
    pub tags: BTreeMap<Uid, Tag>,
    /// Keys of tags with several values, by UID.
    pub aggregate_tags: BTreeMap<Uid, Arc<str>>,
    /// The stored series in it.
    pub tsuids: Vec<Tsuid>,
    /// The sub-query that it is of; of several: the first.
    pub query: usize,
    /// How it came to be.
    pub origin: Origin,
    /// Annotations of the stored series, as [`Group::annotations`].
    pub annotations: Option<Vec<Arc<Annotation>>>,
    /// Its values.
    pub points: Points,
}

/// A tag with its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tag {
    /// Name of the key.
    pub key: Arc<str>,
    /// UID of the value.
    pub value_uid: Uid,
    /// The value.
    pub value: Arc<str>,
}

/// How a series came to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A query returned it, and functions may have been applied.
    Query,
    /// Combined from several series. `uneven` has the numbers of values of two of them that should be equal
    /// and are not: reading the points then fails, as in OpenTSDB, which combines lazily.
    Combined {
        /// Two numbers of values.
        uneven: Option<(usize, usize)>,
    },
    /// Functions were applied to a combined series.
    OfCombined,
}

impl Series {
    /// A group, with the UIDs of its names as its TSUIDs have them.
    pub fn from_group(group: Group, widths: &UidWidths) -> Self {
        // `None`: several values. As groups are made, so tags come in the order of their names.
        let mut uids: BTreeMap<Uid, Option<Uid>> = BTreeMap::new();
        for (key, value) in group.tsuids.iter().flat_map(|tsuid| tsuid.tags(widths)) {
            let one = uids.entry(key.uid()).or_insert_with(|| Some(value.uid()));
            if *one != Some(value.uid()) {
                *one = None;
            }
        }
        let single = uids.iter().filter_map(|(key, value)| Some((*key, (*value)?)));
        let tags = single
            .zip(&group.tags)
            .map(|((key_uid, value_uid), (key, value))| {
                let (key, value) = (Arc::clone(key), Arc::clone(value));
                (
                    key_uid,
                    Tag {
                        key,
                        value_uid,
                        value,
                    },
                )
            });
        let several = uids
            .iter()
            .filter(|(_, value)| value.is_none())
            .map(|(key, _)| *key);
        let metric = group.tsuids.first().map(|tsuid| tsuid.metric(widths).uid());
        Self {
            metrics: metric.map(|uid| (uid, group.metric)).into_iter().collect(),
            alias: None,
            tags: tags.collect(),
            aggregate_tags: several.zip(group.aggregate_tags).collect(),
            tsuids: group.tsuids,
            query: group.query,
            origin: Origin::Query,
            annotations: group.annotations,
            points: group.points,
        }
    }

    /// Its alias, or the metric with the smallest UID. In OpenTSDB a series that was combined with an
    /// aliased one has no name.
    pub fn name(&self) -> Option<Arc<str>> {
        let metric = || self.metrics.values().next().cloned();
        self.alias.clone().or_else(metric)
    }

    /// Whether it has no metric to be named after.
    pub(super) fn is_nameless(&self) -> bool {
        self.alias.is_some() || self.metrics.is_empty()
    }

    /// Rejects a series that has no points because others did not fit together.
    ///
    /// # Errors
    ///
    /// [`ExpressionError::Lengths`].
    pub const fn check(&self) -> Result<(), ExpressionError> {
        match self.origin {
            Origin::Combined {
                uneven: Some((first, second)),
            } => Err(ExpressionError::Lengths { first, second }),
            Origin::Query | Origin::Combined { uneven: None } | Origin::OfCombined => Ok(()),
        }
    }

    /// Returns the series at instants that are later by `by_ms`.
    #[must_use]
    pub fn moved(mut self, by_ms: i64) -> Self {
        if by_ms != 0 {
            let points = self.points.iter();
            self.points = points.map(|(time_ms, value)| (time_ms + by_ms, value)).collect();
        }
        self
    }

    /// Returns the series with other points.
    #[must_use]
    pub fn with_points(self, points: Points) -> Self {
        let origin = match self.origin {
            Origin::Query => Origin::Query,
            Origin::Combined { .. } | Origin::OfCombined => Origin::OfCombined,
        };
        Self {
            origin,
            points,
            ..self
        }
    }
}
