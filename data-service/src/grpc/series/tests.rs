use oxtsdb_ingest::NewPoint;
use oxtsdb_proto::common::v1::ErrorReason;
use oxtsdb_proto::data::v1::series_selector::TagSelector as TagMessage;
use oxtsdb_proto::error::reason_of;
use oxtsdb_schema::{Timestamp, Value};
use oxtsdb_test_stack::TestStack;
use tonic::Code;

use super::*;

async fn stack() -> TestStack {
    let stack = TestStack::start().await;
    for (metric, host) in [("m", "a"), ("m", "b"), ("m", "c"), ("n", "a")] {
        let point = NewPoint {
            metric,
            tags: &[("host", host)],
            timestamp: Timestamp::from_seconds(1_356_998_400),
            value: Value::Int(1),
        };
        stack.service.writer.write(&[point], None).await.unwrap();
    }
    stack
}

fn metric_lookup(metric: &str) -> LookupSeriesRequest {
    LookupSeriesRequest {
        selector: Some(pb::SeriesSelector {
            metric: metric.to_owned(),
            tags: Vec::new(),
        }),
        page_size: 2,
        include_total: true,
        ..LookupSeriesRequest::default()
    }
}

async fn lookup(stack: &TestStack, request: LookupSeriesRequest) -> Result<LookupSeriesResponse, Status> {
    let response = lookup_series(&stack.service.engine, Request::new(request)).await;
    response.map(Response::into_inner)
}

fn hosts(page: &LookupSeriesResponse) -> Vec<&str> {
    let names = page.series.iter().filter_map(|series| series.name.as_ref());
    names.map(|name| name.tags[0].value.as_str()).collect()
}

#[tokio::test]
async fn pages_lead_to_the_end() {
    let stack = stack().await;
    let first = lookup(&stack, metric_lookup("m")).await.unwrap();
    assert_eq!((hosts(&first), first.total_series), (vec!["a", "b"], 3));
    let next = LookupSeriesRequest {
        page_token: first.next_page_token,
        include_total: false,
        ..metric_lookup("m")
    };
    let last = lookup(&stack, next).await.unwrap();
    assert_eq!((hosts(&last), last.total_series), (vec!["c"], 0));
    assert_eq!(last.next_page_token, "");
}

#[tokio::test]
async fn rejects_invalid_requests() {
    let stack = stack().await;
    let token = lookup(&stack, metric_lookup("m")).await.unwrap().next_page_token;
    let empty_value = pb::SeriesSelector {
        metric: String::new(),
        tags: vec![TagMessage {
            key: "host".to_owned(),
            values: vec!["a".to_owned(), String::new()],
        }],
    };
    for (request, field) in [
        (
            LookupSeriesRequest {
                page_token: token,
                ..metric_lookup("n")
            },
            "page_token",
        ),
        (
            LookupSeriesRequest {
                page_token: "?".to_owned(),
                ..metric_lookup("m")
            },
            "page_token",
        ),
        (
            LookupSeriesRequest {
                page_size: -1,
                ..metric_lookup("m")
            },
            "page_size",
        ),
        (
            LookupSeriesRequest {
                source: 7,
                ..metric_lookup("m")
            },
            "source",
        ),
        (
            LookupSeriesRequest {
                selector: Some(empty_value),
                ..metric_lookup("m")
            },
            "selector.tags[0].values[1]",
        ),
    ] {
        let status = lookup(&stack, request).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument, "{status}");
        assert_eq!(reason_of(&status), Some(ErrorReason::InvalidField));
        assert!(status.message().starts_with(field), "{status}");
    }
    let status = lookup(&stack, metric_lookup("unknown")).await.unwrap_err();
    assert_eq!(
        (status.code(), reason_of(&status)),
        (Code::NotFound, Some(ErrorReason::NameNotFound))
    );
}

#[tokio::test]
async fn exports_resume_after_a_series() {
    let stack = stack().await;
    let export = async |request| {
        let stream = export_series(&stack.service.engine, Request::new(request)).unwrap();
        let messages: Vec<ExportSeriesResponse> = stream.into_inner().try_collect().await.unwrap();
        messages
            .into_iter()
            .flat_map(|message| message.series)
            .collect::<Vec<_>>()
    };
    let all = export(ExportSeriesRequest::default()).await;
    assert_eq!(all.len(), 4);
    let rest = ExportSeriesRequest {
        start_after_tsuid: all[1].tsuid.clone(),
        ..ExportSeriesRequest::default()
    };
    assert_eq!(export(rest).await, all[2..]);
}

#[tokio::test]
async fn counts_by_metric_and_tag_key() {
    let stack = stack().await;
    let request = CountSeriesRequest {
        max_metrics: 1,
        max_tag_keys: 5,
        ..CountSeriesRequest::default()
    };
    let response = count_series(&stack.service.engine, Request::new(request))
        .await
        .unwrap();
    let CountSeriesResponse {
        series,
        metric_count,
        metrics,
        tag_key_count,
        tag_keys,
    } = response.into_inner();
    assert_eq!((series, metric_count, tag_key_count), (4, 2, 1));
    assert_eq!(
        (metrics.len(), metrics[0].name.as_str(), metrics[0].series),
        (1, "m", 3)
    );
    assert_eq!(
        (tag_keys[0].name.as_str(), tag_keys[0].series, tag_keys[0].values),
        ("host", 4, 3)
    );
}
