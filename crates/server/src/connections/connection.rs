//! One connection: what is in progress on it, and since when nothing is.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{HEAD_TIMEOUT, OPENING_TIMEOUT, Place};

/// The preface of HTTP/2 and the head of a SETTINGS frame.
const HTTP2_OPENING_BYTES: usize = 24 + 9;

/// No head of a request is being received.
const NO_HEAD: u64 = u64::MAX;

/// Closing has not begun.
const NOT_CLOSING: u64 = u64::MAX;

/// What a connection speaks, as far as its time-outs go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Protocol {
    /// Not known before the first byte.
    Unknown = 0,
    Http1 = 1,
    Http2 = 2,
    /// Each byte that is received keeps the connection from being idle.
    Telnet = 3,
}

/// What the registry knows of a connection. Times are milliseconds since the registry was made.
#[derive(Debug)]
pub(super) struct State {
    pub(super) listener: usize,
    started: Instant,
    protocol: AtomicU8,
    opened_ms: u64,
    /// Whether the client has sent enough for its protocol to begin.
    is_open: AtomicBool,
    received: AtomicUsize,
    /// When the head that is being received began.
    head_since_ms: AtomicU64,
    requests: AtomicUsize,
    /// Whether bytes were written and not yet flushed.
    is_sending: AtomicBool,
    /// Whether the socket took no more since the last flush.
    was_held_up: AtomicBool,
    idle_since_ms: AtomicU64,
    closing: CancellationToken,
    /// When closing began.
    closing_since_ms: AtomicU64,
}

impl State {
    pub(super) fn new(listener: usize, started: Instant) -> Self {
        let opened_ms = millis(started.elapsed());
        Self {
            listener,
            started,
            protocol: AtomicU8::new(Protocol::Unknown as u8),
            opened_ms,
            is_open: AtomicBool::new(false),
            received: AtomicUsize::new(0),
            head_since_ms: AtomicU64::new(NO_HEAD),
            requests: AtomicUsize::new(0),
            is_sending: AtomicBool::new(false),
            was_held_up: AtomicBool::new(false),
            idle_since_ms: AtomicU64::new(opened_ms),
            closing: CancellationToken::new(),
            closing_since_ms: AtomicU64::new(NOT_CLOSING),
        }
    }

    fn now_ms(&self) -> u64 {
        millis(self.started.elapsed())
    }

    fn speaks(&self, protocol: Protocol) -> bool {
        self.protocol.load(Ordering::Relaxed) == protocol as u8
    }

    /// Whether the client has sent enough for its protocol to begin.
    pub(super) fn is_open(&self) -> bool {
        self.is_open.load(Ordering::Relaxed)
    }

    pub(super) fn close(&self) {
        let now_ms = self.now_ms();
        // The first call counts.
        self.closing_since_ms.fetch_min(now_ms, Ordering::Relaxed);
        self.closing.cancel();
    }

    /// Since when the connection is being closed; `None` if it is not.
    pub(super) fn closing_since_ms(&self) -> Option<u64> {
        let since_ms = self.closing_since_ms.load(Ordering::Relaxed);
        (since_ms != NOT_CLOSING).then_some(since_ms)
    }

    /// Since when the connection is idle; `None` if it is busy.
    pub(super) fn idle_since_ms(&self) -> Option<u64> {
        let is_busy = self.requests.load(Ordering::Acquire) > 0 || self.is_sending.load(Ordering::Relaxed);
        (!is_busy).then(|| self.idle_since_ms.load(Ordering::Relaxed))
    }

    /// Whether the connection took too long to begin, for a head, or was idle for too long.
    pub(super) fn is_overdue(&self, now_ms: u64, idle_timeout: Option<Duration>) -> bool {
        let Some(idle_since_ms) = self.idle_since_ms() else {
            return false;
        };
        let is_over = |since_ms: u64, limit: Duration| now_ms.saturating_sub(since_ms) >= millis(limit);
        if !self.is_open.load(Ordering::Relaxed) && is_over(self.opened_ms, OPENING_TIMEOUT) {
            return true;
        }
        let head_since_ms = self.head_since_ms.load(Ordering::Relaxed);
        if head_since_ms != NO_HEAD && is_over(head_since_ms, HEAD_TIMEOUT) {
            return true;
        }
        idle_timeout.is_some_and(|limit| is_over(idle_since_ms, limit))
    }

