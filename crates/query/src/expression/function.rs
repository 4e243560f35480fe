//! Functions over lists of series.
//!
//! Each is a variant of [`Function`] with its arguments, an arm of [`Function::apply`], and a row of the table of
//! [`NamedFunction`]s: its names in calls, an example, and the parser of its arguments. The languages of
//! `/api/query/gexp` and `tsdb query --expr` read the table; the contract has a field for each function.
//!
//! Source: OpenTSDB 2.4, `Scale`, `Absolute`, `Alias`, `HighestMax`, `HighestCurrent`.

use std::sync::Arc;

use super::arguments;
use super::arithmetic::Operator;
use super::combine::Work;
use super::error::ExpressionError;
use super::highest::{self, Measure};
use super::moving_average::{self, Window};
use super::series::{Origin, Series};
use crate::{Number, Points, Quirks};

/// A function over a list of series.
#[derive(Clone, Debug, PartialEq)]
pub enum Function {
    /// Each value times a factor. Integers stay integers if the factor is whole, and wrap.
    Scale(f64),
    /// Each value without its sign; of the smallest integer itself.
    Absolute,
    /// A name in place of metric and tags; `@host` in it is the value of the tag `host`.
    Alias(String),
    /// Means over a window that moves along.
    MovingAverage(Window),
    /// This many series, with the largest values first.
    Highest(Measure, usize),
}

/// A function by its names in calls such as `scale(sum:m,2)`.
#[derive(Debug)]
pub struct NamedFunction {
    /// All have the same meaning.
    names: &'static [&'static str],
    /// Its name in OpenTSDB's messages.
    shown: &'static str,
    pub(super) meaning: Meaning,
    example: &'static str,
}

/// The computation of a call.
#[derive(Clone, Copy, Debug)]
pub(super) enum Meaning {
    /// The function that its texts select, over all series of all operands.
    Function(fn(&[&str]) -> Result<Function, String>),
    /// This operator between the values of 2 to 26 operands, which are joined by all tags.
    Combine(Operator),
}

static FUNCTIONS: &[NamedFunction] = &[
    NamedFunction {
        names: &["absolute"],
        shown: "absolute",
        meaning: Meaning::Function(|_| Ok(Function::Absolute)),
        example: "absolute(sum:m)",
    },
    NamedFunction {
        names: &["alias"],
        shown: "alias",
        meaning: Meaning::Function(|texts| Ok(Function::Alias(arguments::alias(texts)?))),
        example: "alias(sum:m,@host)",
    },
    NamedFunction {
        names: &["difference", "diffSeries"],
        shown: "diffSeries",
        meaning: Meaning::Combine(Operator::Subtract),
        example: "difference(sum:a,sum:b)",
    },
    NamedFunction {
        names: &["divide", "divideSeries"],
        shown: "divideSeries",
        meaning: Meaning::Combine(Operator::Divide),
        example: "divide(sum:a,sum:b)",
    },
    NamedFunction {
        names: &["highestCurrent"],
        shown: "highestCurrent",
        meaning: Meaning::Function(|texts| {
            Ok(Function::Highest(Measure::Last, arguments::series_count(texts)?))
        }),
        example: "highestCurrent(sum:m,3)",
    },
    NamedFunction {
        names: &["highestMax"],
        shown: "highestMax",
        meaning: Meaning::Function(|texts| {
            Ok(Function::Highest(Measure::Max, arguments::series_count(texts)?))
        }),
        example: "highestMax(sum:m,3)",
    },
    NamedFunction {
        names: &["movingAverage"],
        shown: "movingAverage",
        meaning: Meaning::Function(|texts| Ok(Function::MovingAverage(arguments::window(texts)?))),
        example: "movingAverage(sum:m,'5min')",
    },
    NamedFunction {
        names: &["multiply", "multiplySeries"],
        shown: "multiplySeries",
        meaning: Meaning::Combine(Operator::Multiply),
        example: "multiply(sum:a,sum:b)",
    },
    NamedFunction {
        names: &["scale"],
        shown: "scale",
        meaning: Meaning::Function(|texts| Ok(Function::Scale(arguments::factor(texts)?))),
        example: "scale(sum:m,0.5)",
    },
    // Always an error, as in OpenTSDB.
    NamedFunction {
        names: &["shift", "timeShift"],
        shown: "timeshift",
        meaning: Meaning::Function(|texts| Err(arguments::shift(texts))),
        example: "shift(sum:m,'1h')",
    },
    NamedFunction {
        names: &["sum", "sumSeries"],
        shown: "sumSeries",
        meaning: Meaning::Combine(Operator::Add),
        example: "sum(sum:a,sum:b)",
    },
];

