//! Aggregation: the series of a group become one.
//!
//! The result has a point at every instant at which one of the series has one. A series takes part from its first point
//! to its last; between its points its contribution is the aggregator's [`Interpolation`]. Values are taken in the
//! order of the series.
//!
//! Each series holds two points: the *current*, the last one reached, and the *next*. The result at an instant is an
//! integer if all contributions are. OpenTSDB needs all points held then to be integers, the next ones too: there a
//! series that will only begin later, or go on in floating point, makes the result floating point
//! ([`crate::Quirks::floats_to_come_count`]).
//!
//! ```text
//!            a: 1 ──────── 4 ──────── 9            at the second instant a holds 1 and 4, b holds
//!            b:     10 ───────── 21                10 and 21: sum = 2 + 10
//!          sum: 1   12     19    27   9
//! ```
//!
//! Rates are not interpolated: between its points a series contributes its latest rate.
//!
//! Source: OpenTSDB 2.4, `AggregationIterator`, `SeriesGroup`.

use std::ops::Range;

use crate::function::aggregator::{Accumulator, Aggregator, Function, Interpolation};
use crate::points::{Number, Points, Values};

/// Instants between two checks for cancellation.
const INSTANTS_AT_A_TIME: usize = 256;

/// Points of series with the same instants that are aggregated between two such checks, in a few milliseconds.
const POINTS_AT_A_TIME: usize = 1 << 22;

/// A series of a group.
#[derive(Clone, Copy, Debug)]
pub struct Series<'a> {
    /// All its points in the scanned range, also points outside of the query's range.
    pub points: &'a Points,
    /// Its contribution before its first point; `None`: nothing.
    pub before: Option<f64>,
}

/// How series are aggregated.
#[derive(Clone, Copy, Debug)]
pub struct Aggregation {
    /// The function, and its interpolation.
    pub aggregator: Aggregator,
    /// Series contribute their value before an instant at which they have none, whatever the aggregator's
    /// interpolation; that is the rule for rates.
    pub holds: bool,
    /// A value makes earlier values floating point, as OpenTSDB has it.
    pub floats_to_come_count: bool,
}

