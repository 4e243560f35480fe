//! Errors of annotations.

use oxtsdb_query::QueryError;
use oxtsdb_row_store::StoreError;
use oxtsdb_schema::annotation;
use oxtsdb_schema::timestamp::TimestampError;
use oxtsdb_schema::tsuid::TsuidError;

/// Why an annotation cannot be read or changed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum AnnotationError {
    /// There is no annotation to delete.
    #[error("there is no annotation at this time")]
    NotFound,
    /// The stored annotation is not the one that the caller has read.
    #[error("the annotation has the etag `{stored}`, expected `{expected}`")]
    EtagMismatch {
        /// The etag that the caller expected; empty: none.
        expected: String,
        /// The stored etag; empty: none.
        stored: String,
    },
    /// Other writers changed the annotation between each read and the write.
    #[error("other writers changed the annotation during each of {attempts} attempts")]
    Contended {
        /// How often this change was attempted.
        attempts: usize,
    },
    /// The stored form is too long.
    #[error("annotation has at least {bytes} bytes as stored, at most {most} are allowed")]
    TooLarge {
        /// Its length, or the length of its texts if they are too long already.
        bytes: usize,
        /// The limit.
        most: usize,
    },
    /// The cell is no annotation.
    #[error("row `{row_key}`, qualifier `{qualifier}`: {error}")]
    Damaged {
        /// The table.
        table: String,
        /// The row key, as hex.
        row_key: String,
        /// The qualifier, as hex.
        qualifier: String,
        /// The reason.
        error: annotation::AnnotationError,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The scan of a range failed.
    #[error(transparent)]
    Query(#[from] QueryError),
}

/// Why no annotation can have this series and time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// No start time, or a negative one.
    #[error("The start timestamp has not been set")]
    NoStart,
    /// A start time that no row can hold.
    #[error(transparent)]
    Start(TimestampError),
    /// Milliseconds that a number of seconds could be as well.
    #[error("{start_ms} ms is before 4294967296 and not a whole second")]
    AmbiguousMillis {
        /// The start.
        start_ms: i64,
    },
    /// A TSUID that is not hexadecimal.
    #[error("contains illegal character for hexBinary: {text}")]
    NotHex {
        /// The text.
        text: String,
    },
    /// Bytes that are not a TSUID of this deployment.
    #[error(transparent)]
    Tsuid(TsuidError),
}
