//! Stores on HBase, which is reached in two ways, and the parts that both share.
//!
//! | Module | Requests go to |
//! |---|---|
//! | [`native`] | the region servers themselves, over HBase's own RPC |
//! | [`thrift`] | HBase's Thrift gateways (Thrift1, binary protocol) |

mod checks;
mod compression;
mod definitions;
mod exception_text;
mod fetched;
pub mod native;
pub mod thrift;

use std::fmt;

use async_trait::async_trait;

pub use self::compression::Compression;
use crate::{GatewayFigures, RowStore, StoreError, TableDef, TableName};

/// A store on HBase, by Thrift or natively: what only HBase has.
#[async_trait]
pub trait Hbase: RowStore {
    /// The definition of a table; `None` if it does not exist. Takes one request, where [`RowStore::tables`] may take
    /// one per table of the cluster.
    ///
    /// # Errors
    ///
    /// If HBase cannot be reached.
    async fn table(&self, name: &TableName) -> Result<Option<TableDef>, StoreError>;

    /// As [`RowStore::create_table`], with compressed families, and a region from each of `split_keys` on.
    ///
    /// # Errors
    ///
    /// As [`RowStore::create_table`]; HBase rejects algorithms that its region servers do not support.
    /// [`StoreError::Invalid`] for split keys over Thrift, which cannot split a table.
    async fn create_table_with(
        &self,
        table: &TableDef,
        compression: Compression,
        split_keys: &[Vec<u8>],
    ) -> Result<bool, StoreError>;

    /// The servers that it is reached through: Thrift gateways, or region servers.
    fn gateways(&self) -> Vec<GatewayFigures>;

    /// The servers of open connections with TLS, in order of their addresses; none in plain text and over Thrift.
    fn tls_peers(&self) -> Vec<TlsPeer> {
        Vec::new()
    }

    /// The servers of open connections with Kerberos, in order of their addresses; none without Kerberos and over Thrift.
    fn kerberos_peers(&self) -> Vec<KerberosPeer> {
        Vec::new()
    }
}

/// A server of a connection with Kerberos.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KerberosPeer {
    /// `host:port`, as its location names it.
    pub address: String,
    /// The principal whose key the server has.
    pub principal: String,
    /// Protection of the messages.
    pub protection: Protection,
    /// When the ticket ends, in seconds since the epoch; the connection remains open.
    pub ticket_ends: u64,
}

/// Protection of messages by SASL after the handshake (`hbase.rpc.protection`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protection {
    /// Nothing.
    Authentication,
    /// Each message has a checksum.
    Integrity,
    /// Each message is encrypted, with a checksum.
    Privacy,
}

impl Protection {
    /// The bit of SASL.
    pub(crate) const fn layer(self) -> u8 {
        match self {
            Self::Authentication => 1,
            Self::Integrity => 2,
            Self::Privacy => 4,
        }
    }
}

impl fmt::Display for Protection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Authentication => "authentication",
            Self::Integrity => "integrity",
            Self::Privacy => "privacy",
        })
    }
}

/// A server of a connection with TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsPeer {
    /// `host:port`, as its location names it.
    pub address: String,
    /// For example `TLS 1.3`.
    pub version: String,
    /// Its certificate, in DER; it has been verified.
    pub certificate: Vec<u8>,
}
