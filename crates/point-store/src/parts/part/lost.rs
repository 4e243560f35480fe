//! Lost points: the series and the instants that a damaged part may have had.

use super::SeriesKey;
use super::index::ALL_KEYS;
use crate::TimeRange;

/// A range of series that may have lost points.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lost {
    /// The first series.
    pub first: SeriesKey,
    /// The last series.
    pub last: SeriesKey,
    /// The instants that the points may have had.
    pub range: TimeRange,
}

impl Lost {
    /// Whether all points of another range are in this one.
    pub fn contains(&self, other: &Self) -> bool {
        let has_instants =
            self.range.first_ms <= other.range.first_ms && other.range.last_ms <= self.range.last_ms;
        self.first <= other.first && other.last <= self.last && has_instants
    }

    /// Points of any series.
    pub const fn all(range: TimeRange) -> Self {
        Self {
            first: ALL_KEYS.first,
            last: ALL_KEYS.last,
            range,
        }
    }
}
