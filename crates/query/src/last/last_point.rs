//! Last points: the range in which a series is searched, and the last point of a stored row.

use oxtsdb_row_store::Row;
use oxtsdb_schema::row::{CellRef, decode_row};
use oxtsdb_schema::{DuplicatePolicy, HOUR_SECONDS, Points, RowKeyRef, Tsuid};

use crate::error::QueryError;
use crate::plan::hours::Hours;
use crate::points::Number;
use crate::storage::Storage;

/// The time range of the search.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LookBack {
    /// Points before this timestamp are ignored, milliseconds since the epoch.
    pub from_ms: i64,
    /// The search starts in the hour of this timestamp and includes all points of that hour.
    pub now_ms: i64,
}

impl LookBack {
    /// The hour of an instant.
    pub fn hour_of(time_ms: i64) -> Self {
        let hour_ms = i64::from(HOUR_SECONDS) * 1000;
        let start_ms = time_ms - time_ms.rem_euclid(hour_ms);
        Self {
            from_ms: start_ms,
            now_ms: start_ms,
        }
    }

    pub(super) fn hours(&self) -> Hours {
        Hours::overlapping(self.from_ms, self.now_ms)
    }
}

/// The last point of a series.
#[derive(Clone, Debug, PartialEq)]
pub struct LastPoint {
    /// The series.
    pub tsuid: Tsuid,
    /// Its timestamp, milliseconds since the epoch.
    pub time_ms: i64,
    /// Its value.
    pub value: Number,
}

pub(super) fn decode_key<'a>(storage: &Storage, row: &'a Row) -> Result<RowKeyRef<'a>, QueryError> {
    RowKeyRef::decode(row.key(), &storage.layout).map_err(|error| QueryError::row_key(row.key(), &error))
}

/// The last point of a row, if it is in the range.
pub(super) fn last_of_row(
    storage: &Storage,
    row: &Row,
    look_back: LookBack,
) -> Result<Option<(i64, Number)>, QueryError> {
    let key = decode_key(storage, row)?;
    let mut points = Points::new();
    let cells = row.cells().map(|cell| CellRef {
        qualifier: cell.qualifier,
        value: cell.value,
        timestamp_ms: cell.timestamp_ms,
    });
    decode_row(cells, DuplicatePolicy::KeepNewest, &mut points)
        .map_err(|error| QueryError::row(row.key(), error))?;
    let last = points.iter().last();
    let base_ms = key.base_time().millis();
    let last = last.map(|(offset_ms, value)| (base_ms + i64::from(offset_ms), Number::from(value)));
    Ok(last.filter(|(time_ms, _)| *time_ms >= look_back.from_ms))
}
