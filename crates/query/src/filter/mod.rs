//! Tag filters: which series of a metric are wanted, and by which tags they are grouped.
//!
//! Every filter, also one that excludes values, wants its tag key to be there.
//!
//! The texts of the errors are OpenTSDB's.
//!
//! Source: OpenTSDB 2.4, `TagVFilter` and its subclasses, `Tags.parseWithMetricAndFilters`.

pub mod glob;
pub mod regexp;

use std::fmt;

use crate::filter::glob::Glob;
use crate::filter::regexp::{MAX_REGEXPS, Regexp};
use crate::quirks::Quirks;

/// Filters of a sub-query, at most: each is looked at for each row, and finding equal ones takes
/// quadratic time. OpenTSDB has no limit but the size of the request.
pub const MAX_FILTERS: usize = 100;

/// Which values of a tag key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TagFilter {
    /// Name of the tag key.
    pub key: String,
    /// Which values.
    pub matcher: TagMatcher,
    /// A group for each value, in place of one over all.
    pub group_by: bool,
    /// Its type and its text as they were asked for, to be shown. A pattern of a tags map is shown as
    /// `wildcard`, though it takes upper and lower case.
    pub asked: (&'static str, String),
}

/// Which values a filter takes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum TagMatcher {
    /// These. Each must be a known name.
    LiteralOr(Vec<String>),
    /// These, in upper or lower case.
    IliteralOr(Vec<String>),
    /// All but these.
    NotLiteralOr(Vec<String>),
    /// All but these, in upper or lower case.
    NotIliteralOr(Vec<String>),
    /// Those that match.
    Wildcard(Glob),
    /// Those that match in upper or lower case. The pattern is in lower case.
    Iwildcard(Glob),
    /// Those that contain a match.
    Regexp(Regexp),
}

/// Says whether a value is taken.
pub type Predicate = Box<dyn Fn(&str) -> bool + Send + Sync>;

/// The names of the filter types, in alphabetical order.
pub const FILTER_TYPES: [&str; 7] = [
    "iliteral_or",
    "iwildcard",
    "literal_or",
    "not_iliteral_or",
    "not_literal_or",
    "regexp",
    "wildcard",
];

/// Why something is no filter.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FilterError {
    /// No type.
    #[error("The filter type cannot be null or empty")]
    EmptyType,
    /// An unknown type.
    #[error("Could not find a tag value filter of the type: {name}")]
    UnknownType {
        /// The name.
        name: String,
    },
    /// No tag key.
    #[error("The tagk cannot be null or empty")]
    EmptyKey,
    /// Nothing to compare with.
    #[error("Filter cannot be null or empty")]
    EmptyFilter,
    /// A wildcard without a star.
    #[error("Filter must contain an asterisk")]
    NoAsterisk,
    /// Alternatives without a value.
    #[error("Filter must contain more than just a pipe")]
    OnlyPipe,
    /// Two pipes without a value between them, where values are looked up.
    #[error("Missing UID name")]
    EmptyAlternative,
    /// A regular expression that is none, or none that this server can match.
    #[error("Invalid regexp filter '{text}': {reason}")]
    Regexp {
        /// The expression.
        text: String,
        /// What is wrong, in words that follow the expression.
        reason: String,
    },
    /// More regular expressions than a query may have.
    #[error("query has {count} regexp filters, at most {MAX_REGEXPS} are allowed")]
    TooManyRegexps {
        /// How many.
        count: usize,
    },
    /// A parenthesis that is not closed.
    #[error("Filter must end with a ')': {text}")]
    Unclosed {
        /// The text.
        text: String,
    },
}

impl TagFilter {
    /// A filter of a type by its name; alternatives are separated by pipes.
    ///
    /// # Errors
    ///
    /// [`FilterError`] for unknown types, empty parts, and patterns that do not fit their type.
    pub fn new(kind: &str, key: &str, filter: &str, group_by: bool) -> Result<Self, FilterError> {
        if key.is_empty() {
            return Err(FilterError::EmptyKey);
        }
        let matcher = TagMatcher::parse(kind, filter)?;
        let asked = (matcher.type_name(), filter.to_owned());
        Ok(Self {
            key: key.to_owned(),
            matcher,
            group_by,
            asked,
        })
    }

