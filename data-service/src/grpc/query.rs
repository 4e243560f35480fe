//! `DataService.Query`: runs a query and streams its groups as the engine emits them.

pub(super) mod aggregator;
pub(super) mod convert;
pub(super) mod field_error;
pub(super) mod frames;

use futures::stream::{self, StreamExt as _};
use oxtsdb_proto::common::v1::{ErrorReason, ItemError};
use oxtsdb_proto::data::v1::{QueryRequest, QueryResponse};
use oxtsdb_proto::error::{invalid_field, invalid_field_because, item_error, status};
use oxtsdb_proto::serve::MessageStream;
use oxtsdb_query::Delivery;
use oxtsdb_query::RollupChoiceError;
use oxtsdb_query::language::time::now_ms;
use oxtsdb_query::{Engine, NameError, QueryError, Resource};
use oxtsdb_schema::row::RowError;
use tonic::{Code, Request, Response, Status};

use super::handler::scope_of;
use super::results::{context_of, response, result_stream};
use super::status::{kind_name, overloaded, store_status};

/// Runs a query. The call's deadline and a disconnecting client cancel it.
pub(super) async fn query(
    engine: &Engine,
    request: Request<QueryRequest>,
) -> Result<Response<MessageStream<QueryResponse>>, Status> {
    if request.get_ref().include_global_annotations
        && let Some(scope) = scope_of(request.extensions())
    {
        return Err(scope.refuse_global_annotations().to_status());
    }
    let context = context_of(&request);
    let request = request.into_inner();
    let query = convert::query(&request, now_ms())?;
    let encoder = frames::Encoder::new(&request);
    let table = engine.storage().table.to_string();
    let messages = engine
        .run(query, context)
        .await
        .flat_map(move |delivery| match delivery {
            Ok(Delivery { frame, held }) => stream::iter(encoder.frames(frame))
                .map(move |message| {
                    // The frame's memory is held until its last message is encoded.
                    let _ = &held;
                    Ok(message)
                })
                .boxed(),
            Err(error) => stream::iter([Err(query_status(&error, "queries.", &table))]).boxed(),
        });
    response(result_stream(messages, engine, None)).await
}

/// A query error in gRPC's terms.
pub(super) enum Failure {
    /// An error of the selected series: the status of `Query`, the error of one target in `QueryLast`.
    Series {
        /// The field of the source, if the request is wrong.
        field: Option<&'static str>,
        code: Code,
        reason: ErrorReason,
        message: String,
        metadata: Vec<(&'static str, String)>,
    },
    /// An error of the whole call.
    Call(Status),
}

impl Failure {
    /// The status of the call; `source` is the path of the field that selects the series.
    pub(super) fn into_status(self, source: &str) -> Status {
        match self {
            Self::Series {
                field: Some(field),
                reason,
                message,
                ..
            } => invalid_field_because(&format!("{source}{field}"), reason, message),
            Self::Series {
                code,
                reason,
                message,
                metadata,
                ..
            } => status(code, reason, message, &borrowed(&metadata)),
            Self::Call(status) => status,
        }
    }

