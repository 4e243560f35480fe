//! Rates: the first derivative of one series, per second.
//!
//! Each point yields the difference from the previous one, so the first yields none. Rates are computed for each series
//! after downsampling and before the series of a group are aggregated.
//!
//! Source: OpenTSDB 2.4, `RateSpan`, `RateOptions`.

use crate::points::{Number, Points};

/// How a rate is taken. By default differences are taken as they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RateOptions {
    /// The series only ever counts up; a step down is a wrap or a restart.
    pub counter: bool,
    /// Where the counter wraps: a step down counts as `counter_max - previous + current`.
    pub counter_max: i64,
    /// A rate above it, on a step down, gives 0; 0: never.
    pub reset_value: i64,
    /// A step down gives no point.
    pub drop_resets: bool,
}

impl Default for RateOptions {
    fn default() -> Self {
        Self {
            counter: false,
            counter_max: i64::MAX,
            reset_value: 0,
            drop_resets: false,
        }
    }
}

/// Takes the rates of one series, as its points come, in order of time.
#[derive(Clone, Debug)]
pub struct Rater {
    options: RateOptions,
    /// If rates begin at the epoch: where the first one may be.
    epoch_until_ms: Option<i64>,
    previous: Option<(i64, Number)>,
    /// The first rate, if rates begin at the epoch: the slope from there to the first point of the series, or the next
    /// rate if that is a step down which gives no point, or if the first point is in front of the read range, as a
    /// filled window may be. It is not one of the others.
    pub from_epoch: Option<f64>,
}

impl Rater {
    /// A rater without points; or with a point of 0 at the epoch, and no rates before an instant.
    pub fn new(options: RateOptions, epoch_until_ms: Option<i64>) -> Self {
        Self {
            options,
            epoch_until_ms,
            previous: epoch_until_ms.map(|_| (0, Number::Int(0))),
            from_epoch: None,
        }
    }

    /// The rates between these points, and from the one before them.
    pub fn apply(&mut self, points: &Points) -> Points {
        let mut rates = Points::default();
        rates.reserve(points.len());
        for point in points.iter() {
            let previous = self.previous.replace(point);
            let rate = previous.and_then(|previous| self.options.between(previous, point));
            match (rate, self.epoch_until_ms) {
                (Some(rate), Some(until_ms)) if self.from_epoch.is_none() => {
                    self.from_epoch = (point.0 >= until_ms).then_some(rate);
                }
                (Some(rate), _) => rates.push(point.0, Number::Double(rate)),
                (None, _) => {}
            }
        }
        rates
    }
}

impl RateOptions {
    /// The rate from one point to the next, if it has one.
    fn between(&self, (time0, value0): (i64, Number), (time1, value1): (i64, Number)) -> Option<f64> {
        if time1 == time0 {
            // Only a damaged cell has an instant twice.
            return None;
        }
        let seconds = seconds(time1 - time0);
        let difference = subtract(value1, value0);
        let is_negative = match difference {
            Number::Int(int) => int < 0,
            Number::Double(double) => double < 0.0,
        };
        if !self.counter || !is_negative {
            return Some(difference.as_f64() / seconds);
        }
        if self.drop_resets {
            return None;
        }
        // Both steps are of one type: from a negative integer to a double, the first one would wrap as integers.
        let wrapped = match (value0, value1) {
            (Number::Int(value0), Number::Int(value1)) => {
                Number::Int(self.counter_max.wrapping_sub(value0).wrapping_add(value1))
            }
            _ => Number::Double(Number::Int(self.counter_max).as_f64() - value0.as_f64() + value1.as_f64()),
        };
        let rate = wrapped.as_f64() / seconds;
        let is_reset = self.reset_value > 0 && rate > Number::Int(self.reset_value).as_f64();
        Some(if is_reset { 0.0 } else { rate })
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "times in milliseconds are far below 2^53"
)]
fn seconds(millis: i64) -> f64 {
    millis as f64 / 1000.0
}

