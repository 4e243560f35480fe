//! Rights: callers by token, a policy of methods and metrics, its reload, and read-only servers.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use anyhow::{Context as _, ensure};
use oxtsdb_proto::common::v1::{ErrorReason, SeriesKey, UidKind, series_key};
use oxtsdb_proto::data::v1::query_last_request::{Target, target};
use oxtsdb_proto::data::v1::{
    AggregateFunction, ListQueriesRequest, QueryLastRequest, QueryRequest, WriteResponse, time_series,
};
use oxtsdb_proto::error::reason_of;
use oxtsdb_proto::uid::v1::{DeleteUidRequest, GetUidLayoutRequest};
use oxtsdb_tests::read_back::{always, sub_query};
use oxtsdb_tests::sample::{ColumnsBuilder, Sample};
use oxtsdb_tests::tokens::{Signer, jwks, now, replace};
use oxtsdb_tests::write_requests::{columns_request, write_request};
use oxtsdb_tests::{Options, Telnet, Tsdb, program_path, until};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tonic::{Code, Request, Status};

const T: i64 = 1_700_000_000_000;

const POLICY: &str = r#"
telnet = "loopback"

[groups]
operators = ["sub:olga", "group:sre"]

[[rule]]
name = "collectors"
who = ["sub:collector"]
may = ["write"]
metrics = ["sys."]

[[rule]]
name = "dashboards"
who = ["sub:grafana"]
may = ["read"]
on = ["oxtsdb.data.v1.DataService", "/api/query"]
metrics = ["sys."]

[[rule]]
name = "operators"
who = ["@operators"]
may = ["read", "write", "administer"]

[[rule]]
name = "scripts of this machine"
who = ["telnet"]
may = ["write"]
on = ["telnet/put"]
metrics = ["sys."]
"#;

/// A server with rights, and the issuer of its tokens.
struct Guarded {
    tsdb: Tsdb,
    signer: Signer,
    folder: TempDir,
}

fn options(folder: &TempDir) -> Options {
    let file = |name: &str| folder.path().join(name).display().to_string();
    Options::default()
        .flag("--access-policy", &file("policy.toml"))
        .flag("--jwks", &file("jwks.json"))
        .flag("--token-audience", "oxtsdb")
}

impl Guarded {
    async fn start() -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let signer = Signer::new("first")?;
        std::fs::write(folder.path().join("policy.toml"), POLICY)?;
        std::fs::write(folder.path().join("jwks.json"), jwks(&[&signer]))?;
        let tsdb = Tsdb::start_with(options(&folder)).await?;
        Ok(Self { tsdb, signer, folder })
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn token(&self, subject: &str) -> String {
        self.signer.token(subject, &json!({})).unwrap()
    }

    async fn write(&self, token: &str, metrics: &[&str]) -> Result<WriteResponse, Status> {
        let samples: Vec<Sample> = metrics.iter().map(|metric| sample(metric)).collect();
        let request = with_token(token, write_request(&samples));
        Ok(self.tsdb.data().write(request).await?.into_inner())
    }

    /// Whether `collector` may write a metric.
    async fn may_write(&self, metric: &str) -> anyhow::Result<bool> {
        let response = self.write(&self.token("collector"), &[metric]).await?;
        Ok(response.failed == 0)
    }

    async fn query(&self, token: &str, metric: &str) -> Result<usize, Status> {
        let request = QueryRequest {
            range: Some(always()),
            queries: vec![sub_query(metric, AggregateFunction::None)],
            ..QueryRequest::default()
        };
        let mut groups = 0;
        let mut stream = self
            .tsdb
            .data()
            .query(with_token(token, request))
            .await?
            .into_inner();
        while stream.message().await?.is_some() {
            groups += 1;
        }
        Ok(groups)
    }

    fn log(&mut self) -> String {
        self.tsdb.process().log()
    }
}

fn sample(metric: &str) -> Sample {
    Sample::int(metric, &[("host", "a")], T, 1)
}

fn with_token<M>(token: &str, message: M) -> Request<M> {
    let mut request = Request::new(message);
    let header = format!("Bearer {token}").parse().unwrap();
    request.metadata_mut().insert("authorization", header);
    request
}

fn is(status: &Status, code: Code, reason: ErrorReason, text: &str) -> anyhow::Result<()> {
    ensure!(status.code() == code, "{status:?}");
    ensure!(reason_of(status) == Some(reason), "{status:?}");
    ensure!(status.message().contains(text), "{status:?}");
    Ok(())
}

