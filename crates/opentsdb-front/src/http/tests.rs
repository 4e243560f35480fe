use std::io::Read as _;
use std::time::{Duration, Instant};

use oxtsdb_data_settings::DataSettings;
use oxtsdb_resources::MemoryAccount;
use oxtsdb_test_stack::TestStack;
use oxtsdb_test_stack::service::{Service, read_response, read_to_end};
use serde_json::json;
use tokio::io::AsyncWriteExt as _;
use uid_service::UidSettings;

async fn put(service: &Service, names: &[&str]) {
    for name in names {
        let point =
            format!(r#"{{"metric":"{name}","timestamp":1,"value":1,"tags":{{"k.{name}":"v.{name}"}}}}"#);
        assert_eq!(service.post("/api/put", point).await.status, 204);
    }
}

#[tokio::test]
async fn suggests_names() {
    let service = Service::start().await;
    put(&service, &["b", "a.2", "a.1", "A"]).await;
    for (target, expected) in [
        ("/api/suggest?type=metrics", json!(["A", "a.1", "a.2", "b"])),
        ("/api/suggest?type=metrics&q=a", json!(["a.1", "a.2"])),
        ("/api/suggest?type=metrics&q=a&max=1", json!(["a.1"])),
        ("/api/v1/SUGGEST/?type=tagk&q=k.b", json!(["k.b"])),
        ("/api/suggest?type=tagv&q=zzz", json!([])),
    ] {
        let response = service.get(target).await;
        assert_eq!((response.status, response.json()), (200, expected), "{target}");
    }
    let response = service
        .post("/api/suggest", r#"{"type":"metrics","q":"a","max":1}"#)
        .await;
    assert_eq!((response.status, response.json()), (200, json!(["a.1"])));
    for (body, message) in [
        ("{}", "Missing 'type' parameter"),
        (r#"{"type":"x"}"#, "Invalid 'type' parameter:x"),
        (
            r#"{"type":"tagk","max":"x"}"#,
            "Unable to parse 'max' as a number",
        ),
        ("[", "Unable to parse the given JSON"),
    ] {
        let response = service.post("/api/suggest", body).await;
        assert_eq!(
            (response.status, &response.json()["error"]["message"]),
            (400, &json!(message))
        );
    }
    let response = service.get("/api/suggest").await;
    assert_eq!(
        response.json()["error"]["message"],
        "Missing parameter <code>type</code>"
    );
}

#[tokio::test]
async fn reports_version_and_statistics() {
    let service = Service::start().await;
    put(&service, &["m"]).await;
    let version = service.get("/api/version").await.json();
    assert_eq!(
        (&version["version"], &version["repo"]),
        (&json!("2.4.1"), &json!("oxtsdb"))
    );
    assert_eq!(version["implementation_version"], env!("CARGO_PKG_VERSION"));
    let stats = service.get("/api/stats").await.json();
    let added = stats
        .as_array()
        .unwrap()
        .iter()
        .find(|s| s["metric"] == "tsd.datapoints.added")
        .unwrap();
    assert_eq!(
        (&added["value"], &added["tags"]["type"]),
        (&json!("1"), &json!("all"))
    );
}

#[tokio::test]
async fn reports_unknown_paths_and_methods_in_opentsdbs_envelope() {
    let service = Service::start().await;
    for (request, status, body) in [
        (
            "GET /api/nothing",
            404,
            r#"{"error":{"code":404,"message":"Endpoint not found"}}"#,
        ),
        (
            "GET /api/put",
            405,
            r#"{"error":{"code":405,"message":"Method not allowed","details":"The HTTP method [GET] is not permitted for this endpoint"}}"#,
        ),
        (
            "PUT /api/suggest",
            405,
            r#"{"error":{"code":405,"message":"Method not allowed","details":"The HTTP method [PUT] is not permitted for this endpoint"}}"#,
        ),
        (
            "GET /api/v2/version",
            501,
            r#"{"error":{"code":501,"message":"Requested API version is greater than the max implemented","details":"API version [2] is greater than the max [1]"}}"#,
        ),
        (
            "GET /api/v1x/version",
            400,
            r#"{"error":{"code":400,"message":"Invalid API version format supplied"}}"#,
        ),
        (
            "GET /api/version?serializer=xml",
            400,
            r#"{"error":{"code":400,"message":"Requested serializer was not found"}}"#,
        ),
    ] {
        let response = service.request(format!("{request} HTTP/1.1\r\n"), b"").await;
        assert_eq!((response.status, response.text()), (status, body), "{request}");
    }
    let page = service.get("/nothing").await;
    assert_eq!(
        (page.status, page.header("content-type")),
        (404, Some("text/html; charset=UTF-8"))
    );
    let wrapped = service.get("/api/suggest?type=metrics&jsonp=f").await;
    assert_eq!(wrapped.text(), "f([])");
    assert_eq!(
        wrapped.header("content-type"),
        Some("application/javascript; charset=UTF-8")
    );
    for path in [
        "/api/suggest?type=metrics&jsonp=f",
        "/api/version",
        "/nothing",
        "/",
    ] {
        let response = service.get(path).await;
        assert_eq!(
            response.header("x-content-type-options"),
            Some("nosniff"),
            "{path}"
        );
    }
    for callback in ["%3Cscript%3E", "alert(1)", "a%0Ab"] {
        let rejected = service
            .get(&format!("/api/suggest?type=metrics&jsonp={callback}"))
            .await;
        assert_eq!(rejected.status, 400, "{callback}");
        assert!(rejected.text().starts_with(r#"{"error""#), "{}", rejected.text());
    }
    let wrapped = service.get("/api/nothing?jsonp=f").await;
    assert_eq!(
        wrapped.text(),
        r#"f({"error":{"code":404,"message":"Endpoint not found"}})"#
    );
}

#[tokio::test]
async fn a_connection_is_kept_only_if_the_body_was_read() {
    let service = Service::start().await;
    let next = "GET /api/version HTTP/1.1\r\nHost: test\r\n\r\n";
    let head = |path: &str, length: usize| {
        format!("POST {path} HTTP/1.1\r\nHost: test\r\nContent-Length: {length}\r\n\r\n")
    };
    for path in ["/api/nothing", "/api/aggregators", "/api/query?jsonp=("] {
        let mut stream = service.connect().await;
        let request = head(path, 1000) + &"x".repeat(1000) + next;
        stream.write_all(request.as_bytes()).await.unwrap();
        let response = read_response(&mut stream).await;
        assert_eq!(response.header("connection"), None, "{path}");
        assert_eq!(read_response(&mut stream).await.status, 200, "{path}");
    }
    for path in ["/api/nothing", "/api/put"] {
        let mut stream = service.connect().await;
        // No byte of the body is sent.
        stream.write_all(head(path, 1 << 30).as_bytes()).await.unwrap();
        let response = read_response(&mut stream).await;
        assert!(matches!(response.status, 404 | 413), "{path}: {response:?}");
        assert_eq!(response.header("connection"), Some("close"), "{path}");
    }
    let mut stream = service.connect().await;
    let request =
        "POST /api/nothing HTTP/1.1\r\nHost: test\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n";
    stream.write_all(request.as_bytes()).await.unwrap();
    let response = read_response(&mut stream).await;
    assert_eq!(
        (response.status, response.header("connection")),
        (404, Some("close"))
    );
}

#[tokio::test]
async fn compresses_responses_on_request() {
    let service = Service::start().await;
    let head = "GET /api/version HTTP/1.1\r\nAccept-Encoding: gzip, deflate\r\n".to_owned();
    let response = service.request(head, b"").await;
    assert_eq!(response.header("content-encoding"), Some("gzip"));
    let mut plain = String::new();
    flate2::read::GzDecoder::new(&response.body[..])
        .read_to_string(&mut plain)
        .unwrap();
    assert_eq!(plain, service.get("/api/version").await.text());
    assert_eq!(service.get("/api/version").await.header("content-encoding"), None);
}

#[tokio::test]
async fn keeps_connections_and_serves_pipelined_requests() {
    let service = Service::start().await;
    let mut stream = service.connect().await;
    let request = "GET /api/suggest?type=tagk HTTP/1.1\r\nHost: t\r\n\r\n";
    stream.write_all(request.repeat(3).as_bytes()).await.unwrap();
    for _ in 0..3 {
        assert_eq!(read_response(&mut stream).await.text(), "[]");
    }
    stream.write_all(request.as_bytes()).await.unwrap();
    assert_eq!(read_response(&mut stream).await.text(), "[]");
}

#[tokio::test]
async fn the_first_byte_selects_the_protocol() {
    let service = Service::start().await;
    assert!(service.telnet("help\n").await.starts_with("available commands:"));
    assert!(service.telnet("\n").await.starts_with("unknown command: ."));
    assert!(
        service
            .telnet("GET /api/version HTTP/1.0\r\n\r\n")
            .await
            .starts_with("HTTP/1.0 200 OK")
    );
    let bad_header = service.telnet("GET / HTTP/1.1\r\nno header\r\n\r\n").await;
    assert!(bad_header.starts_with("HTTP/1.1 400"), "{bad_header}");
    let no_http = service.telnet("Put m 1 1 a=b\r\n\r\n").await;
    assert!(no_http.starts_with("HTTP/1.1 400"), "{no_http}");
    assert_eq!(service.telnet("").await, "");
}

#[tokio::test]
async fn at_the_limit_idle_connections_are_evicted_and_busy_ones_served() {
    let mut settings = DataSettings::default();
    settings.connections.max_connections = 2;
    let service = Service::start_with(settings, UidSettings::default()).await;
    let mut idle = service.connect().await;
    idle.write_all(b"GET /api/version HTTP/1.1\r\nHost: t\r\n\r\n")
        .await
        .unwrap();
    assert_eq!(read_response(&mut idle).await.status, 200);
    let point = r#"{"metric":"m","timestamp":1,"value":1,"tags":{"a":"b"}}"#;
    let mut busy = Vec::new();
    for _ in 0..2 {
        let mut stream = service.connect().await;
        let head = format!(
            "POST /api/put HTTP/1.1\r\nHost: t\r\nExpect: 100-continue\r\nContent-Length: {}\r\n\r\n",
            point.len()
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        assert_eq!(read_response(&mut stream).await.status, 100);
        busy.push(stream);
    }
    assert_eq!(read_to_end(&mut idle).await, "", "it gave way to the second one");
    let mut refused = service.connect().await;
    assert_eq!(read_to_end(&mut refused).await, "");
    for stream in &mut busy {
        stream.write_all(point.as_bytes()).await.unwrap();
        assert_eq!(read_response(stream).await.status, 204);
    }
    let mut later = service.connect().await;
    later.write_all(b"help\nexit\n").await.unwrap();
    assert!(read_to_end(&mut later).await.starts_with("available"));
}

#[tokio::test]
async fn completes_requests_in_flight_on_shutdown() {
    let mut service = Service::start().await;
    let point = r#"{"metric":"m","timestamp":1,"value":1,"tags":{"a":"b"}}"#;
    let mut idle = service.connect().await;
    idle.write_all(b"GET /api/version HTTP/1.1\r\nHost: t\r\n\r\n")
        .await
        .unwrap();
    assert_eq!(read_response(&mut idle).await.status, 200);

    let mut busy = service.connect().await;
    let head = format!(
        "POST /api/put HTTP/1.1\r\nHost: t\r\nExpect: 100-continue\r\nContent-Length: {}\r\n\r\n",
        point.len()
    );
    busy.write_all(head.as_bytes()).await.unwrap();
    // The server requests the body: the request is in flight.
    assert_eq!(read_response(&mut busy).await.status, 100);
    service.stop().await;
    assert_eq!(
        read_to_end(&mut idle).await,
        "",
        "a connection without a request is closed"
    );
    busy.write_all(point.as_bytes()).await.unwrap();
    let response = read_response(&mut busy).await;
    assert_eq!(
        (response.status, response.header("connection")),
        (204, Some("close"))
    );
    assert_eq!(read_to_end(&mut busy).await, "");
    let store = service.store.clone();
    service.ended().await;
    assert_eq!(oxtsdb_test_stack::service::points(&store).await.len(), 1);
}

#[tokio::test]
async fn slow_bodies_do_not_block_other_requests() {
    let service = Service::start().await;
    let mut slow = Vec::new();
    for head in [
        "Transfer-Encoding: chunked",
        "Content-Encoding: gzip\r\nContent-Length: 1000",
    ] {
        for _ in 0..24 {
            let mut stream = service.connect().await;
            let request = format!("POST /api/put HTTP/1.1\r\nHost: test\r\n{head}\r\n\r\n1\r\n[\r\n");
            stream.write_all(request.as_bytes()).await.unwrap();
            slow.push(stream);
        }
    }
    let point = r#"{"metric":"m","timestamp":1,"value":1,"tags":{"k":"v"}}"#;
    let response = tokio::time::timeout(
        std::time::Duration::from_secs(10),
        service.post("/api/put", point),
    );
    assert_eq!(response.await.unwrap().status, 204);
    let query = r#"{"start":1,"end":2,"queries":[{"aggregator":"sum","metric":"m"}]}"#;
    let response = tokio::time::timeout(
        std::time::Duration::from_secs(10),
        service.post("/api/query", query),
    );
    assert_eq!(response.await.unwrap().status, 200);
    drop(slow);
}

#[tokio::test]
async fn puts_get_503_while_the_memory_pool_is_exhausted() {
    let full = MemoryAccount::new(256 << 20, 0);
    let stack = TestStack::with_memory(DataSettings::default(), &full).await;
    let service = Service::from_stack(stack).await;
    let taken = full.ingest().try_reserve(full.ingest().limit_bytes()).unwrap();
    let point = r#"{"metric":"m","timestamp":1,"value":1,"tags":{"k":"v"}}"#;
    let response = service.post("/api/put", point).await;
    assert_eq!(
        (response.status, response.header("retry-after")),
        (503, Some("1"))
    );
    let message = response.json()["error"]["message"].to_string();
    assert!(
        message.contains("ingest memory is in use") && message.contains("--memory-limit-mib"),
        "{message}"
    );
    drop(taken);
    assert_eq!(service.post("/api/put", point).await.status, 204);
    assert_eq!(full.ingest().usage().used_bytes, 0, "all is given back");
}

#[tokio::test]
async fn the_body_of_a_query_waits_for_memory_as_long_as_the_query_for_its_turn() {
    let full = MemoryAccount::new(256 << 20, 0);
    let mut settings = DataSettings::default();
    settings.queries.query_queue_timeout_seconds = 2;
    let service = Service::from_stack(TestStack::with_memory(settings, &full).await).await;
    let _taken = full.query().try_reserve(full.query().limit_bytes()).unwrap();
    let began = Instant::now();
    let response = service
        .post("/api/query/last", r#"{"queries":[{"metric":"m"}]}"#)
        .await;
    assert_eq!(response.status, 503, "{}", response.json());
    assert!(began.elapsed() >= Duration::from_secs(2), "{:?}", began.elapsed());
}

#[tokio::test]
async fn a_put_larger_than_the_ingest_pool_gets_413() {
    // The ingest pool has 16 MiB, and a client can have 12 of them; a body takes five times its size.
    let small = MemoryAccount::new(256 << 20, 192 << 20);
    let stack = TestStack::with_memory(DataSettings::default(), &small).await;
    let service = Service::from_stack(stack).await;
    let point = r#"{"metric":"m","timestamp":1,"value":1,"tags":{"k":"v"}}"#;
    let body = format!("[{point}{}]", " ".repeat(4 << 20));
    let response = service.post("/api/put", &body).await;
    assert_eq!((response.status, response.header("retry-after")), (413, None));
    let message = response.json()["error"]["message"].to_string();
    assert!(
        message.contains(
            "KiB of ingest memory, more than the 12 MiB that a request can have (--memory-limit-mib)"
        ),
        "{message}"
    );
    assert_eq!(service.post("/api/put", point).await.status, 204);
    assert_eq!(small.ingest().usage().used_bytes, 0, "all is given back");
}

#[tokio::test]
async fn pages_of_other_sites_cannot_change_anything_by_get() {
    let get = async |service: &Service, target: &str, site: &str| {
        let head = format!("GET {target} HTTP/1.1\r\nSec-Fetch-Site: {site}\r\n");
        service.request(head, b"").await.status
    };
    let changes = [
        "/api/uid/assign?metric=m",
        "/api/uid/rename?metric=a&name=b",
        "/api/dropcaches",
        "/api/tree?name=t&method_override=post",
        "/api/annotation?start_time=1&description=d&method_override=post",
    ];
    let service = Service::start().await;
    for target in changes {
        assert_eq!(get(&service, target, "cross-site").await, 403, "{target}");
    }
    for target in ["/api/suggest?type=metrics", "/api/tree", "/api/version", "/"] {
        assert_eq!(get(&service, target, "cross-site").await, 200, "{target}");
    }
    // A page can read the script that JSONP is.
    assert_eq!(
        get(&service, "/api/suggest?type=metrics&jsonp=f", "cross-site").await,
        403
    );
    assert_eq!(
        get(&service, "/api/suggest?type=metrics&jsonp=f", "same-origin").await,
        200
    );
    for site in ["none", "same-origin"] {
        let assign = format!("/api/uid/assign?metric={site}");
        assert_eq!(get(&service, &assign, site).await, 200, "{site}");
        assert_eq!(get(&service, "/api/dropcaches", site).await, 200, "{site}");
    }
    let mut settings = DataSettings::default();
    settings.http.cors_domains = "*".to_owned();
    let service = Service::start_with(settings, UidSettings::default()).await;
    assert_eq!(get(&service, "/api/dropcaches", "cross-site").await, 200);
    assert_eq!(get(&service, "/api/version?jsonp=f", "cross-site").await, 200);
}

#[tokio::test]
async fn scripts_of_allowed_sites_read_jsonp() {
    let mut settings = DataSettings::default();
    settings.http.cors_domains = "https://a.example".to_owned();
    let service = Service::start_with(settings, UidSettings::default()).await;
    for (referer, status) in [
        ("https://a.example/", 200),
        ("https://A.example/dashboard?x=1", 200),
        ("https://a.example.evil/", 403),
        ("https://evil.example/https://a.example/", 403),
        ("", 403),
    ] {
        let head = format!(
            "GET /api/version?jsonp=f HTTP/1.1\r\nSec-Fetch-Site: cross-site\r\nReferer: {referer}\r\n"
        );
        assert_eq!(service.request(head, b"").await.status, status, "{referer}");
    }
}

#[tokio::test]
async fn rejects_foreign_origins_unless_they_are_allowed() {
    let point = br#"{"metric":"m","timestamp":1,"value":1,"tags":{"k":"v"}}"#;
    let send = async |service: &Service, method: &str, origin: &str| {
        let head = format!("{method} /api/put HTTP/1.1\r\nOrigin: {origin}\r\n");
        service
            .request(head, if method == "POST" { point } else { b"" })
            .await
    };
    let service = Service::start().await;
    let response = send(&service, "POST", "http://evil.example").await;
    assert_eq!(
        (response.status, response.text()),
        (
            403,
            r#"{"error":{"code":403,"message":"CORS domain not allowed","details":"The domain [http://evil.example] is not permitted access (--cors-domains)"}}"#
        )
    );
    assert_eq!(service.cells().await.len(), 0);
    // Service::request sends `Host: test`.
    assert_eq!(send(&service, "POST", "http://test").await.status, 204);
    assert_eq!(send(&service, "OPTIONS", "http://test").await.status, 405);

    let mut settings = DataSettings::default();
    settings.http.cors_domains = "http://grafana:3000, http://b".to_owned();
    let service = Service::start_with(settings, UidSettings::default()).await;
    let response = send(&service, "OPTIONS", "http://grafana:3000").await;
    assert_eq!(response.status, 200);
    assert_eq!(
        response.header("access-control-allow-origin"),
        Some("http://grafana:3000")
    );
    assert_eq!(
        response.header("access-control-allow-methods"),
        Some("GET, POST, PUT, DELETE")
    );
    let response = send(&service, "POST", "http://grafana:3000").await;
    assert_eq!(
        (response.status, response.header("access-control-allow-origin")),
        (204, Some("http://grafana:3000"))
    );
    assert_eq!(send(&service, "POST", "http://c").await.status, 403);
}
