//! The requests that wait for a connection.
//!
//! One bounded queue for all connections: a request never waits behind one that hangs while another
//! connection is free. What belongs to a scanner has to take the connection on which the scanner was
//! opened, and waits in that one's own lane.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::connection::{Connection, ConnectionId};
use super::error::CallError;

/// Decides, once, whether a request is sent or given up.
#[derive(Clone, Debug, Default)]
pub(super) struct Claim(Arc<AtomicBool>);

impl Claim {
    /// True for the first who asks.
    pub(super) fn take(&self) -> bool {
        !self.0.swap(true, Ordering::AcqRel)
    }

    /// Whether it has been taken.
    pub(super) fn is_taken(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// Which connection runs a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Route {
    /// The first idle connection, in order of arrival.
    Any,
    /// The first idle connection, ahead of all waiting requests and not counted against the queue's capacity.
    Front,
    /// This connection.
    Connection(ConnectionId),
}

/// What is to be done with a connection, or with the reason why there is none.
pub(super) type Work = Box<dyn FnOnce(Result<&mut Connection, CallError>) + Send>;

/// A request that waits.
pub(super) struct Job {
    /// The worker takes it when it begins, the caller when it gives up.
    pub(super) claim: Claim,
    /// By when a connection must have been found.
    pub(super) connected_by: Instant,
    /// By when it must be done.
    pub(super) deadline: Instant,
    /// Which connection it takes.
    pub(super) route: Route,
    /// What to do.
    pub(super) work: Work,
}

/// The requests that wait.
pub(super) struct Queue {
    capacity: usize,
    lanes: Mutex<Lanes>,
    changed: Condvar,
}

struct Lanes {
    /// For whoever is free.
    shared: VecDeque<Job>,
    /// For one worker each.
    pinned: Vec<VecDeque<Job>>,
    closed: bool,
}

/// What a worker is given.
pub(super) enum Next {
    /// This to do.
    Job(Job),
    /// Nothing for a while.
    Idle,
    /// Nothing any more.
    Closed,
}

impl Queue {
    /// A queue for so many workers and waiting requests.
    pub(super) fn new(workers: usize, capacity: usize) -> Self {
        Self {
            capacity,
            lanes: Mutex::new(Lanes {
                shared: VecDeque::new(),
                pinned: (0..workers).map(|_| VecDeque::new()).collect(),
                closed: false,
            }),
            changed: Condvar::new(),
        }
    }

    /// Adds a request, unless the queue is full or closed; the error says so.
    pub(super) fn push(&self, job: Job) -> Result<(), CallError> {
        // Dropped after the lock is given back, as it may hold a scanner, which is closed here.
        let mut given_up = VecDeque::new();
        let mut lanes = self.lanes.lock();
        if lanes.closed {
            return Err(closed());
        }
        match job.route {
            // Not bounded by number: each scan has one at a time.
            Route::Connection(ConnectionId { worker, .. }) => {
                lanes.pinned[worker].push_back(job);
                self.changed.notify_all();
            }
            Route::Front => {
                lanes.shared.push_front(job);
                self.changed.notify_one();
            }
            Route::Any => {
                if lanes.shared.len() >= self.capacity {
                    let all = std::mem::take(&mut lanes.shared);
                    (given_up, lanes.shared) = all.into_iter().partition(|job| job.claim.is_taken());
                }
                if lanes.shared.len() >= self.capacity {
                    return Err(CallError::NotSent {
                        detail: format!("{} requests to HBase wait already", self.capacity),
                    });
                }
                lanes.shared.push_back(job);
                self.changed.notify_one();
            }
        }
        drop(lanes);
        drop(given_up);
        Ok(())
    }

    /// The next request for a worker.
    pub(super) fn next(&self, worker: usize, patience: Duration) -> Next {
        let idle_at = Instant::now() + patience;
        let mut lanes = self.lanes.lock();
        loop {
            if lanes.closed {
                return Next::Closed;
            }
            if let Some(job) = lanes.pinned[worker].pop_front() {
                return Next::Job(job);
            }
            if let Some(job) = lanes.shared.pop_front() {
                return Next::Job(job);
            }
            if self.changed.wait_until(&mut lanes, idle_at).timed_out() {
                return Next::Idle;
            }
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.lanes.lock().closed
    }

    /// Refuses everything from now on, and what waits.
    pub(super) fn close(&self) {
        let mut lanes = self.lanes.lock();
        lanes.closed = true;
        let mut refused: Vec<Job> = lanes.shared.drain(..).collect();
        for lane in &mut lanes.pinned {
            refused.extend(lane.drain(..));
        }
        self.changed.notify_all();
        drop(lanes);
        for job in refused {
            if job.claim.take() {
                (job.work)(Err(closed()));
            }
        }
    }
}

/// The error of a request whose time was over before it was sent.
pub(super) fn deadline_exceeded() -> CallError {
    CallError::NotSent {
        detail: "all connections to HBase were busy until the request's time was over".to_owned(),
    }
}

/// The error of a store that is closed.
pub(super) fn closed() -> CallError {
    CallError::NotSent {
        detail: "the store is closed".to_owned(),
    }
}
