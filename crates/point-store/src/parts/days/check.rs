//! The state of all days: statistics, and a check of every checksum while the store is in use.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use super::Days;
use super::day::DayList;
use super::name::DayNumber;
use super::pace::Pacer;
use super::policy::Candidate;
use super::tombstone::Deletion;
use crate::PointStoreError;

/// Statistics of all days.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DaysStats {
    /// Each day, ascending.
    pub days: Vec<DayStats>,
    /// Merges that were completed since the store was opened.
    pub merges: u64,
    /// Merges that failed.
    pub failed_merges: u64,
    /// Bytes of the parts that completed merges have read.
    pub merged_bytes: u64,
    /// Bytes of the parts that they have written.
    pub written_bytes: u64,
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
    /// Points of the parts; those that others replace or that were deleted count until a merge.
    pub points: u64,
    /// Tombstones that merges have not applied to all parts.
    pub tombstones: usize,
    /// Bytes of memory of the parts' indexes and of the tombstones.
    pub memory_bytes: usize,
    /// Bytes that merges will read until the sizes of the parts are in order.
    pub merge_debt_bytes: u64,
}

/// What [`Days::check`] found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// Files.
    pub files: usize,
    /// Bytes of the parts.
    pub bytes: u64,
    /// What is wrong with damaged files. Parts were set aside; a damaged tombstone is still applied, and is set aside
    /// when the store is opened again.
    pub damaged: Vec<PointStoreError>,
    /// Whether the check ended before all files were checked.
    pub was_stopped: bool,
}

#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) merges: AtomicU64,
    pub(super) failed_merges: AtomicU64,
    pub(super) merged_bytes: AtomicU64,
    pub(super) written_bytes: AtomicU64,
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
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        DaysStats {
            days: days.collect(),
            merges: load(&shared.counters.merges),
            failed_merges: load(&shared.counters.failed_merges),
            merged_bytes: load(&shared.counters.merged_bytes),
            written_bytes: load(&shared.counters.written_bytes),
        }
    }

    /// Reads all files of all days and checks them. Damaged parts are set aside.
    ///
    /// # Errors
    ///
    /// Those of the disk.
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
            for tombstone in &list.tombstones {
                let path = tombstone.file.path();
                let read = Deletion::read(&*self.0.disk, path);
                self.note(&list, path, read.map(drop), &mut checked)?;
            }
        }
        Ok(checked)
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