    /// A filter of a matcher.
    pub fn of_matcher(key: &str, matcher: TagMatcher, group_by: bool) -> Self {
        Self {
            key: key.to_owned(),
            asked: (matcher.type_name(), matcher.filter_text()),
            matcher,
            group_by,
        }
    }

    /// A filter of an entry of a tags map, which groups:
    ///
    /// | value | filter |
    /// |---|---|
    /// | `TYPE(ARG)` | of that type |
    /// | with a star | iwildcard, shown as `wildcard` |
    /// | other | literal_or |
    ///
    /// # Errors
    ///
    /// As [`TagFilter::new`].
    pub fn of_tag(key: &str, value: &str) -> Result<Self, FilterError> {
        if let Some((kind, argument)) = value.split_once('(') {
            let Some(argument) = argument.strip_suffix(')') else {
                return Err(FilterError::Unclosed {
                    text: value.to_owned(),
                });
            };
            return Self::new(&kind.to_lowercase(), key, argument, true);
        }
        if value.contains('*') {
            let mut filter = Self::new("iwildcard", key, value, true)?;
            filter.asked.0 = "wildcard";
            return Ok(filter);
        }
        Self::new("literal_or", key, value, true)
    }

    /// Adds filters of a tags map. One that is there already is not added again, but groups.
    ///
    /// # Errors
    ///
    /// As [`TagFilter::of_tag`].
    pub fn add_tags<'a>(
        filters: &mut Vec<Self>,
        tags: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<(), FilterError> {
        for (key, value) in tags {
            Self::of_tag(key, value)?.add_to(filters);
        }
        Ok(())
    }

    /// Adds a filter that groups, unless there is one of the same values already: then that groups.
    pub fn add_to(self, filters: &mut Vec<Self>) {
        let same = |other: &&mut Self| other.key == self.key && other.matcher.is_same(&self.matcher);
        match filters.iter_mut().find(same) {
            Some(there) => there.group_by = true,
            None => filters.push(self),
        }
    }
}

impl TagMatcher {
    /// A matcher by the name of its type.
    ///
    /// # Errors
    ///
    /// As [`TagFilter::new`].
    pub fn parse(kind: &str, filter: &str) -> Result<Self, FilterError> {
        // The type is looked at first, since what is wrong with the rest depends on it.
        if kind.is_empty() {
            return Err(FilterError::EmptyType);
        }
        let known = FILTER_TYPES.contains(&kind);
        if !known {
            return Err(FilterError::UnknownType {
                name: kind.to_owned(),
            });
        }
        if filter.is_empty() {
            return Err(FilterError::EmptyFilter);
        }
        Ok(match kind {
            "iliteral_or" => Self::IliteralOr(alternatives(&filter.to_lowercase())?),
            "not_literal_or" => Self::NotLiteralOr(alternatives(filter)?),
            "not_iliteral_or" => Self::NotIliteralOr(alternatives(&filter.to_lowercase())?),
            "wildcard" => Self::Wildcard(Glob::parse(filter).ok_or(FilterError::NoAsterisk)?),
            "iwildcard" => {
                Self::Iwildcard(Glob::parse(&filter.to_lowercase()).ok_or(FilterError::NoAsterisk)?)
            }
            "regexp" => Self::Regexp(Regexp::parse(filter).map_err(|reason| bad_regexp(filter, reason))?),
            "literal_or" => Self::LiteralOr(alternatives(filter)?),
            other => {
                return Err(FilterError::UnknownType {
                    name: other.to_owned(),
                });
            }
        })
    }

