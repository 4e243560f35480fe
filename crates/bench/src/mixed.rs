//! Writes and queries at the same time for many minutes: memory, and times of acknowledgements and queries.
//!
//! A fleet of hosts sends a point of each series at every interval, evenly spread over it; some hosts are replaced by new
//! ones every minute. Dashboards query the last minutes meanwhile. Calls are sent when they are due, whether or not
//! earlier ones were answered, and times count from that moment.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{anyhow, ensure};
use bytes::Bytes;
use clap::Args;
use comfy_table::Table;
use http::uri::PathAndQuery;
use oxtsdb_proto::common::v1::{SeriesName, Tag};
use oxtsdb_proto::data::v1::{TimeSeries, WriteRequest, WriteResponse, time_series};
use parking_lot::Mutex;
use prost::Message as _;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tonic::Request;
use tonic::client::Grpc;

use crate::ingest::http::Connection;
use crate::ingest::raw_codec::RawCodec;
use crate::ingest::{CONNECTIONS, channel, write_options};
use crate::process::Server;
use crate::report::{ms, thousands};
use crate::workload::START_SECONDS;

/// Metrics of a host, a series each.
const METRICS: u32 = 10;

/// Number of hosts with points in the same call.
const HOSTS_IN_CALL: u32 = 100;

/// Calls that may wait for an answer on a connection.
const CALLS_IN_FLIGHT: usize = 64;

/// Minutes that a dashboard shows.
const MINUTES_SHOWN: u32 = 15;

/// Writes with churn beside dashboards of queries: a row of times and memory for each minute.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Folder of the server's data during the run; default: a temporary one.
    #[arg(long)]
    folder: Option<PathBuf>,
    /// Hosts, each with 10 series.
    #[arg(long, default_value_t = 100_000)]
    hosts: u32,
    /// Seconds between two points of a series.
    #[arg(long, default_value_t = 10)]
    interval: u32,
    /// Minutes.
    #[arg(long, default_value_t = 20)]
    minutes: u32,
    /// One host of so many is replaced every minute; 0: none.
    #[arg(long, default_value_t = 100)]
    churn: u32,
    /// Dashboards, each with four queries a second.
    #[arg(long, default_value_t = 4)]
    dashboards: u32,
}

/// The hosts, and the present values of their series.
struct Fleet {
    hosts: u32,
    /// How often each host was replaced.
    generations: Vec<u32>,
    values: Vec<i64>,
    random: u64,
}

/// A call, and when it is due.
struct Due {
    at: Instant,
    message: Bytes,
}

/// Times since the last row of the table.
#[derive(Default)]
struct Times {
    acks: Mutex<Vec<Duration>>,
    queries: Mutex<Vec<Duration>>,
    /// The newest timestamp that was sent, seconds since the epoch.
    now: std::sync::atomic::AtomicU32,
    ended: AtomicBool,
}

