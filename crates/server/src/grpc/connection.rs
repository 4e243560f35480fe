//! An HTTP/2 connection of the gRPC server.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::{Either, ready};
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
use tracing::debug;

use super::calls::Calls;
use super::frames::WatchedFrames;
use super::metrics::CallMetrics;
use super::options::GrpcOptions;
use super::response::Responses;
use crate::Shutdown;
use crate::access::AccessMiddleware;
use crate::connections::{ClientStream, Connection};
use crate::deadline::DeadlineMiddleware;
use crate::message_errors::MessageErrors;
use crate::middleware::MiddlewareLayer;
use crate::request_memory::{MessageLimits, RequestMemory};

/// Bytes of a response in HTTP/2's send buffer of a stream.
const SEND_BUFFER_BYTES: usize = 128 << 10;

/// State that all connections of a server share.
#[derive(Debug)]
pub(super) struct Server {
    service: BoxCloneSyncService<Request<Body>, Response<Body>, Infallible>,
    http: http2::Builder<TokioExecutor>,
    max_connection_age: Option<Duration>,
    connection_grace: Option<Duration>,
    client_timeout: Duration,
    /// The pool of responses.
    memory: MemoryPool,
    calls: Arc<Calls>,
    shutdown: Shutdown,
}

impl Server {
    pub(super) fn new(
        routes: Routes,
        limits: MessageLimits,
        services: &[&'static str],
        options: GrpcOptions,
        shutdown: Shutdown,
    ) -> Self {
        let memory = options.memory.query().clone();
        let calls = Calls::new(options.max_calls());
        let requests = options.admin.metrics.requests().clone();
        let service = ServiceBuilder::new()
            .layer(MiddlewareLayer(CallMetrics { requests }))
            .layer(MiddlewareLayer(AccessMiddleware(options.access.clone())))
            .layer(MiddlewareLayer(DeadlineMiddleware {
                default: options.default_deadline,
            }))
            .layer(MiddlewareLayer(MessageErrors {
                services: services.into(),
            }))
            .layer(MiddlewareLayer(RequestMemory {
                account: options.memory,
                limits,
            }))
            .service(routes.prepare());
        let mut http = http2::Builder::new(TokioExecutor::new());
        http.timer(TokioTimer::new())
            .keep_alive_interval(options.keep_alive_interval)
            .keep_alive_timeout(options.keep_alive_timeout)
            .max_concurrent_streams(options.max_concurrent_streams)
            .initial_stream_window_size(options.stream_window_bytes)
            .initial_connection_window_size(options.connection_window_bytes)
            .max_frame_size(options.max_frame_bytes)
            .max_send_buf_size(SEND_BUFFER_BYTES);
        Self {
            service: BoxCloneSyncService::new(service),
            http,
            max_connection_age: options.max_connection_age,
            connection_grace: options.connection_grace,
            client_timeout: options.client_timeout,
            memory,
            calls,
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
        let certificate = stream.peer_certificate().cloned();
        let responses = Responses::new(self.client_timeout, self.memory.clone());
        let end = self.shutdown.for_connection();
        let service = {
            let (service, connection, end) = (self.service.clone(), connection.clone(), end.clone());
            let (responses, calls) = (responses.clone(), self.calls.connection());
            hyper::service::service_fn(move |request: Request<Incoming>| {
                let (guard, responses) = (connection.request(), responses.clone());
                let call = match calls.begin() {
                    Ok(call) => call,
                    Err(status) => {
                        let response = status.into_http();
                        let response = response.map(|body: Body| responses.track(body, guard, None));
                        return Either::Left(ready(Ok(response)));
                    }
                };
                let mut request = request.map(Body::new);
                request.extensions_mut().insert(info.clone());
                request.extensions_mut().insert(end.clone());
                if let Some(certificate) = &certificate {
                    request.extensions_mut().insert(certificate.clone());
                }
                let response = service.clone().oneshot(request);
                Either::Right(response.map(|response| {
                    response
                        .map(move |response| response.map(|body| responses.track(body, guard, Some(call))))
                }))
            })
        };
        let stream = WatchedFrames::new(stream, {
            let connection = connection.clone();
            move || connection.count_flood()
        });
        let serving = self.http.serve_connection(TokioIo::new(stream), service);
        let mut serving = std::pin::pin!(serving);
        let (mut is_ending, mut is_closing) = (false, false);
        let aged = async {
            passed(self.max_connection_age.map(with_jitter)).await;
            // Handlers of long streams announce the end, and clients open them over another connection.
            end.drain();
        };
        let ending = async {
            tokio::select! {
                () = self.shutdown.stopping() => {}
                () = aged => {}
            }
        };
        let mut ending = std::pin::pin!(ending);
        // The end of a program has a limit of its own.
        let overdue = async {
            end.draining().await;
            if self.shutdown.is_draining() {
                return std::future::pending().await;
            }
            passed(self.connection_grace).await;
        };
        let mut overdue = std::pin::pin!(overdue);
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
                () = overdue.as_mut() => {
                    debug!(peer = %connection.peer(), "calls of a connection that reached its age were cut off");
                    return Ok(());
                }
            }
        }
    }
}

/// Completes after a time; never, if there is none.
async fn passed(time: Option<Duration>) {
    match time {
        Some(time) => tokio::time::sleep(time).await,
        None => std::future::pending().await,
    }
}

/// A time give or take a tenth, so that connections that were opened together do not end together.
fn with_jitter(age: Duration) -> Duration {
    age.mul_f64(rand::random_range(0.9..1.1))
}
