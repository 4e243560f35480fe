//! Parses Lucene's query syntax, as far as names and notes need it.
//!
//! ```text
//!   any      = all { ["OR"] all }                    without OR, too, any of them matches; `+` requires, `-` excludes
//!   all      = clause { "AND" clause }
//!   clause   = [ "NOT" | "!" | "-" | "+" ] ( "(" any ")" | [ FIELD ":" ] value )
//!   value    = WORD | WORD with * and ? | "PHRASE" | "(" any ")"
//! ```
//!
//! `\` takes the next character literally; `&&` and `||` are AND and OR. `*` and `*:*` are all documents,
//! `FIELD:*` those that have the field. Ranges, fuzzy words, boosts and regular expressions are rejected.
//!
//! Source of the syntax: Lucene's classic query parser.

use std::iter::Peekable;
use std::str::Chars;

use tantivy::query::Occur;

use super::super::document::field_name;
use super::wildcard::{Element, MAX_ELEMENTS};
use super::words;

/// The longest query, in bytes.
const MAX_BYTES: usize = 4096;

/// The most words of a query.
const MAX_CLAUSES: usize = 256;

/// The most levels of parentheses.
const MAX_DEPTH: usize = 32;

/// A parsed query. An empty field is any field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Expression {
    All,
    Word { field: String, word: String },
    Phrase { field: String, words: Vec<String> },
    Pattern { field: String, pattern: Vec<Element> },
    Clauses(Vec<(Occur, Expression)>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Open,
    Close,
    And,
    Or,
    Not,
    Plus,
    Minus,
    /// `FIELD:`
    Field(String),
    /// Characters, with whether they were escaped.
    Word(Vec<(char, bool)>),
    Phrase(String),
}

impl Expression {
    /// Parses a query. The error says what is wrong.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        if text.len() > MAX_BYTES {
            return Err(format!("query has {} bytes, limit is {MAX_BYTES}", text.len()));
        }
        let mut parser = Parser {
            tokens: tokens(text)?.into_iter().peekable(),
            clauses: 0,
        };
        let expression = parser.any("", 0)?;
        match parser.tokens.next() {
            None => Ok(expression),
            Some(_) => Err("query has a `)` without `(`".to_owned()),
        }
    }
}

struct Parser {
    tokens: Peekable<std::vec::IntoIter<Token>>,
    clauses: usize,
}

impl Parser {
    fn any(&mut self, field: &str, depth: usize) -> Result<Expression, String> {
        if depth > MAX_DEPTH {
            return Err(format!("query has more than {MAX_DEPTH} levels of parentheses"));
        }
        let mut clauses = vec![self.all(field, depth)?];
        loop {
            match self.tokens.peek() {
                None | Some(Token::Close) => return Ok(joined(clauses)),
                Some(Token::Or) => {
                    self.tokens.next();
                }
                Some(_) => {}
            }
            clauses.push(self.all(field, depth)?);
        }
    }

    fn all(&mut self, field: &str, depth: usize) -> Result<(Occur, Expression), String> {
        let first = self.clause(field, depth)?;
        if self.tokens.peek() != Some(&Token::And) {
            return Ok(first);
        }
        let mut clauses = vec![first];
        while self.tokens.next_if_eq(&Token::And).is_some() {
            clauses.push(self.clause(field, depth)?);
        }
        for (occur, _) in &mut clauses {
            if *occur == Occur::Should {
                *occur = Occur::Must;
            }
        }
        Ok((Occur::Should, Expression::Clauses(clauses)))
    }

    fn clause(&mut self, field: &str, depth: usize) -> Result<(Occur, Expression), String> {
        let occur = match self.tokens.peek() {
            Some(Token::Not | Token::Minus) => Occur::MustNot,
            Some(Token::Plus) => Occur::Must,
            _ => Occur::Should,
        };
        if occur != Occur::Should {
            self.tokens.next();
        }
        let field = match self.tokens.next_if(|token| matches!(token, Token::Field(_))) {
            Some(Token::Field(name)) => name,
            _ => field.to_owned(),
        };
        self.clauses += 1;
        if self.clauses > MAX_CLAUSES {
            return Err(format!("query has more than {MAX_CLAUSES} words"));
        }
        let expression = match self.tokens.next() {
            Some(Token::Open) => {
                let inner = self.any(&field, depth + 1)?;
                if self.tokens.next() != Some(Token::Close) {
                    return Err("query has a `(` without `)`".to_owned());
                }
                inner
            }
            Some(Token::Word(word)) => word_of(field, &word)?,
            Some(Token::Phrase(text)) => Expression::Phrase {
                field,
                words: words::pieces(&text.to_lowercase())
                    .into_iter()
                    .map(str::to_owned)
                    .collect(),
            },
            Some(_) | None => {
                return Err("query lacks a word after a field or an operator, or is empty".to_owned());
            }
        };
        Ok((occur, expression))
    }
}