    /// Whether OpenTSDB takes another one for the same: of this type and of these values, in whatever order they are
    /// listed; or patterns of the same pieces, wherever they have stars at their ends.
    fn is_same(&self, other: &Self) -> bool {
        let same_values = |a: &[String], b: &[String]| {
            a.iter().all(|value| b.contains(value)) && b.iter().all(|value| a.contains(value))
        };
        match (self, other) {
            (Self::LiteralOr(a), Self::LiteralOr(b))
            | (Self::IliteralOr(a), Self::IliteralOr(b))
            | (Self::NotLiteralOr(a), Self::NotLiteralOr(b))
            | (Self::NotIliteralOr(a), Self::NotIliteralOr(b)) => same_values(a, b),
            (Self::Wildcard(a), Self::Wildcard(b)) | (Self::Iwildcard(a), Self::Iwildcard(b)) => {
                a.has_pieces_of(b)
            }
            _ => self == other,
        }
    }

    /// The name of the type.
    pub const fn type_name(&self) -> &'static str {
        match self {
            Self::LiteralOr(_) => "literal_or",
            Self::IliteralOr(_) => "iliteral_or",
            Self::NotLiteralOr(_) => "not_literal_or",
            Self::NotIliteralOr(_) => "not_iliteral_or",
            Self::Wildcard(_) => "wildcard",
            Self::Iwildcard(_) => "iwildcard",
            Self::Regexp(_) => "regexp",
        }
    }

    /// The alternatives or the pattern.
    pub fn filter_text(&self) -> String {
        match self {
            Self::LiteralOr(values)
            | Self::IliteralOr(values)
            | Self::NotLiteralOr(values)
            | Self::NotIliteralOr(values) => values.join("|"),
            Self::Wildcard(glob) | Self::Iwildcard(glob) => glob.text().to_owned(),
            Self::Regexp(regexp) => regexp.text().to_owned(),
        }
    }

    /// Whether every value is taken.
    pub fn takes_all(&self) -> bool {
        match self {
            Self::Wildcard(glob) | Self::Iwildcard(glob) => glob.is_any(),
            Self::Regexp(regexp) => regexp.is_any(),
            Self::LiteralOr(_) | Self::IliteralOr(_) | Self::NotLiteralOr(_) | Self::NotIliteralOr(_) => {
                false
            }
        }
    }

    /// Whether it excludes values, or takes any by stars alone: what OpenTSDB lets pass without a tag, too,
    /// where it does not look for the tag's key in the first place.
    pub const fn takes_unnamed(&self) -> bool {
        match self {
            Self::NotLiteralOr(_) | Self::NotIliteralOr(_) => true,
            Self::Wildcard(glob) | Self::Iwildcard(glob) => glob.is_any(),
            Self::LiteralOr(_) | Self::IliteralOr(_) | Self::Regexp(_) => false,
        }
    }

    /// The test of a value's name.
    ///
    /// # Errors
    ///
    /// [`FilterError::Regexp`] for an expression that is too large.
    pub fn predicate(&self, quirks: Quirks) -> Result<Predicate, FilterError> {
        let in_lower_case =
            |values: &[String]| -> Vec<String> { values.iter().map(|value| value.to_lowercase()).collect() };
        Ok(match self.clone() {
            Self::LiteralOr(values) => Box::new(move |value| values.iter().any(|other| other == value)),
            Self::NotLiteralOr(values) => Box::new(move |value| values.iter().all(|other| other != value)),
            Self::IliteralOr(values) => {
                let values = in_lower_case(&values);
                Box::new(move |value| values.contains(&value.to_lowercase()))
            }
            Self::NotIliteralOr(values) => {
                let values = in_lower_case(&values);
                Box::new(move |value| !values.contains(&value.to_lowercase()))
            }
            Self::Wildcard(glob) => Box::new(move |value| glob.matches(value, quirks.loose_globs)),
            Self::Iwildcard(glob) => {
                Box::new(move |value| glob.matches(&value.to_lowercase(), quirks.loose_globs))
            }
            Self::Regexp(regexp) => {
                let compiled = regexp
                    .compile()
                    .map_err(|reason| bad_regexp(regexp.text(), reason))?;
                Box::new(move |value| compiled.is_in(value))
            }
        })
    }
}

