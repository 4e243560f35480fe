use bytes::Bytes;
use futures::TryStreamExt as _;
use oxtsdb_proto::common::v1::{ErrorReason, TimeRange, time_range};
use oxtsdb_proto::data::v1::query_response::Frame;
use oxtsdb_proto::data::v1::sub_query::{MetricSource, Source as query_source};
use oxtsdb_proto::data::v1::{AggregateFunction, Annotation, QueryRequest, QueryResponse, SubQuery};
use oxtsdb_proto::error::reason_of;
use oxtsdb_row_store::{RowStore as _, WriteBatch};
use oxtsdb_test_stack::TestStack;
use prost_types::FieldMask;
use tonic::Code;

use super::*;
use crate::test_handlers::data_handler;

const T: i64 = 1_356_998_400_000;

fn series(number: u8) -> Bytes {
    vec![0, 0, 1, 0, 0, 1, 0, 0, number].into()
}

/// Calls of a handler, with the message alone.
struct Calls(DataServiceHandler);

impl Calls {
    async fn start() -> (TestStack, Calls) {
        let stack = TestStack::start().await;
        let calls = Calls(data_handler(&stack));
        (stack, calls)
    }

    async fn put(&self, request: PutAnnotationRequest) -> Result<Annotation, Status> {
        let response = self.0.put_annotation(Request::new(request)).await?;
        Ok(response.into_inner().annotation.unwrap())
    }

    async fn get(&self, tsuid: Bytes, start_ms: i64) -> Result<Annotation, Status> {
        let request = GetAnnotationRequest { tsuid, start_ms };
        let response = self.0.get_annotation(Request::new(request)).await?;
        Ok(response.into_inner().annotation.unwrap())
    }

    async fn list(&self, request: ListAnnotationsRequest) -> Result<ListAnnotationsResponse, Status> {
        Ok(self.0.list_annotations(Request::new(request)).await?.into_inner())
    }

    async fn delete(&self, request: DeleteAnnotationRequest) -> Result<(), Status> {
        self.0.delete_annotation(Request::new(request)).await.map(drop)
    }
}

fn annotation(tsuid: Bytes, start_ms: i64, description: &str) -> Annotation {
    Annotation {
        tsuid,
        start_ms,
        description: description.to_owned(),
        ..Annotation::default()
    }
}

fn put(annotation: Annotation) -> PutAnnotationRequest {
    PutAnnotationRequest {
        annotation: Some(annotation),
        ..PutAnnotationRequest::default()
    }
}

fn range(start_ms: i64, end_ms: i64) -> Option<TimeRange> {
    Some(TimeRange {
        start: Some(time_range::Start::StartMs(start_ms)),
        end: Some(time_range::End::EndMs(end_ms)),
    })
}

fn refused<T: std::fmt::Debug>(result: Result<T, Status>) -> (Code, ErrorReason, String) {
    let status = result.unwrap_err();
    (
        status.code(),
        reason_of(&status).unwrap(),
        status.message().to_owned(),
    )
}

