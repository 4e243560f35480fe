//! Snapshots: a copy of a store in a folder of its own, and its verification.

use std::path::Path;
use std::sync::Arc;

use super::clock_record;
use super::core::Core;
use super::days::name::{DayFile, DayNumber};
use super::days::tombstone::Deletion;
use super::folder;
use super::journal::Journal;
use super::part::{PageCache, Part};
use crate::PointStoreError;
use oxtsdb_storage_file::disk::Disk;

/// Completes a folder with links to all parts to a store.
pub(super) fn complete(core: &Core, target: &Path) -> Result<(), PointStoreError> {
    let disk = &core.config.disk;
    // Series are never removed, and a part has none that did not exist when it was linked.
    let completed = core
        .series
        .save_to(Arc::clone(disk), &target.join("series.log"), core.series.len())
        .and_then(|()| Journal::create(Arc::clone(disk), &target.join("journal")))
        .and_then(|()| match core.clock.witness_ms() {
            Some(time_ms) => clock_record::write(&**disk, target, time_ms),
            None => Ok(()),
        })
        .and_then(|()| folder::mark_copy(&**disk, target));
    if completed.is_err()
        && let Err(error) = disk.remove_dir(target)
    {
        tracing::warn!(folder = %target.display(), %error, "cannot remove a failed snapshot");
    }
    completed
}

/// Reads a part or tombstone of a closed store and checks it; `false` for other files.
///
/// # Errors
///
/// [`PointStoreError::Damaged`] and [`PointStoreError::Format`]; errors of the disk.
pub fn verify(disk: &Arc<dyn Disk>, path: &Path) -> Result<bool, PointStoreError> {
    let name = |path: &Path| path.file_name().map(|name| name.to_string_lossy().into_owned());
    let day = path
        .parent()
        .and_then(name)
        .and_then(|day| DayNumber::parse(&day));
    let file = name(path).filter(|_| day.is_some());
    match file.and_then(|file| DayFile::parse(&file)) {
        Some(DayFile::Part(_)) => {
            // No page is read twice.
            let cache = Arc::new(PageCache::new(0, 1));
            Part::open(disk, path, &cache)?.verify()?;
            Ok(true)
        }
        Some(DayFile::Tombstone(_)) => Deletion::read(&**disk, path).map(|_| true),
        Some(DayFile::Manifest | DayFile::Temporary) | None => Ok(false),
    }
}
