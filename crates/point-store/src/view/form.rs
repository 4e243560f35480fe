//! The cells of a row that are points, and their instants in the point store.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use oxtsdb_schema::rollup;
use oxtsdb_schema::row::CellKind;
use oxtsdb_schema::value::EncodedValue;
use oxtsdb_schema::{BaseTime, Qualifier, Value};

use super::cells;
use super::place::{HOUR_SECONDS, hour_range};
use crate::rollups::{IDS, RollupSlot, slots_of_hours};
use crate::{Point, PointStore, PointStoreError, Resolution, TimeRange};

/// The cells of a table that are points.
#[derive(Clone, Debug)]
pub(super) enum CellForm {
    /// The cells of table `tsdb`: of 2 or 4 bytes, an instant within the hour.
    Points,
    /// The cells of a rollup table: of 3 bytes, an aggregate of an interval; see [`crate::rollups`].
    Rollups(Arc<Aggregates>),
}

/// The qualifier of a point's cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PointColumn {
    bytes: [u8; 4],
    length: u8,
}

/// Aggregation ids that may have values.
#[derive(Debug, Default)]
pub(super) struct Aggregates([AtomicU64; 2]);

impl PointColumn {
    fn new(qualifier: &[u8]) -> Self {
        let mut bytes = [0; 4];
        let length = qualifier.len().min(bytes.len());
        bytes[..length].copy_from_slice(&qualifier[..length]);
        Self {
            bytes,
            // At most 4.
            length: u8::try_from(length).unwrap_or(4),
        }
    }

    /// As stored: 2, 3 or 4 bytes.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }
}

impl From<Qualifier> for PointColumn {
    fn from(qualifier: Qualifier) -> Self {
        Self::new(qualifier.as_bytes())
    }
}

impl Aggregates {
    /// The aggregates that may have values in a store.
    pub(super) fn from_store(points: &dyn PointStore) -> Result<Self, PointStoreError> {
        let aggregates = Self::default();
        for id in 0..IDS {
            let all = slots_of_hours(id, 0, BaseTime::MAX.seconds() / HOUR_SECONDS);
            if !points.reader(all)?.is_empty() {
                aggregates.add(id);
            }
        }
        Ok(aggregates)
    }

    fn add(&self, id: u8) {
        // Ids are less than 128.
        if let Some(word) = self.0.get(usize::from(id / 64)) {
            word.fetch_or(1 << (id % 64), Ordering::Release);
        }
    }

    /// Ascending.
    fn ids(&self) -> impl Iterator<Item = u8> {
        let words = [0, 1].map(|word: usize| self.0[word].load(Ordering::Acquire));
        (0..IDS).filter(move |id| words[usize::from(id / 64)] >> (id % 64) & 1 == 1)
    }
}

impl CellForm {
    /// Whether a column names points, by its qualifier.
    pub(super) fn names_points(&self, qualifier: &[u8]) -> bool {
        match self {
            Self::Points => cells::names_points(qualifier),
            Self::Rollups(_) => matches!(qualifier, [id, _, _] if *id < IDS),
        }
    }

    /// Whether a column names one point.
    pub(super) fn names_one_point(&self, qualifier: &[u8]) -> bool {
        match self {
            Self::Points => CellKind::from_qualifier(qualifier) == CellKind::Point,
            Self::Rollups(_) => self.names_points(qualifier),
        }
    }

    /// Whether columns of points can be deleted: a build of rollups deletes the other forms of the values that it puts.
    pub(super) const fn deletes_columns(&self) -> bool {
        matches!(self, Self::Rollups(_))
    }

    /// The points of a cell, in order of time; `None` unless all of them are plain points: the cells of the points
    /// have the same bytes.
    pub(super) fn points_of(&self, base: BaseTime, qualifier: &[u8], value: &[u8]) -> Option<Vec<Point>> {
        match self {
            Self::Points => cells::points_of(base, qualifier, value),
            Self::Rollups(aggregates) => {
                let point = rollup_of(base, qualifier, value)?;
                aggregates.add(RollupSlot::from_time_ms(point.time_ms).id);
                Some(vec![point])
            }
        }
    }

    /// The qualifier and the value of a point's cell.
    pub(super) fn cell_of(&self, point: &Point) -> (PointColumn, EncodedValue) {
        match self {
            Self::Points => {
                let (qualifier, value) = cells::cell_of(point);
                (qualifier.into(), value)
            }
            Self::Rollups(_) => {
                let slot = RollupSlot::from_time_ms(point.time_ms);
                let value = cells::value_of(point);
                let qualifier = rollup::qualifier(slot.id, slot.offset, &value);
                (PointColumn::new(&qualifier), value.encoded())
            }
        }
    }

