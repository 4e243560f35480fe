//! Writes that gRPC rejects.

use anyhow::{Context as _, ensure};
use oxtsdb_proto::common::v1::ErrorReason::{self, *};
use oxtsdb_proto::data::v1::{
    Failures, TimeSeries, TimestampPrecision, WriteOptions, WriteRequest, time_series,
};
use oxtsdb_proto::error::reason_of;
use oxtsdb_tests::Tsdb;
use oxtsdb_tests::read_back::call_error;
use oxtsdb_tests::sample::{ColumnsBuilder, Sample};
use oxtsdb_tests::stream::WriteStream;
use oxtsdb_tests::write_requests::{any_time, columns_request, time_series, write_request};
use tonic::{Code, Status};

use super::points::*;

#[tokio::test(flavor = "multi_thread")]
async fn write_rejects_single_points() -> anyhow::Result<()> {
    let tsdb = Tsdb::start().await?;
    let bad = bad_points();
    let request = write_request(&mixed(&bad, "write"));
    let response = tsdb.data().write(request).await?.into_inner();
    assert_eq!(response.written, bad.len() as u64 + 1);
    assert_eq!(response.failed, bad.len() as u64);
    check_failures(&bad, response.failures)?;
    check_good(&tsdb, "write", bad.len() + 1).await
}

#[tokio::test(flavor = "multi_thread")]
async fn write_columns_rejects_single_points() -> anyhow::Result<()> {
    let tsdb = Tsdb::start().await?;
    let bad = bad_points();
    let request = columns_request(ColumnsBuilder::default().columns(&mixed(&bad, "columns")));
    let response = tsdb.data().write_columns(request).await?.into_inner();
    assert_eq!(response.written, bad.len() as u64 + 1);
    assert_eq!(response.failed, bad.len() as u64);
    check_failures(&bad, response.failures)?;
    check_good(&tsdb, "columns", bad.len() + 1).await
}

#[tokio::test(flavor = "multi_thread")]
async fn write_stream_rejects_single_points() -> anyhow::Result<()> {
    let tsdb = Tsdb::start().await?;
    let bad = bad_points();
    let mut stream = WriteStream::open(&mut tsdb.data()).await?;
    let frame = stream.send(&mixed(&bad, "stream")).await?;
    let ack = stream.ack().await?;
    assert_eq!(ack.sequence, frame);
    assert_eq!(ack.written, bad.len() as u64 + 1);
    assert_eq!(ack.failed, bad.len() as u64);
    assert_eq!(ack.failures.len(), 1);
    let failures = ack.failures.into_iter().next().context("failures")?;
    assert_eq!(failures.sequence, frame);
    check_failures(&bad, failures.failures)?;
    check_good(&tsdb, "stream", bad.len() + 1).await
}

#[tokio::test(flavor = "multi_thread")]
async fn rejects_points_that_only_grpc_can_express() -> anyhow::Result<()> {
    let tsdb = Tsdb::start().await?;
    let good = time_series([&Sample::int(GOOD, &[("path", "odd")], T, 0)]);
    let good = good.into_iter().next().context("a series")?;
    let tsuid = |bytes: &[u8]| Some(time_series::Series::Tsuid(bytes.to_vec().into()));
    let cases: Vec<(&str, TimeSeries, Code, &[ErrorReason])> = vec![
        (
            "no series",
            TimeSeries {
                series: None,
                ..good.clone()
            },
            Code::InvalidArgument,
            &[InvalidField, InvalidTags, InvalidName],
        ),
        (
            "no value",
            TimeSeries {
                int_values: Vec::new(),
                ..good.clone()
            },
            Code::InvalidArgument,
            &[InvalidField],
        ),
        (
            "short TSUID",
            TimeSeries {
                series: tsuid(&[0, 0, 1, 0]),
                ..good.clone()
            },
            Code::InvalidArgument,
            &[InvalidUidWidth],
        ),
        (
            "TSUID of unassigned UIDs",
            TimeSeries {
                series: tsuid(&[0, 0, 9, 0, 0, 9, 0, 0, 9]),
                ..good.clone()
            },
            Code::NotFound,
            &[UidNotFound],
        ),
    ];
    for (what, series, code, reasons) in cases {
        let request = WriteRequest {
            series: vec![good.clone(), series],
            options: Some(any_time()),
        };
        let response = tsdb.data().write(request).await?.into_inner();
        assert_eq!(
            (response.written, response.failed),
            (1, 1),
            "{what}: {response:?}"
        );
        let errors = response.failures.context(what)?.errors;
        assert_eq!(errors[0].first, 1, "{what}");
        let error = errors[0].error.as_ref().context(what)?;
        assert_eq!(Code::from(error.code), code, "{what}: {error:?}");
        assert!(reasons.contains(&error.reason()), "{what}: {error:?}");
    }

    let options = WriteOptions {
        precision: TimestampPrecision::Seconds.into(),
        ..any_time()
    };
    let request = WriteRequest {
        series: time_series([&Sample::int("m", &[("host", "a")], T + 1, 1)]),
        options: Some(options),
    };
    let response = tsdb.data().write(request).await?.into_inner();
    let errors = response.failures.context("failures")?.errors;
    let error = errors[0].error.as_ref().context("an error")?;
    assert_eq!(error.reason(), InvalidTimestamp);
    assert!(error.message.contains("not a whole second"), "{error:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn rejects_batches_of_a_wrong_size() -> anyhow::Result<()> {
    let tsdb = Tsdb::start().await?;
    let sample = Sample::int("m", &[("host", "a")], T, 1);
    for samples in [Vec::new(), vec![sample; 100_001]] {
        let count = samples.len();
        let status = call_error(tsdb.data().write(write_request(&samples)).await)?;
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
async fn protocol_violation_ends_the_stream() -> anyhow::Result<()> {
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

/// Each bad point is listed as failed permanently, and its error is described.
fn check_failures(bad: &[Bad], failures: Option<Failures>) -> anyhow::Result<()> {
    let failures = failures.context("failures")?;
    check_errors(bad, &failures.errors)?;
    let permanent = failures.permanent.context("permanent failures")?;
    let places: Vec<u64> = (0..bad.len() as u64).map(|number| number * 2 + 1).collect();
    ensure!(permanent.first == places, "{permanent:?}");
    ensure!(permanent.count == vec![1; places.len()], "{permanent:?}");
    ensure!(failures.retryable.is_none(), "{:?}", failures.retryable);
    Ok(())
}
