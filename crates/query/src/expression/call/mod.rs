//! Expressions in the form of calls: `scale(sum(sum:1m-avg:a{host=*},sum:1m-avg:b{host=*}),100)`.
//!
//! Operands come first: calls, and questions as `/api/query` has them in `m`, less what needs other
//! characters than names have (filter functions, for example). Texts and numbers come behind them.
//!
//! | call | of one or more operands |
//! |---|---|
//! | `scale(q,0.5)`, `absolute(q)` | each value |
//! | `alias(q,text)` | a name; `@host` is the value of a tag |
//! | `movingAverage(q,10)`, `movingAverage(q,'5min')` | means over values or time: `s sec m min h hr hour d day` |
//! | `highestMax(q,3)`, `highestCurrent(q,3)` | the series with the largest maximum, or last value |
//! | `sum`, `difference`, `multiply`, `divide`, or `sumSeries`, `diffSeries`, `multiplySeries`, `divideSeries` | 2 to 26 operands, joined by all tags |
//! | `shift`, `timeShift` | an error, as OpenTSDB has it |
//!
//! Errors are in OpenTSDB's words.
//!
//! Source: OpenTSDB 2.4, `SyntaxChecker` (`parser.jj`), `ExpressionTree`, `ExpressionFactory`.

mod arguments;
mod evaluate;
mod parse;
mod steps;

pub use evaluate::evaluate;
pub use parse::parse;
pub use steps::{Step, StepBody, steps};

use super::arithmetic::Operator;
use super::error::ExpressionError;
use super::highest::Measure;

/// A call.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    function: CallFunction,
    arguments: Vec<Argument>,
}

/// What a call is given.
#[derive(Clone, Debug, PartialEq)]
enum Argument {
    Call(Call),
    /// A question: its place among those of the request's expressions, and its text.
    Query(usize, String),
    Text(String),
}

/// What a call does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CallFunction {
    Scale,
    Absolute,
    Alias,
    MovingAverage,
    Highest(Measure),
    Combine(Operator),
    Shift,
}

impl CallFunction {
    /// The function of a name.
    fn named(name: &str) -> Option<Self> {
        Some(match name {
            "scale" => Self::Scale,
            "absolute" => Self::Absolute,
            "alias" => Self::Alias,
            "movingAverage" => Self::MovingAverage,
            "highestMax" => Self::Highest(Measure::Max),
            "highestCurrent" => Self::Highest(Measure::Last),
            "sum" | "sumSeries" => Self::Combine(Operator::Add),
            "difference" | "diffSeries" => Self::Combine(Operator::Subtract),
            "multiply" | "multiplySeries" => Self::Combine(Operator::Multiply),
            "divide" | "divideSeries" => Self::Combine(Operator::Divide),
            "shift" | "timeShift" => Self::Shift,
            _ => return None,
        })
    }

    /// Its name in OpenTSDB's messages.
    const fn shown(self) -> &'static str {
        match self {
            Self::Scale => "scale",
            Self::Absolute => "absolute",
            Self::Alias => "alias",
            Self::MovingAverage => "movingAverage",
            Self::Highest(Measure::Max) => "highestMax",
            Self::Highest(Measure::Last) => "highestCurrent",
            Self::Combine(Operator::Add) => "sumSeries",
            Self::Combine(Operator::Subtract) => "diffSeries",
            Self::Combine(Operator::Multiply) => "multiplySeries",
            Self::Combine(_) => "divideSeries",
            Self::Shift => "timeshift",
        }
    }
}

/// Why a text is no call.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallSyntaxError {
    /// It does not have the form of a call.
    #[error("Failed to parse {text}")]
    Syntax {
        /// The text.
        text: String,
    },
    /// A function that there is not.
    #[error("Function {name} has not been implemented")]
    UnknownFunction {
        /// Its name.
        name: String,
    },
    /// More calls within each other than are allowed.
    #[error("Calls are nested deeper than {} levels", parse::MAX_DEPTH)]
    Depth,
    /// A text that is too long.
    #[error("Expression has {length} bytes, at most {} are allowed", parse::MAX_LENGTH)]
    Length {
        /// Its length.
        length: usize,
    },
}

/// Why a call has no result.
#[derive(Clone, Debug, thiserror::Error)]
pub enum CallError {
    /// Arguments that the function cannot use.
    #[error("{0}")]
    Argument(String),
    /// The computation failed.
    #[error(transparent)]
    Expression(#[from] ExpressionError),
}
