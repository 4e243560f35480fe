//! Timestamps of messages: the accepted range and the stored resolution.

use std::ops::RangeInclusive;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use oxtsdb_schema::Timestamp;

use super::time_unit::LAST_MS;
use super::{PointErrorReason, TimeUnit};

/// 2000-01-01T00:00:00Z.
const EARLIEST_PLAUSIBLE_MS: i64 = 946_684_800_000;

/// How far ahead of the server's clock a plausible timestamp may be.
const PLAUSIBLE_AHEAD: Duration = Duration::from_secs(366 * 24 * 60 * 60);

/// How exactly an instant is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precision {
    /// Whole seconds as seconds, all others as milliseconds.
    Auto,
    /// As seconds; others are rejected.
    Seconds,
    /// As milliseconds, whole seconds too.
    Milliseconds,
}

/// The instants that are plausible at `now`; others usually have a wrong unit.
pub fn plausible_ms(now: SystemTime) -> RangeInclusive<i64> {
    let latest = now.duration_since(UNIX_EPOCH).unwrap_or_default() + PLAUSIBLE_AHEAD;
    let latest_ms = i64::try_from(latest.as_millis()).unwrap_or(LAST_MS);
    EARLIEST_PLAUSIBLE_MS..=latest_ms.min(LAST_MS)
}

/// A client's declarations about the timestamps of a request or a stream.
#[derive(Clone, Copy, Debug)]
pub struct TimeOptions {
    /// The unit in which timestamps are sent.
    pub unit: TimeUnit,
    /// The resolution in which they are stored.
    pub precision: Precision,
    /// Accept every instant that can be stored, not only plausible ones.
    pub allow_any_time: bool,
}

impl TimeOptions {
    /// The rules for timestamps that arrive at `now`.
    pub fn rules(&self, now: SystemTime) -> TimeRules {
        let (earliest_ms, latest_ms) = if self.allow_any_time {
            (1, LAST_MS)
        } else {
            plausible_ms(now).into_inner()
        };
        TimeRules {
            unit: self.unit,
            precision: self.precision,
            earliest_ms,
            latest_ms,
        }
    }
}

/// Converts timestamps of messages, and rejects those outside a range.
#[derive(Clone, Copy, Debug)]
pub struct TimeRules {
    unit: TimeUnit,
    precision: Precision,
    earliest_ms: i64,
    latest_ms: i64,
}

impl TimeRules {
    /// Converts a timestamp of a message to the timestamp to store.
    ///
    /// # Errors
    ///
    /// [`PointErrorReason::NotWholeSecond`], [`PointErrorReason::ImplausibleTimestamp`] and
    /// [`PointErrorReason::TimestampOutOfRange`].
    #[inline]
    pub fn timestamp(&self, timestamp: i64) -> Result<Timestamp, PointErrorReason> {
        let timestamp_ms = match self.unit {
            TimeUnit::Milliseconds => timestamp,
            TimeUnit::Seconds => timestamp.saturating_mul(1000),
        };
        if timestamp_ms < self.earliest_ms || timestamp_ms > self.latest_ms {
            return Err(self.rejection(timestamp, timestamp_ms));
        }
        let is_whole_second = timestamp_ms % 1000 == 0;
        let as_seconds = match self.precision {
            Precision::Auto => is_whole_second,
            Precision::Seconds if !is_whole_second => {
                return Err(PointErrorReason::NotWholeSecond { timestamp_ms });
            }
            Precision::Seconds => true,
            Precision::Milliseconds => false,
        };
        let out_of_range = || self.out_of_range(timestamp);
        if as_seconds {
            u32::try_from(timestamp_ms / 1000)
                .map(Timestamp::from_seconds)
                .map_err(|_| out_of_range())
        } else {
            Timestamp::from_millis(timestamp_ms).map_err(|_| out_of_range())
        }
    }

    #[cold]
    fn rejection(&self, timestamp: i64, timestamp_ms: i64) -> PointErrorReason {
        if (1..=LAST_MS).contains(&timestamp_ms) {
            PointErrorReason::ImplausibleTimestamp {
                timestamp,
                unit: self.unit,
                timestamp_ms,
            }
        } else {
            self.out_of_range(timestamp)
        }
    }

    fn out_of_range(&self, timestamp: i64) -> PointErrorReason {
        PointErrorReason::TimestampOutOfRange {
            timestamp,
            unit: self.unit,
        }
    }
}

