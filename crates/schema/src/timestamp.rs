//! Times of points, and the hours that their rows cover.
//!
//! A time has the resolution in which it was sent. OpenTSDB derives the resolution from the magnitude: if any
//! of the upper 32 bits is set, the number is milliseconds, otherwise seconds. Seconds therefore reach
//! 4294967295 (the year 2106), and milliseconds before 1970-02-19T17:02:47.296Z cannot be sent.
//!
//! A row's base time has 4 bytes, so milliseconds end with the same hour as seconds. OpenTSDB accepts up to
//! 9999999999999 ms and lets the base time wrap, which stores the point in another year; this crate rejects
//! such times.
//!
//! Source: OpenTSDB 2.4, `TSDB.addPointInternal`, `Internal.baseTime`, `Const.MAX_TIMESPAN`.

use std::fmt;

use thiserror::Error;

use crate::value::{IntegerTextError, parse_integer};

/// Seconds that a row of table `tsdb` covers.
pub const HOUR_SECONDS: u32 = 3600;

/// The last millisecond that a row can hold.
pub const MAX_MILLIS: i64 = 4_294_967_295_999;

/// A point's time, in seconds or in milliseconds.
///
/// Equal only if resolution and number are equal, since a whole second sent as milliseconds is a different cell
/// than that second. To compare instants, compare [`Timestamp::as_millis`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Timestamp(Resolution);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Resolution {
    Seconds(u32),
    /// At most [`MAX_MILLIS`].
    Millis(u64),
}

/// Why a number is not a valid time.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum TimestampError {
    /// Zero or negative.
    #[error("timestamp {value} is not positive")]
    NotPositive {
        /// The rejected number.
        value: i64,
    },
    /// Negative milliseconds.
    #[error("timestamp {value} ms is negative")]
    NegativeMillis {
        /// The rejected number.
        value: i64,
    },
    /// Milliseconds after the last hour that a row key can hold.
    #[error("timestamp {value} ms is after {MAX_MILLIS}, the last that can be stored")]
    TooLate {
        /// The rejected number.
        value: i64,
    },
    /// Seconds that are not the start of an hour.
    #[error("base time {seconds} is not a multiple of {HOUR_SECONDS} seconds")]
    NotAnHour {
        /// The rejected number.
        seconds: u32,
    },
}

