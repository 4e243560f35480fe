//! The status of puts that fail without a fault of the client.

use http::StatusCode;
use oxtsdb_ingest::{PointErrorReason, WriteError};
use oxtsdb_metadata::uids::UidRejection;
use oxtsdb_row_store::StoreError;

/// The status of a write that failed as a whole: 507 for a full disk, 503 if a retry may succeed, else 500.
pub(super) fn status_of_write(error: &WriteError) -> StatusCode {
    match error {
        WriteError::Store(StoreError::Full { .. }) => StatusCode::INSUFFICIENT_STORAGE,
        error if error.is_transient() => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

/// As [`status_of_write`], for a valid point with names that could not be assigned; `None` for points that are
/// invalid or need an operator.
pub(super) fn status_of_point(reason: &PointErrorReason) -> Option<StatusCode> {
    let rejection = match reason {
        PointErrorReason::Unresolved(_) => return Some(StatusCode::SERVICE_UNAVAILABLE),
        PointErrorReason::Refused(_) => return Some(StatusCode::FORBIDDEN),
        PointErrorReason::NoUid { rejection, .. } => rejection,
        _ => return None,
    };
    match rejection {
        UidRejection::StoreFull { .. } => Some(StatusCode::INSUFFICIENT_STORAGE),
        UidRejection::Unavailable { .. } => Some(StatusCode::SERVICE_UNAVAILABLE),
        UidRejection::Other { .. } => Some(StatusCode::INTERNAL_SERVER_ERROR),
        UidRejection::AutoCreateDisabled
        | UidRejection::Denied { .. }
        | UidRejection::QuotaExceeded(_)
        | UidRejection::SpaceExhausted
        | UidRejection::CounterBehind { .. }
        | UidRejection::InvalidName { .. } => None,
    }
}
