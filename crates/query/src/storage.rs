//! The stored data that queries read.

use std::sync::Arc;

use oxtsdb_resources::ComputePool;
use oxtsdb_row_store::{RowStore, TableName};
use oxtsdb_schema::RowKeyLayout;

use crate::context::query_context::QueryContext;
use crate::names::NameDirectory;
use crate::plan::rollup::TableRead;
use crate::plan::selection::matches::MatchCache;
use crate::reader::PointReader;
use crate::reader::context::ReadContext;
use crate::rollup::Rollups;
use crate::series_index::SeriesIndex;

/// Tables, the layout of their keys, names, and the series index. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Storage {
    /// All tables as rows.
    pub store: Arc<dyn RowStore>,
    /// The points of the table.
    pub reader: Arc<dyn PointReader>,
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

impl Storage {
    /// The storage of another table; `None`: of this one.
    pub(crate) fn for_table(&self, read: &TableRead) -> Option<Self> {
        let table = read.table.as_ref()?;
        Some(Self {
            reader: self.reader.for_table(table, read.rollup.as_ref()),
            index: None,
            table: table.clone(),
            ..self.clone()
        })
    }

    /// The context of a read of the points, by the client of the query.
    pub fn read_context(&self, compute: &ComputePool, query: &QueryContext) -> ReadContext {
        ReadContext {
            directory: Arc::clone(&self.directory),
            index: self.index.clone(),
            compute: query.compute(compute),
            query: query.clone(),
        }
    }
}
