//! Searches columns for last points.
//!
//! The store of the points finds the newest one of a series without visiting hours, some series in a job of the
//! computation threads. A cell of the same table with the encoding of no plain point may have a newer one; the rows of
//! other cells are few.

use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use futures::TryStreamExt as _;
use futures::stream::{self, BoxStream, StreamExt as _};
use oxtsdb_point_store::{
    DamagedPart, Point, PointStore, PointStoreError, SeriesNumber, TimeRange, ValueKind,
};
use oxtsdb_resources::ComputePool;
use oxtsdb_row_store::{Scan, StoreError};
use oxtsdb_schema::{MetricUid, Tsuid, UidWidths};
use rustc_hash::FxHashMap;

use super::ColumnReader;
use crate::context::budget::Held;
use crate::error::QueryError;
use crate::plan::selection::row_selection::Selection;
use crate::points::Number;
use crate::reader::context::ReadContext;
use crate::reader::last::{LastPoint, LastPointReader, LastPoints, LookBack, decode_key, last_of_row};
use crate::reader::range_scan::{KeyRange, scan_concurrently, series_ranges};
use crate::reader::scan::point_columns;

/// Series of a job, which takes about a millisecond.
const TOGETHER: usize = 1024;

/// Estimated memory of a series and its newest point in other cells, besides its TSUID.
const CELL_BYTES: u64 = 64;

/// The newest points in other cells.
type OfCells = FxHashMap<Tsuid, LastPoint>;

#[async_trait]
impl LastPointReader for ColumnReader {
    /// Series with the same range are searched together.
    async fn last_points(
        &self,
        searches: Vec<(Tsuid, LookBack)>,
        context: &ReadContext,
    ) -> Result<Vec<Option<LastPoint>>, QueryError> {
        let mut last_points = vec![None; searches.len()];
        let mut of_ranges: FxHashMap<LookBack, (Vec<Tsuid>, Vec<usize>)> = FxHashMap::default();
        for (index, (tsuid, look_back)) in searches.into_iter().enumerate() {
            let (series, places) = of_ranges.entry(look_back).or_default();
            series.push(tsuid);
            places.push(index);
        }
        for (look_back, (series, places)) in of_ranges {
            let points = self.last_in_range(series, look_back, context).await?;
            for (place, point) in places.into_iter().zip(points) {
                last_points[place] = point;
            }
        }
        Ok(last_points)
    }

    async fn last_points_of_metric(
        &self,
        metric: MetricUid,
        selection: &Selection,
        look_back: LookBack,
        context: &ReadContext,
    ) -> Result<LastPoints, QueryError> {
        let mut held = context.budget().hold(0)?;
        let ranges = look_back.hours().ranges(&self.layout, metric);
        let of_cells = self.newest_cells(ranges, selection, look_back, &mut held).await?;
        let matching = self.catalogue(context).by_metric(metric, selection).await?;
        held.grow(size_of_val(&*matching) as u64)?;
        let series = matching.len();
        let search = Arc::new(MetricSearch {
            columns: Arc::clone(&self.points.columns),
            widths: self.layout.widths,
            range: look_back.range(),
            of_cells,
            matching,
            _held: held,
        });
        let query = context.query.clone();
        let batches = jobs(&context.compute, series, move |part| search.find(part));
        let counted = batches.and_then(move |points| {
            let counted = query.budget().count_series(points.len() as u64);
            std::future::ready(counted.map(|()| points))
        });
        Ok(counted.boxed())
    }
}

