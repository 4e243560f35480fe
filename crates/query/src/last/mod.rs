//! The last point of each series.
//!
//! Rows are looked at from the newest hour back, and the first one that has a point of a series ends
//! the search for it. A series that is known is looked for by its row keys, some hours at a time, and so
//! are few series of a metric where the index says which they are. Else the series of a metric are looked
//! for by a scan in reverse, which passes over series that were found already.

pub mod counters;

use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use futures::stream::{self, StreamExt as _};
use hashbrown::HashMap;
use oxtsdb_row_store::{Row, RowFilter, Scan};
use oxtsdb_schema::row::{CellRef, decode_row};
use oxtsdb_schema::row_key::write_row_key;
use oxtsdb_schema::{DuplicatePolicy, HOUR_SECONDS, Points, RowKeyRef, Tsuid, Uid, UidKind};
use parking_lot::RwLock;
use rustc_hash::FxHashSet;

use crate::context::query_context::QueryContext;
use crate::error::QueryError;
use crate::exec::scan::point_columns;
use crate::names::Names;
use crate::plan::hours::Hours;
use crate::plan::metric_series::MetricSeries;
use crate::points::Number;
use crate::range_scan::scan_concurrently;
use crate::storage::Storage;

/// Hours of a series that are read at a time.
const HOURS_AT_A_TIME: usize = 48;

/// Series that are looked for by their keys at a time, and searches that are prepared at a time.
const SERIES_AT_A_TIME: usize = 16;
const SEARCHES_AT_A_TIME: usize = 1024;

/// The range in which a last point is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LookBack {
    /// Points before this instant do not count, milliseconds since the epoch.
    pub from_ms: i64,
    /// The hour of this instant is the newest that is looked at; all its points count.
    pub now_ms: i64,
}

impl LookBack {
    fn hours(&self) -> Hours {
        Hours::overlapping(self.from_ms, self.now_ms)
    }
}

/// The last point of a series.
#[derive(Clone, Debug, PartialEq)]
pub struct LastPoint {
    /// The series.
    pub tsuid: Tsuid,
    /// Its instant, milliseconds since the epoch.
    pub time_ms: i64,
    /// Its value.
    pub value: Number,
}

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
/// When the store fails or a row cannot be decoded.
pub async fn of_series(
    storage: &Storage,
    tsuid: &Tsuid,
    look_back: LookBack,
) -> Result<Option<LastPoint>, QueryError> {
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
            .get_rows(&storage.table, &keys, &point_columns())
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

/// The last point of one series in the hour of an instant; `None` if there is none.
///
/// # Errors
///
/// As [`of_series`].
pub async fn in_hour_of(
    storage: &Storage,
    tsuid: &Tsuid,
    time_ms: i64,
) -> Result<Option<LastPoint>, QueryError> {
    let hour_ms = i64::from(HOUR_SECONDS) * 1000;
    let look_back = LookBack {
        from_ms: time_ms - time_ms.rem_euclid(hour_ms),
        now_ms: time_ms,
    };
    of_series(storage, tsuid, look_back).await
}

/// The last points of the series of a metric, ascending by TSUID; series without a point in the range
/// are left out.
///
/// # Errors
///
/// As [`of_series`], when names cannot be looked up, and [`QueryError::OverBudget`].
pub async fn of_metric(
    storage: &Storage,
    series: &MetricSeries,
    look_back: LookBack,
    context: &QueryContext,
) -> Result<Vec<LastPoint>, QueryError> {
    let layout = storage.layout;
    let hours = look_back.hours();
    let (budget, deadline) = (context.budget(), context.deadline());
    if let Some(few) = series.few(storage, context).await? {
        let mut points = Vec::new();
        let search = |tsuid| of_series(storage, tsuid, look_back).boxed();
        let take = |point| {
            budget.use_series()?;
            points.push(point);
            Ok(())
        };
        search_each(&few, search, take).await?;
        return Ok(points);
    }
    let found: Arc<RwLock<FxHashSet<Tsuid>>> = Arc::default();
    let (selection, seen) = (series.selection.clone(), Arc::clone(&found));
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
    let mut batches = scan_concurrently(&storage.store, &storage.table, ranges, scan);
    let mut last: HashMap<Tsuid, LastPoint> = HashMap::new();
    while let Some(batch) = batches.next().await {
        let mut rows = batch?;
        series
            .selection
            .resolve_and_filter(&mut rows, &*storage.directory, deadline)
            .await?;
        for row in &rows {
            let tsuid = decode_key(storage, row)?
                .tsuid()
                .map_err(|error| QueryError::row_series(row.key(), &error))?;
            if last.contains_key(&tsuid) {
                continue;
            }
            if let Some((time_ms, value)) = last_of_row(storage, row, look_back)? {
                budget.use_series()?;
                found.write().insert(tsuid.clone());
                last.insert(
                    tsuid.clone(),
                    LastPoint {
                        tsuid,
                        time_ms,
                        value,
                    },
                );
            }
        }
    }
    let mut points: Vec<LastPoint> = last.into_values().collect();
    points.sort_unstable_by(|a, b| a.tsuid.cmp(&b.tsuid));
    Ok(points)
}

/// Searches for the last point of each of `items`, some at a time, and passes those that are found to `take`,
/// in the order of their items.
///
/// # Errors
///
/// The first one of a search or of `take`.
pub async fn search_each<'a, T>(
    items: &'a [T],
    search: impl Fn(&'a T) -> BoxFuture<'a, Result<Option<LastPoint>, QueryError>>,
    mut take: impl FnMut(LastPoint) -> Result<(), QueryError>,
) -> Result<(), QueryError> {
    for some in items.chunks(SEARCHES_AT_A_TIME) {
        // Collected and boxed, because the compiler cannot tell that a stream over the closure is Send.
        let searches: Vec<_> = some.iter().map(&search).collect();
        let mut found = stream::iter(searches).buffered(SERIES_AT_A_TIME);
        while let Some(point) = found.next().await {
            if let Some(point) = point? {
                take(point)?;
            }
        }
    }
    Ok(())
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
    let names = Names::of_uids(needed, &*storage.directory, context.deadline()).await?;
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

fn decode_key<'a>(storage: &Storage, row: &'a Row) -> Result<RowKeyRef<'a>, QueryError> {
    RowKeyRef::decode(row.key(), &storage.layout).map_err(|error| QueryError::row_key(row.key(), &error))
}