#[tokio::test]
async fn tokens_that_are_not_valid_are_rejected_without_a_word_of_them() -> anyhow::Result<()> {
    let mut guarded = Guarded::start().await?;
    let stranger = Signer::new("stranger")?;
    let valid = guarded.token("olga");
    let (message, signature) = valid.rsplit_once('.').unwrap();
    let forged = format!(
        "{message}.{}",
        signature
            .chars()
            .rev()
            .skip(1)
            .chain(['A', 'A'])
            .take(86)
            .collect::<String>()
    );
    let cases = [
        (
            guarded.signer.token("olga", &json!({"aud": "other"}))?,
            "the token is for another audience",
        ),
        (
            guarded.signer.token("olga", &json!({"exp": now() - 60}))?,
            "the token has expired",
        ),
        (
            guarded.signer.token("olga", &json!({"nbf": now() + 60}))?,
            "the token is not valid yet",
        ),
        (
            stranger.token("olga", &json!({}))?,
            "no key of the JWKS is the one that signed the token",
        ),
        (forged, "the signature of the token is wrong"),
        ("not-a-token-at-all".to_owned(), "the token is not a valid JWT"),
    ];
    for (token, text) in &cases {
        let status = guarded.write(token, &["sys.a"]).await.unwrap_err();
        is(
            &status,
            Code::Unauthenticated,
            ErrorReason::InvalidCredentials,
            text,
        )?;
        let header = format!("Bearer {token}");
        let body = json!([sample("sys.a").to_json()]).to_string().into_bytes();
        let headers = [("authorization", header.as_str())];
        let response = guarded.tsdb.http().post_bytes("/api/put", &headers, body).await?;
        ensure!(response.status == 401, "{response:?}");
        ensure!(response.error_message()?.contains(text), "{response:?}");
    }
    let status = guarded
        .tsdb
        .data()
        .write(write_request(&[sample("sys.a")]))
        .await
        .unwrap_err();
    is(
        &status,
        Code::Unauthenticated,
        ErrorReason::InvalidCredentials,
        "no credentials",
    )?;
    // Probes have no token: the harness waited for health.
    let log = guarded.log();
    ensure!(log.contains("the token has expired"), "{log}");
    for (token, _) in &cases {
        for part in token.split('.') {
            ensure!(!log.contains(part), "the log has a part of a token");
        }
    }
    ensure!(
        !log.contains(&guarded.signer.jwk()["x"].as_str().unwrap().to_owned()),
        "the log has a key"
    );
    Ok(())
}

