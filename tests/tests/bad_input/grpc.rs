//! What gRPC refuses to write.

use anyhow::Context as _;
use oxtsdb_proto::common::v1::ErrorReason::{self, *};
use oxtsdb_proto::common::v1::{SeriesKey, series_key};
use oxtsdb_proto::data::v1::{Point, PointError, TimestampPrecision, WriteColumnsRequest, WriteRequest};
use oxtsdb_proto::error::reason_of;
use oxtsdb_tests::Tsdb;
use oxtsdb_tests::read_back::refused;
use oxtsdb_tests::sample::{ColumnsBuilder, Sample};
use oxtsdb_tests::stream::WriteStream;
use tonic::{Code, Status};

use crate::points::*;

#[tokio::test(flavor = "multi_thread")]
async fn write_refuses_points_one_by_one() -> anyhow::Result<()> {
    let tsdb = Tsdb::start().await?;
    let bad = bad_points();
    let request = WriteRequest {
        points: mixed(&bad, "write").iter().map(Sample::to_point).collect(),
        ..WriteRequest::default()
    };
    let answer = tsdb.data().write(request).await?.into_inner();
    assert_eq!(answer.written, bad.len() as u64 + 1);
    assert_eq!(answer.failed, bad.len() as u64);
    check_errors(&bad, &answer.errors)?;
    check_good(&tsdb, "write", bad.len() + 1).await
}

#[tokio::test(flavor = "multi_thread")]
async fn write_columns_refuses_points_one_by_one() -> anyhow::Result<()> {
    let tsdb = Tsdb::start().await?;
    let bad = bad_points();
    let request = WriteColumnsRequest {
        columns: Some(ColumnsBuilder::default().columns(&mixed(&bad, "columns"))),
        ..WriteColumnsRequest::default()
    };
    let answer = tsdb.data().write_columns(request).await?.into_inner();
    assert_eq!(answer.written, bad.len() as u64 + 1);
    assert_eq!(answer.failed, bad.len() as u64);
    check_errors(&bad, &answer.errors)?;
    check_good(&tsdb, "columns", bad.len() + 1).await
}

#[tokio::test(flavor = "multi_thread")]
async fn write_stream_refuses_points_one_by_one() -> anyhow::Result<()> {
    let tsdb = Tsdb::start().await?;
    let bad = bad_points();
    let mut stream = WriteStream::open(&mut tsdb.data()).await?;
    let frame = stream.send(&mixed(&bad, "stream")).await?;
    let ack = stream.ack().await?;
    assert_eq!(ack.sequence, frame);
    assert_eq!(ack.written, bad.len() as u64 + 1);
    assert_eq!(ack.failed, bad.len() as u64);
    assert!(ack.errors.iter().all(|error| error.sequence == frame));
    let errors: Vec<PointError> = ack.errors.into_iter().filter_map(|error| error.error).collect();
    check_errors(&bad, &errors)?;
    check_good(&tsdb, "stream", bad.len() + 1).await
}

#[tokio::test(flavor = "multi_thread")]
async fn points_that_only_grpc_can_say_are_refused() -> anyhow::Result<()> {
    let tsdb = Tsdb::start().await?;
    let good = Sample::int(GOOD, &[("door", "odd")], T, 0).to_point();
    let tsuid = |bytes: &[u8]| {
        Some(SeriesKey {
            key: Some(series_key::Key::Tsuid(bytes.to_vec().into())),
        })
    };
    let cases: Vec<(&str, Point, Code, &[ErrorReason])> = vec![
        (
            "no series",
            Point {
                series: None,
                ..good.clone()
            },
            Code::InvalidArgument,
            &[InvalidField, InvalidTags, InvalidName],
        ),
        (
            "no value",
            Point {
                value: None,
                ..good.clone()
            },
            Code::InvalidArgument,
            &[InvalidValue],
        ),
        (
            "short TSUID",
            Point {
                series: tsuid(&[0, 0, 1, 0]),
                ..good.clone()
            },
            Code::InvalidArgument,
            &[InvalidUidWidth],
        ),
        (
            "TSUID of nobody",
            Point {
                series: tsuid(&[0, 0, 9, 0, 0, 9, 0, 0, 9]),
                ..good.clone()
            },
            Code::NotFound,
            &[UidNotFound],
        ),
    ];
    for (what, point, code, reasons) in cases {
        let request = WriteRequest {
            points: vec![good.clone(), point],
            ..WriteRequest::default()
        };
        let answer = tsdb.data().write(request).await?.into_inner();
        assert_eq!((answer.written, answer.failed), (1, 1), "{what}: {answer:?}");
        assert_eq!(answer.errors[0].point, 1, "{what}");
        let error = answer.errors[0].error.as_ref().context(what)?;
        assert_eq!(Code::from(error.code), code, "{what}: {error:?}");
        assert!(reasons.contains(&error.reason()), "{what}: {error:?}");
    }

    let request = WriteRequest {
        points: vec![Sample::int("m", &[("host", "a")], T + 1, 1).to_point()],
        precision: TimestampPrecision::Seconds.into(),
        ..WriteRequest::default()
    };
    let answer = tsdb.data().write(request).await?.into_inner();
    let error = answer.errors[0].error.as_ref().context("an error")?;
    assert_eq!(error.reason(), InvalidTimestamp);
    assert!(error.message.contains("not a whole second"), "{error:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn batches_of_a_wrong_size_are_refused_whole() -> anyhow::Result<()> {
    let tsdb = Tsdb::start().await?;
    let point = Sample::int("m", &[("host", "a")], T, 1).to_point();
    for points in [Vec::new(), vec![point; 10_001]] {
        let count = points.len();
        let request = WriteRequest {
            points,
            ..WriteRequest::default()
        };
        let status = refused(tsdb.data().write(request).await)?;
        assert_eq!(status.code(), Code::InvalidArgument, "{count} points");
        assert_eq!(
            reason_of(&status),
            Some(BatchTooLarge),
            "{count} points: {status:?}"
        );
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_breach_of_the_stream_protocol_ends_the_stream() -> anyhow::Result<()> {
    let tsdb = Tsdb::start().await?;
    let samples = [Sample::int("m", &[("host", "a")], T, 1)];
    let columns = ColumnsBuilder::default().columns(&samples);
    let mut undeclared = columns.clone();
    undeclared.new_series[0].metric_symbol = 99;
    let cases = [
        ("a sequence that does not begin with 1", 2, columns),
        ("a symbol that was not declared", 1, undeclared),
    ];
    for (what, sequence, columns) in cases {
        let mut stream = WriteStream::open(&mut tsdb.data()).await?;
        stream.send_frame(sequence, columns).await?;
        let status: Status = loop {
            match stream.next().await {
                Err(status) => break status,
                Ok(Some(message)) => println!("{what}: {message:?}"),
                Ok(None) => anyhow::bail!("{what}: the stream ended well"),
            }
        };
        assert_eq!(status.code(), Code::InvalidArgument, "{what}: {status:?}");
        assert!(reason_of(&status).is_some(), "{what}: {status:?}");
    }
    Ok(())
}
