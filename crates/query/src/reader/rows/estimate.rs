//! Estimates the reads of rows.
//!
//! The number of series comes from the query or from the index. The store counts rows of a scan in samples spread over
//! the range:
//!
//! ```text
//!   hours     ├───────────┼───────────┼───────────┼───────────┤
//!   counted   ██          ██          ██          ██             some rows from the start of each part
//! ```
//!
//! A part with more rows than the sample is halved; the rest of a part is extrapolated from its sample.

use std::collections::VecDeque;

use oxtsdb_row_store::{RangeMeasure, RowStore, StoreError, TableName};
use oxtsdb_schema::{BaseTime, RowKeyLayout};

use super::RowReader;
use super::access_path::{RowPath, Rows};
use crate::plan::hours::Hours;
use crate::reader::access_path::IndexUse;
use crate::reader::estimate::{Certainty, Estimate, Figure};

/// Sampled parts of a range, over all its salt buckets.
const PARTS: usize = 8;

/// Most rows that are counted in a part.
const ROWS_OF_A_PART: usize = 2048;

/// Most halvings of parts, over all salt buckets.
const SPLITS: usize = 32;

/// Most rows that are counted in one hour.
const ROWS_OF_AN_HOUR: usize = 65_536;

const HOUR_SECONDS: u64 = oxtsdb_schema::HOUR_SECONDS as u64;

/// Counted rows and bytes, and their extrapolation.
#[derive(Clone, Copy, Debug, Default)]
struct Counted {
    rows: f64,
    bytes: f64,
    /// Rows that were counted.
    rows_seen: u64,
    is_part: bool,
}

impl Counted {
    /// Adds rows that represent `factor` times as many.
    fn add(&mut self, measure: &RangeMeasure, factor: f64) {
        self.rows += as_f64(measure.rows) * factor;
        self.bytes += as_f64(measure.bytes) * factor;
        self.rows_seen += measure.rows;
        self.is_part |= factor > 1.0;
    }
}

impl RowPath {
    /// See [`AccessPath::estimate`]; visits no keys for single rows.
    ///
    /// [`AccessPath::estimate`]: crate::reader::access_path::AccessPath::estimate
    pub(super) async fn estimated(&self) -> Result<Estimate, StoreError> {
        let series = match (&self.rows, self.index_use) {
            (Rows::Single(rows), _) => Some(rows.series().len() as u64),
            (Rows::Ranges(_), IndexUse::Resolved { matching, .. }) => Some(matching),
            (Rows::Ranges(_), _) => self.selection.resolved_series().map(|series| series as u64),
        };
        let series = series.map(Figure::at_most);
        let ranges = match &self.rows {
            Rows::Single(rows) => {
                return Ok(Estimate {
                    series,
                    rows: Some(Figure::at_most(rows.count())),
                    bytes: (rows.count() == 0).then_some(Figure::new(0, Certainty::Exact)),
                    columns: None,
                });
            }
            Rows::Ranges(ranges) => ranges,
        };
        let RowReader {
            store, table, layout, ..
        } = &self.reader;
        let counted = count(&**store, table, ranges, self.hours, layout).await?;
        let figures = counted.map(|counted| {
            let jumps = self.selection.resolved_series();
            // The scan seeks to the rows of the resolved series.
            let share = match (jumps, self.index_use) {
                (Some(series), IndexUse::Resolved { listed, .. }) if listed > 0 => ratio(series, listed),
                _ => 1.0,
            };
            let certainty = if counted.is_part || share < 1.0 {
                Certainty::About
            } else {
                Certainty::Exact
            };
            // Blocks are read partially, and can change.
            let bytes = Figure::new(rounded(counted.bytes * share), Certainty::About);
            let rows = Figure {
                at_least: if self.selection.is_everything() {
                    counted.rows_seen
                } else {
                    // Rows that the store filters are not read.
                    0
                },
                ..Figure::new(rounded(counted.rows * share), certainty)
            };
            [rows, bytes]
        });
        Ok(Estimate {
            series,
            rows: figures.map(|[rows, _]| rows),
            bytes: figures.map(|[_, bytes]| bytes),
            columns: None,
        })
    }
}

