//! The worker threads of a store, and the async side of sending them requests.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::config::ThriftConfig;
use super::connection::{Connection, ConnectionId};
use super::error::{CallError, Idempotency};
use super::extents::Extents;
use super::gateway::Gateways;
use super::queue::{Claim, Job, Queue, Route, deadline_exceeded};
use super::worker::{Shared, Worker};
use crate::{GatewayFigures, StoreError};

/// How often an idempotent request is sent if its connection breaks.
const ATTEMPTS: usize = 3;

/// The workers of a store; dropping it stops them.
pub(super) struct Pool {
    shared: Arc<Shared>,
    /// One receiver per worker, which completes when the worker ends.
    running: Mutex<Vec<oneshot::Receiver<()>>>,
    /// The extents that scans have learned.
    pub(super) extents: Extents,
}

impl Pool {
    /// Starts the workers. Each connects when it gets its first request.
    pub(super) fn start(config: ThriftConfig) -> Result<Self, StoreError> {
        let shared = Arc::new(Shared {
            queue: Queue::new(
                config.connections,
                config.connections.saturating_mul(config.queue),
            ),
            gateways: Gateways::new(config.gateways.clone()),
            config,
        });
        // From here on, dropping the pool stops the workers already started.
        let pool = Self {
            shared,
            running: Mutex::default(),
            extents: Extents::default(),
        };
        for index in 0..pool.shared.config.connections {
            let (ends, ended) = oneshot::channel();
            let shared = pool.shared.clone();
            std::thread::Builder::new()
                .name(format!("hbase-{index}"))
                .spawn(move || {
                    Worker::new(shared, index).run();
                    drop(ends);
                })
                .map_err(|error| StoreError::Io {
                    place: "thread of an HBase connection".to_owned(),
                    detail: error.to_string(),
                })?;
            pool.running.lock().push(ended);
        }
        Ok(pool)
    }

    pub(super) fn config(&self) -> &ThriftConfig {
        &self.shared.config
    }

    /// The figures of the gateways.
    pub(super) fn gateways(&self) -> Vec<GatewayFigures> {
        self.shared.gateways.figures()
    }

    /// Connections that have nothing to do.
    pub(super) fn idle_connections(&self) -> usize {
        self.shared.queue.idle_workers()
    }

    /// Sends a request over any connection. `request` builds it anew for each attempt.
    pub(super) async fn call<T, R>(
        &self,
        idempotency: Idempotency,
        request: impl Fn() -> R,
    ) -> Result<T, CallError>
    where
        T: Send + 'static,
        R: FnOnce(&mut Connection, Instant) -> Result<T, CallError> + Send + 'static,
    {
        self.call_within(self.shared.config.request_timeout, idempotency, request)
            .await
    }

    /// As [`Pool::call`], with a time limit of its own.
    pub(super) async fn call_within<T, R>(
        &self,
        time: Duration,
        idempotency: Idempotency,
        request: impl Fn() -> R,
    ) -> Result<T, CallError>
    where
        T: Send + 'static,
        R: FnOnce(&mut Connection, Instant) -> Result<T, CallError> + Send + 'static,
    {
        let deadline = Instant::now() + time;
        let mut attempt = 1;
        loop {
            match self.submit(Route::Any, deadline, request())?.response().await {
                Err(CallError::ConnectionLost { gateway, detail })
                    if idempotency == Idempotency::Idempotent && attempt < ATTEMPTS =>
                {
                    tracing::debug!(gateway, detail, "connection lost, the request is sent again");
                    attempt += 1;
                }
                result => return result,
            }
        }
    }

    /// Queues a request. It runs even if nothing awaits its response, unless the [`Call`] is dropped before it
    /// starts.
    pub(super) fn submit<T, R>(
        &self,
        route: Route,
        deadline: Instant,
        request: R,
    ) -> Result<Call<T>, CallError>
    where
        T: Send + 'static,
        R: FnOnce(&mut Connection, Instant) -> Result<T, CallError> + Send + 'static,
    {
        let (reply, response) = oneshot::channel();
        let call = Call {
            claim: Claim::default(),
            deadline,
            response,
        };
        let connected_by = Instant::now() + self.shared.config.connect_timeout;
        // A part of the trace of the call's operation; it includes waiting for a connection.
        let span = tracing::info_span!(
            target: "oxtsdb::trace",
            "hbase",
            otel.kind = "client",
            otel.status_code = tracing::field::Empty,
            db.system = "hbase",
        );
        self.shared.queue.push(Job {
            claim: call.claim.clone(),
            connected_by: connected_by.min(deadline),
            deadline,
            route,
            work: Box::new(move |connection| {
                let result = connection.and_then(|connection| request(connection, deadline));
                if result.is_err() {
                    span.record("otel.status_code", "ERROR");
                }
                drop(span);
                // The caller may have dropped the call; the response was read nevertheless.
                let _ = reply.send(result);
            }),
        })?;
        Ok(call)
    }

    /// Queues a request for a connection, ignoring its response.
    pub(super) fn submit_detached<T, R>(&self, connection: ConnectionId, request: R)
    where
        R: FnOnce(&mut Connection, Instant) -> Result<T, CallError> + Send + 'static,
    {
        let deadline = Instant::now() + self.shared.config.request_timeout;
        let job = Job {
            claim: Claim::default(),
            connected_by: deadline,
            deadline,
            route: Route::Connection(connection),
            work: Box::new(move |connection| {
                if let Err(error) = connection.and_then(|connection| request(connection, deadline)) {
                    tracing::debug!(%error, "a detached request failed");
                }
            }),
        };
        // A closed store has no connections.
        let _ = self.shared.queue.push(job);
    }

    /// Stops the workers and waits until they have ended.
    pub(super) async fn close(&self) {
        self.stop();
        let running = std::mem::take(&mut *self.running.lock());
        for worker in running {
            // Resolves to an error once the worker has dropped its sender.
            let _ = worker.await;
        }
    }

    fn stop(&self) {
        self.shared.queue.close();
        self.shared.gateways.wake();
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.stop();
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("config", &self.shared.config)
            .finish_non_exhaustive()
    }
}

/// A queued or running request. Dropping it before the request starts cancels the request.
pub(super) struct Call<T> {
    claim: Claim,
    deadline: Instant,
    response: oneshot::Receiver<Result<T, CallError>>,
}

impl<T> Call<T> {
    /// Waits for the response.
    pub(super) async fn response(mut self) -> Result<T, CallError> {
        let response = match tokio::time::timeout_at(self.deadline.into(), &mut self.response).await {
            Ok(response) => response,
            Err(_) if self.claim.take() => return Err(deadline_exceeded()),
            // The request is running, and its worker observes the same deadline.
            Err(_) => (&mut self.response).await,
        };
        response.unwrap_or_else(|_| {
            Err(CallError::ConnectionLost {
                gateway: "HBase".to_owned(),
                detail: "the request panicked in the thread of its connection".to_owned(),
            })
        })
    }
}

impl<T> Drop for Call<T> {
    fn drop(&mut self) {
        self.claim.take();
    }
}
