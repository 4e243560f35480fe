//! OpenTSDB and OxTSDB read each other's histograms in one HBase, and so does the embedded store its own.

use anyhow::{Context as _, ensure};
use oxtsdb_tests::format::{self, Format};
use oxtsdb_tests::http::Http;
use oxtsdb_tests::rig::Rig;
use oxtsdb_tests::{Options, Tsdb, random, read_back, sizes};
use rand::RngExt as _;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use serde_json::{Map, Value, json};

/// OpenTSDB's setting.
const CODECS: &str = r#"{"net.opentsdb.core.SimpleHistogramDecoder":42}"#;
/// An hour of 2013.
const HOUR: i64 = 1_356_998_400;
const SPAN_SECONDS: i64 = 5 * 3600;
/// The metrics, by the server that writes them.
const BY_OPENTSDB: &str = "by.opentsdb";
const BY_OXTSDB: &str = "by.oxtsdb";

/// A histogram as `/api/histogram` takes it, without its metric.
fn histogram(random: &mut StdRng) -> Value {
    let bounds = ["0", "0.5", "1.75", "3.5", "8", "16", "1e3", "-2"];
    let mut buckets = Map::new();
    for _ in 0..random.random_range(1..8) {
        let place = random.random_range(0..bounds.len() - 1);
        let key = format!("{},{}", bounds[place], bounds[place + 1]);
        let count: i64 = match random.random_range(0..10) {
            0 => 0,
            1 => random.random_range(0..1 << 40),
            _ => random.random_range(1..500),
        };
        buckets.insert(key, json!(count));
    }
    let second = HOUR + random.random_range(0..SPAN_SECONDS);
    let timestamp = match random.random_range(0..4) {
        0 => second * 1000 + random.random_range(0..1000),
        1 => second - second % 60,
        _ => second,
    };
    let host = format!("host{}", random.random_range(0..4));
    let zone = format!("zone{}", random.random_range(0..2));
    json!({
        "timestamp": timestamp,
        "tags": {"host": host, "zone": zone},
        "buckets": buckets,
        "underflow": random.random_range(0..300),
        "overflow": random.random_range(0..3),
    })
}

fn with_metric(metric: &str, histogram: &Value) -> Value {
    let mut histogram = histogram.clone();
    histogram["metric"] = json!(metric);
    histogram
}

async fn write(http: &Http, histograms: &[Value]) -> anyhow::Result<()> {
    let body = Value::Array(histograms.to_vec());
    let response = http.post("/api/histogram?details&sync", &body).await?;
    ensure!(response.status == 200, "{}: {}", response.status, response.body);
    Ok(())
}

/// A query of histograms; `METRIC` stands for the metric.
fn query(random: &mut StdRng) -> Value {
    let mut sub_query = json!({"metric": "METRIC"});
    sub_query["aggregator"] = json!(if random.random_bool(0.8) { "sum" } else { "none" });
    let percentiles: Vec<f64> = (0..random.random_range(0..4))
        .map(|_| {
            *[0.0, 0.5, 1.0, 25.0, 50.0, 75.0, 99.0, 99.9, 100.0]
                .choose(random)
                .unwrap_or(&50.0)
        })
        .collect();
    sub_query["showHistogramBuckets"] = json!(percentiles.is_empty() || random.random_bool(0.5));
    sub_query["percentiles"] = json!(percentiles);
    let downsampling = [
        "1s-sum",
        "1m-sum",
        "7m-sum-nan",
        "1h-sum",
        "90m-sum-zero",
        "0all-sum",
        "1hc-sum",
        "500ms-sum",
    ];
    if random.random_bool(0.6) {
        sub_query["downsample"] = json!(downsampling.choose(random));
    }
    if random.random_bool(0.2) {
        sub_query["rate"] = json!(true);
    }
    let filters: Vec<Value> = [
        ("host", "host*"),
        ("host", "host1|host2"),
        ("zone", "*"),
        ("zone", "zone0"),
    ]
    .iter()
    .filter(|_| random.random_bool(0.3))
    .map(|(key, value)| {
        let kind = if value.contains('*') {
            "wildcard"
        } else {
            "literal_or"
        };
        json!({"tagk": key, "type": kind, "filter": value, "groupBy": true})
    })
    .collect();
    // Two filters of one key group by it once; the second is left out.
    let mut by_key: Vec<Value> = Vec::new();
    for filter in filters {
        if by_key.iter().all(|other| other["tagk"] != filter["tagk"]) {
            by_key.push(filter);
        }
    }
    for filter in &mut by_key {
        filter["groupBy"] = json!(random.random_bool(0.6));
    }
    sub_query["filters"] = json!(by_key);
    let start = HOUR + random.random_range(-600..SPAN_SECONDS);
    json!({
        "start": start,
        "end": start + random.random_range(1..SPAN_SECONDS),
        "msResolution": random.random_bool(0.5),
        "queries": [sub_query],
    })
}

