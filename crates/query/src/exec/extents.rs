//! Series extents: which series a plan reads, and when each of them ends.
//!
//! Emitting results before the scan finishes requires knowing which series belong to a group and when each of
//! them ends. The last point of each series in columns, and a key-only pre-scan of the remaining rows, provide both.

use std::sync::Arc;

use oxtsdb_point_store::TimeRange;
use oxtsdb_resources::ComputePool;
use oxtsdb_row_store::{DamageLog, RowStore};
use oxtsdb_schema::{HOUR_SECONDS, RowKeyLayout, RowKeyRef, Tsuid};
use parking_lot::Mutex;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::context::budget::Budget;
use crate::context::query_context::QueryContext;
use crate::error::QueryError;
use crate::exec::scan;
use crate::exec::scan::columns::ColumnSource;
use crate::exec::series_points::SeriesPoints;
use crate::plan::hours::Hours;
use crate::plan::query_plan::Plan;
use crate::points::Points;
use crate::storage::Storage;

/// The series that have rows in the range, with the end of the last hour of each.
#[derive(Clone, Debug, Default)]
pub(crate) struct SeriesExtents {
    stop_ms: FxHashMap<Tsuid, i64>,
}

const HOUR_MS: i64 = HOUR_SECONDS as i64 * 1000;

/// Series of columns that are looked up at a time, which takes a few milliseconds.
pub(super) const SERIES_AT_A_TIME: usize = 4096;

/// The key of the last row of each series.
type LastRows = FxHashMap<Box<[u8]>, Box<[u8]>>;

impl SeriesExtents {
    /// Reads the extents of a plan in some hours, the last of the plan: from the columns, and from the keys of `rows`.
    ///
    /// # Errors
    ///
    /// The errors of the store, of row keys that cannot be decoded, and of the name directory.
    pub(crate) async fn read(
        storage: &Storage,
        (rows, columns): (&Arc<dyn RowStore>, Option<&ColumnSource>),
        plan: &Plan,
        hours: Hours,
        (context, compute): (&QueryContext, &ComputePool),
        skip_damaged: Option<&DamageLog>,
    ) -> Result<Self, QueryError> {
        let mut extents = Self::default();
        if let Some(columns) = columns {
            extents
                .add_columns(columns, compute, hours, &storage.layout, context.budget())
                .await?;
        }
        let (layout, budget) = (&storage.layout, context.budget());
        let last: Arc<Mutex<LastRows>> = Arc::default();
        let (noted, tags_at) = (Arc::clone(&last), plan.selection.tags_at());
        // The extents live until the end of the sub-query, which releases all memory of series.
        let (series, rejected) = (budget.clone(), Arc::new(Mutex::new(None)));
        let rejection = Arc::clone(&rejected);
        let metric_at = layout.salt.width();
        let base_at = metric_at + layout.widths.metric.bytes();
        let seen = move |key: &[u8]| {
            let mut tsuid = smallvec::SmallVec::<[u8; 64]>::new();
            tsuid.extend_from_slice(key.get(metric_at..base_at).unwrap_or_default());
            tsuid.extend_from_slice(key.get(tags_at..).unwrap_or_default());
            let mut noted = noted.lock();
            match noted.get_mut(tsuid.as_slice()) {
                // Slices may be read side by side.
                Some(row) if **row >= *key => {}
                Some(row) => row.copy_from_slice(key),
                None => match series.hold_series_overhead(1) {
                    Ok(()) => drop(noted.insert(tsuid.as_slice().into(), key.into())),
                    Err(error) => *rejected.lock() = Some(error),
                },
            }
        };
        scan::keys((rows, storage), plan, hours, budget, skip_damaged, seen).await?;
        if let Some(error) = rejection.lock().take() {
            return Err(error);
        }
        let mut rows: Vec<Box<[u8]>> = std::mem::take(&mut *last.lock()).into_values().collect();
        plan.selection
            .resolve_and_filter(&mut rows, &*storage.directory, context.deadline())
            .await?;
        for row in &rows {
            let key = RowKeyRef::decode(row, layout).map_err(|error| QueryError::row_key(row, &error))?;
            let tsuid = key.tsuid().map_err(|error| QueryError::row_series(row, &error))?;
            extents.add(tsuid, key.base_time().millis());
        }
        Ok(extents)
    }

    /// Adds the series of columns that have points in some hours.
    async fn add_columns(
        &mut self,
        columns: &ColumnSource,
        compute: &ComputePool,
        hours: Hours,
        layout: &RowKeyLayout,
        budget: &Budget,
    ) -> Result<(), QueryError> {
        let range = TimeRange {
            first_ms: hours.start.millis(),
            last_ms: hours.stop_ms() - 1,
        };
        let mut key = Vec::new();
        for series in columns.series.chunks(SERIES_AT_A_TIME) {
            let last = columns.last(compute, series, range).await?;
            for (series, point) in series.iter().zip(last) {
                let Some(point) = point else { continue };
                budget.hold_series_overhead(1)?;
                columns.store.key(*series, &mut key);
                let tsuid = Tsuid::from_bytes(&key, &layout.widths);
                let tsuid = tsuid.map_err(|error| QueryError::row_series(&key, &error))?;
                self.add(tsuid, point.time_ms - point.time_ms.rem_euclid(HOUR_MS));
            }
        }
        Ok(())
    }

    /// Adds an hour of a series.
    fn add(&mut self, tsuid: Tsuid, base_ms: i64) {
        let stop_ms = self.stop_ms.entry(tsuid).or_insert(i64::MIN);
        *stop_ms = (*stop_ms).max(base_ms + HOUR_MS);
    }

    /// Adds series that were read already and have all their rows before `until_ms`.
    pub(crate) fn add_read(&mut self, series: &[SeriesPoints], until_ms: i64) {
        for read in series {
            self.stop_ms.entry(read.tsuid.clone()).or_insert(until_ms);
        }
    }

    /// Series, which ascend by TSUID, with the added ones that have no points yet.
    pub(crate) fn with_series(&self, mut series: Vec<SeriesPoints>) -> Vec<SeriesPoints> {
        let known: FxHashSet<Tsuid> = series.iter().map(|series| series.tsuid.clone()).collect();
        let others = self.series().filter(|tsuid| !known.contains(*tsuid));
        series.extend(others.map(|tsuid| SeriesPoints {
            tsuid: tsuid.clone(),
            points: Points::default(),
            from_epoch: None,
            annotations: None,
            is_named: true,
        }));
        series.sort_unstable_by(|a, b| a.tsuid.cmp(&b.tsuid));
        series
    }

    /// How many series there are.
    pub(crate) fn len(&self) -> usize {
        self.stop_ms.len()
    }

    /// The series.
    pub(crate) fn series(&self) -> impl Iterator<Item = &Tsuid> {
        self.stop_ms.keys()
    }

    /// Whether a series has a row in the hour that begins at an instant, or may have one.
    pub(crate) fn has_row(&self, tsuid: &[u8], base_ms: i64) -> bool {
        self.stop_ms.get(tsuid).is_some_and(|stop| base_ms < *stop)
    }

    /// The end of the last hour of a series; `None`: it has no points.
    pub(crate) fn stop_ms(&self, tsuid: &[u8]) -> Option<i64> {
        self.stop_ms.get(tsuid).copied()
    }

    /// Whether a series has no points at an instant or behind it.
    pub(crate) fn has_ended(&self, tsuid: &Tsuid, at_ms: i64) -> bool {
        self.stop_ms.get(tsuid).is_none_or(|stop| *stop <= at_ms)
    }
}
