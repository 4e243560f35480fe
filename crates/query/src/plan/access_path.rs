//! Access paths: single rows by their keys, or a scan of each salt bucket.
//!
//! The choice depends on whether the matching series are resolved: the query names them, or the index lists
//! all series of the metric, and the filters are evaluated on that list once, not on every row.
//!
//! ```text
//!   the query has TSUIDs, or literal values of all tags     Named
//!   nearly all series match                                 NotSelective
//!   the index lists the series of the metric                Resolved
//!   it does not                                             NotListed
//!   points are in columns                                   Catalogued
//! ```
//!
//! Few resolved series are read by their row keys, or, if that is too many rows over all hours, by a scan that
//! seeks from one series to the next. Otherwise the scan visits all keys of the ranges, except where a filter
//! allows a seek.
//!
//! Where points are in columns, the catalogue of their store resolves all series; ranges find the rows of other cells.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use oxtsdb_point_store::SeriesNumber;
use oxtsdb_resources::ComputePool;
use oxtsdb_schema::{MetricUid, RowKeyLayout, TagkUid, TagvUid, Tsuid};
use rustc_hash::FxHashSet;

use crate::error::QueryError;
use crate::plan::column_series::Catalogue;
use crate::plan::hours::Hours;
use crate::plan::selection::row_selection::Selection;
use crate::plan::selection::tag_test::ValueTest;
use crate::plan::single_rows::SingleRows;
use crate::series_index::NotListed;
use crate::storage::{PointStorage, Storage};

/// How a plan finds its rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccessPath {
    /// Ranges of row keys, from the first key (inside) to the second (outside): one for each salt
    /// bucket, ascending. A series lies in one of them.
    Ranges(Vec<(Vec<u8>, Vec<u8>)>),
    /// Single rows of resolved series.
    Rows(SingleRows),
    /// Columns of resolved series, and rows of other cells.
    Columns(ColumnSeries),
}

/// Series with points in columns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColumnSeries {
    /// The series, ascending.
    pub series: Arc<[SeriesNumber]>,
    /// Ranges of row keys that have their other cells, as in [`AccessPath::Ranges`].
    pub ranges: Vec<(Vec<u8>, Vec<u8>)>,
}

impl AccessPath {
    /// The ranges of row keys that have all rows of the series.
    pub fn ranges(&self, layout: &RowKeyLayout, hours: Hours) -> Cow<'_, [(Vec<u8>, Vec<u8>)]> {
        match self {
            Self::Ranges(ranges) | Self::Columns(ColumnSeries { ranges, .. }) => Cow::Borrowed(ranges),
            Self::Rows(rows) => Cow::Owned(series_ranges(rows.series(), layout, hours)),
        }
    }
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

/// Most rows to read individually if the query names their series, which may not exist.
const MAX_NAMED_ROWS: usize = 1024;

/// Most rows to read individually if their series exist. Single rows are the faster access path, but incremental
/// aggregation needs a scan.
const MAX_SINGLE_ROWS: usize = 4096;

/// Matching series are few if they are at most one in this many. Finding a row takes as long as skipping 4 to 10 rows
/// in a scan, depending on the state of the caches.
const FEW: usize = 8;

/// Chooses access paths.
pub(super) struct AccessPathChooser<'a> {
    pub(super) storage: &'a Storage,
    pub(super) hours: Hours,
    pub(super) deadline: Option<Instant>,
    pub(super) compute: &'a ComputePool,
    /// Whether a series has one row for each of its hours, so that the row keys are known.
    pub(super) has_rows_of_hours: bool,
}

