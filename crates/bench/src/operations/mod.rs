//! Operations on the embedded store at size: snapshots while points are written, the drop of a day, memory after all series were
//! replaced, the start after a crash.

mod churn;
mod retention;
mod snapshot;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, ensure};
use clap::Args;

use crate::answer::{Answer, escaped};
use crate::ingest::CONNECTIONS;
use crate::ingest::http::Connection;
use crate::peers::encode::FrontEnd;
use crate::peers::load::{self, Load, Target};
use crate::peers::points::{METRICS, Order, metric};
use crate::process::Server;
use crate::report::{ms, thousands};
use crate::workload::{START_SECONDS, STEP_SECONDS};

/// Operations at size: snapshots while points are written and their restore, the drop of a day, memory after all series were
/// replaced, the start after kill -9.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Folder of the servers' data during the run; default: a temporary one.
    #[arg(long)]
    folder: Option<PathBuf>,
    /// Hosts, each with 10 series, of the day that is dropped and of the start after a crash.
    #[arg(long, default_value_t = 100_000)]
    hosts: u32,
    /// Points of the day that is dropped, and in the journal at the crash.
    #[arg(long, default_value_t = 10_000_000)]
    points: u32,
    /// Points in parts before the first snapshot.
    #[arg(long, default_value_t = 20_000_000)]
    snapshot_points: u32,
    /// Points per second while snapshots are made, of 10,000 series.
    #[arg(long, default_value_t = 1_000_000)]
    rate: u32,
    /// Snapshots, one after ten seconds of writing each.
    #[arg(long, default_value_t = 3)]
    snapshots: u32,
    /// Memory limit of the server, MiB; 0: its default.
    #[arg(long, default_value_t = 0)]
    memory_mib: u64,
}

/// Runs all measurements and prints a line for each.
pub(crate) async fn run(program: PathBuf, arguments: Arguments) -> anyhow::Result<()> {
    let temporary = tempfile::tempdir()?;
    let folder = arguments.folder.as_deref().unwrap_or_else(|| temporary.path());
    std::fs::create_dir_all(folder)?;
    if arguments.snapshots > 0 {
        snapshot::measure(&program, folder, &arguments).await?;
    }
    retention::measure(&program, folder, &arguments).await?;
    churn::measure(&program, folder, &arguments).await?;
    measure_crash(&program, folder, &arguments).await
}

impl Arguments {
    /// Starts a server on a folder, with some more flags.
    fn start(&self, program: &Path, folder: &Path, flags: &[&str]) -> anyhow::Result<Server> {
        let folder_name = folder.to_str().context("the folder's name is text")?;
        let mut all = vec!["--data-dir".to_owned(), folder_name.to_owned()];
        if self.memory_mib > 0 {
            all.extend(["--memory-limit-mib".to_owned(), self.memory_mib.to_string()]);
        }
        all.extend(flags.iter().map(|flag| (*flag).to_owned()));
        Server::start_with(program, folder, &all)
    }

    fn load(&self, start_seconds: u32) -> Load {
        Load {
            first_host: 0,
            hosts: self.hosts,
            steps: (self.points / (self.hosts * METRICS).max(1)).max(1),
            start_seconds,
            front_end: FrontEnd::Telnet,
            order: Order::Time,
            connections: CONNECTIONS,
        }
    }
}

/// Seconds since the epoch.
fn now_seconds() -> anyhow::Result<u32> {
    Ok(u32::try_from(
        SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs(),
    )?)
}

/// Writes points of all series, kills the server, and times its next start.
async fn measure_crash(program: &Path, folder: &Path, arguments: &Arguments) -> anyhow::Result<()> {
    let folder = folder.join("crash");
    let server = arguments.start(program, &folder, &[])?;
    let flushes = server.flushes()?;
    let load = arguments.load(START_SECONDS);
    load::send(Target::telnet(server.http), load.shares()).await?;
    let flushes = server.flushes()? - flushes;
    let server = server.crash_and_restart()?;
    println!(
        "kill -9 with {} points of {} series, {flushes} flushes before it: ready again within {}",
        thousands(load.points() as f64),
        thousands(load.series() as f64),
        ms(server.start_time)
    );
    require_all_points(server.http, load).await?;
    server.stop()?;
    std::fs::remove_dir_all(&folder)?;
    Ok(())
}

async fn require_all_points(server: SocketAddr, load: Load) -> anyhow::Result<()> {
    let end = load.start_seconds + load.steps * STEP_SECONDS;
    let mut points = 0.0;
    for number in 0..METRICS {
        let answer = query(server, load.start_seconds..end, "1h-count", number).await?;
        points += answer.sum;
    }
    let sent = load.points() as f64;
    ensure!(points == sent, "the server has {points} of {sent} points");
    Ok(())
}

/// Sums of a metric's windows over a range of seconds.
async fn query(
    server: SocketAddr,
    range: std::ops::Range<u32>,
    downsample: &str,
    number: u32,
) -> anyhow::Result<Answer> {
    let expression = escaped(&format!("sum:{downsample}:{}", metric(number)));
    let (start, end) = (range.start, range.end - 1);
    let path = format!("/api/query?start={start}&end={end}&m={expression}");
    let (status, body) = Connection::open(server).await?.get(&path).await?;
    let text = || String::from_utf8_lossy(&body[..body.len().min(500)]);
    ensure!(status == 200, "{path}: status {status}: {}", text());
    Answer::from_response(&serde_json::from_slice(&body)?)
}
