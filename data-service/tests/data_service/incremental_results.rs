//! Incremental results of large queries equal those that are aggregated after the scan.
use std::collections::BTreeSet;
use std::sync::Arc;

use async_trait::async_trait;
use futures::StreamExt as _;
use jiff::tz::TimeZone;
use oxtsdb_query::RequestContext;
use oxtsdb_query::language::parse_metric_query;
use oxtsdb_query::{
    AnnotationSelection, Engine, Frame, Group, Limits, QueryError, QuerySpec, Quirks, Resource,
};
use oxtsdb_row_store::intercept::{Intercept, InterceptedStore, Operation, Response};
use oxtsdb_row_store::{RowStore, StoreError};
use oxtsdb_schema::{DuplicatePolicy, RowKeyLayout, SaltLayout, UidKind};
use proptest::prelude::*;
use serde_json::json;

use crate::tsdb::Tsdb;

/// 2013-01-01 00:00:00 UTC, an exact day.
const T: i64 = 1_356_998_400;
const HOUR: i64 = 3600;

/// Hours with points: enough for several slices of a scan.
const HOURS: i64 = 60;

/// A series: first hour, end hour, seconds between points, points between long gaps, hour from which values are
/// floating point, seconds at which annotations begin.
#[derive(Clone, Debug)]
struct Plan {
    first: i64,
    last: i64,
    step: i64,
    gap: i64,
    floats_from: i64,
    annotations: BTreeSet<i64>,
}

fn plan() -> impl Strategy<Value = Plan> {
    let hours = (0..HOURS, 1..HOURS);
    let annotations = prop::collection::btree_set(0..HOURS * HOUR, 0..6);
    (hours, 600..5000_i64, 3..20_i64, 0..HOURS * 2, annotations).prop_map(
        |((first, length), step, gap, floats_from, annotations)| Plan {
            first,
            last: (first + length).min(HOURS),
            step,
            gap,
            floats_from,
            annotations,
        },
    )
}

async fn fill(tsdb: &Tsdb, plans: &[Plan]) {
    for value in ["d0", "d1", "h0", "h1", "h2", "h3"] {
        tsdb.directory.assign(UidKind::Tagv, value);
    }
    for (index, plan) in plans.iter().enumerate() {
        let tags = json!({"host": format!("h{index}"), "dc": format!("d{}", index % 2)});
        let (mut at, mut count) = (plan.first * HOUR, 0);
        while at < plan.last * HOUR {
            let value = if at / HOUR >= plan.floats_from {
                json!(0.5 + count as f64)
            } else {
                json!(count * 7 % 11)
            };
            tsdb.put(&json!({"metric": "m", "timestamp": T + at, "value": value, "tags": tags}))
                .await;
            count += 1;
            at += if count % plan.gap == 0 {
                9 * HOUR
            } else {
                plan.step
            };
        }
        for second in &plan.annotations {
            let series = json!({"metric": "m", "tags": tags});
            tsdb.annotate(&series, T + second, &format!("h{index} {second}"))
                .await;
        }
    }
}

fn spec(text: &str, quirks: Quirks) -> QuerySpec {
    QuerySpec {
        start_ms: (T + HOUR / 2) * 1000,
        end_ms: (T + HOURS * HOUR - 10) * 1000,
        sub_queries: vec![parse_metric_query(text, &TimeZone::UTC).unwrap()],
        duplicates: DuplicatePolicy::Error,
        max_scanned_points: None,
        quirks,
        skip_damaged_rows: false,
        with_surroundings: false,
        with_infinities: false,
        annotations: AnnotationSelection {
            of_series: true,
            global: false,
        },
    }
}

