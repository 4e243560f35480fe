//! From a tree to a value.

use super::error::OperandError;
use super::node::Node;
use super::value::Value;
use crate::Quirks;

/// The values of the names, and the quirks of the operators.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scope<'a> {
    pub(super) values: &'a [f64],
    pub(super) quirks: Quirks,
}

impl Scope<'_> {
    /// The value of a tree. Depth of trees is bounded, so is this recursion.
    pub(super) fn evaluate(self, node: &Node) -> Result<Value, OperandError> {
        Ok(match node {
            Node::Value(value) => *value,
            Node::Name(index) => Value::Double(self.values[*index]),
            Node::Negate(inner) => self.evaluate(inner)?.negated(self.quirks)?,
            Node::Not(inner) => Value::Truth(!self.is_true(inner)?),
            Node::Complement(inner) => self.evaluate(inner)?.complement(),
            Node::Chain(first, rest) => {
                let first = self.evaluate(first)?;
                rest.iter().try_fold(first, |left, (operator, right)| {
                    operator.apply(left, self.evaluate(right)?, self.quirks)
                })?
            }
            Node::All(nodes) => Value::Truth(!self.any(nodes, false)?),
            Node::Any(nodes) => Value::Truth(self.any(nodes, true)?),
            Node::Condition {
                condition,
                then,
                otherwise,
            } => {
                let decided = self.evaluate(condition)?;
                match (decided.is_true(), then) {
                    (true, Some(then)) => self.evaluate(then)?,
                    (true, None) => decided,
                    (false, _) => self.evaluate(otherwise)?,
                }
            }
        })
    }

    fn is_true(self, node: &Node) -> Result<bool, OperandError> {
        Ok(self.evaluate(node)?.is_true())
    }

    /// Whether any tree has this truth; trees after the first that has it are not evaluated.
    fn any(self, nodes: &[Node], truth: bool) -> Result<bool, OperandError> {
        for node in nodes {
            if self.is_true(node)? == truth {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
