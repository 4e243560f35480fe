//! Puts and deletes of the table of points.

use std::collections::BTreeMap;

use oxtsdb_row_store::{ColumnSelection, StoreError, TableName, WriteBatch};
use oxtsdb_schema::data_table::FAMILY;
use tokio::sync::MutexGuard;

use super::TableView;
use super::form::PointColumn;
use super::split::{Column, PointOperation, Split};
use crate::{PointBatch, TimeRange};

impl TableView {
    /// Applies a batch: first the cells of the row store, then the points in order.
    pub(super) async fn write_split(
        &self,
        batch: &WriteBatch,
        turn: MutexGuard<'_, ()>,
    ) -> Result<(), StoreError> {
        let table = batch.table();
        let def = self.definition(table).await?;
        if let Some(family) = batch
            .families()
            .iter()
            .find(|name| def.family_index(name).is_none())
        {
            return Err(StoreError::NoSuchFamily {
                table: table.clone(),
                family: family.clone(),
            });
        }
        let mut split = Split::new(batch, &*self.points, &self.layout, &self.form)?;
        if split.has_new_series {
            self.points.append(PointBatch::default()).await?;
        }
        self.delete_replaced(table, split.put).await?;
        if split.operations.is_empty() {
            drop(turn);
            return self.write_stored(split.stored).await;
        }
        self.write_stored(split.stored).await?;
        if let [PointOperation::Append(points)] = &mut split.operations[..] {
            let _shared = self.appends.read().await;
            let append = self.points.append(std::mem::take(points));
            drop(turn);
            return append.await.map_err(StoreError::from);
        }
        let _exclusive = self.appends.write().await;
        for operation in split.operations {
            self.apply(operation).await?;
        }
        Ok(())
    }

    async fn write_stored(&self, batch: WriteBatch) -> Result<(), StoreError> {
        if batch.is_empty() {
            return Ok(());
        }
        self.rows.write(batch).await
    }

    /// Deletes the cells of the row store that points replace: odd encodings in their columns.
    async fn delete_replaced(&self, table: &TableName, put: Vec<Column>) -> Result<(), StoreError> {
        let family = String::from_utf8_lossy(FAMILY);
        let mut columns: BTreeMap<Vec<u8>, Vec<PointColumn>> = BTreeMap::new();
        for (key, column) in put {
            let columns = columns.entry(key).or_default();
            columns.extend(self.form.columns_of_place(column));
        }
        if columns.is_empty() {
            return Ok(());
        }
        let keys: Vec<_> = columns.keys().cloned().collect();
        let selection = ColumnSelection::Family(family.clone().into_owned());
        let stored = self.rows.get_rows(table, &keys, &selection, None).await?;
        let mut deletes = WriteBatch::new(table.clone());
        let id = deletes.family(&family);
        for row in stored.iter().flatten() {
            let put = columns.get(row.key()).map(Vec::as_slice).unwrap_or_default();
            for cell in row
                .cells()
                .filter(|cell| put.iter().any(|put| put.as_bytes() == cell.qualifier))
            {
                deletes.row(row.key());
                deletes.delete_column_up_to(id, cell.qualifier, cell.timestamp_ms);
            }
        }
        self.write_stored(deletes).await
    }

    async fn apply(&self, operation: PointOperation) -> Result<(), StoreError> {
        match operation {
            PointOperation::Append(batch) => self.points.append(batch).await.map_err(StoreError::from),
            PointOperation::DeleteCells { series, cells } => {
                let times = || cells.iter().map(|(time_ms, _)| *time_ms);
                let (Some(first_ms), Some(last_ms)) = (times().min(), times().max()) else {
                    return Ok(());
                };
                let read = self.read(vec![series], TimeRange { first_ms, last_ms }).await?;
                // A point in another encoding has another column, which is not deleted.
                for point in read.iter().flat_map(|(_, points)| points) {
                    if !cells.contains(&(point.time_ms, self.form.cell_of(point).0)) {
                        continue;
                    }
                    let instant = TimeRange {
                        first_ms: point.time_ms,
                        last_ms: point.time_ms,
                    };
                    self.points
                        .delete(&[series], instant)
                        .await
                        .map_err(StoreError::from)?;
                }
                Ok(())
            }
        }
    }
}
