//! Errors of queries.

use oxtsdb_resources::{AdmissionError, MemoryError, Panicked};
use oxtsdb_row_store::StoreError;
use oxtsdb_schema::row::RowError;
use oxtsdb_schema::row_key::RowKeyError;
use oxtsdb_schema::tsuid::TsuidError;
use oxtsdb_schema::{Uid, UidKind};

use crate::context::resource::{Limit, Resource};
use crate::filter::FilterError;
use crate::rollup::{RollupChoiceError, RollupRowError};

/// Error of a query, possibly after a part of its result.
#[derive(Clone, Debug, thiserror::Error)]
pub enum QueryError {
    /// The end is before the start.
    #[error("end {end_ms} ms is before start {start_ms} ms")]
    EndBeforeStart {
        /// The start of the query.
        start_ms: i64,
        /// Its end.
        end_ms: i64,
    },
    /// A metric, tag key or literal tag value without a UID.
    #[error("no such name for '{kind}': '{name}'")]
    UnknownName {
        /// Its kind.
        kind: UidKind,
        /// The name.
        name: String,
    },
    /// An invalid filter.
    #[error(transparent)]
    Filter(#[from] FilterError),
    /// Bytes that are not a TSUID of this deployment.
    #[error("{reason}")]
    Tsuid {
        /// The TSUID and the reason.
        reason: String,
    },
    /// TSUIDs of different metrics in one sub-query.
    #[error("TSUIDs have the metrics {first} and {second}, expected one metric")]
    TsuidMetrics {
        /// A metric.
        first: Uid,
        /// Another.
        second: Uid,
    },
    /// A UID in the table of points that has no name.
    #[error("UID {uid} of kind {kind} has no name")]
    UidWithoutName {
        /// Its kind.
        kind: UidKind,
        /// The UID.
        uid: Uid,
    },
    /// The query needs more of a resource than its limit.
    #[error("query needs more than {} {resource}, the limit of {}", limit.most, limit.setting)]
    OverBudget {
        /// The resource.
        resource: Resource,
        /// The limit, and the setting or field of the request that has it.
        limit: Limit,
    },
    /// The query has not read anything: what it would hold is far more than its limit of memory.
    #[error(
        "query needs about {} MiB of memory for {points} points, limit is {} MiB ({})",
        bytes >> 20, limit.most >> 20, limit.setting
    )]
    NeverFits {
        /// The estimated points.
        points: u64,
        /// Their memory, in bytes.
        bytes: u64,
        /// The limit of memory.
        limit: Limit,
    },
    /// Too many queries run and wait. This one has not started.
    #[error(transparent)]
    NotAdmitted(#[from] AdmissionError),
    /// The memory for queries is in use.
    #[error(transparent)]
    NoMemory(#[from] MemoryError),
    /// A result that is infinite, which no client can read.
    #[error("value at {time_ms} ms is {value}, which is beyond the range of a double")]
    Infinite {
        /// Its instant.
        time_ms: i64,
        /// The infinity.
        value: f64,
    },
    /// A row that cannot be decoded, or that has two values for one instant.
    #[error("row `{row_key}`: {error}")]
    Row {
        /// The row key, as hex.
        row_key: Box<str>,
        /// The reason.
        error: RowError,
    },
    /// A row key that is not one of this deployment, or of an impossible series.
    #[error("{reason}")]
    RowKey {
        /// The row key, as hex.
        row_key: Box<str>,
        /// The key and the reason.
        reason: String,
    },
    /// A row of rollups that cannot be decoded, or that has two values for one interval.
    #[error("table `{table}`, row `{row_key}`: {error}")]
    RollupRow {
        /// The table.
        table: Box<str>,
        /// The row key, as hex.
        row_key: Box<str>,
        /// The reason.
        error: RollupRowError,
    },
    /// Rollups or pre-aggregates that do not exist.
    #[error(transparent)]
    RollupChoice(#[from] RollupChoiceError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Names could not be resolved.
    #[error(transparent)]
    Names(#[from] NameError),
    /// The query ran longer than the limit.
    #[error("query was not answered within {seconds} s, the limit of --query-timeout-seconds")]
    TimedOut {
        /// The limit.
        seconds: u64,
    },
    /// The deadline passed.
    #[error("deadline passed before the query was answered")]
    DeadlineExceeded,
    /// An operator cancelled the query.
    #[error("query was cancelled by an operator")]
    Cancelled,
    /// A fault of the server: a stage of the query panicked or stopped.
    #[error("a stage of the query failed: {detail}")]
    Internal {
        /// The panic message, or the stage.
        detail: String,
    },
}

/// Error of resolving names or UIDs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// The directory is unavailable or overloaded. The same query may succeed later.
    #[error("{detail}")]
    Unavailable {
        /// The error that it reported.
        detail: String,
    },
    /// The deadline passed.
    #[error("{detail}")]
    DeadlineExceeded {
        /// The error that it reported.
        detail: String,
    },
    /// The directory does not fit the deployment's settings.
    #[error("{detail}")]
    Mismatch {
        /// The difference.
        detail: String,
    },
    /// The caller of the query has no right to read a metric.
    #[error("{detail}")]
    Refused {
        /// The metric: `metric` and its name, or `uid` and its UID.
        metric: (&'static str, String),
        /// The caller that may not read it.
        detail: String,
    },
    /// The directory rejected the call, or its response cannot be used.
    #[error("{detail}")]
    Internal {
        /// The error that it reported.
        detail: String,
    },
}

impl From<Panicked> for QueryError {
    fn from(panicked: Panicked) -> Self {
        Self::Internal {
            detail: panicked.to_string(),
        }
    }
}

impl QueryError {
    /// A row that cannot be decoded.
    pub(crate) fn row(row_key: &[u8], error: RowError) -> Self {
        let row_key = hex(row_key);
        Self::Row { row_key, error }
    }

    /// A row of rollups that cannot be decoded.
    pub(crate) fn rollup_row(table: &str, row_key: &[u8], error: RollupRowError) -> Self {
        Self::RollupRow {
            table: table.into(),
            row_key: hex(row_key),
            error,
        }
    }

    /// Error of a row key that cannot be decoded.
    pub(crate) fn row_key(row_key: &[u8], error: &RowKeyError) -> Self {
        let (row_key, reason) = (hex(row_key), error.to_string());
        Self::RowKey { row_key, reason }
    }

    /// Error of a row key with tags that no series can have.
    pub(crate) fn row_series(row_key: &[u8], error: &TsuidError) -> Self {
        let row_key = hex(row_key);
        let reason = format!("row key `{row_key}`: {error}");
        Self::RowKey { row_key, reason }
    }
}

/// Upper-case hex.
fn hex(bytes: &[u8]) -> Box<str> {
    hex::encode_upper(bytes).into()
}
