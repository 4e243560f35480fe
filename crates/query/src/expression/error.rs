//! Errors of expressions.

use super::arithmetic::{ArithmeticError, OperandError};
use crate::QueryError;

/// Numbers that one expression may make.
pub const MAX_VALUES: usize = 10_000_000;

/// Steps that one expression may take: values of moving averages are added up for each of them. It is
/// some seconds of work.
pub const MAX_STEPS: u64 = 4_000_000_000;

/// Error of an expression.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ExpressionError {
    /// Its series could not be read.
    #[error(transparent)]
    Query(#[from] QueryError),
    /// The arithmetic of an expression is none.
    #[error(transparent)]
    Arithmetic(#[from] ArithmeticError),
    /// OpenTSDB's arithmetic rejects the operands.
    #[error(transparent)]
    Operands(#[from] OperandError),
    /// Series are combined by place, and one has fewer values.
    #[error("series that are combined have {first} and {second} values, OpenTSDB combines by place")]
    Lengths {
        /// Values of one.
        first: usize,
        /// Values of another.
        second: usize,
    },
    /// No series is in all operands of an intersection.
    #[error("no series of `{expression}` is in all its operands")]
    NoIntersection {
        /// The expression.
        expression: String,
    },
    /// A nested expression has no values left where its user has.
    #[error("nested expression `{name}` has no more values, OpenTSDB takes them by place")]
    NoMoreValues {
        /// The nested one.
        name: String,
    },
    /// The result is neither a double nor a truth.
    #[error("the result is {kind}, OpenTSDB takes doubles and truths only")]
    ResultType {
        /// The kind of the result.
        kind: &'static str,
    },
    /// An alias of a combination that was made just before.
    #[error("OpenTSDB gives no alias to what was combined just before")]
    AliasOfCombined,
    /// Too many numbers.
    #[error("expression makes {values} values, at most {MAX_VALUES} are allowed")]
    TooManyValues {
        /// The number of values.
        values: usize,
    },
    /// Too much to compute.
    #[error("expression takes more than {MAX_STEPS} steps, take a shorter range or a smaller window")]
    TooManySteps,
    /// The query was cancelled.
    #[error("deadline passed before the expression was computed")]
    Cancelled,
}

impl ExpressionError {
    /// Whether it is returned only if the expression is an output: it concerns the number, the type or the name of its
    /// values and does not affect other expressions.
    pub const fn is_of_values(&self) -> bool {
        match self {
            Self::Lengths { .. }
            | Self::NoMoreValues { .. }
            | Self::Operands(_)
            | Self::ResultType { .. }
            | Self::AliasOfCombined
            | Self::Query(QueryError::Infinite { .. }) => true,
            Self::Query(_)
            | Self::Arithmetic(_)
            | Self::NoIntersection { .. }
            | Self::TooManyValues { .. }
            | Self::TooManySteps
            | Self::Cancelled => false,
        }
    }
}
