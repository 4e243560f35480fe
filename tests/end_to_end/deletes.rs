//! `tsdb delete` on the embedded store, over a restart.

use std::process::Output;

use anyhow::{Context as _, ensure};
use oxtsdb_tests::{Options, Tsdb, program_path};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Command;

/// 2023-11-14 22:00.
const HOUR: i64 = 1_699_999_200;

/// Runs `tsdb`; returns its status, output and errors.
async fn run(server: &Tsdb, arguments: &[&str]) -> anyhow::Result<(Option<i32>, String, String)> {
    let mut command = Command::new(program_path("tsdb")?);
    let target = format!("http://{}", server.data_address());
    let Output {
        status,
        stdout,
        stderr,
    } = command
        .args(arguments)
        .args(["--target", &target])
        .output()
        .await?;
    Ok((
        status.code(),
        String::from_utf8(stdout)?,
        String::from_utf8(stderr)?,
    ))
}

/// Two days of points of two hosts, every 10 minutes.
async fn write(server: &Tsdb) -> anyhow::Result<()> {
    let points: Vec<Value> = (0..288)
        .flat_map(|index| {
            ["a", "b"].map(|host| {
                json!({"metric": "m", "timestamp": HOUR + index * 600, "value": index, "tags": {"host": host}})
            })
        })
        .collect();
    let response = server
        .http()
        .post("/api/put?details", &Value::Array(points))
        .await?;
    ensure!(response.status == 200, "{}", response.body);
    Ok(())
}

/// The instants of a host's points, as indexes.
async fn indexes(server: &Tsdb, host: &str) -> anyhow::Result<Vec<i64>> {
    let end = HOUR + 3 * 86_400;
    let path = format!("/api/query?start={HOUR}&end={end}&m=none:m%7Bhost={host}%7D");
    let response = server.http().get(&path).await?;
    ensure!(response.status == 200, "{}", response.body);
    let groups = response.json()?;
    let Some(group) = groups.get(0) else {
        return Ok(Vec::new());
    };
    let points = group["dps"].as_object().context("dps")?;
    points
        .keys()
        .map(|second| Ok((second.parse::<i64>()? - HOUR) / 600))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn deletes_exactly_a_range() -> anyhow::Result<()> {
    let folder = TempDir::with_prefix("oxtsdb-deletes-")?;
    let folder = folder.path().join("data");
    let options = || Options::default().data_dir(&folder);
    let server = Tsdb::start_with(options()).await?;
    write(&server).await?;
    let (start, end) = ((HOUR + 6000).to_string(), (HOUR + 120_000).to_string());
    let words = ["delete", &start, &end, "m", "host=a"];

    let planned = run(&server, &words).await?;
    ensure!(
        planned.0 == Some(0) && planned.1.starts_with("would delete 191 points of 1 series"),
        "{planned:?}"
    );
    ensure!(indexes(&server, "a").await?.len() == 288, "nothing is deleted");
    let done = run(&server, &[&words[..], &["--yes"]].concat()).await?;
    ensure!(
        done.0 == Some(0) && done.1.starts_with("deleted 191 points of 1 series"),
        "{done:?}"
    );

    let left: Vec<i64> = (0..288).filter(|index| !(10..=200).contains(index)).collect();
    ensure!(
        indexes(&server, "a").await? == left,
        "{:?}",
        indexes(&server, "a").await?
    );
    ensure!(indexes(&server, "b").await?.len() == 288, "of another host");
    drop(server);
    let server = Tsdb::start_with(options()).await?;
    ensure!(indexes(&server, "a").await? == left, "after a restart");
    let again = run(&server, &[&words[..], &["--yes"]].concat()).await?;
    ensure!(again.1 == "deleted 0 points of 0 series\n", "{again:?}");

    for (words, error) in [
        (&["delete", "m"][..], "missing START and END"),
        (&["delete", &start, "m"], "missing START and END"),
        (&["delete", &start, &end], "nothing is selected"),
        (&["delete", &end, &start, "m"], "is before start"),
        (&["delete", &start, &end, "unknown"], "unknown"),
        (&["delete", &start, &end, "--tsuid", "zz"], "is not a TSUID"),
    ] {
        let failed = run(&server, words).await?;
        ensure!(
            failed.0 == Some(1) && failed.2.contains(error),
            "{words:?}: {failed:?}"
        );
    }
    Ok(())
}
