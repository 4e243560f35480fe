//! Clients that read large responses slowly or not at all.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use oxtsdb_proto::data::v1::data_service_client::DataServiceClient;
use oxtsdb_proto::data::v1::scan_rows_request::Source;
use oxtsdb_proto::data::v1::sub_query::MetricSource;
use oxtsdb_proto::data::v1::{AggregateFunction, CellView, QueryRequest, ScanRowsRequest};
use oxtsdb_tests::bystander::Bystander;
use oxtsdb_tests::load::Load;
use oxtsdb_tests::metrics::Metrics;
use oxtsdb_tests::raw_grpc::RawChannel;
use oxtsdb_tests::raw_http::RawHttp;
use oxtsdb_tests::read_back::{always, range, sub_query};
use oxtsdb_tests::{Options, refusal, until};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tonic::{Code, Response, Status, Streaming};

use crate::support::{BESIDE_QUERIES, BOUND, LIMIT_MIB, MOST_BYTES, Target, is_full, limited, new_flag};

/// The server disconnects a client that reads nothing for this long.
const CUT_OFF_SECONDS: u64 = 3;

/// How long gRPC streams stay unread: several times as long.
const UNREAD: Duration = Duration::from_secs(4 * CUT_OFF_SECONDS);

fn impatient() -> Options {
    limited().flags(new_flag("--client-timeout-seconds", CUT_OFF_SECONDS))
}

