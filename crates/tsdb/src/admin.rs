//! A client of admin listeners: metrics, readiness, running queries and rejected points of servers.
//!
//! ```text
//!   AdminTargets (--admin URL,...) ── listeners() ──> AdminListener ── metrics()   ──> Metrics: value, sum, histogram
//!                                                                   ── readiness() ──> reasons
//!                                                                   ── queries(), rejections(), json(PATH)
//! ```
//!
//! A request has a time-out and a response a limit. An [`AdminError`] distinguishes a server that is away from a port
//! that is no admin listener: the first may come back, the second is a wrong URL.

mod metrics;
mod queries;
mod rejections;
mod sample;
mod text;

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use clap::Args;
use http::Uri;
use http::header::ACCEPT;
use serde::de::DeserializeOwned;
use thiserror::Error;
use tokio::sync::oneshot;
use ureq::Agent;
use ureq::tls::{Certificate, RootCerts, TlsConfig};

pub(crate) use self::metrics::{Histogram, Metrics};
pub(crate) use self::queries::{Queries, Query};
pub(crate) use self::rejections::{Rejection, Rejections};
pub(crate) use self::sample::Labels;
use self::text::TextError;

/// The most bytes of a response: the metrics of a server are about 100 KiB.
const MAX_BYTES: u64 = 8 << 20;

/// The page of running queries.
const QUERIES: &str = "/debug/queries";

/// The page of rejected points.
const REJECTIONS: &str = "/debug/rejections";

/// How much of a response's text an error shows.
const SHOWN_CHARS: usize = 100;

/// A metric of every OxTSDB process.
const OWN_METRIC: &str = "oxtsdb_memory_limit_bytes";

/// The admin listeners that a command calls.
#[derive(Debug, Args)]
pub(crate) struct AdminTargets {
    /// URL of the admin listener of a server (its `--admin-listen`); of several servers, separated by commas
    #[arg(
        long = "admin",
        env = "OXTSDB_ADMIN",
        value_name = "URL,...",
        value_delimiter = ',',
        default_value = "http://127.0.0.1:4245"
    )]
    urls: Vec<AdminUrl>,
}

impl AdminTargets {
    /// Clients of the listeners, in the order of the URLs, each URL once; `timeout` limits each request.
    pub(crate) fn listeners(&self, timeout: Duration) -> Vec<AdminListener> {
        let mut listeners: Vec<AdminListener> = Vec::new();
        for url in &self.urls {
            if listeners.iter().all(|listener| listener.url != *url) {
                listeners.push(AdminListener::new(url.clone(), timeout));
            }
        }
        listeners
    }
}

/// The URL of an admin listener: `http://HOST:PORT`, or `https://HOST:PORT` behind a proxy with TLS.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct AdminUrl(String);

impl AdminUrl {
    fn is_https(&self) -> bool {
        self.0.starts_with("https:")
    }
}

impl fmt::Display for AdminUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for AdminUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected = || "expected http://HOST:PORT or https://HOST:PORT of an admin listener".to_owned();
        let uri: Uri = text.parse().map_err(|_| expected())?;
        let (Some(scheme @ ("http" | "https")), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
            return Err(expected());
        };
        let has_path = !matches!(uri.path(), "" | "/") || uri.query().is_some();
        let port = authority.port_u16().filter(|port| *port != 0);
        match port {
            Some(port) if !has_path && !authority.host().is_empty() && !authority.as_str().contains('@') => {
                Ok(Self(format!("{scheme}://{}:{port}", authority.host())))
            }
            _ => Err(expected()),
        }
    }
}

