//! From a request to a question for the engine.
//!
//! What this server does not have is refused and not ignored, because an answer without it would be
//! another answer: deleting, histograms, pre-aggregates. What has no effect on the answer
//! is ignored, as are unknown fields.
//!
//! Source: OpenTSDB 2.4, `QueryRpc.parseQuery`, `TSQuery.validateAndSetQuery`,
//! `TSSubQuery.validateAndSetQuery`.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use jiff::tz::TimeZone;
use oxtsdb_schema::DuplicatePolicy;
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, SeqAccess, Visitor};
use serde_json::value::RawValue;

use crate::http::error::HttpError;
use crate::http::parameters::Parameters;
use crate::http::query::asked::Asked;
use crate::http::query::flag::Flag;
use crate::http::query::{QueryRules, failure};
use crate::query::downsample::Downsample;
use crate::query::filter::{FilterError, MAX_FILTERS, TagFilter};
use crate::query::language::{parse_aggregator, parse_metric_query, parse_tsuid, parse_tsuid_query};
use crate::query::spec::without_identical;
use crate::query::time::{TimeError, find_zone, is_date, parse_time};
use crate::query::{QuerySpec, Quirks, RateOptions, SeriesFilter, Source, SubQuery};

/// Sub-queries of a request. OpenTSDB has no limit but the size of the request; finding equal ones
/// takes quadratic time.
const MAX_SUB_QUERIES: usize = 1000;

/// A query, and how its answer is to look.
#[derive(Debug, PartialEq)]
pub(super) struct Question {
    pub(super) spec: QuerySpec,
    pub(super) output: Output,
    /// The sub-queries as they were asked.
    pub(super) asked: Vec<Asked>,
}

/// How an answer is to look.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Output {
    /// Points as arrays of two, not as an object.
    pub(super) arrays: bool,
    /// Instants in milliseconds, not in seconds.
    pub(super) millis: bool,
    /// With the TSUIDs of each group.
    pub(super) tsuids: bool,
    /// With figures for each group.
    pub(super) stats: bool,
    /// With figures for the whole.
    pub(super) summary: bool,
    /// With the sub-query of each group.
    pub(super) query: bool,
}

/// Reads the query string of a GET; dates and calendars are those of the zone.
pub(super) fn from_parameters(
    parameters: &Parameters,
    rules: QueryRules,
    zone: &TimeZone,
    now_ms: i64,
) -> Result<Question, HttpError> {
    let start = parameters
        .get("start")
        .filter(|start| !start.is_empty())
        .ok_or_else(|| HttpError::bad_request("Missing parameter <code>start</code>"))?;
    let mut sub_queries = Vec::new();
    for text in parameters.all("tsuid").chain(parameters.all("tsuids")) {
        let sub_query = parse_tsuid_query(text, zone).map_err(bad_request)?;
        sub_queries.push((sub_query, Asked::of_expression(text)));
    }
    for text in parameters.all("m") {
        let sub_query = parse_metric_query(text, zone).map_err(bad_request)?;
        at_most("tags and filters", sub_query.filter.tags.len(), MAX_FILTERS)?;
        sub_queries.push((sub_query, Asked::of_expression(text)));
    }
    if sub_queries.is_empty() {
        return Err(HttpError::bad_request("Missing sub queries"));
    }
    at_most("sub-queries", sub_queries.len(), MAX_SUB_QUERIES)?;
    let range = range(start, parameters.get("end"), zone, now_ms)?;
    let output = Output {
        arrays: parameters.has("arrays"),
        millis: parameters.has("ms"),
        tsuids: parameters.has("show_tsuids"),
        stats: parameters.has("show_stats"),
        summary: parameters.has("show_summary"),
        query: parameters.has("show_query"),
    };
    Ok(question(range, sub_queries, output, rules))
}

