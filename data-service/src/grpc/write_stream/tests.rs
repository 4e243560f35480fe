use std::time::Duration;

use oxtsdb_proto::data::v1::IntColumn;
use oxtsdb_proto::data::v1::columns::{Block, SeriesDeclaration, block};
use oxtsdb_proto::error::reason_of;
use oxtsdb_row_store::{RowStore as _, StoreError, WriteBatch};
use uid_service::UidSettings;

use oxtsdb_proto::data::v1::Columns;
use oxtsdb_proto::data::v1::write_stream_response::{self as outgoing};
use tokio::sync::mpsc;

use super::*;
use crate::settings::DataSettings;
use crate::test_stack::{Gate, TestStack};
use crate::write::WriteForm;

/// A test that waits so long has failed.
const PATIENCE: Duration = Duration::from_secs(30);

/// The client's side of a stream.
struct Client {
    requests: mpsc::UnboundedSender<WriteStreamRequest>,
    replies: Streaming<WriteStreamResponse>,
}

impl Client {
    /// A stream without its first message.
    async fn connect(stack: &TestStack) -> Self {
        let (requests, receiver) = mpsc::unbounded_channel();
        let requests_stream = tokio_stream::wrappers::UnboundedReceiverStream::new(receiver);
        let replies = stack
            .client()
            .write_stream(requests_stream)
            .await
            .unwrap()
            .into_inner();
        Self { requests, replies }
    }

    /// A stream that is opened.
    async fn open(stack: &TestStack) -> (Self, Opened) {
        let mut client = Self::connect(stack).await;
        client.send(incoming::Message::Open(Open {
            max_errors: 2,
            ..Open::default()
        }));
        let Ok(outgoing::Message::Opened(opened)) = client.reply().await else {
            panic!("not opened")
        };
        (client, opened)
    }

    fn send(&self, message: incoming::Message) {
        // The server may have ended the stream; the test sees its status.
        let _ = self.requests.send(WriteStreamRequest {
            message: Some(message),
        });
    }

    fn frame(&self, sequence: u64, columns: Columns) {
        self.send(incoming::Message::Frame(Frame {
            sequence,
            columns: Some(columns),
        }));
    }

    async fn reply(&mut self) -> Result<outgoing::Message, Status> {
        let reply = tokio::time::timeout(PATIENCE, self.replies.message())
            .await
            .expect("no reply in time");
        Ok(reply?.expect("a reply").message.unwrap())
    }

    async fn ack(&mut self) -> Ack {
        match self.reply().await.unwrap() {
            outgoing::Message::Ack(ack) => ack,
            other => panic!("expected an ack, got {other:?}"),
        }
    }

    /// Adds up acks until one speaks for `sequence`.
    async fn acks_through(&mut self, sequence: u64) -> Ack {
        let mut sum = Ack::default();
        while sum.sequence < sequence {
            let ack = self.ack().await;
            assert!(ack.sequence > sum.sequence, "acks go forward");
            sum.sequence = ack.sequence;
            sum.written += ack.written;
            sum.failed += ack.failed;
            sum.errors.extend(ack.errors);
        }
        sum
    }

    /// The status that ends the stream, and the last frame acknowledged before it.
    async fn status(&mut self) -> (u64, Status) {
        let mut acknowledged = 0;
        loop {
            match self.reply().await {
                Ok(outgoing::Message::Ack(ack)) => acknowledged = ack.sequence,
                Ok(_) => {}
                Err(status) => return (acknowledged, status),
            }
        }
    }
}

/// Declares one series, metric `m`.
fn declaration() -> Columns {
    Columns {
        new_symbols: ["m", "host", "a"].map(str::to_owned).to_vec(),
        new_series: vec![SeriesDeclaration {
            metric_symbol: 0,
            tag_symbols: vec![1, 2],
            ..Default::default()
        }],
        blocks: Vec::new(),
    }
}

/// Declares the series that `first` has points of.
fn declaring(first: Columns) -> Columns {
    Columns {
        blocks: first.blocks,
        ..declaration()
    }
}

/// One point of a series.
fn at(series: u32, seconds: i64) -> Columns {
    points(series, seconds, 1)
}