#[tokio::test]
async fn callers_have_the_rights_of_their_rules() -> anyhow::Result<()> {
    let mut guarded = Guarded::start().await?;
    let (collector, grafana, olga) = (
        guarded.token("collector"),
        guarded.token("grafana"),
        guarded.token("olga"),
    );

    // Of one write, points of other metrics are rejected one by one, and get no UID.
    let response = guarded.write(&collector, &["sys.a", "app.a", "sys.b"]).await?;
    ensure!((response.written, response.failed) == (2, 1), "{response:?}");
    let error = response.failures.unwrap().errors.remove(0);
    let item = error.error.unwrap();
    ensure!(
        error.first == 1 && item.code == i32::from(Code::PermissionDenied),
        "{item:?}"
    );
    ensure!(item.reason() == ErrorReason::AccessDenied, "{item:?}");
    ensure!(
        item.message == "`sub:collector` may not write metric `app.a`",
        "{item:?}"
    );
    let columns = ColumnsBuilder::default().columns(&[sample("sys.c"), sample("app.c")]);
    let request = with_token(&collector, columns_request(columns));
    let response = guarded.tsdb.data().write_columns(request).await?.into_inner();
    ensure!((response.written, response.failed) == (1, 1), "{response:?}");

    ensure!(guarded.query(&grafana, "sys.a").await? > 0);
    let status = guarded.query(&grafana, "app.a").await.unwrap_err();
    let text = "`sub:grafana` may not read metric `app.a`";
    is(&status, Code::PermissionDenied, ErrorReason::AccessDenied, text)?;
    let status = guarded.query(&collector, "sys.a").await.unwrap_err();
    let text = "`sub:collector` may not read by `oxtsdb.data.v1.DataService/Query`";
    is(&status, Code::PermissionDenied, ErrorReason::AccessDenied, text)?;
    let status = guarded.write(&grafana, &["sys.a"]).await.unwrap_err();
    is(
        &status,
        Code::PermissionDenied,
        ErrorReason::AccessDenied,
        "`sub:grafana` may not write",
    )?;
    let unknown = guarded.token("mallory");
    let status = guarded.write(&unknown, &["sys.a"]).await.unwrap_err();
    is(
        &status,
        Code::PermissionDenied,
        ErrorReason::AccessDenied,
        "`sub:mallory` may not write",
    )?;

    // A refused metric was not assigned a UID: to operators, it is unknown.
    let status = guarded.query(&olga, "app.a").await.unwrap_err();
    is(&status, Code::NotFound, ErrorReason::NameNotFound, "app.a")?;
    let list = |token: &str| {
        let (mut admin, request) = (
            guarded.tsdb.data_admin(),
            with_token(token, ListQueriesRequest::default()),
        );
        async move { admin.list_queries(request).await }
    };
    ensure!(list(&olga).await.is_ok());
    let of_group = guarded.signer.token("nobody", &json!({"groups": ["sre"]}))?;
    ensure!(list(&of_group).await.is_ok());
    let status = list(&grafana).await.unwrap_err();
    is(
        &status,
        Code::PermissionDenied,
        ErrorReason::AccessDenied,
        "may not read by `oxtsdb.data.v1.DataAdminService/ListQueries`",
    )?;
    let layout = |token: &str| {
        let (mut uids, request) = (
            guarded.tsdb.uids(),
            with_token(token, GetUidLayoutRequest::default()),
        );
        async move { uids.get_uid_layout(request).await }
    };
    ensure!(layout(&olga).await.is_ok());
    let status = layout(&collector).await.unwrap_err();
    is(
        &status,
        Code::PermissionDenied,
        ErrorReason::AccessDenied,
        "UidService/GetUidLayout",
    )?;

    let log = guarded.log();
    for text in ["sub:mallory", "sub:grafana", "dashboards", "collectors"] {
        ensure!(log.contains(text), "{text} is not in the log: {log}");
    }
    Ok(())
}

#[tokio::test]
async fn rights_on_some_metrics_grant_nothing_that_belongs_to_none() -> anyhow::Result<()> {
    let guarded = Guarded::start().await?;
    let (collector, grafana, olga) = (
        guarded.token("collector"),
        guarded.token("grafana"),
        guarded.token("olga"),
    );
    let written = guarded.write(&olga, &["sys.a", "app.a"]).await?;
    ensure!(written.written == 2, "{written:?}");
    let header = format!("Bearer {olga}");
    let annotation = json!({"startTime": T / 1000, "description": "secret"}).to_string();
    let headers = [("Authorization", header.as_str())];
    let http = guarded.tsdb.http();
    let response = http
        .post_bytes("/api/annotation", &headers, annotation.into_bytes())
        .await?;
    ensure!(response.status == 200, "{response:?}");
    let delete = DeleteUidRequest {
        kind: UidKind::Metric.into(),
        name: "app.a".to_owned(),
        ..DeleteUidRequest::default()
    };
    guarded.tsdb.uids().delete_uid(with_token(&olga, delete)).await?;

    // A metric without a name, and one that never had one.
    for metric in [2, 9] {
        let tsuid = [0, 0, metric, 0, 0, 1, 0, 0, 1];
        let text = format!("may not read the metric with UID 00000{metric}");
        until("the name is forgotten", || async {
            let series = SeriesKey {
                key: Some(series_key::Key::Tsuid(tsuid.to_vec().into())),
            };
            let request = QueryLastRequest {
                targets: vec![Target {
                    target: Some(target::Target::Series(series)),
                }],
                ..QueryLastRequest::default()
            };
            let request = with_token(&grafana, request);
            let refused = async {
                let mut points = guarded.tsdb.data().query_last(request).await?.into_inner();
                if let Some(message) = points.message().await? {
                    if let Some(error) = message.errors.first().and_then(|error| error.error.as_ref()) {
                        return Err(Status::permission_denied(error.message.clone()));
                    }
                    return Ok(format!("{message:?}"));
                }
                Ok::<_, Status>("nothing".to_owned())
            };
            let status = refused.await;
            let status = status.err().context("the last point was returned")?;
            ensure!(status.code() == Code::PermissionDenied, "{status:?}");
            ensure!(status.message().contains(&text), "{status:?}");
            Ok(())
        })
        .await?;
        let mut request = write_request(&[sample("sys.a")]);
        request.series[0].series = Some(time_series::Series::Tsuid(tsuid.to_vec().into()));
        let response = guarded.tsdb.data().write(with_token(&collector, request)).await?;
        let response = response.into_inner();
        let error = response.failures.context("nothing failed")?.errors.remove(0);
        let error = error.error.context("no error")?;
        ensure!(error.code == i32::from(Code::PermissionDenied), "{error:?}");
        let text = format!("may not write the metric with UID 00000{metric}");
        ensure!(error.message.contains(&text), "{error:?}");
    }

    let request = |include_global_annotations| QueryRequest {
        range: Some(always()),
        queries: vec![sub_query("sys.a", AggregateFunction::None)],
        include_global_annotations,
        ..QueryRequest::default()
    };
    let query = async |token: &str, annotations: bool| {
        let request = with_token(token, request(annotations));
        let mut frames = guarded.tsdb.data().query(request).await?.into_inner();
        let mut text = String::new();
        while let Some(frame) = frames.message().await? {
            text.push_str(&format!("{frame:?}"));
        }
        Ok::<_, Status>(text)
    };
    ensure!(query(&olga, true).await?.contains("secret"));
    ensure!(!query(&grafana, false).await?.contains("secret"));
    let status = query(&grafana, true).await.unwrap_err();
    is(
        &status,
        Code::PermissionDenied,
        ErrorReason::AccessDenied,
        "not global annotations",
    )
}

