//! Retention: days that are too old are dropped as a whole.
//!
//! A day's folder is renamed into `dropped/`, which is atomic, and its files are removed. The folder itself is removed
//! when the manifest of the store no longer has the day: until then it shows that the day is not lost. So a full disk
//! gets space before a manifest is written. The next start removes the files that are left there.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use super::name::DayNumber;
use super::{Days, if_present, io_error};
use crate::PointStoreError;
use oxtsdb_storage_file::disk::Disk;
use oxtsdb_storage_file::folder::create_dir_durably;

/// The days and files that [`Days::drop_before`] dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dropped {
    /// Days.
    pub days: usize,
    /// Bytes of their parts.
    pub bytes: u64,
}

impl Days {
    /// Drops the days with all instants before `edge_ms`. Their points are gone for readers that begin later.
    ///
    /// # Errors
    ///
    /// Errors of the disk; the days before the one that failed are dropped. Repeating is safe.
    pub fn drop_before(&self, edge_ms: i64) -> Result<Dropped, PointStoreError> {
        let mut dropped = Dropped::default();
        for list in self.all() {
            if list.day.last_ms() >= edge_ms {
                break;
            }
            self.drop_day(list.day)?;
            dropped.days += 1;
            dropped.bytes += list.bytes();
            tracing::info!(day = %list.day, bytes = list.bytes(), "dropped a day");
        }
        Ok(dropped)
    }

    fn drop_day(&self, day: DayNumber) -> Result<(), PointStoreError> {
        let shared = Arc::clone(&self.0);
        let from = shared.folder.join(day.to_string());
        let dropped = shared.folder.join("dropped");
        create_dir_durably(&*shared.disk, &dropped).map_err(|error| io_error(&dropped, &error))?;
        let mut changes = shared.changes.lock();
        // A day may come back with late points and be dropped again.
        let to = dropped.join(format!("{day}_{}", changes.dropped));
        changes.dropped += 1;
        if_present(shared.disk.rename(&from, &to)).map_err(|error| io_error(&from, &error))?;
        shared.days.write().remove(&day);
        changes.dirty.remove(&day);
        changes.pending.retain(|(of, _)| *of != day);
        changes.leftovers.retain(|(of, _)| *of != day);
        drop(changes);
        for folder in [&shared.folder, &dropped] {
            let synced = shared.disk.sync_dir(folder);
            synced.map_err(|error| io_error(folder, &error))?;
        }
        empty_folder(&*shared.disk, &to)?;
        self.record_store(&mut shared.changes.lock())?;
        if_present(shared.disk.remove_dir(&to)).map_err(|error| io_error(&to, &error))
    }
}

/// Removes the files of the days that were dropped before a store was opened, and returns the days.
pub(super) fn empty_dropped(disk: &dyn Disk, dropped: &Path) -> Result<BTreeSet<DayNumber>, PointStoreError> {
    let failed = |error| io_error(dropped, &error);
    let mut days = BTreeSet::new();
    let entries = if_present(disk.list(dropped)).map_err(failed)?;
    if !entries.is_empty() {
        disk.sync_dir(dropped).map_err(failed)?;
    }
    for entry in entries {
        let path = dropped.join(&entry.name);
        if entry.is_dir {
            empty_folder(disk, &path)?;
            let day = entry
                .name
                .split_once('_')
                .map_or(entry.name.as_str(), |(day, _)| day);
            days.extend(DayNumber::parse(day));
        } else {
            disk.remove(&path).map_err(failed)?;
        }
    }
    Ok(days)
}

/// Removes the folders that [`empty_dropped`] has left.
pub(super) fn remove_dropped(disk: &dyn Disk, dropped: &Path) -> Result<(), PointStoreError> {
    let failed = |error| io_error(dropped, &error);
    for entry in if_present(disk.list(dropped)).map_err(failed)? {
        disk.remove_dir(&dropped.join(entry.name)).map_err(failed)?;
    }
    Ok(())
}

/// Empties a folder, which may be absent.
fn empty_folder(disk: &dyn Disk, folder: &Path) -> Result<(), PointStoreError> {
    let failed = |error| io_error(folder, &error);
    for entry in if_present(disk.list(folder)).map_err(failed)? {
        let path = folder.join(&entry.name);
        let removed = if entry.is_dir {
            disk.remove_dir(&path)
        } else {
            disk.remove(&path)
        };
        if_present(removed).map_err(failed)?;
    }
    Ok(())
}
