//! What an answer is made of.

use std::sync::Arc;
use std::time::Duration;

use oxtsdb_row_store::{DamageLog, DamagedRange};
use oxtsdb_schema::{HOUR_SECONDS, RowKeyLayout, Tsuid};

use crate::exec::budget::Held;
use crate::plan::hours::Hours;
use crate::points::Points;

/// A part of an answer. For each question its groups come first, with more points of them if they are
/// not whole, then `Done`; questions are answered in their order. `Statistics` is the last frame of an
/// answer that is whole.
#[derive(Clone, Debug, PartialEq)]
pub enum Frame {
    /// A group, with all its points or the first of them.
    Group(Group),
    /// More points of a group that is not whole, after those it has had.
    More {
        /// Which: [`Group::number`].
        number: usize,
        /// The points.
        points: Points,
    },
    /// A question is answered.
    Done {
        /// Which, from 0.
        query: usize,
        /// Its groups.
        groups: usize,
    },
    /// What the whole answer took.
    Statistics(Statistics),
}

/// A frame, with the memory that it takes: released when the client's side is done with it.
#[derive(Debug)]
pub struct Delivery {
    /// The frame.
    pub frame: Frame,
    /// Its memory.
    pub held: Held,
}

impl Frame {
    /// The memory that it takes, in bytes.
    pub fn held_bytes(&self) -> u64 {
        match self {
            Self::Group(group) => group.held_bytes(),
            Self::More { points, .. } => points.held_bytes(),
            Self::Done { .. } | Self::Statistics(_) => 0,
        }
    }
}

impl Group {
    /// The memory that it takes, in bytes. Names are shared with others.
    pub fn held_bytes(&self) -> u64 {
        let names = (2 * self.tags.len() + self.aggregate_tags.len()) * size_of::<Arc<str>>();
        let tsuids: usize = self
            .tsuids
            .iter()
            .map(|tsuid| size_of::<Tsuid>() + tsuid.as_bytes().len())
            .sum();
        self.points.held_bytes() + (size_of::<Self>() + names + tsuids) as u64
    }
}

/// Series that became one result.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// Its number in the answer, from 0.
    pub number: usize,
    /// Whether it has all its points.
    pub is_whole: bool,
    /// The question, from 0.
    pub query: usize,
    /// Name of the metric.
    pub metric: Arc<str>,
    /// Tags that have one value over all series that have the key, as key and value, by tag key UID.
    pub tags: Vec<(Arc<str>, Arc<str>)>,
    /// Keys of the tags that have several values, by tag key UID.
    pub aggregate_tags: Vec<Arc<str>>,
    /// The series, in the order in which their values were taken.
    pub tsuids: Vec<Tsuid>,
    /// The points in the range of the query; none if the series have points nearby only.
    pub points: Points,
}

/// Damaged rows that an answer tells one by one.
pub const MAX_DAMAGED_ROWS: usize = 100;

/// A row that was left out, or a range of rows that the store has lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DamagedRow {
    /// Its series; `None`: rows of several series may be lost.
    pub tsuid: Option<Tsuid>,
    /// The first hour of which points are missing, milliseconds since the epoch.
    pub from_ms: i64,
    /// The first instant behind them.
    pub until_ms: i64,
    /// What is wrong, and where.
    pub reason: String,
}

impl DamagedRow {
    /// A row that cannot be decoded.
    pub(super) const fn of_row(tsuid: Tsuid, hour_ms: i64, reason: String) -> Self {
        Self {
            tsuid: Some(tsuid),
            from_ms: hour_ms,
            until_ms: hour_ms + HOUR_SECONDS as i64 * 1000,
            reason,
        }
    }

    /// Rows that the store has lost, as far as they lie in the hours of a plan.
    fn of_range(range: &DamagedRange, layout: &RowKeyLayout, hours: &Hours) -> Self {
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
            .extend(ranges.map(|range| DamagedRow::of_range(range, layout, hours)));
    }

    /// Adds what was read by another part of the query.
    pub fn add_read(&mut self, other: Self) {
        self.points += other.points;
        self.duplicates += other.duplicates;
        self.skipped_cells += other.skipped_cells;
        self.damaged_rows += other.damaged_rows;
        let room = MAX_DAMAGED_ROWS.saturating_sub(self.damaged.len());
        self.damaged.extend(other.damaged.into_iter().take(room));
    }
}

/// What an answer took, and how sure it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Series with rows in the range.
    pub series: u64,
    /// Rows read from the store, those that filters dropped by their names included.
    pub rows: u64,
    /// Bytes of these rows: keys, qualifiers, values.
    pub bytes: u64,
    /// Points decoded.
    pub points: u64,
    /// Points in the answer.
    pub points_sent: u64,
    /// Instants that had several values, of which one was taken.
    pub duplicates: u64,
    /// Cells passed over: annotations, histograms and unknown ones.
    pub skipped_cells: u64,
    /// Rows that were left out because their cells cannot be decoded, and ranges of rows that were lost.
    pub damaged_rows: u64,
    /// The first of them, at most [`MAX_DAMAGED_ROWS`].
    pub damaged: Vec<DamagedRow>,
    /// From the start of the query to its last frame.
    pub elapsed: Duration,
}
