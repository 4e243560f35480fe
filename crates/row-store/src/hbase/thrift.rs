//! A store on HBase, through HBase's Thrift gateway (Thrift1, binary protocol).
//!
//! ```text
//!   RowStore calls ─► queue ─┬─► worker: connection ─► gateway ─┐
//!   (async)        (bounded) ├─► worker: connection ─► gateway ─┼─► region servers
//!                            └─► worker: ...                    ┘
//! ```
//!
//! The generated client blocks, so each connection is owned by a worker thread (`worker`); the workers take
//! requests from one bounded queue (`queue`). Sizes announced by a gateway are checked against limits before
//! memory is allocated (`protocol`), and each request has one deadline for all of its system calls (`socket`).
//!
//! # Order
//!
//! The mutations of one row in one batch are applied in the order of the batch. Different rows of a batch, and
//! concurrent batches, are applied concurrently and in any order; a caller that depends on the order awaits the
//! first batch before it sends the second.
//!
//! # Retries
//!
//! | Failure | Reads, batches, creating tables | Increment, check-and-put, append |
//! |---|---|---|
//! | no connection, full queue, deadline before sending | `Unavailable`, no effect | the same |
//! | the connection breaks | sent up to three times, then `Io` | `Io`, the outcome is unknown |
//! | no response in time | `TimedOut`, the outcome is unknown | the same |
//! | transient error of HBase (region moves, server down or busy) | `Unavailable`: the caller retries | `Io` |
//! | a response exceeds `max_reply_bytes` | requested again in smaller parts, down to one row of a get and one cell of a scan, then `Invalid` | - |
//!
//! A scan that loses its connection or scanner continues after the last complete row. HBase assigns a new
//! timestamp to a batch that is sent again, and the gateway may still be applying the first attempt, possibly
//! after a write that started later. Only explicit timestamps are immune to that.
//!
//! # Limits of Thrift1
//!
//! | HBase | Over Thrift1 |
//! |---|---|
//! | puts and deletes of one row in one atomic mutation | one call has either puts or deletes, with one timestamp. The puts of a row without a timestamp are atomic, so are those with one common timestamp, and so are its deletes; a mix of them is applied step by step, in order (`plan`) |
//! | a delete and a put in one millisecond | the delete wins; if a batch has both for one row, the put waits for the next millisecond |
//! | deleting rows in a batch | one call per row |
//! | scans of several versions | the scan returns the newest versions, then each column of a family that keeps more is read separately (`versions`): slow, and not consistent as of one instant |
//! | reversed scans with an exclusive start | the scan requests slightly more and drops the excess (`range`) |
//! | filters on row keys | regular expressions cannot tell bytes above 127 from each other, so HBase applies only a part of [`Scan::filter`] (`key_pattern`), and the worker thread all of it; with seek hints, to keys listed without their cells (`selective`) |
//! | row keys of 32767 bytes | slightly less ([`RowStore::max_row_key`]) |
//! | check-and-put of an empty value | indistinguishable from an absent cell, as in every store here |
//! | atomic writes of several rows | none: [`RowStore::atomic`] is `None` |
//! | pre-split tables, data block encodings, altering tables | one region, encoding `NONE`; versions, time to live (whole seconds), bloom filter (`ROW`) and compression can be set. For the rest use HBase's shell: `alter 'tsdb', {NAME => 't', DATA_BLOCK_ENCODING => 'DIFF'}`; `create 'tsdb', ..., SPLITS => [...]` |
//! | families in the order of their definition | by name; [`RowStore::tables`] and cells use that order |
//! | TLS, Kerberos | only TLS with HTTP, which this client does not speak: use a proxy at each end (stunnel, a service mesh) |
//!
//! Tables with names that are not valid [`TableName`]s are not listed.

mod client;
mod config;
mod connection;
mod cursor;
mod error;
mod extents;
mod gateway;
mod health;
mod key_pattern;
mod plan;
mod pool;
mod protocol;
mod queue;
mod range;
mod raw;
mod read;
mod rows;
mod scan;
mod selective;
mod socket;
mod spread;
mod tables;
mod versions;
mod worker;
mod write;

use std::sync::Arc;

use async_trait::async_trait;
use futures::future::BoxFuture;
use hbase_thrift::hbase::THbaseSyncClient;

pub use self::config::ThriftConfig;
use self::connection::Connection;
use self::error::{CallError, Idempotency, RequestContext};
use self::pool::Pool;
use super::fetched::Memory;
use super::{Compression, Hbase, checks};
use crate::{
    CellAddress, ColumnSelection, Condition, DamageLog, GatewayFigures, Row, RowStore, RowStream, Scan,
    StoreControl, StoreError, TableDef, TableName, WriteBatch, rules,
};

/// A [`RowStore`] on HBase, through its Thrift gateways.
#[derive(Debug)]
pub struct ThriftStore {
    pool: Arc<Pool>,
}

