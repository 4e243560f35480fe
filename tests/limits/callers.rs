//! Many heavy queries of one caller beside small requests of another, at the same address.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use oxtsdb_proto::data::v1::ListQueriesRequest;
use oxtsdb_tests::load::Load;
use oxtsdb_tests::raw_http::RawHttp;
use oxtsdb_tests::sample::Sample;
use oxtsdb_tests::tokens::{Signer, jwks};
use oxtsdb_tests::until;
use serde_json::json;
use tempfile::TempDir;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use crate::support::{BOUND, Target, is_full, limited};

/// Heavy queries at a time.
const HEAVY: usize = 64;

/// Small requests of a kind while they run.
const SMALL: usize = 5;

/// Small requests of a kind that are measured, and at most how much longer the slowest hundredth of them takes.
const MEASURED: usize = 300;
const MOST_TIMES: u32 = 5;

/// All callers have all rights: the policy only makes them known.
const POLICY: &str = r#"
telnet = "loopback"

[[rule]]
name = "all"
who = ["sub:heavy", "sub:light", "anonymous", "telnet"]
may = ["read", "write", "administer"]
"#;

/// A server with callers, and points for heavy queries.
struct Callers {
    target: Target,
    load: Load,
    /// The header with the token of each caller.
    heavy: String,
    light: String,
    _folder: TempDir,
}

impl Callers {
    async fn start() -> anyhow::Result<Self> {
        let (folder, signer) = (tempfile::tempdir()?, Signer::new("first")?);
        let file = |name: &str| folder.path().join(name).display().to_string();
        std::fs::write(file("policy.toml"), POLICY)?;
        std::fs::write(file("jwks.json"), jwks(&[&signer]))?;
        let options = limited()
            .flag("--access-policy", &file("policy.toml"))
            .flag("--jwks", &file("jwks.json"))
            .flag("--token-audience", "oxtsdb");
        let target = Target::start_with(options).await?;
        let load = Load::new("heavy", 200, 4000);
        load.write(&target.tsdb).await?;
        let header = |caller: &str| {
            let token = signer.token(caller, &json!({}))?;
            anyhow::Ok(format!("Authorization: Bearer {token}\r\n"))
        };
        let callers = Self {
            target,
            load,
            heavy: header("heavy")?,
            light: header("light")?,
            _folder: folder,
        };
        callers.write(0).await?;
        Ok(callers)
    }

    /// Sends JSON as the light caller, and fails unless the request is served.
    async fn post(&self, path: &str, body: &str) -> anyhow::Result<()> {
        let mut connection = RawHttp::connect(self.target.tsdb.http_address()).await?;
        connection.send_post(path, &self.light, body.as_bytes()).await?;
        let response = connection.answer().await?;
        ensure!(matches!(response.status, 200 | 204), "{response:?}");
        Ok(())
    }

    /// Writes a point of the light caller's series.
    async fn write(&self, second: i64) -> anyhow::Result<()> {
        let sample = Sample::int("light", &[("host", "a")], self.load.start_ms + second * 1000, 7);
        self.post("/api/put", &sample.to_json().to_string()).await
    }

    /// Queries the light caller's series.
    async fn query(&self) -> anyhow::Result<()> {
        let (start, end) = self.load.seconds();
        let query =
            json!({"start": start, "end": end, "queries": [{"aggregator": "sum", "metric": "light"}]});
        self.post("/api/query", &query.to_string()).await
    }

