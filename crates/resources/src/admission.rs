//! Admission control: limits the number of concurrent queries and schedules the waiting ones.
//!
//! ```text
//!   admit ──► permit free? ──► run ──► release ──► paused queries first, then clients round-robin
//!                │ no                  │ client stops reading
//!                ▼                     ▼
//!              queue, bounded,       pause: another query gets the permit; resume waits at the head
//!              with a time-out       of the queue
//! ```
//!
//! The queue is fair between clients rather than between queries: a client with a thousand queued queries
//! delays another client's first query by at most one of its own.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::oneshot;

/// The client that a query belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum ClientId {
    /// This process, or a client of unknown address.
    #[default]
    Local,
    /// A client, identified by its IPv4 address or its IPv6 /64 network: one host has all addresses of a /64.
    Address(IpAddr),
}

/// The bits of an IPv6 address that a host does not choose itself.
const IPV6_NETWORK: u128 = u128::MAX << 64;

/// The address that identifies a client: of an IPv6 address the /64 network.
pub fn client_address(peer: SocketAddr) -> IpAddr {
    match peer.ip().to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & IPV6_NETWORK)),
        address => address,
    }
}

impl ClientId {
    /// The client at the other end of a connection.
    pub fn of(peer: SocketAddr) -> Self {
        Self::Address(client_address(peer))
    }
}

/// Limits of an [`Admission`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdmissionLimits {
    /// The most queries that run concurrently.
    pub running: usize,
    /// The most queries that wait.
    pub queued: usize,
    /// How long a query waits before it is rejected.
    pub wait: Duration,
}

/// Error of a query that was not admitted. It has not started, so the caller can safely retry it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AdmissionError {
    /// The queue is full.
    #[error(
        "{running} queries run (--max-concurrent-queries) and {queued} wait (--max-queued-queries); retry later"
    )]
    QueueFull {
        /// The limit of concurrent queries.
        running: usize,
        /// The limit of waiting queries.
        queued: usize,
    },
    /// The query waited for the whole time-out.
    #[error(
        "the query waited {} s for one of {running} permits (--max-concurrent-queries, --query-queue-timeout-seconds); \
         retry later",
        waited.as_secs()
    )]
    TimedOut {
        /// The limit of concurrent queries.
        running: usize,
        /// How long it waited.
        waited: Duration,
    },
}

/// Limits concurrent queries. Clones share one state.
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
    /// How many of them wait for memory. Queries that resume run in their place.
    lent: usize,
    last_number: u64,
    resuming: VecDeque<Waiter>,
    /// Number of waiters in `queues`.
    queued: usize,
    queues: HashMap<ClientId, VecDeque<Waiter>>,
    /// Clients with a queue; the front one is served next.
    turns: VecDeque<ClientId>,
    rejected: u64,
}

#[derive(Debug)]
struct Waiter {
    number: u64,
    admitted: oneshot::Sender<()>,
}

/// Statistics of an [`Admission`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdmissionUsage {
    /// Running queries.
    pub running: usize,
    /// Waiting queries.
    pub queued: usize,
    /// Rejected queries since the process started.
    pub rejected: u64,
}

/// The right of one query to run; dropping it admits the next query.
#[derive(Debug)]
#[must_use = "dropping a permit admits another query"]
pub struct Permit {
    admission: Admission,
    is_held: bool,
}

impl Admission {
    /// Creates an admission control with these limits; at least one query runs.
    pub fn new(limits: AdmissionLimits) -> Self {
        let running = limits.running.max(1);
        Self(Arc::new(Inner {
            limits: AdmissionLimits { running, ..limits },
            state: Mutex::default(),
        }))
    }

    /// The limits.
    pub fn limits(&self) -> &AdmissionLimits {
        &self.0.limits
    }

    /// The current statistics.
    pub fn usage(&self) -> AdmissionUsage {
        let state = self.0.state.lock();
        AdmissionUsage {
            running: state.running,
            queued: state.queued,
            rejected: state.rejected,
        }
    }

    /// Waits until a query of `client` may run.
    ///
    /// # Errors
    ///
    /// Immediately if the queue is full, otherwise after [`AdmissionLimits::wait`].
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

    /// Frees a permit and admits the next query.
    fn release(&self) {
        let mut state = self.0.state.lock();
        state.running -= 1;
        state.admit_next(&self.0.limits);
    }
}

impl Permit {
    /// The admission control that it is from.
    pub const fn admission(&self) -> &Admission {
        &self.admission
    }

    /// Releases the permit until [`Permit::resume`], so that another query can run.
    pub fn pause(&mut self) {
        if std::mem::take(&mut self.is_held) {
            self.admission.release();
        }
    }

    /// Lends the permit to queries that resume, until the result is dropped: for a query that waits for memory, which a
    /// paused query may hold. Queries that have not started do not get it, so as many wait for memory as can run.
    pub fn lend(&self) -> LentPermit<'_> {
        let is_lent = self.is_held;
        if is_lent {
            let mut state = self.admission.0.state.lock();
            state.lent += 1;
            state.admit_next(&self.admission.0.limits);
        }
        LentPermit {
            permit: self,
            is_lent,
        }
    }

    /// Reacquires the permit, ahead of queries that have not started.
    pub async fn resume(&mut self) {
        if self.is_held {
            return;
        }
        let waiting = {
            let mut state = self.admission.0.state.lock();
            if state.can_resume(&self.admission.0.limits) && state.resuming.is_empty() {
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
        // `self` takes over the slot of the new permit.
        permit.is_held = false;
        self.is_held = true;
    }
}

/// A permit that other queries use meanwhile: see [`Permit::lend`].
#[derive(Debug)]
pub struct LentPermit<'a> {
    permit: &'a Permit,
    is_lent: bool,
}

impl Drop for LentPermit<'_> {
    fn drop(&mut self) {
        if self.is_lent {
            self.permit.admission.0.state.lock().lent -= 1;
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.pause();
    }
}

/// A queued query; dropping it removes the query from the queue.
struct Waiting<'a> {
    admission: &'a Admission,
    number: u64,
    /// `None` for a paused query that resumes.
    client: Option<ClientId>,
    admitted: oneshot::Receiver<()>,
}

impl Waiting<'_> {
    async fn admitted(mut self) -> Permit {
        // The state keeps the sender for as long as this query waits.
        let _ = (&mut self.admitted).await;
        self.admitted.close();
        self.admission.permit()
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut state = self.admission.0.state.lock();
        state.remove(self.client, self.number);
        // The query was admitted just as it gave up.
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

    fn can_resume(&self, limits: &AdmissionLimits) -> bool {
        self.running - self.lent < limits.running
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
        loop {
            let resuming = self
                .can_resume(limits)
                .then(|| self.resuming.pop_front())
                .flatten();
            let waiter = match resuming {
                None if self.running < limits.running => self.next_queued(),
                resuming => resuming,
            };
            let Some(waiter) = waiter else { return };
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
