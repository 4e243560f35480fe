use futures::TryStreamExt as _;
use oxtsdb_data_settings::DataSettings;
use oxtsdb_ingest::NewPoint;
use oxtsdb_proto::common::v1::{TimeRange, time_range};
use oxtsdb_proto::data::v1::data_admin_service_server::DataAdminService as _;
use oxtsdb_proto::error::reason_of;
use oxtsdb_row_store::{RowStore as _, WriteBatch};
use oxtsdb_schema::{Timestamp, Value};
use oxtsdb_test_stack::TestStack;

use super::*;

/// 2012-09-05 12:00 UTC.
const T: u32 = 1_346_846_400;

async fn write(stack: &TestStack, metric: &str, seconds: u32, value: i64) {
    let point = NewPoint {
        metric,
        tags: &[("host", "web01")],
        timestamp: Timestamp::from_seconds(seconds),
        value: Value::Int(value),
    };
    let outcome = stack.service.writer.write(&[point], None).await.unwrap();
    assert_eq!(outcome.written, 1);
}

/// Two points in each of two hours, of two metrics. Their cells get old timestamps.
async fn stack() -> TestStack {
    let stack = TestStack::start().await;
    for metric in ["a", "b"] {
        for hour in 0..2 {
            for second in [0, 10] {
                write(&stack, metric, T + hour * 3600 + second, i64::from(second)).await;
            }
        }
    }
    let table = "tsdb".parse().unwrap();
    let scan = oxtsdb_row_store::Scan::range([], []);
    let rows: Vec<_> = stack
        .store
        .scan(&table, scan)
        .await
        .unwrap()
        .try_collect()
        .await
        .unwrap();
    let mut batch = WriteBatch::new(table);
    let family = batch.family("t");
    for row in rows.iter().flatten() {
        batch.row(row.key()).delete_row();
        for cell in row.cells() {
            let long_ago_ms = cell.timestamp_ms - 86_400_000;
            batch.put_at(family, cell.qualifier, long_ago_ms, cell.value);
        }
    }
    stack.store.write(batch).await.unwrap();
    stack
}

async fn compact(stack: &TestStack, request: CompactRowsRequest) -> Result<Vec<CompactRowsResponse>, Status> {
    let messages = stack.service.handler.compact_rows(Request::new(request)).await?;
    messages.into_inner().try_collect().await
}

fn sum(messages: &[CompactRowsResponse], of: fn(&CompactRowsResponse) -> u64) -> u64 {
    messages.iter().map(of).sum()
}

#[tokio::test]
async fn compacts_a_metric_in_a_range_and_resumes() {
    let stack = stack().await;
    let request = CompactRowsRequest {
        metric: "b".to_owned(),
        range: Some(TimeRange {
            start: Some(time_range::Start::StartMs(i64::from(T) * 1000)),
            end: Some(time_range::End::EndMs(i64::from(T + 3600) * 1000)),
        }),
        ..CompactRowsRequest::default()
    };
    let messages = compact(&stack, request).await.unwrap();
    let last = messages.last().unwrap();
    assert!(last.done);
    assert_eq!(sum(&messages, |m| m.compacted), 1);
    assert_eq!(sum(&messages, |m| m.cells_before), 2);
    assert_eq!(stack.cells("tsdb").await.len(), 7);
    let rest = CompactRowsRequest {
        start_after_row_key: last.last_row_key.clone(),
        ..CompactRowsRequest::default()
    };
    let messages = compact(&stack, rest).await.unwrap();
    assert_eq!(
        (sum(&messages, |m| m.rows), sum(&messages, |m| m.compacted)),
        (1, 1)
    );
    let messages = compact(&stack, CompactRowsRequest::default()).await.unwrap();
    assert_eq!(sum(&messages, |m| m.compacted), 2);
    assert_eq!(sum(&messages, |m| m.already_compact), 2);
    assert_eq!(stack.cells("tsdb").await.len(), 4);
}

