//! Access paths to rows: single rows by their keys, or a scan of each salt bucket.
//!
//! The choice depends on whether the matching series are resolved: the query names them, or the index lists
//! all series of the metric, and the filters are evaluated on that list once, not on every row.
//!
//! ```text
//!   the query has TSUIDs, or literal values of all tags     Named
//!   nearly all series match                                 NotSelective
//!   the index lists the series of the metric                Resolved
//!   it does not                                             NotListed
//! ```
//!
//! Few resolved series are read by their row keys, or, if that is too many rows over all hours, by a scan that
//! seeks from one series to the next. Otherwise the scan visits all keys of the ranges, except where a filter
//! allows a seek.

use std::sync::Arc;

use async_trait::async_trait;
use futures::stream::BoxStream;
use oxtsdb_row_store::{DamageLog, StoreError};
use oxtsdb_schema::{MetricUid, TagkUid, TagvUid, Tsuid, UidWidths};

use super::RowReader;
use super::single_rows::SingleRows;
use crate::context::budget::Budget;
use crate::error::QueryError;
use crate::function::aggregator::Function;
use crate::function::downsample::Windows;
use crate::plan::hours::Hours;
use crate::plan::selection::row_selection::Selection;
use crate::plan::selection::tag_test::ValueTest;
use crate::reader::SeriesSet;
use crate::reader::access_path::{AccessPath, IndexUse, PathDescription, PathKind, PathMemory};
use crate::reader::context::ReadContext;
use crate::reader::estimate::Estimate;
use crate::reader::range_scan::{KeyRange, series_ranges};
use crate::reader::scan::{RowRanges, ScanItem};
use crate::series_index::NotListed;

/// Most rows to read individually if the query names their series, which may not exist.
const MAX_NAMED_ROWS: usize = 1024;

/// Most rows to read individually if their series exist. Single rows are the faster access path, but incremental
/// aggregation needs a scan.
const MAX_SINGLE_ROWS: usize = 4096;

/// Matching series are few if they are at most one in this many. Finding a row takes as long as skipping 4 to 10 rows
/// in a scan, depending on the state of the caches.
const FEW: usize = 8;

/// The access path to rows.
#[derive(Clone, Debug)]
pub(super) struct RowPath {
    pub(super) reader: RowReader,
    pub(super) selection: Selection,
    pub(super) hours: Hours,
    pub(super) index_use: IndexUse,
    pub(super) rows: Rows,
}

/// How the rows are found.
#[derive(Clone, Debug)]
pub(super) enum Rows {
    /// A scan of ranges of row keys: see [`RowRanges`].
    Ranges(Arc<[KeyRange]>),
    /// Single rows of resolved series.
    Single(SingleRows),
}

impl RowPath {
    /// Chooses the path to some series. The selection is narrowed to the resolved ones.
    pub(super) async fn choose(
        reader: &RowReader,
        series: SeriesSet<'_>,
        mut selection: Selection,
        hours: Hours,
        context: &ReadContext,
    ) -> Result<Self, QueryError> {
        let layout = &reader.layout;
        let (index_use, series, most) = match series {
            SeriesSet::Tsuids(tsuids) => (IndexUse::Named, Ok(tsuids.to_vec()), MAX_NAMED_ROWS),
            SeriesSet::Metric(metric) => {
                let limit = MAX_NAMED_ROWS / hours.count().max(1);
                let named = all_series(&selection, metric, limit).filter(|_| reader.has_rows_of_hours);
                if let Some(named) = named {
                    (IndexUse::Named, Ok(named), MAX_NAMED_ROWS)
                } else {
                    let (index_use, few) = matching(metric, &selection, &layout.widths, context).await?;
                    (index_use, few.ok_or(metric), MAX_SINGLE_ROWS)
                }
            }
        };
        let rows = match series {
            Err(metric) => Rows::Ranges(hours.ranges(layout, metric).into()),
            Ok(tsuids) if reader.has_rows_of_hours && tsuids.len().saturating_mul(hours.count()) <= most => {
                Rows::Single(SingleRows::new(layout, tsuids, hours))
            }
            // A scan of the buckets that hold the series, from one to the next.
            Ok(tsuids) => {
                let metric_width = layout.widths.metric.bytes();
                let tags = |tsuid: &Tsuid| tsuid.as_bytes().get(metric_width..).unwrap_or_default().into();
                let mut tags: Vec<Box<[u8]>> = tsuids.iter().map(tags).collect();
                tags.sort_unstable();
                selection = selection.with_resolved_series(tags);
                Rows::Ranges(series_ranges(&tsuids, layout, hours).into())
            }
        };
        Ok(Self {
            reader: reader.clone(),
            selection,
            hours,
            index_use,
            rows,
        })
    }

