//! `WriteColumns`.

use std::time::SystemTime;

use oxtsdb_ingest::columns::{Failures, Tables, describe, encode};
use oxtsdb_proto::data::v1::{WriteColumnsRequest, WriteColumnsResponse};
use oxtsdb_server::deadline_of;
use tonic::{Request, Response, Status};

use super::convert::{blocks, declare, point_count};
use super::failures::failures_message;
use super::{WriteOptions, count_write, run_encoder, wrong_point_count};
use crate::grpc::results::caller_of;
use crate::grpc::{DataServiceHandler, status};

/// The most points of a WriteColumns, and of a frame of a WriteStream.
pub(in crate::grpc) const MAX_COLUMN_POINTS: usize = 1_000_000;

/// The path of the columns.
const WITHIN: &str = "columns.";

pub(in crate::grpc) async fn write_columns(
    service: &DataServiceHandler,
    request: Request<WriteColumnsRequest>,
) -> Result<Response<WriteColumnsResponse>, Status> {
    let (deadline, caller) = (deadline_of(request.extensions()), caller_of(&request));
    let request = request.into_inner();
    let options = WriteOptions::parse("options", request.options.as_ref())?;
    let columns = request.columns.unwrap_or_default();
    let count = point_count(&columns);
    if !(1..=MAX_COLUMN_POINTS).contains(&count) {
        return Err(wrong_point_count("columns.blocks", count, MAX_COLUMN_POINTS));
    }
    let write_status = |error| status::write_status(&error);
    let mut tables = Tables::new(service.tables_limits());
    declare(WITHIN, &columns, &mut tables)?;
    let resolved = tables.resolve(&service.writer, deadline).await;
    resolved.map_err(write_status)?;
    if let Some(outage) = tables.total_outage() {
        return Err(status::uids_status(outage));
    }
    let batch = service.writer.batch_in_time(count, deadline).await;
    let mut batch = batch.map_err(write_status)?;
    let rules = options.time.rules(SystemTime::now());
    let compute = service.writer.compute_of(caller.client);
    let encoded = run_encoder(count, &compute, move || {
        let mut failures = Failures::new(options.max_errors);
        encode(
            blocks(&columns),
            &rules,
            tables.series(),
            batch.encoded(),
            &mut failures,
        )
        .map_err(|violation| status::violation_status(WITHIN, &violation))?;
        failures.describe(|point| describe(blocks(&columns), point, |number| tables.describe(number)));
        batch.shrink();
        Ok((batch, failures))
    });
    let (batch, failures) = encoded.await?;
    let written = batch.points();
    let stored = service.writer.store(batch, deadline).await;
    count_write(service, &caller, written, &failures, stored.is_ok());
    stored.map_err(write_status)?;
    Ok(Response::new(WriteColumnsResponse {
        written,
        failed: failures.failed(),
        failures: failures_message(failures),
    }))
}
