//! Reading the folders of all days when the store is opened, and comparing them with the manifests.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use parking_lot::{Mutex, RwLock};

use super::damage::damage_of;
use super::day::{DayList, DayPart, OwnedFile, Tombstone, path_of, tombstone_entry};
use super::manifest::{self, DayEntry, DayManifest, PartEntry, StoreManifest};
use super::name::{DayFile, DayNumber, Sequences};
use super::policy::MergePolicy;
use super::record::Saved;
use super::set_aside::SetAside;
use super::tombstone::Deletion;
use super::{Changes, Day, Days, Shared, if_present, io_error, merge, retention};
use crate::parts::folder::Folder;
use crate::parts::part::{Lost, MetricSet, PageCache};
use crate::{MergeCounters, PointStoreError};
use oxtsdb_storage_file::disk::Disk;

const MISSING: &str = "the file is missing";

/// State while days are opened.
struct Opening {
    /// Series have lower numbers.
    series_end: u32,
    /// Whether the manifests of days are to be trusted.
    has_manifests: bool,
    /// The manifest of the store.
    stored: Option<StoreManifest>,
    /// Tombstones by sequence.
    deletions: HashMap<u64, Arc<Deletion>>,
    /// Folders of days that have no files left.
    empty: Vec<PathBuf>,
    /// Days that have a folder with parts, or files that are recorded as lost.
    seen: BTreeSet<DayNumber>,
}

/// The files of a day, by their names.
#[derive(Default)]
struct Listed {
    parts: Vec<Sequences>,
    tombstones: Vec<u64>,
    /// Files that are not of the store.
    unknown: usize,
}

impl Days {
    /// Opens all parts, of series before number `series_end`. Removes files that are obsolete or were never finished,
    /// and days that were being dropped; sets damaged parts aside, and records missing ones. With `accept_losses`, goes
    /// on without the manifest of the store, and reports it in [`Days::losses`].
    ///
    /// # Errors
    ///
    /// [`PointStoreError::Damaged`] if the manifest of the store is missing or damaged, or if it has more series;
    /// errors of the disk.
    pub fn open(
        disk: Arc<dyn Disk>,
        folder: &Folder,
        cache: Arc<PageCache>,
        policy: MergePolicy,
        series_end: u32,
        accept_losses: bool,
    ) -> Result<Self, PointStoreError> {
        let path = folder.path().to_owned();
        // The names may not be durable yet, if the process before was killed. They must be before files are removed
        // because of them.
        disk.sync_dir(&path).map_err(|error| io_error(&path, &error))?;
        let mut losses = Vec::new();
        let stored = match read_stored(&*disk, folder) {
            Err(error @ PointStoreError::Damaged { .. }) if accept_losses => {
                losses.push(error);
                None
            }
            stored => stored?,
        };
        let saved = stored.as_ref().map_or(0, |stored| stored.series);
        if saved > series_end {
            let error = PointStoreError::Damaged {
                path: folder.series(),
                detail: format!("it has {series_end} of {saved} series"),
            };
            if !accept_losses {
                return Err(error);
            }
            losses.push(error);
        }
        let dropped = retention::empty_dropped(&*disk, &folder.dropped())?;
        let set_aside = SetAside::open(&*disk, folder.set_aside(), &path)?;
        let entries = disk.list(&path).map_err(|error| io_error(&path, &error))?;
        let next_sequence = set_aside.names().map(|name| next_sequence(&name)).max();
        let stored_next = stored.as_ref().map_or(0, |stored| stored.next_sequence);
        let days = Self(Arc::new(Shared {
            disk,
            folder: path,
            cache,
            policy,
            temporary: AtomicU64::new(0),
            repair: Mutex::new(()),
            changes: Mutex::new(Changes {
                next_sequence: next_sequence.unwrap_or(0).max(stored_next),
                dropped: 0,
                set_aside,
                dirty: BTreeSet::new(),
                pending: Vec::new(),
                leftovers: Vec::new(),
                saved: stored.as_ref().map_or_else(Saved::default, |stored| Saved {
                    cut: stored.cut,
                    // Fewer from now on, if the loss is accepted.
                    series: stored.series.min(series_end),
                }),
                stored: stored.clone(),
            }),
            days: RwLock::default(),
            counters: MergeCounters::default(),
            losses,
        }));
        let mut opening = Opening {
            series_end,
            has_manifests: folder.has_manifests(),
            stored,
            deletions: HashMap::new(),
            empty: Vec::new(),
            seen: dropped,
        };
        for entry in entries.iter().filter(|entry| entry.is_dir) {
            if let Some(day) = DayNumber::parse(&entry.name) {
                days.open_day(day, &mut opening)?;
            }
        }
        days.note_missing_days(&opening)?;
        let recorded = if folder.has_manifests() && days.losses().is_empty() {
            days.record(Saved::default())
        } else {
            // The caller finds out how far the journal is in parts.
            Ok(())
        };
        match recorded {
            // Reads go on. The files that are removed below are still listed.
            Err(error @ PointStoreError::Full(_)) => {
                tracing::warn!(%error, "manifests are not written until the disk has space");
                return Ok(days);
            }
            recorded => recorded?,
        }
        for folder in opening.empty {
            if_present(days.0.disk.remove_dir(&folder)).map_err(|error| io_error(&folder, &error))?;
        }
        retention::remove_dropped(&*days.0.disk, &folder.dropped())?;
        Ok(days)
    }

