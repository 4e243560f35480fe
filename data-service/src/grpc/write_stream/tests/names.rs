//! Names that cannot be resolved, or change.

use oxtsdb_row_store::{RowStore as _, WriteBatch};
use uid_service::UidSettings;

use super::*;

/// A service with a UID service that assigns no names until the gate opens, except the names of [`declaration`].
async fn without_new_names(settings: DataSettings) -> (TestStack, std::sync::Arc<Gate>) {
    let (stack, gate) = Gate::uid_stack_with(settings).await;
    let names = [
        (oxtsdb_schema::UidKind::Metric, "m"),
        (oxtsdb_schema::UidKind::Tagk, "host"),
        (oxtsdb_schema::UidKind::Tagv, "a"),
    ];
    gate.release(1);
    let uids = stack
        .service
        .uids
        .assign_for(&names, |_| None, None)
        .await
        .unwrap();
    assert!(uids.iter().all(Result::is_ok));
    (stack, gate)
}

#[tokio::test(start_paused = true)]
async fn acknowledges_frames_while_later_names_are_being_resolved() {
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
    gate.release(100);
    let ack = client.ack().await;
    assert_eq!((ack.sequence, ack.written, ack.failed), (2, 1, 0));
}

#[tokio::test(start_paused = true)]
async fn stores_points_of_declared_series_without_the_uid_service() {
    let (stack, gate) = without_new_names(DataSettings::default()).await;
    let (mut client, _) = Client::open(&stack).await;
    client.frame(1, declaring(at(0, 1)));
    let mut both = another("b", at(1, 2));
    both.blocks.extend(at(0, 2).blocks);
    client.frame(2, both);
    client.frame(3, at(0, 3));
    let ack = client.acks_through(3).await;
    assert_eq!((ack.written, ack.failed), (3, 1));
    let failures = ack.failures[0].failures.as_ref().unwrap();
    let runs = failures.retryable.as_ref().unwrap();
    assert_eq!((&runs.first[..], &runs.count[..]), (&[0][..], &[1][..]));
    assert!(failures.permanent.is_none());
    let error = &failures.errors[0];
    let item = error.error.as_ref().unwrap();
    assert_eq!((ack.failures[0].sequence, error.first, error.count), (2, 0, 1));
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
    gate.release(100);
    let give_up = std::time::Instant::now() + PATIENCE;
    let mut sequence = 4;
    loop {
        client.frame(sequence, at(1, 2));
        let ack = client.ack().await;
        if ack.written == 1 {
            break;
        }
        assert_eq!(ack.failed, 1);
        assert!(std::time::Instant::now() < give_up, "{:?}", ack.failures);
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
async fn deadline_ends_the_stream_while_names_are_being_resolved() {
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
    client.send(incoming::Message::Open(open_message()));
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
async fn announces_draining_while_names_are_being_resolved() {
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
async fn refreshes_uids_after_the_time_to_live() {
    let mut settings = DataSettings::default();
    settings.naming.name_cache_ttl_seconds = 1;
    let mut uid_settings = UidSettings::default();
    uid_settings.naming.uid_cache_ttl_seconds = 1;
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
        ..at(0, 1)
    };
    client.frame(1, declared);
    assert_eq!(client.ack().await.written, 1);
    let by_tsuid = Columns {
        first_series: 2,
        new_series: vec![SeriesDeclaration {
            tsuid: vec![0, 0, 1, 0, 0, 1, 0, 0, 1].into(),
            ..Default::default()
        }],
        ..at(2, 2)
    };
    client.frame(2, by_tsuid);
    assert_eq!(client.ack().await.written, 1);

    // The table after OpenTSDB's rename of `m` to `n`.
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