/// Why a request failed.
#[derive(Debug, Error)]
pub(crate) enum AdminError {
    /// The server does not respond, or not in time.
    #[error("{url}: {reason}")]
    Away { url: AdminUrl, reason: String },
    /// The server responds, but not as an admin listener does.
    #[error(
        "{url} is not an admin listener of OxTSDB: {reason}; its address is --admin-listen of the server"
    )]
    Other { url: AdminUrl, reason: String },
    /// The response is too large.
    #[error("{url}{path}: the response has more than {MAX_BYTES} bytes")]
    TooLarge { url: AdminUrl, path: String },
    /// The metrics are not OpenMetrics text.
    #[error("{url}/metrics is not OpenMetrics text: {source}")]
    Text { url: AdminUrl, source: TextError },
}

impl AdminError {
    /// Whether the server may respond later.
    pub(crate) fn is_away(&self) -> bool {
        matches!(self, Self::Away { .. })
    }

    /// The error without the URL, for a table that has it.
    pub(crate) fn reason(&self) -> String {
        match self {
            Self::Away { reason, .. } => reason.clone(),
            Self::Other { reason, .. } => format!("not an admin listener: {reason}"),
            Self::TooLarge { path, .. } => format!("{path} has more than {MAX_BYTES} bytes"),
            Self::Text { source, .. } => format!("not OpenMetrics text: {source}"),
        }
    }
}

/// A response.
#[derive(Clone, Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) body: String,
}

/// A client of one admin listener. Clones share its connections.
#[derive(Clone, Debug)]
pub(crate) struct AdminListener {
    url: AdminUrl,
    agent: Agent,
}

impl AdminListener {
    /// It connects with the first request.
    pub(crate) fn new(url: AdminUrl, timeout: Duration) -> Self {
        let mut tls = TlsConfig::builder();
        if url.is_https() {
            let roots = rustls_native_certs::load_native_certs();
            let roots = roots
                .certs
                .iter()
                .map(|root| Certificate::from_der(root).to_owned());
            tls = tls.root_certs(RootCerts::from(roots));
        }
        let config = Agent::config_builder()
            .tls_config(tls.build())
            .timeout_global(Some(timeout))
            .http_status_as_error(false)
            .max_redirects(0)
            .proxy(None)
            .user_agent(concat!("tsdb/", env!("CARGO_PKG_VERSION")))
            .build();
        Self {
            url,
            agent: config.new_agent(),
        }
    }

    /// Its URL, without a path.
    pub(crate) fn url(&self) -> &AdminUrl {
        &self.url
    }

    /// The response to a path, whatever its status is.
    ///
    /// # Errors
    ///
    /// If there is none in time, or it is too large or not text.
    pub(crate) async fn get(&self, path: &str) -> Result<Response, AdminError> {
        let (sender, receiver) = oneshot::channel();
        let (agent, url, path) = (self.agent.clone(), self.url.clone(), path.to_owned());
        // A thread of its own: the end of the process waits for the runtime's threads, and so for a server that hangs.
        std::thread::spawn(move || drop(sender.send(request(&agent, &url, &path))));
        receiver.await.unwrap_or_else(|_| {
            Err(AdminError::Away {
                url: self.url.clone(),
                reason: "the request was dropped".to_owned(),
            })
        })
    }

    /// All metrics of the server.
    ///
    /// # Errors
    ///
    /// If it does not respond, or is no admin listener of OxTSDB.
    pub(crate) async fn metrics(&self) -> Result<Metrics, AdminError> {
        let response = self.get("/metrics").await?;
        if response.status != 200 {
            return Err(self.unexpected("/metrics", &response));
        }
        let metrics = Metrics::parse(&response.body).map_err(|source| AdminError::Text {
            url: self.url.clone(),
            source,
        })?;
        if metrics.value(OWN_METRIC, &[]).is_none() {
            return Err(self.other(format!("/metrics has no {OWN_METRIC}")));
        }
        Ok(metrics)
    }

    /// Why the server is not ready; empty if it is.
    ///
    /// # Errors
    ///
    /// If it does not respond, or is no admin listener.
    pub(crate) async fn readiness(&self) -> Result<Vec<String>, AdminError> {
        let response = self.get("/readyz").await?;
        let mut lines = response.body.lines();
        match (response.status, lines.next()) {
            (200, Some("ready")) => Ok(Vec::new()),
            (503, Some("not ready")) => Ok(lines.map(str::to_owned).collect()),
            _ => Err(self.unexpected("/readyz", &response)),
        }
    }