impl AccessPathChooser<'_> {
    /// The access path for the series of a metric. The selection is narrowed to the resolved series.
    pub(super) async fn of_metric(
        &self,
        metric: MetricUid,
        selection: &mut Selection,
        explicit_tags: bool,
    ) -> Result<(AccessPath, IndexUse), QueryError> {
        if let Some(points) = &self.storage.points {
            let series = self.catalogue(points).of_metric(metric, selection).await?;
            return Ok(columns(series, self.hours.ranges(&self.storage.layout, metric)));
        }
        let limit = MAX_NAMED_ROWS / self.hours.count().max(1);
        if explicit_tags
            && self.has_rows_of_hours
            && let Some(tsuids) = all_series(selection, metric, limit)
        {
            return Ok((self.rows(tsuids), IndexUse::Named));
        }
        let (index_use, few) = matching(metric, selection, self.storage, self.deadline).await?;
        let Some(few) = few else {
            return Ok((
                AccessPath::Ranges(self.hours.ranges(&self.storage.layout, metric)),
                index_use,
            ));
        };
        let access_path = if self.has_few_rows(few.len(), MAX_SINGLE_ROWS) {
            self.rows(few)
        } else {
            self.jumps(&few, selection)
        };
        Ok((access_path, index_use))
    }

    /// The access path for series of one metric. The selection is narrowed to them.
    pub(super) async fn of_series(
        &self,
        tsuids: &[Tsuid],
        selection: &mut Selection,
    ) -> Result<(AccessPath, IndexUse), QueryError> {
        if let Some(points) = &self.storage.points {
            let series = self.catalogue(points).of_tsuids(tsuids, selection).await?;
            let ranges = series_ranges(tsuids, &self.storage.layout, self.hours);
            return Ok((columns(series, ranges).0, IndexUse::Named));
        }
        let access_path = if self.has_few_rows(tsuids.len(), MAX_NAMED_ROWS) {
            self.rows(tsuids)
        } else {
            self.jumps(tsuids, selection)
        };
        Ok((access_path, IndexUse::Named))
    }

    fn catalogue<'c>(&'c self, points: &'c PointStorage) -> Catalogue<'c> {
        Catalogue {
            store: &points.columns,
            directory: &*self.storage.directory,
            compute: self.compute,
            widths: &self.storage.layout.widths,
            deadline: self.deadline,
        }
    }

    fn has_few_rows(&self, series: usize, most: usize) -> bool {
        self.has_rows_of_hours && series.saturating_mul(self.hours.count()) <= most
    }

    fn rows(&self, tsuids: impl Into<Arc<[Tsuid]>>) -> AccessPath {
        AccessPath::Rows(SingleRows::new(&self.storage.layout, tsuids, self.hours))
    }

    /// A scan of the buckets that hold series, from one to the next.
    fn jumps(&self, tsuids: &[Tsuid], selection: &mut Selection) -> AccessPath {
        let metric_width = self.storage.layout.widths.metric.bytes();
        let tags = |tsuid: &Tsuid| tsuid.as_bytes().get(metric_width..).unwrap_or_default().into();
        let mut series: Vec<Box<[u8]>> = tsuids.iter().map(tags).collect();
        series.sort_unstable();
        *selection = selection.clone().of_resolved(series);
        AccessPath::Ranges(series_ranges(tsuids, &self.storage.layout, self.hours))
    }
}

/// The access path for columns of series.
fn columns(series: Vec<SeriesNumber>, ranges: Vec<(Vec<u8>, Vec<u8>)>) -> (AccessPath, IndexUse) {
    let matching = series.len() as u64;
    let series = series.into();
    (
        AccessPath::Columns(ColumnSeries { series, ranges }),
        IndexUse::Catalogued { matching },
    )
}

/// The matching series according to the index, if they are few.
pub(super) async fn matching(
    metric: MetricUid,
    selection: &Selection,
    storage: &Storage,
    deadline: Option<Instant>,
) -> Result<(IndexUse, Option<Vec<Tsuid>>), QueryError> {
    if !selection.is_selective() {
        return Ok((IndexUse::NotSelective, None));
    }
    let list = match &storage.index {
        None => Err(NotListed::Untrusted),
        Some(index) => index.list(metric).await,
    };
    let list = match list {
        Ok(list) => list,
        Err(why) => return Ok((IndexUse::NotListed(why), None)),
    };
    let matching = selection
        .matching(&list, list.len() / FEW, &*storage.directory, deadline)
        .await?;
    let index_use = IndexUse::Resolved {
        matching: matching.count as u64,
        listed: list.len() as u64,
    };
    let tsuid =
        |tags: &[u8]| Tsuid::from_bytes(&[metric.as_bytes(), tags].concat(), &storage.layout.widths).ok();
    // `None` if the index has a row that is no series: the scan reports it.
    let few = matching
        .series
        .and_then(|series| series.iter().map(|tags| tsuid(tags)).collect());
    Ok((index_use, few))
}

/// All series that a selection by explicit tags can have, unless a filter is not of literal values
/// or there are more than `limit`.
fn all_series(selection: &Selection, metric: MetricUid, limit: usize) -> Option<Vec<Tsuid>> {
    let mut series: Vec<Vec<(TagkUid, TagvUid)>> = vec![Vec::new()];
    for test in selection.tests() {
        let ValueTest::In(values) = &test.test else {
            return None;
        };
        if series.len().saturating_mul(values.len()) > limit {
            return None;
        }
        let with = |tags: &Vec<_>, value: TagvUid| [tags.as_slice(), &[(test.tagk, value)]].concat();
        series = series
            .iter()
            .flat_map(|tags| values.iter().map(move |value| with(tags, *value)))
            .collect();
    }
    series
        .iter_mut()
        .map(|tags| Tsuid::new(metric, tags).ok())
        .collect()
}

/// The ranges that hold series which may be of several metrics, ascending.
pub fn series_ranges(tsuids: &[Tsuid], layout: &RowKeyLayout, hours: Hours) -> Vec<(Vec<u8>, Vec<u8>)> {
    let bucket = |tsuid: &Tsuid| {
        if layout.salt.width() == 0 {
            0
        } else {
            layout.salt.bucket(tsuid.as_bytes())
        }
    };
    let mut ranges: Vec<_> = tsuids
        .iter()
        .map(|tsuid| (bucket(tsuid), tsuid.metric(&layout.widths)))
        .collect::<FxHashSet<_>>()
        .into_iter()
        .map(|(bucket, metric)| hours.range(layout, metric, bucket))
        .collect();
    ranges.sort_unstable();
    ranges.dedup();
    ranges
}
