//! Rollups that are built answer as the points do, in rows and in columns.

use std::collections::BTreeMap;

use futures::TryStreamExt as _;
use oxtsdb_data_settings::DataSettings;
use oxtsdb_proto::common::v1::{TimeRange, time_range};
use oxtsdb_proto::data::v1::data_admin_service_server::DataAdminService as _;
use oxtsdb_proto::error::reason_of;
use oxtsdb_test_stack::TestStack;
use oxtsdb_test_stack::service::Service;
use serde_json::json;
use uid_service::UidSettings;

use super::*;
use crate::test_handlers::data_handler;

const CONFIG: &str = r#"{
    "aggregationIds": {"sum": 0, "count": 1, "min": 2, "max": 3},
    "intervals": [
        {"table": "tsdb", "preAggregationTable": "r1m-agg", "interval": "1m", "rowSpan": "1h", "defaultInterval": true},
        {"table": "r10m", "preAggregationTable": "r10m-agg", "interval": "10m", "rowSpan": "6h"},
        {"table": "r1h", "preAggregationTable": "r1h-agg", "interval": "1h", "rowSpan": "1d"},
        {"table": "r1d", "preAggregationTable": "r1d-agg", "interval": "1d", "rowSpan": "1n"},
        {"table": "r1w", "preAggregationTable": "r1w-agg", "interval": "1w", "rowSpan": "1y"}
    ]}"#;

/// 2013-01-30 00:00 UTC: the second day after it begins a row of days.
const T: i64 = 1_359_504_000;

const HOUR: i64 = 3600;

fn settings() -> DataSettings {
    let mut settings = DataSettings::default();
    settings.rollups.rollups_config = Some(CONFIG.to_owned());
    settings
}

/// A service with its handler.
struct Fixture {
    handler: DataServiceHandler,
    http: Service,
}

impl Fixture {
    async fn start(stack: TestStack) -> Self {
        let handler = data_handler(&stack);
        let http = Service::from_stack(stack).await;
        Self { handler, http }
    }

    async fn put(&self, points: &[(i64, serde_json::Value, &str)]) {
        let point = |(time, value, host): &(i64, serde_json::Value, &str)| json!({"metric": "m", "timestamp": time, "value": value, "tags": {"host": host}});
        for points in points.chunks(500) {
            let body: Vec<_> = points.iter().map(point).collect();
            let response = self.http.post("/api/put", json!(body).to_string()).await;
            assert_eq!(response.status, 204, "{}", response.text());
        }
    }

    async fn build(&self, request: BuildRollupsRequest) -> Result<Vec<BuildRollupsResponse>, Status> {
        let stream = self.handler.build_rollups(Request::new(request)).await?;
        stream.into_inner().try_collect().await
    }

    /// The series of a query, by host.
    async fn query(&self, downsample: &str, usage: &str) -> BTreeMap<String, serde_json::Value> {
        let query = json!({"start": T, "end": T + 72 * HOUR - 1, "queries": [{
            "aggregator": "none", "metric": "m", "downsample": downsample, "rollupUsage": usage,
            "filters": [{"type": "wildcard", "tagk": "host", "filter": "*", "groupBy": true}]}]});
        let response = self.http.post("/api/query", query.to_string()).await;
        assert_eq!(response.status, 200, "{}", response.text());
        let groups = response.json();
        let groups = groups.as_array().unwrap().iter();
        groups
            .map(|group| {
                (
                    group["tags"]["host"].as_str().unwrap().to_owned(),
                    group["dps"].clone(),
                )
            })
            .collect()
    }

    /// Queries of rollups return what queries of points do.
    async fn assert_same(&self) {
        for interval in ["10m", "30m", "1h", "3h", "1d"] {
            for function in ["sum", "count", "min", "max", "avg"] {
                let downsample = format!("{interval}-{function}");
                let points = self.query(&downsample, "ROLLUP_RAW").await;
                assert_eq!(points.len(), 3, "{downsample}");
                assert_eq!(
                    self.query(&downsample, "ROLLUP_NOFALLBACK").await,
                    points,
                    "{downsample}"
                );
            }
        }
    }
}

async fn fixtures() -> [Fixture; 3] {
    let mut salted = settings();
    salted.tables.salt_width = 1;
    salted.tables.salt_buckets = 3;
    let salted = TestStack::with(salted, UidSettings::default()).await;
    let rows = TestStack::with(settings(), UidSettings::default()).await;
    let columns = TestStack::with_points_and(settings()).await;
    [
        Fixture::start(rows).await,
        Fixture::start(columns).await,
        Fixture::start(salted).await,
    ]
}

fn request(start: i64, end: i64) -> BuildRollupsRequest {
    BuildRollupsRequest {
        metric: "m".to_owned(),
        range: Some(TimeRange {
            start: Some(time_range::Start::StartMs(start * 1000)),
            end: Some(time_range::End::EndMs(end * 1000)),
        }),
        ..BuildRollupsRequest::default()
    }
}

