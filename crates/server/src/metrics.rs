//! The metrics of a process, in the text format of Prometheus (OpenMetrics 1.0).
//!
//! Requests are counted where they are served ([`Requests`]). Parts that count by themselves, such as pools, caches
//! and stores, are read when metrics are: they add a function that reports [`Figures`].
//!
//! Names begin with `oxtsdb_`, except the `process_` names that all programs share. Labels have few values:
//! no names of series, clients or queries.

mod access;
mod figures;
mod gateways;
mod memory;
mod process;
mod requests;

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use prometheus_client::encoding::text;
use prometheus_client::registry::Registry;

use self::figures::FigureCollector;
pub use self::figures::Figures;
use self::process::ProcessCollector;
pub use self::requests::{RequestTimer, Requests};
use crate::connections::ConnectionCounts;
pub use crate::protocol::Protocol;
use crate::telemetry;
use crate::tls::Tls;

/// The prefix of names.
const PREFIX: &str = "oxtsdb";

/// The metrics of a process. Clones share them.
#[derive(Clone)]
pub struct Metrics(Arc<Inner>);

/// A name, and the connections of a listener.
type Listener = (&'static str, Arc<ConnectionCounts>);

struct Inner {
    registry: Mutex<Registry>,
    requests: Requests,
    connections: Arc<Mutex<Vec<Listener>>>,
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Metrics")
    }
}

impl Default for Metrics {
    fn default() -> Self {
        let requests = Requests::default();
        let mut registry = Registry::default();
        registry.register_collector(Box::new(ProcessCollector::default()));
        requests.register(registry.sub_registry_with_prefix(PREFIX));
        let connections = Arc::<Mutex<Vec<Listener>>>::default();
        let metrics = Self(Arc::new(Inner {
            registry: Mutex::new(registry),
            requests,
            connections: Arc::clone(&connections),
        }));
        metrics.collect(move |figures| report_connections(figures, &connections.lock()));
        metrics.collect(|figures| {
            let help = "Spans that were sent to the collector of traces, or could not be";
            figures.counter_by("trace_spans", help, "result", telemetry::spans());
            let help = "Lines of the log that were dropped, because it could not be written fast enough";
            figures.counter("log_lines_dropped", help, telemetry::dropped_lines());
        });
        metrics
    }
}

impl Metrics {
    /// Counts requests.
    pub fn requests(&self) -> &Requests {
        &self.0.requests
    }

    /// Adds a function that reports figures whenever metrics are read. Another function must not report the same
    /// names.
    pub fn collect(&self, report: impl Fn(&mut Figures<'_>) + Send + Sync + 'static) {
        let mut registry = self.0.registry.lock();
        registry
            .sub_registry_with_prefix(PREFIX)
            .register_collector(Box::new(FigureCollector::new(report)));
    }

    /// Adds the expiry of the server's certificate, if it has one.
    pub(crate) fn collect_tls(&self, tls: Option<Tls>) {
        self.collect(move |figures| {
            let not_after = tls.as_ref().and_then(Tls::not_after);
            if let Some(seconds) = not_after.and_then(|seconds| u64::try_from(seconds).ok()) {
                let help =
                    "When a certificate of the server's chain expires first, in seconds since the epoch";
                figures.gauge("tls_certificate_not_after_seconds", help, seconds);
            }
        });
    }

    /// Adds metrics that count by themselves.
    pub fn register(&self, register: impl FnOnce(&mut Registry)) {
        let mut registry = self.0.registry.lock();
        register(registry.sub_registry_with_prefix(PREFIX));
    }

    /// Adds the connections of a listener.
    pub fn add_connections(&self, listener: &'static str, counts: Arc<ConnectionCounts>) {
        self.0.connections.lock().push((listener, counts));
    }

    /// All metrics as text.
    ///
    /// # Errors
    ///
    /// A metric cannot be rendered.
    pub fn encode(&self) -> Result<String, fmt::Error> {
        let mut text = String::new();
        text::encode(&mut text, &self.0.registry.lock())?;
        Ok(text)
    }
}

fn report_connections(figures: &mut Figures<'_>, listeners: &[Listener]) {
    use std::sync::atomic::{AtomicU64, Ordering};
    let of = |count: fn(&ConnectionCounts) -> &AtomicU64| {
        let listeners = listeners.iter();
        listeners.map(move |(name, counts)| (*name, count(counts).load(Ordering::Relaxed)))
    };
    figures.gauge_by(
        "connections",
        "Open connections",
        "listener",
        of(|counts| &counts.open),
    );
    figures.gauge_by(
        "connections_limit",
        "Most connections, by the listener's limit and by descriptors",
        "listener",
        of(|counts| &counts.limit),
    );
    figures.counter_by(
        "connections_accepted",
        "Connections that were admitted",
        "listener",
        of(|counts| &counts.accepted),
    );
    figures.counter_by(
        "connections_rejected",
        "Connections that were rejected, because all others were busy and their address had its share",
        "listener",
        of(|counts| &counts.refused),
    );
    figures.counter_by(
        "connections_evicted",
        "Idle connections that were closed to admit another one",
        "listener",
        of(|counts| &counts.evicted),
    );
    figures.counter_by(
        "connections_displaced",
        "Busy connections of the address with the most that were closed to admit one of another address",
        "listener",
        of(|counts| &counts.displaced),
    );
    figures.counter_by(
        "connections_flooded",
        "Connections that were closed for a flood of HTTP/2's control frames",
        "listener",
        of(|counts| &counts.flooded),
    );
    figures.counter_by(
        "tls_handshakes_failed",
        "Handshakes of TLS that failed",
        "listener",
        of(|counts| &counts.tls_failed),
    );
    figures.counter_by(
        "tls_mismatches",
        "Clients without TLS on a port with it, or the reverse",
        "listener",
        of(|counts| &counts.tls_mismatched),
    );
}

#[cfg(test)]
mod tests;
