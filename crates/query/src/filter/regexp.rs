//! Regular expressions in filters: Java's, as far as they can be matched in linear time.
//!
//! OpenTSDB uses Java's backtracking matcher, which does not terminate in practice for an expression such as `(a*)*b`
//! and a long value. This matcher follows all alternatives at once, so its time is bounded by the length of the
//! expression times that of the value. Syntax that cannot be matched this way is rejected by name: look-ahead, look-behind, back references, possessive quantifiers, atomic groups. The length of an
//! expression, its depth and the size of what is made of it have limits.
//!
//! As in OpenTSDB an expression matches a value that *contains* a match; `^` and `$` hold the ends.
//! Names are ISO-8859-1, a byte for a character, and Java's classes (`\d`, `\w`, `\b`) and its ignoring
//! of case know ASCII only. So expression and value are compared as bytes of ISO-8859-1.
//!
//! Source: OpenTSDB 2.4, `TagVRegexFilter`; `java.util.regex.Pattern` for the syntax.

use std::iter::Peekable;
use std::str::Chars;

use regex::bytes::{Regex, RegexBuilder};
use regex_syntax::ParserBuilder;

use super::error::FilterError;
use super::pattern::{Pattern, Predicate};
use crate::quirks::Quirks;

/// The longest expression, in characters.
const MAX_CHARS: usize = 1000;

/// How deep groups and classes may be nested.
const MAX_DEPTH: u32 = 32;

/// The largest program that is made of an expression, in bytes: `[a-z]{1,200}` has about 10 KiB.
const MAX_PROGRAM_BYTES: usize = 128 * 1024;

/// Expressions that match everything, as OpenTSDB knows them.
const ANY: [&str; 4] = [".*", "^.*", ".*$", "^.*$"];

/// A regular expression whose syntax was checked.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Regexp {
    text: String,
    translated: String,
}

impl Regexp {
    /// Checks an expression.
    ///
    /// # Errors
    ///
    /// Why it is none, or none that can be matched here, in words that follow the expression.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let chars = text.chars().count();
        if chars > MAX_CHARS {
            return Err(format!("has {chars} characters, at most {MAX_CHARS} are allowed"));
        }
        let translated = translate(text)?;
        let mut parser = ParserBuilder::new()
            .nest_limit(MAX_DEPTH)
            .unicode(false)
            .utf8(false)
            .build();
        match parser.parse(&translated) {
            Ok(_) => Ok(Self {
                text: text.to_owned(),
                translated,
            }),
            Err(regex_syntax::Error::Parse(error)) => Err(error.kind().to_string()),
            Err(regex_syntax::Error::Translate(error)) => Err(error.kind().to_string()),
            Err(error) => Err(error.to_string()),
        }
    }

    /// The program that finds the expression in values.
    ///
    /// # Errors
    ///
    /// If it would be too large.
    pub(super) fn compile(&self) -> Result<CompiledRegexp, String> {
        let mut builder = RegexBuilder::new(&self.translated);
        builder
            .unicode(false)
            .nest_limit(MAX_DEPTH)
            .size_limit(MAX_PROGRAM_BYTES)
            .dfa_size_limit(MAX_PROGRAM_BYTES);
        let program = builder.build().map_err(|_| {
            format!("is a program of more than {MAX_PROGRAM_BYTES} bytes, ask for fewer repetitions")
        })?;
        Ok(CompiledRegexp(program))
    }
}

/// A regular expression that can be searched for.
#[derive(Clone, Debug)]
pub(super) struct CompiledRegexp(Regex);

impl CompiledRegexp {
    /// Whether a value contains a match.
    pub(super) fn is_in(&self, value: &str) -> bool {
        // A stored name has no other characters.
        let bytes: Vec<u8> = value.chars().map(|c| u8::try_from(c).unwrap_or(b'?')).collect();
        self.0.is_match(&bytes)
    }
}

impl Pattern for Regexp {
    fn text(&self) -> &str {
        &self.text
    }

    fn matches_all(&self) -> bool {
        ANY.contains(&self.text.as_str())
    }

    fn is_regexp(&self) -> bool {
        true
    }

    fn predicate(&self, _: Quirks) -> Result<Predicate, FilterError> {
        let compiled = self.compile().map_err(|reason| FilterError::Regexp {
            text: self.text.clone(),
            reason,
        })?;
        Ok(Box::new(move |value| compiled.is_in(value)))
    }
}

