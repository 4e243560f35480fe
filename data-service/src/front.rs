//! One port for HTTP and telnet.
//!
//! The first byte of a connection decides: `A` to `Z` begin an HTTP request, all others a telnet
//! line. It is looked at without being taken, so both sides read their input from its start.
//!
//! ```text
//!   accept ──► first byte ──┬─► http    hyper: keep-alive, pipelining
//!                           └─► telnet  lines in, answers out
//! ```
//!
//! Nothing a client does ends the accept loop: too many open files and other failures of `accept`
//! are waited out. When the program stops, HTTP finishes the requests under way and telnet stores
//! what it has received; see [`Door::serve`].
//!
//! Source: OpenTSDB 2.4, `PipelineFactory.DetectHttpOrRpc`, `ConnectionManager`.

pub(crate) mod counters;
pub(crate) mod point_text;
#[cfg(test)]
pub(crate) mod testing;
pub(crate) mod write_failure;

use std::sync::Arc;
use std::time::Duration;

use hyper_util::rt::{TokioIo, TokioTimer};
use oxtsdb_server::Shutdown;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tracing::{debug, info, warn};

use crate::front::counters::Counters;
use crate::http::HttpApi;
use crate::query::Engine;
use crate::settings::DataSettings;
use crate::telnet::Telnet;
use crate::uids::Uids;
use crate::write::Writer;

/// How long the head of an HTTP request may take, and how long a kept-alive connection waits for
/// its next request. A client that sends a byte now and then gets no more than this.
const HEAD_TIMEOUT: Duration = Duration::from_secs(90);

/// How long a client may leave what was sent to it unread before the kernel drops the connection.
const UNREAD_TIMEOUT: Duration = Duration::from_secs(120);

/// How long connections may take to end once stopping has begun.
const DRAIN_LIMIT: Duration = Duration::from_secs(30);

/// How long the loop rests after `accept` failed for want of files or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Bytes that hyper reads ahead, and the longest head of a request.
const HTTP_BUFFER_BYTES: usize = 256 << 10;

/// The HTTP and telnet side of the data service.
#[derive(Clone, Debug)]
pub struct Door {
    http: HttpApi,
    telnet: Telnet,
    counters: Arc<Counters>,
    max_connections: usize,
    idle_timeout: Option<Duration>,
}

impl Door {
    /// A door to these parts of the service.
    pub fn new(writer: Writer, engine: Engine, uids: Uids, settings: &DataSettings) -> Door {
        let counters = Arc::new(Counters::beside(engine.skipped_cells()));
        Door {
            http: HttpApi::new(writer.clone(), engine, uids, settings, Arc::clone(&counters)),
            telnet: Telnet::new(writer, settings, Arc::clone(&counters)),
            counters,
            max_connections: settings.max_connections,
            idle_timeout: settings.idle_timeout(),
        }
    }

    /// The same with another window for telnet, in bytes.
    #[cfg(test)]
    pub(crate) fn with_telnet_window(self, bytes: usize) -> Door {
        let telnet = self.telnet.with_window(bytes);
        Door { telnet, ..self }
    }

