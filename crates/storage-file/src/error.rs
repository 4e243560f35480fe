//! Errors of the files of a store.

use std::fmt;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// Error of files of a store that cannot be read or written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StorageError {
    /// The request breaks a rule.
    #[error("{0}")]
    Invalid(String),
    /// Another process has the folder open, or the process has no file descriptor left.
    #[error("{0}")]
    Unavailable(String),
    /// The disk is full. Callers see the text, so that it names no file.
    #[error("{0}")]
    Full(String),
    /// The operating system failed.
    #[error("{place}: {detail}")]
    Io {
        /// The file or folder.
        place: String,
        /// The system's message.
        detail: String,
    },
    /// Stored bytes are damaged or missing.
    #[error("{} is damaged: {detail}", path.display())]
    Damaged {
        /// The file or folder.
        path: PathBuf,
        /// The damage, in words.
        detail: String,
    },
    /// The folder has a format that this version does not read.
    #[error("{} has format {found}, this version reads format {supported}", path.display())]
    Format {
        /// The folder.
        path: PathBuf,
        /// The format of the folder.
        found: String,
        /// The format that is supported.
        supported: u32,
    },
}

impl StorageError {
    /// An error of the operating system at a place.
    pub fn io(place: impl fmt::Display, error: &io::Error) -> Self {
        match error.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Self::Full(error.to_string()),
            _ if is_out_of_descriptors(error) => Self::Unavailable(format!(
                "no file descriptor is left to open {place} with: {error}"
            )),
            _ => Self::Io {
                place: place.to_string(),
                detail: error.to_string(),
            },
        }
    }

    /// Damage of a file.
    pub fn damaged(path: &Path, detail: impl Into<String>) -> Self {
        Self::Damaged {
            path: path.to_owned(),
            detail: detail.into(),
        }
    }
}

/// Whether the process or the system has reached its limit of open files.
fn is_out_of_descriptors(error: &io::Error) -> bool {
    const ENFILE: i32 = 23;
    const EMFILE: i32 = 24;
    matches!(error.raw_os_error(), Some(ENFILE | EMFILE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_names_no_file() {
        for kind in [ErrorKind::StorageFull, ErrorKind::QuotaExceeded] {
            let error = StorageError::io("/srv/oxtsdb/points/journal/1.journal", &kind.into());
            assert!(
                matches!(&error, StorageError::Full(text) if !text.contains('/')),
                "{error}"
            );
        }
    }
}
