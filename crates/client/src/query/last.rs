//! Last points.

use oxtsdb_proto::data::v1::QueryLastResponse;
use oxtsdb_proto::data::v1::query_last_response::{self as pb, last_point};

use crate::{Error, Rejection, SeriesName, Timestamp, Value};

/// The last point of a series.
#[derive(Clone, Debug, PartialEq)]
pub struct LastPoint {
    /// The target that selects the series, from 0.
    pub target: u32,
    /// The TSUID.
    pub tsuid: Vec<u8>,
    /// The names, if requested.
    pub name: Option<SeriesName>,
    /// When.
    pub timestamp: Timestamp,
    /// The value.
    pub value: Value,
}

/// One result of a look-up of last points.
#[derive(Clone, Debug, PartialEq)]
pub enum LastPointOutcome {
    /// The last point of a series.
    Point(LastPoint),
    /// A target that failed.
    Failed {
        /// The target, from 0.
        target: u32,
        /// Why.
        rejection: Rejection,
    },
}

impl LastPointOutcome {
    /// The outcomes of a message.
    pub(crate) fn from_message(message: QueryLastResponse) -> Result<Vec<Self>, Error> {
        let points = message.points.into_iter().map(point);
        let errors = message.errors.into_iter().map(|error| {
            let item = error
                .error
                .ok_or_else(|| Error::protocol("a failed target without its error"))?;
            Ok(Self::Failed {
                target: error.target,
                rejection: item.into(),
            })
        });
        points.chain(errors).collect()
    }
}

fn point(point: pb::LastPoint) -> Result<LastPointOutcome, Error> {
    let value = match point.value {
        Some(last_point::Value::IntValue(int)) => Value::Int(int),
        Some(last_point::Value::DoubleValue(double)) => Value::Double(double),
        None => return Err(Error::protocol("a last point without a value")),
    };
    let name = point.name.map(|name| {
        let tags = name.tags.iter().map(|tag| (&tag.key, &tag.value));
        SeriesName::new(&name.metric, tags)
    });
    Ok(LastPointOutcome::Point(LastPoint {
        target: point.target,
        tsuid: point.tsuid.into(),
        name,
        timestamp: Timestamp::from_millis(point.timestamp_ms),
        value,
    }))
}
