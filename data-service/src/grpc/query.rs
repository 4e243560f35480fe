//! `DataService.Query`: runs a query and streams its groups as the engine emits them.

pub(super) mod aggregator;
pub(super) mod convert;
pub(super) mod frames;

use futures::stream::{self, BoxStream, StreamExt as _};
use oxtsdb_proto::common::v1::ErrorReason;
use oxtsdb_proto::data::v1::{QueryRequest, QueryResponse};
use oxtsdb_proto::error::{invalid_field, invalid_field_because, status};
use oxtsdb_schema::row::RowError;
use tonic::{Code, Request, Response, Status};

use super::results::{context_of, result_stream};
use super::status::{kind_name, of_store, overloaded};
use oxtsdb_query::exec::frame::Delivery;
use oxtsdb_query::language::time::now_ms;
use oxtsdb_query::{Engine, NameError, QueryError};

/// Runs a query. The call's deadline and a disconnecting client cancel it.
pub(super) fn query(
    engine: &Engine,
    request: Request<QueryRequest>,
) -> Result<Response<BoxStream<'static, Result<QueryResponse, Status>>>, Status> {
    let context = context_of(&request);
    let request = request.into_inner();
    let query = convert::query(&request, now_ms())?;
    let encoder = frames::Encoder::new(&request);
    let table = engine.storage().table.to_string();
    let messages = engine
        .run(query, context)
        .flat_map(move |delivery| match delivery {
            Ok(Delivery { frame, held }) => stream::iter(encoder.frames(frame))
                .map(move |message| {
                    // The frame's memory is held until its last message is encoded.
                    let _ = &held;
                    Ok(message)
                })
                .boxed(),
            Err(error) => stream::iter([Err(of_query(&error, "queries.", &table))]).boxed(),
        });
    Ok(Response::new(result_stream(messages, engine, None)))
}

/// The status of a failed query; `source` is the field that names the series, `table` the table of points.
pub(super) fn of_query(error: &QueryError, source: &str, table: &str) -> Status {
    let message = error.to_string();
    match error {
        QueryError::EndBeforeStart { .. } => invalid_field("range", message),
        QueryError::Filter(_) => invalid_field(&format!("{source}metric.filters"), message),
        QueryError::UnknownName { kind, name } => status(
            Code::NotFound,
            ErrorReason::NameNotFound,
            message,
            &[("kind", kind_name(*kind)), ("name", name)],
        ),
        QueryError::Tsuid { .. } => {
            invalid_field_because(&format!("{source}tsuids"), ErrorReason::InvalidUidWidth, message)
        }
        QueryError::TsuidMetrics { .. } => invalid_field(&format!("{source}tsuids"), message),
        QueryError::UidWithoutName { kind, uid } => status(
            Code::NotFound,
            ErrorReason::UidNotFound,
            message,
            &[("kind", kind_name(*kind)), ("uid", &uid.to_string())],
        ),
        QueryError::OverBudget { resource, limit } => status(
            Code::ResourceExhausted,
            ErrorReason::QueryTooLarge,
            message,
            &[
                ("limit", &limit.most.to_string()),
                ("setting", limit.setting),
                ("resource", &resource.to_string()),
            ],
        ),
        // The sum of finite values can be infinite: the data is valid.
        QueryError::Infinite { .. } => status(Code::OutOfRange, ErrorReason::InvalidValue, message, &[]),
        QueryError::Row { row_key, error } => {
            let metadata = place(table, row_key, qualifier_of(error));
            status(Code::DataLoss, ErrorReason::CorruptCell, message, &metadata)
        }
        QueryError::RowKey { row_key, .. } => {
            let metadata = place(table, row_key, "");
            status(Code::DataLoss, ErrorReason::CorruptCell, message, &metadata)
        }
        QueryError::Store(error) => of_store(error),
        QueryError::Names(error) => of_names(error),
        QueryError::NotAdmitted(_) => overloaded(message, "--max-concurrent-queries"),
        QueryError::NoMemory(error) if error.is_final() => status(
            Code::ResourceExhausted,
            ErrorReason::QueryTooLarge,
            message,
            &[
                ("limit", &error.limit.to_string()),
                ("setting", oxtsdb_resources::memory::LIMIT_SETTING),
            ],
        ),
        QueryError::NoMemory(_) => overloaded(message, oxtsdb_resources::memory::LIMIT_SETTING),
        QueryError::DeadlineExceeded | QueryError::TimedOut { .. } => status(
            Code::DeadlineExceeded,
            ErrorReason::DeadlineExceeded,
            message,
            &[],
        ),
        QueryError::Cancelled => status(Code::Aborted, ErrorReason::QueryCancelled, message, &[]),
        QueryError::Internal { .. } => status(Code::Internal, ErrorReason::Internal, message, &[]),
    }
}

/// The status of a failed name resolution.
fn of_names(error: &NameError) -> Status {
    let (code, reason) = match error {
        NameError::Unavailable { .. } => (Code::Unavailable, ErrorReason::UidServiceUnavailable),
        NameError::DeadlineExceeded { .. } => (Code::DeadlineExceeded, ErrorReason::DeadlineExceeded),
        NameError::Mismatch { .. } => (Code::FailedPrecondition, ErrorReason::TableMismatch),
        NameError::Internal { .. } => (Code::Internal, ErrorReason::Internal),
    };
    status(code, reason, error.to_string(), &[])
}

/// The position of damage, as metadata of its error.
pub(super) fn place<'a>(
    table: &'a str,
    row_key: &'a str,
    qualifier: &'a str,
) -> [(&'static str, &'a str); 3] {
    [("table", table), ("row_key", row_key), ("qualifier", qualifier)]
}

/// The qualifier of the damaged cell, in hex.
pub(super) fn qualifier_of(error: &RowError) -> &str {
    match error {
        RowError::Qualifier(error) => &error.qualifier,
        RowError::Value { qualifier, .. }
        | RowError::CompactedLength { qualifier, .. }
        | RowError::ValueLength { qualifier, .. }
        | RowError::CorruptFloat { qualifier, .. } => qualifier,
        RowError::AppendedCutOff { .. } => "050000",
        RowError::Duplicate { kept, .. } => kept,
    }
}

#[cfg(test)]
mod tests;
