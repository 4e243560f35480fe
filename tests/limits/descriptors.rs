//! More connections than descriptors or permits.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use oxtsdb_tests::bystander::{Bystander, Kind};
use oxtsdb_tests::crowd::{Crowd, raise_descriptor_limit};
use oxtsdb_tests::load::Load;
use tokio::time::timeout;

use crate::support::{BOUND, RESPONSE_TIMEOUT, Target, limited};

/// Time limit for SIGTERM, independent of clients.
const STOPPED: Duration = Duration::from_secs(5);

/// Segments that the journal begins while connections take all descriptors.
const SEGMENTS: u64 = 2;

/// The number of the newest journal segment.
fn newest_segment(data_dir: &Path) -> anyhow::Result<u64> {
    let folder = data_dir.join("data/points/journal");
    let mut newest = 0;
    for entry in fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
        let name = entry?.file_name();
        let number = name.to_str().and_then(|name| name.strip_suffix(".journal"));
        newest = newest.max(number.map_or(Ok(0), str::parse)?);
    }
    Ok(newest)
}

/// The store needs descriptors for the next segments of the journal and for parts.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: tests/nightly.sh"]
async fn writes_succeed_while_connections_take_all_descriptors() -> anyhow::Result<()> {
    if !raise_descriptor_limit(4096)? {
        return Ok(());
    }
    let mut target = Target::start_with(limited().descriptors(1024)).await?;
    let client = target.tsdb.data();
    // Connects the client.
    Load::new("before", 1, 10).write_with(&client).await?;
    let before = newest_segment(target.tsdb.data_dir())?;
    let bystander = Bystander::start_with(&target.tsdb, &[Kind::Version, Kind::Put]).await?;
    let crowd = Crowd::connect(target.tsdb.http_address(), 1050).await?;
    println!("  {} descriptors", target.tsdb.process().descriptors()?);
    // Each point is in another hour, and 24 are in a day: every flush writes parts of hundreds of days.
    let mut load = Load::new("", 10, 20_000);
    (load.start_ms, load.step_ms) = (3_600_000, 3_600_000);
    let begun = Instant::now();
    let mut written = 0;
    while newest_segment(target.tsdb.data_dir())? < before + SEGMENTS {
        load.metric = format!("rows.{written}");
        timeout(RESPONSE_TIMEOUT, load.write_with(&client))
            .await
            .context("writes hang")?
            .context("a write fails while connections take all descriptors")?;
        written += load.total();
        ensure!(
            begun.elapsed() < 3 * RESPONSE_TIMEOUT,
            "no new segment after {written} rows"
        );
    }
    println!(
        "  {written} rows in {:.1} s, {} idle connections are left",
        begun.elapsed().as_secs_f64(),
        crowd.open()
    );
    // Writes wait for each other and for flushes, not for descriptors.
    bystander.finish(4 * BOUND).await?;
    drop(crowd);
    target.check_unharmed().await
}

#[tokio::test(flavor = "multi_thread")]
async fn closes_idle_http_and_telnet_connections_for_new_ones() -> anyhow::Result<()> {
    if !raise_descriptor_limit(5000)? {
        return Ok(());
    }
    let mut target = Target::start().await?;
    let crowd = Crowd::connect(target.tsdb.http_address(), 4200).await?;
    // The longest idle connection is closed, and new clients are served.
    let bystander = Bystander::start(&target.tsdb).await?;
    tokio::time::sleep(Duration::from_secs(2)).await;
    println!("  {} idle connections are left", crowd.open());
    target.check_with(bystander).await?;
    stops_in_time(&mut target).await?;
    drop(crowd);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: tests/nightly.sh"]
async fn closes_idle_grpc_connections_for_new_ones() -> anyhow::Result<()> {
    if !raise_descriptor_limit(9000)? {
        return Ok(());
    }
    let mut target = Target::start().await?;
    let crowd = Crowd::connect(target.tsdb.data_address(), 8000).await?;
    let bystander = Bystander::start(&target.tsdb).await?;
    tokio::time::sleep(Duration::from_secs(2)).await;
    println!("  {} idle connections are left", crowd.open());
    target.check_with(bystander).await?;
    stops_in_time(&mut target).await?;
    drop(crowd);
    Ok(())
}

async fn stops_in_time(target: &mut Target) -> anyhow::Result<()> {
    let begun = Instant::now();
    let status = target.tsdb.terminate().await?;
    let taken = begun.elapsed();
    println!("  stopped in {:.1} s", taken.as_secs_f64());
    ensure!(status.code() == Some(0), "{status}");
    ensure!(
        taken <= STOPPED,
        "SIGTERM took {taken:?}, at most {STOPPED:?} are allowed"
    );
    Ok(())
}
