//! A client that keeps sending small requests while a test does something large.
//!
//! It has a loopback address of its own, so that the server sees another client than the test. Each
//! request opens a connection. A typed error that may be retried is retried; the time until the request is
//! served counts.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use oxtsdb_proto::data::v1::ListQueriesRequest;
use oxtsdb_proto::data::v1::data_admin_service_client::DataAdminServiceClient;
use oxtsdb_proto::data::v1::data_service_client::DataServiceClient;
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tonic::Code;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use crate::Tsdb;
use crate::health::DATA_SERVICE;
use crate::raw_grpc::RawChannel;
use crate::raw_http::RawHttp;
use crate::sample::Sample;
use crate::write_requests::write_request;

/// The client's address.
const CLIENT: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
/// A request that takes longer counts as not served.
const HANGS: Duration = Duration::from_secs(20);
/// Between two requests of a kind.
const PAUSE: Duration = Duration::from_millis(100);
/// Between a refusal and the next attempt.
const RETRY_PAUSE: Duration = Duration::from_millis(50);
/// The metric that it writes to and queries.
const METRIC: &str = "bystander";
/// Time of its points.
const TIME_MS: i64 = 1_400_000_000_000;

/// A small request.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Kind {
    /// `/api/version`.
    Version,
    /// `/api/suggest`.
    Suggest,
    /// `/api/query` over a few points.
    Query,
    /// The same as a POST request.
    PostedQuery,
    /// `/api/put` of a point.
    Put,
    /// gRPC `Write` of a point.
    Write,
    /// gRPC `Health/Check`.
    Health,
    /// gRPC `ListQueries`.
    ListQueries,
}

/// All of them.
pub const ALL: [Kind; 8] = [
    Kind::Version,
    Kind::Suggest,
    Kind::Query,
    Kind::PostedQuery,
    Kind::Put,
    Kind::Write,
    Kind::Health,
    Kind::ListQueries,
];

/// How requests of a kind went.
#[derive(Clone, Debug, Default)]
struct Figures {
    served: usize,
    retried: usize,
    slowest: Duration,
    failures: Vec<String>,
    /// Times since they were last taken.
    times: Vec<Duration>,
}

#[derive(Debug)]
struct Shared {
    http: SocketAddr,
    data: SocketAddr,
    ends: AtomicBool,
    next: AtomicU32,
    figures: Mutex<BTreeMap<Kind, Figures>>,
}

/// The running client.
#[derive(Debug)]
pub struct Bystander {
    shared: Arc<Shared>,
    clients: JoinSet<()>,
}

impl Bystander {
    /// Writes its metric, then starts to send requests of all kinds.
    ///
    /// # Errors
    ///
    /// If the metric cannot be written.
    pub async fn start(tsdb: &Tsdb) -> anyhow::Result<Self> {
        Self::start_with(tsdb, &ALL).await
    }

    /// As [`Bystander::start`], with requests of these kinds.
    ///
    /// # Errors
    ///
    /// As [`Bystander::start`].
    pub async fn start_with(tsdb: &Tsdb, kinds: &[Kind]) -> anyhow::Result<Self> {
        let shared = Arc::new(Shared {
            http: tsdb.http_address(),
            data: tsdb.data_address(),
            ends: AtomicBool::new(false),
            next: AtomicU32::new(0),
            figures: Mutex::default(),
        });
        timeout(HANGS, shared.until_served(Kind::Put))
            .await
            .context("the first point is not stored")??;
        let mut clients = JoinSet::new();
        for kind in kinds {
            clients.spawn(Arc::clone(&shared).keep_sending(*kind));
        }
        Ok(Self { shared, clients })
    }

    /// How often requests of a kind were rejected and sent again so far.
    pub fn retries(&self, kind: Kind) -> usize {
        let figures = self.shared.figures.lock().unwrap_or_else(PoisonError::into_inner);
        figures.get(&kind).map_or(0, |figures| figures.retried)
    }

    /// The times of all requests that were served since the last call, ascending.
    pub fn take_times(&self) -> Vec<Duration> {
        let mut figures = self.shared.figures.lock().unwrap_or_else(PoisonError::into_inner);
        let times = figures
            .values_mut()
            .map(|figures| std::mem::take(&mut figures.times));
        let mut times: Vec<Duration> = times.flatten().collect();
        times.sort_unstable();
        times
    }

    /// Stops. Fails unless every request was served within `bound`, and at least one of each kind.
    ///
    /// # Errors
    ///
    /// As said, with all figures.
    pub async fn finish(mut self, bound: Duration) -> anyhow::Result<()> {
        self.shared.ends.store(true, Ordering::Relaxed);
        while let Some(client) = self.clients.join_next().await {
            client?;
        }
        let figures = self.shared.figures.lock().unwrap_or_else(PoisonError::into_inner);
        let mut wrong = Vec::new();
        for (kind, figures) in &*figures {
            println!(
                "  {kind:?}: {} served, {} retried, slowest {:.2} s",
                figures.served,
                figures.retried,
                figures.slowest.as_secs_f64()
            );
            if figures.served == 0 || figures.slowest > bound || !figures.failures.is_empty() {
                let failures = figures.failures.iter().take(3).cloned().collect::<Vec<_>>();
                wrong.push(format!(
                    "{kind:?}: {} served, slowest {:?}, {} failed: {}",
                    figures.served,
                    figures.slowest,
                    figures.failures.len(),
                    failures.join("; ")
                ));
            }
        }
        ensure!(
            wrong.is_empty(),
            "others were not served within {bound:?}:\n{}",
            wrong.join("\n")
        );
        Ok(())
    }
}