impl ColumnReader {
    /// The last point of each of some series, in their order.
    async fn last_in_range(
        &self,
        series: Vec<Tsuid>,
        look_back: LookBack,
        context: &ReadContext,
    ) -> Result<Vec<Option<LastPoint>>, QueryError> {
        let bytes = size_of::<Option<Point>>() * series.len();
        let mut held = context.budget().hold(bytes as u64)?;
        let (series, range) = (Arc::new(series), look_back.range());
        let (shared, columns) = (Arc::clone(&series), Arc::clone(&self.points.columns));
        let jobs = jobs(&context.compute, series.len(), move |part| {
            last_of_keys(&*columns, shared.get(part).unwrap_or_default(), range)
        });
        let last_points = jobs.try_concat().await?;
        // Only newer cells matter. The scan seeks from the rows of one series to the rows of the next.
        let newest = last_points
            .iter()
            .map(|point| point.map(|point| point.time_ms + 1));
        let newer = LookBack {
            from_ms: newest.min().flatten().unwrap_or(look_back.from_ms),
            ..look_back
        };
        let layout = &self.layout;
        let metric_width = layout.widths.metric.bytes();
        let tags_of = |tsuid: &Tsuid| tsuid.as_bytes().get(metric_width..).unwrap_or_default().into();
        let mut tags: Vec<Box<[u8]>> = series.iter().map(tags_of).collect();
        tags.sort_unstable();
        tags.dedup();
        let keys = series.iter().map(Tsuid::as_bytes);
        held.grow(2 * keys.clone().map(<[u8]>::len).sum::<usize>() as u64)?;
        let selection = Selection::from_series(layout, keys, Vec::new()).with_resolved_series(tags);
        let ranges = series_ranges(&series, layout, newer.hours());
        let of_cells = self.newest_cells(ranges, &selection, newer, &mut held).await?;
        let newest = |(tsuid, point): (&Tsuid, Option<Point>)| {
            let newer = of_cells.get(tsuid);
            let newer = newer.filter(|cell| point.is_none_or(|point| point.time_ms < cell.time_ms));
            newer
                .cloned()
                .or_else(|| Some(to_last_point(tsuid.clone(), point?)))
        };
        Ok(series.iter().zip(last_points).map(newest).collect())
    }

    /// The newest point that each series of some rows has in other cells.
    async fn newest_cells(
        &self,
        ranges: Vec<KeyRange>,
        selection: &Selection,
        look_back: LookBack,
        held: &mut Held,
    ) -> Result<OfCells, QueryError> {
        let mut scan = Scan::range([], []);
        scan.columns = point_columns();
        scan.filter = selection.row_filter();
        let mut cells = OfCells::default();
        let mut batches = scan_concurrently(&self.points.cells, &self.table, ranges, scan);
        while let Some(rows) = batches.try_next().await? {
            for row in &rows {
                let Some((time_ms, value)) = last_of_row(&self.layout, row, look_back)? else {
                    continue;
                };
                let tsuid = decode_key(&self.layout, row)?.tsuid();
                let tsuid = tsuid.map_err(|error| QueryError::row_series(row.key(), &error))?;
                if cells.get(&tsuid).is_some_and(|point| point.time_ms >= time_ms) {
                    continue;
                }
                let point = LastPoint {
                    tsuid: tsuid.clone(),
                    time_ms,
                    value,
                };
                let bytes = CELL_BYTES + 2 * tsuid.as_bytes().len() as u64;
                if cells.insert(tsuid, point).is_none() {
                    held.grow(bytes)?;
                }
            }
        }
        Ok(cells)
    }
}

/// Calls `find` with parts of a fixed number of series, each in a job; their results are in order.
fn jobs<T: Send + 'static>(
    compute: &ComputePool,
    series: usize,
    find: impl Fn(Range<usize>) -> Result<Vec<T>, QueryError> + Clone + Send + 'static,
) -> BoxStream<'static, Result<Vec<T>, QueryError>> {
    let parts = (0..series).step_by(TOGETHER);
    let (pool, threads) = (compute.clone(), compute.threads());
    let job = move |start: usize| {
        let find = find.clone();
        let result = pool.run(move || find(start..series.min(start + TOGETHER)));
        async move { result.await.map_err(QueryError::from).flatten() }
    };
    stream::iter(parts).map(job).buffered(threads).boxed()
}

