//! Decodes the rows of rollup tables.

use oxtsdb_point_store::{Columns, ValueKind};
use oxtsdb_row_store::Row;
use oxtsdb_schema::rollup::{RollupCell, RollupError};
use oxtsdb_schema::{BaseTime, DuplicatePolicy, Value};

use crate::plan::rollup::RollupRead;
use crate::rollup::RollupRowError;

/// Values of one row, ascending by time.
#[derive(Debug, Default)]
pub(super) struct RollupValues {
    pub(super) times_ms: Vec<i64>,
    pub(super) values: Vec<f64>,
    /// One for each value, if averages are computed.
    pub(super) counts: Vec<f64>,
    cells: Vec<Cell>,
    count_cells: Vec<Cell>,
}

#[derive(Clone, Copy, Debug)]
struct Cell {
    offset: u16,
    stored_ms: i64,
    value: f64,
}

/// Counts of a row of rollups.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RollupRowStats {
    /// Offsets with several values; the newest value counts.
    pub(super) duplicates: u64,
    /// Cells that are no rollups.
    pub(super) skipped: u64,
}

impl RollupValues {
    /// Decodes a row.
    pub(super) fn decode(
        &mut self,
        row: &Row,
        base: BaseTime,
        read: &RollupRead,
        duplicates: DuplicatePolicy,
    ) -> Result<RollupRowStats, RollupRowError> {
        let interval = &read.interval;
        let mut stats = RollupRowStats::default();
        self.times_ms.clear();
        self.values.clear();
        self.counts.clear();
        self.cells.clear();
        self.count_cells.clear();
        if interval.base_time(base.seconds()) != base {
            return Err(RollupRowError::BaseTime {
                base_time: base.seconds(),
                interval: interval.name().to_owned(),
            });
        }
        for cell in row.cells() {
            let decoded = match RollupCell::decode(cell.qualifier, cell.value, interval) {
                Ok(decoded) => decoded,
                Err(RollupError::Qualifier { .. }) => {
                    stats.skipped += 1;
                    continue;
                }
                Err(error) => {
                    let qualifier = hex::encode_upper(cell.qualifier);
                    return Err(RollupRowError::Cell { qualifier, error });
                }
            };
            let (name, id) = &read.value;
            let list = if decoded.aggregate.is(*id, name) {
                &mut self.cells
            } else if let Some((name, id)) = &read.count
                && decoded.aggregate.is(*id, name)
            {
                &mut self.count_cells
            } else {
                continue;
            };
            list.push(Cell {
                offset: decoded.offset,
                stored_ms: cell.timestamp_ms,
                value: decoded.value.as_f64(),
            });
        }
        stats.duplicates += newest(&mut self.cells, duplicates, &read.value.0)?;
        if let Some((name, _)) = &read.count {
            stats.duplicates += newest(&mut self.count_cells, duplicates, name)?;
        }
        let mut counts = self.count_cells.iter().peekable();
        for cell in &self.cells {
            if read.count.is_some() {
                // An average needs both.
                while counts.next_if(|count| count.offset < cell.offset).is_some() {}
                let Some(count) = counts.next_if(|count| count.offset == cell.offset) else {
                    continue;
                };
                // OpenTSDB reads counts as integers.
                self.counts.push(count.value.trunc());
            }
            self.times_ms.push(interval.time_ms(base, cell.offset));
            self.values.push(cell.value);
        }
        // Months have different lengths.
        if let (Some(last_ms), Some(last)) = (self.times_ms.last(), self.cells.last()) {
            let seconds = u32::try_from(last_ms / 1000).ok();
            if seconds.is_none_or(|seconds| interval.base_time(seconds) != base) {
                return Err(RollupRowError::BeyondSpan {
                    offset: last.offset,
                    interval: interval.name().to_owned(),
                });
            }
        }
        Ok(stats)
    }
}

impl RollupValues {
    /// Sums with the counts of the same instants.
    pub(super) fn join(&mut self, sums: &Columns, counts: &Columns) {
        self.times_ms.clear();
        self.values.clear();
        self.counts.clear();
        let value = |columns: &Columns, index: usize| match columns.kinds[index].value() {
            ValueKind::Int => Value::Int(columns.bits[index].cast_signed()).as_f64(),
            ValueKind::Float | ValueKind::Double => f64::from_bits(columns.bits[index]),
        };
        if sums.times_ms == counts.times_ms {
            self.times_ms.extend_from_slice(&sums.times_ms);
            self.values
                .extend((0..sums.len()).map(|index| value(sums, index)));
            self.counts
                .extend((0..counts.len()).map(|index| value(counts, index).trunc()));
            return;
        }
        let mut next = 0;
        for (index, time_ms) in sums.times_ms.iter().enumerate() {
            while counts
                .times_ms
                .get(next)
                .is_some_and(|count_ms| count_ms < time_ms)
            {
                next += 1;
            }
            if counts.times_ms.get(next) == Some(time_ms) {
                self.times_ms.push(*time_ms);
                self.values.push(value(sums, index));
                // OpenTSDB reads counts as integers.
                self.counts.push(value(counts, next).trunc());
                next += 1;
            }
        }
    }
}

/// Sorts cells by offset and keeps the newest of each. Returns how many were dropped.
fn newest(cells: &mut Vec<Cell>, policy: DuplicatePolicy, name: &str) -> Result<u64, RollupRowError> {
    if !cells.is_sorted_by_key(|cell| cell.offset) {
        cells.sort_by_key(|cell| cell.offset);
    }
    let all = cells.len();
    let mut refused = None;
    cells.dedup_by(|next, kept| {
        if next.offset != kept.offset {
            return false;
        }
        if policy == DuplicatePolicy::Error {
            refused = Some(kept.offset);
        }
        if next.stored_ms >= kept.stored_ms {
            *kept = *next;
        }
        true
    });
    if let Some(offset) = refused {
        let aggregate = name.to_owned();
        return Err(RollupRowError::Duplicate { aggregate, offset });
    }
    Ok((all - cells.len()) as u64)
}
