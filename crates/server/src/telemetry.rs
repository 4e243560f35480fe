//! Structured logs.

use std::io::IsTerminal as _;
use std::str::FromStr;

use anyhow::{Context as _, anyhow};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::FmtSpan;

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

/// The engine of the row store logs every flush at level info; a filter can enable it.
const QUIET: &str = "fjall=warn,lsm_tree=warn";

/// Starts to write logs to standard error.
///
/// `filter` is in the form of `tracing`: `info`, `warn,data_service=debug`.
///
/// # Errors
///
/// The filter is not valid, or logs were initialized before.
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
