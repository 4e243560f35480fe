//! Java's regular expressions, as far as they can be matched in linear time.
//!
//! OpenTSDB uses Java's backtracking matcher, which does not terminate in practice for an expression such as `(a*)*b`
//! and a long value. This matcher follows all alternatives at once, so its time is bounded by the product of the
//! lengths of the expression and the value. Syntax that cannot be matched this way is rejected by name: look-ahead,
//! look-behind, back references, possessive quantifiers, atomic groups. The length of an expression, its depth and the
//! size of its program have limits. A program keeps no memory for matching: [`JavaRegex::memory_bytes`] is all the
//! memory it takes.
//!
//! `translate` rewrites Java's syntax into the syntax of the crate `regex`, for one of two alphabets: names are
//! ISO-8859-1, a byte for a character; other texts are Unicode. Java's classes (`\d`, `\w`, `\s`, `\p{Lower}`) know
//! ASCII only. [`JavaRegex`] is an expression over Unicode with its groups, as `java.util.regex.Matcher` and
//! `String.split` use it.
//!
//! Differences from Java in rare expressions over Unicode: `(?i)` ignores the case of all letters, not only of
//! ASCII's, and `.` matches all line terminators but `\n`.
//!
//! Source: `java.util.regex.Pattern`, `java.lang.String.split`.

mod translate;

use regex_automata::{Input, meta, util::syntax};
use regex_syntax::ParserBuilder;

pub(crate) use translate::{Alphabet, Translated, translate};

/// The longest expression, in characters.
pub(crate) const MAX_CHARS: usize = 1000;

/// How deep groups and classes may be nested.
pub(crate) const MAX_DEPTH: u32 = 32;

/// The largest program of an expression over Unicode, in bytes: `\p{L}+` takes 16 KiB.
const MAX_PROGRAM_BYTES: usize = 128 << 10;

/// Error of a text that is no expression, or an expression that is not supported.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}{}", at(.position))]
pub struct SyntaxError {
    /// The first character of the offending part, counted from 0; `None`: the whole expression.
    pub position: Option<usize>,
    /// The reason, as a predicate of the expression: `has a look-ahead, which is not supported`.
    pub reason: String,
}

fn at(position: &Option<usize>) -> String {
    position.map_or_else(String::new, |position| format!(" (at index {position})"))
}

impl SyntaxError {
    fn whole(reason: impl Into<String>) -> Self {
        Self {
            position: None,
            reason: reason.into(),
        }
    }
}

/// An expression over Unicode text, with its groups.
#[derive(Clone, Debug)]
pub struct JavaRegex {
    text: String,
    program: meta::Regex,
}

impl JavaRegex {
    /// Compiles an expression.
    ///
    /// # Errors
    ///
    /// If the syntax is wrong or not supported, or a limit is exceeded.
    pub fn compile(text: &str) -> Result<Self, SyntaxError> {
        check_length(text)?;
        let translated = translate(text, Alphabet::Unicode)?;
        check_syntax(&translated, true)?;
        // Matchers that are built beside the program take a multiple of its size, and keep it.
        let config = meta::Config::new()
            .nfa_size_limit(Some(MAX_PROGRAM_BYTES))
            .hybrid(false)
            .dfa(false)
            .onepass(false);
        let program = meta::Regex::builder()
            .syntax(syntax::Config::new().nest_limit(MAX_DEPTH))
            .configure(config)
            .build(&translated.text)
            .map_err(|_| SyntaxError::whole(program_too_large(MAX_PROGRAM_BYTES)))?;
        Ok(Self {
            text: text.to_owned(),
            program,
        })
    }

    /// The expression in Java's syntax.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The number of groups, without the whole match (`Matcher.groupCount`).
    pub fn group_count(&self) -> usize {
        self.program.captures_len() - 1
    }

    /// The memory that the expression takes, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.text.len() + self.program.memory_usage()
    }

    /// The groups of the first match, the whole match first; `None` if there is none. A group that took no part in
    /// the match is `None`.
    pub fn find<'v>(&self, value: &'v str) -> Option<Vec<Option<&'v str>>> {
        let mut groups = self.program.create_captures();
        let mut cache = self.program.create_cache();
        let input = Input::new(value);
        self.program.search_captures_with(&mut cache, &input, &mut groups);
        let groups = groups.is_match().then_some(groups)?;
        Some(groups.iter().map(|group| value.get(group?.range())).collect())
    }

    /// The parts of a value between the matches, without empty ones at the end; `None` if there are more than `most`.
    ///
    /// A match of nothing at the beginning does not split. A value without a match is one part, even if it is empty;
    /// a value that consists of matches has no parts.
    pub fn split<'v>(&self, value: &'v str, most: usize) -> Option<Vec<&'v str>> {
        let (mut parts, mut begin, mut next) = (Vec::new(), 0, 0);
        let mut cache = self.program.create_cache();
        while next <= value.len()
            && let Some(matched) = self
                .program
                .search_with(&mut cache, &Input::new(value).range(next..))
        {
            // Java continues behind an empty match with the next character.
            let step = || value[matched.end()..].chars().next().map_or(1, char::len_utf8);
            next = matched.end() + if matched.is_empty() { step() } else { 0 };
            if matched.end() == 0 {
                continue;
            }
            parts.push(&value[begin..matched.start()]);
            begin = matched.end();
        }
        if begin == 0 {
            return Some(vec![value]);
        }
        parts.push(&value[begin..]);
        let kept = parts
            .iter()
            .rposition(|part| !part.is_empty())
            .map_or(0, |last| last + 1);
        parts.truncate(kept);
        (parts.len() <= most).then_some(parts)
    }
}

