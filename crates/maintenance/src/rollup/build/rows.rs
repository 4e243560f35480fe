//! Reads the points of series that are in rows, hour by hour.
//!
//! The rows of an hour arrive series by series, so windows of up to an hour are complete with the row. Longer ones stay
//! open until their last hour was read; their memory is reserved from the pool of queries.

use std::collections::HashMap;

use oxtsdb_query::{QueryError, RowBatch};
use oxtsdb_resources::{MemoryError, Reservation};
use oxtsdb_schema::row::{CellRef, decode_row};
use oxtsdb_schema::{DuplicatePolicy, Points, RowKeyRef, Value};

use super::SkipLog;
use super::plan::{BuildPlan, BuiltRow};
use super::window::Accumulator;

/// Bytes of a series with open windows besides its key and its windows.
const SERIES_BYTES: usize = 96;

/// Memory is reserved in steps.
const MEMORY_STEP: u64 = 1 << 20;

/// The series of a metric with open windows.
#[derive(Debug)]
pub(super) struct OpenSeries {
    chunk: (u32, u32),
    series: HashMap<Vec<u8>, Vec<Accumulator>>,
    bytes: u64,
    memory: Reservation,
}

/// The content of a batch of rows.
#[derive(Debug, Default)]
pub(super) struct BuiltBatch {
    pub(super) rows: Vec<BuiltRow>,
    pub(super) points: u64,
}

impl OpenSeries {
    /// None, of a chunk.
    pub(super) fn new(chunk: (u32, u32), memory: Reservation) -> Self {
        Self {
            chunk,
            series: HashMap::new(),
            bytes: 0,
            memory,
        }
    }

    /// Adds rows of an hour that ends at `until_ms`.
    pub(super) fn add(
        &mut self,
        batch: &RowBatch,
        plan: &BuildPlan,
        until_ms: i64,
        skips: Option<&SkipLog>,
    ) -> Result<BuiltBatch, QueryError> {
        let mut built = BuiltBatch::default();
        let (mut tsuid, mut changed) = (Vec::new(), Vec::new());
        let mut points = Points::default();
        let (mut times_ms, mut values) = (Vec::new(), Vec::new());
        for row in batch.rows() {
            let Ok(key) = RowKeyRef::decode(row.key(), &plan.layout) else {
                continue;
            };
            if key.is_global() {
                continue;
            }
            let cells = row.cells().map(|cell| CellRef {
                qualifier: cell.qualifier,
                value: cell.value,
                timestamp_ms: cell.timestamp_ms,
            });
            points.clear();
            let decoded = decode_row(cells, DuplicatePolicy::KeepNewest, &mut points);
            let undecoded = decoded.err().map(|error| QueryError::Row {
                row_key: hex::encode_upper(row.key()).into(),
                error,
            });
            match (&undecoded, skips) {
                (None, _) => {}
                (Some(error), Some(skips)) => {
                    skips.add(error);
                    points.clear();
                }
                (Some(_), None) => return undecoded.map_or(Ok(built), Err),
            }
            let base_ms = key.base_time().millis();
            times_ms.clear();
            times_ms.extend(
                points
                    .offsets_ms()
                    .iter()
                    .map(|offset| base_ms + i64::from(*offset)),
            );
            if times_ms.is_empty() && undecoded.is_none() {
                continue;
            }
            built.points += times_ms.len() as u64;
            values.clear();
            values.extend(points.values().iter().map(Value::as_f64));
            key.tsuid_bytes(&mut tsuid);
            let series = plan.rollup_tsuid(&tsuid, &mut changed);
            let mut accumulators = match self.series.remove(series) {
                Some(open) => {
                    self.bytes = self.bytes.saturating_sub(held_bytes(series, &open));
                    open
                }
                None => plan.accumulators(self.chunk),
            };
            if undecoded.is_some() {
                for (target, accumulator) in accumulators.iter_mut().enumerate() {
                    accumulator.leave_out(base_ms, &mut |window| {
                        plan.place(target, series, window, &mut built.rows);
                    });
                }
            }
            let mut from = 0;
            for run in points
                .values()
                .chunk_by(|one, next| one.is_int() == next.is_int())
            {
                let span = from..from + run.len();
                from = span.end;
                let (Some(times_ms), Some(values)) = (times_ms.get(span.clone()), values.get(span)) else {
                    continue;
                };
                let are_ints = run.first().is_some_and(Value::is_int);
                for (target, accumulator) in accumulators.iter_mut().enumerate() {
                    accumulator.feed(times_ms, values, are_ints, &mut |window| {
                        plan.place(target, series, window, &mut built.rows);
                    });
                }
            }
            for (target, accumulator) in accumulators.iter_mut().enumerate() {
                accumulator.advance(until_ms, &mut |window| {
                    plan.place(target, series, window, &mut built.rows);
                });
            }
            if accumulators.iter().any(Accumulator::is_open) {
                self.bytes += held_bytes(series, &accumulators);
                self.series.insert(series.to_vec(), accumulators);
            }
        }
        self.reserve()?;
        Ok(built)
    }

    /// Passes on the windows that end at or before an instant, also of series without rows in the last hours.
    pub(super) fn advance(&mut self, plan: &BuildPlan, until_ms: i64) -> Vec<BuiltRow> {
        let mut rows = Vec::new();
        let bytes = &mut self.bytes;
        self.series.retain(|series, accumulators| {
            for (target, accumulator) in accumulators.iter_mut().enumerate() {
                accumulator.advance(until_ms, &mut |window| {
                    plan.place(target, series, window, &mut rows);
                });
            }
            let is_open = accumulators.iter().any(Accumulator::is_open);
            if !is_open {
                *bytes = bytes.saturating_sub(held_bytes(series, accumulators));
            }
            is_open
        });
        self.memory.shrink_to(self.bytes.next_multiple_of(MEMORY_STEP));
        rows
    }

    fn reserve(&mut self) -> Result<(), MemoryError> {
        let needed = self.bytes.next_multiple_of(MEMORY_STEP);
        match needed.checked_sub(self.memory.bytes()) {
            Some(more) if more > 0 => self.memory.try_grow(more),
            _ => Ok(()),
        }
    }
}

fn held_bytes(series: &[u8], accumulators: &[Accumulator]) -> u64 {
    (SERIES_BYTES + series.len() + size_of_val(accumulators)) as u64
}
