use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;
use oxtsdb_data_settings::DataSettings;
use oxtsdb_row_store::StoreControl as _;
use oxtsdb_test_stack::service::Service;
use uid_service::UidSettings;

/// The points of a metric, as a query has them: tags, then instants and values.
async fn points(service: &Service, metric: &str) -> serde_json::Value {
    let target = format!("/api/query?start=1&ms&m=none:{metric}{{}}");
    let mut results = service.get(&target).await.json();
    for result in results.as_array_mut().into_iter().flatten() {
        let fields = result.as_object_mut().unwrap();
        fields.retain(|field, _| field == "tags" || field == "dps");
    }
    results
}

#[tokio::test]
async fn each_field_is_a_series() {
    let service = Service::start().await;
    let body = "cpu,host=a,cpu=cpu0 usage_idle=97.5,count=3i,up=t,note=\"text\" 1700000000000000000\n\
                cpu,host=a,cpu=cpu0 value=7i 1700000000500000000\n";
    let response = service.post("/write?db=telegraf", body).await;
    assert_eq!((response.status, response.text()), (204, ""));
    let tags = serde_json::json!({"host": "a", "cpu": "cpu0"});
    for (metric, expected) in [
        ("cpu.usage_idle", serde_json::json!({"1700000000000": 97.5})),
        ("cpu.count", serde_json::json!({"1700000000000": 3})),
        ("cpu.up", serde_json::json!({"1700000000000": 1})),
        ("cpu", serde_json::json!({"1700000000500": 7})),
    ] {
        let result = points(&service, metric).await;
        assert_eq!(
            result,
            serde_json::json!([{"tags": tags, "dps": expected}]),
            "{metric}"
        );
    }
    let suggested = service.get("/api/suggest?type=metrics&q=cpu").await.json();
    assert_eq!(
        suggested,
        serde_json::json!(["cpu", "cpu.count", "cpu.up", "cpu.usage_idle"])
    );
}

#[tokio::test]
async fn metrics_have_the_separator_of_the_url() {
    let service = Service::start().await;
    let body = "cpu,host=a idle=1i,value=2i 1700000000000000000";
    for (target, metric) in [
        ("/write?separator=_", "cpu_idle"),
        ("/api/v2/write?bucket=b&separator=./", "cpu./idle"),
        ("/write", "cpu.idle"),
    ] {
        let response = service.post(target, body).await;
        assert_eq!((response.status, response.text()), (204, ""), "{target}");
        let result = points(&service, metric).await;
        assert_eq!(
            result[0]["dps"],
            serde_json::json!({"1700000000000": 1}),
            "{target}"
        );
    }
    assert_eq!(points(&service, "cpu").await[0]["dps"]["1700000000000"], 2);
    for (separator, error) in [
        ("", "separator has 0 characters, expected 1 to 8"),
        ("_________", "separator has 9 characters, expected 1 to 8"),
        (
            "%3A",
            "separator `:` has the character ':', which names cannot have",
        ),
    ] {
        let response = service.post(&format!("/write?separator={separator}"), body).await;
        assert_eq!(
            (response.status, response.json()),
            (400, serde_json::json!({"error": error}))
        );
    }
}

#[tokio::test]
async fn both_versions_take_gzip_and_precisions() {
    let service = Service::start().await;
    for (number, target, timestamp) in [
        (1, "/write?precision=s", "1700000000"),
        (2, "/write?precision=ms", "1700000000000"),
        (3, "/api/v2/write?org=o&bucket=b&precision=us", "1700000000000000"),
        (4, "/api/v2/write?bucket=b", "1700000000000000000"),
    ] {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        writeln!(encoder, "m{number},host=a v={number}i {timestamp}").unwrap();
        let body = encoder.finish().unwrap();
        let head = format!(
            "POST {target} HTTP/1.1
Content-Encoding: gzip
"
        );
        let response = service.request(head, &body).await;
        assert_eq!((response.status, response.text()), (204, ""), "{target}");
        let result = points(&service, &format!("m{number}.v")).await;
        assert_eq!(
            result[0]["dps"],
            serde_json::json!({"1700000000000": number}),
            "{target}"
        );
    }
}

#[tokio::test]
async fn a_line_without_a_timestamp_or_tags_has_the_clock_and_a_source() {
    let service = Service::start().await;
    let before = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap();
    let response = service.post("/write", "Disk\\ I/O\u{3000}% reads=1i").await;
    assert_eq!((response.status, response.text()), (204, ""));
    let result = points(&service, "Disk_I/O__.reads").await;
    assert_eq!(result[0]["tags"], serde_json::json!({"source": "influx"}));
    let instants: Vec<u128> = result[0]["dps"]
        .as_object()
        .unwrap()
        .keys()
        .map(|key| key.parse().unwrap())
        .collect();
    assert_eq!(instants.len(), 1);
    assert!(
        instants[0] >= before.as_millis() && instants[0] < before.as_millis() + 60_000,
        "{instants:?}"
    );
}

