//! Small endpoints, pages outside of the API, and methods.

use oxtsdb_data_settings::DataSettings;
use oxtsdb_test_stack::service::{HttpResponse, Service};
use serde_json::json;
use uid_service::UidSettings;

const POINT: &str = r#"{"metric":"sys.cpu","timestamp":1356998400,"value":1,"tags":{"host":"a"}}"#;

async fn service() -> Service {
    let service = Service::start().await;
    assert_eq!(service.post("/api/put", POINT).await.status, 204);
    service
}

async fn send(service: &Service, method: &str, target: &str, origin: &str) -> HttpResponse {
    let head = format!("{method} {target} HTTP/1.1\r\nOrigin: {origin}\r\n");
    service.request(head, b"").await
}

#[tokio::test]
async fn config_is_a_flat_object_of_texts() {
    let service = service().await;
    for target in ["/api/config", "/api/config/bogus"] {
        let config = service.get(target).await.json();
        let config = config.as_object().unwrap();
        assert!(config.values().all(serde_json::Value::is_string), "{config:?}");
        for (name, value) in [
            ("tsd.storage.hbase.data_table", "tsdb"),
            ("tsd.storage.uid.width.metric", "3"),
            ("tsd.core.auto_create_tagks", "true"),
            ("oxtsdb.trust_tsuid_tracking", "false"),
        ] {
            assert_eq!(config[name], value, "{name}");
        }
    }
    let filters = service.get("/api/config/filters").await.json();
    assert!(filters["wildcard"]["examples"].is_string());
}

#[tokio::test]
async fn caches_are_dropped_and_filled_again() {
    let service = service().await;
    let listed = service.get("/api/search/lookup?m=sys.cpu{host=a}").await.json();
    for method in ["GET", "DELETE"] {
        let response = service
            .request(format!("{method} /api/dropcaches HTTP/1.1\r\n"), b"")
            .await;
        assert_eq!(response.text(), r#"{"message":"Caches dropped","status":"200"}"#);
    }
    assert_eq!(service.post("/api/dropcaches", "").await.status, 405);
    assert_eq!(service.get("/dropcaches").await.status, 404);
    let again = service.get("/api/search/lookup?m=sys.cpu{host=a}").await.json();
    assert_eq!(again["results"], listed["results"]);
    assert_eq!(service.post("/api/put", POINT).await.status, 204);
}

#[tokio::test]
async fn statistics_have_opentsdbs_shapes() {
    let service = service().await;
    let query = "/api/query?start=1356998400&end=1356998500&m=sum:sys.cpu";
    assert_eq!(service.get(query).await.status, 200);
    let unknown = "/api/query?start=1356998400&end=1356998500&m=sum:unknown";
    assert_eq!(service.get(unknown).await.status, 400);
    let queries = service.get("/api/stats/query").await.json();
    assert_eq!(queries["running"], json!([]));
    let [first, second] = &queries["completed"].as_array().unwrap()[..] else {
        panic!("{queries}")
    };
    assert_eq!(first["exception"], "null");
    assert_eq!(first["query"]["start"], "1356998400000");
    assert_eq!(
        first["query"]["queries"],
        json!([{"index": 0, "m": "sum:sys.cpu"}])
    );
    assert!(first["queryCompletedTimestamp"].as_u64() >= first["queryStartTimestamp"].as_u64());
    assert_eq!(second["exception"], "no such name for 'metrics': 'unknown'");

    let process = service.get("/api/stats/jvm").await.json();
    assert!(process["memory"]["heapMemoryUsage"]["used"].as_u64().unwrap() > 0);
    assert!(process["pools"]["query"]["currentUsage"].is_object());
    let threads = service.get("/api/stats/threads").await.json();
    assert!(threads[0]["threadID"].is_u64() && threads[0]["stack"].is_array());
    assert_eq!(service.get("/api/stats/region_clients").await.text(), "[]");
    let bogus = service.get("/api/stats/bogus").await.json();
    assert!(bogus[0]["metric"].is_string());

    let lines = service.get("/stats").await;
    assert_eq!(lines.header("content-type"), Some("text/plain"));
    assert!(lines.text().contains("tsd.datapoints.added "), "{}", lines.text());
    let array = service.get("/stats?json").await;
    assert_eq!(array.header("content-type"), Some("application/json"));
    assert_eq!(
        array.json().as_array().unwrap().len(),
        lines.text().lines().count()
    );
}

#[tokio::test]
async fn pages_outside_of_the_api_are_opentsdbs() {
    let service = service().await;
    let (json, html) = ("application/json", "text/html; charset=UTF-8");
    for (request, status, content_type, text) in [
        (
            "GET /suggest?type=metrics&q=sys",
            200,
            json,
            Some(r#"["sys.cpu"]"#),
        ),
        ("GET /suggest?q=sys", 400, html, None),
        (
            "GET /suggest?q=sys&json",
            400,
            json,
            Some(r#"{"err":"Missing parameter <code>type</code>"}"#),
        ),
        ("GET /aggregators", 200, json, None),
        ("GET /version", 200, "text/plain", None),
        ("GET /version?json", 200, json, None),
        ("GET /logs", 400, html, None),
        ("GET /", 200, html, None),
        ("PUT /", 200, html, None),
        ("PUT /version", 400, html, None),
        ("OPTIONS /suggest", 400, html, None),
        ("GET /nothing", 404, html, None),
    ] {
        let response = service.request(format!("{request} HTTP/1.1\r\n"), b"").await;
        assert_eq!(
            (response.status, response.header("content-type")),
            (status, Some(content_type)),
            "{request}"
        );
        if let Some(text) = text {
            assert_eq!(response.text(), text, "{request}");
        }
    }
    let missing = service.get("/s/other.js").await;
    assert_eq!(
        (missing.status, &missing.json()["error"]["message"]),
        (404, &json!("Page not found"))
    );
}

#[tokio::test]
async fn options_are_for_preflight_requests_only() {
    let service = service().await;
    for target in ["/api/version", "/api/bogus"] {
        let response = service
            .request(format!("OPTIONS {target} HTTP/1.1\r\n"), b"")
            .await;
        assert_eq!(
            (response.status, response.text()),
            (
                405,
                r#"{"error":{"code":405,"message":"Method not allowed","details":"The HTTP method [OPTIONS] is not permitted"}}"#
            )
        );
    }
    let mut settings = DataSettings::default();
    settings.http.cors_domains = "*".to_owned();
    let service = Service::start_with(settings, UidSettings::default()).await;
    for (method, target, status) in [
        ("OPTIONS", "/api/bogus", 200),
        ("GET", "/api/version", 200),
        ("GET", "/api/suggest", 400),
    ] {
        let response = send(&service, method, target, "http://a").await;
        assert_eq!(response.status, status, "{method} {target}");
        assert_eq!(response.header("access-control-allow-origin"), Some("http://a"));
        let methods = response.header("access-control-allow-methods");
        assert_eq!(methods, Some("GET, POST, PUT, DELETE"));
    }
    let nowhere = send(&service, "GET", "/api/version", "").await;
    assert_eq!(nowhere.header("access-control-allow-origin"), None);
}
