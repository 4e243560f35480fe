//! Reads and deletes points of rows.
//!
//! The rows of a series are among the rows of its metric, in order of time; see `oxtsdb_schema::row_key`. A scan per
//! salt bucket reads the requested hours and drops the other series by their keys.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::pin::pin;
use std::sync::Arc;

use futures::stream::{self, Stream, StreamExt as _, TryStreamExt as _};
use oxtsdb_row_store::{ColumnSelection, Row, RowFilter, Scan, StoreError, WriteBatch, prefix_end};
use oxtsdb_schema::row::{CellKind, CellRef, decode_cell};
use oxtsdb_schema::row_key::metric_ranges;
use oxtsdb_schema::timestamp::MAX_MILLIS;
use oxtsdb_schema::{BaseTime, MetricUid, RowKeyLayout, RowKeyRef};

use super::Inner;
use super::batch::FAMILY;
use crate::view::cells::{cell_of, point_of};
use crate::{Point, PointStoreError, SeriesColumns, SeriesNumber, TimeRange};

/// The points of a cell, one for each instant, ascending.
struct CellPoints<'a> {
    qualifier: &'a [u8],
    timestamp_ms: i64,
    points: Vec<Point>,
}

/// The points of series in a range, in the order of the series; series without points are absent.
pub(super) async fn columns(
    store: &Inner,
    series: &[(SeriesNumber, Vec<u8>)],
    range: TimeRange,
) -> Result<Vec<SeriesColumns>, PointStoreError> {
    let mut points: Vec<Vec<Point>> = vec![Vec::new(); series.len()];
    let mut rows = pin!(rows_of(store, series, range)?);
    while let Some((place, row)) = rows.try_next().await? {
        let newest = newest_of(cells_of(&row, &store.layout)?);
        let within = newest.into_iter().filter(|point| range.contains(point.time_ms));
        points[place].extend(within);
    }
    let columns = series.iter().zip(&points);
    let columns = columns.filter(|(_, points)| !points.is_empty());
    Ok(columns
        .map(|((number, _), points)| SeriesColumns::from_points(*number, points))
        .collect())
}

/// Deletes the points of series in a range. Cells with points outside of it, too, are replaced by single cells of
/// these.
pub(super) async fn delete(
    store: &Inner,
    series: &[(SeriesNumber, Vec<u8>)],
    range: TimeRange,
) -> Result<(), PointStoreError> {
    let mut rows = pin!(rows_of(store, series, range)?);
    while let Some((_, row)) = rows.try_next().await? {
        let mut batch = WriteBatch::new(store.table.clone());
        let family = batch.family(FAMILY);
        batch.row(row.key());
        for mut cell in cells_of(&row, &store.layout)? {
            if !cell.points.iter().any(|point| range.contains(point.time_ms)) {
                continue;
            }
            cell.points.retain(|point| !range.contains(point.time_ms));
            for point in &cell.points {
                let (qualifier, value) = cell_of(point);
                batch.put_at(family, qualifier.as_bytes(), cell.timestamp_ms, value.as_bytes());
            }
            batch.delete_column(family, cell.qualifier);
        }
        if batch.mutation_count() > 0 {
            store.store.write(batch).await?;
        }
    }
    Ok(())
}

/// The keys of the series of a metric that have rows, ascending.
pub(super) async fn series_keys(store: &Inner, metric: &[u8]) -> Result<BTreeSet<Vec<u8>>, PointStoreError> {
    let mut keys = BTreeSet::new();
    let Ok(metric) = MetricUid::from_bytes(metric) else {
        return Ok(keys);
    };
    for (start, stop) in metric_ranges(&store.layout, metric, BaseTime::MIN, BaseTime::MAX) {
        let mut rows = store.store.scan(&store.table, scan(start, stop)).await?;
        while let Some(rows) = rows.try_next().await? {
            for row in rows {
                // Rows of annotations alone are no series of points.
                if row.cells().any(|cell| is_point(cell.qualifier)) {
                    keys.extend(series_of(row.key(), &store.layout).map(|(_, tsuid)| tsuid));
                }
            }
        }
    }
    Ok(keys)
}