    /// Records the days that are missing as a whole.
    fn note_missing_days(&self, opening: &Opening) -> Result<(), PointStoreError> {
        let shared = &*self.0;
        let stored = opening.stored.iter().flat_map(|stored| &stored.days);
        for (day, entry) in stored.filter(|(day, _)| !opening.seen.contains(day)) {
            // No file of a day has this name: a record is removed when its file is found again.
            let path = shared.folder.join(day.to_string()).join("folder");
            let lost = entry.metrics.lost(day.range());
            self.note_missing(
                &mut shared.changes.lock(),
                *day,
                &path,
                lost,
                "all files of the day are missing",
            )?;
        }
        Ok(())
    }

    fn open_day(&self, day: DayNumber, opening: &mut Opening) -> Result<(), PointStoreError> {
        let shared = &*self.0;
        let folder = shared.folder.join(day.to_string());
        let failed = |error| io_error(&folder, &error);
        let mut changes = shared.changes.lock();
        shared.disk.sync_dir(&folder).map_err(failed)?;
        let listed = self.list_day(&mut changes, &folder)?;
        let manifest = opening.read_manifest(&*shared.disk, day, &folder, &listed)?;
        let is_listed = manifest.is_some();
        // The manifest of the store has all days' parts as of the last flush: the day may be an older copy, with its manifest.
        let stored = opening.stored.as_ref().and_then(|stored| stored.days.get(&day));
        let stored = stored.cloned();
        let manifest = manifest.unwrap_or_default();
        for part in &manifest.parts {
            changes.next_sequence = changes.next_sequence.max(part.sequences.last.saturating_add(1));
        }
        if is_listed || !listed.parts.is_empty() {
            opening.seen.insert(day);
        }
        let mut list = DayList::new(day);
        let known = (&manifest, stored.as_ref());
        self.open_parts(&mut changes, &mut list, &listed, known, opening.series_end)?;
        self.open_tombstones(
            &mut changes,
            &mut list,
            &listed,
            &manifest,
            &mut opening.deletions,
        )?;
        for tombstone in list.take_spent_tombstones() {
            tombstone.file.set_obsolete();
        }
        let is_current = is_listed && manifest == list.manifest();
        if list.parts.is_empty() && listed.unknown == 0 {
            opening.empty.push(folder);
            return Ok(());
        }
        if !is_current {
            changes.dirty.insert(day);
        }
        if !list.parts.is_empty() {
            let day = Day {
                list: Arc::new(list),
                merges: merge::DayMerges::default(),
            };
            shared.days.write().insert(day.list.day, day);
        }
        Ok(())
    }

    /// Lists the files of a day. Removes files that were never finished.
    fn list_day(&self, changes: &mut Changes, folder: &Path) -> Result<Listed, PointStoreError> {
        let disk = &*self.0.disk;
        let failed = |error| io_error(folder, &error);
        let mut listed = Listed::default();
        for entry in disk.list(folder).map_err(failed)? {
            changes.next_sequence = changes.next_sequence.max(next_sequence(&entry.name));
            let path = folder.join(&entry.name);
            match DayFile::parse(&entry.name) {
                Some(DayFile::Temporary) => disk.remove(&path).map_err(failed)?,
                Some(DayFile::Part(sequences)) => listed.parts.push(sequences),
                Some(DayFile::Tombstone(sequence)) => listed.tombstones.push(sequence),
                Some(DayFile::Manifest) => {}
                None => {
                    tracing::warn!(file = %path.display(), "ignored a file that is not of the store");
                    listed.unknown += 1;
                }
            }
        }
        // A part comes before the parts that it contains.
        listed
            .parts
            .sort_unstable_by_key(|part| (part.first, std::cmp::Reverse(part.last)));
        listed.tombstones.sort_unstable();
        Ok(listed)
    }

