//! Ticks of the x axis, at steps that people use, aligned in a time zone.
//!
//! Steps up to 12 hours are aligned to the local midnight and have equal distances: a change of the clock shifts the ticks
//! after it. Days, months and years begin when they begin in the zone.

use jiff::Timestamp;
use jiff::civil::{Date, DateTime};
use jiff::tz::{Offset, TimeZone};

use crate::axis::TimeRange;

const SECOND: i64 = 1000;
const MINUTE: i64 = 60 * SECOND;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;

/// More than fit into the widest picture.
const MAX_TICKS: i64 = 1000;

/// A labelled instant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TimeTick {
    pub(crate) timestamp_ms: i64,
    pub(crate) label: String,
    /// The date or the year, where it differs from the tick before.
    pub(crate) context: Option<String>,
}

/// The distance of ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Milliseconds(i64),
    Days(i64),
    Months(i64),
    Years(i64),
}

static STEPS: &[Step] = &[
    Step::Milliseconds(1),
    Step::Milliseconds(2),
    Step::Milliseconds(5),
    Step::Milliseconds(10),
    Step::Milliseconds(20),
    Step::Milliseconds(50),
    Step::Milliseconds(100),
    Step::Milliseconds(200),
    Step::Milliseconds(500),
    Step::Milliseconds(SECOND),
    Step::Milliseconds(2 * SECOND),
    Step::Milliseconds(5 * SECOND),
    Step::Milliseconds(10 * SECOND),
    Step::Milliseconds(15 * SECOND),
    Step::Milliseconds(30 * SECOND),
    Step::Milliseconds(MINUTE),
    Step::Milliseconds(2 * MINUTE),
    Step::Milliseconds(5 * MINUTE),
    Step::Milliseconds(10 * MINUTE),
    Step::Milliseconds(15 * MINUTE),
    Step::Milliseconds(30 * MINUTE),
    Step::Milliseconds(HOUR),
    Step::Milliseconds(2 * HOUR),
    Step::Milliseconds(3 * HOUR),
    Step::Milliseconds(6 * HOUR),
    Step::Milliseconds(12 * HOUR),
    Step::Days(1),
    Step::Days(2),
    Step::Days(7),
    Step::Days(14),
    Step::Months(1),
    Step::Months(2),
    Step::Months(3),
    Step::Months(6),
    Step::Years(1),
    Step::Years(2),
    Step::Years(5),
    Step::Years(10),
    Step::Years(20),
    Step::Years(50),
    Step::Years(100),
    Step::Years(200),
    Step::Years(500),
    Step::Years(1000),
    Step::Years(2000),
    Step::Years(5000),
];

impl Step {
    /// The length in milliseconds, about.
    fn length(self) -> i64 {
        match self {
            Self::Milliseconds(milliseconds) => milliseconds,
            Self::Days(days) => days * DAY,
            Self::Months(months) => months * 30 * DAY,
            Self::Years(years) => years * 365 * DAY,
        }
    }

    /// A label as wide as any of this step.
    fn widest(self) -> &'static str {
        match self {
            Self::Milliseconds(step) if step < SECOND => "00:00:00.000",
            Self::Milliseconds(step) if step < MINUTE => "00:00:00",
            Self::Milliseconds(_) => "00:00",
            Self::Days(_) => "Mar 00",
            Self::Months(_) => "Mar",
            Self::Years(_) => "-0000",
        }
    }

    fn label(self, local: DateTime) -> String {
        let (hour, minute, second) = (local.hour(), local.minute(), local.second());
        match self {
            Self::Milliseconds(step) if step < SECOND => {
                format!("{hour:02}:{minute:02}:{second:02}.{:03}", local.millisecond())
            }
            Self::Milliseconds(step) if step < MINUTE => format!("{hour:02}:{minute:02}:{second:02}"),
            Self::Milliseconds(_) => format!("{hour:02}:{minute:02}"),
            Self::Days(_) => format!("{} {}", month_name(local.date()), local.day()),
            Self::Months(_) => month_name(local.date()).to_owned(),
            Self::Years(_) => local.year().to_string(),
        }
    }

    fn context(self, local: DateTime) -> Option<String> {
        match self {
            Self::Milliseconds(_) => Some(local.date().to_string()),
            Self::Days(_) | Self::Months(_) => Some(local.year().to_string()),
            Self::Years(_) => None,
        }
    }
}

fn month_name(date: Date) -> &'static str {
    const NAMES: [&str; 12] = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ];
    usize::try_from(date.month() - 1)
        .ok()
        .and_then(|month| NAMES.get(month))
        .copied()
        .unwrap_or("")
}

impl TimeRange {
    /// Returns the range with an end after its start, both far enough from the ends of jiff's time for any zone.
    pub(crate) fn normalized(self) -> Self {
        let (min, max) = (
            Timestamp::MIN.as_millisecond() + 400 * DAY,
            Timestamp::MAX.as_millisecond() - 400 * DAY,
        );
        let start_ms = self.start_ms.clamp(min, max - 1);
        Self {
            start_ms,
            end_ms: self.end_ms.clamp(start_ms + 1, max),
        }
    }
}

