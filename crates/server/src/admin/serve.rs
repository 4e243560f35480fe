//! The HTTP server of the admin listener.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use super::{Admin, Page};
use crate::Shutdown;
use crate::connections::{
    CLIENT_TIMEOUT, ClientStream, Connection, ConnectionCounts, Connections, ListenerOptions,
};
use crate::tls::Alpn;

/// Most connections: a few scrapers and probes.
const MAX_CONNECTIONS: usize = 64;

/// How long a connection may be idle; scrapes are a minute apart at most.
const IDLE_TIMEOUT: Duration = Duration::from_secs(150);

/// The longest head of a request.
const MAX_HEAD_BYTES: usize = 16 << 10;

const OPEN_METRICS: HeaderValue =
    HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");
const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");
const JSON: HeaderValue = HeaderValue::from_static("application/json; charset=utf-8");

/// Serves without end.
pub(crate) async fn serve(listener: TcpListener, admin: Admin) {
    let options = ListenerOptions {
        name: "admin",
        alpn: Alpn::Http1,
        limit: MAX_CONNECTIONS,
        limit_setting: "the admin listener",
        idle_timeout: Some(IDLE_TIMEOUT),
        client_timeout: CLIENT_TIMEOUT,
        drain_limit: Duration::ZERO,
    };
    let counts = Arc::<ConnectionCounts>::default();
    let connections = Connections::new(MAX_CONNECTIONS).listener(options, counts);
    // The end of the process ends it, not the drain.
    let (without_end, _trigger) = Shutdown::new(Duration::ZERO);
    // A page takes milliseconds of a thread, so one is rendered at a time.
    let rendering = Arc::new(Semaphore::new(1));
    connections
        .serve(listener, without_end, move |stream, connection| {
            serve_connection(stream, connection, admin.clone(), Arc::clone(&rendering))
        })
        .await;
}

async fn serve_connection(
    stream: ClientStream,
    connection: Connection,
    admin: Admin,
    rendering: Arc<Semaphore>,
) -> io::Result<()> {
    connection.is_http1();
    let service = {
        let connection = connection.clone();
        hyper::service::service_fn(move |request: Request<Incoming>| {
            let (admin, rendering, guard) = (admin.clone(), Arc::clone(&rendering), connection.request());
            async move {
                let response = respond(&admin, &rendering, request.method(), request.uri().path()).await;
                drop(guard);
                Ok::<_, Infallible>(response)
            }
        })
    };
    // `connections` limits the time of a head.
    let serving = hyper::server::conn::http1::Builder::new()
        .header_read_timeout(None)
        .max_buf_size(MAX_HEAD_BYTES)
        .serve_connection(TokioIo::new(stream), service);
    tokio::select! {
        biased;
        served = serving => served.map_err(io::Error::other),
        () = connection.closing() => Ok(()),
    }
}

/// The response to a request; bodies of requests are not read.
pub(super) async fn respond(
    admin: &Admin,
    rendering: &Semaphore,
    method: &Method,
    path: &str,
) -> Response<Full<Bytes>> {
    if method != Method::GET && method != Method::HEAD {
        let text = format!("{method} is not allowed, only GET and HEAD are\n");
        let mut response = response(StatusCode::METHOD_NOT_ALLOWED, TEXT, text);
        response
            .headers_mut()
            .insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return response;
    }
    match path {
        "/healthz" => response(StatusCode::OK, TEXT, "ok\n"),
        "/readyz" => {
            let reasons = admin.readiness.reasons();
            match reasons.is_empty() {
                true => {
                    let lines = std::iter::once("ready".to_owned()).chain(admin.readiness.notes());
                    let body: String = lines.map(|line| line + "\n").collect();
                    response(StatusCode::OK, TEXT, body)
                }
                false => response(
                    StatusCode::SERVICE_UNAVAILABLE,
                    TEXT,
                    format!("not ready\n{}\n", reasons.join("\n")),
                ),
            }
        }
        "/metrics" => {
            let metrics = admin.metrics.clone();
            let text = render(rendering, move || metrics.encode()).await;
            match text {
                Ok(Ok(text)) => response(StatusCode::OK, OPEN_METRICS, text),
                Ok(Err(error)) => failed(&error),
                Err(error) => failed(&error),
            }
        }
        _ => match admin.page(path) {
            Some(Page(page)) => match render(rendering, move || page()).await {
                Ok(json) => response(StatusCode::OK, JSON, json),
                Err(error) => failed(&error),
            },
            None => {
                let text = format!("there is no page here, only {}\n", admin.paths().join(" "));
                response(StatusCode::NOT_FOUND, TEXT, text)
            }
        },
    }
}

/// Renders on a thread that may block: collectors wait for locks and read files of the system.
async fn render<T: Send + 'static>(
    rendering: &Semaphore,
    page: impl FnOnce() -> T + Send + 'static,
) -> anyhow::Result<T> {
    let _turn = rendering.acquire().await?;
    Ok(tokio::task::spawn_blocking(page).await?)
}

fn failed(error: &dyn std::fmt::Display) -> Response<Full<Bytes>> {
    tracing::warn!(%error, "a page of the admin listener failed");
    response(StatusCode::INTERNAL_SERVER_ERROR, TEXT, format!("{error}\n"))
}

fn response(status: StatusCode, content_type: HeaderValue, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, content_type);
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
