//! A filter type with its argument.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use super::error::FilterError;
use super::pattern::{Pattern, Predicate};
use super::types::{Argument, FilterType};
use crate::quirks::Quirks;

/// Matches the values of a tag key.
#[derive(Clone, Debug)]
pub struct TagMatcher {
    filter_type: &'static FilterType,
    argument: Parsed,
}

/// A parsed argument.
#[derive(Clone, Debug)]
enum Parsed {
    Alternatives(Vec<String>),
    Pattern(Arc<dyn Pattern>),
}

/// How a matcher selects UIDs of tag values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resolution<'m> {
    /// The UIDs of these names, which must all be known.
    In(&'m [String]),
    /// All but the UIDs of these names.
    NotIn(&'m [String]),
    /// All.
    All,
    /// The values with names that pass [`TagMatcher::predicate`].
    ByName,
}

impl TagMatcher {
    /// Parses an argument in OpenTSDB's form; alternatives are separated by pipes.
    ///
    /// # Errors
    ///
    /// [`FilterError`] for an unknown type, and for an argument that is empty or does not fit its type.
    pub fn parse(type_name: &str, argument: &str) -> Result<Self, FilterError> {
        // The type comes first: whether the argument is valid depends on it.
        let filter_type = FilterType::named(type_name)?;
        if argument.is_empty() {
            return Err(FilterError::EmptyFilter);
        }
        if !filter_type.takes_alternatives() {
            return Self::from_pattern(filter_type, argument);
        }
        let values = if filter_type.ignores_case {
            alternatives(&argument.to_lowercase())?
        } else {
            alternatives(argument)?
        };
        Ok(Self::from_alternatives(filter_type, values))
    }

    /// A matcher of alternatives.
    ///
    /// # Panics
    ///
    /// If the type takes a pattern.
    pub fn from_alternatives(filter_type: &'static FilterType, values: Vec<String>) -> Self {
        assert!(
            filter_type.takes_alternatives(),
            "{} takes a pattern",
            filter_type.name()
        );
        Self {
            filter_type,
            argument: Parsed::Alternatives(values),
        }
    }

    /// A matcher of a pattern.
    ///
    /// # Errors
    ///
    /// [`FilterError`] for a pattern that is not valid.
    ///
    /// # Panics
    ///
    /// If the type takes alternatives.
    pub fn from_pattern(filter_type: &'static FilterType, text: &str) -> Result<Self, FilterError> {
        let Argument::Pattern(parse) = filter_type.argument() else {
            panic!("{} takes alternatives", filter_type.name())
        };
        let pattern = if filter_type.ignores_case {
            parse(&text.to_lowercase())?
        } else {
            parse(text)?
        };
        Ok(Self {
            filter_type,
            argument: Parsed::Pattern(pattern),
        })
    }

    /// Its type.
    pub const fn filter_type(&self) -> &'static FilterType {
        self.filter_type
    }

    /// The alternatives; none if the type takes a pattern.
    pub fn alternatives(&self) -> &[String] {
        match &self.argument {
            Parsed::Alternatives(values) => values,
            Parsed::Pattern(_) => &[],
        }
    }

    /// The argument in OpenTSDB's form.
    pub fn argument(&self) -> String {
        match &self.argument {
            Parsed::Alternatives(values) => values.join("|"),
            Parsed::Pattern(pattern) => pattern.text().to_owned(),
        }
    }

    /// Whether OpenTSDB takes another matcher for the same: of this type and of these values, in any order; or patterns
    /// of the same pieces, wherever they have stars at their ends.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        let all_in = |a: &[String], b: &[String]| a.iter().all(|value| b.contains(value));
        self.filter_type.name() == other.filter_type.name()
            && match (&self.argument, &other.argument) {
                (Parsed::Alternatives(a), Parsed::Alternatives(b)) => all_in(a, b) && all_in(b, a),
                (Parsed::Pattern(a), Parsed::Pattern(b)) => a.is_same(b.text()),
                _ => false,
            }
    }

    /// Whether it counts towards [`MAX_REGEXPS`](super::MAX_REGEXPS).
    pub(crate) fn is_regexp(&self) -> bool {
        matches!(&self.argument, Parsed::Pattern(pattern) if pattern.is_regexp())
    }

    /// How it selects UIDs.
    pub(crate) fn resolution(&self) -> Resolution<'_> {
        let excludes = self.filter_type.excludes;
        match &self.argument {
            Parsed::Alternatives(_) if self.filter_type.ignores_case => Resolution::ByName,
            Parsed::Alternatives(values) if excludes => Resolution::NotIn(values),
            Parsed::Alternatives(values) => Resolution::In(values),
            Parsed::Pattern(pattern) if pattern.matches_all() && !excludes => Resolution::All,
            Parsed::Pattern(_) => Resolution::ByName,
        }
    }

    /// Whether OpenTSDB returns series without the tag too, where it does not look up the tag's key: with types that
    /// exclude values and with patterns of stars alone.
    pub(crate) fn matches_without_tag(&self) -> bool {
        self.filter_type.excludes
            || matches!(&self.argument, Parsed::Pattern(pattern) if pattern.matches_without_tag())
    }

    /// The test of a value's name.
    ///
    /// # Errors
    ///
    /// [`FilterError::Regexp`] for an expression that is too large.
    pub fn predicate(&self, quirks: Quirks) -> Result<Predicate, FilterError> {
        let FilterType {
            ignores_case,
            excludes,
            ..
        } = *self.filter_type;
        let matches: Predicate = match &self.argument {
            Parsed::Alternatives(values) => {
                let mut values = values.clone();
                if ignores_case {
                    values.iter_mut().for_each(|value| *value = value.to_lowercase());
                }
                Box::new(move |name| values.iter().any(|value| value == name))
            }
            Parsed::Pattern(pattern) => pattern.predicate(quirks)?,
        };
        Ok(match (ignores_case, excludes) {
            (false, false) => matches,
            (false, true) => Box::new(move |name| !matches(name)),
            (true, _) => Box::new(move |name| matches(&name.to_lowercase()) != excludes),
        })
    }

    /// The identity of a matcher: equal matchers have equal types and arguments.
    fn key(&self) -> (&'static str, &[String], Option<&str>) {
        let pattern = match &self.argument {
            Parsed::Alternatives(_) => None,
            Parsed::Pattern(pattern) => Some(pattern.text()),
        };
        (self.filter_type.name(), self.alternatives(), pattern)
    }
}

