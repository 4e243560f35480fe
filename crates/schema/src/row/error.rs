//! What can be wrong with a row.

use thiserror::Error;

use crate::qualifier::QualifierError;
use crate::value::ValueError;

/// Why a row's cells cannot be read as points. None of these goes away by reading again.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum RowError {
    /// A qualifier that ends within a point.
    #[error("cell is damaged: {0}")]
    Qualifier(#[from] QualifierError),
    /// A value whose length is not the one that its qualifier announces.
    #[error("cell with qualifier `{qualifier}` is damaged: {source}")]
    Value {
        /// The point's qualifier, as hex.
        qualifier: String,
        /// What is wrong with the value.
        source: ValueError,
    },
    /// A value of no length that any point has.
    #[error("cell with qualifier `{qualifier}` has a value of {length} bytes, expected 1 to 8")]
    ValueLength {
        /// The qualifier, as hex.
        qualifier: String,
        /// Bytes of the value.
        length: usize,
    },
    /// A float of 4 bytes that is stored on 8, with something in the 4 that should be zero.
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
    /// A compacted cell whose qualifiers announce more or fewer bytes than its values have, so that
    /// no value in it can be trusted. OpenTSDB answers with the points before the end.
    #[error(
        "compacted cell with qualifier `{qualifier}` is damaged: the values of its {points} points \
         have {expected} bytes, expected so many and at most one more, found {actual}"
    )]
    CompactedLength {
        /// The qualifier, as hex.
        qualifier: String,
        /// Points that the qualifier has.
        points: usize,
        /// Bytes that they announce, without the meta byte.
        expected: usize,
        /// Bytes of the value.
        actual: usize,
    },
    /// A cell of appended points whose bytes end within a point.
    #[error("appended cell `{value}` ends within the point at byte {position}")]
    AppendedCutOff {
        /// The cell's value, as hex.
        value: String,
        /// Where the point starts.
        position: usize,
    },
    /// Two values at one instant, and [`DuplicatePolicy::Error`](super::DuplicatePolicy::Error).
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
