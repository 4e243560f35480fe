//! Clients of each kind through Envoy, while servers are restarted. None but the typed writer retries by itself: calls that
//! fail at a server and succeed here were retried by Envoy.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use oxtsdb_client::{DataClient, SeriesName, StreamOptions, Timestamp};
use oxtsdb_proto::common::v1::{TimeRange, UidKind};
use oxtsdb_proto::data::v1::data_service_client::DataServiceClient;
use oxtsdb_proto::data::v1::query_last_request::{Target, target};
use oxtsdb_proto::data::v1::sub_query::MetricSource;
use oxtsdb_proto::data::v1::write_stream_response::Message;
use oxtsdb_proto::data::v1::{AggregateFunction, QueryLastRequest, QueryRequest};
use oxtsdb_proto::uid::v1::uid_service_client::UidServiceClient;
use oxtsdb_proto::uid::v1::{GetOrCreateUidsRequest, SuggestNamesRequest, UidName};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_stream::StreamExt as _;
use tonic::transport::Channel;

use crate::envoy::Mesh;
use crate::http::Http;
use crate::read_back::{query, range, series_of, sub_query};
use crate::sample::{Number, Sample};
use crate::stream::WriteStream;
use crate::wait;
use crate::write_requests::write_request;

/// Pause between the calls of a client.
const PAUSE: Duration = Duration::from_millis(40);
/// A call that has no result by then hangs, however slow the machine is.
const HANGS: Duration = Duration::from_secs(30);
/// Points of a call or a frame.
const BATCH: i64 = 5;
/// Calls with one tag value; the next one needs the UID service.
const CALLS_OF_HOST: i64 = 50;
/// Frames of a stream that may be unacknowledged.
const WINDOW: usize = 4;
/// Time of the first point; the others follow each second.
const BEGIN_MS: i64 = 1_500_000_000_000;
/// Points of the metric that is queried.
const QUERIED: i64 = 100;

/// Kinds of calls with a response of one message, or with a client that retries: the loss of a server fails none of them.
pub const WITHOUT_STREAMS: [&str; 6] = [
    "HTTP put",
    "HTTP query",
    "UIDs",
    "Write",
    "Write as JSON",
    "typed writer",
];

/// Acks of write streams.
const WRITE_STREAM: &str = "WriteStream";

/// Kinds of calls with a response that may be cut off.
const WITH_STREAMS: [&str; 4] = ["Query", "Query as JSON", "QueryLast", WRITE_STREAM];

/// The results of one kind of calls.
#[derive(Clone, Debug, Default)]
pub struct Calls {
    /// Calls that succeeded.
    pub succeeded: u64,
    /// Errors of the others.
    pub failures: Vec<String>,
}

/// Numbers of the acknowledged points, by metric and tag value.
type Acknowledged = BTreeMap<String, BTreeMap<String, Vec<i64>>>;

#[derive(Debug, Default)]
struct Shared {
    ends: AtomicBool,
    /// Write streams that were opened.
    streams: AtomicU64,
    calls: Mutex<BTreeMap<&'static str, Calls>>,
    acknowledged: Mutex<Acknowledged>,
}

/// Running clients.
#[derive(Debug)]
pub struct Load {
    shared: Arc<Shared>,
    clients: JoinSet<()>,
}

impl Load {
    /// Starts clients that write metrics with a prefix, after the points that they query.
    ///
    /// # Errors
    ///
    /// If these cannot be written.
    pub async fn start(mesh: &Mesh, prefix: &str) -> anyhow::Result<Self> {
        let mut data = mesh.data_client().await?;
        let queried = format!("{prefix}.queried");
        let points = samples(&queried, "host", 0..QUERIED);
        let written = data.write(write_request(&points)).await?.into_inner().written;
        ensure!(written == points.len() as u64, "{written} points");
        let mut load = Self {
            shared: Arc::default(),
            clients: JoinSet::new(),
        };
        let kinds = WITHOUT_STREAMS.into_iter().chain(WITH_STREAMS);
        *lock(&load.shared.calls) = kinds.map(|kind| (kind, Calls::default())).collect();
        for number in 0..3 {
            let client = data.clone();
            load.write("Write", format!("{prefix}.write{number}"), move |points| {
                let mut client = client.clone();
                async move {
                    let written = client.write(write_request(&points)).await?.into_inner().written;
                    ensure!(written == points.len() as u64, "{written} points");
                    Ok(())
                }
            });
            let client = mesh.data_client().await?;
            let metric = format!("{prefix}.stream{number}");
            let shared = Arc::clone(&load.shared);
            load.clients.spawn(write_streams(client, metric, shared));
        }
        let http = mesh.http(mesh.envoy.http, Some(&mesh.client))?;
        let put = http.clone();
        load.write("HTTP put", format!("{prefix}.put"), move |points| {
            let put = put.clone();
            async move {
                let body: Vec<Value> = points.iter().map(Sample::to_json).collect();
                let response = put.post("/api/put", &Value::from(body)).await?;
                ensure!(response.status == 204, "{response:?}");
                Ok(())
            }
        });
        let json = mesh.http(mesh.envoy.data, Some(&mesh.client))?;
        let write = json.clone();
        load.write("Write as JSON", format!("{prefix}.json"), move |points| {
            let write = write.clone();
            async move {
                let response = write
                    .post("/oxtsdb.data.v1.DataService/Write", &json_write(&points))
                    .await?;
                let written = &response.json()?["written"];
                ensure!(response.status == 200 && *written == "5", "{response:?}");
                Ok(())
            }
        });
        let typed = mesh.typed_client().data()?;
        let shared = Arc::clone(&load.shared);
        load.clients
            .spawn(typed_writer(typed, format!("{prefix}.typed"), shared));
        load.query("Query", data.clone(), &queried);
        load.query_last(data, format!("{prefix}.write0"));
        load.query_http(http, &queried);
        load.query_json(json, &queried);
        load.names(mesh.uid_client().await?, prefix);
        Ok(load)
    }

