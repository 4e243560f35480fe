//! Downsampling: one value for each window of a series.
//!
//! Windows of a fixed length begin at multiples of it from the epoch, whatever the zone, and their
//! instant is their start. So weeks begin on Thursdays. Those of days, months and so on as a calendar
//! has them are in [`crate::function::calendar`]. The result is always floating point.
//!
//! The first window is the first that begins inside the scanned range; see [`crate::plan`] for that
//! range. A fill policy gives a value to windows without points, up to the last that ends inside.
//!
//! The texts of the errors are OpenTSDB's.
//!
//! Source: OpenTSDB 2.4, `DownsamplingSpecification`, `Downsampler`, `FillingDownsampler`.

use std::sync::Arc;

use jiff::tz::TimeZone;
use oxtsdb_point_store::BlockSummary;

use crate::function::aggregator::{Accumulator, Aggregator, Function};
use crate::function::calendar::{CalendarInterval, CalendarUnit, CalendarWindows};
use crate::language::time::{TimeError, parse_duration, parse_units};
use crate::points::{Points, Values};

/// One value for each interval.
#[derive(Clone, Debug, PartialEq)]
pub struct Downsample {
    /// How long a window is.
    pub interval: Interval,
    /// Over the values of a window.
    pub function: Function,
    /// The name in the request: `sum`, `zimsum` and `pfsum` are one function.
    pub name: &'static str,
    /// The value of a window without points.
    pub fill: Fill,
}

/// How long a window is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Interval {
    /// So many milliseconds, at least 1.
    Fixed {
        /// The length.
        length_ms: i64,
    },
    /// Units of a calendar.
    Calendar(CalendarInterval),
    /// One window, the whole range of the query; its instant is the start of the range.
    WholeRange,
}

/// The value of a window without points.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Fill {
    /// None: there is no such window.
    #[default]
    None,
    /// Zero.
    Zero,
    /// Not a number.
    Nan,
    /// Not a number, which HTTP shows as `null`.
    Null,
}

/// Why a text is no downsampling.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DownsampleError {
    /// Fewer than two parts.
    #[error("Invalid downsampling specifier '{text}': must provide at least interval and function")]
    TooFewParts {
        /// The text.
        text: String,
    },
    /// More than three parts.
    #[error(
        "Invalid downsampling specifier '{text}': must consist of interval, function, and optional \
         fill policy"
    )]
    TooManyParts {
        /// The text.
        text: String,
    },
    /// The interval is no duration.
    #[error(transparent)]
    Interval(#[from] TimeError),
    /// No interval.
    #[error("String index out of range: -1")]
    NoInterval,
    /// An unknown function.
    #[error("No such downsampling function: {name}")]
    UnknownFunction {
        /// The name.
        name: String,
    },
    /// The aggregator that keeps series apart.
    #[error("cannot use the NONE aggregator for downsampling")]
    None,
    /// An unknown fill policy.
    #[error("Unrecognized fill policy: {name}")]
    UnknownFill {
        /// The name.
        name: String,
    },
    /// So many units of a calendar that it is no 32-bit integer.
    #[error("For input string: \"{text}\"")]
    CalendarCount {
        /// The number.
        text: String,
    },
    /// A fill policy that OpenTSDB knows by name only.
    #[error("unhandled fill policy")]
    ScalarFill,
}

impl Downsample {
    /// Downsampling by the function of an aggregator; `None` for `none`, which has no function.
    pub fn new(interval: Interval, aggregator: Aggregator, fill: Fill) -> Option<Self> {
        let function = aggregator.function()?;
        Some(Self {
            interval,
            function,
            name: aggregator.name(),
            fill,
        })
    }

