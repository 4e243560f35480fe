//! Scans points that are in columns, and the other cells of the same hours.
//!
//! ```text
//!   slice   the range of its columns, which the workers read ─► the rows of other cells ─► the watermark
//! ```
//!
//! An hour with more points than a slice has its columns in parts, with watermarks between them.
//! A query with points that are estimated to fit into a part of its memory is one slice: a series is decoded once.

use std::ops::Range;
use std::sync::Arc;

use futures::stream::{self, BoxStream, StreamExt as _, TryStreamExt as _};
use oxtsdb_point_store::logical_table::check_damage;
use oxtsdb_point_store::{
    BlockSummary, Columns, Point, PointStore, PointStoreError, ReadEstimate, SeriesNumber, SeriesReader,
    TimeRange,
};
use oxtsdb_resources::ComputePool;
use oxtsdb_row_store::{DamageLog, StoreError, TableName};

use super::slices::{Slice, Slices};
use super::{SLICES_AHEAD, ScanItem, Source, read_ahead};
use crate::context::budget::{Budget, POINT_BYTES};
use crate::error::QueryError;
use crate::exec::scan::density::Density;
use crate::function::summary::Summarizer;
use crate::plan::access_path::ColumnSeries;
use crate::plan::lookahead::Lookahead;
use crate::plan::query_plan::Plan;
use crate::plan::selection::row_selection::Selection;
use crate::storage::{PointStorage, Storage};

/// Most workers of a query.
pub(crate) const MAX_WORKERS: usize = 4;

/// The columns of a plan.
#[derive(Clone, Debug)]
pub(crate) struct ColumnSource {
    pub(crate) store: Arc<dyn PointStore>,
    /// The counts that its values are divided by, of averages of rollups.
    pub(crate) counts: Option<Arc<dyn PointStore>>,
    /// Ascending.
    pub(crate) series: Arc<[SeriesNumber]>,
    /// Estimate of decoding all of them.
    pub(crate) estimate: ReadEstimate,
    /// Whether they are in memory and so few that reading them takes less than a hand-over to a worker. Files are never
    /// read inline: that may block.
    pub(crate) is_read_inline: bool,
    /// Selects blocks that need not be decoded; `None`: all have to.
    pub(crate) summarizer: Option<Summarizer>,
    /// The points after the query that series need; `None`: all of them.
    pub(crate) lookahead: Option<Lookahead>,
    /// If a value was found that needs a name and has none: the selection, to check series with points.
    pub(crate) unnamed: Option<Selection>,
    /// The table that lost points are rows of.
    pub(crate) table: TableName,
    /// The damage that was skipped, if the query may skip any.
    pub(crate) skip_damaged: Option<DamageLog>,
}

impl ColumnSource {
    /// The columns of the series of a plan.
    pub(crate) fn of(
        storage: &Storage,
        points: &PointStorage,
        plan: &Plan,
        series: &ColumnSeries,
        lookahead: Option<Lookahead>,
        skip_damaged: Option<&DamageLog>,
    ) -> Self {
        let range = TimeRange {
            first_ms: plan.hours.start.millis(),
            last_ms: plan.hours.stop_ms() - 1,
        };
        Self {
            store: Arc::clone(&points.columns),
            counts: plan.read.counts(points),
            series: Arc::clone(&series.series),
            estimate: points.columns.estimate(&series.series, range),
            is_read_inline: is_read_inline(&*points.columns, &series.series, range),
            summarizer: plan
                .downsample
                .as_ref()
                .filter(|_| plan.read.rollup.is_none())
                .and_then(|(windows, function)| Summarizer::of(windows, *function)),
            lookahead,
            unnamed: plan.selection.has_unnamed().then(|| plan.selection.clone()),
            table: storage.table.clone(),
            skip_damaged: skip_damaged.cloned(),
        }
    }