#[tokio::test]
async fn a_mask_selects_the_fields_that_change() {
    let (stack, calls) = Calls::start().await;
    let created = calls
        .put(put(Annotation {
            end_ms: T + 500,
            notes: "n".to_owned(),
            custom: [("k".to_owned(), "v".to_owned())].into(),
            ..annotation(series(1), T, "d")
        }))
        .await
        .unwrap();
    assert_eq!(
        stack.cells("tsdb").await,
        [format!(
            "00000150e22700000001000001 t:010000 {}",
            hex::encode(
                r#"{"tsuid":"000001000001000001","startTime":1356998400,"endTime":1356998400500,"description":"d","notes":"n","custom":{"k":"v"}}"#
            )
        )]
    );
    let read = calls.get(series(1), T).await.unwrap();
    assert_eq!(read, created);
    let changed = |mask: Option<&[&str]>, annotation: Annotation| PutAnnotationRequest {
        update_mask: mask.map(|paths| FieldMask {
            paths: paths.iter().map(|path| (*path).to_owned()).collect(),
        }),
        ..put(annotation)
    };
    let request = changed(Some(&["description", "end_ms"]), annotation(series(1), T, ""));
    let edited = calls.put(request).await.unwrap();
    assert_eq!((edited.description.as_str(), edited.end_ms), ("", 0));
    assert_eq!((edited.notes.as_str(), edited.custom.len()), ("n", 1));
    assert_ne!(edited.etag, created.etag);
    let edited = calls
        .put(changed(Some(&["*"]), annotation(series(1), T, "all")))
        .await
        .unwrap();
    assert_eq!((edited.notes.as_str(), edited.custom.len()), ("", 0));
    let (code, reason, message) = refused(
        calls
            .put(changed(Some(&["etag"]), annotation(series(1), T, "")))
            .await,
    );
    assert_eq!((code, reason), (Code::InvalidArgument, ErrorReason::InvalidField));
    assert!(message.contains("update_mask.paths[0]"), "{message}");
}

#[tokio::test]
async fn preconditions_are_compared_with_the_stored_bytes() {
    let (_stack, calls) = Calls::start().await;
    let with = |precondition, description: &str| PutAnnotationRequest {
        precondition: Some(precondition),
        ..put(annotation(Bytes::new(), T, description))
    };
    let new = PreconditionMessage::MustBeNew(true);
    let first = calls.put(with(new.clone(), "1")).await.unwrap();
    let aborted = (Code::Aborted, ErrorReason::EtagMismatch);
    let (code, reason, _) = refused(calls.put(with(new, "2")).await);
    assert_eq!((code, reason), aborted);
    let of = |annotation: &Annotation| PreconditionMessage::Etag(annotation.etag.clone());
    let second = calls.put(with(of(&first), "2")).await.unwrap();
    let (code, reason, _) = refused(calls.put(with(of(&first), "3")).await);
    assert_eq!((code, reason), aborted);
    assert_eq!(calls.get(Bytes::new(), T).await.unwrap(), second);

    let delete = |etag: &str, allow_missing| DeleteAnnotationRequest {
        start_ms: T,
        etag: etag.to_owned(),
        allow_missing,
        ..DeleteAnnotationRequest::default()
    };
    let (code, reason, _) = refused(calls.delete(delete(&first.etag, false)).await);
    assert_eq!((code, reason), aborted);
    calls.delete(delete(&second.etag, false)).await.unwrap();
    let (code, reason, _) = refused(calls.delete(delete("", false)).await);
    assert_eq!((code, reason), (Code::NotFound, ErrorReason::AnnotationNotFound));
    calls.delete(delete("", true)).await.unwrap();
    let (code, reason, _) = refused(calls.get(Bytes::new(), T).await);
    assert_eq!((code, reason), (Code::NotFound, ErrorReason::AnnotationNotFound));
}

