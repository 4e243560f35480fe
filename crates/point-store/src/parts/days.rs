//! Partitions: a folder for each UTC day with its parts and tombstones.
//!
//! ```text
//!   add ─► 2026-11-22/  17-17.part  18-18.part  19-19.part  20.deleted     files of a day, oldest first
//!                            │           └─────┬─────┘         │
//!   merge of neighbours      │            18-19.part           │           removes points within its range
//!   final merge              └──────┬───────┘                  │
//!                               17-20.part  ◄──────────────────┘           tombstones applied, too
//! ```
//!
//! The names of files are the truth: the rename of a finished part is the commit. When the store is opened, a part with
//! sequences inside another part's is obsolete, since the other one was merged from it. Sequences are given when a file
//! gets its name, so a later file has a higher one on every day. File `MANIFEST` of each day is the witness: it lists
//! the files that must be there, so that an absent file is noticed, and the points that a damaged one had.
//!
//! | Module | Content |
//! |---|---|
//! | [`name`] | names of days and files |
//! | [`day`] | the list of a day's files, and when they are removed |
//! | `manifest`, `record` | the files that must be there: their encoding, and when they are written |
//! | `open` | reading the folders, comparing manifests, removing files of interrupted operations |
//! | [`policy`] | the choice of merges |
//! | [`merge`] | merges: choose, run, commit |
//! | `combine` | the merge of blocks |
//! | [`pace`] | rate limit of merges and checks |
//! | [`tombstone`], `delete` | tombstones: their file; deleting a range |
//! | `points`, `read` | the points of a series in the parts of a day |
//! | `retention` | dropping days |
//! | `damage` | replacing a damaged part by its intact blocks |
//! | `set_aside` | the folder of damaged files |
//! | `snapshot` | hard links to all files |
//! | [`check`] | checksums of all files, statistics |

pub mod check;
mod combine;
mod damage;
pub mod day;
mod delete;
mod manifest;
pub mod merge;
pub mod name;
mod open;
pub mod pace;
pub(super) mod points;
pub mod policy;
mod read;
mod record;
mod retention;
mod set_aside;
mod snapshot;
pub mod tombstone;

pub use delete::PendingDeletion;
pub use record::Saved;
pub use retention::Dropped;

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};

use self::day::{DayList, DayPart, OwnedFile, path_of};
use self::manifest::{StoreManifest, TombstoneEntry};
use self::name::{DayFile, DayNumber, Sequences};
use self::policy::MergePolicy;
use self::set_aside::SetAside;
use super::part::{MetricSet, PageCache, Part, PartWriter};
use crate::{MergeCounters, PointStoreError, TimeRange};
use oxtsdb_storage_file::disk::Disk;
use oxtsdb_storage_file::folder::create_dir_durably;

/// The parts of all days; clones share them.
#[derive(Clone, Debug)]
pub struct Days(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    disk: Arc<dyn Disk>,
    folder: PathBuf,
    cache: Arc<PageCache>,
    policy: MergePolicy,
    /// The number of the next temporary file.
    temporary: AtomicU64,
    /// Held while a damaged part is repaired, before `changes`: other readers of it wait.
    repair: Mutex<()>,
    /// Held during a change of files that readers see.
    changes: Mutex<Changes>,
    /// Changed only under `changes`; reads wait for no I/O.
    days: RwLock<BTreeMap<DayNumber, Day>>,
    counters: MergeCounters,
    /// Files of the store that were lost and could be made again, if the caller accepts losses.
    losses: Vec<PointStoreError>,
}

#[derive(Debug)]
struct Changes {
    next_sequence: u64,
    dropped: u64,
    set_aside: SetAside,
    /// Days with a folder or manifest that may not be durable as it is in memory.
    dirty: BTreeSet<DayNumber>,
    /// Durable tombstones that are not in the lists yet.
    pending: Vec<(DayNumber, TombstoneEntry)>,
    /// Files that an operation of unknown outcome may have left. They must not count at the next start.
    leftovers: Vec<(DayNumber, PathBuf)>,
    /// How far points and series are in files.
    saved: Saved,
    /// The manifest of the store, as it was last read or written.
    stored: Option<StoreManifest>,
}

