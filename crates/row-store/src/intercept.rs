//! A store that passes operations through a hook, for tests.
//!
//! A test double is an [`Intercept`] of a few lines: it can delay an operation, reject it, perform it and lose
//! its response, hold it back, or replace its response.

use std::sync::Arc;

use async_trait::async_trait;

use crate::{
    AtomicCommit, CellAddress, ColumnSelection, Condition, DamageLog, RangeMeasure, Row, RowStore, RowStream,
    Scan, StoreControl, StoreError, TableDef, TableName, WriteBatch,
};

/// An operation on rows, with all of its parameters.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "the fields are the parameters of the methods named")]
pub enum Operation {
    /// [`RowStore::get_rows`], and through it [`RowStore::get`].
    GetRows {
        table: TableName,
        rows: Vec<Vec<u8>>,
        columns: ColumnSelection,
        skip_damaged: Option<DamageLog>,
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

/// The response to an [`Operation`].
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
    /// The table of the operation.
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

    /// Performs the operation on a store.
    ///
    /// # Errors
    ///
    /// Errors of the store.
    ///
    /// # Panics
    ///
    /// If it is [`Operation::CommitIf`] and the store has no atomic commits.
    pub async fn perform(self, store: &dyn RowStore) -> Result<Response, StoreError> {
        match self {
            Self::GetRows {
                table,
                rows,
                columns,
                skip_damaged,
            } => {
                let read = store.get_rows(&table, &rows, &columns, skip_damaged.as_ref());
                read.await.map(Response::Rows)
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

/// Decides the outcome of operations.
#[async_trait]
pub trait Intercept: Send + Sync + std::fmt::Debug {
    /// Responds to an operation in place of `store`: usually by [`Operation::perform`], preceded, followed or
    /// replaced by something else.
    ///
    /// # Errors
    ///
    /// The error that the caller of the operation receives.
    async fn intercept(&self, operation: Operation, store: &dyn RowStore) -> Result<Response, StoreError>;
}

/// A store that passes operations on rows through an [`Intercept`]. Table definitions, health and closing go
/// directly to the inner store.
#[derive(Clone, Debug)]
pub struct InterceptedStore {
    inner: Arc<dyn RowStore>,
    hook: Arc<dyn Intercept>,
    atomic: bool,
    like_hbase: bool,
}

impl InterceptedStore {
    /// Wraps `inner`.
    pub fn new(inner: Arc<dyn RowStore>, hook: Arc<dyn Intercept>) -> Self {
        Self {
            inner,
            hook,
            atomic: true,
            like_hbase: false,
        }
    }

    /// Hides atomic commits, which HBase does not have.
    #[must_use]
    pub fn without_atomic_commits(self) -> Self {
        Self {
            atomic: false,
            ..self
        }
    }

    /// Has HBase's capabilities: no atomic commits, and no knowledge of ranges that it has not read.
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

/// Fails a test with a hook that returned the response of another operation.
fn misplaced() -> ! {
    panic!("the hook returned the response of another operation")
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
        skip_damaged: Option<&DamageLog>,
    ) -> Result<Vec<Option<Row>>, StoreError> {
        let operation = Operation::GetRows {
            table: table.clone(),
            rows: rows.to_vec(),
            columns: columns.clone(),
            skip_damaged: skip_damaged.cloned(),
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

    fn may_have_rows(&self, table: &TableName, start: &[u8], stop: &[u8]) -> bool {
        self.like_hbase || self.inner.may_have_rows(table, start, stop)
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

    fn max_row_key(&self, table: &TableName) -> usize {
        self.inner.max_row_key(table)
    }

    fn atomic(&self) -> Option<&dyn AtomicCommit> {
        (self.atomic && self.inner.atomic().is_some()).then_some(self)
    }
}

#[async_trait]
impl StoreControl for InterceptedStore {
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
