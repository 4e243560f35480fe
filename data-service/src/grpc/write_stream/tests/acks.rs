//! Acknowledgements: order, window, errors.

use oxtsdb_data_settings::WriteForm;

use super::*;

#[tokio::test]
async fn acknowledges_stored_frames() {
    let stack = TestStack::start().await;
    let (mut client, opened) = Client::open(&stack).await;
    let expected = Opened {
        window_frames: 64,
        window_points: 1_000_000,
        max_frame_points: 1_000_000,
        max_series: 1_000_000,
        max_symbol_bytes: 64 << 20,
        max_message_bytes: 16 << 20,
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
    client.frame(3, another("b", at(1, 1)));
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
async fn reads_up_to_the_window_and_acknowledges_in_order() {
    let mut settings = DataSettings::default();
    settings.streams.stream_window_frames = 3;
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
    gate.release(1);
    assert_eq!(
        client.ack().await,
        Ack {
            sequence: 2,
            written: 1,
            ..Ack::default()
        }
    );
    gate.until_waiting(3).await;
    gate.release(6);
    let rest = client.acks_through(8).await;
    assert_eq!((rest.written, rest.failed), (6, 0));
    assert_eq!(stack.cells("tsdb").await.len(), 7);
}

#[tokio::test]
async fn window_limits_points() {
    let mut settings = DataSettings::default();
    settings.streams.stream_window_points = 10;
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
    gate.release(4);
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
async fn merges_acks_of_frames_stored_together() {
    let (stack, gate) = Gate::stack(DataSettings::default()).await;
    let (mut client, _) = Client::open(&stack).await;
    client.frame(1, declaring(at(0, 1)));
    for sequence in 2..=50 {
        client.frame(sequence, at(0, sequence.cast_signed()));
    }
    gate.until_waiting(50).await;
    gate.release(50);
    let mut acks = 0;
    let (mut last, mut written) = (0, 0);
    while last < 50 {
        let ack = client.ack().await;
        (acks, last, written) = (acks + 1, ack.sequence, written + ack.written);
    }
    assert_eq!(written, 50);
    assert!(acks < 50, "{acks} acks for 50 frames that were stored at once");
}

#[tokio::test]
async fn ack_describes_the_first_errors_and_counts_all() {
    let (stack, gate) = Gate::stack(DataSettings::default()).await;
    let (mut client, _) = Client::open(&stack).await;
    let mut columns = declaring(points(0, -2, 4));
    columns.blocks.extend(points(0, 10, 1).blocks);
    client.frame(1, columns);
    client.frame(2, at(0, -5));
    gate.release(2);
    let ack = client.acks_through(2).await;
    assert_eq!((ack.written, ack.failed), (2, 4));
    let frames: Vec<_> = ack
        .failures
        .iter()
        .map(|frame| {
            let failures = frame.failures.as_ref().unwrap();
            let runs = failures.permanent.as_ref().unwrap();
            let reason = failures.errors[0].error.as_ref().unwrap().reason();
            assert_eq!(reason, ErrorReason::InvalidTimestamp);
            (
                frame.sequence,
                runs.first.clone(),
                runs.count.clone(),
                failures.errors.len(),
            )
        })
        .collect();
    let expected = [(1, vec![0], vec![3], 2), (2, vec![0], vec![1], 1)];
    assert_eq!(frames, expected, "two errors with each frame, and all points");
}

#[tokio::test]
async fn new_stream_resends_unacknowledged_frames() {
    let (stack, gate) = Gate::stack(DataSettings::default()).await;
    let frames = [declaring(at(0, 1)), at(0, 2), at(0, 3)];
    let (mut client, _) = Client::open(&stack).await;
    for (sequence, frame) in (1..).zip(&frames) {
        client.frame(sequence, frame.clone());
    }
    gate.until_waiting(3).await;
    gate.release(1);
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

    gate.release(100);
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
async fn later_frame_wins_on_a_store_without_write_order() {
    for write_form in [WriteForm::Rows, WriteForm::Cells] {
        let mut settings = DataSettings::default();
        settings.writing.write_form = write_form;
        let (stack, gate) = Gate::hbase_stack(settings).await;
        let (mut client, _) = Client::open(&stack).await;
        client.frame(1, declaration());
        assert_eq!(client.ack().await.sequence, 1);
        for (sequence, value) in (2..).zip([10, 20, 30, 40]) {
            let mut frame = at(0, 1);
            frame.blocks[0].int_values = vec![value];
            client.frame(sequence, frame);
            gate.until_waiting(1).await;
        }
        for _ in 0..100 {
            tokio::task::yield_now().await;
            assert_eq!(gate.waiting(), 1, "one write of a row at a time");
        }
        gate.release(2);
        assert_eq!(client.acks_through(5).await.written, 4);
        assert_eq!(gate.passed(), 2, "the frames behind the first are one write");
        assert_eq!(
            stack.cells("tsdb").await,
            ["00000100000000000001000001 t:0010 28"],
            "{write_form}"
        );
    }
}
