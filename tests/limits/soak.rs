//! Thousands of connections and many queries of mixed size at a time, with writes at half the peak rate.
//!
//! It measures the peak rate of writes, the latency of writes at half of it, and beside these the throughput of
//! eight queries at a time; then everything at once. `OXTSDB_LIMITS_FULL=1` runs it for five minutes at full
//! size and also asserts latency and throughput, which depend on chance in a short run on a busy machine.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use oxtsdb_proto::data::v1::columns::{Block, SeriesDeclaration};
use oxtsdb_proto::data::v1::data_service_client::DataServiceClient;
use oxtsdb_proto::data::v1::{
    AggregateFunction, Columns, DeltaTimestamps, QueryRequest, WriteColumnsRequest,
};
use oxtsdb_tests::crowd::{Crowd, raise_descriptor_limit};
use oxtsdb_tests::load::Load;
use oxtsdb_tests::raw_http::RawHttp;
use oxtsdb_tests::read_back::{range, sub_query};
use oxtsdb_tests::{Options, refusal};
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};
use tonic::transport::Channel;

use crate::support::{LIMIT_MIB, MOST_BYTES, RESPONSE_TIMEOUT, Target, is_full, limited, new_flag};
use oxtsdb_tests::write_requests::columns_request;

/// Points of a write.
const WRITE_POINTS: usize = 1000;
/// Writers of their own connection each.
const WRITERS: usize = 4;
/// Concurrent queries for the reference of the throughput.
const FEW: usize = 8;
/// Pause between two requests of an active connection.
const ACTIVE_PAUSE: Duration = Duration::from_secs(2);

/// Extent of the test.
struct Size {
    connections: usize,
    queries: usize,
    lasts: Duration,
    /// Duration of each preceding measurement.
    measured: Duration,
    load: Load,
    memory_bytes: u64,
    options: Options,
    is_full: bool,
}

impl Size {
    fn from_environment() -> Self {
        let full = is_full();
        let load = |series, points| Load {
            step_ms: 10_000,
            ..Load::new("soak", series, points)
        };
        if full {
            // A quarter of the memory of a small machine.
            let limit_mib = 2048;
            Self {
                connections: 4000,
                queries: 1000,
                lasts: Duration::from_secs(300),
                measured: Duration::from_secs(20),
                load: load(1000, 5000),
                memory_bytes: (limit_mib << 20) * 6 / 5,
                options: Options::default().flags(new_flag("--memory-limit-mib", limit_mib)),
                is_full: true,
            }
        } else {
            println!("  memory limit {LIMIT_MIB} MiB");
            Self {
                connections: 400,
                queries: 100,
                lasts: Duration::from_secs(12),
                measured: Duration::from_secs(3),
                load: load(200, 1000),
                memory_bytes: MOST_BYTES,
                options: limited(),
                is_full: false,
            }
        }
    }
}

/// Times of requests.
#[derive(Debug, Default)]
struct Times(Mutex<Vec<Duration>>);

impl Times {
    async fn add(&self, time: Duration) {
        self.0.lock().await.push(time);
    }

    /// The time within which this percentage of requests completed.
    async fn percentile(&self, percent: usize) -> Duration {
        let mut times = self.0.lock().await;
        times.sort_unstable();
        let index = times.len().saturating_sub(1) * percent / 100;
        times.get(index).copied().unwrap_or_default()
    }
}

/// Outcomes of requests.
#[derive(Debug, Default)]
struct Counts {
    served: AtomicUsize,
    rejected: AtomicUsize,
    without_response: AtomicUsize,
    first_failure: Mutex<Option<String>>,
}

impl Counts {
    /// Counts an outcome: true for a response, false for a typed rejection.
    async fn add(&self, outcome: anyhow::Result<bool>) {
        let count = match outcome {
            Ok(true) => &self.served,
            Ok(false) => &self.rejected,
            Err(error) => {
                self.first_failure
                    .lock()
                    .await
                    .get_or_insert_with(|| format!("{error:#}"));
                &self.without_response
            }
        };
        count.fetch_add(1, Ordering::Relaxed);
    }

    async fn report(&self, what: &str) -> anyhow::Result<()> {
        let count = |count: &AtomicUsize| count.load(Ordering::Relaxed);
        let without_response = count(&self.without_response);
        println!(
            "  {what}: {} served, {} rejected, {without_response} without response",
            count(&self.served),
            count(&self.rejected)
        );
        let failure = self.first_failure.lock().await;
        ensure!(
            without_response == 0,
            "{without_response} of {what} had no response, the first: {}",
            failure.as_deref().unwrap_or_default()
        );
        Ok(())
    }
}

/// State that all clients of a phase share.
#[derive(Debug, Default)]
struct Phase {
    ends: AtomicBool,
    writes: Counts,
    write_times: Times,
    queries: Counts,
    others: Counts,
    next_write: AtomicU64,
}

impl Phase {
    fn runs(&self) -> bool {
        !self.ends.load(Ordering::Relaxed)
    }
}

