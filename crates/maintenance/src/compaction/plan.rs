//! The compaction of one row.
//!
//! The new cell and the removals have one timestamp: the row's newest one, rounded up to a second. It is
//! deterministic, so that several services that compact one row write the same cell; HBase's time to live of the
//! points does not begin anew, as it does when OpenTSDB compacts; and the rows of a batch share few timestamps, of
//! which each is a call of the gateway.
//!
//! A cell that is written to the row later must have a later timestamp, or the new cell would hide it. Therefore a
//! row is left alone until its newest cell has a minimum age, which exceeds the difference between the clocks of
//! HBase and of this service by far; and a row with cells that have the timestamps of their points is never touched.

use std::time::Duration;

use oxtsdb_row_store::Row;
use oxtsdb_schema::row::{
    CellKind, CellRef, DuplicatePolicy, PlannedCell, RowError, decode_cell, plan_compaction,
};
use oxtsdb_schema::{RowKeyLayout, RowKeyRef};

use super::figures::{Figures, Problem};
use crate::row_rewrite::{FAMILY, NewCell, Put, Removal, RowRewrite};

/// The least minimum age of the newest cell of a row.
pub const LEAST_MIN_AGE: Duration = Duration::from_secs(5);

/// Timestamps are rounded up to a multiple.
const TIMESTAMP_STEP_MS: i64 = 1000;

/// The largest bytes of a row's points: its compacted cell is read and written whole.
const MAX_POINT_BYTES: usize = 1 << 20;

/// A row that can be compacted.
#[derive(Debug)]
pub(super) struct PlannedRow {
    /// How.
    pub(super) rewrite: RowRewrite,
    /// Cells and bytes of its points before and after.
    pub(super) figures: Figures,
}

/// Why a row stays as it is.
#[derive(Debug, PartialEq)]
pub(super) enum Stays {
    /// It has no points, or they are compacted.
    Compact,
    /// It has appended points.
    Appended,
    /// It was written to recently.
    Recent,
    /// Its points have too many bytes for one cell.
    TooLarge,
    /// Its cells have the timestamps of their points.
    DataTimestamps,
    /// An operator has to look at it.
    Problem(Problem, String),
}

/// Plans a row. `settled_before_ms`: cells with this timestamp or a later one are recent.
pub(super) fn plan_row(
    row: &Row,
    layout: &RowKeyLayout,
    settled_before_ms: i64,
) -> Result<PlannedRow, Stays> {
    let key = RowKeyRef::decode(row.key(), layout)
        .map_err(|error| Stays::Problem(Problem::InvalidKey, error.to_string()))?;
    let cells: Vec<CellRef<'_>> = row
        .cells()
        .filter(|cell| cell.family == FAMILY)
        .map(|cell| CellRef {
            qualifier: cell.qualifier,
            value: cell.value,
            timestamp_ms: cell.timestamp_ms,
        })
        .collect();
    let has = |kind| {
        cells
            .iter()
            .any(|cell| CellKind::from_qualifier(cell.qualifier) == kind)
    };
    if has(CellKind::Appended) {
        return Err(Stays::Appended);
    }
    let points = || {
        cells.iter().filter(|cell| {
            let kind = CellKind::from_qualifier(cell.qualifier);
            matches!(kind, CellKind::Point | CellKind::Compacted)
        })
    };
    let point_bytes: usize = points().map(|cell| cell.qualifier.len() + cell.value.len()).sum();
    if point_bytes > MAX_POINT_BYTES {
        // One cell of this size has its final form already, however it came about.
        return Err(if points().count() > 1 {
            Stays::TooLarge
        } else {
            Stays::Compact
        });
    }
    let plan = match plan_compaction(&cells, DuplicatePolicy::Error) {
        Ok(Some(plan)) => plan,
        Ok(None) => return Err(Stays::Compact),
        Err(error @ RowError::Duplicate { .. }) => {
            return Err(Stays::Problem(Problem::Conflicting, error.to_string()));
        }
        Err(error) => return Err(Stays::Problem(Problem::Damaged, error.to_string())),
    };
    let newest_ms = points().map(|cell| cell.timestamp_ms).max().unwrap_or(i64::MAX);
    let timestamp_ms = rounded_up(newest_ms);
    if timestamp_ms >= settled_before_ms {
        return Err(Stays::Recent);
    }
    if points().all(|cell| has_data_timestamp(*cell, key.base_time().millis())) {
        return Err(Stays::DataTimestamps);
    }
    let stored_bytes = |bytes: usize| (row.key().len() + FAMILY.len() + bytes) as u64;
    let before_bytes = points().map(|cell| stored_bytes(cell.qualifier.len() + cell.value.len()));
    let planned = plan.cells.iter();
    let after_bytes = planned.map(|cell| stored_bytes(cell.qualifier.len() + cell.value.len()));
    let figures = Figures {
        compacted: 1,
        points: plan.stats.points as u64,
        cells_before: points().count() as u64,
        cells_after: plan.cells.len() as u64,
        bytes_before: before_bytes.sum(),
        bytes_after: after_bytes.sum(),
        ..Figures::default()
    };
    let remove = plan.remove.iter().filter_map(|index| cells.get(*index));
    let new_cell = |cell: PlannedCell| NewCell {
        qualifier: cell.qualifier,
        value: cell.value,
        put: if cell.is_stored {
            Put::Stored
        } else {
            Put::At(timestamp_ms)
        },
    };
    let rewrite = RowRewrite {
        row_key: row.key().to_vec(),
        remove: remove
            .map(|cell| Removal {
                qualifier: cell.qualifier.to_vec(),
                up_to_ms: timestamp_ms,
            })
            .collect(),
        cells: plan.cells.into_iter().map(new_cell).collect(),
    };
    Ok(PlannedRow { rewrite, figures })
}

/// A timestamp, or the first whole second after it.
fn rounded_up(timestamp_ms: i64) -> i64 {
    let past = timestamp_ms.rem_euclid(TIMESTAMP_STEP_MS);
    if past == 0 {
        return timestamp_ms;
    }
    timestamp_ms.saturating_add(TIMESTAMP_STEP_MS - past)
}

/// Whether a cell has the timestamp of its last point, as `tsd.storage.use_otsdb_timestamp` writes it.
fn has_data_timestamp(cell: CellRef<'_>, base_ms: i64) -> bool {
    let mut points = Vec::new();
    // An hour or less after the base time, or it cannot be one.
    (0..=3_600_000).contains(&(cell.timestamp_ms - base_ms))
        && decode_cell(cell, &mut points).is_ok()
        && points
            .last()
            .is_some_and(|point| base_ms + i64::from(point.qualifier.offset_ms()) == cell.timestamp_ms)
}

#[cfg(test)]
mod tests;