/// The UIDs of the metrics that have rows, ascending: one row of each is read.
pub(super) async fn metrics(store: &Inner) -> Result<Vec<Vec<u8>>, PointStoreError> {
    let mut metrics = BTreeSet::new();
    let prefix = store.layout.salt.width() + store.layout.widths.metric.bytes();
    let mut start = Vec::new();
    loop {
        let mut scan = scan(start, Vec::new());
        scan.limit = Some(1);
        let rows: Vec<Vec<Row>> = store.store.scan(&store.table, scan).await?.try_collect().await?;
        let Some(row) = rows.first().and_then(|rows| rows.first()) else {
            return Ok(metrics.into_iter().collect());
        };
        let before = &row.key()[..prefix.min(row.key().len())];
        metrics.extend(before.get(store.layout.salt.width()..).map(<[u8]>::to_vec));
        start = prefix_end(before);
        if start.is_empty() {
            return Ok(metrics.into_iter().collect());
        }
    }
}

/// The rows of series in a range, each with the place of its series; rows of one series ascend in time.
fn rows_of(
    store: &Inner,
    series: &[(SeriesNumber, Vec<u8>)],
    range: TimeRange,
) -> Result<impl Stream<Item = Result<(usize, Row), PointStoreError>> + Send, PointStoreError> {
    let scans = scans(&store.layout, series, range)?;
    let rows = stream::iter(scans).then(move |(places, scan)| async move {
        let rows = store.store.scan(&store.table, scan).await?;
        let layout = store.layout;
        let placed = rows.map_ok(move |rows| {
            let places = Arc::clone(&places);
            let placed = rows.into_iter().filter_map(move |row| {
                let key = RowKeyRef::decode(row.key(), &layout).ok()?;
                Some(Ok::<_, StoreError>((*places.get(key.tag_bytes())?, row)))
            });
            stream::iter(placed)
        });
        Ok::<_, StoreError>(placed.try_flatten())
    });
    Ok(rows.try_flatten().err_into())
}

/// Series of a metric by their tags, with their places.
type Places = Arc<BTreeMap<Vec<u8>, usize>>;

/// The scans that read the rows of series in a range.
fn scans(
    layout: &RowKeyLayout,
    series: &[(SeriesNumber, Vec<u8>)],
    range: TimeRange,
) -> Result<Vec<(Places, Scan)>, PointStoreError> {
    let (first_ms, last_ms) = (range.first_ms.max(0), range.last_ms.min(MAX_MILLIS));
    let mut scans = Vec::new();
    if first_ms > last_ms {
        return Ok(scans);
    }
    let mut by_metric: BTreeMap<&[u8], BTreeMap<Vec<u8>, usize>> = BTreeMap::new();
    for (place, (_, key)) in series.iter().enumerate() {
        let (metric, tags) = key
            .split_at_checked(layout.widths.metric.bytes())
            .unwrap_or_default();
        by_metric.entry(metric).or_default().insert(tags.to_vec(), place);
    }
    for (metric, places) in by_metric {
        let metric = MetricUid::from_bytes(metric);
        let metric = metric.map_err(|error| PointStoreError::Invalid(error.to_string()))?;
        let places = Arc::new(places);
        for (start, stop) in metric_ranges(layout, metric, hour_of(first_ms), hour_of(last_ms).next_hour()) {
            let mut scan = scan(start, stop);
            scan.filter = Some(filter(Arc::clone(&places), *layout));
            scans.push((Arc::clone(&places), scan));
        }
    }
    Ok(scans)
}

