//! Parses a request of `/api/query` into a query of the engine.
//!
//! Options that change the result and are not implemented (deleting) are rejected:
//! ignoring them would return a different result. Options without effect on the result and unknown fields are
//! ignored.
//!
//! Source: OpenTSDB 2.4, `QueryRpc.parseQuery`, `TSQuery.validateAndSetQuery`,
//! `TSSubQuery.validateAndSetQuery`.

use std::collections::BTreeMap;

use jiff::tz::TimeZone;
use oxtsdb_query::filter::{FilterError, MAX_FILTERS, TagFilter};
use oxtsdb_query::function::downsample::Downsample;
use oxtsdb_query::language::time::{TimeError, find_zone, is_date, is_query_time, parse_time};
use oxtsdb_query::language::{Expression, LanguageError, parse_aggregator, parse_tsuids};
use oxtsdb_query::without_identical;
use oxtsdb_query::{
    AnnotationSelection, HistogramResults, MAX_PERCENTILES, QuerySpec, Quirks, RateOptions, RollupRequest,
    RollupUsage, SeriesFilter, Source, SubQuery,
};
use serde::Deserialize;
use serde::de::Deserializer;
use serde_json::value::RawValue;

use crate::http::error::HttpError;
use crate::http::parameters::Parameters;
use crate::http::query::bounded::FirstOf;
use crate::http::query::failure;
use crate::http::query::flag::Flag;
use crate::http::query::query_echo::QueryEcho;
use crate::http::query::rules::QueryRules;
use crate::http::query::scalar::{Percentile, Text, Whole};

/// Most sub-queries of a request. OpenTSDB limits only the size of the request; removing identical sub-queries
/// takes quadratic time.
const MAX_SUB_QUERIES: usize = 1000;

/// A query and the form of its response.
#[derive(Debug, PartialEq)]
pub(in crate::http) struct ParsedQuery {
    pub(in crate::http) spec: QuerySpec,
    pub(super) output: Output,
    /// The sub-queries as the client wrote them.
    pub(super) echoes: Vec<QueryEcho>,
    /// Whether the points are deleted after they were read.
    pub(super) delete: bool,
}

/// The form of a response.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(in crate::http) struct Output {
    /// Points as arrays of two instead of an object.
    pub(super) arrays: bool,
    /// Timestamps in milliseconds instead of seconds.
    pub(super) millis: bool,
    /// Without NaN points.
    pub(super) omits_nan: bool,
    /// With the TSUIDs of each group.
    pub(super) tsuids: bool,
    /// With statistics of each group.
    pub(super) stats: bool,
    /// With statistics of the whole query.
    pub(super) summary: bool,
    /// With the sub-query of each group.
    pub(super) query: bool,
}

/// Parses the query string of a GET, with dates and calendars in `zone`.
pub(in crate::http) fn from_parameters(
    parameters: &Parameters,
    rules: QueryRules,
    zone: &TimeZone,
    now_ms: i64,
) -> Result<ParsedQuery, HttpError> {
    from_parameters_and(parameters, rules, zone, now_ms, || Ok(Vec::new()))
}

/// Parses the query string of a GET and appends the sub-queries that `others` returns.
pub(super) fn from_parameters_and(
    parameters: &Parameters,
    rules: QueryRules,
    zone: &TimeZone,
    now_ms: i64,
    others: impl FnOnce() -> Result<Vec<String>, HttpError>,
) -> Result<ParsedQuery, HttpError> {
    let start = parameters
        .get("start")
        .filter(|start| !start.is_empty())
        .ok_or_else(|| HttpError::bad_request("Missing parameter <code>start</code>"))?;
    let of_language = |error: LanguageError| failure::language_error(&error);
    let mut expressions = Vec::new();
    for text in parameters.all("tsuid").chain(parameters.all("tsuids")) {
        expressions.push(Expression::from_tsuids(text).map_err(of_language)?);
    }
    for text in parameters.all("m") {
        expressions.push(Expression::from_metric(text).map_err(of_language)?);
    }
    for text in &others()? {
        expressions.push(Expression::from_metric(text).map_err(of_language)?);
    }
    if expressions.is_empty() {
        return Err(HttpError::bad_request("Missing sub queries"));
    }
    at_most("sub-queries", expressions.len(), MAX_SUB_QUERIES)?;
    let range = range(start, parameters.get("end"), zone, now_ms)?;
    let mut sub_queries = Vec::with_capacity(expressions.len());
    for expression in expressions {
        at_most("tags and filters", expression.tags.len(), MAX_FILTERS)?;
        let echo = QueryEcho::from_expression(&expression);
        sub_queries.push((expression.sub_query(zone).map_err(of_language)?, echo));
    }
    check_times(range)?;
    let output = Output {
        arrays: parameters.has("arrays"),
        millis: parameters.has("ms"),
        omits_nan: rules.omits_nan,
        tsuids: parameters.has("show_tsuids"),
        stats: parameters.has("show_stats"),
        summary: parameters.has("show_summary"),
        query: parameters.has("show_query"),
    };
    let annotations = annotations(
        parameters.has("no_annotations"),
        parameters.has("global_annotations"),
    );
    Ok(parsed_query(range, sub_queries, (output, annotations), rules))
}

