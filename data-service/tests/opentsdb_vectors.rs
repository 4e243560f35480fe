//! OpenTSDB's own answers, recorded from OpenTSDB 2.4.1: the engine gives the same.
//!
//! See `testdata/README.md` for the format and the rule of comparison.
#![expect(
    clippy::unwrap_used,
    reason = "the helpers of a test: what is not as expected fails it"
)]

mod directory;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use data_service::query::spec::Limits;
use data_service::query::{
    Downsample, Engine, Fill, Group, Number, QueryError, QuerySpec, Quirks, RateOptions, Source, SubQuery,
    TagFilter, language, time,
};
use directory::Directory;
use jiff::tz::TimeZone;
use oxtsdb_row_store::memory::MemoryStore;
use oxtsdb_row_store::{RowStore, TableDef, TableName, WriteBatch};
use oxtsdb_schema::row_key::write_row_key;
use oxtsdb_schema::{
    DuplicatePolicy, Qualifier, RowKeyLayout, SaltLayout, TagkUid, TagvUid, Timestamp, Tsuid, UidKind, Value,
};
use serde_json::Value as Json;

const VECTORS: &str = include_str!("../testdata/opentsdb-query-vectors.jsonl");

/// What this server does not do yet, and how many sub-queries are not compared for it; if one begins
/// to work, or another stops to, this list has to change.
const NOT_SUPPORTED: [(&str, usize); 2] = [
    // Windows of calendar days, weeks, months and years.
    ("calendar", 23),
    // Filters by regular expression.
    ("regexp", 2),
];

/// How many elements OpenTSDB answered to a sub-query that is not compared.
fn skipped_elements(name: &str, index: usize) -> usize {
    match (name, index) {
        ("v67_filter_types", 7) | ("v78_cal_anchor_first_point", 0) => 2,
        ("v67_filter_types", 8) => 3,
        _ => 1,
    }
}

/// One element of an answer, for comparison.
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

struct Tsdb {
    store: Arc<dyn RowStore>,
    table: TableName,
    layout: RowKeyLayout,
    directory: Arc<Directory>,
}

impl Tsdb {
    async fn new(layout: RowKeyLayout) -> Self {
        let store: Arc<dyn RowStore> = Arc::new(MemoryStore::default());
        let table: TableName = "tsdb".parse().unwrap();
        store
            .create_table(&TableDef::new(table.clone(), &["t"]))
            .await
            .unwrap();
        Self {
            store,
            table,
            layout,
            directory: Arc::default(),
        }
    }

    fn engine(&self) -> Engine {
        let directory = Arc::clone(&self.directory);
        Engine::new(
            Arc::clone(&self.store),
            self.table.clone(),
            self.layout,
            directory,
            Limits::of_setting(0),
        )
    }

    /// Writes a point as `/api/put` does: floats have 8 bytes.
    async fn put(&self, point: &Json) {
        let text = |json: &Json| json.as_str().unwrap().to_owned();
        let timestamp = Timestamp::from_opentsdb(point["timestamp"].as_i64().unwrap()).unwrap();
        let value = match point["value"].as_i64() {
            Some(int) => Value::Int(int),
            None => Value::double(point["value"].as_f64().unwrap()).unwrap(),
        };
        let metric = self.directory.assign(UidKind::Metric, &text(&point["metric"]));
        let mut tags: Vec<_> = point["tags"]
            .as_object()
            .unwrap()
            .iter()
            .map(|(key, value)| {
                let tagk = self.directory.assign(UidKind::Tagk, key);
                (
                    TagkUid::new(tagk),
                    TagvUid::new(self.directory.assign(UidKind::Tagv, &text(value))),
                )
            })
            .collect();
        let tsuid = Tsuid::new(metric.into(), &mut tags).unwrap();
        let mut key = Vec::new();
        write_row_key(&self.layout, tsuid.as_bytes(), timestamp.base_time(), &mut key);
        let mut batch = WriteBatch::new(self.table.clone());
        let family = batch.family("t");
        let qualifier = Qualifier::new(timestamp, &value);
        batch
            .row(&key)
            .put(family, qualifier.as_bytes(), value.encoded().as_bytes());
        self.store.write(batch).await.unwrap();
    }
}

