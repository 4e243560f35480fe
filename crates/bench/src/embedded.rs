//! `tsdb serve` on its embedded store: the workload through each front end, queries, and a crash.
//!
//! A front end sends consecutive hours until points were flushed to parts ten times, so that flushes and merges are
//! part of what is measured. A point counts once it is acknowledged, which is after its sync to disk.

use std::future::Future;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use clap::{Args, ValueEnum};
use comfy_table::Table;

use crate::process::{Server, Usage, own_usage};
use crate::report::{ms, thousands};
use crate::workload::{Order, START_SECONDS, STEP_SECONDS, Shape, Workload};
use crate::{disk, ingest, queries};

/// Most hours that are sent to reach the flushes.
const MOST_HOURS: u32 = 1000;

/// The embedded store alone.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Folder of the server's data during the run; default: a temporary one.
    #[arg(long)]
    folder: Option<PathBuf>,
    /// Front ends to measure, separated by commas.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [FrontEnd::Stream, FrontEnd::Client, FrontEnd::Write, FrontEnd::Http, FrontEnd::Telnet])]
    front_ends: Vec<FrontEnd>,
    /// Hosts, each with 10 series.
    #[arg(long, default_value_t = 1000)]
    hosts: u32,
    /// Points of each series in an hour; more than one: 10 s apart.
    #[arg(long, default_value_t = 360)]
    steps: u32,
    /// Hours are sent until points were flushed so often, at least one hour.
    #[arg(long, default_value_t = 10)]
    flushes: u64,
    /// Runs of each query; 0: no queries.
    #[arg(long, default_value_t = 50)]
    query_runs: usize,
    /// Points to write before the crash whose recovery is timed, at least; 0: no crash.
    #[arg(long, default_value_t = 10_000_000)]
    crash_after: usize,
    /// One hour of 100 hosts, few queries, a crash: shows that everything runs; its figures mean nothing.
    #[arg(long)]
    quick: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum FrontEnd {
    /// gRPC WriteStream, frames of 1,000 points of as many series.
    Stream,
    /// gRPC WriteStream by oxtsdb-client, which encodes while the clock runs.
    Client,
    /// gRPC Write, 1,000 points a call.
    Write,
    /// POST /api/put, 500 points a request.
    Http,
    /// Telnet put.
    Telnet,
}

/// Cost of sending hours.
#[derive(Clone, Copy, Debug, Default)]
struct Sent {
    points: usize,
    wall: Duration,
    server: f64,
    generator: f64,
    written_bytes: u64,
    /// The longest time of an acknowledgement; over telnet, that the server did not read on.
    longest: Option<Duration>,
}

impl Sent {
    fn add(&mut self, other: &Self) {
        self.points += other.points;
        self.wall += other.wall;
        self.server += other.server;
        self.generator += other.generator;
        self.written_bytes += other.written_bytes;
        self.longest = self.longest.max(other.longest);
    }
}

