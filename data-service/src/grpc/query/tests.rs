use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::TryStreamExt as _;
use oxtsdb_ingest::NewPoint;
use oxtsdb_proto::common::v1::{TimeRange, time_range};
use oxtsdb_proto::data::v1::query_response::Frame;
use oxtsdb_proto::data::v1::sub_query::{MetricSource, Source};
use oxtsdb_proto::data::v1::{
    AggregateFunction, CancelQueryRequest, SubQuery, TagFilter, tag_filter::FilterType,
};
use oxtsdb_proto::error::reason_of;
use oxtsdb_query::QueryResources;
use oxtsdb_query::{Engine, Limits};
use oxtsdb_row_store::RowStore;
use oxtsdb_schema::{Timestamp, Value};
use oxtsdb_server::Deadline;
use oxtsdb_test_stack::TestStack;

use super::*;
use crate::grpc::running;

mod stuck;

use stuck::Stuck;

const T: u32 = 1_356_998_400;

/// A store with ten series of one metric, 100 points each.
async fn stack() -> TestStack {
    let stack = TestStack::start().await;
    for host in 0..10 {
        let host = format!("web{host:02}");
        let tags = [("host", host.as_str()), ("dc", "lga")];
        let points: Vec<_> = (0..100)
            .map(|i| NewPoint {
                metric: "sys.cpu.nice",
                tags: &tags,
                timestamp: Timestamp::from_seconds(T + i * 10),
                value: Value::Int(i64::from(i)),
            })
            .collect();
        let outcome = stack.service.writer.write(&points, None).await.unwrap();
        assert_eq!(outcome.written, 100);
    }
    stack
}

fn engine_over(stack: &TestStack, store: Arc<dyn RowStore>) -> Engine {
    let uids = stack.service.uids.clone();
    let layout = *uids.layout();
    Engine::new(
        store,
        ("tsdb".parse().unwrap(), "tsdb-meta".parse().unwrap()),
        layout,
        Arc::new(uids),
        Limits::NONE,
        QueryResources::unlimited().unwrap(),
    )
}

fn engine(stack: &TestStack) -> Engine {
    engine_over(stack, Arc::new(stack.store.clone()))
}

fn request(metric: &str, aggregator: AggregateFunction) -> QueryRequest {
    let filter = TagFilter {
        key: "host".to_owned(),
        r#type: FilterType::Wildcard.into(),
        pattern: "web0*".to_owned(),
        ..TagFilter::default()
    };
    let source = MetricSource {
        metric: metric.to_owned(),
        filters: vec![filter],
        explicit_tags: false,
    };
    let start_ms = i64::from(T) * 1000;
    QueryRequest {
        range: Some(TimeRange {
            start: Some(time_range::Start::StartMs(start_ms)),
            end: Some(time_range::End::EndMs(start_ms + 3_600_000)),
        }),
        queries: vec![SubQuery {
            source: Some(Source::Metric(source)),
            aggregator: Some(aggregator.into()),
            ..SubQuery::default()
        }],
        ..QueryRequest::default()
    }
}

async fn run(engine: &Engine, request: QueryRequest) -> Result<Vec<Frame>, Status> {
    run_with(engine, Request::new(request)).await
}

async fn run_with(engine: &Engine, request: Request<QueryRequest>) -> Result<Vec<Frame>, Status> {
    let frames: Vec<QueryResponse> = query(engine, request).await?.into_inner().try_collect().await?;
    Ok(frames
        .into_iter()
        .map(|response| response.frame.expect("every message has a frame"))
        .collect())
}

#[tokio::test]
async fn a_sub_query_is_series_then_points_then_done() {
    let stack = stack().await;
    let request = QueryRequest {
        frame_points: 60,
        include_tsuids: true,
        ..request("sys.cpu.nice", AggregateFunction::Sum)
    };
    let frames = run(&engine(&stack), request).await.unwrap();
    let [
        Frame::Series(series),
        Frame::Points(first),
        Frame::Points(second),
        Frame::Done(done),
        Frame::Statistics(statistics),
    ] = frames.as_slice()
    else {
        panic!("{frames:?}")
    };
    assert_eq!(
        (series.series, series.query, series.metric.as_str()),
        (0, 0, "sys.cpu.nice")
    );
    assert_eq!(series.tags.get("dc").map(String::as_str), Some("lga"));
    assert_eq!(series.aggregate_tags, ["host"]);
    assert_eq!(series.tsuids.len(), 10);
    assert_eq!((first.int_values.len(), second.int_values.len()), (60, 40));
    assert_eq!(second.timestamps_ms[0], i64::from(T + 600) * 1000);
    assert_eq!(second.int_values[0], 600, "ten times 60");
    assert_eq!((done.query, done.series_count), (0, 1));
    assert_eq!(
        (statistics.rows, statistics.points, statistics.points_sent),
        (10, 1000, 100)
    );
}

#[tokio::test]
async fn aggregator_none_returns_each_series() {
    let stack = stack().await;
    let frames = run(&engine(&stack), request("sys.cpu.nice", AggregateFunction::None))
        .await
        .unwrap();
    let series = frames
        .iter()
        .filter(|frame| matches!(frame, Frame::Series(_)))
        .count();
    let points = frames
        .iter()
        .filter(|frame| matches!(frame, Frame::Points(_)))
        .count();
    assert_eq!((series, points), (10, 10));
}

