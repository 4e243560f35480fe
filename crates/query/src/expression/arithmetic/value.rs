//! Values of arithmetic and the results of operators.

use super::error::OperandError;
use crate::Quirks;

/// A value while an expression is computed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    /// No value: 0 for arithmetic, false, and less than nothing.
    Null,
    /// True or false.
    Truth(bool),
    /// A whole number that was written in the expression, or computed from such numbers.
    Whole(i128),
    /// A number with a fraction that was written in the expression and not yet computed with.
    Literal(f64),
    /// A value of a series, or made with one.
    Double(f64),
}

/// An operator between two values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    /// `+`
    Add,
    /// `-`
    Subtract,
    /// `*`
    Multiply,
    /// `/`
    Divide,
    /// `%`
    Remainder,
    /// `==`
    Equal,
    /// `!=`
    NotEqual,
    /// `<`
    Less,
    /// `<=`
    LessOrEqual,
    /// `>`
    Greater,
    /// `>=`
    GreaterOrEqual,
    /// `|`
    BitOr,
    /// `^`
    BitXor,
    /// `&`
    BitAnd,
}

impl Value {
    /// As a double.
    #[expect(
        clippy::cast_precision_loss,
        reason = "whole numbers beyond 2^53 are rounded to nearest"
    )]
    pub const fn as_f64(self) -> f64 {
        match self {
            Self::Null => 0.0,
            Self::Truth(truth) => truth as u8 as f64,
            Self::Whole(whole) => whole as f64,
            Self::Literal(double) | Self::Double(double) => double,
        }
    }

    /// Whether it counts as true.
    pub fn is_true(self) -> bool {
        let number = self.as_f64();
        number != 0.0 && !number.is_nan()
    }

    /// `-x`
    ///
    /// # Errors
    ///
    /// With [`Quirks::booleans_are_no_integers`] null is an error.
    pub fn negated(self, quirks: Quirks) -> Result<Self, OperandError> {
        match self {
            Self::Null if quirks.booleans_are_no_integers => Err(OperandError::NegatedNull),
            Self::Null => Ok(Self::Null),
            Self::Truth(truth) => Ok(Self::Truth(!truth)),
            Self::Whole(whole) => Ok(Self::Whole(whole.saturating_neg())),
            Self::Literal(double) => Ok(Self::Literal(-double)),
            Self::Double(double) => Ok(Self::Double(-double)),
        }
    }

    /// `~x`
    #[must_use]
    pub fn complement(self) -> Self {
        Self::Whole(i128::from(!self.bits()))
    }

    /// As a whole number of 64 bits; fractions are cut off.
    #[expect(clippy::cast_possible_truncation, reason = "documented")]
    const fn bits(self) -> i64 {
        match self {
            Self::Whole(whole) => whole as i64,
            other => other.as_f64() as i64,
        }
    }

    /// Both as whole numbers, if both are.
    const fn whole(self, other: Self) -> Option<(i128, i128)> {
        match (self, other) {
            (Self::Whole(left), Self::Whole(right)) => Some((left, right)),
            (Self::Whole(whole), Self::Null) => Some((whole, 0)),
            (Self::Null, Self::Whole(whole)) => Some((0, whole)),
            (Self::Null, Self::Null) => Some((0, 0)),
            _ => None,
        }
    }
}

impl Operator {
    /// The value of `left OPERATOR right`.
    ///
    /// # Errors
    ///
    /// See [`Quirks::booleans_are_no_integers`].
    pub fn apply(self, left: Value, right: Value, quirks: Quirks) -> Result<Value, OperandError> {
        if quirks.booleans_are_no_integers && is_truth_without_double(left, right) {
            match self {
                Self::Add | Self::Subtract => return Err(OperandError::Truth { operator: "+/-" }),
                Self::Multiply => return Err(OperandError::Truth { operator: "*" }),
                // JEXL makes 0 of a quotient that fails.
                Self::Divide | Self::Remainder => return Ok(Value::Double(0.0)),
                _ => {}
            }
        }
        Ok(self.combine(left, right))
    }

    fn combine(self, left: Value, right: Value) -> Value {
        match self {
            Self::Add => arithmetic(left, right, i128::checked_add, |l, r| l + r),
            Self::Subtract => arithmetic(left, right, i128::checked_sub, |l, r| l - r),
            Self::Multiply => arithmetic(left, right, i128::checked_mul, |l, r| l * r),
            Self::Divide => quotient(left, right, i128::checked_div, |l, r| l / r),
            // Of whole numbers it is never negative, and there is none by a negative one.
            Self::Remainder if left.whole(right).is_some_and(|(_, right)| right < 0) => Value::Double(0.0),
            Self::Remainder => quotient(left, right, i128::checked_rem_euclid, |l, r| l % r),
            Self::Equal => Value::Truth(equal(left, right)),
            Self::NotEqual => Value::Truth(!equal(left, right)),
            Self::Less => Value::Truth(differ(left, right) && compare(left, right).is_lt()),
            Self::LessOrEqual => Value::Truth(
                left == Value::Null && right == Value::Null
                    || differ(left, right) && compare(left, right).is_le(),
            ),
            Self::Greater => Value::Truth(differ(left, right) && compare(left, right).is_gt()),
            Self::GreaterOrEqual => Value::Truth(
                left == Value::Null && right == Value::Null
                    || differ(left, right) && compare(left, right).is_ge(),
            ),
            Self::BitOr => Value::Whole(i128::from(left.bits() | right.bits())),
            Self::BitXor => Value::Whole(i128::from(left.bits() ^ right.bits())),
            Self::BitAnd => Value::Whole(i128::from(left.bits() & right.bits())),
        }
    }
}

/// Whole numbers as long as they fit, doubles else.
fn arithmetic(
    left: Value,
    right: Value,
    whole: fn(i128, i128) -> Option<i128>,
    double: fn(f64, f64) -> f64,
) -> Value {
    left.whole(right)
        .and_then(|(left, right)| whole(left, right))
        .map_or_else(
            || Value::Double(double(left.as_f64(), right.as_f64())),
            Value::Whole,
        )
}

fn quotient(
    left: Value,
    right: Value,
    whole: fn(i128, i128) -> Option<i128>,
    double: fn(f64, f64) -> f64,
) -> Value {
    if right.as_f64() == 0.0 {
        return Value::Double(0.0);
    }
    arithmetic(left, right, whole, double)
}

/// Whether a value is a truth and none is a double.
fn is_truth_without_double(left: Value, right: Value) -> bool {
    let values = [left, right];
    let is_double = |value: &Value| matches!(value, Value::Literal(_) | Value::Double(_));
    values.iter().any(|value| matches!(value, Value::Truth(_))) && !values.iter().any(is_double)
}

fn equal(left: Value, right: Value) -> bool {
    match (left, right) {
        (Value::Null, Value::Null) => true,
        (Value::Null, _) | (_, Value::Null) => false,
        (Value::Truth(truth), other) | (other, Value::Truth(truth)) => truth == other.is_true(),
        _ => compare(left, right).is_eq(),
    }
}

/// Whether neither is null: nothing is in order with null.
fn differ(left: Value, right: Value) -> bool {
    left != Value::Null && right != Value::Null
}

/// NaN is equal to itself and less than all others.
fn compare(left: Value, right: Value) -> std::cmp::Ordering {
    if let Some((left, right)) = left.whole(right) {
        return left.cmp(&right);
    }
    let (left, right) = (left.as_f64(), right.as_f64());
    left.partial_cmp(&right)
        .unwrap_or_else(|| right.is_nan().cmp(&left.is_nan()))
}
