//! Connections of all listeners: limits, eviction of idle connections, time-outs.
//!
//! ```text
//!   listener ─► admit ─► opening ─► ClientStream + Connection ─► HTTP/1, telnet or HTTP/2
//!                 │            │            │
//!                 │            │            └ requests in progress, idle time
//!                 │            └ disconnects a client that does not read
//!                 └ at the limit, evicts the connection that has been idle the longest, or displaces a busy
//!                   one of the address that has the most
//! ```
//!
//! A connection is *idle* while it has no request in progress and nothing to send. Idle connections cost
//! only memory and descriptors, so they are kept until the limit is reached. A gRPC connection is busy while it
//! has open streams; keepalive pings do not count.
//!
//! If all are busy, the address with the most connections gives one up to an address with fewer
//! (`fairness`), so that one peer cannot keep others out; a new connection is rejected only if its own address
//! has its share.
//!
//! Each listener has a limit, and the descriptors of the process limit all listeners together, see
//! [`Connections::for_process`].
//!
//! | closed | after |
//! |---|---|
//! | a connection without a first byte, or with an incomplete handshake of TLS or HTTP/2 | [`OPENING_TIMEOUT`] |
//! | an incomplete head of an HTTP/1 request | [`HEAD_TIMEOUT`] |
//! | an idle connection | the idle time-out of its listener |
//! | a client that does not read pending data | the client time-out of its listener |

mod accept;
mod connection;
mod descriptors;
mod fairness;
mod opening;
mod registry;
mod state;
mod stream;

use std::cell::LazyCell;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use oxtsdb_resources::client_address;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;
use tracing::{info, warn};

pub use self::connection::{Connection, RequestGuard};
use self::fairness::{JUST_IDLE, Shares};
pub use self::registry::ConnectionCounts;
use self::registry::{Place, Shared};
pub use self::state::{HEAD_TIMEOUT, OPENING_TIMEOUT};
use self::state::{State, millis};
pub use self::stream::{ClientStream, MIN_CLIENT_BYTES};
use crate::tls::{Alpn, Tls};

/// Default time-out of a client that leaves pending data unread.
pub const CLIENT_TIMEOUT: Duration = Duration::from_secs(30);

/// How long an evicted connection may take to close before the next one is evicted.
const CLOSING_TIMEOUT: Duration = Duration::from_secs(1);

/// How long a new connection waits for evicted connections to close.
const ADMISSION_TIMEOUT: Duration = Duration::from_secs(2);

/// The connections of a process. Clones share them.
#[derive(Clone, Debug)]
pub struct Connections {
    shared: Arc<Shared>,
    /// Secures all connections; `None`: none.
    tls: Option<Tls>,
}

/// How a listener treats its connections.
#[derive(Clone, Copy, Debug)]
pub struct ListenerOptions {
    /// Its name in logs.
    pub name: &'static str,
    /// The protocol that clients negotiate with TLS.
    pub alpn: Alpn,
    /// Most connections at a time.
    pub limit: usize,
    /// The setting of the limit, for logs.
    pub limit_setting: &'static str,
    /// How long a connection may be idle; `None`: without limit.
    pub idle_timeout: Option<Duration>,
    /// A client that accepts less than [`MIN_CLIENT_BYTES`] of pending data in this time is disconnected.
    pub client_timeout: Duration,
    /// How long requests in progress may take after stopping has begun.
    pub drain_limit: Duration,
}

/// The connections of one listener.
#[derive(Clone, Debug)]
pub struct Listener {
    shared: Arc<Shared>,
    tls: Option<Tls>,
    number: usize,
    options: ListenerOptions,
    counts: Arc<ConnectionCounts>,
    logged: Arc<Logged>,
}

/// The last log entries about connections that were rejected or displaced.
#[derive(Debug, Default)]
struct Logged {
    refused: Mutex<Entry>,
    displaced: Mutex<Entry>,
}

/// A log entry, which is written at most once a second.
#[derive(Debug, Default)]
struct Entry {
    at: Option<Instant>,
    /// The counter at that time.
    counted: u64,
}

