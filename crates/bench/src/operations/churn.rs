//! Memory by owner when all series were replaced by others, and retention has dropped the points of the first ones.

use std::fs;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context as _, ensure};
use comfy_table::Table;

use super::retention::{DAY_SECONDS, days, until};
use super::{Arguments, now_seconds, query};
use crate::ingest::http::Connection;
use crate::peers::load::{self, Load, Target};
use crate::peers::points::METRICS;
use crate::process::Server;
use crate::report::thousands;

/// Owners: the title of a column, and its metric.
const OWNERS: [(&str, &str); 8] = [
    ("series", "oxtsdb_store_series"),
    ("resident MiB", "process_resident_memory_bytes"),
    ("head", "oxtsdb_store_head_memory_bytes"),
    ("keys and indexes", "oxtsdb_store_series_memory_bytes"),
    ("cache of series", "oxtsdb_cache_bytes{cache=\"series\"}"),
    ("names", "oxtsdb_cache_bytes{cache=\"names\"}"),
    ("mappings", "oxtsdb_uid_cache_bytes"),
    ("pages", "oxtsdb_cache_bytes{cache=\"pages\"}"),
];

/// Two steps of a fleet on the day before the retention's edge, which another fleet replaces; then only the second fleet
/// on an empty folder.
pub(super) async fn measure(program: &Path, folder: &Path, arguments: &Arguments) -> anyhow::Result<()> {
    let folder = folder.join("churn");
    let now = now_seconds()?;
    let first = Load {
        steps: 2,
        ..arguments.load(now / DAY_SECONDS * DAY_SECONDS - 3 * DAY_SECONDS)
    };
    let second = Load {
        first_host: first.hosts,
        start_seconds: now,
        ..first
    };
    let start = |name: &str| {
        let flags = ["--retention", "2d", "--admin-listen", "127.0.0.1:0"];
        arguments.start(program, &folder.join(name), &flags)
    };
    let mut table = Table::new();
    table.set_header([""].into_iter().chain(OWNERS.map(|(title, _)| title)));

    fs::create_dir_all(&folder)?;
    let server = start("both")?;
    send_and_query(&server, first).await?;
    table.add_row(row("the first fleet", &server).await?);
    // A stop flushes, so that the points are in the files of a day.
    server.stop()?;
    let server = start("both")?;
    let days = days(&folder.join("both/data/points"))?;
    ensure!(days.len() == 1, "expected the folder of one day, found {days:?}");
    send_and_query(&server, second).await?;
    until(Instant::now(), || Ok(!days.iter().any(|day| day.exists()))).await?;
    table.add_row(row("the second one, after the drop", &server).await?);
    server.stop()?;
    let server = start("both")?;
    query_all(&server, second).await?;
    table.add_row(row("after another start", &server).await?);
    server.stop()?;

    let server = start("second")?;
    send_and_query(&server, second).await?;
    table.add_row(row("the second one alone", &server).await?);
    server.stop()?;
    fs::remove_dir_all(&folder)?;
    println!(
        "{} series replaced by as many others:\n{table}",
        thousands(first.series() as f64)
    );
    Ok(())
}

async fn send_and_query(server: &Server, load: Load) -> anyhow::Result<()> {
    load::send(Target::telnet(server.http), load.shares()).await?;
    query_all(server, load).await
}

/// Queries all metrics, so that their tags are indexed.
async fn query_all(server: &Server, load: Load) -> anyhow::Result<()> {
    for number in 0..METRICS {
        let range = load.start_seconds..load.start_seconds + DAY_SECONDS;
        query(server.http, range, "1h-count", number).await?;
    }
    Ok(())
}

async fn row(title: &str, server: &Server) -> anyhow::Result<Vec<String>> {
    let admin = server.admin.context("the server has no admin listener")?;
    let (status, metrics) = Connection::open(admin).await?.get("/metrics").await?;
    ensure!(status == 200, "/metrics: status {status}");
    let metrics = String::from_utf8_lossy(&metrics);
    let value = |metric: &str| {
        let mut samples = metrics.lines().filter_map(|line| line.rsplit_once(' '));
        let sample = samples.find(|(name, _)| *name == metric);
        let (_, value) = sample.with_context(|| format!("/metrics has no {metric}"))?;
        anyhow::Ok(value.parse::<f64>()?)
    };
    let mut row = vec![title.to_owned()];
    for (_, metric) in OWNERS {
        let is_bytes = metric.contains("_bytes");
        let number = value(metric)? / if is_bytes { f64::from(1 << 20) } else { 1.0 };
        row.push(thousands(number));
    }
    Ok(row)
}