/// So many points of a series, at one second and those after it.
fn points(series: u32, seconds: i64, count: usize) -> Columns {
    let mut timestamp_deltas_ms = vec![1000; count];
    timestamp_deltas_ms[0] = 0;
    let values = Some(block::Values::Ints(IntColumn {
        values: vec![7; count],
    }));
    let base_timestamp_ms = seconds * 1000;
    Columns {
        blocks: vec![Block {
            series: vec![series],
            base_timestamp_ms,
            timestamp_deltas_ms,
            values,
        }],
        ..Columns::default()
    }
}

#[tokio::test]
async fn frames_are_acknowledged_when_they_are_stored() {
    let stack = TestStack::start().await;
    let (mut client, opened) = Client::open(&stack).await;
    let expected = Opened {
        window_frames: 64,
        window_points: 1_000_000,
        max_series: 1_000_000,
    };
    assert_eq!(opened, expected);
    client.frame(1, declaration());
    assert_eq!(
        client.ack().await,
        Ack {
            sequence: 1,
            ..Ack::default()
        }
    );
    client.frame(2, at(0, 1));
    assert_eq!(
        client.ack().await,
        Ack {
            sequence: 2,
            written: 1,
            ..Ack::default()
        }
    );
    // Tables stay: a later frame adds a series of old and new symbols.
    let more = Columns {
        new_symbols: vec!["b".to_owned()],
        new_series: vec![SeriesDeclaration {
            metric_symbol: 0,
            tag_symbols: vec![1, 3],
            ..Default::default()
        }],
        ..at(1, 1)
    };
    client.frame(3, more);
    assert_eq!(client.ack().await.sequence, 3);
    let expected = [
        "00000100000000000001000001 t:0010 07",
        "00000100000000000001000002 t:0010 07",
    ];
    assert_eq!(stack.cells("tsdb").await, expected);
    drop(client.requests);
    assert!(
        client.replies.message().await.unwrap().is_none(),
        "the stream ends with the client's side"
    );
}

#[tokio::test]
async fn the_server_reads_no_further_than_the_window_and_acknowledges_in_order() {
    let settings = DataSettings {
        stream_window_frames: 3,
        ..DataSettings::default()
    };
    let (stack, gate) = Gate::stack(settings).await;
    let (mut client, opened) = Client::open(&stack).await;
    assert_eq!(opened.window_frames, 3);
    client.frame(1, declaration());
    assert_eq!(
        client.ack().await.sequence,
        1,
        "a frame without points needs no store"
    );
    for sequence in 2..=8 {
        client.frame(sequence, at(0, sequence.cast_signed()));
    }
    gate.until_waiting(3).await;
    for _ in 0..100 {
        tokio::task::yield_now().await;
        assert_eq!(
            gate.waiting(),
            3,
            "three frames are with the store at a time, and no fourth is read"
        );
    }
    gate.let_go(1);
    assert_eq!(
        client.ack().await,
        Ack {
            sequence: 2,
            written: 1,
            ..Ack::default()
        }
    );
    gate.until_waiting(3).await;
    gate.let_go(6);
    let rest = client.acks_through(8).await;
    assert_eq!((rest.written, rest.failed), (6, 0));
    assert_eq!(stack.cells("tsdb").await.len(), 7);
}

#[tokio::test]
async fn the_window_counts_points_too() {
    let settings = DataSettings {
        stream_window_points: 10,
        ..DataSettings::default()
    };
    let (stack, gate) = Gate::stack(settings).await;
    let (mut client, _) = Client::open(&stack).await;
    client.frame(1, declaration());
    client.ack().await;
    for sequence in 2..=5 {
        client.frame(sequence, points(0, sequence.cast_signed() * 100, 5));
    }
    gate.until_waiting(2).await;
    for _ in 0..100 {
        tokio::task::yield_now().await;
        assert_eq!(gate.waiting(), 2);
    }
    gate.let_go(4);
    assert_eq!(client.acks_through(5).await.written, 20);
    client.frame(6, points(0, 1, 11));
    let (_, status) = client.status().await;
    assert_eq!(
        status.message(),
        "frame.columns.blocks: has 11 points, at most 10 are allowed"
    );
    assert_eq!(reason_of(&status), Some(ErrorReason::BatchTooLarge));
}