#[tokio::test]
async fn unknown_metrics_are_not_found() {
    let stack = stack().await;
    let status = run(&engine(&stack), request("nope", AggregateFunction::Sum))
        .await
        .unwrap_err();
    assert_eq!(status.code(), Code::NotFound);
    assert_eq!(reason_of(&status), Some(ErrorReason::NameNotFound));
    assert_eq!(status.message(), "no such name for 'metrics': 'nope'");
}

#[tokio::test]
async fn rejects_queries_above_the_point_limit() {
    let stack = stack().await;
    let request = QueryRequest {
        max_scanned_points: 999,
        ..request("sys.cpu.nice", AggregateFunction::Sum)
    };
    let status = run(&engine(&stack), request).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert_eq!(reason_of(&status), Some(ErrorReason::QueryTooLarge));
    assert_eq!(
        status.message(),
        "query needs more than 999 points, the limit of max_scanned_points"
    );
}

#[tokio::test]
async fn the_deadline_cancels_a_query_on_a_stuck_store() {
    let stack = stack().await;
    let (store, _) = Stuck::over(stack.store.clone());
    let mut request = Request::new(request("sys.cpu.nice", AggregateFunction::Sum));
    request
        .extensions_mut()
        .insert(Deadline(Instant::now() + Duration::from_millis(50)));
    let status = run_with(&engine_over(&stack, store), request).await.unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded);
    assert_eq!(reason_of(&status), Some(ErrorReason::DeadlineExceeded));
}

#[tokio::test]
async fn a_disconnecting_client_cancels_the_scan() {
    let stack = stack().await;
    let (store, mut open_scans) = Stuck::over(stack.store.clone());
    let engine = engine_over(&stack, store);
    let request = Request::new(request("sys.cpu.nice", AggregateFunction::Sum));
    let call = async { drop(query(&engine, request).await) };
    tokio::select! {
        () = call => panic!("the store is stuck"),
        open = open_scans.wait_for(|open| *open > 0) => drop(open.unwrap()),
    }
    open_scans.wait_for(|open| *open == 0).await.unwrap();
}

#[tokio::test]
async fn lists_and_cancels_a_running_query() {
    let stack = stack().await;
    let (store, mut open_scans) = Stuck::over(stack.store.clone());
    let engine = engine_over(&stack, store);
    assert!(running::list(&engine).queries.is_empty());
    let request = Request::new(request("sys.cpu.nice", AggregateFunction::Sum));
    let response = tokio::spawn({
        let engine = engine.clone();
        async move {
            query(&engine, request)
                .await?
                .into_inner()
                .try_collect::<Vec<_>>()
                .await
        }
    });
    open_scans.wait_for(|open| *open > 0).await.unwrap();

    let listed = running::list(&engine).queries;
    assert_eq!(listed.len(), 1);
    assert_eq!(
        listed[0].sub_queries,
        ["sum:sys.cpu.nice{}{host=wildcard(web0*)}"]
    );
    let id = listed[0].id;
    let unknown = running::cancel(&engine, &CancelQueryRequest { id: id + 1 }).unwrap_err();
    assert_eq!(unknown.code(), Code::NotFound);
    assert_eq!(reason_of(&unknown), Some(ErrorReason::QueryNotFound));

    running::cancel(&engine, &CancelQueryRequest { id }).unwrap();
    let status = response.await.unwrap().unwrap_err();
    assert_eq!(status.code(), Code::Aborted);
    assert_eq!(reason_of(&status), Some(ErrorReason::QueryCancelled));
    open_scans.wait_for(|open| *open == 0).await.unwrap();
    assert!(running::list(&engine).queries.is_empty());
}

#[tokio::test]
async fn reports_or_skips_a_damaged_cell() {
    let stack = stack().await;
    let mut batch = oxtsdb_row_store::WriteBatch::new("tsdb".parse().unwrap());
    let family = batch.family("t");
    let key = [
        0, 0, 1, 0x50, 0xe2, 0x27, 0x00, 0, 0, 1, 0, 0, 1, 0, 0, 2, 0, 0, 2,
    ];
    // Flags of 4 bytes, in the resolution that has trusted flags; the value has 2.
    batch.row(&key).put(family, &[0xf0, 0, 0, 0x03], &[1, 2]);
    stack.store.write(batch).await.unwrap();
    let whole = || request("sys.cpu.nice", AggregateFunction::None);
    let skipping = QueryRequest {
        skip_damaged_rows: true,
        ..whole()
    };
    let frames = run(&engine(&stack), skipping).await.unwrap();
    let Some(Frame::Statistics(statistics)) = frames.last() else {
        panic!("{frames:?}")
    };
    let damaged = &statistics.damaged[0];
    assert_eq!((statistics.damaged_rows, statistics.damaged.len()), (1, 1));
    assert_eq!(damaged.tsuid[..], [&key[..3], &key[7..]].concat());
    let start = time_range::Start::StartMs(i64::from(T) * 1000);
    assert_eq!(damaged.range.as_ref().unwrap().start, Some(start));
    let series = frames.iter().filter(|frame| matches!(frame, Frame::Series(_)));
    assert_eq!(series.count(), 9, "the other series are returned");

    let status = run(&engine(&stack), whole()).await.unwrap_err();
    assert_eq!(status.code(), Code::DataLoss);
    assert_eq!(reason_of(&status), Some(ErrorReason::CorruptCell));
    assert!(
        status
            .message()
            .contains("00000150E22700000001000001000002000002"),
        "{}",
        status.message()
    );
}
