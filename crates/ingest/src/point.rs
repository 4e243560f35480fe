//! Points to write, and the outcome of a write.

use std::sync::Arc;

use oxtsdb_metadata::uids::series::SeriesRef;
use oxtsdb_schema::{Timestamp, Value};

use super::PointErrorReason;

/// A point to write.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NewPoint<'a> {
    /// Metric name.
    pub metric: &'a str,
    /// Tags as key and value, no key twice. Names without a UID get one in the order given: the
    /// metric, then key and value of each tag.
    pub tags: &'a [(&'a str, &'a str)],
    /// When; its resolution decides the qualifier.
    pub timestamp: Timestamp,
    /// The value as it is to be stored.
    pub value: Value,
}

/// The outcome of a write.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WriteOutcome {
    /// Points stored.
    pub written: u64,
    /// The points that were not stored, by index.
    pub errors: Vec<PointError>,
}

/// A point that was not stored.
#[derive(Clone, Debug, PartialEq)]
pub struct PointError {
    /// Its place among the points of the write, from 0.
    pub index: usize,
    /// The reason; shared by points with one reason.
    pub reason: Arc<PointErrorReason>,
}

/// A point, with its series by names or TSUID.
#[derive(Clone, Copy, Debug)]
pub struct PointRef<'a> {
    /// The series; names without a UID get one as in [`NewPoint::tags`].
    pub series: SeriesRef<'a>,
    /// When; its resolution decides the qualifier.
    pub timestamp: Timestamp,
    /// The value as it is to be stored.
    pub value: Value,
}

impl<'a> From<&NewPoint<'a>> for PointRef<'a> {
    fn from(point: &NewPoint<'a>) -> Self {
        Self {
            series: SeriesRef::Names {
                metric: point.metric,
                tags: point.tags,
            },
            timestamp: point.timestamp,
            value: point.value,
        }
    }
}
