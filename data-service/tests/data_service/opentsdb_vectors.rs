//! Responses recorded from OpenTSDB 2.4.1: the engine returns the same.
//!
//! See `testdata/README.md` for the format and the rule of comparison.
use std::collections::{BTreeMap, BTreeSet};

use jiff::tz::TimeZone;
use oxtsdb_query::RequestContext;
use oxtsdb_query::WholeResult;
use oxtsdb_query::language::time;
use oxtsdb_query::without_identical;
use oxtsdb_query::{
    Downsample, Engine, Fill, Group, Number, QueryError, QuerySpec, Quirks, RateOptions, SeriesFilter,
    Source, SubQuery, TagFilter, language,
};
use oxtsdb_schema::{DuplicatePolicy, RowKeyLayout, SaltLayout, UidKind};
use serde_json::Value as Json;

use crate::tsdb::Tsdb;

const VECTORS: &str = include_str!("../../../crates/opentsdb-front/testdata/opentsdb-query-vectors.jsonl");

/// One element of a response, for comparison.
#[derive(Clone, Debug, PartialEq)]
struct Element {
    metric: String,
    tags: BTreeMap<String, String>,
    aggregate_tags: BTreeSet<String>,
    dps: BTreeMap<i64, Token>,
}

/// A value by kind.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Token {
    Int(i64),
    Double(f64),
    Nan,
    Null,
}

/// Parses a sub-query.
fn sub_query(json: &Json, zone: &TimeZone, use_calendar: bool) -> SubQuery {
    let text = |field: &Json| field.as_str().unwrap().to_owned();
    let mut filters = Vec::new();
    for filter in json["filters"].as_array().into_iter().flatten() {
        let kind = text(&filter["type"]);
        let group_by = filter["groupBy"].as_bool().unwrap_or(false);
        filters
            .push(TagFilter::new(&kind, &text(&filter["tagk"]), &text(&filter["filter"]), group_by).unwrap());
    }
    if let Some(tags) = json["tags"].as_object() {
        let tags = tags
            .iter()
            .map(|(key, value)| (key.as_str(), value.as_str().unwrap()));
        TagFilter::add_tags(&mut filters, tags).unwrap();
    }
    let downsample = json["downsample"]
        .as_str()
        .map(|text| Downsample::parse(text, zone, use_calendar).unwrap());
    let rate = json["rate"].as_bool().unwrap_or(false).then(|| {
        let options = &json["rateOptions"];
        RateOptions {
            counter: options["counter"].as_bool().unwrap_or(false),
            counter_max: options["counterMax"].as_i64().unwrap_or(i64::MAX),
            reset_value: options["resetValue"].as_i64().unwrap_or(0),
            drop_resets: options["dropResets"].as_bool().unwrap_or(false),
        }
    });
    SubQuery {
        source: Source::Metric(text(&json["metric"])),
        filter: SeriesFilter {
            tags: filters,
            explicit_tags: json["explicitTags"].as_bool().unwrap_or(false),
        },
        aggregator: language::parse_aggregator(json["aggregator"].as_str().unwrap()).unwrap(),
        downsample,
        rate,
        histogram: None,
        rollup: oxtsdb_query::RollupRequest::default(),
    }
}

fn query_time(json: &Json, zone: &TimeZone) -> i64 {
    let text = json.as_str().map_or_else(|| json.to_string(), str::to_owned);
    time::parse_time(&text, 0, zone).unwrap()
}

fn expected_element(json: &Json) -> Element {
    let strings = |json: &Json| {
        json.as_array()
            .unwrap()
            .iter()
            .map(|t| t.as_str().unwrap().to_owned())
            .collect()
    };
    let token = |json: &Json| match json {
        Json::Null => Token::Null,
        Json::String(text) if text == "NaN" => Token::Nan,
        Json::Number(number) => number
            .as_i64()
            .map_or_else(|| Token::Double(number.as_f64().unwrap()), Token::Int),
        other => panic!("{other} is no value of a response"),
    };
    Element {
        metric: json["metric"].as_str().unwrap().to_owned(),
        tags: json["tags"]
            .as_object()
            .unwrap()
            .iter()
            .map(|(k, v)| (k.clone(), v.as_str().unwrap().to_owned()))
            .collect(),
        aggregate_tags: strings(&json["aggregateTags"]),
        dps: json["dps"]
            .as_object()
            .unwrap()
            .iter()
            .map(|(k, v)| (k.parse().unwrap(), token(v)))
            .collect(),
    }
}

fn element(group: &Group, in_ms: bool, fill: Fill) -> Element {
    let token = |number| match number {
        Number::Int(int) => Token::Int(int),
        Number::Double(double) if double.is_nan() && fill == Fill::Null => Token::Null,
        Number::Double(double) if double.is_nan() => Token::Nan,
        Number::Double(double) => Token::Double(double),
    };
    Element {
        metric: group.metric.to_string(),
        tags: group
            .tags
            .iter()
            .map(|(key, value)| (key.to_string(), value.to_string()))
            .collect(),
        aggregate_tags: group.aggregate_tags.iter().map(ToString::to_string).collect(),
        dps: group
            .points
            .iter()
            .map(|(ms, value)| (if in_ms { ms } else { ms / 1000 }, token(value)))
            .collect(),
    }
}

