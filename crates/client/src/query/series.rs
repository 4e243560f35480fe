//! Frames of a query.

use std::collections::BTreeMap;

use oxtsdb_proto::data::v1::QueryResponse;
use oxtsdb_proto::data::v1::query_response::{self as pb, Frame};

use super::{Points, Statistics};
use crate::{Annotation, Error};

/// A group of series, which is one series of the result.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Series {
    /// Its number in the result; [`Points::series`] refers to it.
    pub number: u32,
    /// The sub-query, from 0.
    pub query: u32,
    /// Metric.
    pub metric: String,
    /// Tags that all series of the group share.
    pub tags: BTreeMap<String, String>,
    /// Keys of the tags that differ.
    pub aggregate_tags: Vec<String>,
    /// TSUIDs of the group, if requested.
    pub tsuids: Vec<Vec<u8>>,
}

/// One frame of a result. The series of a group precedes its points; points of a group are in order of time;
/// statistics are the last frame.
#[derive(Clone, Debug, PartialEq)]
pub enum QueryFrame {
    /// A group.
    Series(Series),
    /// Points of a group.
    Points(Points),
    /// Annotations, if requested. Global ones come first, a group's behind its series.
    Annotations {
        /// [`Series::number`] of the group; `None`: global annotations.
        series: Option<u32>,
        /// In order of time.
        annotations: Vec<Annotation>,
    },
    /// A sub-query is complete.
    Done {
        /// The sub-query, from 0.
        query: u32,
        /// Its groups.
        series: u32,
    },
    /// The result is complete.
    Statistics(Statistics),
}

impl From<pb::Series> for Series {
    fn from(series: pb::Series) -> Self {
        Self {
            number: series.series,
            query: series.query,
            metric: series.metric,
            tags: series.tags.into_iter().collect(),
            aggregate_tags: series.aggregate_tags,
            tsuids: series.tsuids.into_iter().map(Into::into).collect(),
        }
    }
}

impl QueryFrame {
    /// The frame of a message; `None` for a frame that is newer than this client.
    pub(crate) fn from_message(message: QueryResponse) -> Result<Option<Self>, Error> {
        let frame = message.frame.map(|frame| {
            Ok(match frame {
                Frame::Series(series) => Self::Series(series.into()),
                Frame::Points(points) => Self::Points(points.try_into()?),
                Frame::Annotations(annotations) => Self::Annotations {
                    series: annotations.series,
                    annotations: annotations.annotations.into_iter().map(Into::into).collect(),
                },
                Frame::Done(done) => Self::Done {
                    query: done.query,
                    series: done.series_count,
                },
                Frame::Statistics(statistics) => Self::Statistics(statistics.into()),
            })
        });
        frame.transpose()
    }

    pub(crate) fn is_last(&self) -> bool {
        matches!(self, Self::Statistics(_))
    }
}
