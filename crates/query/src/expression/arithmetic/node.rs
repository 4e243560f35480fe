//! The syntax tree.

use super::value::{Operator, Value};

/// A part of an expression.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Node {
    Value(Value),
    /// By its place among the names.
    Name(usize),
    Negate(Box<Node>),
    Not(Box<Node>),
    Complement(Box<Node>),
    /// From left to right; flat, so that a long sum is not a deep tree.
    Chain(Box<Node>, Vec<(Operator, Node)>),
    All(Vec<Node>),
    Any(Vec<Node>),
    Condition {
        condition: Box<Node>,
        then: Option<Box<Node>>,
        otherwise: Box<Node>,
    },
}