/// One clause that need not be excluded is itself.
fn joined(mut clauses: Vec<(Occur, Expression)>) -> Expression {
    match clauses.pop() {
        Some((occur, only)) if clauses.is_empty() && occur != Occur::MustNot => only,
        last => {
            clauses.extend(last);
            Expression::Clauses(clauses)
        }
    }
}

/// The expression of a word, which may be a pattern.
fn word_of(field: String, word: &[(char, bool)]) -> Result<Expression, String> {
    let is_wildcard = |(char, is_escaped): &(char, bool)| !is_escaped && matches!(char, '*' | '?');
    let is_all = |word: &[(char, bool)]| matches!(word, [('*', false)]);
    if is_all(word) && matches!(field.as_str(), "" | "*") {
        return Ok(Expression::All);
    }
    if let Some((char, _)) = word
        .iter()
        .find(|(char, is_escaped)| !is_escaped && matches!(char, '~' | '^' | '[' | '{'))
    {
        return Err(format!(
            "query has `{char}`: ranges, fuzzy words and boosts are not supported"
        ));
    }
    if !word.iter().any(is_wildcard) {
        let text: String = word.iter().map(|(char, _)| *char).collect();
        let word = words::whole(&text);
        if word.is_empty() {
            return Err(format!("`{text}` has no word"));
        }
        return Ok(Expression::Word { field, word });
    }
    let mut pattern = Vec::new();
    for char in word {
        match char {
            ('*', false) => pattern.push(Element::Text),
            ('?', false) => pattern.push(Element::Character),
            (char, _) => {
                let lower: String = char.to_lowercase().collect();
                pattern.extend(lower.bytes().map(Element::Byte));
            }
        }
    }
    if pattern.len() > MAX_ELEMENTS {
        return Err(format!(
            "a pattern has {} bytes, limit is {MAX_ELEMENTS}",
            pattern.len()
        ));
    }
    Ok(Expression::Pattern { field, pattern })
}

fn tokens(text: &str) -> Result<Vec<Token>, String> {
    let mut tokens = Vec::new();
    let mut chars = text.chars().peekable();
    while let Some(char) = chars.peek() {
        match char {
            char if char.is_whitespace() => {
                chars.next();
            }
            '(' | ')' | '+' | '-' | '!' => {
                tokens.extend(chars.next().map(|char| match char {
                    '(' => Token::Open,
                    ')' => Token::Close,
                    '+' => Token::Plus,
                    '-' => Token::Minus,
                    _ => Token::Not,
                }));
            }
            '"' => {
                chars.next();
                tokens.push(Token::Phrase(quoted(&mut chars)?));
            }
            _ => tokens.push(word(&mut chars)?),
        }
    }
    Ok(tokens)
}

fn quoted(chars: &mut Peekable<Chars<'_>>) -> Result<String, String> {
    let mut text = String::new();
    loop {
        match chars.next() {
            Some('"') => return Ok(text),
            Some('\\') => text.extend(chars.next()),
            Some(char) => text.push(char),
            None => return Err("query has a `\"` without its end".to_owned()),
        }
    }
}