#[tokio::test]
async fn http_and_telnet_have_the_same_rights() -> anyhow::Result<()> {
    let guarded = Guarded::start().await?;
    let http = guarded.tsdb.http();
    let post = async |token: &str, path: &str, body: &Value| {
        let header = format!("Bearer {token}");
        let body = body.to_string().into_bytes();
        http.post_bytes(path, &[("Authorization", &header)], body).await
    };
    let (collector, grafana) = (guarded.token("collector"), guarded.token("grafana"));
    let points = json!([sample("sys.h").to_json(), sample("app.h").to_json()]);
    let response = post(&collector, "/api/put?details", &points).await?;
    ensure!(response.status == 403, "{response:?}");
    ensure!(
        response
            .body
            .contains("`sub:collector` may not write metric `app.h`"),
        "{response:?}"
    );
    ensure!(response.json()?["success"] == 1, "{response:?}");
    let query = |metric: &str| json!({"start": 1, "queries": [{"metric": metric, "aggregator": "sum"}]});
    for path in ["/api/query", "/API/V1/Query/"] {
        let response = post(&grafana, path, &query("sys.h")).await?;
        ensure!(response.status == 200, "{response:?}");
        let response = post(&grafana, path, &query("app.h")).await?;
        ensure!(response.status == 403, "{response:?}");
        ensure!(
            response.error_message()? == "`sub:grafana` may not read metric `app.h`",
            "{response:?}"
        );
        let response = post(&collector, path, &query("sys.h")).await?;
        ensure!(
            response.error_message()? == "`sub:collector` may not read by `/api/query`",
            "{response:?}"
        );
    }
    let response = post(&grafana, "/api/uid/assign?metric=app.x", &json!({})).await?;
    ensure!(response.status == 403, "{response:?}");

    let mut telnet = Telnet::connect(guarded.tsdb.http_address()).await?;
    telnet
        .send(b"put sys.t 1700000000 1 host=a\nput app.t 1700000000 1 host=a\nstats\nexit\n")
        .await?;
    let replies = telnet.rest().await?;
    let expected = "put: illegal argument: `telnet` may not write metric `app.t`\n\
                    stats: `telnet` may not read by `telnet/stats`\n";
    ensure!(replies == expected, "{replies}");
    ensure!(guarded.query(&grafana, "sys.t").await? > 0);

    // Without `telnet` in the policy, it is off.
    replace(
        &guarded.file("policy.toml"),
        &POLICY.replace("telnet = \"loopback\"", ""),
    )?;
    until("telnet is off", || async {
        let mut telnet = Telnet::connect(guarded.tsdb.http_address()).await?;
        telnet.send(b"version\nexit\n").await?;
        let replies = telnet.rest().await?;
        ensure!(replies.contains("telnet is off where rights are on"), "{replies}");
        Ok(())
    })
    .await?;
    let refused = guarded.tsdb.admin().get("/metrics").await?.body;
    for reason in ["metric", "not_granted"] {
        let sample = format!("oxtsdb_access_refused_total{{reason=\"{reason}\"}} ");
        let value = refused.lines().find_map(|line| line.strip_prefix(&sample));
        ensure!(value.is_some_and(|value| value != "0"), "{reason}: {value:?}");
    }
    Ok(())
}

