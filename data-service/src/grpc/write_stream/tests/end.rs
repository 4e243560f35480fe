//! Ends of streams: store errors, drain, slow clients, memory.

use oxtsdb_row_store::StoreError;
use uid_service::UidSettings;

use super::*;

#[tokio::test]
async fn store_error_ends_the_stream_after_the_acks() {
    let (stack, gate) = Gate::stack(DataSettings::default()).await;
    let (mut client, _) = Client::open(&stack).await;
    client.frame(1, declaring(at(0, 1)));
    client.frame(2, at(0, 2));
    client.frame(3, at(0, 3));
    gate.until_waiting(3).await;
    gate.release(1);
    assert_eq!(client.ack().await.sequence, 1);
    let full = StoreError::Full {
        detail: "journal".to_owned(),
    };
    gate.fail([full.clone(), full]);
    gate.release(2);
    let (acknowledged, status) = client.status().await;
    assert_eq!(acknowledged, 0, "no ack after the failed frame");
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert_eq!(reason_of(&status), Some(ErrorReason::StoreFull));
}

/// Acks are cumulative: one for a frame behind the failed frame would cover the failed frame too.
#[tokio::test]
async fn acknowledges_no_frame_after_a_failed_one() {
    let (stack, gate) = Gate::stack(DataSettings::default()).await;
    let (mut client, _) = Client::open(&stack).await;
    client.frame(1, declaring(at(0, 1)));
    client.frame(2, at(0, 2));
    client.frame(3, at(0, 3));
    gate.until_waiting(3).await;
    gate.release(1);
    assert_eq!(client.ack().await.sequence, 1);
    gate.fail([StoreError::Full {
        detail: "journal".to_owned(),
    }]);
    gate.release(2);
    let (acknowledged, status) = client.status().await;
    assert_eq!(acknowledged, 0, "no ack after that of frame 1");
    assert_eq!(reason_of(&status), Some(ErrorReason::StoreFull));
    let stored = stack.cells("tsdb").await.join("\n");
    assert!(stored.contains("0010") && !stored.contains("0020"), "{stored}");
}

#[tokio::test]
async fn drain_finishes_received_frames() {
    let (stack, gate) = Gate::stack(DataSettings::default()).await;
    let (mut client, _) = Client::open(&stack).await;
    client.frame(1, declaring(at(0, 1)));
    client.frame(2, at(0, 2));
    gate.until_waiting(2).await;
    stack.trigger.shut_down().await;
    let reply = client.reply().await.unwrap();
    let grace = prost_types::Duration {
        seconds: 10,
        nanos: 0,
    };
    assert_eq!(
        reply,
        outgoing::Message::Draining(Draining { grace: Some(grace) })
    );
    gate.release(2);
    assert_eq!(client.acks_through(2).await.written, 2);
    drop(client.requests);
    assert!(client.replies.message().await.unwrap().is_none());
}

/// A proxy can open the stream at another server only while it has no response.
#[tokio::test]
async fn a_draining_server_rejects_new_streams_without_a_response() {
    let stack = TestStack::start().await;
    let mut client = stack.client();
    stack.trigger.shut_down().await;
    let requests = tokio_stream::iter([WriteStreamRequest {
        message: Some(incoming::Message::Open(open_message())),
    }]);
    let status = client.write_stream(requests).await.unwrap_err();
    assert_eq!(
        (status.code(), reason_of(&status)),
        (Code::Unavailable, Some(ErrorReason::Draining))
    );
}

