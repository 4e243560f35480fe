//! Converts calls to steps with names, one for each call: the form of expressions in the contract.
//!
//! ```text
//!   scale(sum(sum:a,max:b),2)     q0 = sum:a   q1 = max:b     e0 = q0 + q1   e1 = scale(e0, 2)
//! ```

use super::super::arguments;
use super::super::arithmetic::Operator;
use super::super::function::{Function, Meaning};
use super::{Argument, Call, CallError, evaluate};

/// A call with a name, over names of sub-queries or of earlier steps.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// Its name: `e0` for the first one.
    pub name: String,
    /// Its operands: `q0` is the first sub-query.
    pub of: Vec<String>,
    /// Its computation.
    pub body: StepBody,
}

/// The computation of a step.
#[derive(Clone, Debug, PartialEq)]
pub enum StepBody {
    /// Arithmetic with this sign between all operands.
    Combine(&'static str),
    /// A function over all series.
    Function(Function),
}

/// The steps of calls, each after its operands, and the names of the calls themselves.
///
/// # Errors
///
/// [`CallError::Argument`].
pub fn steps(calls: &[Call]) -> Result<(Vec<Step>, Vec<String>), CallError> {
    let mut steps = Vec::new();
    let names = calls.iter().map(|call| add(call, &mut steps));
    let names = names.collect::<Result<_, _>>()?;
    Ok((steps, names))
}

/// Adds a call after its operands; returns its name.
fn add(call: &Call, steps: &mut Vec<Step>) -> Result<String, CallError> {
    let (mut of, mut texts) = (Vec::new(), Vec::new());
    for argument in &call.arguments {
        match argument {
            Argument::Call(inner) if texts.is_empty() => of.push(add(inner, steps)?),
            Argument::Query(place, _) if texts.is_empty() => of.push(format!("q{place}")),
            Argument::Call(_) | Argument::Query(..) => return Err(evaluate::text_before_operand(call)),
            Argument::Text(text) => texts.push(text.as_str()),
        }
    }
    let body = match call.function.meaning {
        Meaning::Function(parse) => StepBody::Function(parse(&texts).map_err(CallError::Argument)?),
        Meaning::Combine(operator) => {
            arguments::check_operands(of.len()).map_err(CallError::Argument)?;
            StepBody::Combine(sign(operator))
        }
    };
    let name = format!("e{}", steps.len());
    steps.push(Step {
        name: name.clone(),
        of,
        body,
    });
    Ok(name)
}

const fn sign(operator: Operator) -> &'static str {
    match operator {
        Operator::Add => "+",
        Operator::Subtract => "-",
        Operator::Multiply => "*",
        _ => "/",
    }
}

#[cfg(test)]
mod tests {
    use super::super::parse;
    use super::*;

    fn parse_steps(texts: &[&str]) -> Result<(Vec<Step>, Vec<String>), CallError> {
        let mut queries = Vec::new();
        let calls: Vec<Call> = texts
            .iter()
            .map(|text| parse(text, &mut queries).unwrap())
            .collect();
        steps(&calls)
    }

    #[test]
    fn each_call_is_a_step_after_its_operands() {
        let (steps, names) = parse_steps(&["scale(diffSeries(sum:a,max:b),2)", "absolute(sum:c)"]).unwrap();
        let shown: Vec<String> = steps
            .iter()
            .map(|step| format!("{} {:?} {:?}", step.name, step.of, step.body))
            .collect();
        assert_eq!(
            shown,
            [
                r#"e0 ["q0", "q1"] Combine("-")"#,
                r#"e1 ["e0"] Function(Scale(2.0))"#,
                r#"e2 ["q2"] Function(Absolute)"#,
            ]
        );
        assert_eq!(names, ["e1", "e2"]);
    }

    #[test]
    fn rejects_invalid_arguments() {
        for (text, message) in [
            ("sum(sum:a)", "Must have 2 to 26 series, got 1 instead"),
            ("scale(sum:a)", "Missing scaling factor"),
            ("scale(2,sum:a)", "Unknown parameter type: null in tree: scale(a)"),
            ("timeShift(sum:a,'1h')", "unknown time unit=h'"),
        ] {
            assert_eq!(parse_steps(&[text]).unwrap_err().to_string(), message);
        }
    }
}
