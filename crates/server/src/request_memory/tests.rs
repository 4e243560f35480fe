use std::convert::Infallible;

use bytes::{BufMut as _, Bytes, BytesMut};
use futures::{StreamExt as _, stream};
use http::Response;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;
use oxtsdb_proto::error::reason_of;
use oxtsdb_resources::memory::MIN_LIMIT_BYTES;
use tokio::sync::mpsc;
use tonic_types::StatusExt as _;
use tower::{Layer as _, ServiceExt as _};

use super::messages::{FREE_BYTES, STREAM_FACTOR};
use super::*;
use crate::middleware::MiddlewareLayer;

/// The most bytes of a message.
const MOST: u64 = 16 << 20;

const WRITE: &str = "/oxtsdb.data.v1.DataService/Write";
const WRITE_STREAM: &str = "/oxtsdb.data.v1.DataService/WriteStream";

fn message(length: usize) -> Bytes {
    let mut frame = BytesMut::new();
    frame.put_u8(0);
    frame.put_u32(u32::try_from(length).unwrap());
    frame.put_bytes(7, length);
    frame.freeze()
}

/// A body of bytes that the test sends.
fn body() -> (mpsc::UnboundedSender<Bytes>, Body) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let frames = stream::unfold(receiver, |mut receiver| async move {
        let data: Bytes = receiver.recv().await?;
        Some((Ok::<_, Infallible>(Frame::data(data)), receiver))
    });
    (sender, Body::new(StreamBody::new(frames.boxed())))
}

fn messages(body: Body, pool: &MemoryPool, is_single: bool) -> Messages {
    let charge = Arc::new(Mutex::new(pool.empty_reservation()));
    Messages::new(body, pool.clone(), charge, is_single, MOST)
}

async fn next(body: &mut Messages) -> Result<usize, Status> {
    let frame = body.frame().await.expect("there is more")?;
    Ok(frame.into_data().expect("data").len())
}

fn error_of(frame: Option<Result<Frame<Bytes>, Status>>) -> Status {
    frame.expect("an error").expect_err("an error")
}

#[test]
fn calls_with_one_request_are_known() {
    assert!(SINGLE_REQUESTS.contains(WRITE));
    assert!(SINGLE_REQUESTS.contains("/grpc.health.v1.Health/Check"));
    assert!(!SINGLE_REQUESTS.contains(WRITE_STREAM));
}

/// tonic reserves the announced length when it sees the header.
#[tokio::test]
async fn the_decoder_gets_a_message_once_it_is_complete() {
    for is_single in [true, false] {
        let pool = MemoryPool::new("ingest", 1 << 20);
        let (sender, body) = body();
        let mut body = messages(body, &pool, is_single);
        let whole = message(10_000);
        let charge = |bytes: u64| {
            if is_single {
                bytes - FREE_BYTES
            } else {
                bytes * STREAM_FACTOR
            }
        };
        sender.send(whole.slice(..5)).unwrap();
        assert!(futures::poll!(body.frame()).is_pending());
        assert_eq!(
            pool.usage().used_bytes,
            0,
            "10,000 bytes are announced, none has come"
        );
        sender.send(whole.slice(5..4_005)).unwrap();
        assert!(futures::poll!(body.frame()).is_pending());
        assert_eq!(pool.usage().used_bytes, charge(4_000));
        sender.send(whole.slice(4_005..)).unwrap();
        let mut received = BytesMut::new();
        while received.len() < whole.len() {
            let frame = body.frame().await.unwrap().unwrap();
            received.extend_from_slice(&frame.into_data().unwrap());
        }
        assert_eq!(received, whole);
        assert_eq!(pool.usage().used_bytes, charge(10_000));
        drop(body);
        assert_eq!(pool.usage().used_bytes, 0);
    }
}

#[tokio::test]
async fn a_message_of_a_stream_is_released_when_the_next_one_is_pulled() {
    let pool = MemoryPool::new("ingest", 1 << 20);
    let (sender, body) = body();
    let mut body = messages(body, &pool, false);
    let (first, second) = (message(1_000), message(2_000));
    // The end of the first message and half of the second one lie in one frame.
    let mut bytes = BytesMut::from(&first[500..]);
    bytes.extend_from_slice(&second[..1_005]);
    sender.send(first.slice(..500)).unwrap();
    sender.send(bytes.freeze()).unwrap();
    assert_eq!(next(&mut body).await.unwrap(), 500);
    assert_eq!(pool.usage().used_bytes, 2_000 * STREAM_FACTOR);
    assert_eq!(next(&mut body).await.unwrap(), 505);
    assert!(futures::poll!(body.frame()).is_pending());
    assert_eq!(
        pool.usage().used_bytes,
        1_000 * STREAM_FACTOR,
        "the first one is released"
    );
    sender.send(second.slice(1_005..)).unwrap();
    assert_eq!(next(&mut body).await.unwrap(), 1_005);
    assert_eq!(pool.usage().used_bytes, 2_000 * STREAM_FACTOR);
    assert_eq!(next(&mut body).await.unwrap(), 1_000);
    assert!(futures::poll!(body.frame()).is_pending());
    assert_eq!(pool.usage().used_bytes, 0);
}