#[cfg(test)]
mod tests {
    use Precision::{Auto, Milliseconds, Seconds};

    use super::*;

    /// 2026-01-01T00:00:00Z.
    const NOW_MS: i64 = 1_767_225_600_000;

    fn now() -> SystemTime {
        UNIX_EPOCH + Duration::from_millis(NOW_MS.unsigned_abs())
    }

    fn convert(options: TimeOptions, timestamp: i64) -> Result<Timestamp, PointErrorReason> {
        options.rules(now()).timestamp(timestamp)
    }

    fn any_ms(timestamp: i64, precision: Precision) -> Result<Timestamp, PointErrorReason> {
        let options = TimeOptions {
            unit: TimeUnit::Milliseconds,
            precision,
            allow_any_time: true,
        };
        convert(options, timestamp)
    }

    #[test]
    fn stores_whole_seconds_as_seconds_by_default() {
        assert_eq!(any_ms(1000, Auto), Ok(Timestamp::from_seconds(1)));
        assert_eq!(any_ms(1001, Auto), Ok(Timestamp::from_millis(1001).unwrap()));
        assert_eq!(any_ms(1000, Seconds), Ok(Timestamp::from_seconds(1)));
        assert_eq!(
            any_ms(1000, Milliseconds),
            Ok(Timestamp::from_millis(1000).unwrap())
        );
        assert_eq!(
            any_ms(1001, Seconds),
            Err(PointErrorReason::NotWholeSecond { timestamp_ms: 1001 })
        );
    }

    #[test]
    fn rejects_timestamps_beyond_the_last_second_of_32_bits() {
        for precision in [Auto, Seconds, Milliseconds] {
            let last = any_ms(4_294_967_295_000, precision).unwrap();
            assert_eq!(last.as_millis(), 4_294_967_295_000);
            for timestamp in [i64::MIN, -1, 0, 4_294_967_296_000, i64::MAX / 1000 * 1000] {
                let expected = Err(PointErrorReason::TimestampOutOfRange {
                    timestamp,
                    unit: TimeUnit::Milliseconds,
                });
                assert_eq!(any_ms(timestamp, precision), expected);
            }
        }
        assert!(any_ms(4_294_967_295_999, Auto).is_ok());
        assert!(any_ms(1, Auto).is_ok());
    }

    #[test]
    fn seconds_are_converted() {
        let options = TimeOptions {
            unit: TimeUnit::Seconds,
            precision: Auto,
            allow_any_time: true,
        };
        assert_eq!(convert(options, 1), Ok(Timestamp::from_seconds(1)));
        assert_eq!(
            convert(options, 4_294_967_295),
            Ok(Timestamp::from_seconds(u32::MAX))
        );
        for timestamp in [0, -1, 4_294_967_296, NOW_MS, i64::MAX, i64::MIN] {
            let expected = Err(PointErrorReason::TimestampOutOfRange {
                timestamp,
                unit: TimeUnit::Seconds,
            });
            assert_eq!(convert(options, timestamp), expected);
        }
    }

    #[test]
    fn rejects_implausible_timestamps_unless_any_time_is_allowed() {
        let plausible = TimeOptions {
            unit: TimeUnit::Milliseconds,
            precision: Auto,
            allow_any_time: false,
        };
        let year_ms = 366 * 24 * 3_600_000;
        for accepted in [EARLIEST_PLAUSIBLE_MS, NOW_MS, NOW_MS + year_ms] {
            assert!(convert(plausible, accepted).is_ok(), "{accepted}");
        }
        for rejected in [
            EARLIEST_PLAUSIBLE_MS - 1,
            NOW_MS / 1000,
            1,
            NOW_MS + year_ms + 1,
            2 * NOW_MS,
        ] {
            let expected = Err(PointErrorReason::ImplausibleTimestamp {
                timestamp: rejected,
                unit: TimeUnit::Milliseconds,
                timestamp_ms: rejected,
            });
            assert_eq!(convert(plausible, rejected), expected);
            assert!(any_ms(rejected, Auto).is_ok());
        }
        let message = convert(plausible, NOW_MS / 1000).unwrap_err().to_string();
        assert_eq!(
            message,
            "timestamp 1767225600 ms is 1970-01-21T10:53:45.6Z, expected 2000-01-01 to 366 days after the \
             server's clock; correct the time_unit, or set allow_any_time"
        );
    }
}
