//! `Write` and `WriteColumns`.

mod columns;
mod convert;
mod encode;
mod failures;
mod options;

use std::sync::Arc;
use std::time::{Instant, SystemTime};

use oxtsdb_proto::common::v1::{ErrorReason, Tag};
use oxtsdb_proto::data::v1::{TimeSeries, WriteRequest, WriteResponse, time_series};
use oxtsdb_proto::error::invalid_field_because;
use oxtsdb_server::deadline_of;
use tonic::{Request, Response, Status};

pub(super) use self::columns::{MAX_COLUMN_POINTS, write_columns};
pub(super) use self::convert::{blocks, declare, point_count};
use self::convert::{series_blocks, series_point_count};
pub(super) use self::encode::run_encoder;
pub(super) use self::failures::RemainingFailures;
use self::failures::failures_message;
pub(super) use self::options::WriteOptions;
use super::{DataServiceHandler, status};
use crate::uids::series::SeriesRef;
use crate::write::columns::{Failures, SeriesTable, encode as encode_blocks};
use crate::write::{PointErrorReason, Resolution, Resolved, Writer};

/// The most points of a Write.
const MAX_POINTS: usize = 100_000;

pub(super) async fn write(
    service: &DataServiceHandler,
    request: Request<WriteRequest>,
) -> Result<Response<WriteResponse>, Status> {
    let deadline = deadline_of(request.extensions());
    let WriteRequest { series, options } = request.into_inner();
    let options = WriteOptions::parse("options", options.as_ref())?;
    let count = series_point_count(&series);
    if !(1..=MAX_POINTS).contains(&count) {
        return Err(wrong_point_count("series", count, MAX_POINTS));
    }
    let of_write = |error| status::of_write(&error);
    let resolved = resolve(&service.writer, &series, deadline).await?;
    let batch = service.writer.batch_in_time(count, deadline).await;
    let mut batch = batch.map_err(of_write)?;
    let rules = options.time.rules(SystemTime::now());
    let encoded = run_encoder(count, service.writer.compute(), move || {
        let mut failures = Failures::new(options.max_errors);
        // The number of elements has a bound far below 32 bits.
        let numbers: Vec<u32> = (0..).take(series.len()).collect();
        let mut table = SeriesTable::of(resolved);
        let blocks = series_blocks(&series, &numbers);
        encode_blocks(blocks, &rules, &mut table, batch.encoded(), &mut failures)
            .map_err(|violation| status::of_violation("", &violation))?;
        batch.shrink();
        Ok((batch, failures))
    });
    let (batch, failures) = encoded.await?;
    let written = batch.points();
    service.writer.store(batch, deadline).await.map_err(of_write)?;
    Ok(Response::new(WriteResponse {
        written,
        failed: failures.failed(),
        failures: failures_message(failures),
    }))
}

/// Resolves the series of a request, in their order.
///
/// # Errors
///
/// When the UID service fails; while it is unavailable, only if no series is cached.
async fn resolve(
    writer: &Writer,
    series: &[TimeSeries],
    deadline: Option<Instant>,
) -> Result<Vec<Resolved>, Status> {
    let mut tags: Vec<(&str, &str)> = Vec::new();
    for series in series {
        if let Some(time_series::Series::Name(name)) = &series.series {
            let pairs = name.tags.iter();
            tags.extend(pairs.map(|Tag { key, value }| (key.as_str(), value.as_str())));
        }
    }
    let mut tags = tags.as_slice();
    let mut references = Vec::with_capacity(series.len());
    for series in series {
        match &series.series {
            Some(time_series::Series::Name(name)) => {
                let (own, rest) = tags.split_at(name.tags.len());
                tags = rest;
                references.push(SeriesRef::Names {
                    metric: &name.metric,
                    tags: own,
                });
            }
            Some(time_series::Series::Tsuid(tsuid)) => references.push(SeriesRef::Tsuid(tsuid)),
            None => {}
        }
    }
    let resolved = writer.resolve(references.into_iter(), deadline).await;
    let Resolution {
        series: resolved,
        outage,
    } = resolved.map_err(|error| status::of_write(&error))?;
    if let Some(outage) = outage
        && !resolved.iter().any(Result::is_ok)
    {
        return Err(status::of_uids(&outage));
    }
    let missing = Arc::new(PointErrorReason::NoSeries);
    let mut resolved = resolved.into_iter();
    let in_order = series.iter().map(|series| match &series.series {
        Some(_) => resolved.next().unwrap_or_else(|| Err(Arc::clone(&missing))),
        None => Err(Arc::clone(&missing)),
    });
    Ok(in_order.collect())
}

fn wrong_point_count(field: &str, count: usize, max: usize) -> Status {
    let description = format!("has {count} points, expected 1 to {max}");
    invalid_field_because(field, ErrorReason::BatchTooLarge, description)
}

#[cfg(test)]
mod tests;
