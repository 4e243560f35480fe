//! Applies repairs of the table, as [`oxtsdb_row_store::repair`] does.

pub use oxtsdb_row_store::repair::Applied;
use oxtsdb_row_store::repair::{CellChange, CellRepair, RepairFailure};
use oxtsdb_row_store::{CellAddress, StoreError};

use crate::table::UidTable;

/// Why a repair was not applied.
#[derive(Clone, Debug, thiserror::Error)]
pub enum RepairError {
    /// A cell has neither its old nor its new value.
    #[error(
        "cell {}:{} of row {} has another value than the plan saw{}; make another plan",
        .cell.family,
        String::from_utf8_lossy(&.cell.qualifier),
        hex::encode(&.cell.row),
        if *.is_partly_applied { ", others have their new values" } else { "" }
    )]
    StateChanged {
        /// The cell.
        cell: CellAddress,
        /// Whether other cells have their new values, as after an attempt that lost the store before it could make
        /// them back.
        is_partly_applied: bool,
    },
    /// A rename or delete of a UID or a name of the repair is not complete.
    #[error(
        "a rename or delete of one of its names or UIDs is in progress; repeat it later, or make another plan"
    )]
    InProgress,
    /// The store failed. A part may be applied; the repair can be repeated.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<RepairFailure> for RepairError {
    fn from(failure: RepairFailure) -> Self {
        match failure {
            RepairFailure::StateChanged {
                cell,
                is_partly_applied,
            } => Self::StateChanged {
                cell,
                is_partly_applied,
            },
            RepairFailure::Store(error) => Self::Store(error),
        }
    }
}

/// Applies the changes of a repair.
///
/// # Errors
///
/// [`RepairError`].
pub async fn apply(table: &UidTable, changes: &[CellChange]) -> Result<Applied, RepairError> {
    Ok(repair(table, changes).apply().await?)
}

/// Returns the changes that have been made: their cells have the new values.
///
/// # Errors
///
/// The store failed.
pub(super) async fn made(table: &UidTable, changes: &[CellChange]) -> Result<Vec<CellChange>, StoreError> {
    repair(table, changes).made().await
}

fn repair<'a>(table: &'a UidTable, changes: &'a [CellChange]) -> CellRepair<'a> {
    CellRepair {
        store: table.store(),
        table: table.name(),
        changes,
        timestamps_ms: &[],
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use oxtsdb_row_store::memory::MemoryStore;
    use oxtsdb_row_store::{RowStore as _, TableName, WriteBatch};
    use oxtsdb_schema::UidKind;

    use super::*;
    use crate::layout::UidLayout;
    use crate::table::{ID, NAME};

    #[tokio::test]
    async fn a_part_that_was_not_made_back_is_reported() {
        let name: TableName = "tsdb-uid".parse().unwrap();
        let store = MemoryStore::new();
        let definition = UidTable::definition(name.clone());
        store.create_table(&definition).await.unwrap();
        let table = UidTable::new(Arc::new(store.clone()), name.clone(), UidLayout::default());
        let change = |row: &[u8], family: &str, new: &[u8]| CellChange {
            cell: CellAddress::new(row, family, UidKind::Metric.qualifier()),
            old: None,
            new: Some(new.to_vec()),
        };
        let changes = [change(&[0, 0, 1], NAME, b"a"), change(b"a", ID, &[0, 0, 1])];
        let put = async |row: &[u8], family: &str, value: &[u8]| {
            let mut batch = WriteBatch::new(name.clone());
            let family = batch.family(family);
            batch.row(row).put(family, UidKind::Metric.qualifier(), value);
            store.write(batch).await.unwrap();
        };
        let is_partly_applied = async || match apply(&table, &changes).await {
            Err(RepairError::StateChanged {
                is_partly_applied, ..
            }) => is_partly_applied,
            other => panic!("{other:?}"),
        };
        // Another writer has changed the second cell.
        put(b"a", ID, &[0, 0, 9]).await;
        assert!(!is_partly_applied().await);
        // An attempt before that has changed the first one, and lost the store before it could make it back.
        put(&[0, 0, 1], NAME, b"a").await;
        assert!(is_partly_applied().await);
    }
}
