//! Matchers of labels: which metrics and filters select the series, and the tests of each series.

use http::StatusCode;
use oxtsdb_query::{FilterType, Group, TagFilter, TagMatcher};
use regex::{Regex, RegexBuilder};
use regex_syntax::hir::literal::Extractor;

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
    /// A value that the expression matches as a whole.
    Matching(Regex),
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
        let filters = filters.filter_map(|test| filter(&test.name, test.required()?));
        Ok(Self {
            metrics,
            filters: filters.collect(),
            tests: SeriesTests(tests),
        })
    }
}

/// A filter of a tag key that passes these values, and perhaps others.
fn filter(key: &str, values: &[String]) -> Option<TagFilter> {
    // All values of the first type have to be known.
    let (kind, values) = match values {
        [value] => ("literal_or", vec![value.clone()]),
        values => (
            "iliteral_or",
            values.iter().map(|value| value.to_lowercase()).collect(),
        ),
    };
    let matcher = TagMatcher::from_alternatives(FilterType::named(kind).ok()?, values);
    Some(TagFilter::from_matcher(key, matcher, false))
}

impl LabelTest {
    fn new(matcher: &LabelMatcher<'_>, map: &NameMap) -> Result<Self, HttpError> {
        let values = if matcher.is_pattern {
            match literals(matcher.value) {
                Some(values) => Values::Of(values),
                None => Values::Matching(pattern(matcher)?),
            }
        } else {
            Values::Of(vec![matcher.value.to_owned()])
        };
        let values = match values {
            Values::Of(values) => Values::Of(values.iter().map(|value| map.name(value)).collect()),
            pattern @ Values::Matching(_) => pattern,
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
            Values::Matching(pattern) => pattern.is_match(value),
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
            Values::Of(_) | Values::Matching(_) => None,
        }
    }
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
    use super::*;

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
