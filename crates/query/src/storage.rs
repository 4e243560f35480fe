//! The stored data that queries read.

use std::collections::BTreeMap;
use std::sync::Arc;

use oxtsdb_point_store::PointStore;
use oxtsdb_row_store::{RowStore, TableName};
use oxtsdb_schema::RowKeyLayout;

use crate::names::NameDirectory;
use crate::plan::selection::matches::MatchCache;
use crate::rollup::Rollups;
use crate::series_index::SeriesIndex;

/// Points in columns, which the store of [`Storage`] shows as rows.
#[derive(Clone, Debug)]
pub struct PointStorage {
    /// The points.
    pub columns: Arc<dyn PointStore>,
    /// The other cells of the table: annotations, for example.
    pub cells: Arc<dyn RowStore>,
    /// The tables of rollups with values in columns: a store for each, as [`RollupColumns`] reads them.
    ///
    /// [`RollupColumns`]: oxtsdb_point_store::rollups::RollupColumns
    pub rollups: RollupPoints,
}

/// Stores of rollups by their tables.
pub type RollupPoints = Arc<BTreeMap<TableName, Arc<dyn PointStore>>>;

/// Tables, the layout of their keys, names, and the series index. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Storage {
    /// The store.
    pub store: Arc<dyn RowStore>,
    /// The store of points, if they are not in rows of the store.
    pub points: Option<PointStorage>,
    /// The table of points.
    pub table: TableName,
    /// The table of series metadata.
    pub meta_table: TableName,
    /// How row keys are built.
    pub layout: RowKeyLayout,
    /// Resolves names and UIDs.
    pub directory: Arc<dyn NameDirectory>,
    /// Caches the tag values that filters match by name.
    pub matches: MatchCache,
    /// Lists the series of metrics; `None`: no index.
    pub index: Option<Arc<dyn SeriesIndex>>,
    /// Tables of rollups; `None`: there are none.
    pub rollups: Option<Arc<Rollups>>,
}
