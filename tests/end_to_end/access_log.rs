//! The access log: a line for each request, with its id, caller, code, bytes, duration, rows and points.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Stdio};

use anyhow::{Context as _, ensure};
use oxtsdb_tests::http::Http;
use oxtsdb_tests::metrics::Metrics;
use oxtsdb_tests::raw_http::RawHttp;
use oxtsdb_tests::read_back::series_of;
use oxtsdb_tests::sample::Sample;
use oxtsdb_tests::tokens::{Signer, jwks, replace};
use oxtsdb_tests::write_requests::write_request;
use oxtsdb_tests::{DataProgram, Options, Tsdb, UidProgram, program_path, until};
use serde_json::{Value, json};
use tempfile::TempDir;

const T: i64 = 1_500_000_000_000;

async fn start(level: &str) -> anyhow::Result<Tsdb> {
    let options = Options::default()
        .flag("--access-log", level)
        .flag("--log-format", "json");
    Tsdb::start_with(options).await
}

/// The lines of the access log so far.
fn lines(tsdb: &mut Tsdb) -> Vec<Value> {
    let log = tsdb.process().log();
    let values = log.lines().filter_map(|line| serde_json::from_str(line).ok());
    values.filter(|line: &Value| line["target"] == "access").collect()
}

/// Waits for a line with these fields.
async fn line(tsdb: &mut Tsdb, fields: Value) -> anyhow::Result<Value> {
    let fields = fields.as_object().context("fields")?.clone();
    until("the line is in the log", || {
        let lines = lines(tsdb);
        let entry = lines
            .iter()
            .find(|line| fields.iter().all(|(name, value)| &line[name] == value));
        let entry = entry
            .cloned()
            .with_context(|| format!("{fields:?} in {lines:#?}"));
        async move { entry }
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_have_lines_with_what_they_used() -> anyhow::Result<()> {
    let mut tsdb = start("all").await?;
    let samples: Vec<Sample> = (0..10)
        .map(|second| Sample::int("log.m", &[("host", "a")], T + second * 1000, second))
        .collect();
    let mut request = tonic::Request::new(write_request(&samples));
    request.metadata_mut().insert("x-request-id", "write-1".parse()?);
    request
        .metadata_mut()
        .insert("authorization", "Bearer not.shown.anywhere".parse()?);
    let response = tsdb.data().write(request).await?;
    ensure!(response.metadata().get("x-request-id").context("the id")? == "write-1");
    let fields = json!({ "request_id": "write-1", "protocol": "grpc", "method": "oxtsdb.data.v1.DataService/Write", "code": "OK", "points": 10, "caller": "anonymous" });
    let entry = line(&mut tsdb, fields).await?;
    ensure!(entry["bytes_in"].as_u64() > Some(50), "{entry}");
    ensure!(entry["bytes_out"].as_u64() > Some(0), "{entry}");
    ensure!(entry["duration_ms"].as_f64() > Some(0.0), "{entry}");
    ensure!(
        entry["peer"]
            .as_str()
            .is_some_and(|peer| peer.starts_with("127.0.0.1:")),
        "{entry}"
    );

    series_of(&mut tsdb.data(), "log.m").await?;
    let fields = json!({ "method": "oxtsdb.data.v1.DataService/Query", "code": "OK", "points": 10 });
    line(&mut tsdb, fields).await?;

    let http = tsdb.http();
    let response = http
        .get("/api/query?start=1499999000&end=1500001000&m=sum:log.m")
        .await?;
    ensure!(response.status == 200, "{response:?}");
    let fields = json!({ "protocol": "http", "method": "/api/query", "code": "200", "points": 10 });
    let entry = line(&mut tsdb, fields).await?;
    ensure!(
        entry["bytes_out"].as_u64() == Some(response.body.len() as u64),
        "{entry}"
    );
    let point = json!({ "metric": "log.m", "timestamp": 1_500_000_100, "value": 1, "tags": { "host": "a" } });
    ensure!(http.post("/api/put", &point).await?.status == 204);
    let fields = json!({ "method": "/api/put", "code": "204", "points": 1 });
    let entry = line(&mut tsdb, fields).await?;
    ensure!(
        entry["bytes_in"].as_u64() == Some(point.to_string().len() as u64),
        "{entry}"
    );

    let mut telnet = tsdb.telnet().await?;
    telnet
        .send(b"put log.m 1500000200 1 host=a\nversion\nexit\n")
        .await?;
    telnet.rest().await?;
    let fields = json!({ "protocol": "telnet", "method": "connection", "code": "ok", "points": 1, "caller": "telnet" });
    let entry = line(&mut tsdb, fields).await?;
    ensure!(entry["bytes_in"].as_u64() == Some(43), "{entry}");
    let log = tsdb.process().log();
    ensure!(!log.contains("not.shown"), "a token is in the log");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn ids_that_are_not_valid_are_replaced() -> anyhow::Result<()> {
    let mut tsdb = start("all").await?;
    let long = "x".repeat(129);
    for id in [long.as_str(), "with space", ""] {
        let mut raw = RawHttp::connect(tsdb.http_address()).await?;
        let head = format!(
            "GET /api/version HTTP/1.1\r\nHost: a\r\nX-Request-Id: {id}\r\nConnection: close\r\n\r\n"
        );
        raw.send(head.as_bytes()).await?;
        let response = raw.answer().await?;
        let returned = response.header("x-request-id").context("the id")?;
        ensure!(
            returned.len() == 32 && returned.bytes().all(|byte| byte.is_ascii_hexdigit()),
            "{returned}"
        );
        line(&mut tsdb, json!({ "request_id": returned })).await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_are_logged_alone() -> anyhow::Result<()> {
    let mut tsdb = start("errors").await?;
    let http = tsdb.http();
    ensure!(http.get("/api/version").await?.status == 200);
    ensure!(http.get("/api/query").await?.status == 400);
    let unknown = series_of(&mut tsdb.data(), "log.unknown").await;
    ensure!(unknown.is_err(), "{unknown:?}");
    line(&mut tsdb, json!({ "method": "/api/query", "code": "400" })).await?;
    line(
        &mut tsdb,
        json!({ "method": "oxtsdb.data.v1.DataService/Query", "code": "NOT_FOUND" }),
    )
    .await?;
    let lines = lines(&mut tsdb);
    ensure!(lines.len() == 2, "{lines:#?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn it_is_off_by_default() -> anyhow::Result<()> {
    let mut tsdb = Tsdb::start_with(Options::default().flag("--log-format", "json")).await?;
    let mut raw = RawHttp::connect(tsdb.http_address()).await?;
    raw.send(b"GET /api/nothing HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        .await?;
    ensure!(raw.answer().await?.header("x-request-id").is_none());
    tsdb.terminate().await?;
    let lines = lines(&mut tsdb);
    ensure!(lines.is_empty(), "{lines:#?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_requests_are_logged_with_those_that_failed() -> anyhow::Result<()> {
    for (threshold, has_fast) in [("0", true), ("3600000", false)] {
        let options = Options::default()
            .flag("--access-log", "slow")
            .flag("--access-log-slow-ms", threshold)
            .flag("--log-format", "json");
        let mut tsdb = Tsdb::start_with(options).await?;
        ensure!(tsdb.http().get("/api/version").await?.status == 200);
        ensure!(tsdb.http().get("/api/query").await?.status == 400);
        // Lines are in the order of the requests.
        line(&mut tsdb, json!({ "method": "/api/query", "code": "400" })).await?;
        let has_version = lines(&mut tsdb)
            .iter()
            .any(|line| line["method"] == "/api/version");
        ensure!(has_version == has_fast, "{threshold} ms: {:#?}", lines(&mut tsdb));
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_uid_service_logs_the_id_of_the_request_that_it_serves() -> anyhow::Result<()> {
    let folder = TempDir::with_prefix("oxtsdb-test-")?;
    let flags = ["--access-log=all".to_owned(), "--log-format=json".to_owned()];
    let mut uid = UidProgram::start_with(folder.path(), None, &flags).await?;
    let data = DataProgram::start_with(folder.path(), uid.address(), &flags).await?;
    let sample = Sample::int("log.m", &[("host", "a")], T, 1);
    let mut request = tonic::Request::new(write_request([&sample]));
    request
        .metadata_mut()
        .insert("x-request-id", "through-both".parse()?);
    data.client().write(request).await?;
    until("the UID service has logged the call", || {
        let log = uid.process().log();
        let is_logged = log
            .lines()
            .any(|line| line.contains("UidService/GetOrCreateUids") && line.contains("\"through-both\""));
        async move {
            ensure!(is_logged, "{log}");
            Ok(())
        }
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn callers_with_credentials_have_their_names_in_the_log() -> anyhow::Result<()> {
    let folder = TempDir::with_prefix("oxtsdb-test-")?;
    let signer = Signer::new("key")?;
    let [policy, keys] = ["policy.toml", "jwks.json"].map(|name| folder.path().join(name));
    replace(&policy, "[[rule]]\nwho = ['sub:olga']\nmay = ['write']\n")?;
    replace(&keys, &jwks(&[&signer]))?;
    let options = Options::default()
        .flag("--access-log", "all")
        .flag("--log-format", "json")
        .flag("--access-policy", &policy.display().to_string())
        .flag("--jwks", &keys.display().to_string())
        .flag("--token-audience", "oxtsdb");
    let mut tsdb = Tsdb::start_with(options).await?;
    for (subject, code) in [("olga", "OK"), ("mallory", "PERMISSION_DENIED")] {
        let token = signer.token(subject, &json!({}))?;
        let sample = Sample::int("log.m", &[("host", "a")], T, 1);
        let mut request = tonic::Request::new(write_request([&sample]));
        request
            .metadata_mut()
            .insert("authorization", format!("Bearer {token}").parse()?);
        let written = tsdb.data().write(request).await;
        ensure!(written.is_ok() == (code == "OK"), "{subject}: {written:?}");
        line(
            &mut tsdb,
            json!({ "caller": format!("sub:{subject}"), "code": code }),
        )
        .await?;
        ensure!(!tsdb.process().log().contains(&token), "a token is in the log");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_is_not_read_holds_up_no_request() -> anyhow::Result<()> {
    let folder = TempDir::with_prefix("oxtsdb-test-")?;
    let mut options = std::process::Command::new(program_path("tsdb")?);
    options
        .arg("serve")
        .arg("--access-log=all")
        .arg("--lame-duck-seconds=0");
    options.arg(format!("--data-dir={}", folder.path().display()));
    for listener in ["http", "data", "uid", "admin"] {
        options.arg(format!("--{listener}-listen=127.0.0.1:0"));
    }
    // A pipe takes 64 KiB.
    options.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut server = Unread(options.spawn()?);
    let ready = server.0.stdout.take().context("standard output")?;
    let ready = tokio::task::spawn_blocking(move || {
        let mut line = String::new();
        BufReader::new(ready).read_line(&mut line).map(|_| line)
    });
    let ready = ready.await??;
    let address = |name: &str| {
        let words = ready.split_whitespace();
        let address = words.filter_map(|word| word.strip_prefix(name)).next();
        anyhow::Ok(address.with_context(|| ready.clone())?.parse()?)
    };
    let mut client = RawHttp::connect(address("http=")?).await?;
    let admin = Http::new(address("admin=")?);
    let requests = b"GET /api/version HTTP/1.1\r\nHost: test\r\n\r\n".repeat(100);
    let mut dropped = 0.0;
    // The queue has 16,384 lines.
    for _ in 0..40 {
        for _ in 0..10 {
            client.send(&requests).await?;
            for _ in 0..100 {
                ensure!(client.answer().await?.status == 200);
            }
        }
        dropped = Metrics::scrape(&admin)
            .await?
            .value("oxtsdb_log_lines_dropped_total");
        if dropped > 0.0 {
            break;
        }
    }
    ensure!(dropped > 0.0, "no line was dropped");
    rustix::process::kill_process(
        rustix::process::Pid::from_child(&server.0),
        rustix::process::Signal::TERM,
    )?;
    until("the server ends", || {
        let ended = server.0.try_wait();
        async move {
            let status = ended?.context("it runs")?;
            ensure!(status.success(), "{status}");
            Ok(())
        }
    })
    .await
}

/// A process with standard error that is not read; dropping it kills it.
struct Unread(Child);

impl Drop for Unread {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
