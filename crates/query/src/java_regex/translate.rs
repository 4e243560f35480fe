//! Translates Java's syntax to the crate `regex`, where they differ. Syntax that the crate would take in another sense
//! is rejected.

use std::fmt::Write as _;
use std::iter::Peekable;
use std::str::Chars;

use super::SyntaxError;

/// The characters of the values that an expression is matched with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Alphabet {
    /// ISO-8859-1, each character as its byte; the program runs on bytes without Unicode. Groups are not remembered.
    Latin1,
    /// Unicode, as UTF-8. Groups are remembered.
    Unicode,
}

/// An expression in the syntax of the crate `regex`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Translated {
    pub(crate) text: String,
    /// For each part of the source: where it begins in `text`, in bytes, and in the source, in characters. Ascending.
    parts: Vec<(usize, usize)>,
}

impl Translated {
    /// The character of the source that a byte of the translation comes from.
    pub(crate) fn source_position(&self, offset: usize) -> usize {
        let behind = self.parts.partition_point(|(begin, _)| *begin <= offset);
        let part = behind.checked_sub(1).and_then(|index| self.parts.get(index));
        part.map_or(0, |(_, position)| *position)
    }
}

/// Translates an expression.
///
/// # Errors
///
/// If it has syntax that is not supported.
pub(crate) fn translate(text: &str, alphabet: Alphabet) -> Result<Translated, SyntaxError> {
    let mut translator = Translator {
        chars: Source {
            chars: text.chars().peekable(),
            taken: 0,
        },
        alphabet,
        out: String::with_capacity(text.len() + 8),
        parts: Vec::new(),
    };
    let mut begin = 0;
    translator.run(&mut begin).map_err(|reason| SyntaxError {
        position: Some(begin),
        reason,
    })?;
    Ok(Translated {
        text: translator.out,
        parts: translator.parts,
    })
}

/// The characters of an expression, counted.
#[derive(Clone)]
struct Source<'a> {
    chars: Peekable<Chars<'a>>,
    taken: usize,
}

impl Source<'_> {
    fn next_if_eq(&mut self, expected: char) -> bool {
        let is_next = self.chars.next_if_eq(&expected).is_some();
        self.taken += usize::from(is_next);
        is_next
    }
}

impl Iterator for Source<'_> {
    type Item = char;

    fn next(&mut self) -> Option<char> {
        let next = self.chars.next();
        self.taken += usize::from(next.is_some());
        next
    }
}

struct Translator<'a> {
    chars: Source<'a>,
    alphabet: Alphabet,
    out: String,
    parts: Vec<(usize, usize)>,
}