/// A word, an operator, or the name of a field, which ends with a colon.
fn word(chars: &mut Peekable<Chars<'_>>) -> Result<Token, String> {
    let mut word: Vec<(char, bool)> = Vec::new();
    while let Some(char) = chars.next_if(|char| !char.is_whitespace() && !matches!(char, '(' | ')' | '"')) {
        match char {
            ':' => {
                let name: String = word.iter().map(|(char, _)| *char).collect();
                return match field_name(&name).as_str() {
                    "" => Err("query has a `:` without a field before it".to_owned()),
                    name => Ok(Token::Field(name.to_owned())),
                };
            }
            '\\' => match chars.next() {
                Some(char) => word.push((char, true)),
                None => return Err("query ends with `\\`".to_owned()),
            },
            char => word.push((char, false)),
        }
    }
    let plain: Option<String> = word
        .iter()
        .map(|(char, is_escaped)| (!is_escaped).then_some(*char))
        .collect();
    Ok(match plain.as_deref() {
        Some("AND" | "&&") => Token::And,
        Some("OR" | "||") => Token::Or,
        Some("NOT") => Token::Not,
        _ => Token::Word(word),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A query in one form.
    fn parsed(text: &str) -> Result<String, String> {
        Expression::parse(text).map(|expression| shown(&expression))
    }

    fn shown(expression: &Expression) -> String {
        match expression {
            Expression::All => "*".to_owned(),
            Expression::Word { field, word } => format!("{field}:{word}"),
            Expression::Phrase { field, words } => format!("{field}:\"{}\"", words.join(" ")),
            Expression::Pattern { field, pattern } => {
                let char = |element: &Element| match element {
                    Element::Byte(byte) => *byte as char,
                    Element::Character => '?',
                    Element::Text => '*',
                };
                format!("{field}~{}", pattern.iter().map(char).collect::<String>())
            }
            Expression::Clauses(clauses) => {
                let clause = |(occur, clause): &(Occur, Expression)| {
                    let sign = match occur {
                        Occur::Should => "",
                        Occur::Must => "+",
                        Occur::MustNot => "-",
                    };
                    format!("{sign}{}", shown(clause))
                };
                let clauses: Vec<String> = clauses.iter().map(clause).collect();
                format!("({})", clauses.join(" "))
            }
        }
    }

    #[test]
    fn parses_what_users_of_elasticsearch_write() {
        for (text, expected) in [
            ("web01", ":web01"),
            (
                "metric.name:sys.cpu* AND host:web01",
                "(+metric.name~sys.cpu* +host:web01)",
            ),
            ("a b OR c", "(:a :b :c)"),
            ("a AND b OR c", "((+:a +:b) :c)"),
            ("a AND (b OR c)", "(+:a +(:b :c))"),
            ("+a -b c", "(+:a -:b :c)"),
            ("a AND NOT b", "(+:a -:b)"),
            ("a && !b || c", "((+:a -:b) :c)"),
            ("NOT a", "(-:a)"),
            ("display_name:\"Disk full\"", "displayname:\"disk full\""),
            ("host:(web01 OR web02)", "(host:web01 host:web02)"),
            ("custom.Owner:*", "custom.owner~*"),
            ("*", "*"),
            ("*:*", "*"),
            ("name:a\\*b", "name:a*b"),
            ("name:a\\:b", "name:a:b"),
            ("web-01/x", ":web-01/x"),
            ("W?B*", "~w?b*"),
        ] {
            assert_eq!(parsed(text).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn rejects_what_is_no_query() {
        for (text, error) in [
            ("", "lacks a word"),
            ("a AND", "lacks a word"),
            ("host:", "lacks a word"),
            ("(a", "`(` without `)`"),
            ("a)", "`)` without `(`"),
            ("\"a", "without its end"),
            (":a", "without a field"),
            ("a\\", "ends with"),
            ("created:[1 TO 2]", "ranges"),
            ("a~2", "fuzzy"),
            ("--", "lacks a word"),
            ("...", "has no word"),
        ] {
            let message = parsed(text).unwrap_err();
            assert!(message.contains(error), "{text}: {message}");
        }
        let many = "a ".repeat(MAX_CLAUSES + 1);
        assert!(parsed(&many).unwrap_err().contains("more than 256 words"));
        let deep = "(".repeat(MAX_DEPTH + 2);
        assert!(parsed(&deep).unwrap_err().contains("32 levels"));
        assert!(
            parsed(&"a".repeat(MAX_BYTES + 1))
                .unwrap_err()
                .contains("limit is 4096")
        );
        assert!(
            parsed(&format!("{}*", "a".repeat(MAX_ELEMENTS)))
                .unwrap_err()
                .contains("limit is 127")
        );
    }
}