impl NamedFunction {
    /// All functions, by name.
    pub fn all() -> &'static [Self] {
        FUNCTIONS
    }

    /// Finds a function by one of its names; case counts.
    pub(super) fn find(name: &str) -> Option<&'static Self> {
        FUNCTIONS.iter().find(|function| function.names.contains(&name))
    }

    /// Its names.
    pub const fn names(&self) -> &'static [&'static str] {
        self.names
    }

    /// A call of it, as an example.
    pub const fn example(&self) -> &'static str {
        self.example
    }

    /// Its name in OpenTSDB's messages.
    pub(super) const fn shown(&self) -> &'static str {
        self.shown
    }
}

impl PartialEq for NamedFunction {
    fn eq(&self, other: &Self) -> bool {
        self.names == other.names
    }
}

impl Function {
    /// Applies the function to a list of series, and returns its results.
    ///
    /// # Errors
    ///
    /// See [`Work::count`] and [`Series::check`]; [`ExpressionError::AliasOfCombined`].
    pub fn apply(&self, list: Vec<Series>, work: &mut Work<'_>) -> Result<Vec<Series>, ExpressionError> {
        // OpenTSDB checks the origin before the size.
        if matches!(self, Self::Alias(_)) {
            check_alias(&list, work.quirks())?;
        }
        list.iter().try_for_each(Series::check)?;
        work.count(list.iter().map(|series| series.points.len()).sum())?;
        match self {
            Self::Scale(factor) => Ok(each(list, |value| scaled(value, *factor))),
            Self::Absolute => Ok(each(list, absolute)),
            Self::Alias(template) => Ok(alias(list, template, work.quirks())),
            Self::MovingAverage(window) => list
                .into_iter()
                .map(|series| {
                    let points = work.in_range(series.points.clone());
                    let means = moving_average::apply(&points, *window, work)?;
                    Ok(series.with_points(means))
                })
                .collect(),
            Self::Highest(measure, count) => highest::apply(list, *measure, *count, work),
        }
    }
}

fn each(list: Vec<Series>, of_value: impl Fn(Number) -> Number) -> Vec<Series> {
    list.into_iter()
        .map(|series| {
            let points: Points = series
                .points
                .iter()
                .map(|(time_ms, value)| (time_ms, of_value(value)))
                .collect();
            series.with_points(points)
        })
        .collect()
}

#[expect(clippy::cast_possible_truncation, reason = "as Java does it: saturated")]
fn scaled(value: Number, factor: f64) -> Number {
    match value {
        Number::Int(int) if factor.floor() == factor && factor.is_finite() => {
            Number::Int((factor as i64).wrapping_mul(int))
        }
        value => Number::Double(factor * value.as_f64()),
    }
}

const fn absolute(value: Number) -> Number {
    match value {
        Number::Int(int) => Number::Int(int.wrapping_abs()),
        Number::Double(double) => Number::Double(double.abs()),
    }
}

fn check_alias(list: &[Series], quirks: Quirks) -> Result<(), ExpressionError> {
    let combined = |series: &Series| matches!(series.origin, Origin::Combined { .. });
    if quirks.aliases_are_absolute && list.iter().any(combined) {
        return Err(ExpressionError::AliasOfCombined);
    }
    Ok(())
}

fn alias(list: Vec<Series>, template: &str, quirks: Quirks) -> Vec<Series> {
    let list = if quirks.aliases_are_absolute {
        each(list, absolute)
    } else {
        list
    };
    let named = list.into_iter().map(|mut series| {
        let mut name = template.to_owned();
        // A series with an alias has no tags any more.
        for tag in series.tags.values().filter(|_| series.alias.is_none()) {
            name = name.replace(&format!("@{}", tag.key), &tag.value);
        }
        series.alias = Some(Arc::from(name));
        series
    });
    named.collect()
}