    /// Begins heavy queries, each again when it ends. They are dropped with the result.
    async fn begin_heavy(&self) -> anyhow::Result<JoinSet<()>> {
        let (start, end) = self.load.seconds();
        // Sorts the values of all series at each instant.
        let query = json!({"start": start, "end": end, "queries": [{"aggregator": "p99", "metric": self.load.metric}]});
        let address = self.target.tsdb.http_address();
        let mut queries = JoinSet::new();
        for _ in 0..HEAVY {
            let (query, header) = (query.to_string(), self.heavy.clone());
            queries.spawn(async move {
                let again = async {
                    loop {
                        let mut connection = RawHttp::connect(address).await?;
                        connection
                            .send_post("/api/query", &header, query.as_bytes())
                            .await?;
                        let response = connection.answer().await?;
                        ensure!(matches!(response.status, 200 | 503), "{response:?}");
                    }
                };
                let ended: anyhow::Result<()> = again.await;
                println!("  a heavy query failed: {ended:?}");
            });
        }
        // Queries that wait are listed, too.
        until("all heavy queries are there", || async {
            let queries = self.heavy_queries().await?;
            ensure!(queries > HEAVY * 3 / 4, "{queries} queries");
            Ok(())
        })
        .await?;
        Ok(queries)
    }

    /// How many queries of the heavy caller run or wait.
    async fn heavy_queries(&self) -> anyhow::Result<usize> {
        let mut client = self.target.tsdb.data_admin();
        let queries = client.list_queries(ListQueriesRequest {}).await?.into_inner();
        Ok(queries.queries.len())
    }
}

/// Times of requests, one after the other, ascending.
async fn times(
    count: usize,
    request: impl AsyncFn(i64) -> anyhow::Result<()>,
) -> anyhow::Result<Vec<Duration>> {
    let mut times = Vec::with_capacity(count);
    for number in 0..i64::try_from(count)? {
        let begun = Instant::now();
        timeout(BOUND, request(number))
            .await
            .with_context(|| format!("not served within {BOUND:?}"))??;
        times.push(begun.elapsed());
    }
    times.sort_unstable();
    Ok(times)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_is_served_while_another_has_64_heavy_queries() -> anyhow::Result<()> {
    let mut callers = Callers::start().await?;
    let mut heavy = callers.begin_heavy().await?;
    let queries = times(SMALL, async |_| callers.query().await).await?;
    let writes = times(SMALL, async |second| callers.write(second).await).await?;
    println!("  queries {queries:?}, writes {writes:?}");
    let left = callers.heavy_queries().await?;
    ensure!(left > HEAVY / 2, "only {left} heavy queries run or wait");
    ensure!(heavy.try_join_next().is_none(), "a heavy query has failed");
    heavy.shutdown().await;
    callers.target.check_unharmed().await
}

/// Prints the times of small requests before and beside heavy queries. At full size it compares them: they depend on the build,
/// and on what else the machine does.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: tests/nightly.sh"]
async fn a_caller_waits_little_while_another_has_64_heavy_queries() -> anyhow::Result<()> {
    let mut callers = Callers::start().await?;
    let p99 = |times: &[Duration]| times.get(times.len() * 99 / 100).copied().unwrap_or_default();
    let measure = async |when: &str| {
        let queries = times(MEASURED, async |_| callers.query().await).await?;
        let writes = times(MEASURED, async |second| callers.write(second).await).await?;
        for (kind, times) in [("queries", &queries), ("writes", &writes)] {
            let p50 = times.get(times.len() / 2).copied().unwrap_or_default();
            println!("  {when}: {kind} p50 {p50:?}, p99 {:?}", p99(times));
        }
        anyhow::Ok((p99(&queries), p99(&writes)))
    };
    let (queries, writes) = measure("idle").await?;
    let mut heavy = callers.begin_heavy().await?;
    let beside = measure("beside 64 heavy queries").await?;
    heavy.shutdown().await;
    if !is_full() {
        return callers.target.check_unharmed().await;
    }
    ensure!(
        beside.0 <= queries * MOST_TIMES,
        "queries: {queries:?}, beside {:?}",
        beside.0
    );
    ensure!(
        beside.1 <= writes * MOST_TIMES,
        "writes: {writes:?}, beside {:?}",
        beside.1
    );
    callers.target.check_unharmed().await
}