/// Integers are subtracted as integers, which wrap.
fn subtract(a: Number, b: Number) -> Number {
    match (a, b) {
        (Number::Int(a), Number::Int(b)) => Number::Int(a.wrapping_sub(b)),
        (a, b) => Number::Double(a.as_f64() - b.as_f64()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rates(options: RateOptions, points: &[(i64, Number)]) -> Vec<(i64, f64)> {
        let series: Points = points
            .iter()
            .map(|(seconds, value)| (seconds * 1000, *value))
            .collect();
        let rates = Rater::new(options, None).apply(&series);
        rates
            .iter()
            .map(|(time_ms, rate)| (time_ms / 1000, rate.as_f64()))
            .collect()
    }

    fn ints(points: &[(i64, i64)]) -> Vec<(i64, Number)> {
        points
            .iter()
            .map(|(seconds, value)| (*seconds, Number::Int(*value)))
            .collect()
    }

    const COUNTER: RateOptions = RateOptions {
        counter: true,
        counter_max: i64::MAX,
        reset_value: 0,
        drop_resets: false,
    };

    #[test]
    fn a_rate_is_the_difference_per_second() {
        let points = ints(&[(0, 10), (10, 30), (15, 25), (25, 25)]);
        assert_eq!(
            rates(RateOptions::default(), &points),
            [(10, 2.0), (15, -1.0), (25, 0.0)]
        );
        assert!(rates(RateOptions::default(), &ints(&[(5, 7)])).is_empty());
        let mut rater = Rater::new(RateOptions::default(), Some(0));
        assert!(rater.apply(&Points::default()).is_empty());
        assert_eq!(rater.from_epoch, None);
        let one = |time_ms, value| [(time_ms, Number::Int(value))].into_iter().collect();
        assert!(rater.apply(&one(2000, 7)).is_empty());
        assert_eq!(rater.from_epoch, Some(3.5));
        let next = rater.apply(&one(3000, 9));
        assert_eq!(next, [(3000, Number::Double(2.0))].into_iter().collect());
    }

    #[test]
    fn the_first_rate_is_the_one_from_the_epoch() {
        let apply = |options: RateOptions, points: &[(i64, i64)]| {
            let series: Points = ints(points)
                .into_iter()
                .map(|(s, value)| (s * 1000, value))
                .collect();
            let mut rater = Rater::new(options, Some(0));
            let points = rater.apply(&series);
            let rates = points
                .iter()
                .map(|(time_ms, rate)| (time_ms / 1000, rate.as_f64()))
                .collect::<Vec<_>>();
            (rater.from_epoch, rates)
        };
        assert_eq!(apply(RateOptions::default(), &[]), (None, vec![]));
        assert_eq!(apply(RateOptions::default(), &[(2, 7)]), (Some(3.5), vec![]));
        let wrapping = RateOptions {
            counter_max: 100,
            ..COUNTER
        };
        let points = [(10, -50), (20, 50), (30, 60)];
        assert_eq!(apply(wrapping, &points), (Some(5.0), vec![(20, 10.0), (30, 1.0)]));
        let dropping = RateOptions {
            drop_resets: true,
            ..wrapping
        };
        assert_eq!(
            apply(dropping, &points),
            (Some(10.0), vec![(30, 1.0)]),
            "a step down from 0"
        );
    }

    /// Of `2933s-sum-zero` from 00:38:31, a whole window, the one before begins in front of the hours that are
    /// read, and the rate between them is not shown: so it was seen.
    #[test]
    fn a_filled_window_in_front_takes_the_place_of_the_epoch() {
        let series = [(10, 0), (20, 30), (30, 50)];
        let points: Points = ints(&series)
            .into_iter()
            .map(|(s, value)| (s * 1000, value))
            .collect();
        let mut rater = Rater::new(RateOptions::default(), Some(15_000));
        let rates = rater.apply(&points);
        assert_eq!(rater.from_epoch, Some(3.0));
        assert_eq!(rates, [(30_000, Number::Double(2.0))].into_iter().collect());
    }

    #[test]
    fn what_is_before_the_range_only_starts_a_rate() {
        let dropping = RateOptions {
            drop_resets: true,
            ..COUNTER
        };
        let values = [(10, f64::NAN), (20, -50.0), (30, 50.0), (40, 60.0)];
        let points: Points = values
            .into_iter()
            .map(|(seconds, value)| (seconds * 1000, Number::Double(value)))
            .collect();
        let mut rater = Rater::new(dropping, Some(20_000));
        let rates: Vec<_> = rater.apply(&points).iter().collect();
        assert!(rater.from_epoch.unwrap().is_nan(), "no step down");
        let rate = |seconds: i64, rate| (seconds * 1000, Number::Double(rate));
        assert_eq!(rates, [rate(30, 10.0), rate(40, 1.0)]);
    }

    #[test]
    fn a_counter_wraps_at_its_maximum() {
        let points = ints(&[(0, 65_000), (10, 65_500), (20, 464), (30, 964)]);
        let wrapping = RateOptions {
            counter_max: 65_536,
            ..COUNTER
        };
        assert_eq!(rates(wrapping, &points), [(10, 50.0), (20, 50.0), (30, 50.0)]);
        let resetting = RateOptions {
            reset_value: 40,
            ..wrapping
        };
        assert_eq!(
            rates(resetting, &points),
            [(10, 50.0), (20, 0.0), (30, 50.0)],
            "on the step down only"
        );
        let dropping = RateOptions {
            drop_resets: true,
            ..wrapping
        };
        assert_eq!(rates(dropping, &points), [(10, 50.0), (30, 50.0)]);
        let not_a_counter = RateOptions {
            counter: false,
            ..dropping
        };
        assert_eq!(
            rates(not_a_counter, &points)[1],
            (20, -6503.6),
            "the others need `counter`"
        );
    }

    #[test]
    fn integers_are_subtracted_as_integers_that_wrap() {
        let points = ints(&[(0, i64::MAX), (10, i64::MIN)]);
        assert_eq!(rates(RateOptions::default(), &points), [(10, 0.1)]);
    }

    #[test]
    fn floating_point_counters_wrap_too() {
        let points = [
            (0, Number::Double(9.5)),
            (10, Number::Double(2.25)),
            (20, Number::Int(3)),
        ];
        let wrapping = RateOptions {
            counter_max: 10,
            ..COUNTER
        };
        assert_eq!(rates(wrapping, &points), [(10, 0.275), (20, 0.075)]);
    }

    /// OpenTSDB 2.4.1 returns 9.223372036854775e17 (and 0 with a reset value) for these points.
    #[test]
    fn a_step_down_from_a_negative_integer_to_a_double_is_computed_in_doubles() {
        let points = [(0, Number::Int(-60)), (10, Number::Double(-70.5))];
        assert_eq!(rates(COUNTER, &points), [(10, i64::MAX as f64 / 10.0)]);
        let resetting = RateOptions {
            reset_value: 1,
            ..COUNTER
        };
        assert_eq!(rates(resetting, &points), [(10, 0.0)]);
    }
}
