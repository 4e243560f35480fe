//! OpenTSDB and OxTSDB read each other's rollups in one HBase, and those that OxTSDB builds from points.

use anyhow::{Context as _, ensure};
use oxtsdb_proto::common::v1::{SeriesName, Tag, TimeRange, time_range};
use oxtsdb_proto::data::v1::{
    BuildRollupsRequest, RollupSeries, TimeUnit, WriteOptions, WriteRollupsRequest,
};
use oxtsdb_tests::http::Http;
use oxtsdb_tests::rig::Rig;
use oxtsdb_tests::{Options, Tsdb, random, sizes};
use rand::RngExt as _;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use serde_json::{Value, json};

/// A day of 2013.
const DAY: i64 = 1_356_998_400;
const DAYS: i64 = 3;
/// The metrics, by the server that writes them.
const BY_OPENTSDB: &str = "by.opentsdb";
const BY_OXTSDB: &str = "by.oxtsdb";
/// A metric with points that OxTSDB builds rollups from.
const BUILT: &str = "built";
/// A metric with points alone.
const POINTS: &str = "points";

const USAGES: [&str; 4] = [
    "ROLLUP_RAW",
    "ROLLUP_NOFALLBACK",
    "ROLLUP_FALLBACK",
    "ROLLUP_FALLBACK_RAW",
];

/// A rollup as `/api/rollup` takes it, without its metric.
fn rollup(random: &mut StdRng) -> Value {
    let (interval, seconds) = *[("1h", 3600), ("1h", 3600), ("1d", 86_400)]
        .choose(random)
        .unwrap_or(&("1h", 3600));
    let aggregator = *["sum", "count", "min", "max"].choose(random).unwrap_or(&"sum");
    let value = match random.random_range(0..4) {
        0 => json!(random.random_range(-1e3..1e3)),
        1 => json!(random.random_range(-100_000..100_000)),
        _ => json!(random.random_range(1..200)),
    };
    let at = random.random_range(0..DAYS * 86_400 / seconds) * seconds;
    let mut rollup = json!({
        "timestamp": DAY + at,
        "value": value,
        "interval": interval,
        "aggregator": aggregator,
        "tags": {"host": format!("host{}", random.random_range(0..4))},
    });
    if random.random_bool(0.2) {
        rollup["groupByAggregator"] = json!("sum");
    }
    rollup
}

/// The key of a value's cell, as far as it matters: the last value of each cell is written.
fn place(rollup: &Value) -> String {
    let fields = ["timestamp", "interval", "aggregator", "groupByAggregator", "tags"];
    fields.map(|field| rollup[field].to_string()).join(" ")
}

async fn post(http: &Http, metric: &str, rollups: &[Value]) -> anyhow::Result<()> {
    let of_metric = |rollup: &Value| {
        let mut rollup = rollup.clone();
        rollup["metric"] = json!(metric);
        rollup
    };
    let body = Value::Array(rollups.iter().map(of_metric).collect());
    let response = http.post("/api/rollup?details", &body).await?;
    ensure!(response.status == 200, "{}: {}", response.status, response.body);
    let body: Value = response.json()?;
    ensure!(body["failed"] == 0, "{body}");
    Ok(())
}

/// The same over gRPC. HTTP stores floating point in 8 bytes, gRPC in as few as hold the value.
async fn write(oxtsdb: &Tsdb, metric: &str, rollups: &[Value]) -> anyhow::Result<()> {
    let series = rollups.iter().map(|rollup| {
        let text = |field: &str| rollup[field].as_str().unwrap_or_default().to_owned();
        let value = &rollup["value"];
        let tag = Tag {
            key: "host".to_owned(),
            value: rollup["tags"]["host"].as_str().unwrap_or_default().to_owned(),
        };
        RollupSeries {
            name: Some(SeriesName {
                metric: metric.to_owned(),
                tags: vec![tag],
            }),
            interval: text("interval"),
            aggregator: text("aggregator"),
            group_by: text("groupByAggregator"),
            timestamps: rollup["timestamp"].as_i64().into_iter().collect(),
            values: value.as_f64().filter(|_| !value.is_i64()).into_iter().collect(),
            int_values: value.as_i64().into_iter().collect(),
        }
    });
    let request = WriteRollupsRequest {
        series: series.collect(),
        options: Some(WriteOptions {
            time_unit: TimeUnit::Seconds.into(),
            ..WriteOptions::default()
        }),
    };
    let response = oxtsdb.data().write_rollups(request).await?.into_inner();
    ensure!(response.failed == 0, "{response:?}");
    Ok(())
}