/// The newest point in columns of each of some series.
fn last_of_keys(
    columns: &dyn PointStore,
    series: &[Tsuid],
    range: TimeRange,
) -> Result<Vec<Option<Point>>, QueryError> {
    let find = |(index, tsuid): (usize, &Tsuid)| Some((columns.find(tsuid.as_bytes())?, index));
    let mut known: Vec<(SeriesNumber, usize)> = series.iter().enumerate().filter_map(find).collect();
    known.sort_unstable();
    let numbers: Vec<SeriesNumber> = known.iter().map(|(number, _)| *number).collect();
    let mut last_points = vec![None; series.len()];
    let last = last(columns, &numbers, range)?;
    for ((_, index), point) in known.iter().zip(last) {
        last_points[*index] = point;
    }
    Ok(last_points)
}

/// A search of some series of a metric.
struct MetricSearch {
    columns: Arc<dyn PointStore>,
    widths: UidWidths,
    range: TimeRange,
    of_cells: OfCells,
    /// All series that have other cells are among them.
    matching: Vec<SeriesNumber>,
    /// The memory of `matching` and `of_cells`.
    _held: Held,
}

impl MetricSearch {
    /// The last points of some of the series.
    fn find(&self, part: Range<usize>) -> Result<Vec<LastPoint>, QueryError> {
        let series = self.matching.get(part).unwrap_or_default();
        let last = last(&*self.columns, series, self.range)?;
        let mut last_points = Vec::new();
        let mut key = Vec::new();
        for (series, point) in series.iter().zip(last) {
            self.columns.key(*series, &mut key);
            let tsuid = Tsuid::from_bytes(&key, &self.widths)
                .map_err(|error| QueryError::row_series(&key, &error))?;
            let of_cells = self.of_cells.get(&tsuid);
            let newer = of_cells.filter(|cell| point.is_none_or(|point| point.time_ms < cell.time_ms));
            last_points.extend(newer.cloned().or_else(|| Some(to_last_point(tsuid, point?))));
        }
        Ok(last_points)
    }
}

impl LookBack {
    fn range(&self) -> TimeRange {
        TimeRange {
            first_ms: self.from_ms.max(0),
            last_ms: self.hours().stop_ms() - 1,
        }
    }
}

/// The newest point in columns of each of some series, which ascend. Blocks on the disk.
fn last(
    columns: &dyn PointStore,
    series: &[SeriesNumber],
    range: TimeRange,
) -> Result<Vec<Option<Point>>, QueryError> {
    let mut reader = columns.reader(range).map_err(StoreError::from)?;
    let last = series.iter().map(|series| reader.last(*series));
    let last = last.collect::<Result<Vec<_>, _>>().map_err(StoreError::from)?;
    check_lost(columns, series, &last, range)?;
    Ok(last)
}

fn to_last_point(tsuid: Tsuid, point: Point) -> LastPoint {
    LastPoint {
        tsuid,
        time_ms: point.time_ms,
        value: match point.kind.value() {
            ValueKind::Int => Number::Int(point.bits.cast_signed()),
            ValueKind::Float | ValueKind::Double => Number::Double(f64::from_bits(point.bits)),
        },
    }
}

/// Fails if points of a series may have been lost that are newer than the one found.
fn check_lost(
    columns: &dyn PointStore,
    series: &[SeriesNumber],
    last: &[Option<Point>],
    range: TimeRange,
) -> Result<(), QueryError> {
    if columns.lost(series, range).is_empty() {
        return Ok(());
    }
    for (series, last) in series.iter().zip(last) {
        let lost = columns.lost(std::slice::from_ref(series), range).into_iter();
        let newest = lost.max_by_key(|part| part.range.last_ms);
        let is_newer = |part: &DamagedPart| last.is_none_or(|point| point.time_ms < part.range.last_ms);
        if let Some(DamagedPart { path, detail, .. }) = newest.filter(is_newer) {
            return Err(StoreError::from(PointStoreError::Damaged { path, detail }).into());
        }
    }
    Ok(())
}
