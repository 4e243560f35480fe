//! The page `/debug/deployment`: the configuration of a process, for `tsdb doctor`.
//!
//! Only facts that two processes of a deployment have to agree on, or that an operator has to compare with the machine.
//! Figures that change are metrics.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

/// Where the page is.
pub const PATH: &str = "/debug/deployment";

/// The configuration of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deployment {
    /// The program: `tsdb`, `data-service` or `uid-service`.
    pub program: String,
    /// Its version.
    pub version: String,
    /// The clock of its machine when the page was rendered, milliseconds since the epoch.
    pub clock_ms: u64,
    /// `rw`, `ro` or `wo` (`--mode`).
    pub mode: String,
    /// Callers have rights of their own (`--access-policy`).
    pub has_policy: bool,
    /// The clients' ports.
    pub listeners: Vec<ListenerFacts>,
    /// The admin listener.
    pub admin: Option<SocketAddr>,
    /// `embedded` or `hbase`.
    pub store: String,
    /// HBase's Thrift gateways, in their order; empty for the embedded store.
    pub gateways: Vec<String>,
    /// Names of tables by their settings.
    pub tables: BTreeMap<String, String>,
    /// Bytes of UIDs; absent until the process has started.
    pub uid_widths: Option<WidthFacts>,
    /// The salt of row keys; absent without a data service, and until the process has started.
    pub salt: Option<SaltFacts>,
    /// Memory of the machine or of its control group, in bytes.
    pub machine_memory_bytes: u64,
    /// The memory of caches and of the store was scaled down to half of the limit.
    pub has_reduced_caches: bool,
}

/// A port of clients.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListenerFacts {
    /// The service behind it: `http`, `data` or `uid`.
    pub name: String,
    /// The address.
    pub address: SocketAddr,
    /// It is served over TLS.
    pub has_tls: bool,
    /// Clients need a certificate.
    pub requires_certificates: bool,
}

/// Bytes of the UIDs of each kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WidthFacts {
    /// Of metrics.
    pub metric: usize,
    /// Of tag keys.
    pub tagk: usize,
    /// Of tag values.
    pub tagv: usize,
}

/// The salt of row keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SaltFacts {
    /// Bytes before each row key; 0: there is no salt.
    pub width: usize,
    /// Buckets.
    pub buckets: u32,
}
