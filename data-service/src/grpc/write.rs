//! `Write` and `WriteColumns`.

use oxtsdb_proto::common::v1::{ErrorReason, SeriesKey, Tag, series_key};
use oxtsdb_proto::data::v1::{
    Columns, Point, PointError, TimestampPrecision, WriteColumnsRequest, WriteColumnsResponse, WriteRequest,
    WriteResponse, point,
};
use oxtsdb_proto::error::{invalid_field_because, status as status_with};
use oxtsdb_resources::ComputePool;
use oxtsdb_schema::Value;
use oxtsdb_server::deadline_of;
use tonic::{Code, Request, Response, Status};

use super::{DataServiceHandler, status};
use crate::uids::series::SeriesRef;
use crate::write::columns::{self, ErrorRun, PointErrors, Tables};
use crate::write::{self, Batch, PointErrorReason, PointRef};

/// The most points of a Write.
const MAX_POINTS: usize = 10_000;

/// The most points of a WriteColumns, and of a frame of a WriteStream.
pub(super) const MAX_COLUMN_POINTS: usize = 1_000_000;

/// Columns with so many points are encoded inline, in a millisecond or two.
const INLINE_POINTS: usize = 20_000;

/// Errors told if the request does not say how many.
const DEFAULT_MAX_ERRORS: u32 = 100;

/// The most errors told, whatever the request says: they must fit one message.
const MOST_MAX_ERRORS: u32 = 10_000;

/// How many errors a client wants to hear.
pub(super) fn max_errors(asked: u32) -> usize {
    let wanted = if asked == 0 { DEFAULT_MAX_ERRORS } else { asked };
    wanted.min(MOST_MAX_ERRORS) as usize
}

/// The precision of a request.
pub(super) fn precision(field: &str, number: i32) -> Result<TimestampPrecision, Status> {
    TimestampPrecision::try_from(number).map_err(|_| {
        let description = format!("{number} is not a precision, expected 0, 1 or 2");
        invalid_field_because(field, ErrorReason::InvalidField, description)
    })
}

pub(super) fn point_error(run: &ErrorRun) -> PointError {
    PointError {
        point: run.first,
        error: Some(status::of_point(&run.reason)),
        count: run.count,
    }
}

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
    precision: TimestampPrecision,
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

pub(super) async fn write_columns(
    service: &DataServiceHandler,
    request: Request<WriteColumnsRequest>,
) -> Result<Response<WriteColumnsResponse>, Status> {
    let deadline = deadline_of(request.extensions());
    let request = request.into_inner();
    let precision = precision("precision", request.precision)?;
    let columns = request.columns.unwrap_or_default();
    let count = columns::point_count(&columns);
    if count == 0 || count > MAX_COLUMN_POINTS {
        let description = format!("has {count} points, expected 1 to {MAX_COLUMN_POINTS}");
        return Err(too_many("columns.blocks", description));
    }
    let mut tables = Tables::new(service.tables_limits());
    let of_columns = |error| status::of_columns("", &error);
    tables
        .declare(&columns, &service.writer, deadline)
        .await
        .map_err(of_columns)?;
    if let Some(outage) = tables.total_outage() {
        return Err(status::of_uids(outage));
    }
    let batch = service.writer.batch_in_time(count, deadline).await;
    let encoding = Encoding {
        columns,
        precision,
        tables,
        batch: batch.map_err(|error| status::of_write(&error))?,
        errors: PointErrors::new(max_errors(request.max_errors)),
    };
    let Encoding { batch, errors, .. } = encoding.run("", count, service.writer.compute()).await?;
    let written = batch.points();
    service
        .writer
        .store(batch, deadline)
        .await
        .map_err(|error| status::of_write(&error))?;
    let failed = errors.failed();
    let errors = errors.into_runs().iter().map(point_error).collect();
    Ok(Response::new(WriteColumnsResponse {
        written,
        failed,
        errors,
    }))
}

/// Columns whose series are resolved, on their way into a batch.
#[derive(Debug)]
pub(super) struct Encoding {
    pub(super) columns: Columns,
    pub(super) precision: TimestampPrecision,
    pub(super) tables: Tables,
    pub(super) batch: Batch,
    pub(super) errors: PointErrors,
}

impl Encoding {
    /// Encodes the points; many of them in the computation pool. `within` is what stands before the field of
    /// an error, with its dot.
    ///
    /// # Errors
    ///
    /// As [`columns::encode`].
    pub(super) async fn run(
        mut self,
        within: &'static str,
        points: usize,
        compute: &ComputePool,
    ) -> Result<Self, Status> {
        let encode = move || {
            let rows = self.batch.rows();
            columns::encode(
                &self.columns,
                self.precision,
                &mut self.tables,
                rows,
                &mut self.errors,
            )
            .map_err(|error| status::of_columns(within, &error))?;
            self.batch.shrink();
            Ok(self)
        };
        if points <= INLINE_POINTS {
            return encode();
        }
        let encoded = compute.run(encode).await;
        encoded.unwrap_or_else(|panicked| {
            let message = panicked.to_string();
            Err(status_with(Code::Internal, ErrorReason::Internal, message, &[]))
        })
    }
}

fn too_many(field: &str, description: String) -> Status {
    invalid_field_because(field, ErrorReason::BatchTooLarge, description)
}

#[cfg(test)]
mod tests;
