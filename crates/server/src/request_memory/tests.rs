use std::convert::Infallible;

use bytes::{BufMut as _, BytesMut};
use futures::{StreamExt as _, stream};
use http_body_util::{BodyExt as _, StreamBody};
use oxtsdb_proto::error::reason_of;
use oxtsdb_resources::memory::MIN_LIMIT_BYTES;
use tokio::sync::mpsc;
use tonic_types::StatusExt as _;
use tower::{Layer as _, ServiceExt as _};

use super::*;
use crate::middleware::MiddlewareLayer;

const WRITE: &str = "/oxtsdb.data.v1.DataService/Write";
const WRITE_STREAM: &str = "/oxtsdb.data.v1.DataService/WriteStream";

fn message(length: usize) -> Bytes {
    let mut frame = BytesMut::new();
    frame.put_u8(0);
    frame.put_u32(u32::try_from(length).unwrap());
    frame.put_bytes(7, length);
    frame.freeze()
}

/// A body whose bytes are sent by the test.
fn body() -> (mpsc::UnboundedSender<Bytes>, Body) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let frames = stream::unfold(receiver, |mut receiver| async move {
        let data: Bytes = receiver.recv().await?;
        Some((Ok::<_, Infallible>(Frame::data(data)), receiver))
    });
    (sender, Body::new(StreamBody::new(frames.boxed())))
}

fn charged(body: Body, pool: &MemoryPool, is_single: bool) -> Charged {
    let charge = Arc::new(Mutex::new(pool.empty_reservation()));
    Charged::new(body, pool.clone(), charge, is_single)
}

async fn next(body: &mut Charged) -> Result<usize, Status> {
    let frame = body.frame().await.expect("there is more")?;
    Ok(frame.into_data().expect("data").len())
}

#[test]
fn calls_with_one_request_are_known() {
    assert!(SINGLE_REQUESTS.contains(WRITE));
    assert!(SINGLE_REQUESTS.contains("/grpc.health.v1.Health/Check"));
    assert!(!SINGLE_REQUESTS.contains(WRITE_STREAM));
}

#[tokio::test]
async fn bytes_are_charged_as_they_arrive_and_not_before() {
    let pool = MemoryPool::new("ingest", 1 << 20);
    let (sender, body) = body();
    let mut body = charged(body, &pool, true);
    let whole = message(10_000);
    sender.send(whole.slice(..5)).unwrap();
    next(&mut body).await.unwrap();
    assert_eq!(
        pool.usage().used_bytes,
        0,
        "10,000 bytes are announced, none has come"
    );
    sender.send(whole.slice(5..4_005)).unwrap();
    next(&mut body).await.unwrap();
    assert_eq!(pool.usage().used_bytes, 4_000 - FREE_BYTES);
    drop(body);
    assert_eq!(pool.usage().used_bytes, 0);
}

#[tokio::test]
async fn a_message_of_a_stream_is_released_when_the_next_one_is_pulled() {
    let pool = MemoryPool::new("ingest", 1 << 20);
    let (sender, body) = body();
    let mut body = charged(body, &pool, false);
    let (first, second) = (message(1_000), message(2_000));
    // The end of the first message and half of the second one lie in one frame.
    let mut bytes = BytesMut::from(&first[500..]);
    bytes.extend_from_slice(&second[..1_005]);
    for part in [first.slice(..500), bytes.freeze(), second.slice(1_005..)] {
        sender.send(part).unwrap();
    }
    next(&mut body).await.unwrap();
    assert_eq!(pool.usage().used_bytes, 495 * STREAM_FACTOR);
    next(&mut body).await.unwrap();
    assert_eq!(pool.usage().used_bytes, 2_000 * STREAM_FACTOR);
    next(&mut body).await.unwrap();
    assert_eq!(
        pool.usage().used_bytes,
        2_000 * STREAM_FACTOR,
        "the first one is released"
    );
    assert!(futures::poll!(body.frame()).is_pending());
    assert_eq!(pool.usage().used_bytes, 0);
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
        account: Some(account),
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
    assert_eq!(name("/oxtsdb.data.v1.DataService/Query"), "query");
}

#[tokio::test(start_paused = true)]
async fn without_memory_a_request_waits_and_is_then_rejected() {
    let pool = MemoryPool::new("ingest", 100_000);
    let held = pool.try_reserve(90_000).unwrap();
    for is_released in [true, false] {
        let held = is_released.then(|| pool.try_reserve(5_000).unwrap());
        let (sender, body) = body();
        let mut body = charged(body, &pool, false);
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
        let mut body = charged(body, &pool, is_single);
        sender.send(message(length).slice(..100)).unwrap();
        let status = next(&mut body).await.unwrap_err();
        assert_eq!(status.code(), Code::ResourceExhausted);
        assert_eq!(reason_of(&status), Some(ErrorReason::MessageTooLarge));
        assert!(status.get_details_retry_info().is_none(), "{status:?}");
        for part in ["ingest", "of 1 MiB", "--memory-limit-mib"] {
            assert!(status.message().contains(part), "{status:?}");
        }
    }
    // All of a message in one piece.
    let (sender, body) = body();
    let mut body = charged(body, &pool, false);
    sender.send(message(300_000)).unwrap();
    let status = next(&mut body).await.unwrap_err();
    assert_eq!(reason_of(&status), Some(ErrorReason::MessageTooLarge));
    assert!(began.elapsed().is_zero(), "nothing waits: {:?}", began.elapsed());
}

#[tokio::test]
async fn small_requests_pass_without_memory() {
    let pool = MemoryPool::new("ingest", 1);
    let (sender, body) = body();
    let mut body = charged(body, &pool, true);
    sender.send(message(100)).unwrap();
    next(&mut body).await.unwrap();
}

#[test]
fn compressed_messages_are_charged_for_what_they_unfold_to() {
    let mut compressed = message(100).to_vec();
    compressed[0] = 1;
    assert_eq!(Framing::new(false).advance(&compressed), 100 * COMPRESSED_FACTOR);
    assert_eq!(Framing::new(false).advance(&message(100)), 100 * STREAM_FACTOR);
}

/// Whatever way the bytes are cut, the same is charged and messages end at the same places.
#[test]
fn frames_may_be_cut_anywhere() {
    let mut bytes = Vec::new();
    for length in [0, 1, 300, 5, 0, 70] {
        bytes.extend_from_slice(&message(length));
    }
    for piece in 1..bytes.len() {
        let mut framing = Framing::new(false);
        let charge: u64 = bytes.chunks(piece).map(|chunk| framing.advance(chunk)).sum();
        assert_eq!(charge, 376 * STREAM_FACTOR, "in pieces of {piece}");
        assert_eq!(framing.unfinished_charge, 0);
    }
}
