//! Connections with clients: limits and time-outs of all protocols, and what is HTTP's or telnet's
//! alone.

use std::time::Duration;

use clap::Args;
use oxtsdb_server::settings::{SettingError, in_range};

/// Connections with clients, of all protocols.
#[derive(Clone, Debug, PartialEq, Eq, Args)]
#[command(next_help_heading = "Connections")]
pub struct ConnectionSettings {
    /// Largest gRPC message that the data service reads, MiB
    #[arg(long, env = "OXTSDB_MAX_MESSAGE_MIB", value_name = "MIB", default_value_t = Self::default().max_message_mib)]
    pub max_message_mib: usize,

    /// Connections on the HTTP and telnet port at a time. At the limit the one that has been idle the
    /// longest is closed; if all have requests in progress, new ones are rejected
    #[arg(long, env = "OXTSDB_MAX_CONNECTIONS", value_name = "COUNT", default_value_t = Self::default().max_connections)]
    pub max_connections: usize,

    /// Idle time after which a connection on the HTTP and telnet port is closed, seconds; 0: never
    /// (tsd.core.socket.timeout)
    #[arg(long, env = "OXTSDB_IDLE_TIMEOUT_SECONDS", value_name = "SECONDS", default_value_t = Self::default().idle_timeout_seconds)]
    pub idle_timeout_seconds: u64,

    /// Time in which a client has to read 64 KiB of pending data before it is disconnected, seconds; all
    /// protocols
    #[arg(long, env = "OXTSDB_CLIENT_TIMEOUT_SECONDS", value_name = "SECONDS", default_value_t = Self::default().client_timeout_seconds)]
    pub client_timeout_seconds: u64,
}

impl Default for ConnectionSettings {
    fn default() -> Self {
        Self {
            max_message_mib: 16,
            max_connections: 4096,
            idle_timeout_seconds: 300,
            client_timeout_seconds: 30,
        }
    }
}

impl ConnectionSettings {
    pub(super) fn check(&self) -> Result<(), SettingError> {
        in_range("--max-message-mib", self.max_message_mib, 1, 1024)?;
        in_range("--max-connections", self.max_connections, 1, 1 << 20)?;
        in_range("--client-timeout-seconds", self.client_timeout_seconds, 1, 86_400)
    }

    /// Largest gRPC message that the data service reads, in bytes.
    pub fn max_message_bytes(&self) -> usize {
        self.max_message_mib << 20
    }

    /// How long a connection may stay idle; `None`: without limit.
    pub fn idle_timeout(&self) -> Option<Duration> {
        (self.idle_timeout_seconds > 0).then(|| Duration::from_secs(self.idle_timeout_seconds))
    }

    /// How long a client may leave pending data unread.
    pub fn client_timeout(&self) -> Duration {
        Duration::from_secs(self.client_timeout_seconds)
    }
}

/// Memory of the pictures that `/q` serves again, in bytes: about a hundred of usual size.
pub const PICTURE_CACHE_BYTES: u64 = 4 << 20;

/// Requests and responses of HTTP.
#[derive(Clone, Debug, PartialEq, Eq, Args)]
#[command(next_help_heading = "HTTP")]
pub struct HttpSettings {
    /// Largest body of a request, decompressed, MiB
    #[arg(long, env = "OXTSDB_HTTP_MAX_BODY_MIB", value_name = "MIB", default_value_t = Self::default().http_max_body_mib)]
    pub http_max_body_mib: usize,

    /// Origins of browser pages that may call the API, separated by commas (`http://host:port`); `*`: all;
    /// empty: only pages of this server's own host. Requests of other origins are rejected with 403
    /// (tsd.http.request.cors_domains)
    #[arg(long, env = "OXTSDB_CORS_DOMAINS", value_name = "ORIGINS", default_value_t = Self::default().cors_domains)]
    pub cors_domains: String,

    /// Add the source of a stack trace to errors, as OpenTSDB does (tsd.http.show_stack_trace)
    #[arg(long, env = "OXTSDB_HTTP_SHOW_STACK_TRACE", value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", default_value_t = false, action = clap::ArgAction::Set)]
    pub http_show_stack_trace: bool,

    /// Delete the points of a query that requests it (`DELETE /api/query`, `"delete": true`), in its range
    /// (tsd.http.query.allow_delete)
    #[arg(long, env = "OXTSDB_HTTP_ALLOW_DELETE", value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", default_value_t = false, action = clap::ArgAction::Set)]
    pub http_allow_delete: bool,

    /// Leave points without a value, which the fill policies nan and null generate, out of the results of /api/query
    /// and /api/query/gexp: for clients that cannot read "NaN" or null, such as Grafana
    #[arg(long, env = "OXTSDB_HTTP_OMIT_NAN", value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", default_value_t = false, action = clap::ArgAction::Set)]
    pub http_omit_nan: bool,

    /// Send the result of a query after it is complete, so that every error decides the status. Otherwise
    /// results of more than 256 KiB begin earlier, and an error that comes later closes the connection
    #[arg(long, env = "OXTSDB_HTTP_BUFFER_RESULTS", value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", default_value_t = false, action = clap::ArgAction::Set)]
    pub http_buffer_results: bool,
}

impl Default for HttpSettings {
    fn default() -> Self {
        Self {
            http_max_body_mib: 16,
            cors_domains: String::new(),
            http_show_stack_trace: false,
            http_allow_delete: false,
            http_omit_nan: false,
            http_buffer_results: false,
        }
    }
}

impl HttpSettings {
    pub(super) fn check(&self) -> Result<(), SettingError> {
        let domains = self.cors_domains.split(',').map(str::trim);
        if domains.clone().count() > 1 && domains.into_iter().any(|domain| domain == "*") {
            return Err(SettingError::new(
                "--cors-domains",
                format_args!("`{}`", self.cors_domains),
                "`*` allows all origins, expected it alone",
            ));
        }
        in_range("--http-max-body-mib", self.http_max_body_mib, 1, 1024)
    }

    /// Largest body of a request after decompression, in bytes.
    pub fn max_body_bytes(&self) -> usize {
        self.http_max_body_mib << 20
    }
}

/// Lines of telnet.
#[derive(Clone, Debug, PartialEq, Eq, Args)]
#[command(next_help_heading = "Telnet")]
pub struct TelnetSettings {
    /// Maximum length of a line, bytes
    #[arg(long, env = "OXTSDB_TELNET_MAX_LINE_BYTES", value_name = "BYTES", default_value_t = Self::default().telnet_max_line_bytes)]
    pub telnet_max_line_bytes: usize,

    /// Maximum lines of a batch; a connection has several batches in flight
    #[arg(long, env = "OXTSDB_TELNET_BATCH_POINTS", value_name = "COUNT", default_value_t = Self::default().telnet_batch_points)]
    pub telnet_batch_points: usize,
}

impl Default for TelnetSettings {
    fn default() -> Self {
        Self {
            telnet_max_line_bytes: 1024,
            telnet_batch_points: 4096,
        }
    }
}

impl TelnetSettings {
    pub(super) fn check(&self) -> Result<(), SettingError> {
        in_range("--telnet-max-line-bytes", self.telnet_max_line_bytes, 64, 1 << 20)?;
        in_range("--telnet-batch-points", self.telnet_batch_points, 1, 1 << 20)
    }
}
