//! gRPC messages that are announced with megabytes; the client sends 200 bytes of them.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use bytes::{BufMut as _, Bytes, BytesMut};
use futures::future::join_all;
use http::{Request, Response};
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::{Frame, Incoming};
use oxtsdb_tests::bystander::Bystander;
use oxtsdb_tests::raw_grpc::RawChannel;
use tokio::runtime::{self, Runtime};
use tokio::task::JoinSet;
use tonic::body::Body;
use tonic::{Code, Status};
use tower::{Service as _, ServiceExt as _};

use crate::support::{BOUND, MOST_BYTES, Target, is_full};

/// Calls of each connection: nearly as many as the server allows.
const CALLS: usize = 250;

/// Connections of the attack: together they announce 32 GiB, 256 GiB at full size.
fn connections() -> usize {
    if is_full() { 64 } else { 8 }
}

/// How long the times of others are measured before the attack.
const BEFORE: Duration = Duration::from_secs(2);

/// The announced length.
const ANNOUNCED: u32 = 16 << 20;

/// The bytes that are sent.
const SENT: usize = 200;

/// The beginning of a message.
fn beginning(announced: u32) -> Bytes {
    let mut bytes = BytesMut::new();
    bytes.put_u8(0);
    bytes.put_u32(announced);
    bytes.put_bytes(0, SENT);
    bytes.freeze()
}

/// A call with a message that never ends.
fn call(path: &str, announced: u32) -> Request<Body> {
    let first = futures::stream::once(async move { Ok::<_, Status>(Frame::data(beginning(announced))) });
    let body = StreamBody::new(futures::StreamExt::chain(first, futures::stream::pending()));
    Request::post(format!("http://test{path}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(Body::new(body))
        .expect("a valid request")
}

/// The status of a response that has one in its head.
fn status_of(response: &Response<Incoming>) -> Option<Code> {
    Status::from_header_map(response.headers()).map(|status| status.code())
}

/// Calls that are in progress, each with how the server ended it.
type Calls = JoinSet<Option<Code>>;

/// The attacker's thread: the times of others do not include how long the attacker computes.
struct Attacker(Option<Runtime>);

impl Attacker {
    fn start() -> anyhow::Result<Self> {
        let runtime = runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()?;
        Ok(Self(Some(runtime)))
    }
}

impl Drop for Attacker {
    fn drop(&mut self) {
        // Dropping a runtime waits, which tasks must not.
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// Begins the calls of all connections.
async fn attack(attacker: &Attacker, address: SocketAddr, path: &'static str) -> anyhow::Result<Calls> {
    let runtime = attacker.0.as_ref().context("the attacker has ended")?;
    let begun = runtime.spawn(async move {
        let mut calls = Calls::new();
        for _ in 0..connections() {
            let channel = RawChannel::connect(address).await?;
            for _ in 0..CALLS {
                calls.spawn(never_ending(channel.clone(), path));
            }
        }
        anyhow::Ok(calls)
    });
    begun.await?
}

/// A call that ends when the server ends it.
async fn never_ending(mut channel: RawChannel, path: &'static str) -> Option<Code> {
    let response = channel
        .ready()
        .await
        .ok()?
        .call(call(path, ANNOUNCED))
        .await
        .ok()?;
    let status = status_of(&response);
    if status.is_none() {
        // The response of a stream has begun; its end comes with the end of the connection.
        let _ended = response.into_body().collect().await;
    }
    status
}

async fn announced_messages_of(path: &'static str, is_uid: bool) -> anyhow::Result<()> {
    let mut target = Target::start().await?;
    let address = if is_uid {
        target.tsdb.uid_address()
    } else {
        target.tsdb.data_address()
    };
    let bystander = Bystander::start(&target.tsdb).await?;
    tokio::time::sleep(BEFORE).await;
    let before = bystander.take_times();
    let attacker = Attacker::start()?;
    let mut calls = attack(&attacker, address, path).await.context(path)?;
    // All bytes are sent, and some calls are rejected already.
    tokio::time::sleep(BOUND).await;
    target.memory.check_below(MOST_BYTES).context(path)?;
    let during = bystander.take_times();
    for (when, times) in [("before", before), ("during", during)] {
        let of = |share: usize| times.get(times.len() * share / 100).copied().unwrap_or_default();
        println!(
            "  others {when} the attack: {} requests, p50 {:?}, p99 {:?}",
            times.len(),
            of(50),
            of(99)
        );
    }
    let mut ended = 0;
    while let Some(call) = calls.try_join_next() {
        if let Some(code) = call? {
            ensure!(
                matches!(code, Code::Unavailable | Code::ResourceExhausted),
                "{path}: {code:?}"
            );
            ended += 1;
        }
    }
    println!(
        "  {path}: {ended} calls are rejected, {} in progress",
        calls.len()
    );
    target.check_with(bystander).await?;
    drop(attacker);
    target.check_unharmed().await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: tests/nightly.sh"]
async fn a_health_check_takes_no_announced_memory() -> anyhow::Result<()> {
    announced_messages_of("/grpc.health.v1.Health/Check", false).await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: tests/nightly.sh"]
async fn a_write_takes_no_announced_memory() -> anyhow::Result<()> {
    announced_messages_of("/oxtsdb.data.v1.DataService/Write", false).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_stream_takes_no_announced_memory() -> anyhow::Result<()> {
    announced_messages_of("/oxtsdb.data.v1.DataService/WriteStream", false).await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: tests/nightly.sh"]
async fn a_uid_assignment_takes_no_announced_memory() -> anyhow::Result<()> {
    announced_messages_of("/oxtsdb.uid.v1.UidService/GetOrCreateUids", true).await
}

/// 16 MiB to a service of small messages.
#[tokio::test(flavor = "multi_thread")]
async fn a_length_above_the_limit_is_rejected_when_it_is_announced() -> anyhow::Result<()> {
    let mut target = Target::start().await?;
    let address = target.tsdb.data_address();
    let paths = [
        "/grpc.health.v1.Health/Check",
        "/grpc.health.v1.Health/Watch",
        "/oxtsdb.data.v1.TreeService/GetTree",
    ];
    let rejected = join_all(paths.map(async |path| {
        let mut channel = RawChannel::connect(address).await?;
        let response = channel.ready().await?.call(call(path, ANNOUNCED)).await?;
        let code = match status_of(&response) {
            Some(code) => Some(code),
            None => {
                let end = response.into_body().collect().await?;
                let trailers = end.trailers().and_then(Status::from_header_map);
                trailers.map(|status| status.code())
            }
        };
        ensure!(code == Some(Code::ResourceExhausted), "{path}: {code:?}");
        Ok(())
    }));
    let rejected = tokio::time::timeout(BOUND, rejected).await?;
    rejected.into_iter().collect::<anyhow::Result<()>>()?;
    target.check_unharmed().await
}
