//! A store that asks a test what becomes of each operation.
//!
//! A test double for a store is an [`Intercept`] of a few lines: it may wait before it does an
//! operation, refuse it, do it and lose the answer, keep it for later, or give another answer.

use std::sync::Arc;

use async_trait::async_trait;

use crate::{
    AtomicCommit, CellAddress, ColumnSelection, Condition, RangeMeasure, Row, RowStore, RowStream, Scan,
    StoreError, TableDef, TableName, WriteBatch,
};

/// An operation that reads or writes rows, with what it needs to be done at any time.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "the fields are the parameters of the methods named")]
pub enum Operation {
    /// [`RowStore::get_rows`], and [`RowStore::get`] by way of it.
    GetRows {
        table: TableName,
        rows: Vec<Vec<u8>>,
        columns: ColumnSelection,
    },
    /// [`RowStore::scan`].
    Scan { table: TableName, scan: Scan },
    /// [`RowStore::write`].
    Write { batch: WriteBatch },
    /// [`RowStore::increment`].
    Increment {
        table: TableName,
        cell: CellAddress,
        amount: i64,
    },
    /// [`RowStore::check_and_put`].
    CheckAndPut {
        table: TableName,
        condition: Condition,
        value: Vec<u8>,
    },
    /// [`RowStore::append`].
    Append {
        table: TableName,
        cell: CellAddress,
        value: Vec<u8>,
    },
    /// [`AtomicCommit::commit_if`].
    CommitIf {
        conditions: Vec<Condition>,
        batch: WriteBatch,
    },
}

/// What an [`Operation`] returned.
#[expect(missing_debug_implementations, reason = "a stream cannot be shown")]
pub enum Response {
    /// Of [`Operation::GetRows`].
    Rows(Vec<Option<Row>>),
    /// Of [`Operation::Scan`].
    Scan(RowStream),
    /// Of [`Operation::Write`].
    Written,
    /// Of [`Operation::Increment`].
    Sum(i64),
    /// Of [`Operation::CheckAndPut`] and [`Operation::CommitIf`]: whether the conditions held.
    Held(bool),
    /// Of [`Operation::Append`]: the new value.
    Appended(Vec<u8>),
}

impl Operation {
    /// The table that it is about.
    pub fn table(&self) -> &TableName {
        match self {
            Self::GetRows { table, .. }
            | Self::Scan { table, .. }
            | Self::Increment { table, .. }
            | Self::CheckAndPut { table, .. }
            | Self::Append { table, .. } => table,
            Self::Write { batch } | Self::CommitIf { batch, .. } => batch.table(),
        }
    }

    /// Does it.
    ///
    /// # Errors
    ///
    /// Those of the store.
    ///
    /// # Panics
    ///
    /// If it is [`Operation::CommitIf`] and the store has no atomic commits.
    pub async fn perform(self, store: &dyn RowStore) -> Result<Response, StoreError> {
        match self {
            Self::GetRows { table, rows, columns } => {
                store.get_rows(&table, &rows, &columns).await.map(Response::Rows)
            }
            Self::Scan { table, scan } => store.scan(&table, scan).await.map(Response::Scan),
            Self::Write { batch } => store.write(batch).await.map(|()| Response::Written),
            Self::Increment { table, cell, amount } => {
                store.increment(&table, &cell, amount).await.map(Response::Sum)
            }
            Self::CheckAndPut {
                table,
                condition,
                value,
            } => store
                .check_and_put(&table, &condition, &value)
                .await
                .map(Response::Held),
            Self::Append { table, cell, value } => {
                store.append(&table, &cell, &value).await.map(Response::Appended)
            }
            Self::CommitIf { conditions, batch } => {
                let commit = store.atomic().expect("a store with atomic commits");
                commit.commit_if(&conditions, batch).await.map(Response::Held)
            }
        }
    }
}

/// Says what becomes of operations.
#[async_trait]
pub trait Intercept: Send + Sync + std::fmt::Debug {
    /// Answers an operation in place of `store`: most often by [`Operation::perform`], with
    /// something before it, after it, or instead of it.
    ///
    /// # Errors
    ///
    /// Those that the caller of the operation is to get.
    async fn intercept(&self, operation: Operation, store: &dyn RowStore) -> Result<Response, StoreError>;
}

/// A store whose operations on rows go by way of an [`Intercept`]; tables, health and closing are
/// those of the store within.
#[derive(Clone, Debug)]
pub struct InterceptedStore {
    inner: Arc<dyn RowStore>,
    hook: Arc<dyn Intercept>,
    atomic: bool,
    like_hbase: bool,
}

impl InterceptedStore {
    /// A store before `inner`.
    pub fn new(inner: Arc<dyn RowStore>, hook: Arc<dyn Intercept>) -> Self {
        Self {
            inner,
            hook,
            atomic: true,
            like_hbase: false,
        }
    }

