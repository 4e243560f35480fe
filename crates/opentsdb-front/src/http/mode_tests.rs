//! Read-only and write-only servers, and rights, over HTTP and telnet.

use oxtsdb_access::{AccessControl, AccessOptions, Mode};
use oxtsdb_data_settings::DataSettings;
use oxtsdb_query::{QueryDescription, RequestContext};
use oxtsdb_schema::UidKind;
use oxtsdb_test_stack::TestStack;
use oxtsdb_test_stack::service::Service;

const POINT: &str = r#"{"metric":"app.m","timestamp":1356998400,"value":1,"tags":{"host":"a"}}"#;
const OTHER: &str = r#"{"metric":"sys.m","timestamp":1356998400,"value":1,"tags":{"host":"a"}}"#;

async fn service(options: AccessOptions) -> Service {
    let access = AccessControl::open(options).unwrap();
    let mut settings = DataSettings::default();
    settings.http.http_allow_delete = true;
    let stack = TestStack::with(settings, uid_service::UidSettings::default()).await;
    // A query of another caller, which has ended.
    let what = QueryDescription::without_range("of another caller");
    let query = stack
        .service
        .engine
        .admit(RequestContext::local(None), what, None);
    drop(query.await.unwrap());
    Service::with_server(stack, |server| server.with_access(&access)).await
}

async fn in_mode(mode: Mode) -> Service {
    service(AccessOptions {
        mode,
        ..AccessOptions::default()
    })
    .await
}

async fn with_policy(policy: &str) -> (Service, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("policy.toml");
    std::fs::write(&path, policy).unwrap();
    let options = AccessOptions {
        policy: Some(path),
        ..AccessOptions::default()
    };
    (service(options).await, folder)
}

