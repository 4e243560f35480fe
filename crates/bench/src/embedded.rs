//! `tsdb serve` on its embedded store: the workload through each door, queries, and a crash.
//!
//! A point counts when it is acknowledged, and it is acknowledged when it is synced to disk.

use std::future::Future;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use clap::{Args, ValueEnum};
use comfy_table::Table;

use crate::process::{Server, Usage, own_usage};
use crate::report::{ms, thousands};
use crate::workload::{Order, Shape, Workload};
use crate::{disk, doors, queries};

/// The embedded store by itself.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Where the server keeps its data during the run; default: a temporary folder.
    #[arg(long)]
    folder: Option<PathBuf>,
    /// Doors to measure, separated by commas.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Door::Stream, Door::Write, Door::Http, Door::Telnet])]
    doors: Vec<Door>,
    /// Hosts, each with 10 series.
    #[arg(long, default_value_t = 1000)]
    hosts: u32,
    /// Points of each series, 10 s apart.
    #[arg(long, default_value_t = 360)]
    steps: u32,
    /// Runs of each query; 0: no queries.
    #[arg(long, default_value_t = 50)]
    query_runs: usize,
    /// Points to write before the crash whose recovery is timed, at least; 0: no crash.
    #[arg(long, default_value_t = 10_000_000)]
    crash_after: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Door {
    /// gRPC WriteStream, frames of 1,000 points of as many series.
    Stream,
    /// gRPC Write, 1,000 points a call.
    Write,
    /// POST /api/put, 500 points a request.
    Http,
    /// Telnet put.
    Telnet,
}

/// What sending the workload took.
#[derive(Clone, Copy, Debug)]
struct Sent {
    wall: Duration,
    server: f64,
    generator: f64,
}

/// Runs the benchmark and prints its tables.
pub(crate) async fn run(program: PathBuf, arguments: Arguments) -> anyhow::Result<()> {
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
        start_seconds: crate::START_SECONDS,
    };
    let workload = Workload::new(shape);
    println!("workload: {} series, {} points\n", shape.series(), shape.points());

    let mut ingest = Table::new();
    ingest.set_header([
        "door",
        "points/s",
        "server s/Mpt",
        "generator s/Mpt",
        "bytes/point",
        "peak MiB",
        "start ms",
        "first contact s",
    ]);
    let mut reads = Table::new();
    reads.set_header([
        "after door",
        "query",
        "points",
        "HTTP median / p99",
        "gRPC median / p99",
    ]);
    for door in &arguments.doors {
        let name = door
            .to_possible_value()
            .context("doors have names")?
            .get_name()
            .to_owned();
        let server = Server::start(&program, &folder.join(&name))?;
        let first_contact = first_contact(&server, shape).await?;
        let sent = send(*door, &server, &workload).await?;
        let peak = server.usage()?.peak_memory;
        if arguments.query_runs > 0 {
            measure_queries(&name, &server, shape, arguments.query_runs, &mut reads).await?;
        }
        let start_time = server.start_time;
        let folder = folder.join(&name);
        // A stop flushes; a start is needed to ask for the size while nothing is half written.
        server.stop()?;
        let server = Server::start(&program, &folder)?;
        let bytes = server.disk_bytes()?;
        server.stop()?;
        std::fs::remove_dir_all(&folder)?;
        let points = shape.points() as f64;
        ingest.add_row([
            name,
            thousands(points / sent.wall.as_secs_f64()),
            format!("{:.3}", sent.server / points * 1e6),
            format!("{:.3}", sent.generator / points * 1e6),
            format!("{:.2}", bytes as f64 / (points + shape.series() as f64)),
            format!("{}", peak >> 20),
            format!("{:.0}", start_time.as_secs_f64() * 1e3),
            format!("{:.2}", first_contact.as_secs_f64()),
        ]);
    }
    println!("{ingest}");
    println!("first contact: a point of each series, all of them new, 1,000 points a call");
    println!("bytes/point: all files after an orderly stop, UIDs and empty journals too\n");
    if arguments.query_runs > 0 {
        println!("{reads}\n");
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
    let calls = doors::write::encode(&one, Order::Time { points: 1000 });
    let started = Instant::now();
    doors::write::send(server.data, &calls).await?;
    Ok(started.elapsed())
}

async fn send(door: Door, server: &Server, workload: &Workload) -> anyhow::Result<Sent> {
    match door {
        Door::Stream => {
            let streams = doors::stream::encode(workload, Order::Time { points: 1000 });
            measured(server, doors::stream::send(server.data, &streams)).await
        }
        Door::Write => {
            let calls = doors::write::encode(workload, Order::Time { points: 1000 });
            measured(server, doors::write::send(server.data, &calls)).await
        }
        Door::Http => {
            let requests = doors::http::encode(workload, Order::Time { points: 500 });
            measured(server, doors::http::send(server.http, &requests)).await
        }
        Door::Telnet => {
            let lines = doors::telnet::encode(workload, Order::Time { points: 500 });
            let sending = async {
                let refused = doors::telnet::send(server.http, &lines).await?;
                anyhow::ensure!(refused == 0, "{refused} lines were refused");
                Ok(())
            };
            measured(server, sending).await
        }
    }
}

async fn measured(
    server: &Server,
    sending: impl Future<Output = anyhow::Result<()>>,
) -> anyhow::Result<Sent> {
    let used = |usage: (Usage, Usage)| usage.1.cpu_seconds - usage.0.cpu_seconds;
    let (server_before, own_before, started) = (server.usage()?, own_usage()?, Instant::now());
    sending.await?;
    let wall = started.elapsed();
    Ok(Sent {
        wall,
        server: used((server_before, server.usage()?)),
        generator: used((own_before, own_usage()?)),
    })
}

async fn measure_queries(
    door: &str,
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
                "{} gave {} points, expected {}",
                query.name,
                timing.points,
                query.expected
            );
        }
        table.add_row([
            door.to_owned(),
            query.name.to_owned(),
            http.points.to_string(),
            format!("{} / {}", ms(http.median), ms(http.p99)),
            format!("{} / {}", ms(grpc.median), ms(grpc.p99)),
        ]);
    }
    Ok(())
}

/// Writes hour after hour through the stream, kills the server, and times its next start.
async fn measure_crash(
    program: &std::path::Path,
    folder: &std::path::Path,
    shape: Shape,
    points: usize,
) -> anyhow::Result<()> {
    let server = Server::start(program, folder)?;
    let mut written = 0;
    let mut hour = 0;
    while written < points {
        let workload = Workload::new(Shape {
            start_seconds: shape.start_seconds + hour * 3600,
            ..shape
        });
        doors::stream::send(
            server.data,
            &doors::stream::encode(&workload, Order::Time { points: 1000 }),
        )
        .await?;
        written += shape.points();
        hour += 1;
    }
    let server = server.crash_and_restart()?;
    println!(
        "kill -9 after {} points: serving again within {}",
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

/// Every acknowledged point of the last hour before the crash must be there.
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
