//! Queries with the series index.

use std::sync::Arc;

use oxtsdb_ingest::{NewPoint, Writer};
use oxtsdb_query::{
    Aggregator, Engine, Estimate, Group, IndexUse, Limits, PathDescription, PathKind, QueryResources,
    QuerySpec, Quirks, RequestContext, SeriesFilter, Source, SubQuery, TagFilter, WholeResult,
};
use oxtsdb_row_store::RowStore;
use oxtsdb_schema::{DuplicatePolicy, Timestamp, Value};
use oxtsdb_test_stack::TestStack;
use proptest::prelude::*;

/// 2013-01-01 00:00:00 UTC, an exact hour.
const T: u32 = 1_356_998_400;

async fn write(writer: &Writer, host: &str, dc: Option<&str>, seconds: u32) {
    let tags = [("host", host), ("dc", dc.unwrap_or_default())];
    let point = NewPoint {
        metric: "m",
        tags: &tags[..1 + usize::from(dc.is_some())],
        timestamp: Timestamp::from_seconds(seconds),
        value: Value::Int(i64::from(seconds)),
    };
    let outcome = writer.write(&[point], None).await.unwrap();
    assert_eq!(outcome.written, 1);
}

/// 40 hosts with a point in each of three hours; every fourth has no data centre.
async fn stack() -> TestStack {
    let stack = TestStack::start().await;
    for hour in 0..3 {
        for host in 0..40 {
            let dc = ["lga", "sjc", "fra"].get(host % 4).copied();
            write(
                &stack.service.writer,
                &format!("web{host:02}"),
                dc,
                T + hour * 3600,
            )
            .await;
        }
    }
    stack
}

fn query(filters: &[(&str, &str)], explicit_tags: bool, (start, end): (u32, u32)) -> QuerySpec {
    let tags = filters
        .iter()
        .map(|(key, filter)| TagFilter::from_tag(key, filter).unwrap())
        .collect();
    QuerySpec {
        start_ms: i64::from(start) * 1000,
        end_ms: i64::from(end) * 1000,
        sub_queries: vec![SubQuery {
            source: Source::Metric("m".to_owned()),
            filter: SeriesFilter { tags, explicit_tags },
            aggregator: Aggregator::NONE,
            downsample: None,
            rate: None,
            histogram: None,
            rollup: oxtsdb_query::RollupRequest::default(),
        }],
        duplicates: DuplicatePolicy::KeepNewest,
        max_scanned_points: None,
        quirks: Quirks::NONE,
        skip_damaged_rows: false,
        with_surroundings: false,
        with_infinities: false,
        annotations: oxtsdb_query::AnnotationSelection::default(),
    }
}

async fn path(stack: &TestStack, query: &QuerySpec) -> (PathDescription, Estimate) {
    let explained = stack.service.engine.explain(query, RequestContext::default());
    let (plan, estimate) = explained.await.unwrap().swap_remove(0);
    (plan.access_path.description(), estimate)
}

/// The contribution of the index, and the number of single rows.
async fn single_rows(stack: &TestStack, query: &QuerySpec) -> (IndexUse, Option<u64>) {
    let (path, estimate) = path(stack, query).await;
    let rows = (path.kind == PathKind::SingleRows).then(|| estimate.rows.unwrap().value);
    (path.reason, rows)
}

const DAY: (u32, u32) = (T, T + 86_399);

#[tokio::test]
async fn reads_few_of_many_series_by_their_keys() {
    let stack = stack().await;
    let matched = |matching| IndexUse::Resolved { matching, listed: 40 };
    for (filters, known, rows) in [
        (&[("host", "web07")][..], matched(1), Some(25)),
        (&[("host", "regexp(^web0[1-5])")], matched(5), Some(5 * 25)),
        (&[("host", "WEB3*")], matched(10), None),
        (&[("host", "web1*"), ("dc", "lga")], matched(2), Some(2 * 25)),
        (&[("host", "none*")], matched(0), Some(0)),
        (&[("host", "not_literal_or(web01)")], matched(39), None),
        (&[("host", "*")], IndexUse::NotSelective, None),
        (&[], IndexUse::NotSelective, None),
    ] {
        let actual = single_rows(&stack, &query(filters, false, (T, T + 86_400))).await;
        assert_eq!(actual, (known, rows), "{filters:?}");
    }
    let explicit = single_rows(&stack, &query(&[("host", "web07")], true, DAY)).await;
    assert_eq!(explicit, (IndexUse::Named, Some(25)));
}