/// Checks the length of an expression.
pub(crate) fn check_length(text: &str) -> Result<(), SyntaxError> {
    let chars = text.chars().count();
    if chars > MAX_CHARS {
        let reason = format!("has {chars} characters, at most {MAX_CHARS} are allowed");
        return Err(SyntaxError::whole(reason));
    }
    Ok(())
}

/// Checks a translated expression.
pub(crate) fn check_syntax(translated: &Translated, unicode: bool) -> Result<(), SyntaxError> {
    let mut parser = ParserBuilder::new()
        .nest_limit(MAX_DEPTH)
        .unicode(unicode)
        .utf8(unicode)
        .build();
    let (reason, offset) = match parser.parse(&translated.text) {
        Ok(_) => return Ok(()),
        Err(regex_syntax::Error::Parse(error)) => (error.kind().to_string(), error.span().start.offset),
        Err(regex_syntax::Error::Translate(error)) => (error.kind().to_string(), error.span().start.offset),
        Err(error) => return Err(SyntaxError::whole(format!("has a syntax error: {error}"))),
    };
    Err(SyntaxError {
        position: Some(translated.source_position(offset)),
        reason: format!("has a syntax error: {reason}"),
    })
}

/// The reason why a program that exceeds a limit is rejected.
pub(crate) fn program_too_large(limit: usize) -> String {
    format!("is a program of more than {limit} bytes, ask for fewer repetitions")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn regex(text: &str) -> JavaRegex {
        JavaRegex::compile(text).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn splits_as_java_does() {
        for (separator, value, expected) in [
            (r"\.", "sys.cpu.user", vec!["sys", "cpu", "user"]),
            (r"\.", "a..b", vec!["a", "", "b"]),
            (r"\.", ".a.", vec!["", "a"]),
            (r"\.", "...", vec![]),
            (r"\.", "", vec![""]),
            (r"\.", "abc", vec!["abc"]),
            (".", "abc", vec![]),
            ("", "abc", vec!["a", "b", "c"]),
            ("b*", "abc", vec!["a", "", "c"]),
            ("x*", "axxb", vec!["a", "", "b"]),
            ("[_-]+", "a_-b-c", vec!["a", "b", "c"]),
            ("$", "ab", vec!["ab"]),
            ("^", "ab", vec!["ab"]),
            ("日", "a日b日", vec!["a", "b"]),
        ] {
            assert_eq!(
                regex(separator).split(value, 100).unwrap(),
                expected,
                "{separator} {value}"
            );
        }
    }

    #[test]
    fn splitting_is_bounded() {
        let dot = regex(r"\.");
        let (parts, dots) = ("a.".repeat(300), ".".repeat(10_000));
        assert!(dot.split(&parts, 299).is_none());
        assert_eq!(dot.split(&parts, 300).unwrap().len(), 300);
        assert!(dot.split(&dots, 10).unwrap().is_empty());
        assert!(dot.split(&format!("{dots}a"), 10).is_none());
        assert_eq!(regex("").split("é日", 2).unwrap(), ["é", "日"]);
    }

    #[test]
    fn finds_groups_by_number() {
        let regex = regex(r"^(?:web|(db))-([\d]+)(?<rest>\w*)");
        assert_eq!(regex.group_count(), 3);
        let groups = regex.find("web-01a").unwrap();
        assert_eq!(groups, [Some("web-01a"), None, Some("01"), Some("a")]);
        assert!(regex.find("x-01").is_none());
    }

    #[test]
    fn classes_are_javas() {
        for (text, value, expected) in [
            (r"^\w$", "é", false),
            (r"^\W$", "é", true),
            (r"^[\d\s]+$", "1 2", true),
            (r"^\d$", "٣", false),
            (r"^\p{Lower}$", "é", false),
            (r"^\p{L}+$", "aé日", true),
            (r"^\p{Lu}$", "É", true),
            (r"^[^\d]$", "日", true),
            (r"^.$", "日", true),
            (r"\Qa.b\E", "a.b", true),
            (r"\Q日.", "日x", false),
        ] {
            assert_eq!(regex(text).find(value).is_some(), expected, "{text} {value}");
        }
    }

    #[test]
    fn errors_name_the_position() {
        for (text, position, part) in [
            ("ab(c", Some(2), "unclosed"),
            (r"é\Qa(\E[b", Some(7), "unclosed"),
            ("日(?=x)", Some(1), "look-ahead"),
            (r"(a)\1", Some(3), "back reference"),
            ("a*+", Some(2), "possessive"),
            (r"x\p{Foo}", Some(1), "class `Foo`"),
            ("x**{", Some(3), ""),
            ("ab\\", Some(2), "backslash"),
        ] {
            let error = JavaRegex::compile(text).unwrap_err();
            assert_eq!(error.position, position, "{text}: {error}");
            assert!(error.reason.contains(part), "{text}: {error}");
        }
        assert!(
            JavaRegex::compile(&"a".repeat(1001))
                .unwrap_err()
                .position
                .is_none()
        );
        let letters = regex(r"\p{L}+").memory_bytes();
        assert!((4096..MAX_PROGRAM_BYTES).contains(&letters), "{letters}");
        let large = JavaRegex::compile("((a{100}){100}){100}").unwrap_err();
        assert!(large.reason.contains("program of more than"), "{large}");
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_an_expression_or_none(
            text in "[a-c()\\[\\]{}?*+^$|\\\\.&<>é日0-9-]{0,24}",
            value in "[a-cé日]{0,8}",
        ) {
            match JavaRegex::compile(&text) {
                Ok(regex) => {
                    regex.find(&value);
                    regex.split(&value, 4);
                }
                Err(error) => {
                    let length = text.chars().count();
                    proptest::prop_assert!(error.position.is_none_or(|at| at <= length), "{text}: {error}");
                }
            }
        }
    }
}