/// Reads the body of a POST.
pub(super) fn from_json(
    content: &[u8],
    parameters: &Parameters,
    rules: QueryRules,
    now_ms: i64,
) -> Result<Question, HttpError> {
    if content.is_empty() {
        return Err(HttpError::missing_content());
    }
    let body: Body<'_> =
        serde_json::from_slice(content).map_err(|error| HttpError::unreadable_json(error.to_string()))?;
    let queries = body.queries.unwrap_or_default();
    at_most("sub-queries", queries.count, MAX_SUB_QUERIES)?;
    // OpenTSDB reads the filters together with the JSON, before it looks at anything else.
    let mut filters = Vec::new();
    for sub_query in &queries.kept {
        filters.push(sub_query.filters()?);
    }
    let Some(start) = scalar(body.start)?.filter(|start| !start.is_empty()) else {
        return Err(HttpError::bad_request("Missing start time"));
    };
    let zone = match body.timezone.as_deref().filter(|zone| !zone.is_empty()) {
        Some(name) => find_zone(name),
        None => Ok(TimeZone::UTC),
    };
    let end = scalar(body.end)?;
    // A zone is looked for where it is needed only, as in OpenTSDB.
    let zone_of_dates = match &zone {
        Ok(zone) => zone,
        Err(_) if !is_date(&start) && !end.as_deref().is_some_and(is_date) => &TimeZone::UTC,
        Err(error) => return Err(bad_request(error)),
    };
    let range = range(&start, end.as_deref(), zone_of_dates, now_ms)?;
    if queries.kept.is_empty() {
        return Err(HttpError::bad_request("Missing queries"));
    }
    if body.delete.0 {
        return Err(not_supported("delete"));
    }
    let calendar = RequestCalendar {
        zone,
        always: body.use_calendar.0,
    };
    let mut sub_queries = Vec::with_capacity(queries.kept.len());
    for (sub_query, filters) in queries.kept.into_iter().zip(filters) {
        let asked = sub_query.asked();
        sub_queries.push((sub_query.read(filters, &calendar)?, asked));
    }
    let output = Output {
        arrays: parameters.has("arrays"),
        millis: body.ms_resolution.0 || parameters.has("ms"),
        tsuids: body.show_tsuids.0,
        stats: body.show_stats.0,
        summary: body.show_summary.0,
        query: body.show_query.0,
    };
    Ok(question(range, sub_queries, output, rules))
}

fn question(
    (start_ms, end_ms): (i64, i64),
    sub_queries: Vec<(SubQuery, Asked)>,
    output: Output,
    rules: QueryRules,
) -> Question {
    let duplicates = if rules.fix_duplicates {
        DuplicatePolicy::KeepNewest
    } else {
        DuplicatePolicy::Error
    };
    let (sub_queries, asked) = without_identical(sub_queries);
    let spec = QuerySpec {
        start_ms,
        end_ms,
        sub_queries,
        duplicates,
        max_scanned_points: None,
        quirks: Quirks::OPENTSDB,
    };
    Question { spec, output, asked }
}

/// Start and end; an end that is missing is the present.
fn range(start: &str, end: Option<&str>, zone: &TimeZone, now_ms: i64) -> Result<(i64, i64), HttpError> {
    let start_ms = parse_time(start, now_ms, zone).map_err(bad_request)?;
    let end_ms = match end.filter(|end| !end.is_empty()) {
        Some(end) => parse_time(end, now_ms, zone).map_err(bad_request)?,
        None => now_ms,
    };
    if end_ms <= start_ms {
        return Err(failure::end_not_after_start(start_ms, end_ms));
    }
    Ok((start_ms, end_ms))
}

/// The body of a POST.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Body<'a> {
    #[serde(borrow)]
    start: Option<&'a RawValue>,
    #[serde(borrow)]
    end: Option<&'a RawValue>,
    timezone: Option<String>,
    #[serde(borrow)]
    queries: Option<FirstOf<JsonSubQuery<'a>, MAX_SUB_QUERIES>>,
    #[serde(default)]
    ms_resolution: Flag,
    #[serde(default, rename = "showTSUIDs")]
    show_tsuids: Flag,
    #[serde(default)]
    show_query: Flag,
    #[serde(default)]
    show_stats: Flag,
    #[serde(default)]
    show_summary: Flag,
    #[serde(default)]
    delete: Flag,
    #[serde(default)]
    use_calendar: Flag,
}

/// A sub-query of a POST.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct JsonSubQuery<'a> {
    aggregator: Option<String>,
    metric: Option<String>,
    tsuids: Option<Vec<String>>,
    #[serde(borrow, default, deserialize_with = "source_text")]
    tags: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "source_text")]
    filters: Option<&'a RawValue>,
    downsample: Option<String>,
    #[serde(default)]
    rate: Flag,
    rate_options: Option<JsonRateOptions>,
    #[serde(default)]
    explicit_tags: Flag,
    percentiles: Option<Vec<f64>>,
    #[serde(default)]
    show_histogram_buckets: Flag,
    #[serde(default)]
    pre_aggregate: Flag,
}

