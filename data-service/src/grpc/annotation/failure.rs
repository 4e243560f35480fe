//! Maps errors of annotations to statuses.

use oxtsdb_metadata::annotation::{AnnotationError, AnnotationKey};
use oxtsdb_proto::common::v1::{ErrorReason, ItemError};
use oxtsdb_proto::error::{invalid_field, invalid_field_because, item_error, reason_of, status};
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

use crate::grpc::query::query_status;
use crate::grpc::status::store_status;

/// The status of a call about one annotation.
pub(super) fn key_status(error: &AnnotationError, key: &AnnotationKey) -> Status {
    match error {
        AnnotationError::NotFound => {
            let start_ms = oxtsdb_schema::annotation::millis(key.start_time()).to_string();
            let metadata = [("tsuid", key.tsuid()), ("start_ms", start_ms.as_str())];
            let reason = ErrorReason::AnnotationNotFound;
            status(Code::NotFound, reason, error.to_string(), &metadata)
        }
        other => range_status(other, ""),
    }
}

/// The status of a call about a range; `table` is the table of points.
pub(super) fn range_status(error: &AnnotationError, table: &str) -> Status {
    use AnnotationError as E;
    let with = |code, reason, metadata: &[(&str, &str)]| status(code, reason, error.to_string(), metadata);
    match error {
        E::NotFound => with(Code::NotFound, ErrorReason::AnnotationNotFound, &[]),
        E::EtagMismatch { stored, .. } => with(Code::Aborted, ErrorReason::EtagMismatch, &[("etag", stored)]),
        E::Contended { .. } => with(Code::Aborted, ErrorReason::EtagMismatch, &[]),
        E::TooLarge { .. } => invalid_field("annotation", error.to_string()),
        E::Damaged {
            table,
            row_key,
            qualifier,
            ..
        } => with(
            Code::DataLoss,
            ErrorReason::CorruptCell,
            &[("table", table), ("row_key", row_key), ("qualifier", qualifier)],
        ),
        E::Store(error) => store_status(error),
        E::Query(error) => query_status(error, "", table),
    }
}

/// The error of one item of a batch.
pub(super) fn item(status: &Status) -> ItemError {
    let reason = reason_of(status).unwrap_or(ErrorReason::Internal);
    let metadata = status
        .get_details_error_info()
        .map(|info| info.metadata)
        .unwrap_or_default();
    let metadata: Vec<(&str, &str)> = metadata
        .iter()
        .map(|(key, value)| (key.as_str(), value.as_str()))
        .collect();
    item_error(status.code(), reason, status.message(), &metadata)
}

/// A batch without items, or with too many.
pub(super) fn batch_size(count: usize, most: usize) -> Status {
    let rule = format!("has {count} items, expected 1 to {most}");
    invalid_field_because("requests", ErrorReason::BatchTooLarge, rule)
}