#[tokio::test]
async fn read_only_servers_have_no_endpoints_that_change() {
    let service = in_mode(Mode::ReadOnly).await;
    for path in [
        "/api/put",
        "/api/v1/Put/",
        "/api/uid/assign",
        "/api/annotation",
        "/api/tree",
    ] {
        let response = service.post(path, POINT).await;
        assert_eq!(response.status, 404, "{path}");
        assert!(
            response.text().contains("Endpoint not found"),
            "{}",
            response.text()
        );
        assert!(response.text().contains("--mode ro"), "{}", response.text());
    }
    for path in ["/api/aggregators", "/api/suggest?type=metrics", "/version", "/"] {
        assert_eq!(service.get(path).await.status, 200, "{path}");
    }
    let config = service.get("/api/config").await;
    assert!(config.text().contains(r#""tsd.mode":"ro""#), "{}", config.text());
    let delete = service
        .request("DELETE /api/query?start=1&m=sum:m HTTP/1.1\r\n".to_owned(), b"")
        .await;
    assert_eq!(delete.status, 400, "{}", delete.text());
    let replies = service
        .telnet("put app.m 1356998400 1 host=a\nversion\nhelp\nput\n")
        .await;
    let lines: Vec<&str> = replies.lines().collect();
    assert_eq!(
        lines.first(),
        Some(&"unknown command: put.  Try `help'."),
        "{replies}"
    );
    assert!(
        replies.contains("available commands: stats dropcaches version exit help \n"),
        "{replies}"
    );
    assert_eq!(
        lines.last(),
        Some(&"unknown command: put.  Try `help'."),
        "{replies}"
    );
    assert_eq!(service.cells().await, Vec::<String>::new());
}

#[tokio::test]
async fn write_only_servers_have_no_endpoints_that_query() {
    let service = in_mode(Mode::WriteOnly).await;
    assert_eq!(service.post("/api/put", POINT).await.status, 204);
    for path in [
        "/api/query?start=1&m=sum:app.m",
        "/api/query/last",
        "/api/search/lookup",
        "/api/suggest",
    ] {
        let response = service.get(path).await;
        assert_eq!(response.status, 404, "{path}");
        assert!(response.text().contains("--mode wo"), "{}", response.text());
    }
    assert_eq!(service.get("/q?start=1&m=sum:app.m").await.status, 404);
    assert_eq!(service.get("/api/version").await.status, 200);
    assert_eq!(service.telnet("put app.m 1356998401 2 host=a\n").await, "");
    assert!(!service.cells().await.is_empty());
}

#[tokio::test]
async fn rights_limit_endpoints_and_metrics() {
    let (service, _folder) = with_policy(
        "[[rule]]\nwho=['anonymous']\nmay=['read','write']\nmetrics=['app.']\n\
         [[rule]]\nwho=['anonymous']\nmay=['read']\non=['/api/version']",
    )
    .await;
    let response = service
        .post("/api/put?details", format!("[{POINT},{OTHER}]"))
        .await;
    assert_eq!(response.status, 403, "{}", response.text());
    let text = response.text();
    assert!(
        text.contains("`anonymous` may not write metric `sys.m`"),
        "{text}"
    );
    assert!(
        text.contains(r#""success":1"#) && text.contains(r#""failed":1"#),
        "{text}"
    );
    assert_eq!(service.get("/api/query?start=1&m=sum:app.m").await.status, 200);
    // Remote read: a query that ends at 1 s, with the matcher `__name__="sys.m"`.
    let read = b"\x0a\x16\x10\xe8\x07\x1a\x11\x12\x08__name__\x1a\x05sys.m";
    for response in [
        service.get("/api/query?start=1&m=sum:sys.m").await,
        service.get("/api/query?start=1&m=sum:app.m&m=sum:sys.m").await,
        service.post("/api/read", read).await,
    ] {
        assert_eq!(response.status, 403, "{}", response.text());
        assert!(
            response
                .text()
                .contains("`anonymous` may not read metric `sys.m`"),
            "{}",
            response.text()
        );
    }
    assert_eq!(service.get("/api/version").await.status, 200);
    let refused = service.get("/api/config").await;
    assert_eq!(refused.status, 401, "{}", refused.text());
    assert!(refused.text().contains("no credentials"), "{}", refused.text());
    let refused = service
        .request(
            "GET /api/version HTTP/1.1\r\nAuthorization: Bearer secret-token\r\n".to_owned(),
            b"",
        )
        .await;
    assert_eq!(refused.status, 401);
    assert!(!refused.text().contains("secret"), "{}", refused.text());
}

#[tokio::test]
async fn readers_see_their_own_queries_and_operators_all() {
    for (may, expected) in [("'read'", 1), ("'read','administer'", 2)] {
        let (service, _folder) = with_policy(&format!("[[rule]]\nwho=['anonymous']\nmay=[{may}]")).await;
        let query = service.get("/api/query?start=1h-ago&m=sum:unknown.metric").await;
        assert_eq!(query.status, 400, "{}", query.text());
        let queries = service.get("/api/stats/query").await.json();
        assert_eq!(
            queries["completed"].as_array().unwrap().len(),
            expected,
            "{may}: {queries}"
        );
    }
}

#[tokio::test]
async fn tsuids_of_other_metrics_are_refused() {
    let (service, _folder) = with_policy(
        "[[rule]]\nwho=['anonymous']\nmay=['read']\nmetrics=['app.']\n\
         [[rule]]\nwho=['anonymous']\nmay=['write']",
    )
    .await;
    assert_eq!(
        service
            .post("/api/put", format!("[{POINT},{OTHER}]"))
            .await
            .status,
        204
    );
    let (app, sys) = ("000001000001000001", "000002000001000001");
    for (tsuid, status) in [(app, 200), (sys, 403)] {
        for path in [
            format!("/api/query?start=1&tsuid=sum:{tsuid}"),
            format!("/api/query/last?tsuids={tsuid}"),
            format!("/api/query/last?tsuids={tsuid}&back_scan=1"),
            format!("/api/query/last?tsuids={tsuid}&resolve=true"),
        ] {
            let response = service.get(&path).await;
            assert_eq!(response.status, status, "{path}: {}", response.text());
            assert!(!response.text().contains("sys.m"), "{path}: {}", response.text());
        }
    }
}

#[tokio::test]
async fn names_of_tags_of_other_metrics_are_not_revealed() {
    let (service, _folder) = with_policy(
        "[[rule]]\nwho=['anonymous']\nmay=['read']\nmetrics=['app.']\n\
         [[rule]]\nwho=['anonymous']\nmay=['write']",
    )
    .await;
    let secret = r#"{"metric":"sys.m","timestamp":1356998400,"value":1,"tags":{"host":"secret","rack":"r"}}"#;
    let points = format!("[{POINT},{secret}]");
    assert_eq!(service.post("/api/put", points).await.status, 204);
    for tags in [
        "host=secret",
        "host=nowhere",
        "rack=r",
        "nothing=r",
        "host=literal_or(nowhere)",
    ] {
        let tags = format!("%7B{tags}%7D");
        let response = service
            .get(&format!("/api/query?start=1&m=sum:app.m{tags}"))
            .await;
        assert_eq!((response.status, response.text()), (200, "[]"), "{tags}");
    }
    for tags in ["host=secret", "host=nowhere"] {
        let path = format!("/api/query/last?back_scan=24&timeseries=app.m%7B{tags}%7D");
        let response = service.get(&path).await;
        assert_eq!((response.status, response.text()), (200, "[]"), "{tags}");
    }
    let known = service.get("/api/query?start=1&m=sum:app.m%7Bhost=a%7D").await;
    assert!(known.text().contains("1356998400"), "{}", known.text());
    let unknown = service.get("/api/query?start=1&m=sum:app.unknown").await;
    assert_eq!(unknown.status, 400, "a metric that the caller may read");
}

#[tokio::test]
async fn rights_on_some_metrics_grant_nothing_that_belongs_to_none() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("policy.toml");
    let policy = "[[rule]]\nwho=['anonymous']\nmay=['read']\nmetrics=['app.']\n\
                  [[rule]]\nwho=['anonymous']\nmay=['write']";
    std::fs::write(&path, policy).unwrap();
    let options = AccessOptions {
        policy: Some(path),
        ..AccessOptions::default()
    };
    let access = AccessControl::open(options).unwrap();
    let stack = TestStack::start().await;
    let (uid_client, uids) = (stack.uid_client.clone(), stack.service.uids.clone());
    let service = Service::with_server(stack, |server| server.with_access(&access)).await;
    assert_eq!(
        service
            .post("/api/put", format!("[{POINT},{OTHER}]"))
            .await
            .status,
        204
    );
    let annotation = r#"{"startTime":1356998400,"description":"secret"}"#;
    assert_eq!(service.post("/api/annotation", annotation).await.status, 200);

    // A metric with a deleted name, and one that never had a name.
    uid_client.delete(UidKind::Metric, "sys.m", None).await.unwrap();
    while uids.uid(UidKind::Metric, "sys.m", None).await.unwrap().is_some() {
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
    for metric in ["000002", "000009"] {
        for path in ["query?start=1&tsuid=sum:", "query/last?back_scan=1&tsuids="] {
            let response = service.get(&format!("/api/{path}{metric}000001000001")).await;
            assert_eq!(response.status, 403, "{path}: {}", response.text());
            let text = format!("`anonymous` may not read the metric with UID {metric}");
            assert!(response.text().contains(&text), "{}", response.text());
        }
    }
    let refused = service
        .get("/api/query?start=1&global_annotations&tsuid=sum:000009000001000001")
        .await;
    assert_eq!(refused.status, 403, "{}", refused.text());
    for path in [
        "/api/query?start=1&m=sum:app.m&global_annotations",
        "/api/query/gexp?start=1&exp=absolute(sum:app.m)&global_annotations",
    ] {
        let response = service.get(path).await;
        assert_eq!(response.status, 200, "{path}: {}", response.text());
        let text = response.text();
        assert!(
            text.contains("1356998400") && !text.contains("secret"),
            "{path}: {text}"
        );
    }
}

#[tokio::test]
async fn a_right_to_read_is_none_to_delete() {
    let (service, _folder) = with_policy("[[rule]]\nwho=['anonymous']\nmay=['read','write']").await;
    assert_eq!(service.post("/api/put", POINT).await.status, 204);
    let body = r#"{"start":1,"delete":true,"queries":[{"metric":"app.m","aggregator":"sum"}]}"#;
    let by_flag = service.post("/api/query", body).await;
    assert_eq!(by_flag.status, 403, "{}", by_flag.text());
    let by_override = service
        .get("/api/query?start=1&m=sum:app.m&method_override=delete")
        .await;
    assert_eq!(by_override.status, 403, "{}", by_override.text());
    let by_method = service
        .request(
            "DELETE /api/query?start=1&m=sum:app.m HTTP/1.1\r\n".to_owned(),
            b"",
        )
        .await;
    assert_eq!(by_method.status, 401, "{}", by_method.text());
    assert!(
        service
            .get("/api/query?start=1&m=sum:app.m")
            .await
            .text()
            .contains("1356998400")
    );
}

#[tokio::test]
async fn telnet_needs_rights_of_its_own() {
    let (service, _folder) = with_policy("[[rule]]\nwho=['telnet']\nmay=['write']").await;
    let replies = service.telnet("put app.m 1356998400 1 host=a\n").await;
    assert_eq!(
        replies,
        "telnet is off where rights are on (`telnet` in --access-policy)\n"
    );

    let (service, _folder) = with_policy(
        "telnet='loopback'\n[[rule]]\nwho=['telnet']\nmay=['write']\non=['telnet/put']\nmetrics=['app.']",
    )
    .await;
    let lines = "put app.m 1356998400 1 host=a\nput sys.m 1356998400 1 host=a\nstats\nversion\n\
                 rollup 1h-sum app.m 1356998400 1 host=a\nput app.m 1356998401 2 host=a\n";
    let replies = service.telnet(lines).await;
    assert!(
        replies.contains("put: illegal argument: `telnet` may not write metric `sys.m`"),
        "{replies}"
    );
    assert!(
        replies.contains("stats: `telnet` may not read by `telnet/stats`"),
        "{replies}"
    );
    assert!(
        replies.contains("rollup: `telnet` may not write by `telnet/rollup`"),
        "{replies}"
    );
    assert!(replies.contains("(OpenTSDB 2.4.1)"), "{replies}");
    let cells = service.cells().await;
    assert_eq!(cells.len(), 2, "{cells:?}");
}