/// From Java's syntax to that of the library, where they differ: bytes for the characters beyond
/// ASCII, and no group is remembered. What the library would take in another sense is refused.
fn translate(text: &str) -> Result<String, String> {
    let mut out = String::with_capacity(text.len() + 8);
    let mut chars = text.chars().peekable();
    // How many classes are open, and whether the next character is the first of one.
    let (mut classes, mut class_begins) = (0_u32, false);
    let mut behind_quantifier = false;
    while let Some(c) = chars.next() {
        let first_of_class = std::mem::take(&mut class_begins);
        let quantified = std::mem::take(&mut behind_quantifier);
        match c {
            '\\' => match chars.next() {
                None => return Err("ends with a backslash".to_owned()),
                Some('1'..='9' | 'k') => {
                    return Err("has a back reference, which is not supported".to_owned());
                }
                Some(escaped @ ('<' | '>')) => out.push(escaped),
                Some('Q') => quote(&mut chars, &mut out)?,
                Some(escaped @ ('p' | 'P')) => out.push_str(&property(&mut chars, escaped == 'P')?),
                Some(escaped) if escaped.is_ascii() => out.extend(['\\', escaped]),
                Some(escaped) => out.push_str(&byte_of(escaped)?),
            },
            '[' => {
                classes += 1;
                out.push('[');
                if chars.next_if_eq(&'^').is_some() {
                    out.push('^');
                } else if chars.next_if_eq(&':').is_some() {
                    // A class with a colon in it, and not the name of a class.
                    out.push_str("\\:");
                    continue;
                }
                class_begins = true;
            }
            ']' if classes > 0 && !first_of_class => {
                classes -= 1;
                out.push(']');
            }
            _ if classes > 0 && c.is_ascii() => out.push(c),
            '(' => {
                out.push('(');
                if chars.next_if_eq(&'?').is_some() {
                    out.push('?');
                    check_group(chars.clone())?;
                } else {
                    out.push_str("?:");
                }
            }
            '+' if quantified => return Err("has a possessive quantifier, which is not supported".to_owned()),
            // After a quantifier, `?` makes it reluctant; no other quantifier may follow.
            '?' if quantified => out.push('?'),
            '*' | '+' | '?' | '}' => {
                behind_quantifier = true;
                out.push(c);
            }
            _ if c.is_ascii() => out.push(c),
            _ => out.push_str(&byte_of(c)?),
        }
    }
    Ok(out)
}

/// What follows `\Q`, as far as `\E` or to the end: characters that stand for themselves.
fn quote(chars: &mut Peekable<Chars<'_>>, out: &mut String) -> Result<(), String> {
    while let Some(c) = chars.next() {
        if c == '\\' && chars.next_if_eq(&'E').is_some() {
            return Ok(());
        }
        match c {
            _ if c.is_ascii_alphanumeric() => out.push(c),
            _ if c.is_ascii() => out.push_str(&format!("\\x{:02X}", u32::from(c))),
            _ => out.push_str(&byte_of(c)?),
        }
    }
    Ok(())
}

/// What follows `\p` or `\P`: a class by its name, as the characters of ISO-8859-1 that it has.
fn property(chars: &mut Peekable<Chars<'_>>, is_negated: bool) -> Result<String, String> {
    let name: String = match chars.next() {
        Some('{') => chars.by_ref().take_while(|c| *c != '}').collect(),
        Some(letter) => letter.to_string(),
        None => String::new(),
    };
    let class = match name.strip_prefix("Is").unwrap_or(&name) {
        "Lower" => "a-z",
        "Upper" => "A-Z",
        "ASCII" => r"\x00-\x7F",
        "Alpha" => "a-zA-Z",
        "Digit" | "Nd" => "0-9",
        "Alnum" => "a-zA-Z0-9",
        "Punct" => r"!-/:-@\[-`{-~",
        "Graph" => "!-~",
        "Print" => " -~",
        "Blank" => r" \t",
        "Cntrl" => r"\x00-\x1F\x7F",
        "XDigit" => "0-9a-fA-F",
        "Space" => r" \t\n\x0B\f\r",
        "L" | "Alphabetic" => r"a-zA-Z\xAA\xB5\xBA\xC0-\xD6\xD8-\xF6\xF8-\xFF",
        "Lu" | "Uppercase" => r"A-Z\xC0-\xD6\xD8-\xDE",
        "Ll" => r"a-z\xB5\xDF-\xF6\xF8-\xFF",
        "N" => r"0-9\xB2\xB3\xB9\xBC-\xBE",
        _ => return Err(format!("has the class `{name}`, which is not supported")),
    };
    Ok(format!("[{}{class}]", if is_negated { "^" } else { "" }))
}