impl PartialEq for TagMatcher {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for TagMatcher {}

impl Hash for TagMatcher {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.key().hash(state);
    }
}

/// `TYPE(ARG)`, as in a tags map.
impl fmt::Display for TagMatcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}({})", self.filter_type.name(), self.argument())
    }
}

/// Splits at pipes. Empty values at the end do not count, so several pipes alone have no value.
fn alternatives(text: &str) -> Result<Vec<String>, FilterError> {
    if text == "|" {
        return Err(FilterError::OnlyPipe);
    }
    let kept = text.trim_end_matches('|');
    if kept.is_empty() {
        return Ok(Vec::new());
    }
    Ok(kept.split('|').map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_parses_its_example_as_itself() {
        for filter_type in FilterType::all() {
            let (name, example) = (filter_type.name(), filter_type.example());
            let matcher = TagMatcher::parse(name, example).unwrap();
            assert_eq!(matcher.filter_type().name(), name);
            assert_eq!(TagMatcher::parse(name, &matcher.argument()), Ok(matcher));
        }
    }

    #[test]
    fn alternatives_resolve_to_uids_unless_case_is_ignored() {
        let of = |name, argument| TagMatcher::parse(name, argument).unwrap();
        let values = ["a".to_owned(), "b".to_owned()];
        assert_eq!(of("literal_or", "a|b").resolution(), Resolution::In(&values));
        assert_eq!(
            of("not_literal_or", "a|b").resolution(),
            Resolution::NotIn(&values)
        );
        for (name, argument, expected) in [
            ("iliteral_or", "a|b", Resolution::ByName),
            ("not_iliteral_or", "a|b", Resolution::ByName),
            ("wildcard", "*", Resolution::All),
            ("iwildcard", "**", Resolution::All),
            ("wildcard", "a*", Resolution::ByName),
            ("regexp", ".*", Resolution::All),
            ("regexp", "a", Resolution::ByName),
        ] {
            assert_eq!(of(name, argument).resolution(), expected, "{name}({argument})");
        }
    }

    #[test]
    fn matchers_compare_names() {
        let matches = |text: &str, value: &str| {
            let (kind, filter) = text.split_once(' ').unwrap();
            let matcher = TagMatcher::parse(kind, filter).unwrap();
            matcher.predicate(Quirks::OPENTSDB).unwrap()(value)
        };
        assert!(matches("literal_or a|b", "b") && !matches("literal_or a|b", "B"));
        assert!(!matches("literal_or a |b", "a"), "blanks belong to the value");
        assert!(matches("iliteral_or A|b", "B") && !matches("iliteral_or A|b", "c"));
        assert!(matches("not_literal_or a|b", "c") && !matches("not_literal_or a|b", "a"));
        assert!(matches("not_iliteral_or A", "b") && !matches("not_iliteral_or A", "a"));
        assert!(matches("wildcard we*", "web") && !matches("wildcard we*", "WEB"));
        assert!(matches("iwildcard WE*", "web") && matches("iwildcard we*", "WEB"));
        assert!(matches("regexp e.0", "web01") && !matches("regexp ^e", "web01"));
    }
}
