//! The cells of a store by key: memtables, tables, and versions, the lists of them.
//!
//! ```text
//!   commit ─► active memtable ─► frozen memtables ─► tables, oldest to newest ─► merged with neighbours
//!   read   ◄─ a version: the list of all of them, as of a commit
//! ```
//!
//! A version never changes; a flush or merge replaces it. A reader has one version and the number of the last commit that
//! it may see, so it sees each commit as a whole or not at all.
//!
//! # Damage
//!
//! A reader that finds a damaged block has its table salvaged: the intact blocks are found, the keys between them are
//! recorded in [`SetAside`], and the file is kept in `set-aside/`. The table then has only its intact blocks, so that
//! reads and merges go on, and only reads of the recorded rows fail.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use oxtsdb_storage_file::disk::Disk;
use oxtsdb_storage_file::folder::{create_dir_durably, read_all};
use parking_lot::{Mutex, RwLock};

use super::folder::{self, io_error, replace_file};
use super::manifest::{Listed, MAX_MANIFEST_BYTES, Manifest};
use super::memtable::Memtable;
use super::merge::{Merge, Source};
use super::set_aside::{Gap, SetAside};
use super::table::cache::BlockCache;
use super::table::{
    CommitRange, DamagedTable, Expected, Properties, StoreId, Table, TableError, TableWriter,
};
use crate::StoreError;

/// How often a read begins again because it found damage.
const MAX_SALVAGES: usize = 100;

/// The cells of a store.
#[derive(Debug)]
pub(super) struct Tree {
    pub(super) disk: Arc<dyn Disk>,
    path: PathBuf,
    store: StoreId,
    cache: Arc<BlockCache>,
    pub(super) set_aside: SetAside,
    version: RwLock<Arc<Version>>,
    /// The last commit that readers see.
    visible: AtomicU64,
    /// Held while the tables change: they and the manifest are one.
    changes: Mutex<()>,
}

/// All sources of cells at an instant.
#[derive(Clone, Debug)]
pub(super) struct Version {
    pub(super) active: Arc<Memtable>,
    /// Oldest first.
    pub(super) frozen: Vec<Frozen>,
    /// Oldest first: their commits follow each other without a gap.
    pub(super) tables: Vec<Arc<TreeTable>>,
}

/// A memtable that gets no more changes.
#[derive(Clone, Debug)]
pub(super) struct Frozen {
    pub(super) memtable: Arc<Memtable>,
    /// The last segment of the journal with its commits.
    pub(super) segment: u64,
}

/// A table and the keys that it may have.
#[derive(Debug)]
pub(super) struct TreeTable {
    pub(super) table: Arc<Table>,
    /// First and last key; empty without keys.
    keys: (Vec<u8>, Vec<u8>),
    /// Whether the keys are known, although the table's properties may be damaged.
    has_keys: bool,
}

impl TreeTable {
    fn known_keys(&self) -> Option<(&[u8], &[u8])> {
        self.has_keys.then_some((&self.keys.0, &self.keys.1))
    }

    fn may_have(&self, key: &[u8]) -> bool {
        !self.has_keys || (self.keys.0.as_slice() <= key && key <= self.keys.1.as_slice())
    }

    fn overlaps(&self, start: &[u8], end: &[u8]) -> bool {
        !self.has_keys || (self.keys.0.as_slice() < end && start <= self.keys.1.as_slice())
    }
}

impl Version {
    /// The last commit that tables have.
    pub(super) fn cut(&self) -> u64 {
        self.tables.last().map_or(0, |table| table.table.commits().last)
    }
}

/// A version as of a commit.
#[derive(Clone, Debug)]
pub(super) struct Snapshot {
    version: Arc<Version>,
    commit: u64,
}

