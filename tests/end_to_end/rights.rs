//! Rights: callers by token, a policy of methods and metrics, its reload, and read-only servers.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod credentials;

use std::path::PathBuf;

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
use oxtsdb_tests::tokens::{Signer, jwks, replace};
use oxtsdb_tests::write_requests::{columns_request, write_request};
use oxtsdb_tests::{Options, Telnet, Tsdb, until};
use serde_json::{Value, json};
use tempfile::TempDir;
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

    // A rejected metric was not assigned a UID: to operators, it is unknown.
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
