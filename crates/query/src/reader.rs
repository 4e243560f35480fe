//! The way to stored points: one trait for all callers, and a folder for each backend.
//!
//! ```text
//!   plan ───────► PointReader ──► AccessPath ──► estimate; scan: column ranges, row batches, watermarks
//!   last ───────►     │
//!   operators ──►     ├── rows       OpenTSDB's rows, as HBase has them
//!                     └── columns    points by series and time, with rows of other cells: the embedded store
//! ```
//!
//! How few series are found, whether they are read by their keys, and in which order a scan reads are choices of the
//! backend; a plan shows them as a [`PathDescription`]. A caller that can use columns requests [`PointReader::columns`].
//!
//! [`PathDescription`]: access_path::PathDescription

pub(crate) mod access_path;
pub(crate) mod columns;
pub(crate) mod context;
pub(crate) mod estimate;
pub(crate) mod last;
pub(crate) mod range_scan;
pub(crate) mod rows;
pub(crate) mod scan;

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use futures::stream::BoxStream;
use oxtsdb_point_store::{PointStore, TimeRange};
use oxtsdb_row_store::{RowStore, StoreError, TableName};
use oxtsdb_schema::{MetricUid, Tsuid};

use self::access_path::AccessPath;
use self::context::ReadContext;
use self::last::LastPointReader;
use crate::error::QueryError;
use crate::plan::hours::Hours;
use crate::plan::rollup::RollupRead;
use crate::plan::selection::row_selection::Selection;

/// Reads the points of a table. Cheap to clone.
#[async_trait]
pub trait PointReader: LastPointReader + fmt::Debug {
    /// The reader of another table: of pre-aggregates, or of the rollups of an interval.
    fn for_table(&self, table: &TableName, rollup: Option<&RollupRead>) -> Arc<dyn PointReader>;

    /// Chooses how the series are read that pass a selection.
    ///
    /// # Errors
    ///
    /// Errors of the name directory and of the index.
    async fn access_path(
        &self,
        series: SeriesSet<'_>,
        selection: Selection,
        hours: Hours,
        context: &ReadContext,
    ) -> Result<Arc<dyn AccessPath>, QueryError>;

    /// Deletes points that are in columns; the other ones are deleted with their cells. Calls `count` with each series that
    /// has such points, and their number. Ends between two steps when the query does.
    ///
    /// # Errors
    ///
    /// Errors of the store, of the name directory, of `count`, and of the context. A repetition is safe.
    async fn delete(
        &self,
        _delete: PointDelete,
        _count: &mut CountPoints<'_>,
        _context: &ReadContext,
    ) -> Result<(), QueryError> {
        Ok(())
    }

    /// The UIDs of all metrics with points, in no particular order.
    ///
    /// # Errors
    ///
    /// When the store fails.
    async fn metrics(&self) -> Result<Vec<Vec<u8>>, QueryError>;

    /// The series of a table that have points in columns, in steps; series for which `is_known` is true are left out.
    fn series_with_columns<'a>(
        &'a self,
        _table: &TableName,
        _is_known: &'a KnownSeries<'_>,
    ) -> BoxStream<'a, Result<SeriesStep, StoreError>> {
        Box::pin(futures::stream::empty())
    }

    /// The store of the cells that are no points in columns: annotations, for example; of all cells if there are no
    /// columns.
    fn cells(&self) -> &Arc<dyn RowStore>;

    /// The points in columns, with a catalogue of all series; `None`: [`PointReader::cells`] have all points, and only
    /// their keys and the index list series.
    fn columns(&self) -> Option<&Arc<dyn PointStore>> {
        None
    }
}

/// Whether a caller knows a TSUID.
pub(crate) type KnownSeries<'a> = dyn Fn(&[u8]) -> bool + Send + Sync + 'a;

/// A step of [`PointReader::series_with_columns`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SeriesStep {
    /// Series that were visited.
    pub visited: u64,
    /// The TSUIDs of the unknown ones that have points.
    pub with_points: Vec<Vec<u8>>,
}

/// Takes a TSUID and the number of its points.
pub(crate) type CountPoints<'a> = dyn FnMut(&[u8], u64) -> Result<(), QueryError> + Send + 'a;

/// Points to delete.
#[derive(Clone, Debug)]
pub struct PointDelete {
    /// Their series.
    pub source: ResolvedSource,
    /// Their instants, both ends included.
    pub range: TimeRange,
    /// Counts them only.
    pub dry_run: bool,
}

/// The series of a request for stored data, with names resolved.
#[derive(Clone, Debug)]
pub enum ResolvedSource {
    /// Series of a metric that pass a selection.
    Metric(MetricUid, Selection),
    /// Single series, which may be of several metrics.
    Tsuids(Vec<Tsuid>),
    /// All series.
    All,
    /// No series, but the global annotations.
    GlobalAnnotations,
}

/// The series that a selection applies to.
#[derive(Clone, Copy, Debug)]
pub enum SeriesSet<'a> {
    /// All series of a metric.
    Metric(MetricUid),
    /// These series.
    Tsuids(&'a [Tsuid]),
}
