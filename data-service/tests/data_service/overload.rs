//! Queries in any number and of any size: each is executed or rejected, within the memory budget.
use std::time::Duration;

use futures::StreamExt as _;
use jiff::tz::TimeZone;
use oxtsdb_query::Limit;
use oxtsdb_query::language::parse_metric_query;
use oxtsdb_query::{
    Engine, Frame, Limits, QueryError, QueryResources, QuerySpec, Quirks, RequestContext, Resource,
};
use oxtsdb_resources::{Admission, AdmissionError, AdmissionLimits, ComputePool, MemoryPool};
use oxtsdb_schema::{DuplicatePolicy, RowKeyLayout, SaltLayout};
use serde_json::json;

use crate::tsdb::Tsdb;

/// 2012-01-01 00:00:00 UTC.
const T: i64 = 1_325_376_000;
const POINTS: i64 = 800;

async fn filled() -> Tsdb {
    let tsdb = Tsdb::new(RowKeyLayout::default()).await;
    for point in 0..POINTS {
        let tags = json!({"host": format!("h{}", point % 40)});
        tsdb.put(&json!({"metric": "m", "timestamp": T + point, "value": point, "tags": tags}))
            .await;
    }
    tsdb
}

fn query(text: &str, start_s: i64) -> QuerySpec {
    QuerySpec {
        start_ms: start_s * 1000,
        end_ms: (T + 3_600) * 1000,
        sub_queries: vec![parse_metric_query(text, &TimeZone::UTC).unwrap()],
        duplicates: DuplicatePolicy::Error,
        max_scanned_points: None,
        quirks: Quirks::NONE,
        skip_damaged_rows: false,
        with_surroundings: false,
        with_infinities: false,
        annotations: oxtsdb_query::AnnotationSelection::default(),
    }
}

/// One compute thread, `running` permits and a pool of 8 MiB.
fn resources(running: usize, queued: usize) -> QueryResources {
    QueryResources {
        memory: MemoryPool::new("query", 8 << 20),
        admission: Admission::new(AdmissionLimits {
            running,
            queued,
            wait: Duration::from_secs(60),
        }),
        compute: ComputePool::new(1).unwrap(),
        ..QueryResources::unlimited().unwrap()
    }
}

fn limits(memory_bytes: u64) -> Limits {
    Limits {
        memory: Limit::from_setting("--query-max-memory-mib", memory_bytes),
        ..Limits::NONE
    }
}

async fn group_count(engine: &Engine, text: &str, start_s: i64) -> Result<usize, QueryError> {
    let result = engine.collect(query(text, start_s), RequestContext::default());
    Ok(result.await?.groups.len())
}

