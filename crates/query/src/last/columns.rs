//! Searches for last points where points are in columns.
//!
//! The store of the points finds the newest one of a series without visiting hours. A cell of the same table whose
//! encoding is none of a plain point may have a newer one; the rows of other cells are few.

use futures::TryStreamExt as _;
use futures::stream::{self, BoxStream, StreamExt as _};
use oxtsdb_point_store::{DamagedPart, Point, PointStoreError, SeriesNumber, TimeRange, ValueKind};
use oxtsdb_resources::ComputePool;
use oxtsdb_row_store::{RowFilter, Scan, StoreError};
use oxtsdb_schema::Tsuid;
use rustc_hash::FxHashMap;

use super::search::{LastPoint, LookBack, decode_key, last_of_row};
use crate::context::budget::Held;
use crate::context::query_context::QueryContext;
use crate::error::QueryError;
use crate::exec::scan::point_columns;
use crate::plan::access_path::series_ranges;
use crate::plan::metric_series::MetricSeries;
use crate::plan::selection::row_selection::Selection;
use crate::points::Number;
use crate::range_scan::{KeyRange, scan_concurrently};
use crate::storage::{PointStorage, Storage};

/// Series that are searched together.
const TOGETHER: usize = 4096;

/// Estimated memory of a series and its newest point in other cells, besides its TSUID.
const CELL_BYTES: u64 = 64;

/// The newest points in other cells.
type OfCells = FxHashMap<Tsuid, LastPoint>;

/// The last point of one series; `None` if it has none in the range.
///
/// # Errors
///
/// When a store fails, has lost points that may be newer, or a row cannot be decoded.
pub(super) async fn of_series(
    storage: &Storage,
    points: &PointStorage,
    tsuid: &Tsuid,
    look_back: LookBack,
) -> Result<Option<LastPoint>, QueryError> {
    let series = points.columns.find(tsuid.as_bytes());
    let range = look_back.range();
    let found = last(points, series.as_slice(), range).await?.pop().flatten();
    check_lost(newest_lost(points, range).as_ref(), found.as_ref())?;
    let newer = LookBack {
        from_ms: found.map_or(look_back.from_ms, |point| point.time_ms + 1),
        ..look_back
    };
    let layout = &storage.layout;
    let tags = tsuid
        .as_bytes()
        .get(layout.widths.metric.bytes()..)
        .unwrap_or_default();
    // The scan seeks to the rows of the series.
    let selection = Selection::of_series(layout, [tsuid.as_bytes()], Vec::new()).of_resolved([tags.into()]);
    let ranges = series_ranges(std::slice::from_ref(tsuid), layout, newer.hours());
    let mut of_cells = OfCells::default();
    add_cells(
        storage,
        points,
        ranges,
        selection.row_filter(),
        newer,
        &mut of_cells,
        None,
    )
    .await?;
    let found = found.map(|point| of_point(tsuid.clone(), point));
    Ok(of_cells.remove(tsuid).or(found))
}

/// The last points of the series of a metric in batches; series without a point in the range are left out.
///
/// # Errors
///
/// As [`of_series`], when names cannot be resolved, and [`QueryError::OverBudget`].
pub(super) async fn of_metric(
    storage: &Storage,
    points: &PointStorage,
    series: &MetricSeries,
    look_back: LookBack,
    context: &QueryContext,
    compute: &ComputePool,
) -> Result<BoxStream<'static, Result<Vec<LastPoint>, QueryError>>, QueryError> {
    let range = look_back.range();
    let mut held = context.budget().hold(0)?;
    let mut of_cells = OfCells::default();
    let ranges = look_back.hours().ranges(&storage.layout, series.metric);
    let filter = series.selection.row_filter();
    add_cells(
        storage,
        points,
        ranges,
        filter,
        look_back,
        &mut of_cells,
        Some(&mut held),
    )
    .await?;
    let matching = series.catalogued(storage, points, compute, context.deadline());
    let matching = matching.await?;
    held.grow(size_of_val(&*matching) as u64)?;
    let search = MetricSearch {
        storage: storage.clone(),
        points: points.clone(),
        context: context.clone(),
        range,
        lost: newest_lost(points, range),
        of_cells,
        matching,
        next: 0,
        _held: held,
    };
    let batches = stream::try_unfold(search, |mut search| async move {
        Ok::<_, QueryError>(search.next().await?.map(|found| (found, search)))
    });
    Ok(batches.boxed())
}

