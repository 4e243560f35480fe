//! Rows and ranges that a build leaves out, because they cannot be read.
//!
//! A rollup of some points of an interval would replace a better one, so intervals that touch what is unreadable get no
//! rollups, and keep those that they have.

use std::sync::Arc;

use oxtsdb_query::QueryError;
use oxtsdb_row_store::StoreError;
use parking_lot::Mutex;

use super::BuildError;

/// Rows and ranges that a build has left out. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct SkipLog(Arc<Mutex<Skipped>>);

/// Rows, and ranges of damage, that a build has left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Skipped {
    /// How many; damage counts once for each batch of series and chunk that it touches.
    pub(crate) count: u64,
    /// The first of them.
    pub(crate) first: Option<String>,
}

impl SkipLog {
    pub(super) fn add(&self, what: &impl ToString) {
        let mut skipped = self.0.lock();
        skipped.count += 1;
        skipped.first.get_or_insert_with(|| what.to_string());
    }

    pub(crate) fn skipped(&self) -> Skipped {
        self.0.lock().clone()
    }
}

/// Whether an error is one of stored data, which the next attempt meets again.
pub(super) fn is_of_data(error: &BuildError) -> bool {
    matches!(
        error,
        BuildError::Query(
            QueryError::Row { .. }
                | QueryError::RowKey { .. }
                | QueryError::OverBudget { .. }
                | QueryError::NeverFits { .. }
                | QueryError::Store(StoreError::Corrupt { .. })
        )
    )
}