#[tokio::test]
async fn rejects_windows_above_the_memory_limit_after_resolving_names() {
    let tsdb = filled().await;
    let engine = tsdb.engine_of(limits(4 << 20), resources(2, 4));
    for interval in ["1ms", "1s", "1sc"] {
        let text = |metric: &str| format!("sum:{interval}-sum-zero:{metric}");
        let error = group_count(&engine, &text("nosuch"), 0).await.unwrap_err();
        assert!(matches!(error, QueryError::UnknownName { .. }), "{error}");
        let error = group_count(&engine, &text("m"), 0).await.unwrap_err();
        let QueryError::OverBudget { resource, limit } = error else {
            panic!("{error}")
        };
        assert_eq!(
            (resource, limit.setting),
            (Resource::Memory, "--query-max-memory-mib")
        );
        let unexplained = query(&text("m"), 0);
        let explained = engine.explain(&unexplained, RequestContext::default());
        assert!(matches!(explained.await, Err(QueryError::OverBudget { .. })));
    }
    assert_eq!(group_count(&engine, "sum:1m-sum-zero:m", T).await.unwrap(), 1);
    assert_eq!(engine.resources().memory.usage().used_bytes, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_queries_share_one_thread() {
    let tsdb = filled().await;
    let engine = tsdb.engine_of(limits(2 << 20), resources(4, 1_000));
    let queries = (0..1_000).map(|number| {
        let engine = engine.clone();
        tokio::spawn(async move {
            let text = if number % 2 == 0 { "sum:m" } else { "none:m" };
            group_count(&engine, text, T).await
        })
    });
    for (number, result) in futures::future::join_all(queries).await.into_iter().enumerate() {
        let groups = if number % 2 == 0 { 1 } else { 40 };
        assert_eq!(result.unwrap().unwrap(), groups);
    }
    let memory = engine.resources().memory.usage();
    assert_eq!(memory.used_bytes, 0);
    assert!(memory.peak_bytes <= 8 << 20, "{memory:?}");
    assert_eq!(engine.resources().admission.usage().running, 0);
}

#[tokio::test]
async fn rejects_queries_when_the_queue_is_full() {
    let tsdb = filled().await;
    let engine = tsdb.engine_of(limits(2 << 20), resources(1, 0));
    let mut unread = engine.run(query("none:m", T), RequestContext::default()).await;
    let first = unread.next().await.unwrap().unwrap();
    let error = group_count(&engine, "sum:m", T).await.unwrap_err();
    assert!(
        matches!(error, QueryError::NotAdmitted(AdmissionError::QueueFull { .. })),
        "{error}"
    );
    assert!(matches!(first.frame, Frame::Group(_)));
    drop((unread, first));
}

#[tokio::test]
async fn a_stalled_client_does_not_block_other_queries() {
    let tsdb = filled().await;
    let engine = tsdb.engine_of(limits(2 << 20), resources(1, 100));
    // 40 groups are more frames than the buffer of a client holds.
    let mut unread = engine.run(query("none:m", T), RequestContext::default()).await;
    for _ in 0..20 {
        assert_eq!(group_count(&engine, "sum:m", T).await.unwrap(), 1);
    }
    let held = engine.resources().memory.usage().used_bytes;
    assert!(held < 1 << 20, "spare memory returns to the pool: {held}");
    // The query resumes when the client reads, and its result is complete.
    let (mut groups, mut is_whole) = (0, false);
    while let Some(delivery) = unread.next().await {
        match delivery.unwrap().frame {
            Frame::Group(_) => groups += 1,
            Frame::Statistics(_) => is_whole = true,
            Frame::More { .. }
            | Frame::Annotations { .. }
            | Frame::Encoded(_)
            | Frame::GlobalAnnotations(_)
            | Frame::Done { .. } => {}
        }
    }
    assert_eq!((groups, is_whole), (40, true));
    assert_eq!(engine.resources().memory.usage().used_bytes, 0);
}

#[tokio::test]
async fn the_query_timeout_applies_without_a_deadline() {
    let tsdb = filled().await;
    let resources = QueryResources {
        timeout: Some(Duration::from_millis(300)),
        ..resources(1, 100)
    };
    let engine = tsdb.engine_of(limits(2 << 20), resources);
    let mut unread = engine.run(query("none:m", T), RequestContext::default()).await;
    tokio::time::sleep(Duration::from_millis(400)).await;
    let mut last = None;
    while let Some(delivery) = unread.next().await {
        last = Some(delivery.map(|_| ()));
    }
    assert!(matches!(last, Some(Err(QueryError::TimedOut { .. }))), "{last:?}");
}

#[tokio::test]
async fn batches_of_few_large_rows_do_not_deadlock() {
    let layout = RowKeyLayout {
        salt: SaltLayout::new(1, 20).unwrap(),
        ..RowKeyLayout::default()
    };
    let tsdb = Tsdb::new(layout).await;
    // One row of each series exceeds the bytes of a slice that may wait; each bucket has one such row per batch.
    for second in 0..3_600 {
        for host in ["a", "b", "c", "d"] {
            let tags = json!({"host": host});
            tsdb.put(&json!({"metric": "m", "timestamp": T + second, "value": 1, "tags": tags}))
                .await;
        }
    }
    let engine = tsdb.engine_of(limits(3 << 20), resources(1, 1));
    let result = tokio::time::timeout(Duration::from_secs(30), group_count(&engine, "sum:m", T)).await;
    assert_eq!(result.expect("it does not hang").unwrap(), 1);
}