#[tokio::test]
async fn a_scan_of_many_hours_seeks_from_series_to_series() {
    let stack = stack().await;
    let since_ever = query(&[("host", "web0*"), ("dc", "fra")], false, (0, u32::MAX));
    let (path, estimate) = path(&stack, &since_ever).await;
    let known = IndexUse::Resolved {
        matching: 2,
        listed: 40,
    };
    assert_eq!((path.kind, path.reason), (PathKind::SeriesSeek, known));
    assert_eq!((path.ranges.len(), estimate.series.unwrap().value), (1, 2));
    let result = stack
        .service
        .engine
        .collect(since_ever, RequestContext::default());
    let WholeResult {
        groups, statistics, ..
    } = result.await.unwrap();
    assert_eq!(
        groups.iter().map(|group| group.points.len()).collect::<Vec<_>>(),
        [3, 3]
    );
    assert_eq!(statistics.rows, 6);
}

#[tokio::test]
async fn finds_a_series_once_its_point_is_acknowledged() {
    let stack = stack().await;
    let engine = &stack.service.engine;
    for number in 0..20 {
        let host = format!("new{number:02}");
        write(&stack.service.writer, &host, None, T).await;
        let query = query(&[("host", "regexp(^new)")], false, DAY);
        let groups = groups(engine, &query).await;
        assert_eq!(groups.len(), number + 1);
        let (path, _) = path(&stack, &query).await;
        let matched =
            matches!(path.reason, IndexUse::Resolved { matching, .. } if matching == number as u64 + 1);
        assert!(matched, "{:?}", path.reason);
    }
}

/// The engine of the same service, without the index.
fn without_index(stack: &TestStack) -> Engine {
    let engine = &stack.service.engine;
    let store: Arc<dyn RowStore> = Arc::new(stack.store.clone());
    Engine::new(
        store,
        (
            engine.storage().table.clone(),
            engine.storage().meta_table.clone(),
        ),
        engine.storage().layout,
        Arc::clone(&engine.storage().directory),
        Limits::NONE,
        QueryResources::unlimited().unwrap(),
    )
}

async fn groups(engine: &Engine, query: &QuerySpec) -> Vec<Group> {
    let result = engine.collect(query.clone(), RequestContext::default()).await;
    result.unwrap().groups
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn an_index_does_not_change_results(
        series in prop::collection::btree_map((0_u8..12, 0_u8..4), 0_u32..5, 1..60),
        host in prop::sample::select(vec!["*", "h1*", "h1|h2", "regexp(h[0-3])", "not_literal_or(h1|h7)", "iliteral_or(H3)", "wildcard(*9)"]),
        dc in prop::sample::select(vec!["", "*", "d1", "not_literal_or(d2)", "regexp(d[01])"]),
        explicit_tags in any::<bool>(),
        hours in (0_u32..6, 0_u32..6),
        // Single rows, or jumps.
        days in prop::sample::select(vec![0_u32, 4000]),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let stack = TestStack::start().await;
            // All names exist, whatever the query matches.
            for host in 0..12 {
                write(&stack.service.writer, &format!("h{host}"), Some(&format!("d{}", host % 4)), T).await;
            }
            for ((host, dc), hour) in &series {
                let dc = format!("d{dc}");
                let dc = Some(dc.as_str()).filter(|_| host % 3 > 0);
                write(&stack.service.writer, &format!("h{host}"), dc, T + hour * 3600).await;
            }
            let filters = [("host", host), ("dc", dc)];
            let filters = if dc.is_empty() { &filters[..1] } else { &filters[..] };
            let range = (T + hours.0.min(hours.1) * 3600, T + hours.0.max(hours.1) * 3600 + 1800 + days * 86_400);
            let query = query(filters, explicit_tags, range);
            let with = groups(&stack.service.engine, &query).await;
            let without = groups(&without_index(&stack), &query).await;
            assert_eq!(with, without, "{query:?}");
        });
    }
}
