//! From a tree to a value.

use super::node::Node;
use super::value::Value;

/// The value of a tree. Depth of trees is bounded, so is this recursion.
pub(super) fn evaluate(node: &Node, values: &[f64]) -> Value {
    match node {
        Node::Value(value) => *value,
        Node::Name(index) => Value::Double(values[*index]),
        Node::Negate(inner) => evaluate(inner, values).negated(),
        Node::Not(inner) => Value::Truth(!evaluate(inner, values).is_true()),
        Node::Complement(inner) => evaluate(inner, values).complement(),
        Node::Chain(first, rest) => rest
            .iter()
            .fold(evaluate(first, values), |left, (operator, right)| {
                operator.apply(left, evaluate(right, values))
            }),
        Node::All(nodes) => Value::Truth(nodes.iter().all(|node| evaluate(node, values).is_true())),
        Node::Any(nodes) => Value::Truth(nodes.iter().any(|node| evaluate(node, values).is_true())),
        Node::Condition {
            condition,
            then,
            otherwise,
        } => {
            let decided = evaluate(condition, values);
            match (decided.is_true(), then) {
                (true, Some(then)) => evaluate(then, values),
                (true, None) => decided,
                (false, _) => evaluate(otherwise, values),
            }
        }
    }
}
