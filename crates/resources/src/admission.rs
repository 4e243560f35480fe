//! Admission control: limits the number of concurrent queries and schedules the waiting ones.
//!
//! ```text
//!   admit ──► permit free? ──► run ──► release ──► paused queries first, then clients round-robin
//!                │ no                  │ client stops reading
//!                ▼                     ▼
//!              queue, bounded,       pause: another query gets the permit; resume waits ahead
//!              with a time-out       of the queue
//! ```
//!
//! Permits are fair between clients rather than between queries:
//!
//! - A client without a running query need not wait until one of another client ends, which may take minutes: if all
//!   permits are in use, it gets one beyond them, of as many again. The threads and the memory of queries are shared
//!   fairly by themselves.
//! - Queries that wait, and paused ones that resume, take turns by client.
//! - A client without a waiting query gets a place beyond a full queue, of as many again.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::oneshot;

/// The client that a query or a write belongs to, with which it shares permits, memory and threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum ClientId {
    /// This process, or a client of unknown address.
    #[default]
    Local,
    /// A client, identified by its IPv4 address or its IPv6 /64 network: one host has all addresses of a /64.
    Address(IpAddr),
    /// A client that has authenticated, whatever its address: a hash of its names, with a key of this process.
    Principal(u64),
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
    pub fn from_peer(peer: SocketAddr) -> Self {
        Self::Address(client_address(peer))
    }
}

/// Limits of an [`Admission`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdmissionLimits {
    /// The most queries that run concurrently, beside the first ones of clients that run no other.
    pub running: usize,
    /// The most queries that wait, beside the first ones of clients without another that waits.
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
    /// The running queries by client.
    by_client: HashMap<ClientId, usize>,
    last_number: u64,
    /// Paused queries that resume.
    resuming: Turns,
    /// Queries that have not started.
    queued: Turns,
    rejected: u64,
}

