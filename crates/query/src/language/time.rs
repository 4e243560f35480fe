//! Times and durations in OpenTSDB's query language.
//!
//! | form | meaning |
//! |---|---|
//! | `now` | the current time, milliseconds |
//! | `1356998400123ms` | milliseconds |
//! | `1h-ago` | the current time minus a duration |
//! | `2013/01/01`, `2013/01/01-00:00`, `2013/01/01 00:00:00` | wall-clock time in a zone |
//! | `1356998400` | seconds if there are at most 10 characters, else milliseconds |
//! | `1356998400.123` | seconds and milliseconds: the dot is deleted |
//!
//! Case is ignored, blanks around the text are not. Deleting the dot is literal: `1356998400.5` is 13569984005 ms, in
//! 1970, as in OpenTSDB.
//!
//! Error messages are OpenTSDB's, because clients of its HTTP API show them.
//!
//! Source: OpenTSDB 2.4, `DateTime.parseDateTimeString`, `DateTime.parseDuration`,
//! `DateTime.setTimeZone`.

use std::time::{SystemTime, UNIX_EPOCH};

use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Span};
use oxtsdb_schema::value::{IntegerTextError, parse_integer};

use crate::function::calendar::CalendarUnit;

/// Error of a text that is no time, duration or zone.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TimeError {
    /// A date of another length than the forms have.
    #[error("Invalid absolute date: {text}")]
    DateLength {
        /// The text.
        text: String,
    },
    /// A date of the right length that is none.
    #[error("Invalid date: {text}. Unparseable date: \"{text}\"")]
    Date {
        /// The text.
        text: String,
    },
    /// A number with a dot that is not seconds and milliseconds.
    #[error(
        "Invalid time: {text}. Millisecond timestamps must be in the format <seconds>.<ms> where the \
         milliseconds are limited to 3 digits"
    )]
    Fraction {
        /// The text.
        text: String,
    },
    /// A number below zero.
    #[error("Invalid time: {text}. Negative timestamps are not supported.")]
    Negative {
        /// The text.
        text: String,
    },
    /// Neither a form nor a number.
    #[error("Invalid time: {text}. {reason}")]
    Number {
        /// The text.
        text: String,
        /// The reason.
        reason: IntegerTextError,
    },
    /// A duration with an unknown unit.
    #[error("Invalid duration (suffix): {text}")]
    DurationUnit {
        /// The text.
        text: String,
    },
    /// No duration.
    #[error("Cannot parse null or empty duration")]
    NoDuration,
    /// Digits alone.
    #[error("Invalid duration, must have an integer and unit: {text}")]
    DurationWithoutUnit {
        /// The text.
        text: String,
    },
    /// A duration without a number.
    #[error("Invalid duration (number): {text}")]
    DurationNumber {
        /// The text.
        text: String,
    },
    /// More milliseconds than there are.
    #[error("Duration must be < Long.MAX_VALUE ms: {text}")]
    DurationTooLong {
        /// The text.
        text: String,
    },
    /// A duration of nothing.
    #[error("Zero or negative duration: {text}")]
    ZeroDuration {
        /// The text.
        text: String,
    },
    /// A text that is no name of a time zone.
    #[error("Invalid timezone name: {text}")]
    Zone {
        /// The text.
        text: String,
    },
}

/// The server's clock, milliseconds since the epoch.
pub fn now_ms() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(now.as_millis()).unwrap_or(i64::MAX)
}

/// The last millisecond that OpenTSDB accepts in a query.
const MAX_TIME_MS: i64 = 9_999_999_999_999;

/// Whether a query may start or end at a timestamp: not before 1970 and not after the year 2286.
pub fn is_query_time(time_ms: i64) -> bool {
    (0..=MAX_TIME_MS).contains(&time_ms)
}

/// Parses a start or an end into milliseconds since the epoch. `now_ms` is the current time, `zone` the time zone of
/// dates.
///
/// # Errors
///
/// [`TimeError`]; an empty text is one too.
pub fn parse_time(text: &str, now_ms: i64, zone: &TimeZone) -> Result<i64, TimeError> {
    let lower = text.to_ascii_lowercase();
    if lower == "now" {
        return Ok(now_ms);
    }
    // Unlike the other words it must be in lower case.
    if let Some(digits) = text.strip_suffix("ms").filter(|digits| all_digits(digits)) {
        return number(text, digits);
    }
    if let Some(duration) = lower.strip_suffix("-ago") {
        return Ok(now_ms.saturating_sub(parse_duration(duration)?));
    }
    if is_date(text) {
        date(text, zone)
    } else {
        seconds_or_millis(text)
    }
}

