//! Scans points that are in columns, and the other cells of the same hours.
//!
//! ```text
//!   slice   the matching series' points, then the rows of other cells, then the watermark
//! ```
//!
//! The series are matched once, by the catalogue of the point store.

use std::sync::Arc;

use futures::stream::{self, BoxStream, StreamExt as _, TryStreamExt as _};
use oxtsdb_point_store::{PointStore, ReadRequest, SeriesNumber, TimeRange};
use oxtsdb_row_store::{DamageLog, StoreError};
use oxtsdb_schema::MetricUid;

use super::slices::{Slice, Slices};
use super::{KeyedColumns, RowBatch, SLICES_AHEAD, ScanItem, Source, read_ahead, slice_bytes};
use crate::context::budget::Budget;
use crate::error::QueryError;
use crate::exec::scan::density::Density;
use crate::names::NameDirectory;
use crate::plan::access_path::{AccessPath, series_ranges};
use crate::plan::query_plan::Plan;
use crate::series_index::SeriesList;
use crate::storage::{PointStorage, Storage};

/// Reads the points and rows of a plan, slice by slice.
pub(super) fn items(
    storage: &Storage,
    points: &PointStorage,
    plan: &Plan,
    budget: &Budget,
    skip_damaged: Option<&DamageLog>,
) -> BoxStream<'static, Result<ScanItem, QueryError>> {
    let ranges = match &plan.access_path {
        AccessPath::Ranges(ranges) => ranges.clone(),
        AccessPath::Rows(rows) => series_ranges(rows.series(), &storage.layout, plan.hours),
    };
    let density = Arc::new(Density::new(slice_bytes(budget)));
    let cells = Source {
        store: Arc::clone(&points.cells),
        table: storage.table.clone(),
        ranges: Arc::from(ranges.as_slice()),
        filter: plan.selection.row_filter(),
        hours: plan.hours,
        density: Arc::clone(&density),
        budget: budget.clone(),
        skip_damaged: skip_damaged.cloned(),
    };
    let store = Arc::clone(&points.columns);
    let (directory, plan, budget) = (Arc::clone(&storage.directory), plan.clone(), budget.clone());
    let layout = storage.layout;
    stream::once(async move {
        let metric_at = layout.salt.width();
        let metrics = metrics_of(&ranges, metric_at..metric_at + layout.widths.metric.bytes());
        let series = matching(&*store, &plan, &metrics, metric_at, &*directory).await?;
        let slices = Slices::new(plan.hours, Arc::clone(&density));
        let open = move |slice: Slice| {
            let request = ReadRequest {
                series: series.clone(),
                range: TimeRange {
                    first_ms: slice.start_ms(),
                    last_ms: slice.stop_ms() - 1,
                },
            };
            let columns = columns(Arc::clone(&store), request, budget.clone());
            let rows = read_ahead(cells.open(slice), &budget);
            let counted = Arc::clone(&density);
            let batches = columns.chain(rows).map_ok(move |batch| {
                counted.add_bytes(batch.byte_len());
                ScanItem::Rows(batch)
            });
            let density = Arc::clone(&density);
            let end = stream::once(async move {
                density.add_hours(slice.hours());
                Ok(ScanItem::Watermark(slice.stop_ms()))
            });
            futures::future::ready(batches.chain(end))
        };
        Ok::<_, QueryError>(stream::iter(slices).map(open).buffered(SLICES_AHEAD).flatten())
    })
    .try_flatten()
    .boxed()
}

/// The points of series, in batches.
fn columns(
    store: Arc<dyn PointStore>,
    request: ReadRequest,
    budget: Budget,
) -> BoxStream<'static, Result<RowBatch, QueryError>> {
    let batches = store.read(request);
    batches
        .map(move |batch| {
            let batch = batch.map_err(StoreError::from)?;
            let keyed = batch.into_iter().map(|columns| {
                let mut tsuid = Vec::new();
                store.key(columns.series, &mut tsuid);
                KeyedColumns { tsuid, columns }
            });
            RowBatch::of_columns(keyed.collect(), &budget)
        })
        .boxed()
}

/// The metrics of ranges of row keys, ascending.
fn metrics_of(ranges: &[(Vec<u8>, Vec<u8>)], place: std::ops::Range<usize>) -> Vec<MetricUid> {
    let metric = |(start, _): &(Vec<u8>, Vec<u8>)| MetricUid::from_bytes(start.get(place.clone())?).ok();
    let mut metrics: Vec<MetricUid> = ranges.iter().filter_map(metric).collect();
    metrics.sort_unstable();
    metrics.dedup();
    metrics
}

/// The series of a plan.
async fn matching(
    store: &dyn PointStore,
    plan: &Plan,
    metrics: &[MetricUid],
    metric_at: usize,
    directory: &dyn NameDirectory,
) -> Result<Vec<SeriesNumber>, QueryError> {
    if let AccessPath::Rows(rows) = &plan.access_path {
        let found = rows
            .series()
            .iter()
            .filter_map(|tsuid| store.find(tsuid.as_bytes()));
        return Ok(found.collect());
    }
    let mut series = Vec::new();
    for metric in metrics {
        let all = store.metric_series(metric.as_bytes());
        if plan.selection.is_everything() {
            series.extend(all);
            continue;
        }
        let mut list = SeriesList::default();
        let mut key = Vec::new();
        for number in &all {
            store.key(*number, &mut key);
            list.push(key.get(metric.as_bytes().len()..).unwrap_or_default());
        }
        let found = plan
            .selection
            .matching(&list, usize::MAX, directory, None)
            .await?;
        for tags in found.series.unwrap_or_default() {
            // As a row key: a selection may also name series.
            let row_key = [&vec![0; metric_at], metric.as_bytes(), &[0; 4], &tags].concat();
            if plan.selection.may_match(&row_key) {
                series.extend(store.find(&[metric.as_bytes(), &tags].concat()));
            }
        }
    }
    Ok(series)
}
