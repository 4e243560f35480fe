//! Windows of a calendar: days, weeks, months and years as people in a time zone count them.
//!
//! A window is identified by its start, in one of two ways:
//!
//! | windows of | [`Counting::FromOrigin`] | [`Counting::FromSeries`], as OpenTSDB |
//! |---|---|---|
//! | ms, s, min, hours | from each midnight; the last of a day ends with it | from the top of the second, minute, hour, day or month before the first point, then of constant length |
//! | days | from 1970-01-01 | one: from the first of the month; several: from 1 January of the first point's year |
//! | weeks, which begin on Sunday | from 1970-01-04 | one and two: from the first point's week; more: from 1 January's week, week by week |
//! | months | from January 1970 | from January of the first point's year, on over the turn of the year |
//! | years | from 1970 | from the first point's year |
//!
//! So the windows of OpenTSDB can differ between series and between queries, those from an origin
//! cannot. Midnight is the first instant of a day where the clocks skip it, and of the next day where they skip the day
//! (in Samoa 2011-12-30).
//!
//! OpenTSDB counts on until it has passed the first point, goes one step back, and then on from there. Where it crosses
//! a skipped midnight, all windows behind it begin as late, and the one in front of it may: days in Sao Paulo from 19
//! October 2013 on begin at one o'clock, for the 20th has no midnight.
//!
//! Source: OpenTSDB 2.4, `DateTime.previousInterval`, `Downsampler.ValuesInInterval`.

use jiff::civil::{Date, DateTime, Time};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Span, Timestamp};

use crate::quirks::Quirks;

/// How long the windows of a calendar are, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CalendarInterval {
    /// How many units a window has; at least 1.
    pub count: i64,
    /// The unit.
    pub unit: CalendarUnit,
    /// The time zone of the clocks.
    pub zone: TimeZone,
}

/// The unit of a calendar.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CalendarUnit {
    /// Milliseconds.
    Milliseconds,
    /// Seconds.
    Seconds,
    /// Minutes.
    Minutes,
    /// Hours.
    Hours,
    /// Days, which have 23 or 25 hours when the clocks change.
    Days,
    /// Weeks from Sunday to Saturday.
    Weeks,
    /// Months.
    Months,
    /// Years.
    Years,
}

impl CalendarUnit {
    /// As it stands behind a number in OpenTSDB's query language.
    pub const fn suffix(self) -> &'static str {
        match self {
            Self::Milliseconds => "ms",
            Self::Seconds => "s",
            Self::Minutes => "m",
            Self::Hours => "h",
            Self::Days => "d",
            Self::Weeks => "w",
            Self::Months => "n",
            Self::Years => "y",
        }
    }

    /// Its usual length: of a month 30 days, of a year 365.
    pub const fn nominal_ms(self) -> i64 {
        const DAY: i64 = 86_400_000;
        match self {
            Self::Milliseconds => 1,
            Self::Seconds => 1000,
            Self::Minutes => 60_000,
            Self::Hours => 3_600_000,
            Self::Days => DAY,
            Self::Weeks => 7 * DAY,
            Self::Months => 30 * DAY,
            Self::Years => 365 * DAY,
        }
    }

    /// Whether it always has the same length.
    const fn is_fixed(self) -> bool {
        matches!(
            self,
            Self::Milliseconds | Self::Seconds | Self::Minutes | Self::Hours
        )
    }
}

impl CalendarInterval {
    /// The length of a window, if months had 30 days and years 365.
    pub const fn nominal_ms(&self) -> i64 {
        self.count.saturating_mul(self.unit.nominal_ms())
    }
}

/// The start from which windows are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counting {
    /// From one origin, for all series and queries.
    FromOrigin,
    /// From the first point of each series.
    FromSeries,
}

/// The windows of an interval. Instants are milliseconds since the epoch; a window that would begin
/// beyond all calendars begins at [`i64::MAX`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CalendarWindows {
    interval: CalendarInterval,
    counting: Counting,
}

/// 1970-01-04, days since the epoch.
const FIRST_SUNDAY: i64 = 3;

impl CalendarWindows {
    /// The windows of an interval.
    pub const fn new(interval: CalendarInterval, counting: Counting) -> Self {
        Self { interval, counting }
    }

    /// Whether the windows of a series depend on its first point.
    pub fn follow_each_series(&self) -> bool {
        self.counting == Counting::FromSeries
    }

    /// The windows of an interval, counted as OpenTSDB does or not.
    pub const fn under(interval: CalendarInterval, quirks: Quirks) -> Self {
        let counting = if quirks.calendar_follows_each_series {
            Counting::FromSeries
        } else {
            Counting::FromOrigin
        };
        Self::new(interval, counting)
    }

