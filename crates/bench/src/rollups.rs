//! A long range of one metric, answered from its points and from hourly rollups that were built of them.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use clap::Args;
use comfy_table::Table;

use oxtsdb_client::DataClient;
use oxtsdb_proto::common::v1::{TimeRange, time_range};
use oxtsdb_proto::data::v1::BuildRollupsRequest;
use serde_json::{Value, json};
use tokio_stream::StreamExt as _;

use crate::answer::Answer;
use crate::ingest;
use crate::ingest::http::Connection;
use crate::process::Server;
use crate::report::{ms, thousands};
use crate::workload::{Order, START_SECONDS, Shape, Workload};

const METRIC: &str = "bench.metric00";
const DAY_SECONDS: u32 = 86_400;
const STEP_SECONDS: u32 = 60;

/// The numbers of OpenTSDB's documentation.
const CONFIG: &str = r#"{"aggregationIds": {"sum": 0, "count": 1, "min": 2, "max": 3}, "intervals": [
    {"table": "tsdb", "preAggregationTable": "tsdb-agg-1m", "interval": "1m", "rowSpan": "1h", "defaultInterval": true},
    {"table": "tsdb-rollup-1h", "preAggregationTable": "tsdb-agg-1h", "interval": "1h", "rowSpan": "1d"}]}"#;

/// A point a minute of each series, answered from points and from hourly rollups: times, and whether the numbers are equal.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Folder of the server's data during the run; default: a temporary one.
    #[arg(long)]
    folder: Option<PathBuf>,
    /// Series of the metric.
    #[arg(long, default_value_t = 1000)]
    series: u32,
    /// Days.
    #[arg(long, default_value_t = 365)]
    days: u32,
    /// Runs of each query after the first one.
    #[arg(long, default_value_t = 5)]
    runs: usize,
}

/// Writes the points, builds the rollups and runs the queries.
pub(crate) async fn run(program: PathBuf, arguments: Arguments) -> anyhow::Result<()> {
    let temporary = tempfile::tempdir()?;
    let folder = arguments
        .folder
        .clone()
        .unwrap_or_else(|| temporary.path().to_owned())
        .join("rollups");
    std::fs::create_dir_all(&folder)?;
    let data_dir = folder.to_str().context("the folder's name is text")?.to_owned();
    let flags = ["--data-dir", &data_dir, "--rollups-config", CONFIG].map(str::to_owned);
    let server = Server::start_with(&program, &folder, &flags)?;
    let points = write(&server, &arguments).await?;
    println!("{} series, {} points", arguments.series, thousands(points));
    build(&server, arguments.days).await?;

    let mut table = Table::new();
    table.set_header([
        "downsampling",
        "points: median",
        "CPU ms",
        "rollups: median",
        "CPU ms",
        "ratio",
        "values",
        "results",
    ]);
    for interval in ["1h", "6h", "1d"] {
        for function in ["sum", "avg", "max", "count"] {
            let downsample = format!("{interval}-{function}");
            let raw = measure(&server, &downsample, "ROLLUP_RAW", &arguments).await?;
            let rollups = measure(&server, &downsample, "ROLLUP_NOFALLBACK", &arguments).await?;
            let verdict = if raw.answer.equals(rollups.answer) {
                "equal"
            } else {
                "different"
            };
            table.add_row([
                downsample,
                ms(raw.median),
                format!("{:.1}", raw.cpu_ms),
                ms(rollups.median),
                format!("{:.1}", rollups.cpu_ms),
                format!("{:.1}", raw.median.as_secs_f64() / rollups.median.as_secs_f64()),
                thousands(rollups.answer.points as f64),
                verdict.to_owned(),
            ]);
        }
    }
    println!("{table}");
    println!(
        "sum of all series over HTTP; ratio: time of the query over points divided by that over rollups"
    );
    server.stop()?;
    Ok(())
}

/// Writes a day at a time; returns the number of points.
async fn write(server: &Server, arguments: &Arguments) -> anyhow::Result<f64> {
    let (mut points, started) = (0, Instant::now());
    for day in 0..arguments.days {
        let workload = Workload::new(Shape {
            hosts: arguments.series,
            metrics: 1,
            steps: DAY_SECONDS / STEP_SECONDS,
            step_seconds: STEP_SECONDS,
            start_seconds: start(arguments.days) + day * DAY_SECONDS,
        });
        points += workload.shape.points();
        let streams = ingest::stream::encode(&workload, Order::Time { points: 1000 });
        ingest::stream::send(server.data, &streams).await?;
    }
    println!("points written in {:.1} s", started.elapsed().as_secs_f64());
    Ok(points as f64)
}

async fn build(server: &Server, days: u32) -> anyhow::Result<()> {
    let started = Instant::now();
    let before = server.usage()?;
    let client = DataClient::connect(&format!("http://{}", server.data))?;
    let ms = |seconds: u32| i64::from(seconds) * 1000;
    let request = BuildRollupsRequest {
        metric: METRIC.to_owned(),
        range: Some(TimeRange {
            start: Some(time_range::Start::StartMs(ms(start(days)))),
            end: Some(time_range::End::EndMs(ms(START_SECONDS))),
        }),
        ..BuildRollupsRequest::default()
    };
    let mut messages = client.without_deadline().build_rollups(request);
    let mut cells = None;
    while let Some(progress) = messages.try_next().await? {
        cells = progress.done.then_some(progress.cells_written);
    }
    let cells = cells.context("the rollups are incomplete")?;
    println!(
        "{} cells of rollups built in {:.1} s, {:.1} s of processor time",
        thousands(cells as f64),
        started.elapsed().as_secs_f64(),
        server.usage()?.cpu_seconds - before.cpu_seconds
    );
    Ok(())
}

/// The first timestamp: rollups of the future are not built.
const fn start(days: u32) -> u32 {
    START_SECONDS - days * DAY_SECONDS
}

struct Measured {
    median: Duration,
    cpu_ms: f64,
    answer: Answer,
}

async fn measure(
    server: &Server,
    downsample: &str,
    usage: &str,
    arguments: &Arguments,
) -> anyhow::Result<Measured> {
    let query = json!({
        "start": start(arguments.days),
        "end": START_SECONDS - 1,
        "queries": [{"metric": METRIC, "aggregator": "sum", "downsample": downsample, "rollupUsage": usage}],
    });
    let answer = ask(server.http, &query).await?;
    let before = server.usage()?;
    let mut times = Vec::with_capacity(arguments.runs);
    for _ in 0..arguments.runs {
        let started = Instant::now();
        ask(server.http, &query).await?;
        times.push(started.elapsed());
    }
    times.sort();
    let cpu_seconds = server.usage()?.cpu_seconds - before.cpu_seconds;
    Ok(Measured {
        median: *times.get(times.len() / 2).context("--runs is at least 1")?,
        cpu_ms: cpu_seconds * 1000.0 / times.len() as f64,
        answer,
    })
}

async fn ask(server: SocketAddr, query: &Value) -> anyhow::Result<Answer> {
    let body = query.to_string();
    let request = format!(
        "POST /api/query HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut connection = Connection::open(server).await?;
    let (status, body) = connection.exchange(request.as_bytes()).await?;
    ensure!(status == 200, "{status}: {}", String::from_utf8_lossy(&body));
    Answer::from_response(&serde_json::from_slice(&body)?)
}
