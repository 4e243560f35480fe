//! `oxtsdb-client` against real services: failures that it hides, and failures that it reports.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use oxtsdb_client::{
    AggregateFunction, ClientBuilder, Code, DataClient, Error, ErrorReason, Point, Query, SeriesName,
    StreamOptions, StreamWriter, Timestamp, UidClient, UidKind, Value, WriteReport,
};
use oxtsdb_tests::proxy::Proxy;
use oxtsdb_tests::{Tsdb, until};

const START_S: i64 = 1_500_000_000;

fn client(address: SocketAddr) -> DataClient {
    DataClient::connect(&format!("http://{address}")).expect("an address is an endpoint")
}

fn series(host: &str) -> SeriesName {
    SeriesName::new("client.points", [("host", host)])
}

/// A query for all points of all series.
fn all_points(metric: &str) -> Query {
    let end = Timestamp::from_seconds(START_S + 10_000_000);
    Query::between(Timestamp::from_seconds(START_S), end).metric(metric, AggregateFunction::None)
}

/// Sends points with consecutive seconds and values from `first` on.
async fn send(writer: &mut StreamWriter, series: &SeriesName, first: i64, count: i64) -> Result<(), Error> {
    for value in first..first + count {
        writer
            .send(series, Timestamp::from_seconds(START_S + value), value)
            .await?;
    }
    Ok(())
}