/// The next points of some series, a second apart.
fn write_request(number: u64) -> anyhow::Result<WriteColumnsRequest> {
    let points = i64::try_from(WRITE_POINTS)?;
    let first = i64::try_from(number / 8)? * points;
    let timestamps: Vec<i64> = (first..first + points)
        .map(|point| 1_550_000_000_000 + point * 1000)
        .collect();
    Ok(columns_request(Columns {
        new_symbols: vec![
            "soak.written".to_owned(),
            "host".to_owned(),
            format!("host{}", number % 8),
        ],
        new_series: vec![SeriesDeclaration {
            metric_symbol: 0,
            tag_symbols: vec![1, 2],
            tsuid: Default::default(),
        }],
        blocks: vec![Block {
            series: vec![0],
            delta_timestamps: DeltaTimestamps::encode(&timestamps),
            int_values: (first..first + points).collect(),
            ..Block::default()
        }],
        ..Columns::default()
    }))
}

async fn write(client: &mut DataServiceClient<Channel>, phase: &Phase) -> anyhow::Result<bool> {
    let request = write_request(phase.next_write.fetch_add(1, Ordering::Relaxed))?;
    match timeout(RESPONSE_TIMEOUT, client.write_columns(request))
        .await
        .context("a write hangs")?
    {
        Ok(response) => {
            let response = response.into_inner();
            ensure!(response.written == WRITE_POINTS as u64, "{response:?}");
            Ok(true)
        }
        Err(status) => refusal::check_status(&status).map(|()| false),
    }
}

/// Writes at the maximum rate, or a request per `pace`.
async fn keep_writing(client: DataServiceClient<Channel>, phase: Arc<Phase>, pace: Option<Duration>) {
    let mut client = client;
    let mut ticks = interval(pace.unwrap_or(Duration::from_millis(1)));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while phase.runs() {
        if pace.is_some() {
            ticks.tick().await;
        }
        let begun = Instant::now();
        let outcome = write(&mut client, &phase).await;
        phase.write_times.add(begun.elapsed()).await;
        phase.writes.add(outcome).await;
    }
}

/// One query of many sizes, by its number; every fifth over gRPC.
async fn query(target: &Clients, number: usize) -> anyhow::Result<bool> {
    let load = &target.load;
    if number % 5 == 4 {
        let (start, end) = load.seconds();
        let request = QueryRequest {
            range: Some(range(start * 1000, (start + (end - start) / 4) * 1000)),
            queries: vec![sub_query(&load.metric, AggregateFunction::Sum)],
            ..QueryRequest::default()
        };
        let mut client = target.data.clone();
        let outcome = async {
            let mut frames = client.query(request).await?.into_inner();
            while frames.message().await?.is_some() {}
            Ok::<_, tonic::Status>(())
        };
        return match timeout(RESPONSE_TIMEOUT, outcome)
            .await
            .context("a query hangs")?
        {
            Ok(()) => Ok(true),
            Err(status) => refusal::check_status(&status).map(|()| false),
        };
    }
    let path = match number % 10 {
        // All points to a few, and all instants of all series.
        0 => load.path("sum:1h-avg"),
        5 => load.path("sum"),
        // A single series.
        _ => format!("{}%7Bhost=host{:05}%7D", load.path("sum"), number % load.series),
    };
    let exchange = async { RawHttp::connect(target.http).await?.get(&path).await };
    let response = timeout(RESPONSE_TIMEOUT, exchange)
        .await
        .context("a query hangs")??;
    if response.status == 200 {
        ensure!(response.json()?[0]["dps"].is_object(), "an empty response");
        return Ok(true);
    }
    refusal::check_response(&response)?;
    Ok(false)
}

#[derive(Clone, Debug)]
struct Clients {
    http: std::net::SocketAddr,
    data: DataServiceClient<Channel>,
    load: Arc<Load>,
}

async fn keep_querying(clients: Clients, phase: Arc<Phase>, first: usize) {
    let mut number = first;
    while phase.runs() {
        let outcome = query(&clients, number).await;
        let is_refused = matches!(outcome, Ok(false));
        phase.queries.add(outcome).await;
        if is_refused {
            // The smallest value of `Retry-After` is a second.
            sleep(Duration::from_secs(1)).await;
        }
        number += 7;
    }
}

/// Uses one connection for a request from time to time.
async fn keep_active(http: std::net::SocketAddr, phase: Arc<Phase>) {
    let Ok(mut connection) = RawHttp::connect(http).await else {
        let outcome = Err(anyhow::anyhow!("an active connection is not accepted"));
        return phase.others.add(outcome).await;
    };
    while phase.runs() {
        let outcome = timeout(RESPONSE_TIMEOUT, connection.get("/api/version")).await;
        let outcome = match outcome {
            Ok(Ok(response)) if response.status == 200 => Ok(true),
            Ok(Ok(response)) => refusal::check_response(&response).map(|()| false),
            Ok(Err(error)) => Err(error),
            Err(_elapsed) => Err(anyhow::anyhow!("/api/version hangs")),
        };
        phase.others.add(outcome).await;
        sleep(ACTIVE_PAUSE).await;
    }
}

