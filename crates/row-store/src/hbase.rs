//! A store on HBase, through HBase's Thrift gateway (Thrift1, binary protocol).
//!
//! ```text
//!   RowStore calls ─► queue ─┬─► worker: connection ─► gateway ─┐
//!   (async)        (bounded) ├─► worker: connection ─► gateway ─┼─► region servers
//!                            └─► worker: ...                    ┘
//! ```
//!
//! The generated client blocks, so each connection has a thread of its own (`worker`); they take
//! requests from one bounded queue (`queue`). What a gateway sends is bounded before it is believed
//! (`protocol`), and all of a request has one deadline (`socket`).
//!
//! # Order
//!
//! The mutations of one row in one batch are done in the order of the batch. Different rows of a
//! batch, and different batches that are under way together, are done side by side, in any order: who
//! needs one waits for the answer to the first ([`RowStore::keeps_write_order`] is false).
//!
//! # What is repeated
//!
//! | When | Reads, batches, making tables | Increment, check-and-put, append |
//! |---|---|---|
//! | no connection, full queue, time over before it was sent | `Unavailable`, nothing was done | the same |
//! | the connection breaks | sent again, three times in all, then `Io` | `Io`, the outcome is unknown |
//! | no answer in time | `TimedOut`, the outcome is unknown | the same |
//! | HBase could not now (region moves, server down or busy) | `Unavailable`: send it again later | `Io` |
//! | an answer is longer than `max_reply_bytes` | asked for in smaller parts, down to one row of a get and one cell of a scan, then `Invalid` | - |
//!
//! A scan whose connection or scanner is lost goes on after the last whole row. A batch that is sent
//! again gets another time from HBase; what a gateway that broke off still does of the first attempt
//! may then come after a write that was begun later. Only the time a put brings along is safe from
//! that.
//!
//! # What Thrift1 cannot do
//!
//! | HBase has | Over Thrift1 |
//! |---|---|
//! | puts and deletes of one row in one atomic mutation | one call has puts or deletes, of one timestamp. A row's puts without a timestamp are atomic, its puts with one timestamp are, its deletes are; mixed, they are done one after the other, in order (`plan`) |
//! | a delete and a put in one millisecond | the delete wins; where a batch has both for one row, the put waits for the next millisecond |
//! | deleting rows in a batch | one call for each row |
//! | scans for several versions | newest versions are scanned, then each column whose family keeps more is read by itself (`versions`): slow, and not of one instant |
//! | descending scans from outside to inside | a little more is asked for and cut here (`range`) |
//! | filters on row keys | regular expressions are wrong for bytes over 127, so [`Scan::filter`] is applied here, in the worker's thread; where it has hints, to keys that are batch without their cells (`selective`) |
//! | row keys of 32767 bytes | a few less ([`RowStore::max_row_key`]) |
//! | check-and-put where the value is empty | cannot be told from absent, as in every store here |
//! | atomic writes of several rows | none: [`RowStore::atomic`] is `None` |
//! | new tables split into regions, with an encoding of data blocks, with other settings later | one region, encoding `NONE`; versions, time to live (whole seconds), bloom filter (`ROW` here) and compression can be set. HBase's shell does the rest: `alter 'tsdb', {NAME => 't', DATA_BLOCK_ENCODING => 'DIFF'}`; `create 'tsdb', ..., SPLITS => [...]` |
//! | families in the order of their definition | by name; [`RowStore::tables`] and cells are in that order |
//! | TLS, Kerberos | TLS with HTTP only, which is not spoken here: a proxy beside each end (stunnel, a mesh) |
//!
//! Tables with names that [`TableName`] does not take are not listed.

mod compression;
mod config;
mod connection;
mod cursor;
mod error;
mod gateway;
mod health;
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
mod tables;
mod versions;
mod worker;
mod write;

use std::sync::Arc;

use async_trait::async_trait;
use hbase_thrift::hbase::THbaseSyncClient;

pub use self::compression::Compression;
pub use self::config::HbaseConfig;
use self::connection::Connection;
use self::error::{CallError, Idempotency, RequestContext};
use self::pool::Pool;
use crate::{
    CellAddress, ColumnSelection, Condition, Row, RowStore, RowStream, Scan, StoreError, TableDef, TableName,
    WriteBatch, rules,
};

/// A [`RowStore`] on HBase.
#[derive(Debug)]
pub struct HbaseStore {
    pool: Arc<Pool>,
}

