//! Units of the timestamps of lines.

use crate::http::error::HttpError;

/// The unit of timestamps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Precision {
    #[default]
    Nanoseconds,
    Microseconds,
    Milliseconds,
    Seconds,
    Minutes,
    Hours,
}

impl Precision {
    /// Of `precision=`, as both versions of the API name it.
    ///
    /// # Errors
    ///
    /// 400.
    pub(super) fn parse(text: &str) -> Result<Self, HttpError> {
        match text {
            "ns" | "n" => Ok(Self::Nanoseconds),
            "us" | "u" | "µ" => Ok(Self::Microseconds),
            "ms" => Ok(Self::Milliseconds),
            "s" => Ok(Self::Seconds),
            "m" => Ok(Self::Minutes),
            "h" => Ok(Self::Hours),
            _ => Err(HttpError::bad_request(format!(
                "precision `{text}` is not known, expected ns, us, ms, s, m or h"
            ))),
        }
    }

    /// Milliseconds since the epoch, rounded down; the largest or smallest number for instants beyond.
    pub(super) fn millis(self, timestamp: i64) -> i64 {
        match self {
            Self::Nanoseconds => timestamp.div_euclid(1_000_000),
            Self::Microseconds => timestamp.div_euclid(1000),
            Self::Milliseconds => timestamp,
            Self::Seconds => timestamp.saturating_mul(1000),
            Self::Minutes => timestamp.saturating_mul(60_000),
            Self::Hours => timestamp.saturating_mul(3_600_000),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_become_milliseconds() {
        for (precision, timestamp, expected) in [
            ("ns", 1_700_000_000_123_999_999, 1_700_000_000_123),
            ("us", 1_700_000_000_123_999, 1_700_000_000_123),
            ("ms", 1_700_000_000_123, 1_700_000_000_123),
            ("s", 1_700_000_000, 1_700_000_000_000),
            ("m", 28_333_333, 1_699_999_980_000),
            ("h", 472_222, 1_699_999_200_000),
            ("h", i64::MAX, i64::MAX),
            ("ns", -1, -1),
        ] {
            assert_eq!(
                Precision::parse(precision).unwrap().millis(timestamp),
                expected,
                "{precision}"
            );
        }
        assert_eq!(
            Precision::parse("d").unwrap_err().message,
            "precision `d` is not known, expected ns, us, ms, s, m or h"
        );
    }
}