/// A query of rollups; `METRIC` stands for the metric.
fn query(random: &mut StdRng, usages: &[&str], downsampling: &[&str]) -> Value {
    let function = *["sum", "count", "min", "max", "avg"]
        .choose(random)
        .unwrap_or(&"sum");
    let interval = *downsampling.choose(random).unwrap_or(&"1h");
    let aggregators = ["sum", "none", "max", "min", "avg", "zimsum", "count"];
    let mut sub_query = json!({
        "metric": "METRIC",
        "aggregator": aggregators.choose(random),
        "downsample": format!("{interval}-{function}"),
        "rollupUsage": usages.choose(random),
    });
    if random.random_bool(0.15) {
        sub_query["preAggregate"] = json!(true);
    }
    if random.random_bool(0.5) {
        sub_query["filters"] =
            json!([{"tagk": "host", "type": "wildcard", "filter": "*", "groupBy": random.random_bool(0.7)}]);
    }
    let start = DAY + random.random_range(0..DAYS * 24) * 3600 - 3600;
    json!({
        "start": start,
        "end": start + random.random_range(1..DAYS * 24) * 3600,
        "queries": [sub_query],
    })
}

/// The groups of a response, sorted where they differ in tags, without groups that have neither tags nor points; `None`:
/// an error.
async fn groups(http: &Http, query: &Value, metric: &str) -> anyhow::Result<Option<Vec<Value>>> {
    let mut query = query.clone();
    query["queries"][0]["metric"] = json!(metric);
    let response = http.post("/api/query?arrays", &query).await?;
    if response.status != 200 {
        return Ok(None);
    }
    let Value::Array(mut groups) = response.json()? else {
        anyhow::bail!("no array: {}", response.body);
    };
    for group in &mut groups {
        let tags = group["aggregateTags"].as_array_mut().context("aggregateTags")?;
        tags.sort_by_key(ToString::to_string);
        group["metric"] = json!("METRIC");
    }
    // Of rows without points in the range OpenTSDB returns some.
    let is_empty = |group: &Value| group["dps"] == json!([]) && group["tags"] == json!({});
    groups.retain(|group| !is_empty(group));
    groups.sort_by_key(|group| group["tags"].to_string());
    Ok(Some(groups))
}

/// Compares readers; returns how many queries had points.
async fn compare(
    queries: &[Value],
    (expected_http, expected_metric): (&Http, &str),
    readers: &[(&str, &Http, &str)],
) -> anyhow::Result<usize> {
    let (mut with_points, mut differing) = (0, Vec::new());
    for query in queries {
        let expected = groups(expected_http, query, expected_metric).await?;
        let has_points = |group: &Value| group["dps"].as_array().is_some_and(|points| !points.is_empty());
        with_points += usize::from(expected.iter().flatten().any(has_points));
        for (reader, http, metric) in readers {
            let actual = groups(http, query, metric).await?;
            if actual != expected {
                let (actual, expected) = (json!(actual), json!(expected));
                differing.push(format!("{reader}: {query}\n{actual}\nexpected\n{expected}"));
            }
        }
    }
    ensure!(
        differing.is_empty(),
        "{} of {} queries differ, among them\n{}",
        differing.len(),
        queries.len() * readers.len(),
        differing.get(..5).unwrap_or(&differing).join("\n")
    );
    Ok(with_points)
}

