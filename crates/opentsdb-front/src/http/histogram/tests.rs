//! Histograms over HTTP.

use oxtsdb_test_stack::service::Service;
use serde_json::{Value, json};

/// Requests with `details`, and the responses of OpenTSDB 2.4.1 with codec 42, one for each line.
const RECORDED: &str = include_str!("../../../testdata/histogram_details.jsonl");

#[tokio::test]
async fn responds_as_the_recorded_opentsdb() {
    let service = Service::with_histograms().await;
    for line in RECORDED.lines() {
        let recorded: Value = serde_json::from_str(line).unwrap();
        let request = recorded["request"].as_str().unwrap();
        let response = service.post("/api/histogram?details", request).await;
        let name = &recorded["name"];
        assert_eq!(
            json!(response.status),
            recorded["status"],
            "{name}: {}",
            response.text()
        );
        let mut body = response.json();
        // Details of unreadable JSON depend on the parser.
        if let Some(Value::Object(error)) = body.get_mut("error") {
            error.remove("details");
        }
        let text = body
            .to_string()
            .replace(oxtsdb_ingest::point_text::MORE_CHARACTERS, "");
        let body: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(body, recorded["response"], "{name}");
    }
}

#[tokio::test]
async fn stores_both_forms_byte_for_byte_as_opentsdb() {
    let service = Service::with_histograms().await;
    let bodies = [
        json!({"metric": "m", "timestamp": 1_356_998_405, "tags": {"host": "a"}, "underflow": 2, "overflow": 7,
               "buckets": {"1,2.5": 300, "0,1": 5}}),
        json!([{"metric": "m", "timestamp": 1_356_998_405_500_i64, "tags": {"host": "a"}, "id": 42,
               "value": "AAEAAAAAP4AAAAUAAA=="}]),
    ];
    for body in bodies {
        assert_eq!(
            service.post("/api/histogram", &body.to_string()).await.status,
            204
        );
    }
    let row = "00000150e22700000001000001";
    assert_eq!(
        service.cells().await,
        [
            format!("{row} t:060000157c 2a0001000000003f800000050000"),
            format!("{row} t:060005 2a0002000000003f800000053f80000040200000ac020207"),
        ]
    );
}

#[tokio::test]
async fn flags_and_errors_of_the_whole_body_are_those_of_puts() {
    let service = Service::with_histograms().await;
    let good = r#"{"metric":"m","timestamp":1,"tags":{"a":"b"},"buckets":{"0,1":5}}"#;
    for (query, body, status, text) in [
        ("?summary", good.to_owned(), 200, r#"{"success":1,"failed":0}"#),
        (
            "?details",
            good.to_owned(),
            200,
            r#"{"success":1,"failed":0,"errors":[]}"#,
        ),
        (
            "?summary&sync_timeout=60000",
            format!("[{good},null]"),
            400,
            r#"{"success":1,"timeouts":0,"failed":1}"#,
        ),
        (
            "",
            format!("[{good},null]"),
            400,
            "One or more data points had errors",
        ),
        ("", "[]".to_owned(), 400, "No datapoints found in content"),
        ("", String::new(), 400, "Missing request content"),
        (
            "",
            "5".to_owned(),
            400,
            "The JSON must start as an object or an array",
        ),
        ("", "{".to_owned(), 400, "Unable to parse the given JSON"),
    ] {
        let response = service.post(&format!("/api/histogram{query}"), &body).await;
        assert_eq!(response.status, status, "{body}");
        assert!(response.text().contains(text), "{body}: {}", response.text());
    }
}

#[tokio::test]
async fn histograms_are_rejected_unless_configured() {
    let service = Service::start().await;
    let response = service.post("/api/histogram", "{}").await;
    assert_eq!(response.status, 503);
    let expected =
        "Histogram storage has not been enabled. Check the 'tsd.core.histograms.config' configuration.";
    assert_eq!(response.json()["error"]["message"], expected);
}
