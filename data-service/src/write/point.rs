//! Points to write, and the outcome of a write.

use std::sync::Arc;

use oxtsdb_schema::{Timestamp, Value};

use super::PointErrorReason;
use crate::uids::series::SeriesRef;

/// A point to write.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NewPoint<'a> {
    /// Metric name.
    pub metric: &'a str,
    /// Tags as key and value, no key twice. Names without a UID get one in the order given: the
    /// metric, then key and value of each tag.
    pub tags: &'a [(&'a str, &'a str)],
    /// When; its resolution decides the qualifier.
    pub timestamp: Timestamp,
    /// The value as it is to be stored.
    pub value: Value,
}

/// The outcome of a write.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WriteOutcome {
    /// Points stored.
    pub written: u64,
    /// The points that were not stored, by index.
    pub errors: Vec<PointError>,
}

/// A point that was not stored.
#[derive(Clone, Debug, PartialEq)]
pub struct PointError {
    /// Its place among the points of the write, from 0.
    pub index: usize,
    /// Why; shared by points with one reason.
    pub reason: Arc<PointErrorReason>,
}

/// A point, with its series by names or TSUID.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PointRef<'a> {
    pub(crate) series: SeriesRef<'a>,
    pub(crate) timestamp: Timestamp,
    pub(crate) value: Value,
}

impl<'a> From<&NewPoint<'a>> for PointRef<'a> {
    fn from(point: &NewPoint<'a>) -> Self {
        Self {
            series: SeriesRef::Names {
                metric: point.metric,
                tags: point.tags,
            },
            timestamp: point.timestamp,
            value: point.value,
        }
    }
}

/// How exactly an instant is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Precision {
    /// Whole seconds as seconds, all others as milliseconds.
    Auto,
    /// As seconds; others are rejected.
    Seconds,
    /// As milliseconds, whole seconds too.
    Milliseconds,
}

/// The timestamp at an instant, in the resolution of `precision`.
#[inline]
pub(crate) fn timestamp(timestamp_ms: i64, precision: Precision) -> Result<Timestamp, PointErrorReason> {
    let out_of_range = || PointErrorReason::TimestampOutOfRange { timestamp_ms };
    let positive = u64::try_from(timestamp_ms)
        .ok()
        .filter(|ms| *ms > 0)
        .ok_or_else(out_of_range)?;
    let is_seconds = match precision {
        Precision::Auto => positive % 1000 == 0,
        Precision::Seconds if positive % 1000 == 0 => true,
        Precision::Seconds => return Err(PointErrorReason::NotWholeSecond { timestamp_ms }),
        Precision::Milliseconds => false,
    };
    if is_seconds {
        u32::try_from(positive / 1000)
            .map(Timestamp::from_seconds)
            .map_err(|_| out_of_range())
    } else {
        Timestamp::from_millis(timestamp_ms).map_err(|_| out_of_range())
    }
}

#[cfg(test)]
mod tests {
    use Precision::{Auto, Milliseconds, Seconds};

    use super::*;

    #[test]
    fn stores_whole_seconds_as_seconds_by_default() {
        assert_eq!(timestamp(1000, Auto), Ok(Timestamp::from_seconds(1)));
        assert_eq!(timestamp(1001, Auto), Ok(Timestamp::from_millis(1001).unwrap()));
        assert_eq!(timestamp(1000, Seconds), Ok(Timestamp::from_seconds(1)));
        assert_eq!(
            timestamp(1000, Milliseconds),
            Ok(Timestamp::from_millis(1000).unwrap())
        );
        assert_eq!(
            timestamp(1001, Seconds),
            Err(PointErrorReason::NotWholeSecond { timestamp_ms: 1001 })
        );
    }

    #[test]
    fn rejects_timestamps_beyond_the_last_second_of_32_bits() {
        for precision in [Auto, Seconds, Milliseconds] {
            let last = timestamp(4_294_967_295_000, precision).unwrap();
            assert_eq!(last.as_millis(), 4_294_967_295_000);
            for timestamp_ms in [i64::MIN, -1, 0, 4_294_967_296_000, i64::MAX / 1000 * 1000] {
                let expected = Err(PointErrorReason::TimestampOutOfRange { timestamp_ms });
                assert_eq!(timestamp(timestamp_ms, precision), expected);
            }
        }
        assert!(timestamp(4_294_967_295_999, Auto).is_ok());
        assert!(timestamp(1, Auto).is_ok());
    }
}
