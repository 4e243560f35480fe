//! Times and their zone, in arguments and in output.

use anyhow::{Context as _, anyhow, bail};
use clap::Args;
use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use oxtsdb_query::language::time::parse_time;

/// The time zone of dates.
#[derive(Debug, Args)]
pub struct TimeZoneArgs {
    /// Parse and print dates in UTC [default: the local time zone]
    #[arg(long, conflicts_with = "timezone")]
    utc: bool,

    /// Parse and print dates in this time zone, for example Europe/Zurich
    #[arg(long, value_name = "ZONE")]
    timezone: Option<String>,
}

impl TimeZoneArgs {
    /// The zone.
    ///
    /// # Errors
    ///
    /// If there is no zone with this name.
    pub fn zone(&self) -> anyhow::Result<TimeZone> {
        match &self.timezone {
            _ if self.utc => Ok(TimeZone::UTC),
            None => Ok(TimeZone::system()),
            Some(name) => TimeZone::get(name)
                .with_context(|| format!("unknown time zone `{name}`, for example `Europe/Zurich`")),
        }
    }
}

/// An instant as people read it: `2012-09-05 12:00:00`, with milliseconds where there are some, and
/// with the offset from UTC (`Z` for UTC itself).
pub fn show(timestamp_ms: i64, zone: &TimeZone) -> String {
    let Ok(instant) = Timestamp::from_millisecond(timestamp_ms) else {
        return format!("{timestamp_ms} ms");
    };
    let format = match (timestamp_ms % 1000 == 0, *zone == TimeZone::UTC) {
        (true, true) => "%Y-%m-%d %H:%M:%SZ",
        (true, false) => "%Y-%m-%d %H:%M:%S%:z",
        (false, true) => "%Y-%m-%d %H:%M:%S.%3fZ",
        (false, false) => "%Y-%m-%d %H:%M:%S.%3f%:z",
    };
    instant.to_zoned(zone.clone()).strftime(format).to_string()
}

/// Parses an argument into milliseconds since the epoch: a time in one of OpenTSDB's forms, as [`show`] prints it, or in
/// RFC 3339's. A date without a time is its midnight. Dates without an offset are in `zone`.
///
/// # Errors
///
/// If it is none of these.
pub fn parse(text: &str, now_ms: i64, zone: &TimeZone) -> anyhow::Result<i64> {
    let time_ms = if is_iso_date(text) {
        parse_iso(text, zone)
    } else {
        is_exact(text).and_then(|()| parse_time(text, now_ms, zone).map_err(|error| anyhow!(error)))
    };
    time_ms.with_context(|| {
        format!(
            "`{text}` is not a time, for example `1h-ago`, `2012-09-05`, `2012-09-05 12:00:00Z` (one argument, in \
             quotes), `2012/09/05-12:00:00` or `1346846400`"
        )
    })
}

/// Rejects `1.5h-ago`, which OpenTSDB reads as `1h-ago`: it ignores what stands between number and unit.
fn is_exact(text: &str) -> anyhow::Result<()> {
    let lower = text.to_ascii_lowercase();
    let Some(duration) = lower.strip_suffix("-ago") else {
        return Ok(());
    };
    let unit = duration.trim_start_matches(|c: char| c.is_ascii_digit());
    anyhow::ensure!(
        ["ms", "s", "m", "h", "d", "w", "n", "y"].contains(&unit),
        "expected a whole number and ms, s, m, h, d, w, n or y before `-ago`"
    );
    Ok(())
}

/// Whether a text begins as `2012-09-05` does; no form of OpenTSDB's does.
fn is_iso_date(text: &str) -> bool {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    digits == 4 && text.as_bytes().get(4) == Some(&b'-')
}