impl ThriftStore {
    /// Connects to HBase and lists its tables.
    ///
    /// # Errors
    ///
    /// [`StoreError::Invalid`] if a setting is invalid; otherwise one line that diagnoses each gateway, or HBase
    /// behind them.
    pub fn connect(config: ThriftConfig) -> BoxFuture<'static, Result<Self, StoreError>> {
        // Behind a pointer, so that it is compiled in this crate and not again in each program.
        Box::pin(async move {
            config.check()?;
            let store = Self {
                pool: Arc::new(Pool::start(config.clone())?),
            };
            match tables::names(&store.pool).await {
                Ok(_) => Ok(store),
                Err(StoreError::Unavailable { detail }) => {
                    let findings = tokio::task::spawn_blocking(move || health::diagnose(&config)).await;
                    Err(StoreError::Unavailable {
                        detail: findings.unwrap_or(detail),
                    })
                }
                Err(StoreError::TimedOut { detail }) => Err(StoreError::TimedOut {
                    detail: format!("the gateway responds, but HBase behind it does not: {detail}"),
                }),
                Err(error) => Err(error),
            }
        })
    }
}

#[async_trait]
impl Hbase for ThriftStore {
    async fn table(&self, name: &TableName) -> Result<Option<TableDef>, StoreError> {
        let definition = tables::find(&self.pool, name).await;
        definition.map_err(|error| error.into_store_error(RequestContext::idempotent(name)))
    }

    async fn create_table_with(
        &self,
        table: &TableDef,
        compression: Compression,
        split_keys: &[Vec<u8>],
    ) -> Result<bool, StoreError> {
        if !split_keys.is_empty() {
            return Err(StoreError::Invalid {
                detail: "HBase's Thrift server cannot split a table".to_owned(),
            });
        }
        tables::create(&self.pool, table, compression).await
    }

    fn gateways(&self) -> Vec<GatewayFigures> {
        self.pool.gateways()
    }
}

#[async_trait]
impl RowStore for ThriftStore {
    async fn create_table(&self, table: &TableDef) -> Result<bool, StoreError> {
        tables::create(&self.pool, table, Compression::None).await
    }

    async fn tables(&self) -> Result<Vec<TableDef>, StoreError> {
        tables::list(&self.pool).await
    }

    async fn get_rows(
        &self,
        table: &TableName,
        rows: &[Vec<u8>],
        columns: &ColumnSelection,
        _skip_damaged: Option<&DamageLog>,
    ) -> Result<Vec<Option<Row>>, StoreError> {
        for row in rows {
            checks::check_row_key(table, row)?;
        }
        // HBase takes an empty selection for all columns.
        if matches!(columns, ColumnSelection::Columns(columns) if columns.is_empty()) {
            return Ok(vec![None; rows.len()]);
        }
        read::get_rows(&self.pool, table, rows, columns, &Memory::default())
            .await
            .map(|(rows, _)| rows)
            .map_err(|error| error.into_store_error(RequestContext::idempotent(table)))
    }

    async fn scan(&self, table: &TableName, scan: Scan) -> Result<RowStream, StoreError> {
        rules::check_scan(&scan)?;
        checks::check_bounds(table, &scan)?;
        scan::open(self.pool.clone(), table.clone(), scan).await
    }

    async fn write(&self, batch: WriteBatch) -> Result<(), StoreError> {
        write::write(&self.pool, &batch).await
    }

    async fn increment(&self, table: &TableName, cell: &CellAddress, amount: i64) -> Result<i64, StoreError> {
        checks::check_cell(table, cell)?;
        let request = || {
            let (name, row) = (raw::table_name(table), cell.row.clone());
            let column = raw::column(&cell.family, &cell.qualifier);
            move |connection: &mut Connection, deadline| {
                connection.call("atomicIncrement", deadline, |client| {
                    client.atomic_increment(name, row, column, amount)
                })
            }
        };
        let sum = self.pool.call(Idempotency::NotIdempotent, request).await;
        sum.map_err(|error| error.into_store_error(RequestContext::not_idempotent(table)))
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
        let request = || {
            let (name, row) = (raw::table_name(table), cell.row.clone());
            let column = raw::column(&cell.family, &cell.qualifier);
            // An empty value requires the cell to be absent.
            let expected = condition.expected.clone().unwrap_or_default();
            let put = raw::put(&cell.family, &cell.qualifier, value);
            move |connection: &mut Connection, deadline| {
                connection.call("checkAndPut", deadline, |client| {
                    client.check_and_put(name, row, column, expected, put, raw::no_attributes())
                })
            }
        };
        let done = self.pool.call(Idempotency::NotIdempotent, request).await;
        done.map_err(|error| error.into_store_error(RequestContext::not_idempotent(table)))
    }

    async fn append(
        &self,
        table: &TableName,
        cell: &CellAddress,
        value: &[u8],
    ) -> Result<Vec<u8>, StoreError> {
        checks::check_cell(table, cell)?;
        rules::check_value(value)?;
        let request = || {
            let append = raw::append(table, cell, value);
            move |connection: &mut Connection, deadline| {
                let cells = connection.call("append", deadline, |client| client.append(append))?;
                let value = cells.into_iter().next().and_then(|cell| cell.value);
                value.ok_or_else(|| CallError::ConnectionLost {
                    gateway: connection.gateway().to_owned(),
                    detail: "append: the response has no value".to_owned(),
                })
            }
        };
        let appended = self.pool.call(Idempotency::NotIdempotent, request).await;
        appended.map_err(|error| error.into_store_error(RequestContext::not_idempotent(table)))
    }

    fn max_row_key(&self, table: &TableName) -> usize {
        checks::max_row_key(table)
    }
}

#[async_trait]
impl StoreControl for ThriftStore {
    async fn check_health(&self) -> Result<(), StoreError> {
        health::check(&self.pool).await
    }

    async fn close(&self) -> Result<(), StoreError> {
        self.pool.close().await;
        Ok(())
    }
}