#[tokio::test]
async fn a_length_above_the_limit_of_the_service_is_rejected_when_it_is_announced() {
    let pool = MemoryPool::unlimited("ingest");
    for is_single in [true, false] {
        let (sender, body) = body();
        let mut body = messages(body, &pool, is_single);
        let mut header = BytesMut::from(&[0][..]);
        header.put_u32(u32::try_from(MOST + 1).unwrap());
        sender.send(header.freeze()).unwrap();
        let status = error_of(body.frame().await);
        assert_eq!(reason_of(&status), Some(ErrorReason::MessageTooLarge));
        assert_eq!(
            status.message(),
            "message has 16777217 bytes, at most 16777216 are allowed"
        );
        assert!(body.frame().await.is_none());
    }
    let limits = MessageLimits::new([("oxtsdb.data.v1.DataService", 10 << 20)]);
    assert_eq!(limits.for_path(WRITE), 10 << 20);
    assert_eq!(limits.for_path("/grpc.health.v1.Health/Check"), 4096);
    assert_eq!(limits.for_path("no path"), 4096);
}

#[tokio::test]
async fn a_request_that_ends_within_a_message_is_malformed() {
    for (is_single, length) in [(true, 3), (true, 50), (false, 50)] {
        let pool = MemoryPool::unlimited("ingest");
        let (sender, body) = body();
        let mut body = messages(body, &pool, is_single);
        sender.send(message(100).slice(..length)).unwrap();
        drop(sender);
        let status = error_of(body.frame().await);
        assert_eq!(status.code(), Code::InvalidArgument);
        assert_eq!(reason_of(&status), Some(ErrorReason::MalformedMessage));
        assert!(body.frame().await.is_none());
    }
}

#[tokio::test(start_paused = true)]
async fn a_message_that_does_not_arrive_in_time_is_rejected() {
    let pool = MemoryPool::unlimited("ingest");
    let second = std::time::Duration::from_secs(1);
    // Nothing comes.
    let (_sender, nothing) = body();
    let status = error_of(messages(nothing, &pool, true).frame().await);
    assert_eq!(reason_of(&status), Some(ErrorReason::ClientTooSlow));
    // A byte every 29 s.
    let began = tokio::time::Instant::now();
    let (sender, dripping) = body();
    let mut dripping = messages(dripping, &pool, false);
    let drip = async {
        for byte in message(1000).chunks(1) {
            let _ = sender.send(Bytes::copy_from_slice(byte));
            tokio::time::sleep(29 * second).await;
        }
    };
    tokio::select! {
        () = drip => panic!("the message was received"),
        frame = dripping.frame() => {
            assert_eq!(reason_of(&error_of(frame)), Some(ErrorReason::ClientTooSlow));
        }
    }
    assert_eq!(began.elapsed(), 120 * second);
    assert_eq!(pool.usage().used_bytes, 0, "received bytes are released");
    // A stream may pause between messages.
    let (sender, pausing) = body();
    let mut pausing = messages(pausing, &pool, false);
    sender.send(message(10)).unwrap();
    next(&mut pausing).await.unwrap();
    assert!(
        tokio::time::timeout(1000 * second, pausing.frame())
            .await
            .is_err()
    );
    sender.send(message(10)).unwrap();
    next(&mut pausing).await.unwrap();
}

