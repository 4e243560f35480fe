//! Parses calls.
//!
//! ```text
//!   call     = NAME "(" argument { "," argument } ")"
//!   argument = call | query | NAME
//!   query = NAME ":" [ NAME ":" [ NAME ":" ] ] NAME [ "{" NAME "=" NAME { "," NAME "=" NAME } "}" ]
//!   NAME     = "*" | { letter | digit | one of - _ # / $ @ | . ' [ ] }
//! ```
//!
//! Text after the call is ignored, as in OpenTSDB.

use super::super::function::NamedFunction;
use super::{Argument, Call, CallSyntaxError};

/// Calls within each other.
pub(super) const MAX_DEPTH: usize = 64;

/// Bytes of an expression.
pub(super) const MAX_LENGTH: usize = 65_536;

/// Parses a call. Appends its sub-queries to `queries`, behind the sub-queries of earlier calls of the request.
///
/// # Errors
///
/// [`CallSyntaxError`].
pub fn parse(text: &str, queries: &mut Vec<String>) -> Result<Call, CallSyntaxError> {
    if text.len() > MAX_LENGTH {
        return Err(CallSyntaxError::Length { length: text.len() });
    }
    let mut parser = Parser {
        text,
        words: words(text),
        next: 0,
        depth: 0,
        queries,
    };
    parser.call()
}

/// Splits a text into names and signs, and as the last one the rest that can be neither.
fn words(text: &str) -> Vec<&str> {
    let mut words = Vec::new();
    let mut rest = text;
    loop {
        rest = rest.trim_start_matches([' ', '\t', '\n', '\r']);
        let Some(first) = rest.chars().next() else {
            return words;
        };
        let length = if is_name(first) {
            rest.find(|c: char| !is_name(c)).unwrap_or(rest.len())
        } else {
            first.len_utf8()
        };
        let (word, behind) = rest.split_at(length);
        words.push(word);
        if !is_name(first) && !"*(),:{}=".contains(first) {
            return words;
        }
        rest = behind;
    }
}

const fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric()
        || matches!(
            c,
            '-' | '_' | '#' | '/' | '$' | '@' | '|' | '.' | '\'' | '[' | ']'
        )
}

struct Parser<'t> {
    text: &'t str,
    words: Vec<&'t str>,
    next: usize,
    depth: usize,
    queries: &'t mut Vec<String>,
}

impl<'t> Parser<'t> {
    fn call(&mut self) -> Result<Call, CallSyntaxError> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(CallSyntaxError::Depth);
        }
        let name = self.name()?;
        let function = NamedFunction::find(name).ok_or_else(|| CallSyntaxError::UnknownFunction {
            name: name.to_owned(),
        })?;
        self.expect("(")?;
        let mut arguments = vec![self.argument()?];
        while self.take(",") {
            arguments.push(self.argument()?);
        }
        self.expect(")")?;
        self.depth -= 1;
        Ok(Call { function, arguments })
    }

    fn argument(&mut self) -> Result<Argument, CallSyntaxError> {
        match self.words.get(self.next + 1) {
            Some(&"(") => self.call().map(Argument::Call),
            Some(&":") => {
                let query = self.query()?;
                self.queries.push(query.clone());
                Ok(Argument::Query(self.queries.len() - 1, query))
            }
            _ => Ok(Argument::Text(self.name()?.to_owned())),
        }
    }

    /// A sub-query, without the blanks in it.
    fn query(&mut self) -> Result<String, CallSyntaxError> {
        let mut query = self.name()?.to_owned();
        for _ in 0..3 {
            if !self.take(":") {
                break;
            }
            query.push(':');
            query.push_str(self.name()?);
        }
        if self.take("{") {
            let mut separator = '{';
            loop {
                query.push(separator);
                query.push_str(self.name()?);
                self.expect("=")?;
                query.push('=');
                query.push_str(self.name()?);
                separator = ',';
                if !self.take(",") {
                    break;
                }
            }
            self.expect("}")?;
            query.push('}');
        }
        Ok(query)
    }

    fn name(&mut self) -> Result<&'t str, CallSyntaxError> {
        let word = self.words.get(self.next).copied();
        let name = word.filter(|word| *word == "*" || word.starts_with(is_name));
        self.next += 1;
        name.ok_or_else(|| self.failed())
    }

    fn take(&mut self, sign: &str) -> bool {
        let is = self.words.get(self.next).is_some_and(|word| *word == sign);
        self.next += usize::from(is);
        is
    }

    fn expect(&mut self, sign: &str) -> Result<(), CallSyntaxError> {
        if self.take(sign) {
            Ok(())
        } else {
            Err(self.failed())
        }
    }

    fn failed(&self) -> CallSyntaxError {
        CallSyntaxError::Syntax {
            text: self.text.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn queries_are_collected_without_blanks() {
        let mut queries = vec!["sum:of.another".to_owned()];
        let call = parse(
            "scale( sum( avg:1m-max:rate: a { h = * , d=x|y } ,max:b), 2)",
            &mut queries,
        )
        .unwrap();
        assert_eq!(queries[1..], ["avg:1m-max:rate:a{h=*,d=x|y}", "max:b"]);
        let Argument::Call(inner) = &call.arguments[0] else {
            panic!("{call:?}")
        };
        assert_eq!(inner.arguments[1], Argument::Query(2, "max:b".to_owned()));
        assert_eq!(call.arguments[1], Argument::Text("2".to_owned()));
    }

    #[test]
    fn rejects_texts_that_are_not_calls() {
        for (text, message) in [
            ("scale(sum:a", "Failed to parse scale(sum:a"),
            ("sum:a", "Failed to parse sum:a"),
            ("sum(a%)", "Failed to parse sum(a%)"),
            ("sum()", "Failed to parse sum()"),
            ("(", "Failed to parse ("),
            ("sqrt(sum:a)", "Function sqrt has not been implemented"),
        ] {
            assert_eq!(parse(text, &mut Vec::new()).unwrap_err().to_string(), message);
        }
        let long = "a".repeat(MAX_LENGTH + 1);
        let length = long.len();
        assert_eq!(
            parse(&long, &mut Vec::new()),
            Err(CallSyntaxError::Length { length })
        );
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_or_rejected(text in "\\PC{0,200}") {
            let _ = parse(&text, &mut Vec::new());
        }

        #[test]
        fn any_tokens_are_parsed_or_rejected(words in prop::collection::vec(
            prop::sample::select(vec!["scale(", "sum", "(", ")", ",", ":", "{", "}", "=", "*", "a", "'1m'", " "]), 0..60))
        {
            let _ = parse(&words.concat(), &mut Vec::new());
        }
    }
}
