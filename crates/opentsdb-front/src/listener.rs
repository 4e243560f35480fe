//! The listener of HTTP and telnet, which share a port.
//!
//! The first byte of a connection selects the protocol: `A` to `Z` begin an HTTP request, all others a telnet
//! line. The listener peeks at it, so that both front ends read their input from its start.
//!
//! ```text
//!   accept ──► first byte ──┬─► http    hyper: keep-alive, pipelining
//!                           └─► telnet  lines in, errors and replies out
//! ```
//!
//! `oxtsdb_server::connections` accepts connections, closes those that are idle or slow, and limits their
//! number. During a drain, HTTP completes the requests in flight and telnet stores all received points; see
//! [`HttpTelnetServer::serve`].
//!
//! Source: OpenTSDB 2.4, `PipelineFactory.DetectHttpOrRpc`, `ConnectionManager`.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Request;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper_util::rt::TokioIo;
use oxtsdb_access::AccessControl;
use oxtsdb_data_settings::DataSettings;
use oxtsdb_ingest::Writer;
use oxtsdb_ingest::rollup::RollupWriter;
use oxtsdb_metadata::text_search::TextSearch;
use oxtsdb_metadata::tree::Trees;
use oxtsdb_metadata::uids::Uids;
use oxtsdb_query::Engine;
use oxtsdb_resources::ClientId;
use oxtsdb_server::Shutdown;
use oxtsdb_server::connections::{ClientStream, Connection, Connections, ListenerOptions, RequestGuard};
use oxtsdb_server::metrics::{Metrics, RequestTimer};
use oxtsdb_server::tls::Alpn;
use tokio::net::TcpListener;

use crate::front::counters::Counters;
use crate::http::HttpApi;
use crate::http::otlp::grpc::MetricsServiceServer;
use crate::telnet::Telnet;

/// Bytes that hyper reads ahead, and the longest head of a request.
const HTTP_BUFFER_BYTES: usize = 256 << 10;

/// Serves HTTP and telnet on one port.
#[derive(Clone, Debug)]
pub struct HttpTelnetServer {
    http: HttpApi,
    telnet: Telnet,
    counters: Arc<Counters>,
    connections: Connections,
    options: ListenerOptions,
}

impl HttpTelnetServer {
    /// A server of these parts of the service.
    pub fn new(
        writer: Writer,
        engine: Engine,
        uids: Uids,
        trees: Trees,
        text_search: Option<TextSearch>,
        settings: &DataSettings,
    ) -> HttpTelnetServer {
        let counters = Arc::new(Counters::beside(&engine, &writer));
        let rollups = RollupWriter::from_engine(&engine, &writer);
        HttpTelnetServer {
            http: HttpApi::new(
                writer.clone(),
                engine,
                uids,
                trees,
                text_search,
                settings,
                Arc::clone(&counters),
            ),
            telnet: Telnet::new(writer, rollups, settings, Arc::clone(&counters)),
            counters,
            connections: Connections::unlimited(),
            options: ListenerOptions {
                alpn: Alpn::Http1,
                name: "http and telnet",
                limit: settings.connections.max_connections,
                limit_setting: "--max-connections",
                idle_timeout: settings.connections.idle_timeout(),
                client_timeout: settings.connections.client_timeout(),
                drain_limit: Duration::from_secs(30),
            },
        }
    }

    /// The same server, with its connections in the limit of the process.
    #[must_use]
    pub fn with_connections(self, connections: &Connections) -> HttpTelnetServer {
        HttpTelnetServer {
            connections: connections.clone(),
            ..self
        }
    }

    /// The same server, which gives requests in progress this long after stopping has begun.
    #[must_use]
    pub fn with_drain_limit(mut self, limit: Duration) -> HttpTelnetServer {
        self.options.drain_limit = limit;
        self
    }

    /// The same server, with its requests and connections among the metrics of the process.
    #[must_use]
    pub fn with_metrics(self, metrics: &Metrics) -> HttpTelnetServer {
        self.counters.report_to(metrics);
        metrics.add_connections("http", Arc::clone(&self.counters.connections));
        self
    }

    /// The same server, with checks of the callers' rights.
    #[must_use]
    pub fn with_access(self, access: &AccessControl) -> HttpTelnetServer {
        HttpTelnetServer {
            http: self.http.with_access(access.clone()),
            telnet: self.telnet.with_access(access.clone()),
            ..self
        }
    }

    /// The same server with another window for telnet, in bytes.
    #[must_use]
    pub fn with_telnet_window(self, bytes: usize) -> HttpTelnetServer {
        let telnet = self.telnet.with_window(bytes);
        HttpTelnetServer { telnet, ..self }
    }

    /// OpenTelemetry's service of metrics, for a gRPC listener. Points of the service and points over HTTP and telnet share counters.
    pub fn metrics_service(&self, max_message_bytes: usize) -> MetricsServiceServer {
        MetricsServiceServer::new(self.http.clone(), max_message_bytes)
    }

    /// Serves until a shutdown has begun and all connections are closed, at most 30 seconds after its begin.
    ///
    /// Once the shutdown begins, the listener accepts no connection, HTTP completes the requests in flight
    /// with `Connection: close`, telnet stores every whole line that has reached this machine, sends its replies
    /// and closes, and idle connections are closed.
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
        mut stream: ClientStream,
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
            let certificate = stream.peer_certificate().cloned();
            // Admission is fair among clients.
            let peer = connection.peer();
            let client = ClientId::from_peer(peer);
            hyper::service::service_fn(move |mut request: Request<Incoming>| {
                request.extensions_mut().insert(client);
                if let Some(certificate) = &certificate {
                    request.extensions_mut().insert(certificate.clone());
                }
                let (http, guard) = (http.clone(), connection.request());
                async move {
                    let (response, timer) = http.handle_timed(request, Some(peer)).await;
                    Ok::<_, std::convert::Infallible>(response.map(|body| Tracked {
                        body,
                        _guard: guard,
                        _timer: timer,
                    }))
                }
            })
        };
        // `connections` limits the time of a head.
        let serving = hyper::server::conn::http1::Builder::new()
            .header_read_timeout(None)
            .max_buf_size(HTTP_BUFFER_BYTES)
            .serve_connection(TokioIo::new(stream), service);
        let mut serving = std::pin::pin!(serving);
        let ended = tokio::select! {
            // First, so that a connection with a request that has arrived does not count as idle.
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

/// The body of a response. Its request is in flight until it is dropped.
struct Tracked<B> {
    body: B,
    _guard: RequestGuard,
    _timer: RequestTimer,
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