/// The last point of a row, if it is in the range.
fn last_of_row(
    storage: &Storage,
    row: &Row,
    look_back: LookBack,
) -> Result<Option<(i64, Number)>, QueryError> {
    let key = decode_key(storage, row)?;
    let mut points = Points::new();
    let cells = row.cells().map(|cell| CellRef {
        qualifier: cell.qualifier,
        value: cell.value,
        timestamp_ms: cell.timestamp_ms,
    });
    decode_row(cells, DuplicatePolicy::KeepNewest, &mut points)
        .map_err(|error| QueryError::row(row.key(), error))?;
    let last = points.iter().last();
    let base_ms = key.base_time().millis();
    let last = last.map(|(offset_ms, value)| (base_ms + i64::from(offset_ms), Number::from(value)));
    Ok(last.filter(|(time_ms, _)| *time_ms >= look_back.from_ms))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[tokio::test]
    async fn searches_are_prepared_some_at_a_time() {
        let tsuid = Tsuid::from_bytes(&[0, 0, 1, 0, 0, 1, 0, 0, 1], &Default::default()).unwrap();
        let items: Vec<i64> = (0..5000).collect();
        let (prepared, taken) = (std::sync::atomic::AtomicUsize::new(0), Cell::new(0));
        let search = |item: &i64| {
            prepared.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let point = LastPoint {
                tsuid: tsuid.clone(),
                time_ms: *item,
                value: Number::Int(1),
            };
            // Every other item has none.
            std::future::ready(Ok(Some(point).filter(|_| item % 2 == 0))).boxed()
        };
        let take = |point: LastPoint| {
            assert_eq!(point.time_ms, 2 * taken.get());
            taken.set(taken.get() + 1);
            let ahead = prepared.load(std::sync::atomic::Ordering::Relaxed) as i64 - point.time_ms;
            assert!(ahead <= SEARCHES_AT_A_TIME as i64, "{ahead}");
            Ok(())
        };
        search_each(&items, search, take).await.unwrap();
        assert_eq!(taken.get(), 2500);
    }
}
