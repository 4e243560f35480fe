//! Messages over the limit are rejected, large ones within it succeed, and neither takes memory without
//! bound.

use std::io::Write as _;

use anyhow::{Context as _, ensure};
use flate2::Compression;
use flate2::write::GzEncoder;
use oxtsdb_proto::common::v1::ErrorReason;
use oxtsdb_proto::data::v1::AggregateFunction;
use oxtsdb_proto::data::v1::columns::{Block, SeriesDeclaration};
use oxtsdb_proto::data::v1::{Columns, DeltaTimestamps, QueryRequest, WriteColumnsRequest, WriteRequest};
use oxtsdb_proto::error::reason_of;
use oxtsdb_tests::read_back::{self, always, call_error, series_of, sub_query};
use oxtsdb_tests::sample::{Number, Sample};
use oxtsdb_tests::write_requests::{columns_request, write_request};
use oxtsdb_tests::{PATIENCE, Tsdb};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tonic::Code;

const T: i64 = 1_500_000_000_000;
const MIB: usize = 1 << 20;

/// The most memory of a server after hundreds of megabytes of messages. Its caches and write
/// buffers are bounded far below that.
const MEMORY: u64 = 800 << 20;

fn sample(host: &str) -> Sample {
    Sample::int("big", &[("host", host)], T, 1)
}

async fn still_works(tsdb: &mut Tsdb) -> anyhow::Result<()> {
    ensure!(
        tsdb.data()
            .write(write_request([&sample("after")]))
            .await?
            .into_inner()
            .written
            == 1
    );
    let peak = tsdb.process().peak_memory()?;
    ensure!(peak < MEMORY, "the server had {} MiB", peak >> 20);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn rejects_grpc_messages_over_the_limit() -> anyhow::Result<()> {
    let mut tsdb = Tsdb::start().await?;
    let long = "x".repeat(4000);
    let one = write_request([&sample(&long)]);
    let request = WriteRequest {
        series: vec![one.series[0].clone(); 5000],
        ..one
    };
    // Several at once, 20 MB each.
    let calls = (0..8).map(|_| {
        let (mut client, request) = (tsdb.data(), request.clone());
        async move { client.write(request).await }
    });
    for answer in futures::future::join_all(calls).await {
        let status = call_error(answer)?;
        assert_eq!(status.code(), Code::ResourceExhausted, "{status:?}");
        assert_eq!(
            reason_of(&status),
            Some(ErrorReason::MessageTooLarge),
            "{status:?}"
        );
    }
    still_works(&mut tsdb).await
}

/// `count` points of one series, a second apart.
fn columns(count: usize) -> anyhow::Result<WriteColumnsRequest> {
    let numbers = 0..i64::try_from(count)?;
    let timestamps: Vec<i64> = numbers.clone().map(|number| T + number * 1000).collect();
    Ok(columns_request(Columns {
        new_symbols: ["big.columns", "host", "a"].map(str::to_owned).to_vec(),
        new_series: vec![SeriesDeclaration {
            metric_symbol: 0,
            tag_symbols: vec![1, 2],
            tsuid: Default::default(),
        }],
        blocks: vec![Block {
            series: vec![0],
            delta_timestamps: DeltaTimestamps::encode(&timestamps),
            int_values: numbers.collect(),
            ..Block::default()
        }],
        ..Columns::default()
    }))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_million_points_are_a_call_and_one_more_is_too_many() -> anyhow::Result<()> {
    let mut tsdb = Tsdb::start().await?;
    let status = call_error(tsdb.data().write_columns(columns(1_000_001)?).await)?;
    assert_eq!(status.code(), Code::InvalidArgument, "{status:?}");
    assert_eq!(reason_of(&status), Some(ErrorReason::BatchTooLarge), "{status:?}");

    let answer = tsdb.data().write_columns(columns(1_000_000)?).await?.into_inner();
    assert_eq!(answer.written, 1_000_000, "{answer:?}");
    // The answer is many times what a client reads as one message.
    let series = series_of(&mut tsdb.data(), "big.columns").await?;
    let points = series.into_values().next().context("a series")?;
    assert_eq!(points.len(), 1_000_000);
    assert!(points.iter().zip(0..).all(|((instant, value), number)| {
        *instant == T + number * 1000 && *value == Number::Int(number)
    }));

    let request = QueryRequest {
        range: Some(always()),
        queries: vec![sub_query("big.columns", AggregateFunction::None)],
        max_scanned_points: 1000,
        ..QueryRequest::default()
    };
    let status = read_back::query_error(&mut tsdb.data(), request).await?;
    assert_eq!(status.code(), Code::ResourceExhausted, "{status:?}");
    assert_eq!(reason_of(&status), Some(ErrorReason::QueryTooLarge), "{status:?}");
    still_works(&mut tsdb).await
}

#[tokio::test(flavor = "multi_thread")]
async fn rejects_an_http_body_over_the_limit_before_reading_it() -> anyhow::Result<()> {
    let mut tsdb = Tsdb::start().await?;
    let mut stream = TcpStream::connect(tsdb.http_address()).await?;
    let head = format!(
        "POST /api/put HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n[",
        4096 * MIB
    );
    stream.write_all(head.as_bytes()).await?;
    assert_eq!(status_of(&mut stream).await?, 413);

    // Without a length it is found out on the way.
    let mut stream = TcpStream::connect(tsdb.http_address()).await?;
    let head = "POST /api/put HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    stream.write_all(head.as_bytes()).await?;
    let mut chunk = format!("{MIB:x}\r\n").into_bytes();
    chunk.extend(vec![b' '; MIB]);
    chunk.extend(b"\r\n");
    for _ in 0..64 {
        // Once it has answered, the server need not read on.
        if stream.write_all(&chunk).await.is_err() {
            break;
        }
    }
    assert_eq!(status_of(&mut stream).await?, 413);
    still_works(&mut tsdb).await
}

/// The status line of an answer. The server may reset the connection after it.
async fn status_of(stream: &mut TcpStream) -> anyhow::Result<u16> {
    let mut line = Vec::new();
    while !line.ends_with(b"\r\n") {
        let byte = tokio::time::timeout(PATIENCE, stream.read_u8())
            .await
            .context("no answer")?
            .context("the connection was closed without an answer")?;
        line.push(byte);
    }
    let line = String::from_utf8(line)?;
    let status = line.split(' ').nth(1).with_context(|| line.clone())?;
    Ok(status.parse()?)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gzip_bomb_stops_at_the_limit() -> anyhow::Result<()> {
    let mut tsdb = Tsdb::start().await?;
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    let zeros = vec![b' '; MIB];
    for _ in 0..512 {
        encoder.write_all(&zeros)?;
    }
    let bomb = encoder.finish()?;
    assert!(bomb.len() < 4 * MIB);
    let calls = (0..4).map(|_| {
        let (http, bomb) = (tsdb.http(), bomb.clone());
        async move {
            http.post_bytes("/api/put", &[("Content-Encoding", "gzip")], bomb)
                .await
        }
    });
    for answer in futures::future::join_all(calls).await {
        assert_eq!(answer?.status, 413);
    }
    still_works(&mut tsdb).await
}