/// Parses the body of a POST.
pub(super) fn from_json(
    content: &[u8],
    parameters: &Parameters,
    rules: QueryRules,
    now_ms: i64,
) -> Result<ParsedQuery, HttpError> {
    if content.is_empty() {
        return Err(HttpError::missing_content());
    }
    // OpenTSDB returns 500 and "null pointer" for both.
    let Some(body) = first_value(content)? else {
        return Err(HttpError::bad_request("Missing query, found null"));
    };
    let Some(queries) = body.queries else {
        return Err(HttpError::bad_request("Missing queries"));
    };
    at_most("sub-queries", queries.count, MAX_SUB_QUERIES)?;
    // OpenTSDB reads the filters together with the JSON, before it looks at anything else.
    let mut filters = Vec::new();
    for sub_query in &queries.kept {
        filters.push(sub_query.filters()?);
    }
    let Some(start) = scalar(body.start)?.filter(|start| !start.is_empty()) else {
        return Err(HttpError::bad_request("Missing start time"));
    };
    let zone = match body
        .timezone
        .as_ref()
        .map(|zone| zone.0.as_str())
        .filter(|zone| !zone.is_empty())
    {
        Some(name) => find_zone(name),
        None => Ok(TimeZone::UTC),
    };
    let end = scalar(body.end)?;
    // As in OpenTSDB, an unknown zone is an error only if a time needs it.
    let zone_of_dates = match &zone {
        Ok(zone) => zone,
        Err(_) if !is_date(&start) && !end.as_deref().is_some_and(is_date) => &TimeZone::UTC,
        Err(error) => return Err(bad_request(error)),
    };
    let range = range(&start, end.as_deref(), zone_of_dates, now_ms)?;
    if queries.kept.is_empty() {
        return Err(HttpError::bad_request("Missing queries"));
    }
    if body.delete.0 && !rules.allow_delete {
        return Err(failure::delete_not_allowed());
    }
    let calendar = RequestCalendar {
        zone,
        always: body.use_calendar.0,
    };
    let mut sub_queries = Vec::with_capacity(queries.kept.len());
    for (sub_query, filters) in queries.kept.into_iter().zip(filters) {
        let echo = sub_query.echo();
        sub_queries.push((sub_query.read(filters, &calendar)?, echo));
    }
    check_times(range)?;
    let output = Output {
        arrays: parameters.has("arrays"),
        millis: body.ms_resolution.0 || parameters.has("ms"),
        omits_nan: rules.omits_nan,
        tsuids: body.show_tsuids.0,
        stats: body.show_stats.0,
        summary: body.show_summary.0,
        query: body.show_query.0,
    };
    let annotations = annotations(body.no_annotations.0, body.global_annotations.0);
    let mut query = parsed_query(range, sub_queries, (output, annotations), rules);
    query.delete = body.delete.0;
    Ok(query)
}

fn parsed_query(
    (start_ms, end_ms): (i64, i64),
    sub_queries: Vec<(SubQuery, QueryEcho)>,
    (output, annotations): (Output, AnnotationSelection),
    rules: QueryRules,
) -> ParsedQuery {
    let (sub_queries, echoes) = without_identical(sub_queries);
    let spec = QuerySpec {
        start_ms,
        end_ms,
        sub_queries,
        duplicates: rules.duplicates(),
        max_scanned_points: None,
        quirks: Quirks::OPENTSDB,
        skip_damaged_rows: false,
        with_surroundings: false,
        with_infinities: false,
        annotations,
    };
    ParsedQuery {
        spec,
        output,
        echoes,
        delete: false,
    }
}

