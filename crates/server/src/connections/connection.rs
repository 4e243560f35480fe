//! An admitted connection and its requests.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tracing::warn;

use super::registry::Place;
use super::state::{NO_HEAD, Protocol, State};

/// An admitted connection. Clones share it; it stays in the registry until the last one is dropped.
#[derive(Clone, Debug)]
pub struct Connection {
    state: Arc<State>,
    peer: SocketAddr,
    client_timeout: Duration,
    place: Arc<Place>,
}

impl Connection {
    pub(super) fn new(state: Arc<State>, peer: SocketAddr, client_timeout: Duration, place: Place) -> Self {
        Self {
            state,
            peer,
            client_timeout,
            place: Arc::new(place),
        }
    }

    /// A connection without a socket.
    #[cfg(test)]
    pub(crate) async fn for_tests() -> Self {
        use super::{CLIENT_TIMEOUT, ConnectionCounts, Connections, ListenerOptions};
        let listener = Connections::unlimited().listener(
            ListenerOptions {
                name: "tests",
                alpn: crate::tls::Alpn::Http1,
                limit: 10,
                limit_setting: "--max-connections",
                idle_timeout: None,
                client_timeout: CLIENT_TIMEOUT,
                drain_limit: Duration::ZERO,
            },
            Arc::<ConnectionCounts>::default(),
        );
        let peer = SocketAddr::from(([127, 0, 0, 1], 1));
        listener.admit(peer).await.expect("below the limit")
    }

    /// The address of the client.
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Sets the protocol to HTTP/1: its requests have heads.
    pub fn is_http1(&self) {
        self.set(Protocol::Http1);
    }

    /// Sets the protocol to telnet: a client that sends is not idle.
    pub fn is_telnet(&self) {
        self.set(Protocol::Telnet);
    }

    pub(crate) fn is_http2(&self) {
        self.set(Protocol::Http2);
    }

    fn set(&self, protocol: Protocol) {
        self.state.protocol.store(protocol as u8, Ordering::Relaxed);
    }

    /// Starts a request, which is in progress until the guard is dropped.
    pub fn request(&self) -> RequestGuard {
        self.state.requests.fetch_add(1, Ordering::AcqRel);
        self.state.head_since_ms.store(NO_HEAD, Ordering::Relaxed);
        RequestGuard(Arc::clone(&self.state))
    }

    /// Completes when the connection must close: it exceeded a time-out, was evicted, or the program stops.
    pub async fn closing(&self) {
        self.state.closing.cancelled().await;
    }

    /// Whether no request is in progress and nothing is being sent. A handler checks this after
    /// [`Connection::closing`]: a request may have begun meanwhile, which it completes first.
    pub fn is_idle(&self) -> bool {
        self.state.idle_since_ms().is_some()
    }

    /// Counts and logs that the connection is closed for a flood of control frames.
    pub(crate) fn count_flood(&self) {
        let counts = &self.place.counts;
        if let Some(connections) = counts.flooded_logged.lock().count(&counts.flooded) {
            warn!(
                peer = %self.peer,
                connections,
                "connections are closed: their clients send HTTP/2 control frames without calls"
            );
        }
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
