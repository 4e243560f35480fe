//! Clients that write all the time, while a test breaks what is below the server.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use oxtsdb_proto::data::v1::data_service_client::DataServiceClient;
use oxtsdb_proto::data::v1::{PointError, WriteResponse};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tonic::transport::Channel;
use tonic::{Code, Request, Response, Status};
use tonic_types::StatusExt as _;

use crate::raw_grpc::RawChannel;
use crate::read_back::series_of;
use crate::sample::Sample;
use crate::write_requests::write_request;

/// The deadline of each call, as its header has it.
const DEADLINE: &str = "3S";
/// A call that is not answered by then hangs, however slow the machine is.
const HANGS: Duration = Duration::from_secs(30);
/// Points of a call.
const BATCH: usize = 20;
/// How long a client waits after a failure.
const PAUSE: Duration = Duration::from_millis(100);
/// Time of the first point, and of the next ones a second each.
const BEGIN_MS: i64 = 1_500_000_000_000;

/// Writers of points that no two of them have in common.
#[derive(Debug)]
pub struct Traffic {
    shared: Arc<Shared>,
    writers: JoinSet<anyhow::Result<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    acknowledged: Mutex<Vec<Sample>>,
    failures: Mutex<Vec<Status>>,
    /// Number of calls that wrote no point; each may be retried.
    unwritten: AtomicUsize,
    /// Why a writer gave up.
    broken: Mutex<Option<String>>,
    next: AtomicU64,
    ends: AtomicBool,
}

impl Traffic {
    /// `writers` of one metric, until [`Traffic::end`].
    pub fn start(address: SocketAddr, metric: &str, writers: usize) -> Self {
        let shared = Arc::new(Shared::default());
        let mut traffic = Self {
            shared: Arc::clone(&shared),
            writers: JoinSet::new(),
        };
        for number in 0..writers {
            let (metric, host) = (metric.to_owned(), format!("host{number}"));
            let shared = Arc::clone(&shared);
            traffic.writers.spawn(async move {
                let ended = write(address, metric, host, &shared).await;
                if let Err(error) = &ended {
                    *lock(&shared.broken) = Some(format!("{error:#}"));
                }
                ended
            });
        }
        traffic
    }

    /// Number of points acknowledged so far.
    pub fn acknowledged(&self) -> usize {
        lock(&self.shared.acknowledged).len()
    }

    /// Number of calls that failed so far.
    pub fn failures(&self) -> usize {
        lock(&self.shared.failures).len() + self.shared.unwritten.load(Ordering::Relaxed)
    }

    /// Fails unless more points are acknowledged than there were.
    ///
    /// # Errors
    ///
    /// As said.
    pub fn check_goes_on(&self, before: usize) -> anyhow::Result<()> {
        let now = self.acknowledged();
        ensure!(
            now >= before + 10 * BATCH,
            "{now} points, there were {before}; the last failure: {:?}; a writer gave up: {:?}",
            lock(&self.shared.failures).last(),
            lock(&self.shared.broken)
        );
        Ok(())
    }

    /// Ends the writers. Gives what was acknowledged, and each failure.
    ///
    /// # Errors
    ///
    /// If a call hung, or failed in a way in which an outage must not make it fail.
    pub async fn end(mut self) -> anyhow::Result<(Vec<Sample>, Vec<Status>)> {
        self.shared.ends.store(true, Ordering::Relaxed);
        while let Some(writer) = self.writers.join_next().await {
            writer??;
        }
        let failures = std::mem::take(&mut *lock(&self.shared.failures));
        for status in &failures {
            check_failure(status)?;
        }
        Ok((std::mem::take(&mut *lock(&self.shared.acknowledged)), failures))
    }
}

