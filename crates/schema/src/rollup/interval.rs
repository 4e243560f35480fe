//! An interval of rollups: its tables and the span of their rows.

use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use thiserror::Error;

use super::{MAX_OFFSET, RollupError};
use crate::timestamp::{BaseTime, HOUR_SECONDS};

const DAY_SECONDS: u32 = 86_400;

/// The fewest intervals of a row.
const MIN_INTERVALS: u64 = 12;

/// The most intervals of a row that OpenTSDB accepts.
const MAX_INTERVALS: u64 = 7774;

/// The time that a row covers. All spans begin at full hours of UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowSpan {
    /// Hours, counted from the epoch.
    Hours(u32),
    /// A day.
    Day,
    /// A month.
    Month,
    /// A year.
    Year,
}

/// Why an interval is rejected. Messages of OpenTSDB where it has one.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum IntervalError {
    /// No table.
    #[error("The rollup table cannot be null or empty")]
    NoTable,
    /// No table of pre-aggregates.
    #[error("The pre-aggregate rollup table cannot be null or empty")]
    NoPreAggregationTable,
    /// Not a duration.
    #[error("{field} `{text}` is not a duration of whole seconds such as 1h")]
    Duration {
        /// The field.
        field: &'static str,
        /// Its text.
        text: String,
    },
    /// A span of another unit.
    #[error("Unrecogznied span '{unit}'")]
    SpanUnit {
        /// The unit.
        unit: String,
    },
    /// Several days, months or years.
    #[error("Multipliers are only usable with the 'h' unit")]
    Multiplier,
    /// An odd number of hours.
    #[error("The multiplier must be 1 or an even value")]
    OddMultiplier,
    /// An interval as long as the row.
    #[error("Interval [{seconds}] is too large for the span [{unit}]")]
    TooLong {
        /// The interval.
        seconds: u64,
        /// The unit of the span.
        unit: String,
    },
    /// More intervals than a row may have.
    #[error(
        "Too many intervals [{count}] in the span. Must be smaller than [{MAX_INTERVALS}] to fit in 14 bits"
    )]
    TooMany {
        /// Intervals of a row.
        count: u64,
    },
    /// Fewer intervals than a row must have.
    #[error("Not enough intervals [{count}] for the span. Must be at least [{MIN_INTERVALS}]")]
    TooFew {
        /// Intervals of a row.
        count: u64,
    },
}

/// An interval and where its rollups are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RollupInterval {
    name: String,
    table: String,
    pre_aggregation_table: String,
    row_span_text: String,
    row_span: RowSpan,
    seconds: u32,
    intervals: u16,
    is_default: bool,
    delay_sla_seconds: Option<u32>,
}

/// The texts of an interval in the configuration.
#[derive(Debug, Default, serde::Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct IntervalText {
    table: Option<String>,
    pre_aggregation_table: Option<String>,
    pub(super) interval: Option<String>,
    row_span: Option<String>,
    default_interval: bool,
    delay_sla: Option<String>,
}

impl TryFrom<IntervalText> for RollupInterval {
    type Error = IntervalError;

    fn try_from(text: IntervalText) -> Result<RollupInterval, IntervalError> {
        let named = |text: Option<String>| text.filter(|text| !text.is_empty());
        let row_span_text = text.row_span.unwrap_or_default();
        let (multiplier, unit) = split_duration("rowSpan", &row_span_text)?;
        let table = named(text.table).ok_or(IntervalError::NoTable)?;
        let pre_aggregation_table =
            named(text.pre_aggregation_table).ok_or(IntervalError::NoPreAggregationTable)?;
        let (row_span, longest) = row_span(multiplier, unit)?;
        let name = text.interval.unwrap_or_default();
        let seconds = parse_seconds("interval", &name)?;
        let delay_sla_seconds = named(text.delay_sla)
            .map(|delay| parse_seconds("delaySla", &delay))
            .transpose()?;
        if u64::from(seconds) >= longest {
            return Err(IntervalError::TooLong {
                seconds: seconds.into(),
                unit: unit.to_owned(),
            });
        }
        let count = longest / u64::from(seconds);
        if count > MAX_INTERVALS {
            return Err(IntervalError::TooMany { count });
        }
        if count < MIN_INTERVALS {
            return Err(IntervalError::TooFew { count });
        }
        Ok(RollupInterval {
            name,
            table,
            pre_aggregation_table,
            row_span_text,
            row_span,
            seconds,
            // At most `MAX_INTERVALS`.
            intervals: u16::try_from(count).unwrap_or(u16::MAX),
            is_default: text.default_interval,
            delay_sla_seconds,
        })
    }
}