    /// The running queries; none if the process has no data service.
    ///
    /// # Errors
    ///
    /// If it does not respond, or with something else.
    pub(crate) async fn queries(&self) -> Result<Option<Queries>, AdminError> {
        match self.get(QUERIES).await? {
            Response { status: 404, .. } => Ok(None),
            response => self.parse_json(QUERIES, &response).map(Some),
        }
    }

    /// The last rejected points; none if the process has no data service.
    ///
    /// # Errors
    ///
    /// As [`AdminListener::queries`].
    pub(crate) async fn rejections(&self) -> Result<Rejections, AdminError> {
        match self.get(REJECTIONS).await? {
            Response { status: 404, .. } => Ok(Rejections::default()),
            response => self.parse_json(REJECTIONS, &response),
        }
    }

    /// A page of JSON.
    ///
    /// # Errors
    ///
    /// If the server does not respond, or has no such page, or with other fields.
    pub(crate) async fn json<T: DeserializeOwned>(&self, path: &str) -> Result<T, AdminError> {
        let response = self.get(path).await?;
        self.parse_json(path, &response)
    }

    fn parse_json<T: DeserializeOwned>(&self, path: &str, response: &Response) -> Result<T, AdminError> {
        if response.status != 200 {
            return Err(self.unexpected(path, response));
        }
        serde_json::from_str(&response.body).map_err(|error| self.other(format!("{path}: {error}")))
    }

    /// A response with another status. The listener itself has a 5xx only for a page that failed, and a proxy in
    /// front of it has one while the server is away.
    fn unexpected(&self, path: &str, response: &Response) -> AdminError {
        let text: String = response
            .body
            .lines()
            .next()
            .unwrap_or_default()
            .chars()
            .take(SHOWN_CHARS)
            .collect();
        let text = text.trim();
        let separator = if text.is_empty() { "" } else { ": " };
        let reason = format!("{path} responded {}{separator}{text}", response.status);
        match response.status {
            500.. => AdminError::Away {
                url: self.url.clone(),
                reason,
            },
            _ => self.other(reason),
        }
    }

    fn other(&self, reason: String) -> AdminError {
        AdminError::Other {
            url: self.url.clone(),
            reason,
        }
    }
}

/// Requests a path, and blocks until the body has been read.
fn request(agent: &Agent, url: &AdminUrl, path: &str) -> Result<Response, AdminError> {
    let failed = |error: ureq::Error| {
        let url = url.clone();
        match error {
            ureq::Error::BodyExceedsLimit(_) => AdminError::TooLarge {
                url,
                path: path.to_owned(),
            },
            // A port of another protocol.
            ureq::Error::Protocol(error) => AdminError::Other {
                url,
                reason: format!("{path} is not HTTP/1.1: {error}"),
            },
            ureq::Error::Timeout(_) => AdminError::Away {
                url,
                reason: format!("{path}: no response in time"),
            },
            ureq::Error::Io(error) => AdminError::Away {
                url,
                reason: format!("{path}: {error}"),
            },
            error => AdminError::Away {
                url,
                reason: format!("{path}: {error}"),
            },
        }
    };
    let request = agent.get(format!("{url}{path}"));
    let request = request.header(ACCEPT, "application/openmetrics-text;version=1.0.0, */*;q=0.1");
    let mut response = request.call().map_err(failed)?;
    let status = response.status().as_u16();
    let body = response.body_mut().with_config().limit(MAX_BYTES);
    let body = body.read_to_vec().map_err(failed)?;
    let body = String::from_utf8(body).map_err(|_| AdminError::Other {
        url: url.clone(),
        reason: format!("{path} is not UTF-8"),
    })?;
    Ok(Response { status, body })
}

#[cfg(test)]
mod tests;