/// Runs the load and prints its table.
pub(crate) async fn run(program: PathBuf, arguments: Arguments) -> anyhow::Result<()> {
    ensure!(arguments.interval > 0, "--interval: 0 seconds; at least 1");
    let temporary = tempfile::tempdir()?;
    let folder = arguments
        .folder
        .clone()
        .unwrap_or_else(|| temporary.path().to_owned())
        .join("mixed");
    std::fs::create_dir_all(&folder)?;
    let server = Server::start(&program, &folder)?;
    let times = Arc::new(Times::default());
    let mut tasks = JoinSet::new();
    let mut connections = Vec::new();
    for _ in 0..CONNECTIONS {
        let (sender, receiver) = mpsc::channel(CALLS_IN_FLIGHT);
        connections.push(sender);
        tasks.spawn(write(server.data, receiver, Arc::clone(&times)));
    }
    let mut fleet = Fleet::new(arguments.hosts);
    let mut table = Table::new();
    table.set_header([
        "minute",
        "points",
        "ack median / p99 / longest",
        "queries",
        "query median / p99 / longest",
        "memory MiB",
        "flushes",
        "written B/pt",
        "server cores",
    ]);
    let points_of_step = f64::from(arguments.hosts * METRICS);
    let steps_of_minute = (60 / arguments.interval).max(1);
    let pause = Duration::from_secs(arguments.interval.into());
    let began = Instant::now();
    for minute in 0..arguments.minutes {
        let (before, minute_began) = (server.usage()?, Instant::now());
        for step in 0..steps_of_minute {
            let number = minute * steps_of_minute + step;
            let seconds = START_SECONDS + number * arguments.interval;
            fleet
                .send(seconds, began + pause * number, pause, &connections)
                .await?;
            times.now.store(seconds, Ordering::Relaxed);
        }
        if minute == 0 {
            for dashboard in 0..arguments.dashboards {
                let times = Arc::clone(&times);
                tasks.spawn(look(server.http, dashboard, arguments.hosts, times));
            }
        }
        if let Some(hosts) = arguments.hosts.checked_div(arguments.churn) {
            fleet.replace(minute, hosts);
        }
        while let Some(ended) = tasks.try_join_next() {
            ended??;
        }
        let after = server.usage()?;
        let points = points_of_step * f64::from(steps_of_minute);
        let (acks, queries) = (take(&times.acks), take(&times.queries));
        table.add_row([
            (minute + 1).to_string(),
            thousands(points),
            quantiles(&acks),
            queries.len().to_string(),
            quantiles(&queries),
            (after.memory >> 20).to_string(),
            server.flushes()?.to_string(),
            format!(
                "{:.1}",
                (after.written_bytes - before.written_bytes) as f64 / points
            ),
            format!(
                "{:.2}",
                (after.cpu_seconds - before.cpu_seconds) / minute_began.elapsed().as_secs_f64()
            ),
        ]);
    }
    times.ended.store(true, Ordering::Relaxed);
    drop(connections);
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    println!("{table}");
    println!(
        "{} series at a time, peak memory {} MiB; times count from the moment at which a call was due",
        arguments.hosts * METRICS,
        server.usage()?.peak_memory >> 20
    );
    server.stop()
}

impl Fleet {
    fn new(hosts: u32) -> Self {
        Self {
            hosts,
            generations: vec![0; hosts as usize],
            values: vec![0; (hosts * METRICS) as usize],
            random: 0x9e37_79b9_7f4a_7c15,
        }
    }

    /// Replaces some hosts; others every time.
    fn replace(&mut self, minute: u32, hosts: u32) {
        for host in 0..hosts {
            let host = (minute * hosts + host) % self.hosts;
            self.generations[host as usize] += 1;
        }
    }

    /// Sends a point of each series, spread over the time until the next step.
    async fn send(
        &mut self,
        seconds: u32,
        begins: Instant,
        pause: Duration,
        connections: &[mpsc::Sender<Due>],
    ) -> anyhow::Result<()> {
        for (number, first) in (0..self.hosts).step_by(HOSTS_IN_CALL as usize).enumerate() {
            let at = begins + pause.mul_f64(f64::from(first) / f64::from(self.hosts));
            tokio::time::sleep_until(at.into()).await;
            let message = self.call(seconds, first..(first + HOSTS_IN_CALL).min(self.hosts));
            let sent = connections[number % connections.len()]
                .send(Due { at, message })
                .await;
            ensure!(sent.is_ok(), "a connection ended");
        }
        Ok(())
    }

    fn call(&mut self, seconds: u32, hosts: std::ops::Range<u32>) -> Bytes {
        let mut series = Vec::new();
        for host in hosts {
            let generation = self.generations[host as usize];
            for metric in 0..METRICS {
                self.random ^= self.random << 13;
                self.random ^= self.random >> 7;
                self.random ^= self.random << 17;
                let value = &mut self.values[(host * METRICS + metric) as usize];
                *value += i64::from(u8::try_from(self.random % 201).unwrap_or(0)) - 100;
                let tag = |key: &str, value: String| Tag {
                    key: key.to_owned(),
                    value,
                };
                let name = SeriesName {
                    metric: format!("mixed.metric{metric:02}"),
                    tags: vec![
                        tag("host", format!("host{host:06}-{generation}")),
                        tag("dc", format!("dc{}", host % 5)),
                        tag("rack", format!("rack{:03}", host % 500)),
                    ],
                };
                series.push(TimeSeries {
                    series: Some(time_series::Series::Name(name)),
                    timestamps: vec![i64::from(seconds) * 1000],
                    int_values: vec![*value],
                    ..TimeSeries::default()
                });
            }
        }
        let options = Some(write_options());
        WriteRequest { series, options }.encode_to_vec().into()
    }
}