/// Why a text is not a valid time.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum TimestampTextError {
    /// Not an integer.
    #[error(transparent)]
    NotAnInteger(#[from] IntegerTextError),
    /// An integer that is not a valid time.
    #[error(transparent)]
    Timestamp(#[from] TimestampError),
}

impl Timestamp {
    /// A time with the resolution that its magnitude implies, as in all of OpenTSDB's protocols.
    ///
    /// # Errors
    ///
    /// [`TimestampError::NotPositive`] and [`TimestampError::TooLate`].
    pub fn from_opentsdb(value: i64) -> Result<Timestamp, TimestampError> {
        if value <= 0 {
            return Err(TimestampError::NotPositive { value });
        }
        match u32::try_from(value) {
            Ok(seconds) => Ok(Timestamp::from_seconds(seconds)),
            Err(_) => Timestamp::from_millis(value),
        }
    }

    /// Parses a telnet timestamp. OpenTSDB removes all dots and parses the rest as an integer, so `1356998400.250`
    /// is milliseconds as intended, whereas `1356998400.5` is 13569984005, which is milliseconds of June 1970.
    ///
    /// # Errors
    ///
    /// [`TimestampTextError`]; it shows the text without its dots, as OpenTSDB does.
    pub fn parse_telnet(text: &str) -> Result<Timestamp, TimestampTextError> {
        let value = if text.contains('.') {
            parse_integer(&text.replace('.', ""))?
        } else {
            parse_integer(text)?
        };
        Ok(Timestamp::from_opentsdb(value)?)
    }

    /// A time in seconds since the epoch.
    pub const fn from_seconds(seconds: u32) -> Timestamp {
        Timestamp(Resolution::Seconds(seconds))
    }

    /// A time in milliseconds since the epoch, even if it is a whole second.
    ///
    /// # Errors
    ///
    /// [`TimestampError::NegativeMillis`] and [`TimestampError::TooLate`].
    pub fn from_millis(millis: i64) -> Result<Timestamp, TimestampError> {
        if millis > MAX_MILLIS {
            return Err(TimestampError::TooLate { value: millis });
        }
        match u64::try_from(millis) {
            Ok(millis) => Ok(Timestamp(Resolution::Millis(millis))),
            Err(_) => Err(TimestampError::NegativeMillis { value: millis }),
        }
    }

    /// The instant, in milliseconds since the epoch.
    #[inline]
    pub const fn as_millis(self) -> i64 {
        match self.0 {
            Resolution::Seconds(seconds) => seconds as i64 * 1000,
            // At most `MAX_MILLIS`.
            Resolution::Millis(millis) => millis.cast_signed(),
        }
    }

    /// Whether the time has milliseconds.
    #[inline]
    pub const fn is_millis(self) -> bool {
        matches!(self.0, Resolution::Millis(_))
    }

    /// The base time of the row that holds the point.
    #[inline]
    pub const fn base_time(self) -> BaseTime {
        BaseTime::from_seconds(self.seconds())
    }

    /// Milliseconds since the base time: 0 to 3599999.
    #[expect(clippy::cast_possible_truncation, reason = "the remainder is below 3600000")]
    #[inline]
    pub const fn offset_ms(self) -> u32 {
        match self.0 {
            Resolution::Seconds(seconds) => seconds % HOUR_SECONDS * 1000,
            Resolution::Millis(millis) => (millis % (HOUR_SECONDS as u64 * 1000)) as u32,
        }
    }

    #[expect(clippy::cast_possible_truncation, reason = "`MAX_MILLIS` is u32::MAX seconds")]
    const fn seconds(self) -> u32 {
        match self.0 {
            Resolution::Seconds(seconds) => seconds,
            Resolution::Millis(millis) => (millis / 1000) as u32,
        }
    }
}

/// The number in its own resolution, as OpenTSDB prints it.
impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Resolution::Seconds(seconds) => seconds.fmt(f),
            Resolution::Millis(millis) => millis.fmt(f),
        }
    }
}

/// The start of an hour: seconds since the epoch, a multiple of 3600.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BaseTime(u32);

impl BaseTime {
    /// The first hour of 1970.
    pub const MIN: BaseTime = BaseTime(0);

    /// The last hour that a row key can hold.
    pub const MAX: BaseTime = BaseTime::from_seconds(u32::MAX);

    /// The hour that contains a second.
    pub const fn from_seconds(seconds: u32) -> BaseTime {
        BaseTime(seconds - seconds % HOUR_SECONDS)
    }

    /// Accepts a stored base time.
    ///
    /// # Errors
    ///
    /// [`TimestampError::NotAnHour`] unless it is a multiple of 3600.
    pub const fn from_seconds_exact(seconds: u32) -> Result<BaseTime, TimestampError> {
        if seconds.is_multiple_of(HOUR_SECONDS) {
            Ok(BaseTime(seconds))
        } else {
            Err(TimestampError::NotAnHour { seconds })
        }
    }

    /// Seconds since the epoch.
    pub const fn seconds(self) -> u32 {
        self.0
    }

    /// Milliseconds since the epoch.
    pub const fn millis(self) -> i64 {
        self.0 as i64 * 1000
    }

    /// The next hour; saturates at [`BaseTime::MAX`].
    pub const fn next_hour(self) -> BaseTime {
        BaseTime::from_seconds(self.0.saturating_add(HOUR_SECONDS))
    }
}

impl fmt::Display for BaseTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests;
