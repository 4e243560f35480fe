//! Marks of the metrics whose series all have rows in table `tsdb-meta`.
//!
//! A store from before series were tracked has points of series without such a row. A table of its own, as durable
//! as those rows, marks the metrics that are complete:
//!
//! ```text
//!   row key: the metric's UID, or `every metric`        m:complete    empty
//! ```
//!
//! `every metric` is set if the table of points is empty, before the first point is stored; a metric's own mark
//! after its series were collected. The table exists only on stores without other writers.

use std::sync::Arc;

use futures::TryStreamExt as _;
use oxtsdb_row_store::{ColumnSelection, RowStore, Scan, StoreError, TableDef, TableName, WriteBatch};
use oxtsdb_schema::MetricUid;

const FAMILY: &str = "m";
const QUALIFIER: &[u8] = b"complete";
const VALUE: &[u8] = &[1];

/// Longer than any UID.
const EVERY_METRIC: &[u8] = b"every metric";

/// The table of marks.
#[derive(Clone, Debug)]
pub(super) struct Marks {
    store: Arc<dyn RowStore>,
    table: TableName,
}

impl Marks {
    /// Opens the marks of a table of series. If the table of points is empty, marks every metric.
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
            // A damaged row is a row.
            Err(StoreError::Corrupt { .. }) => false,
            found => found?.is_none(),
        };
        if is_empty {
            marks.set(EVERY_METRIC).await?;
        }
        Ok(marks)
    }

    /// Whether all series of a metric have rows.
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

    /// Marks a metric: all its series have rows.
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