#[tokio::test]
async fn finds_annotations_that_opentsdb_stored_in_seconds_and_in_milliseconds() {
    let (stack, calls) = Calls::start().await;
    // Of 1369141000 seconds, and of as many thousand milliseconds.
    for (qualifier, start, name) in [
        ([1, 0x04, 0x75], "1369141000", "seconds"),
        ([1, 0x0d, 0x48], "1369141000000", "milliseconds"),
    ] {
        let mut batch = WriteBatch::new("tsdb".parse().unwrap());
        let family = batch.family("t");
        let value =
            format!(r#"{{"startTime":{start},"endTime":0,"description":"{name}","notes":"","custom":null}}"#);
        let row = hex::decode("000000519b61c0").unwrap();
        batch.row(&row).put(family, &qualifier, value.as_bytes());
        stack.store.write(batch).await.unwrap();
    }
    let key = 1_369_141_000_000;
    assert_eq!(calls.get(Bytes::new(), key).await.unwrap().description, "seconds");
    let request = DeleteAnnotationRequest {
        start_ms: key,
        ..DeleteAnnotationRequest::default()
    };
    calls.delete(request).await.unwrap();
    let edited = calls
        .put(put(annotation(Bytes::new(), key, "edited")))
        .await
        .unwrap();
    assert_eq!(edited.start_ms, key);
    let cells = stack.cells("tsdb").await;
    assert_eq!(cells.len(), 1, "{cells:?}");
    assert!(cells[0].starts_with("000000519b61c0 t:010d48"), "{cells:?}");
}

#[tokio::test]
async fn lists_pages_in_order_of_time() {
    let (stack, calls) = Calls::start().await;
    for seconds in 0..50 {
        let point = oxtsdb_ingest::NewPoint {
            metric: "m",
            tags: &[("host", "a")],
            timestamp: oxtsdb_schema::Timestamp::from_seconds(1_356_998_400 + seconds),
            value: oxtsdb_schema::Value::Int(1),
        };
        stack.service.writer.write(&[point], None).await.unwrap();
    }
    let begins = [
        T,
        T + 500,
        T + 1000,
        T + 70_500,
        T + 71_000,
        T + 3_600_000,
        T + 36_000_001,
    ];
    for begin in begins {
        for tsuid in [series(1), series(2), Bytes::new()] {
            calls.put(put(annotation(tsuid, begin, "d"))).await.unwrap();
        }
    }
    for tsuid in [series(1), Bytes::new()] {
        for page_size in [1, 2, 3, 100] {
            let mut request = ListAnnotationsRequest {
                tsuid: tsuid.clone(),
                range: range(T + 1, T + 36_000_001),
                page_size,
                page_token: String::new(),
            };
            let mut listed = Vec::new();
            loop {
                let page = calls.list(request.clone()).await.unwrap();
                assert!(page.annotations.len() <= usize::try_from(page_size).unwrap());
                assert!(
                    page.annotations
                        .iter()
                        .all(|annotation| annotation.tsuid == tsuid && !annotation.etag.is_empty())
                );
                listed.extend(page.annotations.iter().map(|annotation| annotation.start_ms));
                if page.next_page_token.is_empty() {
                    break;
                }
                request.page_token = page.next_page_token;
            }
            assert_eq!(listed, begins[1..6], "{page_size}");
        }
    }
    let request = ListAnnotationsRequest {
        tsuid: series(1),
        range: range(T, T + 36_000_002),
        page_size: 1,
        page_token: String::new(),
    };
    let page_token = calls.list(request.clone()).await.unwrap().next_page_token;
    for other in [
        ListAnnotationsRequest {
            tsuid: series(2),
            ..request.clone()
        },
        ListAnnotationsRequest {
            range: range(T, T + 1),
            ..request.clone()
        },
    ] {
        let (code, reason, message) = refused(
            calls
                .list(ListAnnotationsRequest {
                    page_token: page_token.clone(),
                    ..other
                })
                .await,
        );
        assert_eq!((code, reason), (Code::InvalidArgument, ErrorReason::InvalidField));
        assert!(message.starts_with("page_token: "), "{message}");
    }
}

#[tokio::test]
async fn deletes_a_range_and_reports_items_of_a_batch() {
    let (_stack, calls) = Calls::start().await;
    let mut requests: Vec<_> = (0..40)
        .map(|second| put(annotation(series(1), T + second * 1000, "d")))
        .collect();
    requests.push(put(annotation(vec![1].into(), T, "d")));
    requests.push(put(annotation(Bytes::new(), 1_500, "d")));
    requests.push(PutAnnotationRequest::default());
    let request = Request::new(BatchPutAnnotationsRequest { requests });
    let results = calls
        .0
        .batch_put_annotations(request)
        .await
        .unwrap()
        .into_inner()
        .results;
    let failures: Vec<_> = results
        .iter()
        .enumerate()
        .filter_map(|(index, result)| match result.outcome.as_ref().unwrap() {
            Outcome::Etag(_) => None,
            Outcome::Error(error) => Some((index, error.reason())),
        })
        .collect();
    assert_eq!(
        failures,
        [
            (40, ErrorReason::InvalidUidWidth),
            (41, ErrorReason::InvalidTimestamp),
            (42, ErrorReason::InvalidField)
        ]
    );
    let delete = |tsuids: &[Bytes], global| DeleteAnnotationRangeRequest {
        tsuids: tsuids.to_vec(),
        global,
        range: range(T + 10_000, T + 20_000),
    };
    let deleted = calls
        .0
        .delete_annotation_range(Request::new(delete(&[series(1), series(1)], true)))
        .await;
    assert_eq!(deleted.unwrap().into_inner().deleted, 10);
    for (tsuids, reason) in [
        (vec![], ErrorReason::InvalidField),
        (vec![Bytes::new()], ErrorReason::InvalidField),
        (vec![Bytes::from(vec![1])], ErrorReason::InvalidUidWidth),
    ] {
        let refused = refused(
            calls
                .0
                .delete_annotation_range(Request::new(delete(&tsuids, false)))
                .await,
        );
        assert_eq!((refused.0, refused.1), (Code::InvalidArgument, reason));
    }
    let request = Request::new(BatchPutAnnotationsRequest::default());
    let refused = refused(calls.0.batch_put_annotations(request).await);
    assert_eq!(
        (refused.0, refused.1),
        (Code::InvalidArgument, ErrorReason::BatchTooLarge)
    );
}

/// Of each frame: its kind, the group, and descriptions or the number of points.
async fn frames(stack: &TestStack, request: QueryRequest) -> Vec<String> {
    let stream = stack.client().query(request).await.unwrap().into_inner();
    let frames: Vec<_> = stream.try_collect().await.unwrap();
    let shown = |response: QueryResponse| match response.frame.unwrap() {
        Frame::Series(series) => format!("series {}", series.series),
        Frame::Points(points) => format!("points {}: {}", points.series, points.timestamps_ms.len()),
        Frame::Annotations(annotations) => {
            let names: Vec<_> = annotations
                .annotations
                .iter()
                .map(|one| one.description.as_str())
                .collect();
            format!("annotations {:?}: {}", annotations.series, names.join(","))
        }
        Frame::Done(_) => "done".to_owned(),
        Frame::Statistics(statistics) => format!("skipped {}", statistics.skipped_cells),
    };
    frames.into_iter().map(shown).collect()
}

#[tokio::test]
async fn queries_return_requested_annotations_in_order_of_time() {
    let (stack, calls) = Calls::start().await;
    let point = oxtsdb_ingest::NewPoint {
        metric: "m",
        tags: &[("host", "a")],
        timestamp: oxtsdb_schema::Timestamp::from_seconds(1_356_998_400),
        value: oxtsdb_schema::Value::Int(1),
    };
    stack.service.writer.write(&[point], None).await.unwrap();
    for (tsuid, begin, name) in [
        (series(1), T + 2000, "second"),
        (series(1), T + 1500, "first"),
        (series(1), T + 60_000, "outside"),
        (Bytes::new(), T + 1000, "global"),
    ] {
        calls.put(put(annotation(tsuid, begin, name))).await.unwrap();
    }
    let request = |include_annotations, include_global_annotations| QueryRequest {
        range: range(T, T + 60_000),
        queries: vec![SubQuery {
            source: Some(query_source::Metric(MetricSource {
                metric: "m".to_owned(),
                ..MetricSource::default()
            })),
            aggregator: Some(AggregateFunction::Sum.into()),
            ..SubQuery::default()
        }],
        include_annotations,
        include_global_annotations,
        ..QueryRequest::default()
    };
    assert_eq!(
        frames(&stack, request(true, true)).await,
        [
            "annotations None: global",
            "series 0",
            "annotations Some(0): first,second",
            "points 0: 1",
            "done",
            "skipped 0"
        ]
    );
    assert_eq!(
        frames(&stack, request(false, false)).await,
        ["series 0", "points 0: 1", "done", "skipped 3"]
    );
}
