//! The options of a client.

use std::path::PathBuf;
use std::time::Duration;

use http::HeaderMap;

use crate::call::{CallOptions, Connection};
#[cfg(feature = "tls")]
use crate::tls::TlsOptions;
use crate::transport::{self, EndpointOptions};
use crate::{DataClient, Error, HealthClient, UidClient};

/// Adds headers to a request.
type AddHeaders = fn(&mut HeaderMap);

/// Builds a client of the data service or of the UID service.
///
/// ```no_run
/// # use std::time::Duration;
/// # fn main() -> Result<(), oxtsdb_client::Error> {
/// let client = oxtsdb_client::ClientBuilder::new(["http://tsdb-1:4243", "http://tsdb-2:4243"])
///     .timeout(Duration::from_secs(5))
///     .gzip(true)
///     .data()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct ClientBuilder {
    urls: Vec<String>,
    endpoint: EndpointOptions,
    call: CallOptions,
    token_file: Option<PathBuf>,
    on_request: Option<AddHeaders>,
}

impl ClientBuilder {
    /// A client of servers at these URLs, each `http://HOST:PORT` or, with feature `tls`, `https://HOST:PORT`.
    /// Requests take the endpoints in turn; one that fails is skipped for a second. A host name stands for all of its
    /// addresses, which are resolved again every 10 s.
    pub fn new(urls: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self {
            urls: urls.into_iter().map(Into::into).collect(),
            endpoint: EndpointOptions::default(),
            call: CallOptions::default(),
            token_file: None,
            on_request: None,
        }
    }

    /// Has headers added to each request: the context of a trace, for example. It runs in the task that sends the
    /// request, and must not block.
    #[must_use]
    pub fn on_request(mut self, add: fn(&mut HeaderMap)) -> Self {
        self.on_request = Some(add);
        self
    }

    /// Sends the token in this file with each request (`authorization: Bearer`). The file is read again when it
    /// changes. Send tokens to `https://` endpoints: everyone on the way reads them otherwise.
    #[must_use]
    pub fn token_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.token_file = Some(path.into());
        self
    }

    /// Limits establishing a connection. Default: 5 s.
    #[must_use]
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.endpoint.connect_timeout = timeout;
        self
    }

    /// The pause between keep-alive pings. Default: 10 s.
    #[must_use]
    pub fn keep_alive_interval(mut self, interval: Duration) -> Self {
        self.endpoint.keep_alive_interval = interval;
        self
    }

    /// Limits the response to a keep-alive ping. Default: 10 s.
    #[must_use]
    pub fn keep_alive_timeout(mut self, timeout: Duration) -> Self {
        self.endpoint.keep_alive_timeout = timeout;
        self
    }

    /// The deadline of each call, its retries included, and of each stream of results. Default: the
    /// method's in the contract's `service_config.json`.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.call.timeout = Some(timeout);
        self
    }

    /// Attempts of each call of an idempotent method at most, the first included; 1: no retries. Default: the
    /// method's in the contract's `service_config.json`. Other methods are never retried.
    #[must_use]
    pub fn max_attempts(mut self, attempts: usize) -> Self {
        self.call.max_attempts = Some(attempts);
        self
    }

    /// Compresses requests with gzip, and accepts compressed responses. Default: off.
    #[must_use]
    pub fn gzip(mut self, gzip: bool) -> Self {
        self.call.gzip = gzip;
        self
    }

    /// Writes points of any instant. Default: servers reject timestamps before 2000-01-01 and more than 366 days
    /// ahead of their clock (`IMPLAUSIBLE_TIMESTAMP`), which usually have a wrong unit.
    #[must_use]
    pub fn allow_any_time(mut self, allow: bool) -> Self {
        self.call.allow_any_time = allow;
        self
    }

    /// The name under which servers log the streams of this client. Default: `oxtsdb-client`.
    #[must_use]
    pub fn client_name(mut self, name: impl Into<String>) -> Self {
        self.call.client_name = name.into();
        self
    }

    /// How connections to `https://` endpoints are secured.
    #[cfg(feature = "tls")]
    #[cfg_attr(docsrs, doc(cfg(feature = "tls")))]
    #[must_use]
    pub fn tls(mut self, tls: TlsOptions) -> Self {
        self.endpoint.tls = tls;
        self
    }

    /// A client of the data service. It connects with its first call, within a Tokio runtime.
    ///
    /// # Errors
    ///
    /// If there are no endpoints, or one is not valid.
    pub fn data(self) -> Result<DataClient, Error> {
        Ok(DataClient::new(self.connection()?))
    }

    /// A client of the UID service. It connects with its first call, within a Tokio runtime.
    ///
    /// # Errors
    ///
    /// If there are no endpoints, or one is not valid.
    pub fn uid(self) -> Result<UidClient, Error> {
        Ok(UidClient::new(self.connection()?))
    }

    /// A client of the health checks of a server. It connects with its first call, within a Tokio runtime.
    ///
    /// # Errors
    ///
    /// If there are no endpoints, or one is not valid.
    pub fn health(self) -> Result<HealthClient, Error> {
        Ok(HealthClient::new(self.connection()?))
    }

    fn connection(self) -> Result<Connection, Error> {
        if self.urls.is_empty() {
            return Err(Error::invalid("a client needs at least one endpoint"));
        }
        let replicas = self.urls.iter().map(|url| self.endpoint.replicas(url));
        let transport = transport::over(replicas.collect::<Result<_, _>>()?);
        let transport = match self.token_file {
            Some(path) => transport::with_token_file(transport, path),
            None => transport,
        };
        let transport = match self.on_request {
            Some(add) => transport::with_headers(transport, add),
            None => transport,
        };
        Ok(Connection::new(transport, self.call))
    }
}

impl UidClient {
    /// A client of one server, for example `http://127.0.0.1:4244`, with default options. It connects with
    /// its first call.
    ///
    /// # Errors
    ///
    /// If the URL is not valid.
    pub fn connect(url: &str) -> Result<Self, Error> {
        ClientBuilder::new([url]).uid()
    }
}

impl DataClient {
    /// A client of one server, for example `http://127.0.0.1:4243`, with default options. It connects with
    /// its first call.
    ///
    /// # Errors
    ///
    /// If the URL is not valid.
    pub fn connect(url: &str) -> Result<Self, Error> {
        ClientBuilder::new([url]).data()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejects_clients_without_endpoints() {
        let error = ClientBuilder::new([] as [&str; 0]).data().unwrap_err();
        assert_eq!(error.to_string(), "a client needs at least one endpoint");
    }
}