impl HbaseStore {
    /// Connects to HBase, and asks it for its tables.
    ///
    /// # Errors
    ///
    /// [`StoreError::Invalid`] if a setting is wrong; else, in one line, what is wrong with each
    /// gateway, or with HBase behind them.
    pub async fn connect(config: HbaseConfig) -> Result<Self, StoreError> {
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
                detail: format!("the gateway answers, but HBase behind it does not: {detail}"),
            }),
            Err(error) => Err(error),
        }
    }

    /// The definition of a table; `None` if there is none. One question, where
    /// [`RowStore::tables`] has one for each table of the cluster.
    ///
    /// # Errors
    ///
    /// When HBase cannot be reached.
    pub async fn table(&self, name: &TableName) -> Result<Option<TableDef>, StoreError> {
        let found = tables::find(&self.pool, name).await;
        found.map_err(|error| error.into_store_error(RequestContext::idempotent(name)))
    }

    /// As [`RowStore::create_table`], with compressed families.
    ///
    /// # Errors
    ///
    /// As [`RowStore::create_table`]; HBase refuses an algorithm that its region servers do not have.
    pub async fn create_compressed_table(
        &self,
        table: &TableDef,
        compression: Compression,
    ) -> Result<bool, StoreError> {
        tables::create(&self.pool, table, compression).await
    }

    fn check_cell(table: &TableName, cell: &CellAddress) -> Result<(), StoreError> {
        raw::check_row_key(table, &cell.row)?;
        rules::check_qualifier(&cell.qualifier)
    }
}

#[async_trait]
impl RowStore for HbaseStore {
    async fn create_table(&self, table: &TableDef) -> Result<bool, StoreError> {
        self.create_compressed_table(table, Compression::None).await
    }

    async fn tables(&self) -> Result<Vec<TableDef>, StoreError> {
        tables::list(&self.pool).await
    }

    async fn get_rows(
        &self,
        table: &TableName,
        rows: &[Vec<u8>],
        columns: &ColumnSelection,
    ) -> Result<Vec<Option<Row>>, StoreError> {
        for row in rows {
            raw::check_row_key(table, row)?;
        }
        // No columns mean all of them to HBase.
        if matches!(columns, ColumnSelection::Columns(columns) if columns.is_empty()) {
            return Ok(vec![None; rows.len()]);
        }
        read::get_rows(&self.pool, table, rows, columns)
            .await
            .map_err(|error| error.into_store_error(RequestContext::idempotent(table)))
    }

    async fn scan(&self, table: &TableName, scan: Scan) -> Result<RowStream, StoreError> {
        rules::check_scan(&scan)?;
        raw::check_bounds(table, &scan)?;
        scan::open(self.pool.clone(), table.clone(), scan).await
    }

    async fn write(&self, batch: WriteBatch) -> Result<(), StoreError> {
        write::write(&self.pool, &batch).await
    }

    async fn increment(&self, table: &TableName, cell: &CellAddress, amount: i64) -> Result<i64, StoreError> {
        Self::check_cell(table, cell)?;
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
        Self::check_cell(table, cell)?;
        rules::check_value(value)?;
        let request = || {
            let (name, row) = (raw::table_name(table), cell.row.clone());
            let column = raw::column(&cell.family, &cell.qualifier);
            // An empty value says that the cell must be absent.
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
        Self::check_cell(table, cell)?;
        rules::check_value(value)?;
        let request = || {
            let append = raw::append(table, cell, value);
            move |connection: &mut Connection, deadline| {
                let cells = connection.call("append", deadline, |client| client.append(append))?;
                let value = cells.into_iter().next().and_then(|cell| cell.value);
                value.ok_or_else(|| CallError::ConnectionLost {
                    gateway: connection.gateway().to_owned(),
                    detail: "append: the answer has no value".to_owned(),
                })
            }
        };
        let appended = self.pool.call(Idempotency::NotIdempotent, request).await;
        appended.map_err(|error| error.into_store_error(RequestContext::not_idempotent(table)))
    }

    fn prefers_few_cells(&self) -> bool {
        true
    }

    fn max_row_key(&self, table: &TableName) -> usize {
        raw::max_row_key(table)
    }

    async fn check_health(&self) -> Result<(), StoreError> {
        health::check(&self.pool).await
    }

    async fn close(&self) -> Result<(), StoreError> {
        self.pool.close().await;
        Ok(())
    }
}
