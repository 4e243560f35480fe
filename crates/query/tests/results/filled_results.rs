//! Results of fill policies that exceed a limit are rejected before points are read.

use std::sync::Arc;

use futures::TryStreamExt as _;
use oxtsdb_point_store::memory::MemoryPoints;
use oxtsdb_point_store::{Point, PointBatch, PointKind, PointStore};
use oxtsdb_query::language::parse_metric_query;
use oxtsdb_query::{
    AnnotationSelection, Engine, Limit, Limits, QueryError, QueryResources, QuerySpec, Quirks,
    RequestContext, Resource,
};
use oxtsdb_resources::MemoryPool;
use oxtsdb_schema::{DuplicatePolicy, RowKeyLayout};

use crate::support::{self, HOUR_MS, START_MS};

/// Series with a point in the first hour; three times as many others are in the catalogue.
const SERIES: u16 = 2000;

async fn engine(limits: Limits) -> Engine {
    let points = MemoryPoints::new(RowKeyLayout::default().widths);
    let mut batch = PointBatch::default();
    for number in 0..4 * SERIES {
        let [high, low] = number.to_be_bytes();
        let tsuid = [0, 0, 1, 0, 0, 1, 0, high, low, 0, 0, 2, 0, 0, low % 10];
        let series = points.numbers(&[&tsuid]).unwrap()[0];
        let day = if number % 4 == 0 { 0 } else { 1 };
        let point = Point {
            time_ms: START_MS + day * 24 * HOUR_MS + 60_000,
            kind: PointKind::from_byte(0).unwrap(),
            bits: 1,
        };
        batch.push(series, point);
    }
    points.append(batch).await.unwrap();
    let resources = QueryResources {
        memory: MemoryPool::new("query", 1 << 30),
        ..QueryResources::unlimited().unwrap()
    };
    support::engine(Arc::new(points), limits, resources).await
}

fn memory(mib: u64) -> Limits {
    Limits {
        memory: Limit::from_setting("--query-max-memory-mib", mib << 20),
        ..Limits::NONE
    }
}

fn query(text: &str) -> QuerySpec {
    QuerySpec {
        start_ms: START_MS,
        end_ms: START_MS + HOUR_MS - 1,
        sub_queries: vec![parse_metric_query(text, &jiff::tz::TimeZone::UTC).unwrap()],
        duplicates: DuplicatePolicy::Error,
        max_scanned_points: None,
        quirks: Quirks::NONE,
        skip_damaged_rows: false,
        with_surroundings: false,
        with_infinities: false,
        annotations: AnnotationSelection::default(),
    }
}

#[tokio::test]
async fn small_queries_run_in_the_task_of_the_caller() {
    let engine = engine(memory(64)).await;
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let before = tasks();
    let frames = engine.run(query("sum:m{a=one}"), RequestContext::default()).await;
    assert_eq!(tasks(), before);
    assert!(frames.try_collect::<Vec<_>>().await.unwrap().len() > 1);
    // More frames than may wait for the caller: the rest of the query has a task, which ends with the stream.
    let frames = engine.run(query("none:m"), RequestContext::default()).await;
    assert!(tasks() > before);
    drop(frames);
    while tasks() > before {
        tokio::task::yield_now().await;
    }
}

/// The number of points of a result, whole or streamed; or the limit that it exceeds. Checks that the query reserved at
/// most `most_mib`.
async fn points(engine: &Engine, text: &str, whole: bool, most_mib: u64) -> Result<u64, (Resource, Limit)> {
    let (query, request) = (query(text), RequestContext::default());
    let result = if whole {
        engine
            .collect(query, request)
            .await
            .map(|result| result.statistics.points_sent)
    } else {
        let frames = engine.run(query, request).await;
        let sent = frames.try_fold(0, |sent, delivery| {
            let points = match delivery.frame {
                oxtsdb_query::Frame::Group(group) => group.points.len(),
                oxtsdb_query::Frame::More { points, .. } => points.len(),
                _ => 0,
            };
            futures::future::ready(Ok(sent + points as u64))
        });
        sent.await
    };
    let usage = engine.resources().memory.usage();
    assert!(usage.peak_bytes <= most_mib << 20, "{text}: {usage:?}");
    result.map_err(|error| match error {
        QueryError::OverBudget { resource, limit } => (resource, limit),
        error => panic!("{text}: {error}"),
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn windows_of_too_many_groups_are_rejected_before_points_are_read() {
    // 2,000 groups of 3,600 windows are 110 MiB.
    let limits = memory(100);
    let rejected = points(&engine(limits).await, "none:1s-sum-zero:m", true, 64).await;
    assert_eq!(rejected, Err((Resource::Memory, limits.memory)));
    let limits = Limits::NONE.with_points(u64::from(SERIES) * 3600 / 2);
    let rejected = points(&engine(limits).await, "sum:1s-sum-zero:m", false, 64).await;
    assert_eq!(rejected, Err((Resource::Points, limits.points)));
}

#[tokio::test(flavor = "multi_thread")]
async fn series_without_points_have_no_windows() {
    // With windows of all series of the catalogue, the result would exceed the limit.
    let engine = engine(memory(300)).await;
    let returned = points(&engine, "none:1s-sum-zero:m", true, 300).await;
    assert_eq!(returned, Ok(u64::from(SERIES) * 3600));
}
