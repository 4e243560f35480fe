//! The record of a request when it has ended: a line of the access log, and the span of its trace.
//!
//! A front end begins a [`RequestRecord`] with the head of a request and ends it with the response. Code that runs for
//! the request meanwhile adds the amounts that it read and wrote ([`used`]), within [`RequestRecord::scope`]; a spawned
//! task inherits the scope by [`in_request`].

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, Bytes};
use http::{HeaderMap, HeaderName, HeaderValue};
use hyper::body::{Body, Frame, SizeHint};
use tracing::{Instrument as _, Span, field, info, info_span};

use super::settings::{AccessLog, TelemetrySettings};
use super::traces;
use crate::protocol::Protocol;

/// The header with the id of a request.
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The longest id that a client may send.
const MAX_ID: usize = 128;

tokio::task_local! {
    static CURRENT: RequestRecord;
}

/// The settings for records of requests.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Observer {
    log: AccessLog,
    slow: Duration,
}

/// The head of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request<'a> {
    pub(crate) protocol: Protocol,
    pub(crate) method: &'static str,
    pub(crate) headers: Option<&'a HeaderMap>,
    pub(crate) peer: Option<SocketAddr>,
}

impl Observer {
    pub(crate) fn new(settings: &TelemetrySettings) -> Self {
        Self {
            log: settings.access_log,
            slow: settings.slow(),
        }
    }

    /// Begins the record of a request; `None` without access log and traces.
    pub(crate) fn begin(self, request: Request<'_>) -> Option<RequestRecord> {
        if self.log == AccessLog::Off && !traces::is_on() {
            return None;
        }
        let Request {
            protocol,
            method,
            headers,
            peer,
        } = request;
        let sent = headers.and_then(|headers| headers.get(&REQUEST_ID)?.to_str().ok());
        let is_valid =
            |id: &&str| (1..=MAX_ID).contains(&id.len()) && id.bytes().all(|b| b.is_ascii_graphic());
        let id = match sent.filter(is_valid) {
            Some(id) => id.to_owned(),
            None => format!("{:032x}", rand::random::<u128>()),
        };
        let span = match protocol {
            Protocol::Grpc => {
                let (service, name) = method.split_once('/').unwrap_or(("", method));
                info_span!(
                    target: traces::SPANS,
                    "grpc",
                    otel.name = method,
                    otel.kind = "server",
                    otel.status_code = field::Empty,
                    rpc.system = "grpc",
                    rpc.service = service,
                    rpc.method = name,
                    rpc.grpc.status_code = field::Empty,
                    request.id = id,
                    rows = field::Empty,
                    points = field::Empty,
                )
            }
            // A connection, which may stay for days.
            Protocol::Telnet => Span::none(),
            Protocol::Http => info_span!(
                target: traces::SPANS,
                "http",
                otel.name = method,
                otel.kind = "server",
                otel.status_code = field::Empty,
                http.route = method,
                http.response.status_code = field::Empty,
                request.id = id,
                rows = field::Empty,
                points = field::Empty,
            ),
        };
        if let Some(headers) = headers {
            traces::continue_trace(&span, headers);
        }
        Some(RequestRecord(Arc::new(Record {
            observer: self,
            id,
            peer,
            span,
            caller: OnceLock::new(),
            bytes_in: AtomicU64::new(0),
            bytes_out: AtomicU64::new(0),
            rows: AtomicU64::new(0),
            points: AtomicU64::new(0),
        })))
    }
}

/// The record of a request that is being served. Clones share it.
#[derive(Clone, Debug)]
pub struct RequestRecord(Arc<Record>);

#[derive(Debug)]
struct Record {
    observer: Observer,
    id: String,
    peer: Option<SocketAddr>,
    span: Span,
    caller: OnceLock<String>,
    bytes_in: AtomicU64,
    bytes_out: AtomicU64,
    rows: AtomicU64,
    points: AtomicU64,
}

/// Adds rows and points that the current request has read or written.
pub fn used(rows: u64, points: u64) {
    // There is no record outside of requests, and none without access log and traces.
    let _ = CURRENT.try_with(|record| {
        record.0.rows.fetch_add(rows, Ordering::Relaxed);
        record.0.points.fetch_add(points, Ordering::Relaxed);
    });
}

/// Adds bytes of the current request that are in no body.
pub fn transferred(received: usize, sent: usize) {
    let _ = CURRENT.try_with(|record| {
        record.0.bytes_in.fetch_add(received as u64, Ordering::Relaxed);
        record.0.bytes_out.fetch_add(sent as u64, Ordering::Relaxed);
    });
}

/// Sets the caller of the current request.
pub fn called_by(caller: &impl ToString) {
    let _ = CURRENT.try_with(|record| record.0.caller.set(caller.to_string()));
}