    /// Start of the window that holds an instant; counted from this instant, if windows are counted
    /// from series. Then it can be behind the instant, on a day in front of one without midnight.
    pub fn floor(&self, time_ms: i64) -> i64 {
        let start = match self.counting {
            Counting::FromOrigin => self.floor_from_origin(time_ms),
            Counting::FromSeries if self.interval.unit.is_fixed() => {
                self.anchor(time_ms).map(|anchor| self.advance(anchor, time_ms))
            }
            Counting::FromSeries => self.counted(time_ms),
        };
        start.unwrap_or(time_ms)
    }

    /// Start of the window behind the one that begins at `start_ms`.
    pub fn next(&self, start_ms: i64) -> i64 {
        let CalendarInterval { count, unit, .. } = self.interval;
        let next = match self.counting {
            Counting::FromOrigin => self.next_from_origin(start_ms),
            Counting::FromSeries => match unit {
                CalendarUnit::Days => self.days_later(start_ms, count),
                CalendarUnit::Weeks => self.days_later(start_ms, count.saturating_mul(7)),
                CalendarUnit::Months => self.months_later(start_ms, count),
                CalendarUnit::Years => self.months_later(start_ms, count.saturating_mul(12)),
                _ => start_ms.checked_add(self.interval.nominal_ms()),
            },
        };
        next.filter(|next| *next > start_ms).unwrap_or(i64::MAX)
    }

    /// Start of the window that holds an instant, counted on from a window that begins at `start_ms`,
    /// which is not after it.
    pub fn advance(&self, start_ms: i64, time_ms: i64) -> i64 {
        match self.counting {
            Counting::FromOrigin => self.floor(time_ms),
            Counting::FromSeries if self.interval.unit.is_fixed() => {
                let length_ms = self.interval.nominal_ms();
                let past = time_ms.saturating_sub(start_ms);
                start_ms + past - past.rem_euclid(length_ms)
            }
            Counting::FromSeries => {
                let mut start_ms = start_ms;
                loop {
                    let next = self.next(start_ms);
                    if next > time_ms {
                        return start_ms;
                    }
                    start_ms = next;
                }
            }
        }
    }

    /// Start of the first window that begins at an instant or behind it.
    pub fn ceil(&self, time_ms: i64) -> i64 {
        let floor = self.floor(time_ms);
        if floor == time_ms { floor } else { self.next(floor) }
    }

    /// The instant from which OpenTSDB counts windows of a fixed length.
    fn anchor(&self, time_ms: i64) -> Option<i64> {
        let local = self.local(time_ms)?;
        let date = local.date();
        let CalendarInterval { count, unit, .. } = self.interval;
        let divides = |whole: i64| whole % count == 0;
        let past = |length_ms: i64| {
            let of_day = local.time().duration_since(Time::midnight()).as_millis();
            Some(time_ms - i64::try_from(of_day).ok()?.rem_euclid(length_ms))
        };
        match unit {
            CalendarUnit::Milliseconds if divides(1000) => past(1000),
            CalendarUnit::Milliseconds => past(60_000),
            CalendarUnit::Seconds if divides(60) => past(60_000),
            CalendarUnit::Seconds => past(3_600_000),
            CalendarUnit::Minutes if divides(60) => past(3_600_000),
            CalendarUnit::Minutes => self.midnight(date, time_ms),
            CalendarUnit::Hours if divides(24) => self.midnight(date, time_ms),
            _ => self.midnight(date.first_of_month(), time_ms),
        }
    }

    /// Start of the window of an instant as OpenTSDB counts: on from the anchor until the instant is passed, and
    /// one step back.
    fn counted(&self, time_ms: i64) -> Option<i64> {
        let date = self.local(time_ms)?.date();
        let CalendarInterval { count, unit, .. } = self.interval;
        let from = match unit {
            CalendarUnit::Days if count == 1 => date.first_of_month(),
            CalendarUnit::Weeks if count < 3 => sunday_of(date)?,
            CalendarUnit::Weeks => sunday_of(date.first_of_year())?,
            _ => date.first_of_year(),
        };
        let mut next = self.instant(from.at(0, 0, 0, 0))?;
        while next <= time_ms {
            next = self.steps_later(next, 1)?;
        }
        self.steps_later(next, -1)
    }

    /// Steps of counting: windows, but of weeks always one.
    fn steps_later(&self, start_ms: i64, steps: i64) -> Option<i64> {
        let CalendarInterval { count, unit, .. } = self.interval;
        match unit {
            CalendarUnit::Weeks => self.days_later(start_ms, steps * 7),
            CalendarUnit::Months => self.months_later(start_ms, count.checked_mul(steps)?),
            CalendarUnit::Years => self.months_later(start_ms, count.checked_mul(steps * 12)?),
            _ => self.days_later(start_ms, count.checked_mul(steps)?),
        }
    }

    fn floor_from_origin(&self, time_ms: i64) -> Option<i64> {
        let date = self.local(time_ms)?.date();
        if self.interval.unit.is_fixed() {
            let midnight = self.day_start(date)?;
            return Some(time_ms - (time_ms - midnight).rem_euclid(self.interval.nominal_ms()));
        }
        self.day_start(self.first_day(date, 0)?)
    }

