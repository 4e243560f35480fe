//! From words to a tree.

use super::error::{ArithmeticError, MAX_DEPTH, MAX_LENGTH};
use super::node::Node;
use super::token::{Kind, Token, tokens};
use super::value::{Operator, Value};
use crate::Quirks;

/// Operators from left to right, from loose to tight; `true`: at most one of a level.
const LEVELS: [(&[(&str, Operator)], bool); 7] = [
    (&[("|", Operator::BitOr)], false),
    (&[("^", Operator::BitXor)], false),
    (&[("&", Operator::BitAnd)], false),
    (&[("==", Operator::Equal), ("!=", Operator::NotEqual)], true),
    (
        &[
            ("<", Operator::Less),
            ("<=", Operator::LessOrEqual),
            (">", Operator::Greater),
            (">=", Operator::GreaterOrEqual),
        ],
        true,
    ),
    (&[("+", Operator::Add), ("-", Operator::Subtract)], false),
    (
        &[
            ("*", Operator::Multiply),
            ("/", Operator::Divide),
            ("%", Operator::Remainder),
        ],
        false,
    ),
];

/// The tree of a text, and the names in it.
pub(super) fn parse(text: &str, quirks: Quirks) -> Result<(Node, Vec<String>), ArithmeticError> {
    if text.len() > MAX_LENGTH {
        return Err(ArithmeticError::Length { length: text.len() });
    }
    let mut parser = Parser {
        text,
        tokens: tokens(text, quirks.fractions_of_four_bytes)?,
        next: 0,
        depth: 0,
        hides_names: quirks.double_parentheses_hide_names,
        hidden: 0,
        names: Vec::new(),
        seen: Vec::new(),
    };
    let mut root = parser.expression()?;
    parser.take(";");
    if parser.kind() != Kind::End {
        return Err(parser.expected("an operator or the end"));
    }
    let (names, seen) = (parser.names, parser.seen);
    let known: Vec<Option<usize>> = seen
        .iter()
        .scan(0, |next, seen| {
            Some(seen.then(|| {
                *next += 1;
                *next - 1
            }))
        })
        .collect();
    resolve(&mut root, &known);
    let names = names
        .into_iter()
        .zip(seen)
        .filter_map(|(name, seen)| seen.then_some(name));
    Ok((root, names.collect()))
}

/// Names without an operand have no value.
fn resolve(node: &mut Node, known: &[Option<usize>]) {
    match node {
        Node::Value(_) => {}
        Node::Name(index) => match known[*index] {
            Some(place) => *index = place,
            None => *node = Node::Value(Value::Null),
        },
        Node::Negate(inner) | Node::Not(inner) | Node::Complement(inner) => resolve(inner, known),
        Node::Chain(first, rest) => {
            resolve(first, known);
            rest.iter_mut().for_each(|(_, node)| resolve(node, known));
        }
        Node::All(nodes) | Node::Any(nodes) => nodes.iter_mut().for_each(|node| resolve(node, known)),
        Node::Condition {
            condition,
            then,
            otherwise,
        } => {
            resolve(condition, known);
            if let Some(then) = then {
                resolve(then, known);
            }
            resolve(otherwise, known);
        }
    }
}

struct Parser<'t> {
    text: &'t str,
    tokens: Vec<Token<'t>>,
    next: usize,
    depth: usize,
    hides_names: bool,
    /// Doubled parentheses around the next word.
    hidden: usize,
    names: Vec<String>,
    /// For each name: whether it stands somewhere outside of doubled parentheses.
    seen: Vec<bool>,
}