#[tokio::test]
async fn acks_are_cumulative_when_the_store_answers_for_many() {
    let (stack, gate) = Gate::stack(DataSettings::default()).await;
    let (mut client, _) = Client::open(&stack).await;
    client.frame(1, declaring(at(0, 1)));
    for sequence in 2..=50 {
        client.frame(sequence, at(0, sequence.cast_signed()));
    }
    gate.until_waiting(50).await;
    gate.let_go(50);
    let mut acks = 0;
    let (mut last, mut written) = (0, 0);
    while last < 50 {
        let ack = client.ack().await;
        (acks, last, written) = (acks + 1, ack.sequence, written + ack.written);
    }
    assert_eq!(written, 50);
    assert!(acks < 50, "{acks} acks for 50 frames that were stored at once");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_reads_no_acks_holds_no_permit_and_is_cut_off() {
    let settings = DataSettings {
        max_writes_mib: 1,
        ..DataSettings::default()
    };
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

/// A point of the series that [`declaration`] declares.
fn known_point(second: u32) -> crate::NewPoint<'static> {
    crate::NewPoint {
        metric: "m",
        tags: &[("host", "a")],
        timestamp: oxtsdb_schema::Timestamp::from_seconds(second),
        value: oxtsdb_schema::Value::Int(1),
    }
}

/// Declares a second series, of metric `m` too, with this tag value; as the fourth symbol.
fn another(tagv: &str, first: Columns) -> Columns {
    Columns {
        new_symbols: vec![tagv.to_owned()],
        new_series: vec![SeriesDeclaration {
            metric_symbol: 0,
            tag_symbols: vec![1, 3],
            ..Default::default()
        }],
        blocks: first.blocks,
    }
}

/// A service whose UID service assigns nothing until the gate opens, but the names of [`declaration`].
async fn without_new_names(settings: DataSettings) -> (TestStack, std::sync::Arc<Gate>) {
    let (stack, gate) = Gate::uid_stack_with(settings).await;
    let names = [
        (oxtsdb_schema::UidKind::Metric, "m"),
        (oxtsdb_schema::UidKind::Tagk, "host"),
        (oxtsdb_schema::UidKind::Tagv, "a"),
    ];
    gate.let_go(1);
    let uids = stack.service.uids.assign(&names, None).await.unwrap();
    assert!(uids.iter().all(Result::is_ok));
    (stack, gate)
}

#[tokio::test(start_paused = true)]
async fn frames_before_one_whose_names_are_being_resolved_are_acknowledged() {
    let (stack, gate) = without_new_names(DataSettings::default()).await;
    let (mut client, _) = Client::open(&stack).await;
    client.frame(1, declaring(at(0, 1)));
    client.frame(2, another("b", at(1, 1)));
    let began = tokio::time::Instant::now();
    assert_eq!(client.ack().await.sequence, 1);
    assert!(
        began.elapsed() < Duration::from_secs(1),
        "it does not wait for names of the second"
    );
    gate.until_waiting(1).await;
    gate.let_go(100);
    let ack = client.ack().await;
    assert_eq!((ack.sequence, ack.written, ack.failed), (2, 1, 0));
}

#[tokio::test(start_paused = true)]
async fn without_the_uid_service_points_of_declared_series_are_stored() {
    let (stack, gate) = without_new_names(DataSettings::default()).await;
    let (mut client, _) = Client::open(&stack).await;
    client.frame(1, declaring(at(0, 1)));
    let mut both = another("b", at(1, 2));
    both.blocks.extend(at(0, 2).blocks);
    client.frame(2, both);
    client.frame(3, at(0, 3));
    let ack = client.acks_through(3).await;
    assert_eq!((ack.written, ack.failed), (3, 1));
    let error = ack.errors[0].error.as_ref().unwrap();
    let item = error.error.as_ref().unwrap();
    assert_eq!((ack.errors[0].sequence, error.point, error.count), (2, 0, 1));
    assert_eq!(
        (item.code, item.reason(), item.retryable),
        (Code::Unavailable as i32, ErrorReason::UidServiceUnavailable, true),
        "{item:?}"
    );
    // Another stream, and a write, while the service is known to be away.
    let began = tokio::time::Instant::now();
    let (mut other, _) = Client::open(&stack).await;
    other.frame(1, declaring(at(0, 4)));
    other.frame(2, another("c", at(0, 5)));
    assert_eq!(other.acks_through(2).await.written, 2);
    let points = [known_point(6)];
    assert_eq!(
        stack.service.writer.write(&points, None).await.unwrap().written,
        1
    );
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());

    // The same stream goes on when the service is there again.
    gate.let_go(100);
    let mut sequence = 4;
    loop {
        client.frame(sequence, at(1, 2));
        let ack = client.ack().await;
        if ack.written == 1 {
            break;
        }
        assert_eq!(ack.failed, 1);
        sequence += 1;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(
        stack
            .cells("tsdb")
            .await
            .contains(&"00000100000000000001000002 t:0020 07".to_owned())
    );
}

#[tokio::test(start_paused = true)]
async fn a_deadline_is_observed_while_names_are_being_resolved() {
    let (stack, _gate) = without_new_names(DataSettings::default()).await;
    let (requests, receiver) = mpsc::unbounded_channel();
    let mut request = Request::new(tokio_stream::wrappers::UnboundedReceiverStream::new(receiver));
    request.set_timeout(Duration::from_secs(2));
    let deadline = tokio::time::Instant::now() + Duration::from_secs(2);
    request
        .extensions_mut()
        .insert(oxtsdb_server::Deadline(deadline.into_std()));
    let replies = stack.client().write_stream(request).await.unwrap().into_inner();
    let mut client = Client { requests, replies };
    client.send(incoming::Message::Open(Open::default()));
    assert!(matches!(client.reply().await, Ok(outgoing::Message::Opened(_))));
    client.frame(1, declaring(at(0, 1)));
    client.frame(2, another("b", at(1, 1)));
    let (acknowledged, status) = client.status().await;
    assert_eq!(
        (acknowledged, status.code()),
        (1, Code::DeadlineExceeded),
        "{status:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn draining_is_announced_while_names_are_being_resolved() {
    let (stack, gate) = without_new_names(DataSettings::default()).await;
    let (mut client, _) = Client::open(&stack).await;
    client.frame(1, declaring(at(0, 1)));
    client.frame(2, another("b", at(1, 1)));
    assert_eq!(client.ack().await.sequence, 1);
    gate.until_waiting(1).await;
    stack.trigger.shut_down().await;
    let began = tokio::time::Instant::now();
    assert!(matches!(client.reply().await, Ok(outgoing::Message::Draining(_))));
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
}

#[tokio::test]
async fn frames_wait_for_memory_and_go_on_when_there_is_some() {
    let settings = DataSettings {
        max_writes_mib: 1,
        ..DataSettings::default()
    };
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
        assert_eq!(gate.waiting(), 1, "the second frame has no room");
    }
    gate.let_go(3);
    assert_eq!(client.acks_through(4).await.written, 270_000);
}

#[tokio::test]
async fn a_frame_that_breaks_the_protocol_ends_the_stream_after_the_acks() {
    let stack = TestStack::start().await;
    let refused = async |sequence: u64, columns: Columns| {
        let (mut client, _) = Client::open(&stack).await;
        client.frame(1, declaring(at(0, 1)));
        client.frame(sequence, columns);
        let (acknowledged, status) = client.status().await;
        assert_eq!(acknowledged, 1, "{status:?}");
        assert_eq!(status.code(), Code::InvalidArgument);
        (reason_of(&status).unwrap(), status.message().to_owned())
    };
    let invalid = |message: &str| (ErrorReason::InvalidField, message.to_owned());
    assert_eq!(
        refused(3, at(0, 1)).await,
        invalid("frame.sequence: is 3, expected 2")
    );
    assert_eq!(
        refused(1, at(0, 1)).await,
        invalid("frame.sequence: is 1, expected 2")
    );
    let undeclared = "frame.columns.blocks[0].series: refers to series 1, 1 are declared".to_owned();
    assert_eq!(
        refused(2, at(1, 9)).await,
        (ErrorReason::UndeclaredReference, undeclared)
    );
    assert_eq!(
        stack.cells("tsdb").await.len(),
        1,
        "nothing of a refused frame is stored"
    );
}

#[tokio::test]
async fn a_stream_begins_with_one_open() {
    let stack = TestStack::start().await;
    let mut client = Client::connect(&stack).await;
    client.frame(1, declaration());
    let (_, status) = client.status().await;
    assert_eq!(status.message(), "frame: came before open, expected open first");

    let (mut client, _) = Client::open(&stack).await;
    client.send(incoming::Message::Open(Open::default()));
    let (_, status) = client.status().await;
    assert_eq!(
        status.message(),
        "open: came again, expected it as the first message only"
    );

    let (mut client, _) = Client::open(&stack).await;
    client
        .requests
        .send(WriteStreamRequest { message: None })
        .unwrap();
    let (_, status) = client.status().await;
    assert_eq!(status.message(), "message: is missing, expected open or frame");

    let mut client = Client::connect(&stack).await;
    client.send(incoming::Message::Open(Open {
        precision: 3,
        ..Open::default()
    }));
    let (_, status) = client.status().await;
    assert_eq!(
        status.message(),
        "open.precision: 3 is not a precision, expected 0, 1 or 2"
    );

    let mut client = Client::connect(&stack).await;
    drop(client.requests);
    assert!(
        client.replies.message().await.unwrap().is_none(),
        "a client may leave without a word"
    );
}

#[tokio::test]
async fn a_new_stream_declares_anew_and_sends_again_what_was_not_acknowledged() {
    let (stack, gate) = Gate::stack(DataSettings::default()).await;
    let frames = [declaring(at(0, 1)), at(0, 2), at(0, 3)];
    let (mut client, _) = Client::open(&stack).await;
    for (sequence, frame) in (1..).zip(&frames) {
        client.frame(sequence, frame.clone());
    }
    gate.until_waiting(3).await;
    gate.let_go(1);
    assert_eq!(client.ack().await.sequence, 1);
    drop(client);

    let (mut client, _) = Client::open(&stack).await;
    client.frame(1, at(0, 2));
    let (_, status) = client.status().await;
    assert_eq!(
        reason_of(&status),
        Some(ErrorReason::UndeclaredReference),
        "tables do not outlive a stream"
    );

    gate.let_go(100);
    let (mut client, _) = Client::open(&stack).await;
    client.frame(1, declaration());
    for (sequence, frame) in (2..).zip(&frames[1..]) {
        client.frame(sequence, frame.clone());
    }
    assert_eq!(client.acks_through(3).await.written, 2);
    let expected =
        ["0010", "0020", "0030"].map(|qualifier| format!("00000100000000000001000001 t:{qualifier} 07"));
    assert_eq!(stack.cells("tsdb").await, expected);
}

#[tokio::test]
async fn a_store_that_fails_ends_the_stream_after_the_acks() {
    let (stack, gate) = Gate::stack(DataSettings::default()).await;
    let (mut client, _) = Client::open(&stack).await;
    client.frame(1, declaring(at(0, 1)));
    client.frame(2, at(0, 2));
    client.frame(3, at(0, 3));
    gate.until_waiting(3).await;
    gate.let_go(1);
    assert_eq!(client.ack().await.sequence, 1);
    let full = StoreError::Full {
        place: "journal".to_owned(),
    };
    gate.fail([full.clone(), full]);
    gate.let_go(2);
    let (acknowledged, status) = client.status().await;
    assert_eq!(acknowledged, 0, "no ack after the failed frame");
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert_eq!(reason_of(&status), Some(ErrorReason::StoreFull));
}

/// Acks are cumulative: one for a frame behind the failed frame would cover the failed frame too.
#[tokio::test]
async fn frames_behind_a_failed_frame_are_not_acknowledged() {
    let (stack, gate) = Gate::stack(DataSettings::default()).await;
    let (mut client, _) = Client::open(&stack).await;
    client.frame(1, declaring(at(0, 1)));
    client.frame(2, at(0, 2));
    client.frame(3, at(0, 3));
    gate.until_waiting(3).await;
    gate.let_go(1);
    assert_eq!(client.ack().await.sequence, 1);
    gate.fail([StoreError::Full {
        place: "journal".to_owned(),
    }]);
    gate.let_go(2);
    let (acknowledged, status) = client.status().await;
    assert_eq!(acknowledged, 0, "no ack after that of frame 1");
    assert_eq!(reason_of(&status), Some(ErrorReason::StoreFull));
    let stored = stack.cells("tsdb").await.join("\n");
    assert!(stored.contains("0010") && !stored.contains("0020"), "{stored}");
}

#[tokio::test]
async fn an_ack_tells_the_first_errors_and_counts_all() {
    let (stack, gate) = Gate::stack(DataSettings::default()).await;
    let (mut client, _) = Client::open(&stack).await;
    let mut columns = declaring(points(0, -2, 4));
    columns.blocks.extend(points(0, 10, 1).blocks);
    client.frame(1, columns);
    client.frame(2, at(0, -5));
    gate.let_go(2);
    let ack = client.acks_through(2).await;
    assert_eq!((ack.written, ack.failed), (2, 4));
    assert!(ack.errors.len() <= 3, "two with each ack: {:?}", ack.errors);
    let first = &ack.errors[0];
    let error = first.error.as_ref().unwrap();
    assert_eq!((first.sequence, error.point, error.count), (1, 0, 1));
    assert_eq!(
        error.error.as_ref().unwrap().reason(),
        ErrorReason::InvalidTimestamp
    );
}

#[tokio::test]
async fn a_draining_server_finishes_what_it_received() {
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
    gate.let_go(2);
    assert_eq!(client.acks_through(2).await.written, 2);
    drop(client.requests);
    assert!(client.replies.message().await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_close_is_ended_after_the_grace() {
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

#[tokio::test]
async fn a_stream_declares_no_more_than_its_limits() {
    let settings = DataSettings {
        stream_max_series: 2,
        stream_max_symbols_mib: 1,
        ..DataSettings::default()
    };
    let stack = TestStack::with(settings, uid_service::UidSettings::default()).await;
    let (mut client, _) = Client::open(&stack).await;
    client.frame(1, declaration());
    let series = SeriesDeclaration {
        metric_symbol: 0,
        tag_symbols: vec![1, 2],
        ..Default::default()
    };
    client.frame(
        2,
        Columns {
            new_series: vec![series; 2],
            ..Columns::default()
        },
    );
    let (_, status) = client.status().await;
    assert_eq!(
        status.message(),
        "frame.columns.new_series: declares more than 2 series"
    );

    let (mut client, _) = Client::open(&stack).await;
    let long = "n".repeat(600_000);
    client.frame(
        1,
        Columns {
            new_symbols: vec![long.clone()],
            ..Columns::default()
        },
    );
    client.frame(
        2,
        Columns {
            new_symbols: vec![long],
            ..Columns::default()
        },
    );
    let (_, status) = client.status().await;
    assert_eq!(
        status.message(),
        "frame.columns.new_symbols[0]: declares symbols of more than 1048576 bytes"
    );
}

#[tokio::test]
async fn a_frame_over_the_size_of_a_message_is_told_so_after_the_acks() {
    let settings = DataSettings {
        max_message_mib: 1,
        ..DataSettings::default()
    };
    let stack = TestStack::with(settings, uid_service::UidSettings::default()).await;
    let (mut client, _) = Client::open(&stack).await;
    client.frame(1, declaration());
    client.frame(
        2,
        Columns {
            new_symbols: vec!["x".repeat(1 << 20)],
            ..Columns::default()
        },
    );
    let (acknowledged, status) = client.status().await;
    assert_eq!(acknowledged, 1);
    assert_eq!(status.code(), Code::OutOfRange);
    assert_eq!(
        reason_of(&status),
        Some(ErrorReason::MessageTooLarge),
        "{status:?}"
    );
    assert!(
        status.message().ends_with("at most 1048576 are allowed"),
        "{status:?}"
    );
}

#[tokio::test]
async fn of_two_frames_the_later_one_counts_on_a_store_without_an_order_too() {
    for write_form in [WriteForm::Rows, WriteForm::Cells] {
        let settings = DataSettings {
            write_form,
            ..DataSettings::default()
        };
        let (stack, gate) = Gate::hbase_stack(settings).await;
        let (mut client, _) = Client::open(&stack).await;
        client.frame(1, declaration());
        assert_eq!(client.ack().await.sequence, 1);
        for (sequence, value) in (2..).zip([10, 20, 30, 40]) {
            let mut frame = at(0, 1);
            frame.blocks[0].values = Some(block::Values::Ints(IntColumn { values: vec![value] }));
            client.frame(sequence, frame);
            gate.until_waiting(1).await;
        }
        for _ in 0..100 {
            tokio::task::yield_now().await;
            assert_eq!(gate.waiting(), 1, "one write of a row at a time");
        }
        gate.let_go(2);
        assert_eq!(client.acks_through(5).await.written, 4);
        assert_eq!(gate.passed(), 2, "the frames behind the first are one write");
        assert_eq!(
            stack.cells("tsdb").await,
            ["00000100000000000001000001 t:0010 28"],
            "{write_form}"
        );
    }
}

#[tokio::test]
async fn a_stream_that_lasts_notices_that_a_name_was_renamed() {
    let settings = DataSettings {
        name_cache_ttl_seconds: 1,
        ..DataSettings::default()
    };
    let uid_settings = UidSettings {
        uid_cache_ttl_seconds: 1,
        ..UidSettings::default()
    };
    let stack = TestStack::with(settings, uid_settings).await;
    let (mut client, _) = Client::open(&stack).await;
    // A series by names, one by its TSUID, and one that never can be had.
    let declared = Columns {
        new_symbols: ["m", "host", "a", ""].map(str::to_owned).to_vec(),
        new_series: vec![
            SeriesDeclaration {
                metric_symbol: 0,
                tag_symbols: vec![1, 2],
                ..Default::default()
            },
            SeriesDeclaration {
                metric_symbol: 3,
                tag_symbols: vec![1, 2],
                ..Default::default()
            },
        ],
        blocks: at(0, 1).blocks,
    };
    client.frame(1, declared);
    assert_eq!(client.ack().await.written, 1);
    let by_tsuid = Columns {
        new_series: vec![SeriesDeclaration {
            tsuid: vec![0, 0, 1, 0, 0, 1, 0, 0, 1].into(),
            ..Default::default()
        }],
        ..at(2, 2)
    };
    client.frame(2, by_tsuid);
    assert_eq!(client.ack().await.written, 1);

    // What OpenTSDB's rename of `m` to `n` leaves.
    let mut batch = WriteBatch::new("tsdb-uid".parse().unwrap());
    let (id, name) = (batch.family("id"), batch.family("name"));
    batch.row(b"n").put(id, b"metrics", &[0, 0, 1]);
    batch.row(&[0, 0, 1]).put(name, b"metrics", b"n");
    batch.row(b"m").delete_column(id, b"metrics");
    stack.store.write(batch).await.unwrap();
    let renamed = async {
        for sequence in 3.. {
            client.frame(sequence, at(0, 3));
            assert_eq!(client.ack().await.written, 1);
            let cells = stack.cells("tsdb").await;
            if cells.contains(&"00000200000000000001000001 t:0030 07".to_owned()) {
                return sequence;
            }
        }
        unreachable!("frames have 64 bits of numbers")
    };
    let last = tokio::time::timeout(PATIENCE, renamed)
        .await
        .expect("it is noticed");
    // The others are what they were: one has the UID that is `n` now, one has none.
    client.frame(last + 1, at(2, 4));
    assert_eq!(client.ack().await.written, 1);
    let cells = stack.cells("tsdb").await;
    assert!(
        cells.contains(&"00000100000000000001000001 t:0040 07".to_owned()),
        "{cells:?}"
    );
    client.frame(last + 2, at(1, 5));
    assert_eq!(client.ack().await.failed, 1);
}

#[tokio::test(start_paused = true)]
async fn series_of_streams_are_charged_to_the_ingest_pool() {
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
        blocks: Vec::new(),
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
