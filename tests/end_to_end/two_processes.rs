//! The two services as programs of their own.

use oxtsdb_proto::common::v1::ErrorReason;
use oxtsdb_proto::data::v1::WriteResponse;
use oxtsdb_proto::error::reason_of;
use oxtsdb_proto::uid::v1::GetUidUsageRequest;
use oxtsdb_tests::read_back::{call_error, series_of};
use oxtsdb_tests::sample::{Number, Sample};
use oxtsdb_tests::write_requests::write_request;
use oxtsdb_tests::{DataProgram, UidProgram, until};
use tempfile::TempDir;
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

const T: i64 = 1_500_000_000_000;

async fn write(data: &DataProgram, host: &str, number: i64) -> Result<WriteResponse, Status> {
    let sample = Sample::int("two.processes", &[("host", host)], T + number * 1000, number);
    Ok(data.client().write(write_request([&sample])).await?.into_inner())
}

#[tokio::test(flavor = "multi_thread")]
async fn they_talk_over_the_network() -> anyhow::Result<()> {
    let folder = TempDir::with_prefix("oxtsdb-test-")?;
    let uid = UidProgram::start(folder.path(), None).await?;
    let data = DataProgram::start(folder.path(), uid.address()).await?;
    assert_eq!(write(&data, "a", 0).await?.written, 1);
    let usage = uid
        .client()
        .get_uid_usage(GetUidUsageRequest {})
        .await?
        .into_inner();
    assert!(usage.kinds.iter().all(|kind| kind.used == 1), "{usage:?}");
    let series = series_of(&mut data.client(), "two.processes").await?;
    assert_eq!(series.into_values().next(), Some(vec![(T, Number::Int(0))]));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_uid_service_known_series_are_written() -> anyhow::Result<()> {
    let folder = TempDir::with_prefix("oxtsdb-test-")?;
    let mut uid = UidProgram::start(folder.path(), None).await?;
    let data = DataProgram::start(folder.path(), uid.address()).await?;
    assert_eq!(write(&data, "known", 0).await?.written, 1);

    let address = uid.address();
    uid.process().kill9()?;
    assert_eq!(write(&data, "known", 1).await?.written, 1);
    let status = call_error(write(&data, "new", 0).await)?;
    assert_eq!(status.code(), Code::Unavailable, "{status:?}");
    assert_eq!(
        reason_of(&status),
        Some(ErrorReason::UidServiceUnavailable),
        "{status:?}"
    );
    let delay = status.get_details_retry_info().and_then(|info| info.retry_delay);
    assert!(delay.is_some(), "RetryInfo is missing: {status:?}");

    // It comes back, and the data service goes on without a restart.
    let _uid = UidProgram::start(folder.path(), Some(address)).await?;
    let written = until("new series are written again", || async {
        Ok(write(&data, "new", 0).await?.written)
    })
    .await?;
    assert_eq!(written, 1);
    let series = series_of(&mut data.client(), "two.processes").await?;
    let counts: Vec<usize> = series.values().map(Vec::len).collect();
    assert_eq!(counts, [2, 1], "{series:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_data_service_waits_for_the_uid_service() -> anyhow::Result<()> {
    let folder = TempDir::with_prefix("oxtsdb-test-")?;
    // An address that somebody had, and that is free now.
    let mut first = UidProgram::start(folder.path(), None).await?;
    let address = first.address();
    first.process().kill9()?;
    let (data, uid) = tokio::join!(
        DataProgram::start(folder.path(), address),
        UidProgram::start(folder.path(), Some(address))
    );
    let (data, _uid) = (data?, uid?);
    assert_eq!(write(&data, "a", 0).await?.written, 1);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn both_end_in_order() -> anyhow::Result<()> {
    let folder = TempDir::with_prefix("oxtsdb-test-")?;
    let mut uid = UidProgram::start(folder.path(), None).await?;
    let mut data = DataProgram::start(folder.path(), uid.address()).await?;
    write(&data, "a", 0).await?;
    data.process().terminate()?;
    let status = data.process().wait().await?;
    assert_eq!(status.code(), Some(0), "{}", data.process().log());
    uid.process().terminate()?;
    let status = uid.process().wait().await?;
    assert_eq!(status.code(), Some(0), "{}", uid.process().log());
    Ok(())
}
