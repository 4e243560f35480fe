//! Connections of all listeners: how many there may be, and when they are closed.
//!
//! ```text
//!   listener ─► admit ─► ClientStream + Connection ─► HTTP/1, telnet or HTTP/2
//!                 │            │            │
//!                 │            │            └ requests in progress, the time without any
//!                 │            └ cut off if the client does not read
//!                 └ at a limit the connection that was idle the longest is closed
//! ```
//!
//! A connection is *idle* while it has no request in progress and nothing to send. Idle connections cost
//! memory and descriptors and nothing else, so they are kept until another client needs their place; a
//! new connection is only refused when all others are busy. Of a gRPC connection only open streams count:
//! keepalive pings do not keep it from being idle.
//!
//! Each listener has its own limit. All of them together are limited by the descriptors of the process,
//! see [`Connections::of_process`].
//!
//! | closed | after |
//! |---|---|
//! | a connection that sent nothing, or no complete HTTP/2 handshake | [`OPENING_TIMEOUT`] |
//! | the head of an HTTP/1 request that is not complete | [`HEAD_TIMEOUT`] |
//! | an idle connection | the idle time-out of its listener |
//! | a client that does not read what is sent to it | the client time-out of its listener |

mod accept;
mod connection;
mod descriptors;
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

/// How long a client may leave unread what is sent to it, unless it is set otherwise.
pub const CLIENT_TIMEOUT: Duration = Duration::from_secs(30);

/// How long a connection that was told to close may take before another one is closed in its place.
const CLOSING_TIMEOUT: Duration = Duration::from_secs(1);

/// How long a new connection waits for a place: for one that closes slowly, and for the next one.
const ADMISSION_TIMEOUT: Duration = Duration::from_secs(2);

/// The connections of a process. Clones share them.
#[derive(Clone, Debug)]
pub struct Connections(Arc<Shared>);

/// How a listener treats its connections.
#[derive(Clone, Copy, Debug)]
pub struct ListenerOptions {
    /// What it serves, for logs.
    pub name: &'static str,
    /// Connections at a time.
    pub limit: usize,
    /// The setting that says so, for logs.
    pub limit_setting: &'static str,
    /// An idle connection is closed after so long; `None`: never.
    pub idle_timeout: Option<Duration>,
    /// A client that accepts less than [`MIN_CLIENT_BYTES`] in so long, while there is more to send, is
    /// cut off.
    pub client_timeout: Duration,
    /// How long connections with requests in progress may take to end once stopping has begun.
    pub drain_limit: Duration,
}

/// The connections of one listener.
#[derive(Clone, Debug)]
pub struct Listener {
    shared: Arc<Shared>,
    number: usize,
    options: ListenerOptions,
    counts: Arc<ConnectionCounts>,
    /// When a refusal was last logged, and how many were refused then.
    logged: Arc<Mutex<(Option<Instant>, u64)>>,
}

impl Connections {
    /// At most `limit` connections, those of all listeners together.
    pub fn new(limit: usize) -> Self {
        Self(Arc::new(Shared {
            limit,
            open: Mutex::default(),
            released: Notify::new(),
            started: Instant::now(),
        }))
    }

    /// Limited by the listeners alone; for tests and tools.
    pub fn unlimited() -> Self {
        Self::new(usize::MAX)
    }

    /// Raises the limit of descriptors as far as the process may, and leaves a reserve for files of the
    /// store: the rest is for connections.
    pub fn of_process() -> Self {
        let descriptors = descriptors::raise_limit();
        let connections = descriptors.for_connections();
        info!(
            descriptors = descriptors.limit,
            reserve = descriptors.reserve,
            connections,
            "limit of open files and sockets"
        );
        Self::new(connections)
    }

    /// The connections of a listener among them.
    pub fn listener(&self, options: ListenerOptions, counts: Arc<ConnectionCounts>) -> Listener {
        let mut open = self.0.open.lock();
        open.next_listener += 1;
        Listener {
            shared: Arc::clone(&self.0),
            number: open.next_listener,
            options,
            counts,
            logged: Arc::default(),
        }
    }
}

/// What a full listener does about a new connection.
enum Full {
    /// A connection is being closed and leaves its place soon; the others give way if it does not by then.
    Wait {
        until: Instant,
    },
    Refuse,
}

impl Listener {
    /// Admits a connection, in place of the one that was idle the longest if there are too many. `None`
    /// if all are busy.
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
                    // Released or not: `try_admit` knows what is next.
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
            // Those that never spoke go before those that a client has used.
            let mut longest: Option<((bool, u64), &Arc<State>)> = None;
            for (since_ms, state) in idle {
                if let Some(closing_ms) = state.closing_since_ms() {
                    let until = self.shared.started + Duration::from_millis(closing_ms) + CLOSING_TIMEOUT;
                    // It leaves its place soon. One that became busy meanwhile does not, nor one that takes
                    // too long.
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

    /// Counts a refusal, and logs at most one a second.
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

    /// Closes the connections whose time is over.
    fn sweep(&self) {
        let now_ms = self.shared.now_ms();
        self.close_where(|state| state.is_overdue(now_ms, self.options.idle_timeout));
    }

    /// Closes the connections that have no request in progress.
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
