//! Traces: spans of `tracing` with the target [`SPANS`] are sent to a collector (OpenTelemetry over gRPC).
//!
//! ```text
//!   traceparent ─► span of a request ─► spans of its stages, of UID calls (traceparent ─►), of calls to HBase
//!                  spans that ended ─► queue (bounded) ─► batches ─► collector
//! ```
//!
//! Without a collector no layer is interested in these spans, and they cost a check of a flag. A queue that is full
//! drops spans; a collector that does not respond costs nothing else.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use http::HeaderMap;
use opentelemetry::propagation::{Extractor, Injector, TextMapPropagator as _};
use opentelemetry::trace::{TraceContextExt as _, TracerProvider as _};
use opentelemetry::{Context, KeyValue};
use opentelemetry_otlp::{SpanExporter, WithExportConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{
    BatchConfigBuilder, BatchSpanProcessor, Sampler, SdkTracer, SdkTracerProvider, SpanData,
};
use tracing::{Span, info, warn};
use tracing_opentelemetry::OpenTelemetrySpanExt as _;

use super::TelemetrySettings;

/// The target of spans that are parts of traces.
pub const SPANS: &str = "oxtsdb::trace";

/// Spans that wait to be sent, about 1 KiB each.
const MAX_QUEUED: usize = 8192;

/// Spans of a message to the collector.
const MAX_BATCH: usize = 512;

/// How long the collector may take for a message.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(5);

/// The pause between two messages.
const EXPORT_INTERVAL: Duration = Duration::from_secs(1);

/// Whether there is a collector.
static IS_ON: AtomicBool = AtomicBool::new(false);

/// Spans that the collector accepted, and spans of messages that failed.
static EXPORTED: AtomicU64 = AtomicU64::new(0);
static FAILED: AtomicU64 = AtomicU64::new(0);

/// Whether requests are traced.
pub(crate) fn is_on() -> bool {
    IS_ON.load(Ordering::Relaxed)
}

/// Spans by what became of them.
pub(crate) fn spans() -> [(&'static str, u64); 2] {
    [
        ("exported", EXPORTED.load(Ordering::Relaxed)),
        ("failed", FAILED.load(Ordering::Relaxed)),
    ]
}

/// Starts to send spans, within a Tokio runtime.
pub(super) fn start(
    service: &'static str,
    endpoint: &str,
    settings: &TelemetrySettings,
) -> anyhow::Result<(SdkTracerProvider, SdkTracer)> {
    let exporter = SpanExporter::builder()
        .with_tonic()
        .with_endpoint(endpoint)
        .with_timeout(EXPORT_TIMEOUT)
        .build()
        .context("--otlp-endpoint")?;
    let batches = BatchConfigBuilder::default()
        .with_max_queue_size(MAX_QUEUED)
        .with_max_export_batch_size(MAX_BATCH)
        .with_scheduled_delay(EXPORT_INTERVAL)
        .build();
    let counted = Counted {
        exporter,
        fails: AtomicBool::new(false),
    };
    let processor = BatchSpanProcessor::builder(counted)
        .with_batch_config(batches)
        .build();
    let instance = format!("{:016x}", rand::random::<u64>());
    let resource = Resource::builder()
        .with_service_name(service)
        .with_attribute(KeyValue::new("service.namespace", "oxtsdb"))
        .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
        .with_attribute(KeyValue::new("service.instance.id", instance))
        .build();
    let ratio = Sampler::TraceIdRatioBased(settings.trace_sample_ratio);
    let provider = SdkTracerProvider::builder()
        .with_span_processor(processor)
        .with_sampler(Sampler::ParentBased(Box::new(ratio)))
        .with_resource(resource)
        .build();
    let tracer = provider.tracer("oxtsdb");
    IS_ON.store(true, Ordering::Relaxed);
    Ok((provider, tracer))
}

/// Counts what becomes of spans.
#[derive(Debug)]
struct Counted {
    exporter: SpanExporter,
    /// The last message failed.
    fails: AtomicBool,
}

impl opentelemetry_sdk::trace::SpanExporter for Counted {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let spans = batch.len() as u64;
        let exported = self.exporter.export(batch).await;
        let count = if exported.is_ok() { &EXPORTED } else { &FAILED };
        count.fetch_add(spans, Ordering::Relaxed);
        // A line when it begins and when it ends, not one for each message.
        match (&exported, self.fails.swap(exported.is_err(), Ordering::Relaxed)) {
            (Err(error), false) => warn!(%error, "the collector of traces does not take spans"),
            (Ok(()), true) => info!("the collector of traces takes spans again"),
            _ => {}
        }
        exported
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.exporter.shutdown_with_timeout(timeout)
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.exporter.force_flush()
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.exporter.set_resource(resource);
    }
}

/// Makes a span a child of the one in the headers of a request (`traceparent`, `tracestate`).
pub(crate) fn continue_trace(span: &Span, headers: &HeaderMap) {
    let context = TraceContextPropagator::new().extract_with_context(&Context::new(), &Headers(headers));
    // Fails only for a span that is not traced.
    let _ = span.set_parent(context);
}

/// The id of a span's trace; `None` if the collector does not get it.
pub(crate) fn trace_id(span: &Span) -> Option<String> {
    let context = span.context();
    let span = context.span();
    let context = span.span_context();
    context.is_sampled().then(|| context.trace_id().to_string())
}

/// Adds the current span to the headers of a request to another service.
pub(crate) fn propagate(headers: &mut HeaderMap) {
    if is_on() {
        TraceContextPropagator::new().inject_context(&Span::current().context(), &mut HeadersMut(headers));
    }
}

struct Headers<'a>(&'a HeaderMap);

impl Extractor for Headers<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key)?.to_str().ok()
    }

    fn keys(&self) -> Vec<&str> {
        self.0.keys().map(http::HeaderName::as_str).collect()
    }
}

struct HeadersMut<'a>(&'a mut HeaderMap);

impl Injector for HeadersMut<'_> {
    fn set(&mut self, key: &str, value: String) {
        if let (Ok(name), Ok(value)) = (
            http::HeaderName::try_from(key),
            http::HeaderValue::try_from(value),
        ) {
            self.0.insert(name, value);
        }
    }
}
