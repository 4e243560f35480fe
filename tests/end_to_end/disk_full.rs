//! A full disk stops writes with a typed error and keeps reads; nothing acknowledged is lost.

use std::ffi::CStr;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail, ensure};
use oxtsdb_proto::common::v1::ErrorReason;
use oxtsdb_proto::error::reason_of;
use oxtsdb_tests::read_back::series_of;
use oxtsdb_tests::sample::{ColumnsBuilder, Number, Sample};
use oxtsdb_tests::write_requests::columns_request;
use oxtsdb_tests::{Options, Tsdb, random, skip, until};
use rand::RngExt as _;
use rand::rngs::StdRng;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use serde_json::Value;
use tempfile::TempDir;
use tonic::{Code, Status};

const T: i64 = 1_500_000_000_000;
const BATCH: i64 = 5000;
const METRIC: &str = "full.disk";

/// A small file system in memory.
struct SmallDisk {
    folder: PathBuf,
}

impl SmallDisk {
    /// `None`, with a note, when this user may not mount.
    fn mount(folder: &Path, size: &CStr) -> anyhow::Result<Option<Self>> {
        if let Err(error) = mount(c"tmpfs", folder, c"tmpfs", MountFlags::empty(), size) {
            skip(&format!("a tmpfs cannot be mounted ({error}); root may"))?;
            return Ok(None);
        }
        Ok(Some(Self {
            folder: folder.to_owned(),
        }))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        if let Err(error) = unmount(&self.folder, UnmountFlags::DETACH) {
            eprintln!("{}: {error}", self.folder.display());
        }
    }
}

/// Points that do not compress well, and that can be had again by their number.
fn batch(number: i64, random: &mut StdRng) -> Vec<Sample> {
    (number * BATCH..(number + 1) * BATCH)
        .map(|point| {
            let value = Number::Double(random.random_range(-1e9..1e9));
            Sample::new(METRIC, &[("host", "a")], T + point * 1000, value)
        })
        .collect()
}

async fn write(tsdb: &Tsdb, samples: &[Sample]) -> Result<u64, Status> {
    let request = columns_request(ColumnsBuilder::default().columns(samples));
    Ok(tsdb.data().write_columns(request).await?.into_inner().written)
}

async fn check(tsdb: &Tsdb, acknowledged: &[Sample]) -> anyhow::Result<()> {
    let series = series_of(&mut tsdb.data(), METRIC).await?;
    let points: std::collections::BTreeMap<i64, Number> = series.into_values().flatten().collect();
    for sample in acknowledged {
        let there = points.get(&sample.timestamp_ms);
        ensure!(there == Some(&sample.value), "{sample:?} is {there:?}");
    }
    Ok(())
}

/// Smaller writes use up the rest of the disk; then HTTP rejects them with a status that does not blame the client.
async fn http_says_so_too(tsdb: &Tsdb) -> anyhow::Result<()> {
    for number in 0..5000 {
        let points: Vec<Value> = (0..100)
            .map(|point| T + (number * 100 + point) * 1000)
            .map(|instant| Sample::int("full.disk.http", &[("host", "a")], instant, instant).to_json())
            .collect();
        let answer = tsdb.http().post("/api/put?details", &Value::from(points)).await?;
        if answer.status >= 400 {
            println!("after {number} requests: {answer:?}");
            return Ok(());
        }
    }
    bail!("the disk never filled")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_stops_writes_and_keeps_reads() -> anyhow::Result<()> {
    let folder = TempDir::with_prefix("oxtsdb-test-")?;
    let Some(disk) = SmallDisk::mount(folder.path(), c"size=256m")? else {
        return Ok(());
    };
    let mut random = random::seeded("disk_full")?;
    let data_dir = disk.folder.join("data");
    let mut tsdb = Tsdb::start_with(Options::default().data_dir(&data_dir)).await?;
    let mut acknowledged = batch(0, &mut random);
    ensure!(write(&tsdb, &acknowledged).await? == BATCH as u64);

    // A file takes all but a few megabytes; the test can remove it.
    let filler = disk.folder.join("filler");
    fill(&filler, 4 << 20)?;
    let mut full = None;
    for number in 1..2000 {
        let samples = batch(number, &mut random);
        match write(&tsdb, &samples).await {
            Ok(written) => {
                ensure!(written == BATCH as u64);
                acknowledged.extend(samples);
            }
            Err(status) => {
                full = Some(status);
                break;
            }
        }
    }
    let status = full.context("the disk never filled")?;
    assert_eq!(status.code(), Code::ResourceExhausted, "{status:?}");
    assert_eq!(reason_of(&status), Some(ErrorReason::StoreFull), "{status:?}");
    println!("{} points fitted: {}", acknowledged.len(), status.message());
    check(&tsdb, &acknowledged)
        .await
        .context("reads on a full disk")?;
    http_says_so_too(&tsdb).await?;

    // An operator makes room: writes come back without a restart.
    fs::remove_file(&filler)?;
    let samples = batch(5000, &mut random);
    let written = until("writes come back", || async { Ok(write(&tsdb, &samples).await?) }).await?;
    ensure!(written == BATCH as u64);
    acknowledged.extend(samples);
    check(&tsdb, &acknowledged).await.context("after room was made")?;

    tsdb.kill9()?;
    tsdb.restart().await?;
    check(&tsdb, &acknowledged).await.context("after kill -9")?;
    drop(tsdb);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_on_a_full_disk_loses_nothing() -> anyhow::Result<()> {
    let folder = TempDir::with_prefix("oxtsdb-test-")?;
    let Some(disk) = SmallDisk::mount(folder.path(), c"size=256m")? else {
        return Ok(());
    };
    let mut random = random::seeded("disk_full, crash")?;
    let data_dir = disk.folder.join("data");
    let mut tsdb = Tsdb::start_with(Options::default().data_dir(&data_dir)).await?;
    let mut acknowledged = batch(0, &mut random);
    ensure!(write(&tsdb, &acknowledged).await? == BATCH as u64);
    let filler = disk.folder.join("filler");
    fill(&filler, 2 << 20)?;
    for number in 1..2000 {
        let samples = batch(number, &mut random);
        match write(&tsdb, &samples).await {
            Ok(_) => acknowledged.extend(samples),
            Err(_full) => break,
        }
    }
    tsdb.kill9()?;
    fs::remove_file(&filler)?;
    tsdb.restart().await?;
    check(&tsdb, &acknowledged).await?;
    drop(tsdb);
    Ok(())
}

/// Leaves `leave` bytes free.
fn fill(path: &Path, leave: u64) -> anyhow::Result<()> {
    let folder = path.parent().context("a folder")?;
    let space = rustix::fs::statvfs(folder)?;
    let free = space.f_bavail * space.f_frsize;
    ensure!(free > leave, "only {free} bytes are free");
    let file = fs::File::create(path)?;
    rustix::fs::fallocate(file, rustix::fs::FallocateFlags::empty(), 0, free - leave)?;
    Ok(())
}
