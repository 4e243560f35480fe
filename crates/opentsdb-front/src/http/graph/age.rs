//! The time for which a picture may be served again.
//!
//! Source: OpenTSDB 2.4, `GraphHandler.computeMaxAge`, `staleCacheFile`.

use std::time::Duration;

use crate::http::parameters::Parameters;

/// After this time no server writes to the rows of a range.
const SETTLED_MS: i64 = 3_600_000;

/// The age of a picture of a settled range.
const SETTLED_AGE: Duration = Duration::from_secs(86_400);

/// The maximum age of a picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MaxAge {
    /// The `max-age` of the response.
    age: Duration,
    /// The end of the range, if it is an instant in the past: a picture that was drawn after it has all points.
    ended_ms: Option<i64>,
}

impl MaxAge {
    pub(super) const fn seconds(self) -> u64 {
        self.age.as_secs()
    }

    /// Whether a picture that was drawn at an instant may be served.
    pub(super) fn allows(self, drawn_ms: i64, now_ms: i64) -> bool {
        match self.ended_ms {
            Some(ended_ms) => drawn_ms >= ended_ms,
            None => {
                now_ms.saturating_sub(drawn_ms) <= i64::try_from(self.age.as_millis()).unwrap_or(i64::MAX)
            }
        }
    }
}

/// The age of a picture of a range in milliseconds since the epoch. A range that ends in the future has no age, a past
/// range a day, unless a bound is relative (`1h-ago`), and any other range about a thousandth of its length.
pub(super) fn max_age(parameters: &Parameters, (start_ms, end_ms): (i64, i64), now_ms: i64) -> MaxAge {
    let of = |name: &str| parameters.get(name).unwrap_or_default();
    let is_relative = |name: &str| of(name).ends_with("-ago");
    let ends_at_instant = !of("end").is_empty() && !is_relative("end") && end_ms < now_ms;
    let age = if end_ms > now_ms {
        Duration::ZERO
    } else if ends_at_instant && end_ms < now_ms - SETTLED_MS && !is_relative("start") {
        SETTLED_AGE
    } else {
        Duration::from_secs(u64::try_from((end_ms - start_ms) / 1000).unwrap_or(0) >> 10)
    };
    MaxAge {
        age,
        ended_ms: ends_at_instant.then_some(end_ms),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW_MS: i64 = 1_700_000_000_000;
    const DAY_MS: i64 = 86_400_000;

    fn parse_max_age(query: &str, range_ms: (i64, i64)) -> MaxAge {
        max_age(&Parameters::parse(Some(query)), range_ms, NOW_MS)
    }

    #[test]
    fn a_picture_is_kept_by_the_end_of_its_range() {
        let past = parse_max_age(
            "start=1600000000&end=1600003600",
            (1_600_000_000_000, 1_600_003_600_000),
        );
        assert_eq!(past.seconds(), 86_400);
        assert!(past.allows(1_600_003_600_000, NOW_MS));
        assert!(!past.allows(1_600_003_599_999, NOW_MS), "drawn before its end");
        // A thousandth of a day.
        let day = parse_max_age("start=1d-ago", (NOW_MS - DAY_MS, NOW_MS));
        assert_eq!(day.seconds(), 84);
        assert!(day.allows(NOW_MS - 84_000, NOW_MS) && !day.allows(NOW_MS - 84_001, NOW_MS));
        let future = parse_max_age("start=1d-ago&end=1700000060", (NOW_MS - DAY_MS, NOW_MS + 60_000));
        assert_eq!(future.seconds(), 0);
        let relative = parse_max_age(
            "start=3h-ago&end=2h-ago",
            (NOW_MS - 10_800_000, NOW_MS - 7_200_000),
        );
        assert_eq!(relative.seconds(), 3);
    }
}