impl Shared {
    async fn keep_sending(self: Arc<Self>, kind: Kind) {
        loop {
            let begun = Instant::now();
            let outcome = timeout(HANGS, self.until_served(kind)).await;
            let taken = begun.elapsed();
            {
                let mut figures = self.figures.lock().unwrap_or_else(PoisonError::into_inner);
                let figures = figures.entry(kind).or_default();
                figures.slowest = figures.slowest.max(taken);
                match outcome {
                    Ok(Ok(retries)) => {
                        figures.served += 1;
                        figures.times.push(taken);
                        figures.retried += retries;
                    }
                    Ok(Err(error)) => figures.failures.push(format!("{error:#}")),
                    Err(_elapsed) => figures.failures.push(format!("no response in {HANGS:?}")),
                }
            }
            if self.ends.load(Ordering::Relaxed) {
                return;
            }
            sleep(PAUSE).await;
        }
    }

    /// Repeats a request while it is rejected for now; returns how often it was.
    async fn until_served(&self, kind: Kind) -> anyhow::Result<usize> {
        for retries in 0.. {
            if self.attempt(kind).await? {
                return Ok(retries);
            }
            sleep(RETRY_PAUSE).await;
        }
        bail!("never served")
    }

    /// Sends a request; false if it may be sent again.
    async fn attempt(&self, kind: Kind) -> anyhow::Result<bool> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        match kind {
            Kind::Version => self.get("/api/version").await,
            Kind::Suggest => self.get("/api/suggest?type=metrics&q=by").await,
            Kind::Query => {
                let second = TIME_MS / 1000;
                let path = format!("/api/query?start={second}&end={}&m=sum:{METRIC}", second + 60);
                self.get(&path).await
            }
            Kind::PostedQuery => {
                let body = json!({
                    "start": TIME_MS, "end": TIME_MS + 60_000,
                    "queries": [{"aggregator": "sum", "metric": METRIC}]
                });
                let answer = self
                    .http()
                    .await?
                    .post("/api/query", body.to_string().as_bytes())
                    .await?;
                served(answer.status, &answer.text())
            }
            Kind::Put => {
                let body = point(number).to_json().to_string();
                let answer = self.http().await?.post("/api/put", body.as_bytes()).await?;
                served(answer.status, &answer.text())
            }
            Kind::Write => {
                let request = write_request([&point(number)]);
                let mut client = DataServiceClient::with_origin(self.grpc().await?, self.origin()?);
                match client.write(request).await {
                    Ok(response) => {
                        let response = response.into_inner();
                        ensure!(response.written == 1, "{response:?}");
                        Ok(true)
                    }
                    Err(status) => retryable(&status),
                }
            }
            Kind::Health => {
                let mut client = HealthClient::with_origin(self.grpc().await?, self.origin()?);
                let request = HealthCheckRequest {
                    service: DATA_SERVICE.to_owned(),
                };
                let status = client.check(request).await?.into_inner().status();
                ensure!(status == ServingStatus::Serving, "{status:?}");
                Ok(true)
            }
            Kind::ListQueries => {
                let mut client = DataAdminServiceClient::with_origin(self.grpc().await?, self.origin()?);
                client.list_queries(ListQueriesRequest {}).await?;
                Ok(true)
            }
        }
    }

    async fn get(&self, path: &str) -> anyhow::Result<bool> {
        let answer = self.http().await?.get(path).await?;
        served(answer.status, &answer.text())
    }

    async fn http(&self) -> anyhow::Result<RawHttp> {
        RawHttp::connect_from(CLIENT, self.http).await
    }

    async fn grpc(&self) -> anyhow::Result<RawChannel> {
        RawChannel::connect_from(CLIENT, self.data).await
    }

    fn origin(&self) -> anyhow::Result<http::Uri> {
        RawChannel::origin(self.data)
    }
}

fn point(number: u32) -> Sample {
    let second = i64::from(number % 60);
    Sample::int(METRIC, &[("host", "a")], TIME_MS + second * 1000, second)
}

fn served(status: u16, body: &str) -> anyhow::Result<bool> {
    match status {
        200 | 204 => Ok(true),
        503 => Ok(false),
        _ => bail!("{status} {body}"),
    }
}

fn retryable(status: &tonic::Status) -> anyhow::Result<bool> {
    match status.code() {
        Code::Unavailable => Ok(false),
        _ => bail!("{status:?}"),
    }
}
