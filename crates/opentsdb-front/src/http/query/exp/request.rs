//! Requests of `/api/query/exp`, and their validation.
//!
//! A response repeats its request, with every default, in the order of these fields.
//!
//! Source: OpenTSDB 2.4, `net.opentsdb.query.pojo`.

use std::collections::HashSet;

use oxtsdb_query::expression::Arithmetic;
use oxtsdb_query::filter::MAX_FILTERS;
use oxtsdb_query::language::time::parse_duration;
use oxtsdb_query::{Aggregator, Quirks};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Number;

use crate::http::query::bounded::FirstOf;
use crate::http::query::flag::Flag;

/// Metrics, filters, expressions and outputs each.
const MAX_ITEMS: usize = 100;

/// A request.
#[derive(Debug, Clone, Deserialize, Serialize)]
pub(super) struct Query {
    pub(super) name: Option<String>,
    pub(super) time: Option<Timespan>,
    pub(super) filters: Option<FirstOf<Filter, MAX_ITEMS>>,
    pub(super) metrics: Option<FirstOf<Metric, MAX_ITEMS>>,
    pub(super) expressions: Option<FirstOf<Expression, MAX_ITEMS>>,
    pub(super) outputs: Option<FirstOf<Output, MAX_ITEMS>>,
}

#[derive(Debug, Clone, Default, Deserialize, Serialize)]
pub(super) struct Timespan {
    #[serde(default, deserialize_with = "text")]
    pub(super) start: Option<String>,
    #[serde(default, deserialize_with = "text")]
    pub(super) end: Option<String>,
    pub(super) timezone: Option<String>,
    pub(super) downsampler: Option<Downsampler>,
    pub(super) aggregator: Option<String>,
    #[serde(default, deserialize_with = "flag")]
    pub(super) rate: bool,
}

#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Downsampler {
    pub(super) interval: Option<String>,
    pub(super) aggregator: Option<String>,
    pub(super) fill_policy: Option<FillPolicy>,
}

/// The substitute for a missing value of an operand.
#[derive(Debug, Clone, Copy, Deserialize, Serialize)]
#[serde(try_from = "FillPolicyText")]
pub(super) struct FillPolicy {
    pub(super) policy: Policy,
    #[serde(serialize_with = "double")]
    pub(super) value: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Policy {
    None,
    Nan,
    Null,
    Zero,
    Scalar,
}

#[derive(Deserialize)]
struct FillPolicyText {
    policy: Option<Policy>,
    #[serde(default, deserialize_with = "number")]
    value: f64,
}

#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Filter {
    pub(super) id: Option<String>,
    pub(super) tags: Option<FirstOf<TagFilter, MAX_FILTERS>>,
    #[serde(default, deserialize_with = "flag")]
    pub(super) explicit_tags: bool,
}

#[derive(Debug, Clone, Deserialize, Serialize)]
pub(super) struct TagFilter {
    #[serde(default)]
    pub(super) tagk: String,
    #[serde(default)]
    pub(super) filter: String,
    #[serde(default, alias = "groupBy", deserialize_with = "flag")]
    pub(super) group_by: bool,
    #[serde(default, rename = "type")]
    pub(super) kind: String,
}

#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Metric {
    pub(super) metric: Option<String>,
    pub(super) id: Option<String>,
    pub(super) filter: Option<String>,
    pub(super) aggregator: Option<String>,
    pub(super) time_offset: Option<String>,
    pub(super) fill_policy: Option<FillPolicy>,
}

#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Expression {
    pub(super) id: Option<String>,
    pub(super) expr: Option<String>,
    #[serde(default = "union_of_all", deserialize_with = "join_or_default")]
    pub(super) join: Join,
    pub(super) fill_policy: Option<FillPolicy>,
}

#[derive(Debug, Clone, Copy, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Join {
    pub(super) operator: Option<Operator>,
    #[serde(default, deserialize_with = "flag")]
    pub(super) use_query_tags: bool,
    #[serde(default = "yes", deserialize_with = "flag")]
    pub(super) include_agg_tags: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Operator {
    #[serde(alias = "UNION", alias = "Union")]
    Union,
    #[serde(alias = "INTERSECTION", alias = "Intersection")]
    Intersection,
}

