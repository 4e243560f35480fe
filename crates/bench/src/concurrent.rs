//! Dashboards that query at the same time: throughput and times by the number of clients.
//!
//! Each client has a connection and sends the next query when the last one was answered. A dashboard has four panels: all
//! hosts of a metric, the same by dc, one rack, and one host raw.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use comfy_table::Table;
use tokio::task::JoinSet;

use crate::ingest::{self, http::Connection};
use crate::process::Server;
use crate::report::ms;
use crate::workload::{Order, START_SECONDS, STEP_SECONDS, Shape, Workload};

/// Dashboards' queries of an hour by many clients at a time, over HTTP.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Folder of the server's data during the run; default: a temporary one.
    #[arg(long)]
    folder: Option<PathBuf>,
    /// Numbers of clients, each measured in turn.
    #[arg(long, value_delimiter = ',', default_values_t = [8, 500])]
    clients: Vec<u32>,
    /// Seconds that each number of clients is measured for.
    #[arg(long, default_value_t = 20)]
    seconds: u64,
    /// How often all numbers are measured.
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    /// Hosts, each with 10 series.
    #[arg(long, default_value_t = 1000)]
    hosts: u32,
}

/// The measurements of the clients.
#[derive(Debug, Default)]
struct Measured {
    times: Vec<Duration>,
    /// Responses with another status than 200, and the first of them.
    failed: usize,
    failure: Option<String>,
}

/// Writes the workload, starts the server anew, and measures.
pub(crate) async fn run(program: PathBuf, arguments: Arguments) -> anyhow::Result<()> {
    let temporary = tempfile::tempdir()?;
    let folder = arguments.folder.as_deref().unwrap_or(temporary.path());
    let folder = folder.join("concurrent");
    std::fs::create_dir_all(&folder)?;
    let shape = Shape {
        hosts: arguments.hosts,
        metrics: 10,
        steps: 360,
        step_seconds: STEP_SECONDS,
        start_seconds: START_SECONDS,
    };
    let server = Server::start(&program, &folder)?;
    let streams = ingest::stream::encode(&Workload::new(shape), Order::Time { points: 1000 });
    ingest::stream::send(server.data, &streams).await?;
    server.stop()?;
    let server = Server::start(&program, &folder)?;

    let mut table = Table::new();
    table.set_header([
        "clients",
        "queries/s",
        "median / p99 / longest",
        "failed",
        "CPU ms per query",
        "memory MiB",
    ]);
    // The first one warms up and does not count.
    measure(server.http, shape, 8, Duration::from_secs(3)).await?;
    for _ in 0..arguments.rounds {
        for clients in &arguments.clients {
            let (before, began) = (server.usage()?, Instant::now());
            let time = Duration::from_secs(arguments.seconds);
            let Measured {
                mut times,
                failed,
                failure,
            } = measure(server.http, shape, *clients, time).await?;
            let (after, elapsed) = (server.usage()?, began.elapsed());
            times.sort_unstable();
            let queries = times.len() as f64;
            let at = |percent: usize| times.get(times.len() * percent / 100).or(times.last());
            let quantiles =
                [at(50), at(99), times.last()].map(|time| time.map_or("–".to_owned(), |time| ms(*time)));
            table.add_row([
                clients.to_string(),
                format!("{:.0}", queries / elapsed.as_secs_f64()),
                quantiles.join(" / "),
                failed.to_string(),
                format!("{:.2}", (after.cpu_seconds - before.cpu_seconds) * 1e3 / queries),
                (after.memory >> 20).to_string(),
            ]);
            if let Some(failure) = failure {
                eprintln!("{clients} clients: {failure}");
            }
        }
    }
    println!("{table}");
    println!(
        "peak memory of the server: {} MiB",
        server.usage()?.peak_memory >> 20
    );
    server.stop()
}

/// Lets clients query for some time.
async fn measure(server: SocketAddr, shape: Shape, clients: u32, time: Duration) -> anyhow::Result<Measured> {
    let until = Instant::now() + time;
    let mut tasks = JoinSet::new();
    for client in 0..clients {
        tasks.spawn(look(server, shape, client, until));
    }
    let mut all = Measured::default();
    while let Some(measured) = tasks.join_next().await {
        let measured = measured??;
        all.times.extend(measured.times);
        all.failed += measured.failed;
        all.failure = all.failure.or(measured.failure);
    }
    Ok(all)
}

/// One client: panel after panel.
async fn look(server: SocketAddr, shape: Shape, client: u32, until: Instant) -> anyhow::Result<Measured> {
    let mut connection = Connection::open(server).await?;
    let mut measured = Measured::default();
    let (start, end) = (shape.start_seconds, shape.seconds(shape.steps as usize) - 1);
    for round in client.. {
        let metric = format!("bench.metric{:02}", round / 4 % shape.metrics);
        let panel = match round % 4 {
            0 => format!("sum:1m-avg:{metric}"),
            1 => format!("max:5m-max:{metric}%7Bdc=*%7D"),
            2 => format!("avg:1m-avg:{metric}%7Brack=rack{:02}%7D", round / 4 % 50),
            _ => format!("sum:{metric}%7Bhost=host{:05}%7D", round * 7919 % shape.hosts),
        };
        let began = Instant::now();
        if began >= until {
            break;
        }
        let path = format!("/api/query?start={start}&end={end}&m={panel}");
        let (status, body) = connection.get(&path).await?;
        measured.times.push(began.elapsed());
        if status != 200 {
            measured.failed += 1;
            let text = || format!("{path}: {status}: {}", String::from_utf8_lossy(&body));
            measured.failure.get_or_insert_with(text);
        }
    }
    Ok(measured)
}