/// A span, and the most seconds that OpenTSDB counts for it.
fn row_span(multiplier: u64, unit: &str) -> Result<(RowSpan, u64), IntervalError> {
    let longest = match unit {
        "h" => u64::from(HOUR_SECONDS),
        "d" => u64::from(DAY_SECONDS),
        "n" => 32 * u64::from(DAY_SECONDS),
        "y" => 366 * u64::from(DAY_SECONDS),
        _ => {
            return Err(IntervalError::SpanUnit {
                unit: unit.to_owned(),
            });
        }
    };
    let hours = || u32::try_from(multiplier).ok()?.checked_mul(HOUR_SECONDS);
    match (unit, multiplier) {
        ("h", multiplier) if multiplier > 1 && multiplier % 2 != 0 => Err(IntervalError::OddMultiplier),
        ("h", multiplier) => match hours() {
            Some(seconds) => Ok((RowSpan::Hours(seconds / HOUR_SECONDS), seconds.into())),
            None => Err(IntervalError::Duration {
                field: "rowSpan",
                text: format!("{multiplier}h"),
            }),
        },
        (_, multiplier) if multiplier > 1 => Err(IntervalError::Multiplier),
        ("d", _) => Ok((RowSpan::Day, longest)),
        ("n", _) => Ok((RowSpan::Month, longest)),
        _ => Ok((RowSpan::Year, longest)),
    }
}

/// The number and the unit of a duration.
fn split_duration<'a>(field: &'static str, text: &'a str) -> Result<(u64, &'a str), IntervalError> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at_checked(digits).unwrap_or_default();
    match number.parse::<u64>() {
        Ok(number) if number > 0 && !unit.is_empty() => Ok((number, unit)),
        _ => Err(IntervalError::Duration {
            field,
            text: text.to_owned(),
        }),
    }
}

/// A duration of whole seconds; months have 30 days and years 365.
fn parse_seconds(field: &'static str, text: &str) -> Result<u32, IntervalError> {
    let (number, unit) = split_duration(field, text)?;
    let unit_seconds = match unit {
        "s" => Some(1),
        "m" => Some(60),
        "h" => Some(HOUR_SECONDS),
        "d" => Some(DAY_SECONDS),
        "w" => Some(7 * DAY_SECONDS),
        "n" => Some(30 * DAY_SECONDS),
        "y" => Some(365 * DAY_SECONDS),
        _ => None,
    };
    unit_seconds
        .and_then(|unit| u32::try_from(number).ok()?.checked_mul(unit))
        .ok_or_else(|| IntervalError::Duration {
            field,
            text: text.to_owned(),
        })
}

impl RollupInterval {
    /// Its text, such as `1h`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The table of rollups.
    pub fn table(&self) -> &str {
        &self.table
    }

    /// The table of pre-aggregates.
    pub fn pre_aggregation_table(&self) -> &str {
        &self.pre_aggregation_table
    }

    /// Its length in seconds, at least 1.
    pub const fn seconds(&self) -> u32 {
        self.seconds
    }

    /// Intervals of the longest row: 12 to 7774.
    pub const fn intervals(&self) -> u16 {
        self.intervals
    }

    /// The time that a row covers.
    pub const fn row_span(&self) -> RowSpan {
        self.row_span
    }

    /// Whether it is the interval of raw points: queries read table `tsdb` in its place.
    pub const fn is_default(&self) -> bool {
        self.is_default
    }

    /// How late its rollups are at most, in seconds.
    pub const fn delay_sla_seconds(&self) -> Option<u32> {
        self.delay_sla_seconds
    }

    /// The start of the row that contains a second.
    pub fn base_time(&self, seconds: u32) -> BaseTime {
        let start = match self.row_span {
            RowSpan::Hours(hours) => {
                return BaseTime::from_seconds(seconds - seconds % (hours * HOUR_SECONDS));
            }
            RowSpan::Day => return BaseTime::from_seconds(seconds - seconds % DAY_SECONDS),
            RowSpan::Month => first_day(seconds, DateTime::first_of_month),
            RowSpan::Year => first_day(seconds, DateTime::first_of_year),
        };
        BaseTime::from_seconds(start.unwrap_or(0))
    }

    /// Base time and offset of the interval that contains a second.
    ///
    /// # Errors
    ///
    /// [`RollupError::TooFar`] for an offset beyond [`MAX_OFFSET`].
    pub fn place(&self, seconds: u32) -> Result<(BaseTime, u16), RollupError> {
        let base = self.base_time(seconds);
        let offset = (seconds - base.seconds()) / self.seconds;
        match u16::try_from(offset) {
            Ok(offset) if offset <= MAX_OFFSET => Ok((base, offset)),
            _ => Err(RollupError::TooFar {
                offset,
                interval: self.name.clone(),
                row_span: self.row_span_text.clone(),
            }),
        }
    }

    /// The instant of an offset in a row, milliseconds since the epoch.
    pub fn time_ms(&self, base: BaseTime, offset: u16) -> i64 {
        base.millis() + i64::from(offset) * i64::from(self.seconds) * 1000
    }
}

/// The first second of the first day of a month or year.
fn first_day(seconds: u32, first: impl Fn(DateTime) -> DateTime) -> Option<u32> {
    let instant = jiff::Timestamp::from_second(seconds.into()).ok()?;
    let date = first(TimeZone::UTC.to_datetime(instant)).date();
    let start = date.to_zoned(TimeZone::UTC).ok()?.timestamp().as_second();
    u32::try_from(start).ok()
}