impl Tree {
    /// Opens the tables of a store's folder. Missing and damaged ones are recorded in `set_aside`. With `losses`, a
    /// missing or damaged manifest is made from the tables, and its error is added to `losses`.
    pub(super) fn open(
        disk: Arc<dyn Disk>,
        path: PathBuf,
        is_new: bool,
        losses: Option<&mut Vec<StoreError>>,
        cache_bytes: u64,
        set_aside: SetAside,
    ) -> Result<Self, StoreError> {
        let folder = folder::tables(&path);
        create_dir_durably(&*disk, &folder).map_err(|error| io_error(&folder, &error))?;
        let manifest = match (read_manifest(&*disk, &path, is_new), losses) {
            (Err(error @ StoreError::Corrupt { .. }), Some(losses)) => {
                tracing::error!(%error, "the manifest is made from the files that are there");
                losses.push(error);
                None
            }
            (manifest, _) => manifest?,
        };
        let files = remove_obsolete(&*disk, &folder)?;
        let store = match &manifest {
            Some(manifest) => manifest.store,
            None => files
                .iter()
                .find_map(|commits| Table::store_id(&*disk, &folder.join(commits.to_string()), *commits))
                .unwrap_or_else(|| new_store_id(&path)),
        };
        let tree = Self {
            cache: Arc::new(BlockCache::new(cache_bytes)),
            disk,
            path,
            store,
            set_aside,
            version: RwLock::new(Arc::new(Version {
                active: Arc::default(),
                frozen: Vec::new(),
                tables: Vec::new(),
            })),
            visible: AtomicU64::new(0),
            changes: Mutex::new(()),
        };
        let tables = tree.open_tables(files, manifest.as_ref())?;
        Arc::make_mut(&mut tree.version.write()).tables = tables;
        tree.visible.store(tree.version().cut(), Ordering::Release);
        let current = tree.manifest(&tree.version().tables);
        if manifest.as_ref() != Some(&current) {
            tree.write_manifest(&tree.version().tables)?;
        }
        Ok(tree)
    }

    fn open_tables(
        &self,
        files: Vec<CommitRange>,
        manifest: Option<&Manifest>,
    ) -> Result<Vec<Arc<TreeTable>>, StoreError> {
        let listed = manifest.map_or(&[][..], |manifest| &manifest.tables);
        let keys: BTreeMap<CommitRange, &(Vec<u8>, Vec<u8>)> = listed
            .iter()
            .map(|listed| (listed.commits, &listed.keys))
            .collect();
        let mut tables = BTreeMap::new();
        for commits in files {
            let table = self.open_table(commits, keys.get(&commits).copied())?;
            tables.insert(commits, Arc::new(table));
        }
        for listed in listed {
            let is_covered = tables.keys().any(|commits| commits.covers(&listed.commits));
            if !is_covered {
                let detail = "the file is missing".to_owned();
                let table = self.replace_missing(listed.commits, Some(&listed.keys), detail)?;
                tables.insert(listed.commits, Arc::new(table));
            }
        }
        let mut next = 1;
        let ranges: Vec<CommitRange> = tables.keys().copied().collect();
        for commits in ranges {
            if commits.first > next {
                // The manifest is lost, too, or older.
                let missing = CommitRange {
                    first: next,
                    last: commits.first - 1,
                };
                let detail = "the file is missing, and no file says which keys it had".to_owned();
                let table = self.replace_missing(missing, None, detail)?;
                tables.insert(missing, Arc::new(table));
            } else if commits.first < next {
                return Err(StoreError::Corrupt {
                    place: folder::tables(&self.path)
                        .join(commits.to_string())
                        .display()
                        .to_string(),
                    detail: format!(
                        "its first commits are in another file, too, which ends with commit {}",
                        next - 1
                    ),
                });
            }
            next = commits.last + 1;
        }
        Ok(tables.into_values().collect())
    }

    /// Opens a table and records its damage.
    fn open_table(
        &self,
        commits: CommitRange,
        listed: Option<&(Vec<u8>, Vec<u8>)>,
    ) -> Result<TreeTable, StoreError> {
        let path = folder::tables(&self.path).join(commits.to_string());
        let expected = Expected {
            store: self.store,
            commits,
            keys: listed.map(|(first, last)| (first.as_slice(), last.as_slice())),
        };
        let cache = Arc::clone(&self.cache);
        let (table, properties, gaps) = Table::open(Arc::clone(&self.disk), &path, cache, &expected)?;
        if properties.is_none() {
            tracing::error!(file = %path.display(), "a file of cells is damaged; its intact blocks are read");
            let kept = self.set_aside.keep(&path);
            self.set_aside.add(&gaps, &kept)?;
        }
        let has_keys = properties.is_some() || listed.is_some();
        let keys = match properties {
            Some(Properties {
                first_key, last_key, ..
            }) => (first_key, last_key),
            None => listed.cloned().unwrap_or_default(),
        };
        Ok(TreeTable {
            table: Arc::new(table),
            keys,
            has_keys,
        })
    }

