//! The queue of requests waiting for a connection.
//!
//! One bounded queue serves all connections, so a request never waits behind a hanging connection while another
//! one is idle. Requests of a scanner must use the connection that opened the scanner; they wait in a lane of
//! that connection.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::connection::{Connection, ConnectionId};
use super::error::CallError;

/// Decides once whether a request is sent or abandoned.
#[derive(Clone, Debug, Default)]
pub(super) struct Claim(Arc<AtomicBool>);

impl Claim {
    /// Claims the request; true for the first caller.
    pub(super) fn take(&self) -> bool {
        !self.0.swap(true, Ordering::AcqRel)
    }

    /// Whether the request has been claimed.
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

/// Runs a request on a connection, or fails it with the reason why there is none.
pub(super) type Work = Box<dyn FnOnce(Result<&mut Connection, CallError>) + Send>;

/// A queued request.
pub(super) struct Job {
    /// Claimed by the worker when it starts the request, or by the caller when it gives up.
    pub(super) claim: Claim,
    /// The deadline for finding a connection.
    pub(super) connected_by: Instant,
    /// The deadline of the request.
    pub(super) deadline: Instant,
    /// The connections that may run it.
    pub(super) route: Route,
    /// The request.
    pub(super) work: Work,
}

/// The queued requests.
pub(super) struct Queue {
    capacity: usize,
    lanes: Mutex<Lanes>,
    changed: Condvar,
}

struct Lanes {
    /// For any worker.
    shared: VecDeque<Job>,
    /// One lane per worker.
    pinned: Vec<VecDeque<Job>>,
    /// Workers that wait for a request.
    waiting: usize,
    closed: bool,
}

/// The next step of a worker.
pub(super) enum Next {
    /// Run a request.
    Job(Job),
    /// No request arrived in time.
    Idle,
    /// Stop.
    Closed,
}

impl Queue {
    /// A queue for `workers` workers and up to `capacity` waiting requests.
    pub(super) fn new(workers: usize, capacity: usize) -> Self {
        Self {
            capacity,
            lanes: Mutex::new(Lanes {
                shared: VecDeque::new(),
                pinned: (0..workers).map(|_| VecDeque::new()).collect(),
                waiting: 0,
                closed: false,
            }),
            changed: Condvar::new(),
        }
    }

    /// Queues a request; fails if the queue is full or closed.
    pub(super) fn push(&self, job: Job) -> Result<(), CallError> {
        // Dropped after the lock is released: a job may own a scanner, and dropping a scanner queues a request.
        let mut given_up = VecDeque::new();
        let mut lanes = self.lanes.lock();
        if lanes.closed {
            return Err(closed());
        }
        match job.route {
            // Not bounded: each scan has at most one.
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
                        detail: format!("{} requests to HBase are already waiting", self.capacity),
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

    /// The next request for a worker, waiting up to `patience`.
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
            lanes.waiting += 1;
            let timed_out = self.changed.wait_until(&mut lanes, idle_at).timed_out();
            lanes.waiting -= 1;
            if timed_out {
                return Next::Idle;
            }
        }
    }

    /// Workers without a request, less the number that queued requests will occupy.
    pub(super) fn idle_workers(&self) -> usize {
        let lanes = self.lanes.lock();
        let queued = lanes.shared.len() + lanes.pinned.iter().map(VecDeque::len).sum::<usize>();
        lanes.waiting.saturating_sub(queued)
    }

    pub(super) fn is_closed(&self) -> bool {
        self.lanes.lock().closed
    }

    /// Rejects all waiting and future requests.
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

/// The error of a request that was not sent before its deadline.
pub(super) fn deadline_exceeded() -> CallError {
    CallError::NotSent {
        detail: "all connections to HBase were busy until the deadline".to_owned(),
    }
}

/// The error of a closed store.
pub(super) fn closed() -> CallError {
    CallError::NotSent {
        detail: "the store is closed".to_owned(),
    }
}
