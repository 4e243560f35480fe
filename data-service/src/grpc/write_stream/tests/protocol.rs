//! Frames and streams that are rejected.

use tonic_types::StatusExt as _;

use super::*;

#[tokio::test]
async fn protocol_violation_ends_the_stream_after_the_acks() {
    let stack = TestStack::start().await;
    let rejection = async |sequence: u64, columns: Columns| {
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
        rejection(3, at(0, 1)).await,
        invalid("frame.sequence: is 3, expected 2")
    );
    assert_eq!(
        rejection(1, at(0, 1)).await,
        invalid("frame.sequence: is 1, expected 2")
    );
    let undeclared = "frame.columns.blocks[0].series: refers to series 1, 1 are declared".to_owned();
    assert_eq!(
        rejection(2, at(1, 9)).await,
        (ErrorReason::UndeclaredReference, undeclared)
    );
    assert_eq!(
        stack.cells("tsdb").await.len(),
        1,
        "nothing of a rejected frame is stored"
    );
}

#[tokio::test]
async fn requires_open_as_the_first_message_only() {
    let stack = TestStack::start().await;
    let mut client = Client::connect(&stack).await;
    client.frame(1, declaration());
    let (_, status) = client.status().await;
    assert_eq!(
        status.message(),
        "frame: came before `open`, which must be the first message"
    );

    let (mut client, _) = Client::open(&stack).await;
    client.send(incoming::Message::Open(Open::default()));
    let (_, status) = client.status().await;
    assert_eq!(
        status.message(),
        "open: came twice, expected it as the first message only"
    );

    let (mut client, _) = Client::open(&stack).await;
    client
        .requests
        .send(WriteStreamRequest { message: None })
        .unwrap();
    let (_, status) = client.status().await;
    assert_eq!(status.message(), "message: is missing, expected open or frame");

    let mut client = Client::connect(&stack).await;
    drop(client.requests);
    assert!(
        client.replies.message().await.unwrap().is_none(),
        "a client may close without opening"
    );
}

#[tokio::test]
async fn requires_valid_options() {
    let stack = TestStack::start().await;
    let good = open_message().options.unwrap();
    for (options, message) in [
        (
            None,
            "open.options.time_unit: is not given, expected TIME_UNIT_SECONDS or TIME_UNIT_MILLISECONDS",
        ),
        (
            Some(WriteOptions { time_unit: 3, ..good }),
            "open.options.time_unit: 3 is not a time unit, expected TIME_UNIT_SECONDS or TIME_UNIT_MILLISECONDS",
        ),
        (
            Some(WriteOptions { precision: 4, ..good }),
            "open.options.precision: 4 is not a precision, expected one of the named values",
        ),
    ] {
        let mut client = Client::connect(&stack).await;
        client.send(incoming::Message::Open(Open {
            options,
            ..Open::default()
        }));
        let (_, status) = client.status().await;
        assert_eq!(status.message(), message);
        assert_eq!(reason_of(&status), Some(ErrorReason::InvalidField));
    }
}

#[tokio::test]
async fn rejects_declarations_that_do_not_continue_the_tables() {
    let stack = TestStack::start().await;
    for (first_symbol, first_series, field, expected) in [
        (0, 1, "frame.columns.first_symbol", "3"),
        (4, 1, "frame.columns.first_symbol", "3"),
        (3, 0, "frame.columns.first_series", "1"),
    ] {
        let (mut client, _) = Client::open(&stack).await;
        client.frame(1, declaring(at(0, 1)));
        let next = Columns {
            first_symbol,
            first_series,
            ..another("b", at(1, 1))
        };
        client.frame(2, next);
        let (acknowledged, status) = client.status().await;
        assert_eq!((acknowledged, status.code()), (1, Code::InvalidArgument));
        assert_eq!(
            reason_of(&status),
            Some(ErrorReason::DeclarationOutOfSequence),
            "{status:?}"
        );
        let info = status.get_details_error_info().unwrap();
        assert_eq!(
            (
                info.metadata["field"].as_str(),
                info.metadata["expected"].as_str()
            ),
            (field, expected)
        );
    }
    assert_eq!(stack.cells("tsdb").await.len(), 1);
}

#[tokio::test]
async fn enforces_limits_of_declarations() {
    let mut settings = DataSettings::default();
    settings.streams.stream_max_series = 2;
    settings.streams.stream_max_symbols_mib = 1;
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
            first_series: 1,
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
            first_symbol: 1,
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
async fn rejects_an_oversized_frame_after_the_acks() {
    let mut settings = DataSettings::default();
    settings.connections.max_message_mib = 1;
    let stack = TestStack::with(settings, uid_service::UidSettings::default()).await;
    let (mut client, _) = Client::open(&stack).await;
    client.frame(1, declaration());
    client.frame(
        2,
        Columns {
            first_symbol: 3,
            new_symbols: vec!["x".repeat(1 << 20)],
            ..Columns::default()
        },
    );
    let (acknowledged, status) = client.status().await;
    assert_eq!(acknowledged, 1);
    assert_eq!(status.code(), Code::ResourceExhausted);
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
