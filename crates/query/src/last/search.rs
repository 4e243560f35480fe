//! Searches for last points.
//!
//! A search reads rows from the newest hour back; the first row with a point of a series ends the search for
//! that series. A resolved series is read by its row keys, some hours at a time, and so are few series of a
//! metric if the index resolves them. Otherwise a reverse scan of the metric's rows finds its series; it skips
//! rows of series that it has seen already.
//!
//! Where points are in columns, their store finds the newest ones; see `columns`.

use std::sync::Arc;

use futures::stream::{self, BoxStream, StreamExt as _, TryStreamExt as _};
use oxtsdb_resources::ComputePool;
use oxtsdb_row_store::{Row, RowFilter, Scan, StoreError};
use oxtsdb_schema::row_key::write_row_key;
use oxtsdb_schema::{RowKeyRef, Tsuid, Uid, UidKind};
use parking_lot::RwLock;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::context::budget::{Budget, Held};
use crate::context::query_context::QueryContext;
use crate::error::QueryError;
use crate::exec::scan::point_columns;
use crate::last::columns;
pub use crate::last::last_point::{LastPoint, LookBack};
use crate::last::last_point::{decode_key, last_of_row};
use crate::names::Names;
use crate::plan::metric_series::MetricSeries;
use crate::range_scan::scan_concurrently;
use crate::storage::Storage;

/// Hours of a series that are read together.
const HOURS_AT_A_TIME: usize = 48;

/// Series that are searched by their keys concurrently, and searches that are prepared concurrently.
pub(super) const SERIES_AT_A_TIME: usize = 16;

/// Estimated memory of an entry of `MetricScan::seen` besides its TSUID.
const SEEN_BYTES: u64 = 48;

/// A series by names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeriesNames {
    /// The metric.
    pub metric: Arc<str>,
    /// Tag keys and values, by tag key UID.
    pub tags: Vec<(Arc<str>, Arc<str>)>,
}