/// Runs the benchmark and prints its tables.
pub(crate) async fn run(program: PathBuf, arguments: Arguments) -> anyhow::Result<()> {
    let mut arguments = arguments;
    if arguments.quick {
        (arguments.hosts, arguments.flushes) = (100, 0);
        (arguments.query_runs, arguments.crash_after) = (3, 1_000_000);
    }
    let temporary = tempfile::tempdir()?;
    let folder = arguments
        .folder
        .clone()
        .unwrap_or_else(|| temporary.path().to_owned());
    std::fs::create_dir_all(&folder)?;

    let (sync_median, sync_p99) = disk::sync_times(&folder)?;
    println!(
        "disk: 4 KiB and fdatasync takes {} (median), {} (p99)",
        ms(sync_median),
        ms(sync_p99)
    );
    let shape = Shape {
        hosts: arguments.hosts,
        metrics: 10,
        steps: arguments.steps,
        step_seconds: STEP_SECONDS,
        start_seconds: START_SECONDS,
    };
    println!(
        "workload: {} series, {} points an hour, until {} flushes\n",
        shape.series(),
        shape.points(),
        arguments.flushes
    );

    let mut ingest = Table::new();
    ingest.set_header([
        "front end",
        "points",
        "flushes",
        "points/s",
        "server s/Mpt",
        "generator s/Mpt",
        "written B/pt",
        "on disk B/pt",
        "longest ack",
        "peak MiB",
        "start ms",
        "first contact s",
    ]);
    let mut reads = Table::new();
    reads.set_header([
        "after",
        "from",
        "query",
        "points",
        "HTTP median / p99",
        "gRPC median / p99",
    ]);
    for front_end in &arguments.front_ends {
        let name = front_end
            .to_possible_value()
            .context("every front end has a name")?
            .get_name()
            .to_owned();
        let folder = folder.join(&name);
        let server = Server::start(&program, &folder)?;
        let flushes_before = server.flushes()?;
        let first_contact = first_contact(&server, shape).await?;
        let (sent, last) = send_hours(*front_end, &server, shape, arguments.flushes).await?;
        let (peak, flushes) = (server.usage()?.peak_memory, server.flushes()? - flushes_before);
        if arguments.query_runs > 0 {
            let place = [name.clone(), "memory".to_owned()];
            measure_queries(&place, &server, last, arguments.query_runs, &mut reads).await?;
        }
        let start_time = server.start_time;
        // A stop flushes. The size is read after a new start, when no file is partly written.
        server.stop()?;
        let server = Server::start(&program, &folder)?;
        let bytes = server.disk_bytes()?;
        if arguments.query_runs > 0 {
            let place = [name.clone(), "parts".to_owned()];
            measure_queries(&place, &server, last, arguments.query_runs, &mut reads).await?;
        }
        server.stop()?;
        std::fs::remove_dir_all(&folder)?;
        let points = sent.points as f64;
        ingest.add_row([
            name,
            thousands(points),
            flushes.to_string(),
            thousands(points / sent.wall.as_secs_f64()),
            format!("{:.3}", sent.server / points * 1e6),
            format!("{:.3}", sent.generator / points * 1e6),
            format!("{:.2}", sent.written_bytes as f64 / points),
            format!("{:.2}", bytes as f64 / (points + shape.series() as f64)),
            sent.longest.map_or_else(|| "–".to_owned(), ms),
            format!("{}", peak >> 20),
            format!("{:.0}", start_time.as_secs_f64() * 1e3),
            format!("{:.2}", first_contact.as_secs_f64()),
        ]);
    }
    println!("{ingest}");
    println!("first contact: one point of each series, all of them new, 1,000 points a call");
    println!("written: to all files while the points were sent; on disk: all files after an orderly stop");
    println!(
        "longest ack: of a frame, call or request; over telnet, the longest time that lines were not read\n"
    );
    if arguments.query_runs > 0 {
        println!("{reads}");
        println!(
            "the last hour, from memory before a flush, and from parts after an orderly stop and a start\n"
        );
    }
    if arguments.crash_after > 0 {
        measure_crash(&program, &folder.join("crash"), shape, arguments.crash_after).await?;
    }
    Ok(())
}

/// Writes one point, an hour before the workload, of each series of an empty store.
async fn first_contact(server: &Server, shape: Shape) -> anyhow::Result<Duration> {
    let one = Workload::new(Shape {
        steps: 1,
        start_seconds: shape.start_seconds - 7200,
        ..shape
    });
    let calls = ingest::write::encode(&one, Order::Time { points: 1000 });
    let started = Instant::now();
    ingest::write::send(server.data, &calls).await?;
    Ok(started.elapsed())
}

/// Sends consecutive hours, encoded while the clock stands; returns the last one. No flush interrupted it, unless
/// an hour is large enough to cause one each time.
async fn send_hours(
    front_end: FrontEnd,
    server: &Server,
    shape: Shape,
    flushes: u64,
) -> anyhow::Result<(Sent, Shape)> {
    let first = server.flushes()?;
    let mut sent = Sent::default();
    for hour in 0..MOST_HOURS {
        let shape = Shape {
            start_seconds: shape.start_seconds + hour * 3600,
            ..shape
        };
        let before = server.flushes()?;
        sent.add(&send(front_end, server, &Arc::new(Workload::new(shape))).await?);
        let after = server.flushes()?;
        let wanted = first + flushes;
        if after >= wanted && (after == before || before >= wanted) {
            return Ok((sent, shape));
        }
    }
    bail!("{MOST_HOURS} hours were sent and there were no {flushes} flushes");
}

