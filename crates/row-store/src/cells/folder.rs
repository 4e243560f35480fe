//! The folder of a store, and errors of its files.
//!
//! ```text
//!   STORE      format version (3), as text
//!   LOCK       locked while a process has the store open; contains its pid, as text
//!   TABLES     definitions of the tables of rows
//!   MANIFEST   the files that tables/ must have
//!   tables/    cells, sorted by key; see `table`
//!   journal/   commits that are in no file of tables/ yet; see `commit`
//!   DAMAGE     rows lost to damage, if any
//!   set-aside/ damaged files
//! ```

use std::io;
use std::path::{Path, PathBuf};

use oxtsdb_storage_file::StorageError;
use oxtsdb_storage_file::disk::Disk;
use oxtsdb_storage_file::folder::{self, Format, read_all, replace};

use super::manifest::{MAX_MANIFEST_BYTES, Manifest};
use crate::StoreError;

const FORMAT: Format = Format {
    label: "oxtsdb row store, format ",
    version: 3,
    oldest: 3,
    entries: Some(&["TABLES", "MANIFEST", "tables", "journal", "cells", "DAMAGE"]),
};

/// The folder of a store, locked by this process.
#[derive(Debug)]
pub(super) struct Folder(folder::Folder);

impl Folder {
    /// Creates the folder if necessary, locks it and checks its format. With `losses`, a missing or damaged `STORE` of a
    /// folder that has the other files of this format is written again, and its error is added to `losses`.
    pub(super) fn open(
        disk: &dyn Disk,
        path: &Path,
        losses: Option<&mut Vec<StoreError>>,
    ) -> Result<Self, StoreError> {
        let opened = Self::open_marked(disk, path);
        match (opened, losses) {
            (Err(error @ StoreError::Corrupt { .. }), Some(losses)) if has_files(disk, path) => {
                mark_copy(disk, path)?;
                tracing::error!(%error, "the format of the store is taken from its other files");
                losses.push(error);
                Self::open_marked(disk, path)
            }
            (opened, _) => opened,
        }
    }

    fn open_marked(disk: &dyn Disk, path: &Path) -> Result<Self, StoreError> {
        folder::Folder::open(disk, path, FORMAT)
            .map(Self)
            .map_err(|error| match error {
                StorageError::Format { path, found: format, .. } if format == "`2`" => StoreError::Invalid {
                    detail: format!(
                        "{} has format 2, this program reads format 3: export the data folder with the program that \
                         wrote it (`tsdb export`), and import it into a new one (`tsdb import`)",
                        path.display()
                    ),
                },
                error => error.into(),
            })
    }

    /// Whether files of the store may not have been created yet.
    pub(super) const fn is_new(&self) -> bool {
        self.0.is_new()
    }

    /// Marks the folder as complete.
    pub(super) fn complete(&mut self, disk: &dyn Disk) -> Result<(), StoreError> {
        Ok(self.0.complete(disk)?)
    }

    pub(super) fn path(&self) -> &Path {
        self.0.path()
    }
}

/// Whether a folder has a manifest of this format, and no files of the previous format.
fn has_files(disk: &dyn Disk, path: &Path) -> bool {
    let is_readable = |bytes: Vec<u8>| Manifest::decode(&bytes).is_ok();
    let manifest = read_all(disk, &manifest(path), MAX_MANIFEST_BYTES);
    manifest.is_ok_and(is_readable) && disk.list(&path.join("cells")).is_err()
}

/// Makes a copy of a store a store.
pub(super) fn mark_copy(disk: &dyn Disk, path: &Path) -> Result<(), StoreError> {
    Ok(folder::mark(disk, path, FORMAT)?)
}

pub(super) fn definitions(folder: &Path) -> PathBuf {
    folder.join("TABLES")
}

pub(super) fn manifest(folder: &Path) -> PathBuf {
    folder.join("MANIFEST")
}

pub(super) fn tables(folder: &Path) -> PathBuf {
    folder.join("tables")
}

pub(super) fn journal(folder: &Path) -> PathBuf {
    folder.join("journal")
}

pub(super) fn damage(folder: &Path) -> PathBuf {
    folder.join("DAMAGE")
}

pub(super) fn set_aside(folder: &Path) -> PathBuf {
    folder.join("set-aside")
}

/// Replaces a file atomically and durably.
pub(super) fn replace_file(disk: &dyn Disk, path: &Path, content: &[u8]) -> Result<(), StoreError> {
    replace(disk, path, content).map_err(|error| io_error(path, &error))
}

/// An error of the operating system about a file.
pub(super) fn io_error(path: &Path, error: &io::Error) -> StoreError {
    StorageError::io(path.display(), error).into()
}

impl From<StorageError> for StoreError {
    fn from(error: StorageError) -> Self {
        match error {
            StorageError::Invalid(detail) => Self::Invalid { detail },
            StorageError::Unavailable(detail) => Self::Unavailable { detail },
            StorageError::Full(detail) => Self::Full { detail },
            StorageError::Io { place, detail } => Self::Io { place, detail },
            StorageError::Damaged { path, detail } => Self::Corrupt {
                place: path.display().to_string(),
                detail,
            },
            error @ StorageError::Format { .. } => Self::Invalid {
                detail: error.to_string(),
            },
        }
    }
}
