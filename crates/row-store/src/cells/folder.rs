//! The folder of a store: its format, its lock, and atomic replacement of files.
//!
//! ```text
//!   STORE      format version, as text
//!   LOCK       locked while a process has the store open; contains its pid, as text
//!   TABLES     definitions of the tables
//!   cells/     journal and table files, in the engine's own formats
//!   DAMAGE     rows lost to damage, if any
//!   set-aside/ damaged files
//! ```
//!
//! The folder and its subfolders are accessible only to the user of the process (mode 0700), so no other user can
//! reach their files regardless of the umask; our own files have mode 0600.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions, TryLockError};
use std::io::{self, ErrorKind, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use crate::StoreError;

const FORMAT_LABEL: &str = "oxtsdb row store, format ";

const FOLDER_MODE: u32 = 0o700;
pub(super) const FILE_MODE: u32 = 0o600;
/// Permissions of the group and of other users.
const OTHERS: u32 = 0o077;

/// The folder of a store, locked by this process.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    lock: File,
}

impl Drop for Folder {
    /// Unlocks the folder. Closing the file would not suffice while a forked process still holds a copy.
    fn drop(&mut self) {
        if let Err(error) = self.lock.unlock() {
            tracing::warn!(folder = %self.path.display(), %error, "the folder could not be unlocked");
        }
    }
}

impl Folder {
    /// Creates the folder if necessary with this format, locks it and checks its format.
    pub(super) fn open(path: &Path, format: u32) -> Result<Self, StoreError> {
        make_private(path)?;
        let lock = lock(path)?;
        let marker = path.join("STORE");
        match fs::read(&marker) {
            Ok(text) => check_format(&marker, &String::from_utf8_lossy(&text), format)?,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                // The marker is created before any table.
                if path.join("TABLES").exists() {
                    return Err(missing(&marker));
                }
                replace(&marker, format!("{FORMAT_LABEL}{format}\n").as_bytes())?;
            }
            Err(error) => return Err(io_error(&marker, &error)),
        }
        Ok(Self {
            path: path.to_owned(),
            lock,
        })
    }

    pub(super) fn tables(&self) -> PathBuf {
        self.path.join("TABLES")
    }

    pub(super) fn cells(&self) -> PathBuf {
        self.path.join("cells")
    }

    pub(super) fn damage(&self) -> PathBuf {
        self.path.join("DAMAGE")
    }

    pub(super) fn set_aside(&self) -> PathBuf {
        self.path.join("set-aside")
    }
}

fn check_format(marker: &Path, text: &str, format: u32) -> Result<(), StoreError> {
    let version = text
        .trim_end()
        .strip_prefix(FORMAT_LABEL)
        .and_then(|version| version.parse::<u32>().ok());
    match version {
        Some(version) if version == format => Ok(()),
        Some(version) => Err(StoreError::Invalid {
            detail: format!(
                "{} has format {version}, this program reads format {format}",
                marker.display()
            ),
        }),
        None => Err(StoreError::Corrupt {
            place: marker.display().to_string(),
            detail: format!("expected `{FORMAT_LABEL}` and a number"),
        }),
    }
}

/// Locks the folder for this process.
fn lock(path: &Path) -> Result<File, StoreError> {
    let place = path.join("LOCK");
    let failed = |error: io::Error| io_error(&place, &error);
    let mut file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .read(true)
        .write(true)
        .mode(FILE_MODE)
        .open(&place)
        .map_err(failed)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut pid = String::new();
            // The message is correct without the pid, too.
            drop(file.read_to_string(&mut pid));
            return Err(StoreError::Unavailable {
                detail: format!("{} is in use by process {}", path.display(), pid.trim_end()),
            });
        }
        Err(TryLockError::Error(error)) => return Err(failed(error)),
    }
    file.set_len(0).map_err(failed)?;
    file.rewind().map_err(failed)?;
    // On a full disk the pid is missing; the lock is held nevertheless.
    drop(writeln!(file, "{}", std::process::id()));
    Ok(file)
}

/// Creates a folder accessible only to this user; removes the permissions of other users from an existing one.
pub(super) fn make_private(path: &Path) -> Result<(), StoreError> {
    let failed = |error: io::Error| io_error(path, &error);
    DirBuilder::new()
        .recursive(true)
        .mode(FOLDER_MODE)
        .create(path)
        .map_err(failed)?;
    let mode = fs::metadata(path).map_err(failed)?.permissions().mode();
    if mode & OTHERS != 0 {
        let tightened = Permissions::from_mode(mode & !OTHERS & 0o7777);
        fs::set_permissions(path, tightened).map_err(failed)?;
        tracing::warn!(folder = %path.display(), before = format!("{:o}", mode & 0o7777), "removed other users' access to the folder");
    }
    Ok(())
}

/// Creates an empty file that only this user can read.
pub(super) fn create_private(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .create(true)
        .truncate(true)
        .write(true)
        .mode(FILE_MODE)
        .open(path)
}

/// Replaces a file atomically: after a crash it has either the old content or the new.
pub(super) fn replace(path: &Path, content: &[u8]) -> Result<(), StoreError> {
    let failed = |error: io::Error| io_error(path, &error);
    let new = path.with_extension("new");
    let mut file = create_private(&new).map_err(failed)?;
    file.write_all(content).map_err(failed)?;
    file.sync_all().map_err(failed)?;
    fs::rename(&new, path).map_err(failed)?;
    path.parent().map_or(Ok(()), sync_folder)
}

/// Makes the entries of a folder durable.
pub(super) fn sync_folder(path: &Path) -> Result<(), StoreError> {
    File::open(path)
        .and_then(|folder| folder.sync_all())
        .map_err(|error| io_error(path, &error))
}

/// The error for a required file that is missing.
pub(super) fn missing(path: &Path) -> StoreError {
    StoreError::Corrupt {
        place: path.display().to_string(),
        detail: "the file is missing".to_owned(),
    }
}

/// Whether the process or the system has reached its limit of open files.
pub(super) fn is_out_of_descriptors(error: &io::Error) -> bool {
    [Errno::MFILE, Errno::NFILE]
        .iter()
        .any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

/// An error of the operating system about a file.
pub(super) fn io_error(path: &Path, error: &io::Error) -> StoreError {
    let place = path.display().to_string();
    match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => StoreError::Full { place },
        _ if is_out_of_descriptors(error) => StoreError::Unavailable {
            detail: format!("no file descriptor is left to open {place} with: {error}"),
        },
        _ => StoreError::Io {
            place,
            detail: error.to_string(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unlocks_although_a_forked_process_holds_a_copy() {
        let place = tempfile::tempdir().unwrap();
        let folder = Folder::open(place.path(), 1).unwrap();
        let copy = folder.lock.try_clone().unwrap();
        drop(folder);
        drop(Folder::open(place.path(), 1).unwrap());
        drop(copy);
    }
}
