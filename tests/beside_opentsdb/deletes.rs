//! Points of OpenTSDB and OxTSDB in one HBase are deleted by OxTSDB: OpenTSDB returns the others, and its fsck finds
//! nothing.

use std::collections::BTreeMap;

use anyhow::{Context as _, ensure};
use oxtsdb_proto::common::v1::{TimeRange, time_range};
use oxtsdb_proto::data::v1::sub_query::MetricSource;
use oxtsdb_proto::data::v1::{DeletePointsRequest, DeletePointsResponse, delete_points_request};
use oxtsdb_tests::http::Http;
use oxtsdb_tests::rig::Rig;
use oxtsdb_tests::{Options, Tsdb, random};
use rand::RngExt as _;
use rand::rngs::StdRng;
use serde_json::{Value, json};

const HOUR: i64 = 1_356_998_400;
const SPAN_MS: i64 = 3 * 3_600_000;

/// Values by host and instant in milliseconds.
type Points = BTreeMap<(String, i64), i64>;

fn random_points(random: &mut StdRng) -> Points {
    let mut points: Points = (0..600)
        .map(|_| {
            let host = format!("host{}", random.random_range(0..3));
            let time_ms = HOUR * 1000 + random.random_range(0..SPAN_MS);
            // Half of them in seconds.
            let time_ms = if random.random_bool(0.5) {
                time_ms
            } else {
                time_ms - time_ms % 1000
            };
            ((host, time_ms), random.random_range(-100_000..100_000))
        })
        .collect();
    // OpenTSDB compacts a row that begins 80 to 95 s after the hour into a cell in which its fsck finds errors.
    for host in 0..3 {
        for hour_ms in (0..SPAN_MS).step_by(3_600_000) {
            points.insert((format!("host{host}"), HOUR * 1000 + hour_ms), 1);
        }
    }
    points
}

async fn write(http: &Http, metric: &str, points: &Points) -> anyhow::Result<()> {
    let points: Vec<Value> = points
        .iter()
        .map(|((host, time_ms), value)| {
            let time = if time_ms % 1000 == 0 {
                time_ms / 1000
            } else {
                *time_ms
            };
            json!({"metric": metric, "timestamp": time, "value": value, "tags": {"host": host}})
        })
        .collect();
    for batch in points.chunks(50) {
        let response = http.post("/api/put?details&sync", &json!(batch)).await?;
        ensure!(response.status == 200, "{}: {}", response.status, response.body);
    }
    Ok(())
}

async fn read(http: &Http, metric: &str) -> anyhow::Result<Points> {
    let query = json!({
        "start": HOUR, "end": HOUR + SPAN_MS / 1000, "msResolution": true,
        "queries": [{"metric": metric, "aggregator": "none"}],
    });
    let response = http.post("/api/query", &query).await?;
    ensure!(response.status == 200, "{}: {}", response.status, response.body);
    let mut points = Points::new();
    for group in response.json()?.as_array().context("no array")? {
        let host = group["tags"]["host"].as_str().context("host")?;
        for (time_ms, value) in group["dps"].as_object().context("dps")? {
            let value = value.as_i64().context("no integer")?;
            points.insert((host.to_owned(), time_ms.parse()?), value);
        }
    }
    Ok(points)
}

async fn delete(oxtsdb: &Tsdb, metric: &str, range: (i64, i64)) -> anyhow::Result<DeletePointsResponse> {
    let request = DeletePointsRequest {
        source: Some(delete_points_request::Source::Metric(MetricSource {
            metric: metric.to_owned(),
            ..MetricSource::default()
        })),
        range: Some(TimeRange {
            start: Some(time_range::Start::StartMs(range.0)),
            end: Some(time_range::End::EndMs(range.1 + 1)),
        }),
        dry_run: false,
    };
    let mut messages = oxtsdb.data_admin().delete_points(request).await?.into_inner();
    let mut last = DeletePointsResponse::default();
    while let Some(message) = messages.message().await? {
        last = message;
    }
    ensure!(last.done, "{last:?}");
    Ok(last)
}

#[tokio::test(flavor = "multi_thread")]
async fn opentsdb_returns_the_points_that_were_not_deleted() -> anyhow::Result<()> {
    let rig = Rig::find()?;
    let mut random = random::seeded("deletes")?;
    let tables = rig.create_tables("deletes").await?;
    let cells = rig
        .opentsdb(&tables, &["tsd.storage.enable_compaction=false"])
        .await?;
    let appends = rig
        .opentsdb(&tables, &["tsd.storage.enable_appends=true"])
        .await?;
    let compacting = rig
        .opentsdb(&tables, &["tsd.storage.enable_compaction=true"])
        .await?;
    let oxtsdb = Tsdb::start_with(
        Options::default()
            .flags(rig.flags(&tables))
            .flag("--write-form", "rows"),
    )
    .await?;

    let writers = [
        ("cells", cells.http()),
        ("appends", appends.http()),
        ("rows", oxtsdb.http()),
    ];
    for (metric, http) in &writers {
        let points = random_points(&mut random);
        write(http, metric, &points).await?;
        // A row that is over is compacted after it was read.
        if *metric == "cells" && random.random_bool(0.5) {
            ensure!(read(&compacting.http(), metric).await? == points, "{metric}");
        }
        for _ in 0..3 {
            let before = read(&cells.http(), metric).await?;
            let first = HOUR * 1000 + random.random_range(0..SPAN_MS);
            let range = (first, first + random.random_range(0..SPAN_MS / 2));
            let mut expected = before.clone();
            expected.retain(|(_, time_ms), _| !(range.0..=range.1).contains(time_ms));
            let deleted = delete(&oxtsdb, metric, range).await?;
            ensure!(
                deleted.points >= (before.len() - expected.len()) as u64 && deleted.contended_rows == 0,
                "{metric} {range:?}: {deleted:?}"
            );
            for (reader, http) in [("OpenTSDB", cells.http()), ("OxTSDB", oxtsdb.http())] {
                let actual = read(&http, metric).await?;
                ensure!(
                    actual == expected,
                    "{reader} {metric} {range:?}: {actual:?}, expected {expected:?}"
                );
            }
        }
    }
    let mut left = 0;
    // OpenTSDB's fsck checks appended points, but does not count them.
    for metric in ["cells", "rows"] {
        left += read(&cells.http(), metric).await?.len() as u64;
    }
    rig.data_fsck(&cells).await?.check(left)
}
