//! One endpoint: its URL and the options of its connection.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tonic::transport::{Channel, Endpoint};

use crate::Error;
#[cfg(feature = "tls")]
use crate::tls::TlsOptions;

/// Flow-control windows: frames of results and of points are large.
const STREAM_WINDOW: u32 = 4 << 20;
const CONNECTION_WINDOW: u32 = 16 << 20;

/// The largest frame that servers may send; see the server's.
const MAX_FRAME: u32 = 64 << 10;

/// Options of all connections of a client.
#[derive(Clone, Debug)]
pub(crate) struct EndpointOptions {
    /// Of establishing a connection.
    pub(crate) connect_timeout: Duration,
    /// The pause between pings, which find a connection whose peer vanished or hangs without closing it.
    pub(crate) keep_alive_interval: Duration,
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
            keep_alive_interval: Duration::from_secs(10),
            keep_alive_timeout: Duration::from_secs(10),
            #[cfg(feature = "tls")]
            tls: TlsOptions::default(),
        }
    }
}

/// The replicas behind one URL.
#[derive(Clone, Debug)]
pub(crate) struct Replicas {
    endpoint: Endpoint,
    /// The host name and the port, if the host is not an address.
    host: Option<(String, u16)>,
}

impl Replicas {
    /// A channel to the URL, which connects with its first request to any address of the host.
    pub(crate) fn channel(&self) -> Channel {
        self.endpoint.connect_lazy()
    }

    /// Whether the host may have several addresses.
    pub(crate) fn has_name(&self) -> bool {
        self.host.is_some()
    }

    /// The addresses of the host that accept a connection, in a stable order; none if it cannot be resolved.
    pub(crate) async fn addresses(&self) -> Vec<SocketAddr> {
        let Some((host, port)) = &self.host else {
            return Vec::new();
        };
        let lookup = tokio::time::timeout(PROBE, tokio::net::lookup_host((host.as_str(), *port)));
        let Ok(Ok(found)) = lookup.await else {
            return Vec::new();
        };
        let mut found: Vec<SocketAddr> = found.collect();
        found.sort_unstable();
        found.dedup();
        let probes = found.into_iter().map(|address| async move {
            let connected = tokio::time::timeout(PROBE, TcpStream::connect(address)).await;
            matches!(connected, Ok(Ok(_))).then_some(address)
        });
        let accepting = futures::future::join_all(probes).await;
        accepting.into_iter().flatten().collect()
    }

    /// A channel to one of its addresses. Requests and certificates have the name of the host.
    pub(crate) fn channel_to(&self, address: SocketAddr) -> Channel {
        let connect = move |_uri| async move { TcpStream::connect(address).await.map(TokioIo::new) };
        self.endpoint
            .connect_with_connector_lazy(tower::service_fn(connect))
    }
}

/// How long resolving a host, and connecting to one of its addresses, may take.
const PROBE: Duration = Duration::from_secs(1);

impl EndpointOptions {
    /// The replicas behind `url`.
    ///
    /// # Errors
    ///
    /// If the URL is not `http://HOST:PORT` or, with feature `tls`, `https://HOST:PORT`.
    pub(crate) fn replicas(&self, url: &str) -> Result<Replicas, Error> {
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
            .http2_keep_alive_interval(self.keep_alive_interval)
            .keep_alive_timeout(self.keep_alive_timeout)
            .keep_alive_while_idle(true)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_frame_size(MAX_FRAME);
        let host = endpoint.uri().host().unwrap_or_default();
        let is_address = host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok();
        let default_port = if endpoint.uri().scheme_str() == Some("https") {
            443
        } else {
            80
        };
        let port = endpoint.uri().port_u16().unwrap_or(default_port);
        let host = (!is_address).then(|| (host.to_owned(), port));
        Ok(Replicas { endpoint, host })
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
            let error = options.replicas(url).unwrap_err().to_string();
            assert!(
                error.contains(url) && error.contains("http://HOST:PORT"),
                "{error}"
            );
        }
        options.replicas("http://localhost:4243").unwrap();
    }

    #[tokio::test]
    async fn finds_the_addresses_of_a_name_that_accept_connections() {
        let options = EndpointOptions::default();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let named = options
            .replicas(&format!("http://localhost:{}", address.port()))
            .unwrap();
        assert!(named.has_name());
        assert_eq!(named.addresses().await, [address]);
        drop(listener);
        assert_eq!(named.addresses().await, []);
        for url in ["http://127.0.0.1:4243", "http://[::1]:4243"] {
            let replicas = options.replicas(url).unwrap();
            assert!(
                !replicas.has_name() && replicas.addresses().await.is_empty(),
                "{url}"
            );
        }
    }
}