    /// Bytes have arrived.
    pub(super) fn received(&self, bytes: usize) {
        if !self.is_open.load(Ordering::Relaxed) {
            let received = self.received.fetch_add(bytes, Ordering::Relaxed) + bytes;
            if !self.speaks(Protocol::Http2) || received >= HTTP2_OPENING_BYTES {
                self.is_open.store(true, Ordering::Relaxed);
            }
        }
        if self.speaks(Protocol::Telnet) {
            self.idle_since_ms.store(self.now_ms(), Ordering::Relaxed);
        } else if self.speaks(Protocol::Http1)
            && self.requests.load(Ordering::Relaxed) == 0
            && self.head_since_ms.load(Ordering::Relaxed) == NO_HEAD
        {
            self.head_since_ms.store(self.now_ms(), Ordering::Relaxed);
        }
    }

    /// Bytes are being sent. `is_held_up`: the socket takes no more for now.
    pub(super) fn sending(&self, is_held_up: bool) {
        self.is_sending.store(true, Ordering::Relaxed);
        if is_held_up {
            self.was_held_up.store(true, Ordering::Relaxed);
        }
    }

    /// All bytes were sent. A client that had to be waited for was not idle meanwhile; a ping that was sent
    /// changes nothing.
    pub(super) fn sent(&self) {
        if self.was_held_up.swap(false, Ordering::Relaxed) {
            self.idle_since_ms.store(self.now_ms(), Ordering::Relaxed);
        }
        self.is_sending.store(false, Ordering::Relaxed);
    }
}

/// A connection that was admitted. Clones are the same connection; it keeps its place among the open ones
/// until the last one is dropped.
#[derive(Clone, Debug)]
pub struct Connection {
    state: Arc<State>,
    peer: SocketAddr,
    client_timeout: Duration,
    _place: Arc<Place>,
}

impl Connection {
    pub(super) fn new(state: Arc<State>, peer: SocketAddr, client_timeout: Duration, place: Place) -> Self {
        Self {
            state,
            peer,
            client_timeout,
            _place: Arc::new(place),
        }
    }

    /// A connection without a socket.
    #[cfg(test)]
    pub(crate) async fn for_tests() -> Self {
        use super::{CLIENT_TIMEOUT, ConnectionCounts, Connections, ListenerOptions};
        let listener = Connections::unlimited().listener(
            ListenerOptions {
                name: "tests",
                limit: 10,
                limit_setting: "--max-connections",
                idle_timeout: None,
                client_timeout: CLIENT_TIMEOUT,
                drain_limit: Duration::ZERO,
            },
            Arc::<ConnectionCounts>::default(),
        );
        let peer = SocketAddr::from(([127, 0, 0, 1], 1));
        listener.admit(peer).await.expect("there is space")
    }

    /// The address of the client.
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// The connection speaks HTTP/1: its requests have heads.
    pub fn is_http1(&self) {
        self.set(Protocol::Http1);
    }

    /// The connection speaks telnet: a client that sends is not idle.
    pub fn is_telnet(&self) {
        self.set(Protocol::Telnet);
    }

    pub(crate) fn is_http2(&self) {
        self.set(Protocol::Http2);
    }

    fn set(&self, protocol: Protocol) {
        self.state.protocol.store(protocol as u8, Ordering::Relaxed);
    }

    /// A request is in progress until the guard is dropped.
    pub fn request(&self) -> RequestGuard {
        self.state.requests.fetch_add(1, Ordering::AcqRel);
        self.state.head_since_ms.store(NO_HEAD, Ordering::Relaxed);
        RequestGuard(Arc::clone(&self.state))
    }

    /// Completes when the connection is to end: it was idle for too long, another client needs its place,
    /// or the program stops.
    pub async fn closing(&self) {
        self.state.closing.cancelled().await;
    }

    /// Whether no request is in progress and nothing is being sent. A handler that is told to close asks
    /// again: a request may have begun meanwhile, which it then finishes.
    pub fn is_idle(&self) -> bool {
        self.state.idle_since_ms().is_some()
    }

    pub(super) fn state(&self) -> &Arc<State> {
        &self.state
    }

    pub(super) fn client_timeout(&self) -> Duration {
        self.client_timeout
    }
}

/// A request in progress.
#[derive(Debug)]
pub struct RequestGuard(Arc<State>);

impl Drop for RequestGuard {
    fn drop(&mut self) {
        let state = &self.0;
        state.idle_since_ms.store(state.now_ms(), Ordering::Relaxed);
        state.requests.fetch_sub(1, Ordering::AcqRel);
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
