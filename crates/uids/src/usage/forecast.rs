//! The forecast of a number space: assignments per day over the last week, and the time at which none is left.

use std::time::{Duration, SystemTime};

use super::samples::Sample;

/// The past that the forecast is made from.
const WINDOW: Duration = Duration::from_secs(7 * DAY);

/// The shortest past that a forecast can be made from.
const SHORTEST: Duration = Duration::from_secs(3600);

/// Forecasts end here: a hundred years.
const HORIZON_DAYS: f64 = 36_525.0;

const DAY: u64 = 86_400;

/// The forecast of a number space.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Forecast {
    /// Assignments per day; `None` without samples of an hour or more.
    pub assigned_per_day: Option<f64>,
    /// When no number is left at this rate; `None` if nothing is assigned, or if that is more than a hundred years
    /// away.
    pub exhaustion: Option<SystemTime>,
}

impl Forecast {
    /// The forecast from now on, from the samples of a number space.
    pub(super) fn new(samples: &[Sample], now: Sample, available: u64) -> Self {
        let age = |sample: &Sample| now.time.duration_since(sample.time).unwrap_or_default();
        let oldest = samples
            .iter()
            .filter(|sample| (SHORTEST..=WINDOW).contains(&age(sample)))
            .max_by_key(|sample| age(sample));
        let Some(oldest) = oldest else {
            return Self::default();
        };
        let days = age(oldest).as_secs_f64() / as_f64(DAY);
        // A count of names falls when names are deleted.
        let assigned_per_day = as_f64(now.used.saturating_sub(oldest.used)) / days;
        let left = as_f64(available) / assigned_per_day;
        let exhaustion = (left < HORIZON_DAYS)
            .then(|| now.time.checked_add(Duration::from_secs_f64(left * as_f64(DAY))))
            .flatten();
        Self {
            assigned_per_day: Some(assigned_per_day),
            exhaustion,
        }
    }

    /// The days from `now` to the exhaustion.
    pub fn days_left(&self, now: SystemTime) -> Option<u64> {
        let left = self.exhaustion?.duration_since(now).unwrap_or_default();
        Some(left.as_secs() / DAY)
    }
}

#[expect(clippy::cast_precision_loss, reason = "a forecast is an estimate")]
fn as_f64(number: u64) -> f64 {
    number as f64
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    fn at(hours: u64, used: u64) -> Sample {
        Sample {
            time: UNIX_EPOCH + Duration::from_secs(1_700_000_000 + hours * 3600),
            used,
        }
    }

    #[test]
    fn a_forecast_continues_the_rate_of_the_last_week() {
        let samples = [at(0, 0), at(24, 100), at(24 * 7, 700), at(24 * 7 + 1, 705)];
        let now = at(24 * 8, 800);
        let forecast = Forecast::new(&samples, now, 1000);
        assert_eq!(forecast.assigned_per_day, Some(100.0));
        assert_eq!(
            forecast.exhaustion,
            Some(now.time + Duration::from_secs(10 * DAY))
        );
        assert_eq!(forecast.days_left(now.time), Some(10));
        let full = Forecast::new(&samples, now, 0);
        assert_eq!(full.exhaustion, Some(now.time));
    }

    #[test]
    fn without_a_rate_there_is_no_exhaustion() {
        let now = at(100, 800);
        assert_eq!(Forecast::new(&[], now, 1000), Forecast::default());
        assert_eq!(
            Forecast::new(&[now, at(101, 900)], now, 1000),
            Forecast::default()
        );
        let idle = Forecast::new(&[at(0, 800), at(50, 900)], now, 1000);
        assert_eq!((idle.assigned_per_day, idle.exhaustion), (Some(0.0), None));
        let slow = Forecast::new(&[at(0, 799)], now, u64::MAX);
        assert!(slow.assigned_per_day > Some(0.2) && slow.exhaustion.is_none());
    }
}