    /// The error of one target.
    ///
    /// # Errors
    ///
    /// The status, if the whole call fails.
    pub(super) fn into_item(self) -> Result<ItemError, Status> {
        match self {
            Self::Series {
                code,
                reason,
                message,
                metadata,
                ..
            } => Ok(item_error(code, reason, message, &borrowed(&metadata))),
            Self::Call(status) => Err(status),
        }
    }
}

fn borrowed<'a>(metadata: &'a [(&'static str, String)]) -> Vec<(&'a str, &'a str)> {
    metadata
        .iter()
        .map(|(key, value)| (*key, value.as_str()))
        .collect()
}

/// The status of a query error; `source` is the path of the field that selects the series, `table` the table of
/// points.
pub(super) fn query_status(error: &QueryError, source: &str, table: &str) -> Status {
    failure(error, table).into_status(source)
}

/// Maps a query error; `table` is the table of points.
pub(super) fn failure(error: &QueryError, table: &str) -> Failure {
    let message = error.to_string();
    let bad_field = |field, reason| Failure::Series {
        field: Some(field),
        code: Code::InvalidArgument,
        reason,
        message: message.clone(),
        metadata: Vec::new(),
    };
    let of_series = |code, reason, metadata: &[(&'static str, &str)]| Failure::Series {
        field: None,
        code,
        reason,
        message: message.clone(),
        metadata: metadata
            .iter()
            .map(|(key, value)| (*key, (*value).to_owned()))
            .collect(),
    };
    let of_call = |code, reason, metadata: &[(&str, &str)]| {
        Failure::Call(status(code, reason, message.clone(), metadata))
    };
    match error {
        QueryError::EndBeforeStart { .. } => Failure::Call(invalid_field("range", message)),
        QueryError::Filter(_) => bad_field("metric.filters", ErrorReason::InvalidField),
        QueryError::Tsuid { .. } => bad_field("tsuids", ErrorReason::InvalidUidWidth),
        QueryError::TsuidMetrics { .. } => bad_field("tsuids", ErrorReason::InvalidField),
        QueryError::UnknownName { kind, name } => of_series(
            Code::NotFound,
            ErrorReason::NameNotFound,
            &[("kind", kind_name(*kind)), ("name", name)],
        ),
        QueryError::Row { row_key, error } => of_series(
            Code::DataLoss,
            ErrorReason::CorruptCell,
            &place(table, row_key, qualifier_of(error)),
        ),
        QueryError::RowKey { row_key, .. } => of_series(
            Code::DataLoss,
            ErrorReason::CorruptCell,
            &place(table, row_key, ""),
        ),
        QueryError::UidWithoutName { kind, uid } => of_call(
            Code::NotFound,
            ErrorReason::UidNotFound,
            &[("kind", kind_name(*kind)), ("uid", &uid.to_string())],
        ),
        QueryError::OverBudget { resource, limit } => of_call(
            Code::ResourceExhausted,
            ErrorReason::QueryTooLarge,
            &[
                ("limit", &limit.most.to_string()),
                ("setting", limit.setting),
                ("resource", &resource.to_string()),
            ],
        ),
        QueryError::NeverFits { limit, .. } => of_call(
            Code::ResourceExhausted,
            ErrorReason::QueryTooLarge,
            &[
                ("limit", &limit.most.to_string()),
                ("setting", limit.setting),
                ("resource", &Resource::Memory.to_string()),
            ],
        ),
        // The sum of finite values can be infinite: the data is valid.
        QueryError::RollupRow { row_key, .. } => {
            of_series(Code::DataLoss, ErrorReason::CorruptCell, &[("row_key", row_key)])
        }
        QueryError::RollupChoice(error) => match error {
            RollupChoiceError::NoId(_) => bad_field("downsample.aggregator", ErrorReason::InvalidField),
            RollupChoiceError::NoPreAggregates => bad_field("pre_aggregate", ErrorReason::InvalidField),
        },
        QueryError::Infinite { .. } => of_call(Code::OutOfRange, ErrorReason::InvalidValue, &[]),
        QueryError::Store(error) => Failure::Call(store_status(error)),
        QueryError::Names(error) => Failure::Call(names_status(error)),
        QueryError::NotAdmitted(_) => Failure::Call(overloaded(message, "--max-concurrent-queries")),
        QueryError::NoMemory(error) if error.is_final() => of_call(
            Code::ResourceExhausted,
            ErrorReason::QueryTooLarge,
            &[
                ("limit", &error.limit.to_string()),
                ("setting", oxtsdb_resources::memory::LIMIT_SETTING),
            ],
        ),
        QueryError::NoMemory(_) => {
            Failure::Call(overloaded(message, oxtsdb_resources::memory::LIMIT_SETTING))
        }
        QueryError::DeadlineExceeded | QueryError::TimedOut { .. } => {
            of_call(Code::DeadlineExceeded, ErrorReason::DeadlineExceeded, &[])
        }
        QueryError::Cancelled => of_call(Code::Aborted, ErrorReason::QueryCancelled, &[]),
        QueryError::Internal { .. } => of_call(Code::Internal, ErrorReason::Internal, &[]),
    }
}

/// The status of a failed name resolution.
fn names_status(error: &NameError) -> Status {
    let (code, reason) = match error {
        NameError::Refused { metric, detail } => {
            let (code, reason) = (Code::PermissionDenied, ErrorReason::AccessDenied);
            let (field, metric) = metric;
            return status(code, reason, detail, &[("right", "read"), (*field, metric)]);
        }
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
