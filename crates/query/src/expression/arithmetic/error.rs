//! Errors and limits of arithmetic.

/// The longest text of an arithmetic expression, in bytes.
pub const MAX_LENGTH: usize = 10_000;

/// The deepest nesting of parentheses, signs and conditions.
pub const MAX_DEPTH: usize = 64;

/// Error of a text that is no arithmetic expression.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ArithmeticError {
    /// An unexpected token.
    #[error("parsing error at {place} in '{text}', expected {expected}")]
    Syntax {
        /// The expression.
        text: String,
        /// The position of the character, from 1.
        place: usize,
        /// The expected token.
        expected: &'static str,
    },
    /// Too long.
    #[error("the expression has {length} bytes, at most {MAX_LENGTH} are allowed")]
    Length {
        /// Its length.
        length: usize,
    },
    /// Too deeply nested.
    #[error("the expression is deeper than {MAX_DEPTH} levels")]
    Depth,
}

/// Error of operands that OpenTSDB's arithmetic rejects. The message ends with the last words of OpenTSDB's message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OperandError {
    /// A boolean with an operand that is no double.
    #[error(
        "OpenTSDB combines a boolean with series and fractions only (`100.0`), not with integers, booleans or null: \
         {operator} error"
    )]
    Truth {
        /// The operator, `+/-` or `*`.
        operator: &'static str,
    },
    /// `-null`
    #[error("OpenTSDB has no negative of null: arithmetic error")]
    NegatedNull,
}

impl ArithmeticError {
    pub(super) fn at(text: &str, byte: usize, expected: &'static str) -> Self {
        Self::Syntax {
            text: text.to_owned(),
            place: text.get(..byte).map_or(0, |before| before.chars().count()) + 1,
            expected,
        }
    }
}
