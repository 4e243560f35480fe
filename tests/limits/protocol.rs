//! Protocol errors and their neighbours: malformed and incomplete requests, foreign origins, reflection.

use std::collections::BTreeSet;
use std::process::Stdio;

use anyhow::{Context as _, ensure};
use bytes::Bytes;
use oxtsdb_tests::health::{DATA_SERVICE, UID_SERVICE};
use oxtsdb_tests::raw_grpc::{self, RawChannel};
use oxtsdb_tests::raw_http::RawHttp;
use oxtsdb_tests::read_back::{call_error, series_of};
use oxtsdb_tests::sample::Sample;
use oxtsdb_tests::{Options, program_path};
use tokio_stream::StreamExt as _;
use tonic::Code;
use tonic::transport::Channel;
use tonic_reflection::pb::v1::ServerReflectionRequest;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;

use crate::support::Target;

const T: i64 = 1_500_000_000_000;

#[tokio::test(flavor = "multi_thread")]
async fn a_request_without_queries_is_a_bad_request() -> anyhow::Result<()> {
    let mut target = Target::start().await?;
    let mut responses = vec![target.get("/api/query?start=1h-ago").await?];
    for body in [
        r#"{"start":1}"#,
        r#"{"start":1,"queries":[]}"#,
        r#"{"start":1,"queries":null}"#,
    ] {
        responses.push(target.post("/api/query", body.as_bytes()).await?);
    }
    for response in responses {
        ensure!(response.status == 400, "{response:?}");
        let message = response.json()?["error"]["message"].to_string().to_lowercase();
        ensure!(
            message.contains("quer") && !message.contains("null pointer"),
            "{message}"
        );
    }
    target.check_unharmed().await
}

#[tokio::test(flavor = "multi_thread")]
async fn malformed_protobuf_is_an_invalid_argument() -> anyhow::Result<()> {
    let mut target = Target::start().await?;
    let data = target.tsdb.data_address();
    let uid = target.tsdb.uid_address();
    // A field that announces 100 bytes and has one.
    let malformed = Bytes::from_static(&[0x0a, 100, 1]);
    for (address, path) in [
        (data, "/oxtsdb.data.v1.DataService/Write"),
        (data, "/oxtsdb.data.v1.DataService/WriteColumns"),
        (data, "/oxtsdb.data.v1.DataService/Query"),
        (data, "/oxtsdb.data.v1.DataService/Explain"),
        (data, "/oxtsdb.data.v1.DataService/QueryLast"),
        (data, "/oxtsdb.data.v1.DataService/ScanRows"),
        (uid, "/oxtsdb.uid.v1.UidService/LookupUids"),
    ] {
        let channel = RawChannel::connect(address).await?;
        let call = raw_grpc::call(channel, RawChannel::origin(address)?, path, malformed.clone());
        let status = call_error(call.await).context(path)?;
        ensure!(status.code() == Code::InvalidArgument, "{path}: {status:?}");
    }
    target.check_unharmed().await
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_of_a_foreign_origin_are_forbidden() -> anyhow::Result<()> {
    let mut target = Target::start().await?;
    let address = target.tsdb.http_address();
    let sample = Sample::int("origin", &[("host", "a")], T, 1);
    let body = sample.to_json().to_string();
    for origin in ["http://attacker.example", "https://attacker.example:4242", "null"] {
        let header = format!("Origin: {origin}\r\n");
        for path in ["/api/put", "/api/query", "/api/suggest"] {
            let mut connection = RawHttp::connect(address).await?;
            connection.send_post(path, &header, body.as_bytes()).await?;
            let response = connection.answer().await?;
            ensure!(response.status == 403, "{path} from {origin}: {response:?}");
        }
    }
    let suggested = target.get("/api/suggest?type=metrics&q=origin").await?;
    ensure!(suggested.text() == "[]", "a point was stored: {suggested:?}");
    // The server's own pages, and clients other than browsers.
    for headers in ["", "Origin: http://test\r\n"] {
        let mut connection = RawHttp::connect(address).await?;
        connection.send_post("/api/put", headers, body.as_bytes()).await?;
        let response = connection.answer().await?;
        ensure!(response.status == 204, "`{headers}`: {response:?}");
    }
    target.check_unharmed().await
}

async fn listed(channel: Channel) -> anyhow::Result<BTreeSet<String>> {
    let request = ServerReflectionRequest {
        host: String::new(),
        message_request: Some(MessageRequest::ListServices(String::new())),
    };
    let mut responses = ServerReflectionClient::new(channel)
        .server_reflection_info(tokio_stream::once(request))
        .await?
        .into_inner();
    let response = responses.next().await.context("no response")??;
    match response.message_response {
        Some(MessageResponse::ListServicesResponse(list)) => {
            Ok(list.service.into_iter().map(|service| service.name).collect())
        }
        other => anyhow::bail!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn reflection_lists_the_services_of_its_port() -> anyhow::Result<()> {
    let target = Target::start().await?;
    let data = listed(target.tsdb.data_channel()).await?;
    ensure!(
        data.contains(DATA_SERVICE) && !data.contains(UID_SERVICE),
        "{data:?}"
    );
    let uid = listed(target.tsdb.uid_channel()).await?;
    ensure!(
        uid.contains(UID_SERVICE) && !uid.contains(DATA_SERVICE),
        "{uid:?}"
    );
    Ok(())
}

/// The import sends batches of up to 4,096 points, unless the server's window is smaller.
#[tokio::test(flavor = "multi_thread")]
async fn import_respects_a_small_window() -> anyhow::Result<()> {
    let options = Options::default()
        .flag("--stream-window-points", "1000")
        .flag("--stream-window-frames", "2");
    let target = Target::start_with(options).await?;
    let file = target.tsdb.folder().join("points.txt");
    let lines: String = (0..10_000)
        .map(|point| {
            let sample = Sample::int("import", &[("host", "a")], T + point * 1000, point);
            format!("{}\n", sample.to_import_line())
        })
        .collect();
    std::fs::write(&file, lines)?;
    let server = target.tsdb.data_address();
    let (program, import) = (program_path("tsdb")?, file.clone());
    let output = tokio::task::spawn_blocking(move || {
        std::process::Command::new(program)
            .arg("import")
            .arg(format!("--target=http://{server}"))
            .arg(import)
            .stdin(Stdio::null())
            .output()
    })
    .await??;
    ensure!(
        output.status.success(),
        "{}: {}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    let series = series_of(&mut target.tsdb.data(), "import").await?;
    let points: Vec<usize> = series.values().map(Vec::len).collect();
    ensure!(points == [10_000], "{points:?}");
    Ok(())
}
