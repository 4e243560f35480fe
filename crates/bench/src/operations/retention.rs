//! The drop of a day by retention: its time, and the space that it gives back.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};

use super::Arguments;
use crate::ingest;
use crate::peers::load::{self, Target};
use crate::process::folder_bytes;
use crate::report::{ms, thousands};
use crate::workload::{Order, STEP_SECONDS, Shape, Workload};

pub(super) const DAY_SECONDS: u32 = 86_400;

/// Time for the drop.
const LIMIT: Duration = Duration::from_secs(120);

/// Writes a day, then a point that is newer by more than the retention, and times the drop of the day.
pub(super) async fn measure(program: &Path, folder: &Path, arguments: &Arguments) -> anyhow::Result<()> {
    let folder = folder.join("retention");
    let flags = ["--retention", "2d"];
    let now = super::now_seconds()?;
    let load = arguments.load(now / DAY_SECONDS * DAY_SECONDS - 3 * DAY_SECONDS);
    let server = arguments.start(program, &folder, &flags)?;
    load::send(Target::telnet(server.http), load.shares()).await?;
    // A stop flushes, so that all points are in the files of the day.
    server.stop()?;
    let server = arguments.start(program, &folder, &flags)?;
    super::require_all_points(server.http, load).await?;

    let points = folder.join("data/points");
    let days = days(&points)?;
    ensure!(days.len() == 1, "expected the folder of one day, found {days:?}");
    let before = folder_bytes(&points)?;
    let newer = Workload::new(Shape {
        hosts: 1,
        metrics: 1,
        steps: 1,
        step_seconds: STEP_SECONDS,
        start_seconds: now,
    });
    let calls = ingest::write::encode(&newer, Order::Time { points: 1 });
    ingest::write::send(server.data, &calls).await?;
    let written = Instant::now();
    until(written, || Ok(!days.iter().any(|day| day.exists()))).await?;
    let unlinked = written.elapsed();
    let dropped = points.join("dropped");
    until(written, || Ok(fs::read_dir(&dropped)?.next().is_none())).await?;
    let removed = written.elapsed();
    println!(
        "a day of {} points and {} series is dropped {} after a newer point, its files are removed within {}: {} bytes of points \
         before, {} after",
        thousands(load.points() as f64),
        thousands(load.series() as f64),
        ms(unlinked),
        ms(removed.saturating_sub(unlinked)),
        thousands(before as f64),
        thousands(folder_bytes(&points)? as f64)
    );
    let range = load.start_seconds..load.start_seconds + DAY_SECONDS;
    let answer = super::query(server.http, range, "1h-count", 0).await?;
    ensure!(answer.points == 0, "the dropped day still has points: {answer:?}");
    server.stop()?;
    fs::remove_dir_all(&folder)?;
    Ok(())
}

/// The folders of days.
pub(super) fn days(points: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut days = Vec::new();
    for entry in fs::read_dir(points).with_context(|| points.display().to_string())? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with("20") {
            days.push(entry.path());
        }
    }
    Ok(days)
}

pub(super) async fn until(
    started: Instant,
    condition: impl Fn() -> anyhow::Result<bool>,
) -> anyhow::Result<()> {
    while !condition()? {
        ensure!(started.elapsed() < LIMIT, "the day was not dropped");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    Ok(())
}
