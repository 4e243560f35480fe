//! Connections of all listeners: limits, eviction of idle connections, time-outs.
//!
//! ```text
//!   listener ─► admit ─► opening ─► ClientStream + Connection ─► HTTP/1, telnet or HTTP/2
//!                 │            │            │
//!                 │            │            └ requests in progress, idle time
//!                 │            └ disconnects a client that does not read
//!                 └ at the limit, evicts the connection that has been idle the longest
//! ```
//!
//! A connection is *idle* while it has no request in progress and nothing to send. Idle connections cost
//! only memory and descriptors, so they are kept until the limit is reached; a new connection is rejected
//! only if all others are busy. A gRPC connection is busy while it has open streams; keepalive pings do not
//! count.
//!
//! Each listener has a limit, and the descriptors of the process limit all listeners together, see
//! [`Connections::of_process`].
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
mod opening;
mod registry;
mod state;
mod stream;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;
use tracing::{info, warn};

pub use self::connection::{Connection, RequestGuard};
pub use self::registry::ConnectionCounts;
use self::registry::{Place, Shared};
use self::state::State;
pub use self::state::{HEAD_TIMEOUT, OPENING_TIMEOUT};
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
    /// Time of the last log entry about rejections, and the count at that time.
    logged: Arc<Mutex<(Option<Instant>, u64)>>,
}

impl Connections {
    /// At most `limit` connections, those of all listeners together.
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
    pub fn of_process(tls: Option<Tls>) -> Self {
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

impl Listener {
    /// Admits a connection. At the limit, evicts the one that has been idle the longest; `None` if all are
    /// busy.
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
        let mut open = self.shared.open.lock();
        let mine = |state: &State| state.listener == self.number;
        let own = self.counts.open.load(Ordering::Relaxed);
        let is_own_limit = own >= self.options.limit as u64;
        if is_own_limit || open.connections.len() >= self.shared.limit {
            let candidates = || {
                let states = open.connections.values();
                states.filter(|state| !is_own_limit || mine(state))
            };
            let idle = candidates().filter_map(|state| Some((state.idle_since_ms()?, state)));
            // Connections that never sent anything are evicted first.
            let mut longest: Option<((bool, u64), &Arc<State>)> = None;
            for (since_ms, state) in idle {
                if let Some(closing_ms) = state.closing_since_ms() {
                    let until = self.shared.started + Duration::from_millis(closing_ms) + CLOSING_TIMEOUT;
                    // It closes soon. A busy connection is no candidate, and one that exceeds the time-out is
                    // passed over.
                    if Instant::now() < until {
                        return Err(Full::Wait { until });
                    }
                    continue;
                }
                let rank = (state.is_open(), since_ms);
                if longest.is_none_or(|(longest, _)| rank < longest) {
                    longest = Some((rank, state));
                }
            }
            let Some((_, longest)) = longest else {
                return Err(Full::Refuse);
            };
            longest.close();
            self.counts.evicted.fetch_add(1, Ordering::Relaxed);
            let until = Instant::now() + CLOSING_TIMEOUT;
            return Err(Full::Wait { until });
        }
        open.next_id += 1;
        let id = open.next_id;
        self.counts.open.fetch_add(1, Ordering::Relaxed);
        let state = Arc::new(State::new(self.number, self.shared.started));
        open.connections.insert(id, Arc::clone(&state));
        let place = Place {
            id,
            shared: Arc::downgrade(&self.shared),
            counts: Arc::clone(&self.counts),
        };
        Ok(Connection::new(state, peer, self.options.client_timeout, place))
    }

    /// Counts a rejected connection, and logs at most once a second.
    fn count_refusal(&self) {
        let refused = self.counts.refused.fetch_add(1, Ordering::Relaxed) + 1;
        let mut logged = self.logged.lock();
        let (at, before) = *logged;
        if at.is_some_and(|at| at.elapsed() < Duration::from_secs(1)) {
            return;
        }
        *logged = (Some(Instant::now()), refused);
        warn!(
            listener = self.options.name,
            refused = refused - before,
            limit = self.options.limit.min(self.shared.limit),
            setting = self.options.limit_setting,
            "connections are refused: all that are open have requests in progress"
        );
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
