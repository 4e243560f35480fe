//! The series with the largest values.
//!
//! OpenTSDB walks over all instants of all series, with interpolated values, and keeps the largest (or the last) of the
//! first value, of the second, and so on. A series that has not begun or has ended has no value, so the series behind
//! it move up, and the places that are left get 0. Series with the same instants are compared right all the same.
//! Values before the range do not count, and values behind it count by interpolation only.
//!
//! Source: OpenTSDB 2.4, `HighestMax`, `HighestCurrent`.

use super::combine::Work;
use super::error::ExpressionError;
use super::series::Series;
use crate::function::aggregator::Interpolation;
use crate::{Number, Points};

/// The measure by which series are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// The largest value.
    Max,
    /// The last value.
    Last,
}

/// The `count` series with the largest measure, the largest first; of equal ones the first first. NaN
/// does not count, and series without values are not among them.
///
/// # Errors
///
/// See [`Work::count`].
pub(super) fn apply(
    list: Vec<Series>,
    measure: Measure,
    count: usize,
    work: &mut Work<'_>,
) -> Result<Vec<Series>, ExpressionError> {
    let mut measured: Vec<(f64, Series)> = if work.quirks().highest_by_place {
        // Without any value there is nothing to compare.
        let list: Vec<Series> = if measure == Measure::Last || list.iter().all(|one| one.points.is_empty()) {
            list.into_iter()
                .filter(|series| !series.points.is_empty())
                .collect()
        } else {
            list
        };
        let measures = by_place(&list, measure, work)?;
        measures.into_iter().zip(list).collect()
    } else {
        list.into_iter()
            .filter_map(|series| Some((measure_points(&series.points, measure)?, series)))
            .collect()
    };
    measured.sort_by(|(left, _), (right, _)| right.total_cmp(left));
    measured.truncate(count);
    let highest = measured.into_iter().map(|(_, mut series)| {
        let points = std::mem::take(&mut series.points);
        series.with_points(points)
    });
    Ok(highest.collect())
}

fn measure_points(points: &Points, measure: Measure) -> Option<f64> {
    let values = points
        .iter()
        .map(|(_, value)| value.as_f64())
        .filter(|value| !value.is_nan());
    match measure {
        Measure::Max => values.reduce(f64::max),
        Measure::Last => values.last(),
    }
}

/// OpenTSDB's measures. Integers and doubles are kept apart, and the larger counts.
fn by_place(list: &[Series], measure: Measure, work: &mut Work<'_>) -> Result<Vec<f64>, ExpressionError> {
    let (start_ms, end_ms) = work.range_ms();
    let cursors = list.iter().map(|series| Cursor::new(&series.points, start_ms));
    let mut cursors: Vec<Cursor<'_>> = cursors.collect();
    let mut ints = None;
    let mut doubles = None;
    let earliest = |cursors: &[Cursor<'_>]| {
        cursors
            .iter()
            .filter_map(Cursor::next_ms)
            .min()
            .filter(|now| *now <= end_ms)
    };
    while let Some(now) = earliest(&cursors) {
        work.step(cursors.len())?;
        cursors.retain(|cursor| cursor.next_ms().is_some());
        for cursor in &mut cursors {
            cursor.next += usize::from(cursor.next_ms() == Some(now));
        }
        if cursors.iter().all(Cursor::holds_ints) {
            let mut row = cursors.iter().filter_map(|cursor| cursor.int_at(now));
            let kept = ints.get_or_insert_with(|| vec![i64::MIN; list.len()]);
            for kept in kept {
                let value = row.next().unwrap_or(0);
                *kept = if measure == Measure::Max {
                    value.max(*kept)
                } else {
                    value
                };
            }
        } else {
            let mut row = cursors.iter().filter_map(|cursor| cursor.double_at(now));
            // Java's `Double.MIN_VALUE` is the smallest positive number.
            let kept = doubles.get_or_insert_with(|| vec![f64::from_bits(1); list.len()]);
            for kept in kept {
                let value = row.next().unwrap_or(0.0);
                *kept = if measure == Measure::Max {
                    java_max(value, *kept)
                } else {
                    value
                };
            }
        }
    }
    #[expect(clippy::cast_precision_loss, reason = "compared as doubles, as in OpenTSDB")]
    let ints = ints.map(|ints: Vec<i64>| ints.into_iter().map(|int| int as f64).collect::<Vec<_>>());
    Ok(match (ints, doubles) {
        (Some(ints), Some(doubles)) => ints
            .into_iter()
            .zip(doubles)
            .map(|(l, r)| java_max(l, r))
            .collect(),
        (Some(one), None) | (None, Some(one)) => one,
        (None, None) => Vec::new(),
    })
}

