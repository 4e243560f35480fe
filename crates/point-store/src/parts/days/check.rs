//! The state of all days: statistics, and a check of every checksum while the store is in use.

use std::path::Path;

use super::Days;
use super::day::DayList;
use super::manifest::{self, DayManifest, StoreManifest};
use super::name::DayNumber;
use super::pace::Pacer;
use super::policy::Candidate;
use super::record::Saved;
use super::tombstone::Deletion;
use crate::{MergeCounters, PointStoreError};

/// Statistics of all days.
#[derive(Clone, Debug, Default)]
pub struct DaysStats {
    /// Each day, ascending.
    pub days: Vec<DayStats>,
    /// Merges since the store was opened.
    pub merges: MergeCounters,
}

/// Statistics of a day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DayStats {
    /// The day.
    pub day: DayNumber,
    /// Its parts.
    pub parts: usize,
    /// Bytes of the parts.
    pub bytes: u64,
    /// Points of the parts; replaced or deleted points count until a merge.
    pub points: u64,
    /// Tombstones that merges have not applied to all parts.
    pub tombstones: usize,
    /// Bytes of memory of the parts' indexes and of the tombstones.
    pub memory_bytes: usize,
    /// Bytes that merges will read until the sizes of the parts are in order.
    pub merge_debt_bytes: u64,
}

/// The result of [`Days::check`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// Files.
    pub files: usize,
    /// Bytes of the parts.
    pub bytes: u64,
    /// Errors of damaged files. Parts were set aside; a damaged tombstone is still applied, and is set aside when the
    /// store is opened again.
    pub damaged: Vec<PointStoreError>,
    /// Whether the check ended before all files were checked.
    pub was_stopped: bool,
}

impl Days {
    /// Statistics.
    pub fn stats(&self) -> DaysStats {
        let shared = &*self.0;
        let days = self.all().into_iter().map(|list| {
            let candidates: Vec<Candidate> = list.parts.iter().map(|part| part.candidate(false)).collect();
            DayStats {
                day: list.day,
                parts: list.parts.len(),
                bytes: list.bytes(),
                points: list.parts.iter().map(|part| part.part().meta().points).sum(),
                tombstones: list.tombstones.len(),
                memory_bytes: list.byte_len(),
                merge_debt_bytes: shared.policy.debt_bytes(&candidates),
            }
        });
        DaysStats {
            days: days.collect(),
            merges: shared.counters.clone(),
        }
    }

    /// Reads all files of all days and checks them. Damaged parts are set aside.
    ///
    /// # Errors
    ///
    /// Errors of the disk.
    pub fn check(&self, pacer: &dyn Pacer) -> Result<Checked, PointStoreError> {
        let mut checked = Checked::default();
        for list in self.all() {
            for part in &list.parts {
                if pacer.pace(part.bytes()).is_err() {
                    checked.was_stopped = true;
                    return Ok(checked);
                }
                checked.bytes += part.bytes();
                self.note(&list, part.path(), part.part().verify(), &mut checked)?;
            }
            let there = self.0.disk.list(&self.0.folder.join(list.day.to_string()));
            for part in &list.parts {
                let name = part.path().file_name().unwrap_or_default();
                // A part that is open can be read after it was removed.
                let is_missing =
                    matches!(&there, Ok(there) if !there.iter().any(|entry| *entry.name == *name));
                if is_missing {
                    checked.files -= 1;
                    let error = missing(part.path());
                    self.note(&list, part.path(), Err(error), &mut checked)?;
                }
            }
            for tombstone in &list.tombstones {
                let path = tombstone.file.path();
                let read = Deletion::read(&*self.0.disk, path);
                self.note(&list, path, read.map(drop), &mut checked)?;
            }
        }
        self.check_manifests(&mut checked)?;
        Ok(checked)
    }

    /// Checks that manifests can be read, and writes unreadable ones again.
    fn check_manifests(&self, checked: &mut Checked) -> Result<(), PointStoreError> {
        let shared = &*self.0;
        let mut changes = shared.changes.lock();
        let mut note = |path: &Path, read: Result<bool, PointStoreError>| {
            let error = match read {
                Ok(true) => return Ok(false),
                Ok(false) => missing(path),
                Err(error @ PointStoreError::Damaged { .. }) => error,
                Err(error) => return Err(error),
            };
            tracing::warn!(%error, "a list of files is written again");
            checked.damaged.push(error);
            Ok(true)
        };
        let disk = &*shared.disk;
        for day in self.all().iter().map(|list| list.day) {
            let folder = shared.folder.join(day.to_string());
            let read = DayManifest::read(disk, &folder).map(|read| read.is_some());
            if !changes.dirty.contains(&day) && note(&manifest::path(&folder), read)? {
                changes.dirty.insert(day);
            }
        }
        let read = StoreManifest::read(disk, &shared.folder).map(|read| read.is_some());
        if changes.stored.is_some() && note(&manifest::path(&shared.folder), read)? {
            changes.stored = None;
            drop(changes);
            return self.record(Saved::default());
        }
        let has_dirty = !changes.dirty.is_empty();
        drop(changes);
        if has_dirty {
            self.record(Saved::default())
        } else {
            Ok(())
        }
    }

    /// Adds a finding of a file. Errors of a file that was dropped or set aside meanwhile are none.
    fn note(
        &self,
        list: &DayList,
        path: &Path,
        result: Result<(), PointStoreError>,
        checked: &mut Checked,
    ) -> Result<(), PointStoreError> {
        checked.files += 1;
        let Err(error) = result else {
            return Ok(());
        };
        if !self.is_listed(list.day, path) {
            return Ok(());
        }
        let error = self.set_aside(list, error)?;
        if !matches!(error, PointStoreError::Damaged { .. }) {
            return Err(error);
        }
        checked.damaged.push(error);
        Ok(())
    }
}

fn missing(path: &Path) -> PointStoreError {
    PointStoreError::Damaged {
        path: path.to_owned(),
        detail: "the file is missing".to_owned(),
    }
}