    /// Records that a table is lost, and puts an empty one in its place: its commits are in no journal.
    fn replace_missing(
        &self,
        commits: CommitRange,
        keys: Option<&(Vec<u8>, Vec<u8>)>,
        detail: String,
    ) -> Result<TreeTable, StoreError> {
        let path = folder::tables(&self.path).join(commits.to_string());
        let gap = match keys {
            Some((first, last)) if !last.is_empty() => Some(Gap {
                start: first.clone(),
                stop: [last, [0].as_slice()].concat(),
                detail,
            }),
            // It had no keys.
            Some(_) => None,
            None => Some(Gap {
                start: Vec::new(),
                stop: Vec::new(),
                detail,
            }),
        };
        self.set_aside.add(gap.as_slice(), &path)?;
        self.new_table(commits)?.finish()?;
        self.open_table(commits, None)
    }

    /// Begins a table.
    pub(super) fn new_table(&self, commits: CommitRange) -> Result<TableWriter, StoreError> {
        let folder = folder::tables(&self.path);
        Ok(TableWriter::new(
            Arc::clone(&self.disk),
            &folder,
            self.store,
            commits,
        )?)
    }

    fn write_manifest(&self, tables: &[Arc<TreeTable>]) -> Result<(), StoreError> {
        let bytes = self.manifest(tables).encode();
        replace_file(&*self.disk, &folder::manifest(&self.path), &bytes)
    }

    /// The manifest of tables. A table with unknown keys is not listed with keys that it may not have.
    pub(super) fn manifest(&self, tables: &[Arc<TreeTable>]) -> Manifest {
        let listed = |table: &Arc<TreeTable>| {
            table.has_keys.then(|| Listed {
                commits: table.table.commits(),
                keys: table.keys.clone(),
            })
        };
        Manifest {
            store: self.store,
            tables: tables.iter().filter_map(listed).collect(),
        }
    }

    pub(super) fn version(&self) -> Arc<Version> {
        Arc::clone(&self.version.read())
    }

    /// The last commit that tables have.
    pub(super) fn cut(&self) -> u64 {
        self.version().cut()
    }

