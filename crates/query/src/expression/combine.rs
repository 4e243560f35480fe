//! Arithmetic over series that belong together: by time, or by place.
//!
//! ```text
//!          a:  0 s 1     10 s 2     20 s 3                          a + b, zero where none is
//!          b:            10 s 5                30 s 6
//!   by time:   0 s 1     10 s 7     20 s 3     30 s 6
//!
//!          a:  0 s 1     10 s 2                                     by place: first with first
//!          b:  5 s 5     15 s 6
//!  by place:   0 s 6     10 s 8
//! ```
//!
//! Nothing is interpolated. By time a result has the instants of its own series; where one of them, or
//! all of an operand, has no value, its fill counts, in place of NaN too. By place, which is how the
//! calls of `/api/query/gexp` combine, all must have equally many values, and the earliest instant of a
//! place counts.
//!
//! Source: OpenTSDB 2.4, `EDPtoDPS`, `ExpressionIterator.next(int)` for places.

use oxtsdb_resources::yield_to_others;
use tokio_util::sync::CancellationToken;

use super::arithmetic::{Arithmetic, Value};
use super::error::{ExpressionError, MAX_STEPS, MAX_VALUES};
use super::fill::Fill;
use super::join::{Joined, Operand};
use super::series::{Origin, Series};
use crate::context::budget::{Budget, Held, POINT_BYTES, SERIES_BYTES};
use crate::{Points, Quirks, Values};

/// Steps between two checks for cancellation and for jobs of other clients.
const STEPS_AT_A_TIME: u64 = 65_536;

/// An operand of arithmetic.
#[derive(Clone, Debug)]
pub struct Term<'a> {
    /// Its name and series.
    pub operand: Operand<'a>,
    /// The value that stands for a missing one.
    pub fill: Fill,
}

/// The limits and the range of a computation, and its usage so far.
#[derive(Debug)]
pub struct Work<'a> {
    quirks: Quirks,
    range_ms: (i64, i64),
    cancelled: &'a CancellationToken,
    values: usize,
    steps: u64,
    /// Memory of the operands and of the result, if it is counted.
    held: Option<Held>,
}

impl<'a> Work<'a> {
    /// A computation that has not begun. The range has its first and its last instant; series may have points around
    /// it.
    pub const fn new(quirks: Quirks, range_ms: (i64, i64), cancelled: &'a CancellationToken) -> Self {
        Self {
            quirks,
            range_ms,
            cancelled,
            values: 0,
            steps: 0,
            held: None,
        }
    }

    /// Adds the memory of results to `held`, the memory of the operands.
    #[must_use]
    pub fn holding(self, held: Held) -> Self {
        Self {
            held: Some(held),
            ..self
        }
    }

    /// The budget that memory is counted to, if it is counted.
    pub fn budget(&self) -> Option<&Budget> {
        self.held.as_ref().map(Held::budget)
    }

    /// The memory of the operands and of all results.
    pub fn into_held(self) -> Option<Held> {
        self.held
    }

    /// The quirks of its results.
    pub const fn quirks(&self) -> Quirks {
        self.quirks
    }

    /// Points in the range.
    pub fn in_range(&self, points: Points) -> Points {
        points.between(self.range_ms.0, self.range_ms.1)
    }

    /// First and last instant of the range.
    pub const fn range_ms(&self) -> (i64, i64) {
        self.range_ms
    }

    /// Counts values that are about to be made.
    ///
    /// # Errors
    ///
    /// Too many values, or the query is cancelled.
    pub fn count(&mut self, values: usize) -> Result<(), ExpressionError> {
        self.values = self.values.saturating_add(values);
        if self.values > MAX_VALUES {
            return Err(ExpressionError::TooManyValues { values: self.values });
        }
        if let Some(held) = &mut self.held {
            held.grow(values as u64 * POINT_BYTES)?;
        }
        self.step(values)
    }

    /// Counts a copy of series that is about to be made.
    ///
    /// # Errors
    ///
    /// As [`Work::count`].
    pub fn count_copy(&mut self, series: &[Series]) -> Result<(), ExpressionError> {
        if let Some(held) = &mut self.held {
            held.grow(series.len() as u64 * SERIES_BYTES)?;
        }
        self.count(series.iter().map(|series| series.points.len()).sum())
    }

    /// Counts steps of a computation.
    ///
    /// # Errors
    ///
    /// Too many steps, or the query is cancelled.
    pub fn step(&mut self, steps: usize) -> Result<(), ExpressionError> {
        let before = self.steps;
        self.steps = before.saturating_add(steps as u64);
        if self.steps > MAX_STEPS {
            return Err(ExpressionError::TooManySteps);
        }
        if self.steps / STEPS_AT_A_TIME != before / STEPS_AT_A_TIME {
            yield_to_others();
            if self.cancelled.is_cancelled() {
                return Err(ExpressionError::Cancelled);
            }
        }
        Ok(())
    }

    /// A result as a number.
    ///
    /// # Errors
    ///
    /// OpenTSDB takes doubles and truths only.
    pub fn number(&self, value: Value) -> Result<f64, ExpressionError> {
        let kind = match value {
            Value::Double(_) | Value::Truth(_) => return Ok(value.as_f64()),
            _ if !self.quirks.results_are_doubles_or_truths => return Ok(value.as_f64()),
            Value::Null => "null",
            Value::Whole(whole) if i32::try_from(whole).is_ok() => "java.lang.Integer",
            Value::Whole(whole) if i64::try_from(whole).is_ok() => "java.lang.Long",
            Value::Whole(_) => "java.math.BigInteger",
            Value::Literal(_) => "java.lang.Float",
        };
        Err(ExpressionError::ResultType { kind })
    }
}