/// NaN if one is.
fn java_max(left: f64, right: f64) -> f64 {
    if left.is_nan() || right.is_nan() {
        f64::NAN
    } else {
        left.max(right)
    }
}

/// The position in a series: `next` is the place behind the last point reached.
struct Cursor<'a> {
    points: &'a Points,
    /// The place of the first point that counts.
    first: usize,
    next: usize,
}

impl<'a> Cursor<'a> {
    fn new(points: &'a Points, start_ms: i64) -> Self {
        let first = points.times_ms().partition_point(|time_ms| *time_ms < start_ms);
        let next = first;
        Self { points, first, next }
    }

    fn point(&self, place: usize) -> Option<(i64, Number)> {
        let time_ms = *self.points.times_ms().get(place)?;
        Some((time_ms, self.points.values().get(place)))
    }

    fn next_ms(&self) -> Option<i64> {
        self.point(self.next).map(|(time_ms, _)| time_ms)
    }

    fn current(&self) -> Option<(i64, Number)> {
        self.point(self.next.checked_sub(1).filter(|place| *place >= self.first)?)
    }

    /// Whether the last point reached and the next one are integers.
    fn holds_ints(&self) -> bool {
        let held = [self.current(), self.point(self.next)];
        held.into_iter().flatten().all(|(_, value)| value.is_int())
    }

    fn int_at(&self, now: i64) -> Option<i64> {
        let int = |(time_ms, value)| match value {
            Number::Int(int) => (time_ms, int),
            Number::Double(_) => (time_ms, 0),
        };
        let current = int(self.current()?);
        if current.0 == now {
            return Some(current.1);
        }
        Some(Interpolation::Linear.interpolate_ints(current, int(self.point(self.next)?), now))
    }

    fn double_at(&self, now: i64) -> Option<f64> {
        let double = |(time_ms, value): (i64, Number)| (time_ms, value.as_f64());
        let current = double(self.current()?);
        if current.0 == now {
            return Some(current.1);
        }
        Some(Interpolation::Linear.interpolate_doubles(current, double(self.point(self.next)?), now))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::Quirks;
    use crate::expression::series::Origin;

    fn series(name: &str, points: &[(i64, Number)]) -> Series {
        Series {
            metrics: BTreeMap::new(),
            alias: Some(Arc::from(name)),
            tags: BTreeMap::new(),
            aggregate_tags: BTreeMap::new(),
            tsuids: Vec::new(),
            query: 0,
            origin: Origin::Query,
            annotations: None,
            points: points.iter().copied().collect(),
        }
    }

    fn names(list: &[Series], measure: Measure, count: usize, quirks: Quirks) -> Vec<String> {
        let cancelled = CancellationToken::new();
        let mut work = Work::new(quirks, (i64::MIN, i64::MAX), &cancelled);
        let highest = apply(list.to_vec(), measure, count, &mut work).unwrap();
        highest
            .iter()
            .filter_map(|series| series.alias.as_deref().map(str::to_owned))
            .collect()
    }

    /// `early` ends before `long`, and the last value of `long` is then taken for `early`.
    #[test]
    fn series_are_judged_by_their_own_values_unless_as_in_opentsdb() {
        let ints = |values: &[i64]| -> Vec<_> {
            (0..)
                .zip(values)
                .map(|(second, value)| (second * 1000, Number::Int(*value)))
                .collect()
        };
        let list = [
            series("early", &ints(&[1, 2])),
            series("long", &ints(&[3, 4, 5, 6])),
            series("none", &[]),
        ];
        assert_eq!(names(&list, Measure::Last, 3, Quirks::NONE), ["long", "early"]);
        assert_eq!(names(&list, Measure::Max, 1, Quirks::NONE), ["long"]);
        assert_eq!(names(&list, Measure::Last, 1, Quirks::OPENTSDB), ["early"]);
        assert_eq!(names(&list, Measure::Max, 1, Quirks::OPENTSDB), ["early"]);
    }

    #[test]
    fn nan_does_not_count() {
        let double = |second: i64, value: f64| (second * 1000, Number::Double(value));
        let list = [
            series("a", &[double(0, 1.0), double(1, f64::NAN)]),
            series("b", &[double(0, f64::NAN), double(1, 2.0)]),
        ];
        assert_eq!(names(&list, Measure::Last, 2, Quirks::NONE), ["b", "a"]);
        assert_eq!(names(&list, Measure::Max, 1, Quirks::NONE), ["b"]);
    }
}
