//! The accept loop of all listeners.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;
use tracing::{debug, error, info, warn};

use super::{ClientStream, Connection, Listener};
use crate::Shutdown;

/// Pause after `accept` failed for lack of descriptors or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How often connections are checked for exceeded time-outs.
const SWEEP_INTERVAL: Duration = Duration::from_millis(250);

/// How long an idle connection stays open after stopping has begun: for requests on the network, and for
/// GOAWAY to reach HTTP/2 clients.
const STOP_GRACE: Duration = Duration::from_millis(500);

impl Listener {
    /// Accepts connections and serves each with `serve`, until stopping begins. Connections without a
    /// request in progress are closed then; the others have until the drain limit.
    ///
    /// `serve` observes [`Connection::closing`], and then returns as soon as the connection is idle.
    ///
    /// No client can end the loop: after a failure of `accept`, such as too many open files, it pauses and
    /// continues.
    pub async fn serve<F, S>(self, listener: TcpListener, shutdown: Shutdown, serve: F)
    where
        F: Fn(ClientStream, Connection) -> S + Send + Sync + 'static,
        S: Future<Output = io::Result<()>> + Send + 'static,
    {
        let serve = Arc::new(serve);
        let opener = self.opener();
        let mut tasks = JoinSet::new();
        let mut sweeps = tokio::time::interval(SWEEP_INTERVAL);
        loop {
            let accepted = tokio::select! {
                biased;
                () = shutdown.stopping() => break,
                Some(ended) = tasks.join_next(), if !tasks.is_empty() => {
                    report(ended);
                    continue;
                }
                _ = sweeps.tick() => {
                    self.sweep();
                    continue;
                }
                accepted = listener.accept() => accepted,
            };
            let (stream, peer) = match accepted {
                Ok(accepted) => accepted,
                Err(error) if is_of_one_connection(&error) => continue,
                Err(error) => {
                    warn!(listener = self.options.name, %error, "cannot accept connections for now");
                    tokio::select! {
                        () = shutdown.stopping() => break,
                        () = tokio::time::sleep(ACCEPT_PAUSE) => continue,
                    }
                }
            };
            let Some(connection) = self.admit(peer).await else {
                continue;
            };
            let (serve, opener) = (Arc::clone(&serve), opener.clone());
            let (served, shutdown) = (connection.clone(), shutdown.clone());
            tasks.spawn(to_the_end(connection, async move {
                match opener.open(stream, &served, &shutdown).await? {
                    Some(stream) => serve(stream, served).await,
                    None => Ok(()),
                }
            }));
        }
        // From now on the kernel refuses connections, and clients use another server.
        drop(listener);
        self.drain(tasks).await;
    }

    async fn drain(&self, mut tasks: JoinSet<()>) {
        if tasks.is_empty() {
            return;
        }
        let name = self.options.name;
        info!(
            listener = name,
            connections = tasks.len(),
            "waiting for connections"
        );
        let begun = Instant::now();
        let mut sweeps = tokio::time::interval(STOP_GRACE / 10);
        while !tasks.is_empty() && begun.elapsed() < self.options.drain_limit {
            tokio::select! {
                Some(ended) = tasks.join_next() => report(ended),
                _ = sweeps.tick() => {
                    if begun.elapsed() >= STOP_GRACE {
                        self.close_idle();
                    }
                }
            }
        }
        if !tasks.is_empty() {
            let connections = tasks.len();
            warn!(
                listener = name,
                connections, "requests that are still in progress are cut off"
            );
            tasks.shutdown().await;
        }
    }
}

/// Serves a connection to its end, or until it is cut.
async fn to_the_end(connection: Connection, served: impl Future<Output = io::Result<()>>) {
    tokio::select! {
        biased;
        () = connection.state().cut.cancelled() => {}
        ended = served => if let Err(error) = ended {
            debug!(peer = %connection.peer(), %error, "connection ended");
        },
    }
}

/// Whether `accept` failed because the client closed the connection.
fn is_of_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind;
    matches!(
        error.kind(),
        ErrorKind::ConnectionAborted | ErrorKind::ConnectionReset | ErrorKind::Interrupted
    )
}

/// Logs the panic of a connection's task.
fn report(ended: Result<(), JoinError>) {
    if let Err(error) = ended
        && error.is_panic()
    {
        error!(%error, "a connection's task failed");
    }
}
