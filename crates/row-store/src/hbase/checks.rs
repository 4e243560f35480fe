//! Checks of requests, before HBase rejects them late or misinterprets them.

use crate::limits::MAX_ROW_KEY;
use crate::{CellAddress, MutationRef, Scan, StoreError, TableName, WriteBatch, rules};

/// The maximum length of a row key. HBase's client locates the region of a row by a key of its own,
/// `table,row,99999999999999`, to which the limit of all keys applies. One more byte is reserved for the
/// successor key at which a scan resumes.
pub(super) fn max_row_key(table: &TableName) -> usize {
    let around = table.to_string().len() + ",,99999999999999".len();
    MAX_ROW_KEY.saturating_sub(around + 1)
}

/// Checks the key of a row of a table.
pub(super) fn check_row_key(table: &TableName, key: &[u8]) -> Result<(), StoreError> {
    rules::check_row_key_up_to(max_row_key(table), key)
}

/// Checks the row key and the qualifier of a cell.
pub(super) fn check_cell(table: &TableName, cell: &CellAddress) -> Result<(), StoreError> {
    check_row_key(table, &cell.row)?;
    rules::check_qualifier(&cell.qualifier)
}

/// Checks the bounds of a scan, which are row keys or their successors.
pub(super) fn check_bounds(table: &TableName, scan: &Scan) -> Result<(), StoreError> {
    let longest = max_row_key(table) + 1;
    for (name, bound) in [("start", &scan.start), ("stop", &scan.stop)] {
        if bound.len() > longest {
            return Err(StoreError::Invalid {
                detail: format!(
                    "{name} of a scan has {} bytes, at most {longest} are allowed",
                    bound.len()
                ),
            });
        }
    }
    Ok(())
}

/// Rejects what HBase would reject late or misinterpret.
pub(super) fn check_batch(batch: &WriteBatch) -> Result<(), StoreError> {
    for row in batch.iter() {
        check_row_key(batch.table(), row.key)?;
        rules::check_mutations(&row, batch.families().len())?;
        for mutation in row.iter() {
            // HBase takes the greatest timestamp for the current time.
            if let Some(timestamp_ms) = timestamp_of(&mutation)
                && !(0..i64::MAX).contains(&timestamp_ms)
            {
                return Err(StoreError::Invalid {
                    detail: format!(
                        "a put or delete has timestamp {timestamp_ms}, expected 0 to {}",
                        i64::MAX - 1
                    ),
                });
            }
        }
    }
    Ok(())
}

/// The explicit timestamp of a mutation.
pub(super) fn timestamp_of(mutation: &MutationRef<'_>) -> Option<i64> {
    match mutation {
        MutationRef::Put { timestamp_ms, .. } => *timestamp_ms,
        MutationRef::DeleteColumn { up_to_ms, .. } => *up_to_ms,
        MutationRef::DeleteFamily { .. } | MutationRef::DeleteRow => None,
    }
}
