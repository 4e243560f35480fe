//! The downsampling that a query requests, and its text: `1m-avg`, `1dc-sum-zero`.
//!
//! The texts of the errors are OpenTSDB's.
//!
//! Source: OpenTSDB 2.4, `DownsamplingSpecification`.

use jiff::tz::TimeZone;

use crate::function::aggregator::{Aggregator, Function};
use crate::function::calendar::{CalendarInterval, CalendarUnit};
use crate::language::time::{TimeError, parse_duration, parse_units};

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
    /// Milliseconds, at least 1.
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

/// Error of a text that is no downsampling.
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
    /// A count of calendar units that is no 32-bit integer.
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
        // Unlike windows of a fixed length, calendar windows have nothing between number and unit.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_read_and_refused_in_the_words_of_opentsdb() {
        let parse = |text: &str| Downsample::parse(text, &TimeZone::UTC, false);
        let parsed = parse("1m-avg-NaN").unwrap();
        assert_eq!(parsed.interval, Interval::Fixed { length_ms: 60_000 });
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
