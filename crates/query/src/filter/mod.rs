//! Tag filters: select the series of a metric, and the tags by which they are grouped.
//!
//! A series without the tag key of a filter does not match, also if the filter excludes values. [`FilterType`] lists
//! the types.
//!
//! Source: OpenTSDB 2.4, `TagVFilter` and its subclasses, `Tags.parseWithMetricAndFilters`.

mod error;
mod glob;
mod limits;
mod matcher;
mod pattern;
mod regexp;
mod types;

pub use error::FilterError;
pub use limits::{MAX_FILTERS, MAX_REGEXPS};
pub(crate) use matcher::Resolution;
pub use matcher::TagMatcher;
pub use pattern::Predicate;
pub use types::FilterType;

/// A filter of a tag key's values.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TagFilter {
    /// Name of the tag key.
    pub key: String,
    /// Matches the values.
    pub matcher: TagMatcher,
    /// One result for each value, in place of one over all.
    pub group_by: bool,
    /// Type and argument as requested, for responses that echo the query. A pattern of a tags map is echoed as
    /// `wildcard`, though it ignores case.
    pub echo: (&'static str, String),
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
        Ok(Self {
            key: key.to_owned(),
            echo: (matcher.filter_type().name(), filter.to_owned()),
            matcher,
            group_by,
        })
    }

    /// A filter of a matcher.
    pub fn from_matcher(key: &str, matcher: TagMatcher, group_by: bool) -> Self {
        Self {
            key: key.to_owned(),
            echo: (matcher.filter_type().name(), matcher.argument()),
            matcher,
            group_by,
        }
    }

    /// Parses an entry of a tags map, which groups:
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
    pub fn from_tag(key: &str, value: &str) -> Result<Self, FilterError> {
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
            filter.echo.0 = "wildcard";
            return Ok(filter);
        }
        Self::new("literal_or", key, value, true)
    }

    /// Adds the filters of a tags map, as [`TagFilter::add_to`].
    ///
    /// # Errors
    ///
    /// As [`TagFilter::from_tag`].
    pub fn add_tags<'a>(
        filters: &mut Vec<Self>,
        tags: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<(), FilterError> {
        for (key, value) in tags {
            Self::from_tag(key, value)?.add_to(filters);
        }
        Ok(())
    }

    /// Adds a filter that groups. If there is one of the same values, that one groups instead.
    pub fn add_to(self, filters: &mut Vec<Self>) {
        let same = |other: &&mut Self| other.key == self.key && other.matcher.is_same(&self.matcher);
        match filters.iter_mut().find(same) {
            Some(present) => present.group_by = true,
            None => filters.push(self),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_tag(value: &str) -> Result<String, String> {
        TagFilter::from_tag("host", value)
            .map(|filter| {
                assert!(filter.group_by, "an entry of a tags map groups");
                filter.matcher.to_string()
            })
            .map_err(|error| error.to_string())
    }

    #[test]
    fn the_value_of_a_tags_map_determines_the_type() {
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
            assert_eq!(parse_tag(value), Ok(expected.to_owned()), "{value}");
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
            assert_eq!(parse_tag(value), Err(expected.to_owned()), "{value}");
        }
        assert_eq!(TagFilter::from_tag("", "a"), Err(FilterError::EmptyKey));
    }

    #[test]
    fn filters_echo_the_request() {
        let of_tag = |value: &str| TagFilter::from_tag("host", value).unwrap().echo;
        assert_eq!(of_tag("WEB*"), ("wildcard", "WEB*".to_owned()));
        assert_eq!(of_tag("IWILDCARD(WEB*)"), ("iwildcard", "WEB*".to_owned()));
        assert_eq!(of_tag("A|b|"), ("literal_or", "A|b|".to_owned()));
        let filter = TagFilter::new("iliteral_or", "host", "A|", false).unwrap();
        assert_eq!(filter.echo, ("iliteral_or", "A|".to_owned()));
    }

    #[test]
    fn an_entry_equal_to_a_filter_makes_it_group() {
        let mut filters = vec![TagFilter::new("iwildcard", "host", "**", false).unwrap()];
        let tags = [("host", "*"), ("dc", "lga|phx"), ("dc", "phx|lga|phx")];
        TagFilter::add_tags(&mut filters, tags).unwrap();
        assert_eq!(filters.len(), 2);
        assert!(filters.iter().all(|filter| filter.group_by));
        // A star takes upper and lower case.
        TagFilter::add_tags(&mut filters, [("host", "wildcard(*)")]).unwrap();
        assert_eq!(filters.len(), 3);
    }
}