    fn open_parts(
        &self,
        changes: &mut Changes,
        list: &mut DayList,
        listed: &Listed,
        (manifest, stored): (&DayManifest, Option<&DayEntry>),
        series_end: u32,
    ) -> Result<(), PointStoreError> {
        let shared = &*self.0;
        let day = list.day;
        let path_of = |sequences| path_of(&shared.folder, day, DayFile::Part(sequences));
        let is_covered = |list: &DayList, sequences: &Sequences| {
            list.parts.iter().any(|part| part.sequences.contain(sequences))
        };
        for sequences in &listed.parts {
            let path = path_of(*sequences);
            if is_covered(list, sequences) {
                shared
                    .disk
                    .remove(&path)
                    .map_err(|error| io_error(&path, &error))?;
                continue;
            }
            let entries: Vec<&PartEntry> = manifest.parts_of(*sequences).collect();
            let opened = self.open_part(&path, *sequences, day.range(), series_end);
            match opened.and_then(|part| check_entry(part, &entries)) {
                Ok(part) => list.parts.push(Arc::new(part)),
                Err(error) => {
                    let mut lost: Vec<Lost> = entries.iter().flat_map(|entry| entry.lost()).collect();
                    if entries.is_empty() {
                        let of_day = stored.filter(|stored| stored.parts.contains(sequences));
                        let all = || vec![Lost::all(day.range())];
                        lost = of_day.map_or_else(all, |stored| stored.metrics.lost(day.range()));
                    }
                    self.set_aside_at_open(changes, day, &path, lost, error)?;
                }
            }
        }
        for entry in &manifest.parts {
            let is_missing = !listed.parts.contains(&entry.sequences) && !is_covered(list, &entry.sequences);
            if is_missing {
                let path = path_of(entry.sequences);
                self.note_missing(changes, day, &path, entry.lost(), MISSING)?;
            }
        }
        // Of a day without any part, the folder is missing.
        let stored = stored.filter(|_| !listed.parts.is_empty());
        for (stored, sequences) in stored
            .iter()
            .flat_map(|stored| stored.parts.iter().map(move |sequences| (stored, sequences)))
        {
            let path = path_of(*sequences);
            if !listed.parts.contains(sequences)
                && !is_covered(list, sequences)
                && !changes.set_aside.knows(&path, day)
            {
                let lost = stored.metrics.lost(day.range());
                self.note_missing(changes, day, &path, lost, MISSING)?;
            }
        }
        Ok(())
    }

    fn open_tombstones(
        &self,
        changes: &mut Changes,
        list: &mut DayList,
        listed: &Listed,
        manifest: &DayManifest,
        deletions: &mut HashMap<u64, Arc<Deletion>>,
    ) -> Result<(), PointStoreError> {
        let shared = &*self.0;
        let day = list.day;
        let path_of = |sequence| path_of(&shared.folder, day, DayFile::Tombstone(sequence));
        // Points that are deleted, and return without the tombstone.
        let returning = |list: &DayList, sequence: u64| {
            let older = list.parts.iter().filter(|part| part.sequences.last < sequence);
            let mut metrics = MetricSet::default();
            older.for_each(|part| metrics.extend(&part.metrics));
            let entry = manifest
                .tombstones
                .iter()
                .find(|entry| entry.sequence == sequence);
            metrics.lost(entry.map_or(day.range(), |entry| entry.range))
        };
        for sequence in &listed.tombstones {
            let path = path_of(*sequence);
            match Deletion::read(&*shared.disk, &path) {
                Ok(deletion) => {
                    let bytes = deletion.encode().len() as u64;
                    list.tombstones.push(Arc::new(Tombstone {
                        sequence: *sequence,
                        entry: tombstone_entry(*sequence, bytes, deletion.range(), day),
                        deletion: shared_deletion(deletions, *sequence, deletion),
                        file: OwnedFile::new(&shared.disk, path),
                    }));
                }
                Err(error) => {
                    let lost = returning(list, *sequence);
                    self.set_aside_at_open(changes, day, &path, lost, error)?;
                }
            }
        }
        for entry in &manifest.tombstones {
            if !listed.tombstones.contains(&entry.sequence) {
                let lost = returning(list, entry.sequence);
                self.note_missing(changes, day, &path_of(entry.sequence), lost, MISSING)?;
            }
        }
        Ok(())
    }

