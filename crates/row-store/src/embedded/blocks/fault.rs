//! Errors of row blocks, and where to look for the damage behind them.

use crate::StoreError;

/// Why row blocks cannot be read or written.
#[derive(Debug)]
pub(in super::super) enum BlockError {
    /// A table file may be damaged: the operation can be retried after a successful [`Blocks::repair`].
    Damaged(Fault),
    /// Any other error.
    Store(StoreError),
}

impl From<StoreError> for BlockError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl BlockError {
    /// The error for a caller that does not repair.
    pub(in super::super) fn into_error(self) -> StoreError {
        match self {
            Self::Damaged(fault) => fault.error,
            Self::Store(error) => error,
        }
    }
}

/// An error of the engine that may be caused by a damaged file.
#[derive(Debug)]
pub(in super::super) struct Fault {
    pub(super) error: StoreError,
    pub(super) at: FaultAt,
    /// Number of repairs before the fault.
    pub(super) repairs: u64,
}

/// Where to look for the damaged file.
#[derive(Debug)]
pub(super) enum FaultAt {
    Key(Vec<u8>),
    After(Vec<u8>),
    Before(Vec<u8>),
    /// Anywhere. After a panic, locks of the tree may be unusable.
    Anywhere {
        panicked: bool,
    },
}
