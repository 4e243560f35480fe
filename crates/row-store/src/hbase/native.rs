//! A store on HBase over HBase's own RPC: protobuf messages straight to the region servers.
//!
//! ```text
//!   RowStore calls ─► cluster: row ─► region ─► server ─► connection (calls multiplexed) ─► region servers
//!                        ▲                                                                     ▲
//!                        └── registry (ZooKeeper or masters) ─► hbase:meta ────────────────────┘
//! ```
//!
//! # Order
//!
//! The mutations of one row in one batch are applied in the order of the batch, and atomically, but for a put behind a
//! delete of its column (`write`). Concurrent batches, and different rows, are applied in any order.
//!
//! # Retries
//!
//! | Failure | Reads, batches, increments, appends | Check-and-put |
//! |---|---|---|
//! | no connection, region in transition, server busy | again, until `request_timeout`; then `Unavailable`, no effect | the same |
//! | the connection breaks | again: increments and appends have nonces, so that twice counts once | `Io`, the outcome is unknown |
//! | no response in time | `TimedOut`, the outcome is unknown | the same |
//! | a response exceeds `max_reply_bytes` | requested again in smaller parts, down to one row, then `Invalid` | - |
//!
//! A scan that loses its scanner continues after the last complete row.
//!
//! # Limits
//!
//! Kerberos (`kerberos`, `sasl`): one realm, keys of a keytab; no delegation tokens. ZooKeeper is read in plain text, also with TLS. Server timestamps, as OpenTSDB has them: a batch that is sent
//! again gets a new timestamp.

mod address;
mod cell_block;
mod cluster;
mod config;
mod connection;
mod cursor;
mod error;
mod filter;
mod framed;
mod kerberos;
mod messages;
mod multi;
mod read;
mod regions;
mod registry;
mod rows;
mod sasl;
mod scan;
mod server;
mod tables;
mod tls;
mod write;
mod zookeeper;

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures::future::BoxFuture;

use self::cell_block::CellReader;
use self::cluster::Cluster;
pub use self::config::{NativeConfig, Registry};
use self::error::CallError;
pub use self::kerberos::{KerberosConfig, Principal};
use self::messages::{
    ColumnValue, ConditionMessage, EQUAL, MutateRequest, MutateResponse, MutationProto, QualifierValue,
    mutate_type,
};
use self::regions::Region;
use super::{Compression, Hbase, KerberosPeer, TlsPeer, checks};
use crate::{
    CellAddress, ColumnSelection, Condition, DamageLog, GatewayFigures, Row, RowStore, RowStream, Scan,
    StoreControl, StoreError, TableDef, TableName, WriteBatch, rules,
};

/// A [`RowStore`] on HBase, over its own RPC. Cheap to clone.
#[derive(Clone, Debug)]
pub struct NativeStore {
    cluster: Arc<Cluster>,
}

impl NativeStore {
    /// Finds the cluster, and waits until its master and `hbase:meta` respond.
    ///
    /// # Errors
    ///
    /// [`StoreError::Invalid`] if a setting or a file of TLS is invalid; [`StoreError::Unavailable`] without a ticket of
    /// Kerberos; otherwise the answer of each server.
    pub fn connect(config: NativeConfig) -> BoxFuture<'static, Result<Self, StoreError>> {
        // Behind a pointer, so that it is compiled in this crate and not again in each program.
        Box::pin(async move {
            config.check()?;
            let cluster = Cluster::new(config).map_err(|reason| StoreError::Invalid {
                detail: format!("TLS: {reason}"),
            })?;
            let store = Self {
                cluster: Arc::new(cluster),
            };
            // Rejected credentials end a start at once.
            let logged_in = store.cluster.log_in().await;
            logged_in.map_err(|detail| StoreError::Unavailable { detail })?;
            let check = async {
                tables::check_master(&store.cluster).await?;
                store.cluster.wait_for_meta().await
            };
            check.await.map_err(|error| error.into_store_error(None))?;
            Ok(store)
        })
    }

    /// Sends a mutation of one cell.
    async fn mutate(
        &self,
        (table, cell): (&TableName, &CellAddress),
        mutate_type: i32,
        value: &[u8],
        condition: Option<ConditionMessage>,
    ) -> Result<(MutateResponse, Bytes), CallError> {
        // A repeated nonce is applied once. A condition has none.
        let nonce = condition.is_none().then(|| self.cluster.nonce());
        let mutation = MutationProto {
            row: Some(Bytes::copy_from_slice(&cell.row)),
            mutate_type: Some(mutate_type),
            column_value: vec![ColumnValue {
                family: Bytes::copy_from_slice(cell.family.as_bytes()),
                qualifier_value: vec![QualifierValue {
                    qualifier: Some(Bytes::copy_from_slice(&cell.qualifier)),
                    value: Some(Bytes::copy_from_slice(value)),
                }],
            }],
            nonce,
            ..MutationProto::default()
        };
        let message = |region: &Region| MutateRequest {
            region: region.specifier(),
            mutation: mutation.clone(),
            condition: condition.clone(),
            nonce_group: nonce.map(|_| self.cluster.nonce_group()),
        };
        let row = (table, cell.row.as_slice());
        self.cluster
            .call_row(row, "Mutate", nonce.is_some(), message)
            .await
    }

    /// As [`NativeStore::mutate`], of an increment or append: returns the new value.
    async fn mutate_value(
        &self,
        (table, cell): (&TableName, &CellAddress),
        mutate_type: i32,
        value: &[u8],
    ) -> Result<Vec<u8>, StoreError> {
        let mutated = self.mutate((table, cell), mutate_type, value, None).await;
        let value = mutated.and_then(|(response, cells)| value_of(response, cells, cell));
        value.map_err(|error| error.into_store_error(Some(table)))
    }
}