/// The groups, and in how many parts their points came.
async fn collect(engine: &Engine, text: &str, quirks: Quirks) -> (Vec<Group>, usize) {
    let mut frames = engine.run(spec(text, quirks), RequestContext::default()).await;
    let (mut groups, mut parts) = (Vec::<Group>::new(), 0);
    while let Some(frame) = frames.next().await {
        match frame.unwrap().frame {
            Frame::Group(group) => {
                parts += usize::from(!group.points.is_empty());
                groups.push(Group {
                    is_whole: true,
                    ..group
                });
            }
            Frame::More { number, points } => {
                parts += 1;
                groups[number].points.append(points);
            }
            Frame::Annotations { number, annotations } => {
                let before = groups[number].annotations.replace(annotations);
                assert_eq!(before, None, "sent twice");
            }
            Frame::Encoded(_) | Frame::GlobalAnnotations(_) => panic!("not requested"),
            Frame::Done { groups: count, .. } => assert_eq!(count, groups.len()),
            Frame::Statistics(_) => {}
        }
    }
    (groups, parts)
}

const QUERIES: [&str; 17] = [
    "sum:explicit_tags:m{host=h0|h1|h2|h3,dc=d0|d1}",
    "sum:m",
    "avg:m{dc=*}",
    "none:m",
    "count:m",
    "zimsum:m{dc=*}",
    "mimmax:m",
    "pfsum:m",
    "diff:m",
    "last:m",
    "p90:10m-avg:m{dc=*}",
    "sum:90m-sum-nan:m",
    "min:2h-max-zero:m{dc=*}",
    "sum:rate:m{host=*}",
    "avg:1h-avg:rate:m",
    "count:7dc-count:m",
    "sum:0all-sum:m",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn incremental_results_equal_whole_results(
        plans in prop::collection::vec(plan(), 1..7),
        salted: bool,
        threshold in prop_oneof![Just(1), 1_u64..5000],
    ) {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let layout = RowKeyLayout {
                salt: if salted { SaltLayout::new(1, 3).unwrap() } else { SaltLayout::default() },
                ..RowKeyLayout::default()
            };
            let tsdb = Tsdb::new(layout).await;
            fill(&tsdb, &plans).await;
            let (whole, early) = (tsdb.engine(), tsdb.engine().with_emit_threshold(threshold));
            for text in QUERIES {
                for quirks in [Quirks::NONE, Quirks::OPENTSDB] {
                    let (expected, _) = collect(&whole, text, quirks).await;
                    let (groups, _) = collect(&early, text, quirks).await;
                    // As text, because NaN is not equal to itself.
                    assert_eq!(format!("{groups:?}"), format!("{expected:?}"), "{text} {quirks:?}");
                    let at_once = early.collect(spec(text, quirks), RequestContext::default()).await;
                    assert_eq!(format!("{:?}", at_once.unwrap().groups), format!("{expected:?}"), "{text} {quirks:?}");
                }
            }
        });
    }
}

/// Twenty series with a point every five minutes.
async fn dense() -> Tsdb {
    let tsdb = Tsdb::new(RowKeyLayout::default()).await;
    let plan = Plan {
        first: 0,
        last: HOURS,
        step: 300,
        gap: 1_000_000,
        floats_from: HOURS * 2,
        annotations: BTreeSet::from([HOUR, 40 * HOUR]),
    };
    fill(&tsdb, &vec![plan; 20]).await;
    tsdb
}

#[tokio::test]
async fn emits_final_results_before_the_scan_ends() {
    let engine = dense().await.engine().with_emit_threshold(100);
    for (text, groups) in [("sum:m", 1), ("sum:10m-avg:m{dc=*}", 2), ("none:m", 20)] {
        let (_, parts) = collect(&engine, text, Quirks::NONE).await;
        assert!(parts >= groups * 3, "{text}: {parts}");
    }
    let (_, parts) = collect(&engine, "sum:m", Quirks::OPENTSDB).await;
    assert_eq!(parts, 1, "floats may be to come");
}