/// A date, with a time, a fraction of a second and an offset if there are any.
fn parse_iso(text: &str, zone: &TimeZone) -> anyhow::Result<i64> {
    let instant = match text.parse::<Timestamp>() {
        Ok(instant) => instant,
        Err(_) => {
            // A name of a zone in brackets would be ignored.
            let wall: DateTime = text
                .parse()
                .context("expected YYYY-MM-DD[ HH:MM[:SS[.sss]]][Z|+HH:MM]")?;
            anyhow::ensure!(!text.contains('['), "expected an offset in place of `[...]`");
            zone.to_ambiguous_timestamp(wall).later()?
        }
    };
    Ok(instant.as_millisecond())
}

/// The time of this machine's clock, milliseconds since the epoch.
///
/// # Errors
///
/// If the clock is before 1970.
pub fn now_ms() -> anyhow::Result<i64> {
    let now = Timestamp::now().as_millisecond();
    if now <= 0 {
        bail!("the system clock is at {now} ms, before 1970");
    }
    Ok(now)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_printed_in_their_zone() {
        let zurich = TimeZone::get("Europe/Zurich").unwrap();
        assert_eq!(show(1_346_846_400_000, &TimeZone::UTC), "2012-09-05 12:00:00Z");
        assert_eq!(
            show(1_346_846_400_250, &TimeZone::UTC),
            "2012-09-05 12:00:00.250Z"
        );
        assert_eq!(show(1_346_846_400_000, &zurich), "2012-09-05 14:00:00+02:00");
        assert_eq!(show(i64::MAX, &TimeZone::UTC), format!("{} ms", i64::MAX));
    }

    #[test]
    fn reads_the_times_that_it_prints_and_those_of_rfc_3339() {
        let zurich = TimeZone::get("Europe/Zurich").unwrap();
        let noon = 1_346_846_400_000;
        for time_ms in [noon, noon + 250, 0, 1_351_384_200_000] {
            for zone in [&TimeZone::UTC, &zurich] {
                let text = show(time_ms, zone);
                assert_eq!(parse(&text, 0, &TimeZone::UTC).unwrap(), time_ms, "{text}");
            }
        }
        for (text, expected) in [
            ("2012-09-05T12:00:00Z", noon),
            ("2012-09-05t12:00:00z", noon),
            ("2012-09-05T05:00:00-07:00", noon),
            ("2012-09-05T17:30:00.25+05:30", noon + 250),
            ("2012-09-05 14:00", noon),
            ("2012-09-05 14:00:00.250", noon + 250),
            ("2012-09-05T14:00:00", noon),
            ("2012-09-05", noon - 14 * 3_600_000),
            ("2012/09/05-14:00:00", noon),
            ("1346846400", noon),
            ("1h-ago", noon - 3_600_000),
            // 02:30 does not exist on that day, 03:30 summer time is meant; the day after exists twice, winter time is meant.
            ("2012-03-25 02:30", 1_332_639_000_000),
            ("2012-10-28 02:30", 1_351_387_800_000),
        ] {
            assert_eq!(parse(text, noon, &zurich).unwrap(), expected, "{text}");
        }
    }

    #[test]
    fn rejects_texts_that_are_not_times() {
        for text in [
            "2012-9-5",
            "2012-09-31",
            "2012-09-05 25:00",
            "2012-09-05Z",
            "2012-09-05 12:00:00[Europe/Zurich]",
            "2012-09",
            "12:00:00Z",
            "yesterday",
            "1.5h-ago",
            "h-ago",
            "",
        ] {
            let error = format!("{:#}", parse(text, 0, &TimeZone::UTC).unwrap_err());
            let expected = format!("`{text}` is not a time, for example `1h-ago`, `2012-09-05`");
            assert!(error.starts_with(&expected), "{error}");
        }
    }

    #[test]
    fn rejects_unknown_zones() {
        let args = TimeZoneArgs {
            utc: false,
            timezone: Some("Mars/Base".to_owned()),
        };
        assert!(args.zone().unwrap_err().to_string().contains("`Mars/Base`"));
    }
}