    /// Serves until stopping begins and all connections have ended, or until they had
    /// 30 seconds to do so.
    ///
    /// Once stopping begins, no connection is accepted any more, HTTP answers the requests under
    /// way with `Connection: close`, and telnet stores every whole line that has reached this
    /// machine, answers, and closes.
    pub async fn serve(self, listener: TcpListener, shutdown: Shutdown) {
        let permits = Arc::new(Semaphore::new(self.max_connections));
        let mut connections = JoinSet::new();
        loop {
            let accepted = tokio::select! {
                biased;
                () = shutdown.stopping() => break,
                Some(ended) = connections.join_next(), if !connections.is_empty() => {
                    report(ended);
                    continue;
                }
                accepted = listener.accept() => accepted,
            };
            let (stream, peer) = match accepted {
                Ok(accepted) => accepted,
                Err(error) if is_of_one_connection(&error) => continue,
                Err(error) => {
                    warn!(%error, "cannot accept connections for now");
                    tokio::select! {
                        () = shutdown.stopping() => break,
                        () = tokio::time::sleep(ACCEPT_PAUSE) => continue,
                    }
                }
            };
            let Ok(permit) = Arc::clone(&permits).try_acquire_owned() else {
                Counters::count(&self.counters.connections_rejected);
                debug!(%peer, limit = self.max_connections, "too many connections, closed one");
                continue;
            };
            Counters::count(&self.counters.connections_total);
            let (door, shutdown) = (self.clone(), shutdown.clone());
            connections.spawn(async move {
                if let Err(error) = door.serve_connection(stream, shutdown, permit).await {
                    debug!(%peer, %error, "connection ended");
                }
            });
        }
        drop(listener);
        if !connections.is_empty() {
            info!(
                connections = connections.len(),
                "waiting for HTTP and telnet connections"
            );
        }
        let all_ended = async {
            while let Some(ended) = connections.join_next().await {
                report(ended);
            }
        };
        if tokio::time::timeout(DRAIN_LIMIT, all_ended).await.is_err() {
            warn!(
                connections = connections.len(),
                "closing HTTP and telnet connections"
            );
            connections.shutdown().await;
        }
    }

    async fn serve_connection(
        self,
        stream: TcpStream,
        shutdown: Shutdown,
        _permit: OwnedSemaphorePermit,
    ) -> std::io::Result<()> {
        let _open = Counters::opened(&self.counters);
        stream.set_nodelay(true)?;
        let socket = socket2::SockRef::from(&stream);
        socket.set_keepalive(true)?;
        socket.set_tcp_user_timeout(Some(UNREAD_TIMEOUT))?;
        let mut first = [0];
        let first_byte = tokio::select! {
            biased;
            read = stream.peek(&mut first) => read?,
            () = shutdown.stopping() => 0,
            () = idle(self.idle_timeout) => 0,
        };
        match first {
            _ if first_byte == 0 => Ok(()),
            [b'A'..=b'Z'] => self.serve_http(stream, shutdown).await,
            _ => self.telnet.serve(stream, shutdown, self.idle_timeout).await,
        }
    }

    async fn serve_http(self, stream: TcpStream, shutdown: Shutdown) -> std::io::Result<()> {
        let http = self.http;
        let service = hyper::service::service_fn(move |request| {
            let http = http.clone();
            async move { Ok::<_, std::convert::Infallible>(http.handle(request).await) }
        });
        let head_timeout = self
            .idle_timeout
            .map_or(HEAD_TIMEOUT, |idle| idle.min(HEAD_TIMEOUT));
        let connection = hyper::server::conn::http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(head_timeout)
            .max_buf_size(HTTP_BUFFER_BYTES)
            .serve_connection(TokioIo::new(stream), service);
        let mut connection = std::pin::pin!(connection);
        let ended = tokio::select! {
            ended = connection.as_mut() => ended,
            () = shutdown.stopping() => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        ended.map_err(std::io::Error::other)
    }
}

/// Waits until a connection counts as idle; for ever if there is no such limit.
pub(crate) async fn idle(timeout: Option<Duration>) {
    match timeout {
        Some(timeout) => tokio::time::sleep(timeout).await,
        None => std::future::pending().await,
    }
}

/// Whether `accept` failed because a client went away before it was accepted.
fn is_of_one_connection(error: &std::io::Error) -> bool {
    use std::io::ErrorKind;
    matches!(
        error.kind(),
        ErrorKind::ConnectionAborted | ErrorKind::ConnectionReset | ErrorKind::Interrupted
    )
}

/// A connection's task ends with an error only if it panicked.
fn report(ended: Result<(), tokio::task::JoinError>) {
    if let Err(error) = ended {
        tracing::error!(%error, "a connection's task failed");
    }
}
