//! Names of a day's folder and of its files.
//!
//! ```text
//!   2026-11-22/                        a day, UTC
//!     0000000017-0000000031.part       the points of sequences 17 to 31
//!     0000000032.deleted               a tombstone for the parts before sequence 32
//!     MANIFEST                         the files that must be there
//!     *.tmp                            being written; removed when the store is opened
//! ```
//!
//! Sequences ascend over all days, so the order of a day's parts is the order in which their points were written.

use std::fmt;

/// Milliseconds of a day.
pub const DAY_MS: i64 = 24 * 60 * 60 * 1000;

/// The name of the manifest, of a day and of the store.
pub(super) const MANIFEST: &str = "MANIFEST";

/// A day of UTC, counted from 1970-01-01.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DayNumber(u32);

/// The sequences of a part's points, both inclusive. Ordered by the first, then the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sequences {
    /// The first.
    pub first: u64,
    /// The last, not before the first.
    pub last: u64,
}

/// A file of a day, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DayFile {
    /// A part.
    Part(Sequences),
    /// A tombstone.
    Tombstone(u64),
    /// The manifest.
    Manifest,
    /// Left of something that was interrupted.
    Temporary,
}

impl DayNumber {
    /// The day of an instant. Instants before 1970 and after 10,000,000 years count as the first and last day.
    pub fn from_time_ms(time_ms: i64) -> Self {
        let day = time_ms.div_euclid(DAY_MS).max(0);
        Self(u32::try_from(day).unwrap_or(u32::MAX))
    }

    /// The day of a folder's name; `None` for other folders.
    pub fn parse(name: &str) -> Option<Self> {
        let mut fields = name.split('-').map(digits);
        let (year, month, day) = (fields.next()??, fields.next()??, fields.next()??);
        if year > 9999 || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
            return None;
        }
        let number = days_from_civil(
            i64::try_from(year).ok()?,
            i64::try_from(month).ok()?,
            i64::try_from(day).ok()?,
        );
        // Excludes other spellings of a day, and days such as 2026-02-30.
        let parsed = Self(u32::try_from(number).ok()?);
        (parsed.to_string() == name).then_some(parsed)
    }

    /// The day of a number, counted from 1970-01-01.
    pub(super) const fn from_number(number: u32) -> Self {
        Self(number)
    }

    /// Its number, counted from 1970-01-01.
    pub(super) const fn number(self) -> u32 {
        self.0
    }

    /// The next day.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }

    /// The first instant.
    pub fn first_ms(self) -> i64 {
        i64::from(self.0) * DAY_MS
    }

    /// The last instant.
    pub fn last_ms(self) -> i64 {
        self.first_ms() + DAY_MS - 1
    }

    /// All instants.
    pub fn range(self) -> crate::TimeRange {
        crate::TimeRange {
            first_ms: self.first_ms(),
            last_ms: self.last_ms(),
        }
    }
}

impl fmt::Display for DayNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month, day) = civil_from_days(i64::from(self.0));
        write!(f, "{year:04}-{month:02}-{day:02}")
    }
}

impl fmt::Debug for DayNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Sequences {
    /// Whether all sequences of another range are in this one.
    pub const fn contain(&self, other: &Self) -> bool {
        self.first <= other.first && other.last <= self.last
    }
}

impl DayFile {
    /// The file of a name; `None` if the engine writes no such name.
    pub fn parse(name: &str) -> Option<Self> {
        if name.ends_with(".tmp") {
            return Some(Self::Temporary);
        }
        if name == MANIFEST {
            return Some(Self::Manifest);
        }
        if let Some(sequences) = name.strip_suffix(".part") {
            let (first, last) = sequences.split_once('-')?;
            let (first, last) = (sequence(first)?, sequence(last)?);
            return (first <= last).then_some(Self::Part(Sequences { first, last }));
        }
        Some(Self::Tombstone(sequence(name.strip_suffix(".deleted")?)?))
    }
}

impl fmt::Display for DayFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Part(Sequences { first, last }) => write!(f, "{first:010}-{last:010}.part"),
            Self::Tombstone(sequence) => write!(f, "{sequence:010}.deleted"),
            Self::Manifest => f.write_str(MANIFEST),
            Self::Temporary => write!(f, ".tmp"),
        }
    }
}

/// A sequence as it is written: ten digits or more.
fn sequence(text: &str) -> Option<u64> {
    let value = digits(text)?;
    (format!("{value:010}") == text).then_some(value)
}

fn digits(text: &str) -> Option<u64> {
    let all = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    all.then(|| text.parse().ok())?
}

/// Days since 1970-01-01 of a date of the Gregorian calendar. Years begin in March, so that a leap day is the last of
/// its year.
const fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

/// The inverse of [`days_from_civil`]: year, month, day.
const fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = (month_from_march + 2) % 12 + 1;
    let year = era * 400 + year_of_era;
    (if month <= 2 { year + 1 } else { year }, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_have_the_dates_of_the_calendar() {
        for (time_ms, name) in [
            (0, "1970-01-01"),
            (951_782_400_000, "2000-02-29"),
            (951_868_800_000, "2000-03-01"),
            (1_795_305_599_999, "2026-11-21"),
            (1_795_305_600_000, "2026-11-22"),
            (oxtsdb_schema::timestamp::MAX_MILLIS, "2106-02-07"),
        ] {
            assert_eq!(DayNumber::from_time_ms(time_ms).to_string(), name);
        }
        assert_eq!(DayNumber::from_time_ms(-1), DayNumber(0));
    }

    #[test]
    fn names_of_days_round_trip() {
        for day in (0..60_000).map(DayNumber) {
            assert_eq!(DayNumber::parse(&day.to_string()), Some(day));
            assert_eq!(DayNumber::from_time_ms(day.last_ms()), day);
        }
        for other in [
            "journal",
            "2026-2-03",
            "2026-02-30",
            "2026-02-03-1",
            "+026-02-03",
            "1969-12-31",
            "",
        ] {
            assert_eq!(DayNumber::parse(other), None, "{other}");
        }
    }

    #[test]
    fn names_of_files_round_trip() {
        let sequences = |first, last| DayFile::Part(Sequences { first, last });
        for file in [
            sequences(0, 0),
            sequences(17, 12_345_678_901),
            DayFile::Tombstone(5),
            DayFile::Manifest,
        ] {
            assert_eq!(DayFile::parse(&file.to_string()), Some(file));
        }
        assert_eq!(
            DayFile::parse("0000000001-0000000001.part.tmp"),
            Some(DayFile::Temporary)
        );
        for other in [
            "1-2.part",
            "0000000002-0000000001.part",
            "0000000001.part",
            "00000000001.deleted",
            "x.deleted",
            "notes",
        ] {
            assert_eq!(DayFile::parse(other), None, "{other}");
        }
    }
}
