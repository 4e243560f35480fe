//! Settings of gRPC connections.

use std::time::Duration;

use clap::Args;

use super::GrpcOptions;
use crate::connections::Connections;
use crate::settings::{SettingError, in_range};

/// Connections with gRPC clients.
#[derive(Clone, Debug, Args, PartialEq, Eq)]
#[command(next_help_heading = "Connections")]
pub struct GrpcSettings {
    /// Connections on a gRPC port at a time. At the limit the one that has been idle the longest is
    /// closed; if all have calls in progress, new ones are rejected
    #[arg(long, env = "OXTSDB_GRPC_MAX_CONNECTIONS", value_name = "COUNT", default_value_t = Self::default().grpc_max_connections)]
    pub grpc_max_connections: usize,

    /// Calls in progress on one gRPC connection; further ones wait in the client
    #[arg(long, env = "OXTSDB_GRPC_MAX_STREAMS", value_name = "COUNT", default_value_t = Self::default().grpc_max_streams)]
    pub grpc_max_streams: u32,

    /// Age at which a gRPC connection takes no new calls, so that clients connect again and load balancers distribute
    /// them over all replicas; give or take a tenth, seconds; 0: no limit. Write streams and watches of it get the
    /// notice of a drain
    #[arg(long, env = "OXTSDB_GRPC_CONNECTION_AGE_SECONDS", value_name = "SECONDS", default_value_t = Self::default().grpc_connection_age_seconds)]
    pub grpc_connection_age_seconds: u64,

    /// Time that calls in progress have after that, before the connection is closed, seconds; 0: no limit
    #[arg(long, env = "OXTSDB_GRPC_CONNECTION_GRACE_SECONDS", value_name = "SECONDS", default_value_t = Self::default().grpc_connection_grace_seconds)]
    pub grpc_connection_grace_seconds: u64,

    /// Pause between pings, which find clients that vanished without closing their connection, seconds
    #[arg(long, env = "OXTSDB_GRPC_KEEPALIVE_SECONDS", value_name = "SECONDS", default_value_t = Self::default().grpc_keepalive_seconds)]
    pub grpc_keepalive_seconds: u64,

    /// Time for the response to a ping, before the connection is closed, seconds
    #[arg(long, env = "OXTSDB_GRPC_KEEPALIVE_TIMEOUT_SECONDS", value_name = "SECONDS", default_value_t = Self::default().grpc_keepalive_timeout_seconds)]
    pub grpc_keepalive_timeout_seconds: u64,

    /// Bytes that a client may send on a call ahead of the server's reading, KiB (HTTP/2's flow control)
    #[arg(long, env = "OXTSDB_GRPC_STREAM_WINDOW_KIB", value_name = "KIB", default_value_t = Self::default().grpc_stream_window_kib)]
    pub grpc_stream_window_kib: u32,

    /// The same of all calls of a connection together, KiB. The memory limit does not count these bytes
    #[arg(long, env = "OXTSDB_GRPC_CONNECTION_WINDOW_KIB", value_name = "KIB", default_value_t = Self::default().grpc_connection_window_kib)]
    pub grpc_connection_window_kib: u32,

    /// Largest HTTP/2 frame that clients may send, KiB. Larger frames hold up the other calls of a connection
    #[arg(long, env = "OXTSDB_GRPC_MAX_FRAME_KIB", value_name = "KIB", default_value_t = Self::default().grpc_max_frame_kib)]
    pub grpc_max_frame_kib: u32,
}

impl Default for GrpcSettings {
    fn default() -> Self {
        let options = GrpcOptions::default();
        let seconds = |time: Option<Duration>| time.map_or(0, |time| time.as_secs());
        Self {
            grpc_max_connections: options.max_connections,
            grpc_max_streams: options.max_concurrent_streams,
            grpc_connection_age_seconds: seconds(options.max_connection_age),
            grpc_connection_grace_seconds: seconds(options.connection_grace),
            grpc_keepalive_seconds: options.keep_alive_interval.as_secs(),
            grpc_keepalive_timeout_seconds: options.keep_alive_timeout.as_secs(),
            grpc_stream_window_kib: options.stream_window_bytes >> 10,
            grpc_connection_window_kib: options.connection_window_bytes >> 10,
            grpc_max_frame_kib: options.max_frame_bytes >> 10,
        }
    }
}