    /// The columns in which a cell of the row store has the place of a point's cell: it replaces the point, and the
    /// point replaces it. A rollup has one place whatever the type and width of its value.
    pub(super) fn columns_of_place(&self, column: PointColumn) -> Vec<PointColumn> {
        match (self, column.as_bytes()) {
            (Self::Rollups(_), [id, high, low]) => {
                let low = *low & 0xf0;
                let flags = 0..=0x0f;
                flags
                    .map(|flags| PointColumn::new(&[*id, *high, low | flags]))
                    .collect()
            }
            _ => vec![column],
        }
    }

    /// The instants that a qualifier names, each with the column of its point; none for instants that no point has.
    pub(super) fn instants(&self, base: BaseTime, qualifier: &[u8]) -> Vec<(i64, PointColumn)> {
        match (self, qualifier) {
            (Self::Points, _) => {
                let instants = cells::instants(base, qualifier).into_iter();
                instants
                    .map(|(time_ms, qualifier)| (time_ms, qualifier.into()))
                    .collect()
            }
            (Self::Rollups(_), [id, high, low]) => {
                let slot = RollupSlot::new(*id, base, u16::from_be_bytes([*high, *low]) >> 4);
                let instant = slot.map(|slot| (slot.time_ms(), PointColumn::new(qualifier)));
                instant.into_iter().collect()
            }
            (Self::Rollups(_), _) => Vec::new(),
        }
    }

    /// The instants of the points of a row.
    pub(super) fn row_ranges(&self, base: BaseTime) -> Vec<TimeRange> {
        match self {
            Self::Points => vec![hour_range(base)],
            Self::Rollups(_) => {
                let hour = i64::from(base.seconds() / HOUR_SECONDS);
                self.ranges(hour..=hour)
            }
        }
    }

    /// The instants of the points of the rows of some hours: ranges that ascend.
    pub(super) fn ranges(&self, hours: RangeInclusive<i64>) -> Vec<TimeRange> {
        match self {
            Self::Points => vec![TimeRange {
                first_ms: hours.start() * HOUR_MS,
                last_ms: (hours.end() + 1) * HOUR_MS - 1,
            }],
            Self::Rollups(aggregates) => {
                let hour = |hour: i64| u32::try_from(hour).unwrap_or_default();
                let (first, last) = (hour(*hours.start()), hour(*hours.end()));
                aggregates
                    .ids()
                    .map(|id| slots_of_hours(id, first, last))
                    .collect()
            }
        }
    }

    /// The hour at which the row of an instant begins.
    pub(super) fn hour_of(&self, time_ms: i64) -> i64 {
        match self {
            Self::Points => time_ms.div_euclid(HOUR_MS),
            Self::Rollups(_) => RollupSlot::from_time_ms(time_ms).hour.into(),
        }
    }

    /// The timestamp of the cell of an instant: the instant of the point, or the start of a row of rollups.
    pub(super) fn timestamp_ms(&self, time_ms: i64) -> i64 {
        match self {
            Self::Points => time_ms,
            Self::Rollups(_) => RollupSlot::from_time_ms(time_ms).base().millis(),
        }
    }

    /// The order of the cells of points in their rows: seconds before milliseconds; rollups are all alike.
    pub(super) const fn resolutions(&self) -> &'static [Resolution] {
        match self {
            Self::Points => &[Resolution::Seconds, Resolution::Millis],
            Self::Rollups(_) => &[Resolution::Millis],
        }
    }
}

/// Milliseconds of an hour.
pub(super) const HOUR_MS: i64 = HOUR_SECONDS as i64 * 1000;

/// The point of a rollup's cell; `None` unless the cell of that point has the same bytes.
fn rollup_of(base: BaseTime, qualifier: &[u8], value: &[u8]) -> Option<Point> {
    let [id, high, low] = *qualifier else { return None };
    let slot = RollupSlot::new(id, base, u16::from_be_bytes([high, low]) >> 4)?;
    let value_of_cell = Value::decode(low, value).ok()?;
    if !value_of_cell.as_f64().is_finite() {
        return None;
    }
    let is_plain = value_of_cell.encoded().as_bytes() == value
        && rollup::qualifier(id, slot.offset, &value_of_cell) == [id, high, low];
    is_plain.then(|| Point::from_value(slot.time_ms(), Resolution::Millis, &value_of_cell))
}
