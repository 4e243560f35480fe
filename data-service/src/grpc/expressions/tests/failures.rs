//! Queries that fail while they run: limits, damaged rows, time-outs.

use super::*;

#[tokio::test]
async fn errors_of_the_scan_fail_the_query() {
    let stack = stack().await;
    let mut unknown = request(vec![arithmetic("e", "a")]);
    unknown.inputs[0] = input("a", "nope");
    let status = frames(&stack, unknown).await.unwrap_err();
    assert_eq!(reason_of(&status), Some(ErrorReason::NameNotFound));
    let small = QueryExpressionsRequest {
        max_scanned_points: 3,
        ..request(vec![arithmetic("e", "a")])
    };
    let status = frames(&stack, small).await.unwrap_err();
    assert_eq!(reason_of(&status), Some(ErrorReason::QueryTooLarge));
}

#[tokio::test]
async fn skips_and_reports_damaged_rows_on_request() {
    let stack = stack().await;
    let mut batch = oxtsdb_row_store::WriteBatch::new("tsdb".parse().unwrap());
    let family = batch.family("t");
    // The hour of `in`, host a.
    let key = [
        0, 0, 1, 0x50, 0xe2, 0x27, 0x00, 0, 0, 1, 0, 0, 1, 0, 0, 2, 0, 0, 2,
    ];
    // Flags of 4 bytes, in the resolution that has trusted flags; the value has 2.
    batch.row(&key).put(family, &[0xf0, 0, 0, 0x03], &[1, 2]);
    stack.store.write(batch).await.unwrap();
    let request = request(vec![arithmetic("e", "a + b")]);
    let status = frames(&stack, request.clone()).await.unwrap_err();
    assert_eq!(reason_of(&status), Some(ErrorReason::CorruptCell));
    let skipping = QueryExpressionsRequest {
        skip_damaged_rows: true,
        ..request
    };
    let frames = frames(&stack, skipping).await.unwrap();
    let Some(Frame::Statistics(statistics)) = frames.last() else {
        panic!("{frames:?}")
    };
    assert_eq!((statistics.damaged_rows, statistics.damaged.len()), (1, 1));
}

#[tokio::test]
async fn copies_of_an_output_hold_memory() {
    let mut settings = DataSettings::default();
    settings.queries.query_max_memory_mib = Some(1);
    let stack = TestStack::with(settings, UidSettings::default()).await;
    let point = |second: u32| NewPoint {
        metric: "in",
        tags: &[("host", "a")],
        timestamp: Timestamp::from_seconds(T + second),
        value: Value::Int(second.into()),
    };
    let points: Vec<_> = (0..2000).map(point).collect();
    stack.service.writer.write(&points, None).await.unwrap();
    let request = |times: usize| QueryExpressionsRequest {
        inputs: vec![input("a", "in")],
        outputs: vec!["a".to_owned(); times],
        ..super::request(Vec::new())
    };
    let twice = frames(&stack, request(2)).await.unwrap();
    let points_of = |place: u32| -> usize {
        let points = twice.iter().filter_map(|frame| match frame {
            Frame::Points(points) if points.series == place => Some(points.int_values.len()),
            _ => None,
        });
        points.sum()
    };
    assert_eq!((points_of(0), points_of(1)), (2000, 2000));
    let status = frames(&stack, request(100)).await.unwrap_err();
    assert_eq!(reason_of(&status), Some(ErrorReason::QueryTooLarge), "{status}");
    assert!(status.message().contains("--query-max-memory-mib"), "{status}");
}

#[tokio::test]
async fn names_the_query_timeout() {
    let mut settings = DataSettings::default();
    settings.queries.max_concurrent_queries = 1;
    settings.queries.query_timeout_seconds = 1;
    let stack = TestStack::with(settings, UidSettings::default()).await;
    let running = stack
        .service
        .engine
        .admit(
            oxtsdb_query::RequestContext::local(None),
            oxtsdb_query::QueryDescription::default(),
            None,
        )
        .await;
    let request = request(vec![arithmetic("e", "a + b")]);
    let request = QueryExpressionsRequest {
        inputs: request
            .inputs
            .into_iter()
            .map(|input| Input {
                query: input.query.map(|mut query| {
                    if let Some(Source::Metric(source)) = &mut query.source {
                        source.filters.clear();
                    }
                    query
                }),
                ..input
            })
            .collect(),
        ..request
    };
    let status = frames(&stack, request).await.unwrap_err();
    assert_eq!(
        (status.code(), status.message()),
        (
            Code::DeadlineExceeded,
            "query was not answered within 1 s, the limit of --query-timeout-seconds"
        )
    );
    drop(running);
}
