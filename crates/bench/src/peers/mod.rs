//! OxTSDB and VictoriaMetrics in turn on one machine: the same points over a protocol that both have, then the same queries.
//!
//! Each measurement begins with an empty folder, so the first contact with all series is part of it. OxTSDB acknowledges
//! points after their sync to disk; VictoriaMetrics keeps them in memory for some seconds. Both have to return the
//! same number of points with the same sum, of each query that is measured, and all points that were sent.

pub(crate) mod encode;
pub(crate) mod load;
pub(crate) mod points;
mod queries;
mod report;
mod server;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::ensure;
use clap::Args;

use crate::disk;
use crate::ingest::CONNECTIONS;
use crate::process::{folder_bytes, own_usage};
use crate::report::{ms, thousands};
use crate::workload::START_SECONDS;
use encode::FrontEnd;
use load::Load;
use points::{METRICS, Order};
use queries::{Language, Timed};
use server::{Program, Running};

/// OxTSDB and VictoriaMetrics in turn; `tests/peers/victoria-metrics.sh` installs it and runs this.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The program of VictoriaMetrics, single node.
    #[arg(long, value_name = "PROGRAM")]
    victoria_metrics: PathBuf,
    /// Folder of the servers' data during the run; default: a temporary one.
    #[arg(long)]
    folder: Option<PathBuf>,
    /// Hosts, each with 10 series; several sizes separated by commas.
    #[arg(long, value_delimiter = ',', default_values_t = [1_000, 10_000, 100_000])]
    hosts: Vec<u32>,
    /// Points of each measurement, at least one of each series.
    #[arg(long, default_value_t = 20_000_000)]
    points: u64,
    /// Protocols, separated by commas.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [FrontEnd::Telnet, FrontEnd::Http])]
    front_ends: Vec<FrontEnd>,
    /// Orders of points, separated by commas.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Order::Time])]
    orders: Vec<Order>,
    /// Connections that send, each one batch at a time.
    #[arg(long, default_value_t = CONNECTIONS)]
    connections: usize,
    /// Memory limit of each server, MiB; 0: its default.
    #[arg(long, default_value_t = 0)]
    memory_mib: u64,
    /// Runs of each query.
    #[arg(long, default_value_t = 20)]
    query_runs: usize,
    /// Repetitions of everything.
    #[arg(long, default_value_t = 1)]
    rounds: u32,
}

/// Resources that one server used for a load, and its times.
#[derive(Debug)]
struct Measured {
    wall: Duration,
    cpu_seconds: f64,
    generator_seconds: f64,
    /// While points were sent.
    written: u64,
    /// Until an orderly stop.
    written_in_all: u64,
    kept: u64,
    peak_memory: u64,
    longest: Duration,
    /// Immediately after the load, and after a stop and a start.
    queries: [Vec<Timed>; 2],
}

/// Both servers' figures for one load.
#[derive(Debug)]
struct Compared {
    load: Load,
    oxtsdb: Measured,
    victoria_metrics: Measured,
}

/// Runs all measurements and prints their tables.
pub(crate) async fn run(program: PathBuf, arguments: Arguments) -> anyhow::Result<()> {
    ensure!(arguments.query_runs > 0, "--query-runs: 0 runs; at least 1");
    let temporary = tempfile::tempdir()?;
    let folder = arguments.folder.as_deref().unwrap_or_else(|| temporary.path());
    std::fs::create_dir_all(folder)?;
    let started_with = |language, path| Program {
        language,
        path,
        memory_mib: arguments.memory_mib,
    };
    let oxtsdb = started_with(Language::OpenTsdb, program);
    let victoria_metrics = started_with(Language::MetricsQl, arguments.victoria_metrics.clone());
    let (median, p99) = disk::sync_times(folder)?;
    println!(
        "disk: 4 KiB and fdatasync takes {} (median), {} (p99)",
        ms(median),
        ms(p99)
    );

    let mut all = Vec::new();
    for load in loads(&arguments) {
        println!("{}: {} points", title(load), thousands(load.points() as f64));
        let compared = Compared {
            load,
            oxtsdb: measure(&oxtsdb, folder, load, arguments.query_runs).await?,
            victoria_metrics: measure(&victoria_metrics, folder, load, arguments.query_runs).await?,
        };
        compared.require_equal_answers()?;
        all.push(compared);
    }
    println!("\n{}", report::writes(&all));
    println!(
        "CPU and the first figure of bytes written: while points were sent; the second one and bytes on disk: after an \
         orderly stop; longest wait: of a request, over telnet that lines were not read\n"
    );
    println!("{}", report::queries(&all));
    println!(
        "medians over HTTP, of the last hour: immediately after the load (head), and after a stop and a start (parts)\n"
    );
    println!("{}", report::ratios(&all));
    println!(
        "OxTSDB's figure divided by that of VictoriaMetrics: points/s should be above 1, all others below"
    );
    Ok(())
}

