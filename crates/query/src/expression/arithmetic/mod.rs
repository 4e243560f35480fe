//! The arithmetic of expressions: `(a - b) / a * 100`, over the values of one instant.
//!
//! ```text
//!   c ? x : y    c ?: y                    by whether c is true; without x it is c itself
//!   ||  or       &&  and                   whether one, whether both
//!   |   ^   &                              bits of whole numbers
//!   ==  eq   !=  ne                        equal
//!   <  lt   <=  le   >  gt   >=  ge        in order
//!   +   -                                  from left to right
//!   *   /  div   %  mod
//!   -x   !x  not x   ~x
//!   12   0x1F   017   1.5   2.5E-3   true   false   null   names   ( )
//! ```
//!
//! From loose to tight. Values of series are doubles. Whole numbers that are written in an expression
//! stay whole among themselves (`7/2*a` is `3*a`), everything else is a double. Dividing by zero gives
//! 0, also the rest of it; of whole numbers the rest is never negative. A number is true unless it is 0 or NaN; true is 1 and false 0; `null` counts
//! as 0. `##` and `//` begin a comment up to the end of the line, `/* */` is one.
//!
//! This is the part of JEXL that OpenTSDB uses, less the types that have no meaning for numbers: texts, lists, maps,
//! calls, loops and assignments are rejected. JEXL fails on truths with whole numbers (`(a>0)+1`) and makes 0 of a quotient
//! of them (`(a>0)/2`): see [`Quirks::booleans_are_no_integers`].
//!
//! Source: OpenTSDB 2.4, `ExpressionIterator`; Apache JEXL 2.1.1, `JexlArithmetic`, `Parser.jjt`.

mod error;
mod evaluate;
mod node;
mod parser;
mod token;
mod value;

pub use error::{ArithmeticError, MAX_DEPTH, MAX_LENGTH, OperandError};
pub use value::{Operator, Value};

use evaluate::Scope;
use node::Node;

use crate::Quirks;

/// An arithmetic expression over named values.
#[derive(Clone, Debug, PartialEq)]
pub struct Arithmetic {
    root: Node,
    names: Vec<String>,
    quirks: Quirks,
}

impl Arithmetic {
    /// Reads an expression.
    ///
    /// # Errors
    ///
    /// [`ArithmeticError`] with the place.
    pub fn parse(text: &str, quirks: Quirks) -> Result<Self, ArithmeticError> {
        let (root, names) = parser::parse(text, quirks)?;
        Ok(Self { root, names, quirks })
    }

    /// `a + b + c`: values from left to right.
    ///
    /// # Panics
    ///
    /// Without names.
    pub fn fold(operator: Operator, names: Vec<String>) -> Self {
        assert!(!names.is_empty(), "values are combined");
        let rest = (1..names.len()).map(|index| (operator, Node::Name(index)));
        Self {
            root: Node::Chain(Box::new(Node::Name(0)), rest.collect()),
            names,
            quirks: Quirks::NONE,
        }
    }

    /// The names in it, each once, in the order in which they come.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// The value for values of the names, in their order.
    ///
    /// # Errors
    ///
    /// With quirks operands that OpenTSDB rejects.
    ///
    /// # Panics
    ///
    /// If there are fewer values than names.
    pub fn evaluate(&self, values: &[f64]) -> Result<Value, OperandError> {
        let scope = Scope {
            values,
            quirks: self.quirks,
        };
        scope.evaluate(&self.root)
    }
}

#[cfg(test)]
mod tests;
