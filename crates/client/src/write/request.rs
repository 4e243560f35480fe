//! Points as a request, and its response as failures of points.

use oxtsdb_proto::common::v1::{SeriesName as Name, Tag};
use oxtsdb_proto::data::v1::{TimeSeries, TimeUnit, WriteOptions, WriteRequest, time_series};

use crate::{Point, SeriesName, Value};

/// Points of one request.
pub(super) const MAX_POINTS: usize = 10_000;

/// Bytes of a point beside its names; an upper bound.
pub(super) const POINT_BYTES: usize = 32;

/// Errors to describe: as many as a request has points.
const MAX_ERRORS: u32 = 10_000;

/// The request of some points: consecutive points of one series and type of value share a message.
pub(super) fn from_points(points: &[Point], allow_any_time: bool) -> WriteRequest {
    let is_int = |point: &Point| matches!(point.value, Value::Int(_));
    let runs = points.chunk_by(|a, b| a.series == b.series && is_int(a) == is_int(b));
    WriteRequest {
        series: runs.filter_map(message).collect(),
        options: Some(options(allow_any_time)),
    }
}

/// The options of all requests.
pub(super) fn options(allow_any_time: bool) -> WriteOptions {
    WriteOptions {
        time_unit: TimeUnit::Milliseconds.into(),
        allow_any_time,
        max_errors: Some(MAX_ERRORS),
        ..WriteOptions::default()
    }
}

fn message(points: &[Point]) -> Option<TimeSeries> {
    let mut message = TimeSeries {
        series: Some(time_series::Series::Name(name(&points.first()?.series))),
        timestamps: points.iter().map(|point| point.timestamp.millis()).collect(),
        ..TimeSeries::default()
    };
    for point in points {
        match point.value {
            Value::Int(int) => message.int_values.push(int),
            Value::Double(double) => message.values.push(double),
        }
    }
    Some(message)
}

/// The names of a series.
pub(super) fn name(series: &SeriesName) -> Name {
    let tags = series.tags().map(|(key, value)| Tag {
        key: key.to_owned(),
        value: value.to_owned(),
    });
    Name {
        metric: series.metric().to_owned(),
        tags: tags.collect(),
    }
}
