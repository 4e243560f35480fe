//! The series that blocks refer to, by number.

use std::sync::Arc;

use hashbrown::HashMap;
use oxtsdb_metadata::uids::changes::ChangedUids;
use oxtsdb_metadata::uids::series::Series;
use oxtsdb_point_store::{PointStore, SeriesNumber};
use oxtsdb_row_store::StoreError;
use oxtsdb_schema::RowKeyLayout;

use crate::encoded::BatchSeries;
use crate::tracking::Untracked;
use crate::{PointErrorReason, Resolved};

/// Series, and the reasons of failed series.
#[derive(Debug, Default)]
pub struct SeriesTable {
    entries: Vec<Entry>,
}

/// A series. Fields that most points need lie here, so that they need no access to the series itself.
#[derive(Debug)]
struct Entry {
    /// The hour in which it was last tracked, as far as this table knows; see [`Untracked`].
    tracked_hour: u32,
    /// Its number in the store of points; [`UNNUMBERED`] until it is needed.
    number: SeriesNumber,
    series: Resolved,
}

/// No series has this number.
const UNNUMBERED: SeriesNumber = SeriesNumber(u32::MAX);

impl Entry {
    const fn new(series: Resolved) -> Self {
        Self {
            tracked_hour: 0,
            number: UNNUMBERED,
            series,
        }
    }
}

impl SeriesTable {
    /// A table of these series, in their order.
    pub fn from_resolved(series: Vec<Resolved>) -> Self {
        Self {
            entries: series.into_iter().map(Entry::new).collect(),
        }
    }

    pub(super) const fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether a series uses one of these UIDs.
    pub(super) fn use_any(&self, layout: &RowKeyLayout, uids: &ChangedUids) -> bool {
        let mut resolved = self.entries.iter().filter_map(|entry| entry.series.as_ref().ok());
        resolved.any(|series| series.uses(layout, uids))
    }

    /// Whether no series is resolved.
    pub(super) fn all_failed(&self) -> bool {
        self.entries.iter().all(|entry| entry.series.is_err())
    }

    /// Bytes in memory, about. Series shared with the cache are not counted.
    pub(super) const fn byte_len(&self) -> usize {
        self.len() * size_of::<Entry>()
    }

    /// Appends a series.
    pub(super) fn push(&mut self, resolved: Resolved) {
        self.entries.push(Entry::new(resolved));
    }

    /// Replaces the results of some series, by their numbers.
    pub(super) fn replace(&mut self, results: HashMap<u32, Resolved>) {
        for (number, resolved) in results {
            if let Some(entry) = self.entries.get_mut(number as usize) {
                *entry = Entry::new(resolved);
            }
        }
    }

    /// A series, or why it failed; `None`: it is not declared.
    #[inline]
    pub(super) fn get(&mut self, number: u32) -> Option<Result<SeriesAt<'_>, &Arc<PointErrorReason>>> {
        let Entry {
            tracked_hour,
            number: stored_number,
            series,
        } = self.entries.get_mut(number as usize)?;
        Some(series.as_ref().map(|series| SeriesAt {
            place: number as usize,
            tracked_hour,
            number: stored_number,
            series,
        }))
    }
}

/// A series of a table.
pub(super) struct SeriesAt<'a> {
    place: usize,
    tracked_hour: &'a mut u32,
    number: &'a mut SeriesNumber,
    series: &'a Series,
}

impl SeriesAt<'_> {
    /// Adds the series to `untracked`, unless it is tracked.
    #[inline]
    pub(super) fn observe(&mut self, untracked: &mut Untracked) {
        if untracked.needs(*self.tracked_hour) {
            // An observed series is tracked only once its row is stored: the write may fail.
            *self.tracked_hour = self.series.tracked_hour();
            untracked.observe(self.series);
        }
    }
}

impl BatchSeries for SeriesAt<'_> {
    fn place(&self) -> usize {
        self.place
    }

    fn append_key(&self, key: &mut Vec<u8>) {
        key.extend_from_slice(self.series.tsuid());
    }

    #[inline]
    fn number(&mut self, store: &dyn PointStore) -> Result<SeriesNumber, StoreError> {
        if *self.number == UNNUMBERED {
            *self.number = self.series.number(store)?;
        }
        Ok(*self.number)
    }
}
