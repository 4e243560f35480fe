//! Connections of gRPC that reach their age: clients move to new ones, and no call fails.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use oxtsdb_client::{
    AggregateFunction, DataClient, Query, SeriesName, StreamOptions, Timestamp, UidClient, UidKind,
};
use oxtsdb_proto::common::v1::ErrorReason;
use oxtsdb_proto::data::v1::{ListQueriesRequest, write_stream_response};
use oxtsdb_proto::error::reason_of;
use oxtsdb_tests::metrics::Metrics;
use oxtsdb_tests::stream::WriteStream;
use oxtsdb_tests::{DataProgram, Options, PATIENCE, Tsdb, UidProgram};
use tempfile::TempDir;
use tokio_stream::StreamExt as _;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

const START_S: i64 = 1_500_000_000;

/// How long clients work: several lives of a connection.
const WORK: Duration = Duration::from_secs(5);

const AGE: &str = "--grpc-connection-age-seconds=1";

#[tokio::test(flavor = "multi_thread")]
async fn clients_move_and_no_call_fails() -> anyhow::Result<()> {
    let folder = TempDir::with_prefix("oxtsdb-test-")?;
    let flags = [AGE.to_owned()];
    let uid = UidProgram::start_with(folder.path(), None, &flags).await?;
    let mut data = DataProgram::start_with(folder.path(), uid.address(), &flags).await?;
    let url = format!("http://{}", data.data_address());
    let client = DataClient::connect(&url)?;
    let names = UidClient::connect(&format!("http://{}", uid.address()))?;
    let mut writer = client.stream_writer(StreamOptions::default()).await?;
    let begun = Instant::now();
    let mut points = 0_i64;
    while begun.elapsed() < WORK {
        // New series need the UID service.
        let host = format!("host{}", points % 1000);
        let series = SeriesName::new("aged.points", [("host", host.as_str())]);
        writer
            .send(&series, Timestamp::from_seconds(START_S + points), points)
            .await?;
        points += 1;
        if points % 100 == 0 {
            client.list_queries().await.context("a call")?;
            names.suggest_names(UidKind::Tagv, "host", 10).await?;
        }
    }
    let report = writer.close().await?;
    ensure!(
        (report.written, report.failed) == (points.unsigned_abs(), 0),
        "{report:?} of {points}"
    );
    let end = Timestamp::from_seconds(START_S + points);
    let query =
        Query::between(Timestamp::from_seconds(START_S), end).metric("aged.points", AggregateFunction::None);
    let stored = client.query(query).await?.into_result().await?;
    let stored: usize = stored.series.iter().map(|series| series.points.len()).sum();
    ensure!(
        stored == usize::try_from(points)?,
        "{stored} of {points} points are stored"
    );

    for (name, admin) in [("data", data.admin()), ("uid", uid.admin())] {
        let metrics = Metrics::scrape(&admin).await?;
        let accepted = metrics.value(&format!(
            "oxtsdb_connections_accepted_total{{listener=\"{name}\"}}"
        ));
        ensure!(accepted >= 4.0, "{name}: {accepted} connections");
    }
    let log = data.process().log();
    ensure!(
        !log.contains("interrupted") && !log.contains("unavailable"),
        "{log}"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_that_stay_are_ended_after_their_grace() -> anyhow::Result<()> {
    let options = Options::default()
        .flags([AGE.to_owned()])
        .flag("--stream-grace-seconds", "1")
        .flag("--grpc-connection-grace-seconds", "3");
    let tsdb = Tsdb::start_with(options).await?;
    // This client does not act on the notice.
    let mut client = tsdb.data();
    let mut stream = WriteStream::open(&mut client).await?;
    let notice = tokio::time::timeout(PATIENCE, stream.next()).await??;
    ensure!(
        matches!(notice, Some(write_stream_response::Message::Draining(_))),
        "{notice:?}"
    );
    let ended = tokio::time::timeout(PATIENCE, stream.next()).await?;
    let status = ended.err().context("a stream that ended by itself")?;
    ensure!(reason_of(&status) == Some(ErrorReason::Draining), "{status:?}");
    // This stream has no notice of its own: its connection is closed.
    let mut health = HealthClient::new(tsdb.data_channel());
    let mut watch = health.watch(HealthCheckRequest::default()).await?.into_inner();
    let cut_off = async { while let Some(Ok(_)) = watch.next().await {} };
    tokio::time::timeout(PATIENCE, cut_off)
        .await
        .context("the connection is still open")?;
    tsdb.data_admin()
        .list_queries(ListQueriesRequest::default())
        .await?;
    Ok(())
}
