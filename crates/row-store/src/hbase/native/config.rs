//! Settings of a store over HBase's own RPC.

use std::time::Duration;

use oxtsdb_tls::Credentials;

use super::kerberos::KerberosConfig;
pub use super::registry::Registry;
use crate::StoreError;

/// Where HBase is, and limits of requests.
#[derive(Clone, Debug)]
pub struct NativeConfig {
    /// The servers that know where the cluster is.
    pub registry: Registry,
    /// The name that HBase's access control sees, without Kerberos.
    pub user: String,
    /// Kerberos of connections with masters and region servers, in place of `user`; `None`: they believe its name.
    pub kerberos: Option<KerberosConfig>,
    /// TLS of connections with masters and region servers, not with ZooKeeper; `None`: plain text.
    pub tls: Option<Credentials>,
    /// How long connecting to a server may take.
    pub connect_timeout: Duration,
    /// How long a request may take, with all of its attempts; a scan, from one batch of rows to the next.
    pub request_timeout: Duration,
    /// The longest response, in bytes; a larger one is discarded and, where possible, requested again in smaller parts.
    pub max_reply_bytes: usize,
}

impl NativeConfig {
    /// The default limits, for this cluster.
    pub fn new(registry: Registry) -> Self {
        Self {
            registry,
            user: "oxtsdb".to_owned(),
            kerberos: None,
            tls: None,
            connect_timeout: Duration::from_secs(5),
            request_timeout: Duration::from_secs(30),
            max_reply_bytes: 128 << 20,
        }
    }

    /// Rejects invalid settings.
    pub(super) fn check(&self) -> Result<(), StoreError> {
        let invalid = |detail: String| Err(StoreError::Invalid { detail });
        if let Err(detail) = self.registry.check() {
            return invalid(detail);
        }
        if self.max_reply_bytes == 0 {
            return invalid("`max_reply_bytes` is 0, at least 1 is needed".to_owned());
        }
        for (name, value) in [
            ("connect_timeout", self.connect_timeout),
            ("request_timeout", self.request_timeout),
        ] {
            if value.is_zero() {
                return invalid(format!("`{name}` is 0, a longer time is needed"));
            }
        }
        Ok(())
    }
}