    /// Reads `INTERVAL-FUNCTION[-FILL]`: `1m-avg`, `500ms-max-zero`, `0all-sum`. A `c` after the unit,
    /// or `use_calendar`, selects windows of a time zone's calendar: `1dc-sum`.
    ///
    /// # Errors
    ///
    /// [`DownsampleError`].
    pub fn parse(text: &str, zone: &TimeZone, use_calendar: bool) -> Result<Self, DownsampleError> {
        // Empty parts at the end do not count.
        let mut parts = text.trim_end_matches('-').split('-');
        let interval = parts.next().unwrap_or_default();
        let Some(function) = parts.next() else {
            return Err(DownsampleError::TooFewParts {
                text: text.to_owned(),
            });
        };
        let fill = parts.next();
        if parts.next().is_some() {
            return Err(DownsampleError::TooManyParts {
                text: text.to_owned(),
            });
        }
        let interval = parse_interval(interval, zone, use_calendar)?;
        let aggregator = Aggregator::parse(function);
        let aggregator = aggregator.ok_or_else(|| DownsampleError::UnknownFunction {
            name: function.to_owned(),
        })?;
        let fill = fill.map_or(Ok(Fill::None), parse_fill)?;
        Self::new(interval, aggregator, fill).ok_or(DownsampleError::None)
    }
}

fn parse_interval(text: &str, zone: &TimeZone, use_calendar: bool) -> Result<Interval, DownsampleError> {
    if text.is_empty() {
        return Err(DownsampleError::NoInterval);
    }
    if text.contains("all") {
        return Ok(Interval::WholeRange);
    }
    let (text, is_calendar) = match text.strip_suffix('c') {
        Some(text) => (text, true),
        None => (text, use_calendar),
    };
    if is_calendar {
        let (count, unit) = parse_units(text)?;
        // Unlike those of a fixed length these have nothing between number and unit.
        let suffix = if unit == CalendarUnit::Milliseconds { 2 } else { 1 };
        let number = &text[..text.len() - suffix];
        if number.parse::<i32>().is_err() {
            return Err(DownsampleError::CalendarCount {
                text: number.to_owned(),
            });
        }
        return Ok(Interval::Calendar(CalendarInterval {
            count,
            unit,
            zone: zone.clone(),
        }));
    }
    Ok(Interval::Fixed {
        length_ms: parse_duration(text)?,
    })
}

fn parse_fill(name: &str) -> Result<Fill, DownsampleError> {
    match name.to_ascii_lowercase().as_str() {
        "none" => Ok(Fill::None),
        "zero" => Ok(Fill::Zero),
        "nan" => Ok(Fill::Nan),
        "null" => Ok(Fill::Null),
        "scalar" => Err(DownsampleError::ScalarFill),
        _ => Err(DownsampleError::UnknownFill {
            name: name.to_owned(),
        }),
    }
}

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
    fn count_between(&self, from: usize, until_ms: i64) -> usize {
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

    /// Up to where the windows of every series are known, when all points before an instant have come:
    /// those that begin before it. `None` where the windows of a series depend on its first point, and
    /// where there is only one.
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
    windows: Vec<(i64, usize)>,
}

impl WindowRuns {
    /// Points of the longest column that is kept.
    const MOST_POINTS: usize = 64 << 10;

