use std::sync::Arc;

use futures::TryStreamExt as _;
use oxtsdb_data_settings::DataSettings;
use oxtsdb_ingest::NewPoint;
use oxtsdb_proto::common::v1::{ErrorReason, ItemError, SeriesKey};
use oxtsdb_proto::data::v1::sub_query::MetricSource;
use oxtsdb_query::Limits;
use oxtsdb_query::QueryResources;
use oxtsdb_query::RequestContext;
use oxtsdb_row_store::WriteBatch;
use oxtsdb_schema::row_key::write_row_key;
use oxtsdb_schema::{BaseTime, Timestamp, UidKind, Value};
use oxtsdb_test_stack::TestStack;
use tonic::Code;

use super::*;

fn ms(value: i64) -> Timestamp {
    Timestamp::from_millis(value).unwrap()
}

/// Writes points of two hosts shortly before `now_ms`.
async fn write_points(stack: &TestStack, now_ms: i64) {
    for (host, ago_ms, value) in [
        ("a", 10 * HOUR_MS, 1),
        ("a", 3 * HOUR_MS, 2),
        ("a", 3 * HOUR_MS + 5000, 3),
        ("b", 60_000, 4),
        ("b", 30_000, 5),
    ] {
        let point = NewPoint {
            metric: "m",
            tags: &[("host", host)],
            timestamp: ms(now_ms - ago_ms),
            value: Value::Int(value),
        };
        stack.service.writer.write(&[point], None).await.unwrap();
    }
}

/// An engine over points of two hosts shortly before `now_ms`.
async fn engine(now_ms: i64) -> (TestStack, Engine) {
    let stack = TestStack::start().await;
    write_points(&stack, now_ms).await;
    let uids = stack.service.uids.clone();
    let (store, layout) = (Arc::new(stack.store.clone()), *uids.layout());
    let engine = Engine::new(
        store,
        ("tsdb".parse().unwrap(), "tsdb-meta".parse().unwrap()),
        layout,
        Arc::new(uids),
        Limits::NONE,
        QueryResources::unlimited().unwrap(),
    );
    (stack, engine)
}

fn named(host: &str) -> Target {
    let tags = vec![Tag {
        key: "host".to_owned(),
        value: host.to_owned(),
    }];
    let name = SeriesName {
        metric: "m".to_owned(),
        tags,
    };
    let series = SeriesKey {
        key: Some(series_key::Key::Name(name)),
    };
    Target {
        target: Some(target::Target::Series(series)),
    }
}

fn tsuid(bytes: &[u8]) -> Target {
    let series = SeriesKey {
        key: Some(series_key::Key::Tsuid(bytes.to_vec().into())),
    };
    Target {
        target: Some(target::Target::Series(series)),
    }
}

fn metric() -> Target {
    let source = MetricSource {
        metric: "m".to_owned(),
        filters: Vec::new(),
        explicit_tags: false,
    };
    Target {
        target: Some(target::Target::Metric(source)),
    }
}

async fn run(engine: &Engine, targets: Vec<Target>, hours: i64) -> Result<QueryLastResponse, Status> {
    let look_back = Some(prost_types::Duration {
        seconds: hours * 3600,
        nanos: 0,
    });
    let request = QueryLastRequest {
        targets,
        look_back,
        include_names: true,
    };
    let messages = query_last(engine, Request::new(request)).await?.into_inner();
    let messages: Vec<QueryLastResponse> = messages.try_collect().await?;
    let mut all = QueryLastResponse::default();
    for message in messages {
        all.points.extend(message.points);
        all.errors.extend(message.errors);
    }
    all.points
        .sort_by(|a, b| (a.target, &a.tsuid).cmp(&(b.target, &b.tsuid)));
    Ok(all)
}

fn ints(response: &QueryLastResponse) -> Vec<(u32, i64)> {
    let int = |value: &Option<last_point::Value>| match value {
        Some(last_point::Value::IntValue(int)) => *int,
        other => panic!("{other:?} is no integer"),
    };
    response
        .points
        .iter()
        .map(|point| (point.target, int(&point.value)))
        .collect()
}