    /// The results so far.
    pub fn calls(&self) -> BTreeMap<&'static str, Calls> {
        lock(&self.shared.calls).clone()
    }

    /// Waits until each kind of calls has succeeded again.
    ///
    /// # Errors
    ///
    /// If one does not in time.
    pub async fn until_all_succeed(&self) -> anyhow::Result<()> {
        let before = self.calls();
        wait::until("calls of each kind succeed", || async {
            for (kind, calls) in self.calls() {
                let before = before.get(kind).map_or(0, |calls| calls.succeeded);
                ensure!(calls.succeeded > before, "{kind}: {:?}", calls.failures.last());
            }
            Ok(())
        })
        .await
    }

    /// Ends the clients; returns the results, after reading back each acknowledged point with this client.
    ///
    /// # Errors
    ///
    /// If a point is lost.
    pub async fn end(
        mut self,
        client: &mut DataServiceClient<Channel>,
    ) -> anyhow::Result<BTreeMap<&'static str, Calls>> {
        self.shared.ends.store(true, Ordering::Relaxed);
        while let Some(ended) = self.clients.join_next().await {
            ended?;
        }
        let acknowledged = std::mem::take(&mut *lock(&self.shared.acknowledged));
        let mut points = 0;
        for (metric, hosts) in acknowledged {
            let stored = series_of(client, &metric).await?;
            for (host, numbers) in hosts {
                let tags = BTreeMap::from([("host".to_owned(), host.clone())]);
                let stored = stored.get(&tags).map(Vec::as_slice).unwrap_or_default();
                points += numbers.len();
                for number in numbers {
                    let instant = BEGIN_MS + number * 1000;
                    let index = stored.binary_search_by_key(&instant, |(instant, _)| *instant);
                    ensure!(
                        index.is_ok_and(|index| stored[index].1 == Number::Int(number)),
                        "point {number} of {metric} of {host} is lost"
                    );
                }
            }
        }
        let calls = self.calls();
        let streams = self.shared.streams.load(Ordering::Relaxed);
        println!("{points} acknowledged points are stored; {streams} write streams");
        for (kind, calls) in &calls {
            println!("{kind}: {} ok, {} failed", calls.succeeded, calls.failures.len());
        }
        Ok(calls)
    }

    /// Repeats a call until the end.
    fn repeat<F, R>(&mut self, kind: &'static str, mut call: F)
    where
        F: FnMut(i64) -> R + Send + 'static,
        R: Future<Output = anyhow::Result<()>> + Send,
    {
        let shared = Arc::clone(&self.shared);
        self.clients.spawn(async move {
            for number in 0.. {
                if shared.ends.load(Ordering::Relaxed) {
                    return;
                }
                shared.record(kind, timeout(HANGS, call(number)).await);
                sleep(PAUSE).await;
            }
        });
    }

    /// Repeats a write of the next points of a metric.
    fn write<F, R>(&mut self, kind: &'static str, metric: String, mut write: F)
    where
        F: FnMut(Vec<Sample>) -> R + Send + 'static,
        R: Future<Output = anyhow::Result<()>> + Send,
    {
        let shared = Arc::clone(&self.shared);
        self.repeat(kind, move |call| {
            let host = host_of(call);
            let numbers = call * BATCH..(call + 1) * BATCH;
            let written = write(samples(&metric, &host, numbers.clone()));
            let (shared, metric) = (Arc::clone(&shared), metric.clone());
            async move {
                written.await?;
                shared.acknowledge(&metric, &host, numbers);
                Ok(())
            }
        });
    }

    fn query(&mut self, kind: &'static str, client: DataServiceClient<Channel>, metric: &str) {
        let request = QueryRequest {
            range: Some(queried_range()),
            queries: vec![sub_query(metric, AggregateFunction::None)],
            ..QueryRequest::default()
        };
        self.repeat(kind, move |_| {
            let (mut client, request) = (client.clone(), request.clone());
            async move {
                let groups = query(&mut client, request).await?;
                let points = groups.first().map_or(0, |group| group.points.len());
                ensure!(i64::try_from(points)? == QUERIED, "{points} points");
                Ok(())
            }
        });
    }

    /// Points of the past have no last point within its range: the response is empty, but complete.
    fn query_last(&mut self, client: DataServiceClient<Channel>, metric: String) {
        let source = MetricSource {
            metric,
            ..MetricSource::default()
        };
        let request = QueryLastRequest {
            targets: vec![Target {
                target: Some(target::Target::Metric(source)),
            }],
            ..QueryLastRequest::default()
        };
        self.repeat("QueryLast", move |_| {
            let (mut client, request) = (client.clone(), request.clone());
            async move {
                let mut frames = client.query_last(request).await?.into_inner();
                while let Some(frame) = frames.next().await {
                    frame?;
                }
                Ok(())
            }
        });
    }

    fn query_http(&mut self, http: Http, metric: &str) {
        let range = (BEGIN_MS / 1000 - 1, BEGIN_MS / 1000 + QUERIED);
        let path = format!("/api/query?start={}&end={}&m=none:{metric}", range.0, range.1);
        self.repeat("HTTP query", move |_| {
            let (http, path) = (http.clone(), path.clone());
            async move {
                let response = http.get(&path).await?;
                let result = response.json()?;
                let points = result[0]["dps"].as_object().map_or(0, serde_json::Map::len);
                ensure!(i64::try_from(points)? == QUERIED, "{points} points: {response:?}");
                Ok(())
            }
        });
    }

    fn query_json(&mut self, json: Http, metric: &str) {
        let request = json_query(metric);
        self.repeat("Query as JSON", move |_| {
            let (json, request) = (json.clone(), request.clone());
            async move {
                let response = json.post("/oxtsdb.data.v1.DataService/Query", &request).await?;
                let frames = response.json()?;
                let frames = frames.as_array().context("no array")?;
                let points: usize = frames
                    .iter()
                    .filter_map(|frame| frame["points"]["timestampsMs"].as_array())
                    .map(Vec::len)
                    .sum();
                ensure!(
                    response.status == 200 && i64::try_from(points)? == QUERIED,
                    "{response:?}"
                );
                Ok(())
            }
        });
    }

    fn names(&mut self, client: UidServiceClient<Channel>, prefix: &str) {
        let prefix = prefix.to_owned();
        self.repeat("UIDs", move |call| {
            let (mut client, name) = (client.clone(), format!("{prefix}.name{}", call / 10));
            async move {
                let kind = UidKind::Metric.into();
                let names = vec![UidName {
                    kind,
                    name: name.clone(),
                    ..UidName::default()
                }];
                let request = GetOrCreateUidsRequest {
                    names,
                    explicit: true,
                    ..Default::default()
                };
                let assigned = client.get_or_create_uids(request).await?.into_inner();
                ensure!(assigned.results.len() == 1, "{assigned:?}");
                let request = SuggestNamesRequest {
                    kind,
                    prefix: name.clone(),
                    ..SuggestNamesRequest::default()
                };
                let suggested = client.suggest_names(request).await?.into_inner();
                ensure!(!suggested.mappings.is_empty(), "no `{name}`");
                Ok(())
            }
        });
    }
}

impl Shared {
    fn record(&self, kind: &'static str, result: Result<anyhow::Result<()>, tokio::time::error::Elapsed>) {
        let mut calls = lock(&self.calls);
        let calls = calls.entry(kind).or_default();
        match result {
            Ok(Ok(())) => calls.succeeded += 1,
            Ok(Err(error)) => calls.failures.push(format!("{error:#}")),
            Err(_elapsed) => calls.failures.push("it hangs".to_owned()),
        }
    }

    fn acknowledge(&self, metric: &str, host: &str, numbers: Range<i64>) {
        let mut acknowledged = lock(&self.acknowledged);
        let hosts = acknowledged.entry(metric.to_owned()).or_default();
        hosts.entry(host.to_owned()).or_default().extend(numbers);
    }
}

/// Writes over one stream after the other; each ends when its server announces that it drains.
async fn write_streams(mut client: DataServiceClient<Channel>, metric: String, shared: Arc<Shared>) {
    let mut next = 0;
    while !shared.ends.load(Ordering::Relaxed) {
        shared.streams.fetch_add(1, Ordering::Relaxed);
        let written = write_stream(&mut client, &metric, &shared, &mut next).await;
        if written.is_err() {
            shared.record(WRITE_STREAM, Ok(written));
        }
    }
}

/// Writes frames from a number on until the server drains; returns when all are acknowledged.
async fn write_stream(
    client: &mut DataServiceClient<Channel>,
    metric: &str,
    shared: &Shared,
    next: &mut i64,
) -> anyhow::Result<()> {
    let opened = timeout(HANGS, WriteStream::open(client)).await;
    let mut stream = opened.context("opening hangs")?.context("opening")?;
    let mut sent: VecDeque<(u64, i64)> = VecDeque::new();
    let mut frame = *next;
    let mut ends = false;
    loop {
        ends |= shared.ends.load(Ordering::Relaxed);
        if ends && sent.is_empty() {
            // `draining` may come meanwhile.
            stream.close().await?;
            return Ok(());
        }
        tokio::select! {
            message = timeout(HANGS, stream.next()), if !sent.is_empty() => match message.context("an ack hangs")?? {
                Some(Message::Ack(ack)) => {
                    ensure!(ack.failed == 0, "{ack:?}");
                    shared.record(WRITE_STREAM, Ok(Ok(())));
                    while let Some((_, first)) = sent.front().copied().filter(|(sent, _)| *sent <= ack.sequence) {
                        sent.pop_front();
                        shared.acknowledge(metric, &host_of(first), first * BATCH..(first + 1) * BATCH);
                        *next = first + 1;
                    }
                }
                Some(Message::Draining(_)) => ends = true,
                other => bail!("{other:?}"),
            },
            () = sleep(PAUSE), if !ends && sent.len() < WINDOW => {
                let points = samples(metric, &host_of(frame), frame * BATCH..(frame + 1) * BATCH);
                let sequence = stream.send(&points).await?;
                sent.push_back((sequence, frame));
                frame += 1;
            }
        }
    }
}

/// Writes with the client that moves its points to another stream by itself.
async fn typed_writer(client: DataClient, metric: String, shared: Arc<Shared>) {
    let host = "typed";
    let series = SeriesName::new(&metric, [("host", host)]);
    let mut next = 0;
    let mut write = async || {
        let mut writer = client.stream_writer(StreamOptions::default()).await?;
        while !shared.ends.load(Ordering::Relaxed) {
            let numbers = next..next + 20 * BATCH;
            for number in numbers.clone() {
                let instant = Timestamp::from_seconds(BEGIN_MS / 1000 + number);
                writer.send(&series, instant, number).await?;
                if number % BATCH == 0 {
                    sleep(PAUSE).await;
                }
            }
            let report = writer.flush().await?;
            ensure!(report.failed == 0, "{report:?}");
            next = numbers.end;
            shared.acknowledge(&metric, host, numbers);
            shared.record("typed writer", Ok(Ok(())));
        }
        writer.close().await?;
        Ok(())
    };
    while !shared.ends.load(Ordering::Relaxed) {
        let written = write().await;
        shared.record("typed writer", Ok(written));
    }
}

/// A query of the points of a metric, as JSON of the contract.
pub fn json_query(metric: &str) -> Value {
    json!({
        "range": {"startMs": BEGIN_MS.to_string(), "endMs": (BEGIN_MS + QUERIED * 1000).to_string()},
        "queries": [{"metric": {"metric": metric}, "aggregator": {"function": "AGGREGATE_FUNCTION_NONE"}}],
    })
}

/// A write of points of one series, as JSON of the contract.
pub fn json_write(points: &[Sample]) -> Value {
    let tags: Vec<Value> = points[0]
        .tags
        .iter()
        .map(|(key, value)| json!({"key": key, "value": value}))
        .collect();
    let timestamps: Vec<String> = points
        .iter()
        .map(|point| point.timestamp_ms.to_string())
        .collect();
    let values: Vec<String> = points.iter().map(|point| point.value.to_string()).collect();
    json!({
        "series": [{
            "name": {"metric": points[0].metric, "tags": tags},
            "timestamps": timestamps,
            "intValues": values,
        }],
        "options": {"timeUnit": "TIME_UNIT_MILLISECONDS", "allowAnyTime": true},
    })
}

/// Points of a series; each has its number as its value.
pub fn samples(metric: &str, host: &str, numbers: Range<i64>) -> Vec<Sample> {
    numbers
        .map(|number| Sample::int(metric, &[("host", host)], BEGIN_MS + number * 1000, number))
        .collect()
}

fn host_of(call: i64) -> String {
    format!("host{}", call / CALLS_OF_HOST)
}

fn queried_range() -> TimeRange {
    range(BEGIN_MS, BEGIN_MS + QUERIED * 1000)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
