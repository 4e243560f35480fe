//! Searches rows for last points.
//!
//! A search reads rows from the newest hour back; the first row with a point of a series ends the search for
//! that series. A resolved series is read by its row keys, some hours at a time, and so are few series of a
//! metric if the index resolves them. Otherwise a reverse scan of the metric's rows finds its series; it skips
//! rows of series that it has seen already.

use std::sync::Arc;

use async_trait::async_trait;
use futures::stream::{self, BoxStream, StreamExt as _, TryStreamExt as _};
use oxtsdb_row_store::{Row, RowFilter, Scan, StoreError};
use oxtsdb_schema::row_key::write_row_key;
use oxtsdb_schema::{MetricUid, RowKeyLayout, RowKeyRef, Tsuid};
use parking_lot::RwLock;
use rustc_hash::FxHashSet;

use super::RowReader;
use super::access_path::matching;
use crate::context::budget::Held;
use crate::error::QueryError;
use crate::plan::selection::row_selection::Selection;
use crate::reader::context::ReadContext;
use crate::reader::last::{LastPoint, LastPointReader, LastPoints, LookBack, decode_key, last_of_row};
use crate::reader::range_scan::scan_concurrently;
use crate::reader::scan::point_columns;

/// Hours of a series that are read together.
const HOURS_AT_A_TIME: usize = 48;

/// Series that are searched by their keys concurrently.
const SERIES_AT_A_TIME: usize = 16;

/// Estimated memory of an entry of `MetricScan::seen` besides its TSUID.
const SEEN_BYTES: u64 = 48;

impl RowReader {
    /// The last point of one series; `None` if it has none in the range.
    async fn last_point(&self, tsuid: &Tsuid, look_back: LookBack) -> Result<Option<LastPoint>, QueryError> {
        let hours: Vec<_> = look_back.hours().iter().rev().collect();
        for some in hours.chunks(HOURS_AT_A_TIME) {
            let key = |hour: &_| {
                let mut key = Vec::new();
                write_row_key(&self.layout, tsuid.as_bytes(), *hour, &mut key);
                key
            };
            let keys: Vec<Vec<u8>> = some.iter().map(key).collect();
            let rows = self
                .store
                .get_rows(&self.table, &keys, &point_columns(), None)
                .await?;
            for row in rows.into_iter().flatten() {
                if let Some((time_ms, value)) = last_of_row(&self.layout, &row, look_back)? {
                    return Ok(Some(LastPoint {
                        tsuid: tsuid.clone(),
                        time_ms,
                        value,
                    }));
                }
            }
        }
        Ok(None)
    }
}

#[async_trait]
impl LastPointReader for RowReader {
    async fn last_points(
        &self,
        searches: Vec<(Tsuid, LookBack)>,
        _: &ReadContext,
    ) -> Result<Vec<Option<LastPoint>>, QueryError> {
        let search = |(tsuid, look_back): (Tsuid, LookBack)| {
            let reader = self.clone();
            async move { reader.last_point(&tsuid, look_back).await }
        };
        let last = stream::iter(searches).map(search).buffered(SERIES_AT_A_TIME);
        last.try_collect().await
    }

    async fn last_points_of_metric(
        &self,
        metric: MetricUid,
        selection: &Selection,
        look_back: LookBack,
        context: &ReadContext,
    ) -> Result<LastPoints, QueryError> {
        let (_, few) = matching(metric, selection, &self.layout.widths, context).await?;
        if let Some(few) = few {
            let (reader, context) = (self.clone(), context.clone());
            let search = move |tsuid: Tsuid| {
                let (reader, context) = (reader.clone(), context.clone());
                async move {
                    let point = reader.last_point(&tsuid, look_back).await?;
                    context.budget().count_series(point.iter().len() as u64)?;
                    Ok(point.into_iter().collect())
                }
            };
            return Ok(stream::iter(few).map(search).buffered(SERIES_AT_A_TIME).boxed());
        }
        let seen: Arc<RwLock<FxHashSet<Tsuid>>> = Arc::default();
        let rows = rows_of_metric(self, metric, selection, look_back, Arc::clone(&seen));
        let scan = MetricScan {
            layout: self.layout,
            selection: selection.clone(),
            look_back,
            context: context.clone(),
            held: context.budget().hold(0)?,
            seen,
        };
        let points = stream::try_unfold((rows, scan), |(mut rows, mut scan)| async move {
            match rows.next().await {
                None => Ok(None),
                Some(batch) => {
                    let points = scan.new_points(batch?).await?;
                    Ok(Some((points, (rows, scan))))
                }
            }
        });
        Ok(points.boxed())
    }
}

/// The rows of a metric from the newest hour back, except rows of series with a known last point.
fn rows_of_metric(
    reader: &RowReader,
    metric: MetricUid,
    selection: &Selection,
    look_back: LookBack,
    seen: Arc<RwLock<FxHashSet<Tsuid>>>,
) -> BoxStream<'static, Result<Vec<Row>, StoreError>> {
    let (layout, hours) = (reader.layout, look_back.hours());
    let selection = selection.clone();
    let filter = RowFilter::new(move |key| {
        selection.may_match(key)
            && RowKeyRef::decode(key, &layout)
                .ok()
                .and_then(|key| key.tsuid().ok())
                .is_none_or(|tsuid| !seen.read().contains(&tsuid))
    });
    let mut scan = Scan::range([], []);
    scan.columns = point_columns();
    scan.reverse = true;
    scan.filter = Some(filter);
    let ranges = hours.ranges(&layout, metric);
    scan_concurrently(&reader.store, &reader.table, ranges, scan)
}

/// A reverse scan of a metric.
struct MetricScan {
    layout: RowKeyLayout,
    selection: Selection,
    look_back: LookBack,
    context: ReadContext,
    /// The memory of `seen`.
    held: Held,
    seen: Arc<RwLock<FxHashSet<Tsuid>>>,
}

impl MetricScan {
    /// The last points of the series that these rows are the first of.
    async fn new_points(&mut self, mut rows: Vec<Row>) -> Result<Vec<LastPoint>, QueryError> {
        let context = &self.context;
        self.selection
            .resolve_and_filter(&mut rows, &*context.directory, context.deadline())
            .await?;
        let mut points = Vec::new();
        for row in &rows {
            let tsuid = decode_key(&self.layout, row)?
                .tsuid()
                .map_err(|error| QueryError::row_series(row.key(), &error))?;
            if self.seen.read().contains(&tsuid) {
                continue;
            }
            if let Some((time_ms, value)) = last_of_row(&self.layout, row, self.look_back)? {
                self.context.budget().count_series(1)?;
                self.held.grow(SEEN_BYTES + tsuid.as_bytes().len() as u64)?;
                self.seen.write().insert(tsuid.clone());
                points.push(LastPoint {
                    tsuid,
                    time_ms,
                    value,
                });
            }
        }
        Ok(points)
    }
}