/// Counts rows in parts of ranges, one range for each salt bucket; `None` if the store does not support it.
async fn count(
    store: &dyn RowStore,
    table: &TableName,
    ranges: &[(Vec<u8>, Vec<u8>)],
    hours: Hours,
    layout: &RowKeyLayout,
) -> Result<Option<Counted>, StoreError> {
    let base_at = layout.salt.width() + layout.widths.metric.bytes();
    let looked_at = ranges.len().clamp(1, PARTS);
    let mut all = Counted::default();
    for (start, stop) in ranges.iter().take(looked_at) {
        let mut parts = VecDeque::from(parts(hours, PARTS / looked_at));
        let mut splits = SPLITS / looked_at;
        while let Some(part) = parts.pop_front() {
            let from = with_hour(start, base_at, u64::from(part.start.seconds()));
            let to = match part.stop_seconds {
                last if last == hours.stop_seconds => stop.clone(),
                seconds => with_hour(start, base_at, seconds),
            };
            let limit = match part.count() {
                0 | 1 => ROWS_OF_AN_HOUR,
                _ => ROWS_OF_A_PART,
            };
            let Some(measure) = store.measure(table, &from, &to, limit).await? else {
                return Ok(None);
            };
            let mut factor = 1.0;
            if let Some(last) = &measure.last_key {
                let last = last.get(base_at..).and_then(|rest| rest.first_chunk().copied());
                let last = u64::from(last.map_or(0, u32::from_be_bytes));
                // The last hour was counted partially.
                let counted_hours = last.saturating_sub(part.start.seconds().into()) / HOUR_SECONDS;
                // If most hours were not counted, halving is more precise than extrapolation.
                if part.count() > 1 && (splits > 0 || counted_hours == 0) {
                    splits = splits.saturating_sub(1);
                    let halves = self::parts(part, 2);
                    if splits > 0 {
                        parts.extend(halves);
                        continue;
                    }
                    // Extrapolate from the first hour.
                    let end = with_hour(start, base_at, u64::from(part.start.seconds()) + HOUR_SECONDS);
                    if let Some(hour) = store.measure(table, &from, &end, ROWS_OF_AN_HOUR).await? {
                        all.add(&hour, ratio(part.count(), 1));
                    }
                    continue;
                }
                factor = ratio(part.count(), counted_hours.max(1)).max(1.0);
                all.is_part = true;
            }
            all.add(&measure, factor);
        }
    }
    let buckets = ratio(ranges.len(), looked_at as u64);
    all.is_part |= ranges.len() > looked_at;
    Ok(Some(Counted {
        rows: all.rows * buckets,
        bytes: all.bytes * buckets,
        ..all
    }))
}

/// Splits hours into at most `count` parts.
fn parts(hours: Hours, count: usize) -> Vec<Hours> {
    let length = hours.count().div_ceil(count.max(1)).max(1);
    let starts: Vec<BaseTime> = hours.iter().step_by(length).collect();
    let stops = starts.iter().skip(1).map(|start| u64::from(start.seconds()));
    let stops = stops.chain([hours.stop_seconds]);
    starts
        .iter()
        .zip(stops)
        .map(|(start, stop_seconds)| Hours {
            start: *start,
            stop_seconds,
        })
        .collect()
}

/// A key with the salt and metric of `key` and another hour.
fn with_hour(key: &[u8], base_at: usize, seconds: u64) -> Vec<u8> {
    let seconds = u32::try_from(seconds).unwrap_or(u32::MAX);
    [key.get(..base_at).unwrap_or_default(), &seconds.to_be_bytes()].concat()
}

#[expect(clippy::cast_precision_loss, reason = "an estimate")]
fn as_f64(value: u64) -> f64 {
    value as f64
}

fn ratio(part: usize, whole: u64) -> f64 {
    as_f64(part as u64) / as_f64(whole)
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "counts are not negative, and a float beyond the range becomes its end"
)]
fn rounded(value: f64) -> u64 {
    value.round() as u64
}

#[cfg(test)]
mod tests;
