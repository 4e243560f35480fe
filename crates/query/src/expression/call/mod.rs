//! Expressions in the form of calls: `scale(sum(sum:1m-avg:a{host=*},sum:1m-avg:b{host=*}),100)`.
//!
//! Operands come first: calls, and sub-queries in the form of `m` of `/api/query`, without syntax that needs other
//! characters than names (filter functions, for example). Strings and numbers follow.
//!
//! [`NamedFunction`] lists the functions. Errors are OpenTSDB's.
//!
//! Source: OpenTSDB 2.4, `SyntaxChecker` (`parser.jj`), `ExpressionTree`, `ExpressionFactory`.

mod evaluate;
mod parse;
mod steps;

pub use evaluate::evaluate;
pub use parse::parse;
pub use steps::{Step, StepBody, steps};

use super::error::ExpressionError;
use super::function::NamedFunction;

/// A call.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    function: &'static NamedFunction,
    arguments: Vec<Argument>,
}

/// An argument of a call.
#[derive(Clone, Debug, PartialEq)]
enum Argument {
    Call(Call),
    /// A sub-query: its index among the request's sub-queries, and its text.
    Query(usize, String),
    Text(String),
}

/// Error of a text that is no call.
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

/// Error of a call without a result.
#[derive(Clone, Debug, thiserror::Error)]
pub enum CallError {
    /// Arguments that the function cannot use.
    #[error("{0}")]
    Argument(String),
    /// The computation failed.
    #[error(transparent)]
    Expression(#[from] ExpressionError),
}