impl<'t> Parser<'t> {
    fn expression(&mut self) -> Result<Node, ArithmeticError> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(ArithmeticError::Depth);
        }
        let condition = self.either()?;
        let node = if self.take("?") {
            let then = Some(Box::new(self.expression()?));
            if !self.take(":") {
                return Err(self.expected("`:`"));
            }
            Node::Condition {
                condition: Box::new(condition),
                then,
                otherwise: Box::new(self.expression()?),
            }
        } else if self.take("?:") {
            Node::Condition {
                condition: Box::new(condition),
                then: None,
                otherwise: Box::new(self.expression()?),
            }
        } else {
            condition
        };
        self.depth -= 1;
        Ok(node)
    }

    fn either(&mut self) -> Result<Node, ArithmeticError> {
        let first = self.both()?;
        let mut nodes = vec![first];
        while self.take("||") {
            nodes.push(self.both()?);
        }
        Ok(single_or(nodes, Node::Any))
    }

    fn both(&mut self) -> Result<Node, ArithmeticError> {
        let first = self.level(0)?;
        let mut nodes = vec![first];
        while self.take("&&") {
            nodes.push(self.level(0)?);
        }
        Ok(single_or(nodes, Node::All))
    }

    fn level(&mut self, level: usize) -> Result<Node, ArithmeticError> {
        let Some((operators, once)) = LEVELS.get(level) else {
            return self.unary();
        };
        let first = self.level(level + 1)?;
        let mut rest = Vec::new();
        while let Kind::Sign(sign) = self.kind()
            && let Some((_, operator)) = operators.iter().find(|(name, _)| *name == sign)
            && (!once || rest.is_empty())
        {
            self.next += 1;
            rest.push((*operator, self.level(level + 1)?));
        }
        Ok(if rest.is_empty() {
            first
        } else {
            Node::Chain(Box::new(first), rest)
        })
    }

    fn unary(&mut self) -> Result<Node, ArithmeticError> {
        let of: fn(Box<Node>) -> Node = match self.kind() {
            Kind::Sign("-") => Node::Negate,
            Kind::Sign("!") => Node::Not,
            Kind::Sign("~") => Node::Complement,
            _ => return self.primary(),
        };
        self.next += 1;
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(ArithmeticError::Depth);
        }
        let inner = self.unary()?;
        self.depth -= 1;
        Ok(of(Box::new(inner)))
    }

    fn primary(&mut self) -> Result<Node, ArithmeticError> {
        match self.kind() {
            Kind::Value(value) => {
                self.next += 1;
                Ok(Node::Value(value))
            }
            Kind::Name(name) => {
                let name = name.to_owned();
                self.next += 1;
                let place = self.names.iter().position(|known| *known == name);
                let place = place.unwrap_or_else(|| {
                    self.names.push(name);
                    self.seen.push(false);
                    self.names.len() - 1
                });
                self.seen[place] |= self.hidden == 0;
                Ok(Node::Name(place))
            }
            Kind::Sign("(") => self.parentheses(),
            Kind::Sign(_) | Kind::End => Err(self.expected("a number, a name or `(`")),
        }
    }

    fn parentheses(&mut self) -> Result<Node, ArithmeticError> {
        let doubled = self.hides_names && self.is_doubled();
        self.next += 1;
        self.hidden += usize::from(doubled);
        let inner = self.expression()?;
        self.hidden -= usize::from(doubled);
        if self.take(")") {
            Ok(inner)
        } else {
            Err(self.expected("`)`"))
        }
    }

    /// Whether all that is in the parentheses that open here is again in parentheses.
    fn is_doubled(&self) -> bool {
        let sign = |index: usize| self.tokens.get(index).map(|token| token.kind);
        if sign(self.next + 1) != Some(Kind::Sign("(")) {
            return false;
        }
        let mut open = 0_usize;
        for index in self.next + 1..self.tokens.len() {
            match sign(index) {
                Some(Kind::Sign("(")) => open += 1,
                Some(Kind::Sign(")")) => open -= 1,
                _ => {}
            }
            if open == 0 {
                return sign(index + 1) == Some(Kind::Sign(")"));
            }
        }
        false
    }

    fn kind(&self) -> Kind<'t> {
        self.tokens.get(self.next).map_or(Kind::End, |token| token.kind)
    }

    fn take(&mut self, sign: &str) -> bool {
        let is = matches!(self.kind(), Kind::Sign(next) if next == sign);
        self.next += usize::from(is);
        is
    }

    fn expected(&self, expected: &'static str) -> ArithmeticError {
        let at = self
            .tokens
            .get(self.next)
            .map_or(self.text.len(), |token| token.at);
        ArithmeticError::at(self.text, at, expected)
    }
}

fn single_or(mut nodes: Vec<Node>, many: fn(Vec<Node>) -> Node) -> Node {
    match nodes.pop() {
        Some(only) if nodes.is_empty() => only,
        Some(last) => {
            nodes.push(last);
            many(nodes)
        }
        None => many(nodes),
    }
}