/// Points of three days: of `a` integers, of `b` also fractions, of `c` few.
fn points() -> Vec<(i64, serde_json::Value, &'static str)> {
    let mut state = 7_u64;
    let mut random = move |most: u64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        i64::try_from((state >> 33) % most).unwrap()
    };
    let mut points = Vec::new();
    for (host, pause) in [("a", 400), ("b", 900), ("c", 30_000)] {
        let mut time = T;
        while time < T + 72 * HOUR {
            let value = match random(3) {
                // Exact in binary, so that sums of sums are the sums of all.
                0 if host == "b" => json!(random(1000) as f64 / 8.0 - 30.0),
                1 => json!(random(100_000) - 50_000),
                _ => json!(random(200)),
            };
            points.push((time, value, host));
            time += 1 + random(pause);
        }
    }
    points
}

#[tokio::test]
async fn rollups_answer_as_points_do() {
    for fixture in fixtures().await {
        fixture.put(&points()).await;
        let built = fixture.build(request(T, T + 72 * HOUR)).await.unwrap();
        let last = built.last().unwrap();
        assert!(
            last.done && last.cells_unchanged == 0 && last.cells_removed == 0,
            "{last:?}"
        );
        assert_eq!(last.intervals, ["10m", "1h", "1d"], "weeks do not divide years");
        assert_eq!(last.points, points().len() as u64);
        assert_eq!((last.parts_done, last.parts), (last.parts, last.parts));
        fixture.assert_same().await;

        let again = fixture.build(request(T, T + 72 * HOUR)).await.unwrap();
        let again = again.last().unwrap();
        assert_eq!((again.cells_written, again.cells_removed), (0, 0));
        assert_eq!(again.cells_unchanged, last.cells_written);
    }
}

#[tokio::test]
async fn late_points_replace_cells_of_other_widths_and_types() {
    for fixture in fixtures().await {
        fixture.put(&points()).await;
        fixture.build(request(T, T + 72 * HOUR)).await.unwrap();
        let late = [
            (T + 10, json!(70_000_000), "a"),
            (T + 5 * HOUR + 1, json!(0.5), "a"),
            (T + 50 * HOUR + 3, json!(-3), "c"),
        ];
        fixture.put(&late).await;
        let built = fixture.build(request(T, T + 72 * HOUR)).await.unwrap();
        let last = built.last().unwrap();
        assert!(
            last.cells_removed > 0 && last.cells_written < last.cells_unchanged,
            "{last:?}"
        );
        fixture.assert_same().await;
    }
}

#[tokio::test]
async fn integers_are_stored_as_opentsdb_stores_them() {
    let fixture = Fixture::start(TestStack::with(settings(), UidSettings::default()).await).await;
    fixture
        .put(&[
            (T, json!(300), "a"),
            (T + 60, json!(-1), "a"),
            (T + HOUR, json!(1.5), "a"),
        ])
        .await;
    let mut request = request(T, T + 2 * HOUR);
    request.intervals = vec!["1h".to_owned()];
    fixture.build(request).await.unwrap();
    let row = "00000151086280000001000001";
    let expected = [
        "000001 012b",
        "00001f 3ff8000000000000",
        "010000 02",
        "010010 01",
        "020000 ff",
        "02001f 3ff8000000000000",
        "030001 012c",
        "03001f 3ff8000000000000",
    ];
    assert_eq!(
        oxtsdb_test_stack::cells(&fixture.http.store, "r1h").await,
        expected.map(|cell| format!("{row} t:{cell}"))
    );
    assert!(
        oxtsdb_test_stack::cells(&fixture.http.store, "r10m")
            .await
            .is_empty()
    );
}

#[tokio::test]
async fn only_whole_intervals_are_built() {
    for fixture in fixtures().await {
        fixture.put(&points()).await;
        // From the second hour to the last but one, and no day but the second.
        fixture.build(request(T + 1, T + 72 * HOUR - 1)).await.unwrap();
        let hours = fixture.query("1h-count", "ROLLUP_NOFALLBACK").await;
        let first = (T + HOUR).to_string();
        assert_eq!(hours["a"].as_object().unwrap().keys().next(), Some(&first));
        assert_eq!(hours["a"].as_object().unwrap().len(), 70);
        let days = fixture.query("1d-count", "ROLLUP_NOFALLBACK").await;
        assert_eq!(days["a"].as_object().unwrap().len(), 1);
        let days = fixture.query("1d-count", "ROLLUP_RAW").await;
        assert_eq!(days["a"].as_object().unwrap().len(), 3);
    }
}

#[tokio::test]
async fn intervals_that_have_not_ended_are_not_built() {
    let fixture = Fixture::start(TestStack::with_points_and(settings()).await).await;
    let now = now_ms() / 1000;
    let hour = now - now % HOUR;
    fixture
        .put(&[(hour - HOUR, json!(1), "a"), (hour, json!(1), "a")])
        .await;
    let mut request = request(hour - HOUR, hour + 10 * HOUR);
    request.intervals = vec!["1h".to_owned()];
    let built = fixture.build(request).await.unwrap();
    assert_eq!(built.last().unwrap().cells_written, 4);
}

