//! Errors of point stores.

use std::path::PathBuf;

use oxtsdb_row_store::StoreError;
use oxtsdb_storage_file::StorageError;

/// Error of a point store: it rejects or fails a request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PointStoreError {
    /// The request breaks a rule.
    #[error("{0}")]
    Invalid(String),
    /// The store is closed, or another process has its folder.
    #[error("the point store is unavailable: {0}")]
    Unavailable(String),
    /// The disk is full or its reserve is reached. Reads and deletes are still served.
    #[error("the point store is full: {0}")]
    Full(String),
    /// The operating system failed. It is unknown whether a write took effect.
    #[error("{place}: {detail}")]
    Io {
        /// The file or thread.
        place: String,
        /// The system's message.
        detail: String,
    },
    /// Stored bytes are damaged.
    #[error("{} is damaged: {detail}", path.display())]
    Damaged {
        /// The damaged file.
        path: PathBuf,
        /// The reason.
        detail: String,
    },
    /// The row store failed; of stores with points in rows.
    #[error(transparent)]
    Rows(Box<StoreError>),
    /// The folder has a format that this version does not read.
    #[error("{} has format {format}, this version reads format {supported}", path.display())]
    Format {
        /// The folder.
        path: PathBuf,
        /// The format of the folder.
        format: String,
        /// The format that is supported.
        supported: u32,
    },
}

/// The error as the service reports it, whichever store failed.
impl From<PointStoreError> for StoreError {
    fn from(error: PointStoreError) -> Self {
        match error {
            PointStoreError::Invalid(detail) => Self::Invalid { detail },
            PointStoreError::Unavailable(detail) => Self::Unavailable { detail },
            PointStoreError::Full(detail) => Self::Full { detail },
            PointStoreError::Io { place, detail } => Self::Io { place, detail },
            PointStoreError::Damaged { path, detail } => Self::Corrupt {
                place: path.display().to_string(),
                detail,
            },
            PointStoreError::Rows(error) => *error,
            error @ PointStoreError::Format { .. } => Self::Invalid {
                detail: error.to_string(),
            },
        }
    }
}

impl From<StorageError> for PointStoreError {
    fn from(error: StorageError) -> Self {
        match error {
            StorageError::Invalid(detail) => Self::Invalid(detail),
            StorageError::Unavailable(detail) => Self::Unavailable(detail),
            StorageError::Full(detail) => Self::Full(detail),
            StorageError::Io { place, detail } => Self::Io { place, detail },
            StorageError::Damaged { path, detail } => Self::Damaged { path, detail },
            StorageError::Format {
                path,
                found: format,
                supported,
            } => Self::Format {
                path,
                format,
                supported,
            },
        }
    }
}

/// For stores with points in rows.
impl From<StoreError> for PointStoreError {
    fn from(error: StoreError) -> Self {
        Self::Rows(Box::new(error))
    }
}

impl PointStoreError {
    /// An error of the operating system at a place.
    pub fn io(place: impl std::fmt::Display, error: &std::io::Error) -> Self {
        StorageError::io(place, error).into()
    }
}