impl Translator<'_> {
    /// Translates all parts. `begin` is the position of the current one.
    fn run(&mut self, begin: &mut usize) -> Result<(), String> {
        // How many classes are open, and whether the next character is the first of one.
        let (mut classes, mut class_begins) = (0_u32, false);
        let mut behind_quantifier = false;
        loop {
            *begin = self.chars.taken;
            self.parts.push((self.out.len(), *begin));
            let Some(c) = self.chars.next() else { return Ok(()) };
            let first_of_class = std::mem::take(&mut class_begins);
            let quantified = std::mem::take(&mut behind_quantifier);
            match c {
                '\\' => self.escape()?,
                '[' => {
                    classes += 1;
                    self.out.push('[');
                    if self.chars.next_if_eq('^') {
                        self.out.push('^');
                    } else if self.chars.next_if_eq(':') {
                        // A class with a colon in it, and not the name of a class.
                        self.out.push_str("\\:");
                        continue;
                    }
                    class_begins = true;
                }
                ']' if classes > 0 && !first_of_class => {
                    classes -= 1;
                    self.out.push(']');
                }
                _ if classes > 0 => self.literal(c)?,
                '(' => self.group()?,
                '+' if quantified => {
                    return Err("has a possessive quantifier, which is not supported".to_owned());
                }
                // After a quantifier, `?` makes it reluctant; no other quantifier may follow.
                '?' if quantified => self.out.push('?'),
                '*' | '+' | '?' | '}' => {
                    behind_quantifier = true;
                    self.out.push(c);
                }
                _ => self.literal(c)?,
            }
        }
    }

    /// Translates the characters after a backslash.
    fn escape(&mut self) -> Result<(), String> {
        let Some(escaped) = self.chars.next() else {
            return Err("ends with a backslash".to_owned());
        };
        match escaped {
            '1'..='9' | 'k' => return Err("has a back reference, which is not supported".to_owned()),
            '<' | '>' => self.out.push(escaped),
            'Q' => self.quote()?,
            'p' | 'P' => self.property(escaped == 'P')?,
            'd' | 'D' | 'w' | 'W' | 's' | 'S' if self.alphabet == Alphabet::Unicode => {
                let class = match escaped.to_ascii_lowercase() {
                    'd' => "0-9",
                    'w' => "a-zA-Z0-9_",
                    _ => r" \t\n\x0B\f\r",
                };
                self.class(class, escaped.is_ascii_uppercase());
            }
            _ if escaped.is_ascii() => self.out.extend(['\\', escaped]),
            _ => self.literal(escaped)?,
        }
        Ok(())
    }

    fn class(&mut self, members: &str, is_negated: bool) {
        let negation = if is_negated { "^" } else { "" };
        let _ = write!(self.out, "[{negation}{members}]");
    }

    /// Translates the text after `\Q`, as far as `\E` or to the end: characters that stand for themselves.
    fn quote(&mut self) -> Result<(), String> {
        while let Some(c) = self.chars.next() {
            if c == '\\' && self.chars.next_if_eq('E') {
                return Ok(());
            }
            match c {
                _ if c.is_ascii_alphanumeric() => self.out.push(c),
                _ if c.is_ascii() => {
                    let _ = write!(self.out, "\\x{:02X}", u32::from(c));
                }
                _ => self.literal(c)?,
            }
        }
        Ok(())
    }

    /// Translates the text after `\p` or `\P`: a class by its name. POSIX classes are ASCII.
    fn property(&mut self, is_negated: bool) -> Result<(), String> {
        let name: String = match self.chars.next() {
            Some('{') => self.chars.by_ref().take_while(|c| *c != '}').collect(),
            Some(letter) => letter.to_string(),
            None => String::new(),
        };
        let plain = name.strip_prefix("Is").unwrap_or(&name);
        let class = match plain {
            "Lower" => "a-z",
            "Upper" => "A-Z",
            "ASCII" => r"\x00-\x7F",
            "Alpha" => "a-zA-Z",
            "Digit" => "0-9",
            "Alnum" => "a-zA-Z0-9",
            "Punct" => r"!-/:-@\[-`{-~",
            "Graph" => "!-~",
            "Print" => " -~",
            "Blank" => r" \t",
            "Cntrl" => r"\x00-\x1F\x7F",
            "XDigit" => "0-9a-fA-F",
            "Space" => r" \t\n\x0B\f\r",
            _ => return self.unicode_property(&name, plain, is_negated),
        };
        self.class(class, is_negated);
        Ok(())
    }

    /// A class of Unicode: categories, and some properties.
    fn unicode_property(&mut self, name: &str, plain: &str, is_negated: bool) -> Result<(), String> {
        let unsupported = || format!("has the class `{name}`, which is not supported");
        if self.alphabet == Alphabet::Unicode {
            let is_known = regex_syntax::Parser::new()
                .parse(&format!(r"\p{{{plain}}}"))
                .is_ok();
            if plain.is_empty() || !is_known {
                return Err(unsupported());
            }
            self.class(&format!(r"\p{{{plain}}}"), is_negated);
            return Ok(());
        }
        // The characters of ISO-8859-1 that the class has.
        let class = match plain {
            "L" | "Alphabetic" => r"a-zA-Z\xAA\xB5\xBA\xC0-\xD6\xD8-\xF6\xF8-\xFF",
            "Lu" | "Uppercase" => r"A-Z\xC0-\xD6\xD8-\xDE",
            "Ll" => r"a-z\xB5\xDF-\xF6\xF8-\xFF",
            "N" => r"0-9\xB2\xB3\xB9\xBC-\xBE",
            "Nd" => "0-9",
            _ => return Err(unsupported()),
        };
        self.class(class, is_negated);
        Ok(())
    }

    /// Translates the text after `(`.
    fn group(&mut self) -> Result<(), String> {
        self.out.push('(');
        if self.chars.next_if_eq('?') {
            self.out.push('?');
            check_group(self.chars.clone())?;
        } else if self.alphabet == Alphabet::Latin1 {
            self.out.push_str("?:");
        }
        Ok(())
    }

    /// A character as it is.
    fn literal(&mut self, c: char) -> Result<(), String> {
        if c.is_ascii() || self.alphabet == Alphabet::Unicode {
            self.out.push(c);
            return Ok(());
        }
        let byte = u8::try_from(c)
            .map_err(|_| format!("has the character `{c}`, which no name can have: they are ISO-8859-1"))?;
        let _ = write!(self.out, "\\x{byte:02X}");
        Ok(())
    }
}

/// Checks the text after `(?`: a group, or flags that mean the same in Java and here.
fn check_group(rest: impl Iterator<Item = char>) -> Result<(), String> {
    let mut rest = rest.peekable();
    match (rest.next(), rest.peek()) {
        (Some('=' | '!'), _) => Err("has a look-ahead, which is not supported".to_owned()),
        (Some('<'), Some('=' | '!')) => Err("has a look-behind, which is not supported".to_owned()),
        (Some('>'), _) => Err("has an atomic group, which is not supported".to_owned()),
        (Some('<'), _) => Ok(()),
        (first, _) => {
            let flags = first.into_iter().chain(rest);
            let unknown = flags
                .take_while(|c| !matches!(c, ':' | ')'))
                .find(|c| !matches!(c, 'i' | 'm' | 's' | 'x' | '-'));
            unknown.map_or(Ok(()), |flag| {
                Err(format!("has the flag `{flag}`, which is not supported"))
            })
        }
    }
}
