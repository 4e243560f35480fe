//! Tokens of an arithmetic expression.

use super::error::ArithmeticError;
use super::value::Value;

/// A word, and where it begins.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Token<'t> {
    pub(super) kind: Kind<'t>,
    /// In bytes from the start.
    pub(super) at: usize,
}

/// The kind of a token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Kind<'t> {
    Name(&'t str),
    Value(Value),
    /// An operator or a sign; words for operators are their signs.
    Sign(&'static str),
    End,
}

/// Signs; a longer sign comes before its prefixes.
const SIGNS: [&str; 26] = [
    "&&", "||", "==", "!=", "<=", ">=", "?:", "=~", "!~", "+", "-", "*", "/", "%", "<", ">", "!", "~", "&",
    "|", "^", "(", ")", "?", ":", ";",
];

const WORDS: [(&str, &str); 11] = [
    ("and", "&&"),
    ("or", "||"),
    ("not", "!"),
    ("eq", "=="),
    ("ne", "!="),
    ("lt", "<"),
    ("le", "<="),
    ("gt", ">"),
    ("ge", ">="),
    ("div", "/"),
    ("mod", "%"),
];

/// Words of JEXL that mean something else than numbers.
const RESERVED: [&str; 11] = [
    "if", "else", "for", "foreach", "while", "new", "var", "empty", "size", "return", "in",
];

/// Cuts a text into words. `narrow`: fractions are numbers of 4 bytes.
pub(super) fn tokens(text: &str, narrow: bool) -> Result<Vec<Token<'_>>, ArithmeticError> {
    let mut tokens = Vec::new();
    let mut at = 0;
    loop {
        at = skip_blanks(text, at)?;
        let rest = &text[at..];
        let Some(first) = rest.chars().next() else {
            tokens.push(Token { kind: Kind::End, at });
            return Ok(tokens);
        };
        let (kind, length) = if first.is_ascii_digit() {
            let (value, length) =
                number(rest, narrow).ok_or_else(|| ArithmeticError::at(text, at, "a number"))?;
            (Kind::Value(value), length)
        } else if is_name(first) {
            let length = rest
                .find(|c: char| !is_name(c) && !c.is_ascii_digit())
                .unwrap_or(rest.len());
            let word = &rest[..length];
            (
                word_kind(word).ok_or_else(|| ArithmeticError::at(text, at, "a number or a name"))?,
                length,
            )
        } else {
            let sign = SIGNS
                .iter()
                .find(|sign| rest.starts_with(**sign))
                .ok_or_else(|| ArithmeticError::at(text, at, "a number, a name or an operator"))?;
            (Kind::Sign(sign), sign.len())
        };
        tokens.push(Token { kind, at });
        at += length;
    }
}

const fn is_name(c: char) -> bool {
    c.is_ascii_alphabetic() || matches!(c, '_' | '$' | '@')
}

fn word_kind(word: &str) -> Option<Kind<'_>> {
    if let Some((_, sign)) = WORDS.iter().find(|(name, _)| *name == word) {
        return Some(Kind::Sign(sign));
    }
    match word {
        "true" => Some(Kind::Value(Value::Truth(true))),
        "false" => Some(Kind::Value(Value::Truth(false))),
        "null" => Some(Kind::Value(Value::Null)),
        word if RESERVED.contains(&word) => None,
        word => Some(Kind::Name(word)),
    }
}

/// Behind blanks and comments.
fn skip_blanks(text: &str, mut at: usize) -> Result<usize, ArithmeticError> {
    loop {
        let rest = &text[at..];
        let blanks = rest.len() - rest.trim_start_matches([' ', '\t', '\n', '\r', '\x0c']).len();
        let rest = &rest[blanks..];
        at += blanks;
        if rest.starts_with("##") || rest.starts_with("//") {
            at += rest.find(['\n', '\r']).unwrap_or(rest.len());
        } else if let Some(comment) = rest.strip_prefix("/*") {
            let end = comment
                .find("*/")
                .ok_or_else(|| ArithmeticError::at(text, at, "`*/` at the end of the comment"))?;
            at += end + 4;
        } else {
            return Ok(at);
        }
    }
}

/// A number at the start of a text, and its length. Nothing that could belong to it may follow.
fn number(text: &str, narrow: bool) -> Option<(Value, usize)> {
    let digits = |text: &str| text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let whole = digits(text);
    let (value, mut length) = if let Some(hex) = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        let length = hex.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(hex.len());
        (
            Value::Whole(i128::from_str_radix(hex.get(..length)?, 16).ok()?),
            length + 2,
        )
    } else if text[whole..].starts_with('.') {
        let mut length = whole + 1;
        let fraction = digits(&text[length..]);
        if fraction == 0 {
            return None;
        }
        length += fraction;
        if text[length..].starts_with(['e', 'E']) {
            let sign = usize::from(text[length + 1..].starts_with(['+', '-']));
            let exponent = digits(&text[length + 1 + sign..]);
            if exponent > 0 {
                length += 1 + sign + exponent;
            }
        }
        let suffix = text[length..].chars().next().unwrap_or(' ').to_ascii_lowercase();
        let double: f64 = text[..length].parse().ok()?;
        let value = match suffix {
            'd' | 'b' => Value::Double(double),
            _ if narrow => Value::Literal(four_bytes(&text[..length])?),
            _ => Value::Literal(double),
        };
        (value, length + usize::from(matches!(suffix, 'd' | 'b' | 'f')))
    } else if whole > 1 && text.starts_with('0') {
        (Value::Whole(i128::from_str_radix(&text[..whole], 8).ok()?), whole)
    } else {
        (Value::Whole(text[..whole].parse().ok()?), whole)
    };
    if matches!(value, Value::Whole(_)) {
        length += usize::from(text[length..].starts_with(['l', 'L', 'h', 'H']));
    }
    let ends = !text[length..].starts_with(|c: char| is_name(c) || c.is_ascii_digit() || c == '.');
    ends.then_some((value, length))
}

/// A number as JEXL reads it: through a float of 4 bytes and its shortest text.
fn four_bytes(text: &str) -> Option<f64> {
    let float: f32 = text.parse().ok()?;
    float.to_string().parse().ok()
}
