//! Spans: all points of one series in the scanned range, as columns.
//!
//! A row is decoded when it comes, and downsampled at once if the question says so: what is kept of
//! a series are its windows, not its points. The rows of one series come in order of time.

use hashbrown::HashMap;
use oxtsdb_row_store::Row;
use oxtsdb_schema::row::{CellRef, decode_row};
use oxtsdb_schema::{DuplicatePolicy, Points as RowPoints, RowKeyLayout, RowKeyRef, Tsuid, Value};
use rustc_hash::FxBuildHasher;

use super::downsample::{Downsampler, Windows};
use super::error::QueryError;
use super::frame::Statistics;
use super::function::Function;
use super::points::{Number, Points, Values};

/// A series with its points.
#[derive(Clone, Debug, PartialEq)]
pub struct Span {
    /// The series.
    pub tsuid: Tsuid,
    /// Its points in the scanned range, which may be none, or its windows.
    pub points: Points,
}

/// Builds spans from rows.
#[derive(Debug)]
pub struct SpanBuilder {
    layout: RowKeyLayout,
    duplicates: DuplicatePolicy,
    downsample: Option<(Windows, Function)>,
    spans: HashMap<Tsuid, Column, FxBuildHasher>,
    statistics: Statistics,
    /// Kept, so that a row needs no memory of its own.
    scratch: Scratch,
}

/// What is kept of a series.
#[derive(Debug)]
enum Column {
    Raw(Points),
    Downsampled(Downsampler),
}

#[derive(Debug, Default)]
struct Scratch {
    tsuid: Vec<u8>,
    row: RowPoints,
    times_ms: Vec<i64>,
    values: Vec<f64>,
}

impl SpanBuilder {
    /// No rows yet.
    pub fn new(
        layout: RowKeyLayout,
        duplicates: DuplicatePolicy,
        downsample: Option<(Windows, Function)>,
    ) -> Self {
        Self {
            layout,
            duplicates,
            downsample,
            spans: HashMap::default(),
            statistics: Statistics::default(),
            scratch: Scratch::default(),
        }
    }

    /// Takes a row and says how many points it cost: its own, and those that a fill policy will make
    /// up for a series that has not been seen before.
    ///
    /// # Errors
    ///
    /// [`QueryError::Row`] and the errors of its key.
    pub fn add(&mut self, row: &Row) -> Result<u64, QueryError> {
        let key = RowKeyRef::decode(row.key(), &self.layout)
            .map_err(|error| QueryError::row_key(row.key(), &error))?;
        let scratch = &mut self.scratch;
        key.tsuid_bytes(&mut scratch.tsuid);
        scratch.row.clear();
        let cells = row.cells().map(|cell| CellRef {
            qualifier: cell.qualifier,
            value: cell.value,
            timestamp_ms: cell.timestamp_ms,
        });
        let stats = decode_row(cells, self.duplicates, &mut scratch.row)
            .map_err(|error| QueryError::row(row.key(), error))?;
        let mut cost = stats.points as u64;
        self.statistics.points += cost;
        self.statistics.duplicates += stats.duplicates as u64;
        self.statistics.skipped_cells += (stats.annotations + stats.histograms + stats.unknown_cells) as u64;

        let column = match self.spans.get_mut(scratch.tsuid.as_slice()) {
            Some(column) => column,
            None => {
                let tsuid = Tsuid::from_bytes(&scratch.tsuid, &self.layout.widths)
                    .map_err(|error| QueryError::row_series(row.key(), &error))?;
                let column = match &self.downsample {
                    None => Column::Raw(Points::default()),
                    Some((windows, function)) => {
                        cost += windows.filled_count();
                        Column::Downsampled(Downsampler::new(windows.clone(), *function))
                    }
                };
                self.spans.entry(tsuid).or_insert(column)
            }
        };
        let base_ms = key.base_time().millis();
        match column {
            Column::Raw(points) => points.extend_from_row(base_ms, &scratch.row),
            Column::Downsampled(downsampler) => {
                scratch.times_ms.clear();
                scratch.values.clear();
                let offsets = scratch.row.offsets_ms().iter();
                scratch
                    .times_ms
                    .extend(offsets.map(|offset| base_ms + i64::from(*offset)));
                scratch
                    .values
                    .extend(scratch.row.values().iter().map(Value::as_f64));
                downsampler.feed(&scratch.times_ms, &scratch.values);
            }
        }
        Ok(cost)
    }

    /// The spans, ascending by TSUID, and what was read for them.
    pub fn finish(self) -> (Vec<Span>, Statistics) {
        let points = |column| match column {
            Column::Raw(points) => points,
            Column::Downsampled(downsampler) => downsampler.finish(),
        };
        let mut spans: Vec<Span> = self
            .spans
            .into_iter()
            .map(|(tsuid, column)| Span {
                tsuid,
                points: points(column),
            })
            .collect();
        spans.sort_unstable_by(|a, b| a.tsuid.cmp(&b.tsuid));
        (spans, self.statistics)
    }
}

impl Points {
    /// Adds the points of a row that begins at `base_ms`.
    fn extend_from_row(&mut self, base_ms: i64, row: &RowPoints) {
        let times_ms = row.offsets_ms().iter().map(|offset| base_ms + i64::from(*offset));
        let all_ints = row.values().iter().all(Value::is_int);
        let no_ints = || !row.values().iter().any(Value::is_int);
        if self.is_empty() && !all_ints && no_ints() {
            *self = Self::new(Vec::new(), Values::Doubles(Vec::new()));
        }
        let (own_times, own_values) = self.columns_mut();
        match own_values {
            Values::Ints(values) if all_ints => {
                own_times.extend(times_ms);
                // Floats have been excluded.
                values.extend(row.values().iter().filter_map(|value| match value {
                    Value::Int(int) => Some(*int),
                    Value::Float(_) | Value::Double(_) => None,
                }));
            }
            Values::Doubles(values) if no_ints() => {
                own_times.extend(times_ms);
                values.extend(row.values().iter().map(Value::as_f64));
            }
            Values::Ints(_) | Values::Doubles(_) | Values::Mixed(_) => {
                for (time_ms, value) in times_ms.zip(row.values()) {
                    self.push(time_ms, Number::from(*value));
                }
            }
        }
    }
}

#[cfg(test)]
pub(super) mod tests;
