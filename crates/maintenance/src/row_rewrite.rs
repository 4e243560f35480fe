//! Replaces cells of rows by new ones, without a moment at which a point is missing.
//!
//! ```text
//!   1. put the new cells
//!   2. read them back          a row with a cell that is not the newest version of its column is left as it is
//!   3. remove the old cells    each up to a timestamp, so that later puts of the same column stay
//! ```
//!
//! A crash after any step leaves the points of a row as they were, and repeating all steps completes them. Several
//! processes may do so at once: a cell is removed only after the reader of step 2 has seen its replacement.
//!
//! HBase applies the deletes of one row and one timestamp atomically and in one call, and those of several timestamps
//! one after the other. Callers with many cells to remove choose one timestamp for all of them.

use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use hashbrown::HashMap;
use oxtsdb_row_store::{ColumnSelection, RowStore, StoreError, TableName, WriteBatch};

/// The column family of table `tsdb`.
pub(crate) const FAMILY: &str = "t";

/// Reads at the same time.
const CONCURRENT_READS: usize = 4;

/// Changes of one row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RowRewrite {
    /// The row.
    pub(crate) row_key: Vec<u8>,
    /// The cells that have the points of the removed ones.
    pub(crate) cells: Vec<NewCell>,
    /// Columns to remove, in this order.
    pub(crate) remove: Vec<Removal>,
}

impl RowRewrite {
    /// Bytes of the new cells.
    pub(crate) fn put_bytes(&self) -> usize {
        let bytes = |cell: &NewCell| cell.qualifier.len() + cell.value.len();
        self.cells.iter().map(bytes).sum()
    }
}

/// A cell that replaces others, alone or with more of these.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NewCell {
    /// Its qualifier.
    pub(crate) qualifier: Vec<u8>,
    /// Its value.
    pub(crate) value: Vec<u8>,
    /// How it is put.
    pub(crate) put: Put,
}

/// How a new cell is put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Put {
    /// With this timestamp, in milliseconds. A delete of the row by another client that is newer hides the cell, so that
    /// a rewrite never restores deleted points.
    At(i64),
    /// Not at all: the row had this cell when it was read.
    Stored,
}

/// A column to remove.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Removal {
    /// Its qualifier.
    pub(crate) qualifier: Vec<u8>,
    /// The newest version to remove, by its timestamp in milliseconds.
    pub(crate) up_to_ms: i64,
}

/// Rewrites rows of a table. Returns for each whether its new cells were read back; if not, nothing was removed from it.
///
/// All new cells are in memory twice. No row may occur more than once.
///
/// # Errors
///
/// Those of the store. Some of the rows may be rewritten, wholly or in part; all of them have their points.
pub(crate) async fn rewrite(
    store: &dyn RowStore,
    table: &TableName,
    rows: &[RowRewrite],
) -> Result<Vec<bool>, StoreError> {
    let mut puts = WriteBatch::new(table.clone());
    let family = puts.family(FAMILY);
    for row in rows {
        for cell in &row.cells {
            if let Put::At(timestamp_ms) = cell.put {
                puts.row(&row.row_key)
                    .put_at(family, &cell.qualifier, timestamp_ms, &cell.value);
            }
        }
    }
    if !puts.is_empty() {
        store.write(puts).await?;
    }
    let confirmed = read_back(store, table, rows).await?;
    let mut deletes = WriteBatch::new(table.clone());
    let family = deletes.family(FAMILY);
    for (row, _) in rows.iter().zip(&confirmed).filter(|(_, confirmed)| **confirmed) {
        deletes.row(&row.row_key);
        for removal in &row.remove {
            deletes.delete_column_up_to(family, &removal.qualifier, removal.up_to_ms);
        }
    }
    if !deletes.is_empty() {
        store.write(deletes).await?;
    }
    Ok(confirmed)
}

/// Whether each row has its new cells as the newest versions of their columns.
async fn read_back(
    store: &dyn RowStore,
    table: &TableName,
    rows: &[RowRewrite],
) -> Result<Vec<bool>, StoreError> {
    // One read for all rows of a qualifier: series with regular points have the same.
    let mut by_qualifier: HashMap<&[u8], Vec<(usize, &RowRewrite, &NewCell)>> = HashMap::new();
    for (index, row) in rows.iter().enumerate() {
        for cell in &row.cells {
            let cells = by_qualifier.entry(&cell.qualifier).or_default();
            cells.push((index, row, cell));
        }
    }
    let reads = by_qualifier.into_iter().map(|(qualifier, cells)| async move {
        let keys: Vec<Vec<u8>> = cells.iter().map(|(_, row, _)| row.row_key.clone()).collect();
        let column = ColumnSelection::Columns(vec![(FAMILY.to_owned(), qualifier.to_vec())]);
        let found = store.get_rows(table, &keys, &column, None).await?;
        let missing: Vec<usize> = cells
            .into_iter()
            .zip(found)
            .filter(|((_, _, cell), found)| {
                let found = found.as_ref().and_then(|found| found.get(FAMILY, qualifier));
                found.is_none_or(|found| found.value != cell.value)
            })
            .map(|((index, _, _), _)| index)
            .collect();
        Ok::<_, StoreError>(missing)
    });
    let reads: Vec<_> = reads.collect();
    let missing: Vec<Vec<usize>> = stream::iter(reads)
        .buffer_unordered(CONCURRENT_READS)
        .try_collect()
        .await?;
    let mut confirmed = vec![true; rows.len()];
    for index in missing.into_iter().flatten() {
        if let Some(is_confirmed) = confirmed.get_mut(index) {
            *is_confirmed = false;
        }
    }
    Ok(confirmed)
}

#[cfg(test)]
mod tests;