#[tokio::test]
async fn good_lines_of_a_body_are_stored_and_the_others_named() {
    let service = Service::start().await;
    let body = "a,host=x v=1i 1700000000000000000\nno point\na,host=y v=1e999 1700000000000000000\na,host=z v=2i -5\n";
    let text = "partial write: 1 points stored, dropped=3: 2: a field is not KEY=VALUE: `no point`, 3: value is not a finite \
                number";
    for (target, expected) in [
        ("/write", serde_json::json!({"error": text})),
        (
            "/api/v2/write?bucket=b",
            serde_json::json!({"code": "invalid", "message": text}),
        ),
    ] {
        let response = service.post(target, body).await;
        assert_eq!(response.status, 400, "{target}");
        let (shown, expected) = (response.json(), expected);
        let field = if target == "/write" { "error" } else { "message" };
        let begin = expected[field].as_str().unwrap().split(", 3:").next().unwrap();
        assert!(shown[field].as_str().unwrap().starts_with(begin), "{shown}");
        assert_eq!(shown.get("code"), expected.get("code"));
    }
    let stored = points(&service, "a.v").await;
    assert_eq!(
        stored,
        serde_json::json!([{"tags": {"host": "x"}, "dps": {"1700000000000": 1}}])
    );
}

#[tokio::test]
async fn bodies_of_many_lines_are_written_in_several_writes() {
    let service = Service::start().await;
    let mut body = String::new();
    for second in 0..25_000_u32 {
        body.push_str(&format!(
            "m,host=h{} v={second}i {}\n",
            second % 7,
            1_700_000_000 + second
        ));
    }
    body.push_str("m,host=h0 v=x 1\n");
    let response = service.post("/write?precision=s", &body).await;
    assert_eq!(response.status, 400);
    let text = response.json()["error"].as_str().unwrap().to_owned();
    assert!(
        text.starts_with("partial write: 25000 points stored, dropped=1: 25001: "),
        "{text}"
    );
    let result = service
        .get("/api/query?start=1&m=sum:1d-count:m.v{}")
        .await
        .json();
    let counted: f64 = result[0]["dps"]
        .as_object()
        .unwrap()
        .values()
        .map(|value| value.as_f64().unwrap())
        .sum();
    assert!((counted - 25_000.0).abs() < 0.5, "{result}");
}

#[tokio::test]
async fn errors_have_the_form_of_the_protocol() {
    let service = Service::start().await;
    let response = service.post("/write?precision=d", "m v=1").await;
    let text = "precision `d` is not known, expected ns, us, ms, s, m or h";
    assert_eq!(
        (response.status, response.json()),
        (400, serde_json::json!({"error": text}))
    );
    let response = service.get("/api/v2/write").await;
    assert_eq!(response.status, 405);
    assert_eq!(response.json()["code"], "method not allowed");
    let too_large = "m v=1\n".repeat(1 << 20);
    let mut settings = DataSettings::default();
    settings.http.http_max_body_mib = 1;
    let small = Service::start_with(settings, UidSettings::default()).await;
    let response = small.post("/api/v2/write", too_large).await;
    assert_eq!(
        (response.status, response.json()["code"].as_str()),
        (413, Some("request too large"))
    );
}

#[tokio::test]
async fn a_store_that_fails_is_to_be_tried_again() {
    let service = Service::start().await;
    service.store.close().await.unwrap();
    let response = service.post("/write", "m,host=a v=1 1700000000000000000").await;
    assert_eq!(response.status, 503, "{}", response.text());
    assert!(response.header("retry-after").is_some());
    assert!(response.json()["error"].is_string());
}

#[tokio::test]
async fn senders_find_the_server_and_create_their_database() {
    let service = Service::start().await;
    let response = service.get("/ping").await;
    assert_eq!(
        (response.status, response.header("x-influxdb-version")),
        (204, Some("1.8.10"))
    );
    for target in ["/query?q=CREATE%20DATABASE%20%22telegraf%22", "/query"] {
        let response = service.post(target, "q=CREATE+DATABASE+%22telegraf%22").await;
        assert_eq!(
            (response.status, response.text()),
            (200, r#"{"results":[{"statement_id":0}]}"#),
            "{target}"
        );
    }
    let response = service.get("/query?q=SHOW%20DATABASES").await;
    assert_eq!(response.status, 400);
    assert!(
        response.json()["error"]
            .as_str()
            .unwrap()
            .contains("only CREATE DATABASE")
    );
}
