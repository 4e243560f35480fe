//! Maps query errors to HTTP responses, with OpenTSDB's status and message where OpenTSDB has the same error.

use http::StatusCode;
use oxtsdb_query::expression::ExpressionError;
use oxtsdb_query::language::LanguageError;
use oxtsdb_query::{NameError, QueryError, Resource};
use oxtsdb_row_store::StoreError;
use oxtsdb_schema::RowError;

use crate::http::error::HttpError;

/// A request to delete where that is not allowed.
pub(super) fn delete_not_allowed() -> HttpError {
    let details = "Deleting data is not enabled (tsd.http.query.allow_delete=false)";
    HttpError::bad_request("Bad request").with_details(details)
}

/// The response to a failed query.
pub(crate) fn query_error(error: &QueryError) -> HttpError {
    use QueryError as E;
    match error {
        E::EndBeforeStart { start_ms, end_ms } => end_not_after_start(*start_ms, *end_ms),
        E::UnknownName { kind, name } => {
            let message = format!("No such name for '{kind}': '{name}'");
            HttpError::bad_request(message.clone()).with_details(message)
        }
        E::Filter(_) | E::Tsuid { .. } | E::TsuidMetrics { .. } => HttpError::bad_request(error.to_string()),
        E::OverBudget { resource, limit } => too_large(error, *resource, limit.most),
        E::NeverFits { limit, .. } => too_large(error, Resource::Memory, limit.most),
        E::RollupChoice(error) => HttpError::bad_request(error.to_string()),
        E::Infinite { value, .. } => {
            let value = oxtsdb_schema::java::double_to_string(*value);
            HttpError::bad_request(format!("Got Infinity: {value} in this query: {error}"))
        }
        E::Row {
            row_key,
            error:
                RowError::Duplicate {
                    offset_ms,
                    kept_value,
                    other_value,
                    ..
                },
        } => HttpError::bad_request(format!(
            "Duplicate timestamp for key={}, ms_offset={offset_ms}, older={}, newer={}; \
                 set tsd.storage.fix_duplicates=true to fix automatically or run Fsck",
            java_bytes(row_key),
            java_bytes(&other_value.to_string()),
            java_bytes(&kept_value.to_string()),
        ))
        .with_details("here the setting is --fix-duplicates"),
        E::Store(StoreError::TimedOut { .. }) => failed(StatusCode::REQUEST_TIMEOUT, error),
        E::Store(_) => failed(StatusCode::FAILED_DEPENDENCY, error),
        E::Names(NameError::Unavailable { .. }) => failed(StatusCode::SERVICE_UNAVAILABLE, error),
        E::Names(NameError::DeadlineExceeded { .. }) => failed(StatusCode::GATEWAY_TIMEOUT, error),
        E::Names(NameError::Refused { detail, .. }) => HttpError::new(StatusCode::FORBIDDEN, detail.clone()),
        E::Names(NameError::Mismatch { .. } | NameError::Internal { .. }) => {
            failed(StatusCode::INTERNAL_SERVER_ERROR, error)
        }
        E::NoMemory(memory) if memory.is_final() => {
            HttpError::new(StatusCode::PAYLOAD_TOO_LARGE, error.to_string())
        }
        E::NotAdmitted(_) | E::NoMemory(_) => HttpError::overloaded(error.to_string()),
        E::DeadlineExceeded | E::TimedOut { .. } => failed(StatusCode::GATEWAY_TIMEOUT, error),
        // Not 503, which invites clients to send it again.
        E::Cancelled => failed(StatusCode::CONFLICT, error),
        E::Row { .. }
        | E::RollupRow { .. }
        | E::RowKey { .. }
        | E::UidWithoutName { .. }
        | E::Internal { .. } => failed(StatusCode::INTERNAL_SERVER_ERROR, error),
    }
}

/// A query over a limit, with OpenTSDB's message.
fn too_large(error: &QueryError, resource: Resource, most: u64) -> HttpError {
    let message = format!(
        "Sorry, you have attempted to fetch more than our {}. \
         Please try filtering using more tags or decrease your time range.",
        budget(resource, most),
    );
    HttpError::new(StatusCode::PAYLOAD_TOO_LARGE, message).with_details(error.to_string())
}

