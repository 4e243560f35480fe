//! Clients that write all the time, while a test breaks what is below the server. Their points form
//! [linked lists](crate::linked_lists).

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use oxtsdb_proto::data::v1::data_service_client::DataServiceClient;
use oxtsdb_proto::data::v1::{PointError, WriteResponse};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tonic::transport::Channel;
use tonic::{Code, Request, Response, Status};
use tonic_types::StatusExt as _;

use crate::linked_lists::{BATCH, LinkedLists};
use crate::raw_grpc::RawChannel;
use crate::read_back::{LAST_MS, series_of};
use crate::sample::Sample;
use crate::write_requests::write_request;

/// The deadline of each call, as its header has it.
const DEADLINE: &str = "3S";
/// A call that is not answered by then hangs, however slow the machine is.
const HANGS: Duration = Duration::from_secs(30);
/// How long a client waits after a failure.
const PAUSE: Duration = Duration::from_millis(100);

/// Writers of points that no two of them have in common.
#[derive(Debug)]
pub struct Traffic {
    shared: Arc<Shared>,
    writers: JoinSet<anyhow::Result<()>>,
}

#[derive(Debug)]
struct Shared {
    lists: Mutex<LinkedLists>,
    /// Number of points acknowledged.
    acknowledged: AtomicUsize,
    /// Times of calls until their response since these were taken last.
    times: Mutex<Vec<Duration>>,
    failures: Mutex<Vec<Status>>,
    /// Number of calls that wrote no point; each may be retried.
    unwritten: AtomicUsize,
    /// Why a writer gave up.
    broken: Mutex<Option<String>>,
    ends: AtomicBool,
}

impl Traffic {
    /// `writers` of one metric, until [`Traffic::end`].
    pub fn start(address: SocketAddr, metric: &str, writers: usize) -> Self {
        Self::start_paced(address, metric, writers, Duration::ZERO)
    }

    /// As [`Traffic::start`]; each writer waits for `pace` after each response.
    pub fn start_paced(address: SocketAddr, metric: &str, writers: usize, pace: Duration) -> Self {
        let shared = Arc::new(Shared {
            lists: Mutex::new(LinkedLists::new(metric, writers)),
            acknowledged: AtomicUsize::new(0),
            times: Mutex::default(),
            failures: Mutex::default(),
            unwritten: AtomicUsize::new(0),
            broken: Mutex::default(),
            ends: AtomicBool::new(false),
        });
        let mut traffic = Self {
            shared: Arc::clone(&shared),
            writers: JoinSet::new(),
        };
        for writer in 0..writers {
            let shared = Arc::clone(&shared);
            traffic.writers.spawn(async move {
                let ended = write(address, writer, pace, &shared).await;
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
        self.shared.acknowledged.load(Ordering::Relaxed)
    }

    /// The lists as they are now.
    pub fn lists(&self) -> MutexGuard<'_, LinkedLists> {
        lock(&self.shared.lists)
    }

    /// Returns the times of all calls until their response, since this was called last.
    pub fn take_times(&self) -> Vec<Duration> {
        std::mem::take(&mut *lock(&self.shared.times))
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

    /// Ends the writers. Returns their lists.
    ///
    /// # Errors
    ///
    /// If a call hung, or failed in a way in which an outage must not make it fail.
    pub async fn end(mut self) -> anyhow::Result<LinkedLists> {
        self.shared.ends.store(true, Ordering::Relaxed);
        while let Some(writer) = self.writers.join_next().await {
            writer??;
        }
        for status in &*lock(&self.shared.failures) {
            check_failure(status)?;
        }
        let nothing = LinkedLists::new("", 0);
        Ok(std::mem::replace(&mut *lock(&self.shared.lists), nothing))
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

/// Fails unless all points of lists that were acknowledged are stored, and none that was not sent; returns the number of points that
/// their links lead to.
///
/// # Errors
///
/// As said, or the server's.
pub async fn check_stored(
    client: &mut DataServiceClient<Channel>,
    metric: &str,
    lists: &LinkedLists,
) -> anyhow::Result<usize> {
    let stored = series_of(client, metric).await?;
    let findings = lists.compare(&stored, &(0..LAST_MS), &lists.completed());
    findings.check()?;
    let followed = lists.follow(&stored)?;
    ensure!(
        followed == findings.acknowledged,
        "the lists of {metric} have {followed} points, {} were acknowledged",
        findings.acknowledged
    );
    Ok(followed)
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

async fn write(address: SocketAddr, writer: usize, pace: Duration, shared: &Shared) -> anyhow::Result<()> {
    let mut client = client(address).await?;
    while !shared.ends.load(Ordering::Relaxed) {
        let samples = lock(&shared.lists).begin(writer);
        let begin = Instant::now();
        let response = call(&mut client, &samples, DEADLINE).await?;
        lock(&shared.times).push(begin.elapsed());
        let is_acknowledged = matches!(&response, Ok(response) if response.written == BATCH as u64);
        lock(&shared.lists).complete(writer, is_acknowledged);
        if is_acknowledged {
            shared.acknowledged.fetch_add(BATCH, Ordering::Relaxed);
            sleep(pace).await;
            continue;
        }
        match response {
            // The UID service responds, but cannot read its table.
            Ok(response) => {
                check_unwritten(&response)?;
                shared.unwritten.fetch_add(1, Ordering::Relaxed);
            }
            Err(status) => lock(&shared.failures).push(status),
        }
        sleep(PAUSE).await;
    }
    Ok(())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
