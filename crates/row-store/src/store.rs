//! The operations of a store.

use async_trait::async_trait;
use futures::stream::{self, StreamExt as _};

use crate::limits::MAX_ROW_KEY;
use crate::{
    ColumnSelection, DamageLog, DamagedRange, RangeMeasure, Row, RowStream, Scan, StoreError, TableDef,
    TableName, WriteBatch,
};

/// The address of a cell within a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CellAddress {
    /// Row key.
    pub row: Vec<u8>,
    /// Column family.
    pub family: String,
    /// Qualifier.
    pub qualifier: Vec<u8>,
}

impl CellAddress {
    /// The address of a cell.
    pub fn new(row: impl Into<Vec<u8>>, family: impl Into<String>, qualifier: impl Into<Vec<u8>>) -> Self {
        Self {
            row: row.into(),
            family: family.into(),
            qualifier: qualifier.into(),
        }
    }
}

/// The required value of a cell, for conditional writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// The cell.
    pub cell: CellAddress,
    /// The newest value; `None`: the cell is absent.
    ///
    /// HBase cannot distinguish an absent cell from an empty value here, so no store does.
    pub expected: Option<Vec<u8>>,
}

/// The processes that write to the tables of a store while it is open. Assembly knows them, since it chooses the
/// backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writers {
    /// Only this process: it may cache what it writes.
    Single,
    /// Other processes too, as on HBase.
    Multiple,
}

/// The control of a store, for its server and its operator. Readers and writers of rows need none of it.
#[async_trait]
pub trait StoreControl: Send + Sync + std::fmt::Debug {
    /// Checks whether the store can serve requests. Isolated damage does not make a store unhealthy; see
    /// [`StoreControl::damage`].
    ///
    /// # Errors
    ///
    /// The reason why it cannot.
    async fn check_health(&self) -> Result<(), StoreError>;

    /// Rows that were lost to damage. All other rows are served.
    fn damage(&self) -> Vec<DamagedRange> {
        Vec::new()
    }

    /// Makes everything durable and releases files and connections; later calls fail with
    /// [`StoreError::Unavailable`]. Dropping the store without closing it loses no acknowledged write.
    ///
    /// # Errors
    ///
    /// If something could not be written.
    async fn close(&self) -> Result<(), StoreError>;
}

/// A store with HBase's data model, see the crate's documentation.
///
/// Guarantees of every backend:
///
/// - A write that returned `Ok` is durable: it survives a crash of the process immediately afterwards, and
///   every later read sees it.
/// - The mutations of one row in one call are atomic: a read sees all or none of them.
/// - Cells of one column with equal timestamps are one cell; the later write wins.
/// - A delete hides all cells that are not newer than the delete. A put that starts after the delete returned
///   is visible.
/// - After [`StoreError::TimedOut`] or [`StoreError::Io`] it is unknown whether a write took effect;
///   [`StoreError::retry`] says which requests may be retried.
/// - Row keys have 1 to 32767 bytes ([`RowStore::max_row_key`]: slightly less on HBase), qualifiers less than
///   16 MiB, values up to 16 MiB (on HBase 10 MiB for a whole cell, `hbase.client.keyvalue.maxsize`).
///
/// Futures may be dropped at any time. After its future is dropped, a write may still take effect.
#[async_trait]
pub trait RowStore: StoreControl {
    /// Creates a table; `false` if it already exists with the same families.
    ///
    /// # Errors
    ///
    /// [`StoreError::TableDiffers`] if the table exists with other families or settings.
    async fn create_table(&self, table: &TableDef) -> Result<bool, StoreError>;

    /// Lists all tables, ordered by name.
    ///
    /// # Errors
    ///
    /// If the store cannot be read.
    async fn tables(&self) -> Result<Vec<TableDef>, StoreError>;

    /// Reads the newest version of the selected columns of one row; `None` if the row has none of them.
    ///
    /// # Errors
    ///
    /// If the table or family does not exist or the store cannot be read.
    async fn get(
        &self,
        table: &TableName,
        row: &[u8],
        columns: &ColumnSelection,
    ) -> Result<Option<Row>, StoreError> {
        let rows = self.get_rows(table, &[row.to_vec()], columns, None).await?;
        Ok(rows.into_iter().next().flatten())
    }

    /// Reads several rows as [`RowStore::get`] does. Returns one result per key, in the order of the keys. With a log,
    /// skips damage as [`Scan::skip_damaged`] does.
    ///
    /// # Errors
    ///
    /// As [`RowStore::get`].
    async fn get_rows(
        &self,
        table: &TableName,
        rows: &[Vec<u8>],
        columns: &ColumnSelection,
        skip_damaged: Option<&DamageLog>,
    ) -> Result<Vec<Option<Row>>, StoreError>;

