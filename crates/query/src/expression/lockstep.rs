//! Evaluates arithmetic like OpenTSDB: row by row, all series together.
//!
//! ```text
//!     a: 0 s 1    10 s 2               e = a * 10:   0 s 10   10 s 20
//!     b: 5 s 7                         e + b:        0 s 10 + 0   5 s 20 + 7   no more values of e: an error
//! ```
//!
//! A row has the earliest next timestamp of any series of any operand. A series with a later next value contributes its
//! operand's fill. A nested expression returns its next row whatever its timestamp. Each series therefore has a value
//! in each row.
//!
//! Source: OpenTSDB 2.4, `ExpressionIterator.next(long)`, `UnionIterator`, `TimeSyncedIterator`.

use std::collections::HashSet;

use super::arithmetic::Arithmetic;
use super::combine::{Cursor, Term, Work};
use super::error::ExpressionError;
use super::fill::Fill;
use super::join::{Joined, SetOperator};
use crate::{Points, QueryError, Values};

/// The kind of operand that a name of an expression refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Series of a query.
    Input,
    /// An expression; its series have the same instants.
    Nested,
}

/// Computes the points of all joined series. The terms are in the order of the names of the arithmetic.
///
/// # Errors
///
/// [`ExpressionError::NoMoreValues`] of a nested expression, [`ExpressionError::Operands`], [`QueryError::Infinite`] of an
/// input; see [`Work::count`].
pub fn lockstep(
    arithmetic: &Arithmetic,
    terms: &[(Term<'_>, Kind)],
    joined: &mut [Joined],
    operator: SetOperator,
    work: &mut Work<'_>,
) -> Result<(), ExpressionError> {
    let all: HashSet<(usize, usize)> = joined.iter().flat_map(|joined| &joined.all).copied().collect();
    let mut operands: Vec<Operand<'_>> = Vec::with_capacity(terms.len());
    for (place, (term, kind)) in terms.iter().enumerate() {
        let takes_part = |index: usize| {
            operator == SetOperator::Union || *kind == Kind::Nested || all.contains(&(place, index))
        };
        operands.push(Operand::new(term, *kind, takes_part));
    }
    let mut times_ms = Vec::new();
    let mut columns: Vec<Vec<f64>> = vec![Vec::new(); joined.len()];
    let mut values = vec![0.0; terms.len()];
    while let Some(time_ms) = operands.iter().filter_map(Operand::next_ms).min() {
        work.count(joined.len())?;
        work.step(operands.iter().map(|operand| operand.cursors.len()).sum())?;
        for operand in &mut operands {
            operand.step(time_ms)?;
        }
        for (joined, column) in joined.iter().zip(&mut columns) {
            for ((value, operand), member) in values.iter_mut().zip(&operands).zip(&joined.members) {
                *value = operand.value(*member);
            }
            column.push(work.number(arithmetic.evaluate(&values)?)?);
        }
        times_ms.push(time_ms);
    }
    for (joined, column) in joined.iter_mut().zip(columns) {
        joined.series.points = Points::new(times_ms.clone(), Values::Doubles(column));
    }
    Ok(())
}

/// An operand on its way.
struct Operand<'a> {
    name: &'a str,
    kind: Kind,
    fill: Fill,
    /// Cursors of the series; `None` for series that do not take part.
    cursors: Vec<Option<Cursor<'a>>>,
    /// Values in the current row.
    values: Vec<f64>,
}

impl<'a> Operand<'a> {
    fn new(term: &Term<'a>, kind: Kind, takes_part: impl Fn(usize) -> bool) -> Self {
        let series = term.operand.series;
        let cursors = series.iter().enumerate();
        Self {
            name: term.operand.name,
            kind,
            fill: term.fill,
            cursors: cursors
                .map(|(index, series)| takes_part(index).then(|| Cursor::new(&series.points)))
                .collect(),
            values: vec![0.0; series.len()],
        }
    }

    /// The earliest instant that one of its series has next.
    fn next_ms(&self) -> Option<i64> {
        self.cursors.iter().flatten().filter_map(Cursor::time_ms).min()
    }

    /// Goes on to a row.
    fn step(&mut self, time_ms: i64) -> Result<(), ExpressionError> {
        let until_ms = match (self.kind, self.next_ms()) {
            (Kind::Input, _) => time_ms,
            (Kind::Nested, Some(next_ms)) => next_ms,
            (Kind::Nested, None) => {
                let name = self.name.to_owned();
                return Err(ExpressionError::NoMoreValues { name });
            }
        };
        for (value, cursor) in self.values.iter_mut().zip(&mut self.cursors) {
            let taken = cursor.as_mut().and_then(|cursor| cursor.take(until_ms));
            // Results of nested expressions may be infinite, results of queries may not.
            if let (Kind::Input, Some(value)) = (self.kind, taken)
                && value.is_infinite()
            {
                let time_ms = until_ms;
                return Err(QueryError::Infinite { time_ms, value }.into());
            }
            *value = self.fill.or(taken.unwrap_or(f64::NAN));
        }
        Ok(())
    }

    /// Its value in the current row; a series that it does not have is 0, whatever its fill.
    fn value(&self, member: Option<usize>) -> f64 {
        member.map_or(0.0, |member| self.values[member])
    }
}