/// Reads a sub-query; `Err` says what of it is not supported.
fn sub_query(json: &Json, use_calendar: bool) -> Result<SubQuery, &'static str> {
    let text = |field: &Json| field.as_str().unwrap().to_owned();
    let mut filters = Vec::new();
    for filter in json["filters"].as_array().into_iter().flatten() {
        let kind = text(&filter["type"]);
        if kind == "regexp" {
            return Err("regexp");
        }
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
    let downsample = match json["downsample"].as_str() {
        None => None,
        Some(text) => {
            let interval = text.split('-').next().unwrap();
            if (use_calendar || interval.ends_with('c')) && !interval.contains("all") {
                return Err("calendar");
            }
            Some(Downsample::parse(text).unwrap())
        }
    };
    let rate = json["rate"].as_bool().unwrap_or(false).then(|| {
        let options = &json["rateOptions"];
        RateOptions {
            counter: options["counter"].as_bool().unwrap_or(false),
            counter_max: options["counterMax"].as_i64().unwrap_or(i64::MAX),
            reset_value: options["resetValue"].as_i64().unwrap_or(0),
            drop_resets: options["dropResets"].as_bool().unwrap_or(false),
        }
    });
    let explicit_tags = json["explicitTags"].as_bool().unwrap_or(false);
    Ok(SubQuery {
        source: Source::Metric {
            metric: text(&json["metric"]),
            filters,
            explicit_tags,
        },
        aggregator: language::parse_aggregator(json["aggregator"].as_str().unwrap()).unwrap(),
        downsample,
        rate,
    })
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
        other => panic!("{other} is no value of an answer"),
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

/// Loads all vectors into one store and compares all answers; how many sub-queries were compared.
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
    let mut skipped: BTreeMap<&str, usize> = BTreeMap::new();
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
        let mut sub_queries = Vec::new();
        // Where the elements of sub-queries begin that are not compared.
        let mut gaps = Vec::new();
        for (index, query) in json["queries"].as_array().unwrap().iter().enumerate() {
            match sub_query(query, json["useCalendar"].as_bool().unwrap_or(false)) {
                Ok(query) => sub_queries.push(query),
                Err(reason) => {
                    *skipped.entry(reason).or_default() += 1;
                    gaps.push((sub_queries.len(), skipped_elements(name, index)));
                }
            }
        }
        let mut query = QuerySpec {
            start_ms: query_time(&json["start"], &zone),
            end_ms: query_time(&json["end"], &zone),
            sub_queries,
            duplicates: DuplicatePolicy::Error,
            max_scanned_points: None,
            quirks: Quirks::OPENTSDB,
        };
        query.remove_identical_sub_queries();
        let sub_queries = query.sub_queries.clone();
        let groups = match engine.answer(query, None).await {
            Ok((groups, _)) => groups,
            Err(error) => panic!("{name}: {error}"),
        };
        let in_ms = json["msResolution"].as_bool().unwrap_or(false);
        let mut skip_gap = |at: usize, expected: &mut Vec<Element>| {
            while let Some((_, elements)) = gaps.first().copied().filter(|(before, _)| *before == at) {
                expected.drain(..elements);
                gaps.remove(0);
            }
        };
        for (index, sub_query) in sub_queries.iter().enumerate() {
            skip_gap(index, &mut expected);
            let fill = sub_query
                .downsample
                .map_or(Fill::None, |downsample| downsample.fill);
            let mine: Vec<_> = groups
                .iter()
                .filter(|group| group.query == index)
                .map(|group| element(group, in_ms, fill))
                .collect();
            let theirs = expected.drain(..mine.len().min(expected.len())).collect();
            compared += 1;
            if sorted(mine.clone()) != sorted(theirs) {
                differing.push(format!(
                    "{name} sub-query {index}: {sub_query:?}\n  mine {mine:?}"
                ));
            }
        }
        skip_gap(sub_queries.len(), &mut expected);
        if !expected.is_empty() {
            differing.push(format!("{name}: {} elements too few", expected.len()));
        }
    }
    println!("compared {compared} sub-queries, skipped {skipped:?}");
    assert_eq!(skipped, BTreeMap::from(NOT_SUPPORTED));
    assert!(
        differing.is_empty(),
        "{} differences:\n{}",
        differing.len(),
        differing.join("\n")
    );
    compared
}

#[tokio::test(flavor = "multi_thread")]
async fn the_engine_answers_as_opentsdb_does() {
    assert_eq!(compare_all(RowKeyLayout::default()).await, 255);
}

#[tokio::test(flavor = "multi_thread")]
async fn salt_does_not_change_an_answer() {
    let layout = RowKeyLayout {
        salt: SaltLayout::new(1, 20).unwrap(),
        ..RowKeyLayout::default()
    };
    assert_eq!(compare_all(layout).await, 255);
}