/// The last point of one series; `None` if it has none in the range.
///
/// # Errors
///
/// When the store fails or a row cannot be decoded; [`QueryError::OverBudget`].
pub async fn of_series(
    storage: &Storage,
    tsuid: &Tsuid,
    look_back: LookBack,
    budget: &Budget,
    compute: &ComputePool,
) -> Result<Option<LastPoint>, QueryError> {
    if let Some(points) = &storage.points {
        let series = vec![tsuid.clone()];
        let points = columns::of_each(storage, points, series, look_back, budget, compute).await?;
        return Ok(points.into_iter().flatten().next());
    }
    let hours: Vec<_> = look_back.hours().iter().rev().collect();
    for some in hours.chunks(HOURS_AT_A_TIME) {
        let key = |hour: &_| {
            let mut key = Vec::new();
            write_row_key(&storage.layout, tsuid.as_bytes(), *hour, &mut key);
            key
        };
        let keys: Vec<Vec<u8>> = some.iter().map(key).collect();
        let rows = storage
            .store
            .get_rows(&storage.table, &keys, &point_columns(), None)
            .await?;
        for row in rows.into_iter().flatten() {
            if let Some((time_ms, value)) = last_of_row(storage, &row, look_back)? {
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

/// The last points of series, each in a range of its own, in the order of the searches; series without one are left
/// out. Where points are in columns, series with the same range are searched together.
///
/// # Errors
///
/// As [`of_series`].
pub async fn of_each(
    storage: &Storage,
    searches: Vec<(Tsuid, LookBack)>,
    budget: &Budget,
    compute: &ComputePool,
) -> Result<Vec<LastPoint>, QueryError> {
    let _held = budget.hold((size_of::<(Tsuid, LookBack, Option<LastPoint>)>() * searches.len()) as u64)?;
    let Some(points) = &storage.points else {
        let search = |(tsuid, look_back): (Tsuid, LookBack)| {
            let (storage, budget, compute) = (storage.clone(), budget.clone(), compute.clone());
            async move { of_series(&storage, &tsuid, look_back, &budget, &compute).await }
        };
        let last = stream::iter(searches).map(search).buffered(SERIES_AT_A_TIME);
        return last.try_filter_map(async |point| Ok(point)).try_collect().await;
    };
    let mut last_points = vec![None; searches.len()];
    let mut of_ranges: FxHashMap<LookBack, (Vec<Tsuid>, Vec<usize>)> = FxHashMap::default();
    for (index, (tsuid, look_back)) in searches.into_iter().enumerate() {
        let (series, places) = of_ranges.entry(look_back).or_default();
        series.push(tsuid);
        places.push(index);
    }
    for (look_back, (series, places)) in of_ranges {
        let points = columns::of_each(storage, points, series, look_back, budget, compute).await?;
        for (place, point) in places.into_iter().zip(points) {
            last_points[place] = point;
        }
    }
    Ok(last_points.into_iter().flatten().collect())
}

/// The last points of the series of a metric in batches, in no particular order; series without a point in the
/// range are left out.
///
/// # Errors
///
/// As [`of_series`], when names cannot be resolved, and [`QueryError::OverBudget`].
pub async fn of_metric(
    storage: &Storage,
    series: &MetricSeries,
    look_back: LookBack,
    context: &QueryContext,
    compute: &ComputePool,
) -> Result<BoxStream<'static, Result<Vec<LastPoint>, QueryError>>, QueryError> {
    if let Some(points) = &storage.points {
        return columns::of_metric(storage, points, series, look_back, context, compute).await;
    }
    if let Some(few) = series.few(storage, context).await? {
        let (storage, context, compute) = (storage.clone(), context.clone(), compute.clone());
        let search = move |tsuid: Tsuid| {
            let (storage, context, compute) = (storage.clone(), context.clone(), compute.clone());
            async move {
                let point = of_series(&storage, &tsuid, look_back, context.budget(), &compute).await?;
                context.budget().count_series(point.iter().len() as u64)?;
                Ok(point.into_iter().collect())
            }
        };
        return Ok(stream::iter(few).map(search).buffered(SERIES_AT_A_TIME).boxed());
    }
    let seen: Arc<RwLock<FxHashSet<Tsuid>>> = Arc::default();
    let rows = rows_of_metric(storage, series, look_back, Arc::clone(&seen));
    let scan = MetricScan {
        storage: storage.clone(),
        series: series.clone(),
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

/// The rows of a metric from the newest hour back, except rows of series with a known last point.
fn rows_of_metric(
    storage: &Storage,
    series: &MetricSeries,
    look_back: LookBack,
    seen: Arc<RwLock<FxHashSet<Tsuid>>>,
) -> BoxStream<'static, Result<Vec<Row>, StoreError>> {
    let (layout, hours) = (storage.layout, look_back.hours());
    let selection = series.selection.clone();
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
    let ranges = hours.ranges(&layout, series.metric);
    scan_concurrently(&storage.store, &storage.table, ranges, scan)
}

/// A reverse scan of a metric.
struct MetricScan {
    storage: Storage,
    series: MetricSeries,
    look_back: LookBack,
    context: QueryContext,
    /// The memory of `seen`.
    held: Held,
    seen: Arc<RwLock<FxHashSet<Tsuid>>>,
}

impl MetricScan {
    /// The last points of the series that these rows are the first of.
    async fn new_points(&mut self, mut rows: Vec<Row>) -> Result<Vec<LastPoint>, QueryError> {
        self.series
            .selection
            .resolve_and_filter(&mut rows, &*self.storage.directory, self.context.deadline())
            .await?;
        let mut points = Vec::new();
        for row in &rows {
            let tsuid = decode_key(&self.storage, row)?
                .tsuid()
                .map_err(|error| QueryError::row_series(row.key(), &error))?;
            if self.seen.read().contains(&tsuid) {
                continue;
            }
            if let Some((time_ms, value)) = last_of_row(&self.storage, row, self.look_back)? {
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

/// The names of series, in their order.
///
/// # Errors
///
/// [`QueryError::UidWithoutName`], and when names cannot be looked up.
pub async fn names_of(
    storage: &Storage,
    tsuids: &[Tsuid],
    context: &QueryContext,
) -> Result<Vec<SeriesNames>, QueryError> {
    let widths = storage.layout.widths;
    let mut needed: [Vec<Uid>; 3] = Default::default();
    for tsuid in tsuids {
        needed[0].push(tsuid.metric(&widths).uid());
        for (tagk, tagv) in tsuid.tags(&widths) {
            needed[1].push(tagk.uid());
            needed[2].push(tagv.uid());
        }
    }
    let names = Names::of_uids(needed, &*storage.directory, context).await?;
    tsuids
        .iter()
        .map(|tsuid| {
            let tags = tsuid.tags(&widths).map(|(tagk, tagv)| {
                Ok((
                    names.name(UidKind::Tagk, tagk.uid())?,
                    names.name(UidKind::Tagv, tagv.uid())?,
                ))
            });
            Ok(SeriesNames {
                metric: names.name(UidKind::Metric, tsuid.metric(&widths).uid())?,
                tags: tags.collect::<Result<_, QueryError>>()?,
            })
        })
        .collect()
}
