//! A server under attack, and the checks before and after.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use oxtsdb_proto::data::v1::ListQueriesRequest;
use oxtsdb_tests::bystander::{Bystander, Kind};
use oxtsdb_tests::health::{DATA_SERVICE, check_serving};
use oxtsdb_tests::memory::MemoryWatch;
use oxtsdb_tests::raw_http::{RawHttp, RawResponse};
use oxtsdb_tests::sample::Sample;
use oxtsdb_tests::write_requests::write_request;
use oxtsdb_tests::{Options, Tsdb, refusal, until};
use tokio::sync::{Mutex, MutexGuard};
use tokio::task::JoinSet;
use tokio::time::timeout;

/// The server's memory limit.
pub(crate) const LIMIT_MIB: u64 = 768;

/// The bound of its resident memory: the limit + 20 %.
pub(crate) const MOST_BYTES: u64 = (LIMIT_MIB << 20) * 6 / 5;

/// Within this time other clients' small requests are served.
pub(crate) const BOUND: Duration = Duration::from_secs(5);

/// Within this time an attacker's request must be served or rejected.
pub(crate) const RESPONSE_TIMEOUT: Duration = Duration::from_secs(60);

/// Requests that must be served beside any load of queries. Small queries compete with large ones; they have a
/// test of their own.
pub(crate) const BESIDE_QUERIES: [Kind; 6] = [
    Kind::Version,
    Kind::Suggest,
    Kind::Put,
    Kind::Write,
    Kind::Health,
    Kind::ListQueries,
];

/// The tests measure time, so they take turns.
static TURN: Mutex<()> = Mutex::const_new(());

/// Waits until no other test of this program runs.
pub(crate) async fn turn() -> MutexGuard<'static, ()> {
    TURN.lock().await
}

/// A flag that servers without limits lack.
pub(crate) fn new_flag(name: &str, value: impl std::fmt::Display) -> Option<String> {
    let without = std::env::var_os("OXTSDB_LIMITS_WITHOUT_FLAGS").is_some();
    (!without).then(|| format!("{name}={value}"))
}

/// Whether the attacks have their full size.
pub(crate) fn is_full() -> bool {
    std::env::var_os("OXTSDB_LIMITS_FULL").is_some()
}

/// Options with the memory limit.
pub(crate) fn limited() -> Options {
    Options::default().flags(new_flag("--memory-limit-mib", LIMIT_MIB))
}

/// Sends requests together; returns how many responses of each status there were. Each response is 200 or a typed
/// rejection.
pub(crate) async fn together<R>(requests: impl IntoIterator<Item = R>) -> anyhow::Result<BTreeMap<u16, usize>>
where
    R: Future<Output = anyhow::Result<RawResponse>> + Send + 'static,
{
    let mut requests: JoinSet<_> = requests.into_iter().collect();
    let mut statuses = BTreeMap::new();
    while let Some(response) = requests.join_next().await {
        let response = response??;
        if response.status != 200 {
            refusal::check_response(&response)?;
        }
        let count: &mut usize = statuses.entry(response.status).or_default();
        if *count == 0 && response.status != 200 {
            println!("  {response:?}");
        }
        *count += 1;
    }
    Ok(statuses)
}

/// A server with watched memory.
pub(crate) struct Target {
    // Dropped first, so that the process is there while it is sampled.
    pub(crate) memory: MemoryWatch,
    pub(crate) tsdb: Tsdb,
    _turn: MutexGuard<'static, ()>,
}

impl Target {
    /// Starts one with the memory limit.
    pub(crate) async fn start() -> anyhow::Result<Self> {
        Self::start_with(limited()).await
    }

    /// With these options.
    pub(crate) async fn start_with(options: Options) -> anyhow::Result<Self> {
        let turn = turn().await;
        let mut tsdb = Tsdb::start_with(options).await?;
        Ok(Self {
            memory: MemoryWatch::start(tsdb.process().id())?,
            tsdb,
            _turn: turn,
        })
    }