    /// Reads the newest version of the columns of one family of a row, as [`RowStore::get`] does, in parts: rows with
    /// its key and a bounded number of its cells, which ascend over all parts (cells with qualifiers of more than
    /// 1,024 bytes within a part only). No part if the row has none of the columns.
    ///
    /// Different parts may be of different instants. A store that cannot read a part of a row, as HBase, returns one
    /// part.
    ///
    /// # Errors
    ///
    /// As [`RowStore::get`]; an error during the read is an item of the stream.
    async fn get_in_parts(
        &self,
        table: &TableName,
        row: &[u8],
        family: &str,
    ) -> Result<RowStream, StoreError> {
        let columns = ColumnSelection::Family(family.to_owned());
        let row = self.get(table, row, &columns).await?;
        Ok(stream::iter(row.map(|row| Ok(vec![row]))).boxed())
    }

    /// Reads a range of rows in order of their keys.
    ///
    /// Each row is consistent as of some instant during the scan; different rows may be of different instants. A
    /// scan that failed can be continued with [`Scan::resume_after`].
    ///
    /// # Errors
    ///
    /// As [`RowStore::get`]; an error during the scan is an item of the stream.
    async fn scan(&self, table: &TableName, scan: Scan) -> Result<RowStream, StoreError>;

    /// Whether a table may have rows from `start` (inclusive) to `stop` (exclusive; empty: unbounded), as far as that is
    /// known without blocking: `false` is certain for all writes that were acknowledged before this call.
    ///
    /// A store that has to read its files for this starts with it, in the background, at the first call for a table, and
    /// returns `true` until it knows: a caller that opens a store may call this for that alone.
    ///
    /// Must be called within a Tokio runtime.
    fn may_have_rows(&self, table: &TableName, start: &[u8], stop: &[u8]) -> bool {
        let _ = (table, start, stop);
        true
    }

    /// Measures the first `limit` rows, 1 or more, from `start` (inclusive) to `stop` (exclusive; empty:
    /// unbounded), reading only keys. `None` if the store cannot do this more cheaply than by a scan.
    ///
    /// # Errors
    ///
    /// As [`RowStore::get`].
    async fn measure(
        &self,
        table: &TableName,
        start: &[u8],
        stop: &[u8],
        limit: usize,
    ) -> Result<Option<RangeMeasure>, StoreError> {
        let _ = (table, start, stop, limit);
        Ok(None)
    }

    /// Applies a batch. Each row is atomic, and the mutations of a row are applied in the order of the batch.
    /// Different rows, and concurrent batches, are applied in any order: a caller that depends on their order awaits
    /// the first batch before it sends the second. The stores in memory and on disk are stricter: concurrent batches
    /// of one task take effect in the order in which the task first polled them.
    ///
    /// Idempotent: the same put twice results in one cell.
    ///
    /// # Errors
    ///
    /// After an error, some of the rows may have been written.
    async fn write(&self, batch: WriteBatch) -> Result<(), StoreError>;

    /// Adds `amount` to a counter and returns the sum. A counter is a signed 8-byte big-endian integer; an absent
    /// cell counts as 0, and overflow wraps. Adding 0 reads the counter.
    ///
    /// Not idempotent.
    ///
    /// # Errors
    ///
    /// [`StoreError::NotACounter`] if the value has another length.
    async fn increment(&self, table: &TableName, cell: &CellAddress, amount: i64) -> Result<i64, StoreError>;

    /// Atomically puts `value` into the cell of `condition` if the condition holds; `false` if it does not.
    ///
    /// If the outcome is unknown, the caller should read the cell and compare.
    ///
    /// # Errors
    ///
    /// As [`RowStore::write`].
    async fn check_and_put(
        &self,
        table: &TableName,
        condition: &Condition,
        value: &[u8],
    ) -> Result<bool, StoreError>;

    /// Appends bytes to a cell and returns the new value. An absent cell counts as empty.
    ///
    /// Not idempotent.
    ///
    /// # Errors
    ///
    /// As [`RowStore::write`].
    async fn append(
        &self,
        table: &TableName,
        cell: &CellAddress,
        value: &[u8],
    ) -> Result<Vec<u8>, StoreError>;

    /// The maximum length of a row key of a table, in bytes.
    fn max_row_key(&self, table: &TableName) -> usize {
        let _ = table;
        MAX_ROW_KEY
    }

    /// Atomic writes of several rows, if the store supports them. HBase does not.
    fn atomic(&self) -> Option<&dyn AtomicCommit> {
        None
    }
}

/// Atomic writes over several rows of one table.
#[async_trait]
pub trait AtomicCommit: Send + Sync {
    /// Applies the whole batch if all conditions hold; returns `false` without any effect if one does not. A crash
    /// leaves either all of the batch or nothing.
    ///
    /// # Errors
    ///
    /// As [`RowStore::write`], but the batch had no effect.
    async fn commit_if(&self, conditions: &[Condition], batch: WriteBatch) -> Result<bool, StoreError>;
}