impl GrpcSettings {
    /// Checks ranges.
    ///
    /// # Errors
    ///
    /// The first setting that is out of its range.
    pub(crate) fn check(&self) -> Result<(), SettingError> {
        const DAY: u64 = 86_400;
        /// HTTP/2's limit of a window is 2^31 - 1 bytes.
        const MOST_KIB: u32 = (1 << 21) - 1;
        in_range("--grpc-max-connections", self.grpc_max_connections, 1, 1 << 20)?;
        in_range("--grpc-max-streams", self.grpc_max_streams, 1, 1 << 16)?;
        for (setting, value, least) in [
            (
                "--grpc-connection-age-seconds",
                self.grpc_connection_age_seconds,
                0,
            ),
            (
                "--grpc-connection-grace-seconds",
                self.grpc_connection_grace_seconds,
                0,
            ),
            ("--grpc-keepalive-seconds", self.grpc_keepalive_seconds, 1),
            (
                "--grpc-keepalive-timeout-seconds",
                self.grpc_keepalive_timeout_seconds,
                1,
            ),
        ] {
            in_range(setting, value, least, DAY)?;
        }
        // HTTP/2's own window is 64 KiB.
        in_range(
            "--grpc-stream-window-kib",
            self.grpc_stream_window_kib,
            64,
            MOST_KIB,
        )?;
        in_range(
            "--grpc-connection-window-kib",
            self.grpc_connection_window_kib,
            64,
            MOST_KIB,
        )?;
        // HTTP/2's limits are 16 KiB and 2^24 - 1 bytes.
        in_range("--grpc-max-frame-kib", self.grpc_max_frame_kib, 16, (1 << 14) - 1)
    }

    /// The options of gRPC servers that count their connections in the process's `connections`.
    pub(crate) fn options(&self, connections: Connections) -> GrpcOptions {
        let limit = |seconds| (seconds > 0).then(|| Duration::from_secs(seconds));
        GrpcOptions {
            connections,
            max_connections: self.grpc_max_connections,
            max_concurrent_streams: self.grpc_max_streams,
            max_connection_age: limit(self.grpc_connection_age_seconds),
            connection_grace: limit(self.grpc_connection_grace_seconds),
            keep_alive_interval: Duration::from_secs(self.grpc_keepalive_seconds),
            keep_alive_timeout: Duration::from_secs(self.grpc_keepalive_timeout_seconds),
            stream_window_bytes: self.grpc_stream_window_kib << 10,
            connection_window_bytes: self.grpc_connection_window_kib << 10,
            max_frame_bytes: self.grpc_max_frame_kib << 10,
            ..GrpcOptions::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_those_of_the_options_and_in_range() {
        let settings = GrpcSettings::default();
        settings.check().unwrap();
        let (options, expected) = (settings.options(Connections::unlimited()), GrpcOptions::default());
        assert_eq!(
            (options.max_connection_age, options.connection_grace),
            (expected.max_connection_age, expected.connection_grace)
        );
        assert_eq!(
            (options.stream_window_bytes, options.max_frame_bytes),
            (expected.stream_window_bytes, expected.max_frame_bytes)
        );
    }

    #[test]
    fn values_out_of_range_are_named() {
        let settings = GrpcSettings {
            grpc_max_frame_kib: 8,
            ..GrpcSettings::default()
        };
        let error = settings.check().unwrap_err().to_string();
        assert_eq!(error, "--grpc-max-frame-kib 8: expected 16 to 16383");
    }

    #[test]
    fn zero_is_no_limit() {
        let settings = GrpcSettings {
            grpc_connection_age_seconds: 0,
            grpc_connection_grace_seconds: 0,
            ..GrpcSettings::default()
        };
        let options = settings.options(Connections::unlimited());
        assert_eq!(
            (options.max_connection_age, options.connection_grace),
            (None, None)
        );
    }
}