    /// Makes the changes of a commit visible. Only the commit thread may call it.
    pub(super) fn apply<'a>(&self, changes: impl Iterator<Item = (&'a [u8], Option<&'a [u8]>)>, commit: u64) {
        let active = Arc::clone(&self.version.read().active);
        for (key, value) in changes {
            active.insert(key, value.map(Bytes::copy_from_slice), commit);
        }
        self.visible.store(commit, Ordering::Release);
    }

    /// Lets readers see the commits up to a number, which were replayed.
    pub(super) fn show(&self, commit: u64) {
        self.visible.store(commit, Ordering::Release);
    }

    /// Begins another memtable; the commits of the active one are in the journal up to `segment`. `false` if the active
    /// one is empty. Only the commit thread may call it.
    pub(super) fn freeze(&self, segment: u64) -> bool {
        let mut current = self.version.write();
        if current.active.is_empty() {
            return false;
        }
        let mut version = Version::clone(&current);
        let memtable = std::mem::take(&mut version.active);
        version.frozen.push(Frozen { memtable, segment });
        *current = Arc::new(version);
        true
    }

    /// Adds a durable table with the changes of the oldest frozen memtable, in its place.
    pub(super) fn add_flushed(&self, commits: CommitRange) -> Result<(), StoreError> {
        let table = Arc::new(self.open_table(commits, None)?);
        let _changes = self.changes.lock();
        let mut tables = self.version().tables.clone();
        tables.push(table);
        self.write_manifest(&tables)?;
        let mut current = self.version.write();
        let mut version = Version::clone(&current);
        version.tables = tables;
        version.frozen.remove(0);
        *current = Arc::new(version);
        Ok(())
    }

    /// Replaces neighbours by a durable table with their changes.
    pub(super) fn replace_merged(
        &self,
        inputs: &[Arc<TreeTable>],
        commits: CommitRange,
    ) -> Result<(), StoreError> {
        let table = Arc::new(self.open_table(commits, None)?);
        let _changes = self.changes.lock();
        let mut tables = self.version().tables.clone();
        let first = inputs.first();
        let position = tables
            .iter()
            .position(|table| first.is_some_and(|first| Arc::ptr_eq(first, table)));
        let Some(position) = position else {
            return Ok(());
        };
        tables.splice(position..position + inputs.len(), [table]);
        // The new table replaces them already; the manifest is only its witness.
        let written = self.write_manifest(&tables);
        let mut current = self.version.write();
        let mut version = Version::clone(&current);
        version.tables = tables;
        *current = Arc::new(version);
        drop(current);
        for input in inputs {
            if input.table.commits() != commits {
                input.table.set_obsolete();
            }
        }
        written
    }

    /// The state as of the last commit.
    pub(super) fn snapshot(&self) -> Snapshot {
        // In this order: the version has all commits up to the number, or the later ones are in its active memtable.
        let commit = self.visible.load(Ordering::Acquire);
        Snapshot {
            version: self.version(),
            commit,
        }
    }

    /// Runs a read. If it finds damage, the table is salvaged and the read begins again.
    pub(super) fn read<T>(
        &self,
        mut attempt: impl FnMut(&Snapshot) -> Result<T, ReadError>,
    ) -> Result<T, StoreError> {
        let mut salvages = 0;
        loop {
            let snapshot = self.snapshot();
            let damage = match attempt(&snapshot) {
                Ok(done) => return Ok(done),
                Err(ReadError::Store(error) | ReadError::Table(TableError::Store(error))) => {
                    return Err(error);
                }
                Err(ReadError::Table(TableError::Damaged(damage))) => damage,
            };
            if salvages >= MAX_SALVAGES {
                return Err(StoreError::Io {
                    place: damage.table.path().display().to_string(),
                    detail: format!("reading fails again and again: {}", damage.detail),
                });
            }
            salvages += 1;
            self.salvage(&damage)?;
        }
    }

    /// Runs a read once; `None` if it found damage.
    pub(super) fn try_read<T>(
        &self,
        attempt: impl FnOnce(&Snapshot) -> Result<T, ReadError>,
    ) -> Option<Result<T, StoreError>> {
        match attempt(&self.snapshot()) {
            Ok(done) => Some(Ok(done)),
            Err(ReadError::Store(error) | ReadError::Table(TableError::Store(error))) => Some(Err(error)),
            Err(ReadError::Table(TableError::Damaged(_))) => None,
        }
    }

    /// Isolates the damage of a table.
    pub(super) fn salvage(&self, damage: &DamagedTable) -> Result<(), StoreError> {
        tracing::error!(file = %damage.table.path().display(), detail = damage.detail, "a file of cells is damaged");
        let version = self.version();
        let known = version
            .tables
            .iter()
            .find(|table| Arc::ptr_eq(&table.table, &damage.table))
            .and_then(|table| table.known_keys());
        Table::salvage(damage, known, |gaps| {
            let kept = self.set_aside.keep(damage.table.path());
            self.set_aside.add(gaps, &kept)
        })
    }

    /// The value of a key as of the last commit.
    pub(super) fn get(&self, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        self.read(|snapshot| Ok(snapshot.get(key)?))
    }
}

/// Error of a read.
#[derive(Debug)]
pub(super) enum ReadError {
    Table(TableError),
    Store(StoreError),
}

impl From<TableError> for ReadError {
    fn from(error: TableError) -> Self {
        Self::Table(error)
    }
}

