//! What an answer is made of.

use std::sync::Arc;
use std::time::Duration;

use oxtsdb_schema::Tsuid;

use super::budget::Held;
use super::points::Points;

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

/// A row that was left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DamagedRow {
    /// Its series.
    pub tsuid: Tsuid,
    /// The start of its hour, milliseconds since the epoch.
    pub hour_ms: i64,
    /// What is wrong.
    pub reason: String,
}

impl Statistics {
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
    /// Rows that were left out because their cells cannot be decoded.
    pub damaged_rows: u64,
    /// The first of them, at most [`MAX_DAMAGED_ROWS`].
    pub damaged: Vec<DamagedRow>,
    /// From the start of the query to its last frame.
    pub elapsed: Duration,
}
