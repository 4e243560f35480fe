//! Plans the compaction of a row: one cell with all its points, and the cells that it replaces.
//!
//! ```text
//!   before   0000 = 01                   00f0 = 09        000000a1 = 01012c00        01003d = {...}
//!   write    000000a100f0 = 01012c0900
//!   remove   0000, 000000a1, 00f0        the annotation stays
//! ```
//!
//! Values keep their encoding and qualifiers their resolution; only the mistakes of old software that every reader
//! corrects are corrected. Annotations, histograms and unknown cells stay. A row with appended points is left
//! alone: an append that arrives meanwhile would be lost with its cell.
//!
//! The caller writes the new cell, reads it back, and then removes the cells in the order of
//! [`RowCompaction::remove`]. After each of these steps the row has the same points as before, so that neither a
//! concurrent reader nor a crash changes a result. The order matters where cells have different values for one
//! instant, because the newest cell wins: if it were removed first, an older value would win until its removal.
//! Reading back matters beyond lost writes: if the row has a newer cell with the new qualifier, from a clock ahead
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

/// How to replace the points of a row by one cell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowCompaction {
    /// The qualifier of the cell with all points.
    pub qualifier: Vec<u8>,
    /// Its value.
    pub value: Vec<u8>,
    /// Whether the row already has this cell, so that it is not written again.
    pub is_stored: bool,
    /// The cells that the new one replaces, as indexes of the row's cells, in the order of removal.
    pub remove: Vec<usize>,
    /// Statistics of the row, as [`decode_row`](super::decode_row) returns them.
    pub stats: RowStats,
}

/// Plans the compaction of a row, or returns `None` if there is nothing to do: the row has no points, one cell in
/// its final form, or appended points, or the new cell would [begin as these](begins_as_append).
///
/// `cells` are those of family `t`, ordered by qualifier, at most one of each qualifier. The plan holds for exactly
/// these cells: a cell that has changed since it was read must not be removed.
///
/// # Errors
///
/// [`RowError`] if a cell is damaged, or for conflicting duplicates. Such a row must stay as it is.
pub fn plan_compaction(
    cells: &[CellRef<'_>],
    duplicates: DuplicatePolicy,
) -> Result<Option<RowCompaction>, RowError> {
    let kinds = || cells.iter().map(|cell| CellKind::of(cell.qualifier));
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
    let mut ascends = true;
    let mut first = None;
    let mut stats = merge_encoded(cells.iter().copied(), duplicates, |(qualifier, raw)| {
        decode_value(qualifier, raw)?;
        first.get_or_insert(qualifier);
        ascends &= compacted.push_encoded(qualifier, raw).is_ok();
        Ok(())
    })?;
    stats.points = compacted.len();
    // The merge ascends, but a cell without one of its points must never replace others.
    debug_assert!(ascends, "the merge of a row does not ascend");
    if stats.points > 1 && first.is_some_and(begins_as_append) {
        return Ok(None);
    }
    let (true, Ok((qualifier, value))) = (ascends, compacted.finish()) else {
        return Ok(None);
    };
    let cell = |index: usize| cells.get(index);
    let is_stored = points
        .iter()
        .filter_map(|index| cell(*index))
        .any(|cell| (cell.qualifier, cell.value) == (qualifier, value));
    points.retain(|index| cell(*index).is_some_and(|cell| cell.qualifier != qualifier));
    // Of cells with one timestamp, the first wins.
    points.sort_by_key(|index| (cell(*index).map(|cell| cell.timestamp_ms), Reverse(*index)));
    if is_stored && points.is_empty() {
        return Ok(None);
    }
    Ok(Some(RowCompaction {
        qualifier: qualifier.to_vec(),
        value: value.to_vec(),
        is_stored,
        remove: points,
        stats,
    }))
}

#[cfg(test)]
mod tests;