/// The annotations of a response: without annotations of series there are no global ones either.
const fn annotations(none: bool, global: bool) -> AnnotationSelection {
    AnnotationSelection {
        of_series: !none,
        global: global && !none,
    }
}

/// The first value of a body; what follows it is ignored. `None` for `null`.
fn first_value(content: &[u8]) -> Result<Option<Body<'_>>, HttpError> {
    let mut reader = serde_json::Deserializer::from_slice(content);
    Option::deserialize(&mut reader).map_err(|error| HttpError::unreadable_json(error.to_string()))
}

/// Rejects timestamps that no point can have; OpenTSDB does so after it has parsed everything else.
pub(super) fn check_times((start_ms, end_ms): (i64, i64)) -> Result<(), HttpError> {
    let wrong = [start_ms, end_ms]
        .into_iter()
        .find(|time_ms| !is_query_time(*time_ms));
    wrong.map_or(Ok(()), |time_ms| Err(failure::not_a_time(time_ms)))
}

/// Start and end; a missing end is the current time.
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
    timezone: Option<Text>,
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
    no_annotations: Flag,
    #[serde(default)]
    global_annotations: Flag,
    #[serde(default)]
    delete: Flag,
    #[serde(default)]
    use_calendar: Flag,
    /// Parsed only to reject values that are no flag.
    #[serde(default, rename = "padding")]
    _padding: Flag,
}

/// A sub-query of a POST.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct JsonSubQuery<'a> {
    aggregator: Option<Text>,
    metric: Option<Text>,
    tsuids: Option<Vec<Text>>,
    #[serde(borrow, default, deserialize_with = "source_text")]
    tags: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "source_text")]
    filters: Option<&'a RawValue>,
    downsample: Option<Text>,
    #[serde(default)]
    rate: Flag,
    rate_options: Option<JsonRateOptions>,
    #[serde(default)]
    explicit_tags: Flag,
    percentiles: Option<FirstOf<Percentile, { MAX_PERCENTILES + 1 }>>,
    #[serde(default)]
    show_histogram_buckets: Flag,
    #[serde(default)]
    pre_aggregate: Flag,
    rollup_usage: Option<Text>,
}

/// The source of a value, also of `null`.
fn source_text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'de RawValue>, D::Error> {
    Deserialize::deserialize(deserializer).map(Some)
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct JsonFilter {
    #[serde(rename = "type")]
    kind: Option<Text>,
    tagk: Option<Text>,
    filter: Option<Text>,
    #[serde(default, alias = "group_by")]
    group_by: Flag,
}

/// Rate options; unlike other objects they reject unknown fields.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct JsonRateOptions {
    #[serde(default)]
    counter: Flag,
    counter_max: Option<Whole>,
    reset_value: Option<Whole>,
    #[serde(default)]
    drop_resets: Flag,
}

/// The time zone of a request and whether all downsampling follows the calendar.
struct RequestCalendar {
    zone: Result<TimeZone, TimeError>,
    /// Applies the calendar to all downsampling.
    always: bool,
}

impl RequestCalendar {
    fn downsample(&self, text: &str) -> Result<Downsample, HttpError> {
        let zone = match &self.zone {
            Ok(zone) => zone,
            // As in OpenTSDB, also if no interval needs the zone.
            Err(_) => {
                let message = "The timezone specification could not be found";
                return Err(HttpError::bad_request(message));
            }
        };
        Downsample::parse(text, zone, self.always).map_err(bad_request)
    }
}

