//! The status of puts that fail without a fault of the client.

use http::StatusCode;
use oxtsdb_row_store::StoreError;

use crate::uids::UidRefusal;
use crate::write::{PointErrorReason, WriteError};

/// The status of a write that failed as a whole: 507 for a full disk, 503 if a retry may succeed, else 500.
pub(super) fn status_of_write(error: &WriteError) -> StatusCode {
    match error {
        WriteError::Store(StoreError::Full { .. }) => StatusCode::INSUFFICIENT_STORAGE,
        error if error.is_transient() => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

/// As [`status_of_write`], for a valid point whose names could not be assigned; `None` for points that are invalid
/// or need an operator.
pub(super) fn status_of_point(reason: &PointErrorReason) -> Option<StatusCode> {
    let refusal = match reason {
        PointErrorReason::Unresolved(_) => return Some(StatusCode::SERVICE_UNAVAILABLE),
        PointErrorReason::NoUid { refusal, .. } => refusal,
        _ => return None,
    };
    match refusal {
        UidRefusal::StoreFull { .. } => Some(StatusCode::INSUFFICIENT_STORAGE),
        UidRefusal::Unavailable { .. } => Some(StatusCode::SERVICE_UNAVAILABLE),
        UidRefusal::Other { .. } => Some(StatusCode::INTERNAL_SERVER_ERROR),
        UidRefusal::AutoCreateDisabled | UidRefusal::SpaceExhausted | UidRefusal::InvalidName { .. } => None,
    }
}
