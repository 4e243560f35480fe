//! Matchers of labels: which metrics and filters select the series, and the tests of each series.

use http::StatusCode;
use oxtsdb_query::{FilterType, Group, TagFilter, TagMatcher};
use regex::{Regex, RegexBuilder};
use regex_syntax::hir::literal::Extractor;
use regex_syntax::hir::{Hir, HirKind, Literal};

use super::request::LabelMatcher;
use crate::http::error::HttpError;
use crate::http::mapped::NameMap;
use crate::http::prometheus::NAME;

/// Memory of a compiled regular expression.
const MOST_PATTERN_BYTES: usize = 1 << 20;

/// The series of a query.
#[derive(Debug)]
pub(super) struct Selection {
    /// The names of the metrics that may match.
    pub(super) metrics: Vec<String>,
    /// Filters that pass all matching series, and some others.
    pub(super) filters: Vec<TagFilter>,
    pub(super) tests: SeriesTests,
}

/// The tests of the matchers: a series matches if all tests pass.
#[derive(Debug)]
pub(super) struct SeriesTests(Vec<LabelTest>);

impl SeriesTests {
    /// Whether a series has points in the range of the query, and passes all tests.
    pub(super) fn pass(&self, group: &Group) -> bool {
        let passes = |test: &LabelTest| {
            let tag = || group.tags.iter().find(|(key, _)| **key == *test.name);
            let value = if test.name == NAME {
                &*group.metric
            } else {
                tag().map_or("", |(_, value)| &**value)
            };
            test.passes(value)
        };
        !group.points.is_empty() && self.0.iter().all(passes)
    }
}

/// The test of a label's value. A label that is absent has an empty value.
#[derive(Debug)]
struct LabelTest {
    name: String,
    is_negated: bool,
    values: Values,
}

#[derive(Debug)]
enum Values {
    /// A value of the list.
    Of(Vec<String>),
    /// A value that the expression matches as a whole. All of them match the pattern of OpenTSDB, if there is one.
    Matching { regex: Regex, glob: Option<String> },
}

impl Selection {
    /// The series that pass all matchers. Literal values are mapped, as they were when they were written.
    ///
    /// # Errors
    ///
    /// 400 if an expression is not valid, or if the metric is not given by its name.
    pub(super) fn new(matchers: &[LabelMatcher<'_>], map: &NameMap) -> Result<Self, HttpError> {
        let tests = matchers.iter().map(|matcher| LabelTest::new(matcher, map));
        let tests = tests.collect::<Result<Vec<_>, _>>()?;
        let mut metrics = tests
            .iter()
            .filter(|test| test.name == NAME)
            .filter_map(LabelTest::required);
        let Some(metrics) = metrics.next().map(<[_]>::to_vec) else {
            let message = format!(
                "the matchers name no metric: one of `{NAME}` has to be `=` with a name, or `=~` with names \
                 between `|`"
            );
            return Err(HttpError::new(StatusCode::BAD_REQUEST, message));
        };
        let filters = tests.iter().filter(|test| test.name != NAME);
        let filters = filters.filter_map(LabelTest::filter);
        Ok(Self {
            metrics,
            filters: filters.collect(),
            tests: SeriesTests(tests),
        })
    }
}

impl LabelTest {
    fn new(matcher: &LabelMatcher<'_>, map: &NameMap) -> Result<Self, HttpError> {
        let values = if matcher.is_pattern {
            match literals(matcher.value) {
                Some(values) => Values::Of(values),
                None => Values::Matching {
                    regex: pattern(matcher)?,
                    glob: glob(matcher.value),
                },
            }
        } else {
            Values::Of(vec![matcher.value.to_owned()])
        };
        let values = match values {
            Values::Of(values) => Values::Of(values.iter().map(|value| map.name(value)).collect()),
            pattern @ Values::Matching { .. } => pattern,
        };
        Ok(Self {
            name: matcher.name.to_owned(),
            is_negated: matcher.is_negated,
            values,
        })
    }

    /// Whether a value passes.
    fn passes(&self, value: &str) -> bool {
        let is_match = match &self.values {
            Values::Of(values) => values.iter().any(|one| one == value),
            Values::Matching { regex, .. } => regex.is_match(value),
        };
        is_match != self.is_negated
    }

    /// The list of values, if the label must have a value of a list; `None`: the label may be absent, or its values are not
    /// listed.
    fn required(&self) -> Option<&[String]> {
        match &self.values {
            Values::Of(values) if !self.is_negated && values.iter().all(|value| !value.is_empty()) => {
                Some(values)
            }
            Values::Of(_) | Values::Matching { .. } => None,
        }
    }