impl Entry {
    /// Adds one to a counter. If an entry is due, returns the count since the last entry.
    fn count(&mut self, counter: &AtomicU64) -> Option<u64> {
        let counted = counter.fetch_add(1, Ordering::Relaxed) + 1;
        if self.at.is_some_and(|at| at.elapsed() < Duration::from_secs(1)) {
            return None;
        }
        self.at = Some(Instant::now());
        Some(counted - std::mem::replace(&mut self.counted, counted))
    }
}

impl Connections {
    /// At most `limit` connections of all listeners together.
    pub fn new(limit: usize) -> Self {
        let shared = Arc::new(Shared {
            limit,
            open: Mutex::default(),
            released: Notify::new(),
            started: Instant::now(),
        });
        Self { shared, tls: None }
    }

    /// Without a common limit; for tests and tools.
    pub fn unlimited() -> Self {
        Self::new(usize::MAX)
    }

    /// Raises the soft limit of descriptors to the hard one, and reserves some of them for files of the store;
    /// the others are for connections, which TLS secures if there is any.
    pub fn for_process(tls: Option<Tls>) -> Self {
        let descriptors = descriptors::raise_limit();
        let connections = descriptors.for_connections();
        info!(
            descriptors = descriptors.limit,
            reserve = descriptors.reserve,
            connections,
            "limit of open files and sockets"
        );
        Self {
            tls,
            ..Self::new(connections)
        }
    }

    /// The connections of a listener, which count towards the common limit.
    pub fn listener(&self, options: ListenerOptions, counts: Arc<ConnectionCounts>) -> Listener {
        let limit = options.limit.min(self.shared.limit);
        counts.limit.store(limit as u64, Ordering::Relaxed);
        let mut open = self.shared.open.lock();
        open.next_listener += 1;
        Listener {
            shared: Arc::clone(&self.shared),
            tls: self.tls.clone(),
            number: open.next_listener,
            options,
            counts,
            logged: Arc::default(),
        }
    }
}

/// The action of a full listener on a new connection.
enum Full {
    /// An evicted connection closes soon. If it does not, the next one is evicted at `until`.
    Wait {
        until: Instant,
    },
    Refuse,
}

/// The idle connection that is evicted first: the longest idle of the connections that never sent anything, or the
/// longest idle of all if each has sent something.
#[derive(Default)]
struct FirstIdle<'a>(Option<((bool, u64), &'a State)>);

impl<'a> FirstIdle<'a> {
    fn offer(&mut self, state: &'a State, since_ms: u64) {
        let rank = (state.is_open(), since_ms);
        if self.0.is_none_or(|(first, _)| rank < first) {
            self.0 = Some((rank, state));
        }
    }
}

impl Listener {
    /// Admits a connection. At the limit, evicts the longest idle connection, or displaces one of the address with the
    /// most; `None` if all are busy and this address has its share.
    async fn admit(&self, peer: SocketAddr) -> Option<Connection> {
        let give_up = Instant::now() + ADMISSION_TIMEOUT;
        loop {
            let released = self.shared.released.notified();
            let mut released = std::pin::pin!(released);
            released.as_mut().enable();
            match self.try_admit(peer) {
                Ok(connection) => {
                    self.counts.accepted.fetch_add(1, Ordering::Relaxed);
                    return Some(connection);
                }
                Err(Full::Wait { until }) if Instant::now() < give_up => {
                    // Released or timed out: `try_admit` decides what follows.
                    let _elapsed = tokio::time::timeout_at(until.min(give_up), released).await;
                }
                Err(Full::Wait { .. } | Full::Refuse) => {
                    self.count_refusal();
                    return None;
                }
            }
        }
    }

