//! Rollups on the embedded store survive a kill, a snapshot has them, damage is found, and averages have both of their
//! parts.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use oxtsdb_tests::{Options, Tsdb, program_path};
use serde_json::{Value, json};
use tempfile::TempDir;

const CONFIG: &str = r#"{"aggregationIds": {"sum": 0, "count": 1, "max": 3}, "intervals": [
    {"table": "tsdb", "preAggregationTable": "agg", "interval": "1m", "rowSpan": "1h", "defaultInterval": true},
    {"table": "hours", "preAggregationTable": "agg-hours", "interval": "1h", "rowSpan": "1d"}]}"#;

/// 2023-11-14 00:00:00 UTC.
const START: u64 = 1_699_920_000;
const HOURS: u64 = 60;

fn options() -> Options {
    Options::default().flag("--rollups-config", CONFIG)
}

/// The sum, count and maximum of an hour of a host. Some sums have fractions, so that both types are in one row.
fn aggregates(host: u64, hour: u64) -> [(&'static str, Value); 3] {
    let sum = match (host + hour) % 5 {
        0 => json!(hour as f64 + 0.1),
        _ => json!(hour * 1000),
    };
    [("SUM", sum), ("COUNT", json!(60)), ("MAX", json!(hour % 7))]
}

async fn write(server: &Tsdb) -> anyhow::Result<()> {
    for host in 0..3 {
        let mut body = Vec::new();
        for hour in 0..HOURS {
            for (aggregator, value) in aggregates(host, hour) {
                body.push(
                    json!({"metric": "m", "tags": {"host": format!("h{host}")}, "interval": "1h",
                    "aggregator": aggregator, "timestamp": START + hour * 3600, "value": value}),
                );
            }
        }
        let response = server.http().post("/api/rollup", &Value::Array(body)).await?;
        ensure!(response.status == 204, "{}", response.body);
    }
    Ok(())
}

/// The results of some queries.
async fn results(server: &Tsdb) -> anyhow::Result<Vec<Value>> {
    let mut results = Vec::new();
    for downsample in ["1h-sum", "1h-avg", "6h-max", "1d-avg", "1d-count", "12h-avg-zero"] {
        for tags in ["", "%7Bhost=h1%7D", "%7Bhost=*%7D"] {
            let query = format!(
                "/api/query?arrays&start={START}&end={}&m=sum:{downsample}:m{tags}",
                START + HOURS * 3600 - 1
            );
            let response = server.http().get(&query).await?;
            ensure!(response.status == 200, "{query}: {}", response.body);
            let groups = response.json()?;
            ensure!(
                groups.as_array().is_some_and(|groups| !groups.is_empty()),
                "{query}"
            );
            results.push(groups);
        }
    }
    Ok(results)
}

/// Runs `tsdb`, as a client of a server; returns its status, output and errors.
async fn call(server: &Tsdb, arguments: &[&str]) -> anyhow::Result<(Option<i32>, String, String)> {
    let target = format!("--target=http://{}", server.data_address());
    let mut command = tokio::process::Command::new(program_path("tsdb")?);
    let ran = command.args(arguments).arg(target).output().await?;
    Ok((
        ran.status.code(),
        String::from_utf8(ran.stdout)?,
        String::from_utf8(ran.stderr)?,
    ))
}

/// The part files of a folder and below it.
fn parts(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            paths.append(&mut parts(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "part") {
            paths.push(path);
        }
    }
    Ok(paths)
}

#[tokio::test(flavor = "multi_thread")]
async fn acknowledged_rollups_survive_a_kill_and_a_restore() -> anyhow::Result<()> {
    let mut server = Tsdb::start_with(options()).await?;
    write(&server).await?;
    let before = results(&server).await?;
    let first = &before[0][0]["dps"];
    // The sums of the first two hours of three hosts: 0.1, 0 and 0; three times 1000.
    ensure!(
        first[0][1] == json!(0.1) && first[1][1] == json!(3000.0),
        "{first}"
    );
    let averages = &before[4][0]["dps"];
    ensure!(averages[1][1] == json!(1000.0 / 60.0), "{averages}");
    server.kill9()?;
    server.restart().await?;
    ensure!(results(&server).await? == before, "after a kill");

    let (status, output, errors) = call(&server, &["snapshot", "rolled", "--json"]).await?;
    ensure!(status == Some(0), "{errors}");
    let made: Value = serde_json::from_str(&output)?;
    ensure!(
        made["stores"] == json!(["points", "rollups", "data", "uid"]),
        "{made}"
    );
    let snapshot = server.data_dir().join("snapshots/rolled");
    let folder = TempDir::with_prefix("oxtsdb-test-")?;
    let restored = folder.path().join("restored");
    let mut restore = tokio::process::Command::new(program_path("tsdb")?);
    let restore = restore.arg("restore").arg(&snapshot).arg("--data").arg(&restored);
    ensure!(restore.status().await?.success());
    let other = Tsdb::start_with(options().data_dir(&restored)).await?;
    ensure!(results(&other).await? == before, "after a restore");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn damage_of_rollups_is_found_and_fails_their_queries() -> anyhow::Result<()> {
    let mut server = Tsdb::start_with(options()).await?;
    write(&server).await?;
    // A snapshot writes what is in memory to parts.
    let (status, _, errors) = call(&server, &["snapshot", "parts"]).await?;
    ensure!(status == Some(0), "{errors}");
    let stored = parts(&server.data_dir().join("data/rollups/hours"))?;
    ensure!(stored.len() == 3, "a file for each aggregate: {stored:?}");
    server.kill9()?;
    for path in &stored {
        let mut bytes = fs::read(path)?;
        let middle = bytes.len() / 2;
        *bytes.get_mut(middle).context("an empty file")? ^= 1;
        // The snapshot has the same file.
        fs::remove_file(path)?;
        fs::write(path, bytes)?;
    }
    server.restart().await?;
    let (status, output, errors) = call(&server, &["store", "check"]).await?;
    ensure!(status == Some(1), "{status:?}: {output} {errors}");
    ensure!(output.contains("rollups/hours"), "{output}");
    let query = format!("/api/query?start={START}&end={}&m=sum:1h-sum:m", START + 3600);
    let response = server.http().get(&query).await?;
    ensure!(response.status == 424, "{}: {}", response.status, response.body);
    let raw = server.http().get("/api/version").await?;
    ensure!(raw.status == 200, "the server goes on");
    Ok(())
}