/// Fails unless the status says that a retry may help, and when.
///
/// # Errors
///
/// As said.
pub fn check_failure(status: &Status) -> anyhow::Result<()> {
    match status.code() {
        Code::DeadlineExceeded => Ok(()),
        Code::Unavailable | Code::ResourceExhausted => {
            status
                .get_details_retry_info()
                .with_context(|| format!("no RetryInfo: {status:?}"))?;
            Ok(())
        }
        _ => bail!("not a retryable status: {status:?}"),
    }
}

/// Fails unless all points failed, and may be retried after a time that the response states.
fn check_unwritten(response: &WriteResponse) -> anyhow::Result<()> {
    let errors = response
        .failures
        .as_ref()
        .map_or(&[][..], |failures| &failures.errors);
    let may_be_retried = |error: &PointError| {
        let error = error.error.as_ref();
        error.is_some_and(|error| error.retryable && error.retry_delay.is_some())
    };
    ensure!(
        response.failed == BATCH as u64 && !errors.is_empty() && errors.iter().all(may_be_retried),
        "{response:?}"
    );
    Ok(())
}

/// Fails unless all points of a metric that were acknowledged are stored.
///
/// # Errors
///
/// As said, or the server's.
pub async fn check_stored(
    client: &mut DataServiceClient<Channel>,
    metric: &str,
    acknowledged: &[Sample],
) -> anyhow::Result<()> {
    let stored = series_of(client, metric).await?;
    for sample in acknowledged {
        let tags = sample.tags.iter().cloned().collect();
        let points = stored.get(&tags).map(Vec::as_slice).unwrap_or_default();
        let place = points.binary_search_by_key(&sample.timestamp_ms, |(instant, _)| *instant);
        ensure!(
            place.is_ok_and(|place| points[place].1 == sample.value),
            "{sample:?} is lost"
        );
    }
    Ok(())
}

/// Writes points, and waits for the answer of a server that keeps to the deadline, which is given as gRPC's
/// header has it.
///
/// # Errors
///
/// If the call hangs. That it fails is an answer.
pub async fn call(
    client: &mut DataServiceClient<RawChannel>,
    samples: &[Sample],
    deadline: &str,
) -> anyhow::Result<Result<WriteResponse, Status>> {
    let mut request = Request::new(write_request(samples));
    request.metadata_mut().insert("grpc-timeout", deadline.parse()?);
    let answer = timeout(HANGS, client.write(request)).await;
    let answer = answer.with_context(|| format!("a call with a deadline of {deadline} hangs"))?;
    Ok(answer.map(Response::into_inner))
}

/// A client of the data service that leaves deadlines to the server: tonic's channel would give up before it
/// answers.
///
/// # Errors
///
/// If the server does not accept.
pub async fn client(address: SocketAddr) -> anyhow::Result<DataServiceClient<RawChannel>> {
    let channel = RawChannel::connect(address).await?;
    Ok(DataServiceClient::with_origin(
        channel,
        RawChannel::origin(address)?,
    ))
}

async fn write(address: SocketAddr, metric: String, host: String, shared: &Shared) -> anyhow::Result<()> {
    let mut client = client(address).await?;
    while !shared.ends.load(Ordering::Relaxed) {
        let first = shared.next.fetch_add(BATCH as u64, Ordering::Relaxed);
        let first = i64::try_from(first)?;
        let samples: Vec<Sample> = (first..first + BATCH as i64)
            .map(|n| Sample::int(&metric, &[("host", &host)], BEGIN_MS + n * 1000, n))
            .collect();
        match call(&mut client, &samples, DEADLINE).await? {
            Ok(answer) if answer.written == BATCH as u64 => lock(&shared.acknowledged).extend(samples),
            // The UID service responds, but cannot read its table.
            Ok(answer) => {
                check_unwritten(&answer)?;
                shared.unwritten.fetch_add(1, Ordering::Relaxed);
                sleep(PAUSE).await;
            }
            Err(status) => {
                lock(&shared.failures).push(status);
                sleep(PAUSE).await;
            }
        }
    }
    Ok(())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