/// Aggregates over series, for the instants from `start_ms` to `end_ms`, both inside.
///
/// Where instants differ, it takes a step for each series at each of them, which can be minutes of
/// work. `goes_on` gets the size of the result so far in bytes, now and then; once it returns false, the computation
/// ends soon, with a result that must not be used.
pub fn aggregate(
    series: &[Series<'_>],
    aggregation: Aggregation,
    (start_ms, end_ms): (i64, i64),
    goes_on: &dyn Fn(u64) -> bool,
) -> Points {
    let aggregator = aggregation.aggregator;
    let function = aggregator.function().unwrap_or(Function::First);
    let interpolation = if aggregation.holds {
        Interpolation::Previous
    } else {
        aggregator.interpolation()
    };
    let merging = Merging {
        function,
        interpolation,
        floats_to_come_count: aggregation.floats_to_come_count,
    };
    // A series with no point in the range or after it has ended when the range begins.
    let running: Vec<_> = series
        .iter()
        .filter(|series| {
            series
                .points
                .times_ms()
                .last()
                .is_some_and(|last| *last >= start_ms)
        })
        .collect();
    match running.as_slice() {
        [] => Points::default(),
        [only] if aggregator.is_none() && aggregation.floats_to_come_count => {
            single(only.points, start_ms, end_ms)
        }
        [only] if aggregator.is_none() => only.points.between(start_ms, end_ms),
        [first, rest @ ..] if rest.iter().all(|other| same_instants(first.points, other.points)) => {
            let points: Vec<_> = running.iter().map(|series| series.points).collect();
            let indices = first.points.indices_between(start_ms, end_ms);
            aligned_in_parts(&points, indices, function, goes_on)
                .unwrap_or_else(|| merge(&running, &merging, (start_ms, end_ms), goes_on))
        }
        _ => merge(&running, &merging, (start_ms, end_ms), goes_on),
    }
}

/// One series by itself. Its integers become floating point where the next point is.
fn single(points: &Points, start_ms: i64, end_ms: i64) -> Points {
    let Values::Mixed(values) = points.values() else {
        return points.between(start_ms, end_ms);
    };
    let next_is_int = |index: usize| values.get(index + 1).is_none_or(|next| next.is_int());
    let shown = points
        .iter()
        .enumerate()
        .map(|(index, (time_ms, value))| match value {
            Number::Int(_) if next_is_int(index) => (time_ms, value),
            value => (time_ms, Number::Double(value.as_f64())),
        });
    shown
        .filter(|(time_ms, _)| (start_ms..=end_ms).contains(time_ms))
        .collect()
}

fn same_instants(a: &Points, b: &Points) -> bool {
    a.times_ms() == b.times_ms()
}

/// Aggregates series that all have points at the same instants, as [`aligned`], some instants at a time if there are many
/// points.
fn aligned_in_parts(
    series: &[&Points],
    indices: Range<usize>,
    function: Function,
    goes_on: &dyn Fn(u64) -> bool,
) -> Option<Points> {
    let step = (POINTS_AT_A_TIME / series.len().max(1)).max(INSTANTS_AT_A_TIME);
    if indices.len() <= step {
        return aligned(series, indices, function);
    }
    let mut result = Points::default();
    for start in indices.clone().step_by(step) {
        if !goes_on(result.held_bytes()) {
            break;
        }
        let part = start..indices.end.min(start + step);
        result.append(aligned(series, part, function)?);
    }
    Some(result)
}

/// Aggregates series that all have points at the same instants, which is most of them: column by
/// column, nothing to interpolate, for some of the instants. `None` where a column is neither integers nor doubles.
fn aligned(series: &[&Points], indices: Range<usize>, function: Function) -> Option<Points> {
    let times_ms = series.first()?.times_ms()[indices.clone()].to_vec();
    let ints: Option<Vec<&[i64]>> = series
        .iter()
        .map(|points| match points.values() {
            Values::Ints(values) => Some(&values[indices.clone()]),
            Values::Doubles(_) | Values::Mixed(_) => None,
        })
        .collect();
    if let Some(columns) = ints {
        return Some(Points::new(
            times_ms,
            Values::Ints(aligned_ints(&columns, function)),
        ));
    }
    let mut widened: Vec<Vec<f64>> = Vec::new();
    for points in series {
        match points.values() {
            Values::Ints(values) => {
                let values = values[indices.clone()].iter();
                widened.push(values.map(|value| Number::Int(*value).as_f64()).collect());
            }
            Values::Doubles(_) => {}
            Values::Mixed(_) => return None,
        }
    }
    let mut widened = widened.iter();
    let columns: Vec<&[f64]> = series
        .iter()
        .filter_map(|points| match points.values() {
            Values::Doubles(values) => Some(&values[indices.clone()]),
            Values::Ints(_) | Values::Mixed(_) => widened.next().map(Vec::as_slice),
        })
        .collect();
    Some(Points::new(
        times_ms,
        Values::Doubles(aligned_doubles(&columns, function)),
    ))
}

/// Folds columns into the first, row by row.
fn fold_columns<T: Copy>(columns: &[&[T]], first: impl Fn(T) -> T, next: impl Fn(T, T) -> T) -> Vec<T> {
    let Some((head, rest)) = columns.split_first() else {
        return Vec::new();
    };
    let mut folded: Vec<T> = head.iter().map(|value| first(*value)).collect();
    for column in rest {
        for (state, value) in folded.iter_mut().zip(*column) {
            *state = next(*state, *value);
        }
    }
    folded
}

fn aligned_ints(columns: &[&[i64]], function: Function) -> Vec<i64> {
    match function {
        Function::Sum => fold_columns(columns, |value| value, i64::wrapping_add),
        Function::Min => fold_columns(columns, |value| value, i64::min),
        Function::Max => fold_columns(columns, |value| value, i64::max),
        _ => {
            let mut row = Vec::with_capacity(columns.len());
            let of_row = |index: usize| {
                row.clear();
                row.extend(columns.iter().map(|column| column[index]));
                function.aggregate_ints(&mut row)
            };
            (0..columns.first().map_or(0, |column| column.len()))
                .map(of_row)
                .collect()
        }
    }
}

fn aligned_doubles(columns: &[&[f64]], function: Function) -> Vec<f64> {
    // NaN, which only a fill policy makes, does not count, nor do all infinities; a general accumulator knows that.
    let are_finite = || {
        columns
            .iter()
            .all(|column| column.iter().all(|value| value.is_finite()))
    };
    match function {
        Function::Sum if are_finite() => fold_columns(columns, |value| 0.0 + value, |a, b| a + b),
        Function::Min if are_finite() => {
            fold_columns(columns, |value| value, |a, b| if b < a { b } else { a })
        }
        Function::Max if are_finite() => {
            fold_columns(columns, |value| value, |a, b| if b > a { b } else { a })
        }
        _ => {
            let mut fold = Accumulator::new(function);
            let mut row = Vec::with_capacity(columns.len());
            let of_row = |index: usize| {
                row.clear();
                row.extend(columns.iter().map(|column| column[index]));
                fold.feed(&row);
                fold.take()
            };
            (0..columns.first().map_or(0, |column| column.len()))
                .map(of_row)
                .collect()
        }
    }
}

/// The position in a series.
struct Cursor<'a> {
    times_ms: &'a [i64],
    values: &'a Values,
    before: Option<f64>,
    /// Index of the next point; the current one is in front of it.
    next: usize,
}

/// The current contribution of a series.
#[derive(Clone, Copy)]
enum Current {
    /// Nothing: it has not begun.
    Nothing,
    /// The contribution before its first point.
    Before(f64),
    /// The last point reached.
    Point(i64, Number),
}

