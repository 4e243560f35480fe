//! The gRPC error of a store that failed, the same from both services.

use oxtsdb_proto::common::v1::ErrorReason;
use oxtsdb_proto::error::status;
use oxtsdb_row_store::StoreError;
use tonic::{Code, Status};

/// The status of a store error.
pub fn status_of_store_error(error: &StoreError) -> Status {
    let (code, reason) = code_of_store_error(error);
    status(code, reason, error.to_string(), &[])
}

/// The code and the reason of a store error.
pub fn code_of_store_error(error: &StoreError) -> (Code, ErrorReason) {
    match error {
        StoreError::InvalidTableName { .. }
        | StoreError::NoSuchTable { .. }
        | StoreError::NoSuchFamily { .. }
        | StoreError::TableDiffers { .. } => (Code::FailedPrecondition, ErrorReason::TableMismatch),
        // A bug: the services check their requests to the store.
        StoreError::Invalid { .. } => (Code::Internal, ErrorReason::Internal),
        StoreError::Full { .. } => (Code::ResourceExhausted, ErrorReason::StoreFull),
        StoreError::Unavailable { .. } | StoreError::TimedOut { .. } | StoreError::Io { .. } => {
            (Code::Unavailable, ErrorReason::StoreUnavailable)
        }
        StoreError::NotACounter { .. } | StoreError::Corrupt { .. } => {
            (Code::DataLoss, ErrorReason::CorruptCell)
        }
    }
}

#[cfg(test)]
mod tests {
    use oxtsdb_row_store::TableName;

    use super::*;

    /// Clients retry UNAVAILABLE, and no other code of these.
    #[test]
    fn exactly_the_transient_errors_are_unavailable() {
        let text = || "x".to_owned();
        for error in [
            StoreError::from("".parse::<TableName>().unwrap_err()),
            StoreError::Invalid { detail: text() },
            StoreError::NotACounter { length: 1 },
            StoreError::Full { detail: text() },
            StoreError::Unavailable { detail: text() },
            StoreError::TimedOut { detail: text() },
            StoreError::Corrupt {
                place: text(),
                detail: text(),
            },
            StoreError::Io {
                place: text(),
                detail: text(),
            },
        ] {
            let (code, _) = code_of_store_error(&error);
            assert_eq!(code == Code::Unavailable, error.is_transient(), "{error:?}");
        }
    }
}
