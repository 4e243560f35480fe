//! Evaluates a call over the series of its sub-queries.

use std::collections::BTreeSet;

use super::super::arguments;
use super::super::arithmetic::{Arithmetic, Operator};
use super::super::combine::{Work, by_place};
use super::super::function::Meaning;
use super::super::join::{Join, Operand};
use super::super::series::Series;
use super::{Argument, Call, CallError};

/// Evaluates a call. `results` are the series of each sub-query of the request: OpenTSDB omits sub-queries that are
/// equal to an earlier one, and counts those beside expressions, but a call looks up its sub-queries at the
/// positions that they have without both.
///
/// # Errors
///
/// [`CallError`], the innermost call's first.
pub fn evaluate(call: &Call, results: &[Vec<Series>], work: &mut Work<'_>) -> Result<Vec<Series>, CallError> {
    let count = call
        .arguments
        .iter()
        .filter(|argument| !argument.is_text())
        .count();
    let mut operands = Vec::with_capacity(count);
    for argument in call.arguments.iter().take(count) {
        operands.push(match argument {
            Argument::Call(call) => evaluate(call, results, work)?,
            Argument::Query(place, _) => results.get(*place).cloned().ok_or_else(|| {
                CallError::Argument(format!(
                    "Index {place} out of bounds for length {}",
                    results.len()
                ))
            })?,
            Argument::Text(_) => return Err(text_before_operand(call)),
        });
    }
    if operands.is_empty() {
        return Ok(Vec::new());
    }
    let texts: Vec<&str> = call.arguments.iter().filter_map(Argument::text).collect();
    match call.function.meaning {
        Meaning::Combine(operator) => combine(operator, &operands, work),
        Meaning::Function(parse) => {
            let function = parse(&texts).map_err(CallError::Argument)?;
            Ok(function.apply(operands.concat(), work)?)
        }
    }
}

/// A call in which a text stands where an operand has to be.
pub(super) fn text_before_operand(call: &Call) -> CallError {
    CallError::Argument(format!("Unknown parameter type: null in tree: {}", shown(call)))
}

fn combine(
    operator: Operator,
    operands: &[Vec<Series>],
    work: &mut Work<'_>,
) -> Result<Vec<Series>, CallError> {
    arguments::check_operands(operands.len()).map_err(CallError::Argument)?;
    let names: Vec<String> = ('a'..='z').take(operands.len()).map(String::from).collect();
    let no_tags = BTreeSet::new();
    let operands: Vec<Operand<'_>> = names
        .iter()
        .zip(operands)
        .map(|(name, series)| Operand {
            name,
            series,
            query_tags: &no_tags,
        })
        .collect();
    let joined = Join::UNION.join(&operands, work.quirks());
    let arithmetic = Arithmetic::fold(operator, names.clone());
    Ok(by_place(&arithmetic, operands, joined, work)?)
}

impl Argument {
    const fn is_text(&self) -> bool {
        matches!(self, Self::Text(_))
    }

    fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Call(_) | Self::Query(..) => None,
        }
    }
}

/// A call as OpenTSDB's messages show it: the calls in it, then the metrics.
fn shown(call: &Call) -> String {
    let calls = call.arguments.iter().filter_map(|argument| match argument {
        Argument::Call(call) => Some(shown(call)),
        Argument::Query(..) | Argument::Text(_) => None,
    });
    let metrics = call.arguments.iter().filter_map(|argument| match argument {
        Argument::Query(_, sub_query) => {
            let without_tags = sub_query.split('{').next().unwrap_or_default();
            without_tags.rsplit(':').next().map(str::to_owned)
        }
        Argument::Call(_) | Argument::Text(_) => None,
    });
    let mut inner: Vec<String> = calls.chain(metrics).collect();
    if call.function.shown() == "alias" {
        inner.extend(
            call.arguments
                .iter()
                .filter_map(Argument::text)
                .map(str::to_owned),
        );
    }
    format!("{}({})", call.function.shown(), inner.join(","))
}
