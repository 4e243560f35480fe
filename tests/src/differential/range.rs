//! Random start and end of a query, in all forms.

use std::fmt::Write as _;

use rand::RngExt as _;
use rand::rngs::StdRng;

use super::data::Metric;

/// Start and end.
#[derive(Clone, Debug)]
pub(super) struct Range {
    /// The parameters as sent.
    pub(super) start: String,
    pub(super) end: String,
    /// Seconds between them, approximately.
    pub(super) length: i64,
    /// Whether the start is relative to now, which differs between the two servers.
    pub(super) is_relative: bool,
}

/// A relative start before all data.
const RELATIVE_START: &str = "20y-ago";

impl Range {
    pub(super) fn new(random: &mut StdRng, metric: &Metric) -> Self {
        let Metric { start, length, .. } = *metric;
        let mut first = start + random.random_range(-length / 8..length);
        let mut last = first + 1 + random.random_range(0..length);
        if random.random_ratio(1, 4) {
            (first, last) = (start - length / 10, start + length + length / 10);
        }
        if random.random_ratio(1, 4) {
            first -= first % 3600;
        }
        if random.random_ratio(1, 5) {
            last -= last % 3600;
        }
        let last = last.max(first + 1);
        let is_relative = random.random_ratio(1, 40);
        Self {
            start: if is_relative {
                RELATIVE_START.to_owned()
            } else {
                time(random, first)
            },
            end: time(random, last),
            length: last - first,
            is_relative,
        }
    }
}

/// A timestamp in a random form. Dates are in UTC; other zones shift them.
fn time(random: &mut StdRng, seconds: i64) -> String {
    let millis = random.random_range(0..1000);
    match random.random_range(0..14) {
        0 => (seconds * 1000 + millis).to_string(),
        1 => format!("{}ms", seconds * 1000 + millis),
        2 => format!("{seconds}.{millis:03}"),
        3 => date(seconds, &['/', '/', '-', ':', ':']),
        4 => date(seconds, &['/', '/', ' ', ':']),
        5 => date(seconds, &['/', '/']),
        _ => seconds.to_string(),
    }
}

/// The date of a timestamp, with these separators between its fields.
fn date(seconds: i64, separators: &[char]) -> String {
    let (days, of_day) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    // The Gregorian calendar, in eras of 400 years from 1 March of year 0.
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let of_era = days.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = (from_march + 2) % 12 + 1;
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let fields = [month, day, of_day / 3600, of_day / 60 % 60, of_day % 60];
    let mut text = year.to_string();
    for (separator, field) in separators.iter().zip(fields) {
        // Writing to memory does not fail.
        let _ = write!(text, "{separator}{field:02}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_gregorian_dates() {
        assert_eq!(date(0, &['/', '/']), "1970/01/01");
        assert_eq!(date(1_330_560_000, &['/', '/', '-', ':']), "2012/03/01-00:00");
        assert_eq!(
            date(1_330_559_999, &['/', '/', ' ', ':', ':']),
            "2012/02/29 23:59:59"
        );
    }
}