/// A day and the state of its merges.
#[derive(Debug)]
struct Day {
    list: Arc<DayList>,
    merges: merge::DayMerges,
}

/// A part that is being written. Its file is removed if it is dropped before [`Days::add`].
#[derive(Debug)]
pub struct NewPart {
    writer: PartWriter,
    day: DayNumber,
    file: OwnedFile,
}

impl NewPart {
    /// The day.
    pub const fn day(&self) -> DayNumber {
        self.day
    }

    /// The writer of points of the day.
    pub const fn writer(&mut self) -> &mut PartWriter {
        &mut self.writer
    }
}

impl Days {
    /// Bytes of the cache of pages.
    pub(super) fn cache_bytes(&self) -> u64 {
        self.0.cache.byte_len()
    }

    /// The days.
    fn all(&self) -> Vec<Arc<DayList>> {
        self.days_in(TimeRange::ALL)
    }

    /// The newest instant in parts; `None` if there are no points.
    pub fn newest_ms(&self) -> Option<i64> {
        let days = self.all();
        let parts = days.iter().flat_map(|list| list.parts());
        let last = parts.filter_map(|part| part.range());
        last.map(|range| range.last_ms).max()
    }

    /// The days that have instants of a range, ascending, as they are now.
    ///
    /// A reader takes the heads before it takes the days: points that are moved from a head to parts in between are
    /// then in both.
    pub fn days_in(&self, range: TimeRange) -> Vec<Arc<DayList>> {
        if range.last_ms < range.first_ms || range.last_ms < 0 {
            return Vec::new();
        }
        let days = self.0.days.read();
        let in_range =
            days.range(DayNumber::from_time_ms(range.first_ms)..=DayNumber::from_time_ms(range.last_ms));
        in_range.map(|(_, day)| Arc::clone(&day.list)).collect()
    }

    /// Begins a part of a day.
    ///
    /// # Errors
    ///
    /// Errors of the disk.
    pub fn new_part(&self, day: DayNumber) -> Result<NewPart, PointStoreError> {
        let shared = &*self.0;
        let folder = shared.folder.join(day.to_string());
        create_dir_durably(&*shared.disk, &folder).map_err(|error| io_error(&folder, &error))?;
        let file = self.temporary(day);
        Ok(NewPart {
            writer: PartWriter::create(&*shared.disk, file.path())?,
            day,
            file,
        })
    }

    /// A new name in a day's folder. The file is removed with the result.
    fn temporary(&self, day: DayNumber) -> OwnedFile {
        let shared = &*self.0;
        let number = shared.temporary.fetch_add(1, Ordering::Relaxed);
        let name = format!("{number:010}{}", DayFile::Temporary);
        let file = OwnedFile::new(&shared.disk, shared.folder.join(day.to_string()).join(name));
        file.set_obsolete();
        file
    }

    /// Makes a part durable and visible: its points are newer than all others.
    ///
    /// # Errors
    ///
    /// Errors of the disk; the part may be visible. Writing the same points to another part is safe.
    pub fn add(&self, new: NewPart) -> Result<(), PointStoreError> {
        self.publish(new)?;
        self.record(Saved::default())
    }

    /// Makes a part visible: its points are newer than all others. It is durable after [`Days::record`].
    ///
    /// # Errors
    ///
    /// Errors of the disk; the part is not visible.
    pub fn publish(&self, new: NewPart) -> Result<(), PointStoreError> {
        let (day, file, metrics) = new.finish()?;
        let mut changes = self.0.changes.lock();
        self.remove_leftovers(&mut changes)?;
        let sequence = changes.take_sequence();
        let sequences = Sequences {
            first: sequence,
            last: sequence,
        };
        let part = self.rename_part(&mut changes, &file, day, sequences, metrics)?;
        changes.dirty.insert(day);
        self.change_day(day, |list, merges| {
            list.parts.push(part);
            merges.set_changed();
        });
        drop(changes);
        Ok(())
    }

