//! A store on HBase, through HBase's Thrift gateway.

mod compression;
mod config;
mod connection;
mod error;
mod gateway;
mod plan;
mod pool;
mod protocol;
mod queue;
mod range;
mod raw;
mod read;
mod rows;
mod scan;
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
use self::error::CallError;
use self::pool::{Pool, Repeat};
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
            pool: Arc::new(Pool::start(config)?),
        };
        tables::names(&store.pool).await?;
        Ok(store)
    }

    /// The definition of a table; `None` if there is none. One question, where
    /// [`RowStore::tables`] has one for each table of the cluster.
    ///
    /// # Errors
    ///
    /// When HBase cannot be asked.
    pub async fn table(&self, name: &TableName) -> Result<Option<TableDef>, StoreError> {
        let found = tables::find(&self.pool, name).await;
        found.map_err(|error| error.into_store_error(Some(name)))
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
        tables::create(&self.pool, table, compression.hbase_name()).await
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
            .map_err(|error| error.into_store_error(Some(table)))
    }

    async fn scan(&self, table: &TableName, scan: Scan) -> Result<RowStream, StoreError> {
        rules::check_scan(&scan)?;
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
        let sum = self.pool.call(Repeat::Never, request).await;
        sum.map_err(|error| error.into_store_error(Some(table)))
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
        let done = self.pool.call(Repeat::Never, request).await;
        done.map_err(|error| error.into_store_error(Some(table)))
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
                value.ok_or_else(|| CallError::Lost {
                    gateway: connection.gateway().to_owned(),
                    detail: "append: the answer has no value".to_owned(),
                })
            }
        };
        let appended = self.pool.call(Repeat::Never, request).await;
        appended.map_err(|error| error.into_store_error(Some(table)))
    }

    fn prefers_few_cells(&self) -> bool {
        true
    }

    fn max_row_key(&self, table: &TableName) -> usize {
        raw::max_row_key(table)
    }

    async fn check_health(&self) -> Result<(), StoreError> {
        tables::names(&self.pool).await.map(drop)
    }

    async fn close(&self) -> Result<(), StoreError> {
        self.pool.close().await;
        Ok(())
    }
}