/// Whether a text is a date, which depends on the time zone.
pub fn is_date(text: &str) -> bool {
    text.contains(['/', ':'])
}

/// Parses a duration such as `90s` or `1w` into milliseconds; more than 0.
///
/// The leading digits are the number and the last character is the unit; text between them is ignored, so `1.5h` is
/// one hour. Months have 30 days and years 365.
///
/// # Errors
///
/// [`TimeError::DurationUnit`], [`TimeError::DurationNumber`] and [`TimeError::ZeroDuration`].
pub fn parse_duration(text: &str) -> Result<i64, TimeError> {
    let (count, unit) = parse_units(text)?;
    count
        .checked_mul(unit.nominal_ms())
        .ok_or_else(|| TimeError::DurationTooLong {
            text: text.to_owned(),
        })
}

/// Parses a duration like [`parse_duration`], into a number, at least 1, and its unit.
///
/// # Errors
///
/// As [`parse_duration`].
pub fn parse_units(text: &str) -> Result<(i64, CalendarUnit), TimeError> {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (count, unit) = text.split_at(digits);
    let bad_number = || TimeError::DurationNumber {
        text: text.to_owned(),
    };
    if text.is_empty() {
        return Err(TimeError::NoDuration);
    }
    if unit.is_empty() {
        return Err(TimeError::DurationWithoutUnit {
            text: text.to_owned(),
        });
    }
    let count: i64 = count.parse().map_err(|_| bad_number())?;
    if count == 0 {
        return Err(TimeError::ZeroDuration {
            text: text.to_owned(),
        });
    }
    let unit = unit.to_ascii_lowercase();
    let unit = match unit.as_bytes().last() {
        Some(b's') if unit.ends_with("ms") => CalendarUnit::Milliseconds,
        Some(b's') => CalendarUnit::Seconds,
        Some(b'm') => CalendarUnit::Minutes,
        Some(b'h') => CalendarUnit::Hours,
        Some(b'd') => CalendarUnit::Days,
        Some(b'w') => CalendarUnit::Weeks,
        Some(b'n') => CalendarUnit::Months,
        Some(b'y') => CalendarUnit::Years,
        _ => {
            return Err(TimeError::DurationUnit {
                text: text.to_owned(),
            });
        }
    };
    Ok((count, unit))
}

/// Finds a time zone of the IANA list by its exact name.
///
/// # Errors
///
/// [`TimeError::Zone`] for other names, `utc` and `+05:00` among them.
pub fn find_zone(name: &str) -> Result<TimeZone, TimeError> {
    let zone = match name {
        "UTC" => Some(TimeZone::UTC),
        // The lookup ignores case, OpenTSDB does not.
        _ => TimeZone::get(name)
            .ok()
            .filter(|zone| zone.iana_name() == Some(name)),
    };
    zone.ok_or_else(|| TimeError::Zone {
        text: name.to_owned(),
    })
}

fn all_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Parses a number without a unit: its length distinguishes seconds from milliseconds.
fn seconds_or_millis(text: &str) -> Result<i64, TimeError> {
    if let Some((seconds, fraction)) = text.split_once('.') {
        let is_millis =
            seconds.len() == 10 && all_digits(seconds) && fraction.len() <= 3 && all_digits(fraction);
        return if is_millis {
            number(text, &text.replace('.', ""))
        } else {
            Err(TimeError::Fraction {
                text: text.to_owned(),
            })
        };
    }
    let value = number(text, text)?;
    // At most 10 characters, so the product is far from overflowing.
    Ok(if text.len() <= 10 { value * 1000 } else { value })
}

fn number(text: &str, digits: &str) -> Result<i64, TimeError> {
    let value = parse_integer(digits).map_err(|reason| TimeError::Number {
        text: text.to_owned(),
        reason,
    })?;
    if value < 0 {
        Err(TimeError::Negative {
            text: text.to_owned(),
        })
    } else {
        Ok(value)
    }
}

