//! Mistakes of clients that would store points in the wrong place: each is rejected, and the error says what
//! to do.

use anyhow::{Context as _, ensure};
use oxtsdb_proto::common::v1::{ErrorReason, ItemError};
use oxtsdb_proto::data::v1::columns::{Block, SeriesDeclaration};
use oxtsdb_proto::data::v1::write_stream_request::Open;
use oxtsdb_proto::data::v1::write_stream_response::Message;
use oxtsdb_proto::data::v1::{
    Columns, DeltaTimestamps, Failures, TimeUnit, WriteColumnsRequest, WriteOptions, WriteRequest,
};
use oxtsdb_proto::error::reason_of;
use oxtsdb_tests::Tsdb;
use oxtsdb_tests::read_back::series_of;
use oxtsdb_tests::sample::{Number, Sample};
use oxtsdb_tests::stream::WriteStream;
use oxtsdb_tests::write_requests::{plausible_time, time_series};
use prost::Message as _;
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

const T: i64 = 1_700_000_000_000;

/// A frame that declares one series of metric `mistakes` with tag `host`, without points.
fn declaration(host: &str) -> Columns {
    Columns {
        new_symbols: vec!["mistakes".to_owned(), "host".to_owned(), host.to_owned()],
        new_series: vec![SeriesDeclaration {
            metric_symbol: 0,
            tag_symbols: vec![1, 2],
            ..SeriesDeclaration::default()
        }],
        ..Columns::default()
    }
}

/// Points with values 0, 1, 2, ... of the series with number 0.
fn block(timestamps: DeltaTimestamps, points: i64) -> Block {
    Block {
        series: vec![0],
        delta_timestamps: Some(timestamps),
        int_values: (0..points).collect(),
        ..Block::default()
    }
}

async fn open(tsdb: &Tsdb) -> anyhow::Result<WriteStream> {
    let open = Open {
        client_name: "mistakes".to_owned(),
        options: Some(plausible_time()),
    };
    WriteStream::open_with(&mut tsdb.data(), open).await
}

/// The status that ends a stream after its last frame.
async fn status_of(stream: WriteStream) -> anyhow::Result<Status> {
    match stream.close().await {
        Err(status) => Ok(status),
        Ok(messages) => anyhow::bail!("the stream ended without an error: {messages:?}"),
    }
}

/// The only error of some failures, which are permanent.
fn only_error(failures: Option<Failures>, points: u64) -> anyhow::Result<ItemError> {
    let failures = failures.context("failures")?;
    let permanent = failures.permanent.context("permanent failures")?;
    ensure!(permanent.count.iter().sum::<u64>() == points, "{permanent:?}");
    ensure!(failures.retryable.is_none(), "{:?}", failures.retryable);
    let error = failures.errors.into_iter().next().context("an error")?;
    error.error.context("an error")
}

