//! Writes the manifests, and removes files that a failed operation may have left.

use super::day::DayList;
use super::manifest::{DayManifest, StoreManifest};
use super::name::DayNumber;
use super::{Changes, Days, if_present, io_error};
use crate::PointStoreError;
use oxtsdb_storage_file::folder::parent;

/// How far points and series are in files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Saved {
    /// The sequence number of the last frame of the journal with all its points in parts.
    pub cut: u64,
    /// The number of series that are durable.
    pub series: u32,
}

impl DayList {
    /// The manifest of the day, without tombstones that are not visible yet.
    pub(super) fn manifest(&self) -> DayManifest {
        let tombstones = self.tombstones.iter();
        DayManifest {
            parts: self.parts.iter().map(|part| part.entry()).collect(),
            tombstones: tombstones.map(|tombstone| tombstone.entry).collect(),
        }
    }
}

impl Days {
    /// Makes the published parts durable, and lists them in the manifests. `saved` replaces the numbers in the store's
    /// manifest that are smaller.
    ///
    /// # Errors
    ///
    /// Errors of the disk. Repeating is safe.
    pub fn record(&self, saved: Saved) -> Result<(), PointStoreError> {
        let mut changes = self.0.changes.lock();
        let dirty: Vec<DayNumber> = changes.dirty.iter().copied().collect();
        for day in dirty {
            self.record_day(&mut changes, day)?;
        }
        changes.saved = Saved {
            cut: changes.saved.cut.max(saved.cut),
            series: changes.saved.series.max(saved.series),
        };
        self.record_store(&mut changes)
    }

    /// The sequence number of the last frame of the journal with all its points in parts; `None` if no manifest has it.
    pub fn cut(&self) -> Option<u64> {
        let changes = self.0.changes.lock();
        changes.stored.as_ref().map(|stored| stored.cut)
    }

    /// Files of the store that were lost and have been made again.
    pub fn losses(&self) -> &[PointStoreError] {
        &self.0.losses
    }

    /// Makes the names of a day durable and replaces its manifest.
    pub(super) fn record_day(&self, changes: &mut Changes, day: DayNumber) -> Result<(), PointStoreError> {
        changes.dirty.insert(day);
        // A file that is listed and not there is reported as lost.
        self.sync_day(day)?;
        let manifest = self.manifest(changes, day);
        self.write_manifest(changes, day, &manifest)
    }

    /// Replaces the manifest of a day. The day's names must be durable.
    pub(super) fn write_manifest(
        &self,
        changes: &mut Changes,
        day: DayNumber,
        manifest: &DayManifest,
    ) -> Result<(), PointStoreError> {
        let shared = &*self.0;
        changes.dirty.insert(day);
        manifest.write(&*shared.disk, &shared.folder.join(day.to_string()))?;
        changes.dirty.remove(&day);
        Ok(())
    }

    /// The manifest of a day as it is now.
    pub(super) fn manifest(&self, changes: &Changes, day: DayNumber) -> DayManifest {
        let days = self.0.days.read();
        let list = days.get(&day).map(|day| &day.list);
        let mut manifest = list.map_or_else(DayManifest::default, |list| list.manifest());
        drop(days);
        let pending = changes.pending.iter().filter(|(of, _)| *of == day);
        manifest
            .tombstones
            .extend(pending.map(|(_, tombstone)| *tombstone));
        manifest
    }

    /// Replaces the manifest of the store if it is not as the store is now.
    pub(super) fn record_store(&self, changes: &mut Changes) -> Result<(), PointStoreError> {
        let shared = &*self.0;
        let mut now = StoreManifest {
            cut: changes.saved.cut,
            series: changes.saved.series,
            next_sequence: changes.next_sequence,
            ..StoreManifest::default()
        };
        for list in self.all() {
            now.add_day(
                list.day,
                list.parts.iter().map(|part| (part.sequences, &part.metrics)),
            );
        }
        if changes.stored.as_ref() != Some(&now) {
            now.write(&*shared.disk, &shared.folder)?;
            changes.stored = Some(now);
        }
        Ok(())
    }

    /// Removes files that failed operations may have left, durably: they would count at the next start, when the
    /// operations that followed do not expect them.
    pub(super) fn remove_leftovers(&self, changes: &mut Changes) -> Result<(), PointStoreError> {
        let shared = &*self.0;
        while let Some((day, path)) = changes.leftovers.last().cloned() {
            // A manifest may list the file.
            if changes.dirty.contains(&day) {
                self.record_day(changes, day)?;
            }
            if_present(shared.disk.remove(&path)).map_err(|error| io_error(&path, &error))?;
            let folder = parent(&path);
            if_present(shared.disk.sync_dir(folder)).map_err(|error| io_error(folder, &error))?;
            changes.leftovers.pop();
        }
        Ok(())
    }
}