/// Parses a date. Fields beyond their range carry into the next larger one: month 13 is January of the next year,
/// month -1 November of the previous one. Blanks before a field are ignored.
fn date(text: &str, zone: &TimeZone) -> Result<i64, TimeError> {
    let separator = if text.as_bytes().get(10) == Some(&b' ') {
        ' '
    } else {
        '-'
    };
    let separators: &[char] = match text.len() {
        10 => &['/', '/'],
        16 => &['/', '/', separator, ':'],
        19 => &['/', '/', separator, ':', ':'],
        _ => {
            return Err(TimeError::DateLength {
                text: text.to_owned(),
            });
        }
    };
    let unparseable = || TimeError::Date {
        text: text.to_owned(),
    };
    let mut fields = [0_i64; 6];
    let mut rest = text;
    for (index, field) in fields.iter_mut().enumerate().take(separators.len() + 1) {
        if let Some(before) = index.checked_sub(1) {
            rest = rest.strip_prefix(separators[before]).ok_or_else(unparseable)?;
        }
        rest = rest.trim_start_matches(' ');
        let sign = usize::from(rest.starts_with('-'));
        let after = rest[sign..].trim_start_matches(|c: char| c.is_ascii_digit());
        let (number, after) = rest.split_at(rest.len() - after.len());
        *field = number.parse().map_err(|_| unparseable())?;
        rest = after;
    }
    civil_millis(fields, zone).ok_or_else(unparseable)
}