    /// Gives a finished part its name. It is visible to the next start.
    fn rename_part(
        &self,
        changes: &mut Changes,
        file: &OwnedFile,
        day: DayNumber,
        sequences: Sequences,
        metrics: MetricSet,
    ) -> Result<Arc<DayPart>, PointStoreError> {
        let shared = &*self.0;
        let path = path_of(&shared.folder, day, DayFile::Part(sequences));
        let renamed = shared.disk.rename(file.path(), &path);
        let renamed = renamed.map_err(|error| io_error(&path, &error));
        let opened = renamed.and_then(|()| self.open_part(&path, sequences, day.range(), u32::MAX));
        match opened {
            Ok(part) => Ok(Arc::new(DayPart { metrics, ..part })),
            Err(error) => {
                // Not visible now, so it must not be visible later.
                changes.leftovers.push((day, path));
                self.remove_leftovers(changes)?;
                Err(error)
            }
        }
    }

    /// Opens a part of a day, with points of series before number `series_end`.
    fn open_part(
        &self,
        path: &Path,
        sequences: Sequences,
        day: TimeRange,
        series_end: u32,
    ) -> Result<DayPart, PointStoreError> {
        let shared = &*self.0;
        let part = Part::open(&shared.disk, path, &shared.cache)?;
        let part = part.within(day, series_end)?;
        Ok(DayPart {
            metrics: part.metrics(),
            part: Arc::new(part),
            sequences,
            file: OwnedFile::new(&shared.disk, path.to_owned()),
        })
    }

    /// Replaces the list of a day, under [`Shared::changes`]. A day without parts is forgotten.
    fn change_day(&self, day: DayNumber, change: impl FnOnce(&mut DayList, &mut merge::DayMerges)) {
        let mut days = self.0.days.write();
        let entry = days.entry(day).or_insert_with(|| Day {
            list: Arc::new(DayList::new(day)),
            merges: merge::DayMerges::default(),
        });
        let mut list = DayList::clone(&entry.list);
        change(&mut list, &mut entry.merges);
        entry.list = Arc::new(list);
        if entry.list.parts.is_empty() {
            days.remove(&day);
        }
    }

    /// Makes the names of a day durable, unless it was dropped.
    fn sync_day(&self, day: DayNumber) -> Result<(), PointStoreError> {
        let folder = self.0.folder.join(day.to_string());
        let synced = if_present(self.0.disk.sync_dir(&folder));
        synced.map_err(|error| io_error(&folder, &error))
    }

    /// Whether a file is one of a day now.
    fn is_listed(&self, day: DayNumber, path: &Path) -> bool {
        let days = self.0.days.read();
        days.get(&day).is_some_and(|day| day.list.has(path))
    }
}

impl NewPart {
    /// Makes the content durable.
    fn finish(self) -> Result<(DayNumber, OwnedFile, MetricSet), PointStoreError> {
        let metrics = self.writer.metrics().clone();
        self.writer.finish()?;
        Ok((self.day, self.file, metrics))
    }
}

impl Changes {
    const fn take_sequence(&mut self) -> u64 {
        let sequence = self.next_sequence;
        self.next_sequence += 1;
        sequence
    }
}

fn io_error(path: &Path, error: &std::io::Error) -> PointStoreError {
    PointStoreError::io(path.display(), error)
}

/// `Ok` for a file or folder that is absent.
fn if_present<T: Default>(result: std::io::Result<T>) -> std::io::Result<T> {
    match result {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(T::default()),
        result => result,
    }
}

#[cfg(test)]
mod tests;