#[tokio::test]
async fn emitted_groups_get_their_annotations_when_the_scan_ended() {
    let tsdb = dense().await;
    for (text, groups, of_each) in [("sum:m", 1, 40), ("none:m", 20, 2)] {
        let engine = tsdb.engine().with_emit_threshold(100);
        let mut frames = engine
            .run(spec(text, Quirks::NONE), RequestContext::default())
            .await;
        let (mut with_points, mut counts) = (0, Vec::new());
        while let Some(frame) = frames.next().await {
            match frame.unwrap().frame {
                Frame::Group(group) => assert_eq!((group.is_whole, group.annotations), (false, None)),
                Frame::More { .. } => with_points += 1,
                Frame::Annotations { number, annotations } => {
                    assert!(with_points > 0, "{text}");
                    assert_eq!(number, counts.len());
                    counts.push(annotations.len());
                }
                Frame::Done { .. } => assert_eq!(counts, vec![of_each; groups], "{text}"),
                Frame::Encoded(_) | Frame::GlobalAnnotations(_) | Frame::Statistics(_) => {}
            }
        }
        assert_eq!(counts.len(), groups, "{text}");
        let whole = collect(&tsdb.engine(), text, Quirks::NONE).await.0;
        assert_eq!(collect(&engine, text, Quirks::NONE).await.0, whole, "{text}");
    }
}

#[tokio::test]
async fn emitted_points_release_their_memory() {
    let tsdb = dense().await;
    // 14,400 points of 16 bytes; rows read ahead and growing columns take about as much.
    let limits = |bytes| {
        let mut limits = Limits::NONE;
        limits.memory.most = bytes;
        limits
    };
    let (groups, _) = collect(&tsdb.engine(), "sum:m", Quirks::NONE).await;
    let small = tsdb.engine_with(limits(16 * 20_000)).with_emit_threshold(100);
    assert_eq!(collect(&small, "sum:m", Quirks::NONE).await.0, groups);
    // Neither results that cannot be emitted early nor the whole result fit the budget.
    assert_eq!(collect(&small, "none:m", Quirks::NONE).await.0.len(), 20);
    for (text, quirks) in [("sum:m", Quirks::OPENTSDB), ("none:m", Quirks::NONE)] {
        let rejected = small.collect(spec(text, quirks), RequestContext::default()).await;
        let Err(QueryError::OverBudget { resource, limit }) = rejected else {
            panic!("{rejected:?}")
        };
        assert_eq!(
            (resource, limit.setting),
            (Resource::Memory, "--query-max-memory-mib")
        );
    }
}

/// Fails the test if a table is scanned.
#[derive(Debug)]
struct NoScan;

#[async_trait]
impl Intercept for NoScan {
    async fn intercept(&self, operation: Operation, store: &dyn RowStore) -> Result<Response, StoreError> {
        assert!(!matches!(operation, Operation::Scan { .. }), "{operation:?}");
        operation.perform(store).await
    }
}

#[tokio::test]
async fn rejects_queries_above_the_row_limit_before_reading() {
    let tsdb = dense().await;
    let limits = |rows| {
        let mut limits = Limits::NONE;
        limits.rows.most = rows;
        limits
    };
    // 20 series in 60 hours, some of them outside the range.
    assert!(
        tsdb.engine_with(limits(1_200))
            .collect(spec("sum:m", Quirks::NONE), RequestContext::default())
            .await
            .is_ok()
    );
    let store = InterceptedStore::new(Arc::clone(&tsdb.engine().storage().store), Arc::new(NoScan));
    let tsdb = tsdb.moved_to(Arc::new(store));
    let rejected = tsdb
        .engine_with(limits(1_000))
        .collect(spec("sum:m", Quirks::NONE), RequestContext::default())
        .await;
    let Err(QueryError::OverBudget { resource, limit }) = rejected else {
        panic!("{rejected:?}")
    };
    assert_eq!((resource, limit.setting), (Resource::Rows, "--query-max-rows"));
}
