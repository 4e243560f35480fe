//! Statistics of a query, and the damage that it skipped.

use std::sync::Arc;
use std::time::Duration;

use oxtsdb_row_store::{DamageLog, DamagedRange};
use oxtsdb_schema::{HOUR_SECONDS, RowKeyLayout, Tsuid};

use crate::plan::hours::Hours;

/// Damaged rows that a result lists at most.
pub(crate) const MAX_DAMAGED_ROWS: usize = 100;

/// A row that was left out, or a range of rows that the store has lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DamagedRow {
    /// Its series; `None`: rows of several series may be lost.
    pub tsuid: Option<Tsuid>,
    /// The first hour with missing points, milliseconds since the epoch.
    pub from_ms: i64,
    /// The first timestamp after them.
    pub until_ms: i64,
    /// The reason, and where it occurred.
    pub reason: String,
}

impl DamagedRow {
    /// A row that cannot be decoded.
    pub(crate) const fn new(tsuid: Tsuid, hour_ms: i64, reason: String) -> Self {
        Self {
            tsuid: Some(tsuid),
            from_ms: hour_ms,
            until_ms: hour_ms + HOUR_SECONDS as i64 * 1000,
            reason,
        }
    }

    /// Rows that the store has lost, as far as they lie in the hours of a plan.
    fn from_range(range: &DamagedRange, layout: &RowKeyLayout, hours: &Hours) -> Self {
        let base_at = layout.salt.width() + layout.widths.metric.bytes();
        // A range within one metric names the hours, any other may have lost all.
        let is_of_one_metric =
            range.start.get(..base_at) == range.stop.get(..base_at) && !range.start.is_empty();
        let hour_ms = |key: &[u8]| {
            let seconds = key.get(base_at..)?.first_chunk()?;
            is_of_one_metric.then_some(i64::from(u32::from_be_bytes(*seconds)) * 1000)
        };
        let (first_ms, stop_ms) = (hours.start.millis(), hours.stop_ms());
        let from_ms = hour_ms(&range.start).unwrap_or(first_ms).clamp(first_ms, stop_ms);
        let last_ms = hour_ms(&range.stop).map(|last_ms| last_ms + HOUR_SECONDS as i64 * 1000);
        Self {
            tsuid: None,
            from_ms,
            until_ms: last_ms.unwrap_or(stop_ms).clamp(from_ms, stop_ms),
            reason: range.to_string(),
        }
    }
}

impl Statistics {
    /// Adds the damage that reading rows in some hours passed over.
    pub fn add_damage(&mut self, damage: &DamageLog, layout: &RowKeyLayout, hours: &Hours) {
        let ranges = damage.ranges();
        self.damaged_rows += ranges.len() as u64 + damage.omitted();
        let space = MAX_DAMAGED_ROWS.saturating_sub(self.damaged.len());
        let ranges = ranges.iter().take(space);
        self.damaged
            .extend(ranges.map(|range| DamagedRow::from_range(range, layout, hours)));
    }

    /// Adds the counts of another part of the query.
    pub fn add_read(&mut self, other: Self) {
        self.points += other.points;
        self.duplicates += other.duplicates;
        self.skipped_cells += other.skipped_cells;
        self.damaged_rows += other.damaged_rows;
        let space = MAX_DAMAGED_ROWS.saturating_sub(self.damaged.len());
        self.damaged.extend(other.damaged.into_iter().take(space));
    }
}

/// Rollups that a sub-query read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RollupUse {
    /// The sub-query, from 0.
    pub query: usize,
    /// The interval of the rollups.
    pub interval: Arc<str>,
    /// Their table.
    pub table: Arc<str>,
}

/// Counts of the reads of a query, and the points that its result is missing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Series with rows in the range.
    pub series: u64,
    /// Rows read from the store, including those that filters dropped by name.
    pub rows: u64,
    /// Bytes of these rows: keys, qualifiers, values.
    pub bytes: u64,
    /// Points decoded.
    pub points: u64,
    /// Points in the result.
    pub points_sent: u64,
    /// Instants with several values; the result has one of them.
    pub duplicates: u64,
    /// Cells skipped: annotations, histograms and unknown ones.
    pub skipped_cells: u64,
    /// Rows that were left out because their cells cannot be decoded, and ranges of rows that were lost.
    pub damaged_rows: u64,
    /// The first of them, at most `MAX_DAMAGED_ROWS`.
    pub damaged: Vec<DamagedRow>,
    /// The sub-queries that were served by rollups, ascending; the others read points.
    pub rollups: Vec<RollupUse>,
    /// From the start of the query to its last frame.
    pub elapsed: Duration,
}
