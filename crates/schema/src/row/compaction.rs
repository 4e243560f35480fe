//! Plans the compaction of a row: one cell with its points, and the cells that it replaces.
//!
//! ```text
//!   before   0000 = 01                   00f0 = 09        000000a1 = 01012c00        01003d = {...}
//!   write    000000a100f0 = 01012c0900
//!   remove   0000, 000000a1, 00f0        the annotation stays
//! ```
//!
//! Points with which a compacted cell [must not begin](begins_as_append) are cells of their own before it.
//!
//! Values keep their encoding and qualifiers their resolution; only the mistakes of old software that every reader
//! corrects are corrected. Annotations, histograms and unknown cells stay. A row with appended points is left
//! alone: an append that arrives meanwhile would be lost with its cell.
//!
//! The caller writes the new cells, reads them back, and then removes the cells in the order of
//! [`RowCompaction::remove`]. After each of these steps the row has the same points as before, so that neither a
//! concurrent reader nor a crash changes a result. The order matters where cells have different values for one
//! instant, because the newest cell wins: if it were removed first, an older value would win until its removal.
//! Reading back matters beyond lost writes: if the row has a newer cell with a new qualifier, from a clock ahead
//! of the store's, the write does not replace it, and no cell may be removed.
//!
//! Unlike OpenTSDB, which keeps the order of a compacted cell, points out of order are sorted.
//!
//! Source: OpenTSDB 2.4, `CompactionQueue.Compaction`.

use std::cmp::Reverse;

use super::cell::{CellKind, CellRef, decode_value};
use super::compacted::CompactedCell;
use super::error::RowError;
use super::merge::merge_encoded;
use super::stats::{DuplicatePolicy, RowStats};
use crate::data_table::begins_as_append;

/// How to replace the points of a row by as few cells as possible.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowCompaction {
    /// The cells with all points.
    pub cells: Vec<PlannedCell>,
    /// The cells that the new ones replace, as indexes of the row's cells, in the order of removal.
    pub remove: Vec<usize>,
    /// Statistics of the row, as [`decode_row`](super::decode_row) returns them.
    pub stats: RowStats,
}

/// A cell of a compacted row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedCell {
    /// The qualifier.
    pub qualifier: Vec<u8>,
    /// The value.
    pub value: Vec<u8>,
    /// Whether the row already has this cell, so that it is not written again.
    pub is_stored: bool,
}

/// Plans the compaction of a row, or returns `None` if there is nothing to do: the row has no points, cells in
/// their final form, or appended points.
///
/// `cells` are the row's cells of family `t`, ordered by qualifier, at most one of each. The plan holds for exactly
/// these cells: a cell that has changed since it was read must not be removed.
///
/// # Errors
///
/// [`RowError`] if a cell is damaged, or for conflicting duplicates. Such a row must stay as it is.
pub fn plan_compaction(
    cells: &[CellRef<'_>],
    duplicates: DuplicatePolicy,
) -> Result<Option<RowCompaction>, RowError> {
    let kinds = || cells.iter().map(|cell| CellKind::from_qualifier(cell.qualifier));
    if kinds().any(|kind| kind == CellKind::Appended) {
        return Ok(None);
    }
    let mut points: Vec<_> = kinds()
        .enumerate()
        .filter(|(_, kind)| matches!(kind, CellKind::Point | CellKind::Compacted))
        .map(|(index, _)| index)
        .collect();
    if points.is_empty() {
        return Ok(None);
    }
    let mut compacted = CompactedCell::new();
    let mut alone = Vec::new();
    let mut ascends = true;
    let mut stats = merge_encoded(cells.iter().copied(), duplicates, |(qualifier, raw)| {
        decode_value(qualifier, raw)?;
        if compacted.is_empty() && begins_as_append(qualifier) {
            alone.push((qualifier.as_bytes().to_vec(), raw.to_vec()));
        } else {
            ascends &= compacted.push_encoded(qualifier, raw).is_ok();
        }
        Ok(())
    })?;
    stats.points = alone.len() + compacted.len();
    // The merge ascends, but a cell without one of its points must never replace others.
    debug_assert!(ascends, "the merge of a row does not ascend");
    if !ascends {
        return Ok(None);
    }
    if let Ok((qualifier, value)) = compacted.finish() {
        alone.push((qualifier.to_vec(), value.to_vec()));
    }
    let cell = |index: usize| cells.get(index);
    let planned = alone.into_iter().map(|(qualifier, value)| PlannedCell {
        is_stored: points
            .iter()
            .filter_map(|index| cell(*index))
            .any(|cell| cell.qualifier == qualifier && cell.value == value),
        qualifier,
        value,
    });
    let planned: Vec<PlannedCell> = planned.collect();
    let is_kept = |qualifier: &[u8]| planned.iter().any(|cell| cell.qualifier == qualifier);
    points.retain(|index| cell(*index).is_some_and(|cell| !is_kept(cell.qualifier)));
    // Of cells with one timestamp, the first wins.
    points.sort_by_key(|index| (cell(*index).map(|cell| cell.timestamp_ms), Reverse(*index)));
    if points.is_empty() && planned.iter().all(|cell| cell.is_stored) {
        return Ok(None);
    }
    Ok(Some(RowCompaction {
        cells: planned,
        remove: points,
        stats,
    }))
}

#[cfg(test)]
mod tests;