fn sorted(mut elements: Vec<Element>) -> Vec<Element> {
    elements.sort_by(|a, b| (&a.metric, &a.tags).cmp(&(&b.metric, &b.tags)));
    elements
}

/// The instants of each result.
fn instants(elements: Vec<Element>) -> Vec<Vec<i64>> {
    let elements = sorted(elements).into_iter();
    elements
        .map(|element| element.dps.into_keys().collect())
        .collect()
}

/// Loads all vectors into one store and compares all responses; returns the number of sub-queries.
async fn compare_all(layout: RowKeyLayout) -> usize {
    let tsdb = Tsdb::new(layout).await;
    let vectors: Vec<Json> = VECTORS
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    for point in vectors
        .iter()
        .flat_map(|vector| vector["points"].as_array().unwrap())
    {
        tsdb.put(point).await;
    }
    let engine = tsdb.engine();
    let (mut compared, mut differing) = (0, Vec::new());
    for vector in &vectors {
        let (name, json) = (vector["name"].as_str().unwrap(), &vector["query"]);
        let zone = json["timezone"]
            .as_str()
            .map_or(TimeZone::UTC, |zone| time::find_zone(zone).unwrap());
        let mut expected: Vec<Element> = vector["response"]
            .as_array()
            .unwrap()
            .iter()
            .map(expected_element)
            .collect();
        let use_calendar = json["useCalendar"].as_bool().unwrap_or(false);
        let sub_queries = json["queries"].as_array().unwrap().iter();
        let (sub_queries, _) = without_identical(
            sub_queries
                .map(|query| (sub_query(query, &zone, use_calendar), ()))
                .collect(),
        );
        let query = QuerySpec {
            start_ms: query_time(&json["start"], &zone),
            end_ms: query_time(&json["end"], &zone),
            sub_queries: sub_queries.clone(),
            duplicates: DuplicatePolicy::Error,
            max_scanned_points: None,
            quirks: Quirks::OPENTSDB,
            skip_damaged_rows: false,
            with_surroundings: false,
            with_infinities: false,
            annotations: oxtsdb_query::AnnotationSelection::default(),
        };
        let groups = match engine.collect(query, RequestContext::default()).await {
            Ok(result) => result.groups,
            Err(error) => panic!("{name}: {error}"),
        };
        let in_ms = json["msResolution"].as_bool().unwrap_or(false);
        for (index, sub_query) in sub_queries.iter().enumerate() {
            let fill = sub_query
                .downsample
                .as_ref()
                .map_or(Fill::None, |downsample| downsample.fill);
            let ours: Vec<_> = groups
                .iter()
                .filter(|group| group.query == index)
                .map(|group| element(group, in_ms, fill))
                .collect();
            let theirs = expected.drain(..ours.len().min(expected.len())).collect();
            compared += 1;
            // OpenTSDB orders series by their salt first, and these depend on the order.
            let is_ordered = ["first", "last", "diff"].contains(&sub_query.aggregator.name());
            let is_equal = if is_ordered && layout.salt.width() > 0 {
                instants(ours.clone()) == instants(theirs)
            } else {
                sorted(ours.clone()) == sorted(theirs)
            };
            if !is_equal {
                differing.push(format!(
                    "{name} sub-query {index}: {sub_query:?}\n  ours {ours:?}"
                ));
            }
        }
        if !expected.is_empty() {
            differing.push(format!("{name}: {} elements too few", expected.len()));
        }
    }
    assert!(
        differing.is_empty(),
        "{} differences:\n{}",
        differing.len(),
        differing.join("\n")
    );
    compared
}

#[tokio::test(flavor = "multi_thread")]
async fn results_equal_opentsdbs() {
    assert_eq!(compare_all(RowKeyLayout::default()).await, 280);
}

#[tokio::test(flavor = "multi_thread")]
async fn salt_changes_only_results_that_depend_on_the_order_of_series() {
    let layout = RowKeyLayout {
        salt: SaltLayout::new(1, 20).unwrap(),
        ..RowKeyLayout::default()
    };
    assert_eq!(compare_all(layout).await, 280);
}

fn a_query(source: Source, tags: Vec<TagFilter>) -> QuerySpec {
    let aggregator = language::parse_aggregator("sum").unwrap();
    QuerySpec {
        start_ms: 1_356_998_400_000,
        end_ms: 1_357_002_000_000,
        sub_queries: vec![SubQuery {
            source,
            filter: SeriesFilter {
                tags,
                explicit_tags: false,
            },
            aggregator,
            downsample: None,
            rate: None,
            histogram: None,
            rollup: oxtsdb_query::RollupRequest::default(),
        }],
        duplicates: DuplicatePolicy::Error,
        max_scanned_points: None,
        quirks: Quirks::OPENTSDB,
        skip_damaged_rows: false,
        with_surroundings: false,
        with_infinities: false,
        annotations: oxtsdb_query::AnnotationSelection::default(),
    }
}

