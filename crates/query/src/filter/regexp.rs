//! Regular expressions in filters: Java's, as far as they can be matched in linear time ([`java_regex`]).
//!
//! As in OpenTSDB an expression matches a value that *contains* a match; `^` and `$` hold the ends.
//! Names are ISO-8859-1, a byte for a character, and Java's classes (`\d`, `\w`, `\b`) and its ignoring
//! of case know ASCII only. So expression and value are compared as bytes of ISO-8859-1.
//!
//! Source: OpenTSDB 2.4, `TagVRegexFilter`.
//!
//! [`java_regex`]: crate::java_regex

use regex::bytes::{Regex, RegexBuilder};

use super::error::FilterError;
use super::pattern::{Pattern, Predicate};
use crate::java_regex::{
    Alphabet, MAX_DEPTH, SyntaxError, check_length, check_syntax, program_too_large, translate,
};
use crate::quirks::Quirks;

/// The largest program of an expression, in bytes: `[a-z]{1,200}` has about 10 KiB.
const MAX_PROGRAM_BYTES: usize = 128 * 1024;

/// Expressions that match everything, as OpenTSDB recognizes them.
const ANY: [&str; 4] = [".*", "^.*", ".*$", "^.*$"];

/// A regular expression with checked syntax.
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
    /// The reason why it is none, or cannot be matched here, in words that follow the expression.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let translate = || {
            check_length(text)?;
            let translated = translate(text, Alphabet::Latin1)?;
            check_syntax(&translated, false)?;
            Ok(Self {
                text: text.to_owned(),
                translated: translated.text,
            })
        };
        translate().map_err(|error: SyntaxError| error.reason)
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
        let program = builder
            .build()
            .map_err(|_| program_too_large(MAX_PROGRAM_BYTES))?;
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