impl From<QueryError> for HttpError {
    fn from(error: QueryError) -> Self {
        query_error(&error)
    }
}

impl From<ExpressionError> for HttpError {
    fn from(error: ExpressionError) -> Self {
        expression_error(&error)
    }
}

/// The response to a parameter that does not parse: 400, where OpenTSDB reports some of these as internal errors.
pub(super) fn language_error(error: &LanguageError) -> HttpError {
    HttpError::bad_request(error.to_string())
}

/// The response to a timestamp that no point can have.
pub(super) fn not_a_time(time_ms: i64) -> HttpError {
    HttpError::bad_request(format!("Invalid timestamp: {time_ms}"))
}

/// A limit, in OpenTSDB's wording.
fn budget(resource: Resource, most: u64) -> String {
    match resource {
        Resource::Points => format!("limit of {most} data points"),
        Resource::Bytes => format!("maximum amount of {}MB from storage", most / 1024 / 1024),
        Resource::Series | Resource::Rows | Resource::Memory => format!("limit of {most} {resource}"),
    }
}

/// The response to a failed expression; as in OpenTSDB the details repeat the message.
pub(super) fn expression_error(error: &ExpressionError) -> HttpError {
    use ExpressionError as E;
    let repeated = |message: &str| HttpError::bad_request(message).with_details(message);
    match error {
        E::Query(error) => query_error(error),
        E::Arithmetic(_) => HttpError::bad_request(error.to_string()),
        E::Operands(error) => repeated(&error.to_string()),
        E::Lengths { .. } => repeated("No more elements"),
        E::NoMoreValues { .. } => repeated("No more data"),
        // The message is the index that OpenTSDB computes for such a series.
        E::AliasOfCombined => repeated("-1"),
        E::NoIntersection { expression } => repeated(&format!(
            "No intersections found: IntersectionIterator(id={expression})"
        )),
        E::ResultType { kind } => repeated(&format!("Expression returned a result of type: {kind}")),
        E::TooManyValues { .. } | E::TooManySteps => {
            HttpError::new(StatusCode::PAYLOAD_TOO_LARGE, error.to_string())
        }
        E::Cancelled => HttpError::new(StatusCode::GATEWAY_TIMEOUT, error.to_string()),
    }
}

/// The response to a range that does not end after its start; the times are as parsed.
pub(super) fn end_not_after_start(start_ms: i64, end_ms: i64) -> HttpError {
    HttpError::bad_request(format!(
        "End time [{end_ms}] must be greater than the start time [{start_ms}]"
    ))
}

fn failed(status: StatusCode, error: &QueryError) -> HttpError {
    HttpError::new(status, error.to_string()).with_causes(error)
}

/// Bytes as Java prints them: `[0, 0, -128]`. `hex` comes from the domain's errors.
fn java_bytes(hex: &str) -> String {
    let bytes: Vec<String> = hex::decode(hex)
        .unwrap_or_default()
        .into_iter()
        .map(|byte| byte.cast_signed().to_string())
        .collect();
    format!("[{}]", bytes.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_overload_is_retryable() {
        let cancelled = query_error(&QueryError::Cancelled);
        assert_eq!((cancelled.status.as_u16(), cancelled.retry_after), (409, None));
        let pool = oxtsdb_resources::MemoryPool::new("query", 2);
        let never = query_error(&QueryError::NoMemory(pool.try_reserve(3).unwrap_err()));
        assert_eq!((never.status.as_u16(), never.retry_after), (413, None));
        let _held = pool.try_reserve(2).unwrap();
        let busy = query_error(&QueryError::NoMemory(pool.try_reserve(1).unwrap_err()));
        assert_eq!((busy.status.as_u16(), busy.retry_after), (503, Some(1)));
    }

    #[test]
    fn prints_bytes_like_java() {
        assert_eq!(java_bytes("00ff80"), "[0, -1, -128]");
        assert_eq!(java_bytes(""), "[]");
    }
}