/// The source of a value, that of `null` too.
fn source_text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'de RawValue>, D::Error> {
    Deserialize::deserialize(deserializer).map(Some)
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct JsonFilter {
    #[serde(rename = "type")]
    kind: Option<String>,
    tagk: Option<String>,
    filter: Option<String>,
    #[serde(default)]
    group_by: Flag,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct JsonRateOptions {
    #[serde(default)]
    counter: Flag,
    counter_max: Option<i64>,
    reset_value: Option<i64>,
    #[serde(default)]
    drop_resets: Flag,
}

/// The first `MAX` elements of an array. The others are counted and not kept: `{}` has 3 bytes in a
/// body, and some hundred in memory.
#[derive(Debug)]
struct FirstOf<T, const MAX: usize> {
    kept: Vec<T>,
    /// Of all elements.
    count: usize,
}

impl<T, const MAX: usize> Default for FirstOf<T, MAX> {
    fn default() -> Self {
        Self {
            kept: Vec::new(),
            count: 0,
        }
    }
}

impl<'de, T: Deserialize<'de>, const MAX: usize> Deserialize<'de> for FirstOf<T, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(FirstOfVisitor(PhantomData))
    }
}

struct FirstOfVisitor<T, const MAX: usize>(PhantomData<T>);

impl<'de, T: Deserialize<'de>, const MAX: usize> Visitor<'de> for FirstOfVisitor<T, MAX> {
    type Value = FirstOf<T, MAX>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Self::Value, A::Error> {
        let mut first = FirstOf::default();
        while first.kept.len() < MAX
            && let Some(element) = elements.next_element()?
        {
            first.kept.push(element);
        }
        first.count = first.kept.len();
        if first.count == MAX {
            while elements.next_element::<IgnoredAny>()?.is_some() {
                first.count += 1;
            }
        }
        Ok(first)
    }
}

/// The value of a tag: a text, or a scalar that stands for one.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum TagText {
    Text(String),
    Integer(i64),
    Truth(bool),
}

impl TagText {
    fn text(&self) -> String {
        match self {
            TagText::Text(text) => text.clone(),
            TagText::Integer(number) => number.to_string(),
            TagText::Truth(truth) => truth.to_string(),
        }
    }
}

/// The calendar of a request.
struct RequestCalendar {
    zone: Result<TimeZone, TimeError>,
    /// For all downsampling.
    always: bool,
}

impl RequestCalendar {
    fn downsample(&self, text: &str) -> Result<Downsample, HttpError> {
        let zone = match &self.zone {
            Ok(zone) => zone,
            // Also if nothing needs it.
            Err(_) => {
                let message = "The timezone specification could not be found";
                return Err(HttpError::bad_request(message));
            }
        };
        Downsample::parse(text, zone, self.always).map_err(bad_request)
    }
}

impl JsonSubQuery<'_> {
    /// The filters; errors are told as errors of the JSON. Of `tags` and `filters` the one counts that
    /// comes last in the body, also if it is empty or `null`; the other is read and forgotten.
    fn filters(&self) -> Result<Vec<TagFilter>, HttpError> {
        let of_filters = self.filters.map_or(Ok(Vec::new()), explicit_filters)?;
        let of_tags = self.tags.map_or(Ok(Vec::new()), filters_of_tags)?;
        // Both are slices of the body.
        let place = |source: Option<&RawValue>| source.map(|source| source.get().as_ptr());
        Ok(if place(self.tags) > place(self.filters) {
            of_tags
        } else {
            of_filters
        })
    }

    /// What an answer shows of it.
    fn asked(&self) -> Asked {
        Asked {
            tsuids: self.tsuids.clone(),
            downsample: self.downsample.clone(),
            with_rate_options: self.rate_options.is_some(),
        }
    }

    fn read(self, filters: Vec<TagFilter>, calendar: &RequestCalendar) -> Result<SubQuery, HttpError> {
        let aggregator =
            parse_aggregator(self.aggregator.as_deref().unwrap_or_default()).map_err(bad_request)?;
        for (name, asked) in [
            (
                "percentiles",
                self.percentiles.is_some_and(|list| !list.is_empty()),
            ),
            ("showHistogramBuckets", self.show_histogram_buckets.0),
            ("preAggregate", self.pre_aggregate.0),
        ] {
            if asked {
                return Err(not_supported(name));
            }
        }
        let source = match (self.tsuids.filter(|tsuids| !tsuids.is_empty()), self.metric) {
            (Some(tsuids), _) => {
                let tsuids = tsuids
                    .iter()
                    .map(|tsuid| parse_tsuid(tsuid))
                    .collect::<Result<_, _>>();
                Source::Tsuids(tsuids.map_err(bad_request)?)
            }
            (None, Some(metric)) if !metric.is_empty() => Source::Metric(metric),
            (None, _) => {
                let message = "Missing the metric or tsuids, provide at least one";
                return Err(HttpError::bad_request(message));
            }
        };
        let downsample = self
            .downsample
            .filter(|text| !text.is_empty())
            .map(|text| calendar.downsample(&text))
            .transpose()?;
        let rate = self
            .rate
            .0
            .then(|| self.rate_options.map_or_else(RateOptions::default, Into::into));
        Ok(SubQuery {
            source,
            filter: SeriesFilter {
                tags: filters,
                explicit_tags: self.explicit_tags.0,
            },
            aggregator,
            downsample,
            rate,
        })
    }
}

