//! Admission: how many queries run at a time, and who is next.
//!
//! ```text
//!   admit ──► permit free? ──► run ──► release ──► resumed ones first, then one of each client in turn
//!                │ no                  │ client reads nothing for a while
//!                ▼                     ▼
//!              queue, bounded,       pause: the permit goes to another query; resume waits in front
//!              with a time-out       of the queue
//! ```
//!
//! The queue is fair between clients, not between queries: a client with a thousand queries waiting does
//! not delay the first one of another client by more than one of its own.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::oneshot;

/// Whose query it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum ClientId {
    /// Of this process, or a client whose address is not known.
    #[default]
    Local,
    /// A client by its address.
    Address(IpAddr),
}

/// Limits of an [`Admission`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdmissionLimits {
    /// Queries that run at a time.
    pub running: usize,
    /// Queries that wait for that, at most.
    pub queued: usize,
    /// How long a query waits.
    pub wait: Duration,
}

/// Why a query was not admitted. It was not begun: sending it again is safe.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AdmissionError {
    /// Too many wait already.
    #[error(
        "{running} queries run (--max-concurrent-queries) and {queued} wait (--max-queued-queries); retry later"
    )]
    QueueFull {
        /// The limit of those that run.
        running: usize,
        /// The limit of those that wait.
        queued: usize,
    },
    /// It waited for too long.
    #[error(
        "the query waited {} s for one of {running} places (--max-concurrent-queries, --query-queue-timeout-seconds); \
         retry later",
        waited.as_secs()
    )]
    TimedOut {
        /// The limit of those that run.
        running: usize,
        /// How long it waited.
        waited: Duration,
    },
}

/// Decides which queries run. Clones share it.
#[derive(Clone, Debug)]
pub struct Admission(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    limits: AdmissionLimits,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    running: usize,
    last_number: u64,
    resuming: VecDeque<Waiter>,
    /// How many wait in `queues`.
    queued: usize,
    queues: HashMap<ClientId, VecDeque<Waiter>>,
    /// Clients that have a queue, the next one first.
    turns: VecDeque<ClientId>,
    rejected: u64,
}

#[derive(Debug)]
struct Waiter {
    number: u64,
    admitted: oneshot::Sender<()>,
}

/// Figures of an [`Admission`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdmissionUsage {
    /// Queries that run.
    pub running: usize,
    /// Queries that wait.
    pub queued: usize,
    /// Queries that were rejected since the start.
    pub rejected: u64,
}

/// A query may run as long as it has this.
#[derive(Debug)]
#[must_use = "dropping a permit admits another query"]
pub struct Permit {
    admission: Admission,
    is_held: bool,
}

impl Admission {
    /// Admits as `limits` say.
    pub fn new(limits: AdmissionLimits) -> Self {
        let running = limits.running.max(1);
        Self(Arc::new(Inner {
            limits: AdmissionLimits { running, ..limits },
            state: Mutex::default(),
        }))
    }

    /// Its limits.
    pub fn limits(&self) -> &AdmissionLimits {
        &self.0.limits
    }

    /// Its figures.
    pub fn usage(&self) -> AdmissionUsage {
        let state = self.0.state.lock();
        AdmissionUsage {
            running: state.running,
            queued: state.queued,
            rejected: state.rejected,
        }
    }

    /// Waits until a query of a client may run.
    ///
    /// # Errors
    ///
    /// At once if the queue is full, else after [`AdmissionLimits::wait`].
    pub async fn admit(&self, client: ClientId) -> Result<Permit, AdmissionError> {
        let limits = self.0.limits;
        let waiting = {
            let mut state = self.0.state.lock();
            if state.has_capacity(&limits) && state.queued == 0 {
                state.running += 1;
                return Ok(self.permit());
            }
            if state.queued >= limits.queued {
                state.rejected += 1;
                return Err(AdmissionError::QueueFull {
                    running: limits.running,
                    queued: limits.queued,
                });
            }
            let (waiter, admitted) = state.waiter();
            let number = waiter.number;
            state.queue(client, waiter);
            Waiting {
                admission: self,
                number,
                client: Some(client),
                admitted,
            }
        };
        let began = Instant::now();
        match tokio::time::timeout(limits.wait, waiting.admitted()).await {
            Ok(permit) => Ok(permit),
            Err(_elapsed) => {
                self.0.state.lock().rejected += 1;
                Err(AdmissionError::TimedOut {
                    running: limits.running,
                    waited: began.elapsed().max(limits.wait),
                })
            }
        }
    }

