//! `WriteColumns`, and encoding of columns for both calls that take them.

use oxtsdb_proto::common::v1::ErrorReason;
use oxtsdb_proto::data::v1::{Columns, WriteColumnsRequest, WriteColumnsResponse};
use oxtsdb_proto::error::status as status_with;
use oxtsdb_resources::ComputePool;
use oxtsdb_server::deadline_of;
use tonic::{Code, Request, Response, Status};

use super::convert::{blocks, declare, max_errors, point_count, point_error, precision};
use super::too_many;
use crate::grpc::{DataServiceHandler, status};
use crate::write::columns::{PointErrors, Tables, encode};
use crate::write::{Batch, Precision};

/// The most points of a WriteColumns, and of a frame of a WriteStream.
pub(in crate::grpc) const MAX_COLUMN_POINTS: usize = 1_000_000;

/// Columns with at most this many points are encoded inline, in a millisecond or two.
const INLINE_POINTS: usize = 20_000;

pub(in crate::grpc) async fn write_columns(
    service: &DataServiceHandler,
    request: Request<WriteColumnsRequest>,
) -> Result<Response<WriteColumnsResponse>, Status> {
    let deadline = deadline_of(request.extensions());
    let request = request.into_inner();
    let precision = precision("precision", request.precision)?;
    let columns = request.columns.unwrap_or_default();
    let count = point_count(&columns);
    if count == 0 || count > MAX_COLUMN_POINTS {
        let description = format!("has {count} points, expected 1 to {MAX_COLUMN_POINTS}");
        return Err(too_many("columns.blocks", description));
    }
    let mut tables = Tables::new(service.tables_limits());
    declare("columns.", &columns, &mut tables)?;
    let of_write = |error| status::of_write(&error);
    tables
        .resolve(&service.writer, deadline)
        .await
        .map_err(of_write)?;
    if let Some(outage) = tables.total_outage() {
        return Err(status::of_uids(outage));
    }
    let batch = service.writer.batch_in_time(count, deadline).await;
    let encoding = Encoding {
        columns,
        precision,
        tables,
        batch: batch.map_err(of_write)?,
        errors: PointErrors::new(max_errors(request.max_errors)),
    };
    let encoded = encoding.run("columns.", count, service.writer.compute());
    let Encoding { batch, errors, .. } = encoded.await?;
    let written = batch.points();
    service.writer.store(batch, deadline).await.map_err(of_write)?;
    let failed = errors.failed();
    let errors = errors.into_runs().iter().map(point_error).collect();
    Ok(Response::new(WriteColumnsResponse {
        written,
        failed,
        errors,
    }))
}

/// Columns whose series are resolved, and the batch that they are encoded into.
#[derive(Debug)]
pub(in crate::grpc) struct Encoding {
    pub(in crate::grpc) columns: Columns,
    pub(in crate::grpc) precision: Precision,
    pub(in crate::grpc) tables: Tables,
    pub(in crate::grpc) batch: Batch,
    pub(in crate::grpc) errors: PointErrors,
}

impl Encoding {
    /// Encodes the points, in the compute pool if they are many. `within` is the path of the columns, with
    /// its dot.
    ///
    /// # Errors
    ///
    /// If a block refers to a series that is not declared.
    pub(in crate::grpc) async fn run(
        mut self,
        within: &'static str,
        points: usize,
        compute: &ComputePool,
    ) -> Result<Self, Status> {
        let encode = move || {
            let rows = self.batch.rows();
            encode(
                blocks(&self.columns),
                self.precision,
                &mut self.tables,
                rows,
                &mut self.errors,
            )
            .map_err(|violation| status::of_violation(within, &violation))?;
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
