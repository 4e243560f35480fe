//! Changes of a row of table `tsdb` after which it has no points in a range.
//!
//! Cells with all points in the range are removed. A compacted cell that has other points too is replaced by cells with
//! those; so is a cell of appended points, in its own column. Annotations, histograms and cells that do not decode stay.

use oxtsdb_point_store::TimeRange;
use oxtsdb_row_store::Row;
use oxtsdb_schema::row::{CellKind, CellRef, Rest, RestCell, without_points};
use oxtsdb_schema::{RowKeyLayout, RowKeyRef};

use crate::row_rewrite::{FAMILY, NewCell, Put, Removal};

/// Appended points are removed when they are so old: an append after the read could have the timestamp of the cell that
/// was read, and would be removed with it. More than the clocks of the server and of the store differ.
pub(super) const RECENT_MS: i64 = 5_000;

/// The changes of a row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RowDelete {
    /// Points to delete, each cell's.
    pub(super) points: u64,
    /// Cells that are removed.
    pub(super) removed: Vec<Removal>,
    /// Compacted cells that are replaced, each with the cells that have its other points.
    pub(super) replaced: Vec<(Vec<NewCell>, Removal)>,
    /// Appended points that are replaced.
    pub(super) appended: Option<Appended>,
    /// Whether an append that arrives meanwhile could bring deleted points back.
    pub(super) has_appended: bool,
    /// Whether appended points are too recent to be removed; the row has to be read again later.
    pub(super) is_recent: bool,
    /// Cells that do not decode, and stay.
    pub(super) damaged: u64,
}

/// The change of a cell of appended points.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Appended {
    pub(super) qualifier: Vec<u8>,
    pub(super) before: Vec<u8>,
    pub(super) after: Vec<u8>,
}

impl RowDelete {
    /// Plans the deletion of the points of a row in a range. `None`: its key is of no series.
    ///
    /// `now_ms` is the time of the read. `replaced_at`: the timestamp of replacing cells; `None`: the one of the cells which
    /// they replace.
    pub(super) fn plan(
        row: &Row,
        range: TimeRange,
        layout: &RowKeyLayout,
        now_ms: i64,
        replaced_at: Option<i64>,
    ) -> Option<Self> {
        let key = RowKeyRef::decode(row.key(), layout).ok()?;
        if key.is_global() {
            return None;
        }
        let base_ms = key.base_time().millis();
        let is_deleted = |offset_ms: u32| range.contains(base_ms + i64::from(offset_ms));
        let mut plan = Self::default();
        for cell in row.cells().filter(|cell| cell.family == FAMILY) {
            let cell = CellRef {
                qualifier: cell.qualifier,
                value: cell.value,
                timestamp_ms: cell.timestamp_ms,
            };
            let Ok(without) = without_points(cell, is_deleted) else {
                plan.damaged += 1;
                continue;
            };
            plan.points += without.deleted as u64;
            let is_appended = CellKind::from_qualifier(cell.qualifier) == CellKind::Appended;
            plan.has_appended |= is_appended && without.deleted > 0;
            let removal = Removal {
                qualifier: cell.qualifier.to_vec(),
                up_to_ms: cell.timestamp_ms,
            };
            match without.rest {
                Rest::All => {}
                Rest::Nothing if is_appended && now_ms - cell.timestamp_ms < RECENT_MS => {
                    plan.is_recent = true
                }
                Rest::Nothing => plan.removed.push(removal),
                Rest::Cells(cells) if is_appended => {
                    plan.appended = cells.into_iter().next().map(|rest| Appended {
                        qualifier: rest.qualifier,
                        before: cell.value.to_vec(),
                        after: rest.value,
                    });
                }
                Rest::Cells(cells) => {
                    // A newer cell of the same column has newer values of the same points.
                    let is_needed = |rest: &RestCell| {
                        let other = row.get(FAMILY, &rest.qualifier);
                        other.is_none_or(|other| other.timestamp_ms < cell.timestamp_ms)
                    };
                    let put = Put::At(replaced_at.unwrap_or(cell.timestamp_ms));
                    let new = cells.into_iter().filter(is_needed).map(|rest| NewCell {
                        qualifier: rest.qualifier,
                        value: rest.value,
                        put,
                    });
                    let new: Vec<NewCell> = new.collect();
                    if new.is_empty() {
                        plan.removed.push(removal);
                    } else {
                        plan.replaced.push((new, removal));
                    }
                }
            }
        }
        // One timestamp for all, because HBase deletes columns of several timestamps in as many calls.
        let newest = plan.removed.iter().map(|removal| removal.up_to_ms).max();
        for removal in &mut plan.removed {
            removal.up_to_ms = newest.unwrap_or(removal.up_to_ms);
        }
        Some(plan)
    }

    /// Whether the row has to be read again after the changes: not all of them are certain to take effect.
    pub(super) fn needs_check(&self) -> bool {
        self.has_appended || self.is_recent || !self.replaced.is_empty()
    }

    /// Whether there is nothing to do.
    pub(super) fn is_empty(&self) -> bool {
        !self.is_recent && self.removed.is_empty() && self.replaced.is_empty() && self.appended.is_none()
    }
}
