//! A thread that owns one connection.
//!
//! The generated client blocks, so it never runs on a thread of the runtime. A request whose caller
//! has gone is not begun; one that has begun is finished, so that no answer is left half read. After
//! an error that is not an exception of HBase the connection is thrown away: what came late would be
//! read as the answer to the next request.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::config::HbaseConfig;
use super::connection::{Connection, ConnectionId};
use super::error::CallError;
use super::gateway::{Advice, Gateways};
use super::queue::{Job, Next, Queue, Route, closed, deadline_exceeded};

/// How long an attempt may take to return to a gateway while another one serves.
const RETURN_ATTEMPT: Duration = Duration::from_secs(1);
/// How often a worker that is away from its gateway looks whether it may return.
const RETURN_INTERVAL: Duration = Duration::from_millis(200);

/// How long a worker waits for a request before it looks around.
const IDLE: Duration = Duration::from_secs(60);

/// What the workers of a store share.
pub(super) struct Shared {
    pub(super) config: HbaseConfig,
    pub(super) queue: Queue,
    pub(super) gateways: Gateways,
}

/// One worker; it lives in its thread.
pub(super) struct Worker {
    shared: Arc<Shared>,
    index: usize,
    /// The gateway that it uses when it can.
    home: usize,
    /// Connections that were opened so far.
    serial: u64,
    /// The connection, and its gateway.
    connection: Option<(Connection, usize)>,
    /// When to look whether the own gateway is there again.
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

    /// Works until the queue is closed.
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
        // From here on the caller waits for an answer.
        if !job.claim.take() {
            return;
        }
        let connection = match (connected, &mut self.connection) {
            (Ok(()), _) if Instant::now() >= job.deadline => Err(deadline_exceeded()),
            (Ok(()), Some((connection, _))) => Ok(connection),
            (Ok(()), None) => Err(closed()),
            (Err(error), _) => Err(error),
        };
        // A panic, of a scan's filter say, costs its request and not the worker.
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

    /// Makes sure that there is a connection, as long as the request can wait for one.
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

    /// Whether there is a connection that can take a request. When another one with this gateway broke
    /// after this one had its last answer, the gateway is asked: one that hangs would else hold a
    /// request of each connection for the whole of its time.
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
            Ok(connection) => {
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

    /// Goes back to the own gateway, if it is there again and no scanner would be lost.
    fn return_home(&mut self) {
        let has_scanners = self
            .connection
            .as_ref()
            .is_some_and(|(connection, _)| connection.scanners > 0);
        let time = RETURN_ATTEMPT.min(self.shared.config.connect_timeout);
        if !has_scanners && self.shared.gateways.may_retry(self.home, time) {
            // A failure leaves the present connection as it is.
            self.open(self.home, time);
        }
    }
}
