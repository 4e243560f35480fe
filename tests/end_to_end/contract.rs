//! Guarantees for meshes, balancers and tools: health, reflection, deadlines, drain.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::net::SocketAddr;

use anyhow::{Context as _, ensure};
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Bytes, Frame};
use oxtsdb_proto::common::v1::{ErrorReason, UidKind};
use oxtsdb_proto::data::v1::data_service_client::DataServiceClient;
use oxtsdb_proto::data::v1::write_stream_response::Message;
use oxtsdb_proto::error::reason_of;
use oxtsdb_proto::uid::v1::uid_service_client::UidServiceClient;
use oxtsdb_proto::uid::v1::{GetOrCreateUidsRequest, UidName};
use oxtsdb_tests::health::{self, DATA_SERVICE, UID_SERVICE};
use oxtsdb_tests::raw_grpc::RawChannel;
use oxtsdb_tests::read_back::{call_error, series_of};
use oxtsdb_tests::sample::{Number, Sample};
use oxtsdb_tests::stream::WriteStream;
use oxtsdb_tests::write_requests::write_request;
use oxtsdb_tests::{Options, PATIENCE, Tsdb, until};
use tokio_stream::StreamExt as _;
use tonic::body::Body;
use tonic::transport::Channel;
use tonic::{Code, Request, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_reflection::pb::{v1, v1alpha};
use tonic_types::StatusExt as _;
use tower::Service as _;

const T: i64 = 1_500_000_000_000;

#[tokio::test(flavor = "multi_thread")]
async fn health_is_known_by_service() -> anyhow::Result<()> {
    let tsdb = Tsdb::start().await?;
    for (channel, service) in [
        (tsdb.data_channel(), DATA_SERVICE),
        (tsdb.uid_channel(), UID_SERVICE),
    ] {
        for name in [service, ""] {
            let status = health::check(channel.clone(), name).await?;
            assert_eq!(status, ServingStatus::Serving, "`{name}`");
        }
        let unknown = call_error(health::check(channel, "no.such.Service").await)?;
        assert_eq!(unknown.code(), Code::NotFound);
    }
    Ok(())
}

/// Makes a function that returns the services listed by one version of reflection. The versions
/// have the same messages, as types of their own.
macro_rules! listed_by {
    ($name:ident, $version:ident) => {
        async fn $name(channel: Channel) -> anyhow::Result<BTreeSet<String>> {
            use $version::server_reflection_client::ServerReflectionClient;
            use $version::server_reflection_request::MessageRequest;
            use $version::server_reflection_response::MessageResponse;
            let request = $version::ServerReflectionRequest {
                host: String::new(),
                message_request: Some(MessageRequest::ListServices(String::new())),
            };
            let mut answers = ServerReflectionClient::new(channel)
                .server_reflection_info(tokio_stream::once(request))
                .await?
                .into_inner();
            let answer = answers.next().await.context("no answer")??;
            match answer.message_response {
                Some(MessageResponse::ListServicesResponse(list)) => Ok(list
                    .service
                    .into_iter()
                    .map(|service| service.name)
                    .collect()),
                other => anyhow::bail!("{other:?}"),
            }
        }
    };
}

listed_by!(listed_v1, v1);
// The version that older tools know.
listed_by!(listed_v1alpha, v1alpha);

#[tokio::test(flavor = "multi_thread")]
async fn reflection_lists_the_services_of_its_port() -> anyhow::Result<()> {
    let tsdb = Tsdb::start().await?;
    for (channel, service, other) in [
        (tsdb.data_channel(), DATA_SERVICE, UID_SERVICE),
        (tsdb.uid_channel(), UID_SERVICE, DATA_SERVICE),
    ] {
        for listed in [
            listed_v1(channel.clone()).await?,
            listed_v1alpha(channel.clone()).await?,
        ] {
            for name in [service, "grpc.health.v1.Health"] {
                assert!(listed.contains(name), "{name} is not in {listed:?}");
            }
            assert!(!listed.contains(other), "{other} has another port: {listed:?}");
        }
    }
    Ok(())
}

/// Bytes in place of a message.
fn raw_call(address: SocketAddr, method: &str, message: &[u8]) -> anyhow::Result<http::Request<Body>> {
    let mut frame = vec![0];
    frame.extend_from_slice(&u32::try_from(message.len())?.to_be_bytes());
    frame.extend_from_slice(message);
    let request = http::Request::post(format!("http://{address}/{method}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers");
    Ok(request.body(Body::new(Full::new(Bytes::from(frame))))?)
}

#[tokio::test(flavor = "multi_thread")]
async fn malformed_protobuf_is_an_invalid_argument() -> anyhow::Result<()> {
    let tsdb = Tsdb::start().await?;
    let (data, uid) = (tsdb.data_address(), tsdb.uid_address());
    let of_data = |name| format!("{DATA_SERVICE}/{name}");
    for (address, method) in [
        (data, of_data("Write")),
        (data, of_data("Query")),
        (data, of_data("WriteStream")),
        (uid, format!("{UID_SERVICE}/LookupUids")),
        (uid, format!("{UID_SERVICE}/ExportUids")),
    ] {
        let mut channel = RawChannel::connect(address).await?;
        let response = channel.call(raw_call(address, &method, &[0x0a, 0xff])?).await?;
        let trailers = response.headers().clone();
        let trailers = match response.into_body().collect().await?.trailers() {
            Some(trailers) => trailers.clone(),
            None => trailers,
        };
        let status = Status::from_header_map(&trailers).context("a status")?;
        assert_eq!(status.code(), Code::InvalidArgument, "{method}: {status:?}");
        assert_eq!(
            reason_of(&status),
            Some(ErrorReason::MalformedMessage),
            "{method}: {status:?}"
        );
    }
    Ok(())
}

/// 8 million in 16 MiB unfold to gigabytes.
#[tokio::test(flavor = "multi_thread")]
async fn rejects_a_small_message_with_millions_of_elements() -> anyhow::Result<()> {
    let mut tsdb = Tsdb::start().await?;
    let queries = [0x12, 0x00].repeat(8_000_000);
    let mut explain = vec![0x0a];
    // The length as a varint.
    let mut length = queries.len();
    while length >= 0x80 {
        explain.push(u8::try_from(length & 0x7f)? | 0x80);
        length >>= 7;
    }
    explain.push(u8::try_from(length)?);
    explain.extend_from_slice(&queries);
    let before = tsdb.process().peak_memory()?;
    for (method, message) in [
        ("Query", &queries),
        ("Explain", &explain),
        ("QueryExpressions", &queries),
    ] {
        let address = tsdb.data_address();
        let mut channel = RawChannel::connect(address).await?;
        let method = format!("{DATA_SERVICE}/{method}");
        let response = channel.call(raw_call(address, &method, message)?).await?;
        let status = Status::from_header_map(response.headers()).context("a status")?;
        assert_eq!(
            reason_of(&status),
            Some(ErrorReason::BatchTooLarge),
            "{method}: {status:?}"
        );
    }
    let grown = tsdb.process().peak_memory()?.saturating_sub(before);
    assert!(grown < 256 << 20, "{grown} bytes");
    Ok(())
}

/// The bytes of a message count as they arrive, long before it can be decoded.
#[tokio::test(flavor = "multi_thread")]
async fn messages_that_have_not_arrived_as_a_whole_take_memory_from_the_account() -> anyhow::Result<()> {
    let options = Options::default().flag("--memory-limit-mib", "256");
    let tsdb = Tsdb::start_with(options).await?;
    let address = tsdb.data_address();
    let message = vec![0x0a; 8 << 20];
    let request = raw_call(address, &format!("{DATA_SERVICE}/Write"), &message)?;
    let (parts, body) = request.into_parts();
    let bytes = body.collect().await?.to_bytes();
    // All but the last byte, and never an end.
    let unfinished = || {
        let sent = futures::stream::iter([Ok::<_, Infallible>(Frame::data(bytes.slice(..bytes.len() - 1)))]);
        Body::new(StreamBody::new(sent.chain(futures::stream::pending())))
    };
    let mut channel = RawChannel::connect(address).await?;
    let mut calls = futures::stream::FuturesUnordered::new();
    for _ in 0..20 {
        calls.push(channel.call(http::Request::from_parts(parts.clone(), unfinished())));
    }
    let first = tokio::time::timeout(PATIENCE, calls.next()).await?;
    let response = first.context("an answer")??;
    let status = Status::from_header_map(response.headers()).context("a status")?;
    assert_eq!(status.code(), Code::Unavailable, "{status:?}");
    assert_eq!(reason_of(&status), Some(ErrorReason::Overloaded), "{status:?}");
    assert!(status.get_details_retry_info().is_some(), "{status:?}");
    assert!(status.message().contains("--memory-limit-mib"), "{status:?}");
    // Without memory too.
    let serving = health::check(tsdb.data_channel(), DATA_SERVICE).await?;
    assert_eq!(serving, ServingStatus::Serving);

    drop(calls);
    let samples = vec![Sample::int("after", &[("host", "a")], T, 1); 1000];
    // The server may still read that the calls were cancelled.
    let written = until("memory is free again", || async {
        let response = tsdb.data().write(write_request(&samples)).await?;
        Ok(response.into_inner().written)
    })
    .await?;
    assert_eq!(written, 1000);
    Ok(())
}

/// The ingest pool has 16 MiB here, a frame of a stream is charged five times its size.
#[tokio::test(flavor = "multi_thread")]
async fn rejects_permanently_a_frame_that_exceeds_the_pool() -> anyhow::Result<()> {
    let options = Options::default().flag("--memory-limit-mib", "256");
    let tsdb = Tsdb::start_with(options).await?;
    let address = tsdb.data_address();
    let method = format!("{DATA_SERVICE}/WriteStream");
    let mut channel = RawChannel::connect(address).await?;
    let response = channel
        .call(raw_call(address, &method, &vec![0x0a; 8 << 20])?)
        .await?;
    // A stream has its status at its end.
    let (parts, body) = response.into_parts();
    let trailers = body.collect().await?.trailers().cloned();
    let status = Status::from_header_map(&parts.headers)
        .or_else(|| trailers.as_ref().and_then(Status::from_header_map))
        .context("a status")?;
    assert_eq!(status.code(), Code::ResourceExhausted, "{status:?}");
    assert_eq!(
        reason_of(&status),
        Some(ErrorReason::MessageTooLarge),
        "{status:?}"
    );
    assert!(status.get_details_retry_info().is_none(), "{status:?}");
    assert!(status.message().contains("--memory-limit-mib"), "{status:?}");
    let written = tsdb
        .data()
        .write(write_request([&Sample::int("after", &[("host", "a")], T, 1)]))
        .await?;
    assert_eq!(written.into_inner().written, 1);
    Ok(())
}

/// A request with a deadline that is over when it arrives.
fn expired<T>(message: T) -> anyhow::Result<Request<T>> {
    let mut request = Request::new(message);
    request.metadata_mut().insert("grpc-timeout", "1n".parse()?);
    Ok(request)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deadline_that_passes_is_deadline_exceeded() -> anyhow::Result<()> {
    let tsdb = Tsdb::start().await?;
    let write = write_request([&Sample::int("late", &[("host", "a")], T, 1)]);
    let address = tsdb.data_address();
    let mut client =
        DataServiceClient::with_origin(RawChannel::connect(address).await?, RawChannel::origin(address)?);
    let status = call_error(client.write(expired(write.clone())?).await)?;
    assert_eq!(status.code(), Code::DeadlineExceeded, "{status:?}");
    assert_eq!(
        reason_of(&status),
        Some(ErrorReason::DeadlineExceeded),
        "{status:?}"
    );

    let assign = GetOrCreateUidsRequest {
        names: vec![UidName {
            kind: UidKind::Metric.into(),
            name: "late.name".to_owned(),
            tag_key: String::new(),
        }],
        explicit: false,
        ..Default::default()
    };
    let address = tsdb.uid_address();
    let mut client =
        UidServiceClient::with_origin(RawChannel::connect(address).await?, RawChannel::origin(address)?);
    let status = call_error(client.get_or_create_uids(expired(assign)?).await)?;
    assert_eq!(status.code(), Code::DeadlineExceeded, "{status:?}");

    // A cancelled call harms no later one.
    let answer = tsdb.data().write(write).await?.into_inner();
    assert_eq!(answer.written, 1);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn sigterm_drains() -> anyhow::Result<()> {
    let mut tsdb = Tsdb::start().await?;
    let mut watch = HealthClient::new(tsdb.data_channel())
        .watch(HealthCheckRequest {
            service: DATA_SERVICE.to_owned(),
        })
        .await?
        .into_inner();
    let first = watch.next().await.context("no health")??;
    assert_eq!(first.status(), ServingStatus::Serving);

    let mut stream = WriteStream::open(&mut tsdb.data()).await?;
    stream
        .send(&[Sample::int("drained", &[("host", "a")], T, 1)])
        .await?;
    assert_eq!(stream.all_written().await?, 1);
    // Sent, and not waited for: it is finished all the same.
    stream
        .send(&[Sample::int("drained", &[("host", "a")], T + 1000, 2)])
        .await?;
    tsdb.process().terminate()?;

    let drained = async {
        let not_serving = watch.next().await.context("the watch ended early")??;
        assert_eq!(not_serving.status(), ServingStatus::NotServing);
        let (mut is_told, mut acknowledged) = (false, 0);
        while !is_told || acknowledged < 2 {
            match stream.next().await?.context("the stream ended early")? {
                Message::Draining(draining) => {
                    is_told = true;
                    ensure!(draining.grace.is_some(), "{draining:?}");
                }
                Message::Ack(ack) => acknowledged = ack.sequence,
                Message::Opened(opened) => anyhow::bail!("{opened:?}"),
            }
        }
        stream.close().await?;
        anyhow::Ok(())
    };
    tokio::time::timeout(PATIENCE, drained)
        .await
        .context("it does not drain")??;
    // `watch` is still open, as a balancer keeps it: that must not hold the end up.
    let status = tsdb.process().wait().await?;
    assert_eq!(status.code(), Some(0), "{}", tsdb.process().log());
    drop(watch);

    tsdb.restart().await?;
    let series = series_of(&mut tsdb.data(), "drained").await?;
    let points: Vec<(i64, Number)> = series.into_values().flatten().collect();
    assert_eq!(points, [(T, Number::Int(1)), (T + 1000, Number::Int(2))]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_belongs_to_one_process() -> anyhow::Result<()> {
    let mut tsdb = Tsdb::start().await?;
    let second = tokio::process::Command::new(oxtsdb_tests::program_path("tsdb")?)
        .arg("serve")
        .arg(format!("--data-dir={}", tsdb.data_dir().display()))
        .args([
            "--http-listen=127.0.0.1:0",
            "--data-listen=127.0.0.1:0",
            "--uid-listen=127.0.0.1:0",
            "--admin-listen=none",
        ])
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(PATIENCE, second)
        .await
        .context("the second server runs")??;
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let pid = tsdb.process().id().to_string();
    let error = String::from_utf8(output.stderr)?;
    assert!(error.contains(&pid), "`{error}` does not name process {pid}");
    Ok(())
}