#[derive(Debug, Clone, Deserialize, Serialize)]
pub(super) struct Output {
    pub(super) id: Option<String>,
    pub(super) alias: Option<String>,
}

const fn union_of_all() -> Join {
    Join {
        operator: Some(Operator::Union),
        use_query_tags: false,
        include_agg_tags: true,
    }
}

const fn yes() -> bool {
    true
}

fn join_or_default<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Join, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_else(union_of_all))
}

/// Text, or a number that stands for one.
fn text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Form {
        Text(String),
        Number(Number),
    }
    Ok(Option::<Form>::deserialize(deserializer)?.map(|form| match form {
        Form::Text(text) => text,
        Form::Number(number) => number.to_string(),
    }))
}

fn flag<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    Flag::deserialize(deserializer).map(|flag| flag.0)
}

/// A number, also as text, `NaN` for example.
fn number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    let Some(text) = text(deserializer)? else {
        return Ok(0.0);
    };
    text.parse()
        .map_err(|_| serde::de::Error::custom(format!("`{text}` is not a number")))
}

fn double<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    if value.is_nan() {
        return serializer.serialize_str("NaN");
    }
    serializer.serialize_f64(*value)
}

impl TryFrom<FillPolicyText> for FillPolicy {
    type Error = &'static str;

    fn try_from(text: FillPolicyText) -> Result<FillPolicy, &'static str> {
        let value = text.value;
        let none = value == 0.0 || value.is_nan();
        let (policy, value) = match text.policy {
            None if value == 0.0 => (Policy::Zero, 0.0),
            None if value.is_nan() => (Policy::Nan, value),
            None => (Policy::Scalar, value),
            Some(Policy::None | Policy::Nan) if !none => {
                return Err("The value for NONE and NAN must be NaN");
            }
            Some(Policy::Null) if !none => return Err("The value for NULL must be 0"),
            Some(Policy::Zero) if value != 0.0 => return Err("The value for ZERO must be 0"),
            Some(Policy::Zero) => (Policy::Zero, 0.0),
            Some(Policy::Scalar) => (Policy::Scalar, value),
            Some(policy) => (policy, f64::NAN),
        };
        Ok(FillPolicy { policy, value })
    }
}

impl Query {
    /// Checks the request in OpenTSDB's order and with its messages; returns the arithmetic of each expression.
    pub(super) fn check(&self) -> Result<Vec<Arithmetic>, String> {
        let time = self.time.as_ref().ok_or("missing time")?;
        time.check().map_err(|_| "Invalid time")?;
        let metrics = self.metrics.as_deref().unwrap_or_default();
        let filters = self.filters.as_deref().unwrap_or_default();
        let expressions = self.expressions.as_deref().unwrap_or_default();
        if metrics.is_empty() {
            return Err("missing or empty metrics".to_owned());
        }
        for (what, count) in [
            ("metrics", count(&self.metrics)),
            ("filters", count(&self.filters)),
            ("expressions", count(&self.expressions)),
            ("outputs", count(&self.outputs)),
        ] {
            at_most(what, count, MAX_ITEMS)?;
        }
        let ids = |id: &Option<String>| id.clone();
        let mut names: HashSet<Option<String>> = HashSet::new();
        let shown = |id: &Option<String>| id.clone().unwrap_or_else(|| "null".to_owned());
        for metric in metrics {
            if !names.insert(ids(&metric.id)) {
                return Err(format!("duplicated metric id: {}", shown(&metric.id)));
            }
        }
        let mut filter_ids = HashSet::new();
        for filter in filters {
            if !filter_ids.insert(&filter.id) {
                return Err(format!("duplicated filter id: {}", shown(&filter.id)));
            }
        }
        for expression in expressions {
            if !names.insert(ids(&expression.id)) {
                let id = shown(&expression.id);
                return Err(format!("Duplicated variable or expression id: {id}"));
            }
        }
        each(metrics, "metric", Metric::is_valid)?;
        each(filters, "filter", |filter| is_id(filter.id.as_deref()))?;
        let mut parsed = Vec::with_capacity(expressions.len());
        for (index, expression) in expressions.iter().enumerate() {
            let text = expression.expr.as_deref().filter(|text| !text.is_empty());
            let (true, Some(text)) = (is_id(expression.id.as_deref()), text) else {
                return Err(format!("Invalid expression at index {index}"));
            };
            let arithmetic = Arithmetic::parse(text, Quirks::OPENTSDB);
            parsed.push(arithmetic.map_err(|error| error.to_string())?);
        }
        for metric in metrics {
            let requested = metric.filter.as_ref().filter(|filter| !filter.is_empty());
            if let Some(requested) = requested.filter(|_| self.filters.is_some())
                && !filters.iter().any(|filter| filter.id.as_ref() == Some(requested))
            {
                let id = shown(&metric.id);
                return Err(format!("unrecognized filter id {requested} in metric {id}"));
            }
        }
        for (expression, arithmetic) in expressions.iter().zip(&parsed) {
            let known = |name: &&String| !names.contains(&Some((*name).clone()));
            if let Some(name) = arithmetic.names().iter().find(known) {
                let text = shown(&expression.expr);
                return Err(format!("Expression [{text}] was missing input {name}"));
            }
        }
        Ok(parsed)
    }
}