/// The value of a cell in a response.
fn value_of(response: MutateResponse, cells: Bytes, cell: &CellAddress) -> Result<Vec<u8>, CallError> {
    let result = response.result.unwrap_or_default();
    let mut cells = CellReader::new(cells);
    for _ in 0..result.associated_cell_count.unwrap_or_default() {
        let read = cells.next()?;
        // A repeated append may return other cells of the row, too.
        if read.family == cell.family.as_bytes() && read.qualifier == cell.qualifier {
            return Ok(read.value.to_vec());
        }
    }
    let of_message = result.cell.iter().find(|read| {
        read.family.as_deref() == Some(cell.family.as_bytes())
            && read.qualifier.as_deref().unwrap_or_default() == cell.qualifier
    });
    match of_message.and_then(|read| read.value.as_ref()) {
        Some(value) => Ok(value.to_vec()),
        None => Err(CallError::malformed("Mutate: the response has no value")),
    }
}

#[async_trait]
impl Hbase for NativeStore {
    async fn table(&self, name: &TableName) -> Result<Option<TableDef>, StoreError> {
        let definition = tables::find(&self.cluster, name).await;
        definition.map_err(|error| error.into_store_error(Some(name)))
    }

    async fn create_table_with(
        &self,
        table: &TableDef,
        compression: Compression,
        split_keys: &[Vec<u8>],
    ) -> Result<bool, StoreError> {
        tables::create(&self.cluster, table, compression, split_keys).await
    }

    fn gateways(&self) -> Vec<GatewayFigures> {
        self.cluster.figures()
    }

    fn tls_peers(&self) -> Vec<TlsPeer> {
        self.cluster.tls_peers()
    }

    fn kerberos_peers(&self) -> Vec<KerberosPeer> {
        self.cluster.kerberos_peers()
    }
}

#[async_trait]
impl StoreControl for NativeStore {
    async fn check_health(&self) -> Result<(), StoreError> {
        let health = self.cluster.check_health().await;
        health.map_err(|error| error.into_store_error(None))
    }

    async fn close(&self) -> Result<(), StoreError> {
        self.cluster.close();
        Ok(())
    }
}

#[async_trait]
impl RowStore for NativeStore {
    async fn create_table(&self, table: &TableDef) -> Result<bool, StoreError> {
        tables::create(&self.cluster, table, Compression::None, &[]).await
    }

    async fn tables(&self) -> Result<Vec<TableDef>, StoreError> {
        tables::list(&self.cluster).await
    }

    async fn get_rows(
        &self,
        table: &TableName,
        rows: &[Vec<u8>],
        columns: &ColumnSelection,
        _: Option<&DamageLog>,
    ) -> Result<Vec<Option<Row>>, StoreError> {
        for row in rows {
            checks::check_row_key(table, row)?;
        }
        // HBase takes an empty selection for all columns.
        if matches!(columns, ColumnSelection::Columns(columns) if columns.is_empty()) {
            return Ok(vec![None; rows.len()]);
        }
        let rows = read::get_rows(&self.cluster, table, rows, columns).await;
        rows.map_err(|error| error.into_store_error(Some(table)))
    }

    async fn scan(&self, table: &TableName, scan: Scan) -> Result<RowStream, StoreError> {
        rules::check_scan(&scan)?;
        checks::check_bounds(table, &scan)?;
        scan::open(&self.cluster, table, scan).await
    }

    async fn write(&self, batch: WriteBatch) -> Result<(), StoreError> {
        write::write(&self.cluster, &batch).await
    }

    async fn increment(&self, table: &TableName, cell: &CellAddress, amount: i64) -> Result<i64, StoreError> {
        checks::check_cell(table, cell)?;
        let amount = amount.to_be_bytes();
        let sum = self
            .mutate_value((table, cell), mutate_type::INCREMENT, &amount)
            .await?;
        let length = sum.len();
        let sum = sum.try_into().map_err(|_| StoreError::NotACounter { length })?;
        Ok(i64::from_be_bytes(sum))
    }

    async fn check_and_put(
        &self,
        table: &TableName,
        condition: &Condition,
        value: &[u8],
    ) -> Result<bool, StoreError> {
        let cell = &condition.cell;
        checks::check_cell(table, cell)?;
        rules::check_value(value)?;
        let condition = ConditionMessage {
            row: Bytes::copy_from_slice(&cell.row),
            family: Bytes::copy_from_slice(cell.family.as_bytes()),
            qualifier: Bytes::copy_from_slice(&cell.qualifier),
            compare_type: EQUAL,
            // An empty value requires the cell to be absent.
            comparator: filter::equal_to(condition.expected.as_deref().unwrap_or_default()),
        };
        let put = self
            .mutate((table, cell), mutate_type::PUT, value, Some(condition))
            .await;
        match put {
            Ok((response, _)) => Ok(response.processed.unwrap_or_default()),
            Err(error) => Err(error.into_store_error(Some(table))),
        }
    }

    async fn append(
        &self,
        table: &TableName,
        cell: &CellAddress,
        value: &[u8],
    ) -> Result<Vec<u8>, StoreError> {
        checks::check_cell(table, cell)?;
        rules::check_value(value)?;
        self.mutate_value((table, cell), mutate_type::APPEND, value).await
    }

    fn max_row_key(&self, table: &TableName) -> usize {
        checks::max_row_key(table)
    }
}
