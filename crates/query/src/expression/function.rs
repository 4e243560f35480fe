//! Functions over lists of series.
//!
//! Source: OpenTSDB 2.4, `Scale`, `Absolute`, `Alias`, `HighestMax`, `HighestCurrent`.

use std::sync::Arc;

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
    /// So many series, those with the largest values first.
    Highest(Measure, usize),
}

impl Function {
    /// The series that it makes of a list.
    ///
    /// # Errors
    ///
    /// See [`Work::count`] and [`Series::check`]; [`ExpressionError::AliasOfCombined`].
    pub fn apply(&self, list: Vec<Series>, work: &mut Work<'_>) -> Result<Vec<Series>, ExpressionError> {
        // OpenTSDB asks for the size first.
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
        // What has an alias has no tags any more.
        for tag in series.tags.values().filter(|_| series.alias.is_none()) {
            name = name.replace(&format!("@{}", tag.key), &tag.value);
        }
        series.alias = Some(Arc::from(name));
        series
    });
    named.collect()
}
