use std::sync::Arc;

use futures::StreamExt as _;
use oxtsdb_ingest::PointErrorReason;
use oxtsdb_proto::data::v1::PointRuns;
use prost::Message as _;

use super::*;

async fn next(stream: &mut ReplyStream) -> Message {
    stream.next().await.unwrap().unwrap().message.unwrap()
}

async fn next_ack(stream: &mut ReplyStream) -> Ack {
    match next(stream).await {
        Message::Ack(ack) => ack,
        other => panic!("expected an ack, got {other:?}"),
    }
}

fn no_failures() -> Failures {
    Failures::new(0)
}

/// Every second point of a frame, each with an error of its own.
fn every_second(points: usize, max_errors: usize) -> Failures {
    let mut failures = Failures::new(max_errors);
    for point in (0..points).step_by(2) {
        failures.add_run(point, 1, &Arc::new(PointErrorReason::NoTags));
    }
    failures
}

#[tokio::test]
async fn merges_acks_until_they_are_read() {
    let (replies, mut stream) = replies(Duration::from_secs(30));
    replies.opened(Opened::default());
    for sequence in 1..=1000 {
        replies.ack(sequence, 10, no_failures());
    }
    replies.draining(Draining::default());
    assert_eq!(next(&mut stream).await, Message::Opened(Opened::default()));
    let merged = Ack {
        sequence: 1000,
        written: 10_000,
        ..Ack::default()
    };
    assert_eq!(next_ack(&mut stream).await, merged);
    assert_eq!(next(&mut stream).await, Message::Draining(Draining::default()));
    replies.ack(1001, 1, no_failures());
    replies.fail(Status::unavailable("end"));
    assert_eq!(next_ack(&mut stream).await.sequence, 1001);
    assert_eq!(stream.next().await.unwrap().unwrap_err().message(), "end");
    assert!(stream.next().await.is_none());
}

#[tokio::test]
async fn merges_frames_with_failures_into_one_ack_that_names_each() {
    let (replies, mut stream) = replies(Duration::from_secs(30));
    replies.ack(1, 10, no_failures());
    replies.ack(2, 9, every_second(2, 5));
    replies.ack(3, 10, no_failures());
    replies.ack(4, 8, every_second(4, 1));
    let ack = next_ack(&mut stream).await;
    assert_eq!((ack.sequence, ack.written, ack.failed), (4, 37, 3));
    let frames: Vec<(u64, Option<PointRuns>, usize)> = ack
        .failures
        .into_iter()
        .map(|frame| {
            let failures = frame.failures.unwrap();
            (frame.sequence, failures.permanent, failures.errors.len())
        })
        .collect();
    let runs = |first: &[u64]| {
        Some(PointRuns {
            first: first.to_vec(),
            count: vec![1; first.len()],
        })
    };
    assert_eq!(frames, [(2, runs(&[0]), 1), (4, runs(&[0, 2]), 1)]);
}

#[tokio::test]
async fn splits_failures_over_acks_below_a_mebibyte() {
    let (replies, mut stream) = replies(Duration::from_secs(30));
    replies.ack(1, 5, no_failures());
    replies.ack(2, 500_000, every_second(1_000_000, 10_000));
    replies.ack(3, 500_000, every_second(1_000_000, 0));
    assert!(!replies.has_capacity(), "no further frames are read");
    replies.fail(Status::unavailable("end"));
    let (mut sequence, mut written, mut failed, mut acks) = (0, 0, 0, 0);
    let mut points = [Vec::new(), Vec::new()];
    while let Some(Ok(message)) = stream.next().await {
        let size = message.encoded_len();
        assert!(size < 1 << 20, "an ack of {size} bytes");
        let Some(Message::Ack(ack)) = message.message else {
            panic!("not an ack")
        };
        assert!(ack.sequence >= sequence);
        for frame in &ack.failures {
            assert!(
                frame.sequence > sequence,
                "failures precede their acknowledgement"
            );
            let runs = frame.failures.as_ref().unwrap().permanent.as_ref();
            let runs = runs.map_or(&[][..], |runs| &runs.first);
            points[usize::try_from(frame.sequence).unwrap() - 2].extend_from_slice(runs);
        }
        sequence = ack.sequence;
        written += ack.written;
        failed += ack.failed;
        acks += 1;
    }
    assert_eq!((sequence, written, failed), (3, 1_000_005, 1_000_000));
    let every_second: Vec<u64> = (0..1_000_000).step_by(2).collect();
    assert_eq!(points, [every_second.clone(), every_second]);
    assert!((4..10).contains(&acks), "{acks} acks");
}

#[tokio::test]
async fn reading_makes_capacity() {
    let (replies, mut stream) = replies(Duration::from_secs(30));
    assert!(replies.has_capacity());
    replies.ack(1, 0, every_second(1_000_000, 0));
    let mut capacity = std::pin::pin!(replies.capacity());
    assert!(futures::poll!(&mut capacity).is_pending());
    while !replies.has_capacity() {
        next_ack(&mut stream).await;
    }
    assert!(futures::poll!(&mut capacity).is_ready());
}

#[tokio::test(start_paused = true)]
async fn a_client_that_reads_nothing_for_the_timeout_has_stalled() {
    let (replies, mut stream) = replies(Duration::from_secs(30));
    let idle = tokio::time::timeout(Duration::from_secs(3600), replies.lost()).await;
    assert!(idle.is_err(), "a client without unread replies does not stall");
    replies.ack(1, 1, no_failures());
    let began = Instant::now();
    tokio::time::sleep(Duration::from_secs(29)).await;
    next(&mut stream).await;
    replies.ack(2, 1, no_failures());
    assert_eq!(replies.lost().await, Lost::Stalled);
    let elapsed = began.elapsed();
    assert!(elapsed >= Duration::from_secs(59), "it had read in between");
    assert!(elapsed <= Duration::from_secs(89), "{elapsed:?}");
    replies.abort(Status::aborted("stalled"));
    assert_eq!(stream.next().await.unwrap().unwrap_err().message(), "stalled");
}

#[tokio::test]
async fn notices_that_the_client_is_gone() {
    let (replies, stream) = replies(Duration::from_secs(30));
    drop(stream);
    assert_eq!(replies.lost().await, Lost::Gone);
}