/// Computes each joined series, by time. The terms are in the order of the names of the arithmetic.
///
/// # Errors
///
/// See [`Work::count`].
pub fn by_time(
    arithmetic: &Arithmetic,
    terms: &[Term<'_>],
    joined: Vec<Joined>,
    work: &mut Work<'_>,
) -> Result<Vec<Series>, ExpressionError> {
    let compute = |joined: Joined| {
        let mut members = members(terms, &joined);
        let mut values = vec![0.0; terms.len()];
        let (mut times_ms, mut results) = (Vec::new(), Vec::new());
        let next_ms =
            |members: &[Option<Cursor<'_>>]| members.iter().flatten().filter_map(Cursor::time_ms).min();
        while let Some(time_ms) = next_ms(&members) {
            work.count(1)?;
            for ((value, member), term) in values.iter_mut().zip(&mut members).zip(terms) {
                let at = member.as_mut().and_then(|cursor| cursor.take(time_ms));
                *value = term.fill.or(at.unwrap_or(f64::NAN));
            }
            times_ms.push(time_ms);
            results.push(work.number(arithmetic.evaluate(&values)?)?);
        }
        let points = Points::new(times_ms, Values::Doubles(results));
        Ok(Series {
            points,
            ..joined.series
        })
    };
    joined.into_iter().map(compute).collect()
}

/// Computes each joined series, by place. An operand without a value counts as zero, as does NaN.
///
/// # Errors
///
/// See [`Work::count`]. Series of different lengths are found by [`Series::check`] of the result.
pub fn by_place(
    arithmetic: &Arithmetic,
    operands: Vec<Operand<'_>>,
    joined: Vec<Joined>,
    work: &mut Work<'_>,
) -> Result<Vec<Series>, ExpressionError> {
    let zero = Fill::Zero;
    let terms: Vec<Term<'_>> = operands
        .into_iter()
        .map(|operand| Term { operand, fill: zero })
        .collect();
    let compute = |joined: Joined| {
        if let Some(uneven) = uneven(&terms, &joined) {
            let origin = Origin::Combined { uneven: Some(uneven) };
            return Ok(Series {
                origin,
                ..joined.series
            });
        }
        let members = members(&terms, &joined);
        let first = members
            .iter()
            .flatten()
            .next()
            .map_or(0, |cursor| cursor.points.len());
        work.count(first)?;
        let mut values = vec![0.0; terms.len()];
        let (mut times_ms, mut results) = (Vec::with_capacity(first), Vec::with_capacity(first));
        for place in 0..first {
            for (value, member) in values.iter_mut().zip(&members) {
                *value = member.as_ref().map_or(0.0, |cursor| zero.or(cursor.value(place)));
            }
            let times = members
                .iter()
                .flatten()
                .map(|cursor| cursor.points.times_ms()[place]);
            times_ms.extend(times.min());
            results.push(work.number(arithmetic.evaluate(&values)?)?);
        }
        let points = Points::new(times_ms, Values::Doubles(results));
        Ok(Series {
            points,
            ..joined.series
        })
    };
    joined.into_iter().map(compute).collect()
}

/// Lengths of two joined series that should have equally many values, or such lengths inherited from an operand.
fn uneven<'a>(terms: &[Term<'a>], joined: &Joined) -> Option<(usize, usize)> {
    let of_term = |(term, member): (&Term<'a>, &Option<usize>)| term.operand.series.get((*member)?);
    let members: Vec<&Series> = terms.iter().zip(&joined.members).filter_map(of_term).collect();
    let inherited = members.iter().find_map(|series| match series.origin {
        Origin::Combined { uneven } => uneven,
        Origin::Query | Origin::OfCombined => None,
    });
    let first = members.first().map_or(0, |series| series.points.len());
    let other = members
        .iter()
        .map(|series| series.points.len())
        .find(|length| *length != first);
    inherited.or(other.map(|other| (first, other)))
}

fn members<'a>(terms: &[Term<'a>], joined: &Joined) -> Vec<Option<Cursor<'a>>> {
    let member = |(term, member): (&Term<'a>, &Option<usize>)| {
        let series = &term.operand.series[(*member)?];
        Some(Cursor::new(&series.points))
    };
    terms.iter().zip(&joined.members).map(member).collect()
}

/// A place in the points of a series.
#[derive(Clone, Debug)]
pub(super) struct Cursor<'a> {
    points: &'a Points,
    next: usize,
}

impl<'a> Cursor<'a> {
    pub(super) const fn new(points: &'a Points) -> Self {
        Self { points, next: 0 }
    }

    /// The instant of the next value.
    pub(super) fn time_ms(&self) -> Option<i64> {
        self.points.times_ms().get(self.next).copied()
    }

    /// The next value, if it is not after an instant.
    pub(super) fn take(&mut self, time_ms: i64) -> Option<f64> {
        if self.time_ms()? > time_ms {
            return None;
        }
        self.next += 1;
        Some(self.value(self.next - 1))
    }

    fn value(&self, place: usize) -> f64 {
        self.points.values().get(place).as_f64()
    }
}