    /// Sets a file aside that cannot be used because it is damaged; other errors are returned.
    fn set_aside_at_open(
        &self,
        changes: &mut Changes,
        day: DayNumber,
        path: &Path,
        lost: Vec<Lost>,
        error: PointStoreError,
    ) -> Result<(), PointStoreError> {
        let Some((_, detail)) = damage_of(&error) else {
            return Err(error);
        };
        tracing::error!(file = %path.display(), %detail, "set a damaged file aside");
        let disk = &*self.0.disk;
        if !lost.is_empty() {
            changes.set_aside.add(disk, path, day, lost, &detail)?;
        }
        disk.remove(path).map_err(|error| io_error(path, &error))
    }

    /// Records that a file is missing, and the points that are lost with it.
    fn note_missing(
        &self,
        changes: &mut Changes,
        day: DayNumber,
        path: &Path,
        lost: Vec<Lost>,
        detail: &str,
    ) -> Result<(), PointStoreError> {
        // A part without points loses nothing. Losses recorded before the manifest was replaced are known.
        if lost.is_empty() || changes.set_aside.has(path, day, &lost) {
            return Ok(());
        }
        tracing::error!(file = %path.display(), %detail, "points are lost");
        changes.set_aside.add(&*self.0.disk, path, day, lost, detail)
    }
}

impl Opening {
    /// The manifest of a day. If there is none, or a damaged one, the files that are there are all that is known.
    fn read_manifest(
        &self,
        disk: &dyn Disk,
        day: DayNumber,
        folder: &Path,
        listed: &Listed,
    ) -> Result<Option<DayManifest>, PointStoreError> {
        if !self.has_manifests {
            return Ok(None);
        }
        match DayManifest::read(disk, folder) {
            Err(error @ PointStoreError::Damaged { .. }) => {
                tracing::warn!(%error, "a day's list of files is made again from the files that are there");
                Ok(None)
            }
            Ok(None) => {
                let is_known = self
                    .stored
                    .as_ref()
                    .is_some_and(|stored| stored.days.contains_key(&day));
                if is_known && !listed.parts.is_empty() {
                    let path = manifest::path(folder);
                    tracing::warn!(file = %path.display(), "a day's list of files is missing; it is made again from the files that are there");
                }
                Ok(None)
            }
            read => read,
        }
    }
}

/// The manifest of a store; `None` if it has none yet.
fn read_stored(disk: &dyn Disk, folder: &Folder) -> Result<Option<StoreManifest>, PointStoreError> {
    if !folder.has_manifests() {
        return Ok(None);
    }
    let stored = StoreManifest::read(disk, folder.path())?;
    if stored.is_none() && !folder.is_new() {
        return Err(PointStoreError::Damaged {
            path: manifest::path(folder.path()),
            detail: MISSING.to_owned(),
        });
    }
    Ok(stored)
}

/// Checks that a part is in its day's manifest, if its name is, with the same size and checksum, and takes over the
/// metrics of its entry.
fn check_entry(part: DayPart, entries: &[&PartEntry]) -> Result<DayPart, PointStoreError> {
    let is_same = |entry: &&&PartEntry| entry.bytes == part.bytes() && entry.crc == part.part().crc();
    match (entries.iter().find(is_same), entries.first()) {
        (Some(entry), _) => Ok(DayPart {
            metrics: entry.metrics.clone(),
            ..part
        }),
        (None, None) => Ok(part),
        (None, Some(entry)) => Err(PointStoreError::Damaged {
            path: part.path().to_owned(),
            detail: format!(
                "it is another part than the one of {} bytes that the day had",
                entry.bytes
            ),
        }),
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

/// The sequence behind the sequences of a file's name.
fn next_sequence(name: &str) -> u64 {
    match DayFile::parse(name) {
        Some(DayFile::Part(Sequences { last, .. }) | DayFile::Tombstone(last)) => last.saturating_add(1),
        Some(DayFile::Manifest | DayFile::Temporary) | None => 0,
    }
}
