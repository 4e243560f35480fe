//! Snapshots: hard links to the parts and tombstones of all days, and manifests of the linked files.
//!
//! Files never change, so a link is a copy. A list that the snapshot holds keeps its files until they are linked, also
//! if a merge replaces them meanwhile. Points of a day that is dropped meanwhile may be absent.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use super::day::{DayList, OwnedFile};
use super::manifest::{self, DayManifest, StoreManifest};
use super::{Days, if_present, io_error};
use crate::PointStoreError;
use oxtsdb_storage_file::folder::create_dir_durably;

impl Days {
    /// Links all files to the folders of days in `target`, which is on the same file system, and makes that durable.
    ///
    /// The caller makes the snapshot complete: with the series and the points that are not in parts, and with the
    /// store's own marker last, so that an interrupted snapshot is no store.
    ///
    /// # Errors
    ///
    /// [`PointStoreError::Invalid`] if `target` has files; errors of the disk, after which `target` has no days.
    pub fn snapshot(&self, target: &Path) -> Result<(), PointStoreError> {
        let disk = &*self.0.disk;
        let failed = |error| io_error(target, &error);
        if !if_present(disk.list(target)).map_err(failed)?.is_empty() {
            let message = format!("the folder of the snapshot, {}, is not empty", target.display());
            return Err(PointStoreError::Invalid(message));
        }
        create_dir_durably(disk, target).map_err(failed)?;
        let lists = self.all();
        let linked = self.link_days(&lists, target);
        if linked.is_err() {
            let remove = |path: &Path, removed: std::io::Result<()>| {
                if let Err(error) = if_present(removed) {
                    tracing::warn!(path = %path.display(), %error, "cannot remove a failed snapshot");
                }
            };
            for list in &lists {
                let folder = target.join(list.day.to_string());
                remove(&folder, disk.remove_dir(&folder));
            }
            let manifest = manifest::path(target);
            remove(&manifest, disk.remove(&manifest));
        }
        linked
    }

    fn link_days(&self, lists: &[Arc<DayList>], target: &Path) -> Result<(), PointStoreError> {
        let disk = &*self.0.disk;
        let mut manifest = StoreManifest {
            next_sequence: self.0.changes.lock().next_sequence,
            ..StoreManifest::default()
        };
        for list in lists {
            self.link_day(list, target, &mut manifest)?;
        }
        disk.sync_dir(target).map_err(|error| io_error(target, &error))?;
        manifest.write(disk, target)
    }

    /// Links the files of a day and adds it to the manifest of the store.
    fn link_day(
        &self,
        list: &DayList,
        target: &Path,
        manifest: &mut StoreManifest,
    ) -> Result<(), PointStoreError> {
        let disk = &*self.0.disk;
        let folder = target.join(list.day.to_string());
        disk.create_dir(&folder)
            .map_err(|error| io_error(&folder, &error))?;
        let link = |file: &OwnedFile| {
            let name = file.path().file_name().unwrap_or_default();
            match disk.link(file.path(), &folder.join(name)) {
                Ok(()) => Ok(true),
                // Dropped, or set aside, since the list was taken.
                Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
                Err(error) => Err(io_error(file.path(), &error)),
            }
        };
        let mut linked = DayManifest::default();
        for part in &list.parts {
            if link(&part.file)? {
                linked.parts.push(part.entry());
            }
        }
        for tombstone in &list.tombstones {
            if link(&tombstone.file)? {
                linked.tombstones.push(tombstone.entry);
            }
        }
        disk.sync_dir(&folder)
            .map_err(|error| io_error(&folder, &error))?;
        linked.write(disk, &folder)?;
        manifest.add_day(
            list.day,
            linked.parts.iter().map(|part| (part.sequences, &part.metrics)),
        );
        Ok(())
    }
}
