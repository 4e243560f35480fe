use std::io::Write as _;

use oxtsdb_data_settings::DataSettings;
use oxtsdb_row_store::{StoreControl as _, StoreError};
use oxtsdb_test_stack::service::{Service, read_response};
use serde_json::json;
use tokio::io::AsyncWriteExt as _;
use uid_service::UidSettings;

const GOOD: &str = r#"{"metric":"m","timestamp":1356998400,"value":1,"tags":{"host":"a"}}"#;

#[tokio::test]
async fn stores_the_documented_example_byte_for_byte() {
    let service = Service::start().await;
    let point =
        r#"{"metric":"sys.cpu.nice","timestamp":1346846400,"value":18,"tags":{"host":"web01","dc":"lga"}}"#;
    let response = service.post("/api/put", point).await;
    assert_eq!((response.status, response.text()), (204, ""));
    let row = "00000150473ec0000001000001000002000002";
    assert_eq!(service.cells().await, [format!("{row} t:0000 12")]);
}

#[tokio::test]
async fn answers_have_the_form_that_the_flags_ask_for() {
    let service = Service::start().await;
    let good = format!("[{GOOD},{GOOD}]");
    let bad = r#"{"metric":"","timestamp":"1356998400","value":1.50,"tags":{"z":"1","a":null},"x":0}"#;
    let mixed = format!("[{bad},{GOOD}]");
    let details = r#"{"datapoint":{"metric":"","timestamp":1356998400,"value":"1.50","tags":{"z":"1","a":null}},"error":"Metric name was empty"}"#;
    for (target, body, status, expected) in [
        ("/api/put", &good, 204, String::new()),
        ("/api/put?sync", &good, 204, String::new()),
        ("/api/put?summary", &good, 200, r#"{"success":2,"failed":0}"#.to_owned()),
        ("/api/put?summary=false&sync=false", &good, 200, r#"{"success":2,"failed":0}"#.to_owned()),
        ("/api/put?details", &good, 200, r#"{"success":2,"failed":0,"errors":[]}"#.to_owned()),
        ("/api/put?summary&details", &good, 200, r#"{"success":2,"failed":0,"errors":[]}"#.to_owned()),
        (
            "/api/put?details&sync&sync_timeout=10000",
            &good,
            200,
            r#"{"success":2,"timeouts":0,"failed":0,"errors":[]}"#.to_owned(),
        ),
        (
            "/api/put?summary&sync_timeout=10000",
            &good,
            200,
            r#"{"success":2,"timeouts":0,"failed":0}"#.to_owned(),
        ),
        ("/api/put?summary&sync_timeout=0", &good, 200, r#"{"success":2,"failed":0}"#.to_owned()),
        ("/api/put?summary", &mixed, 400, r#"{"success":1,"failed":1}"#.to_owned()),
        (
            "/api/put?details",
            &mixed,
            400,
            format!(r#"{{"success":1,"failed":1,"errors":[{details}]}}"#),
        ),
        (
            "/api/put",
            &mixed,
            400,
            r#"{"error":{"code":400,"message":"One or more data points had errors","details":"Please see the TSD logs or append \"details\" to the put request"}}"#.to_owned(),
        ),
        (
            "/api/put?sync_timeout=abc",
            &good,
            400,
            r#"{"error":{"code":400,"message":"Unable to parse 'sync_timeout' as a number","details":"`abc` is no number of milliseconds"}}"#.to_owned(),
        ),
    ] {
        let response = service.post(target, body).await;
        assert_eq!((response.status, response.text()), (status, expected.as_str()), "{target}");
    }
}

#[tokio::test]
async fn reports_each_error_with_opentsdbs_text() {
    let service = Service::start().await;
    let nine = (1..=9)
        .map(|n| format!("\"k{n}\":\"v\""))
        .collect::<Vec<_>>()
        .join(",");
    let too_many = (1..=9).map(|n| format!("k{n}=v")).collect::<Vec<_>>().join(", ");
    let too_many = format!("Too many tags: 9 maximum allowed: 8, tags: {{{too_many}}}");
    let with = |metric: &str, timestamp: &str, value: &str, tags: &str| {
        format!(r#"{{"metric":{metric},"timestamp":{timestamp},"value":{value},"tags":{tags}}}"#)
    };
    let (m, t, v, g) = ("\"m\"", "1356998400", "1", r#"{"host":"a"}"#);
    let nan = "Unable to parse value to a number";
    let cases = [
        ("null".to_owned(), "Unexpected null datapoint encountered in set."),
        ("{}".to_owned(), "Metric name was empty"),
        (with("null", t, v, g), "Metric name was empty"),
        (with("\"\"", "0", v, g), "Metric name was empty"),
        (
            r#"{"metric":"m","value":1,"tags":{"host":"a"}}"#.to_owned(),
            "Invalid timestamp",
        ),
        (with(m, "0", v, g), "Invalid timestamp"),
        (with(m, "-1", v, g), "Invalid timestamp"),
        (with(m, t, "null", g), "Empty value"),
        (with(m, t, "\"\"", g), "Empty value"),
        (with(m, t, v, "{}"), "Missing tags"),
        (with(m, t, v, "null"), "Missing tags"),
        (with(m, t, "\"x\"", g), nan),
        (with(m, t, "\"1d\"", g), nan),
        (with(m, t, "\"0x10\"", g), nan),
        (with(m, t, "\" 1\"", g), nan),
        (with(m, t, "\"NaN\"", g), nan),
        (with(m, t, "\"Infinity\"", g), nan),
        (with(m, t, "true", g), nan),
        (with(m, t, "9223372036854775808", g), nan),
        (with(m, t, "00000000000000000001", g), ""),
        (with(m, t, "\"12345678901234567890\"", g), nan),
        (
            with(m, t, "1e400", g),
            "value is NaN or Infinite: Infinity for metric=m timestamp=1356998400",
        ),
        (
            with(m, "99999999999999", v, g),
            "bad timestamp=99999999999999 when trying to add value=[1]/0 to metric=m, tags={host=a}",
        ),
        (with(m, t, v, &format!("{{{nine}}}")), too_many.as_str()),
        (
            with("\"a b\"", t, v, g),
            "Invalid metric name (\"a b\"): illegal character:   (letters, digits and -_./ are allowed, and what --extra-name-characters adds)",
        ),
        (
            with(m, t, v, r#"{"ho st":"a"}"#),
            "Invalid tag name with value [a] (\"ho st\"): illegal character:   (letters, digits and -_./ are allowed, and what --extra-name-characters adds)",
        ),
        (
            with(m, t, v, r#"{"host":"a b"}"#),
            "Invalid tag value with key [host] (\"a b\"): illegal character:   (letters, digits and -_./ are allowed, and what --extra-name-characters adds)",
        ),
        (
            with(m, t, v, r#"{"host":""}"#),
            "Invalid tag value with key [host] (\"\"): empty string",
        ),
        (
            with(m, t, v, r#"{"host":null}"#),
            "Invalid tag value with key [host]: null",
        ),
        (
            with("\"日本\"", t, v, g),
            "Invalid metric name (\"日本\"): illegal character: 日",
        ),
    ];
    for (point, expected) in &cases {
        let response = service.post("/api/put?details", point).await;
        if expected.is_empty() {
            // JSON knows no leading zeros.
            assert_eq!(
                response.json()["error"]["message"],
                "Unable to parse the given JSON"
            );
            continue;
        }
        let (status, body) = if point == "null" {
            let in_array = service.post("/api/put?details", format!("[{point}]")).await;
            (in_array.status, in_array.json())
        } else {
            (response.status, response.json())
        };
        assert_eq!(status, 400, "{point}");
        assert_eq!(body["errors"][0]["error"], *expected, "{point}");
        assert_eq!(
            (&body["success"], &body["failed"]),
            (&json!(0), &json!(1)),
            "{point}"
        );
    }

    // All of them at once, with good points between them.
    let all: Vec<String> = cases
        .iter()
        .filter(|(_, expected)| !expected.is_empty())
        .flat_map(|(point, _)| [GOOD.to_owned(), point.clone()])
        .collect();
    let response = service
        .post("/api/put?details", format!("[{}]", all.join(",")))
        .await
        .json();
    let reported: Vec<&str> = response["errors"]
        .as_array()
        .unwrap()
        .iter()
        .map(|e| e["error"].as_str().unwrap())
        .collect();
    let expected: Vec<&str> = cases
        .iter()
        .map(|(_, expected)| *expected)
        .filter(|expected| !expected.is_empty())
        .collect();
    assert_eq!(reported, expected, "in the order of the body");
    assert_eq!(response["success"], json!(expected.len()));
    assert_eq!(service.cells().await.len(), 1);
}

#[tokio::test]
async fn the_text_of_a_value_decides_its_encoding() {
    let service = Service::start().await;
    for (second, value) in [
        "42", "42.0", "1e3", "\"+5\"", "\"-5\"", "\"1.\"", "\".5\"", "\"1.0f\"", "-129", "0.5",
    ]
    .iter()
    .enumerate()
    {
        let timestamp = 1_356_998_400 + second;
        let point = format!(r#"{{"metric":"m","timestamp":{timestamp},"value":{value},"tags":{{"a":"b"}}}}"#);
        assert_eq!(service.post("/api/put", point).await.status, 204, "{value}");
    }
    let cells = service.cells().await;
    let values: Vec<&str> = cells.iter().filter_map(|cell| cell.split(' ').nth(2)).collect();
    assert_eq!(
        values,
        [
            "2a",
            "4045000000000000",
            "408f400000000000",
            "05",
            "fb",
            "3ff0000000000000",
            "3fe0000000000000",
            "3ff0000000000000",
            "ff7f",
            "3fe0000000000000"
        ]
    );
}

#[tokio::test]
async fn rejects_bodies_without_points() {
    let service = Service::start().await;
    for (body, message) in [
        ("", "Missing request content"),
        (" \n", "Missing request content"),
        ("[]", "No datapoints found in content"),
        ("x", "The JSON must start as an object or an array"),
        ("[{]", "Unable to parse the given JSON"),
        ("{\"timestamp\":\"x\"}", "Unable to parse the given JSON"),
        (&format!("{GOOD}\n{GOOD}"), "Unable to parse the given JSON"),
    ] {
        let response = service.post("/api/put", body).await;
        assert_eq!(response.status, 400, "{body}");
        assert_eq!(response.json()["error"]["message"], message, "{body}");
        assert_eq!(
            response.header("content-type"),
            Some("application/json; charset=UTF-8")
        );
    }
    assert_eq!(service.cells().await.len(), 0);
    let many = format!("[{}null]", "null,".repeat(20_000));
    assert_eq!(service.post("/api/put", many).await.status, 413);
}

#[tokio::test]
async fn reads_compressed_and_chunked_bodies() {
    let service = Service::start().await;
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(GOOD.as_bytes()).unwrap();
    let gzip = encoder.finish().unwrap();
    let head = "POST /api/put HTTP/1.1\r\nContent-Encoding: gzip\r\n".to_owned();
    assert_eq!(service.request(head.clone(), &gzip).await.status, 204);
    let broken = service.request(head, &gzip[..gzip.len() - 4]).await;
    assert_eq!(broken.status, 400);
    assert_eq!(
        broken.json()["error"]["message"],
        "request body is no valid gzip data"
    );

    let mut stream = service.connect().await;
    let head = "POST /api/put HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    for piece in GOOD.as_bytes().chunks(10) {
        let mut chunk = format!("{:x}\r\n", piece.len()).into_bytes();
        chunk.extend_from_slice(piece);
        chunk.extend_from_slice(b"\r\n");
        stream.write_all(&chunk).await.unwrap();
    }
    stream.write_all(b"0\r\n\r\n").await.unwrap();
    assert_eq!(read_response(&mut stream).await.status, 204);
    assert_eq!(service.cells().await.len(), 1);
}

#[tokio::test]
async fn rejects_a_body_over_the_limit() {
    let mut settings = DataSettings::default();
    settings.http.http_max_body_mib = 1;
    let service = Service::start_with(settings, UidSettings::default()).await;
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(&vec![b' '; 2 << 20]).unwrap();
    let head = "POST /api/put HTTP/1.1\r\nContent-Encoding: gzip\r\n".to_owned();
    let response = service.request(head, &encoder.finish().unwrap()).await;
    assert_eq!(response.status, 413);
    assert_eq!(
        response.json()["error"]["message"],
        "request body is too large, at most 1048576 bytes are allowed (--http-max-body-mib)"
    );
}

#[tokio::test]
async fn reports_unknown_names_if_they_are_not_assigned_on_write() {
    let mut uid_settings = UidSettings::default();
    uid_settings.naming.auto_create_metrics = false;
    let service = Service::start_with(DataSettings::default(), uid_settings).await;
    let response = service.post("/api/put?details", GOOD).await;
    assert_eq!(response.status, 400);
    assert_eq!(response.json()["errors"][0]["error"], "Unknown metric");
}

#[tokio::test]
async fn a_failed_store_gets_503() {
    let service = Service::start().await;
    // The names have their UIDs before the store that they are in closes too.
    assert_eq!(service.post("/api/put", GOOD).await.status, 204);
    service.store.close().await.unwrap();
    let response = service.post("/api/put", GOOD).await;
    assert_eq!(response.status, 503, "{}", response.text());
    assert!(
        response.json()["error"]["message"]
            .as_str()
            .unwrap()
            .starts_with("store is unavailable")
    );
}

#[tokio::test]
async fn sync_timeout_limits_the_wait() {
    let (service, _gate) = Service::gated(DataSettings::default()).await;
    let bad = r#"{"metric":"m","timestamp":0,"value":1,"tags":{"host":"a"}}"#;
    let response = service
        .post("/api/put?summary&sync&sync_timeout=50", format!("[{GOOD},{bad}]"))
        .await;
    assert_eq!(
        (response.status, response.text()),
        (400, r#"{"success":0,"timeouts":1,"failed":1}"#)
    );
    let response = service.post("/api/put?sync&sync_timeout=50", GOOD).await;
    assert_eq!(response.status, 400);
    assert_eq!(
        response.json()["error"]["message"],
        "The put call has timed out with 0 points stored, 0 failed and 1 not confirmed"
    );
}

#[tokio::test]
async fn a_full_disk_gets_507() {
    let (service, gate) = Service::gated(DataSettings::default()).await;
    gate.release(10);
    gate.fail([StoreError::Full {
        detail: "disk".to_owned(),
    }]);
    let response = service.post("/api/put", GOOD).await;
    assert_eq!(response.status, 507);
    assert_eq!(response.json()["error"]["message"], "no space left: disk");
    assert_eq!(service.cells().await.len(), 0);
    assert_eq!(service.post("/api/put", GOOD).await.status, 204);
    assert_eq!(service.cells().await.len(), 1);
}

#[tokio::test]
async fn a_full_disk_of_the_uid_service_gets_507() {
    let (service, gate) = Service::with_gated_uids().await;
    gate.release(1000);
    for (target, failed) in [
        ("/api/put", ""),
        ("/api/put?summary", r#"{"success":0,"failed":1}"#),
    ] {
        gate.fail([StoreError::Full {
            detail: "the disk".to_owned(),
        }]);
        let response = service.post(target, GOOD).await;
        assert_eq!(response.status, 507, "{}", response.text());
        assert!(response.text().contains(failed), "{}", response.text());
    }
    assert_eq!(
        service.post("/api/put", GOOD).await.status,
        204,
        "there is room again"
    );
}

/// A point of a series that is not there before.
fn point(host: &str, second: u32) -> String {
    format!(r#"{{"metric":"m","timestamp":{second},"value":1,"tags":{{"host":"{host}"}}}}"#)
}

#[tokio::test]
async fn stores_points_of_known_series_without_the_uid_service() {
    let (service, gate) = Service::with_gated_uids().await;
    gate.release(1);
    assert_eq!(service.post("/api/put", point("a", 1)).await.status, 204);
    let both = format!("[{},{}]", point("new", 2), point("a", 2));
    let response = service.post("/api/put?summary", &both).await;
    assert_eq!(
        (response.status, response.text(), response.header("retry-after")),
        (503, r#"{"success":1,"failed":1}"#, Some("1"))
    );
    assert_eq!(service.cells().await.len(), 2);
    assert_eq!(service.post("/api/put", point("a", 3)).await.status, 204);
    gate.release(100);
    while service.post("/api/put", &both).await.status != 204 {
        tokio::task::yield_now().await;
    }
    assert_eq!(service.cells().await.len(), 4);
}

#[tokio::test]
async fn parses_a_large_body_in_the_computation_pool() {
    let service = Service::start().await;
    let points: Vec<_> = (1..=25_000).map(|second| point("a", second)).collect();
    let body = format!("[{},{}]", points.join(","), point("b c", 1));
    assert!(body.len() > super::INLINE_BYTES);
    let response = service.post("/api/put?details", &body).await;
    let json = response.json();
    assert_eq!((&json["success"], &json["failed"]), (&25_000.into(), &1.into()));
    assert_eq!(json["errors"][0]["datapoint"]["tags"]["host"], "b c");
    let response = service.post("/api/put", &body[..body.len() - 1]).await;
    assert_eq!(
        response.json()["error"]["message"],
        "Unable to parse the given JSON"
    );
}

#[tokio::test]
async fn known_series_and_scanned_bodies_have_the_results_of_the_general_parser() {
    let mut points = Vec::new();
    for value in [
        "1",
        "-2.5",
        "\"3\"",
        "\" 0.1 \"",
        "0.30000000000000004",
        "1e3",
        "\"x\"",
        "\"\"",
        "1e400",
    ] {
        for timestamp in ["1356998400", "1356998400250", "0", "99999999999999"] {
            for (metric, tags) in [
                ("m", r#""a":"b""#),
                ("m", r#""a":"b","c":"d""#),
                ("m", r#""a":"x","a":"b""#),
                ("m", r#""a":"b!""#),
                ("", r#""a":"b""#),
            ] {
                points.push(format!(
                    r#""metric":"{metric}","timestamp":{timestamp},"value":{value},"tags":{{{tags}}}}}"#
                ));
            }
        }
    }
    let scanned = format!("[{{{}]", points.join(",{"));
    // Unknown fields are ignored, but not scanned.
    let general = format!("[{{\"x\":0,{}]", points.join(",{\"x\":0,"));
    let mut results = Vec::new();
    for body in [&scanned, &general] {
        let service = Service::start().await;
        // The first points of a series, and points of known series.
        for _ in 0..2 {
            let response = service.post("/api/put?details", body).await;
            results.push((response.status, response.text().to_owned(), service.cells().await));
        }
    }
    assert_eq!(results[0], results[1]);
    assert_eq!(results[0], results[2]);
    assert_eq!(results[0], results[3]);
    assert_eq!(results[0].0, 400);
    assert!(results[0].1.starts_with("{\"success\":36,"), "{}", results[0].1);
}