/// A search of some series of a metric.
struct MetricSearch {
    storage: Storage,
    points: PointStorage,
    context: QueryContext,
    range: TimeRange,
    lost: Option<DamagedPart>,
    of_cells: OfCells,
    matching: Vec<SeriesNumber>,
    /// The first series that was not searched yet.
    next: usize,
    /// The memory of `matching` and `of_cells`.
    _held: Held,
}

impl MetricSearch {
    /// The last points of the next series; `None` at the end.
    async fn next(&mut self) -> Result<Option<Vec<LastPoint>>, QueryError> {
        let rest = self.matching.get(self.next..).unwrap_or_default();
        let chunk = rest.get(..TOGETHER.min(rest.len())).unwrap_or_default();
        if chunk.is_empty() {
            // A series with other cells only has a number, too.
            return Ok(None);
        }
        self.next += chunk.len();
        let last = last(&self.points, chunk, self.range).await?;
        let mut found = Vec::new();
        let mut key = Vec::new();
        for (series, point) in chunk.iter().zip(last) {
            check_lost(self.lost.as_ref(), point.as_ref())?;
            self.points.columns.key(*series, &mut key);
            let tsuid = Tsuid::from_bytes(&key, &self.storage.layout.widths)
                .map_err(|error| QueryError::row_series(&key, &error))?;
            let of_cells = self.of_cells.remove(&tsuid);
            let newer = of_cells.filter(|cell| point.is_none_or(|point| point.time_ms < cell.time_ms));
            found.extend(newer.or_else(|| Some(of_point(tsuid, point?))));
        }
        self.context.budget().count_series(found.len() as u64)?;
        Ok(Some(found))
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

async fn last(
    points: &PointStorage,
    series: &[SeriesNumber],
    range: TimeRange,
) -> Result<Vec<Option<Point>>, QueryError> {
    Ok(points
        .columns
        .last(series, range)
        .await
        .map_err(StoreError::from)?)
}

fn of_point(tsuid: Tsuid, point: Point) -> LastPoint {
    LastPoint {
        tsuid,
        time_ms: point.time_ms,
        value: match point.kind.value() {
            ValueKind::Int => Number::Int(point.bits.cast_signed()),
            ValueKind::Float | ValueKind::Double => Number::Double(f64::from_bits(point.bits)),
        },
    }
}

/// The damage in a range with the newest points.
fn newest_lost(points: &PointStorage, range: TimeRange) -> Option<DamagedPart> {
    let damage = points.columns.damage().into_iter();
    let lost = damage.filter(|part| part.range.overlaps(&range));
    lost.max_by_key(|part| part.range.last_ms)
}

/// Fails if points that are newer than the one found may have been lost.
fn check_lost(lost: Option<&DamagedPart>, found: Option<&Point>) -> Result<(), QueryError> {
    let is_newer = |part: &&DamagedPart| found.is_none_or(|point| point.time_ms < part.range.last_ms);
    match lost.filter(is_newer) {
        None => Ok(()),
        Some(part) => Err(StoreError::from(PointStoreError::Damaged {
            path: part.path.clone(),
            detail: part.detail.clone(),
        })
        .into()),
    }
}

/// Adds the newest point that each series of some rows has in other cells.
async fn add_cells(
    storage: &Storage,
    points: &PointStorage,
    ranges: Vec<KeyRange>,
    filter: Option<RowFilter>,
    look_back: LookBack,
    found: &mut OfCells,
    mut held: Option<&mut Held>,
) -> Result<(), QueryError> {
    let mut scan = Scan::range([], []);
    scan.columns = point_columns();
    scan.filter = filter;
    let mut batches = scan_concurrently(&points.cells, &storage.table, ranges, scan);
    while let Some(rows) = batches.try_next().await? {
        for row in &rows {
            let Some((time_ms, value)) = last_of_row(storage, row, look_back)? else {
                continue;
            };
            let tsuid = decode_key(storage, row)?.tsuid();
            let tsuid = tsuid.map_err(|error| QueryError::row_series(row.key(), &error))?;
            if found.get(&tsuid).is_some_and(|found| found.time_ms >= time_ms) {
                continue;
            }
            let point = LastPoint {
                tsuid: tsuid.clone(),
                time_ms,
                value,
            };
            let bytes = CELL_BYTES + 2 * tsuid.as_bytes().len() as u64;
            if found.insert(tsuid, point).is_none()
                && let Some(held) = &mut held
            {
                held.grow(bytes)?;
            }
        }
    }
    Ok(())
}
