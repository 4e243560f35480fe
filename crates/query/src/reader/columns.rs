//! Points by series and time, and rows of other cells: the embedded store.
//!
//! ```text
//!   catalogue     the series that match
//!   access_path   slices of the range: columns, then the rows of other cells
//!   source        columns, which the workers of a query read
//!   last          the newest point of each series
//!   delete        points of series in a range
//!   series        all series with points
//! ```

pub(crate) mod access_path;
pub(crate) mod catalogue;
mod delete;
mod last;
mod series;
pub(crate) mod source;

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use futures::stream::BoxStream;
use oxtsdb_point_store::PointStore;
use oxtsdb_point_store::rollups::RollupColumns;
use oxtsdb_row_store::{RowStore, StoreError, TableName};
use oxtsdb_schema::RowKeyLayout;

use self::access_path::ColumnPath;
use self::catalogue::Catalogue;
use super::access_path::{AccessPath, IndexUse};
use super::context::ReadContext;
use super::range_scan::series_ranges;
use super::rows::RowReader;
use super::scan::RowRanges;
use super::{CountPoints, KnownSeries, PointDelete, PointReader, SeriesSet, SeriesStep};
use crate::error::QueryError;
use crate::plan::hours::Hours;
use crate::plan::rollup::RollupRead;
use crate::plan::selection::row_selection::Selection;

/// The stores of a table with points in columns.
#[derive(Clone, Debug)]
pub struct PointStorage {
    /// The points.
    pub columns: Arc<dyn PointStore>,
    /// The other cells of the table: annotations, for example.
    pub cells: Arc<dyn RowStore>,
    /// The tables of rollups with values in columns: a store for each, as [`RollupColumns`] reads them.
    pub rollups: RollupPoints,
}

/// Stores of rollups by their tables.
pub type RollupPoints = Arc<BTreeMap<TableName, Arc<dyn PointStore>>>;

/// Reads points from columns, and other cells from rows. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ColumnReader {
    points: PointStorage,
    /// The counts that values are divided by, of averages of rollups.
    counts: Option<Arc<dyn PointStore>>,
    is_rollup: bool,
    /// Reads all tables as rows.
    rows: RowReader,
    table: TableName,
    layout: RowKeyLayout,
}

impl ColumnReader {
    /// A reader of points. `rows` shows all tables as rows.
    pub fn new(
        points: PointStorage,
        rows: Arc<dyn RowStore>,
        table: TableName,
        layout: RowKeyLayout,
    ) -> Self {
        Self {
            points,
            counts: None,
            is_rollup: false,
            rows: RowReader::new(rows, table.clone(), layout),
            table,
            layout,
        }
    }

    /// The reader of a table of rollups, if no value of it is elsewhere: values that were stored before there were
    /// columns, or in another encoding than OpenTSDB's, are read with their rows.
    fn for_rollup(&self, table: &TableName, rollup: &RollupRead) -> Option<Self> {
        let store = self.points.rollups.get(table)?;
        if self.points.cells.may_have_rows(table, &[], &[]) {
            return None;
        }
        let aggregate = |id: u8| -> Arc<dyn PointStore> {
            Arc::new(RollupColumns::new(Arc::clone(store), rollup.interval.clone(), id))
        };
        Some(Self {
            points: PointStorage {
                columns: aggregate(rollup.value.1),
                ..self.points.clone()
            },
            counts: rollup.count.as_ref().map(|(_, id)| aggregate(*id)),
            is_rollup: true,
            table: table.clone(),
            ..self.clone()
        })
    }

    /// The catalogue of its series.
    fn catalogue<'a>(&'a self, context: &'a ReadContext) -> Catalogue<'a> {
        Catalogue {
            store: &self.points.columns,
            directory: &*context.directory,
            compute: &context.compute,
            widths: &self.layout.widths,
            deadline: context.deadline(),
        }
    }
}

#[async_trait]
impl PointReader for ColumnReader {
    fn for_table(&self, table: &TableName, rollup: Option<&RollupRead>) -> Arc<dyn PointReader> {
        match rollup.and_then(|rollup| self.for_rollup(table, rollup)) {
            Some(columns) => Arc::new(columns),
            None => self.rows.for_table(table, rollup),
        }
    }

    async fn access_path(
        &self,
        series: SeriesSet<'_>,
        selection: Selection,
        hours: Hours,
        context: &ReadContext,
    ) -> Result<Arc<dyn AccessPath>, QueryError> {
        let catalogue = self.catalogue(context);
        let (numbers, ranges, index_use) = match series {
            SeriesSet::Metric(metric) => {
                let numbers = catalogue.by_metric(metric, &selection).await?;
                let matching = numbers.len() as u64;
                let ranges = hours.ranges(&self.layout, metric);
                (numbers, ranges, IndexUse::Catalogued { matching })
            }
            SeriesSet::Tsuids(tsuids) => {
                let numbers = catalogue.by_tsuids(tsuids, &selection).await?;
                let ranges = series_ranges(tsuids, &self.layout, hours);
                (numbers, ranges, IndexUse::Named)
            }
        };
        let cells = RowRanges {
            store: Arc::clone(&self.points.cells),
            table: self.table.clone(),
            ranges: ranges.into(),
            selection,
            hours,
        };
        Ok(Arc::new(ColumnPath::new(self.clone(), index_use, numbers, cells)))
    }

    async fn delete(
        &self,
        delete: PointDelete,
        count: &mut CountPoints<'_>,
        context: &ReadContext,
    ) -> Result<(), QueryError> {
        self.delete_points(delete, count, context).await
    }

    async fn metrics(&self) -> Result<Vec<Vec<u8>>, QueryError> {
        Ok(self.points.columns.metrics())
    }

    fn series_with_columns<'a>(
        &'a self,
        table: &TableName,
        is_known: &'a KnownSeries<'_>,
    ) -> BoxStream<'a, Result<SeriesStep, StoreError>> {
        let store = if *table == self.table {
            Some(&self.points.columns)
        } else {
            self.points.rollups.get(table)
        };
        match store {
            Some(store) => series::with_points(store, is_known),
            None => Box::pin(futures::stream::empty()),
        }
    }

    fn cells(&self) -> &Arc<dyn RowStore> {
        &self.points.cells
    }

    fn columns(&self) -> Option<&Arc<dyn PointStore>> {
        Some(&self.points.columns)
    }
}