/// A server with `points` points. The response to a query for all of them, and to a scan of a quarter of them,
/// exceeds the buffers of sockets and HTTP/2 windows many times.
async fn loaded(points: usize) -> anyhow::Result<(Target, Load)> {
    let target = Target::start_with(impatient()).await?;
    let load = Load::new("slow", 100, points / 100);
    load.write(&target.tsdb).await?;
    Ok((target, load))
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: tests/nightly.sh"]
async fn disconnects_http_readers_of_a_byte_a_second() -> anyhow::Result<()> {
    let (mut target, load) = loaded(400_000).await?;
    target.get(&load.path("sum")).await?;
    let before = target.tsdb.process().descriptors()?;
    let mut readers = JoinSet::new();
    for _ in 0..15 {
        let mut reader = RawHttp::connect_slow_reader(target.tsdb.http_address()).await?;
        reader.send_get(&load.path("none")).await?;
        readers.spawn(async move {
            while let Ok(Some(_)) = reader.read_byte().await {
                sleep(Duration::from_secs(1)).await;
            }
        });
    }
    let bystander = Bystander::start_with(&target.tsdb, &BESIDE_QUERIES).await?;
    target.no_query_is_left().await?;
    bystander.finish(BOUND).await?;
    // The readers continue; the server has closed their connections.
    let process = target.tsdb.process();
    until("all slow readers are disconnected", || {
        let now = process.descriptors();
        async move {
            let now = now?;
            // The store opens and closes files.
            ensure!(now <= before + 5, "{now} descriptors, there were {before}");
            Ok(())
        }
    })
    .await?;
    readers.shutdown().await;
    println!(
        "  {} MiB after, peak {} MiB",
        target.memory.current() >> 20,
        target.memory.peak() >> 20
    );
    // Their memory is released: a large response fits.
    let response = target.get(&load.path("none")).await?;
    ensure!(response.status == 200, "{} {}", response.status, response.text());
    target.check_unharmed().await
}

/// A connection with small windows.
async fn slow_client(target: &Target) -> anyhow::Result<DataServiceClient<RawChannel>> {
    let address = target.tsdb.data_address();
    let channel = RawChannel::connect_slow_reader(address).await?;
    Ok(DataServiceClient::with_origin(
        channel,
        RawChannel::origin(address)?,
    ))
}

/// Begins up to `count` streams; the server may reject calls. Nothing of the streams is read.
async fn begin_streams<T>(
    count: usize,
    mut call: impl AsyncFnMut() -> Result<Response<Streaming<T>>, Status>,
) -> anyhow::Result<Vec<Streaming<T>>> {
    let mut streams = Vec::new();
    for _ in 0..count {
        match timeout(UNREAD, call()).await {
            Ok(Ok(response)) => streams.push(response.into_inner()),
            Ok(Err(status)) => refusal::check_status(&status)?,
            Err(_elapsed) => anyhow::bail!("a call neither started nor failed within {UNREAD:?}"),
        }
    }
    println!("  {} streams have begun", streams.len());
    ensure!(!streams.is_empty());
    Ok(streams)
}

/// Reads the rest of streams; none may be complete. Returns their count.
async fn all_are_disconnected<T>(streams: Vec<Streaming<T>>) -> anyhow::Result<()> {
    for mut stream in streams {
        let rest = async {
            loop {
                match stream.message().await {
                    Ok(Some(_)) => {}
                    Ok(None) => return None,
                    Err(status) => return Some(status),
                }
            }
        };
        let status = timeout(BOUND, rest)
            .await
            .context("the stream neither continues nor ends")?;
        let status = status.context("an unread stream is complete")?;
        check_disconnected(&status)?;
    }
    Ok(())
}

/// The status itself may be lost, as the client does not read; then HTTP/2 reports a reset.
fn check_disconnected(status: &Status) -> anyhow::Result<()> {
    match status.code() {
        Code::Cancelled | Code::Aborted | Code::Unknown | Code::Internal => Ok(()),
        _ => refusal::check_status(status),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn disconnects_unread_query_streams() -> anyhow::Result<()> {
    let (mut target, load) = loaded(400_000).await?;
    let (start, end) = load.seconds();
    let request = QueryRequest {
        range: Some(range(start * 1000, end * 1000)),
        queries: vec![sub_query(&load.metric, AggregateFunction::None)],
        ..QueryRequest::default()
    };
    let bystander = Bystander::start_with(&target.tsdb, &BESIDE_QUERIES).await?;
    let mut client = slow_client(&target).await?;
    let streams = begin_streams(if is_full() { 93 } else { 31 }, async || {
        client.query(request.clone()).await
    })
    .await?;
    target.no_query_is_left().await?;
    bystander.finish(BOUND).await?;
    all_are_disconnected(streams).await?;
    target.check_unharmed().await
}

/// Waits until the server has ended all streams of rows.
async fn no_scan_is_left(target: &Target) -> anyhow::Result<()> {
    until("all streams of rows have ended", || async {
        let metrics = Metrics::scrape(&target.tsdb.admin()).await?;
        let streams = metrics.sum("oxtsdb_requests_in_flight", "ScanRows");
        ensure!(streams == 0.0, "{streams} are served");
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: tests/nightly.sh"]
async fn disconnects_unread_scan_streams() -> anyhow::Result<()> {
    let (mut target, load) = loaded(100_000).await?;
    let request = ScanRowsRequest {
        source: Some(Source::Metric(MetricSource {
            metric: load.metric.clone(),
            ..MetricSource::default()
        })),
        range: Some(always()),
        view: CellView::Full.into(),
        ..ScanRowsRequest::default()
    };
    let bystander = Bystander::start_with(&target.tsdb, &BESIDE_QUERIES).await?;
    let mut client = slow_client(&target).await?;
    let streams = begin_streams(30, async || client.scan_rows(request.clone()).await).await?;
    no_scan_is_left(&target).await?;
    target.memory.check_below(MOST_BYTES)?;
    bystander.finish(BOUND).await?;
    all_are_disconnected(streams).await?;
    target.check_unharmed().await
}

/// Telnet commands with responses that stay unread.
#[tokio::test(flavor = "multi_thread")]
async fn disconnects_telnet_clients_that_read_nothing() -> anyhow::Result<()> {
    let mut target = Target::start_with(impatient()).await?;
    let bystander = Bystander::start(&target.tsdb).await?;
    let mut clients = JoinSet::new();
    for _ in 0..8 {
        let mut stream = TcpStream::connect(target.tsdb.http_address()).await?;
        clients.spawn(async move {
            let lines = b"stats\n".repeat(1000);
            while stream.write_all(&lines).await.is_ok() {}
        });
    }
    let cut_off = async {
        while let Some(ended) = clients.join_next().await {
            ended?;
        }
        anyhow::Ok(())
    };
    timeout(UNREAD + BOUND, cut_off)
        .await
        .context("a client that reads nothing is still connected")??;
    bystander.finish(BOUND).await?;
    ensure!(
        target.memory.peak() <= MOST_BYTES,
        "more than {LIMIT_MIB} MiB + 20 %"
    );
    target.check_unharmed().await
}
