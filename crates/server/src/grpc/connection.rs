//! One HTTP/2 connection of a gRPC server.

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

use super::options::GrpcOptions;
use super::response::Responses;
use crate::Shutdown;
use crate::connections::{ClientStream, Connection};
use crate::deadline::DeadlineMiddleware;
use crate::message_errors::MessageErrors;
use crate::middleware::MiddlewareLayer;
use crate::request_memory::RequestMemory;

/// Bytes that a client may send on a stream and on a connection before they are read. A stream needs more
/// than HTTP/2's 64 KiB, which is below one message of a thousand points; but a client that opens streams
/// and is not read can fill the window of each connection, and no account of memory sees that. With these,
/// 1,024 connections hold 2 GiB at the worst, and one stream still has as much on the way as a network
/// of 1 Gbit/s and 8 ms delivers.
const STREAM_WINDOW_BYTES: u32 = 1 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 2 << 20;

/// Bytes of a response that wait in HTTP/2 for the client, for each stream.
const SEND_BUFFER_BYTES: usize = 128 << 10;

/// A connection whose client does not answer a ping is closed: it takes a place and has no use.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(30);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(10);

/// What all connections of a server share.
#[derive(Debug)]
pub(super) struct Server {
    service: BoxCloneSyncService<Request<Body>, Response<Body>, Infallible>,
    http: http2::Builder<TokioExecutor>,
    max_connection_age: Option<Duration>,
    client_timeout: Duration,
    /// For responses.
    memory: Option<MemoryPool>,
    shutdown: Shutdown,
}

impl Server {
    pub(super) fn new(routes: Routes, options: GrpcOptions, shutdown: Shutdown) -> Self {
        let memory = options.memory.as_ref().map(|memory| memory.query().clone());
        let service = ServiceBuilder::new()
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
        let responses = Responses::new(self.client_timeout, self.memory.clone());
        let service = {
            let (service, connection) = (self.service.clone(), connection.clone());
            let responses = responses.clone();
            hyper::service::service_fn(move |request: Request<Incoming>| {
                let (guard, responses) = (connection.request(), responses.clone());
                let mut request = request.map(Body::new);
                request.extensions_mut().insert(info.clone());
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
                    // What can be sent without waiting says that the client should go elsewhere.
                    return match serving.now_or_never() {
                        Some(served) => served.map_err(io::Error::other),
                        None => Ok(()),
                    };
                }
                _ = watch.tick() => responses.cut_off_stalled(),
                () = ending.as_mut(), if !is_ending => {
                    is_ending = true;
                    serving.as_mut().graceful_shutdown();
                }
            }
        }
    }
}
