//! The time zone of dates, in arguments and in output.

use anyhow::{Context as _, bail};
use clap::Args;
use jiff::Timestamp;
use jiff::tz::TimeZone;

/// The time zone of dates.
#[derive(Debug, Args)]
pub(crate) struct TimeZoneArgs {
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
    pub(crate) fn zone(&self) -> anyhow::Result<TimeZone> {
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
pub(crate) fn show(timestamp_ms: i64, zone: &TimeZone) -> String {
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

/// The time of this machine's clock, milliseconds since the epoch.
///
/// # Errors
///
/// If the clock is before 1970.
pub(crate) fn now_ms() -> anyhow::Result<i64> {
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
    fn rejects_unknown_zones() {
        let args = TimeZoneArgs {
            utc: false,
            timezone: Some("Mars/Base".to_owned()),
        };
        assert!(args.zone().unwrap_err().to_string().contains("`Mars/Base`"));
    }
}
