//! The operations that the two services need from a store.

use async_trait::async_trait;

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

/// What a cell must hold for a conditional write to take place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// The cell.
    pub cell: CellAddress,
    /// Its newest value; `None`: the cell is absent.
    ///
    /// HBase cannot tell an absent cell from an empty value here, so neither does a store.
    pub expected: Option<Vec<u8>>,
}

/// A store with HBase's data model; see the crate's documentation for the model.
///
/// What holds for every backend:
///
/// - A call that returns `Ok` from a write is durable: a crash of the process directly afterwards
///   loses nothing of it, and every later read sees it.
/// - The mutations of one row in one call are atomic: a reader sees all or none of them.
/// - Cells of one column with equal timestamps are one cell; the one written later stays.
/// - A delete hides all cells that are not newer than itself. A put that begins after the delete
///   returned is visible.
/// - After [`StoreError::TimedOut`] or [`StoreError::Io`] it is unknown whether a write took place;
///   [`StoreError::retry`] says which requests may be repeated.
/// - Row keys have 1 to 32767 bytes ([`RowStore::max_row_key`]: HBase a few less), qualifiers less
///   than 16 MiB, values up to 16 MiB (HBase 10 for all of a cell, `hbase.client.keyvalue.maxsize`).
///
/// Futures may be dropped at any time. A write whose future is dropped may still take place.
#[async_trait]
pub trait RowStore: Send + Sync + std::fmt::Debug {
    /// Makes a table; `false` if there is one with the same families already.
    ///
    /// # Errors
    ///
    /// [`StoreError::TableDiffers`] if a table of that name has other families or settings.
    async fn create_table(&self, table: &TableDef) -> Result<bool, StoreError>;

    /// The tables there are, by name.
    ///
    /// # Errors
    ///
    /// When the store cannot be read.
    async fn tables(&self) -> Result<Vec<TableDef>, StoreError>;

    /// Reads the newest version of the columns of one row; `None` if it has none of them.
    ///
    /// # Errors
    ///
    /// No such table or family, or the store cannot be read.
    async fn get(
        &self,
        table: &TableName,
        row: &[u8],
        columns: &ColumnSelection,
    ) -> Result<Option<Row>, StoreError> {
        let rows = self.get_rows(table, &[row.to_vec()], columns).await?;
        Ok(rows.into_iter().next().flatten())
    }

    /// Reads rows as [`RowStore::get`] does: one answer for each key, in the order of the keys.
    ///
    /// # Errors
    ///
    /// As [`RowStore::get`].
    async fn get_rows(
        &self,
        table: &TableName,
        rows: &[Vec<u8>],
        columns: &ColumnSelection,
    ) -> Result<Vec<Option<Row>>, StoreError>;

    /// Reads rows as [`RowStore::get_rows`] does, but passes over damage as a scan does that may
    /// ([`Scan::skip_damaged`]).
    ///
    /// # Errors
    ///
    /// As [`RowStore::get`].
    async fn get_rows_skipping_damage(
        &self,
        table: &TableName,
        rows: &[Vec<u8>],
        columns: &ColumnSelection,
        damage: &DamageLog,
    ) -> Result<Vec<Option<Row>>, StoreError> {
        let _ = damage;
        self.get_rows(table, rows, columns).await
    }

    /// Reads a range of rows in order of their keys.
    ///
    /// Each row is as it was at one instant during the scan; different rows may be of different
    /// instants. A broken scan is taken up again with [`Scan::resume_after`].
    ///
    /// # Errors
    ///
    /// As [`RowStore::get`]; in the stream when it happens later.
    async fn scan(&self, table: &TableName, scan: Scan) -> Result<RowStream, StoreError>;

    /// Counts the first `limit` rows, 1 or more, from `start` (inside) to `stop` (outside; empty: to the
    /// end) by their keys alone. `None`: the store cannot do that for less than a scan.
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

    /// Applies a batch. Rows are atomic one by one; what is done to one row is done in the order of
    /// the batch. A store that does not keep the order of writes does the rows in any order, and at
    /// the same time.
    ///
    /// Safe to repeat: the same put twice is one cell.
    ///
    /// # Errors
    ///
    /// When it fails, some of the rows may have been written.
    async fn write(&self, batch: WriteBatch) -> Result<(), StoreError>;

    /// Adds `amount` to a counter (8 bytes, big endian, signed; absent counts as 0, and overflow
    /// wraps) and returns the sum. Adding 0 reads.
    ///
    /// Not safe to repeat when the outcome is unknown.
    ///
    /// # Errors
    ///
    /// [`StoreError::NotACounter`] if the cell has another length.
    async fn increment(&self, table: &TableName, cell: &CellAddress, amount: i64) -> Result<i64, StoreError>;

    /// Puts `value` into the cell of `condition` if the condition holds, atomically; `false` if
    /// it does not hold.
    ///
    /// When the outcome is unknown, read the cell and compare.
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

    /// Appends bytes to a cell (absent counts as empty) and returns the new value.
    ///
    /// Not safe to repeat when the outcome is unknown.
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

    /// Whether writes of one row that a task has under way together take place in the order in
    /// which it first polled them. Where they do not, whoever needs an order waits for the answer to
    /// one before beginning the next.
    fn keeps_write_order(&self) -> bool {
        false
    }

    /// Whether a cell costs much more than its bytes, so that a hundred points are better written as
    /// one cell than as a hundred. In HBase each cell has a copy of its row key and is an object in
    /// three processes.
    fn prefers_few_cells(&self) -> bool {
        false
    }

    /// Whether others may write to the tables while this store is open. Who is alone may remember
    /// what it wrote.
    fn has_other_writers(&self) -> bool {
        true
    }

    /// The longest row key of a table, in bytes.
    fn max_row_key(&self, table: &TableName) -> usize {
        let _ = table;
        MAX_ROW_KEY
    }

    /// Atomic writes over several rows, if this store has them. HBase does not.
    fn atomic(&self) -> Option<&dyn AtomicCommit> {
        None
    }

    /// Whether the store can serve now; for health checks. Damage that was set aside is no reason not
    /// to; see [`RowStore::damage`].
    ///
    /// # Errors
    ///
    /// Why it cannot.
    async fn check_health(&self) -> Result<(), StoreError>;

    /// Rows that were lost to damage and set aside. All else is served.
    fn damage(&self) -> Vec<DamagedRange> {
        Vec::new()
    }

    /// Makes everything durable and releases files and connections; later calls fail with
    /// [`StoreError::Unavailable`]. Dropping the store without it loses nothing acknowledged.
    ///
    /// # Errors
    ///
    /// When something could not be written.
    async fn close(&self) -> Result<(), StoreError>;
}

/// Atomic writes over several rows of one table.
#[async_trait]
pub trait AtomicCommit: Send + Sync {
    /// Applies the whole batch, if all conditions hold; `false`, and nothing is done, if one does
    /// not. A crash leaves all of it or nothing.
    ///
    /// # Errors
    ///
    /// As [`RowStore::write`], but nothing of it was done.
    async fn commit_if(&self, conditions: &[Condition], batch: WriteBatch) -> Result<bool, StoreError>;
}
