//! The windows of downsampling.
//!
//! Windows of a fixed length begin at multiples of it from the epoch, whatever the zone, and their instant is their
//! start. So weeks begin on Thursdays. Windows of days, months and so on as a calendar has them are in
//! [`crate::function::calendar`].
//!
//! The first window is the first that begins inside the scanned range; see [`crate::plan`] for that
//! range.
//!
//! Source: OpenTSDB 2.4, `Downsampler`, `FillingDownsampler`.

use std::sync::Arc;

use crate::function::calendar::CalendarWindows;

/// The windows of a query.
#[derive(Clone, Debug, PartialEq)]
pub struct Windows {
    /// How they follow each other.
    pub layout: WindowLayout,
    /// Points before this instant do not count: no window that begins inside the scanned range has them.
    pub from_ms: i64,
    /// Windows that are there in any case.
    pub filled: Option<FilledWindows>,
}

/// How windows follow each other.
#[derive(Clone, Debug, PartialEq)]
pub enum WindowLayout {
    /// By a fixed length.
    Fixed {
        /// The length in milliseconds, at least 1.
        length_ms: i64,
    },
    /// By a calendar.
    Calendar(CalendarWindows),
    /// One, and points outside of it do not count.
    Whole {
        /// First instant inside, and the instant of the window.
        start_ms: i64,
        /// First instant outside.
        stop_ms: i64,
    },
}

/// Windows that have a value whether there are points or not.
#[derive(Clone, Debug, PartialEq)]
pub struct FilledWindows {
    /// Their starts, ascending; shared by all series.
    pub starts_ms: Arc<[i64]>,
    /// The value without points.
    pub value: f64,
}

impl FilledWindows {
    /// How many of them, from a place on, begin before an instant.
    pub(super) fn count_between(&self, from: usize, until_ms: i64) -> usize {
        self.starts_ms[from..].partition_point(|start| *start < until_ms)
    }
}

impl WindowLayout {
    /// Start of the window that holds an instant.
    pub fn floor(&self, time_ms: i64) -> i64 {
        match self {
            Self::Fixed { length_ms } => time_ms - time_ms.rem_euclid(*length_ms),
            Self::Calendar(calendar) => calendar.floor(time_ms),
            Self::Whole { start_ms, .. } => *start_ms,
        }
    }

    /// Start of the window behind the one that begins at `start_ms`.
    pub fn next(&self, start_ms: i64) -> i64 {
        match self {
            Self::Fixed { length_ms } => start_ms.saturating_add(*length_ms),
            Self::Calendar(calendar) => calendar.next(start_ms),
            Self::Whole { stop_ms, .. } => *stop_ms,
        }
    }

    /// Start of the first window that begins at an instant or behind it.
    pub fn ceil(&self, time_ms: i64) -> i64 {
        let floor = self.floor(time_ms);
        if floor == time_ms { floor } else { self.next(floor) }
    }

    /// Start of the window that holds an instant, counted on from one that begins at `start_ms`.
    pub(crate) fn advance(&self, start_ms: i64, time_ms: i64) -> i64 {
        match self {
            Self::Calendar(calendar) => calendar.advance(start_ms, time_ms),
            // Mostly it is the next one, which takes no division.
            Self::Fixed { length_ms } if time_ms - start_ms < length_ms.saturating_mul(2) => {
                start_ms + length_ms
            }
            Self::Fixed { .. } | Self::Whole { .. } => self.floor(time_ms),
        }
    }

    /// Starts of the windows from one that begins at `first_ms` to the last that begins before `stop_ms`.
    pub fn starts(&self, first_ms: i64, stop_ms: i64) -> impl Iterator<Item = i64> {
        std::iter::successors(Some(first_ms), |start| Some(self.next(*start)))
            .take_while(move |start| *start < stop_ms)
    }
}

impl Windows {
    /// Windows without a fill policy; all points count.
    pub const fn new(layout: WindowLayout) -> Self {
        Self {
            layout,
            from_ms: i64::MIN,
            filled: None,
        }
    }

    /// The instant up to which the windows of every series are final, when all points before `read_until_ms` have come:
    /// all that begin before it are. `None` where the windows of a series depend on its first point, and where there is
    /// only one.
    pub fn final_until(&self, read_until_ms: i64) -> Option<i64> {
        match &self.layout {
            WindowLayout::Whole { .. } => None,
            WindowLayout::Calendar(calendar) if calendar.follow_each_series() => None,
            WindowLayout::Fixed { .. } | WindowLayout::Calendar(_) => Some(self.layout.floor(read_until_ms)),
        }
    }

    /// How many windows there are at most in a range of this length; `None` if that takes a calendar.
    pub const fn count_in(&self, range_ms: u64) -> Option<u64> {
        match &self.layout {
            WindowLayout::Whole { .. } => Some(1),
            WindowLayout::Fixed { length_ms } => Some(range_ms / length_ms.unsigned_abs() + 2),
            WindowLayout::Calendar(_) => None,
        }
    }

    /// How many windows of a fill policy begin in a range, both ends inside.
    pub fn filled_between(&self, start_ms: i64, end_ms: i64) -> u64 {
        self.filled.as_ref().map_or(0, |filled| {
            let before = filled.starts_ms.partition_point(|start| *start < start_ms);
            filled.count_between(before, end_ms.saturating_add(1)) as u64
        })
    }

    /// How many windows a fill policy gives every series.
    pub fn filled_count(&self) -> u64 {
        self.filled
            .as_ref()
            .map_or(0, |filled| filled.starts_ms.len() as u64)
    }
}

/// The windows of a column of instants, kept for the next series: many have the same instants.
#[derive(Debug, Default)]
pub struct WindowRuns {
    times_ms: Vec<i64>,
    /// The start of each window with points, and the index behind its last point.
    pub(super) windows: Vec<(i64, usize)>,
}

impl WindowRuns {
    /// Points of the longest column that is kept.
    pub(super) const MOST_POINTS: usize = 64 << 10;

    /// The windows of instants that ascend; `layout` is always the same.
    pub(super) fn update(&mut self, times_ms: &[i64], layout: &WindowLayout) -> &Self {
        if self.times_ms == times_ms {
            return self;
        }
        self.times_ms.clear();
        self.times_ms.extend_from_slice(times_ms);
        self.windows.clear();
        let mut end_ms = i64::MIN;
        for (index, time_ms) in times_ms.iter().enumerate() {
            if *time_ms >= end_ms {
                let start_ms = match self.windows.last() {
                    Some((start_ms, _)) => layout.advance(*start_ms, *time_ms),
                    None => layout.floor(*time_ms),
                };
                end_ms = layout.next(start_ms);
                self.windows.push((start_ms, index));
            }
            if let Some((_, end)) = self.windows.last_mut() {
                *end = index + 1;
            }
        }
        self
    }
}
