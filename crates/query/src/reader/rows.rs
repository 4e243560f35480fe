//! Points in OpenTSDB's rows.
//!
//! ```text
//!   access_path   single rows of few series, or a scan of each salt bucket
//!   single_rows   the rows of series, by their keys
//!   estimate      rows of a range, counted in samples
//!   last          the newest rows first
//!   metrics       a row of each metric
//! ```

pub(crate) mod access_path;
mod estimate;
mod last;
mod metrics;
pub(crate) mod single_rows;

use std::sync::Arc;

use async_trait::async_trait;
use oxtsdb_row_store::{RowStore, TableName};
use oxtsdb_schema::RowKeyLayout;

use self::access_path::RowPath;
use super::access_path::AccessPath;
use super::context::ReadContext;
use super::{PointReader, SeriesSet};
use crate::error::QueryError;
use crate::plan::hours::Hours;
use crate::plan::rollup::RollupRead;
use crate::plan::selection::row_selection::Selection;

/// Reads points from the rows of a table. Cheap to clone.
#[derive(Clone, Debug)]
pub struct RowReader {
    store: Arc<dyn RowStore>,
    table: TableName,
    layout: RowKeyLayout,
    /// Whether a series has one row for each of its hours, so that the row keys are known.
    has_rows_of_hours: bool,
}

impl RowReader {
    /// A reader of a table of points.
    pub const fn new(store: Arc<dyn RowStore>, table: TableName, layout: RowKeyLayout) -> Self {
        Self {
            store,
            table,
            layout,
            has_rows_of_hours: true,
        }
    }
}

#[async_trait]
impl PointReader for RowReader {
    fn for_table(&self, table: &TableName, rollup: Option<&RollupRead>) -> Arc<dyn PointReader> {
        Arc::new(Self {
            table: table.clone(),
            has_rows_of_hours: rollup.is_none(),
            ..self.clone()
        })
    }

    async fn access_path(
        &self,
        series: SeriesSet<'_>,
        selection: Selection,
        hours: Hours,
        context: &ReadContext,
    ) -> Result<Arc<dyn AccessPath>, QueryError> {
        let path = RowPath::choose(self, series, selection, hours, context);
        Ok(Arc::new(path.await?))
    }

    async fn metrics(&self) -> Result<Vec<Vec<u8>>, QueryError> {
        self.metrics_of_keys().await
    }

    fn cells(&self) -> &Arc<dyn RowStore> {
        &self.store
    }
}
