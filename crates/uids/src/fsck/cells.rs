//! Reads of single cells, many at once, past all caches.

use std::collections::BTreeMap;

use oxtsdb_row_store::{CellAddress, ColumnSelection, StoreError};
use oxtsdb_schema::UidKind;
use oxtsdb_schema::uid_table::{COUNTER_ROW, meta_qualifier};

use crate::table::{ID, NAME, UidTable};

/// Keys of one read of the store.
const BATCH: usize = 1024;

/// A cell as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StoredCell {
    pub(super) value: Vec<u8>,
    pub(super) timestamp_ms: i64,
}

/// The cell of a name's forward mapping; `None` if no cell can have that name.
pub(super) fn forward(kind: UidKind, name: &[u8]) -> Option<CellAddress> {
    (!name.is_empty() && name != COUNTER_ROW).then(|| CellAddress::new(name, ID, kind.qualifier()))
}

/// The cell of a UID's reverse mapping.
pub(super) fn reverse(kind: UidKind, uid: &[u8]) -> CellAddress {
    CellAddress::new(uid, NAME, kind.qualifier())
}

/// The cell of a UID's metadata.
pub(super) fn metadata(kind: UidKind, uid: &[u8]) -> CellAddress {
    CellAddress::new(uid, NAME, meta_qualifier(kind))
}

/// Reads cells, in their order; `None` for an absent one. Empty values are values here.
pub(super) async fn read(
    table: &UidTable,
    cells: &[CellAddress],
) -> Result<Vec<Option<StoredCell>>, StoreError> {
    let longest = table.store().max_row_key(table.name());
    let mut columns: BTreeMap<(&str, &[u8]), Vec<usize>> = BTreeMap::new();
    for (index, cell) in cells.iter().enumerate() {
        if (1..=longest).contains(&cell.row.len()) {
            let column = (cell.family.as_str(), cell.qualifier.as_slice());
            columns.entry(column).or_default().push(index);
        }
    }
    let mut results = vec![None; cells.len()];
    for ((family, qualifier), indexes) in columns {
        let selection = ColumnSelection::Columns(vec![(family.to_owned(), qualifier.to_vec())]);
        for indexes in indexes.chunks(BATCH) {
            let rows: Vec<Vec<u8>> = indexes.iter().map(|index| cells[*index].row.clone()).collect();
            let stored_rows = table
                .store()
                .get_rows(table.name(), &rows, &selection, None)
                .await?;
            for (index, row) in indexes.iter().zip(stored_rows) {
                let cell = row.as_ref().and_then(|row| row.get(family, qualifier));
                results[*index] = cell.map(|cell| StoredCell {
                    value: cell.value.to_vec(),
                    timestamp_ms: cell.timestamp_ms,
                });
            }
        }
    }
    Ok(results)
}

/// The values of cells, in their order, as of [`read`].
pub(super) async fn values(
    table: &UidTable,
    cells: &[CellAddress],
) -> Result<Vec<Option<Vec<u8>>>, StoreError> {
    let cells = read(table, cells).await?;
    Ok(cells
        .into_iter()
        .map(|cell| cell.map(|cell| cell.value))
        .collect())
}
