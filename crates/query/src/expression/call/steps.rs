//! From calls to steps with names, one for each call: what a client of the contract asks for.
//!
//! ```text
//!   scale(sum(sum:a,max:b),2)     q0 = sum:a   q1 = max:b     e0 = q0 + q1   e1 = scale(e0, 2)
//! ```

use super::super::arithmetic::Operator;
use super::super::function::Function;
use super::{Argument, Call, CallError, CallFunction, arguments, evaluate};

/// A call with a name, over names of questions or of earlier steps.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// Its name: `e0` for the first one.
    pub name: String,
    /// What it is given: `q0` is the first question.
    pub of: Vec<String>,
    /// What it does.
    pub body: StepBody,
}

/// What a step does.
#[derive(Clone, Debug, PartialEq)]
pub enum StepBody {
    /// Puts this sign between the values that belong together.
    Combine(&'static str),
    /// A function over all series.
    Function(Function),
}

/// The steps of calls, each after those that it needs, and the names of the calls themselves.
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

/// Adds a call behind those in it; its name.
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
    let body = match (call.function, arguments::function(call.function, &texts)?) {
        (_, Some(function)) => StepBody::Function(function),
        (CallFunction::Combine(operator), None) => {
            arguments::check_operands(of.len())?;
            StepBody::Combine(sign(operator))
        }
        // Any other call has a function or was refused.
        (_, None) => return Err(evaluate::text_before_operand(call)),
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

    fn of(texts: &[&str]) -> Result<(Vec<Step>, Vec<String>), CallError> {
        let mut questions = Vec::new();
        let calls: Vec<Call> = texts
            .iter()
            .map(|text| parse(text, &mut questions).unwrap())
            .collect();
        steps(&calls)
    }

    #[test]
    fn each_call_is_a_step_behind_those_in_it() {
        let (steps, names) = of(&["scale(diffSeries(sum:a,max:b),2)", "absolute(sum:c)"]).unwrap();
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
    fn what_cannot_be_used_is_told() {
        for (text, message) in [
            ("sum(sum:a)", "Must have 2 to 26 series, got 1 instead"),
            ("scale(sum:a)", "Missing scaling factor"),
            ("scale(2,sum:a)", "Unknown parameter type: null in tree: scale(a)"),
            ("timeShift(sum:a,'1h')", "unknown time unit=h'"),
        ] {
            assert_eq!(of(&[text]).unwrap_err().to_string(), message);
        }
    }
}
