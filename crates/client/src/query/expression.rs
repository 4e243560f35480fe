//! Frames of expressions.

use std::collections::BTreeMap;

use oxtsdb_proto::data::v1::QueryExpressionsResponse;
use oxtsdb_proto::data::v1::query_expressions_response::{self as pb, Frame};

use super::{Points, Statistics};
use crate::Error;

/// A series of an expression.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExpressionSeries {
    /// Its number in the result; [`Points::series`] refers to it.
    pub number: u32,
    /// Name of the output.
    pub output: String,
    /// The text that replaces metric and tags, if the expression has an alias.
    pub alias: Option<String>,
    /// The metrics that it is computed from, in order of their UIDs.
    pub metrics: Vec<String>,
    /// Tags that all of its series share.
    pub tags: BTreeMap<String, String>,
    /// Keys of the tags that differ.
    pub aggregate_tags: Vec<String>,
    /// TSUIDs of its series, if requested.
    pub tsuids: Vec<Vec<u8>>,
}

/// One frame of the result of expressions, in the order of [`QueryFrame`](super::QueryFrame).
#[derive(Clone, Debug, PartialEq)]
pub enum ExpressionFrame {
    /// A series.
    Series(ExpressionSeries),
    /// Points of a series.
    Points(Points),
    /// An output is complete.
    Done {
        /// Its name.
        output: String,
        /// Its series.
        series: u32,
    },
    /// The result is complete.
    Statistics(Statistics),
}

impl From<pb::Series> for ExpressionSeries {
    fn from(series: pb::Series) -> Self {
        Self {
            number: series.series,
            output: series.output,
            alias: Some(series.alias).filter(|alias| !alias.is_empty()),
            metrics: series.metrics,
            tags: series.tags.into_iter().collect(),
            aggregate_tags: series.aggregate_tags,
            tsuids: series.tsuids.into_iter().map(Into::into).collect(),
        }
    }
}

impl ExpressionFrame {
    /// The frame of a message; `None` for a frame that is newer than this client.
    pub(crate) fn from_message(message: QueryExpressionsResponse) -> Result<Option<Self>, Error> {
        let frame = message.frame.map(|frame| {
            Ok(match frame {
                Frame::Series(series) => Self::Series(series.into()),
                Frame::Points(points) => Self::Points(points.try_into()?),
                Frame::Done(done) => Self::Done {
                    output: done.output,
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