/// A future that runs for the current request, also in a task of its own.
pub fn in_request<F: Future>(future: F) -> impl Future<Output = F::Output> {
    let record = CURRENT.try_with(Clone::clone).ok();
    let future = future.in_current_span();
    async move {
        match record {
            Some(record) => CURRENT.scope(record, future).await,
            None => future.await,
        }
    }
}

/// Adds the id and the trace of the current request to the headers of a call to another service.
pub fn propagate(headers: &mut HeaderMap) {
    traces::propagate(headers);
    let id = CURRENT.try_with(|record| HeaderValue::try_from(&record.0.id));
    if let Ok(Ok(id)) = id {
        headers.insert(REQUEST_ID, id);
    }
}

impl RequestRecord {
    /// Runs what serves the request.
    pub fn scope<F: Future>(&self, future: F) -> impl Future<Output = F::Output> + use<F> {
        CURRENT.scope(self.clone(), future.instrument(self.0.span.clone()))
    }

    pub(crate) fn enter<T>(&self, run: impl FnOnce() -> T) -> T {
        CURRENT.sync_scope(self.clone(), || self.0.span.in_scope(run))
    }

    /// Returns the id of the request to its client.
    pub fn add_id(&self, headers: &mut HeaderMap) {
        if let Ok(id) = HeaderValue::try_from(&self.0.id) {
            headers.insert(REQUEST_ID, id);
        }
    }

    /// The body of the request, with its bytes counted.
    pub fn received<B>(&self, body: B) -> Observed<B> {
        Observed {
            body,
            record: Some((self.clone(), Direction::In)),
        }
    }

    /// The body of the response, with its bytes counted. Polling it runs within the request's scope.
    pub fn sent<B>(&self, body: B) -> Observed<B> {
        Observed {
            body,
            record: Some((self.clone(), Direction::Out)),
        }
    }

    /// Ends the record of a telnet connection.
    pub fn end_connection(&self, is_ok: bool, took: Duration) {
        let code = if is_ok { "ok" } else { "failed" };
        self.end(Protocol::Telnet, "connection", code, took);
    }

    /// Ends the record.
    pub(crate) fn end(&self, protocol: Protocol, method: &'static str, code: &str, took: Duration) {
        let record = &*self.0;
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let failed = match protocol {
            Protocol::Grpc => code != "OK",
            Protocol::Http => !matches!(code.as_bytes().first(), Some(b'1'..=b'3')),
            Protocol::Telnet => code != "ok",
        };
        let span = &record.span;
        if !span.is_disabled() {
            let code_field = match protocol {
                Protocol::Grpc => "rpc.grpc.status_code",
                _ => "http.response.status_code",
            };
            span.record(code_field, code);
            span.record("rows", load(&record.rows));
            span.record("points", load(&record.points));
            // Errors of callers are no errors of the server.
            let is_of_server = match protocol {
                Protocol::Grpc => matches!(
                    code,
                    "UNKNOWN"
                        | "INTERNAL"
                        | "UNAVAILABLE"
                        | "DATA_LOSS"
                        | "DEADLINE_EXCEEDED"
                        | "UNIMPLEMENTED"
                ),
                _ => code.starts_with('5'),
            };
            if is_of_server {
                span.record("otel.status_code", "ERROR");
            }
        }
        let is_logged = match record.observer.log {
            AccessLog::Off => false,
            AccessLog::Errors => failed,
            AccessLog::Slow => failed || (protocol != Protocol::Telnet && took >= record.observer.slow),
            AccessLog::All => true,
        };
        if is_logged {
            info!(
                target: "access",
                protocol = protocol.name(),
                method,
                code,
                caller = record.caller.get().map_or("anonymous", String::as_str),
                peer = record.peer.map(field::display),
                duration_ms = took.as_secs_f64() * 1000.0,
                bytes_in = load(&record.bytes_in),
                bytes_out = load(&record.bytes_out),
                rows = load(&record.rows),
                points = load(&record.points),
                request_id = record.id,
                trace_id = traces::trace_id(span).map(field::display),
                "request"
            );
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Direction {
    In,
    Out,
}

/// A body that counts its bytes in a record, if there is one.
#[derive(Debug)]
pub struct Observed<B> {
    body: B,
    record: Option<(RequestRecord, Direction)>,
}

impl<B> Observed<B> {
    /// A body without counting.
    pub fn unobserved(body: B) -> Self {
        Self { body, record: None }
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for Observed<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let Self { body, record } = &mut *self;
        let Some((record, direction)) = record else {
            return Pin::new(body).poll_frame(context);
        };
        let polled = match direction {
            Direction::In => Pin::new(body).poll_frame(context),
            Direction::Out => record.enter(|| Pin::new(body).poll_frame(context)),
        };
        if let Poll::Ready(Some(Ok(frame))) = &polled
            && let Some(data) = frame.data_ref()
        {
            let count = match direction {
                Direction::In => &record.0.bytes_in,
                Direction::Out => &record.0.bytes_out,
            };
            count.fetch_add(data.remaining() as u64, Ordering::Relaxed);
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