fn a_query(source: Source) -> QuerySpec {
    let aggregator = language::parse_aggregator("sum").unwrap();
    QuerySpec {
        start_ms: 1_356_998_400_000,
        end_ms: 1_357_002_000_000,
        sub_queries: vec![SubQuery {
            source,
            aggregator,
            downsample: None,
            rate: None,
        }],
        duplicates: DuplicatePolicy::Error,
        max_scanned_points: None,
        quirks: Quirks::OPENTSDB,
    }
}

#[tokio::test]
async fn unknown_names_fail_the_query() {
    let (tsdb, engine) = vector("v67_").await;

    let metric = tsdb.directory.names_of(UidKind::Metric).pop().unwrap();
    let ask = |metric: &str, kind: &str, key: &str, filter: &str| {
        let filters = vec![TagFilter::new(kind, key, filter, false).unwrap()];
        let source = Source::Metric {
            metric: metric.to_owned(),
            filters,
            explicit_tags: false,
        };
        engine.answer(a_query(source), None)
    };
    let error = |result: Result<_, QueryError>| result.map(|_: (Vec<Group>, _)| ()).unwrap_err().to_string();
    assert_eq!(
        error(ask("nope", "wildcard", "host", "*").await),
        "no such name for 'metrics': 'nope'"
    );
    for kind in ["wildcard", "not_literal_or"] {
        assert_eq!(
            error(ask(&metric, kind, "nokey", "*").await),
            "no such name for 'tagk': 'nokey'"
        );
    }
    assert_eq!(
        error(ask(&metric, "literal_or", "host", "nosuch").await),
        "no such name for 'tagv': 'nosuch'"
    );
    assert!(ask(&metric, "not_literal_or", "host", "nosuch").await.is_ok());
    assert!(
        ask(&metric, "iliteral_or", "host", "nosuch")
            .await
            .unwrap()
            .0
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
async fn series_are_asked_for_by_their_tsuids() {
    let (tsdb, engine) = vector("v29_").await;
    let metric = tsdb.directory.names_of(UidKind::Metric).pop().unwrap();
    let by_metric = Source::Metric {
        metric,
        filters: Vec::new(),
        explicit_tags: false,
    };
    let (expected, _) = engine.answer(a_query(by_metric), None).await.unwrap();
    let tsuids: Vec<Vec<u8>> = expected[0]
        .tsuids
        .iter()
        .map(|tsuid| tsuid.as_bytes().to_vec())
        .collect();
    assert_eq!(tsuids.len(), 2);
    let unknown = vec![0, 0, 1, 0, 0, 1, 0, 0, 9];
    // A short range is read row by row, a long one by a scan.
    for years in [0, 40] {
        let ask = async |tsuids: Vec<Vec<u8>>| {
            let mut query = a_query(Source::Tsuids(tsuids));
            query.end_ms += years * 365 * 86_400_000;
            engine.answer(query, None).await.unwrap().0
        };
        let groups = ask([tsuids.clone(), vec![unknown.clone()]].concat()).await;
        assert_eq!(groups.len(), 1);
        let in_range = groups[0]
            .points
            .clone()
            .between(0, a_query(Source::Tsuids(Vec::new())).end_ms);
        assert_eq!(in_range, expected[0].points);
        assert_eq!(groups[0].metric, expected[0].metric);
        assert_eq!(ask(tsuids[..1].to_vec()).await[0].tsuids.len(), 1);
        assert!(ask(vec![unknown.clone()]).await.is_empty());
    }
}

#[tokio::test]
async fn rows_of_explicit_tags_are_read_one_by_one() {
    let (tsdb, engine) = vector("v67_").await;
    let metric = tsdb.directory.names_of(UidKind::Metric).pop().unwrap();
    let literal = |key, values| TagFilter::new("literal_or", key, values, true).unwrap();
    let ask = async |years: i64| {
        let filters = vec![
            literal("host", "v67web01|v67web03"),
            literal("dc", "v67lga|v67phx"),
        ];
        let known = tsdb.directory.names_of(UidKind::Tagv);
        let all_known = |filter: &TagFilter| {
            filter
                .matcher
                .filter_text()
                .split('|')
                .all(|v| known.contains(&v.to_owned()))
        };
        assert!(filters.iter().all(all_known), "{known:?}");
        let source = Source::Metric {
            metric: metric.clone(),
            filters,
            explicit_tags: true,
        };
        let mut query = a_query(source);
        query.end_ms += years * 365 * 86_400_000;
        engine.answer(query, None).await.unwrap()
    };
    let (short, statistics) = ask(0).await;
    assert_eq!(short.len(), 2);
    assert_eq!(statistics.rows, 2);
    assert_eq!(
        ask(40).await.0,
        short,
        "a long range is scanned, with the same answer"
    );
}
