//! The folder of a store: its format, its lock, and atomic replacement of files.
//!
//! ```text
//!   STORE         format version, as text
//!   LOCK          locked while a process has the store open; contains its process id, as text
//!   series.log    keys of all series, by number
//!   series.copy   the same
//!   journal/      points that are in no part yet
//!   YYYY-MM-DD/   parts and tombstones of a day
//!   dropped/      days that are being removed
//!   set-aside/    damaged files
//! ```
//!
//! Only the user of the process can access the folder (mode 0700) and its files (mode 0600), regardless of the umask.
//! `STORE` is written first: a folder without it that has other files lost it.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::disk::{Disk, FileLock};
use crate::PointStoreError;

/// The format that this version writes and reads.
const FORMAT: u32 = 1;
const LABEL: &str = "oxtsdb point store, format ";
/// A longer `STORE` file is not read.
const MAX_STORE_BYTES: u64 = 256;

/// The folder of a store, locked by this process.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    _lock: Box<dyn FileLock>,
}

impl Folder {
    /// Creates the folder if it is absent, locks it and checks its format.
    ///
    /// # Errors
    ///
    /// [`PointStoreError::Unavailable`] if another process, or another store of this one, has the folder;
    /// [`PointStoreError::Format`] for another format; [`PointStoreError::Damaged`] without file `STORE`;
    /// [`PointStoreError::Io`].
    pub fn open(disk: &dyn Disk, path: &Path) -> Result<Self, PointStoreError> {
        create_dir_durably(disk, path).map_err(|error| io_error(path, &error))?;
        let lock = lock(disk, path)?;
        let marker = path.join("STORE");
        match read_all(disk, &marker, MAX_STORE_BYTES) {
            Ok(text) => check_format(path, &text)?,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let failed = |error| io_error(path, &error);
                let names = disk.list(path).map_err(failed)?;
                if names
                    .iter()
                    .any(|entry| !["LOCK", "STORE.tmp"].contains(&&*entry.name))
                {
                    return Err(PointStoreError::Damaged {
                        path: marker,
                        detail: "the file is missing, and the folder is not empty".to_owned(),
                    });
                }
                mark(disk, path)?;
            }
            Err(error) => return Err(io_error(&marker, &error)),
        }
        Ok(Self {
            path: path.to_owned(),
            _lock: lock,
        })
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file of the series' keys.
    pub fn series(&self) -> PathBuf {
        self.path.join("series.log")
    }

    /// The folder of the journal.
    pub fn journal(&self) -> PathBuf {
        self.path.join("journal")
    }

    /// The folder of days that are being removed.
    pub fn dropped(&self) -> PathBuf {
        self.path.join("dropped")
    }

    /// The folder of damaged files.
    pub fn set_aside(&self) -> PathBuf {
        self.path.join("set-aside")
    }
}

/// Makes a folder a store of this format.
pub(super) fn mark(disk: &dyn Disk, path: &Path) -> Result<(), PointStoreError> {
    let marker = path.join("STORE");
    let marked = replace(disk, &marker, format!("{LABEL}{FORMAT}\n").as_bytes());
    marked.map_err(|error| io_error(&marker, &error))
}

fn lock(disk: &dyn Disk, path: &Path) -> Result<Box<dyn FileLock>, PointStoreError> {
    let place = path.join("LOCK");
    disk.lock(&place).map_err(|error| {
        if error.kind() != ErrorKind::WouldBlock {
            return io_error(&place, &error);
        }
        let holder = read_all(disk, &place, MAX_STORE_BYTES).unwrap_or_default();
        let holder = String::from_utf8_lossy(&holder);
        PointStoreError::Unavailable(format!(
            "folder {} is in use by process {}",
            path.display(),
            holder.trim_end()
        ))
    })
}

fn check_format(path: &Path, bytes: &[u8]) -> Result<(), PointStoreError> {
    let text = String::from_utf8_lossy(bytes);
    let found = text.trim_end();
    let version = found.strip_prefix(LABEL).unwrap_or(found);
    if found.starts_with(LABEL) && version.parse() == Ok(FORMAT) {
        return Ok(());
    }
    Err(PointStoreError::Format {
        path: path.to_owned(),
        found: format!("`{version}`"),
        supported: FORMAT,
    })
}

/// Creates a directory and its parents and makes their names durable; no error if it exists.
///
/// # Errors
///
/// Those of the disk.
pub fn create_dir_durably(disk: &dyn Disk, path: &Path) -> io::Result<()> {
    let is_missing =
        |path: &&Path| matches!(disk.list(path), Err(error) if error.kind() == ErrorKind::NotFound);
    let missing = path
        .ancestors()
        .skip(1)
        .filter(|ancestor| !ancestor.as_os_str().is_empty())
        .take_while(is_missing)
        .collect::<Vec<_>>();
    disk.create_dir(path)?;
    for created in missing.into_iter().rev().chain([path]) {
        disk.sync_dir(parent(created))?;
    }
    Ok(())
}

/// Replaces a file atomically and durably: after a crash it has the old content or the new.
///
/// # Errors
///
/// Those of the disk; the old content is kept unless the name could not be synced.
pub fn replace(disk: &dyn Disk, path: &Path, content: &[u8]) -> io::Result<()> {
    let mut name = path.as_os_str().to_owned();
    name.push(".tmp");
    let new = PathBuf::from(name);
    match disk.remove(&new) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = disk.create(&new)?;
    let written = file.write(content).and_then(|()| file.sync());
    if let Err(error) = written.and_then(|()| disk.rename(&new, path)) {
        // The first error is reported; what is left is removed before the next attempt.
        drop(disk.remove(&new));
        return Err(error);
    }
    disk.sync_dir(parent(path))
}

/// The content of a file; [`ErrorKind::FileTooLarge`] if it has more than `limit` bytes.
///
/// # Errors
///
/// Those of the disk.
pub fn read_all(disk: &dyn Disk, path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let file: Arc<_> = disk.open(path)?;
    let length = file.len()?;
    let length = usize::try_from(length)
        .ok()
        .filter(|_| length <= limit)
        .ok_or(ErrorKind::FileTooLarge)?;
    let mut content = vec![0; length];
    file.read_at(&mut content, 0)?;
    Ok(content)
}

/// The directory of a path.
pub(super) fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

fn io_error(path: &Path, error: &io::Error) -> PointStoreError {
    PointStoreError::io(path.display(), error)
}

#[cfg(test)]
mod tests;
