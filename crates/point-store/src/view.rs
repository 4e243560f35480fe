//! Table `tsdb` of an embedded store: a view of its points and of its other cells as OpenTSDB's rows.
//!
//! ```text
//!                     other tables ─────────────────────────────► row store
//!   TableView ─┬─ table of points: annotations, histograms, … ──► row store ─┐
//!              └─ plain points ─────► point store (series, time) ── rows ────┴► merged by row key
//! ```
//!
//! Queries, writers, deletes and fsck use the two stores directly. The view is for the callers that need rows: exports,
//! scans and comparisons read it; the cells that are no points are read and written through it.
//!
//! A plain point is a cell as a writer of single cells stores it: a qualifier of 2 or 4 bytes, the value in the fewest
//! bytes, in the row of its series and hour. Each is shown as that cell; its timestamp is the instant of the point. All
//! other cells, and rows with keys that no writer produces, are in the row store. A series with puts of such cells only
//! has a number too, so that the point store lists every series with a row.
//!
//! The values of a rollup table are shown likewise ([`TableView::from_rollups`]): a plain one has a qualifier of 3 bytes and
//! its value in the fewest bytes; its timestamp is the start of its row. The counters of table `tsdb-meta` are shown as
//! cells, too ([`TableView::with_counters`]).
//!
//! Writes to the table of points:
//!
//! | Write | Caller |
//! |---|---|
//! | puts of any cells | `tsdb import --into`; histograms, rollups and pre-aggregates; builds of rollups |
//! | conditional puts and deletes of columns that hold no points | annotations |
//! | deletes of columns with values of rollups | builds of rollups, which delete other forms of a value |
//!
//! All other writes to rows of series are rejected with [`StoreError::Invalid`]: deletes of rows, families and columns of
//! points, which [`PointStore::delete`] is for; increments, appends and atomic commits.
//!
//! Differences from a table of cells:
//!
//! - An instant of a series has one point: the newest put, also if it has another resolution or type.
//! - The timestamps of puts are not kept. Of the points of one row in one batch, the newest timestamp wins.
//! - The points of a compacted cell become cells of their own.
//! - A mutation of points and a mutation of other cells in the same row are two writes: after a crash, one of them may
//!   be missing, and a reader may see one without the other.

mod atomic;
pub(crate) mod cells;
mod columns;
mod counted;
mod counters;
mod damage;
mod form;
mod merge;
mod place;
mod reads;
mod shown;
mod split;
mod walk;
mod window;
mod writes;

pub use damage::check_damage;
pub use shown::{ShownCell, shown_cells, shown_rollups};

use std::sync::Arc;

use async_trait::async_trait;
use futures::stream::{self, StreamExt as _};
use oxtsdb_row_store::{
    AtomicCommit, CellAddress, ColumnSelection, Condition, DamageLog, DamagedRange, RangeMeasure, Row,
    RowStore, RowStream, Scan, StoreControl, StoreError, TableDef, TableName, WriteBatch,
};
use oxtsdb_schema::RowKeyLayout;

use self::counters::Counters;
use self::form::{Aggregates, CellForm};
use self::window::WindowSize;
use crate::{PointStore, PointStoreError};

/// A [`RowStore`] that keeps its table of points in a [`PointStore`]; see the module's documentation.
#[derive(Debug)]
pub struct TableView {
    rows: Arc<dyn RowStore>,
    points: Arc<dyn PointStore>,
    layout: RowKeyLayout,
    /// The table of points; `None`: every table, which a test uses for tables without points.
    table: Option<TableName>,
    form: CellForm,
    /// How much a scan reads at once.
    window: WindowSize,
    /// Writes to the table of points acquire it first, and so keep their order. It is released when the last part of a
    /// write is submitted, so that the stores commit concurrent writes together.
    turn: tokio::sync::Mutex<()>,
    /// Shared by appends until they are acknowledged, exclusive for deletes: they concern all points put before.
    appends: tokio::sync::RwLock<()>,
    counters: Option<Arc<Counters>>,
}

impl TableView {
    /// Shows the points of `points` as rows of `table`. All other tables, and all other cells of this one, are in
    /// `rows`.
    pub fn new(
        rows: Arc<dyn RowStore>,
        points: Arc<dyn PointStore>,
        layout: RowKeyLayout,
        table: TableName,
    ) -> Self {
        Self {
            rows,
            points,
            layout,
            table: Some(table),
            form: CellForm::Points,
            window: WindowSize::default(),
            turn: tokio::sync::Mutex::default(),
            appends: tokio::sync::RwLock::default(),
            counters: None,
        }
    }

    /// Shows the points of `points` as the rollups of `table`; they have the instants of rollups, see
    /// [`crate::rollups`].
    ///
    /// # Errors
    ///
    /// If the point store is closed.
    pub fn from_rollups(
        rows: Arc<dyn RowStore>,
        points: Arc<dyn PointStore>,
        layout: RowKeyLayout,
        table: TableName,
    ) -> Result<Self, PointStoreError> {
        let aggregates = Aggregates::from_store(&*points)?;
        Ok(Self {
            form: CellForm::Rollups(Arc::new(aggregates)),
            ..Self::new(rows, points, layout, table)
        })
    }

    /// Keeps counters of table `meta` that are 1 by the numbers of their series. They are shown as cells.
    ///
    /// # Errors
    ///
    /// Errors of the row store.
    pub async fn with_counters(mut self, meta: TableName) -> Result<Self, StoreError> {
        let counters = Counters::open(Arc::clone(&self.rows), &*self.points, meta).await?;
        self.counters = Some(Arc::new(counters));
        Ok(self)
    }