/// Sends calls when they are due.
async fn write(server: SocketAddr, mut calls: mpsc::Receiver<Due>, times: Arc<Times>) -> anyhow::Result<()> {
    let channel = channel(server).await?;
    let mut waiting = JoinSet::new();
    while let Some(Due { at, message }) = calls.recv().await {
        while waiting.len() >= CALLS_IN_FLIGHT {
            if let Some(ended) = waiting.join_next().await {
                ended??;
            }
        }
        let (mut client, times) = (Grpc::new(channel.clone()), Arc::clone(&times));
        waiting.spawn(async move {
            client
                .ready()
                .await
                .map_err(|error| anyhow!("not ready: {error}"))?;
            let path = PathAndQuery::from_static("/oxtsdb.data.v1.DataService/Write");
            let codec = RawCodec::<WriteResponse>::default();
            let response = client
                .unary(Request::new(message), path, codec)
                .await?
                .into_inner();
            ensure!(response.failed == 0, "points failed: {:?}", response.failures);
            times.acks.lock().push(at.elapsed());
            Ok(())
        });
    }
    while let Some(ended) = waiting.join_next().await {
        ended??;
    }
    Ok(())
}

/// Queries the last minutes, four panels a second.
async fn look(server: SocketAddr, dashboard: u32, hosts: u32, times: Arc<Times>) -> anyhow::Result<()> {
    let mut connection = Connection::open(server).await?;
    let mut due = Instant::now();
    for round in 0_u32.. {
        if times.ended.load(Ordering::Relaxed) {
            break;
        }
        let metric = (dashboard + round) % METRICS;
        let host = (dashboard * 7919 + round * 104_729) % hosts;
        let rack = (dashboard * 131 + round) % 500;
        let panels = [
            format!("sum:1m-avg:mixed.metric{metric:02}%7Brack=rack{rack:03}%7D"),
            format!("max:1m-max:mixed.metric{metric:02}%7Brack=rack{rack:03},dc=*%7D"),
            format!("sum:1m-avg:mixed.metric{metric:02}%7Bhost=host{host:06}-*%7D"),
            format!("sum:mixed.metric{metric:02}%7Bhost=host{host:06}-0%7D"),
        ];
        for panel in panels {
            due += Duration::from_millis(250);
            tokio::time::sleep_until(due.into()).await;
            let end = times.now.load(Ordering::Relaxed) + 1;
            let start = (end - MINUTES_SHOWN * 60).max(START_SECONDS);
            let path = format!("/api/query?start={start}&end={end}&m={panel}");
            let (status, body) = connection.get(&path).await?;
            ensure!(
                status == 200,
                "{path}: {status}: {}",
                String::from_utf8_lossy(&body)
            );
            times.queries.lock().push(due.elapsed());
        }
    }
    Ok(())
}

fn take(times: &Mutex<Vec<Duration>>) -> Vec<Duration> {
    let mut times = std::mem::take(&mut *times.lock());
    times.sort_unstable();
    times
}

/// Median, 99th percentile and the longest of sorted times.
fn quantiles(times: &[Duration]) -> String {
    let at = |percent: usize| times.get(times.len() * percent / 100).or(times.last());
    match (at(50), at(99), times.last()) {
        (Some(median), Some(p99), Some(longest)) => {
            format!("{} / {} / {}", ms(*median), ms(*p99), ms(*longest))
        }
        _ => "–".to_owned(),
    }
}
