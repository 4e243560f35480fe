//! Every kind of heavy query, many at a time, with little and with much memory.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, ensure};
use oxtsdb_tests::load::Load;
use oxtsdb_tests::memory::MemoryWatch;
use oxtsdb_tests::raw_http::{RawHttp, RawResponse};
use oxtsdb_tests::{Options, Tsdb};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::support::{is_full, together, turn};

/// Within this time each of the queries that were sent together ends.
const WITHIN: Duration = Duration::from_secs(600);

/// How much longer many queries take than one after the other, at most.
const MOST_TIMES: f64 = 1.5;

/// Bytes that are kept of a response.
const KEPT_BYTES: usize = 64 << 10;

const ROLLUPS: &str = r#"{"aggregationIds": {"sum": 0, "count": 1}, "intervals": [
    {"table": "tsdb", "preAggregationTable": "agg", "interval": "1m", "rowSpan": "1h", "defaultInterval": true},
    {"table": "hours", "preAggregationTable": "agg-hours", "interval": "1h", "rowSpan": "1d"}]}"#;
const CODECS: &str = r#"{"net.opentsdb.core.SimpleHistogramDecoder":42}"#;

/// Hosts, minutes and hours of histograms and rollups.
const HOSTS: i64 = 100;
const MINUTES: i64 = 120;
const HOURS: i64 = 60;

/// Series in a request for last points, at most.
const MOST_LAST: usize = 2000;

/// The points that the queries read.
struct Data {
    points: Load,
    /// A series for each group.
    groups: Load,
}

impl Data {
    fn new() -> anyhow::Result<Self> {
        let (series, steps, groups) = if is_full() {
            (2000, 3600, 100_000)
        } else {
            (200, 1800, 5000)
        };
        // Last points are searched for from now on backwards.
        let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
        Ok(Self {
            points: Load::new("points", series, steps),
            groups: Load {
                start_ms: i64::try_from(now - 3600)? * 1000,
                step_ms: 60_000,
                ..Load::new("groups", groups, 4)
            },
        })
    }

    async fn write(&self, tsdb: &Tsdb) -> anyhow::Result<()> {
        self.points.write(tsdb).await?;
        self.groups.write(tsdb).await?;
        let start = self.points.seconds().0;
        let post = async |path: &str, body: Vec<Value>| {
            let response = tsdb.http().post(path, &Value::Array(body)).await?;
            ensure!(response.status == 204, "{path}: {}", response.body);
            Ok(())
        };
        for host in 0..HOSTS {
            let tags = json!({"host": format!("host{host:05}")});
            let histogram = |minute: i64| {
                json!({"metric": "histograms", "timestamp": start + minute * 60, "tags": tags,
                    "buckets": {"0,1": host, "1,2": minute, "2,5": 7}, "underflow": 0, "overflow": 1})
            };
            post("/api/histogram", (0..MINUTES).map(histogram).collect()).await?;
            let hour = start - start % 3600;
            let rollup = |number: i64, aggregator: &str| {
                json!({"metric": "rollups", "timestamp": hour + number * 3600, "tags": tags, "interval": "1h",
                    "aggregator": aggregator, "value": number * host + 60})
            };
            let rollups =
                (0..HOURS).flat_map(|hour| ["SUM", "COUNT"].map(|aggregator| rollup(hour, aggregator)));
            post("/api/rollup", rollups.collect()).await?;
        }
        Ok(())
    }

