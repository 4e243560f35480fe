//! Activity of a connection: whether a request is in progress, and since when the connection is idle.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Time-out for the first byte, or for the preface and settings of HTTP/2.
pub const OPENING_TIMEOUT: Duration = Duration::from_secs(30);

/// Time-out for the head of an HTTP/1 request, from its first byte.
pub const HEAD_TIMEOUT: Duration = Duration::from_secs(30);

/// The preface of HTTP/2 and the head of a SETTINGS frame.
const HTTP2_OPENING_BYTES: usize = 24 + 9;

/// No head is being received.
pub(super) const NO_HEAD: u64 = u64::MAX;

/// Closing has not begun.
const NOT_CLOSING: u64 = u64::MAX;

/// The protocol of a connection, which decides its time-outs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Protocol {
    /// Before the first byte.
    Unknown = 0,
    Http1 = 1,
    Http2 = 2,
    /// Each received byte resets the idle time.
    Telnet = 3,
}

/// The activity of a connection. Times are milliseconds since the registry was created.
#[derive(Debug)]
pub(super) struct State {
    pub(super) listener: usize,
    /// The address, as it counts for fair shares of connections.
    pub(super) address: IpAddr,
    started: Instant,
    pub(super) protocol: AtomicU8,
    opened_ms: u64,
    /// Whether the client has completed the opening of its protocol.
    is_open: AtomicBool,
    received: AtomicUsize,
    /// When the first byte of the current head arrived.
    pub(super) head_since_ms: AtomicU64,
    pub(super) requests: AtomicUsize,
    /// Whether written bytes are not flushed yet.
    is_sending: AtomicBool,
    /// Whether the socket was full since the last flush.
    was_held_up: AtomicBool,
    pub(super) idle_since_ms: AtomicU64,
    pub(super) closing: CancellationToken,
    /// Cancelled when the connection closes without completing its requests.
    pub(super) cut: CancellationToken,
    /// When closing began.
    closing_since_ms: AtomicU64,
}

impl State {
    pub(super) fn new(listener: usize, address: IpAddr, started: Instant) -> Self {
        let opened_ms = millis(started.elapsed());
        Self {
            listener,
            address,
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
            cut: CancellationToken::new(),
            closing_since_ms: AtomicU64::new(NOT_CLOSING),
        }
    }

    pub(super) fn now_ms(&self) -> u64 {
        millis(self.started.elapsed())
    }

    pub(super) fn opened_ms(&self) -> u64 {
        self.opened_ms
    }

    fn speaks(&self, protocol: Protocol) -> bool {
        self.protocol.load(Ordering::Relaxed) == protocol as u8
    }

    /// Whether the client has completed the opening of its protocol.
    pub(super) fn is_open(&self) -> bool {
        self.is_open.load(Ordering::Relaxed)
    }

    /// Begins a graceful close, which completes a request in progress.
    pub(super) fn close(&self) {
        let now_ms = self.now_ms();
        // Keeps the time of the first call.
        self.closing_since_ms.fetch_min(now_ms, Ordering::Relaxed);
        self.closing.cancel();
    }

    /// Closes the connection at once and cancels its requests.
    pub(super) fn cut(&self) {
        // A close that a request has held up does not count.
        self.closing_since_ms.store(self.now_ms(), Ordering::Relaxed);
        self.closing.cancel();
        self.cut.cancel();
    }

    pub(super) fn is_cut(&self) -> bool {
        self.cut.is_cancelled()
    }

    /// When closing began; `None` if it has not.
    pub(super) fn closing_since_ms(&self) -> Option<u64> {
        let since_ms = self.closing_since_ms.load(Ordering::Relaxed);
        (since_ms != NOT_CLOSING).then_some(since_ms)
    }

    /// When the connection became idle; `None` if it is busy.
    pub(super) fn idle_since_ms(&self) -> Option<u64> {
        let is_busy = self.requests.load(Ordering::Acquire) > 0 || self.is_sending.load(Ordering::Relaxed);
        (!is_busy).then(|| self.idle_since_ms.load(Ordering::Relaxed))
    }

    /// Whether the connection exceeds the time-out of its opening, of a head, or of idleness.
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

    /// Records received bytes.
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

    /// Records that bytes are pending. `is_held_up`: the socket is full.
    pub(super) fn sending(&self, is_held_up: bool) {
        self.is_sending.store(true, Ordering::Relaxed);
        if is_held_up {
            self.was_held_up.store(true, Ordering::Relaxed);
        }
    }

    /// Records that all bytes were sent. Resets the idle time if the client was slow to read; a ping does not.
    pub(super) fn sent(&self) {
        if self.was_held_up.swap(false, Ordering::Relaxed) {
            self.idle_since_ms.store(self.now_ms(), Ordering::Relaxed);
        }
        self.is_sending.store(false, Ordering::Relaxed);
    }
}

pub(super) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