    fn permit(&self) -> Permit {
        Permit {
            admission: self.clone(),
            is_held: true,
        }
    }

    /// Gives a place back, and admits who is next.
    fn release(&self) {
        let mut state = self.0.state.lock();
        state.running -= 1;
        state.admit_next(&self.0.limits);
    }
}

impl Permit {
    /// Lets another query run meanwhile.
    pub fn pause(&mut self) {
        if std::mem::take(&mut self.is_held) {
            self.admission.release();
        }
    }

    /// Waits until it may go on, in front of queries that have not begun.
    pub async fn resume(&mut self) {
        if self.is_held {
            return;
        }
        let waiting = {
            let mut state = self.admission.0.state.lock();
            if state.has_capacity(&self.admission.0.limits) {
                state.running += 1;
                self.is_held = true;
                return;
            }
            let (waiter, admitted) = state.waiter();
            let number = waiter.number;
            state.resuming.push_back(waiter);
            Waiting {
                admission: &self.admission,
                number,
                client: None,
                admitted,
            }
        };
        let mut permit = waiting.admitted().await;
        // The place is this permit's now.
        permit.is_held = false;
        self.is_held = true;
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.pause();
    }
}

/// A query that waits; it leaves the queue when this is dropped.
struct Waiting<'a> {
    admission: &'a Admission,
    number: u64,
    /// `None`: it resumes.
    client: Option<ClientId>,
    admitted: oneshot::Receiver<()>,
}

impl Waiting<'_> {
    async fn admitted(mut self) -> Permit {
        // The sender is in the state as long as this one waits.
        let _ = (&mut self.admitted).await;
        self.admitted.close();
        self.admission.permit()
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut state = self.admission.0.state.lock();
        state.remove(self.client, self.number);
        // Admitted at the very moment at which it gave up.
        if self.admitted.try_recv().is_ok() {
            state.running -= 1;
            state.admit_next(&self.admission.0.limits);
        }
    }
}

impl State {
    fn has_capacity(&self, limits: &AdmissionLimits) -> bool {
        self.running < limits.running && self.resuming.is_empty()
    }

    fn waiter(&mut self) -> (Waiter, oneshot::Receiver<()>) {
        let (admitted, receiver) = oneshot::channel();
        self.last_number += 1;
        let number = self.last_number;
        (Waiter { number, admitted }, receiver)
    }

    fn queue(&mut self, client: ClientId, waiter: Waiter) {
        let queue = self.queues.entry(client).or_default();
        if queue.is_empty() {
            self.turns.push_back(client);
        }
        queue.push_back(waiter);
        self.queued += 1;
    }

    fn admit_next(&mut self, limits: &AdmissionLimits) {
        while self.running < limits.running {
            let Some(waiter) = self.resuming.pop_front().or_else(|| self.next_queued()) else {
                return;
            };
            if waiter.admitted.send(()).is_ok() {
                self.running += 1;
            }
        }
    }

    fn next_queued(&mut self) -> Option<Waiter> {
        let client = self.turns.pop_front()?;
        let queue = self.queues.get_mut(&client)?;
        let waiter = queue.pop_front();
        if queue.is_empty() {
            self.queues.remove(&client);
        } else {
            self.turns.push_back(client);
        }
        self.queued -= usize::from(waiter.is_some());
        waiter
    }

    fn remove(&mut self, client: Option<ClientId>, number: u64) {
        let Some(client) = client else {
            self.resuming.retain(|waiter| waiter.number != number);
            return;
        };
        let Some(queue) = self.queues.get_mut(&client) else {
            return;
        };
        let before = queue.len();
        queue.retain(|waiter| waiter.number != number);
        self.queued -= before - queue.len();
        if queue.is_empty() {
            self.queues.remove(&client);
            self.turns.retain(|turn| *turn != client);
        }
    }
}

#[cfg(test)]
mod tests;
