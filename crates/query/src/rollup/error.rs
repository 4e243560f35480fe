//! Errors of rollups: of the choice of a table, and of the rows of one.

use oxtsdb_schema::rollup::{NoIdError, RollupError};

/// Rejection of a sub-query that rollups or pre-aggregates cannot serve.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RollupChoiceError {
    /// The function of the downsampling has no id.
    #[error(transparent)]
    NoId(#[from] NoIdError),
    /// Pre-aggregates without rollups, and no default interval.
    #[error("pre-aggregates need rollups with a default interval (--rollups-config)")]
    NoPreAggregates,
}

/// Error of a row of rollups that cannot be decoded.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum RollupRowError {
    /// A cell.
    #[error("cell `{qualifier}`: {error}")]
    Cell {
        /// Its qualifier, as hex.
        qualifier: String,
        /// The error of the cell.
        error: RollupError,
    },
    /// Two values for one interval.
    #[error("two values of `{aggregate}` at offset {offset}")]
    Duplicate {
        /// The aggregate.
        aggregate: String,
        /// The offset in the row.
        offset: u16,
    },
    /// A value beyond the end of the row.
    #[error("offset {offset} is beyond the row span of interval `{interval}`")]
    BeyondSpan {
        /// The offset in the row.
        offset: u16,
        /// The interval.
        interval: String,
    },
    /// A base time at which no row begins.
    #[error("base time {base_time} is not the start of a row span of interval `{interval}`")]
    BaseTime {
        /// The base time, in seconds.
        base_time: u32,
        /// The interval.
        interval: String,
    },
}
