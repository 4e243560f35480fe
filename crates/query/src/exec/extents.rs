//! Series extents: which series a plan reads, and when each of them ends.
//!
//! Emitting results before the scan finishes requires knowing which series belong to a group and when each of
//! them ends. The last point of each listed series, and a key-only pre-scan of the remaining rows, provide both.

use std::sync::Arc;

use futures::TryStreamExt as _;
use oxtsdb_point_store::TimeRange;
use oxtsdb_row_store::DamageLog;
use oxtsdb_schema::{HOUR_SECONDS, RowKeyLayout, RowKeyRef, Tsuid};
use parking_lot::Mutex;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::error::QueryError;
use crate::exec::series_points::SeriesPoints;
use crate::plan::hours::Hours;
use crate::points::Points;
use crate::reader::access_path::AccessPath;
use crate::reader::context::ReadContext;

/// The series that have rows in the range, with the end of the last hour of each.
#[derive(Clone, Debug, Default)]
pub(crate) struct SeriesExtents {
    stop_ms: FxHashMap<Tsuid, i64>,
}

const HOUR_MS: i64 = HOUR_SECONDS as i64 * 1000;

/// The key of the last row of each series.
type LastRows = FxHashMap<Box<[u8]>, Box<[u8]>>;

impl SeriesExtents {
    /// Reads the extents of a path in some hours, the last of its plan: of the series that the path lists, and of the
    /// keys of rows.
    ///
    /// # Errors
    ///
    /// The errors of the store, of row keys that cannot be decoded, and of the name directory.
    pub(crate) async fn read(
        access_path: &dyn AccessPath,
        hours: Hours,
        layout: &RowKeyLayout,
        context: &ReadContext,
        skip_damaged: Option<&DamageLog>,
    ) -> Result<Self, QueryError> {
        let mut extents = Self::default();
        let (budget, selection) = (context.budget(), access_path.selection());
        let range = TimeRange {
            first_ms: hours.start.millis(),
            last_ms: hours.stop_ms() - 1,
        };
        let mut listed = access_path.last_times(range, &context.compute, skip_damaged);
        while let Some(batch) = listed.try_next().await? {
            for (tsuid, time_ms) in batch {
                budget.hold_series_overhead(1)?;
                extents.add(tsuid, time_ms - time_ms.rem_euclid(HOUR_MS));
            }
        }
        let last: Arc<Mutex<LastRows>> = Arc::default();
        let (noted, tags_at) = (Arc::clone(&last), selection.tags_at());
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
        let rows = access_path.row_ranges();
        rows.keys(hours, budget, skip_damaged, seen).await?;
        if let Some(error) = rejection.lock().take() {
            return Err(error);
        }
        let mut rows: Vec<Box<[u8]>> = std::mem::take(&mut *last.lock()).into_values().collect();
        selection
            .resolve_and_filter(&mut rows, &*context.directory, context.deadline())
            .await?;
        for row in &rows {
            let key = RowKeyRef::decode(row, layout).map_err(|error| QueryError::row_key(row, &error))?;
            let tsuid = key.tsuid().map_err(|error| QueryError::row_series(row, &error))?;
            extents.add(tsuid, key.base_time().millis());
        }
        Ok(extents)
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
