//! Snapshots while points are written, and whether a restored one has what it promises.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::ensure;
use parking_lot::Mutex;
use tokio::process::Command;

use super::Arguments;
use crate::ingest;
use crate::process::{Server, folder_bytes};
use crate::report::{ms, thousands};
use crate::workload::{self, START_SECONDS, STEP_SECONDS, Shape, Workload};

/// Points of each series in a batch.
const STEPS: u32 = 50;
const HOSTS: u32 = 1000;
const METRICS: u32 = 10;
const BATCH_POINTS: u32 = STEPS * HOSTS * METRICS;

/// Time of writing before each snapshot.
const PAUSE: Duration = Duration::from_secs(10);

/// The progress of the writer.
#[derive(Debug, Default)]
struct Progress {
    /// Acknowledged batches.
    batches: AtomicU32,
    /// The longest acknowledgement since it was taken.
    longest: Mutex<Duration>,
    ended: AtomicBool,
}

/// Makes snapshots of a server that stores points at a rate, restores the last one and compares it.
pub(super) async fn measure(program: &Path, folder: &Path, arguments: &Arguments) -> anyhow::Result<()> {
    ensure!(arguments.rate > 0, "--rate: 0 points a second; at least 1");
    let live = folder.join("live");
    let server = arguments.start(program, &live, &[])?;
    let progress = Arc::new(Progress::default());
    while progress.points() < u64::from(arguments.snapshot_points) {
        progress.send(server.data).await?;
    }
    // A stop flushes.
    server.stop()?;
    let server = arguments.start(program, &live, &[])?;

    let pause = Duration::from_secs_f64(f64::from(BATCH_POINTS) / f64::from(arguments.rate));
    let writer = tokio::spawn(write(Arc::clone(&progress), server.data, pause));
    let mut held = 0;
    for number in 0..arguments.snapshots {
        let (written, began) = (progress.points(), Instant::now());
        tokio::time::sleep(PAUSE).await;
        let rate = (progress.points() - written) as f64 / began.elapsed().as_secs_f64();
        let usual = std::mem::take(&mut *progress.longest.lock());
        held = progress.batches.load(Ordering::Acquire);
        let took = snapshot(program, &server, number).await?;
        // The batch that was on its way counts too.
        let after = progress.batches.load(Ordering::Acquire) + 1;
        while progress.batches.load(Ordering::Acquire) < after && !writer.is_finished() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let longest = std::mem::take(&mut *progress.longest.lock());
        println!(
            "snapshot of {} points while {} points/s are written: {}; longest acknowledgement {}, {} before it",
            thousands((u64::from(held) * u64::from(BATCH_POINTS)) as f64),
            thousands(rate),
            ms(took),
            ms(longest),
            ms(usual)
        );
    }
    progress.ended.store(true, Ordering::Release);
    writer.await??;
    restore(program, folder, &server, held, arguments).await?;
    server.stop()?;
    std::fs::remove_dir_all(&live)?;
    Ok(())
}

impl Progress {
    fn points(&self) -> u64 {
        u64::from(self.batches.load(Ordering::Acquire)) * u64::from(BATCH_POINTS)
    }

    /// Sends the next batch and waits for its acknowledgement.
    async fn send(&self, server: SocketAddr) -> anyhow::Result<()> {
        let batch = self.batches.load(Ordering::Acquire);
        self.send_encoded(server, &encode(batch)).await
    }

    async fn send_encoded(
        &self,
        server: SocketAddr,
        streams: &ingest::stream::Streams,
    ) -> anyhow::Result<()> {
        let longest = ingest::stream::send(server, streams).await?;
        let mut longest_so_far = self.longest.lock();
        *longest_so_far = longest.max(*longest_so_far);
        self.batches.fetch_add(1, Ordering::AcqRel);
        Ok(())
    }
}

fn encode(batch: u32) -> ingest::stream::Streams {
    let workload = Workload::new(Shape {
        hosts: HOSTS,
        metrics: METRICS,
        steps: STEPS,
        step_seconds: STEP_SECONDS,
        start_seconds: START_SECONDS + batch * STEPS * STEP_SECONDS,
    });
    ingest::stream::encode(&workload, workload::Order::Time { points: 1000 })
}

/// Sends a batch at every interval; each is encoded before it is due.
async fn write(progress: Arc<Progress>, server: SocketAddr, pause: Duration) -> anyhow::Result<()> {
    let mut due = Instant::now();
    while !progress.ended.load(Ordering::Acquire) {
        let streams = encode(progress.batches.load(Ordering::Acquire));
        tokio::time::sleep_until(due.into()).await;
        due += pause;
        progress.send_encoded(server, &streams).await?;
    }
    Ok(())
}

async fn run(command: &mut Command) -> anyhow::Result<Duration> {
    let started = Instant::now();
    let output = command.output().await?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?}: {errors}");
    Ok(started.elapsed())
}

/// Time of `tsdb snapshot`, the start of the command included.
async fn snapshot(program: &Path, server: &Server, number: u32) -> anyhow::Result<Duration> {
    let target = format!("--target=http://{}", server.data);
    run(Command::new(program).args(["snapshot", &target, &number.to_string()])).await
}

/// Restores the last snapshot and compares it with the server, up to the batches that were acknowledged before it.
async fn restore(
    program: &Path,
    folder: &Path,
    live: &Server,
    batches: u32,
    arguments: &Arguments,
) -> anyhow::Result<()> {
    let last = folder.join(format!("live/snapshots/{}", arguments.snapshots - 1));
    let restored = folder.join("restored");
    let took = run(Command::new(program)
        .arg("restore")
        .arg("--data")
        .arg(&restored)
        .arg(&last))
    .await?;
    let bytes = folder_bytes(&restored)?;
    let server = arguments.start(program, &restored, &[])?;
    let range = START_SECONDS..START_SECONDS + batches * STEPS * STEP_SECONDS;
    let mut points = 0.0;
    // Windows that end with the range: OpenTSDB completes the last one with points after it.
    for metric in 0..METRICS {
        for downsample in ["100s-count", "100s-sum"] {
            let expected = super::query(live.http, range.clone(), downsample, metric).await?;
            let restored = super::query(server.http, range.clone(), downsample, metric).await?;
            ensure!(
                restored.equals(expected),
                "{downsample} of metric {metric} is {restored:?}, of the server {expected:?}"
            );
            if downsample == "100s-count" {
                points += restored.sum;
            }
        }
    }
    let sent = f64::from(batches) * f64::from(BATCH_POINTS);
    ensure!(points == sent, "the restored store has {points} of {sent} points");
    println!(
        "restore of {} bytes: {}; counts and sums of its {} points are those of the server",
        thousands(bytes as f64),
        ms(took),
        thousands(sent)
    );
    server.stop()?;
    std::fs::remove_dir_all(&restored)?;
    Ok(())
}
