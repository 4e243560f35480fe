//! Access paths: how a plan reads its series. A backend chooses them, and no caller looks inside.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use futures::stream::BoxStream;
use oxtsdb_point_store::{SeriesNumber, TimeRange};
use oxtsdb_resources::ComputePool;
use oxtsdb_row_store::{DamageLog, StoreError};
use oxtsdb_schema::Tsuid;

use super::columns::source::ColumnSource;
use super::estimate::Estimate;
use super::range_scan::KeyRange;
use super::scan::{RowRanges, ScanItem};
use crate::context::budget::Budget;
use crate::error::QueryError;
use crate::function::aggregator::Function;
use crate::function::downsample::Windows;
use crate::plan::lookahead::Lookahead;
use crate::plan::selection::row_selection::Selection;
use crate::series_index::NotListed;

/// The access path to the series of a plan.
#[async_trait]
pub trait AccessPath: fmt::Debug + Send + Sync {
    /// Describes the path, for operators.
    fn description(&self) -> PathDescription;

    /// Selects the matching rows, narrowed to the series that are resolved.
    fn selection(&self) -> &Selection;

    /// Memory of a list of series, in bytes.
    fn byte_len(&self) -> u64 {
        0
    }

    /// Estimates the reads. Visits the keys of at most a few thousand rows, where the store can do so cheaply.
    ///
    /// # Errors
    ///
    /// When the store fails.
    async fn estimate(&self) -> Result<Estimate, StoreError>;

    /// Reads the points, and the other cells of the same hours. Dropping the stream cancels the scan.
    ///
    /// The stream must be polled within a Tokio runtime.
    fn scan(&self, request: &ScanRequest<'_>) -> PointScan {
        PointScan {
            columns: None,
            items: self.rows(request.budget, request.skip_damaged),
        }
    }

    /// Reads the rows: of all cells that are no points in columns. As [`AccessPath::scan`].
    fn rows(
        &self,
        budget: &Budget,
        skip_damaged: Option<&DamageLog>,
    ) -> BoxStream<'static, Result<ScanItem, QueryError>>;

    /// The ranges of these rows.
    fn row_ranges(&self) -> RowRanges;

    /// How many series match, with or without points in the range; `None` if only a scan finds the series.
    fn listed_series(&self) -> Option<u64> {
        None
    }

    /// Calls `seen` with each listed series; with none where only a scan finds them.
    ///
    /// # Errors
    ///
    /// Keys that are no series.
    fn each_listed(&self, _seen: &mut dyn FnMut(SeriesNumber, &Tsuid)) -> Result<(), QueryError> {
        Ok(())
    }

    /// The path to some of the listed series; `None` where only a scan finds them.
    fn with_series(&self, _series: Vec<SeriesNumber>) -> Option<Arc<dyn AccessPath>> {
        None
    }

    /// The memory of its points.
    fn memory(&self, downsample: Option<&(Windows, Function)>) -> PathMemory {
        let _ = downsample;
        PathMemory::Unknown
    }

    /// Whether all of its points are in columns, as far as that is known without reading, and no row has other cells.
    fn has_only_columns(&self) -> bool {
        false
    }

    /// The listed series that have points in a range, each with the instant of its last one, in batches; none where only
    /// a scan finds series.
    fn last_times(
        &self,
        _range: TimeRange,
        _compute: &ComputePool,
        _skip_damaged: Option<&DamageLog>,
    ) -> BoxStream<'static, Result<Vec<(Tsuid, i64)>, QueryError>> {
        Box::pin(futures::stream::empty())
    }
}

/// The estimated memory of the points of an access path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathMemory {
    /// Only a scan finds out.
    Unknown,
    /// Rows of an hour each, at most this many.
    Rows(u64),
    /// Columns of listed series.
    Columns {
        /// Series, with or without points in the range.
        series: u64,
        /// Points.
        points: u64,
        /// Points, if the series are denser than others of the same files.
        likely_points: u64,
        /// Bytes of `likely_points`, or of their windows, if all of them are read at once.
        held_bytes: u64,
    },
}

/// The points that a scan is for.
#[derive(Clone, Copy, Debug)]
pub struct ScanRequest<'a> {
    /// How each series is downsampled.
    pub downsample: Option<&'a (Windows, Function)>,
    /// The points after the query that series need; `None`: all of them.
    pub(crate) lookahead: Option<Lookahead>,
    /// Bytes of a slice of columns.
    pub slice_bytes: u64,
    /// The budget of the query.
    pub budget: &'a Budget,
    /// Collects the damage that is skipped, if the query may skip any.
    pub skip_damaged: Option<&'a DamageLog>,
}

/// A scan of points.
#[expect(missing_debug_implementations, reason = "has a stream")]
pub struct PointScan {
    /// The source of [`ScanItem::Columns`]; `None`: there are none.
    pub(crate) columns: Option<ColumnSource>,
    /// Its items.
    pub(crate) items: BoxStream<'static, Result<ScanItem, QueryError>>,
}

/// The reads of an access path, and the reason for them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathDescription {
    /// Its kind.
    pub kind: PathKind,
    /// The contribution of the index.
    pub reason: IndexUse,
    /// The ranges of row keys of a scan, one for each salt bucket, ascending.
    pub ranges: Vec<KeyRange>,
}

/// The kind of an access path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathKind {
    /// Rows of resolved series by their keys.
    SingleRows,
    /// A scan that seeks from one resolved series to the next.
    SeriesSeek,
    /// A scan in which a filter allows seeks.
    SkipScan,
    /// A scan of all keys.
    FullScan,
    /// Columns of resolved series.
    Columns,
}

/// The contribution of the index to a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IndexUse {
    /// Nothing: the query names its series.
    Named,
    /// Nothing: the filters are not selective.
    NotSelective,
    /// The matching series, whether they have points in the range or not.
    Resolved {
        /// How many match.
        matching: u64,
        /// All series of the metric.
        listed: u64,
    },
    /// Nothing: it has no list of the metric's series.
    NotListed(NotListed),
    /// The store of the points has a catalogue, which resolved the series.
    Catalogued {
        /// How many match, whether they have points in the range or not.
        matching: u64,
    },
}

impl fmt::Display for IndexUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Named => f.write_str("the query names its series"),
            Self::NotSelective => f.write_str("nearly all series match"),
            Self::Resolved { matching, listed } => {
                write!(f, "{matching} of {listed} series match according to the index")
            }
            Self::NotListed(why) => write!(f, "the index is not used: {why}"),
            Self::Catalogued { matching: 1 } => f.write_str("1 series matches"),
            Self::Catalogued { matching } => write!(f, "{matching} series match"),
        }
    }
}
