//! Reading the folders of all days when the store is opened.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use parking_lot::{Mutex, RwLock};

use super::damage::damage_of;
use super::day::{DayList, DayPart, OwnedFile, Tombstone, path_of};
use super::name::{DayFile, DayNumber, Sequences};
use super::policy::MergePolicy;
use super::set_aside::SetAside;
use super::tombstone::Deletion;
use super::{Changes, Day, Days, Shared, check, if_present, io_error, merge, retention};
use crate::PointStoreError;
use crate::parts::folder::Folder;
use crate::parts::part::{Lost, PageCache};
use oxtsdb_storage_file::disk::Disk;

impl Days {
    /// Opens all parts, of series before number `series_end`. Removes files that are obsolete or were never finished, and days that were being dropped;
    /// sets damaged parts aside.
    ///
    /// # Errors
    ///
    /// Those of the disk.
    pub fn open(
        disk: Arc<dyn Disk>,
        folder: &Folder,
        cache: Arc<PageCache>,
        policy: MergePolicy,
        series_end: u32,
    ) -> Result<Self, PointStoreError> {
        let path = folder.path().to_owned();
        // What is found may not be durable yet, if the process before was killed. It must be before anything is
        // removed because of it.
        disk.sync_dir(&path).map_err(|error| io_error(&path, &error))?;
        retention::remove_dropped(&*disk, &folder.dropped())?;
        let set_aside = SetAside::open(&*disk, folder.set_aside(), &path)?;
        let entries = disk.list(&path).map_err(|error| io_error(&path, &error))?;
        let names: Vec<String> = set_aside.names().collect();
        let days = Self(Arc::new(Shared {
            disk,
            folder: path,
            cache,
            policy,
            temporary: AtomicU64::new(0),
            repair: Mutex::new(()),
            changes: Mutex::new(Changes {
                next_sequence: names.iter().map(|name| next_sequence(name)).max().unwrap_or(0),
                dropped: 0,
                set_aside,
            }),
            days: RwLock::default(),
            counters: check::Counters::default(),
        }));
        let mut deletions = HashMap::new();
        for entry in entries.iter().filter(|entry| entry.is_dir) {
            if let Some(day) = DayNumber::parse(&entry.name) {
                days.open_day(day, series_end, &mut deletions)?;
            }
        }
        Ok(days)
    }

    fn open_day(
        &self,
        day: DayNumber,
        series_end: u32,
        deletions: &mut HashMap<u64, Arc<Deletion>>,
    ) -> Result<(), PointStoreError> {
        let shared = &*self.0;
        let folder = shared.folder.join(day.to_string());
        let failed = |error| io_error(&folder, &error);
        let mut changes = shared.changes.lock();
        let mut list = DayList::new(day);
        let mut sequences = Vec::new();
        let mut unknown = 0;
        shared.disk.sync_dir(&folder).map_err(failed)?;
        for entry in shared.disk.list(&folder).map_err(failed)? {
            changes.next_sequence = changes.next_sequence.max(next_sequence(&entry.name));
            let path = folder.join(&entry.name);
            match DayFile::parse(&entry.name) {
                Some(DayFile::Temporary) => shared.disk.remove(&path).map_err(failed)?,
                Some(DayFile::Part(found)) => sequences.push(found),
                Some(DayFile::Tombstone(sequence)) => match Deletion::read(&*shared.disk, &path) {
                    Ok(deletion) => list.tombstones.push(Arc::new(Tombstone {
                        sequence,
                        deletion: shared_deletion(deletions, sequence, deletion),
                        file: OwnedFile::new(&shared.disk, path),
                    })),
                    Err(error) => self.set_aside_at_open(&mut changes, day, &path, error)?,
                },
                None => {
                    tracing::warn!(file = %path.display(), "ignored a file that is not of the store");
                    unknown += 1;
                }
            }
        }
        // A part comes before those that it contains.
        sequences.sort_unstable_by_key(|found| (found.first, std::cmp::Reverse(found.last)));
        for found in sequences {
            let path = path_of(&shared.folder, day, DayFile::Part(found));
            let contains = |part: &Arc<DayPart>| part.sequences.contain(&found);
            if list.parts.iter().any(contains) {
                shared.disk.remove(&path).map_err(failed)?;
                continue;
            }
            match self.open_part(&path, found, day.range(), series_end) {
                Ok(part) => list.parts.push(Arc::new(part)),
                Err(error) => self.set_aside_at_open(&mut changes, day, &path, error)?,
            }
        }
        list.tombstones.sort_by_key(|tombstone| tombstone.sequence);
        for tombstone in list.take_spent_tombstones() {
            tombstone.file.set_obsolete();
        }
        if list.parts.is_empty() {
            if unknown == 0 {
                if_present(shared.disk.remove_dir(&folder)).map_err(failed)?;
            }
            return Ok(());
        }
        let day = Day {
            list: Arc::new(list),
            merges: merge::DayMerges::default(),
        };
        shared.days.write().insert(day.list.day, day);
        Ok(())
    }

    /// Sets a file aside that cannot be used because it is damaged; other errors are returned.
    fn set_aside_at_open(
        &self,
        changes: &mut Changes,
        day: DayNumber,
        path: &Path,
        error: PointStoreError,
    ) -> Result<(), PointStoreError> {
        let Some((_, detail)) = damage_of(&error) else {
            return Err(error);
        };
        tracing::error!(file = %path.display(), %detail, "set a damaged file aside");
        let disk = &*self.0.disk;
        let lost = vec![Lost::all(day.range())];
        changes.set_aside.add(disk, path, day, lost, &detail)?;
        disk.remove(path).map_err(|error| io_error(path, &error))
    }
}

/// Days that a tombstone is linked to share its content.
fn shared_deletion(
    deletions: &mut HashMap<u64, Arc<Deletion>>,
    sequence: u64,
    deletion: Deletion,
) -> Arc<Deletion> {
    let known = deletions
        .entry(sequence)
        .or_insert_with(|| Arc::new(deletion.clone()));
    if **known == deletion {
        Arc::clone(known)
    } else {
        Arc::new(deletion)
    }
}

/// The sequence behind those of a file's name.
fn next_sequence(name: &str) -> u64 {
    match DayFile::parse(name) {
        Some(DayFile::Part(Sequences { last, .. }) | DayFile::Tombstone(last)) => last.saturating_add(1),
        Some(DayFile::Temporary) | None => 0,
    }
}