#[tokio::test]
async fn finds_the_newest_point_of_each_series() {
    let now_ms = now_ms();
    let (_stack, in_rows) = engine(now_ms).await;
    let in_columns = TestStack::with_points().await;
    write_points(&in_columns, now_ms).await;
    for engine in [&in_rows, &in_columns.service.engine] {
        let targets = || {
            vec![
                named("a"),
                named("b"),
                metric(),
                tsuid(&[0, 0, 1, 0, 0, 1, 0, 0, 2]),
            ]
        };
        let day = run(engine, targets(), 24).await.unwrap();
        assert_eq!(ints(&day), [(0, 2), (1, 5), (2, 2), (2, 5), (3, 5)]);
        assert_eq!(day.points[0].timestamp_ms, now_ms - 3 * HOUR_MS);
        let name = day.points[3].name.as_ref().unwrap();
        assert_eq!((name.metric.as_str(), name.tags[0].value.as_str()), ("m", "b"));
        // Points before the look-back are not found.
        let hour = run(engine, targets(), 1).await.unwrap();
        assert_eq!(ints(&hour), [(1, 5), (2, 5), (3, 5)]);
    }
}

#[tokio::test]
async fn finds_newer_points_in_other_cells() {
    let now_ms = now_ms();
    let stack = TestStack::with_points().await;
    write_points(&stack, now_ms).await;
    let uids = &stack.service.uids;
    uids.assign_for(&[(UidKind::Tagv, "c")], |_| None, None)
        .await
        .unwrap();
    // An integer of 8 bytes that fits into one, of hosts with points and of one without.
    for (tagv, ago_ms) in [(1, 2 * HOUR_MS), (2, 40_000), (3, 2 * HOUR_MS)] {
        let seconds = u32::try_from((now_ms - ago_ms) / 1000).unwrap();
        let base = BaseTime::from_seconds(seconds);
        let mut key = Vec::new();
        let layout = *stack.service.uids.layout();
        write_row_key(&layout, &[0, 0, 1, 0, 0, 1, 0, 0, tagv], base, &mut key);
        let qualifier = u16::try_from(seconds - base.seconds()).unwrap() << 4 | 7;
        let mut batch = WriteBatch::new("tsdb".parse().unwrap());
        let family = batch.family("t");
        batch
            .row(&key)
            .put(family, &qualifier.to_be_bytes(), &9_i64.to_be_bytes());
        stack.service.store.write(batch).await.unwrap();
    }
    let targets = || {
        let of = |tagv| tsuid(&[0, 0, 1, 0, 0, 1, 0, 0, tagv]);
        vec![of(1), of(2), of(3)]
    };
    let single = run(&stack.service.engine, targets(), 24).await.unwrap();
    assert_eq!(ints(&single), [(0, 9), (1, 5), (2, 9)]);
    let all = run(&stack.service.engine, vec![metric()], 24).await.unwrap();
    assert_eq!(ints(&all), [(0, 9), (0, 5), (0, 9)]);
    let hour = run(&stack.service.engine, vec![metric()], 1).await.unwrap();
    assert_eq!(ints(&hour), [(0, 5)]);
}

#[tokio::test]
async fn finds_few_series_of_a_metric_by_their_keys() {
    let now_ms = now_ms();
    let (stack, without_index) = engine(now_ms).await;
    for host in 0..40 {
        let host = format!("web{host}");
        for ago_hours in 0..3 {
            let point = NewPoint {
                metric: "m",
                tags: &[("host", &host), ("dc", "x")],
                timestamp: ms(now_ms - ago_hours * HOUR_MS),
                value: Value::Int(ago_hours),
            };
            stack.service.writer.write(&[point], None).await.unwrap();
        }
    }
    let filtered = |pattern: &str| {
        let mut target = metric();
        if let Some(target::Target::Metric(source)) = &mut target.target {
            source.filters.push(oxtsdb_proto::data::v1::TagFilter {
                key: "host".to_owned(),
                r#type: oxtsdb_proto::data::v1::tag_filter::FilterType::Regexp.into(),
                pattern: pattern.to_owned(),
                ..Default::default()
            });
        }
        target
    };
    for (pattern, series) in [("^(a|b)$", 2), ("^web1.$", 10), ("^web17|a$", 2), ("nosuch", 0)] {
        let with = run(&stack.service.engine, vec![filtered(pattern)], 24)
            .await
            .unwrap();
        assert_eq!(with.points.len(), series, "{pattern}");
        let without = run(&without_index, vec![filtered(pattern)], 24).await.unwrap();
        assert_eq!(with, without, "{pattern}");
    }
}