    /// Sends a GET request on a connection of its own; fails if no response comes.
    pub(crate) async fn get(&self, path: &str) -> anyhow::Result<RawResponse> {
        let exchange = async { RawHttp::connect(self.tsdb.http_address()).await?.get(path).await };
        timeout(RESPONSE_TIMEOUT, exchange)
            .await
            .with_context(|| format!("no response to {path} within {RESPONSE_TIMEOUT:?}"))?
    }

    /// Sends JSON in a POST request on a connection of its own; fails if no response comes.
    pub(crate) async fn post(&self, path: &str, body: &[u8]) -> anyhow::Result<RawResponse> {
        let exchange = async {
            let mut connection = RawHttp::connect(self.tsdb.http_address()).await?;
            connection.post(path, body).await
        };
        timeout(RESPONSE_TIMEOUT, exchange)
            .await
            .with_context(|| format!("no response to {path} within {RESPONSE_TIMEOUT:?}"))?
    }

    /// Stops the bystander and checks that all of its requests were served within [`BOUND`], then checks the server.
    pub(crate) async fn check_with(&mut self, bystander: Bystander) -> anyhow::Result<()> {
        bystander.finish(BOUND).await?;
        self.check_unharmed().await
    }

    /// Checks that the server runs within its memory, has no running query, and serves small requests.
    pub(crate) async fn check_unharmed(&mut self) -> anyhow::Result<()> {
        self.tsdb.process().check_running()?;
        println!("  peak memory {} MiB", self.memory.peak() >> 20);
        self.memory.check_below(MOST_BYTES)?;
        self.no_query_is_left().await?;
        works(&self.tsdb).await
    }

    /// Waits until the server runs no query.
    pub(crate) async fn no_query_is_left(&self) -> anyhow::Result<()> {
        let client = self.tsdb.data_admin();
        until("all queries have ended", || {
            let mut client = client.clone();
            async move {
                let queries = client
                    .list_queries(ListQueriesRequest {})
                    .await?
                    .into_inner()
                    .queries;
                ensure!(
                    queries.is_empty(),
                    "{} queries run, the first is {:?}",
                    queries.len(),
                    queries.first()
                );
                Ok(())
            }
        })
        .await
    }
}

/// Fails unless small requests of each protocol are served within [`BOUND`] each.
pub(crate) async fn works(tsdb: &Tsdb) -> anyhow::Result<()> {
    let time_ms = 1_450_000_000_000;
    let sample = Sample::int("works", &[("host", "a")], time_ms, 7);
    let put = async {
        let body = sample.to_json().to_string();
        let mut connection = RawHttp::connect(tsdb.http_address()).await?;
        let response = connection.post("/api/put", body.as_bytes()).await?;
        ensure!(response.status == 204, "{response:?}");
        Ok(())
    };
    timeout(BOUND, put).await.context("/api/put takes too long")??;
    let write = async {
        let response = tsdb.data().write(write_request([&sample])).await?.into_inner();
        ensure!(response.written == 1, "{response:?}");
        Ok(())
    };
    timeout(BOUND, write).await.context("Write takes too long")??;
    let query = async {
        let second = time_ms / 1000;
        let path = format!("/api/query?start={second}&end={}&m=sum:works", second + 10);
        let mut connection = RawHttp::connect(tsdb.http_address()).await?;
        let response = connection.get(&path).await?;
        let json = response.json()?;
        ensure!(json[0]["dps"][second.to_string()] == 7, "{response:?}");
        let response = connection.get("/api/suggest?type=metrics&q=works").await?;
        ensure!(response.json()?[0] == "works", "{response:?}");
        ensure!(connection.get("/api/version").await?.status == 200);
        Ok(())
    };
    timeout(BOUND, query)
        .await
        .context("/api/query takes too long")??;
    let telnet = async {
        let mut telnet = tsdb.telnet().await?;
        telnet.send(b"version\n").await?;
        telnet.line().await
    };
    timeout(BOUND, telnet).await.context("telnet takes too long")??;
    timeout(BOUND, check_serving(tsdb.data_channel(), DATA_SERVICE))
        .await
        .context("Health/Check takes too long")?
}