/// The groups of a response, sorted where they differ in tags.
async fn groups(http: &Http, query: &Value, metric: &str) -> anyhow::Result<Vec<Value>> {
    let mut query = query.clone();
    query["queries"][0]["metric"] = json!(metric);
    let response = http.post("/api/query?arrays", &query).await?;
    ensure!(response.status == 200, "{}: {}", response.status, response.body);
    let Value::Array(mut groups) = response.json()? else {
        anyhow::bail!("no array: {}", response.body);
    };
    for group in &mut groups {
        let tags = group["aggregateTags"].as_array_mut().context("aggregateTags")?;
        tags.sort_by_key(ToString::to_string);
        let name = group["metric"].as_str().context("metric")?;
        group["metric"] = json!(name.replace(metric, "METRIC"));
    }
    // Stable: the results of a group keep their order.
    groups.sort_by_key(|group| group["tags"].to_string());
    Ok(groups)
}

/// The qualifiers and values of cells, row by row. Rows are in the order of salts, which the metric is part of.
async fn cells(oxtsdb: &Tsdb, metric: &str) -> anyhow::Result<Vec<Vec<(Vec<u8>, Vec<u8>)>>> {
    let rows = read_back::rows_of(&mut oxtsdb.data(), metric).await?;
    let cells = rows.into_iter().map(|row| {
        let cells = row.cells.into_iter();
        cells
            .map(|cell| (cell.qualifier.to_vec(), cell.value.to_vec()))
            .collect()
    });
    let mut cells: Vec<Vec<_>> = cells.collect();
    cells.sort();
    Ok(cells)
}

async fn both_read_the_histograms_of_the_other(
    format: &Format,
    count: usize,
    queries: usize,
) -> anyhow::Result<()> {
    let rig = Rig::find()?;
    let mut random = random::seeded(format.name)?;
    let tables = rig.create_tables(format.name).await?;
    let setting = format!("tsd.core.histograms.config={CODECS}");
    let opentsdb = rig
        .opentsdb(&tables, &[format.settings, &[&setting]].concat())
        .await?;
    let options = || Options::default().flag("--histograms-config", CODECS);
    let on_tables = options().flags(rig.flags(&tables)).flags(format.flags());
    let oxtsdb = Tsdb::start_with(on_tables).await?;
    let embedded = Tsdb::start_with(options().flags(format.layout())).await?;

    let histograms: Vec<Value> = (0..count).map(|_| histogram(&mut random)).collect();
    for batch in histograms.chunks(100) {
        let of = |metric: &str| -> Vec<Value> { batch.iter().map(|one| with_metric(metric, one)).collect() };
        write(&opentsdb.http(), &of(BY_OPENTSDB)).await?;
        write(&oxtsdb.http(), &of(BY_OXTSDB)).await?;
        write(&embedded.http(), &of(BY_OXTSDB)).await?;
    }
    let stored = cells(&oxtsdb, BY_OXTSDB).await?;
    ensure!(stored == cells(&oxtsdb, BY_OPENTSDB).await?, "the cells differ");
    ensure!(stored.iter().flatten().count() > count / 2);

    let mut with_points = 0;
    for _ in 0..queries {
        let mut query = query(&mut random);
        if format.is_salted() {
            // OpenTSDB then returns an element for each series and hour.
            query["queries"][0]["aggregator"] = json!("sum");
        }
        let expected = groups(&opentsdb.http(), &query, BY_OPENTSDB).await?;
        with_points += usize::from(expected.iter().any(|group| group["dps"] != json!([])));
        for (reader, http, metric) in [
            ("OpenTSDB reads OxTSDB's", opentsdb.http(), BY_OXTSDB),
            ("OxTSDB reads OpenTSDB's", oxtsdb.http(), BY_OPENTSDB),
            ("OxTSDB reads its own", oxtsdb.http(), BY_OXTSDB),
            ("the embedded store reads its own", embedded.http(), BY_OXTSDB),
        ] {
            let actual = groups(&http, &query, metric).await?;
            ensure!(
                actual == expected,
                "{reader}: {query}\n{}\nexpected\n{}",
                Value::Array(actual),
                Value::Array(expected)
            );
        }
    }
    ensure!(
        with_points > queries / 4,
        "only {with_points} queries have points"
    );
    // Its fsck leaves histograms alone.
    let fsck = rig.data_fsck(&opentsdb).await?;
    let is_histogram =
        |complaint: &String| complaint.starts_with("Found an object possibly from a future version");
    ensure!(
        fsck.errors == 0 && fsck.complaints.iter().all(is_histogram),
        "{fsck:?}"
    );
    Ok(())
}

/// OXTSDB_INTEROP_HISTOGRAMS, OXTSDB_INTEROP_HISTOGRAM_QUERIES.
fn sizes() -> anyhow::Result<(usize, usize)> {
    let count = sizes::from_environment("OXTSDB_INTEROP_HISTOGRAMS", 1_000)?;
    Ok((
        count,
        sizes::from_environment("OXTSDB_INTEROP_HISTOGRAM_QUERIES", 300)?,
    ))
}

#[tokio::test(flavor = "multi_thread")]
async fn both_read_histograms_with_default_settings() -> anyhow::Result<()> {
    let (count, queries) = sizes()?;
    let format = Format {
        name: "histograms",
        ..Format::default()
    };
    both_read_the_histograms_of_the_other(&format, count, queries).await
}

#[tokio::test(flavor = "multi_thread")]
async fn both_read_histograms_with_salt_and_wide_uids() -> anyhow::Result<()> {
    let (count, queries) = sizes()?;
    let format = Format {
        name: "histograms-salted",
        ..format::SALTED_WIDE
    };
    both_read_the_histograms_of_the_other(&format, count / 2, queries / 2).await
}