fn loads(arguments: &Arguments) -> Vec<Load> {
    let mut loads = Vec::new();
    for _ in 0..arguments.rounds {
        for hosts in &arguments.hosts {
            let series = u64::from(*hosts) * u64::from(METRICS);
            let steps = u32::try_from(arguments.points / series.max(1)).unwrap_or(u32::MAX);
            for front_end in &arguments.front_ends {
                loads.extend(arguments.orders.iter().map(|order| Load {
                    first_host: 0,
                    hosts: *hosts,
                    steps: steps.max(1),
                    start_seconds: START_SECONDS,
                    front_end: *front_end,
                    order: *order,
                    connections: arguments.connections.max(1),
                }));
            }
        }
    }
    loads
}

/// The load in words.
fn title(load: Load) -> String {
    let front_end = load.front_end.name();
    let order = match load.order {
        Order::Time => "time order",
        Order::Series => "series order",
        Order::Shuffled => "shuffled",
    };
    format!("{} series, {front_end}, {order}", thousands(load.series() as f64))
}

async fn measure(program: &Program, folder: &Path, load: Load, runs: usize) -> anyhow::Result<Measured> {
    let folder = folder.join(program.name());
    let shares = load.shares();
    // The bytes that a process wrote count for its parent after it has ended.
    let own_before = own_usage()?.written_bytes;
    let server = program.start(&folder).await?;
    let (before, generator, started) = (server.usage()?, own_usage()?, Instant::now());
    let longest = load::send(server.target(load.front_end), shares).await?;
    let (wall, after) = (started.elapsed(), server.usage()?);
    let generator_seconds = own_usage()?.cpu_seconds - generator.cpu_seconds;
    require_all_points(program, &server, load).await?;
    let from_head = run_queries(program, &server, load, runs).await?;
    server.stop()?;
    let written_in_all = own_usage()?.written_bytes - own_before;
    let kept = folder_bytes(&folder)?;

    let server = program.start(&folder).await?;
    require_all_points(program, &server, load).await?;
    let from_parts = run_queries(program, &server, load, runs).await?;
    server.stop()?;
    std::fs::remove_dir_all(&folder)?;
    // A long run shows how far it is.
    let rate = load.points() as f64 / wall.as_secs_f64();
    println!("  {}: {} points/s", program.name(), thousands(rate));
    Ok(Measured {
        wall,
        cpu_seconds: after.cpu_seconds - before.cpu_seconds,
        generator_seconds,
        written: after.written_bytes - before.written_bytes,
        written_in_all,
        kept,
        peak_memory: after.peak_memory,
        longest,
        queries: [from_head, from_parts],
    })
}

async fn run_queries(
    program: &Program,
    server: &Running,
    load: Load,
    runs: usize,
) -> anyhow::Result<Vec<Timed>> {
    let mut all = Vec::new();
    for query in queries::measured(load.hosts, load.steps) {
        let timed = query.time(server.queries(), program.language, runs).await?;
        ensure!(
            timed.answer.points == query.points,
            "{}: {}: {} returned {} points, expected {}",
            title(load),
            query.name,
            program.name(),
            timed.answer.points,
            query.points
        );
        all.push(timed);
    }
    Ok(all)
}

/// Requires all points; of VictoriaMetrics within some time, as its flush does not wait for one that is running.
async fn require_all_points(program: &Program, server: &Running, load: Load) -> anyhow::Result<()> {
    let patience = match program.language {
        Language::OpenTsdb => Duration::ZERO,
        Language::MetricsQl => Duration::from_secs(60),
    };
    let (started, sent) = (Instant::now(), load.points() as f64);
    loop {
        server.publish().await?;
        let mut points = 0.0;
        for query in queries::counts(load.steps) {
            let timed = query.time(server.queries(), program.language, 1).await?;
            points += timed.answer.sum;
        }
        if points == sent {
            return Ok(());
        }
        ensure!(
            started.elapsed() < patience,
            "{}: {} has {points} of {sent} points",
            title(load),
            program.name()
        );
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

impl Compared {
    fn require_equal_answers(&self) -> anyhow::Result<()> {
        let names = queries::measured(self.load.hosts, self.load.steps);
        let pairs = self.oxtsdb.queries.iter().zip(&self.victoria_metrics.queries);
        for (ours, theirs) in pairs {
            for ((query, ours), theirs) in names.iter().zip(ours).zip(theirs) {
                ensure!(
                    ours.answer.equals(theirs.answer),
                    "{}: {}: OxTSDB returned {:?}, VictoriaMetrics {:?}",
                    title(self.load),
                    query.name,
                    ours.answer,
                    theirs.answer
                );
            }
        }
        Ok(())
    }
}
