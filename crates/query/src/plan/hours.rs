//! The hours that are read for a query.
//!
//! Rows hold whole hours, so the range of a query is widened to hours. Interpolation, rates and fill policies see the
//! points of these hours outside the range; the result is clipped to the range. In seconds:
//!
//! ```text
//!   start   down to a window of downsampling, then down to an hour
//!   stop    end + 1, then without downsampling  up to the next hour, a whole one if it is one
//!                    with downsampling          up to the next window, then up to an hour
//! ```
//!
//! The hour before the start is therefore never read, the hour after the end sometimes. For calendar windows OpenTSDB
//! computes with months of 30 days and years of 365; without this quirk the calendar determines where the first window
//! starts and the last one ends.
//!
//! Source: OpenTSDB 2.4, `TsdbQuery.getScanStartTimeSeconds`, `TsdbQuery.getScanEndTimeSeconds`.

use oxtsdb_schema::row_key::{metric_range, metric_ranges};
use oxtsdb_schema::{BaseTime, HOUR_SECONDS, MetricUid, RowKeyLayout};

use crate::function::calendar::CalendarWindows;
use crate::function::downsample::{Downsample, Interval};
use crate::quirks::Quirks;

/// A range of hours, start included, end excluded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hours {
    /// First hour that is read, seconds since the epoch.
    pub start: BaseTime,
    /// Seconds since the epoch of the first hour that is not read; a multiple of 3600, or beyond
    /// all hours there are.
    pub stop_seconds: u64,
}

impl Hours {
    /// All hours.
    pub const ALL: Self = Self {
        start: BaseTime::MIN,
        stop_seconds: u64::MAX,
    };

    /// The hours to read for a range of instants, both ends inside.
    pub fn for_query(start_ms: i64, end_ms: i64, downsample: Option<&Downsample>, quirks: Quirks) -> Self {
        let hour = i64::from(HOUR_SECONDS);
        let start = start_ms.div_euclid(1000);
        let stop = end_ms.div_euclid(1000).saturating_add(1);
        let (start, stop) = match downsample.map(|downsample| &downsample.interval) {
            None => (start, stop.saturating_add(hour - stop.rem_euclid(hour))),
            Some(Interval::WholeRange) => (start, up_to_hour(stop)),
            Some(Interval::Fixed { length_ms }) => widened(start, stop, *length_ms),
            Some(Interval::Calendar(interval)) if quirks.last_calendar_window_cut_short => {
                widened(start, stop, interval.nominal_ms())
            }
            Some(Interval::Calendar(interval)) => {
                let windows = CalendarWindows::under(interval.clone(), quirks);
                let stop_ms = windows.next(windows.floor(end_ms));
                let stop = stop_ms.div_euclid(1000).saturating_add(1);
                (windows.floor(start_ms).div_euclid(1000), up_to_hour(stop))
            }
        };
        let start = u32::try_from(start.max(0)).unwrap_or(u32::MAX);
        Self {
            start: BaseTime::from_seconds(start),
            stop_seconds: u64::try_from(stop).unwrap_or(0),
        }
    }

    /// The hours that overlap a range of instants, both ends inside.
    pub fn overlapping(start_ms: i64, end_ms: i64) -> Self {
        let seconds = |ms: i64| u32::try_from(ms.max(0) / 1000).unwrap_or(u32::MAX);
        let last = BaseTime::from_seconds(seconds(end_ms));
        Self {
            start: BaseTime::from_seconds(seconds(start_ms)),
            stop_seconds: u64::from(last.seconds()) + u64::from(HOUR_SECONDS),
        }
    }

    /// These hours and the next one.
    pub fn one_more(self) -> Self {
        Self {
            stop_seconds: self.stop_seconds.saturating_add(u64::from(HOUR_SECONDS)),
            ..self
        }
    }

    /// How many hours there are.
    pub fn count(&self) -> usize {
        let seconds = self.last_stop().saturating_sub(u64::from(self.start.seconds()));
        usize::try_from(seconds / u64::from(HOUR_SECONDS)).unwrap_or(usize::MAX)
    }

    /// The hours in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = BaseTime> + use<> {
        let hours = u32::try_from(self.count()).unwrap_or(u32::MAX);
        let first = self.start.seconds();
        (0..hours).map(move |index| BaseTime::from_seconds(first.saturating_add(index * HOUR_SECONDS)))
    }

    /// Whether the range contains an hour.
    pub fn contains(&self, hour: BaseTime) -> bool {
        hour >= self.start && u64::from(hour.seconds()) < self.stop_seconds
    }

    /// The row keys of a metric in one bucket that lie in these hours.
    pub fn range(&self, layout: &RowKeyLayout, metric: MetricUid, bucket: u32) -> (Vec<u8>, Vec<u8>) {
        metric_range(layout, metric, self.start, self.stop(), bucket)
    }

    /// The row keys of a metric in all buckets that lie in these hours: ascending ranges.
    pub fn ranges(&self, layout: &RowKeyLayout, metric: MetricUid) -> Vec<(Vec<u8>, Vec<u8>)> {
        metric_ranges(layout, metric, self.start, self.stop())
    }

    fn stop(&self) -> BaseTime {
        u32::try_from(self.stop_seconds).map_or(BaseTime::MAX, BaseTime::from_seconds)
    }

    /// The first instant that is not read, milliseconds since the epoch.
    pub fn stop_ms(&self) -> i64 {
        i64::try_from(self.last_stop().saturating_mul(1000)).unwrap_or(i64::MAX)
    }

    /// Seconds since the epoch where the last hour ends that a row key can hold.
    pub fn last_stop(&self) -> u64 {
        self.stop_seconds
            .min(u64::from(BaseTime::MAX.seconds()) + u64::from(HOUR_SECONDS))
    }
}

