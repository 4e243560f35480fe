//! `tsdb serve` on its embedded store: the workload through each front end, queries, and a crash.
//!
//! A point counts once it is acknowledged, which is after its sync to disk.

use std::future::Future;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use clap::{Args, ValueEnum};
use comfy_table::Table;

use crate::process::{Server, Usage, own_usage};
use crate::report::{ms, thousands};
use crate::workload::{Order, START_SECONDS, Shape, Workload};
use crate::{disk, ingest, queries};

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

/// Cost of sending the workload.
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
        start_seconds: START_SECONDS,
    };
    let workload = Arc::new(Workload::new(shape));
    println!("workload: {} series, {} points\n", shape.series(), shape.points());

    let mut ingest = Table::new();
    ingest.set_header([
        "front end",
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
        "after",
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
        let server = Server::start(&program, &folder.join(&name))?;
        let first_contact = first_contact(&server, shape).await?;
        let sent = send(*front_end, &server, &workload).await?;
        let peak = server.usage()?.peak_memory;
        if arguments.query_runs > 0 {
            measure_queries(&name, &server, shape, arguments.query_runs, &mut reads).await?;
        }
        let start_time = server.start_time;
        let folder = folder.join(&name);
        // A stop flushes. The size is read after a new start, when no file is partly written.
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
    println!("first contact: one point of each series, all of them new, 1,000 points a call");
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
    let calls = ingest::write::encode(&one, Order::Time { points: 1000 });
    let started = Instant::now();
    ingest::write::send(server.data, &calls).await?;
    Ok(started.elapsed())
}

async fn send(front_end: FrontEnd, server: &Server, workload: &Arc<Workload>) -> anyhow::Result<Sent> {
    match front_end {
        FrontEnd::Stream => {
            let streams = ingest::stream::encode(workload, Order::Time { points: 1000 });
            measured(server, ingest::stream::send(server.data, &streams)).await
        }
        FrontEnd::Client => {
            let order = Order::Time { points: 1000 };
            measured(server, ingest::client::send(server.data, workload, order)).await
        }
        FrontEnd::Write => {
            let calls = ingest::write::encode(workload, Order::Time { points: 1000 });
            measured(server, ingest::write::send(server.data, &calls)).await
        }
        FrontEnd::Http => {
            let requests = ingest::http::encode(workload, Order::Time { points: 500 });
            measured(server, ingest::http::send(server.http, &requests)).await
        }
        FrontEnd::Telnet => {
            let lines = ingest::telnet::encode(workload, Order::Time { points: 500 });
            let sending = async {
                let rejected = ingest::telnet::send(server.http, &lines).await?;
                anyhow::ensure!(rejected == 0, "{rejected} lines were rejected");
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
    front_end: &str,
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
            front_end.to_owned(),
            query.name.to_owned(),
            http.points.to_string(),
            format!("{} / {}", ms(http.median), ms(http.p99)),
            format!("{} / {}", ms(grpc.median), ms(grpc.p99)),
        ]);
    }
    Ok(())
}

/// Writes consecutive hours through the stream, kills the server, and times its next start.
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
