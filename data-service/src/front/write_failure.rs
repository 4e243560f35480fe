//! What it means to a client of HTTP or telnet that store or UID service failed.

use http::StatusCode;
use oxtsdb_row_store::{Retry, StoreError};

use crate::uids::{UidRefusal, UidsError};
use crate::write::{PointErrorReason, WriteError};

/// Whether the same write may succeed a moment later.
pub(crate) fn may_pass(error: &WriteError) -> bool {
    match error {
        // Somebody has to make room first.
        WriteError::Store(StoreError::Full { .. }) => false,
        // Storing a point twice is storing it once.
        WriteError::Store(error) => match error.retry() {
            Retry::Safe | Retry::IfIdempotent => true,
            Retry::Never => false,
        },
        WriteError::Uids(
            UidsError::Unavailable { .. } | UidsError::Busy { .. } | UidsError::DeadlineExceeded,
        )
        | WriteError::Overloaded { .. }
        | WriteError::DeadlineExceeded => true,
        WriteError::Uids(
            UidsError::Refused { .. } | UidsError::Layout { .. } | UidsError::BadAnswer { .. },
        ) => false,
    }
}

/// The status that tells an HTTP client whether to send again.
pub(crate) fn status(error: &WriteError) -> StatusCode {
    match error {
        WriteError::Store(StoreError::Full { .. }) => StatusCode::INSUFFICIENT_STORAGE,
        error if may_pass(error) => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

/// As [`status`], for a point that has no fault of its own, but whose names could not be assigned;
/// `None` for points that are at fault themselves, or wait for an operator.
pub(crate) fn status_of_point(reason: &PointErrorReason) -> Option<StatusCode> {
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
