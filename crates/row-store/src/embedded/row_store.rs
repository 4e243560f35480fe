//! [`RowStore`] and [`AtomicCommit`] for the embedded store.

use async_trait::async_trait;
use futures::stream::{StreamExt, try_unfold};

use super::queue::{Operation, Outcome};
use super::read::{self, Cursor};
use super::store::{EmbeddedStore, check_cell, off_runtime, unexpected};
use crate::rules::{self, Columns};
use crate::{
    AtomicCommit, CellAddress, ColumnSelection, Condition, DamageLog, DamagedRange, RangeMeasure, Row,
    RowStore, RowStream, Scan, StoreError, TableDef, TableName, WriteBatch,
};

#[async_trait]
impl RowStore for EmbeddedStore {
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
    ) -> Result<Vec<Option<Row>>, StoreError> {
        self.read_rows(table, rows, columns, None).await
    }

    async fn get_rows_skipping_damage(
        &self,
        table: &TableName,
        rows: &[Vec<u8>],
        columns: &ColumnSelection,
        damage: &DamageLog,
    ) -> Result<Vec<Option<Row>>, StoreError> {
        self.read_rows(table, rows, columns, Some(damage)).await
    }

    async fn scan(&self, table: &TableName, scan: Scan) -> Result<RowStream, StoreError> {
        let (core, _) = self.opened()?;
        let table = core.catalog.table(table)?;
        rules::check_scan(&scan)?;
        let columns = Columns::resolve(&table.def, &scan.columns)?;
        let view = read::view(&core, &table, columns, scan.max_versions);
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
                        let rows = read::step(&step_core, &step_table, &mut cursor)?;
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

    async fn measure(
        &self,
        table: &TableName,
        start: &[u8],
        stop: &[u8],
        limit: usize,
    ) -> Result<Option<RangeMeasure>, StoreError> {
        let (core, _) = self.opened()?;
        let table = core.catalog.table(table)?;
        let (start, stop) = (start.to_vec(), stop.to_vec());
        off_runtime(move || read::measure(&core, &table, &start, &stop, limit).map(Some)).await
    }

    async fn write(&self, batch: WriteBatch) -> Result<(), StoreError> {
        let (core, queue) = self.opened()?;
        let table = core.catalog.table(batch.table())?;
        let families = rules::check_batch(&table.def, &batch)?;
        if batch.is_empty() {
            return Ok(());
        }
        queue
            .change(table, Operation::Write { batch, families })
            .await
            .map(drop)
    }

    async fn increment(&self, table: &TableName, cell: &CellAddress, amount: i64) -> Result<i64, StoreError> {
        check_cell(&self.opened()?.0.catalog.table(table)?.def, cell)?;
        match self
            .change(
                table,
                Operation::Increment {
                    cell: cell.clone(),
                    amount,
                },
            )
            .await?
        {
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
        check_cell(&self.opened()?.0.catalog.table(table)?.def, cell)?;
        rules::check_value(value)?;
        match self
            .change(
                table,
                Operation::Append {
                    cell: cell.clone(),
                    value: value.to_vec(),
                },
            )
            .await?
        {
            Outcome::Appended(value) => Ok(value),
            outcome => Err(unexpected(&outcome)),
        }
    }

    fn keeps_write_order(&self) -> bool {
        true
    }

    fn has_other_writers(&self) -> bool {
        false
    }

    fn atomic(&self) -> Option<&dyn AtomicCommit> {
        Some(self)
    }

    async fn check_health(&self) -> Result<(), StoreError> {
        let (core, queue) = self.opened()?;
        queue.check()?;
        core.blocks.check()?;
        core.compaction.check()?;
        let write_error = core.write_error.lock().clone();
        let flush_error = core.flush.state.lock().error.clone();
        write_error.or(flush_error).map_or(Ok(()), Err)
    }

    fn damage(&self) -> Vec<DamagedRange> {
        self.opened()
            .map(|(core, _)| core.blocks.set_aside.ranges())
            .unwrap_or_default()
    }

    async fn close(&self) -> Result<(), StoreError> {
        let flushed = match self.flush().await {
            // Already closed.
            Err(StoreError::Unavailable { .. }) => Ok(()),
            flushed => flushed,
        };
        let opened = self.opened.write().take();
        if let Some(opened) = opened {
            off_runtime(move || {
                opened.stop();
                Ok(())
            })
            .await?;
        }
        flushed
    }
}

#[async_trait]
impl AtomicCommit for EmbeddedStore {
    async fn commit_if(&self, conditions: &[Condition], batch: WriteBatch) -> Result<bool, StoreError> {
        self.commit(conditions, batch).await
    }
}
