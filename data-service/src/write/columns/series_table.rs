//! The series that blocks refer to, by number: their row keys and failures.

use std::ops::Range;
use std::sync::Arc;

use hashbrown::HashMap;
use oxtsdb_point_store::{PointStore, SeriesNumber};
use oxtsdb_row_store::StoreError;
use oxtsdb_schema::{BaseTime, RowKeyLayout};

use super::range;
use crate::uids::changes::UidSet;
use crate::uids::series::{Series, set_base_time};
use crate::write::encoded::BatchSeries;
use crate::write::tracking::Untracked;
use crate::write::{PointErrorReason, Resolved};

/// Row keys, concatenated. A series that failed has an empty key.
#[derive(Debug, Default)]
pub(crate) struct SeriesTable {
    keys: Vec<u8>,
    ends: Vec<usize>,
    base_time_at: usize,
    tracked: Vec<Tracked>,
    failures: HashMap<u32, Arc<PointErrorReason>>,
}

/// Whether a series is tracked; see [`Untracked`].
#[derive(Debug)]
struct Tracked {
    /// The hour in which it was last tracked, as far as this table knows. Next to the others', so that most points need no access to
    /// the series itself.
    hour: u32,
    /// Its number in the store of points, once it is needed.
    number: Option<SeriesNumber>,
    /// `None`: it failed.
    series: Option<Arc<Series>>,
}

impl SeriesTable {
    /// A table of these series, in their order.
    pub(crate) fn of(series: Vec<Resolved>) -> Self {
        let mut table = Self::default();
        for resolved in series {
            table.push(resolved);
        }
        table
    }

    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether a series uses one of these UIDs.
    pub(super) fn use_any(&self, layout: &RowKeyLayout, uids: &UidSet) -> bool {
        let series = self.tracked.iter().filter_map(|tracked| tracked.series.as_ref());
        series.into_iter().any(|series| series.uses(layout, uids))
    }

    /// Whether no series is resolved.
    pub(super) fn all_failed(&self) -> bool {
        self.keys.is_empty()
    }

    /// Bytes in memory, about. Series shared with the cache are not counted.
    pub(super) fn byte_len(&self) -> usize {
        self.keys.len() + self.len() * (size_of::<usize>() + size_of::<Tracked>())
    }

    /// Appends a series.
    pub(super) fn push(&mut self, resolved: Resolved) {
        match resolved {
            Ok(series) => {
                self.base_time_at = series.base_time_at();
                self.keys.extend_from_slice(series.key());
                self.push_tracked(Tracked {
                    hour: 0,
                    number: None,
                    series: Some(series),
                });
            }
            Err(reason) => {
                // The limit of series is far below 32 bits.
                if let Ok(number) = u32::try_from(self.len()) {
                    self.failures.insert(number, reason);
                }
                self.push_tracked(Tracked {
                    hour: 0,
                    number: None,
                    series: None,
                });
            }
        }
    }

    /// Ends the series whose key was appended, if it has one.
    fn push_tracked(&mut self, tracked: Tracked) {
        self.ends.push(self.keys.len());
        self.tracked.push(tracked);
    }

    /// Replaces the results of some series, by their numbers.
    pub(super) fn with(mut self, found: &HashMap<u32, Resolved>) -> Self {
        let mut all = Self {
            base_time_at: self.base_time_at,
            ..Self::default()
        };
        let mut start = 0;
        for ((number, end), tracked) in (0..).zip(&self.ends).zip(self.tracked.drain(..)) {
            let key = self.keys.get(start..*end).unwrap_or_default();
            start = *end;
            if let Some(resolved) = found.get(&number) {
                all.push(resolved.clone());
            } else if let Some(reason) = self.failures.remove(&number) {
                all.push(Err(reason));
            } else {
                all.keys.extend_from_slice(key);
                all.push_tracked(tracked);
            }
        }
        all
    }

    /// The range of a series' row key; empty: it failed. `None`: it is not declared.
    #[inline]
    pub(super) fn range(&self, number: u32) -> Option<Range<usize>> {
        range(&self.ends, number)
    }

    /// Why a series failed.
    pub(super) fn failure(&self, number: u32) -> Option<&Arc<PointErrorReason>> {
        self.failures.get(&number)
    }

    /// Adds a series to `untracked`, unless it is tracked.
    #[inline]
    pub(super) fn observe(&mut self, number: u32, untracked: &mut Untracked) {
        let Some(tracked) = self.tracked.get_mut(number as usize) else {
            return;
        };
        if untracked.needs(tracked.hour)
            && let Some(series) = &tracked.series
        {
            // What was observed is tracked once its row is stored: the write may fail.
            tracked.hour = series.tracked_hour();
            untracked.observe(series);
        }
    }

    /// The series at `range`, for a batch.
    #[inline]
    pub(super) const fn at(&mut self, number: u32, range: Range<usize>) -> SeriesAt<'_> {
        SeriesAt {
            table: self,
            number,
            range,
        }
    }
}

/// A series of a table.
pub(super) struct SeriesAt<'a> {
    table: &'a mut SeriesTable,
    number: u32,
    range: Range<usize>,
}

impl BatchSeries for SeriesAt<'_> {
    fn place(&self) -> usize {
        self.number as usize
    }

    fn row_key(&mut self, base: BaseTime) -> &[u8] {
        let key = &mut self.table.keys[self.range.clone()];
        set_base_time(key, self.table.base_time_at, base);
        key
    }

    #[inline]
    fn number(&mut self, store: &dyn PointStore) -> Result<SeriesNumber, StoreError> {
        let tracked = &mut self.table.tracked[self.number as usize];
        if let Some(number) = tracked.number {
            return Ok(number);
        }
        // Series with a key did not fail.
        let series = tracked.series.as_ref().ok_or_else(|| StoreError::Invalid {
            detail: format!("series {} failed", self.number),
        })?;
        let number = series.number(store)?;
        tracked.number = Some(number);
        Ok(number)
    }
}