    /// Whether a table is the table of points.
    fn has_points(&self, table: &TableName) -> bool {
        self.table.as_ref().is_none_or(|points| points == table)
    }

    /// Whether the row store may have rows from the first to the last of some keys, as far as it knows without a read.
    fn may_have_any(&self, table: &TableName, keys: &[Vec<u8>]) -> bool {
        match (keys.iter().min(), keys.iter().max()) {
            (Some(first), Some(last)) => {
                self.rows
                    .may_have_rows(table, first, &[last.as_slice(), &[0]].concat())
            }
            _ => false,
        }
    }

    /// The definition of a table.
    async fn definition(&self, table: &TableName) -> Result<TableDef, StoreError> {
        let mut tables = self.rows.tables().await?.into_iter();
        tables
            .find(|def| def.name == *table)
            .ok_or_else(|| StoreError::NoSuchTable { table: table.clone() })
    }
}

#[async_trait]
impl RowStore for TableView {
    async fn create_table(&self, table: &TableDef) -> Result<bool, StoreError> {
        self.rows.create_table(table).await
    }

    async fn tables(&self) -> Result<Vec<TableDef>, StoreError> {
        self.rows.tables().await
    }

    async fn get_rows(
        &self,
        table: &TableName,
        rows: &[Vec<u8>],
        columns: &ColumnSelection,
        skip_damaged: Option<&DamageLog>,
    ) -> Result<Vec<Option<Row>>, StoreError> {
        let stored = if self.counters_of(table).is_some() && !self.may_have_any(table, rows) {
            vec![None; rows.len()]
        } else {
            self.rows.get_rows(table, rows, columns, skip_damaged).await?
        };
        let stored = self.add_counters(table, rows, columns, stored).await?;
        self.add_points(table, rows, columns, stored, skip_damaged).await
    }

    async fn get_in_parts(
        &self,
        table: &TableName,
        row: &[u8],
        family: &str,
    ) -> Result<RowStream, StoreError> {
        if !self.has_points(table) && self.counters_of(table).is_none() {
            return self.rows.get_in_parts(table, row, family).await;
        }
        // A row of points is an hour, a row of counters a series.
        let columns = ColumnSelection::Family(family.to_owned());
        let row = self.get(table, row, &columns).await?;
        Ok(stream::iter(row.map(|row| Ok(vec![row]))).boxed())
    }

    async fn scan(&self, table: &TableName, scan: Scan) -> Result<RowStream, StoreError> {
        if self.counters_of(table).is_some() {
            return self.scan_counted(table, scan).await;
        }
        if !self.has_points(table) {
            return self.rows.scan(table, scan).await;
        }
        self.scan_merged(table, scan).await
    }

    /// `None` for the table of points, since its keys are found by reading the points, and for the table of counters.
    async fn measure(
        &self,
        table: &TableName,
        start: &[u8],
        stop: &[u8],
        limit: usize,
    ) -> Result<Option<RangeMeasure>, StoreError> {
        if self.has_points(table) || self.counters_of(table).is_some() {
            return Ok(None);
        }
        self.rows.measure(table, start, stop, limit).await
    }

    async fn write(&self, batch: WriteBatch) -> Result<(), StoreError> {
        if let Some(counters) = self.counters_of(batch.table())
            && let Some(series) = self.counted(&batch)
        {
            return counters.put(series).await;
        }
        self.store_mutated_counters(&batch).await?;
        if !self.has_points(batch.table()) {
            return self.rows.write(batch).await;
        }
        let turn = self.turn.lock().await;
        self.write_split(&batch, turn).await
    }

    async fn increment(&self, table: &TableName, cell: &CellAddress, amount: i64) -> Result<i64, StoreError> {
        self.reject_series(table, &cell.row, "increments")?;
        self.store_counter(table, cell).await?;
        self.rows.increment(table, cell, amount).await
    }

    async fn check_and_put(
        &self,
        table: &TableName,
        condition: &Condition,
        value: &[u8],
    ) -> Result<bool, StoreError> {
        self.reject_point(table, &condition.cell)?;
        self.number_series(table, &condition.cell.row).await?;
        self.store_counter(table, &condition.cell).await?;
        self.rows.check_and_put(table, condition, value).await
    }

    async fn append(
        &self,
        table: &TableName,
        cell: &CellAddress,
        value: &[u8],
    ) -> Result<Vec<u8>, StoreError> {
        self.reject_series(table, &cell.row, "appends")?;
        self.store_counter(table, cell).await?;
        self.rows.append(table, cell, value).await
    }

    fn max_row_key(&self, table: &TableName) -> usize {
        self.rows.max_row_key(table)
    }

    fn atomic(&self) -> Option<&dyn AtomicCommit> {
        self.rows.atomic().is_some().then_some(self)
    }
}

#[async_trait]
impl StoreControl for TableView {
    async fn check_health(&self) -> Result<(), StoreError> {
        self.points.check_health().await.map_err(StoreError::from)?;
        self.rows.check_health().await
    }

    fn damage(&self) -> Vec<DamagedRange> {
        let mut damage = self.rows.damage();
        if let Some(table) = &self.table {
            damage.extend(damage::ranges(&*self.points, table));
        }
        damage
    }

    async fn close(&self) -> Result<(), StoreError> {
        let points = self.points.close().await.map_err(StoreError::from);
        self.rows.close().await.and(points)
    }
}

#[cfg(test)]
mod tests;