#[tokio::test]
async fn files_are_read_again_and_wrong_ones_are_not_used() -> anyhow::Result<()> {
    let mut guarded = Guarded::start().await?;
    ensure!(!guarded.may_write("app.r").await?);
    let wrong = POLICY.replace(
        "on = [\"telnet/put\"]",
        "on = [\"oxtsdb.data.v1.DataService/Wriite\"]",
    );
    replace(&guarded.file("policy.toml"), &wrong)?;
    let expected = "kept the old policy: the new one is wrong";
    until("the wrong policy is rejected", || {
        let log = guarded.tsdb.process().log();
        async move {
            ensure!(log.contains(expected), "{log}");
            ensure!(
                log.contains("unknown gRPC method `oxtsdb.data.v1.DataService/Wriite`"),
                "{log}"
            );
            Ok(())
        }
    })
    .await?;
    ensure!(guarded.may_write("sys.r").await? && !guarded.may_write("app.r").await?);
    replace(
        &guarded.file("policy.toml"),
        &POLICY.replace("[\"sys.\"]", "[\"app.\"]"),
    )?;
    until("the new policy is used", || async {
        ensure!(guarded.may_write("app.r").await? && !guarded.may_write("sys.r").await?);
        Ok(())
    })
    .await?;
    // A new key; tokens of the old one end with it.
    let old = guarded.token("collector");
    let second = Signer::new("second")?;
    replace(&guarded.file("jwks.json"), &jwks(&[&second]))?;
    until("the old key is gone", || async {
        match guarded.write(&old, &["app.r"]).await {
            Err(status) => is(
                &status,
                Code::Unauthenticated,
                ErrorReason::InvalidCredentials,
                "no key",
            ),
            Ok(response) => anyhow::bail!("{response:?}"),
        }
    })
    .await?;
    let new = second.token("collector", &json!({}))?;
    ensure!(guarded.write(&new, &["app.r"]).await?.written == 1);
    Ok(())
}

/// Serves a JWKS over HTTP until the runtime ends.
async fn serve(jwks: Arc<Mutex<String>>) -> anyhow::Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}/jwks", listener.local_addr()?);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                match stream.read_u8().await {
                    Ok(byte) => head.push(byte),
                    Err(_) => break,
                }
            }
            let body = jwks.lock().unwrap().clone();
            let status = if body.is_empty() {
                "503 Unavailable"
            } else {
                "200 OK"
            };
            let length = body.len();
            let response =
                format!("HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}");
            // A client that is gone asks again.
            let _ = stream.write_all(response.as_bytes()).await;
        }
    });
    Ok(url)
}