/// All of these points are stored, and no others.
async fn check_stored(client: &DataClient, count: i64) -> anyhow::Result<()> {
    let result = client
        .query(all_points("client.points"))
        .await?
        .into_result()
        .await?;
    let points = result.series.iter().flat_map(|series| &series.points);
    let expected = (0..count).map(|value| (Timestamp::from_seconds(START_S + value), Value::Int(value)));
    ensure!(
        points.copied().eq(expected),
        "other points than the {count} that were written"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn points_are_written_and_queried() -> anyhow::Result<()> {
    let tsdb = Tsdb::start().await?;
    let client = client(tsdb.data_address());
    let mut writer = client.stream_writer(StreamOptions::default()).await?;
    let (a, b) = (series("a"), series("b"));
    writer.send(&a, Timestamp::from_seconds(START_S), 1).await?;
    writer.send(&b, Timestamp::from_seconds(START_S), 0.5).await?;
    writer.send(&a, Timestamp::from_seconds(START_S + 1), 2).await?;
    let report = writer.flush().await?;
    assert_eq!((report.written, report.failed), (3, 0));
    assert!(writer.close().await?.is_complete());

    let result = client
        .query(all_points("client.points"))
        .await?
        .into_result()
        .await?;
    assert_eq!(result.statistics.points, 3);
    let hosts: Vec<&str> = result
        .series
        .iter()
        .map(|series| series.series.tags["host"].as_str())
        .collect();
    assert_eq!(hosts, ["a", "b"]);
    assert_eq!(
        result.series[1].points,
        [(Timestamp::from_seconds(START_S), Value::Double(0.5))]
    );

    let uids = UidClient::connect(&format!("http://{}", tsdb.uid_address()))?;
    let mappings = uids.suggest_names(UidKind::Tagv, "", 10).await?;
    let names: Vec<&str> = mappings.iter().map(|mapping| mapping.name.as_str()).collect();
    assert_eq!(names, ["a", "b"]);
    let results = uids
        .lookup_uids(&[(UidKind::Tagv, "b"), (UidKind::Tagv, "c")])
        .await?;
    assert_eq!(results[0].as_ref().ok(), Some(&mappings[1].uid));
    let missing = results[1].as_ref().expect_err("no point has this tag");
    assert_eq!(missing.reason, Some(ErrorReason::NameNotFound));
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_later_of_two_points_of_an_instant_wins_whatever_their_types() -> anyhow::Result<()> {
    let tsdb = Tsdb::start().await?;
    let client = client(tsdb.data_address());
    let mut writer = client.stream_writer(StreamOptions::default()).await?;
    let (a, b) = (series("a"), series("b"));
    let at = Timestamp::from_seconds(START_S);
    writer.send(&a, at, 0.5).await?;
    writer.send(&b, at, 1).await?;
    writer.send(&a, at, 2).await?;
    writer.send(&b, at, 2.5).await?;
    assert_eq!(writer.close().await?.written, 4);
    let result = client
        .query(all_points("client.points"))
        .await?
        .into_result()
        .await?;
    let points = result.series.iter().map(|series| series.points.as_slice());
    let expected = [[(at, Value::Int(2))], [(at, Value::Double(2.5))]];
    assert!(
        points.eq(expected.iter().map(|points| points.as_slice())),
        "{result:?}"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn write_splits_any_number_of_points_and_returns_each_failure() -> anyhow::Result<()> {
    let tsdb = Tsdb::start().await?;
    let client = client(tsdb.data_address());
    let (good, bad) = (series("a"), series("not a name"));
    let points = (0..25_000).map(|value| {
        let series = if value == 12_345 { &bad } else { &good };
        Point::new(series, Timestamp::from_seconds(START_S + value), value)
    });
    let report = client.write(points).await?;
    assert_eq!((report.written, report.failed), (24_999, 1));
    let failed = &report.failures[0];
    assert_eq!((failed.index, &failed.series), (12_345, &bad));
    assert!(!failed.retryable);
    let rejection = failed.rejection.as_ref().context("a description")?;
    assert_eq!(rejection.reason, Some(ErrorReason::InvalidName));
    assert_eq!(client.write([]).await?, WriteReport::default());

    let query = Query::between(
        Timestamp::from_seconds(START_S),
        Timestamp::from_seconds(START_S + 25_000),
    )
    .metric("client.points", AggregateFunction::Sum)
    .tag("host", "a")
    .downsample(Duration::from_secs(100_000), AggregateFunction::Count);
    let result = client.query(query).await?.into_result().await?;
    assert_eq!(result.statistics.points, 24_999);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_failed_points_are_returned_also_those_without_a_description() -> anyhow::Result<()> {
    let tsdb = Tsdb::start().await?;
    let client = client(tsdb.data_address());
    let (good, bad) = (series("a"), series("not a name"));
    let points: Vec<Point> = (0..20_000)
        .map(|value| {
            let series = if value % 2 == 1 { &bad } else { &good };
            Point::new(series, Timestamp::from_seconds(START_S + value), value)
        })
        .collect();
    let mut writer = client.stream_writer(StreamOptions::default()).await?;
    for point in &points {
        writer.send(&point.series, point.timestamp, point.value).await?;
    }
    for report in [client.write(points.clone()).await?, writer.close().await?] {
        assert_eq!((report.written, report.failed), (10_000, 10_000));
        let failed = report.failures.iter().map(|failed| failed.index);
        assert!(failed.eq((1..20_000).step_by(2)));
        for failed in &report.failures {
            let point = &points[usize::try_from(failed.index)?];
            assert_eq!((&failed.series, failed.timestamp), (&bad, point.timestamp));
            assert!(!failed.retryable);
        }
        let described = report
            .failures
            .iter()
            .filter_map(|failed| failed.rejection.as_ref());
        assert!(described.clone().count() >= 1000);
        for rejection in described {
            assert_eq!(rejection.reason, Some(ErrorReason::InvalidName));
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lingering_writer_sends_points_without_a_flush() -> anyhow::Result<()> {
    let tsdb = Tsdb::start().await?;
    let client = client(tsdb.data_address());
    let options = StreamOptions::default().linger(Duration::from_millis(1));
    let mut writer = client.stream_writer(options).await?;
    send(&mut writer, &series("a"), 0, 3).await?;
    until("all points are acknowledged", || {
        let acknowledged = writer.acknowledged();
        async move {
            ensure!(acknowledged == 3, "{acknowledged} points");
            Ok(())
        }
    })
    .await?;
    check_stored(&client, 3).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn implausible_timestamps_are_rejected_unless_allowed() -> anyhow::Result<()> {
    let tsdb = Tsdb::start().await?;
    let url = format!("http://{}", tsdb.data_address());
    let careful = DataClient::connect(&url)?;
    let lenient = ClientBuilder::new([&url]).allow_any_time(true).data()?;
    // Seconds in place of milliseconds.
    let point = Point::new(&series("a"), Timestamp::from_millis(START_S), 1);
    let report = careful.write([point.clone()]).await?;
    let reasons: Vec<_> = report
        .failures
        .iter()
        .map(|failed| failed.rejection.as_ref()?.reason)
        .collect();
    assert_eq!(reasons, [Some(ErrorReason::ImplausibleTimestamp)]);
    let mut writer = careful.stream_writer(StreamOptions::default()).await?;
    writer.send(&point.series, point.timestamp, point.value).await?;
    assert_eq!(writer.close().await?.failed, 1);
    assert!(lenient.write([point]).await?.is_complete());
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drain_in_the_middle_of_a_stream_loses_nothing() -> anyhow::Result<()> {
    const POINTS: i64 = 200_000;
    let mut tsdb = Tsdb::start().await?;
    let client = client(tsdb.data_address());
    let acknowledged = Arc::new(AtomicU64::new(0));
    let options = StreamOptions::default().on_acknowledged({
        let acknowledged = Arc::clone(&acknowledged);
        move |points| {
            acknowledged.fetch_add(points.points, Ordering::SeqCst);
        }
    });
    let mut writer = client.stream_writer(options).await?;
    let writing = tokio::spawn(async move {
        send(&mut writer, &series("a"), 0, POINTS).await?;
        writer.close().await
    });
    until("points are acknowledged", || {
        let some = acknowledged.load(Ordering::SeqCst) > 0;
        async move {
            ensure!(some, "none yet");
            Ok(())
        }
    })
    .await?;
    let status = tsdb.terminate().await?;
    ensure!(status.success(), "{status}");
    tsdb.restart().await?;
    let report = writing.await??;
    assert_eq!((report.written, report.failed), (POINTS.unsigned_abs(), 0));
    check_stored(&client, POINTS).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cut_connection_is_replaced_and_points_are_sent_again() -> anyhow::Result<()> {
    const ROUNDS: i64 = 5;
    let tsdb = Tsdb::start().await?;
    let proxy = Proxy::start(tsdb.data_address()).await?;
    let mut writer = client(proxy.address())
        .stream_writer(StreamOptions::default())
        .await?;
    let series = series("a");
    for round in 0..ROUNDS {
        send(&mut writer, &series, round * 10_000, 10_000).await?;
        proxy.cut();
    }
    let report = writer.close().await?;
    assert_eq!((report.written, report.failed), (50_000, 0));
    check_stored(&client(tsdb.data_address()), ROUNDS * 10_000).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_succeed_after_one_of_two_endpoints_died() -> anyhow::Result<()> {
    let (mut first, second) = tokio::try_join!(Tsdb::start(), Tsdb::start())?;
    let urls = [&first, &second].map(|tsdb| format!("http://{}", tsdb.data_address()));
    let client = ClientBuilder::new(urls).data()?;
    for _ in 0..4 {
        client.list_queries().await?;
    }
    first.kill9()?;
    for call in 0..50 {
        client
            .list_queries()
            .await
            .with_context(|| format!("call {call}"))?;
    }
    let mut writer = client.stream_writer(StreamOptions::default()).await?;
    send(&mut writer, &series("a"), 0, 10).await?;
    assert_eq!(writer.close().await?.written, 10);
    check_stored(&client, 10).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn errors_say_whether_a_retry_is_safe() -> anyhow::Result<()> {
    let tsdb = Tsdb::start().await?;
    let client = client(tsdb.data_address());
    let unknown = match client.query(all_points("no.such.metric")).await {
        Ok(results) => results.into_result().await.map(drop),
        Err(error) => Err(error),
    };
    let unknown = unknown.expect_err("there is no such metric");
    assert_eq!(
        (unknown.code(), unknown.reason()),
        (Code::NotFound, Some(ErrorReason::NameNotFound))
    );
    assert!(!unknown.is_retry_safe(), "{unknown}");
    let rejection = unknown.rejection().context("the service rejected it")?;
    assert_eq!(rejection.metadata["name"], "no.such.metric");

    // A point of a stream.
    let mut writer = client.stream_writer(StreamOptions::default()).await?;
    send(&mut writer, &series("a"), 0, 1).await?;
    send(&mut writer, &series("not a name"), 1, 1).await?;
    let report = writer.close().await?;
    assert_eq!((report.written, report.failed), (1, 1));
    let failed = &report.failures[0];
    assert_eq!(
        (failed.index, failed.series.to_string()),
        (1, series("not a name").to_string())
    );
    assert!(!failed.retryable);
    let rejection = failed.rejection.as_ref().context("a description")?;
    assert_eq!(rejection.reason, Some(ErrorReason::InvalidName));

    // A connection that nothing accepts.
    let mut proxy = Proxy::start(tsdb.data_address()).await?;
    proxy.refuse().await;
    let client = ClientBuilder::new([format!("http://{}", proxy.address())])
        .max_attempts(1)
        .data()?;
    let refused = client.list_queries().await.expect_err("the port is closed");
    assert!(matches!(refused, Error::Connection { .. }), "{refused:?}");
    assert!(refused.is_retry_safe());
    proxy.accept().await?;
    client.list_queries().await?;

    // A deadline.
    let late = client.with_timeout(Duration::ZERO).list_queries().await;
    assert_eq!(late, Err(Error::DeadlineExceeded));
    Ok(())
}