impl From<StoreError> for ReadError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl Snapshot {
    /// The value of a key.
    pub(super) fn get(&self, key: &[u8]) -> Result<Option<Bytes>, TableError> {
        let version = &*self.version;
        let frozen = version.frozen.iter().rev().map(|frozen| &frozen.memtable);
        for memtable in [&version.active].into_iter().chain(frozen) {
            if let Some(value) = memtable.get(key, self.commit) {
                return Ok(value);
            }
        }
        for table in version.tables.iter().rev().filter(|table| table.may_have(key)) {
            if let Some(value) = table.table.get(key)? {
                return Ok(value);
            }
        }
        Ok(None)
    }

    /// The keys from `start` (inclusive) to `end` (exclusive), ascending, or descending if `reverse`.
    pub(super) fn range(&self, start: &[u8], end: &[u8], reverse: bool) -> Result<Merge<'_>, TableError> {
        // An empty range has its end before its start.
        let end = end.max(start);
        let version = &*self.version;
        let frozen = version.frozen.iter().rev().map(|frozen| &frozen.memtable);
        let mut sources: Vec<Source<'_>> = [&version.active]
            .into_iter()
            .chain(frozen)
            .filter(|memtable| !memtable.is_empty())
            .map(|memtable| Source::Memory(memtable.cursor(start, end, self.commit, reverse)))
            .collect();
        for table in version
            .tables
            .iter()
            .rev()
            .filter(|table| table.overlaps(start, end))
        {
            let cursor = table.table.cursor(start, end, reverse, true)?;
            sources.push(Source::Table(Box::new(cursor)));
        }
        Ok(Merge::new(sources, reverse, false))
    }
}

/// The manifest; `None` if it has to be made from the tables.
fn read_manifest(
    disk: &dyn Disk,
    path: &std::path::Path,
    is_new: bool,
) -> Result<Option<Manifest>, StoreError> {
    let file = folder::manifest(path);
    let detail = match read_all(disk, &file, MAX_MANIFEST_BYTES) {
        Ok(bytes) => match Manifest::decode(&bytes) {
            Ok(manifest) => return Ok(Some(manifest)),
            Err(detail) => detail,
        },
        Err(error) if error.kind() == ErrorKind::NotFound && is_new => return Ok(None),
        Err(error) if error.kind() == ErrorKind::NotFound => "the file is missing",
        Err(error) => return Err(io_error(&file, &error)),
    };
    Err(StoreError::Corrupt {
        place: file.display().to_string(),
        detail: format!("{detail}; without it, nothing says which files are lost"),
    })
}

/// The tables of a folder that no other one replaces, ascending. Removes the others and temporary files.
fn remove_obsolete(disk: &dyn Disk, folder: &std::path::Path) -> Result<Vec<CommitRange>, StoreError> {
    let failed = |error: std::io::Error| io_error(folder, &error);
    // The previous process may have ended between a rename and its sync: a name that is not durable must not be the
    // reason to remove other files or commits of the journal.
    disk.sync_dir(folder).map_err(failed)?;
    let names = disk.list(folder).map_err(failed)?;
    let ranges: Vec<CommitRange> = names
        .iter()
        .filter_map(|entry| CommitRange::parse(&entry.name))
        .collect();
    let is_obsolete = |commits: &CommitRange| {
        let mut others = ranges.iter().filter(|other| *other != commits);
        others.any(|other| other.covers(commits))
    };
    let mut kept = Vec::new();
    for entry in &names {
        match CommitRange::parse(&entry.name) {
            Some(commits) if !is_obsolete(&commits) => kept.push(commits),
            Some(_) => disk.remove(&folder.join(&entry.name)).map_err(failed)?,
            None if entry.name.ends_with(".tmp") => {
                disk.remove(&folder.join(&entry.name)).map_err(failed)?;
            }
            None => {}
        }
    }
    kept.sort_unstable();
    Ok(kept)
}

/// An id that no other store has.
fn new_store_id(path: &std::path::Path) -> StoreId {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let seed = format!("{} {} {:?}", path.display(), std::process::id(), now);
    // Random keys of the process.
    let random = std::hash::BuildHasher::hash_one(&std::collections::hash_map::RandomState::new(), &seed);
    xxhash_rust::xxh3::xxh3_128_with_seed(seed.as_bytes(), random).to_be_bytes()
}