    fn kind(&self) -> PathKind {
        if matches!(self.rows, Rows::Single(_)) {
            return PathKind::SingleRows;
        }
        if self.selection.resolved_series().is_some() {
            return PathKind::SeriesSeek;
        }
        let seeks = self
            .selection
            .row_filter()
            .is_some_and(|filter| filter.has_seek() && !filter.keeps_most());
        if seeks {
            PathKind::SkipScan
        } else {
            PathKind::FullScan
        }
    }
}

#[async_trait]
impl AccessPath for RowPath {
    fn description(&self) -> PathDescription {
        PathDescription {
            kind: self.kind(),
            reason: self.index_use,
            ranges: match &self.rows {
                Rows::Ranges(ranges) => ranges.to_vec(),
                Rows::Single(_) => Vec::new(),
            },
        }
    }

    fn memory(&self, _: Option<&(Windows, Function)>) -> PathMemory {
        match &self.rows {
            Rows::Ranges(_) => PathMemory::Unknown,
            Rows::Single(rows) => PathMemory::Rows(rows.count()),
        }
    }

    fn selection(&self) -> &Selection {
        &self.selection
    }

    async fn estimate(&self) -> Result<Estimate, StoreError> {
        self.estimated().await
    }

    fn rows(
        &self,
        budget: &Budget,
        skip_damaged: Option<&DamageLog>,
    ) -> BoxStream<'static, Result<ScanItem, QueryError>> {
        match &self.rows {
            Rows::Ranges(_) => self.row_ranges().items(budget, skip_damaged),
            Rows::Single(rows) => rows.items(&self.reader, &self.selection, budget, skip_damaged),
        }
    }

    fn row_ranges(&self) -> RowRanges {
        let ranges = match &self.rows {
            Rows::Ranges(ranges) => Arc::clone(ranges),
            Rows::Single(rows) => series_ranges(rows.series(), &self.reader.layout, self.hours).into(),
        };
        RowRanges {
            store: Arc::clone(&self.reader.store),
            table: self.reader.table.clone(),
            ranges,
            selection: self.selection.clone(),
            hours: self.hours,
        }
    }
}

/// The matching series according to the index, if they are few.
pub(super) async fn matching(
    metric: MetricUid,
    selection: &Selection,
    widths: &UidWidths,
    context: &ReadContext,
) -> Result<(IndexUse, Option<Vec<Tsuid>>), QueryError> {
    if !selection.is_selective() {
        return Ok((IndexUse::NotSelective, None));
    }
    let list = match &context.index {
        None => Err(NotListed::Untrusted),
        Some(index) => index.list(metric).await,
    };
    let list = match list {
        Ok(list) => list,
        Err(why) => return Ok((IndexUse::NotListed(why), None)),
    };
    let matching = selection
        .matching(&list, list.len() / FEW, &*context.directory, context.deadline())
        .await?;
    let index_use = IndexUse::Resolved {
        matching: matching.count as u64,
        listed: list.len() as u64,
    };
    let tsuid = |tags: &[u8]| Tsuid::from_bytes(&[metric.as_bytes(), tags].concat(), widths).ok();
    // `None` if the index has a row that is no series: the scan reports it.
    let few = matching
        .series
        .and_then(|series| series.iter().map(|tags| tsuid(tags)).collect());
    Ok((index_use, few))
}

/// All series that a selection by explicit tags can have, unless it has other tags, a filter is not of literal values,
/// or there are more than `limit`.
fn all_series(selection: &Selection, metric: MetricUid, limit: usize) -> Option<Vec<Tsuid>> {
    selection.tag_count()?;
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
