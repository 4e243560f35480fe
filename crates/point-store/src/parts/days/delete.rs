//! Deleting the points of series in a range.

use std::sync::Arc;

use super::day::{DayList, OwnedFile, Tombstone, path_of, tombstone_entry};
use super::manifest::TombstoneEntry;
use super::name::{DayFile, DayNumber};
use super::tombstone::Deletion;
use super::{Changes, Days, io_error};
use crate::{PointStoreError, SeriesNumber, TimeRange};

/// A durable deletion that reads do not apply yet.
#[derive(Debug)]
#[must_use]
pub struct PendingDeletion {
    days: Days,
    sequence: u64,
    deletion: Arc<Deletion>,
    /// The tombstone on each day.
    entries: Vec<(DayNumber, TombstoneEntry)>,
}

impl Days {
    /// Deletes points of all parts that were added before: durable when it returns, and visible with
    /// [`PendingDeletion::publish`], which does no I/O, so that a caller can publish it under a lock of its own.
    ///
    /// Points that are in no part are not deleted: the caller writes them to parts first, and cuts its journal.
    ///
    /// # Errors
    ///
    /// Errors of the disk. Points of some days may be deleted when the store is opened again; repeating is safe.
    pub fn delete(
        &self,
        series: &[SeriesNumber],
        range: TimeRange,
    ) -> Result<PendingDeletion, PointStoreError> {
        let shared = &*self.0;
        let deletion = Arc::new(Deletion::new(series, range));
        let mut changes = shared.changes.lock();
        self.remove_leftovers(&mut changes)?;
        let sequence = changes.take_sequence();
        let mut lists = self.days_in(range);
        lists.retain(|list| {
            let has_points = |own: TimeRange| own.overlaps(&range);
            list.parts.iter().any(|part| part.range().is_some_and(has_points))
        });
        if series.is_empty() {
            lists.clear();
        }
        let content = deletion.encode();
        let entry = |list: &Arc<DayList>| {
            let entry = tombstone_entry(sequence, content.len() as u64, range, list.day);
            (list.day, entry)
        };
        let entries: Vec<(DayNumber, TombstoneEntry)> = lists.iter().map(entry).collect();
        if let Err(error) = self.write(&mut changes, sequence, &content, &entries) {
            changes.pending.retain(|(_, entry)| entry.sequence != sequence);
            for (day, _) in entries {
                let path = path_of(&shared.folder, day, DayFile::Tombstone(sequence));
                changes.leftovers.push((day, path));
            }
            return Err(error);
        }
        Ok(PendingDeletion {
            days: self.clone(),
            sequence,
            deletion,
            entries,
        })
    }

    /// Writes one file, links it to all days and lists it there.
    fn write(
        &self,
        changes: &mut Changes,
        sequence: u64,
        content: &[u8],
        entries: &[(DayNumber, TombstoneEntry)],
    ) -> Result<(), PointStoreError> {
        let shared = &*self.0;
        let Some((first, _)) = entries.first() else {
            return Ok(());
        };
        let name = DayFile::Tombstone(sequence);
        let temporary = self.temporary(*first);
        let failed = |error| io_error(temporary.path(), &error);
        let mut file = shared.disk.create(temporary.path()).map_err(failed)?;
        file.write(content).map_err(failed)?;
        file.sync().map_err(failed)?;
        for (day, _) in entries {
            let path = path_of(&shared.folder, *day, name);
            let linked = shared.disk.link(temporary.path(), &path);
            linked.map_err(|error| io_error(&path, &error))?;
        }
        for (day, entry) in entries {
            changes.pending.push((*day, *entry));
            self.record_day(changes, *day)?;
        }
        Ok(())
    }
}

impl PendingDeletion {
    /// Lets later reads miss the deleted points.
    pub fn publish(self) {
        let shared = &*self.days.0;
        let mut changes = shared.changes.lock();
        changes
            .pending
            .retain(|(_, entry)| entry.sequence != self.sequence);
        for (day, entry) in &self.entries {
            let path = path_of(&shared.folder, *day, DayFile::Tombstone(self.sequence));
            let tombstone = Arc::new(Tombstone {
                sequence: self.sequence,
                deletion: Arc::clone(&self.deletion),
                entry: *entry,
                file: OwnedFile::new(&shared.disk, path),
            });
            if shared.days.read().contains_key(day) {
                self.days.change_day(*day, |list, merges| {
                    list.tombstones.push(tombstone);
                    list.tombstones.sort_by_key(|tombstone| tombstone.sequence);
                    merges.set_changed();
                });
            }
        }
        drop(changes);
    }
}
