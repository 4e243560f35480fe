use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use oxtsdb_data_settings::DataSettings;
use oxtsdb_ingest::NewPoint;
use oxtsdb_resources::MemoryAccount;
use oxtsdb_schema::{Timestamp, Value};
use oxtsdb_test_stack::TestStack;
use oxtsdb_test_stack::service::{Service, status_for};
use serde_json::json;

use crate::http::{ENDPOINTS, HttpApi, endpoint};

/// Recorded from OpenTSDB 2.4.1; see `testdata/README.md`.
const VECTORS: &str = include_str!("../../../../testdata/opentsdb-exp-vectors.jsonl");

#[tokio::test]
async fn responses_match_opentsdb() {
    let (service, vectors) = Service::with_vectors(VECTORS).await;
    let mut compared = 0;
    for vector in vectors {
        let body = vector["post"].to_string();
        let response = service.post("/api/query/exp", &body).await;
        let actual = response.json();
        assert_eq!(
            u64::from(response.status),
            status_for(&vector["status"]),
            "{body}: {actual}"
        );
        if response.status == 200 {
            assert_eq!(actual, vector["response"], "{body}");
        } else {
            // OpenTSDB's details show its own objects, and so do some messages after their first words.
            let message = vector["response"]["message"].as_str().unwrap();
            let actual = actual["error"]["message"].as_str().unwrap();
            let opening = |text: &str| -> String {
                let shown = text.split(" in this ").next().unwrap_or(text);
                shown.chars().take(40).collect()
            };
            // JEXL's messages begin with a line of OpenTSDB's source and the expression.
            let of_jexl = message
                .rsplit_once("' ")
                .filter(|(start, _)| start.contains(".<init>@"));
            let is_same = match (of_jexl, actual.rsplit_once(": ")) {
                (Some((_, theirs)), Some((_, ours))) => theirs == ours,
                _ => message == actual || opening(message) == opening(actual),
            };
            assert!(is_same, "{actual} and not {message}: {body}");
        }
        compared += 1;
    }
    assert_eq!(compared, 90);
}

#[tokio::test]
async fn rejects_unparsable_requests() {
    let service = Service::start().await;
    for (body, message) in [
        ("", "Incoming data was null or empty"),
        ("x", "expected value at line 1 column 1"),
        ("{}", "missing time"),
        (
            r#"{"metrics":[{"id":"a","metric":"m","fillPolicy":{"policy":"zero","value":1}}]}"#,
            "The value for ZERO must be 0 at line 1 column 76",
        ),
        (
            r#"{"time":{"start":"1","aggregator":"sum"},"metrics":[{"id":"a","metric":"m"}],
               "expressions":[{"id":"e","expr":"a +"}]}"#,
            "parsing error at 4 in 'a +', expected a number, a name or `(`",
        ),
        (
            r#"{"time":{"start":"1","aggregator":"sum"},"metrics":[{"id":"a","metric":"m"}],
               "expressions":[{"id":"e","expr":"a","join":{}}]}"#,
            "The set operator cannot be null",
        ),
        (
            &format!(
                r#"{{"time":{{"start":"1","aggregator":"sum"}},"metrics":[{}{{}}]}}"#,
                "{},".repeat(200_000)
            ),
            "query has 200001 metrics, at most 100 are allowed",
        ),
    ] {
        let response = service.post("/api/query/exp", body).await;
        assert_eq!(
            (response.status, &response.json()["error"]["message"]),
            (400, &json!(message)),
            "{body:.200}"
        );
    }
    let body = format!(r#"{{"outputs":[{}{{}}]}}"#, "{},".repeat(500_000));
    assert_eq!(service.post("/api/query/exp", body).await.status, 400);
    assert_eq!(service.get("/api/query/exp").await.status, 400);
}

/// Where OpenTSDB fails on its own objects.
#[tokio::test]
async fn the_fill_policy_replaces_nan_of_nested_expressions() {
    let service = Service::start().await;
    let point = |metric: &str, second: u32| json!({"metric": metric, "timestamp": 1_356_998_400 + second, "value": 1, "tags": {"host": "a"}});
    let points = json!([point("m", 0), point("m", 10), point("n", 10)]);
    assert_eq!(service.post("/api/put", points.to_string()).await.status, 204);
    let body = json!({
        "time": {"start": 1_356_998_400, "end": 1_356_998_500, "aggregator": "sum"},
        "metrics": [
            {"id": "a", "metric": "m"},
            {"id": "b", "metric": "n", "fillPolicy": {"policy": "nan"}}
        ],
        "expressions": [
            {"id": "e", "expr": "a + b", "fillPolicy": {"policy": "scalar", "value": 7}},
            {"id": "f", "expr": "e + 0"}
        ],
        "outputs": [{"id": "e"}, {"id": "f"}]
    });
    let response = service.post("/api/query/exp", body.to_string()).await.json();
    let (first, second) = (1_356_998_400_000_i64, 1_356_998_410_000_i64);
    assert_eq!(
        response["outputs"][0]["dps"],
        json!([[first, "NaN"], [second, 2.0]])
    );
    assert_eq!(
        response["outputs"][1]["dps"],
        json!([[first, 7.0], [second, 2.0]])
    );
}

#[tokio::test]
async fn a_response_holds_memory_until_it_is_sent() {
    let memory = MemoryAccount::new(256 << 20, 0);
    let stack = TestStack::with_memory(DataSettings::default(), &memory).await;
    let service = &stack.service;
    let points: Vec<_> = (0..20_000)
        .map(|second| NewPoint {
            metric: "m",
            tags: &[("host", "a")],
            timestamp: Timestamp::from_seconds(1_356_998_400 + second),
            value: Value::Int(second.into()),
        })
        .collect();
    service.writer.write(&points, None).await.unwrap();
    let api = HttpApi::new(
        service.writer.clone(),
        service.engine.clone(),
        service.uids.clone(),
        service.trees.clone(),
        None,
        &stack.settings,
        Arc::default(),
    );
    let body = json!({
        "time": {"start": 1_356_998_400, "end": 1_357_098_400, "aggregator": "sum"},
        "metrics": [{"id": "a", "metric": "m"}],
        "expressions": [{"id": "e", "expr": "a * 2"}]
    });
    let path = "/api/query/exp";
    let request = Request::post(path).body(Full::new(Bytes::from(body.to_string())));
    let response = api
        .handle(endpoint::find(ENDPOINTS, path), request.unwrap())
        .await;
    assert_eq!(response.status(), 200);
    let length = response.body().len();
    assert!(length > 300_000, "{length}");
    let until_used = async |bytes: u64| {
        let mut used = memory.query().usage().used_bytes;
        for _ in 0..1000 {
            if used == bytes {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
            used = memory.query().usage().used_bytes;
        }
        panic!("{used} bytes are held, {bytes} are expected");
    };
    until_used(length).await;
    let mut body = response.into_body();
    let first = body.frame().await.unwrap().unwrap().into_data().unwrap();
    until_used(length - first.len() as u64).await;
    drop(body);
    until_used(0).await;
}