/// Selects the rows of series of a metric, and skips the others of each hour.
fn filter(places: Places, layout: RowKeyLayout) -> RowFilter {
    let requested = Arc::clone(&places);
    let keeps = move |key: &[u8]| {
        RowKeyRef::decode(key, &layout).is_ok_and(|key| requested.contains_key(key.tag_bytes()))
    };
    RowFilter::new(keeps).with_seek(move |key| {
        let decoded = RowKeyRef::decode(key, &layout).ok()?;
        let (base, tags) = (decoded.base_time(), decoded.tag_bytes());
        let later = (Bound::Excluded(tags), Bound::Unbounded);
        let (base, (tags, _)) = match places.range::<[u8], _>(later).next() {
            Some(next) => (base, next),
            None => (base.next_hour(), places.first_key_value()?),
        };
        let mut next = key[..layout.salt.width() + layout.widths.metric.bytes()].to_vec();
        next.extend_from_slice(&base.seconds().to_be_bytes());
        next.extend_from_slice(tags);
        Some(next)
    })
}

/// A scan of the cells of points.
fn scan(start: Vec<u8>, stop: Vec<u8>) -> Scan {
    let mut scan = Scan::range(start, stop);
    scan.columns = ColumnSelection::Family(FAMILY.to_owned());
    scan
}

fn hour_of(time_ms: i64) -> BaseTime {
    BaseTime::from_seconds(u32::try_from(time_ms / 1000).unwrap_or(u32::MAX))
}

/// Hour and series of a row key.
fn series_of(key: &[u8], layout: &RowKeyLayout) -> Option<(BaseTime, Vec<u8>)> {
    let key = RowKeyRef::decode(key, layout).ok()?;
    let tsuid = key.tsuid().ok()?;
    Some((key.base_time(), tsuid.as_bytes().to_vec()))
}

fn is_point(qualifier: &[u8]) -> bool {
    matches!(
        CellKind::from_qualifier(qualifier),
        CellKind::Point | CellKind::Compacted | CellKind::Appended
    )
}

/// The cells of a row that have points.
fn cells_of<'a>(row: &'a Row, layout: &RowKeyLayout) -> Result<Vec<CellPoints<'a>>, StoreError> {
    let Some((base, _)) = series_of(row.key(), layout) else {
        return Ok(Vec::new());
    };
    let mut cells = Vec::with_capacity(row.len());
    let mut decoded = Vec::new();
    for cell in row.cells().filter(|cell| is_point(cell.qualifier)) {
        decoded.clear();
        let encoded = CellRef {
            qualifier: cell.qualifier,
            value: cell.value,
            timestamp_ms: cell.timestamp_ms,
        };
        let kind = decode_cell(encoded, &mut decoded).map_err(|error| StoreError::Corrupt {
            place: format!("row {:02X?}, column {:02X?}", row.key(), cell.qualifier),
            detail: error.to_string(),
        })?;
        if kind == CellKind::Appended {
            // The last one of an instant wins.
            decoded.reverse();
        }
        let points = decoded.iter();
        let points = points.filter_map(|point| point_of(base, point.qualifier, &point.value));
        let mut points: Vec<Point> = points.collect();
        points.sort_by_key(|point| point.time_ms);
        points.dedup_by_key(|point| point.time_ms);
        cells.push(CellPoints {
            qualifier: cell.qualifier,
            timestamp_ms: cell.timestamp_ms,
            points,
        });
    }
    Ok(cells)
}

/// The newest point of each instant, ascending: from the newest cell, of two with one timestamp the earlier.
///
/// Source: `oxtsdb_schema::row`, `DuplicatePolicy::KeepNewest`.
fn newest_of(cells: Vec<CellPoints<'_>>) -> Vec<Point> {
    let ranked = cells.into_iter().enumerate().flat_map(|(place, cell)| {
        let age = (Reverse(cell.timestamp_ms), place);
        let points = cell.points.into_iter();
        points.map(move |point| (point.time_ms, age, point))
    });
    let mut ranked: Vec<_> = ranked.collect();
    ranked.sort_by_key(|(time_ms, age, _)| (*time_ms, *age));
    ranked.dedup_by_key(|(time_ms, ..)| *time_ms);
    ranked.into_iter().map(|(.., point)| point).collect()
}