#[tokio::test]
async fn a_request_is_charged_until_the_response_is_made() {
    let account = MemoryAccount::new(MIN_LIMIT_BYTES, 0);
    let (ingest, query) = (account.ingest().clone(), account.query().clone());
    let left = ingest.limit_bytes();
    let usage = ingest.clone();
    let handler = tower::service_fn(move |request: Request<Body>| {
        let (usage, query) = (usage.clone(), query.clone());
        async move {
            let body = request.into_body().collect().await.unwrap().to_bytes();
            assert_eq!(body.len(), 10_005);
            assert_eq!(usage.usage().used_bytes, 10_000 - FREE_BYTES);
            // As the codec does when it decodes.
            decode_memory::take(500_000).unwrap();
            let expected = 10_000 - FREE_BYTES + 500_000 - FREE_DECODED_BYTES;
            assert_eq!(usage.usage().used_bytes, expected);
            let status = decode_memory::take(left).unwrap_err();
            assert_eq!(reason_of(&status), Some(ErrorReason::MessageTooLarge));
            assert_eq!(status.code(), Code::ResourceExhausted);
            assert_eq!(query.usage().used_bytes, 0, "queries have their own");
            Ok::<_, Infallible>(Response::new(Body::empty()))
        }
    });
    let (sender, body) = body();
    sender.send(message(10_000)).unwrap();
    drop(sender);
    let request = Request::builder().uri(WRITE).body(body).unwrap();
    let service = MiddlewareLayer(RequestMemory {
        account,
        limits: MessageLimits::new([("oxtsdb.data.v1.DataService", 1 << 20)]),
    })
    .layer(handler);
    service.oneshot(request).await.unwrap();
    assert_eq!(ingest.usage().used_bytes, 0);
}

#[test]
fn writes_and_queries_take_from_their_own_pools() {
    let account = MemoryAccount::unlimited();
    let name = |path| pool_of(&account, path).usage().name;
    assert_eq!(name(WRITE), "ingest");
    assert_eq!(name(WRITE_STREAM), "ingest");
    assert_eq!(name("/oxtsdb.uid.v1.UidService/GetOrCreateUids"), "ingest");
    assert_eq!(
        name("/opentelemetry.proto.collector.metrics.v1.MetricsService/Export"),
        "ingest"
    );
    assert_eq!(name("/oxtsdb.uid.v1.UidAdminService/ExportUids"), "query");
    assert_eq!(name("/oxtsdb.data.v1.DataService/Query"), "query");
}

#[tokio::test(start_paused = true)]
async fn without_memory_a_request_waits_and_is_then_rejected() {
    let pool = MemoryPool::new("ingest", 100_000);
    let held = pool.try_reserve(90_000).unwrap();
    for is_released in [true, false] {
        let held = is_released.then(|| pool.try_reserve(5_000).unwrap());
        let (sender, body) = body();
        let mut body = messages(body, &pool, false);
        let requested = if is_released { 2_000 } else { 3_000 };
        sender.send(message(requested)).unwrap();
        assert!(futures::poll!(body.frame()).is_pending());
        drop(held);
        match next(&mut body).await {
            Ok(_) => assert!(is_released),
            Err(status) => {
                assert!(!is_released);
                assert_eq!(status.code(), Code::Unavailable);
                assert_eq!(reason_of(&status), Some(ErrorReason::Overloaded));
                assert!(status.message().contains("--memory-limit-mib"), "{status:?}");
            }
        }
    }
    drop(held);
}

#[tokio::test(start_paused = true)]
async fn a_message_that_never_fits_is_rejected_for_good_as_soon_as_it_is_announced() {
    let pool = MemoryPool::new("ingest", 1 << 20);
    let began = tokio::time::Instant::now();
    for (length, is_single) in [(300_000, false), (2 << 20, true)] {
        let (sender, body) = body();
        let mut body = messages(body, &pool, is_single);
        sender.send(message(length).slice(..100)).unwrap();
        let status = next(&mut body).await.unwrap_err();
        assert_eq!(status.code(), Code::ResourceExhausted);
        assert_eq!(reason_of(&status), Some(ErrorReason::MessageTooLarge));
        assert!(status.get_details_retry_info().is_none(), "{status:?}");
        for part in ["ingest", "the 1 MiB", "--memory-limit-mib"] {
            assert!(status.message().contains(part), "{status:?}");
        }
    }
    // All of a message in one piece.
    let (sender, body) = body();
    let mut body = messages(body, &pool, false);
    sender.send(message(300_000)).unwrap();
    let status = next(&mut body).await.unwrap_err();
    assert_eq!(reason_of(&status), Some(ErrorReason::MessageTooLarge));
    assert!(began.elapsed().is_zero(), "nothing waits: {:?}", began.elapsed());
}

#[tokio::test]
async fn small_requests_pass_without_memory() {
    let pool = MemoryPool::new("ingest", 1);
    let (sender, body) = body();
    let mut body = messages(body, &pool, true);
    sender.send(message(100)).unwrap();
    next(&mut body).await.unwrap();
}
