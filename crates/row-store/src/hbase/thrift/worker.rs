//! A worker thread, which owns one connection.
//!
//! The generated client blocks and therefore never runs on the runtime's threads. A worker skips requests of
//! callers that have gone, but completes every request it has started, so that no response remains half read.
//! After any error other than an exception of HBase it discards the connection: a late response would be taken
//! for the next request's response.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::config::ThriftConfig;
use super::connection::{Connection, ConnectionId};
use super::error::CallError;
use super::gateway::{Advice, Gateways};
use super::queue::{Job, Next, Queue, Route, closed, deadline_exceeded};

/// The time limit of an attempt to reconnect to the home gateway while another one works.
const RETURN_ATTEMPT: Duration = Duration::from_secs(1);
/// How often a worker away from its home gateway checks whether it can return.
const RETURN_INTERVAL: Duration = Duration::from_millis(200);

/// How long an idle worker waits before it wakes up.
const IDLE: Duration = Duration::from_secs(60);

/// State shared by the workers of a store.
pub(super) struct Shared {
    pub(super) config: ThriftConfig,
    pub(super) queue: Queue,
    pub(super) gateways: Gateways,
}

/// The state of a worker thread.
pub(super) struct Worker {
    shared: Arc<Shared>,
    index: usize,
    /// The preferred gateway.
    home: usize,
    /// Number of connections opened so far.
    serial: u64,
    /// The connection and the index of its gateway.
    connection: Option<(Connection, usize)>,
    /// When to check next whether the home gateway is back.
    return_at: Instant,
}

impl Worker {
    pub(super) fn new(shared: Arc<Shared>, index: usize) -> Self {
        Self {
            index,
            home: index % shared.gateways.len(),
            shared,
            serial: 0,
            connection: None,
            return_at: Instant::now(),
        }
    }

    /// Serves requests until the queue is closed.
    pub(super) fn run(mut self) {
        loop {
            let patience = match self.is_away() {
                true => RETURN_INTERVAL,
                false => IDLE,
            };
            match self.shared.queue.next(self.index, patience) {
                Next::Job(job) => self.serve(job),
                Next::Idle => {}
                Next::Closed => return,
            }
            if self.is_away() && Instant::now() >= self.return_at {
                self.return_home();
                self.return_at = Instant::now() + RETURN_INTERVAL;
            }
        }
    }

    fn serve(&mut self, job: Job) {
        if job.claim.is_taken() {
            return;
        }
        let connected = match job.route {
            Route::Connection(id) => match &self.connection {
                Some((connection, _)) if connection.id == id && connection.is_usable() => Ok(()),
                _ => Err(CallError::ScannerLost),
            },
            Route::Any | Route::Front => self.connect(&job),
        };
        // From here on the caller waits for the response.
        if !job.claim.take() {
            return;
        }
        let connection = match (connected, &mut self.connection) {
            (Ok(()), _) if Instant::now() >= job.deadline => Err(deadline_exceeded()),
            (Ok(()), Some((connection, _))) => Ok(connection),
            (Ok(()), None) => Err(closed()),
            (Err(error), _) => Err(error),
        };
        // A panic, for example in a scan's filter, fails its request but not the worker.
        if catch_unwind(AssertUnwindSafe(|| (job.work)(connection))).is_err() {
            self.connection = None;
        }
        if let Some((connection, gateway)) = &self.connection
            && connection.is_broken()
        {
            self.shared.gateways.mark_suspect(*gateway);
            self.connection = None;
        }
    }

    /// Ensures that there is a usable connection, waiting at most until `job.connected_by`.
    fn connect(&mut self, job: &Job) -> Result<(), CallError> {
        if self.has_good_connection() {
            return Ok(());
        }
        self.connection = None;
        loop {
            if self.shared.queue.is_closed() || job.claim.is_taken() {
                return Err(closed());
            }
            let time = self.shared.config.connect_timeout;
            let can_wait = Instant::now() < job.connected_by;
            match self.shared.gateways.advise(self.home, time, can_wait) {
                Advice::Try(gateway) => {
                    if self.open(gateway, time) {
                        return Ok(());
                    }
                }
                Advice::WaitUntil(then) => self.shared.gateways.wait_until(then.min(job.connected_by)),
                Advice::GiveUp => {
                    return Err(CallError::NotSent {
                        detail: format!("no HBase Thrift gateway: {}", self.shared.gateways.errors()),
                    });
                }
            }
        }
    }

    /// Whether there is a usable connection. If another connection to the same gateway broke since this one's last
    /// response, the gateway is probed first: a hanging gateway would otherwise hold one request of every
    /// connection until its deadline.
    fn has_good_connection(&mut self) -> bool {
        let Some((connection, gateway)) = &mut self.connection else {
            return false;
        };
        if !connection.is_usable() {
            return false;
        }
        if !self
            .shared
            .gateways
            .is_suspect_since(*gateway, connection.last_response_at())
        {
            return true;
        }
        match connection.probe(Instant::now() + self.shared.config.connect_timeout) {
            Ok(()) => true,
            Err(error) => {
                self.shared.gateways.mark_down(*gateway, error);
                false
            }
        }
    }

    fn open(&mut self, gateway: usize, time: Duration) -> bool {
        let Shared { config, gateways, .. } = &*self.shared;
        self.serial += 1;
        let id = ConnectionId {
            worker: self.index,
            serial: self.serial,
        };
        let deadline = Instant::now() + time;
        match Connection::open(gateways.address(gateway), id, config, config.framed, deadline) {
            Ok(mut connection) => {
                connection.count_in(gateways.calls(gateway));
                gateways.mark_up(gateway);
                self.connection = Some((connection, gateway));
                true
            }
            Err(error) => {
                gateways.mark_down(gateway, error);
                false
            }
        }
    }

    fn is_away(&self) -> bool {
        self.connection
            .as_ref()
            .is_some_and(|(_, gateway)| *gateway != self.home)
    }

    /// Reconnects to the home gateway if it is back and no open scanner would be lost.
    fn return_home(&mut self) {
        let has_scanners = self
            .connection
            .as_ref()
            .is_some_and(|(connection, _)| connection.scanners > 0);
        let time = RETURN_ATTEMPT.min(self.shared.config.connect_timeout);
        if !has_scanners && self.shared.gateways.may_retry(self.home, time) {
            // On failure the current connection stays in use.
            self.open(self.home, time);
        }
    }
}