#[tokio::test(flavor = "multi_thread")]
async fn rejects_symbols_declared_from_0_again_in_the_second_frame() -> anyhow::Result<()> {
    let tsdb = Tsdb::start().await?;
    let frame = |host: &str, value: i64| Columns {
        blocks: vec![Block {
            series: vec![0],
            timestamps: vec![T],
            int_values: vec![value],
            ..Block::default()
        }],
        ..declaration(host)
    };
    let mut stream = open(&tsdb).await?;
    stream.send_frame(1, frame("a", 1)).await?;
    stream.send_frame(2, frame("b", 2)).await?;
    let status = status_of(stream).await?;
    assert_eq!(status.code(), Code::InvalidArgument, "{status:?}");
    assert_eq!(
        reason_of(&status),
        Some(ErrorReason::DeclarationOutOfSequence),
        "{status:?}"
    );
    let info = status.get_details_error_info().context("details")?;
    assert_eq!(info.metadata["field"], "frame.columns.first_symbol");
    assert_eq!(info.metadata["expected"], "3");
    let message = status.message();
    assert!(message.contains("is 0, expected 3"), "{message}");
    assert!(message.contains("declare each symbol once"), "{message}");
    let series = series_of(&mut tsdb.data(), "mistakes").await?;
    let points: Vec<_> = series.into_values().collect();
    assert_eq!(
        points,
        [vec![(T, Number::Int(1))]],
        "the point of the other series is not overwritten"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn rejects_deltas_that_are_offsets_from_the_first_timestamp() -> anyhow::Result<()> {
    let tsdb = Tsdb::start().await?;
    // Instants 0, 1, 3 and 6 s after T: as many offsets as points, and one fewer.
    let per_point = DeltaTimestamps {
        first: T,
        deltas: vec![0, 1000, 3000, 6000],
        last: T + 6000,
    };
    let per_further_point = DeltaTimestamps {
        deltas: vec![1000, 3000, 6000],
        ..per_point.clone()
    };
    for (timestamps, points, reason, says) in [
        (
            per_point,
            5,
            ErrorReason::InvalidField,
            "`deltas` has one element fewer than there are values",
        ),
        (
            per_further_point,
            4,
            ErrorReason::InvalidTimestamp,
            "each delta is the difference from the timestamp before it",
        ),
    ] {
        let columns = Columns {
            blocks: vec![block(timestamps, 4)],
            ..declaration("a")
        };
        let request = WriteColumnsRequest {
            columns: Some(columns.clone()),
            options: Some(plausible_time()),
        };
        let response = tsdb.data().write_columns(request).await?.into_inner();
        let error = only_error(response.failures, points)?;
        assert_eq!((response.written, error.reason()), (0, reason), "{error:?}");
        assert!(error.message.contains(says), "{error:?}");

        let mut stream = open(&tsdb).await?;
        stream.send_frame(1, columns).await?;
        let ack = stream.ack().await?;
        let failures = ack.failures.into_iter().next().context("failures")?;
        let error = only_error(failures.failures, points)?;
        assert_eq!((ack.written, error.reason()), (0, reason), "{error:?}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn rejects_deltas_that_are_timestamps() -> anyhow::Result<()> {
    let tsdb = Tsdb::start().await?;
    let timestamps = DeltaTimestamps {
        first: T,
        deltas: vec![T + 1000, T + 2000],
        last: T + 2000,
    };
    let columns = Columns {
        blocks: vec![block(timestamps, 3)],
        ..declaration("a")
    };
    let request = WriteColumnsRequest {
        columns: Some(columns),
        options: Some(plausible_time()),
    };
    let response = tsdb.data().write_columns(request).await?.into_inner();
    let error = only_error(response.failures, 3)?;
    assert_eq!(error.reason(), ErrorReason::InvalidTimestamp, "{error:?}");
    assert!(error.message.contains("nor a timestamp"), "{error:?}");
    assert_eq!(response.written, 0);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn rejects_seconds_declared_as_milliseconds() -> anyhow::Result<()> {
    let tsdb = Tsdb::start().await?;
    let seconds = T / 1000;
    let request = WriteRequest {
        series: time_series([&Sample::int("mistakes", &[("host", "a")], seconds, 1)]),
        options: Some(plausible_time()),
    };
    let response = tsdb.data().write(request.clone()).await?.into_inner();
    assert_eq!(response.written, 0);
    let mut errors = vec![only_error(response.failures, 1)?];

    let columns = Columns {
        blocks: vec![Block {
            series: vec![0],
            timestamps: vec![seconds],
            values: vec![0.5],
            ..Block::default()
        }],
        ..declaration("a")
    };
    let packed = WriteColumnsRequest {
        columns: Some(columns.clone()),
        options: Some(plausible_time()),
    };
    let response = tsdb.data().write_columns(packed).await?.into_inner();
    assert_eq!(response.written, 0);
    errors.push(only_error(response.failures, 1)?);

    let mut stream = open(&tsdb).await?;
    stream.send_frame(1, columns).await?;
    let ack = stream.ack().await?;
    assert_eq!(ack.written, 0);
    let failures = ack.failures.into_iter().next().context("failures")?;
    errors.push(only_error(failures.failures, 1)?);
    for error in errors {
        assert_eq!(error.reason(), ErrorReason::ImplausibleTimestamp, "{error:?}");
        for says in ["1970-01-20", "correct the time_unit", "allow_any_time"] {
            assert!(error.message.contains(says), "{error:?}");
        }
    }

    // The advice of the error: the right unit, or any time.
    let options = WriteOptions {
        time_unit: TimeUnit::Seconds.into(),
        ..WriteOptions::default()
    };
    let corrected = WriteRequest {
        options: Some(options),
        ..request.clone()
    };
    assert_eq!(tsdb.data().write(corrected).await?.into_inner().written, 1);
    let any_time = WriteRequest {
        options: Some(WriteOptions {
            allow_any_time: true,
            ..plausible_time()
        }),
        ..request
    };
    assert_eq!(tsdb.data().write(any_time).await?.into_inner().written, 1);
    let series = series_of(&mut tsdb.data(), "mistakes").await?;
    let points: Vec<_> = series
        .into_values()
        .flatten()
        .map(|(timestamp, _)| timestamp)
        .collect();
    assert_eq!(points, [seconds, T]);
    Ok(())
}

/// 500,000 runs are about 3 MiB.
#[tokio::test(flavor = "multi_thread")]
async fn acks_of_many_failures_stay_below_a_mebibyte() -> anyhow::Result<()> {
    let tsdb = Tsdb::start().await?;
    let points = 1_000_000;
    // Every second timestamp is zero.
    let timestamps = (0..points).map(|point| if point % 2 == 0 { T + point * 1000 } else { 0 });
    let columns = Columns {
        blocks: vec![Block {
            series: vec![0],
            timestamps: timestamps.collect(),
            int_values: vec![1; usize::try_from(points)?],
            ..Block::default()
        }],
        ..declaration("a")
    };
    let mut stream = open(&tsdb).await?;
    stream.send_frame(1, columns).await?;
    let (mut failed, mut acks, mut described) = (0, 0, 0);
    let mut next = 1;
    loop {
        let ack = match stream.next().await?.context("an ack")? {
            Message::Ack(ack) => ack,
            other => anyhow::bail!("expected an ack, got {other:?}"),
        };
        ensure!(ack.encoded_len() < 1 << 20, "{} bytes", ack.encoded_len());
        acks += 1;
        failed += ack.failed;
        for frame in ack.failures {
            ensure!(frame.sequence == 1);
            let failures = frame.failures.context("failures")?;
            described += failures.errors.len();
            let runs = failures.permanent.unwrap_or_default();
            for (first, count) in runs.first.into_iter().zip(runs.count) {
                ensure!((first, count) == (next, 1), "{first} {count}, expected {next}");
                next += 2;
            }
        }
        if ack.sequence == 1 {
            assert_eq!(ack.written, 500_000);
            break;
        }
        assert_eq!(ack.written, 0, "the frame is not acknowledged yet");
    }
    assert_eq!((failed, described), (500_000, 100));
    assert!(acks > 1, "they do not fit one ack");
    Ok(())
}
