//! `Write` and `WriteColumns`.

mod columns;
mod convert;

use oxtsdb_proto::common::v1::{ErrorReason, SeriesKey, Tag, series_key};
use oxtsdb_proto::data::v1::{Point, PointError, WriteRequest, WriteResponse, point};
use oxtsdb_proto::error::invalid_field_because;
use oxtsdb_schema::Value;
use oxtsdb_server::deadline_of;
use tonic::{Request, Response, Status};

pub(super) use self::columns::{Encoding, MAX_COLUMN_POINTS, write_columns};
pub(super) use self::convert::{declare, max_errors, point_count, point_error, precision};
use super::{DataServiceHandler, status};
use crate::uids::series::SeriesRef;
use crate::write::columns::PointErrors;
use crate::write::{self, PointErrorReason, PointRef, Precision};

/// The most points of a Write.
const MAX_POINTS: usize = 10_000;

pub(super) async fn write(
    service: &DataServiceHandler,
    request: Request<WriteRequest>,
) -> Result<Response<WriteResponse>, Status> {
    let deadline = deadline_of(request.extensions());
    let request = request.into_inner();
    let precision = precision("precision", request.precision)?;
    let count = request.points.len();
    if count == 0 || count > MAX_POINTS {
        let description = format!("has {count} points, expected 1 to {MAX_POINTS}");
        return Err(too_many("points", description));
    }

    let mut tags: Vec<(&str, &str)> = Vec::with_capacity(count * 4);
    for point in &request.points {
        if let Some(series_key::Key::Name(name)) = key(point) {
            tags.extend(
                name.tags
                    .iter()
                    .map(|Tag { key, value }| (key.as_str(), value.as_str())),
            );
        }
    }
    let mut errors = PointErrors::new(max_errors(request.max_errors));
    let mut points = Vec::with_capacity(count);
    // The number of each good point in the request.
    let mut numbers = Vec::with_capacity(count);
    let mut tags_left = tags.as_slice();
    for (number, point) in request.points.iter().enumerate() {
        let tag_count = match key(point) {
            Some(series_key::Key::Name(name)) => name.tags.len(),
            Some(series_key::Key::Tsuid(_)) | None => 0,
        };
        let (tags, rest) = tags_left.split_at(tag_count);
        tags_left = rest;
        match point_ref(point, tags, precision) {
            Ok(point) => {
                points.push(point);
                numbers.push(number as u64);
            }
            Err(reason) => errors.add(number as u64, || reason),
        }
    }

    let written = service
        .writer
        .write_refs(points.len(), |index| points[index], deadline)
        .await;
    let outcome = written.map_err(|error| status::of_write(&error))?;
    let max = max_errors(request.max_errors);
    let failed = errors.failed() + outcome.errors.len() as u64;
    let refused = outcome.errors.iter().take(max).map(|error| PointError {
        point: numbers[error.index],
        error: Some(status::of_point(&error.reason)),
        count: 1,
    });
    let mut errors: Vec<PointError> = errors
        .into_runs()
        .iter()
        .map(point_error)
        .chain(refused)
        .collect();
    errors.sort_by_key(|error| error.point);
    errors.truncate(max);
    Ok(Response::new(WriteResponse {
        written: outcome.written,
        failed,
        errors,
    }))
}

fn key(point: &Point) -> Option<&series_key::Key> {
    match &point.series {
        Some(SeriesKey { key }) => key.as_ref(),
        None => None,
    }
}

fn point_ref<'a>(
    point: &'a Point,
    tags: &'a [(&'a str, &'a str)],
    precision: Precision,
) -> Result<PointRef<'a>, PointErrorReason> {
    let series = match key(point) {
        Some(series_key::Key::Name(name)) => SeriesRef::Names {
            metric: &name.metric,
            tags,
        },
        Some(series_key::Key::Tsuid(tsuid)) => SeriesRef::Tsuid(tsuid),
        None => return Err(PointErrorReason::NoSeries),
    };
    let timestamp = write::timestamp(point.timestamp_ms, precision)?;
    let value = match point.value {
        Some(point::Value::IntValue(int)) => Value::Int(int),
        Some(point::Value::DoubleValue(double)) => {
            Value::number(double).map_err(PointErrorReason::InvalidValue)?
        }
        None => return Err(PointErrorReason::NoValue),
    };
    Ok(PointRef {
        series,
        timestamp,
        value,
    })
}

fn too_many(field: &str, description: String) -> Status {
    invalid_field_because(field, ErrorReason::BatchTooLarge, description)
}

#[cfg(test)]
mod tests;