    /// The first day of the window that has a day, counted from the origin, or of the window `later` windows behind it.
    /// The clocks may skip that day.
    fn first_day(&self, date: Date, later: i64) -> Option<Date> {
        let CalendarInterval { count, unit, .. } = self.interval;
        let first = |number: i64, length: i64| {
            let first = number - number.rem_euclid(length);
            first.checked_add(length.checked_mul(later)?)
        };
        match unit {
            CalendarUnit::Weeks => {
                let days = first(day_number(date) - FIRST_SUNDAY, count.checked_mul(7)?)?;
                date_of(days.checked_add(FIRST_SUNDAY)?)
            }
            CalendarUnit::Months => first_of_month(first(month_number(date), count)?),
            CalendarUnit::Years => first_of_month(first(month_number(date), count.checked_mul(12)?)?),
            _ => date_of(first(day_number(date), count)?),
        }
    }

    fn next_from_origin(&self, start_ms: i64) -> Option<i64> {
        let date = self.local(start_ms)?.date();
        if self.interval.unit.is_fixed() {
            let tomorrow = self.day_start(date.tomorrow().ok()?)?;
            return Some(tomorrow.min(start_ms.checked_add(self.interval.nominal_ms())?));
        }
        self.day_start(self.first_day(date, 1)?)
    }

    /// Java's `Calendar.add` of days: the wall clock shows the same time on the later day. Of a time that it shows
    /// twice, the one with the offset of before is taken. A time that this day does not have becomes a later one, on
    /// all days behind it too.
    fn days_later(&self, start_ms: i64, days: i64) -> Option<i64> {
        let zone = &self.interval.zone;
        let start = Timestamp::from_millisecond(start_ms).ok()?;
        let before = zone.to_offset(start);
        let local = before
            .to_datetime(start)
            .checked_add(Span::new().try_days(days).ok()?)
            .ok()?;
        let later = before.to_timestamp(local).ok()?;
        let shift = i64::from(before.seconds()) - i64::from(zone.to_offset(later).seconds());
        let shifted = later.checked_add(SignedDuration::from_secs(shift)).ok()?;
        let is_that_day = zone.to_datetime(shifted).date() == local.date();
        Some(if is_that_day { shifted } else { later }.as_millisecond())
    }

    fn months_later(&self, start_ms: i64, months: i64) -> Option<i64> {
        let local = self.local(start_ms)?;
        let months = Span::new().try_months(months).ok()?;
        self.instant(local.checked_add(months).ok()?)
    }

    fn local(&self, time_ms: i64) -> Option<DateTime> {
        let instant = Timestamp::from_millisecond(time_ms).ok()?;
        Some(self.interval.zone.to_datetime(instant))
    }

    /// The instant of a time on the wall clock. Of a time that it shows twice the later instant is meant, as in Java; a
    /// time that it skips is as much later as the clocks are put on.
    fn instant(&self, local: DateTime) -> Option<i64> {
        let instant = self.interval.zone.to_ambiguous_timestamp(local).later().ok()?;
        Some(instant.as_millisecond())
    }

    /// The first instant of a day.
    fn day_start(&self, date: Date) -> Option<i64> {
        let midnight = self.interval.zone.to_ambiguous_timestamp(date.at(0, 0, 0, 0));
        Some(midnight.compatible().ok()?.as_millisecond())
    }

    /// Midnight as Java has it; of two the first only if the second is after `time_ms`.
    fn midnight(&self, date: Date, time_ms: i64) -> Option<i64> {
        let midnight = self.instant(date.at(0, 0, 0, 0))?;
        if midnight <= time_ms {
            Some(midnight)
        } else {
            Some(self.day_start(date)?.min(time_ms))
        }
    }
}

/// Days since 1970-01-01.
fn day_number(date: Date) -> i64 {
    let since: SignedDuration = date.duration_since(Date::constant(1970, 1, 1));
    since.as_hours() / 24
}

fn date_of(day_number: i64) -> Option<Date> {
    let days = Span::new().try_days(day_number).ok()?;
    Date::constant(1970, 1, 1).checked_add(days).ok()
}

/// Months since January 1970.
fn month_number(date: Date) -> i64 {
    (i64::from(date.year()) - 1970) * 12 + i64::from(date.month()) - 1
}

fn first_of_month(month_number: i64) -> Option<Date> {
    let year = i16::try_from(1970 + month_number.div_euclid(12)).ok()?;
    let month = i8::try_from(month_number.rem_euclid(12) + 1).ok()?;
    Date::new(year, month, 1).ok()
}

/// The Sunday on which the week of a day begins.
fn sunday_of(date: Date) -> Option<Date> {
    let days = day_number(date) - FIRST_SUNDAY;
    date_of(days - days.rem_euclid(7) + FIRST_SUNDAY)
}

#[cfg(test)]
mod tests;