#[tokio::test]
async fn a_stream_that_is_being_opened_gets_the_notice_of_the_drain() {
    let stack = TestStack::start().await;
    let mut client = Client::connect(&stack).await;
    stack.trigger.shut_down().await;
    client.send(incoming::Message::Open(open_message()));
    assert!(matches!(client.reply().await, Ok(outgoing::Message::Opened(_))));
    assert!(matches!(client.reply().await, Ok(outgoing::Message::Draining(_))));
    drop(client.requests);
    assert!(client.replies.message().await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn drain_ends_open_streams_after_the_grace() {
    let stack = TestStack::start().await;
    let (mut client, _) = Client::open(&stack).await;
    client.frame(1, declaring(at(0, 1)));
    client.ack().await;
    let began = tokio::time::Instant::now();
    stack.trigger.shut_down().await;
    let (_, status) = client.status().await;
    assert_eq!(
        (status.code(), reason_of(&status)),
        (Code::Unavailable, Some(ErrorReason::Draining))
    );
    assert_eq!(began.elapsed().as_secs(), Duration::from_secs(10).as_secs());
}

#[tokio::test(start_paused = true)]
async fn client_that_reads_no_acks_holds_no_permit_and_times_out() {
    let mut settings = DataSettings::default();
    settings.memory.max_writes_mib = 1;
    let stack = TestStack::with(settings, UidSettings::default()).await;
    let (mut client, _) = Client::open(&stack).await;
    client.frame(1, declaring(at(0, 1)));
    let frames = 500;
    for sequence in 2..=frames {
        client.frame(sequence, points(0, sequence.cast_signed() * 1000, 1000));
    }
    // All of the permits, so that none is held by the stream.
    let points: Vec<_> = (1..60_000).map(known_point).collect();
    let began = tokio::time::Instant::now();
    while stack.cells("tsdb").await.len() < 500_000 - 999 {
        tokio::task::yield_now().await;
    }
    let written = stack.service.writer.write(&points, None).await.unwrap().written;
    assert_eq!(written, points.len() as u64);
    assert!(
        began.elapsed() < Duration::from_secs(30),
        "before the client is cut off"
    );

    tokio::time::sleep(Duration::from_secs(31)).await;
    let (acknowledged, status) = client.status().await;
    assert_eq!(acknowledged, 0, "what waited is dropped");
    assert_eq!(
        (status.code(), reason_of(&status)),
        (Code::Aborted, Some(ErrorReason::ClientTooSlow)),
        "{status:?}"
    );
    assert!(
        status.message().contains("for 30 s (--client-timeout-seconds)"),
        "{status:?}"
    );
}

#[tokio::test]
async fn frames_wait_for_write_permits() {
    let mut settings = DataSettings::default();
    settings.memory.max_writes_mib = 1;
    let (stack, gate) = Gate::stack(settings).await;
    let (mut client, _) = Client::open(&stack).await;
    client.frame(1, declaration());
    client.ack().await;
    // About 0.7 MB each, so one at a time.
    for sequence in 2..=4 {
        client.frame(sequence, points(0, 1 + sequence.cast_signed() * 100_000, 90_000));
    }
    gate.until_waiting(1).await;
    for _ in 0..100 {
        tokio::task::yield_now().await;
        assert_eq!(gate.waiting(), 1, "the second frame gets no permit");
    }
    gate.release(3);
    assert_eq!(client.acks_through(4).await.written, 270_000);
}

#[tokio::test(start_paused = true)]
async fn charges_series_to_the_ingest_pool() {
    let memory = oxtsdb_resources::MemoryAccount::new(256 << 20, 0);
    let stack = TestStack::with_memory(DataSettings::default(), &memory).await;
    let many = |first: u32| Columns {
        new_symbols: (0..5000)
            .map(|number| format!("a-rather-long-name.{first}.{number}"))
            .collect(),
        new_series: (3..5000)
            .map(|tagv| SeriesDeclaration {
                metric_symbol: 0,
                tag_symbols: vec![1, tagv],
                ..Default::default()
            })
            .collect(),
        ..Columns::default()
    };
    let (mut client, _) = Client::open(&stack).await;
    client.frame(1, many(1));
    assert_eq!(client.ack().await.sequence, 1);
    let used = memory.ingest().usage().used_bytes;
    assert!((100_000..2_000_000).contains(&used), "{used}");
    drop(client);
    while memory.ingest().usage().used_bytes > 0 {
        tokio::task::yield_now().await;
    }
    let _taken = memory
        .ingest()
        .try_reserve(memory.ingest().limit_bytes())
        .unwrap();
    let (mut client, _) = Client::open(&stack).await;
    client.frame(1, declaring(at(0, 1)));
    assert_eq!(
        client.ack().await.sequence,
        1,
        "few series need no memory of the pool"
    );
    let (mut client, _) = Client::open(&stack).await;
    client.frame(1, many(1));
    let (_, status) = client.status().await;
    assert_eq!(
        (status.code(), reason_of(&status)),
        (Code::Unavailable, Some(ErrorReason::Overloaded)),
        "{status:?}"
    );
    assert!(status.message().contains("--memory-limit-mib"), "{status:?}");
}
