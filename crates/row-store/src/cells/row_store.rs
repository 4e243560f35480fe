//! [`RowStore`] and [`AtomicCommit`] for the cell store.

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use futures::stream::{StreamExt, try_unfold};

use super::catalog::Table;
use super::core::Core;
use super::prefixes::{Presence, first_key};
use super::queue::{Operation, Outcome};
use super::read::{self, Allowance, Cursor, RowCursor, View};
use super::snapshot;
use super::store::CellStore;
use crate::rules::{self, Columns};
use crate::{
    AtomicCommit, CellAddress, ColumnSelection, Condition, DamageLog, DamagedRange, RangeMeasure, Row,
    RowStore, RowStream, Scan, StoreControl, StoreError, TableDef, TableName, WriteBatch,
};

/// Up to this many rows are read on the caller's thread, unless they have many cells: handing them to another thread
/// takes longer than reading them, even if one or the other comes from disk.
const READ_INLINE: usize = 4;

impl CellStore {
    /// Makes a durable copy of all tables in a folder, which is empty or absent, that can be opened as a store. It has
    /// everything that was written before this call, and may have later writes.
    ///
    /// # Errors
    ///
    /// [`StoreError::Invalid`] if the folder is not empty; errors of the disk, after which the folder is not complete.
    pub async fn snapshot(&self, folder: &Path) -> Result<(), StoreError> {
        self.flush().await?;
        let (core, _) = self.opened()?;
        let folder = folder.to_owned();
        off_runtime(move || snapshot::copy(&core, &folder)).await
    }

    fn table(&self, table: &TableName) -> Result<(Arc<Core>, Arc<Table>), StoreError> {
        let (core, _) = self.opened()?;
        let table = core.catalog.table(table)?;
        Ok((core, table))
    }

    async fn change(&self, table: Arc<Table>, operation: Operation) -> Result<Outcome, StoreError> {
        let (_, queue) = self.opened()?;
        queue.change(table, operation).await
    }

    /// Validates conditions and a batch, and commits them.
    async fn commit(&self, conditions: &[Condition], batch: WriteBatch) -> Result<bool, StoreError> {
        let (_, table) = self.table(batch.table())?;
        let families = rules::check_batch(&table.def, &batch)?;
        for condition in conditions {
            check_cell(&table.def, &condition.cell)?;
        }
        let operation = Operation::CommitIf {
            conditions: conditions.to_vec(),
            batch,
            families,
        };
        match self.change(table, operation).await? {
            Outcome::Held(held) => Ok(held),
            outcome => Err(unexpected(&outcome)),
        }
    }
}

/// Runs blocking work off the runtime's threads.
async fn off_runtime<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
) -> Result<T, StoreError> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|error| StoreError::Io {
            place: "read".to_owned(),
            detail: error.to_string(),
        })?
}

/// Validates the address of a cell.
fn check_cell(table: &TableDef, cell: &CellAddress) -> Result<(), StoreError> {
    rules::check_row_key(&cell.row)?;
    rules::check_qualifier(&cell.qualifier)?;
    rules::family_index(table, &cell.family).map(drop)
}

/// Unreachable: the commit thread returns the kind of outcome that the operation requires.
fn unexpected(outcome: &Outcome) -> StoreError {
    StoreError::Io {
        place: "commit thread".to_owned(),
        detail: format!("unexpected outcome {outcome:?}"),
    }
}

#[async_trait]
impl RowStore for CellStore {
    async fn create_table(&self, table: &TableDef) -> Result<bool, StoreError> {
        let (core, _) = self.opened()?;
        let table = table.clone();
        off_runtime(move || core.catalog.create(&table)).await
    }

    async fn tables(&self) -> Result<Vec<TableDef>, StoreError> {
        Ok(self.opened()?.0.catalog.definitions())
    }

    async fn get_rows(
        &self,
        table: &TableName,
        rows: &[Vec<u8>],
        columns: &ColumnSelection,
        skip_damaged: Option<&DamageLog>,
    ) -> Result<Vec<Option<Row>>, StoreError> {
        let (core, table) = self.table(table)?;
        let columns = Columns::resolve(&table.def, columns)?;
        rows.iter().try_for_each(|row| rules::check_row_key(row))?;
        let view = View::new(&core, &table, columns, 1);
        if rows.len() <= READ_INLINE {
            // Lets other tasks run if a caller reads in a loop.
            tokio::task::consume_budget().await;
            let read = core.tree.try_read(|snapshot| {
                let inline = Allowance::INLINE;
                read::rows(&core, snapshot, &table, rows, &view, skip_damaged, inline)
            });
            // Isolating damage reads a whole file, and a row may have any number of cells: both run off the runtime.
            if let Some(read) = read
                && let Some(rows) = read.transpose()
            {
                return rows;
            }
        }
        let (keys, skip_damaged) = (rows.to_vec(), skip_damaged.cloned());
        off_runtime(move || {
            let read = core.tree.read(|snapshot| {
                let (skip_damaged, unbounded) = (skip_damaged.as_ref(), Allowance::UNBOUNDED);
                read::rows(&core, snapshot, &table, &keys, &view, skip_damaged, unbounded)
            });
            read.map(Option::unwrap_or_default)
        })
        .await
    }