#[tokio::test]
async fn builds_resume_after_any_step() {
    for fixture in fixtures().await {
        fixture.put(&points()).await;
        let whole = request(T, T + 72 * HOUR);
        let built = fixture.build(whole.clone()).await.unwrap();
        let cells: u64 = built.last().unwrap().cells_written;
        for step in &built {
            if step.resume_token.is_empty() {
                continue;
            }
            let resumed = BuildRollupsRequest {
                resume_token: step.resume_token.clone(),
                ..whole.clone()
            };
            let rest = fixture.build(resumed).await.unwrap();
            let rest = rest.last().unwrap();
            assert!(rest.done);
            assert_eq!(rest.cells_unchanged, cells - step.cells_written);
        }
        fixture.assert_same().await;
    }
}

#[tokio::test]
async fn all_metrics_are_built() {
    for fixture in fixtures().await {
        let point =
            |metric: &str| json!({"metric": metric, "timestamp": T, "value": 1, "tags": {"host": "a"}});
        let body = json!([point("m"), point("n"), point("o")]).to_string();
        assert_eq!(fixture.http.post("/api/put", body).await.status, 204);
        let all = BuildRollupsRequest {
            metric: String::new(),
            ..request(T, T + 24 * HOUR)
        };
        let built = fixture.build(all).await.unwrap();
        assert_eq!(built.last().unwrap().cells_written, 3 * 3 * 4);
        let metrics: std::collections::BTreeSet<_> = built.iter().map(|step| step.metric.as_str()).collect();
        assert_eq!(metrics.into_iter().collect::<Vec<_>>(), ["m", "n", "o"]);
    }
}

#[tokio::test]
async fn rollups_get_the_tag_of_raw_series() {
    let mut tagged = settings();
    tagged.rollups.rollups_tag_raw = true;
    for stack in [
        TestStack::with(tagged.clone(), UidSettings::default()).await,
        TestStack::with_points_and(tagged.clone()).await,
    ] {
        let fixture = Fixture::start(stack).await;
        fixture.put(&[(T, json!(5), "a")]).await;
        fixture.build(request(T, T + HOUR)).await.unwrap();
        let query = format!("/api/query?start={T}&end={}&m=sum:1h-sum:m%7Bhost=a%7D", T + HOUR);
        let groups = fixture.http.get(&query).await.json();
        assert_eq!(groups[0]["tags"], json!({"host": "a", "_aggregate": "RAW"}));
        assert_eq!(groups[0]["dps"], json!({T.to_string(): 5.0}));
    }
}

#[tokio::test]
async fn errors_name_field_and_rule() {
    let [fixture, ..] = fixtures().await;
    fixture.put(&[(T, json!(1), "a")]).await;
    let error = async |request: BuildRollupsRequest| match fixture.build(request).await {
        Ok(built) => panic!("{built:?}"),
        Err(status) => (status.code(), status.message().to_owned()),
    };
    let with = |interval: &str| BuildRollupsRequest {
        intervals: vec![interval.to_owned()],
        ..request(T, T + HOUR)
    };
    for (request, code, text) in [
        (
            with("5h"),
            Code::InvalidArgument,
            "interval `5h` is not one of --rollups-config",
        ),
        (with("1m"), Code::InvalidArgument, "is the default interval"),
        (with("1w"), Code::InvalidArgument, "does not divide the row spans"),
        (request(T, T), Code::InvalidArgument, "range"),
        (
            BuildRollupsRequest {
                metric: "x".to_owned(),
                ..request(T, T + HOUR)
            },
            Code::NotFound,
            "'x'",
        ),
        (
            BuildRollupsRequest {
                resume_token: vec![9, 9].into(),
                ..request(T, T + HOUR)
            },
            Code::InvalidArgument,
            "resume_token: is not a token",
        ),
    ] {
        let (actual_code, message) = error(request).await;
        assert_eq!(actual_code, code, "{message}");
        assert!(message.contains(text), "{message}");
    }
    let built = fixture.build(request(T, T + HOUR)).await.unwrap();
    let other = BuildRollupsRequest {
        resume_token: built[0].resume_token.clone(),
        ..with("1h")
    };
    let (code, message) = error(other).await;
    assert_eq!(code, Code::InvalidArgument);
    assert!(
        message.contains("another metric, range or other intervals"),
        "{message}"
    );

    let without = TestStack::start().await;
    let status = match without
        .service
        .handler
        .build_rollups(Request::new(request(T, T + HOUR)))
        .await
    {
        Ok(_) => panic!("rollups without a configuration"),
        Err(status) => status,
    };
    assert_eq!(status.code(), Code::FailedPrecondition);
    assert_eq!(reason_of(&status), Some(ErrorReason::RollupsNotConfigured));
}
