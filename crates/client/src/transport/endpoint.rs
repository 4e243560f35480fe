//! One endpoint: its URL and the options of its connection.

use std::io;
use std::net::{IpAddr, SocketAddr};
#[cfg(feature = "tls")]
use std::sync::Arc;
use std::time::Duration;

use http::Uri;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tonic::transport::{Channel, Endpoint};

use crate::Error;
#[cfg(feature = "tls")]
use crate::tls::{TlsConnector, TlsOptions};

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
    /// The pause between pings, which find a connection if its peer vanished or hangs without closing it.
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
    /// Its URL has the scheme `http` always: tonic leaves TLS to the connectors.
    endpoint: Endpoint,
    host: String,
    port: u16,
    #[cfg(feature = "tls")]
    tls: Option<Arc<TlsConnector>>,
}

impl Replicas {
    /// A channel to the URL, which connects with its first request to any address of the host.
    pub(crate) fn channel(&self) -> Channel {
        let (host, port) = (self.host.clone(), self.port);
        self.connect_by(move || TcpStream::connect((host.clone(), port)))
    }

    /// A channel to one of its addresses. Requests and certificates have the name of the host.
    pub(crate) fn channel_to(&self, address: SocketAddr) -> Channel {
        self.connect_by(move || TcpStream::connect(address))
    }

    fn connect_by<F>(&self, connect: impl Fn() -> F + Clone + Send + Sync + 'static) -> Channel
    where
        F: Future<Output = io::Result<TcpStream>> + Send + 'static,
    {
        let connect = move || {
            let connecting = connect();
            async move {
                let stream = connecting.await?;
                stream.set_nodelay(true)?;
                Ok::<_, io::Error>(stream)
            }
        };
        #[cfg(feature = "tls")]
        if let Some(tls) = self.tls.clone() {
            let connect = move |_uri| {
                let (connecting, tls) = (connect(), Arc::clone(&tls));
                async move { Ok::<_, io::Error>(TokioIo::new(tls.connect(connecting.await?).await?)) }
            };
            return self
                .endpoint
                .connect_with_connector_lazy(tower::service_fn(connect));
        }
        let connect = move |_uri| {
            let connecting = connect();
            async move { connecting.await.map(TokioIo::new) }
        };
        self.endpoint
            .connect_with_connector_lazy(tower::service_fn(connect))
    }

    /// The alert of TLS by which the server ended the last connection.
    pub(crate) fn alert(&self) -> Option<String> {
        #[cfg(feature = "tls")]
        let alert = self.tls.as_ref().and_then(|tls| tls.alert());
        #[cfg(not(feature = "tls"))]
        let alert = None;
        alert
    }

    /// Whether the host may have several addresses.
    pub(crate) fn has_name(&self) -> bool {
        self.host.parse::<IpAddr>().is_err()
    }

    /// The addresses of the host that accept a connection, in a stable order; none if it cannot be resolved, or is an
    /// address.
    pub(crate) async fn addresses(&self) -> Vec<SocketAddr> {
        if !self.has_name() {
            return Vec::new();
        }
        let lookup = tokio::time::timeout(PROBE, tokio::net::lookup_host((self.host.as_str(), self.port)));
        let Ok(Ok(addresses)) = lookup.await else {
            return Vec::new();
        };
        let mut addresses: Vec<SocketAddr> = addresses.collect();
        addresses.sort_unstable();
        addresses.dedup();
        let probes = addresses.into_iter().map(|address| async move {
            let connected = tokio::time::timeout(PROBE, TcpStream::connect(address)).await;
            matches!(connected, Ok(Ok(_))).then_some(address)
        });
        let accepting = futures::future::join_all(probes).await;
        accepting.into_iter().flatten().collect()
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
        let given = Uri::try_from(url).map_err(|_| invalid())?;
        let authority = given.authority().ok_or_else(invalid)?;
        let host = given.host().unwrap_or_default().trim_matches(['[', ']']);
        if host.is_empty() {
            return Err(invalid());
        }
        let default_port = match given.scheme_str() {
            Some("http") => 80,
            #[cfg(feature = "tls")]
            Some("https") => 443,
            _ => return Err(invalid()),
        };
        #[cfg(feature = "tls")]
        let tls = match given.scheme_str() {
            Some("https") => Some(Arc::new(TlsConnector::new(self.tls.clone(), host)?)),
            _ => None,
        };
        let endpoint = Endpoint::from_shared(format!("http://{authority}"))
            .map_err(|_| invalid())?
            .origin(given.clone())
            .connect_timeout(self.connect_timeout)
            .http2_keep_alive_interval(self.keep_alive_interval)
            .keep_alive_timeout(self.keep_alive_timeout)
            .keep_alive_while_idle(true)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_frame_size(MAX_FRAME);
        Ok(Replicas {
            endpoint,
            host: host.to_owned(),
            port: given.port_u16().unwrap_or(default_port),
            #[cfg(feature = "tls")]
            tls,
        })
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
