//! Frames: the items of a result stream.

use std::sync::Arc;

use bytes::Bytes;
use oxtsdb_schema::{Annotation, Tsuid};

use crate::annotation;
use crate::context::budget::Held;
use crate::exec::statistics::Statistics;
use crate::histogram::HistogramPart;
use crate::points::Points;

/// An item of a result. The groups of a sub-query come first, then more points of groups that are not whole, then
/// `Done`; sub-queries come in their order. `Statistics` is the last frame of a complete result.
#[derive(Clone, Debug, PartialEq)]
pub enum Frame {
    /// A group, with all its points or the first of them.
    Group(Group),
    /// Further points of a group that is not whole.
    More {
        /// The group: [`Group::number`].
        number: usize,
        /// The points.
        points: Points,
    },
    /// Annotations of a group that is not whole, before its sub-query is complete.
    Annotations {
        /// The group: [`Group::number`].
        number: usize,
        /// As [`Group::annotations`].
        annotations: Vec<Arc<Annotation>>,
    },
    /// Whole groups, encoded: see [`crate::GroupEncoder`].
    Encoded(EncodedGroups),
    /// The global annotations, if requested: the first frame. Absent if there are none nearby, and if groups are encoded.
    GlobalAnnotations(Vec<Arc<Annotation>>),
    /// A sub-query is complete.
    Done {
        /// The sub-query, from 0.
        query: usize,
        /// Its groups.
        groups: usize,
    },
    /// Counts of the reads of the whole query.
    Statistics(Statistics),
}

/// Whole groups, encoded for a protocol.
#[derive(Clone, Debug, PartialEq)]
pub struct EncodedGroups {
    /// The encoding, in pieces.
    pub parts: Vec<Bytes>,
    /// Points of all groups.
    pub points: u64,
}

/// A frame and its memory, which is released after the protocol has encoded the frame.
#[derive(Debug)]
pub struct Delivery {
    /// The frame.
    pub frame: Frame,
    /// Its memory.
    pub held: Held,
}

impl Frame {
    /// How many points it has.
    pub(crate) const fn point_count(&self) -> u64 {
        match self {
            Self::Group(Group { points, .. }) | Self::More { points, .. } => points.len() as u64,
            Self::Encoded(groups) => groups.points,
            Self::Annotations { .. }
            | Self::GlobalAnnotations(_)
            | Self::Done { .. }
            | Self::Statistics(_) => 0,
        }
    }

    /// The memory that it takes, in bytes.
    pub fn held_bytes(&self) -> u64 {
        match self {
            Self::Group(group) => group.held_bytes(),
            Self::More { points, .. } => points.held_bytes(),
            Self::Annotations { annotations, .. } | Self::GlobalAnnotations(annotations) => {
                annotation::held_bytes(annotations)
            }
            Self::Encoded(groups) => groups.parts.iter().map(|part| part.len() as u64).sum(),
            Self::Done { .. } | Self::Statistics(_) => 0,
        }
    }
}

impl Group {
    /// The memory that it takes, in bytes. Names are shared with others.
    pub fn held_bytes(&self) -> u64 {
        let names = (2 * self.tags.len() + self.aggregate_tags.len()) * size_of::<Arc<str>>();
        let tsuids: usize = self
            .tsuids
            .iter()
            .map(|tsuid| size_of::<Tsuid>() + tsuid.as_bytes().len())
            .sum();
        let annotations = self.annotations.as_deref().map_or(0, annotation::held_bytes);
        self.points.held_bytes() + annotations + (size_of::<Self>() + names + tsuids) as u64
    }
}

/// A group of series: one result.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// Its number in the result, from 0.
    pub number: usize,
    /// Whether it has all its points.
    pub is_whole: bool,
    /// The sub-query, from 0.
    pub query: usize,
    /// Name of the metric.
    pub metric: Arc<str>,
    /// The part of its histograms that it has; `None`: it has points. The metric ends with the part's name.
    pub part: Option<HistogramPart>,
    /// Tags that have one value over all series that have the key, as key and value, by tag key UID.
    pub tags: Vec<(Arc<str>, Arc<str>)>,
    /// Keys of the tags that have several values, by tag key UID.
    pub aggregate_tags: Vec<Arc<str>>,
    /// The series, in the order in which their values were taken.
    pub tsuids: Vec<Tsuid>,
    /// Annotations of the series that begin in the range of the query, in order; `None` if no row of the series has an
    /// annotation, or if none are requested.
    pub annotations: Option<Vec<Arc<Annotation>>>,
    /// The interval of the rollups that it is made of; `None`: points.
    pub rollup: Option<Arc<str>>,
    /// The points in the range of the query; none if the series have points nearby only.
    pub points: Points,
}