    /// The queries, by their kinds.
    fn queries(&self) -> Vec<(&'static str, Query)> {
        let (start, end) = self.points.seconds();
        let over =
            |until: i64, query: &str| Query::Get(format!("/api/query?start={start}&end={until}&m={query}"));
        let get = |query: &str| over(end, query);
        let expression = json!({"time": {"start": start.to_string(), "end": end.to_string(), "aggregator": "sum"},
            "metrics": [{"id": "a", "metric": "points"}, {"id": "b", "metric": "points"}],
            "expressions": [{"id": "e", "expr": "a + b * 2"}], "outputs": [{"id": "e"}]});
        let series = (0..self.groups.series.min(MOST_LAST))
            .map(|host| json!({"metric": "groups", "tags": {"host": format!("host{host:05}")}}));
        let last = json!({"backScan": 24, "queries": series.collect::<Vec<_>>()});
        vec![
            ("raw sums", get("sum:points")),
            ("rates", get("sum:rate:points")),
            ("percentiles", get("p99:points")),
            ("percentiles of one window", get("sum:0all-p99:points")),
            ("none", get("none:points")),
            (
                "groups",
                Query::Get(format!("{}%7Bhost=*%7D", self.groups.path("sum"))),
            ),
            ("last", Query::Post("/api/query/last", last)),
            (
                "lookups",
                Query::Get("/api/search/lookup?m=groups%7Bhost=*%7D&limit=100000".to_owned()),
            ),
            ("expressions", Query::Post("/api/query/exp", expression)),
            (
                "histograms",
                over(start + MINUTES * 60, "sum:percentiles%5B50,99%5D:histograms"),
            ),
            (
                "gexp",
                Query::Get(format!(
                    "/api/query/gexp?start={start}&end={end}&exp=scale(sum:1m-avg:points%7Bhost=*%7D,2)"
                )),
            ),
            ("rollups", over(start + HOURS * 3600, "sum:1h-avg:rollups")),
        ]
    }
}

#[derive(Clone)]
enum Query {
    Get(String),
    Post(&'static str, Value),
}

impl Query {
    async fn send(self, server: SocketAddr) -> anyhow::Result<RawResponse> {
        let exchange = async {
            let mut connection = RawHttp::connect(server).await?;
            match self {
                Self::Get(path) => connection.send_get(&path).await?,
                Self::Post(path, body) => {
                    connection
                        .send_post(path, "", body.to_string().as_bytes())
                        .await?
                }
            }
            connection.answer_keeping(KEPT_BYTES).await
        };
        timeout(WITHIN, exchange)
            .await
            .with_context(|| format!("no response within {WITHIN:?}"))?
    }
}

/// Sends a query `count` times together; returns how many responses of each status there were.
async fn send(query: &Query, server: SocketAddr, count: usize) -> anyhow::Result<BTreeMap<u16, usize>> {
    together((0..count).map(|_| query.clone().send(server))).await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: tests/nightly.sh"]
async fn many_queries_of_each_kind_take_turns() -> anyhow::Result<()> {
    let _turn = turn().await;
    let (memory, counts): (&[u64], &[usize]) = if is_full() {
        (&[512, 1024, 4096], &[4, 16, 64, 256])
    } else {
        (&[512], &[4, 16])
    };
    let mut failures = Vec::new();
    for mib in memory {
        let options = Options::default()
            .flag("--memory-limit-mib", &mib.to_string())
            .flag("--rollups-config", ROLLUPS)
            .flag("--histograms-config", CODECS)
            // Each of 256 queries waits for its turn.
            .flag("--query-queue-timeout-seconds", &WITHIN.as_secs().to_string());
        let mut tsdb = Tsdb::start_with(options).await?;
        let most_bytes = (mib << 20) * 6 / 5;
        let watch = MemoryWatch::start_with(tsdb.process().id(), most_bytes * 2)?;
        let data = Data::new()?;
        data.write(&tsdb).await?;
        println!("  {mib} MiB: {} MiB after the writes", watch.current() >> 20);
        for (kind, query) in data.queries() {
            send(&query, tsdb.http_address(), 1).await?;
            let begun = Instant::now();
            let alone = send(&query, tsdb.http_address(), 1).await?;
            let one = begun.elapsed();
            println!("  {mib} MiB, {kind}: {alone:?} in {one:.1?}");
            for &count in counts {
                let begun = Instant::now();
                let statuses = send(&query, tsdb.http_address(), count).await?;
                let times = begun.elapsed().as_secs_f64() / one.as_secs_f64() / count as f64;
                println!("    {count} at a time: {statuses:?}, {times:.2} times as long");
                if statuses.keys().ne(alone.keys()) {
                    failures.push(format!(
                        "{mib} MiB, {count} {kind}: {statuses:?}, alone {alone:?}"
                    ));
                }
                // Short queries take as long as their connections.
                if is_full() && one > Duration::from_millis(20) && times > MOST_TIMES {
                    failures.push(format!("{mib} MiB, {count} {kind}: {times:.2} times as long"));
                }
            }
        }
        tsdb.process().check_running()?;
        println!("  {mib} MiB: peak memory {} MiB", watch.peak() >> 20);
        watch.check_below(most_bytes)?;
    }
    ensure!(failures.is_empty(), "{failures:#?}");
    Ok(())
}