/// The timestamp of year, month, day, hour, minute and second on the wall clock of a zone. As in Java, a skipped time
/// is shifted by the length of the gap, and a repeated time is the later one.
fn civil_millis([year, month, day, hour, minute, second]: [i64; 6], zone: &TimeZone) -> Option<i64> {
    let months = year.checked_mul(12)?.checked_add(month - 1)?;
    let first = Date::new(
        i16::try_from(months.div_euclid(12)).ok()?,
        i8::try_from(months.rem_euclid(12) + 1).ok()?,
        1,
    );
    let midnight = first
        .ok()?
        .checked_add(Span::new().try_days(day - 1).ok()?)
        .ok()?
        .at(0, 0, 0, 0);
    let seconds = hour
        .checked_mul(60)?
        .checked_add(minute)?
        .checked_mul(60)?
        .checked_add(second)?;
    let wall = midnight.checked_add(SignedDuration::from_secs(seconds)).ok()?;
    let instant = zone.to_ambiguous_timestamp(wall).later().ok()?;
    Some(instant.as_millisecond())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_400_000_000_123;

    fn utc(text: &str) -> Result<i64, String> {
        parse_time(text, NOW, &TimeZone::UTC).map_err(|error| error.to_string())
    }

    fn in_zone(text: &str, zone: &str) -> i64 {
        parse_time(text, NOW, &find_zone(zone).unwrap()).unwrap()
    }

    #[test]
    fn parses_all_forms_of_times() {
        for (text, expected) in [
            ("now", NOW),
            ("NOW", NOW),
            ("1356998400123ms", 1_356_998_400_123),
            ("5ms", 5),
            ("1h-ago", NOW - 3_600_000),
            ("90S-AGO", NOW - 90_000),
            ("2013/01/01", 1_356_998_400_000),
            ("2013/01/01-00:01", 1_356_998_460_000),
            ("2013/01/01 00:01", 1_356_998_460_000),
            ("2013/01/01-00:00:30", 1_356_998_430_000),
            ("2013/01/01 00:00:30", 1_356_998_430_000),
            ("2012/13/01", 1_356_998_400_000),
            ("2012/12/32", 1_356_998_400_000),
            ("2012/12/31-24:00", 1_356_998_400_000),
            ("1356998400", 1_356_998_400_000),
            ("0", 0),
            ("1356998400123", 1_356_998_400_123),
            ("99999999999", 99_999_999_999),
            ("1356998400.123", 1_356_998_400_123),
            ("1356998400.5", 13_569_984_005),
        ] {
            assert_eq!(utc(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn rejects_invalid_times_with_opentsdbs_messages() {
        let fraction = "Millisecond timestamps must be in the format <seconds>.<ms> where the \
                        milliseconds are limited to 3 digits";
        for (text, expected) in [
            (
                "2013-01-01",
                "Invalid time: 2013-01-01. Invalid character '-' in 2013-01-01".to_owned(),
            ),
            ("2013/1/1", "Invalid absolute date: 2013/1/1".to_owned()),
            (
                "2013/01/01T00:00",
                "Invalid date: 2013/01/01T00:00. Unparseable date: \"2013/01/01T00:00\"".to_owned(),
            ),
            (
                "1356998400.1234",
                format!("Invalid time: 1356998400.1234. {fraction}"),
            ),
            ("135.5", format!("Invalid time: 135.5. {fraction}")),
            (
                "-5",
                "Invalid time: -5. Negative timestamps are not supported.".to_owned(),
            ),
            (
                "soon",
                "Invalid time: soon. Invalid character 's' in soon".to_owned(),
            ),
            (
                " now",
                "Invalid time:  now. Invalid character ' ' in  now".to_owned(),
            ),
            ("1x-ago", "Invalid duration (suffix): 1x".to_owned()),
            (
                "5MS",
                "Invalid time: 5MS. Invalid character 'M' in 5MS".to_owned(),
            ),
            ("-ago", "Cannot parse null or empty duration".to_owned()),
        ] {
            assert_eq!(utc(text), Err(expected), "{text}");
        }
        assert!(utc("").is_err());
        assert!(utc("9999999999/01/01").is_err(), "a year that no calendar has");
        assert!(utc("日本/日本/日").is_err(), "text that is not ASCII");
    }

    #[test]
    fn fields_of_dates_may_be_beyond_their_range() {
        for (text, expected) in [
            ("2013/-1/01", 1_351_728_000_000),
            ("2013/01/ 1", 1_356_998_400_000),
            ("1969/01/01", -31_536_000_000),
            ("2013/00/00", 1_354_233_600_000),
        ] {
            assert_eq!(utc(text), Ok(expected), "{text}");
        }
        assert!(is_query_time(0) && is_query_time(9_999_999_999_999));
        assert!(!is_query_time(-1) && !is_query_time(10_000_000_000_000));
    }

    #[test]
    fn durations_have_a_number_in_front_and_a_unit_at_the_end() {
        let hour = 3_600_000;
        for (text, expected) in [
            ("500ms", 500),
            ("90s", 90_000),
            ("1m", 60_000),
            ("1H", hour),
            ("1d", 24 * hour),
            ("1w", 168 * hour),
            ("1n", 720 * hour),
            ("1y", 8760 * hour),
            ("1.5h", hour),
            ("1hm", 60_000),
        ] {
            assert_eq!(parse_duration(text), Ok(expected), "{text}");
        }
        for (text, expected) in [
            ("1x", "Invalid duration (suffix): 1x"),
            ("h", "Invalid duration (number): h"),
            ("", "Cannot parse null or empty duration"),
            ("15", "Invalid duration, must have an integer and unit: 15"),
            ("0h", "Zero or negative duration: 0h"),
            (
                "99999999999999999999h",
                "Invalid duration (number): 99999999999999999999h",
            ),
            (
                "9999999999999999y",
                "Duration must be < Long.MAX_VALUE ms: 9999999999999999y",
            ),
            ("1é", "Invalid duration (suffix): 1é"),
        ] {
            assert_eq!(parse_duration(text).unwrap_err().to_string(), expected);
        }
    }

    #[test]
    fn dates_are_on_the_wall_clock_of_their_zone() {
        assert_eq!(in_zone("2013/01/01-00:00", "America/New_York"), 1_357_016_400_000);
        assert_eq!(in_zone("2013/01/01-00:00", "Asia/Kolkata"), 1_356_978_600_000);
        assert_eq!(
            in_zone("2013/07/01-00:00", "EST"),
            1_372_654_800_000,
            "EST has no summer time"
        );
        // 02:30 does not exist on that day, 03:30 summer time is meant.
        assert_eq!(in_zone("2013/03/10-02:30", "America/New_York"), 1_362_900_600_000);
        // 01:30 exists twice, winter time is meant.
        assert_eq!(in_zone("2013/11/03-01:30", "America/New_York"), 1_383_460_200_000);
    }

    #[test]
    fn zones_are_found_by_their_exact_names_only() {
        for name in ["UTC", "GMT", "EST", "America/New_York", "Etc/GMT+5"] {
            assert!(find_zone(name).is_ok(), "{name}");
        }
        for name in ["utc", "GMT+5", "+05:00", "america/new_york", "", "../etc/passwd"] {
            assert_eq!(
                find_zone(name).unwrap_err().to_string(),
                format!("Invalid timezone name: {name}")
            );
        }
    }
}
