//! The access path to columns.
//!
//! The catalogue of the store resolves all series; ranges of row keys find the rows of other cells.
//!
//! ```text
//!   slice   the range of its columns, which the workers read ─► the rows of other cells ─► the watermark
//! ```
//!
//! An hour with more points than a slice has its columns in parts, with watermarks between them.
//! A query with points that are estimated to fit into a part of its memory is one slice: a series is decoded once.

use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use futures::stream::{self, BoxStream, StreamExt as _, TryStreamExt as _};
use oxtsdb_point_store::{PointStore, ReadEstimate, SeriesNumber, TimeRange};
use oxtsdb_resources::ComputePool;
use oxtsdb_row_store::{DamageLog, StoreError};
use oxtsdb_schema::{Tsuid, UidWidths};

use super::ColumnReader;
use super::source::{ColumnSource, MAX_WORKERS, is_read_inline, is_skipped};
use crate::context::budget::{Budget, POINT_BYTES};
use crate::error::QueryError;
use crate::function::aggregator::Function;
use crate::function::downsample::Windows;
use crate::function::summary::Summarizer;
use crate::plan::hours::Hours;
use crate::plan::selection::row_selection::Selection;
use crate::reader::access_path::{
    AccessPath, IndexUse, PathDescription, PathKind, PathMemory, PointScan, ScanRequest,
};
use crate::reader::estimate::{ColumnFigures, Estimate, Figure};
use crate::reader::scan::density::Density;
use crate::reader::scan::slices::{Slice, Slices};
use crate::reader::scan::{RowRanges, SLICES_AHEAD, ScanItem, read_ahead};

/// Series that workers decode at a time.
const DECODED_SERIES: u64 = MAX_WORKERS as u64;

/// Series that are looked up at a time, which takes a few milliseconds.
const SERIES_AT_A_TIME: usize = 4096;

/// Most parts that an hour is cut into if its points exceed a slice.
const PARTS_OF_AN_HOUR: u64 = 60;

/// Columns of resolved series, and rows of other cells.
#[derive(Clone, Debug)]
pub(super) struct ColumnPath {
    reader: ColumnReader,
    index_use: IndexUse,
    /// Ascending.
    series: Arc<[SeriesNumber]>,
    /// The rows of other cells.
    cells: RowRanges,
    /// The estimate of a read of all series, once it was requested.
    estimate: OnceLock<ReadEstimate>,
}

impl ColumnPath {
    /// The columns of these series, ascending, in the hours of the rows.
    pub(super) fn new(
        reader: ColumnReader,
        index_use: IndexUse,
        series: impl Into<Arc<[SeriesNumber]>>,
        cells: RowRanges,
    ) -> Self {
        Self {
            reader,
            index_use,
            series: series.into(),
            cells,
            estimate: OnceLock::new(),
        }
    }

    const fn hours(&self) -> Hours {
        self.cells.hours
    }

    fn range(&self) -> TimeRange {
        TimeRange {
            first_ms: self.hours().start.millis(),
            last_ms: self.hours().stop_ms() - 1,
        }
    }

    fn store(&self) -> &Arc<dyn PointStore> {
        &self.reader.points.columns
    }

    /// The estimate of a read of all series.
    fn read_estimate(&self) -> &ReadEstimate {
        let estimate = || self.store().estimate(&self.series, self.range());
        self.estimate.get_or_init(estimate)
    }

    fn source(&self, request: &ScanRequest<'_>) -> ColumnSource {
        let (store, selection, range) = (self.store(), &self.cells.selection, self.range());
        ColumnSource {
            store: Arc::clone(store),
            counts: self.reader.counts.clone(),
            series: Arc::clone(&self.series),
            estimate: *self.read_estimate(),
            is_read_inline: is_read_inline(&**store, &self.series, range),
            summarizer: request
                .downsample
                .filter(|_| !self.reader.is_rollup)
                .and_then(|(windows, function)| Summarizer::for_windows(windows, *function)),
            lookahead: request.lookahead,
            unnamed: selection.has_unnamed().then(|| selection.clone()),
            table: self.cells.table.clone(),
            skip_damaged: request.skip_damaged.cloned(),
        }
    }