    /// The windows of instants that ascend; `layout` is always the same.
    fn of(&mut self, times_ms: &[i64], layout: &WindowLayout) -> &Self {
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

/// Downsamples one series, as its points come, in order of time.
#[derive(Clone, Debug)]
pub struct Downsampler {
    windows: Windows,
    fold: Accumulator,
    /// Start of the window that is being filled, and of the one behind it.
    open: Option<(i64, i64)>,
    times_ms: Vec<i64>,
    values: Vec<f64>,
    /// How many of the windows of the fill policy were taken.
    filled: usize,
}

impl Downsampler {
    /// No points yet.
    pub fn new(windows: Windows, function: Function) -> Self {
        let fold = Accumulator::new(function);
        Self {
            windows,
            fold,
            open: None,
            times_ms: Vec::new(),
            values: Vec::new(),
            filled: 0,
        }
    }

    /// Memory of the windows that it holds, in bytes.
    pub const fn held_bytes(&self) -> u64 {
        (self.times_ms.capacity() * size_of::<i64>() + self.values.capacity() * size_of::<f64>()) as u64
    }

    /// How many windows of a fill policy there are.
    pub fn filled_count(&self) -> u64 {
        self.windows.filled_count()
    }

    /// How many windows of a fill policy [`Downsampler::take`] would give.
    pub fn filled_until(&self, until_ms: i64) -> usize {
        self.windows
            .filled
            .as_ref()
            .map_or(0, |filled| filled.count_between(self.filled, until_ms))
    }

    /// Takes points; columns of one length. `runs` are those of a series before, with the same windows.
    pub fn feed(&mut self, times_ms: &[i64], values: &[f64], runs: &mut WindowRuns) {
        let (from_ms, stop_ms) = match self.windows.layout {
            WindowLayout::Whole { start_ms, stop_ms } => (start_ms, stop_ms),
            WindowLayout::Fixed { .. } | WindowLayout::Calendar(_) => (self.windows.from_ms, i64::MAX),
        };
        let from = times_ms.partition_point(|time| *time < from_ms);
        let to = times_ms.partition_point(|time| *time < stop_ms).max(from);
        let (times_ms, values) = (&times_ms[from..to], &values[from..to]);
        if self.open.is_none() && times_ms.len() <= WindowRuns::MOST_POINTS {
            self.feed_runs(runs.of(times_ms, &self.windows.layout), values);
        } else {
            self.feed_inside(times_ms, values);
        }
    }

    /// Takes the first points.
    fn feed_runs(&mut self, runs: &WindowRuns, values: &[f64]) {
        self.times_ms.reserve(runs.windows.len());
        self.values.reserve(runs.windows.len());
        let mut from = 0;
        for (start, end) in &runs.windows {
            self.close();
            self.fold.feed(&values[from..*end]);
            // The last one stays open.
            self.open = Some((*start, i64::MIN));
            from = *end;
        }
        if let Some((start, end)) = &mut self.open {
            *end = self.windows.layout.next(*start);
        }
    }

    fn feed_inside(&mut self, mut times_ms: &[i64], mut values: &[f64]) {
        while let Some(&first) = times_ms.first() {
            let end = self.open_at(first);
            // Not a binary search: windows are short.
            let inside = times_ms
                .iter()
                .position(|time| *time >= end)
                .unwrap_or(times_ms.len());
            self.fold.feed(&values[..inside]);
            (times_ms, values) = (&times_ms[inside..], &values[inside..]);
        }
    }

    /// Opens the window of an instant, unless it is open; returns the start of the one behind it.
    fn open_at(&mut self, time_ms: i64) -> i64 {
        let previous = match self.open {
            Some((_, end)) if time_ms < end => return end,
            previous => previous,
        };
        self.close();
        let layout = &self.windows.layout;
        let start = match previous {
            Some((start, _)) => layout.advance(start, time_ms),
            None => layout.floor(time_ms),
        };
        let end = layout.next(start);
        self.open = Some((start, end));
        end
    }

    /// Takes the points of a block, which [`Summarizer`](super::summary::Summarizer) accepts.
    pub(crate) fn feed_block(&mut self, block: &BlockSummary) {
        self.open_at(block.range.first_ms);
        self.fold.feed_block(block);
    }

    /// What the function has of the window that is being filled.
    pub(crate) const fn state(&self) -> f64 {
        self.fold.state()
    }

    fn close(&mut self) {
        if let Some((start, _)) = self.open.take() {
            self.times_ms.push(start);
            self.values.push(self.fold.take());
        }
    }

    /// The windows that begin before an instant, with their values, from where it was called last. All
    /// points before that instant have come, and it is the start of a window: see
    /// [`Windows::known_until`].
    pub fn take(&mut self, until_ms: i64) -> Points {
        if self.open.is_some_and(|(start, _)| start < until_ms) {
            self.close();
        }
        let (times_ms, values) = (
            std::mem::take(&mut self.times_ms),
            std::mem::take(&mut self.values),
        );
        match &self.windows.filled {
            None => Points::new(times_ms, Values::Doubles(values)),
            Some(filled) => {
                let from = self.filled;
                self.filled += filled.count_between(from, until_ms);
                fill(
                    &filled.starts_ms[from..self.filled],
                    filled.value,
                    &times_ms,
                    &values,
                )
            }
        }
    }
}

/// The windows of a fill policy, with the values of those that have one. Windows of the series that are
/// none of them are dropped.
fn fill(starts_ms: &[i64], filled: f64, times_ms: &[i64], values: &[f64]) -> Points {
    let mut own = times_ms.iter().zip(values).peekable();
    let value_at = |start: &i64| {
        while own.next_if(|(time_ms, _)| *time_ms < start).is_some() {}
        own.next_if(|(time_ms, _)| *time_ms == start)
            .map_or(filled, |(_, value)| *value)
    };
    let values = starts_ms.iter().map(value_at).collect();
    Points::new(starts_ms.to_vec(), Values::Doubles(values))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::points::Number;

    const MINUTE: i64 = 60_000;

    fn minutes() -> Windows {
        Windows::new(WindowLayout::Fixed { length_ms: MINUTE })
    }

    fn downsample(points: &Points, windows: Windows, function: Function) -> Points {
        let mut downsampler = Downsampler::new(windows, function);
        let values: Vec<f64> = points.iter().map(|(_, value)| value.as_f64()).collect();
        downsampler.feed(points.times_ms(), &values, &mut WindowRuns::default());
        downsampler.take(i64::MAX)
    }

    fn points(points: &[(i64, f64)]) -> Points {
        points
            .iter()
            .map(|(seconds, value)| (seconds * 1000, Number::Double(*value)))
            .collect()
    }

    fn pairs(points: &Points) -> Vec<(i64, f64)> {
        points
            .iter()
            .map(|(time_ms, value)| (time_ms / 1000, value.as_f64()))
            .collect()
    }

    #[test]
    fn windows_begin_at_multiples_of_their_length() {
        let series = points(&[(59, 1.0), (60, 2.0), (119, 4.0), (240, 8.0)]);
        let result = downsample(&series, minutes(), Function::Sum);
        assert_eq!(pairs(&result), [(0, 1.0), (60, 6.0), (240, 8.0)]);
    }

    #[test]
    fn portions_do_not_break_a_window() {
        let mut downsampler = Downsampler::new(minutes(), Function::Avg);
        let runs = &mut WindowRuns::default();
        downsampler.feed(&[1000, 2000], &[1.0, 2.0], runs);
        downsampler.feed(&[], &[], runs);
        downsampler.feed(&[3000, 61_000], &[6.0, 5.0], runs);
        assert_eq!(pairs(&downsampler.take(i64::MAX)), [(0, 3.0), (60, 5.0)]);
    }

    proptest! {
        /// Series after each other, with the instants of one before or others, whole or in portions.
        #[test]
        fn windows_of_shared_instants_are_those_of_each_point(
            columns in prop::collection::vec(prop::collection::btree_set(-400_000_i64..400_000, 0..40), 1..3),
            picks in prop::collection::vec((0_usize..3, 0_usize..40), 1..6),
            length_ms in 1_i64..200_000,
            whole in any::<bool>(),
        ) {
            let layout = if whole {
                WindowLayout::Whole { start_ms: -length_ms, stop_ms: length_ms }
            } else {
                WindowLayout::Fixed { length_ms }
            };
            let windows = Windows::new(layout);
            let mut runs = WindowRuns::default();
            for (pick, split) in picks {
                let times_ms: Vec<i64> = columns[pick % columns.len()].iter().copied().collect();
                let values: Vec<f64> = (0_u32..).map(f64::from).take(times_ms.len()).collect();
                let mut by_run = Downsampler::new(windows.clone(), Function::Sum);
                let split = split.min(times_ms.len());
                by_run.feed(&times_ms[..split], &values[..split], &mut runs);
                by_run.feed(&times_ms[split..], &values[split..], &mut runs);
                let mut by_point = Downsampler::new(windows.clone(), Function::Sum);
                for (time_ms, value) in times_ms.iter().zip(&values) {
                    by_point.feed(&[*time_ms], &[*value], &mut WindowRuns::default());
                }
                prop_assert_eq!(by_run.take(i64::MAX), by_point.take(i64::MAX));
            }
        }
    }

    #[test]
    fn a_fill_policy_gives_every_window_of_the_scan_a_value() {
        let layout = WindowLayout::Fixed {
            length_ms: 7 * MINUTE,
        };
        let from_ms = layout.ceil(60 * MINUTE);
        let starts_ms: Arc<[i64]> = layout.starts(from_ms, layout.floor(120 * MINUTE)).collect();
        assert_eq!(
            (starts_ms[0] / MINUTE, starts_ms[7] / MINUTE, starts_ms.len()),
            (63, 112, 8)
        );
        let windows = Windows {
            layout,
            from_ms,
            filled: Some(FilledWindows {
                starts_ms,
                value: 0.0,
            }),
        };
        // The first point is before the first window that begins inside the scan.
        let series = points(&[(3600, 100.0), (63 * 60, 1.0), (90 * 60, 2.0)]);
        let result = downsample(&series, windows, Function::Sum);
        let values: Vec<f64> = pairs(&result).into_iter().map(|(_, value)| value).collect();
        assert_eq!(values, [1.0, 0.0, 0.0, 2.0, 0.0, 0.0, 0.0, 0.0]);
    }

    #[test]
    fn the_whole_range_is_one_window_at_its_start() {
        let series = points(&[(-10, 1000.0), (0, 1.0), (10, 2.0), (20, 4.0)]);
        let windows = Windows::new(WindowLayout::Whole {
            start_ms: 0,
            stop_ms: 20_000,
        });
        assert_eq!(pairs(&downsample(&series, windows, Function::Sum)), [(0, 3.0)]);
        let empty = Windows::new(WindowLayout::Whole {
            start_ms: 11_000,
            stop_ms: 20_000,
        });
        assert!(downsample(&series, empty, Function::Sum).is_empty());
    }

    #[test]
    fn texts_are_read_and_refused_in_the_words_of_opentsdb() {
        let parse = |text: &str| Downsample::parse(text, &TimeZone::UTC, false);
        let parsed = parse("1m-avg-NaN").unwrap();
        assert_eq!(parsed.interval, Interval::Fixed { length_ms: MINUTE });
        assert_eq!((parsed.function, parsed.fill), (Function::Avg, Fill::Nan));
        assert_eq!(parse("0all-sum").unwrap().interval, Interval::WholeRange);
        for (text, expected) in [
            (
                "1m",
                "Invalid downsampling specifier '1m': must provide at least interval and function",
            ),
            (
                "1m-avg-nan-x",
                "Invalid downsampling specifier '1m-avg-nan-x': must consist of interval, function, and \
                 optional fill policy",
            ),
            ("1m-foo", "No such downsampling function: foo"),
            ("1m-none", "cannot use the NONE aggregator for downsampling"),
            ("1m-avg-foo", "Unrecognized fill policy: foo"),
            ("1m-avg-scalar", "unhandled fill policy"),
            ("0m-avg", "Zero or negative duration: 0m"),
            ("1x-avg", "Invalid duration (suffix): 1x"),
            ("0ALL-avg", "Zero or negative duration: 0ALL"),
            ("1.5dc-sum", "For input string: \"1.5\""),
            ("99999999999dc-sum", "For input string: \"99999999999\""),
            ("0dc-sum", "Zero or negative duration: 0d"),
            ("c-sum", "Cannot parse null or empty duration"),
            ("-sum", "String index out of range: -1"),
            ("1-sum", "Invalid duration, must have an integer and unit: 1"),
            (
                "1m-",
                "Invalid downsampling specifier '1m-': must provide at least interval and function",
            ),
        ] {
            assert_eq!(parse(text).unwrap_err().to_string(), expected);
        }
    }
}
