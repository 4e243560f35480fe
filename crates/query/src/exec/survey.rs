//! Surveys: which series a plan reads, and up to when each of them goes.
//!
//! A part of an answer can be told before all rows were read only if it is known which series belong to
//! a group, and which of those that are silent have ended. Row keys say both. So when a query turns out
//! to be a large one, the keys of the rows that are still to come are looked at once.

use std::sync::Arc;
use std::time::Instant;

use oxtsdb_row_store::{DamageLog, RowStore, TableName};
use oxtsdb_schema::{HOUR_SECONDS, RowKeyLayout, RowKeyRef, Tsuid};
use parking_lot::Mutex;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::error::QueryError;
use crate::exec::budget::Budget;
use crate::exec::scan;
use crate::exec::span::Span;
use crate::names::NameDirectory;
use crate::plan::Plan;
use crate::plan::hours::Hours;
use crate::points::Points;

/// The series that have rows in the range, with the end of the last hour of each.
#[derive(Clone, Debug, Default)]
pub struct Survey {
    stop_ms: FxHashMap<Tsuid, i64>,
}

/// What is noted of a series: its last row.
type LastRows = FxHashMap<Box<[u8]>, Box<[u8]>>;

impl Survey {
    /// Looks at the keys of the rows of a plan that lie in some hours, the last of the plan.
    ///
    /// # Errors
    ///
    /// The store's, those of row keys that cannot be decoded, and those of looking up names.
    pub async fn of_rest(
        (store, table): (&Arc<dyn RowStore>, &TableName),
        plan: &Plan,
        hours: Hours,
        layout: &RowKeyLayout,
        directory: &dyn NameDirectory,
        deadline: Option<Instant>,
        (budget, skip_damaged): (&Budget, Option<&DamageLog>),
    ) -> Result<Self, QueryError> {
        let last: Arc<Mutex<LastRows>> = Arc::default();
        let (noted, tags_at) = (Arc::clone(&last), plan.selection.tags_at());
        // The survey lives until the end of the sub-query, which releases all memory of series.
        let (series, refused) = (budget.clone(), Arc::new(Mutex::new(None)));
        let refusal = Arc::clone(&refused);
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
                None => match series.hold_series_overhead() {
                    Ok(()) => drop(noted.insert(tsuid.as_slice().into(), key.into())),
                    Err(error) => *refused.lock() = Some(error),
                },
            }
        };
        scan::keys(store, table, plan, hours, layout, (budget, skip_damaged), seen).await?;
        if let Some(error) = refusal.lock().take() {
            return Err(error);
        }
        let mut rows: Vec<Box<[u8]>> = std::mem::take(&mut *last.lock()).into_values().collect();
        plan.selection.judge(&mut rows, directory, deadline).await?;
        let mut survey = Self::default();
        for row in &rows {
            let key = RowKeyRef::decode(row, layout).map_err(|error| QueryError::row_key(row, &error))?;
            let tsuid = key.tsuid().map_err(|error| QueryError::row_series(row, &error))?;
            survey.stop_ms.insert(tsuid, stop_of(key.base_time().millis()));
        }
        Ok(survey)
    }

    /// Adds series of which rows have come already, all before an instant.
    pub fn add_read(&mut self, spans: &[Span], until_ms: i64) {
        for span in spans {
            self.stop_ms.entry(span.tsuid.clone()).or_insert(until_ms);
        }
    }

    /// Spans, which ascend by TSUID, with empty ones for the series that are not among them.
    pub fn with_series(&self, mut spans: Vec<Span>) -> Vec<Span> {
        let known: FxHashSet<Tsuid> = spans.iter().map(|span| span.tsuid.clone()).collect();
        let others = self.series().filter(|tsuid| !known.contains(*tsuid));
        spans.extend(others.map(|tsuid| Span {
            tsuid: tsuid.clone(),
            points: Points::default(),
            from_epoch: None,
        }));
        spans.sort_unstable_by(|a, b| a.tsuid.cmp(&b.tsuid));
        spans
    }

    /// The series.
    pub fn series(&self) -> impl Iterator<Item = &Tsuid> {
        self.stop_ms.keys()
    }

    /// Whether a series has a row in the hour that begins at an instant, or may have one.
    pub fn has_row(&self, tsuid: &[u8], base_ms: i64) -> bool {
        self.stop_ms.get(tsuid).is_some_and(|stop| base_ms < *stop)
    }

    /// Whether a series has no points at an instant or behind it.
    pub fn has_ended(&self, tsuid: &Tsuid, at_ms: i64) -> bool {
        self.stop_ms.get(tsuid).is_none_or(|stop| *stop <= at_ms)
    }
}

fn stop_of(base_ms: i64) -> i64 {
    base_ms + i64::from(HOUR_SECONDS) * 1000
}