    /// Bytes that a query holds if it reads all columns, with `points` points, at once: the points or windows of all
    /// series, the values of their open windows, and the points of some series while they are decoded.
    fn held_bytes(&self, points: u64, downsample: Option<&(Windows, Function)>) -> u64 {
        let series = self.series.len().max(1) as u64;
        let windows = downsample.map(|(windows, _)| windows);
        let counted = windows.and_then(|windows| {
            let range_ms = self.hours().stop_ms() - self.hours().start.millis();
            windows.count_in(range_ms.unsigned_abs())
        });
        let open = match (downsample, counted) {
            // Two windows may begin or end outside of the range.
            (Some((_, function)), Some(windows)) if function.keeps_values() => {
                points / windows.saturating_sub(2).max(1)
            }
            _ => 0,
        };
        let filled = windows.map_or(0, |windows| windows.filled_count());
        let kept = counted.map_or(points, |windows| points.min(series.saturating_mul(windows)));
        let kept = kept.max(series.saturating_mul(filled));
        // If few series have most of the points, more is decoded at a time; then it is a small share of all.
        let decoded = points / series * DECODED_SERIES.min(series);
        let points = kept.saturating_add(open).saturating_add(decoded);
        points.saturating_mul(POINT_BYTES)
    }

    /// Slice by slice; a slice holds about as many bytes as requested.
    fn items(
        &self,
        source: &ColumnSource,
        request: &ScanRequest<'_>,
    ) -> BoxStream<'static, Result<ScanItem, QueryError>> {
        let density = Arc::new(Density::new(request.slice_bytes));
        density.add_hours(self.hours().count());
        density.add_bytes(self.held_bytes(source.estimate.likely_points(), request.downsample));
        let budget = request.budget.clone();
        let cells = self.cells.may_have_rows().then(|| {
            let cells = self.cells.clone();
            cells.source(Arc::clone(&density), &budget, request.skip_damaged)
        });
        let of_hours = Arc::clone(&density);
        let open = move |slice: Slice| {
            let parts = if slice.hours() == 1 {
                of_hours.slices_of_an_hour(PARTS_OF_AN_HOUR)
            } else {
                1
            };
            let columns = stream::iter(parts_of(slice, parts));
            let rows = match cells.as_ref().filter(|cells| cells.may_have_rows(slice)) {
                Some(cells) => read_ahead(cells.open(slice), &budget)
                    .map_ok(ScanItem::Rows)
                    .boxed(),
                None => stream::empty().boxed(),
            };
            let end = stream::iter([Ok(ScanItem::Watermark(slice.stop_ms()))]);
            futures::future::ready(columns.chain(rows).chain(end))
        };
        stream::iter(Slices::new(self.hours(), density))
            .map(open)
            .buffered(SLICES_AHEAD)
            .flatten()
            .boxed()
    }
}

#[async_trait]
impl AccessPath for ColumnPath {
    fn description(&self) -> PathDescription {
        PathDescription {
            kind: PathKind::Columns,
            reason: self.index_use,
            ranges: Vec::new(),
        }
    }

    fn selection(&self) -> &Selection {
        &self.cells.selection
    }

    fn byte_len(&self) -> u64 {
        size_of_val(&*self.series) as u64
    }

    /// The metadata of the store have points and bytes. A series has a row in each hour with points.
    async fn estimate(&self) -> Result<Estimate, StoreError> {
        let estimate = self.read_estimate();
        let most_rows = (self.series.len() as u64).saturating_mul(self.hours().count() as u64);
        Ok(Estimate {
            series: Some(Figure::at_most(self.series.len() as u64)),
            rows: Some(Figure::about(estimate.points.min(most_rows))),
            bytes: Some(Figure::about(estimate.bytes)),
            columns: Some(ColumnFigures {
                points: Figure::about(estimate.points),
                memory_points: Figure::about(estimate.memory_points),
                blocks: Figure::about(estimate.blocks),
                files: Figure::at_most(estimate.files),
            }),
        })
    }

    fn scan(&self, request: &ScanRequest<'_>) -> PointScan {
        let source = self.source(request);
        PointScan {
            items: self.items(&source, request),
            columns: Some(source),
        }
    }