#[tokio::test(flavor = "multi_thread")]
async fn both_read_the_rollups_of_the_other() -> anyhow::Result<()> {
    let rig = Rig::find()?;
    let mut random = random::seeded("rollups")?;
    let tables = rig.create_tables("rollups").await?;
    // Each has two tables with the family of points.
    let (hours, days, minutes) = (
        rig.create_tables("rollups-hours").await?,
        rig.create_tables("rollups-days").await?,
        rig.create_tables("rollups-minutes").await?,
    );
    let config = json!({
        "aggregationIds": {"sum": 0, "count": 1, "min": 2, "max": 3},
        "intervals": [
            {"table": tables.data, "preAggregationTable": minutes.data, "interval": "1m", "rowSpan": "1h",
             "defaultInterval": true},
            {"table": hours.data, "preAggregationTable": hours.tree, "interval": "1h", "rowSpan": "1d"},
            {"table": days.data, "preAggregationTable": days.tree, "interval": "1d", "rowSpan": "1n"},
        ],
    })
    .to_string();
    let setting = format!("tsd.rollups.config={config}");
    let opentsdb = rig
        .opentsdb(&tables, &["tsd.rollups.enable=true", &setting])
        .await?;
    let options = || Options::default().flag("--rollups-config", &config);
    let oxtsdb = Tsdb::start_with(options().flags(rig.flags(&tables))).await?;
    let embedded = Tsdb::start_with(options()).await?;
    let (ours, theirs, own) = (oxtsdb.http(), opentsdb.http(), embedded.http());

    let count = sizes::from_environment("OXTSDB_INTEROP_ROLLUPS", 1_000)?;
    let mut rollups: Vec<Value> = (0..count).map(|_| rollup(&mut random)).collect();
    // Cells of one interval with several widths have no order in OpenTSDB.
    rollups.sort_by_key(place);
    rollups.dedup_by_key(|rollup| place(rollup));
    for (index, batch) in rollups.chunks(50).enumerate() {
        post(&theirs, BY_OPENTSDB, batch).await?;
        if index % 2 == 0 {
            post(&ours, BY_OXTSDB, batch).await?;
            write(&embedded, BY_OXTSDB, batch).await?;
        } else {
            write(&oxtsdb, BY_OXTSDB, batch).await?;
            post(&own, BY_OXTSDB, batch).await?;
        }
    }
    let points: Vec<Value> = (0..count * 2)
        .map(|_| {
            let value = match random.random_range(0..3) {
                // Exact in binary: the order of additions does not matter.
                0 => json!(f64::from(random.random_range(-8000..8000)) / 8.0),
                _ => json!(random.random_range(-1000..1000)),
            };
            let time = DAY + random.random_range(0..DAYS * 86_400);
            let host = format!("host{}", random.random_range(0..4));
            json!({"timestamp": time, "value": value, "tags": {"host": host}})
        })
        .collect();
    let mut points = points;
    points.sort_by_key(|point| (point["tags"].to_string(), point["timestamp"].as_i64()));
    points.dedup_by_key(|point| (point["tags"].to_string(), point["timestamp"].as_i64()));
    for metric in [BUILT, POINTS] {
        for batch in points.chunks(50) {
            let of_metric = |point: &Value| {
                let mut point = point.clone();
                point["metric"] = json!(metric);
                point
            };
            let batch: Vec<Value> = batch.iter().map(of_metric).collect();
            opentsdb.put(&batch).await?;
            let response = own.post("/api/put?details", &Value::Array(batch)).await?;
            ensure!(response.status == 200, "{}", response.body);
        }
    }
    for server in [&oxtsdb, &embedded] {
        let request = BuildRollupsRequest {
            metric: BUILT.to_owned(),
            range: Some(TimeRange {
                start: Some(time_range::Start::StartMs(DAY * 1000)),
                end: Some(time_range::End::EndMs((DAY + DAYS * 86_400) * 1000)),
            }),
            ..BuildRollupsRequest::default()
        };
        let mut stream = server.data_admin().build_rollups(request).await?.into_inner();
        let mut done = false;
        while let Some(progress) = stream.message().await? {
            done = progress.done;
            ensure!(!done || progress.cells_written > 0, "{progress:?}");
        }
        ensure!(done);
    }

    let count = sizes::from_environment("OXTSDB_INTEROP_ROLLUP_QUERIES", 200)?;
    let intervals = ["1h", "2h", "6h", "1d"];
    // Rollups that were written.
    let queries: Vec<Value> = (0..count)
        .map(|_| query(&mut random, &USAGES, &intervals))
        .collect();
    let readers = [
        ("OpenTSDB reads OxTSDB's", &theirs, BY_OXTSDB),
        ("OxTSDB reads OpenTSDB's", &ours, BY_OPENTSDB),
        ("OxTSDB reads its own", &ours, BY_OXTSDB),
        ("the embedded store reads its own", &own, BY_OXTSDB),
    ];
    let with_points = compare(&queries, (&theirs, BY_OPENTSDB), &readers).await?;
    ensure!(
        with_points > count / 4,
        "only {with_points} queries of rollups have points"
    );
    // Rollups that were built, as OpenTSDB reads them.
    let queries: Vec<Value> = (0..count)
        .map(|_| query(&mut random, &USAGES, &intervals))
        .collect();
    let readers = [
        ("OxTSDB reads what it built", &ours, BUILT),
        ("the embedded store reads what it built", &own, BUILT),
    ];
    let with_points = compare(&queries, (&theirs, BUILT), &readers).await?;
    ensure!(
        with_points > count / 2,
        "only {with_points} queries of built rollups have points"
    );
    // They have the numbers of the points, as OpenTSDB computes these.
    for interval in ["1h", "1d"] {
        for function in ["sum", "count", "min", "max"] {
            let of_usage = |usage: &str| {
                json!({"start": DAY, "end": DAY + DAYS * 86_400 - 1, "queries": [{
                    "metric": "METRIC", "aggregator": "none", "downsample": format!("{interval}-{function}"),
                    "rollupUsage": usage}]})
            };
            let of_points = groups(&theirs, &of_usage("ROLLUP_RAW"), BUILT).await?;
            ensure!(of_points.as_ref().is_some_and(|groups| groups.len() == 4));
            for (reader, http) in [
                ("OpenTSDB", &theirs),
                ("OxTSDB", &ours),
                ("the embedded store", &own),
            ] {
                let of_rollups = groups(http, &of_usage("ROLLUP_NOFALLBACK"), BUILT).await?;
                ensure!(
                    of_rollups == of_points,
                    "{reader}, {interval}-{function}: {}\nexpected\n{}",
                    json!(of_rollups),
                    json!(of_points)
                );
            }
        }
    }
    // Without rollups both fall back alike where the windows equal an interval.
    let queries: Vec<Value> = (0..count / 4)
        .map(|_| {
            query(
                &mut random,
                &["ROLLUP_RAW", "ROLLUP_NOFALLBACK", "ROLLUP_FALLBACK_RAW"],
                &["1h"],
            )
        })
        .filter(|query| query["queries"][0]["preAggregate"].is_null())
        .collect();
    let readers = [
        ("OxTSDB falls back", &ours, POINTS),
        ("the embedded store falls back", &own, POINTS),
    ];
    compare(&queries, (&theirs, POINTS), &readers).await?;
    Ok(())
}