    /// As [`ColumnSource::read`], with blocks that need not be decoded.
    ///
    /// # Errors
    ///
    /// Errors of the store.
    pub(crate) fn read_summarized(
        &self,
        reader: &mut dyn SeriesReader,
        series: SeriesNumber,
        summarizer: &Summarizer,
        (columns, blocks): (&mut Columns, &mut Vec<BlockSummary>),
    ) -> Result<(), StoreError> {
        let accepts = |block: &BlockSummary| summarizer.accepts(block);
        let mut attempts = 0;
        loop {
            match reader.read_summarized(series, &accepts, columns, blocks) {
                Err(error) if self.skips(&error, &mut attempts) => {}
                read => return Ok(read?),
            }
        }
    }

    /// Reads a series. The read that finds a damaged part sets it aside; if damage is skipped, the series is read again
    /// without it.
    ///
    /// # Errors
    ///
    /// Errors of the store.
    pub(crate) fn read(
        &self,
        reader: &mut dyn SeriesReader,
        series: SeriesNumber,
        columns: &mut Columns,
    ) -> Result<(), StoreError> {
        let mut attempts = 0;
        loop {
            match reader.read(series, columns) {
                Err(error) if self.skips(&error, &mut attempts) => {}
                read => return Ok(read?),
            }
        }
    }

    /// The newest point of each series in a range, searched by a computation thread; damage is treated as by
    /// [`ColumnSource::read`].
    ///
    /// # Errors
    ///
    /// Errors of the store.
    pub(crate) async fn last(
        &self,
        compute: &ComputePool,
        series: &[SeriesNumber],
        range: TimeRange,
    ) -> Result<Vec<Option<Point>>, QueryError> {
        let (source, series) = (self.clone(), series.to_vec());
        let search = move || {
            let mut attempts = 0;
            loop {
                let mut reader = source.store.reader(range)?;
                let last: Result<Vec<_>, _> = series.iter().map(|series| reader.last(*series)).collect();
                match last {
                    Err(error) if source.skips(&error, &mut attempts) => {}
                    last => return Ok::<_, StoreError>(last?),
                }
            }
        };
        Ok(compute.run(search).await??)
    }

    /// Whether a read is repeated after an error.
    const fn skips(&self, error: &PointStoreError, attempts: &mut usize) -> bool {
        *attempts += 1;
        matches!(error, PointStoreError::Damaged { .. })
            && self.skip_damaged.is_some()
            && *attempts <= DAMAGED_PARTS
    }

    /// Rejects series that have lost points in a range, or records the loss. `series` are indexes of the series. Call
    /// this after the range was read: parts may be set aside meanwhile.
    ///
    /// # Errors
    ///
    /// [`StoreError::Corrupt`].
    pub(crate) fn check_damage(&self, series: Range<usize>, range: TimeRange) -> Result<(), StoreError> {
        let series = self.series.get(series).unwrap_or_default();
        for store in std::iter::once(&self.store).chain(&self.counts) {
            check_damage(&**store, &self.table, series, range, self.skip_damaged.as_ref())?;
        }
        Ok(())
    }

    /// Workers to read the columns: each is worth the hand-over only if it has some work.
    pub(crate) fn most_workers(&self) -> usize {
        let cost = self.estimate.points / POINTS_OF_A_WORKER + self.series.len() as u64 / SERIES_OF_A_WORKER;
        usize::try_from(cost + 1).map_or(MAX_WORKERS, |cost| cost.min(MAX_WORKERS))
    }

    /// Reads inline no longer if the points are in files by now.
    pub(crate) fn check_read_inline(&mut self, store: &dyn PointStore, plan: &Plan) {
        let range = TimeRange {
            first_ms: plan.hours.start.millis(),
            last_ms: plan.hours.stop_ms() - 1,
        };
        self.is_read_inline = self.is_read_inline && is_read_inline(store, &self.series, range);
    }

