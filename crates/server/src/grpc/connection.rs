//! An HTTP/2 connection of the gRPC server.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use oxtsdb_resources::MemoryPool;
use tokio::time::MissedTickBehavior;
use tonic::body::Body;
use tonic::service::Routes;
use tonic::transport::server::TcpConnectInfo;
use tower::util::BoxCloneSyncService;
use tower::{ServiceBuilder, ServiceExt as _};

use super::metrics::CallMetrics;
use super::options::GrpcOptions;
use super::response::Responses;
use crate::Shutdown;
use crate::access::AccessMiddleware;
use crate::connections::{ClientStream, Connection};
use crate::deadline::DeadlineMiddleware;
use crate::message_errors::MessageErrors;
use crate::middleware::MiddlewareLayer;
use crate::request_memory::RequestMemory;

/// Flow-control windows of a stream and of a connection. HTTP/2's default of 64 KiB is less than one message of
/// a thousand points. But clients can fill the window of each connection, which the memory account does not
/// count: with these values, 1,024 connections hold 2 GiB at worst, and one stream still uses the bandwidth
/// of a network with 1 Gbit/s and 8 ms.
const STREAM_WINDOW_BYTES: u32 = 1 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 2 << 20;

/// The largest frame that clients may send; they count towards the windows. HTTP/2's default of 16 KiB makes five
/// frames of a message of a thousand points. Larger frames hold up the other streams of a connection.
const MAX_FRAME_BYTES: u32 = 64 << 10;

/// Bytes of a response in HTTP/2's send buffer of a stream.
const SEND_BUFFER_BYTES: usize = 128 << 10;

/// A connection whose client does not respond to a ping is closed.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(30);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(10);

/// State that all connections of a server share.
#[derive(Debug)]
pub(super) struct Server {
    service: BoxCloneSyncService<Request<Body>, Response<Body>, Infallible>,
    http: http2::Builder<TokioExecutor>,
    max_connection_age: Option<Duration>,
    client_timeout: Duration,
    /// The pool of responses.
    memory: Option<MemoryPool>,
    shutdown: Shutdown,
}

impl Server {
    pub(super) fn new(routes: Routes, options: GrpcOptions, shutdown: Shutdown) -> Self {
        let memory = options.memory.as_ref().map(|memory| memory.query().clone());
        let requests = options.admin.metrics.requests().clone();
        let service = ServiceBuilder::new()
            .layer(MiddlewareLayer(CallMetrics { requests }))
            .layer(MiddlewareLayer(AccessMiddleware(options.access.clone())))
            .layer(MiddlewareLayer(DeadlineMiddleware {
                default: options.default_deadline,
            }))
            .layer(MiddlewareLayer(MessageErrors))
            .layer(MiddlewareLayer(RequestMemory {
                account: options.memory,
            }))
            .service(routes.prepare());
        let mut http = http2::Builder::new(TokioExecutor::new());
        http.timer(TokioTimer::new())
            .keep_alive_interval(KEEPALIVE_INTERVAL)
            .keep_alive_timeout(KEEPALIVE_TIMEOUT)
            .max_concurrent_streams(options.max_concurrent_streams)
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .max_frame_size(MAX_FRAME_BYTES)
            .max_send_buf_size(SEND_BUFFER_BYTES);
        Self {
            service: BoxCloneSyncService::new(service),
            http,
            max_connection_age: options.max_connection_age,
            client_timeout: options.client_timeout,
            memory,
            shutdown,
        }
    }

    /// Serves a connection to its end.
    pub(super) async fn serve(
        self: Arc<Self>,
        stream: ClientStream,
        connection: Connection,
    ) -> io::Result<()> {
        connection.is_http2();
        let info = TcpConnectInfo {
            local_addr: stream.local_addr().ok(),
            remote_addr: Some(connection.peer()),
        };
        let certificates = stream.peer_certificates().cloned();
        let responses = Responses::new(self.client_timeout, self.memory.clone());
        let service = {
            let (service, connection) = (self.service.clone(), connection.clone());
            let responses = responses.clone();
            hyper::service::service_fn(move |request: Request<Incoming>| {
                let (guard, responses) = (connection.request(), responses.clone());
                let mut request = request.map(Body::new);
                request.extensions_mut().insert(info.clone());
                if let Some(certificates) = &certificates {
                    request.extensions_mut().insert(certificates.clone());
                }
                let response = service.clone().oneshot(request);
                response.map(|response| {
                    response.map(move |response| response.map(|body| responses.track(body, guard)))
                })
            })
        };
        let serving = self.http.serve_connection(TokioIo::new(stream), service);
        let mut serving = std::pin::pin!(serving);
        let (mut is_ending, mut is_closing) = (false, false);
        let aged = async {
            match self.max_connection_age {
                Some(age) => tokio::time::sleep(age).await,
                None => std::future::pending().await,
            }
        };
        let ending = async {
            tokio::select! {
                () = self.shutdown.stopping() => {}
                () = aged => {}
            }
        };
        let mut ending = std::pin::pin!(ending);
        let mut watch = tokio::time::interval(responses.interval());
        watch.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                served = serving.as_mut() => return served.map_err(io::Error::other),
                () = connection.closing(), if !is_closing => {
                    is_closing = true;
                    serving.as_mut().graceful_shutdown();
                    if !connection.is_idle() {
                        // A request has begun meanwhile.
                        continue;
                    }
                    // Sends GOAWAY if that is possible without waiting.
                    return match serving.now_or_never() {
                        Some(served) => served.map_err(io::Error::other),
                        None => Ok(()),
                    };
                }
                _ = watch.tick() => responses.abort_stalled(),
                () = ending.as_mut(), if !is_ending => {
                    is_ending = true;
                    serving.as_mut().graceful_shutdown();
                }
            }
        }
    }
}