/// Returns the ticks of a normalized range on an axis of `width` pixels; `text_width` returns the width of a label.
pub(crate) fn time_ticks(
    range: TimeRange,
    zone: &TimeZone,
    width: f64,
    text_width: impl Fn(&str) -> f64,
) -> Vec<TimeTick> {
    let length = (range.end_ms - range.start_ms) as f64;
    let space = text_width("000");
    let fits = |step: &&Step| {
        let distance = step.length() as f64 / length * width;
        distance >= text_width(step.widest()) + space
    };
    let Some(step) = STEPS.iter().find(fits) else {
        return Vec::new();
    };
    let mut previous = None;
    let instants = instants(*step, range, zone);
    let ticks = instants.into_iter().filter_map(|timestamp_ms| {
        let local = zone.to_datetime(Timestamp::from_millisecond(timestamp_ms).ok()?);
        let context = step.context(local);
        let changed = context != previous;
        previous.clone_from(&context);
        Some(TimeTick {
            timestamp_ms,
            label: step.label(local),
            context: context.filter(|_| changed),
        })
    });
    ticks.collect()
}

fn instants(step: Step, range: TimeRange, zone: &TimeZone) -> Vec<i64> {
    let mut instants = match step {
        Step::Milliseconds(step) => aligned_to_midnight(step, range, zone),
        _ => first_of_dates(step, range, zone),
    };
    instants.retain(|instant| (range.start_ms..=range.end_ms).contains(instant));
    instants.dedup();
    instants
}

/// Returns the multiples of a step in local time, for each stretch of time in which the offset of the zone is the same.
fn aligned_to_midnight(step: i64, range: TimeRange, zone: &TimeZone) -> Vec<i64> {
    let mut instants = Vec::new();
    let mut from_ms = range.start_ms;
    while let Ok(from) = Timestamp::from_millisecond(from_ms) {
        let offset_ms = i64::from(zone.to_offset(from).seconds()) * SECOND;
        let change = zone
            .following(from)
            .next()
            .map(|change| change.timestamp().as_millisecond());
        let until_ms = change.filter(|change| *change <= range.end_ms);
        let mut instant = (from_ms + offset_ms + step - 1).div_euclid(step) * step - offset_ms;
        while instant < until_ms.unwrap_or(range.end_ms + 1) {
            instants.push(instant);
            instant += step;
        }
        match until_ms {
            Some(until_ms) if until_ms > from_ms => from_ms = until_ms,
            _ => break,
        }
    }
    instants
}

/// Returns the first instants of days, months or years.
fn first_of_dates(step: Step, range: TimeRange, zone: &TimeZone) -> Vec<i64> {
    let Some(first) = Timestamp::from_millisecond(range.start_ms)
        .ok()
        .map(|start| zone.to_datetime(start).date())
    else {
        return Vec::new();
    };
    let mut instants = Vec::new();
    for index in 0..MAX_TICKS {
        // The first date may lie before all years that there are.
        let Some(date) = nth_date(step, first, index) else {
            continue;
        };
        let Ok(instant) = date.to_zoned(zone.clone()) else {
            continue;
        };
        let instant_ms = instant.timestamp().as_millisecond();
        if instant_ms > range.end_ms {
            break;
        }
        instants.push(instant_ms);
    }
    instants
}