    async fn get_in_parts(
        &self,
        table: &TableName,
        row: &[u8],
        family: &str,
    ) -> Result<RowStream, StoreError> {
        let (core, table) = self.table(table)?;
        rules::check_row_key(row)?;
        let index = rules::family_index(&table.def, family)?;
        let columns = Columns::resolve(&table.def, &ColumnSelection::Family(family.to_owned()))?;
        let cursor = RowCursor::new(&table, row, index, View::new(&core, &table, columns, 1));
        Ok(
            try_unfold((core, table, cursor), |(core, table, mut cursor)| async move {
                while !cursor.done {
                    let (part_core, part_table) = (core.clone(), table.clone());
                    let part;
                    (part, cursor) = off_runtime(move || {
                        let part = part_core
                            .tree
                            .read(|snapshot| read::part(&part_core, snapshot, &part_table, &mut cursor))?;
                        Ok((part, cursor))
                    })
                    .await?;
                    if let Some(part) = part {
                        return Ok(Some((vec![part], (core, table, cursor))));
                    }
                }
                Ok(None)
            })
            .boxed(),
        )
    }

    async fn scan(&self, table: &TableName, scan: Scan) -> Result<RowStream, StoreError> {
        let (core, table) = self.table(table)?;
        rules::check_scan(&scan)?;
        let columns = Columns::resolve(&table.def, &scan.columns)?;
        let view = View::new(&core, &table, columns, scan.max_versions);
        let cursor = Cursor {
            scan,
            view,
            done: false,
        };
        Ok(
            try_unfold((core, table, cursor), |(core, table, mut cursor)| async move {
                while !cursor.done {
                    let (step_core, step_table) = (core.clone(), table.clone());
                    let rows;
                    (rows, cursor) = off_runtime(move || {
                        let rows = step_core
                            .tree
                            .read(|snapshot| read::step(&step_core, snapshot, &step_table, &mut cursor))?;
                        Ok((rows, cursor))
                    })
                    .await?;
                    if !rows.is_empty() {
                        return Ok(Some((rows, (core, table, cursor))));
                    }
                }
                Ok(None)
            })
            .boxed(),
        )
    }

    fn may_have_rows(&self, table: &TableName, start: &[u8], stop: &[u8]) -> bool {
        let Ok((core, table)) = self.table(table) else {
            return true;
        };
        // Reads report damage, of rows that are not there.
        if !core.tree.set_aside.is_empty() {
            return true;
        }
        match core.prefixes.presence(table.id, start, stop) {
            Presence::No => false,
            Presence::Maybe => true,
            Presence::NotRead => {
                tokio::task::spawn_blocking(move || {
                    let next_key = |from: &[u8]| core.tree.read(|snapshot| Ok(first_key(snapshot, from)?));
                    if let Err(error) = core.prefixes.read(table.id, next_key) {
                        // Reads of the rows report it, too.
                        tracing::warn!(%error, table = %table.def.name, "the prefixes of rows cannot be read");
                    }
                });
                true
            }
        }
    }

    async fn measure(
        &self,
        table: &TableName,
        start: &[u8],
        stop: &[u8],
        limit: usize,
    ) -> Result<Option<RangeMeasure>, StoreError> {
        let (core, table) = self.table(table)?;
        let (start, stop) = (start.to_vec(), stop.to_vec());
        off_runtime(move || {
            core.tree
                .read(|snapshot| read::measure(snapshot, &table, &start, &stop, limit))
                .map(Some)
        })
        .await
    }

    async fn write(&self, batch: WriteBatch) -> Result<(), StoreError> {
        let (_, table) = self.table(batch.table())?;
        let families = rules::check_batch(&table.def, &batch)?;
        if batch.is_empty() {
            return Ok(());
        }
        self.change(table, Operation::Write { batch, families })
            .await
            .map(drop)
    }

    async fn increment(&self, table: &TableName, cell: &CellAddress, amount: i64) -> Result<i64, StoreError> {
        let (_, table) = self.table(table)?;
        check_cell(&table.def, cell)?;
        let cell = cell.clone();
        match self.change(table, Operation::Increment { cell, amount }).await? {
            Outcome::Sum(sum) => Ok(sum),
            outcome => Err(unexpected(&outcome)),
        }
    }

    async fn check_and_put(
        &self,
        table: &TableName,
        condition: &Condition,
        value: &[u8],
    ) -> Result<bool, StoreError> {
        let mut batch = WriteBatch::new(table.clone());
        let family = batch.family(&condition.cell.family);
        batch
            .row(&condition.cell.row)
            .put(family, &condition.cell.qualifier, value);
        self.commit(std::slice::from_ref(condition), batch).await
    }

    async fn append(
        &self,
        table: &TableName,
        cell: &CellAddress,
        value: &[u8],
    ) -> Result<Vec<u8>, StoreError> {
        let (_, table) = self.table(table)?;
        check_cell(&table.def, cell)?;
        rules::check_value(value)?;
        let (cell, value) = (cell.clone(), value.to_vec());
        match self.change(table, Operation::Append { cell, value }).await? {
            Outcome::Appended(value) => Ok(value),
            outcome => Err(unexpected(&outcome)),
        }
    }

    fn atomic(&self) -> Option<&dyn AtomicCommit> {
        Some(self)
    }
}

#[async_trait]
impl StoreControl for CellStore {
    async fn check_health(&self) -> Result<(), StoreError> {
        let (core, queue) = self.opened()?;
        queue.check()?;
        off_runtime(move || core.check()).await
    }

    fn damage(&self) -> Vec<DamagedRange> {
        self.opened()
            .map(|(core, _)| core.tree.set_aside.ranges())
            .unwrap_or_default()
    }

    async fn close(&self) -> Result<(), StoreError> {
        // All acknowledged writes are in the journal.
        if let Some(opened) = self.take() {
            off_runtime(move || {
                opened.stop();
                Ok(())
            })
            .await?;
        }
        Ok(())
    }
}

#[async_trait]
impl AtomicCommit for CellStore {
    async fn commit_if(&self, conditions: &[Condition], batch: WriteBatch) -> Result<bool, StoreError> {
        self.commit(conditions, batch).await
    }
}
