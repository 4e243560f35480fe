//! Addresses of the gateways, and limits of the traffic with them.

use std::time::Duration;

use crate::StoreError;

/// How to reach HBase.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThriftConfig {
    /// Thrift1 gateways of one HBase, each as `host:port`; their usual port is 9090.
    pub gateways: Vec<String>,
    /// Total number of connections, spread over the gateways. More than four are not faster.
    pub connections: usize,
    /// Waiting requests per connection; further ones are rejected immediately.
    pub queue: usize,
    /// How long a request waits for a reachable gateway, and how long a gateway may take to respond on a new
    /// connection.
    pub connect_timeout: Duration,
    /// The deadline of a request, including waiting.
    pub request_timeout: Duration,
    /// Whether the gateways use the framed transport (`hbase.regionserver.thrift.framed`); the default is that they
    /// do not. Framed gateways reject frames over 2 MiB, which a write of one very large row can exceed.
    pub framed: bool,
    /// The most memory that a response may need; a larger one is discarded and, where possible, requested again in
    /// smaller parts.
    pub max_reply_bytes: usize,
}

impl ThriftConfig {
    /// The default limits, for these gateways.
    pub fn new(gateways: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self {
            gateways: gateways.into_iter().map(Into::into).collect(),
            connections: 4,
            queue: 256,
            connect_timeout: Duration::from_secs(5),
            request_timeout: Duration::from_secs(30),
            framed: false,
            max_reply_bytes: 64 << 20,
        }
    }

    /// Rejects invalid settings.
    pub(super) fn check(&self) -> Result<(), StoreError> {
        let invalid = |detail: String| Err(StoreError::Invalid { detail });
        if self.gateways.is_empty() {
            return invalid(
                "no HBase Thrift gateway is configured, expected at least one host:port".to_owned(),
            );
        }
        for gateway in &self.gateways {
            let port = gateway.rsplit_once(':').filter(|(host, _)| !host.is_empty());
            if port.is_none_or(|(_, port)| port.parse::<u16>().is_err() || port == "0") {
                return invalid(format!(
                    "`{gateway}` is not the address of an HBase Thrift gateway, expected host:port"
                ));
            }
        }
        let at_least_1 = [
            ("connections", self.connections),
            ("queue", self.queue),
            ("max_reply_bytes", self.max_reply_bytes),
        ];
        for (name, value) in at_least_1 {
            if value == 0 {
                return invalid(format!("`{name}` is 0, at least 1 is needed"));
            }
        }
        let longer_than_0 = [
            ("connect_timeout", self.connect_timeout),
            ("request_timeout", self.request_timeout),
        ];
        for (name, value) in longer_than_0 {
            if value.is_zero() {
                return invalid(format!("`{name}` is 0, a longer time is needed"));
            }
        }
        Ok(())
    }
}
