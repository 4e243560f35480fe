//! `--retention`: old days are dropped with their files, and older points are rejected one by one.

use std::fs;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, ensure};
use oxtsdb_proto::common::v1::ErrorReason;
use oxtsdb_tests::read_back::series_of;
use oxtsdb_tests::sample::{Number, Sample};
use oxtsdb_tests::write_requests::write_request;
use oxtsdb_tests::{Options, Tsdb, until};
use serde_json::Value;
use tempfile::TempDir;

const DAY_MS: i64 = 86_400_000;
const METRIC: &str = "retention.m";

fn now_ms() -> anyhow::Result<i64> {
    Ok(i64::try_from(
        SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis(),
    )?)
}

/// A point of each of some days before now, the oldest first.
fn days(now_ms: i64, count: i64) -> Vec<Sample> {
    let instant = |day| now_ms / 1000 * 1000 - day * DAY_MS;
    (0..count)
        .rev()
        .map(|day| Sample::int(METRIC, &[("host", "a")], instant(day), day))
        .collect()
}

async fn stored_days(tsdb: &Tsdb) -> anyhow::Result<Vec<i64>> {
    let series = series_of(&mut tsdb.data(), METRIC).await?;
    let day = |(_, value)| match value {
        Number::Int(day) => Ok(day),
        Number::Double(_) => anyhow::bail!("{value:?} was not written"),
    };
    series.into_values().flatten().map(day).collect()
}

/// The folders of days.
fn folders(data_dir: &Path) -> anyhow::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(data_dir.join("data/points"))? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name.starts_with("20") {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

async fn statistic(tsdb: &Tsdb, name: &str) -> anyhow::Result<u64> {
    let all = tsdb.http().get("/api/stats").await?.json()?;
    let statistics = all.as_array().context("an array")?;
    let statistic = statistics.iter().find(|statistic| statistic["metric"] == name);
    let value = statistic.and_then(|statistic| statistic["value"].as_str());
    Ok(value.with_context(|| format!("no {name}"))?.parse()?)
}

#[tokio::test(flavor = "multi_thread")]
async fn drops_days_with_their_files() -> anyhow::Result<()> {
    let folder = TempDir::with_prefix("oxtsdb-test-")?;
    let data_dir = folder.path().join("data");
    let options = || Options::default().data_dir(&data_dir);
    let now_ms = now_ms()?;

    let mut tsdb = Tsdb::start_with(options()).await?;
    let samples = days(now_ms, 20);
    tsdb.data().write(write_request(&samples)).await?;
    tsdb.terminate().await?;
    assert_eq!(folders(&data_dir)?.len(), 20);
    drop(tsdb);

    let mut tsdb = Tsdb::start_with(options().flag("--retention", "5d")).await?;
    until("old days are dropped", || async {
        let count = folders(&data_dir)?.len();
        ensure!(count <= 6, "{count} days");
        Ok(())
    })
    .await?;
    let stored = stored_days(&tsdb).await?;
    // The edge is in the middle of a day, which is dropped when it is over.
    assert!(
        stored == [5, 4, 3, 2, 1, 0] || stored == [4, 3, 2, 1, 0],
        "{stored:?}"
    );
    until("the dropped days are counted", || async {
        let dropped = statistic(&tsdb, "oxtsdb.points.dropped_days").await?;
        ensure!(dropped == 20 - folders(&data_dir)?.len() as u64, "{dropped} days");
        Ok(())
    })
    .await?;
    let log = tsdb.process().log();
    assert!(log.contains("dropped a day"), "{log}");
    assert!(!data_dir.join("data/points/dropped").read_dir()?.any(|_| true));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn rejects_older_points_and_stores_the_others() -> anyhow::Result<()> {
    let tsdb = Tsdb::start_with(Options::default().flag("--retention", "1w")).await?;
    let now_ms = now_ms()?;
    tsdb.data().write(write_request(&days(now_ms, 1))).await?;

    // The edge follows the newest point within a second.
    let samples = days(now_ms, 10);
    let old = write_request(&[samples[0].with_metric("retention.old")]);
    until("old points are rejected", || async {
        let response = tsdb.data().write(old.clone()).await?.into_inner();
        ensure!(response.failures.is_some(), "it was stored");
        Ok(())
    })
    .await?;
    let response = tsdb.data().write(write_request(&samples)).await?.into_inner();
    // The point at the edge itself is stored.
    assert_eq!(response.written, 8);
    let failures = response.failures.context("failures")?;
    let first = failures.errors.first().context("an error")?;
    let error = first.error.as_ref().context("its details")?;
    assert_eq!(error.reason(), ErrorReason::BeforeRetention, "{error:?}");
    assert_eq!(error.metadata["setting"], "--retention");
    assert_eq!(
        error.metadata["timestamp_ms"],
        samples[0].timestamp_ms.to_string()
    );
    assert!(error.message.contains("before the retention's edge"), "{error:?}");

    let points: Vec<Value> = samples.iter().map(Sample::to_json).collect();
    let response = tsdb.http().post("/api/put?details", &Value::from(points)).await?;
    assert_eq!(response.status, 400, "{response:?}");
    let body = response.json()?;
    assert_eq!(
        (&body["success"], &body["failed"]),
        (&8.into(), &2.into()),
        "{body}"
    );
    let reason = body["errors"][0]["error"].to_string();
    assert!(reason.contains("--retention"), "{body}");

    let mut telnet = tsdb.telnet().await?;
    telnet.send(samples[0].to_telnet_line().as_bytes()).await?;
    let line = telnet.line().await?;
    assert!(line.contains("--retention"), "{line}");

    assert_eq!(stored_days(&tsdb).await?, [7, 6, 5, 4, 3, 2, 1, 0]);
    let rejected = statistic(&tsdb, "oxtsdb.points.before_retention").await?;
    assert!(rejected >= 5, "{rejected}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retention_that_is_none_ends_the_start() -> anyhow::Result<()> {
    for (text, rule) in [
        ("23h", "expected at least 1d"),
        ("7 days", "expected 0, or a number and a unit"),
    ] {
        let error = Tsdb::failed_start(Options::default().flag("--retention", text)).await?;
        let expected = format!("--retention `{text}`: {rule}");
        assert!(error.starts_with(&expected), "{error}");
    }
    Ok(())
}