#[tokio::test]
async fn keys_of_an_url_are_requested_again() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    std::fs::write(folder.path().join("policy.toml"), POLICY)?;
    let keys = Arc::new(Mutex::new(String::new()));
    let url = serve(Arc::clone(&keys)).await?;
    let options = Options::default()
        .flag(
            "--access-policy",
            &folder.path().join("policy.toml").display().to_string(),
        )
        .flag("--jwks", &url)
        .flag("--jwks-refresh-seconds", "1")
        .flag("--token-audience", "other,oxtsdb");
    // The issuer is away: the server starts, and rejects tokens.
    let tsdb = Tsdb::start_with(options).await?;
    let signer = Signer::new("a")?;
    let guarded = Guarded { tsdb, signer, folder };
    let status = guarded
        .write(&guarded.token("olga"), &["sys.u"])
        .await
        .unwrap_err();
    let text = "the server has no keys of tokens";
    is(
        &status,
        Code::Unauthenticated,
        ErrorReason::InvalidCredentials,
        text,
    )?;
    *keys.lock().unwrap() = jwks(&[&guarded.signer]);
    until("the keys are known", || async {
        ensure!(guarded.write(&guarded.token("olga"), &["sys.u"]).await?.written == 1);
        Ok(())
    })
    .await?;
    let second = Signer::new("b")?;
    *keys.lock().unwrap() = jwks(&[&second]);
    until("the new key is known", || async {
        let token = second.token("olga", &json!({}))?;
        ensure!(guarded.write(&token, &["sys.u"]).await?.written == 1);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn starts_with_wrong_files_fail_with_the_reason() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let signer = Signer::new("a")?;
    std::fs::write(folder.path().join("jwks.json"), jwks(&[&signer]))?;
    let policy = "[[rule]]\nname = \"r\"\nwho = [\"sub:a\"]\nmay = [\"read\"]\non = [\"oxtsdb.data.v1.DataService/Fetch\"]";
    for (text, expected) in [
        (
            policy,
            "r: on: unknown gRPC method `oxtsdb.data.v1.DataService/Fetch`",
        ),
        (
            "[[rule]]\nwho = [\"sub:a\"]\nmay = [\"read\"]\nallow = true",
            "unknown field `allow`",
        ),
    ] {
        std::fs::write(folder.path().join("policy.toml"), text)?;
        let error = Tsdb::failed_start(options(&folder)).await?;
        ensure!(
            error.contains("--access-policy") && error.contains(expected),
            "{error}"
        );
    }
    std::fs::write(folder.path().join("policy.toml"), POLICY)?;
    std::fs::write(
        folder.path().join("jwks.json"),
        r#"{"keys":[{"kty":"oct","k":"c2VjcmV0"}]}"#,
    )?;
    let error = Tsdb::failed_start(options(&folder)).await?;
    ensure!(
        error.contains("--jwks: ") && error.contains("has no key for signatures"),
        "{error}"
    );
    Ok(())
}

#[tokio::test]
async fn clients_send_the_token_of_a_file() -> anyhow::Result<()> {
    let guarded = Guarded::start().await?;
    let file = guarded.file("token");
    std::fs::write(&file, guarded.token("olga"))?;
    let program = program_path("tsdb")?;
    let list = async |token: Option<PathBuf>| {
        let mut command = tokio::process::Command::new(&program);
        let target = format!("http://{}", guarded.tsdb.data_address());
        command.args(["queries", "--target", &target]);
        if let Some(token) = token {
            command.arg("--token-file").arg(token);
        }
        command.output().await.map_err(anyhow::Error::from)
    };
    let listed = list(Some(file.clone())).await?;
    ensure!(listed.status.success(), "{listed:?}");
    let refused = list(None).await?;
    let error = String::from_utf8(refused.stderr)?;
    ensure!(
        !refused.status.success() && error.contains("no credentials"),
        "{error}"
    );
    // The client reads it again when it changes.
    let client = oxtsdb_client::ClientBuilder::new([format!("http://{}", guarded.tsdb.data_address())])
        .token_file(&file)
        .data()?;
    client.list_queries().await?;
    replace(&file, &guarded.token("grafana"))?;
    until("the new token is sent", || async {
        let Err(error) = client.list_queries().await else {
            anyhow::bail!("still the old one");
        };
        ensure!(error.code() == Code::PermissionDenied, "{error}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn read_only_servers_reject_writes_over_grpc() -> anyhow::Result<()> {
    let tsdb = Tsdb::start_with(Options::default().flag("--mode", "ro")).await?;
    let status = tsdb
        .data()
        .write(write_request(&[sample("m")]))
        .await
        .unwrap_err();
    let text = "the server is read-only (--mode ro), `oxtsdb.data.v1.DataService/Write` is not served";
    is(
        &status,
        Code::FailedPrecondition,
        ErrorReason::FeatureDisabled,
        text,
    )?;
    let response = tsdb.http().get("/api/config").await?.json()?;
    ensure!(response["tsd.mode"] == "ro", "{response}");
    ensure!(
        tsdb.data_admin()
            .list_queries(ListQueriesRequest::default())
            .await
            .is_ok()
    );

    let tsdb = Tsdb::start_with(Options::default().flag("--mode", "wo")).await?;
    let response = tsdb
        .data()
        .write(write_request(&[sample("m")]))
        .await?
        .into_inner();
    ensure!(response.written == 1, "{response:?}");
    let status = tsdb.data().query(QueryRequest::default()).await.unwrap_err();
    is(
        &status,
        Code::FailedPrecondition,
        ErrorReason::FeatureDisabled,
        "write-only (--mode wo)",
    )
}
