//! `Write` and `WriteColumns`.

mod columns;
mod convert;
pub(super) mod data;
mod encode;
mod failures;
mod options;
mod received;
mod resolve;

use std::time::{Instant, SystemTime};

use bytes::Bytes;
use oxtsdb_proto::common::v1::ErrorReason;
use oxtsdb_proto::data::v1::WriteResponse;
use oxtsdb_proto::decode_memory;
use oxtsdb_proto::error::invalid_field_because;
use oxtsdb_server::deadline_of;
use oxtsdb_server::metrics::Protocol;
use tonic::{Request, Response, Status};

pub(super) use self::columns::{MAX_COLUMN_POINTS, write_columns};
pub(super) use self::convert::{blocks, declare, point_count};
use self::convert::{series_blocks, series_name, series_point_count};
use self::encode::in_pool;
pub(super) use self::encode::run_encoder;
pub(super) use self::failures::RemainingFailures;
pub(super) use self::failures::failures_message;
pub(super) use self::options::WriteOptions;
use self::received::Received;
use self::resolve::{known, resolve};
use super::results::caller_of;
use super::{DataServiceHandler, status};
use oxtsdb_ingest::columns::{Failures, SeriesTable, describe, encode as encode_blocks};
use oxtsdb_ingest::{Caller, Example};
use oxtsdb_metadata::uids::series::Series;

/// Requests up to this size are decoded inline, in about a millisecond.
const INLINE_BYTES: usize = 256 << 10;

/// The most points of a Write.
const MAX_POINTS: usize = 100_000;

/// `Write`, of an encoded request.
pub(super) async fn write(
    service: &DataServiceHandler,
    request: Request<Bytes>,
) -> Result<Response<WriteResponse>, Status> {
    let (deadline, caller) = (deadline_of(request.extensions()), caller_of(&request));
    let (message, writer) = (request.into_inner(), service.writer.clone());
    let is_large = message.len() > INLINE_BYTES;
    let decode = move || {
        let received = Received::decode(message)?;
        let known = known(&writer, received.points());
        Ok((received, known))
    };
    let (received, known) = if is_large {
        // The memory of the call is charged on the threads of the pool too.
        in_pool(
            &service.writer.compute_of(caller.client),
            decode_memory::with_meter(decode),
        )
        .await?
    } else {
        decode()?
    };
    store(service, &caller, received, known, deadline).await
}

async fn store(
    service: &DataServiceHandler,
    caller: &Caller,
    received: Received,
    known: Vec<Option<Series>>,
    deadline: Option<Instant>,
) -> Result<Response<WriteResponse>, Status> {
    let options = WriteOptions::parse("options", received.points().options.as_ref())?;
    let count = series_point_count(received.points());
    if !(1..=MAX_POINTS).contains(&count) {
        return Err(wrong_point_count("series", count, MAX_POINTS));
    }
    let write_status = |error| status::write_status(&error);
    let resolved = resolve(&service.writer, received.points(), known, deadline).await?;
    let batch = service.writer.batch_in_time(count, deadline).await;
    let mut batch = batch.map_err(write_status)?;
    let rules = options.time.rules(SystemTime::now());
    let compute = service.writer.compute_of(caller.client);
    let encoded = run_encoder(count, &compute, move || {
        let mut failures = Failures::new(options.max_errors);
        // The number of elements has a bound far below 32 bits.
        let numbers: Vec<u32> = (0..).take(resolved.len()).collect();
        let mut table = SeriesTable::from_resolved(resolved);
        let blocks = series_blocks(received.points(), &numbers);
        encode_blocks(blocks, &rules, &mut table, batch.encoded(), &mut failures)
            .map_err(|violation| status::violation_status("", &violation))?;
        failures.describe(|point| {
            let blocks = series_blocks(received.points(), &numbers);
            describe(blocks, point, |number| series_name(received.points(), number))
        });
        batch.shrink();
        Ok((batch, failures))
    });
    let (batch, failures) = encoded.await?;
    let written = batch.points();
    let stored = service.writer.store(batch, deadline).await;
    count_write(service, caller, written, &failures, stored.is_ok());
    stored.map_err(write_status)?;
    Ok(Response::new(WriteResponse {
        written,
        failed: failures.failed(),
        failures: failures_message(failures),
    }))
}

/// Counts the points of a call or frame: `written` ones, unless the store failed, and those that were rejected.
pub(super) fn count_write(
    service: &DataServiceHandler,
    caller: &Caller,
    written: u64,
    failures: &Failures,
    is_stored: bool,
) {
    let counts = service.writer.counts();
    if is_stored {
        counts.for_protocol(Protocol::Grpc).add_batch(written);
    } else {
        counts.for_protocol(Protocol::Grpc).add_failed(written);
    }
    for rejected in failures.rejected() {
        counts.reject(caller, rejected.kind, rejected.points, || Example {
            reason: rejected.reason.to_string(),
            point: rejected.point.clone(),
        });
    }
}

fn wrong_point_count(field: &str, count: usize, max: usize) -> Status {
    let description = format!("has {count} points, expected 1 to {max}");
    invalid_field_because(field, ErrorReason::BatchTooLarge, description)
}

#[cfg(test)]
mod tests;
