//! Restores a snapshot to a data folder that does not exist yet.
//!
//! ```text
//!   verify all files ─► copy them to <data>.restoring, durably ─► rename it to <data>
//! ```
//!
//! So there is a complete data folder, or none.

use std::fs::{self, DirBuilder, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use oxtsdb_point_store::PointStoreError;
use oxtsdb_point_store::parts::snapshot;
use oxtsdb_storage_file::disk::Disk;
use oxtsdb_storage_file::disk::real::RealDisk;

use super::manifest::{self, Entry, ManifestError};

/// A data folder that was restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Restored {
    /// Files.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Whether it has the names of the UID service.
    pub has_names: bool,
}

/// Why a snapshot was not restored; nothing was written.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// The list of files.
    #[error("{}: {error}", path.display())]
    Manifest {
        /// The file.
        path: PathBuf,
        /// The reason.
        #[source]
        error: ManifestError,
    },
    /// A file that is missing, cut or damaged.
    #[error("{} is damaged: {detail}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The reason.
        detail: String,
    },
    /// The data folder has files, or is left of a restore that was interrupted.
    #[error("{} {rule}", path.display())]
    Target {
        /// The folder.
        path: PathBuf,
        /// The rule that it breaks.
        rule: &'static str,
    },
    /// The operating system failed.
    #[error("{}: {error}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// Its error.
        #[source]
        error: io::Error,
    },
}

/// Makes a data folder of a snapshot. Calls `progress` with what it does and the bytes so far.
///
/// # Errors
///
/// As [`RestoreError`] says.
pub fn restore(
    snapshot: &Path,
    data_dir: &Path,
    mut progress: impl FnMut(&'static str, u64),
) -> Result<Restored, RestoreError> {
    check_target(data_dir, "is not empty, a snapshot is restored to a new folder")?;
    let staging = staging_of(data_dir)?;
    check_target(&staging, "is left of a restore that was interrupted; remove it")?;
    let path = snapshot.join(manifest::NAME);
    let entries = manifest::read(snapshot).map_err(|error| RestoreError::Manifest { path, error })?;
    verify(snapshot, &entries, &mut progress)?;
    let copied = copy(snapshot, &staging, &entries, &mut progress).and_then(|()| {
        let renamed = fs::rename(&staging, data_dir).and_then(|()| sync_parent(data_dir));
        renamed.map_err(failed(data_dir))
    });
    if copied.is_err()
        && let Err(error) = fs::remove_dir_all(&staging)
        && error.kind() != ErrorKind::NotFound
    {
        tracing::warn!(folder = %staging.display(), %error, "cannot remove what was copied");
    }
    copied?;
    Ok(Restored {
        files: entries.len() as u64,
        bytes: entries.iter().map(|entry| entry.bytes).sum(),
        has_names: entries.iter().any(|entry| entry.path.starts_with("uid/")),
    })
}

/// Checks that a folder is empty or absent.
fn check_target(path: &Path, rule: &'static str) -> Result<(), RestoreError> {
    let is_empty = match fs::read_dir(path) {
        Ok(mut entries) => entries.next().is_none(),
        Err(error) if error.kind() == ErrorKind::NotFound => true,
        Err(error) => return Err(failed(path)(error)),
    };
    let path = path.to_owned();
    if is_empty {
        Ok(())
    } else {
        Err(RestoreError::Target { path, rule })
    }
}

/// The folder in which the copy is made, on the same disk.
fn staging_of(data_dir: &Path) -> Result<PathBuf, RestoreError> {
    let absolute = std::path::absolute(data_dir).map_err(failed(data_dir))?;
    let Some(name) = absolute.file_name() else {
        let (path, rule) = (absolute, "is not the name of a folder");
        return Err(RestoreError::Target { path, rule });
    };
    let mut name = name.to_owned();
    name.push(".restoring");
    Ok(absolute.with_file_name(name))
}

/// Reads all files and compares them.
fn verify(
    folder: &Path,
    entries: &[Entry],
    progress: &mut impl FnMut(&'static str, u64),
) -> Result<(), RestoreError> {
    let disk: Arc<dyn Disk> = Arc::new(RealDisk);
    let mut bytes = 0;
    for entry in entries {
        let path = folder.join(&entry.path);
        let damaged = |detail: String| RestoreError::Damaged {
            path: path.clone(),
            detail,
        };
        let len = match fs::metadata(&path) {
            Ok(metadata) => metadata.len(),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Err(damaged("the file is missing".to_owned()));
            }
            Err(error) => return Err(failed(&path)(error)),
        };
        if len != entry.bytes {
            return Err(damaged(format!("it has {len} of {} bytes", entry.bytes)));
        }
        if let Some(crc) = entry.crc
            && manifest::crc_of(&path).map_err(failed(&path))? != crc
        {
            return Err(damaged("its checksum differs".to_owned()));
        }
        // Also those that have a checksum in the list: theirs are of the content as it was written.
        snapshot::verify(&disk, &path).map_err(|error| match error {
            PointStoreError::Damaged { detail, .. } => damaged(detail),
            error => damaged(error.to_string()),
        })?;
        bytes += entry.bytes;
        progress("verified", bytes);
    }
    Ok(())
}

/// Copies all files, durably.
fn copy(
    from: &Path,
    to: &Path,
    entries: &[Entry],
    progress: &mut impl FnMut(&'static str, u64),
) -> Result<(), RestoreError> {
    let mut folders = vec![to.to_owned()];
    create_folder(to)?;
    let mut bytes = 0;
    for entry in entries {
        let path = to.join(&entry.path);
        if let Some(folder) = path.parent()
            && !folders.iter().any(|created| created == folder)
        {
            create_folder(folder)?;
            // Those above are created with it.
            let new = folder.ancestors().take_while(|folder| *folder != to);
            folders.extend(new.map(Path::to_owned));
        }
        let copied = fs::copy(from.join(&entry.path), &path).and_then(|_| File::open(&path)?.sync_all());
        copied.map_err(failed(&path))?;
        bytes += entry.bytes;
        progress("copied", bytes);
    }
    folders.sort();
    folders.dedup();
    for folder in folders {
        let synced = File::open(&folder).and_then(|folder| folder.sync_all());
        synced.map_err(failed(&folder))?;
    }
    Ok(())
}

/// Creates a folder, and those above it, for this user only.
fn create_folder(path: &Path) -> Result<(), RestoreError> {
    let created = DirBuilder::new().recursive(true).mode(0o700).create(path);
    created.map_err(failed(path))
}

fn sync_parent(path: &Path) -> io::Result<()> {
    let absolute = std::path::absolute(path)?;
    match absolute.parent() {
        Some(parent) => File::open(parent)?.sync_all(),
        None => Ok(()),
    }
}

fn failed(path: &Path) -> impl Fn(io::Error) -> RestoreError + use<> {
    let path = path.to_owned();
    move |error| RestoreError::Io {
        path: path.clone(),
        error,
    }
}