#[tokio::test]
async fn unknown_names_fail_the_query() {
    let (tsdb, engine) = vector("v67_").await;

    let metric = tsdb.directory.names_of(UidKind::Metric).pop().unwrap();
    let run = |metric: &str, kind: &str, key: &str, filter: &str| {
        let filters = vec![TagFilter::new(kind, key, filter, false).unwrap()];
        engine.collect(
            a_query(Source::Metric(metric.to_owned()), filters),
            RequestContext::default(),
        )
    };
    let error = |result: Result<_, QueryError>| result.map(|_: WholeResult| ()).unwrap_err().to_string();
    assert_eq!(
        error(run("nope", "wildcard", "host", "*").await),
        "no such name for 'metrics': 'nope'"
    );
    for kind in ["wildcard", "not_literal_or"] {
        assert_eq!(
            error(run(&metric, kind, "nokey", "*").await),
            "no such name for 'tagk': 'nokey'"
        );
    }
    assert_eq!(
        error(run(&metric, "literal_or", "host", "nosuch").await),
        "no such name for 'tagv': 'nosuch'"
    );
    assert!(run(&metric, "not_literal_or", "host", "nosuch").await.is_ok());
    assert!(
        run(&metric, "iliteral_or", "host", "nosuch")
            .await
            .unwrap()
            .groups
            .is_empty()
    );
}

/// The points of one vector, and an engine over them.
async fn vector(name: &str) -> (Tsdb, Engine) {
    let tsdb = Tsdb::new(RowKeyLayout::default()).await;
    for line in VECTORS.lines().filter(|line| line.contains(name)) {
        let vector: Json = serde_json::from_str(line).unwrap();
        for point in vector["points"].as_array().unwrap() {
            tsdb.put(point).await;
        }
    }
    let engine = tsdb.engine();
    (tsdb, engine)
}

#[tokio::test]
async fn finds_series_by_tsuid() {
    let (tsdb, engine) = vector("v29_").await;
    let metric = tsdb.directory.names_of(UidKind::Metric).pop().unwrap();
    let by_metric = a_query(Source::Metric(metric), Vec::new());
    let expected = engine
        .collect(by_metric, RequestContext::default())
        .await
        .unwrap()
        .groups;
    let tsuids: Vec<Vec<u8>> = expected[0]
        .tsuids
        .iter()
        .map(|tsuid| tsuid.as_bytes().to_vec())
        .collect();
    assert_eq!(tsuids.len(), 2);
    let unknown = vec![0, 0, 1, 0, 0, 1, 0, 0, 9];
    // A short range is read row by row, a long one is scanned.
    for years in [0, 40] {
        let run = async |tsuids: Vec<Vec<u8>>| {
            let mut query = a_query(Source::Tsuids(tsuids), Vec::new());
            query.end_ms += years * 365 * 86_400_000;
            engine
                .collect(query, RequestContext::default())
                .await
                .unwrap()
                .groups
        };
        let groups = run([tsuids.clone(), vec![unknown.clone()]].concat()).await;
        assert_eq!(groups.len(), 1);
        let in_range = groups[0]
            .points
            .clone()
            .between(0, a_query(Source::Tsuids(Vec::new()), Vec::new()).end_ms);
        assert_eq!(in_range, expected[0].points);
        assert_eq!(groups[0].metric, expected[0].metric);
        assert_eq!(run(tsuids[..1].to_vec()).await[0].tsuids.len(), 1);
        assert!(run(vec![unknown.clone()]).await.is_empty());
    }
}

#[tokio::test]
async fn reads_rows_of_explicit_tags_individually() {
    let (tsdb, engine) = vector("v67_").await;
    let metric = tsdb.directory.names_of(UidKind::Metric).pop().unwrap();
    let literal = |key, values| TagFilter::new("literal_or", key, values, true).unwrap();
    let run = async |years: i64| {
        let filters = vec![
            literal("host", "v67web01|v67web03"),
            literal("dc", "v67lga|v67phx"),
        ];
        let known = tsdb.directory.names_of(UidKind::Tagv);
        let all_known = |filter: &TagFilter| filter.matcher.alternatives().iter().all(|v| known.contains(v));
        assert!(filters.iter().all(all_known), "{known:?}");
        let mut query = a_query(Source::Metric(metric.clone()), filters);
        query.sub_queries[0].filter.explicit_tags = true;
        query.end_ms += years * 365 * 86_400_000;
        engine.collect(query, RequestContext::default()).await.unwrap()
    };
    let result = run(0).await;
    let short = result.groups;
    assert_eq!(short.len(), 2);
    assert_eq!(result.statistics.rows, 2);
    assert_eq!(
        run(40).await.groups,
        short,
        "a long range is scanned, with the same result"
    );
}
