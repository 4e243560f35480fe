//! Look-ups of series: OpenTSDB and OxTSDB list the same series of the same tables.

use std::collections::BTreeSet;

use anyhow::{Context as _, ensure};
use oxtsdb_proto::data::v1::series_service_client::SeriesServiceClient;
use oxtsdb_proto::data::v1::{CountSeriesRequest, SeriesSource};
use oxtsdb_tests::http::Http;
use oxtsdb_tests::opentsdb::OpenTsdb;
use oxtsdb_tests::rig::Rig;
use oxtsdb_tests::{Options, Tsdb, random, until};
use rand::RngExt as _;
use rand::rngs::StdRng;
use serde_json::{Value, json};

const METRICS: [&str; 3] = ["sys.cpu", "sys.mem", "net.bytes"];
const KEYS: [&str; 4] = ["host", "dc", "cpu", "if"];
const VALUES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];
/// OpenTSDB keeps a row in tsdb-meta for each series.
const TRACKING: &str = "tsd.core.meta.enable_tsuid_tracking=true";
const SERIES: usize = 150;
const SELECTORS: usize = 60;

/// Points of random series, one each.
fn points(random: &mut StdRng) -> Vec<Value> {
    let point = |random: &mut StdRng| {
        let mut tags = serde_json::Map::new();
        while tags.is_empty() {
            for key in KEYS {
                if random.random_bool(0.5) {
                    let value = VALUES[random.random_range(0..VALUES.len())];
                    tags.insert(key.to_owned(), json!(value));
                }
            }
        }
        let metric = METRICS[random.random_range(0..METRICS.len())];
        json!({"metric": metric, "timestamp": 1_356_998_400, "value": 1, "tags": tags})
    };
    (0..SERIES).map(|_| point(random)).collect()
}

/// A selector as `/api/search/lookup` takes it: tags with keys, or one value without. OpenTSDB ignores values without a
/// key beside other tags.
fn selector(random: &mut StdRng) -> Value {
    let with_keys = random.random_bool(0.7);
    let tag = |random: &mut StdRng| {
        let value = VALUES[random.random_range(0..VALUES.len())];
        if !with_keys {
            return json!({"key": "*", "value": value});
        }
        let key = KEYS[random.random_range(0..KEYS.len())];
        let value = if random.random_bool(0.6) { value } else { "*" };
        json!({"key": key, "value": value})
    };
    let tags: Vec<Value> = (0..if with_keys { random.random_range(0..4) } else { 1 })
        .map(|_| tag(random))
        .collect();
    let metric = random
        .random_bool(0.7)
        .then(|| METRICS[random.random_range(0..METRICS.len())]);
    json!({"metric": metric.unwrap_or("*"), "tags": tags, "limit": 0})
}

/// The series of a response; OpenTSDB lists one several times if it reads the table of points.
async fn listed(http: &Http, selector: &Value) -> anyhow::Result<BTreeSet<String>> {
    let response = http.post("/api/search/lookup", selector).await?;
    ensure!(response.status == 200, "{selector}: {response:?}");
    let response = response.json()?;
    let results = response["results"].as_array().context("results")?;
    Ok(results.iter().map(Value::to_string).collect())
}

async fn lists_what_opentsdb_lists(test: &str, settings: &[&str], flags: &[&str]) -> anyhow::Result<()> {
    let rig = Rig::find()?;
    let mut random = random::seeded(test)?;
    let tables = rig.create_tables(test).await?;
    let opentsdb: OpenTsdb = rig.opentsdb(&tables, &[settings, &[TRACKING]].concat()).await?;
    let flags = ["--enable-tsuid-tracking"].iter().chain(flags);
    let flags = flags.map(|flag| (*flag).to_owned());
    let oxtsdb = Tsdb::start_with(Options::default().flags(rig.flags(&tables)).flags(flags)).await?;
    let points = points(&mut random);
    let (theirs, ours) = points.split_at(SERIES / 2);
    opentsdb.put(theirs).await?;
    let response = oxtsdb.http().post("/api/put?details", &json!(ours)).await?;
    ensure!(response.status == 200, "{response:?}");
    let all: BTreeSet<String> = points
        .iter()
        .map(|point| format!("{}{}", point["metric"], point["tags"]))
        .collect();
    // OpenTSDB stores the rows of series after it has responded.
    let everything = json!({"metric": "*", "limit": 0});
    until("both list all series", || async {
        for http in [opentsdb.http(), oxtsdb.http()] {
            let series = listed(&http, &everything).await?;
            ensure!(series.len() == all.len(), "{} of {}", series.len(), all.len());
        }
        Ok(())
    })
    .await?;
    for _ in 0..SELECTORS {
        let mut selector = selector(&mut random);
        for use_meta in [true, false] {
            selector["useMeta"] = json!(use_meta);
            let expected = listed(&opentsdb.http(), &selector).await?;
            let actual = listed(&oxtsdb.http(), &selector).await?;
            ensure!(
                actual == expected,
                "{selector}: {actual:?}, OpenTSDB has {expected:?}"
            );
        }
    }
    for source in [SeriesSource::MetaTable, SeriesSource::DataTable] {
        let request = CountSeriesRequest {
            source: source.into(),
            max_tag_keys: 10,
            ..CountSeriesRequest::default()
        };
        let mut client = SeriesServiceClient::new(oxtsdb.data_channel());
        let counted = client.count_series(request).await?.into_inner();
        ensure!(counted.series == all.len() as u64, "{counted:?}");
        ensure!(counted.tag_keys.len() == KEYS.len(), "{counted:?}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_what_opentsdb_lists_with_default_settings() -> anyhow::Result<()> {
    lists_what_opentsdb_lists("lookup", &[], &[]).await
}

/// Salted row keys, and the index in memory that is read from tsdb-meta.
#[tokio::test(flavor = "multi_thread")]
async fn lists_what_opentsdb_lists_with_salt_and_the_index() -> anyhow::Result<()> {
    let settings = ["tsd.storage.salt.width=1", "tsd.storage.salt.buckets=7"];
    let flags = [
        "--salt-width=1",
        "--salt-buckets=7",
        "--trust-tsuid-tracking",
        "--series-index-max-age-seconds=1",
    ];
    lists_what_opentsdb_lists("lookup-salted", &settings, &flags).await
}
