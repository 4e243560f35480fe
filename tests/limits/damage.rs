//! One flipped bit in a part of the embedded store.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use oxtsdb_proto::common::v1::ErrorReason;
use oxtsdb_proto::data::v1::query_response::Frame;
use oxtsdb_proto::data::v1::query_response::Statistics;
use oxtsdb_proto::data::v1::{AggregateFunction, QueryRequest};
use oxtsdb_proto::error::reason_of;
use oxtsdb_tests::load::Load;
use oxtsdb_tests::memory::MemoryWatch;
use oxtsdb_tests::read_back::{query_error, range, sub_query};
use oxtsdb_tests::{Options, Tsdb};
use tempfile::TempDir;

use crate::support::{limited, turn, works};

/// Positions of flipped bits, in thousandths of the file. A part begins with its points; its index follows them.
const PLACES: [u64; 4] = [2, 250, 500, 750];

/// Points of a week: a part for each day.
fn load() -> Load {
    Load {
        step_ms: 600_000,
        ..Load::new("damage", 20, 1000)
    }
}

/// Counts the points outside of the damage, and returns the statistics.
async fn rest(tsdb: &Tsdb) -> anyhow::Result<(usize, Statistics)> {
    let (start, end) = load().seconds();
    let request = QueryRequest {
        range: Some(range(start * 1000, end * 1000)),
        queries: vec![sub_query("damage", AggregateFunction::None)],
        skip_damaged_rows: true,
        ..QueryRequest::default()
    };
    let mut frames = tsdb.data().query(request).await?.into_inner();
    let (mut points, mut statistics) = (0, None);
    while let Some(response) = frames.message().await? {
        match response.frame {
            Some(Frame::Points(block)) => points += block.timestamps_ms.len(),
            Some(Frame::Statistics(frame)) => statistics = Some(frame),
            _ => {}
        }
    }
    Ok((points, statistics.context("no statistics")?))
}

/// Prepares a folder with the load in parts.
async fn prepare(folder: &Path) -> anyhow::Result<()> {
    let mut tsdb = Tsdb::start_with(limited().data_dir(folder)).await?;
    load().write(&tsdb).await?;
    let (points, statistics) = rest(&tsdb).await?;
    ensure!(points == load().total() && statistics.damaged_rows == 0);
    let status = tsdb.terminate().await?;
    ensure!(status.code() == Some(0), "{status}");
    Ok(())
}

/// The largest part of the store of points.
fn part_file(data_dir: &Path) -> anyhow::Result<PathBuf> {
    let mut largest = None;
    for day in fs::read_dir(data_dir.join("data/points"))? {
        let day = day?.path();
        if !day.is_dir() {
            continue;
        }
        for entry in fs::read_dir(&day)? {
            let path = entry?.path();
            let bytes = path.metadata()?.len();
            let is_part = path.extension() == Some("part".as_ref());
            if is_part && largest.as_ref().is_none_or(|(most, _)| bytes > *most) {
                largest = Some((bytes, path));
            }
        }
    }
    let (bytes, path) = largest.context("no part")?;
    ensure!(bytes > 3000, "{} has {bytes} bytes", path.display());
    Ok(path)
}

fn flip_bit(file: &Path, thousandths: u64) -> anyhow::Result<()> {
    let mut bytes = fs::read(file)?;
    let place = bytes.len() * usize::try_from(thousandths)? / 1000;
    *bytes.get_mut(place).context("a place in the file")? ^= 0x10;
    fs::write(file, bytes)?;
    Ok(())
}

fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}

/// Checks a server on a damaged folder: reads of the intact rows, writes, the log, and SIGTERM.
async fn check_service(data_dir: &Path) -> anyhow::Result<()> {
    let mut tsdb = Tsdb::start_with(Options::default().data_dir(data_dir)).await?;
    let memory = MemoryWatch::start(tsdb.process().id())?;
    works(&tsdb).await.context("after the start")?;

    // Without the option the query fails with a typed error.
    let (start, end) = load().seconds();
    let request = QueryRequest {
        range: Some(range(start * 1000, end * 1000)),
        queries: vec![sub_query("damage", AggregateFunction::None)],
        ..QueryRequest::default()
    };
    let status = query_error(&mut tsdb.data(), request).await?;
    ensure!(
        status.code() == tonic::Code::DataLoss && reason_of(&status) == Some(ErrorReason::CorruptCell),
        "{status:?}"
    );
    let left = check_rest(&tsdb).await?;

    // Points for the same rows, the damaged ones too, and for a new metric; all are stored.
    let mut more = load();
    more.start_ms += 30_000;
    more.write(&tsdb).await.context("points for damaged rows")?;
    Load::new("damage.other", 3, 100)
        .write(&tsdb)
        .await
        .context("points of another metric")?;
    let status = tsdb.terminate().await?;
    ensure!(
        status.code() == Some(0),
        "SIGTERM: {status}\n{}",
        tsdb.process().log()
    );

    // All of them are stored, and the damage is still reported.
    tsdb.restart().await.context("the start after the flush")?;
    works(&tsdb).await.context("after the flush")?;
    let (points, statistics) = rest(&tsdb).await?;
    ensure!(
        points == left + more.total() && statistics.damaged_rows > 0,
        "{points} points are left, {left} were, and {} more were written; {statistics:?}",
        more.total()
    );
    let log = tsdb.process().log();
    ensure!(
        log.contains("set-aside/") && log.contains(".part"),
        "the log does not report the damaged file:\n{log}"
    );
    let status = tsdb.terminate().await?;
    ensure!(
        status.code() == Some(0),
        "SIGTERM: {status}\n{}",
        tsdb.process().log()
    );
    memory.check_below(crate::support::MOST_BYTES)
}

/// Checks that most points are intact and that the damage is reported; returns the count of intact points.
async fn check_rest(tsdb: &Tsdb) -> anyhow::Result<usize> {
    let (points, statistics) = rest(tsdb).await.context("skip_damaged_rows")?;
    println!(
        "  {points} points are left, {} rows are damaged",
        statistics.damaged_rows
    );
    ensure!(points < load().total(), "no point is missing");
    ensure!(points * 2 > load().total(), "only {points} points are intact");
    ensure!(statistics.damaged_rows > 0, "{statistics:?}");
    let first = statistics.damaged.first().context("no damaged row is reported")?;
    ensure!(!first.reason.is_empty(), "{first:?}");
    Ok(points)
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: tests/nightly.sh"]
async fn a_flipped_bit_costs_only_points_of_its_part() -> anyhow::Result<()> {
    let _turn = turn().await;
    let folder = TempDir::with_prefix("oxtsdb-test-")?;
    let whole = folder.path().join("whole");
    prepare(&whole).await?;
    let mut wrong = Vec::new();
    for place in PLACES {
        let data_dir = folder.path().join(format!("damaged-{place}"));
        copy(&whole, &data_dir)?;
        let file = part_file(&data_dir)?;
        println!("a bit at {place}/1000 of {}", file.display());
        flip_bit(&file, place)?;
        if let Err(error) = check_service(&data_dir).await {
            wrong.push(format!("a bit at {place}/1000: {error:#}"));
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}
