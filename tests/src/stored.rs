//! The cells of tables in HBase, read and damaged directly, without the services.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::Context as _;
use oxtsdb_row_store::{RowStore, Scan, WriteBatch};
use tokio_stream::StreamExt as _;

use crate::rig::Rig;

/// Coordinates of a cell: row key, family, qualifier.
pub type Column = (Vec<u8>, String, Vec<u8>);

/// Reads tables.
#[derive(Debug)]
pub struct Stored {
    store: Arc<dyn RowStore>,
}

impl Stored {
    /// Connects as [`Rig::store`].
    ///
    /// # Errors
    ///
    /// If HBase cannot be reached.
    pub async fn connect(rig: &Rig) -> anyhow::Result<Self> {
        let store = rig.store().await?;
        Ok(Self { store })
    }

    /// All cells of a table with their values, in HBase's order but for families, which are by name.
    ///
    /// # Errors
    ///
    /// HBase's.
    pub async fn cells(&self, table: &str) -> anyhow::Result<BTreeMap<Column, Vec<u8>>> {
        let cells = self.timed_cells(table).await?;
        let without_time = |(column, (_, value))| (column, value);
        Ok(cells.into_iter().map(without_time).collect())
    }

    /// As [`Stored::cells`], each value with the timestamp of its cell, milliseconds.
    ///
    /// # Errors
    ///
    /// HBase's.
    pub async fn timed_cells(&self, table: &str) -> anyhow::Result<BTreeMap<Column, (i64, Vec<u8>)>> {
        let table = table.parse().with_context(|| format!("`{table}`"))?;
        let mut rows = self.store.scan(&table, Scan::prefix(&[])).await?;
        let mut cells = BTreeMap::new();
        while let Some(batch) = rows.next().await {
            for row in batch? {
                for cell in row.cells() {
                    let column = (
                        row.key().to_vec(),
                        cell.family.to_owned(),
                        cell.qualifier.to_vec(),
                    );
                    cells.insert(column, (cell.timestamp_ms, cell.value.to_vec()));
                }
            }
        }
        Ok(cells)
    }

    /// Puts cells into a table; those without a value are deleted.
    ///
    /// # Errors
    ///
    /// HBase's.
    pub async fn change(&self, table: &str, cells: &[(Column, Option<Vec<u8>>)]) -> anyhow::Result<()> {
        let mut batch = WriteBatch::new(table.parse().with_context(|| format!("`{table}`"))?);
        for ((row, family, qualifier), value) in cells {
            let family = batch.family(family);
            let batch = batch.row(row);
            match value {
                Some(value) => batch.put(family, qualifier, value),
                None => batch.delete_column(family, qualifier),
            };
        }
        Ok(self.store.write(batch).await?)
    }
}
