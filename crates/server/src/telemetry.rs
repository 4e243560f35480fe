//! Structured logs, the access log, and traces.

mod lines;
mod record;
mod settings;
mod traces;

use std::io::IsTerminal as _;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider};
use tracing::{Dispatch, Subscriber};
use tracing_appender::non_blocking::{NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::filter::{FilterExt as _, LevelFilter, filter_fn};
use tracing_subscriber::layer::{Filter, SubscriberExt as _};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer, Registry};

pub(crate) use self::lines::dropped_lines;
use self::lines::{DROPPED, Lines};
pub use self::record::{Observed, RequestRecord, called_by, in_request, propagate, transferred, used};
pub(crate) use self::record::{Observer, Request};
pub use self::settings::{AccessLog, LogFormat, TelemetrySettings};
pub use self::traces::SPANS;
pub(crate) use self::traces::spans;
use crate::ServerArgs;

/// The default filter of services.
pub const DEFAULT_FILTER: &str = "info";

/// Libraries that log much at level info; a filter can enable it.
const QUIET: &str = "opentelemetry=warn,opentelemetry_sdk=warn,opentelemetry-otlp=warn";

/// Lines that wait to be written. More are dropped: a log that cannot be written must not hold up requests.
const MAX_LINES: usize = 16_384;

/// The event of each message that the collector of traces did not take; [`traces`] logs when that begins and ends.
const EXPORT_ERROR: &str = "BatchSpanProcessor.ExportError";

/// How long the end of a program waits for the collector of traces.
const LAST_SPANS: Duration = Duration::from_secs(3);

/// How long it waits for lines to be written.
const LAST_LINES: Duration = Duration::from_secs(2);

/// Writes logs and sends spans until it is dropped.
#[derive(Debug)]
pub struct Telemetry {
    provider: Option<SdkTracerProvider>,
    /// Writes the lines that wait when it is dropped.
    lines: Option<WorkerGuard>,
}

impl Drop for Telemetry {
    fn drop(&mut self) {
        if let Some(provider) = &self.provider
            && let Err(error) = provider.shutdown_with_timeout(LAST_SPANS)
        {
            tracing::warn!(%error, "the last spans were not sent to the collector of traces");
        }
        // On a thread of its own: where standard error is not read any more, this blocks.
        let lines = self.lines.take();
        let (written, ended) = mpsc::channel();
        thread::spawn(move || {
            drop(lines);
            let _ = written.send(());
        });
        // After that the lines are lost.
        let _ = ended.recv_timeout(LAST_LINES);
    }
}

/// Starts to write logs to standard error.
///
/// `filter` is in the form of `tracing`: `info`, `warn,data_service=debug`.
///
/// # Errors
///
/// The filter is not valid, or logs were initialized before.
pub fn init(filter: &str, format: LogFormat) -> anyhow::Result<Telemetry> {
    start(filter, format, None)
}

/// Starts to write logs, and to send spans of the service to a collector if the settings name one. Must be called within
/// a Tokio runtime.
///
/// # Errors
///
/// As [`init`]; a setting is not valid.
pub fn init_service(service: &'static str, filter: &str, args: &ServerArgs) -> anyhow::Result<Telemetry> {
    let settings = &args.telemetry;
    settings.check()?;
    let traces = match &settings.otlp_endpoint {
        Some(endpoint) => Some(traces::start(service, endpoint, settings)?),
        None => None,
    };
    start(filter, args.program.log_format, traces)
}

/// Writes to `log`, and sends spans if there is a tracer.
///
/// Without a tracer there is no layer for it: an absent layer (`None`) enables all spans, and each would be created although
/// nothing receives it.
fn dispatch(log: impl Layer<Registry> + Send + Sync, tracer: Option<SdkTracer>) -> Dispatch {
    let registry = Registry::default().with(log);
    let Some(tracer) = tracer else {
        return registry.into();
    };
    let spans = tracing_opentelemetry::layer()
        .with_tracer(tracer)
        .with_location(false)
        .with_threads(false)
        .with_tracked_inactivity(false)
        .with_filter(filter_fn(is_span).with_max_level_hint(LevelFilter::INFO));
    registry.with(spans).into()
}

fn is_span(metadata: &tracing::Metadata<'_>) -> bool {
    metadata.target() == SPANS
}

/// The events of the log: all that `filter` enables, except spans and the errors that [`traces`] logs.
///
/// Its highest level is known, so that spans and events of libraries above that level cost a comparison.
fn logged<S: Subscriber + for<'s> LookupSpan<'s>>(filter: EnvFilter) -> impl Filter<S> {
    let is_logged = |metadata: &tracing::Metadata<'_>| !is_span(metadata) && metadata.name() != EXPORT_ERROR;
    filter.and(filter_fn(is_logged).with_max_level_hint(LevelFilter::TRACE))
}

fn start(
    filter: &str,
    format: LogFormat,
    traces: Option<(SdkTracerProvider, SdkTracer)>,
) -> anyhow::Result<Telemetry> {
    let directives = format!("{QUIET},{filter}");
    let filter = EnvFilter::try_new(directives).with_context(|| format!("`{filter}` is not a log filter"))?;
    let (lines, guard) = NonBlockingBuilder::default()
        .lossy(true)
        .buffered_lines_limit(MAX_LINES)
        .finish(std::io::stderr());
    // Set before only by an initialization that the next lines reject.
    let _ = DROPPED.set(lines.error_counter());
    let has_colours = std::io::stderr().is_terminal();
    let log = tracing_subscriber::fmt::layer()
        .with_ansi(has_colours)
        .with_writer(Lines::new(lines, format, has_colours));
    let log = match format {
        LogFormat::Text => log.boxed(),
        LogFormat::Json => log.json().flatten_event(true).boxed(),
    };
    let (provider, tracer) = traces.unzip();
    dispatch(log.with_filter(logged(filter)), tracer)
        .try_init()
        .map_err(|error| anyhow!("logs are written already: {error}"))?;
    Ok(Telemetry {
        provider,
        lines: Some(guard),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_level_of_the_log_is_the_filters() {
        for (filter, level) in [
            ("info", LevelFilter::INFO),
            ("warn,data_service=debug", LevelFilter::DEBUG),
        ] {
            let logged = logged::<Registry>(EnvFilter::new(filter));
            assert_eq!(logged.max_level_hint(), Some(level), "{filter}");
        }
    }

    #[test]
    fn without_a_collector_there_are_no_spans() {
        let log = || tracing_subscriber::fmt::layer().with_filter(logged(EnvFilter::new("info")));
        let is_made = |dispatch: Dispatch| {
            tracing::dispatcher::with_default(&dispatch, || {
                !tracing::info_span!(target: SPANS, "scan").is_disabled()
            })
        };
        assert!(!is_made(dispatch(log(), None)));
        let provider = SdkTracerProvider::builder().build();
        let tracer = opentelemetry::trace::TracerProvider::tracer(&provider, "test");
        assert!(is_made(dispatch(log(), Some(tracer))));
    }
}
