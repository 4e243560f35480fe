//! Downsampling: one value for each window of a series.
//!
//! Windows of a fixed length begin at multiples of it from the epoch, whatever the zone, and their
//! instant is their start. So weeks begin on Thursdays. The result is always floating point.
//!
//! A fill policy gives a value to windows without points. The windows are then those from the first
//! that begins inside the scanned range to the last that does; see [`super::plan`] for that range.
//!
//! The texts of the errors are OpenTSDB's.
//!
//! Source: OpenTSDB 2.4, `DownsamplingSpecification`, `Downsampler`, `FillingDownsampler`.

use super::function::{Aggregator, Fold, Function};
use super::points::{Points, Values};
use super::time::{TimeError, parse_duration};

/// One value for each interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Downsample {
    /// How long a window is.
    pub interval: Interval,
    /// Over the values of a window.
    pub function: Function,
    /// The function as it was asked for: `sum`, `zimsum` and `pfsum` are one function.
    pub name: &'static str,
    /// The value of a window without points.
    pub fill: Fill,
}

/// How long a window is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Interval {
    /// So many milliseconds, at least 1.
    Fixed {
        /// The length.
        length_ms: i64,
    },
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
    /// A fill policy that OpenTSDB knows by name only.
    #[error("unhandled fill policy")]
    ScalarFill,
    /// Windows of calendar days, months and so on.
    #[error("Calendar intervals are not supported: '{text}'")]
    Calendar {
        /// The text.
        text: String,
    },
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

    /// Reads `INTERVAL-FUNCTION[-FILL]`: `1m-avg`, `500ms-max-zero`, `0all-sum`.
    ///
    /// # Errors
    ///
    /// [`DownsampleError`].
    pub fn parse(text: &str) -> Result<Self, DownsampleError> {
        let mut parts = text.split('-');
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
        let interval = parse_interval(interval)?;
        let aggregator = Aggregator::parse(function);
        let aggregator = aggregator.ok_or_else(|| DownsampleError::UnknownFunction {
            name: function.to_owned(),
        })?;
        let fill = fill.map_or(Ok(Fill::None), parse_fill)?;
        Self::new(interval, aggregator, fill).ok_or(DownsampleError::None)
    }
}

