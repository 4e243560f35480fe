//! Snapshots: hard links to the parts and tombstones of all days.
//!
//! Files never change, so a link is a copy. A list that the snapshot holds keeps its files until they are linked, also
//! if a merge replaces them meanwhile. Points of a day that is dropped meanwhile may be absent.

use std::io::ErrorKind;
use std::path::Path;

use super::day::DayList;
use super::{Days, if_present, io_error};
use crate::PointStoreError;
use oxtsdb_storage_file::folder::create_dir_durably;

impl Days {
    /// Links all files to the folders of days in `target`, which is on the same file system, and makes that durable.
    ///
    /// The caller makes the snapshot complete: with the series and what is not in parts, and with the store's own
    /// marker last, so that an interrupted snapshot is no store.
    ///
    /// # Errors
    ///
    /// [`PointStoreError::Invalid`] if `target` has files; those of the disk, after which `target` has no days.
    pub fn snapshot(&self, target: &Path) -> Result<(), PointStoreError> {
        let disk = &*self.0.disk;
        let failed = |error| io_error(target, &error);
        if !if_present(disk.list(target)).map_err(failed)?.is_empty() {
            let message = format!("the folder of the snapshot, {}, is not empty", target.display());
            return Err(PointStoreError::Invalid(message));
        }
        create_dir_durably(disk, target).map_err(failed)?;
        let lists = self.all();
        for list in &lists {
            if let Err(error) = self.link_day(list, target) {
                for list in &lists {
                    let folder = target.join(list.day.to_string());
                    if let Err(error) = if_present(disk.remove_dir(&folder)) {
                        tracing::warn!(folder = %folder.display(), %error, "cannot remove a failed snapshot");
                    }
                }
                return Err(error);
            }
        }
        disk.sync_dir(target).map_err(failed)
    }

    fn link_day(&self, list: &DayList, target: &Path) -> Result<(), PointStoreError> {
        let disk = &*self.0.disk;
        let folder = target.join(list.day.to_string());
        disk.create_dir(&folder)
            .map_err(|error| io_error(&folder, &error))?;
        let parts = list.parts.iter().map(|part| &part.file);
        let tombstones = list.tombstones.iter().map(|tombstone| &tombstone.file);
        for file in parts.chain(tombstones) {
            let name = file.path().file_name().unwrap_or_default();
            match disk.link(file.path(), &folder.join(name)) {
                Ok(()) => {}
                // Dropped, or set aside, since the list was taken.
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(io_error(file.path(), &error)),
            }
        }
        disk.sync_dir(&folder).map_err(|error| io_error(&folder, &error))
    }
}