/// The entries of `filters`.
fn explicit_filters(source: &RawValue) -> Result<Vec<TagFilter>, HttpError> {
    let list: Option<FirstOf<JsonFilter, MAX_FILTERS>> = read_json(source)?;
    let list = list.unwrap_or_default();
    at_most("tags and filters", list.count, MAX_FILTERS)?;
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let filters = list.kept.iter().map(|filter| {
        let (kind, key) = (text(&filter.kind), text(&filter.tagk));
        TagFilter::new(&kind, &key, &text(&filter.filter), filter.group_by.0).map_err(bad_filter)
    });
    filters.collect()
}

/// The entries of `tags`.
fn filters_of_tags(source: &RawValue) -> Result<Vec<TagFilter>, HttpError> {
    let tags: Option<BTreeMap<String, TagText>> = read_json(source)?;
    let tags = tags.unwrap_or_default();
    at_most("tags and filters", tags.len(), MAX_FILTERS)?;
    tags.iter()
        .map(|(key, value)| TagFilter::of_tag(key, &value.text()).map_err(bad_filter))
        .collect()
}

fn bad_filter(error: FilterError) -> HttpError {
    match error {
        // Found by OpenTSDB when it looks up the values, not when it reads the JSON.
        FilterError::EmptyAlternative => bad_request(error),
        error => HttpError::unreadable_json(error.to_string()),
    }
}

fn read_json<'a, T: Deserialize<'a>>(source: &'a RawValue) -> Result<T, HttpError> {
    serde_json::from_str(source.get()).map_err(|error| HttpError::unreadable_json(error.to_string()))
}

impl From<JsonRateOptions> for RateOptions {
    fn from(json: JsonRateOptions) -> RateOptions {
        let default = RateOptions::default();
        RateOptions {
            counter: json.counter.0,
            counter_max: json.counter_max.unwrap_or(default.counter_max),
            reset_value: json.reset_value.unwrap_or(default.reset_value),
            drop_resets: json.drop_resets.0,
        }
    }
}

/// The text of a scalar: of a number its source, since `1356998400.5` is read as a text.
fn scalar(value: Option<&RawValue>) -> Result<Option<String>, HttpError> {
    let Some(source) = value.map(RawValue::get) else {
        return Ok(None);
    };
    match source.as_bytes().first() {
        Some(b'"') => serde_json::from_str(source)
            .map(Some)
            .map_err(|error| HttpError::unreadable_json(error.to_string())),
        Some(b'{' | b'[') => Err(HttpError::unreadable_json(format!(
            "expected a time, found {source}"
        ))),
        Some(b'n') | None => Ok(None),
        Some(_) => Ok(Some(source.to_owned())),
    }
}

fn bad_request(error: impl std::fmt::Display) -> HttpError {
    HttpError::bad_request(error.to_string())
}

fn at_most(what: &str, count: usize, max: usize) -> Result<(), HttpError> {
    if count <= max {
        return Ok(());
    }
    Err(HttpError::bad_request(format!(
        "query has {count} {what}, at most {max} are allowed"
    )))
}

fn not_supported(what: &str) -> HttpError {
    HttpError::bad_request(format!("Not supported: {what}"))
}

#[cfg(test)]
mod tests;
