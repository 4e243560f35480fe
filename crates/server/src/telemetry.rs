//! Structured logs.

use std::io::IsTerminal as _;
use std::str::FromStr;

use anyhow::{Context as _, anyhow};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::FmtSpan;

/// How logs are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// Lines for people.
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

/// What a service logs unless it is told otherwise.
pub const DEFAULT_FILTER: &str = "info";

/// The engine below the row store tells at every flush what it does; `filter` may ask for it.
const QUIET: &str = "fjall=warn,lsm_tree=warn";

/// Writes logs to standard error from now on.
///
/// `filter` is in the form of `tracing`: `info`, `warn,data_service=debug`.
///
/// # Errors
///
/// If the filter cannot be read, or logs are written already.
pub fn init(filter: &str, format: LogFormat) -> anyhow::Result<()> {
    let directives = format!("{QUIET},{filter}");
    let filter = EnvFilter::try_new(directives).with_context(|| format!("`{filter}` is not a log filter"))?;
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_span_events(FmtSpan::NONE)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr);
    match format {
        LogFormat::Text => subscriber.try_init(),
        LogFormat::Json => subscriber.json().flatten_event(true).try_init(),
    }
    .map_err(|error| anyhow!("logs are written already: {error}"))
}
