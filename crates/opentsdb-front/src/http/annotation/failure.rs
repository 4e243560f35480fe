//! Maps errors of annotations to HTTP responses.

use http::StatusCode;
use oxtsdb_metadata::annotation::{AnnotationError, KeyError};
use oxtsdb_query::QueryError;

use super::parse::repeated;
use crate::http::error::HttpError;
use crate::http::query::failure::query_error;

/// The response to a series or time that no annotation can have.
pub(super) fn key_error(error: &KeyError) -> HttpError {
    repeated(&error.to_string())
}

/// The response to an annotation that cannot be read or changed.
pub(super) fn annotation_error(error: &AnnotationError) -> HttpError {
    use AnnotationError as E;
    match error {
        E::NotFound => HttpError::new(StatusCode::NOT_FOUND, "Unable to locate annotation in storage"),
        E::EtagMismatch { .. } | E::Contended { .. } => HttpError::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "Failed to save the Annotation to storage",
        )
        .with_details("This may be caused by another process modifying storage data"),
        E::TooLarge { .. } => HttpError::new(StatusCode::PAYLOAD_TOO_LARGE, error.to_string()),
        E::Damaged { .. } => {
            HttpError::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).with_causes(error)
        }
        E::Store(error) => query_error(&QueryError::Store(error.clone())),
        E::Query(error) => query_error(error),
    }
}