    /// The store without atomic commits, as HBase is.
    #[must_use]
    pub fn without_atomic_commits(self) -> Self {
        Self {
            atomic: false,
            ..self
        }
    }

    /// The store with what HBase says of itself: no atomic commits, no order of writes that are under
    /// way together, dear cells, other writers.
    #[must_use]
    pub fn like_hbase(self) -> Self {
        Self {
            atomic: false,
            like_hbase: true,
            ..self
        }
    }

    async fn call(&self, operation: Operation) -> Result<Response, StoreError> {
        self.hook.intercept(operation, &*self.inner).await
    }
}

/// Ends a test whose hook mixed up answers.
fn misplaced() -> ! {
    panic!("the hook gave the answer of another operation")
}

#[async_trait]
impl RowStore for InterceptedStore {
    async fn create_table(&self, table: &TableDef) -> Result<bool, StoreError> {
        self.inner.create_table(table).await
    }

    async fn tables(&self) -> Result<Vec<TableDef>, StoreError> {
        self.inner.tables().await
    }

    async fn get_rows(
        &self,
        table: &TableName,
        rows: &[Vec<u8>],
        columns: &ColumnSelection,
    ) -> Result<Vec<Option<Row>>, StoreError> {
        let operation = Operation::GetRows {
            table: table.clone(),
            rows: rows.to_vec(),
            columns: columns.clone(),
        };
        let Response::Rows(rows) = self.call(operation).await? else {
            misplaced()
        };
        Ok(rows)
    }

    async fn scan(&self, table: &TableName, scan: Scan) -> Result<RowStream, StoreError> {
        let table = table.clone();
        let Response::Scan(rows) = self.call(Operation::Scan { table, scan }).await? else {
            misplaced()
        };
        Ok(rows)
    }

    async fn measure(
        &self,
        table: &TableName,
        start: &[u8],
        stop: &[u8],
        limit: usize,
    ) -> Result<Option<RangeMeasure>, StoreError> {
        if self.like_hbase {
            return Ok(None);
        }
        self.inner.measure(table, start, stop, limit).await
    }

    async fn write(&self, batch: WriteBatch) -> Result<(), StoreError> {
        let Response::Written = self.call(Operation::Write { batch }).await? else {
            misplaced()
        };
        Ok(())
    }

    async fn increment(&self, table: &TableName, cell: &CellAddress, amount: i64) -> Result<i64, StoreError> {
        let operation = Operation::Increment {
            table: table.clone(),
            cell: cell.clone(),
            amount,
        };
        let Response::Sum(sum) = self.call(operation).await? else {
            misplaced()
        };
        Ok(sum)
    }

    async fn check_and_put(
        &self,
        table: &TableName,
        condition: &Condition,
        value: &[u8],
    ) -> Result<bool, StoreError> {
        let operation = Operation::CheckAndPut {
            table: table.clone(),
            condition: condition.clone(),
            value: value.to_vec(),
        };
        let Response::Held(held) = self.call(operation).await? else {
            misplaced()
        };
        Ok(held)
    }

    async fn append(
        &self,
        table: &TableName,
        cell: &CellAddress,
        value: &[u8],
    ) -> Result<Vec<u8>, StoreError> {
        let operation = Operation::Append {
            table: table.clone(),
            cell: cell.clone(),
            value: value.to_vec(),
        };
        let Response::Appended(value) = self.call(operation).await? else {
            misplaced()
        };
        Ok(value)
    }

    fn keeps_write_order(&self) -> bool {
        !self.like_hbase && self.inner.keeps_write_order()
    }

    fn prefers_few_cells(&self) -> bool {
        self.like_hbase || self.inner.prefers_few_cells()
    }

    fn has_other_writers(&self) -> bool {
        self.like_hbase || self.inner.has_other_writers()
    }

    fn max_row_key(&self, table: &TableName) -> usize {
        self.inner.max_row_key(table)
    }

    fn atomic(&self) -> Option<&dyn AtomicCommit> {
        (self.atomic && self.inner.atomic().is_some()).then_some(self)
    }

    async fn check_health(&self) -> Result<(), StoreError> {
        self.inner.check_health().await
    }

    fn damage(&self) -> Vec<crate::DamagedRange> {
        self.inner.damage()
    }

    async fn close(&self) -> Result<(), StoreError> {
        self.inner.close().await
    }
}

#[async_trait]
impl AtomicCommit for InterceptedStore {
    async fn commit_if(&self, conditions: &[Condition], batch: WriteBatch) -> Result<bool, StoreError> {
        let operation = Operation::CommitIf {
            conditions: conditions.to_vec(),
            batch,
        };
        let Response::Held(held) = self.call(operation).await? else {
            misplaced()
        };
        Ok(held)
    }
}
