//! Requests by protocol, method and code, and how long they take.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use http::HeaderMap;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use crate::protocol::Protocol;
use crate::telemetry::{Observer, Request, RequestRecord, TelemetrySettings};

/// Upper bounds of latencies, in seconds; streams may last longer.
const BUCKETS: [f64; 14] = [
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0,
];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Method {
    protocol: Protocol,
    method: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct MethodAndCode {
    protocol: Protocol,
    method: &'static str,
    code: Cow<'static, str>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Reason {
    reason: &'static str,
    setting: String,
}

/// Counts requests. Clones share the counts.
#[derive(Clone, Debug)]
pub struct Requests {
    handled: Family<MethodAndCode, Counter>,
    seconds: Family<Method, Histogram, fn() -> Histogram>,
    in_flight: Family<Method, Gauge>,
    errors: Family<Reason, Counter>,
    observer: Arc<OnceLock<Observer>>,
}

impl Default for Requests {
    fn default() -> Self {
        Self {
            handled: Family::default(),
            seconds: Family::new_with_constructor(|| Histogram::new(BUCKETS)),
            in_flight: Family::default(),
            errors: Family::default(),
            observer: Arc::default(),
        }
    }
}

impl Requests {
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register(
            "requests",
            "Requests that have ended, by their codes; of telnet: lines",
            self.handled.clone(),
        );
        registry.register(
            "request_seconds",
            "Time from the head of a request to the end of its response; of telnet: of a batch of lines",
            self.seconds.clone(),
        );
        registry.register(
            "requests_in_flight",
            "Requests and streams that are being served",
            self.in_flight.clone(),
        );
        registry.register(
            "errors",
            "gRPC errors by their reasons, with the setting of the limit that was exceeded",
            self.errors.clone(),
        );
    }

    /// Begins a request. `method` must be one of few names.
    pub fn begin(&self, protocol: Protocol, method: &'static str) -> RequestTimer {
        let in_flight = self.in_flight.get_or_create_owned(&Method { protocol, method });
        in_flight.inc();
        RequestTimer {
            requests: self.clone(),
            protocol,
            method,
            code: Cow::Borrowed(protocol.cancelled()),
            begun: Instant::now(),
            in_flight,
            record: None,
        }
    }

    /// Writes the access log, and traces requests, as settings say.
    pub(crate) fn observe_by(&self, settings: &TelemetrySettings) {
        // Set once, by the program.
        let _ = self.observer.set(Observer::new(settings));
    }

    /// Begins the record of a telnet connection; `None` without access log and traces.
    pub fn connection(&self, peer: SocketAddr) -> Option<RequestRecord> {
        self.observer.get()?.begin(Request {
            protocol: Protocol::Telnet,
            method: "connection",
            headers: None,
            peer: Some(peer),
        })
    }

    /// Counts requests that have ended.
    pub fn count(&self, protocol: Protocol, method: &'static str, code: &'static str, requests: u64) {
        self.add(protocol, method, Cow::Borrowed(code), requests);
    }

    /// Counts an error of the contract; `setting` has the limit, if it is one of a limit.
    pub(crate) fn count_error(&self, reason: &'static str, setting: String) {
        self.errors.get_or_create(&Reason { reason, setting }).inc();
    }

    /// Records how long requests took.
    pub fn observe(&self, protocol: Protocol, method: &'static str, begun: Instant) {
        let seconds = self.seconds.get_or_create(&Method { protocol, method });
        seconds.observe(begun.elapsed().as_secs_f64());
    }

    fn add(&self, protocol: Protocol, method: &'static str, code: Cow<'static, str>, requests: u64) {
        let labels = MethodAndCode {
            protocol,
            method,
            code,
        };
        self.handled.get_or_create(&labels).inc_by(requests);
    }
}

/// A request that is being served. It ends when this is dropped.
#[derive(Debug)]
pub struct RequestTimer {
    requests: Requests,
    protocol: Protocol,
    method: &'static str,
    code: Cow<'static, str>,
    begun: Instant,
    in_flight: Gauge,
    record: Option<RequestRecord>,
}

impl RequestTimer {
    /// Sets the code; without one the request counts as cancelled by its client. It must be one of few.
    pub fn set_code(&mut self, code: impl Into<Cow<'static, str>>) {
        self.code = code.into();
    }

    /// Begins the record of the request, which ends with the timer; `None` without access log and traces.
    pub fn record(&mut self, headers: Option<&HeaderMap>, peer: Option<SocketAddr>) -> Option<RequestRecord> {
        let observer = *self.requests.observer.get()?;
        self.record = observer.begin(Request {
            protocol: self.protocol,
            method: self.method,
            headers,
            peer,
        });
        self.record.clone()
    }

    /// Sets the method, which was not known at the begin.
    pub fn set_method(&mut self, method: &'static str) {
        if self.method == method {
            return;
        }
        self.in_flight.dec();
        let protocol = self.protocol;
        self.method = method;
        self.in_flight = self
            .requests
            .in_flight
            .get_or_create_owned(&Method { protocol, method });
        self.in_flight.inc();
    }
}

impl Drop for RequestTimer {
    fn drop(&mut self) {
        self.in_flight.dec();
        self.requests.observe(self.protocol, self.method, self.begun);
        let code = std::mem::take(&mut self.code);
        if let Some(record) = &self.record {
            record.end(self.protocol, self.method, &code, self.begun.elapsed());
        }
        self.requests.add(self.protocol, self.method, code, 1);
    }
}
