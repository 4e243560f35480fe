//! Structured logs, the access log, and traces.

mod record;
mod settings;
mod traces;

use std::io::IsTerminal as _;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use opentelemetry_sdk::trace::SdkTracerProvider;
use tracing_appender::non_blocking::{NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::filter::{FilterExt as _, filter_fn};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer as _, Registry};

pub use self::record::{Observed, RequestRecord, called_by, in_request, propagate, transferred, used};
pub(crate) use self::record::{Observer, Request};
pub use self::settings::{AccessLog, TelemetrySettings};
pub use self::traces::SPANS;
pub(crate) use self::traces::spans;
use crate::ServerArgs;

/// The format of logs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// Lines of text.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

impl FromStr for LogFormat {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "text" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            other => Err(format!(
                "`{other}` is not a log format, expected `text` or `json`"
            )),
        }
    }
}

/// The default filter of services.
pub const DEFAULT_FILTER: &str = "info";

/// The engine of the row store logs every flush at level info; a filter can enable it. The exporter of traces logs each
/// failed message.
const QUIET: &str =
    "fjall=warn,lsm_tree=warn,opentelemetry=warn,opentelemetry_sdk=warn,opentelemetry-otlp=warn";

/// Lines that wait to be written. More are dropped: a log that cannot be written must not hold up requests.
const MAX_LINES: usize = 16_384;

/// How long the end of a program waits for the collector of traces.
const LAST_SPANS: Duration = Duration::from_secs(3);

/// Writes logs and sends spans until it is dropped.
#[derive(Debug)]
pub struct Telemetry {
    provider: Option<SdkTracerProvider>,
    _lines: WorkerGuard,
}

impl Drop for Telemetry {
    fn drop(&mut self) {
        if let Some(provider) = &self.provider
            && let Err(error) = provider.shutdown_with_timeout(LAST_SPANS)
        {
            tracing::warn!(%error, "the last spans were not sent to the collector of traces");
        }
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

fn start(
    filter: &str,
    format: LogFormat,
    traces: Option<(SdkTracerProvider, opentelemetry_sdk::trace::SdkTracer)>,
) -> anyhow::Result<Telemetry> {
    let directives = format!("{QUIET},{filter}");
    let filter = EnvFilter::try_new(directives).with_context(|| format!("`{filter}` is not a log filter"))?;
    let (lines, guard) = NonBlockingBuilder::default()
        .lossy(true)
        .buffered_lines_limit(MAX_LINES)
        .finish(std::io::stderr());
    let is_span = |metadata: &tracing::Metadata<'_>| metadata.target() == SPANS;
    let log = tracing_subscriber::fmt::layer()
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(lines);
    let log = match format {
        LogFormat::Text => log.boxed(),
        LogFormat::Json => log.json().flatten_event(true).boxed(),
    };
    let log = log.with_filter(filter.and(filter_fn(move |metadata| !is_span(metadata))));
    let (provider, tracer) = traces.unzip();
    let spans = tracer.map(|tracer| {
        tracing_opentelemetry::layer()
            .with_tracer(tracer)
            .with_location(false)
            .with_threads(false)
            .with_tracked_inactivity(false)
            .with_filter(filter_fn(is_span))
    });
    Registry::default()
        .with(log)
        .with(spans)
        .try_init()
        .map_err(|error| anyhow!("logs are written already: {error}"))?;
    Ok(Telemetry {
        provider,
        _lines: guard,
    })
}
