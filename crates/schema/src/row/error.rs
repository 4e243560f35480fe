//! Errors of decoding a row.

use thiserror::Error;

use crate::qualifier::QualifierError;
use crate::value::ValueError;

/// Why a row's cells cannot be decoded. All errors are permanent.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum RowError {
    /// A truncated qualifier.
    #[error("cell is damaged: {0}")]
    Qualifier(#[from] QualifierError),
    /// A value with a length that contradicts its qualifier.
    #[error("cell with qualifier `{qualifier}` is damaged: {source}")]
    Value {
        /// The point's qualifier, as hex.
        qualifier: String,
        /// The error of the value.
        source: ValueError,
    },
    /// A value of a length that no point has.
    #[error("cell with qualifier `{qualifier}` has a value of {length} bytes, expected 1 to 8")]
    ValueLength {
        /// The qualifier, as hex.
        qualifier: String,
        /// Bytes of the value.
        length: usize,
    },
    /// A 4-byte float stored in 8 bytes, with first 4 bytes that are not zero.
    #[error(
        "cell with qualifier `{qualifier}` holds the float `{value}`, expected its first 4 bytes \
         to be zero"
    )]
    CorruptFloat {
        /// The qualifier, as hex.
        qualifier: String,
        /// The value, as hex.
        value: String,
    },
    /// A compacted cell with qualifiers that announce more or fewer bytes than its values have, so that none of its
    /// values can be trusted. OpenTSDB returns the points before the end.
    #[error(
        "compacted cell with qualifier `{qualifier}` is damaged: the values of its {points} points \
         have {expected} bytes, expected these and at most a meta byte, found {actual}"
    )]
    CompactedLength {
        /// The qualifier, as hex.
        qualifier: String,
        /// Number of points in the qualifier.
        points: usize,
        /// Bytes that they announce, without the meta byte.
        expected: usize,
        /// Bytes of the value.
        actual: usize,
    },
    /// A truncated cell of appended points.
    #[error("appended cell `{value}` ends within the point at byte {position}")]
    AppendedCutOff {
        /// The cell's value, as hex.
        value: String,
        /// Where the point starts.
        position: usize,
    },
    /// Two values of one instant under [`DuplicatePolicy::Error`](super::DuplicatePolicy::Error).
    #[error(
        "row has two points {offset_ms} ms after its base time: qualifier `{kept}` with value \
         `{kept_value}`, and qualifier `{other}` with value `{other_value}`"
    )]
    Duplicate {
        /// The instant, in milliseconds since the base time.
        offset_ms: u32,
        /// Qualifier of the point from the newer cell, as hex.
        kept: String,
        /// Its value, as hex.
        kept_value: String,
        /// Qualifier of the other point, as hex.
        other: String,
        /// Its value, as hex.
        other_value: String,
    },
}
