//! Applies repairs of rows, as [`oxtsdb_row_store::repair`] does.

pub use oxtsdb_row_store::repair::Applied;
use oxtsdb_row_store::repair::{CellChange, CellRepair, RepairFailure};
use oxtsdb_row_store::{CellAddress, StoreError};
use oxtsdb_schema::row::RowChange;

use super::{FAMILY, Fsck};

/// Why a repair was not applied.
#[derive(Clone, Debug, thiserror::Error)]
pub enum RepairError {
    /// A cell has neither its old nor its new value.
    #[error(
        "cell {} of row {} has another value than the plan saw{}; make another plan",
        hex::encode_upper(.qualifier),
        hex::encode_upper(.row_key),
        if *.is_partly_applied { ", others have their new values" } else { "" }
    )]
    StateChanged {
        /// The row.
        row_key: Vec<u8>,
        /// The cell.
        qualifier: Vec<u8>,
        /// Whether other cells have their new values, as after an attempt that lost the store before it could make
        /// them back.
        is_partly_applied: bool,
    },
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
                row_key: cell.row,
                qualifier: cell.qualifier,
                is_partly_applied,
            },
            RepairFailure::Store(error) => Self::Store(error),
        }
    }
}

impl Fsck {
    /// Applies the changes of a row.
    ///
    /// # Errors
    ///
    /// [`RepairError`].
    pub async fn repair(&self, row_key: &[u8], changes: &[RowChange]) -> Result<Applied, RepairError> {
        let value = |cell: &Option<(Vec<u8>, i64)>| cell.as_ref().map(|(value, _)| value.clone());
        let cells = changes.iter().map(|change| CellChange {
            cell: CellAddress::new(row_key, FAMILY, change.qualifier.clone()),
            old: value(&change.old),
            new: value(&change.new),
        });
        let timestamps_ms = changes.iter().map(|change| {
            let timestamp_ms = change.new.as_ref().map(|(_, timestamp_ms)| *timestamp_ms);
            timestamp_ms.filter(|timestamp_ms| *timestamp_ms != STORE_TIME)
        });
        let repair = CellRepair {
            store: &*self.store,
            table: &self.table,
            changes: &cells.collect::<Vec<_>>(),
            timestamps_ms: &timestamps_ms.collect::<Vec<_>>(),
        };
        Ok(repair.apply().await?)
    }
}

/// The timestamp of a new cell that gets the time of the store.
pub const STORE_TIME: i64 = i64::MIN;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_the_cell_and_whether_others_are_repaired() {
        let error = RepairError::from(RepairFailure::StateChanged {
            cell: CellAddress::new(*b"row", FAMILY, *b"\xab"),
            is_partly_applied: true,
        });
        assert_eq!(
            error.to_string(),
            "cell AB of row 726F77 has another value than the plan saw, others have their new values; make another plan"
        );
    }
}
