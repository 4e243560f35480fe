//! The folder of a store.
//!
//! ```text
//!   STORE         format version, as text
//!   MANIFEST      the days that must be there, and how far the journal is in parts
//!   CLOCK         the last time at which the clock was believed
//!   LOCK          locked while a process has the store open; contains its process id, as text
//!   series.log    keys of all series, by number
//!   series.copy   the same
//!   journal/      points that are in no part yet
//!   YYYY-MM-DD/   parts and tombstones of a day, and their manifest
//!   dropped/      days that are being removed
//!   set-aside/    damaged files
//! ```

use std::path::{Path, PathBuf};

use oxtsdb_storage_file::disk::Disk;
use oxtsdb_storage_file::folder::{self, Format, mark};

use crate::PointStoreError;

/// The first format with manifests, and with a list of the journal's segments that must be there.
const MANIFESTS: u32 = 2;

const FORMAT: Format = Format {
    label: "oxtsdb point store, format ",
    version: MANIFESTS,
    oldest: 1,
    entries: None,
};

/// The folder of a store, locked by this process.
#[derive(Debug)]
pub struct Folder(folder::Folder);

impl Folder {
    /// Creates the folder if it is absent, locks it and checks its format.
    ///
    /// # Errors
    ///
    /// [`PointStoreError::Unavailable`] if another process, or another store of this one, has the folder;
    /// [`PointStoreError::Format`] for another format; [`PointStoreError::Damaged`] without file `STORE`;
    /// [`PointStoreError::Io`].
    pub fn open(disk: &dyn Disk, path: &Path) -> Result<Self, PointStoreError> {
        Ok(Self(folder::Folder::open(disk, path, FORMAT)?))
    }

    /// Whether the manifests and the list of the journal's segments are to be trusted: a store of an older format has none.
    pub const fn has_manifests(&self) -> bool {
        self.0.version() >= MANIFESTS
    }

    /// Whether files of the store may not have been created yet, because its creation did not end.
    pub const fn is_new(&self) -> bool {
        self.0.is_new()
    }

    /// Marks the folder as one that has all files of the newest format, after they were created.
    ///
    /// # Errors
    ///
    /// Errors of the disk.
    pub fn complete(&mut self, disk: &dyn Disk) -> Result<(), PointStoreError> {
        Ok(self.0.complete(disk)?)
    }

    /// The file of the series' keys.
    pub fn series(&self) -> PathBuf {
        self.0.path().join("series.log")
    }

    /// The folder of the journal.
    pub fn journal(&self) -> PathBuf {
        self.0.path().join("journal")
    }

    /// The folder of days that are being removed.
    pub fn dropped(&self) -> PathBuf {
        self.0.path().join("dropped")
    }

    /// The folder of damaged files.
    pub fn set_aside(&self) -> PathBuf {
        self.0.path().join("set-aside")
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        self.0.path()
    }
}

/// Makes a copy of a store a store.
pub(super) fn mark_copy(disk: &dyn Disk, path: &Path) -> Result<(), PointStoreError> {
    Ok(mark(disk, path, FORMAT)?)
}
