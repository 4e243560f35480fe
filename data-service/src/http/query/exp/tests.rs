use serde_json::json;

use crate::front::testing::Service;

/// Recorded from OpenTSDB 2.4.1; see `testdata/README.md`.
const VECTORS: &str = include_str!("../../../../testdata/opentsdb-exp-vectors.jsonl");

#[tokio::test]
async fn answers_are_opentsdbs() {
    let (service, vectors) = Service::with_vectors(VECTORS).await;
    let mut compared = 0;
    for vector in vectors {
        let body = vector["post"].to_string();
        let answer = service.post("/api/query/exp", &body).await;
        let told = answer.json();
        assert_eq!(json!(answer.status), vector["status"], "{body}: {told}");
        if answer.status == 200 {
            assert_eq!(told, vector["response"], "{body}");
        } else {
            // Details tell OpenTSDB's objects, and so do some messages behind their first words.
            let message = vector["response"]["message"].as_str().unwrap();
            let told = told["error"]["message"].as_str().unwrap();
            let opening = |text: &str| -> String { text.chars().take(40).collect() };
            assert!(
                message == told || opening(message) == opening(told),
                "{told} and not {message}: {body}"
            );
        }
        compared += 1;
    }
    assert_eq!(compared, 68);
}

#[tokio::test]
async fn what_opentsdb_cannot_read_is_refused_with_500() {
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
        let answer = service.post("/api/query/exp", body).await;
        assert_eq!(
            (answer.status, &answer.json()["error"]["message"]),
            (500, &json!(message)),
            "{body:.200}"
        );
    }
    let body = format!(r#"{{"outputs":[{}{{}}]}}"#, "{},".repeat(500_000));
    assert_eq!(service.post("/api/query/exp", body).await.status, 400);
    assert_eq!(service.get("/api/query/exp").await.status, 500);
}

/// Where OpenTSDB fails on its own objects.
#[tokio::test]
async fn a_nested_expression_that_is_nan_counts_as_its_fill_policy_says() {
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
    let answer = service.post("/api/query/exp", body.to_string()).await.json();
    let (first, second) = (1_356_998_400_000_i64, 1_356_998_410_000_i64);
    assert_eq!(
        answer["outputs"][0]["dps"],
        json!([[first, "NaN"], [second, 2.0]])
    );
    assert_eq!(answer["outputs"][1]["dps"], json!([[first, 7.0], [second, 2.0]]));
}