#[tokio::test]
async fn a_failed_target_does_not_affect_others() {
    let (_stack, engine) = engine(now_ms()).await;
    let response = run(&engine, vec![named("nope"), named("b"), tsuid(&[1, 2])], 1)
        .await
        .unwrap();
    assert_eq!(ints(&response), [(1, 5)]);
    let errors: Vec<_> = response
        .errors
        .iter()
        .map(|error| (error.target, error.error.as_ref().map(ItemError::reason)))
        .collect();
    assert_eq!(
        errors,
        [
            (0, Some(ErrorReason::NameNotFound)),
            (2, Some(ErrorReason::InvalidUidWidth))
        ]
    );
}

#[tokio::test]
async fn rejects_out_of_range_requests() {
    let (_stack, engine) = engine(now_ms()).await;
    let message = |result: Result<QueryLastResponse, Status>| result.unwrap_err().message().to_owned();
    assert_eq!(
        message(run(&engine, Vec::new(), 1).await),
        "targets: has 0 items, expected 1 to 1000"
    );
    assert_eq!(
        message(run(&engine, vec![metric()], 367 * 24).await),
        "look_back: is 31708800 s, at most 366 days are allowed"
    );
    assert_eq!(
        message(run(&engine, vec![Target::default()], 1).await),
        "targets[0]: is empty, expected series or metric"
    );
}

#[tokio::test]
async fn points_hold_memory_until_sent() {
    let (stack, _) = engine(now_ms()).await;
    let engine = |bytes| {
        let uids = stack.service.uids.clone();
        let limits = Limits {
            memory: oxtsdb_query::Limit::from_setting("--query-max-memory-mib", bytes),
            ..Limits::NONE
        };
        Engine::new(
            Arc::new(stack.store.clone()),
            ("tsdb".parse().unwrap(), "tsdb-meta".parse().unwrap()),
            *uids.layout(),
            Arc::new(uids),
            limits,
            QueryResources::unlimited().unwrap(),
        )
    };
    let targets = || vec![named("a"), named("b")];
    let response = run(&engine(16 << 10), targets(), 24).await.unwrap();
    assert_eq!(response.points.len(), 2);
    let status = run(&engine(639), targets(), 24).await.unwrap_err();
    assert_eq!(
        status.message(),
        "query needs more than 639 bytes of memory, the limit of --query-max-memory-mib"
    );
}

#[tokio::test]
async fn sends_no_message_above_one_mib() {
    let (stack, engine) = engine(now_ms()).await;
    let long = "v".repeat(3000);
    for host in 0..1500 {
        let host = format!("{host}{long}");
        let point = NewPoint {
            metric: "m",
            tags: &[("host", &host)],
            timestamp: ms(now_ms()),
            value: Value::Int(1),
        };
        stack.service.writer.write(&[point], None).await.unwrap();
    }
    let request = QueryLastRequest {
        targets: vec![metric()],
        look_back: None,
        include_names: true,
    };
    let messages = query_last(&engine, Request::new(request))
        .await
        .unwrap()
        .into_inner();
    let messages: Vec<QueryLastResponse> = messages.try_collect().await.unwrap();
    let points: usize = messages.iter().map(|message| message.points.len()).sum();
    assert_eq!(points, 1501);
    let largest = messages.iter().map(prost::Message::encoded_len).max().unwrap();
    assert!(largest <= 1 << 20, "{largest}");
}

#[tokio::test]
async fn names_the_query_timeout() {
    let mut settings = DataSettings::default();
    settings.queries.max_concurrent_queries = 1;
    settings.queries.query_timeout_seconds = 1;
    let stack = TestStack::with(settings, uid_service::UidSettings::default()).await;
    let engine = &stack.service.engine;
    let running = engine
        .admit(
            RequestContext::local(None),
            oxtsdb_query::QueryDescription::default(),
            None,
        )
        .await
        .unwrap();
    let status = run(engine, vec![metric()], 1).await.unwrap_err();
    assert_eq!(
        (status.code(), status.message()),
        (
            Code::DeadlineExceeded,
            "query was not answered within 1 s, the limit of --query-timeout-seconds"
        )
    );
    drop(running);
}