fn parse_interval(text: &str) -> Result<Interval, DownsampleError> {
    if text.contains("all") {
        return Ok(Interval::WholeRange);
    }
    if text.ends_with('c') {
        return Err(DownsampleError::Calendar {
            text: text.to_owned(),
        });
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
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Windows {
    /// Of a fixed length.
    Fixed {
        /// The length in milliseconds, at least 1.
        length_ms: i64,
        /// Windows that are there in any case, and the value of those without points.
        fill: Option<FillRange>,
    },
    /// One, and points outside of it do not count.
    Whole {
        /// First instant inside, and the instant of the window.
        start_ms: i64,
        /// First instant outside.
        stop_ms: i64,
    },
}

impl Windows {
    /// How many windows a fill policy gives every series.
    pub fn filled(&self) -> u64 {
        match self {
            Self::Fixed {
                length_ms,
                fill: Some(fill),
            } => fill.count(*length_ms),
            Self::Fixed { fill: None, .. } | Self::Whole { .. } => 0,
        }
    }
}

/// Windows that have a value whether there are points or not.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FillRange {
    /// Start of the first.
    pub first_ms: i64,
    /// Where the last ends.
    pub stop_ms: i64,
    /// The value without points.
    pub value: f64,
}

impl FillRange {
    /// The windows of a length that begin inside a scanned range.
    pub fn of_scan(length_ms: i64, scan_start_ms: i64, scan_stop_ms: i64, value: f64) -> Self {
        let floor = |time_ms: i64| time_ms - time_ms.rem_euclid(length_ms);
        let below = floor(scan_start_ms);
        let first_ms = if below == scan_start_ms {
            below
        } else {
            below.saturating_add(length_ms)
        };
        Self {
            first_ms,
            stop_ms: floor(scan_stop_ms).max(first_ms),
            value,
        }
    }

    /// How many windows there are.
    pub const fn count(&self, length_ms: i64) -> u64 {
        (self.stop_ms - self.first_ms).unsigned_abs() / length_ms.unsigned_abs()
    }
}

/// Downsamples one series, as its points come, in order of time.
#[derive(Clone, Debug)]
pub struct Downsampler {
    windows: Windows,
    fold: Fold,
    /// Start of the window that is being filled.
    open: Option<i64>,
    times_ms: Vec<i64>,
    values: Vec<f64>,
}

impl Downsampler {
    /// No points yet.
    pub fn new(windows: Windows, function: Function) -> Self {
        let fold = Fold::new(function);
        Self {
            windows,
            fold,
            open: None,
            times_ms: Vec::new(),
            values: Vec::new(),
        }
    }

    /// Takes points; columns of one length.
    pub fn feed(&mut self, times_ms: &[i64], values: &[f64]) {
        match self.windows {
            Windows::Fixed { length_ms, fill } => {
                let from = fill.map_or(0, |fill| times_ms.partition_point(|time| *time < fill.first_ms));
                self.feed_fixed(length_ms, &times_ms[from..], &values[from..]);
            }
            Windows::Whole { start_ms, stop_ms } => {
                let from = times_ms.partition_point(|time| *time < start_ms);
                let to = times_ms.partition_point(|time| *time < stop_ms).max(from);
                if from < to {
                    self.open = Some(start_ms);
                    self.fold.feed(&values[from..to]);
                }
            }
        }
    }

    fn feed_fixed(&mut self, length_ms: i64, mut times_ms: &[i64], mut values: &[f64]) {
        while let Some(first) = times_ms.first() {
            let start = first - first.rem_euclid(length_ms);
            if self.open != Some(start) {
                self.close();
                self.open = Some(start);
            }
            // Not a binary search: windows are short.
            let end = start.saturating_add(length_ms);
            let inside = times_ms
                .iter()
                .position(|time| *time >= end)
                .unwrap_or(times_ms.len());
            self.fold.feed(&values[..inside]);
            (times_ms, values) = (&times_ms[inside..], &values[inside..]);
        }
    }

    fn close(&mut self) {
        if let Some(start) = self.open.take() {
            self.times_ms.push(start);
            self.values.push(self.fold.take());
        }
    }

    /// The windows with their values.
    pub fn finish(mut self) -> Points {
        self.close();
        if let Windows::Fixed {
            length_ms,
            fill: Some(fill),
        } = self.windows
        {
            self.fill(length_ms, fill);
        }
        Points::new(self.times_ms, Values::Doubles(self.values))
    }

    fn fill(&mut self, length_ms: i64, fill: FillRange) {
        let count = usize::try_from(fill.count(length_ms)).unwrap_or(usize::MAX);
        let times_ms: Vec<i64> = std::iter::successors(Some(fill.first_ms), |time| Some(time + length_ms))
            .take(count)
            .collect();
        let mut values = vec![fill.value; times_ms.len()];
        for (time_ms, value) in self.times_ms.iter().zip(&self.values) {
            let index = usize::try_from((time_ms - fill.first_ms) / length_ms).ok();
            if let Some(slot) = index.and_then(|index| values.get_mut(index)) {
                *slot = *value;
            }
        }
        (self.times_ms, self.values) = (times_ms, values);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::query::points::Number;

    const MINUTE: i64 = 60_000;

    fn downsample(points: &Points, windows: Windows, function: Function) -> Points {
        let mut downsampler = Downsampler::new(windows, function);
        let values: Vec<f64> = points.iter().map(|(_, value)| value.as_f64()).collect();
        downsampler.feed(points.times_ms(), &values);
        downsampler.finish()
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
        let windows = Windows::Fixed {
            length_ms: MINUTE,
            fill: None,
        };
        let result = downsample(&series, windows, Function::Sum);
        assert_eq!(pairs(&result), [(0, 1.0), (60, 6.0), (240, 8.0)]);
    }

    #[test]
    fn portions_do_not_break_a_window() {
        let mut downsampler = Downsampler::new(
            Windows::Fixed {
                length_ms: MINUTE,
                fill: None,
            },
            Function::Avg,
        );
        downsampler.feed(&[1000, 2000], &[1.0, 2.0]);
        downsampler.feed(&[], &[]);
        downsampler.feed(&[3000, 61_000], &[6.0, 5.0]);
        assert_eq!(pairs(&downsampler.finish()), [(0, 3.0), (60, 5.0)]);
    }

    #[test]
    fn a_fill_policy_gives_every_window_of_the_scan_a_value() {
        let fill = FillRange::of_scan(7 * MINUTE, 3_600_000, 7_200_000, 0.0);
        assert_eq!(
            (
                fill.first_ms / MINUTE,
                fill.stop_ms / MINUTE,
                fill.count(7 * MINUTE)
            ),
            (63, 119, 8)
        );
        let windows = Windows::Fixed {
            length_ms: 7 * MINUTE,
            fill: Some(fill),
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
        let windows = Windows::Whole {
            start_ms: 0,
            stop_ms: 20_000,
        };
        assert_eq!(pairs(&downsample(&series, windows, Function::Sum)), [(0, 3.0)]);
        let empty = Windows::Whole {
            start_ms: 11_000,
            stop_ms: 20_000,
        };
        assert!(downsample(&series, empty, Function::Sum).is_empty());
    }

    #[test]
    fn texts_are_read_and_refused_in_the_words_of_opentsdb() {
        let parsed = Downsample::parse("1m-avg-NaN").unwrap();
        assert_eq!(parsed.interval, Interval::Fixed { length_ms: MINUTE });
        assert_eq!((parsed.function, parsed.fill), (Function::Avg, Fill::Nan));
        assert_eq!(
            Downsample::parse("0all-sum").unwrap().interval,
            Interval::WholeRange
        );
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
            ("1dc-sum", "Calendar intervals are not supported: '1dc'"),
        ] {
            assert_eq!(Downsample::parse(text).unwrap_err().to_string(), expected);
        }
    }
}