    /// Bytes that a query holds if it reads all columns with so many points at once: the points or windows of all series, and the points
    /// of some series while they are decoded.
    pub(crate) fn held_bytes(&self, plan: &Plan, points: u64) -> u64 {
        let series = self.series.len().max(1) as u64;
        let windows = plan.downsample.as_ref().and_then(|(windows, _)| {
            let range_ms = plan.hours.stop_ms() - plan.hours.start.millis();
            windows.count_in(range_ms.unsigned_abs())
        });
        let filled = plan
            .downsample
            .as_ref()
            .map_or(0, |(windows, _)| windows.filled_count());
        let kept = windows.map_or(points, |windows| points.min(series.saturating_mul(windows)));
        let kept = kept.max(series.saturating_mul(filled));
        // If few series have most of the points, more is decoded at a time; then it is a small share of all.
        let decoded = points / series * DECODED_SERIES.min(series);
        kept.saturating_add(decoded).saturating_mul(POINT_BYTES)
    }
}

/// See [`ColumnSource::is_read_inline`].
pub(crate) fn is_read_inline(store: &dyn PointStore, series: &[SeriesNumber], range: TimeRange) -> bool {
    let points = || store.points_in_memory(series, range);
    series.len() <= SERIES_INLINE && points().is_some_and(|points| points <= POINTS_INLINE)
}

/// Series that workers decode at a time.
const DECODED_SERIES: u64 = MAX_WORKERS as u64;

/// Damaged parts that the read of a series may find.
const DAMAGED_PARTS: usize = 1000;

/// Points, and series, that are read in about 100 µs.
const POINTS_OF_A_WORKER: u64 = 16 << 10;
const SERIES_OF_A_WORKER: u64 = 256;

/// Points, and series, that are decoded and downsampled in less than 50 µs.
const POINTS_INLINE: u64 = 4096;
const SERIES_INLINE: usize = 16;

/// Most parts that an hour is cut into if its points exceed a slice.
const PARTS_OF_AN_HOUR: u64 = 60;

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

/// Reads a plan, slice by slice; a slice holds about `slice_bytes`. Dropping the stream cancels the scan.
///
/// Must be polled within a Tokio runtime.
pub(crate) fn items(
    storage: &Storage,
    points: &PointStorage,
    plan: &Plan,
    source: &ColumnSource,
    slice_bytes: u64,
    budget: &Budget,
    skip_damaged: Option<&DamageLog>,
) -> BoxStream<'static, Result<ScanItem, QueryError>> {
    let density = Arc::new(Density::new(slice_bytes));
    density.add_hours(plan.hours.count());
    density.add_bytes(source.held_bytes(plan, source.estimate.most_points));
    let cells = Source {
        store: Arc::clone(&points.cells),
        table: storage.table.clone(),
        ranges: plan.access_path.ranges(&storage.layout, plan.hours).into(),
        filter: plan.selection.row_filter(),
        hours: plan.hours,
        density: Arc::clone(&density),
        budget: budget.clone(),
        skip_damaged: skip_damaged.cloned(),
    };
    let (budget, of_hours, stop_ms) = (budget.clone(), Arc::clone(&density), plan.hours.stop_ms());
    let open = move |slice: Slice| {
        let is_cut = slice.hours() == 1 && slice.stop_ms() < stop_ms;
        let parts = if is_cut {
            of_hours.slices_of_an_hour(PARTS_OF_AN_HOUR)
        } else {
            1
        };
        let columns = stream::iter(parts_of(slice, parts));
        let rows = if cells.may_have_rows(slice) {
            read_ahead(cells.open(slice), &budget)
                .map_ok(ScanItem::Rows)
                .boxed()
        } else {
            stream::empty().boxed()
        };
        let end = stream::iter([Ok(ScanItem::Watermark(slice.stop_ms()))]);
        futures::future::ready(columns.chain(rows).chain(end))
    };
    stream::iter(Slices::new(plan.hours, density))
        .map(open)
        .buffered(SLICES_AHEAD)
        .flatten()
        .boxed()
}
