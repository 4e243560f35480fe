//! A thread that owns one connection.
//!
//! The generated client blocks, so it never runs on a thread of the runtime. A request whose caller
//! has gone is not begun; one that has begun is finished, so that no answer is left half read. After
//! an error that is not an exception of HBase the connection is thrown away: what came late would be
//! read as the answer to the next request.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::config::HbaseConfig;
use super::connection::{Connection, ConnectionId};
use super::error::CallError;
use super::gateway::{Advice, Gateways};
use super::queue::{Job, Next, Queue, closed};

/// How long an attempt may take to return to a gateway while another one serves.
const RETURN_ATTEMPT: Duration = Duration::from_secs(1);
/// How often a worker that is away from its gateway looks whether it may return.
const RETURN_INTERVAL: Duration = Duration::from_millis(200);

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
}

impl Worker {
    pub(super) fn new(shared: Arc<Shared>, index: usize) -> Self {
        Self {
            index,
            home: index % shared.gateways.len(),
            shared,
            serial: 0,
            connection: None,
        }
    }

    /// Works until the queue is closed.
    pub(super) fn run(mut self) {
        loop {
            let away = self.is_away();
            let patience = if away {
                RETURN_INTERVAL
            } else {
                Duration::from_secs(60)
            };
            match self.shared.queue.next(self.index, patience) {
                Next::Job(job) => self.serve(job),
                Next::Idle if away => self.return_home(),
                Next::Idle => {}
                Next::Closed => return,
            }
        }
    }

    fn serve(&mut self, job: Job) {
        if job.claim.is_taken() {
            return;
        }
        let connected = match job.pinned {
            Some(id) => match &self.connection {
                Some((connection, _)) if connection.id == id && connection.is_usable() => Ok(()),
                _ => Err(CallError::ScannerLost),
            },
            None => self.connect(&job),
        };
        // From here on the caller waits for an answer.
        if !job.claim.take() {
            return;
        }
        match (connected, &mut self.connection) {
            (Ok(()), Some((connection, _))) => (job.work)(Ok(connection)),
            (Ok(()), None) => (job.work)(Err(closed())),
            (Err(error), _) => (job.work)(Err(error)),
        }
        if self
            .connection
            .as_ref()
            .is_some_and(|(connection, _)| connection.is_broken())
        {
            self.connection = None;
        }
    }

    /// Makes sure that there is a connection, as long as the request can wait for one.
    fn connect(&mut self, job: &Job) -> Result<(), CallError> {
        if self
            .connection
            .as_ref()
            .is_some_and(|(connection, _)| connection.is_usable())
        {
            return Ok(());
        }
        self.connection = None;
        loop {
            if self.shared.queue.is_closed() || job.claim.is_taken() {
                return Err(closed());
            }
            if Instant::now() >= job.connected_by {
                return Err(CallError::NotSent {
                    detail: format!("no HBase Thrift gateway: {}", self.shared.gateways.errors()),
                });
            }
            match self
                .shared
                .gateways
                .advise(self.home, self.shared.config.connect_timeout)
            {
                Advice::Try(gateway) => {
                    if self.open(gateway, self.shared.config.connect_timeout) {
                        return Ok(());
                    }
                }
                Advice::WaitUntil(then) => self.shared.gateways.wait_until(then.min(job.connected_by)),
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
                gateways.is_up(gateway);
                self.connection = Some((connection, gateway));
                true
            }
            Err(error) => {
                gateways.is_down(gateway, error);
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
        if !has_scanners && self.shared.gateways.is_worth_a_try(self.home, time) {
            // A failure leaves the present connection as it is.
            self.open(self.home, time);
        }
    }
}
