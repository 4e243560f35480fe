//! Queries over a hundred million points on the embedded store: memory, and time to the first frame.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use comfy_table::Table;

use crate::ingest;
use crate::process::Server;
use crate::queries::{self, Query};
use crate::report::{ms, thousands};
use crate::workload::{Order, START_SECONDS, STEP_SECONDS, Shape, Workload};

/// Queries over a hundred million points of one metric: memory, and time to the first frame.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Folder of the server's data during the run; default: a temporary one.
    #[arg(long)]
    folder: Option<PathBuf>,
    /// Series, each with a point every 10 s.
    #[arg(long, default_value_t = 10_000)]
    series: u32,
    /// Hours.
    #[arg(long, default_value_t = 28)]
    hours: u32,
}

/// Writes the points, then runs each query on a new server.
pub(crate) async fn run(program: PathBuf, arguments: Arguments) -> anyhow::Result<()> {
    let temporary = tempfile::tempdir()?;
    let folder = arguments
        .folder
        .clone()
        .unwrap_or_else(|| temporary.path().to_owned())
        .join("large");
    std::fs::create_dir_all(&folder)?;
    let server = Server::start(&program, &folder)?;
    let whole = Shape {
        hosts: arguments.series,
        metrics: 1,
        steps: arguments.hours * 360,
        step_seconds: STEP_SECONDS,
        start_seconds: START_SECONDS,
    };
    for hour in 0..arguments.hours {
        let workload = Workload::new(Shape {
            steps: 360,
            start_seconds: whole.start_seconds + hour * 3600,
            ..whole
        });
        let streams = ingest::stream::encode(&workload, Order::Time { points: 1000 });
        ingest::stream::send(server.data, &streams).await?;
    }
    server.stop()?;
    println!(
        "{} series, {} points",
        whole.series(),
        thousands(whole.points() as f64)
    );

    let mut table = Table::new();
    table.set_header([
        "query",
        "points returned",
        "first points",
        "all",
        "points read / CPU s",
        "peak MiB of the server",
    ]);
    for query in queries::over_all(whole) {
        // A new server for each query, so that its peak memory is the query's.
        let server = Server::start(&program, &folder)?;
        let idle = server.usage()?;
        let result = run_query(&query, &server).await?;
        let used = server.usage()?;
        table.add_row([
            query.expression().to_owned(),
            thousands(result.points as f64),
            ms(result.first),
            ms(result.all),
            thousands(whole.points() as f64 / (used.cpu_seconds - idle.cpu_seconds)),
            format!("{} (idle {})", used.peak_memory >> 20, idle.peak_memory >> 20),
        ]);
        server.stop()?;
    }
    println!("{table}");
    Ok(())
}

struct Timing {
    points: usize,
    first: Duration,
    all: Duration,
}

async fn run_query(query: &Query, server: &Server) -> anyhow::Result<Timing> {
    let started = Instant::now();
    let mut first = None;
    let points = query
        .stream_grpc(server.data, || {
            first.get_or_insert_with(|| started.elapsed());
        })
        .await?;
    anyhow::ensure!(
        points == query.expected,
        "{} returned {points} points, expected {}",
        query.expression(),
        query.expected
    );
    let all = started.elapsed();
    Ok(Timing {
        points,
        first: first.unwrap_or(all),
        all,
    })
}
