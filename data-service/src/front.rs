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
//! `oxtsdb_server::connections` accepts connections, closes those that are idle or slow, and bounds their
//! number. When the program stops, HTTP finishes the requests in progress and telnet stores what it has
//! received; see [`Door::serve`].
//!
//! Source: OpenTSDB 2.4, `PipelineFactory.DetectHttpOrRpc`, `ConnectionManager`.

pub(crate) mod build_info;
pub(crate) mod counters;
pub(crate) mod point_text;
#[cfg(test)]
pub(crate) mod testing;
pub(crate) mod write_failure;

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Request;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper_util::rt::TokioIo;
use oxtsdb_resources::ClientId;
use oxtsdb_server::Shutdown;
use oxtsdb_server::connections::{ClientStream, Connection, Connections, ListenerOptions, RequestGuard};
use tokio::net::TcpListener;

use crate::front::counters::Counters;
use crate::http::HttpApi;
use crate::settings::DataSettings;
use crate::telnet::Telnet;
use crate::uids::Uids;
use crate::write::Writer;
use oxtsdb_query::Engine;

/// How long connections with requests in progress may take to end once stopping has begun.
const DRAIN_LIMIT: Duration = Duration::from_secs(30);

/// Bytes that hyper reads ahead, and the longest head of a request.
const HTTP_BUFFER_BYTES: usize = 256 << 10;

/// The HTTP and telnet side of the data service.
#[derive(Clone, Debug)]
pub struct Door {
    http: HttpApi,
    telnet: Telnet,
    counters: Arc<Counters>,
    connections: Connections,
    options: ListenerOptions,
}

impl Door {
    /// A door to these parts of the service.
    pub fn new(writer: Writer, engine: Engine, uids: Uids, settings: &DataSettings) -> Door {
        let counters = Arc::new(Counters::beside(&engine, &writer));
        Door {
            http: HttpApi::new(writer.clone(), engine, uids, settings, Arc::clone(&counters)),
            telnet: Telnet::new(writer, settings, Arc::clone(&counters)),
            counters,
            connections: Connections::unlimited(),
            options: ListenerOptions {
                name: "http and telnet",
                limit: settings.connections.max_connections,
                limit_setting: "--max-connections",
                idle_timeout: settings.connections.idle_timeout(),
                client_timeout: settings.connections.client_timeout(),
                drain_limit: DRAIN_LIMIT,
            },
        }
    }

    /// The same, with its connections among those of the process.
    #[must_use]
    pub fn with_connections(self, connections: &Connections) -> Door {
        Door {
            connections: connections.clone(),
            ..self
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
    /// Once stopping begins, no connection is accepted any more, HTTP answers the requests in progress
    /// with `Connection: close`, telnet stores every whole line that has reached this machine, answers,
    /// and closes, and connections without a request are closed.
    pub async fn serve(self, listener: TcpListener, shutdown: Shutdown) {
        let counts = Arc::clone(&self.counters.connections);
        let connections = self.connections.listener(self.options, counts);
        connections
            .serve(listener, shutdown.clone(), move |stream, connection| {
                self.clone()
                    .serve_connection(stream, connection, shutdown.clone())
            })
            .await;
    }

    async fn serve_connection(
        self,
        stream: ClientStream,
        connection: Connection,
        shutdown: Shutdown,
    ) -> io::Result<()> {
        let mut first = [0];
        let first_byte = tokio::select! {
            biased;
            read = stream.peek(&mut first) => read?,
            () = shutdown.stopping() => 0,
            () = connection.closing() => 0,
        };
        match first {
            _ if first_byte == 0 => Ok(()),
            [b'A'..=b'Z'] => self.serve_http(stream, connection, shutdown).await,
            _ => {
                connection.is_telnet();
                self.telnet.serve(stream, &connection, shutdown).await
            }
        }
    }

    async fn serve_http(
        self,
        stream: ClientStream,
        connection: Connection,
        shutdown: Shutdown,
    ) -> io::Result<()> {
        connection.is_http1();
        let service = {
            let connection = connection.clone();
            let http = self.http;
            // Queries are admitted in turn by client.
            let client = ClientId::Address(connection.peer().ip());
            hyper::service::service_fn(move |mut request: Request<Incoming>| {
                request.extensions_mut().insert(client);
                let (http, guard) = (http.clone(), connection.request());
                async move {
                    let response = http.handle(request).await;
                    Ok::<_, std::convert::Infallible>(response.map(|body| Tracked { body, _guard: guard }))
                }
            })
        };
        // The registry of connections bounds the time of a head.
        let serving = hyper::server::conn::http1::Builder::new()
            .header_read_timeout(None)
            .max_buf_size(HTTP_BUFFER_BYTES)
            .serve_connection(TokioIo::new(stream), service);
        let mut serving = std::pin::pin!(serving);
        let ended = tokio::select! {
            // First, so that a request that has arrived is not taken for idleness.
            biased;
            ended = serving.as_mut() => ended,
            () = connection.closing() => {
                if connection.is_idle() {
                    return Ok(());
                }
                serving.as_mut().graceful_shutdown();
                serving.await
            }
            () = shutdown.stopping() => {
                serving.as_mut().graceful_shutdown();
                tokio::select! {
                    biased;
                    ended = serving.as_mut() => ended,
                    () = connection.closing() => {
                        if connection.is_idle() {
                            return Ok(());
                        }
                        serving.await
                    }
                }
            }
        };
        ended.map_err(io::Error::other)
    }
}

/// The body of a response; its request is in progress until it is dropped.
struct Tracked<B> {
    body: B,
    _guard: RequestGuard,
}

impl<B: Body + Unpin> Body for Tracked<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
