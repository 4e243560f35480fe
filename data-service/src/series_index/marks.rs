//! Of which metrics table `tsdb-meta` has all series.
//!
//! A folder that was written before series were tracked has points of series without a row there. What
//! is complete is remembered in a table of its own, beside the rows that it speaks of and as durable as
//! they are:
//!
//! ```text
//!   row key: the metric's UID, or `every metric`        m:complete    empty
//! ```
//!
//! `every metric` is set before the first point is stored, where there is none yet; a metric's own mark
//! when its series were collected. There is such a table only where nobody else writes.

use std::sync::Arc;

use futures::TryStreamExt as _;
use oxtsdb_row_store::{ColumnSelection, RowStore, Scan, StoreError, TableDef, TableName, WriteBatch};
use oxtsdb_schema::MetricUid;

const FAMILY: &str = "m";
const QUALIFIER: &[u8] = b"complete";
const VALUE: &[u8] = &[1];

/// No UID is so long.
const EVERY_METRIC: &[u8] = b"every metric";

/// The table of marks.
#[derive(Clone, Debug)]
pub(super) struct Marks {
    store: Arc<dyn RowStore>,
    table: TableName,
}

impl Marks {
    /// The marks of a table of series. Where the table of points is empty, every metric is marked.
    ///
    /// # Errors
    ///
    /// When the store fails.
    pub(super) async fn open(
        store: Arc<dyn RowStore>,
        meta_table: &TableName,
        data_table: &TableName,
    ) -> Result<Self, StoreError> {
        let table: TableName = format!("{meta_table}-complete").parse()?;
        let marks = Self { store, table };
        let store = &marks.store;
        store
            .create_table(&TableDef::new(marks.table.clone(), &[FAMILY]))
            .await?;
        let mut first = Scan::range(Vec::new(), Vec::new());
        first.limit = Some(1);
        let found = async { store.scan(data_table, first).await?.try_next().await };
        let is_empty = match found.await {
            // Rows that are damaged are rows.
            Err(StoreError::Corrupt { .. }) => false,
            found => found?.is_none(),
        };
        if is_empty {
            marks.set(EVERY_METRIC).await?;
        }
        Ok(marks)
    }

    /// Whether all series of a metric have their rows.
    ///
    /// # Errors
    ///
    /// When the store fails.
    pub(super) async fn is_complete(&self, metric: MetricUid) -> Result<bool, StoreError> {
        let keys = [EVERY_METRIC.to_vec(), metric.as_bytes().to_vec()];
        let rows = self
            .store
            .get_rows(&self.table, &keys, &ColumnSelection::All)
            .await?;
        Ok(rows.iter().any(Option::is_some))
    }

    /// Notes that all series of a metric have their rows.
    ///
    /// # Errors
    ///
    /// When the store fails.
    pub(super) async fn set_complete(&self, metric: MetricUid) -> Result<(), StoreError> {
        self.set(metric.as_bytes()).await
    }

    async fn set(&self, key: &[u8]) -> Result<(), StoreError> {
        let mut batch = WriteBatch::new(self.table.clone());
        let family = batch.family(FAMILY);
        batch.row(key).put(family, QUALIFIER, VALUE);
        self.store.write(batch).await
    }
}
