//! Points: an instant and a value.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::SeriesName;

/// An instant, in milliseconds since the Unix epoch.
///
/// A type of its own, because seconds in place of milliseconds are an instant in January 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

impl Timestamp {
    /// From milliseconds since the epoch.
    pub const fn from_millis(millis: i64) -> Self {
        Self(millis)
    }

    /// From seconds since the epoch.
    pub const fn from_seconds(seconds: i64) -> Self {
        Self(seconds.saturating_mul(1000))
    }

    /// The system's clock.
    pub fn now() -> Self {
        SystemTime::now().into()
    }

    /// Milliseconds since the epoch.
    pub const fn millis(self) -> i64 {
        self.0
    }
}

impl From<SystemTime> for Timestamp {
    fn from(time: SystemTime) -> Self {
        let millis = |length: Duration| i64::try_from(length.as_millis()).unwrap_or(i64::MAX);
        Self(match time.duration_since(UNIX_EPOCH) {
            Ok(since) => millis(since),
            Err(before) => -millis(before.duration()),
        })
    }
}

/// The value of a point.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    /// An integer.
    Int(i64),
    /// A floating-point number.
    Double(f64),
}

impl Value {
    /// The nearest floating-point number.
    #[expect(
        clippy::cast_precision_loss,
        reason = "the nearest number is what is promised"
    )]
    pub const fn as_f64(self) -> f64 {
        match self {
            Self::Int(int) => int as f64,
            Self::Double(double) => double,
        }
    }
}

impl From<i64> for Value {
    fn from(int: i64) -> Self {
        Self::Int(int)
    }
}

impl From<i32> for Value {
    fn from(int: i32) -> Self {
        Self::Int(int.into())
    }
}

impl From<u32> for Value {
    fn from(int: u32) -> Self {
        Self::Int(int.into())
    }
}

impl From<f64> for Value {
    fn from(double: f64) -> Self {
        Self::Double(double)
    }
}

impl From<f32> for Value {
    fn from(float: f32) -> Self {
        Self::Double(float.into())
    }
}

/// A point of a series, to write.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// The series.
    pub series: SeriesName,
    /// When.
    pub timestamp: Timestamp,
    /// The value.
    pub value: Value,
}

impl Point {
    /// A point.
    pub fn new(series: &SeriesName, timestamp: Timestamp, value: impl Into<Value>) -> Self {
        Self {
            series: series.clone(),
            timestamp,
            value: value.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_are_milliseconds() {
        assert_eq!(Timestamp::from_seconds(2), Timestamp::from_millis(2000));
        let time = UNIX_EPOCH + Duration::from_micros(1_500_999);
        assert_eq!(Timestamp::from(time).millis(), 1500);
        assert_eq!(
            Timestamp::from(UNIX_EPOCH - Duration::from_secs(1)).millis(),
            -1000
        );
    }
}