/// What follows `(?`: a group, or flags that mean the same in Java and here.
fn check_group(rest: impl Iterator<Item = char>) -> Result<(), String> {
    let mut rest = rest.peekable();
    match (rest.next(), rest.peek()) {
        (Some('='), _) | (Some('!'), _) => Err("has a look-ahead, which is not supported".to_owned()),
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

/// A character beyond ASCII, as its byte.
fn byte_of(c: char) -> Result<String, String> {
    u8::try_from(c)
        .map(|byte| format!("\\x{byte:02X}"))
        .map_err(|_| format!("has the character `{c}`, which no name can have: they are ISO-8859-1"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finds(text: &str, value: &str) -> bool {
        let regexp = Regexp::parse(text).unwrap_or_else(|reason| panic!("{text} {reason}"));
        regexp.compile().unwrap().is_in(value)
    }

    #[test]
    fn a_value_that_contains_a_match_matches() {
        for (text, value, expected) in [
            ("b0", "web01", true),
            ("^b0", "web01", false),
            ("^web0[13]$", "web03", true),
            ("^web0[13]$", "web02", false),
            ("", "web01", true),
            ("(a|b)+?c", "xabc", true),
            ("(?i)WEB", "web01", true),
            ("(?<n>w)e", "web01", true),
            ("^.$", "é", true),
            ("^[à-ï]$", "é", true),
            (r"^\w$", "é", false),
            (r"a\<b", "a<b", true),
            ("[]a]", "]", true),
            ("[a-z&&[^b]]1", "b1", false),
            ("x{2}", "axxb", true),
            (r"\Qdb.b\E$", "db.b", true),
            (r"\Qdb.b", "dbxb", false),
            (r"[\Q]-\E]", "a-b", true),
            (r"^\p{Lu}", "WEB", true),
            (r"^\p{Lu}", "web", false),
            (r"^[\P{Lower}x]+$", "x0A", true),
            (r"^\pL+$", "aé", true),
            ("[[:alpha:]]", "b", false),
            ("[[:alpha:]]", "h", true),
        ] {
            assert_eq!(finds(text, value), expected, "{text} {value}");
        }
    }

    #[test]
    fn what_takes_more_than_linear_time_is_refused_by_name() {
        for (text, part) in [
            ("a(?=b)", "look-ahead"),
            ("a(?!b)", "look-ahead"),
            ("(?<=a)b", "look-behind"),
            ("(?<!a)b", "look-behind"),
            (r"(a)\1", "back reference"),
            (r"(?<n>a)\k<n>", "back reference"),
            ("a*+a", "possessive"),
            ("a{1,2}+", "possessive"),
            ("(?>a*)a", "atomic"),
            ("(?u)a", "flag `u`"),
            ("日", "ISO-8859-1"),
            ("a\\", "backslash"),
            ("(a", "unclosed"),
            ("*a", "repetition"),
            (r"\p{Greek}", "class `Greek`"),
        ] {
            let reason = Regexp::parse(text).unwrap_err();
            assert!(reason.contains(part), "{text} {reason}");
        }
    }

    #[test]
    fn size_and_depth_have_limits() {
        assert!(
            Regexp::parse(&"a".repeat(1001))
                .unwrap_err()
                .contains("1001 characters")
        );
        assert!(Regexp::parse(&"(".repeat(500)).is_err());
        let nested = format!("{}a{}", "(".repeat(100), ")".repeat(100));
        assert!(Regexp::parse(&nested).is_err());
        let large = Regexp::parse("((a{100}){100}){100}").unwrap();
        assert!(large.compile().unwrap_err().contains("program of more than"));
        assert!(finds("[a-z]{1,200}", "web"));
    }

    #[test]
    fn expressions_that_explode_elsewhere_are_fast() {
        assert!(!finds("^(a*)*b$", &"a".repeat(5000)));
        assert!(!finds("^(a|aa)+$", &format!("{}b", "a".repeat(5000))));
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_an_expression_or_none(text in "[a-c()\\[\\]{}?*+^$|\\\\.&<>é0-9-]{0,24}", value in "[a-cé]{0,8}") {
            if let Ok(regexp) = Regexp::parse(&text) {
                let compiled = regexp.compile();
                proptest::prop_assert!(compiled.is_ok() || text.contains('{'), "{text}");
                if let Ok(compiled) = compiled {
                    compiled.is_in(&value);
                }
            }
        }
    }
}