/// Rounds the first down and the second up to windows of a length, the second then up to an hour; in seconds.
fn widened(start: i64, stop: i64, length_ms: i64) -> (i64, i64) {
    let past = |seconds: i64| seconds.saturating_mul(1000).rem_euclid(length_ms);
    let stop = stop.saturating_add((length_ms - past(stop)) / 1000);
    (start - past(start) / 1000, up_to_hour(stop))
}

fn up_to_hour(seconds: i64) -> i64 {
    let hour = i64::from(HOUR_SECONDS);
    match seconds.rem_euclid(hour) {
        0 => seconds,
        past => seconds.saturating_add(hour - past),
    }
}

#[cfg(test)]
mod tests {
    use jiff::tz::TimeZone;

    use super::*;

    /// 2013-01-01 00:00:00 UTC, an exact hour and day.
    const T: i64 = 1_356_998_400;

    fn hours(start: i64, end: i64, downsample: Option<&str>) -> (i64, i64) {
        let downsample = downsample.map(|text| Downsample::parse(text, &TimeZone::UTC, false).unwrap());
        let hours = Hours::for_query(
            (T + start) * 1000,
            (T + end) * 1000,
            downsample.as_ref(),
            Quirks::OPENTSDB,
        );
        (
            i64::from(hours.start.seconds()) - T,
            i64::try_from(hours.stop_seconds).unwrap() - T,
        )
    }

    #[test]
    fn widens_ranges_to_hours() {
        for (start, end, downsample, expected) in [
            (0, 3595, None, (0, 3600)),
            // An end in the last second of an hour also reads the next hour.
            (0, 3599, None, (0, 7200)),
            (0, 3600, None, (0, 7200)),
            (150, 400, None, (0, 3600)),
            (3600, 3800, None, (3600, 7200)),
            (3605, 3700, Some("1h-avg"), (3600, 7200)),
            (0, 3599, Some("1m-avg"), (0, 7200)),
            (0, 3538, Some("1m-avg"), (0, 3600)),
            (0, 3598, Some("0all-sum"), (0, 3600)),
            (0, 3599, Some("0all-sum"), (0, 3600)),
            (90_000, 90_001, Some("1d-sum"), (86_400, 172_800)),
            (10, 20, Some("500ms-sum"), (0, 3600)),
        ] {
            assert_eq!(
                hours(start, end, downsample),
                expected,
                "{start} {end} {downsample:?}"
            );
        }
    }

    #[test]
    fn hours_end_with_the_last_that_a_row_key_can_hold() {
        let hours = Hours::for_query(0, i64::MAX, None, Quirks::NONE);
        assert_eq!(hours.start, BaseTime::MIN);
        assert_eq!(hours.count(), 1_193_047);
        assert_eq!(hours.iter().next_back(), Some(BaseTime::MAX));
        assert!(hours.contains(BaseTime::MAX));
        let long = Downsample::parse("290000000y-sum", &TimeZone::UTC, false).unwrap();
        assert_eq!(
            Hours::for_query(T * 1000, T * 1000, Some(&long), Quirks::NONE).start,
            BaseTime::MIN
        );
        let negative = Hours::for_query(-5000, -1000, None, Quirks::NONE);
        assert!(negative.count() <= 1);
    }

    #[test]
    fn overlapping_hours_hold_both_ends() {
        let hours = Hours::overlapping(T * 1000 + 10, (T + 3600) * 1000);
        let seconds: Vec<i64> = hours.iter().map(|hour| i64::from(hour.seconds()) - T).collect();
        assert_eq!(seconds, [0, 3600]);
        assert!(!hours.contains(BaseTime::from_seconds(u32::try_from(T).unwrap() + 7200)));
    }

    #[test]
    fn calendar_windows_are_read_whole_or_by_usual_lengths() {
        let month = Downsample::parse("1nc-sum", &TimeZone::UTC, false).unwrap();
        let (start, end) = (T * 1000, (T + 40 * 86_400) * 1000);
        let stop = |quirks| {
            let hours = Hours::for_query(start, end, Some(&month), quirks);
            i64::try_from(hours.stop_seconds).unwrap() - T
        };
        // 14 February, a multiple of 30 days from the epoch.
        assert_eq!(stop(Quirks::OPENTSDB), 44 * 86_400);
        assert_eq!(stop(Quirks::NONE), 59 * 86_400 + 3600);
        let forever = Downsample::parse("9999999yc-sum", &TimeZone::UTC, false).unwrap();
        assert!(Hours::for_query(start, end, Some(&forever), Quirks::NONE).count() > 1_000_000);
    }
}