async fn send(front_end: FrontEnd, server: &Server, workload: &Arc<Workload>) -> anyhow::Result<Sent> {
    let order = |points| Order::Time { points };
    let sent = match front_end {
        FrontEnd::Stream => {
            let streams = ingest::stream::encode(workload, order(1000));
            let sending = async { Ok(Some(ingest::stream::send(server.data, &streams).await?)) };
            measured(server, sending).await
        }
        FrontEnd::Client => {
            let sending = async {
                ingest::client::send(server.data, workload, order(1000)).await?;
                Ok(None)
            };
            measured(server, sending).await
        }
        FrontEnd::Write => {
            let calls = ingest::write::encode(workload, order(1000));
            let sending = async { Ok(Some(ingest::write::send(server.data, &calls).await?)) };
            measured(server, sending).await
        }
        FrontEnd::Http => {
            let requests = ingest::http::encode(workload, order(500));
            let sending = async { Ok(Some(ingest::http::send(server.http, &requests).await?)) };
            measured(server, sending).await
        }
        FrontEnd::Telnet => {
            let lines = ingest::telnet::encode(workload, order(500));
            let sending = async {
                let sent = ingest::telnet::send(server.http, &lines).await?;
                ensure!(sent.rejected == 0, "{} lines were rejected", sent.rejected);
                Ok(Some(sent.longest))
            };
            measured(server, sending).await
        }
    };
    let points = workload.shape.points();
    Ok(Sent { points, ..sent? })
}

async fn measured(
    server: &Server,
    sending: impl Future<Output = anyhow::Result<Option<Duration>>>,
) -> anyhow::Result<Sent> {
    let used = |usage: (Usage, Usage)| usage.1.cpu_seconds - usage.0.cpu_seconds;
    let (server_before, own_before, started) = (server.usage()?, own_usage()?, Instant::now());
    let longest = sending.await?;
    let wall = started.elapsed();
    let server_after = server.usage()?;
    Ok(Sent {
        points: 0,
        wall,
        server: used((server_before, server_after)),
        generator: used((own_before, own_usage()?)),
        written_bytes: server_after.written_bytes - server_before.written_bytes,
        longest,
    })
}

async fn measure_queries(
    place: &[String; 2],
    server: &Server,
    shape: Shape,
    runs: usize,
    table: &mut Table,
) -> anyhow::Result<()> {
    for query in queries::all(shape) {
        let http = query.time_http(server.http, runs).await?;
        let grpc = query.time_grpc(server.data, runs).await?;
        for timing in [http, grpc] {
            ensure!(
                timing.points == query.expected,
                "{} returned {} points, expected {}",
                query.name,
                timing.points,
                query.expected
            );
        }
        table.add_row([
            place[0].clone(),
            place[1].clone(),
            query.name.to_owned(),
            http.points.to_string(),
            format!("{} / {}", ms(http.median), ms(http.p99)),
            format!("{} / {}", ms(grpc.median), ms(grpc.p99)),
        ]);
    }
    Ok(())
}

/// Writes consecutive hours through the stream, kills the server, and times its next start.
async fn measure_crash(program: &Path, folder: &Path, shape: Shape, points: usize) -> anyhow::Result<()> {
    let server = Server::start(program, folder)?;
    let mut written = 0;
    let mut hour = 0;
    while written < points {
        let workload = Workload::new(Shape {
            start_seconds: shape.start_seconds + hour * 3600,
            ..shape
        });
        ingest::stream::send(
            server.data,
            &ingest::stream::encode(&workload, Order::Time { points: 1000 }),
        )
        .await?;
        written += shape.points();
        hour += 1;
    }
    let server = server.crash_and_restart()?;
    println!(
        "kill -9 after {} points: ready again within {}",
        thousands(written as f64),
        ms(server.start_time)
    );
    let last = Shape {
        start_seconds: shape.start_seconds + (hour - 1) * 3600,
        ..shape
    };
    count_all(server.data, last).await?;
    server.stop()
}

/// Checks that every acknowledged point of the last hour before the crash is stored.
async fn count_all(server: SocketAddr, shape: Shape) -> anyhow::Result<()> {
    for query in queries::all(shape) {
        let timing = query.time_grpc(server, 1).await?;
        ensure!(
            timing.points == query.expected,
            "{} lost points in the crash",
            query.name
        );
    }
    Ok(())
}
