//! Deleting the points of series in a range.

use std::sync::Arc;

use super::day::{DayList, OwnedFile, Tombstone, path_of};
use super::name::DayFile;
use super::tombstone::Deletion;
use super::{Days, io_error};
use crate::{PointStoreError, SeriesNumber, TimeRange};

/// A durable deletion that reads do not apply yet.
#[derive(Debug)]
#[must_use]
pub struct PendingDeletion {
    days: Days,
    sequence: u64,
    deletion: Arc<Deletion>,
    lists: Vec<Arc<DayList>>,
}

impl Days {
    /// Deletes points of all parts that were added before: durable when it returns, and visible with
    /// [`PendingDeletion::publish`], which does no I/O, so that a caller can publish it under a lock of its own.
    ///
    /// Points that are in no part are not deleted: the caller writes them to parts first, and cuts its journal.
    ///
    /// # Errors
    ///
    /// Those of the disk. Points of some days may be deleted when the store is opened again; repeating is safe.
    pub fn delete(
        &self,
        series: &[SeriesNumber],
        range: TimeRange,
    ) -> Result<PendingDeletion, PointStoreError> {
        let shared = &*self.0;
        let deletion = Arc::new(Deletion::new(series, range));
        let mut changes = shared.changes.lock();
        let sequence = changes.take_sequence();
        let mut lists = self.days_in(range);
        lists.retain(|list| {
            let has_points = |found: TimeRange| found.overlaps(&range);
            list.parts.iter().any(|part| part.range().is_some_and(has_points))
        });
        if !series.is_empty() {
            self.write(sequence, &deletion, &lists)?;
        } else {
            lists.clear();
        }
        Ok(PendingDeletion {
            days: self.clone(),
            sequence,
            deletion,
            lists,
        })
    }

    /// Writes one file and links it to all days.
    fn write(
        &self,
        sequence: u64,
        deletion: &Deletion,
        lists: &[Arc<DayList>],
    ) -> Result<(), PointStoreError> {
        let shared = &*self.0;
        let Some(first) = lists.first() else {
            return Ok(());
        };
        let name = DayFile::Tombstone(sequence);
        let temporary = self.temporary(first.day);
        let failed = |error| io_error(temporary.path(), &error);
        let mut file = shared.disk.create(temporary.path()).map_err(failed)?;
        file.write(&deletion.encode()).map_err(failed)?;
        file.sync().map_err(failed)?;
        for list in lists {
            let path = path_of(&shared.folder, list.day, name);
            let linked = shared.disk.link(temporary.path(), &path);
            linked.map_err(|error| io_error(&path, &error))?;
        }
        lists.iter().try_for_each(|list| self.sync_day(list.day))
    }
}

impl PendingDeletion {
    /// Lets later reads miss the deleted points.
    pub fn publish(self) {
        let shared = &*self.days.0;
        let changes = shared.changes.lock();
        for list in &self.lists {
            let path = path_of(&shared.folder, list.day, DayFile::Tombstone(self.sequence));
            let tombstone = Arc::new(Tombstone {
                sequence: self.sequence,
                deletion: Arc::clone(&self.deletion),
                file: OwnedFile::new(&shared.disk, path),
            });
            if shared.days.read().contains_key(&list.day) {
                self.days.change_day(list.day, |list, merges| {
                    list.tombstones.push(tombstone);
                    list.tombstones.sort_by_key(|tombstone| tombstone.sequence);
                    merges.set_changed();
                });
            }
        }
        drop(changes);
    }
}
