//! What can go wrong in a store, and whether a retry helps.

use crate::{TableName, TableNameError};

/// Why an operation of a [`RowStore`](crate::RowStore) failed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    /// The text is not a table name.
    #[error(transparent)]
    InvalidTableName(#[from] TableNameError),
    /// There is no such table.
    #[error("table `{table}` does not exist")]
    NoSuchTable {
        /// The table asked for.
        table: TableName,
    },
    /// The table has no such column family.
    #[error("table `{table}` has no column family `{family}`")]
    NoSuchFamily {
        /// The table.
        table: TableName,
        /// The family asked for.
        family: String,
    },
    /// A table of this name exists and has other families.
    #[error("table `{table}` exists with other column families: {detail}")]
    TableDiffers {
        /// The table.
        table: TableName,
        /// What is different.
        detail: String,
    },
    /// The request breaks a rule of the data model (empty row key, key over 32767 bytes, ...).
    #[error("{detail}")]
    Invalid {
        /// Field, value and rule.
        detail: String,
    },
    /// An increment met a cell that does not hold 8 bytes.
    #[error("cannot increment: the cell holds {length} bytes, a counter has 8")]
    NotACounter {
        /// Length of the value found.
        length: usize,
    },
    /// The disk is full. Nothing of the request was stored; reads go on.
    #[error("no space left to write to {place}")]
    Full {
        /// The file or server that refused.
        place: String,
    },
    /// The store cannot be reached, is starting or closing, or its queue is full.
    #[error("store is unavailable: {detail}")]
    Unavailable {
        /// What was tried.
        detail: String,
    },
    /// The answer did not come in time. Whether the operation took place is unknown.
    #[error("store did not answer in time: {detail}")]
    TimedOut {
        /// What was tried.
        detail: String,
    },
    /// Stored bytes are damaged.
    #[error("stored data is damaged at {place}: {detail}")]
    Corrupt {
        /// File and offset, or table, row key and column.
        place: String,
        /// What was found.
        detail: String,
    },
    /// Another error of the operating system or the server.
    #[error("{place}: {detail}")]
    Io {
        /// The file or server.
        place: String,
        /// Its error.
        detail: String,
    },
}

/// What a caller may do after an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// The same request will fail again.
    Never,
    /// Nothing was done; any request may be sent again.
    Safe,
    /// The request may or may not have been done: repeat only what may happen twice (puts,
    /// deletes, reads), not increments and appends.
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

    /// What a caller may do after this error.
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
