//! Errors of metadata of series.

use http::StatusCode;
use oxtsdb_metadata::meta::{MetaError, SeriesError};

use super::{illegal_argument, internal, not_saved};
use crate::http::error::HttpError;
use crate::http::query::failure::query_error;
use crate::http::suggest::uids_error;

/// OpenTSDB's error if one of several look-ups fails.
pub(super) const GROUP_FAILED: &str = "At least one of the Deferreds failed, first exception:";

fn no_such_name(error: &SeriesError) -> String {
    match error {
        SeriesError::UnknownName { kind, name } => format!("No such name for '{kind}': '{name}'"),
        other => other.to_string(),
    }
}

/// A series that cannot be resolved.
pub(super) fn series_error(error: &SeriesError) -> HttpError {
    match error {
        SeriesError::UnknownName { .. } | SeriesError::UidWithoutName { .. } => {
            HttpError::new(StatusCode::NOT_FOUND, "Unable to find one of the UIDs")
                .with_details(no_such_name(error))
        }
        SeriesError::Tsuid(error) => illegal_argument(error.to_string()),
        SeriesError::Uids(error) => uids_error(error),
    }
}

/// Metadata that cannot be read or changed.
pub(super) fn failed(error: &MetaError) -> HttpError {
    match error {
        MetaError::Store(error) => query_error(&error.clone().into()),
        MetaError::EtagMismatch { .. } | MetaError::Contended { .. } => not_saved("TSMeta"),
        MetaError::TooLarge { .. } => HttpError::bad_request(error.to_string()),
        MetaError::NotFound { .. } => illegal_argument("Requested TSMeta did not exist"),
        MetaError::Corrupt { .. } => internal(error.to_string()),
    }
}
