//! Points as a request, and its response as failures of points.

use oxtsdb_proto::common::v1::{SeriesKey, SeriesName as Name, Tag, series_key};
use oxtsdb_proto::data::v1::{Point as Message, WriteRequest, WriteResponse, point};

use crate::{Point, Rejection, Value};

/// Points of one request.
pub(super) const MAX_POINTS: usize = 10_000;

/// Bytes of a point beside its names; an upper bound.
pub(super) const POINT_BYTES: usize = 32;

/// Failed points to describe: as many as a request has.
const MAX_ERRORS: u32 = 10_000;

/// The request of some points.
pub(super) fn of(points: &[Point]) -> WriteRequest {
    WriteRequest {
        points: points.iter().map(message).collect(),
        max_errors: MAX_ERRORS,
        ..WriteRequest::default()
    }
}

fn message(point: &Point) -> Message {
    let tags = point.series.tags().map(|(key, value)| Tag {
        key: key.to_owned(),
        value: value.to_owned(),
    });
    let name = Name {
        metric: point.series.metric().to_owned(),
        tags: tags.collect(),
    };
    Message {
        series: Some(SeriesKey {
            key: Some(series_key::Key::Name(name)),
        }),
        timestamp_ms: point.timestamp.millis(),
        value: Some(match point.value {
            Value::Int(int) => point::Value::IntValue(int),
            Value::Double(double) => point::Value::DoubleValue(double),
        }),
    }
}

/// The positions of the points that failed, and why.
pub(super) fn failures(response: WriteResponse) -> impl Iterator<Item = (usize, Rejection)> {
    response.errors.into_iter().flat_map(|error| {
        let first = usize::try_from(error.point).unwrap_or(usize::MAX);
        let count = usize::try_from(error.count.max(1)).unwrap_or(usize::MAX);
        let rejection = error.error.map(Rejection::from);
        let positions = first..first.saturating_add(count).min(first.saturating_add(MAX_POINTS));
        positions.filter_map(move |position| Some((position, rejection.clone()?)))
    })
}
