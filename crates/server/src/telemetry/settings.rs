//! Settings of logs, of the access log and of traces.

use std::str::FromStr;
use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::settings::{SettingError, in_range};

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

/// Which requests the access log has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum AccessLog {
    /// None.
    #[default]
    Off,
    /// Those that failed.
    Errors,
    /// Those that failed or took long.
    Slow,
    /// All.
    All,
}

/// The access log, and traces of requests.
#[derive(Clone, Debug, PartialEq, Args)]
#[command(next_help_heading = "Telemetry")]
pub struct TelemetrySettings {
    /// Requests that are logged when they have ended, a line each: off, errors (those that failed), slow (those too
    /// that took long) or all. Of telnet it has connections
    #[arg(
        long,
        env = "OXTSDB_ACCESS_LOG",
        value_name = "off|errors|slow|all",
        default_value = "off"
    )]
    pub access_log: AccessLog,

    /// Time from which a request is slow, milliseconds
    #[arg(long, env = "OXTSDB_ACCESS_LOG_SLOW_MS", value_name = "MS", default_value_t = Self::default().access_log_slow_ms)]
    pub access_log_slow_ms: u64,

    /// Collector of traces, OpenTelemetry over gRPC, for example http://127.0.0.1:4317. Unset: no traces
    #[arg(long, env = "OXTSDB_OTLP_ENDPOINT", value_name = "URL")]
    pub otlp_endpoint: Option<String>,

    /// Part of the requests without a trace context (`traceparent`) that are traced, 0 to 1. With a context, it decides
    #[arg(long, env = "OXTSDB_TRACE_SAMPLE_RATIO", value_name = "RATIO", default_value_t = Self::default().trace_sample_ratio)]
    pub trace_sample_ratio: f64,
}

impl Default for TelemetrySettings {
    fn default() -> Self {
        Self {
            access_log: AccessLog::Off,
            access_log_slow_ms: 1000,
            otlp_endpoint: None,
            trace_sample_ratio: 1.0,
        }
    }
}

impl TelemetrySettings {
    pub(super) fn check(&self) -> Result<(), SettingError> {
        in_range("--trace-sample-ratio", self.trace_sample_ratio, 0.0, 1.0)?;
        if let Some(url) = &self.otlp_endpoint {
            let given = http::Uri::try_from(url.as_str()).ok();
            let is_valid =
                given.is_some_and(|uri| uri.scheme_str() == Some("http") && uri.authority().is_some());
            if !is_valid {
                let rule =
                    "expected http://HOST:PORT; a collector elsewhere is reached through one on this machine";
                return Err(SettingError::new(
                    "--otlp-endpoint",
                    format_args!("`{url}`"),
                    rule,
                ));
            }
        }
        Ok(())
    }

    /// The time from which a request is slow.
    pub(crate) fn slow(&self) -> Duration {
        Duration::from_millis(self.access_log_slow_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_values_are_named() {
        let check = |change: fn(&mut TelemetrySettings)| {
            let mut settings = TelemetrySettings::default();
            change(&mut settings);
            settings.check().map_err(|error| error.to_string())
        };
        assert_eq!(check(|_| {}), Ok(()));
        assert_eq!(
            check(|s| s.otlp_endpoint = Some("http://127.0.0.1:4317".into())),
            Ok(())
        );
        for (url, is_named) in [
            ("localhost:4317", "`localhost:4317`"),
            ("https://a:1", "`https://a:1`"),
        ] {
            let settings = TelemetrySettings {
                otlp_endpoint: Some(url.to_owned()),
                ..TelemetrySettings::default()
            };
            let error = settings.check().unwrap_err().to_string();
            assert!(
                error.starts_with("--otlp-endpoint") && error.contains(is_named),
                "{error}"
            );
        }
        assert_eq!(
            check(|s| s.trace_sample_ratio = 1.5),
            Err("--trace-sample-ratio 1.5: expected 0 to 1".to_owned())
        );
    }
}