#[tokio::test]
async fn reports_rows_with_problems() {
    let stack = stack().await;
    let scan = oxtsdb_row_store::Scan::range([], []);
    let table = "tsdb".parse().unwrap();
    let rows: Vec<_> = stack
        .store
        .scan(&table, scan)
        .await
        .unwrap()
        .try_collect()
        .await
        .unwrap();
    let key = rows[0][0].key().to_vec();
    let mut batch = WriteBatch::new(table);
    let family = batch.family("t");
    batch.row(&key).put_at(family, &[0, 1], 1_000_000, &[0, 99]);
    stack.store.write(batch).await.unwrap();
    let messages = compact(&stack, CompactRowsRequest::default()).await.unwrap();
    assert_eq!(
        (sum(&messages, |m| m.conflicting), sum(&messages, |m| m.compacted)),
        (1, 3)
    );
    let findings: Vec<_> = messages.iter().flat_map(|message| &message.findings).collect();
    assert_eq!(findings.len(), 1);
    assert_eq!(findings[0].row_key, key);
    assert_eq!(findings[0].problem(), ProblemMessage::Conflicting);
}

#[tokio::test]
async fn rejects_requests_with_a_reason() {
    let stack = stack().await;
    let unknown = CompactRowsRequest {
        metric: "none".to_owned(),
        ..CompactRowsRequest::default()
    };
    let error = compact(&stack, unknown).await.unwrap_err();
    assert_eq!(error.code(), Code::NotFound);
    assert_eq!(reason_of(&error), Some(ErrorReason::NameNotFound));
    let young = CompactRowsRequest {
        min_age: Some(prost_types::Duration { seconds: 4, nanos: 0 }),
        ..CompactRowsRequest::default()
    };
    let error = compact(&stack, young).await.unwrap_err();
    assert_eq!(error.code(), Code::InvalidArgument);
    assert!(error.message().contains("expected at least 5000 ms"), "{error:?}");

    let embedded = TestStack::with_points().await;
    let error = compact(&embedded, CompactRowsRequest::default())
        .await
        .unwrap_err();
    assert_eq!(error.code(), Code::FailedPrecondition);
    assert_eq!(reason_of(&error), Some(ErrorReason::EmbeddedStore));
    let mut settings = DataSettings::default();
    settings.writing.use_otsdb_timestamp = true;
    let timestamps = TestStack::with(settings, uid_service::UidSettings::default()).await;
    let error = compact(&timestamps, CompactRowsRequest::default())
        .await
        .unwrap_err();
    assert_eq!(error.code(), Code::FailedPrecondition);
    assert_eq!(reason_of(&error), Some(ErrorReason::FeatureDisabled));
}

#[tokio::test]
async fn is_listed_and_cancelled_as_a_query() {
    let stack = stack().await;
    let slow = CompactRowsRequest {
        rows_per_second: 1,
        ..CompactRowsRequest::default()
    };
    let messages = stack
        .service
        .handler
        .compact_rows(Request::new(slow))
        .await
        .unwrap();
    let running = stack.service.engine.running();
    let query = running.list().pop().unwrap();
    assert_eq!(query.description.sub_queries, ["compact:*"]);
    assert!(running.cancel(query.id));
    let ended: Result<Vec<_>, Status> = messages.into_inner().try_collect().await;
    let error = ended.unwrap_err();
    assert_eq!(
        (error.code(), reason_of(&error)),
        (Code::Aborted, Some(ErrorReason::QueryCancelled))
    );
}

#[tokio::test]
async fn ends_when_the_server_drains() {
    let stack = stack().await;
    let slow = CompactRowsRequest {
        rows_per_second: 1,
        ..CompactRowsRequest::default()
    };
    let messages = stack
        .service
        .handler
        .compact_rows(Request::new(slow))
        .await
        .unwrap();
    let ended = messages.into_inner().try_collect::<Vec<_>>();
    let (ended, ()) = tokio::join!(ended, stack.trigger.shut_down());
    let error = ended.unwrap_err();
    assert_eq!(
        (error.code(), reason_of(&error)),
        (Code::Unavailable, Some(ErrorReason::Draining))
    );
}
