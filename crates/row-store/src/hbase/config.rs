//! Where the gateways are, and the limits of the traffic with them.

use std::time::Duration;

use crate::StoreError;

/// How to reach HBase.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HbaseConfig {
    /// Thrift1 gateways of one HBase, each as `host:port`; their usual port is 9090.
    pub gateways: Vec<String>,
    /// Connections in all, spread over the gateways. Four are as fast as more are.
    pub connections: usize,
    /// Requests that may wait, for each connection; one more is refused at once.
    pub queue: usize,
    /// How long a request waits for a gateway to connect to, and how long a gateway has to answer a
    /// new connection.
    pub connect_timeout: Duration,
    /// How long a request takes at most, waiting included.
    pub request_timeout: Duration,
    /// Whether the gateways speak in frames (`hbase.regionserver.thrift.framed`); they usually do
    /// not. They then refuse frames over 2 MiB, which a write of one very large row can exceed.
    pub framed: bool,
    /// The memory that an answer may need; a longer one is given up, and asked for in smaller parts
    /// where that is possible.
    pub max_reply_bytes: usize,
}

impl HbaseConfig {
    /// The usual limits for these gateways.
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

    /// Refuses what cannot work.
    pub(super) fn check(&self) -> Result<(), StoreError> {
        let invalid = |detail: String| Err(StoreError::Invalid { detail });
        if self.gateways.is_empty() {
            return invalid("no HBase Thrift gateway is named, expected at least one host:port".to_owned());
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