    fn try_admit(&self, peer: SocketAddr) -> Result<Connection, Full> {
        let address = client_address(peer);
        let mut open = self.shared.open.lock();
        let own = self.counts.open.load(Ordering::Relaxed);
        let is_own_limit = own >= self.options.limit as u64;
        if is_own_limit || open.connections.len() >= self.shared.limit {
            let states = open.connections.values();
            return Err(self.make_room(
                address,
                states.filter(|state| !is_own_limit || state.listener == self.number),
            ));
        }
        open.next_id += 1;
        let id = open.next_id;
        self.counts.open.fetch_add(1, Ordering::Relaxed);
        let state = Arc::new(State::new(self.number, address, self.shared.started));
        open.connections.insert(id, Arc::clone(&state));
        let place = Place {
            id,
            shared: Arc::downgrade(&self.shared),
            counts: Arc::clone(&self.counts),
        };
        Ok(Connection::new(state, peer, self.options.client_timeout, place))
    }

    /// Closes one of these connections for a new one of this address, unless one closes already.
    fn make_room<'a>(
        &self,
        address: IpAddr,
        candidates: impl Iterator<Item = &'a Arc<State>> + Clone,
    ) -> Full {
        let shares = LazyCell::new(|| Shares::new(address, candidates.clone()));
        let now_ms = self.shared.now_ms();
        let (mut longest, mut own_new) = (FirstIdle::default(), FirstIdle::default());
        for state in candidates.clone() {
            let idle_since_ms = state.idle_since_ms();
            if let Some(closing_ms) = state.closing_since_ms()
                && (idle_since_ms.is_some() || state.is_cut())
            {
                let until = self.shared.started + Duration::from_millis(closing_ms) + CLOSING_TIMEOUT;
                // It closes soon. One that exceeds the time-out is passed over.
                if Instant::now() < until {
                    return Full::Wait { until };
                }
                continue;
            }
            let Some(since_ms) = idle_since_ms else {
                continue;
            };
            let is_just_idle = now_ms.saturating_sub(since_ms) < millis(JUST_IDLE);
            if is_just_idle && state.address == address {
                own_new.offer(state, since_ms);
            } else if !is_just_idle || shares.may_evict(state.address) {
                longest.offer(state, since_ms);
            }
        }
        let evict = |state: &State| {
            state.close();
            self.counts.evicted.fetch_add(1, Ordering::Relaxed);
        };
        if let Some((_, longest)) = longest.0 {
            evict(longest);
        } else if let Some(displaced) = shares.displaced(candidates.clone()) {
            displaced.cut();
            self.count_displaced(displaced.address);
        } else if let Some((_, own)) = own_new.0 {
            evict(own);
        } else {
            return Full::Refuse;
        }
        Full::Wait {
            until: Instant::now() + CLOSING_TIMEOUT,
        }
    }

    /// Counts and logs a rejected connection.
    fn count_refusal(&self) {
        if let Some(refused) = self.logged.refused.lock().count(&self.counts.refused) {
            warn!(
                listener = self.options.name,
                refused,
                limit = self.counts.limit.load(Ordering::Relaxed),
                setting = self.options.limit_setting,
                "connections are refused: all that are open have requests in progress"
            );
        }
    }

    /// Counts and logs a displaced connection of this address.
    fn count_displaced(&self, address: IpAddr) {
        if let Some(displaced) = self.logged.displaced.lock().count(&self.counts.displaced) {
            warn!(
                listener = self.options.name,
                displaced,
                %address,
                limit = self.counts.limit.load(Ordering::Relaxed),
                setting = self.options.limit_setting,
                "requests are cut off: their address has the most connections, and others need one"
            );
        }
    }

    /// Closes connections that exceed a time-out.
    fn sweep(&self) {
        let now_ms = self.shared.now_ms();
        self.close_where(|state| state.is_overdue(now_ms, self.options.idle_timeout));
    }

    /// Closes idle connections.
    fn close_idle(&self) {
        self.close_where(|state| state.idle_since_ms().is_some());
    }

    fn close_where(&self, is_over: impl Fn(&State) -> bool) {
        let open = self.shared.open.lock();
        let own = open.connections.values();
        for state in own.filter(|state| state.listener == self.number && is_over(state)) {
            state.close();
        }
    }
}

#[cfg(test)]
mod tests;