    fn rows(
        &self,
        budget: &Budget,
        skip_damaged: Option<&DamageLog>,
    ) -> BoxStream<'static, Result<ScanItem, QueryError>> {
        self.cells.clone().items(budget, skip_damaged)
    }

    fn row_ranges(&self) -> RowRanges {
        self.cells.clone()
    }

    fn listed_series(&self) -> Option<u64> {
        Some(self.series.len() as u64)
    }

    fn each_listed(&self, seen: &mut dyn FnMut(SeriesNumber, &Tsuid)) -> Result<(), QueryError> {
        let mut key = Vec::new();
        for series in self.series.iter() {
            self.store().key(*series, &mut key);
            let tsuid = Tsuid::from_bytes(&key, &self.reader.layout.widths);
            seen(
                *series,
                &tsuid.map_err(|error| QueryError::row_series(&key, &error))?,
            );
        }
        Ok(())
    }

    fn with_series(&self, mut series: Vec<SeriesNumber>) -> Option<Arc<dyn AccessPath>> {
        series.sort_unstable();
        let path = Self::new(self.reader.clone(), self.index_use, series, self.cells.clone());
        Some(Arc::new(path))
    }

    fn memory(&self, downsample: Option<&(Windows, Function)>) -> PathMemory {
        let estimate = self.read_estimate();
        let likely_points = estimate.likely_points();
        PathMemory::Columns {
            series: self.series.len() as u64,
            points: estimate.points,
            likely_points,
            held_bytes: self.held_bytes(likely_points, downsample),
        }
    }

    fn has_only_columns(&self) -> bool {
        !self.cells.may_have_rows()
    }

    fn last_times(
        &self,
        range: TimeRange,
        compute: &ComputePool,
        skip_damaged: Option<&DamageLog>,
    ) -> BoxStream<'static, Result<Vec<(Tsuid, i64)>, QueryError>> {
        let (series, count) = (Arc::clone(&self.series), self.series.len());
        let (store, widths) = (Arc::clone(self.store()), self.reader.layout.widths);
        let (compute, skip_damaged) = (compute.clone(), skip_damaged.cloned());
        let search = move |start: usize| {
            let (store, series) = (Arc::clone(&store), Arc::clone(&series));
            let (compute, skip_damaged) = (compute.clone(), skip_damaged.clone());
            let search = move || {
                let series = &series[start..count.min(start + SERIES_AT_A_TIME)];
                last_times(&*store, &widths, series, range, skip_damaged.as_ref())
            };
            async move { compute.run(search).await? }
        };
        stream::iter((0..count).step_by(SERIES_AT_A_TIME))
            .then(search)
            .boxed()
    }
}

/// The columns of a slice in parts, with the watermarks between them.
fn parts_of(slice: Slice, parts: u64) -> Vec<Result<ScanItem, QueryError>> {
    let (start_ms, stop_ms) = (slice.start_ms(), slice.stop_ms());
    let part_ms = (stop_ms - start_ms).unsigned_abs().div_ceil(parts.max(1)).max(1);
    let mut items = Vec::new();
    let mut first_ms = start_ms;
    while first_ms < stop_ms {
        let next_ms = first_ms.saturating_add_unsigned(part_ms).min(stop_ms);
        if first_ms > start_ms {
            items.push(Ok(ScanItem::Watermark(first_ms)));
        }
        let last_ms = next_ms - 1;
        items.push(Ok(ScanItem::Columns(TimeRange { first_ms, last_ms })));
        first_ms = next_ms;
    }
    items
}

/// The series that have points in a range, with the instants of the last ones. Damage is treated as by
/// [`ColumnSource::read`].
fn last_times(
    store: &dyn PointStore,
    widths: &UidWidths,
    series: &[SeriesNumber],
    range: TimeRange,
    skip_damaged: Option<&DamageLog>,
) -> Result<Vec<(Tsuid, i64)>, QueryError> {
    let mut attempts = 0;
    let last = loop {
        let mut reader = store.reader(range).map_err(StoreError::from)?;
        let last: Result<Vec<_>, _> = series.iter().map(|series| reader.last(*series)).collect();
        match last {
            Err(error) if is_skipped(&error, skip_damaged, &mut attempts) => {}
            last => break last.map_err(StoreError::from)?,
        }
    };
    let (mut times, mut key) = (Vec::new(), Vec::new());
    for (series, point) in series.iter().zip(last) {
        let Some(point) = point else { continue };
        store.key(*series, &mut key);
        let tsuid = Tsuid::from_bytes(&key, widths);
        let tsuid = tsuid.map_err(|error| QueryError::row_series(&key, &error))?;
        times.push((tsuid, point.time_ms));
    }
    Ok(times)
}
