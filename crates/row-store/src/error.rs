//! Errors of a store, and the effect of a retry after each.

use crate::{TableName, TableNameError};

/// Error of an operation of a [`RowStore`](crate::RowStore).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// The text is not a table name.
    #[error(transparent)]
    InvalidTableName(#[from] TableNameError),
    /// The table does not exist.
    #[error("table `{table}` does not exist")]
    NoSuchTable {
        /// The requested table.
        table: TableName,
    },
    /// The table does not have the column family.
    #[error("table `{table}` has no column family `{family}`")]
    NoSuchFamily {
        /// The table.
        table: TableName,
        /// The requested family.
        family: String,
    },
    /// The table exists with different families.
    #[error("table `{table}` exists with other column families: {detail}")]
    TableDiffers {
        /// The table.
        table: TableName,
        /// The differences.
        detail: String,
    },
    /// The request breaks a rule of the data model (empty row key, key over 32767 bytes, ...).
    #[error("{detail}")]
    Invalid {
        /// Field, value and rule.
        detail: String,
    },
    /// An increment of a cell with a value that does not have 8 bytes.
    #[error("cannot increment: the cell holds {length} bytes, a counter has 8")]
    NotACounter {
        /// Length of the value.
        length: usize,
    },
    /// The disk is full. Nothing of the request was stored; reads continue to work.
    #[error("no space left: {detail}")]
    Full {
        /// The system's error, or the free and the needed space; callers see it, so that it names no file.
        detail: String,
    },
    /// The store is unreachable, starting or closing, or its queue is full.
    #[error("store is unavailable: {detail}")]
    Unavailable {
        /// The failure, in words.
        detail: String,
    },
    /// No response arrived in time. Whether the operation took effect is unknown.
    #[error("store did not respond in time: {detail}")]
    TimedOut {
        /// The failure, in words.
        detail: String,
    },
    /// Stored bytes are damaged.
    #[error("stored data is damaged at {place}: {detail}")]
    Corrupt {
        /// File and offset, or table, row key and column.
        place: String,
        /// The damage, in words.
        detail: String,
    },
    /// Any other error of the operating system or the server.
    #[error("{place}: {detail}")]
    Io {
        /// The file or server.
        place: String,
        /// The error.
        detail: String,
    },
}

/// The retry that a caller may attempt after an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// The same request will fail again.
    Never,
    /// The request had no effect; any request may be retried.
    Safe,
    /// The request may have taken effect: retry only idempotent requests (puts, deletes, reads), not increments
    /// and appends.
    IfIdempotent,
}

impl StoreError {
    /// Whether the same request may succeed later, if it may be repeated at all; see [`StoreError::retry`].
    ///
    /// A full disk is not transient: an operator has to free space first.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Unavailable { .. } | Self::TimedOut { .. } | Self::Io { .. } => true,
            Self::InvalidTableName { .. }
            | Self::NoSuchTable { .. }
            | Self::NoSuchFamily { .. }
            | Self::TableDiffers { .. }
            | Self::Invalid { .. }
            | Self::NotACounter { .. }
            | Self::Full { .. }
            | Self::Corrupt { .. } => false,
        }
    }

    /// The retry that a caller may attempt after this error.
    pub fn retry(&self) -> Retry {
        match self {
            Self::InvalidTableName { .. }
            | Self::NoSuchTable { .. }
            | Self::NoSuchFamily { .. }
            | Self::TableDiffers { .. }
            | Self::Invalid { .. }
            | Self::NotACounter { .. }
            | Self::Corrupt { .. } => Retry::Never,
            Self::Full { .. } | Self::Unavailable { .. } => Retry::Safe,
            Self::TimedOut { .. } | Self::Io { .. } => Retry::IfIdempotent,
        }
    }
}
