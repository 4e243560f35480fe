//! One endpoint: its URL and the options of its connection.

use std::time::Duration;

use tonic::transport::{Channel, Endpoint};

use crate::Error;
#[cfg(feature = "tls")]
use crate::tls::TlsOptions;

/// Flow-control windows: frames of results and of points are large.
const STREAM_WINDOW: u32 = 4 << 20;
const CONNECTION_WINDOW: u32 = 16 << 20;

/// Pings find a connection whose peer vanished without closing it.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(10);

/// Options of all connections of a client.
#[derive(Clone, Debug)]
pub(crate) struct EndpointOptions {
    /// Of establishing a connection.
    pub(crate) connect_timeout: Duration,
    /// How long a ping may take before the connection counts as broken.
    pub(crate) keep_alive_timeout: Duration,
    /// For URLs with `https`.
    #[cfg(feature = "tls")]
    pub(crate) tls: TlsOptions,
}

impl Default for EndpointOptions {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(5),
            keep_alive_timeout: Duration::from_secs(10),
            #[cfg(feature = "tls")]
            tls: TlsOptions::default(),
        }
    }
}

impl EndpointOptions {
    /// A channel to `url` that connects with its first request.
    ///
    /// # Errors
    ///
    /// If the URL is not `http://HOST:PORT` or, with feature `tls`, `https://HOST:PORT`.
    pub(crate) fn channel(&self, url: &str) -> Result<Channel, Error> {
        let invalid = || Error::invalid(format!("`{url}` is not an endpoint, expected {EXPECTED}"));
        let endpoint = Endpoint::from_shared(url.to_owned()).map_err(|_| invalid())?;
        if endpoint.uri().host().is_none_or(str::is_empty) {
            return Err(invalid());
        }
        let endpoint = match endpoint.uri().scheme_str() {
            Some("http") => endpoint,
            #[cfg(feature = "tls")]
            Some("https") => self.tls.apply(endpoint)?,
            _ => return Err(invalid()),
        };
        let endpoint = endpoint
            .connect_timeout(self.connect_timeout)
            .tcp_nodelay(true)
            .http2_keep_alive_interval(KEEP_ALIVE_INTERVAL)
            .keep_alive_timeout(self.keep_alive_timeout)
            .keep_alive_while_idle(true)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW);
        Ok(endpoint.connect_lazy())
    }
}

const EXPECTED: &str = if cfg!(feature = "tls") {
    "http://HOST:PORT or https://HOST:PORT"
} else {
    "http://HOST:PORT"
};

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn rejects_what_is_not_a_url_of_a_server() {
        let options = EndpointOptions::default();
        for url in ["localhost:4243", "http://", "http://a b", "ftp://localhost:1"] {
            let error = options.channel(url).unwrap_err().to_string();
            assert!(
                error.contains(url) && error.contains("http://HOST:PORT"),
                "{error}"
            );
        }
        options.channel("http://localhost:4243").unwrap();
    }
}