/// The number of elements of a list, including those that were dropped.
fn count<T, const MAX: usize>(list: &Option<FirstOf<T, MAX>>) -> usize {
    list.as_ref().map_or(0, |list| list.count)
}

fn each<T>(items: &[T], what: &str, is_valid: impl Fn(&T) -> bool) -> Result<(), String> {
    match items.iter().position(|item| !is_valid(item)) {
        Some(index) => Err(format!("Invalid {what} at index {index}")),
        None => Ok(()),
    }
}

/// Rejects long lists.
pub(super) fn at_most(what: &str, count: usize, max: usize) -> Result<(), String> {
    if count <= max {
        return Ok(());
    }
    Err(format!("query has {count} {what}, at most {max} are allowed"))
}

fn is_id(id: Option<&str>) -> bool {
    let Some(id) = id.filter(|id| !id.is_empty()) else {
        return false;
    };
    let is_digit = id.chars().count() == 1 && id.starts_with(|c: char| c.is_numeric());
    id.chars().all(char::is_alphanumeric) && !is_digit
}

/// Letters may be large here, but not where the aggregator is used.
fn is_aggregator(name: &str) -> bool {
    let name = name.to_lowercase();
    Aggregator::ALL.iter().any(|aggregator| aggregator.name() == name)
}

impl Timespan {
    /// Checks that the times are given. They are parsed later, where an invalid one is reported.
    fn check(&self) -> Result<(), ()> {
        let given = |text: &Option<String>| text.as_ref().is_some_and(|text| !text.is_empty());
        let downsampler_is_valid = self.downsampler.as_ref().is_none_or(|downsampler| {
            let interval = downsampler.interval.as_deref().unwrap_or_default();
            let aggregator = downsampler.aggregator.as_deref().unwrap_or_default();
            parse_duration(interval).is_ok() && is_aggregator(aggregator)
        });
        let aggregator = self.aggregator.as_deref().unwrap_or_default();
        let is_valid = given(&self.start) && downsampler_is_valid && is_aggregator(aggregator);
        if is_valid { Ok(()) } else { Err(()) }
    }
}

impl Metric {
    fn is_valid(&self) -> bool {
        let aggregator = self.aggregator.as_deref().filter(|name| !name.is_empty());
        self.metric.as_ref().is_some_and(|metric| !metric.is_empty())
            && is_id(self.id.as_deref())
            && aggregator.is_none_or(is_aggregator)
    }
}

impl Filter {
    /// Refuses more tags than a query may have.
    pub(super) fn check(&self) -> Result<(), String> {
        at_most("tags and filters", count(&self.tags), MAX_FILTERS)
    }
}
