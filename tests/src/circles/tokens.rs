//! The tokens of a source file.

/// A word, a text, a number, `::` or another character.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Token {
    /// As it is written; of a text the characters between its quotes, behind `"`.
    pub(super) text: String,
    /// Counted from 1.
    pub(super) line: usize,
}

impl Token {
    /// Whether it is a name or a keyword.
    pub(super) fn is_word(&self) -> bool {
        self.text
            .starts_with(|first: char| first.is_alphabetic() || first == '_')
    }
}

/// Splits a file into tokens, without comments, characters and lifetimes.
pub(super) fn tokens(text: &str) -> Vec<Token> {
    let mut lexer = Lexer {
        rest: text,
        line: 1,
        tokens: Vec::new(),
    };
    while let Some(first) = lexer.rest.chars().next() {
        lexer.next(first);
    }
    lexer.tokens
}

struct Lexer<'a> {
    rest: &'a str,
    line: usize,
    tokens: Vec<Token>,
}

impl<'a> Lexer<'a> {
    /// Takes bytes off the rest.
    fn take(&mut self, bytes: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at(bytes.min(self.rest.len()));
        self.line += taken.matches('\n').count();
        self.rest = rest;
        taken
    }

    fn push(&mut self, text: impl Into<String>, line: usize) {
        let text = text.into();
        self.tokens.push(Token { text, line });
    }

    fn next(&mut self, first: char) {
        let line = self.line;
        if first.is_alphabetic() || first == '_' {
            let word = self.take(word_length(self.rest));
            let is_raw = matches!(word, "r" | "br" | "cr");
            match self.rest.chars().next() {
                Some('"') if is_raw => self.raw_text(line),
                Some('"') if matches!(word, "b" | "c") => self.text(line),
                Some('#') if is_raw && self.rest.trim_start_matches('#').starts_with('"') => {
                    self.raw_text(line)
                }
                Some('\'') if word == "b" => self.character(),
                _ => self.push(word, line),
            }
        } else if first.is_ascii_digit() {
            let number = self.take(word_length(self.rest));
            self.push(number, line);
        } else if self.rest.starts_with("//") {
            self.take(self.rest.find('\n').unwrap_or(self.rest.len()));
        } else if self.rest.starts_with("/*") {
            self.block_comment();
        } else if first == '"' {
            self.text(line);
        } else if first == '\'' {
            self.character();
        } else if self.rest.starts_with("::") {
            let colons = self.take(2);
            self.push(colons, line);
        } else {
            let character = self.take(first.len_utf8());
            if !first.is_whitespace() {
                self.push(character, line);
            }
        }
    }

    fn block_comment(&mut self) {
        let mut depth = 0;
        while !self.rest.is_empty() {
            if self.rest.starts_with("/*") {
                depth += 1;
                self.take(2);
            } else if self.rest.starts_with("*/") {
                depth -= 1;
                self.take(2);
                if depth == 0 {
                    return;
                }
            } else {
                self.take(self.rest.chars().next().map_or(0, char::len_utf8));
            }
        }
    }

    /// A text that begins with its quote.
    fn text(&mut self, line: usize) {
        let mut is_escaped = false;
        let end = self.rest.char_indices().skip(1).find(|(_, character)| {
            let ends = *character == '"' && !is_escaped;
            is_escaped = *character == '\\' && !is_escaped;
            ends
        });
        let end = end.map_or(self.rest.len(), |(end, _)| end);
        let text = self.take(end);
        self.push(text, line);
        self.take(1);
    }

    /// A raw text that begins with its quote or its number signs.
    fn raw_text(&mut self, line: usize) {
        let signs = self.rest.len() - self.rest.trim_start_matches('#').len();
        self.take(signs);
        let closing = format!("\"{}", "#".repeat(signs));
        let body = self.rest.get(1..).unwrap_or_default();
        let end = body.find(&closing).map_or(self.rest.len(), |end| end + 1);
        let text = self.take(end);
        self.push(text, line);
        self.take(closing.len());
    }

    /// A character or a lifetime; neither is a token.
    fn character(&mut self) {
        let mut characters = self.rest.char_indices().skip(1);
        let length = match characters.next() {
            Some((_, '\\')) => {
                // The escaped character may be a quote.
                characters.next();
                let end = characters.find(|(_, character)| *character == '\'');
                end.map_or(self.rest.len(), |(end, _)| end + 1)
            }
            Some((at, character)) => match characters.next() {
                Some((end, '\'')) => end + 1,
                _ => at + word_length(self.rest.get(at..).unwrap_or_default()).max(character.len_utf8()),
            },
            None => 1,
        };
        self.take(length);
    }
}

/// Bytes of the word or number that a text begins with.
fn word_length(text: &str) -> usize {
    text.find(|character: char| !character.is_alphanumeric() && character != '_')
        .unwrap_or(text.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(text: &str) -> Vec<String> {
        tokens(text).into_iter().map(|token| token.text).collect()
    }

    #[test]
    fn drops_comments_characters_and_lifetimes() {
        assert_eq!(
            texts("a /* b /* c */ d */ e // f\n<'g>('h', '\\'', '\\u{1f}', b'i')"),
            ["a", "e", "<", ">", "(", ",", ",", ",", ")"]
        );
    }

    #[test]
    fn texts_are_one_token() {
        assert_eq!(
            texts(r##"x "a \" b" y r"c\" z r#"d " e"# b"f" 1.0_f64"##),
            [
                "x",
                r#""a \" b"#,
                "y",
                r#""c\"#,
                "z",
                r#""d " e"#,
                "\"f",
                "1",
                ".",
                "0_f64"
            ]
        );
    }

    #[test]
    fn tokens_have_their_lines() {
        let tokens = tokens("a::b\n\"x\ny\" c");
        let lines: Vec<_> = tokens
            .iter()
            .map(|token| (token.text.as_str(), token.line))
            .collect();
        assert_eq!(lines, [("a", 1), ("::", 1), ("b", 1), ("\"x\ny", 2), ("c", 3)]);
    }
}