impl JsonSubQuery<'_> {
    /// The filters; errors are reported as errors of the JSON. If the body has both `tags` and `filters`, the
    /// last of them applies, also if it is empty; the other is parsed and discarded.
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

    /// The parts that the response repeats.
    fn echo(&self) -> QueryEcho {
        let tsuids = self.tsuids.as_ref();
        QueryEcho {
            metric: self.metric.as_ref().map(|text| text.0.clone()),
            tsuids: tsuids.map(|tsuids| tsuids.iter().map(|tsuid| tsuid.0.clone()).collect()),
            downsample: self.downsample.as_ref().map(|text| text.0.clone()),
            with_rate_options: self.rate_options.is_some(),
        }
    }

    fn read(self, filters: Vec<TagFilter>, calendar: &RequestCalendar) -> Result<SubQuery, HttpError> {
        let of_language = |error: LanguageError| failure::language_error(&error);
        let aggregator = parse_aggregator(&self.aggregator.unwrap_or_default().0).map_err(of_language)?;
        let rollup = RollupRequest {
            usage: self
                .rollup_usage
                .as_ref()
                .map(|usage| RollupUsage::parse(&usage.0)),
            pre_aggregate: self.pre_aggregate.0,
        };
        let metric = self
            .metric
            .map(|metric| metric.0)
            .filter(|metric| !metric.is_empty());
        let series = match (self.tsuids.filter(|tsuids| !tsuids.is_empty()), metric) {
            (Some(tsuids), _) => Ok(tsuids),
            (None, Some(metric)) => Err(metric),
            (None, None) => return Err(of_language(LanguageError::NoSource)),
        };
        let downsample = self
            .downsample
            .filter(|text| !text.0.is_empty())
            .map(|text| calendar.downsample(&text.0))
            .transpose()?;
        let source = match series {
            Ok(tsuids) => Source::Tsuids(parse_tsuids(&tsuids).map_err(of_language)?),
            Err(metric) => Source::Metric(metric),
        };
        let rate = self
            .rate
            .0
            .then(|| self.rate_options.map_or_else(RateOptions::default, Into::into));
        let sub_query = SubQuery {
            source,
            filter: SeriesFilter {
                tags: filters,
                explicit_tags: self.explicit_tags.0,
            },
            aggregator,
            downsample,
            rate,
            histogram: None,
            rollup,
        };
        let percentiles = self.percentiles.map(|list| list.kept).unwrap_or_default();
        let percentiles = percentiles.into_iter().map(|percentile| percentile.0).collect();
        match HistogramResults::from_parameters(percentiles, self.show_histogram_buckets.0) {
            Some(results) => sub_query.with_histograms(results).map_err(bad_request),
            None => Ok(sub_query),
        }
    }
}

/// The entries of `filters`.
fn explicit_filters(source: &RawValue) -> Result<Vec<TagFilter>, HttpError> {
    let list: Option<FirstOf<JsonFilter, MAX_FILTERS>> = read_json(source)?;
    let list = list.unwrap_or_default();
    at_most("tags and filters", list.count, MAX_FILTERS)?;
    let text = |text: &Option<Text>| text.clone().unwrap_or_default().0;
    let filters = list.kept.iter().map(|filter| {
        let (kind, key) = (text(&filter.kind), text(&filter.tagk));
        TagFilter::new(&kind, &key, &text(&filter.filter), filter.group_by.0).map_err(bad_filter)
    });
    filters.collect()
}

/// The entries of `tags`.
fn filters_of_tags(source: &RawValue) -> Result<Vec<TagFilter>, HttpError> {
    let tags: BTreeMap<String, Option<Text>> = read_json(source)?;
    at_most("tags and filters", tags.len(), MAX_FILTERS)?;
    tags.iter()
        .map(|(key, value)| {
            let value = value.as_ref().map_or("", |value| value.0.as_str());
            TagFilter::from_tag(key, value).map_err(bad_filter)
        })
        .collect()
}

fn bad_filter(error: FilterError) -> HttpError {
    HttpError::unreadable_json(error.to_string())
}

fn read_json<'a, T: Deserialize<'a>>(source: &'a RawValue) -> Result<T, HttpError> {
    serde_json::from_str(source.get()).map_err(|error| HttpError::unreadable_json(error.to_string()))
}

impl From<JsonRateOptions> for RateOptions {
    fn from(json: JsonRateOptions) -> RateOptions {
        let default = RateOptions::default();
        RateOptions {
            counter: json.counter.0,
            counter_max: json.counter_max.map_or(default.counter_max, |max| max.0),
            reset_value: json.reset_value.map_or(default.reset_value, |reset| reset.0),
            drop_resets: json.drop_resets.0,
        }
    }
}

/// The text of a scalar; a number keeps its source, since `1356998400.5` is parsed as a text.
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

#[cfg(test)]
mod tests;
