//! Lost points as damaged rows.

use oxtsdb_row_store::{DamageLog, DamagedRange, StoreError, TableName};

use crate::{DamagedPart, PointStore, SeriesNumber, TimeRange};

/// The damage of a point store, as ranges of all rows: a part has points of a time, and rows of a time lie all over the
/// table.
pub(super) fn ranges(points: &dyn PointStore, table: &TableName) -> Vec<DamagedRange> {
    let damage = points.damage();
    damage.iter().map(|part| range_of(part, table)).collect()
}

fn range_of(part: &DamagedPart, table: &TableName) -> DamagedRange {
    DamagedRange {
        table: table.clone(),
        start: Vec::new(),
        stop: Vec::new(),
        file: part.path.display().to_string(),
        detail: format!(
            "points from {} to {} ms: {}",
            part.range.first_ms, part.range.last_ms, part.detail
        ),
    }
}

/// Records the damage that may have cost points of series in a range, as lost rows of `table`.
///
/// # Errors
///
/// [`StoreError::Corrupt`] for the first of it if there is no log.
pub fn check_damage(
    points: &dyn PointStore,
    table: &TableName,
    series: &[SeriesNumber],
    range: TimeRange,
    log: Option<&DamageLog>,
) -> Result<(), StoreError> {
    for part in points.lost(series, range) {
        match log {
            Some(log) => log.record(range_of(&part, table)),
            None => return Err(range_of(&part, table).error()),
        }
    }
    Ok(())
}