fn bad_regexp(text: &str, reason: String) -> FilterError {
    FilterError::Regexp {
        text: text.to_owned(),
        reason,
    }
}

/// `TYPE(ARG)`, as in a tags map.
impl fmt::Display for TagMatcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}({})", self.type_name(), self.filter_text())
    }
}

/// Splits at pipes. Empty values at the end do not count, so of several pipes alone there is none.
fn alternatives(filter: &str) -> Result<Vec<String>, FilterError> {
    if filter == "|" {
        return Err(FilterError::OnlyPipe);
    }
    let kept = filter.trim_end_matches('|');
    if kept.is_empty() {
        return Ok(Vec::new());
    }
    Ok(kept.split('|').map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_filter_type_parses_as_itself() {
        for kind in FILTER_TYPES {
            assert_eq!(TagMatcher::parse(kind, "a*").unwrap().type_name(), kind);
        }
    }

    fn of_tag(value: &str) -> Result<String, String> {
        TagFilter::of_tag("host", value)
            .map(|filter| {
                assert!(filter.group_by, "an entry of a tags map groups");
                filter.matcher.to_string()
            })
            .map_err(|error| error.to_string())
    }

    #[test]
    fn the_value_in_a_tags_map_decides_on_the_type() {
        for (value, expected) in [
            ("*", "iwildcard(*)"),
            ("WEB*", "iwildcard(web*)"),
            ("web01|db01", "literal_or(web01|db01)"),
            ("web01|", "literal_or(web01)"),
            ("a||b", "literal_or(a||b)"),
            ("||", "literal_or()"),
            ("Iliteral_OR(Web02)", "iliteral_or(web02)"),
            ("wildcard(we*)", "wildcard(we*)"),
            ("not_literal_or(web01)", "not_literal_or(web01)"),
        ] {
            assert_eq!(of_tag(value), Ok(expected.to_owned()), "{value}");
        }
        for (value, expected) in [
            ("", "Filter cannot be null or empty"),
            ("|", "Filter must contain more than just a pipe"),
            ("wildcard(a*", "Filter must end with a ')': wildcard(a*"),
            ("wildcard(a)", "Filter must contain an asterisk"),
            (
                "regexp(a(?=b))",
                "Invalid regexp filter 'a(?=b)': has a look-ahead, which is not supported",
            ),
            ("()", "The filter type cannot be null or empty"),
            ("bogus(a)", "Could not find a tag value filter of the type: bogus"),
        ] {
            assert_eq!(of_tag(value), Err(expected.to_owned()), "{value}");
        }
        assert_eq!(TagFilter::of_tag("", "a"), Err(FilterError::EmptyKey));
    }

    #[test]
    fn filters_are_shown_as_they_were_asked_for() {
        let of_tag = |value: &str| TagFilter::of_tag("host", value).unwrap().asked;
        assert_eq!(of_tag("WEB*"), ("wildcard", "WEB*".to_owned()));
        assert_eq!(of_tag("IWILDCARD(WEB*)"), ("iwildcard", "WEB*".to_owned()));
        assert_eq!(of_tag("A|b|"), ("literal_or", "A|b|".to_owned()));
        let filter = TagFilter::new("iliteral_or", "host", "A|", false).unwrap();
        assert_eq!(filter.asked, ("iliteral_or", "A|".to_owned()));
    }

    #[test]
    fn an_entry_that_is_a_filter_already_groups_by_it() {
        let mut filters = vec![TagFilter::new("iwildcard", "host", "**", false).unwrap()];
        let tags = [("host", "*"), ("dc", "lga|phx"), ("dc", "phx|lga|phx")];
        TagFilter::add_tags(&mut filters, tags).unwrap();
        assert_eq!(filters.len(), 2);
        assert!(filters.iter().all(|filter| filter.group_by));
        // A star takes upper and lower case.
        TagFilter::add_tags(&mut filters, [("host", "wildcard(*)")]).unwrap();
        assert_eq!(filters.len(), 3);
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