impl<'a> Cursor<'a> {
    /// Before the first instant from `start_ms` on: of the points in front of it, which have no
    /// result, only the last matters.
    fn at(series: &Series<'a>, start_ms: i64) -> Self {
        let times_ms = series.points.times_ms();
        let next = times_ms.partition_point(|time_ms| *time_ms < start_ms);
        Self {
            times_ms,
            values: series.points.values(),
            before: series.before,
            next,
        }
    }

    fn next_time(&self) -> Option<i64> {
        self.times_ms.get(self.next).copied()
    }

    fn current(&self) -> Current {
        match self.next.checked_sub(1) {
            Some(index) => Current::Point(self.times_ms[index], self.values.get(index)),
            None => self.before.map_or(Current::Nothing, Current::Before),
        }
    }

    /// Whether the contribution at an instant is an integer, or nothing.
    fn contributes_ints(&self, now: i64, interpolation: Interpolation) -> bool {
        match (self.values, self.current()) {
            (_, Current::Nothing) | (Values::Ints(_), Current::Point(..)) => true,
            (_, Current::Before(_)) | (Values::Doubles(_), _) => false,
            (Values::Mixed(values), Current::Point(time_ms, value)) => {
                let is_between = time_ms != now && interpolation.looks_ahead();
                value.is_int() && (!is_between || values.get(self.next).is_none_or(|next| next.is_int()))
            }
        }
    }

    /// Whether all points that it holds are integers.
    fn holds_ints(&self) -> bool {
        match self.values {
            Values::Ints(_) => self.next > 0 || self.before.is_none(),
            Values::Doubles(_) => false,
            Values::Mixed(values) => {
                let current = match self.next.checked_sub(1) {
                    Some(index) => values[index].is_int(),
                    None => self.before.is_none(),
                };
                current && values.get(self.next).is_none_or(|next| next.is_int())
            }
        }
    }
}

/// How series with different instants are merged.
struct Merging {
    function: Function,
    interpolation: Interpolation,
    floats_to_come_count: bool,
}

/// Walks over the union of the instants.
fn merge(
    series: &[&Series<'_>],
    merging: &Merging,
    (start_ms, end_ms): (i64, i64),
    goes_on: &dyn Fn(u64) -> bool,
) -> Points {
    let (function, interpolation) = (merging.function, merging.interpolation);
    let mut cursors: Vec<_> = series.iter().map(|series| Cursor::at(series, start_ms)).collect();
    let mut result = Points::default();
    let mut ints = Vec::with_capacity(cursors.len());
    let mut doubles = Vec::with_capacity(cursors.len());
    let mut fold = Accumulator::new(function);
    while let Some(now) = cursors
        .iter()
        .filter_map(Cursor::next_time)
        .min()
        .filter(|now| *now <= end_ms)
    {
        if result.len() % INSTANTS_AT_A_TIME == 0 && !goes_on(result.held_bytes()) {
            break;
        }
        // A series that has passed its last point has ended.
        cursors.retain(|cursor| cursor.next < cursor.times_ms.len());
        let mut all_ints = true;
        for cursor in &mut cursors {
            if cursor.next_time() == Some(now) {
                cursor.next += 1;
            }
            all_ints &= if merging.floats_to_come_count {
                cursor.holds_ints()
            } else {
                cursor.contributes_ints(now, interpolation)
            };
        }
        let value = if all_ints {
            ints.clear();
            ints.extend(
                cursors
                    .iter()
                    .filter_map(|cursor| int_at(cursor, interpolation, now)),
            );
            Number::Int(function.aggregate_ints(&mut ints))
        } else {
            doubles.clear();
            doubles.extend(
                cursors
                    .iter()
                    .filter_map(|cursor| double_at(cursor, interpolation, now)),
            );
            fold.feed(&doubles);
            Number::Double(fold.take())
        };
        result.push(now, value);
    }
    result
}

/// The contribution of a series of integers.
#[inline]
fn int_at(cursor: &Cursor<'_>, interpolation: Interpolation, now: i64) -> Option<i64> {
    let int = |number| match number {
        Number::Int(int) => int,
        // The next point where only the one before it contributes.
        Number::Double(_) => 0,
    };
    match cursor.current() {
        Current::Point(time_ms, value) if time_ms == now => Some(int(value)),
        Current::Point(time_ms, value) => {
            let next = (cursor.next_time()?, int(cursor.values.get(cursor.next)));
            Some(interpolation.interpolate_ints((time_ms, int(value)), next, now))
        }
        Current::Before(_) | Current::Nothing => None,
    }
}

/// The contribution of a series, as a double.
#[inline]
fn double_at(cursor: &Cursor<'_>, interpolation: Interpolation, now: i64) -> Option<f64> {
    match cursor.current() {
        Current::Point(time_ms, value) if time_ms == now => Some(value.as_f64()),
        Current::Point(time_ms, value) => {
            let next = (cursor.next_time()?, cursor.values.get(cursor.next).as_f64());
            Some(interpolation.interpolate_doubles((time_ms, value.as_f64()), next, now))
        }
        Current::Before(value) => Some(value),
        Current::Nothing => None,
    }
}

#[cfg(test)]
mod tests;
