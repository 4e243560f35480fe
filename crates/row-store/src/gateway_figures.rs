//! Figures of the gateways that a store is reached through.

use oxtsdb_resources::DurationCounts;

/// The state of a gateway, and the calls to it since the start.
#[derive(Clone, Debug, PartialEq)]
pub struct GatewayFigures {
    /// `host:port`, as it is configured.
    pub address: String,
    /// Whether the last attempt to connect succeeded.
    pub is_up: bool,
    /// Calls that failed; HBase's exceptions are failures too.
    pub failed: u64,
    /// How long calls took, failed ones included.
    pub calls: DurationCounts,
}
