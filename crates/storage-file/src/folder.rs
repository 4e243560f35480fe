//! The folder of a store: its format, its lock, and atomic replacement of files.
//!
//! ```text
//!   STORE    format version, as text
//!   LOCK     locked while a process has the store open; contains its process id, as text
//!   ...      the files of the store
//! ```
//!
//! Only the user of the process can access the folder (mode 0700) and its files (mode 0600), regardless of the umask.
//! `STORE` is written first: a folder without it that has other files lost it. Until the store has created its other
//! files, it says so: a file that is absent later is lost.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::StorageError;
use crate::disk::{Disk, FileLock};

/// A longer `STORE` file is not read.
const MAX_STORE_BYTES: u64 = 256;

/// Follows the version in `STORE` until [`Folder::complete`].
const INCOMPLETE: &str = ", incomplete";

/// The format of a kind of store.
#[derive(Clone, Copy, Debug)]
pub struct Format {
    /// The text of `STORE` before the version.
    pub label: &'static str,
    /// The version that is written.
    pub version: u32,
    /// The oldest version that is read. [`Folder::complete`] marks a folder of an older one.
    pub oldest: u32,
    /// Entries that show that a folder without `STORE` lost it; `None`: any entry. A folder may have other stores within.
    pub entries: Option<&'static [&'static str]>,
}

/// The folder of a store, locked by this process.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    format: Format,
    /// The version that the folder had when it was opened.
    version: u32,
    /// Whether files of the store may not have been created yet.
    is_new: bool,
    _lock: Box<dyn FileLock>,
}

impl Folder {
    /// Creates the folder if it is absent, locks it and checks its format.
    ///
    /// # Errors
    ///
    /// [`StorageError::Unavailable`] if another process, or another store of this one, has the folder;
    /// [`StorageError::Format`] for another format; [`StorageError::Damaged`] without a valid `STORE`; disk errors.
    pub fn open(disk: &dyn Disk, path: &Path, format: Format) -> Result<Self, StorageError> {
        create_dir_durably(disk, path).map_err(|error| StorageError::io(path.display(), &error))?;
        let lock = lock(disk, path)?;
        let marker = path.join("STORE");
        let (version, is_new) = match read_all(disk, &marker, MAX_STORE_BYTES) {
            Ok(text) => version_of(path, &text, format)?,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let failed = |error| StorageError::io(path.display(), &error);
                let names = disk.list(path).map_err(failed)?;
                let is_own = |name: &str| match format.entries {
                    Some(own) => own.contains(&name),
                    None => !["LOCK", "STORE.tmp"].contains(&name),
                };
                if let Some(entry) = names.iter().find(|entry| is_own(&entry.name)) {
                    let detail = format!("the file is missing, and the folder has `{}`", entry.name);
                    return Err(StorageError::damaged(&marker, detail));
                }
                write_format(disk, path, format, INCOMPLETE)?;
                (format.version, true)
            }
            Err(error) => return Err(StorageError::io(marker.display(), &error)),
        };
        Ok(Self {
            path: path.to_owned(),
            format,
            version,
            is_new,
            _lock: lock,
        })
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The version of its format.
    pub const fn version(&self) -> u32 {
        self.version
    }

    /// Whether files of the store may not have been created yet, because its creation did not end.
    pub const fn is_new(&self) -> bool {
        self.is_new
    }

    /// Marks the folder as one that has all files of the version that is written, after the store has made them durable.
    ///
    /// # Errors
    ///
    /// Errors of the disk.
    pub fn complete(&mut self, disk: &dyn Disk) -> Result<(), StorageError> {
        if self.is_new || self.version != self.format.version {
            mark(disk, &self.path, self.format)?;
            (self.is_new, self.version) = (false, self.format.version);
        }
        Ok(())
    }
}

/// Makes a folder a store of a format.
///
/// # Errors
///
/// Errors of the disk.
pub fn mark(disk: &dyn Disk, path: &Path, format: Format) -> Result<(), StorageError> {
    write_format(disk, path, format, "")
}

fn write_format(disk: &dyn Disk, path: &Path, format: Format, state: &str) -> Result<(), StorageError> {
    let marker = path.join("STORE");
    let text = format!("{}{}{state}\n", format.label, format.version);
    replace(disk, &marker, text.as_bytes()).map_err(|error| StorageError::io(marker.display(), &error))
}

fn lock(disk: &dyn Disk, path: &Path) -> Result<Box<dyn FileLock>, StorageError> {
    let place = path.join("LOCK");
    disk.lock(&place).map_err(|error| {
        if error.kind() != ErrorKind::WouldBlock {
            return StorageError::io(place.display(), &error);
        }
        let holder = read_all(disk, &place, MAX_STORE_BYTES).unwrap_or_default();
        let holder = String::from_utf8_lossy(&holder);
        StorageError::Unavailable(format!(
            "folder {} is in use by process {}",
            path.display(),
            holder.trim_end()
        ))
    })
}

/// The version, and whether the store is incomplete.
fn version_of(path: &Path, bytes: &[u8], format: Format) -> Result<(u32, bool), StorageError> {
    let text = String::from_utf8_lossy(bytes);
    let text = text.trim_end();
    let complete = text.strip_suffix(INCOMPLETE);
    let version = complete.unwrap_or(text).strip_prefix(format.label);
    match version.and_then(|version| version.parse::<u32>().ok()) {
        Some(version) if (format.oldest..=format.version).contains(&version) => {
            Ok((version, complete.is_some()))
        }
        Some(version) => Err(StorageError::Format {
            path: path.to_owned(),
            found: format!("`{version}`"),
            supported: format.version,
        }),
        None => {
            let detail = format!("expected `{}` and a number, not `{text}`", format.label);
            Err(StorageError::damaged(&path.join("STORE"), detail))
        }
    }
}

/// Creates a directory and its parents and makes their names durable; no error if it exists.
///
/// # Errors
///
/// Errors of the disk.
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
/// Errors of the disk; the old content is kept unless the name could not be synced.
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
        // The first error is reported; a remaining file is removed before the next attempt.
        drop(disk.remove(&new));
        return Err(error);
    }
    disk.sync_dir(parent(path))
}

/// The content of a file; [`ErrorKind::FileTooLarge`] if it has more than `limit` bytes.
///
/// # Errors
///
/// Errors of the disk.
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
pub fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

#[cfg(test)]
mod tests;