/// Runs clients for a time, then waits until the last request of each is done. Returns how long that was.
async fn run(phase: &Arc<Phase>, mut clients: JoinSet<()>, time: Duration) -> anyhow::Result<Duration> {
    let begun = Instant::now();
    sleep(time).await;
    phase.ends.store(true, Ordering::Relaxed);
    while let Some(ended) = clients.join_next().await {
        ended?;
    }
    Ok(begun.elapsed())
}

/// Requests per second.
fn rate(count: &AtomicUsize, time: Duration) -> f64 {
    f64::from(u32::try_from(count.load(Ordering::Relaxed)).unwrap_or(u32::MAX)) / time.as_secs_f64()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "slow: tests/nightly.sh"]
async fn a_crowd_of_clients_is_served_within_the_limits() -> anyhow::Result<()> {
    let size = Size::from_environment();
    if !raise_descriptor_limit(u64::try_from(size.connections + 3 * size.queries)? + 500)? {
        return Ok(());
    }
    let mut target = Target::start_with(size.options.clone()).await?;
    size.load.write(&target.tsdb).await?;
    let clients = Clients {
        http: target.tsdb.http_address(),
        data: target.tsdb.data(),
        load: Arc::new(size.load.clone()),
    };
    let writers = |phase: &Arc<Phase>, pace| {
        let mut tasks = JoinSet::new();
        for _ in 0..WRITERS {
            tasks.spawn(keep_writing(target.tsdb.data(), Arc::clone(phase), pace));
        }
        tasks
    };

    // The peak rate of writes.
    let phase = Arc::new(Phase::default());
    let time = run(&phase, writers(&phase, None), size.measured).await?;
    phase.writes.report("writes as fast as possible").await?;
    let peak = rate(&phase.writes.served, time);
    // Half of it, by all writers together.
    let pace = Duration::from_secs_f64(2.0 / peak * f64::from(u32::try_from(WRITERS)?));
    let phase = Arc::new(Phase::default());
    run(&phase, writers(&phase, Some(pace)), size.measured).await?;
    phase.writes.report("writes alone").await?;
    let alone = (
        phase.write_times.percentile(50).await,
        phase.write_times.percentile(99).await,
    );

    // A few queries at a time, beside the same writes.
    let phase = Arc::new(Phase::default());
    let mut tasks = writers(&phase, Some(pace));
    for number in 0..FEW {
        tasks.spawn(keep_querying(clients.clone(), Arc::clone(&phase), number));
    }
    let time = run(&phase, tasks, size.measured).await?;
    phase.queries.report("queries, 8 at a time").await?;
    let few = rate(&phase.queries.served, time);

    // Everything at once.
    let phase = Arc::new(Phase::default());
    let idle_http = Crowd::connect(target.tsdb.http_address(), size.connections / 4).await?;
    let idle_grpc = Crowd::connect(target.tsdb.data_address(), size.connections / 4).await?;
    let mut tasks = writers(&phase, Some(pace));
    for _ in 0..size.connections / 2 {
        tasks.spawn(keep_active(target.tsdb.http_address(), Arc::clone(&phase)));
    }
    for number in 0..size.queries {
        tasks.spawn(keep_querying(clients.clone(), Arc::clone(&phase), number));
    }
    let time = run(&phase, tasks, size.lasts).await?;
    let many = rate(&phase.queries.served, time);
    let busy = (
        phase.write_times.percentile(50).await,
        phase.write_times.percentile(99).await,
    );

    println!(
        "  idle connections left: {} HTTP, {} gRPC",
        idle_http.open(),
        idle_grpc.open()
    );
    println!(
        "  writes: peak {:.0} points/s, p50 and p99 at half of it: {alone:?}, with queries: {busy:?}",
        peak * WRITE_POINTS as f64
    );
    println!(
        "  queries/s: {few:.1} at {FEW} at a time, {many:.1} at {} at a time",
        size.queries
    );
    for (at, bytes) in target
        .memory
        .samples()
        .iter()
        .step_by(if size.is_full { 15 } else { 3 })
    {
        println!("  memory at {:>4} s: {:>5} MiB", at.as_secs(), bytes >> 20);
    }
    println!("  peak memory {} MiB", target.memory.peak() >> 20);
    phase.writes.report("writes").await?;
    phase.queries.report("queries").await?;
    phase.others.report("requests of active connections").await?;
    ensure!(
        phase.queries.served.load(Ordering::Relaxed) > 0,
        "no query was served"
    );
    target.memory.check_below(size.memory_bytes)?;
    if size.is_full {
        ensure!(
            busy.1 <= 5 * alone.1,
            "p99 of writes rose from {:?} to {:?}",
            alone.1,
            busy.1
        );
        ensure!(many >= few, "{many:.1} queries/s, {few:.1} at {FEW} at a time");
    }
    drop((idle_http, idle_grpc));
    target.tsdb.process().check_running()?;
    target.no_query_is_left().await?;
    crate::support::works(&target.tsdb).await
}