    /// A filter of the tag key that passes the values that pass, and perhaps others; `None`: the label may be absent, or all
    /// values would pass.
    fn filter(&self) -> Option<TagFilter> {
        let matcher = match (&self.values, self.required()) {
            // All values of the type `literal_or` have to be known.
            (_, Some([value])) => alternatives("literal_or", vec![value.clone()]),
            (_, Some(values)) => {
                let values = values.iter().map(|value| value.to_lowercase());
                alternatives("iliteral_or", values.collect())
            }
            (Values::Matching { glob: Some(glob), .. }, None) if !self.is_negated => {
                TagMatcher::from_pattern(FilterType::named("wildcard").ok()?, glob).ok()
            }
            _ => None,
        };
        Some(TagFilter::from_matcher(&self.name, matcher?, false))
    }
}

fn alternatives(filter_type: &str, values: Vec<String>) -> Option<TagMatcher> {
    let filter_type = FilterType::named(filter_type).ok()?;
    Some(TagMatcher::from_alternatives(filter_type, values))
}

/// The texts that an expression matches as a whole, if it lists them: `a|b`, `web0[12]`.
fn literals(expression: &str) -> Option<Vec<String>> {
    let parsed = regex_syntax::parse(expression).ok()?;
    // Conditions of a place, such as `^`, which the extraction leaves out.
    if !parsed.properties().look_set().is_empty() {
        return None;
    }
    let found = Extractor::new().extract(&parsed);
    if !found.is_exact() {
        return None;
    }
    let texts = found.literals()?.iter();
    texts
        .map(|text| String::from_utf8(text.as_bytes().to_vec()).ok())
        .collect()
}

/// A pattern of OpenTSDB for all values that an expression matches as a whole, and perhaps others: `web*.prod` for
/// `web[0-9]+\.prod`. `None` without a text that all values have: they may be empty, or are all values.
fn glob(expression: &str) -> Option<String> {
    let mut glob = String::new();
    append_glob(&regex_syntax::parse(expression).ok()?, &mut glob);
    glob.contains(|c| c != '*').then_some(glob)
}

/// Appends texts, and `*` for all else.
fn append_glob(hir: &Hir, glob: &mut String) {
    match hir.kind() {
        HirKind::Literal(Literal(bytes)) => match std::str::from_utf8(bytes) {
            Ok(text) if !text.contains('*') => glob.push_str(text),
            _ => glob.push('*'),
        },
        HirKind::Capture(capture) => append_glob(&capture.sub, glob),
        HirKind::Concat(parts) => parts.iter().for_each(|part| append_glob(part, glob)),
        // Conditions of a place have no text.
        HirKind::Empty | HirKind::Look(_) => {}
        HirKind::Class(_) | HirKind::Repetition(_) | HirKind::Alternation(_) => glob.push('*'),
    }
}

/// An expression that matches whole values, as in Prometheus.
fn pattern(matcher: &LabelMatcher<'_>) -> Result<Regex, HttpError> {
    let LabelMatcher { name, value, .. } = matcher;
    let built = RegexBuilder::new(&format!("^(?s:{value})$"))
        .size_limit(MOST_PATTERN_BYTES)
        .build();
    built.map_err(|error| {
        let message = format!("the expression of the matcher of `{name}` is not valid");
        HttpError::new(StatusCode::BAD_REQUEST, message).with_details(error.to_string())
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn patterns_have_the_texts_of_expressions() {
        for (expression, expected) in [
            ("web.*", Some("web*")),
            ("web.+", Some("web*")),
            (".*web", Some("*web")),
            ("a.*b", Some("a*b")),
            (r"web[0-9]+\.prod", Some("web*.prod")),
            ("(?:web)(.+)-(a|b)", Some("web*-*")),
            ("web[01]?x{2}", Some("web**")),
            ("(?s).*a", Some("*a")),
            // An asterisk of a pattern is no text.
            (r"a\*b.*", None),
            (r"web.*\*", Some("web**")),
            (".*", None),
            (".+", None),
            ("a*", None),
            ("(?i)web.*", None),
            ("web.*|db.*", None),
            ("", None),
            ("(", None),
        ] {
            assert_eq!(glob(expression).as_deref(), expected, "{expression}");
        }
    }

    proptest! {
        #[test]
        fn patterns_match_what_expressions_match(
            expression in "(a|b|\\(a\\|ab\\)|\\.|\\.\\*|\\.\\+|\\[ab\\]|a\\?|b\\*|\\\\\\*|\\^|\\$){0,6}",
            value in "[ab*]{0,6}",
        ) {
            let matcher = LabelMatcher { is_pattern: true, is_negated: false, name: "k", value: &expression };
            let matches = pattern(&matcher).unwrap().is_match(&value);
            let found = glob(&expression);
            if let (true, Some(glob)) = (matches, &found) {
                // The filter takes the expression from texts alone; a pattern without a star is a text.
                let matches = if glob.contains('*') {
                    let wildcard = TagMatcher::from_pattern(FilterType::named("wildcard").unwrap(), glob).unwrap();
                    wildcard.predicate(oxtsdb_query::Quirks::NONE).unwrap()(&value)
                } else {
                    *glob == value
                };
                prop_assert!(matches, "{} for {}", glob, expression);
                prop_assert!(!value.is_empty());
            }
        }
    }

    #[test]
    fn lists_of_texts_are_found_in_expressions() {
        let found = |expression: &str| {
            literals(expression).map(|mut texts| {
                texts.sort();
                texts.join(",")
            })
        };
        for (expression, texts) in [
            ("a|b", Some("a,b")),
            (r"10\.0\.0\.1:9100", Some("10.0.0.1:9100")),
            ("(?:web0[12])|db", Some("db,web01,web02")),
            ("", Some("")),
            ("a?", Some(",a")),
            ("web.*", None),
            ("a+", None),
            ("^a$", None),
            ("(", None),
        ] {
            assert_eq!(found(expression).as_deref(), texts, "{expression}");
        }
    }
}