/// Returns the date of a tick, counted from the last one that is not after `first`.
fn nth_date(step: Step, first: Date, index: i64) -> Option<Date> {
    let multiple = |value: i64, step: i64| (value.div_euclid(step) + index) * step;
    let year_and_month =
        |year: i64, month: i64| Date::new(i16::try_from(year).ok()?, i8::try_from(month).ok()?, 1).ok();
    match step {
        Step::Milliseconds(_) => None,
        Step::Days(step) => {
            let seconds = Offset::UTC.to_timestamp(first.at(0, 0, 0, 0)).ok()?.as_second();
            // Weeks begin on Mondays; the epoch was a Thursday.
            let monday = if step % 7 == 0 { 4 } else { 0 };
            let day = multiple(seconds.div_euclid(DAY / SECOND) - monday, step) + monday;
            let midnight = Timestamp::from_second(day * (DAY / SECOND)).ok()?;
            Some(Offset::UTC.to_datetime(midnight).date())
        }
        Step::Months(step) => {
            let months = multiple(i64::from(first.year()) * 12 + i64::from(first.month()) - 1, step);
            year_and_month(months.div_euclid(12), months.rem_euclid(12) + 1)
        }
        Step::Years(step) => year_and_month(multiple(i64::from(first.year()), step), 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(from: &str, to: &str, zone: &str, width: f64) -> Vec<String> {
        let zone = TimeZone::get(zone).unwrap();
        let milliseconds = |text: &str| {
            text.parse::<DateTime>()
                .unwrap()
                .to_zoned(zone.clone())
                .unwrap()
                .timestamp()
                .as_millisecond()
        };
        let range = TimeRange {
            start_ms: milliseconds(from),
            end_ms: milliseconds(to),
        };
        let ticks = time_ticks(range.normalized(), &zone, width, |text| text.len() as f64 * 6.0);
        let text = |tick: TimeTick| match tick.context {
            Some(context) => format!("{} {context}", tick.label),
            None => tick.label,
        };
        ticks.into_iter().map(text).collect()
    }

    #[test]
    fn steps_are_human() {
        let labels = |from, to| labels(from, to, "UTC", 300.0);
        assert_eq!(
            labels("2026-01-02T00:00", "2026-01-02T06:00"),
            [
                "00:00 2026-01-02",
                "01:00",
                "02:00",
                "03:00",
                "04:00",
                "05:00",
                "06:00"
            ]
        );
        assert_eq!(
            labels("2026-01-02T22:10", "2026-01-03T02:10"),
            ["23:00 2026-01-02", "00:00 2026-01-03", "01:00", "02:00"]
        );
        assert_eq!(
            labels("2026-01-02T00:00:01", "2026-01-02T00:00:02")[0],
            "00:00:01.000 2026-01-02"
        );
        assert_eq!(
            labels("2026-01-02T00:00", "2026-01-30T00:00"),
            ["Jan 5 2026", "Jan 12", "Jan 19", "Jan 26"]
        );
        assert_eq!(
            labels("2025-11-02T00:00", "2026-03-30T00:00"),
            ["Dec 2025", "Jan 2026", "Feb", "Mar"]
        );
        assert_eq!(
            labels("1993-11-02T00:00", "2026-03-30T00:00"),
            ["2000", "2010", "2020"]
        );
        assert_eq!(
            labels("-009998-01-01T00:00", "9998-01-01T00:00"),
            ["-5000", "0", "5000"]
        );
    }

    #[test]
    fn an_hour_that_is_skipped_has_no_tick() {
        let ticks = labels("2026-03-29T00:00", "2026-03-29T06:00", "Europe/Berlin", 300.0);
        assert_eq!(
            ticks,
            ["00:00 2026-03-29", "01:00", "03:00", "04:00", "05:00", "06:00"]
        );
    }

    #[test]
    fn an_hour_that_is_repeated_has_two_ticks() {
        let ticks = labels("2026-10-25T00:00", "2026-10-25T05:00", "Europe/Berlin", 300.0);
        assert_eq!(
            ticks,
            [
                "00:00 2026-10-25",
                "01:00",
                "02:00",
                "02:00",
                "03:00",
                "04:00",
                "05:00"
            ]
        );
    }

    #[test]
    fn days_begin_at_the_local_midnight_around_a_change() {
        let ticks = labels("2026-03-27T00:00", "2026-04-01T00:00", "America/New_York", 300.0);
        assert_eq!(
            ticks,
            ["Mar 27 2026", "Mar 28", "Mar 29", "Mar 30", "Mar 31", "Apr 1"]
        );
        let steps = labels("2026-03-28T12:00", "2026-03-30T00:00", "Europe/Berlin", 300.0);
        assert_eq!(
            steps,
            [
                "12:00 2026-03-28",
                "18:00",
                "00:00 2026-03-29",
                "06:00",
                "12:00",
                "18:00",
                "00:00 2026-03-30"
            ]
        );
        // Cuba's clocks skip midnight: the day begins at 01:00.
        let skipped = labels("2026-03-07T00:00", "2026-03-10T00:00", "America/Havana", 190.0);
        assert_eq!(
            skipped,
            ["Mar 7 2026", "Mar 8", "Mar 9", "Mar 10"].map(String::from)[..skipped.len()]
        );
    }

    #[test]
    fn zones_with_odd_offsets_align_to_local_hours() {
        let ticks = labels("2026-01-02T00:00", "2026-01-02T03:00", "Asia/Kathmandu", 160.0);
        assert_eq!(ticks, ["00:00 2026-01-02", "01:00", "02:00", "03:00"]);
    }

    #[test]
    fn extreme_ranges_are_moved() {
        let range = TimeRange {
            start_ms: i64::MAX,
            end_ms: i64::MIN,
        }
        .normalized();
        assert_eq!(range.end_ms - range.start_ms, 1);
        let all = TimeRange {
            start_ms: i64::MIN,
            end_ms: i64::MAX,
        }
        .normalized();
        let ticks = time_ticks(all, &TimeZone::get("Europe/Berlin").unwrap(), 400.0, |text| {
            text.len() as f64 * 6.0
        });
        assert_eq!(ticks.len(), 3, "{ticks:?}");
    }
}