/// Queries that wait, in turn by client.
#[derive(Debug, Default)]
struct Turns {
    /// Number of waiters in `queues`.
    count: usize,
    queues: HashMap<ClientId, VecDeque<Waiter>>,
    /// Clients with a queue; the front one is served next.
    order: VecDeque<ClientId>,
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
    client: ClientId,
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
            queued: state.queued.count,
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
            if state.can_start(client, &limits) {
                state.start(client);
                return Ok(self.permit(client));
            }
            if !state.can_wait(client, &limits) {
                state.rejected += 1;
                return Err(AdmissionError::QueueFull {
                    running: limits.running,
                    queued: limits.queued,
                });
            }
            let (waiter, admitted) = state.waiter();
            let number = waiter.number;
            state.queued.push(client, waiter);
            Waiting {
                admission: self,
                number,
                client,
                is_resuming: false,
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

    fn permit(&self, client: ClientId) -> Permit {
        Permit {
            admission: self.clone(),
            client,
            is_held: true,
        }
    }

    /// Frees a permit of a client and admits the next query.
    fn release(&self, client: ClientId) {
        let mut state = self.0.state.lock();
        state.stop(client);
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
            self.admission.release(self.client);
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
            if state.can_resume(self.client, &self.admission.0.limits) {
                state.start(self.client);
                self.is_held = true;
                return;
            }
            let (waiter, admitted) = state.waiter();
            let number = waiter.number;
            state.resuming.push(self.client, waiter);
            Waiting {
                admission: &self.admission,
                number,
                client: self.client,
                is_resuming: true,
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
    client: ClientId,
    /// Whether it was paused.
    is_resuming: bool,
    admitted: oneshot::Receiver<()>,
}

impl Waiting<'_> {
    async fn admitted(mut self) -> Permit {
        // The state keeps the sender for as long as this query waits.
        let _ = (&mut self.admitted).await;
        self.admitted.close();
        self.admission.permit(self.client)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut state = self.admission.0.state.lock();
        let turns = match self.is_resuming {
            true => &mut state.resuming,
            false => &mut state.queued,
        };
        turns.remove(self.client, self.number);
        // The query was admitted just as it gave up.
        if self.admitted.try_recv().is_ok() {
            state.stop(self.client);
            state.admit_next(&self.admission.0.limits);
        }
    }
}

impl State {
    /// Whether a query of a client that arrives now runs at once.
    fn can_start(&self, client: ClientId, limits: &AdmissionLimits) -> bool {
        let is_free = self.running < limits.running && self.resuming.count == 0 && self.queued.count == 0;
        is_free || self.has_extra(client, self.running, limits) && self.queued.count_of(client) == 0
    }

    /// Whether the queue has a place for a query of a client.
    fn can_wait(&self, client: ClientId, limits: &AdmissionLimits) -> bool {
        let waiting = self.queued.count;
        let has_extra = waiting < limits.queued.saturating_mul(2) && self.queued.count_of(client) == 0;
        waiting < limits.queued || has_extra
    }

    /// Whether a paused query of a client that resumes now runs at once.
    fn can_resume(&self, client: ClientId, limits: &AdmissionLimits) -> bool {
        let running = self.running - self.lent;
        let is_free = running < limits.running && self.resuming.count == 0;
        is_free || self.has_extra(client, running, limits) && self.resuming.count_of(client) == 0
    }

    /// Whether a query of a client may run beside `running` ones.
    fn has_permit(&self, client: ClientId, running: usize, limits: &AdmissionLimits) -> bool {
        running < limits.running || self.has_extra(client, running, limits)
    }

    /// Whether a client runs nothing and gets a permit beyond the limit.
    fn has_extra(&self, client: ClientId, running: usize, limits: &AdmissionLimits) -> bool {
        running < limits.running.saturating_mul(2) && !self.by_client.contains_key(&client)
    }

    fn start(&mut self, client: ClientId) {
        self.running += 1;
        *self.by_client.entry(client).or_default() += 1;
    }

    fn stop(&mut self, client: ClientId) {
        self.running -= 1;
        if let Some(running) = self.by_client.get_mut(&client) {
            *running -= 1;
            if *running == 0 {
                self.by_client.remove(&client);
            }
        }
    }

    fn waiter(&mut self) -> (Waiter, oneshot::Receiver<()>) {
        let (admitted, receiver) = oneshot::channel();
        self.last_number += 1;
        let number = self.last_number;
        (Waiter { number, admitted }, receiver)
    }

    fn admit_next(&mut self, limits: &AdmissionLimits) {
        loop {
            let next = {
                let running = self.running - self.lent;
                self.resuming
                    .next(|client| self.has_permit(client, running, limits))
            };
            let taken = match next {
                Some(index) => self.resuming.take(index),
                None => {
                    let next = self
                        .queued
                        .next(|client| self.has_permit(client, self.running, limits));
                    next.and_then(|index| self.queued.take(index))
                }
            };
            let Some((client, waiter)) = taken else { return };
            if waiter.admitted.send(()).is_ok() {
                self.start(client);
            }
        }
    }
}

impl Turns {
    fn push(&mut self, client: ClientId, waiter: Waiter) {
        let queue = self.queues.entry(client).or_default();
        if queue.is_empty() {
            self.order.push_back(client);
        }
        queue.push_back(waiter);
        self.count += 1;
    }

    /// Number of waiters of a client.
    fn count_of(&self, client: ClientId) -> usize {
        self.queues.get(&client).map_or(0, VecDeque::len)
    }

    /// The place of the next client that may run a query.
    fn next(&self, may_run: impl Fn(ClientId) -> bool) -> Option<usize> {
        self.order.iter().position(|client| may_run(*client))
    }

    /// Takes the first waiter of the client at a place, which is the last in turn then.
    fn take(&mut self, index: usize) -> Option<(ClientId, Waiter)> {
        let client = self.order.remove(index)?;
        let queue = self.queues.get_mut(&client)?;
        let waiter = queue.pop_front();
        if queue.is_empty() {
            self.queues.remove(&client);
        } else {
            self.order.push_back(client);
        }
        self.count -= usize::from(waiter.is_some());
        Some((client, waiter?))
    }

    fn remove(&mut self, client: ClientId, number: u64) {
        let Some(queue) = self.queues.get_mut(&client) else {
            return;
        };
        let before = queue.len();
        queue.retain(|waiter| waiter.number != number);
        self.count -= before - queue.len();
        if queue.is_empty() {
            self.queues.remove(&client);
            self.order.retain(|turn| *turn != client);
        }
    }
}

#[cfg(test)]
mod tests;
