//! The file of a table: its reads report damage apart from failures of the disk.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use oxtsdb_storage_file::disk::{Disk, ReadFile};

use super::block::Undecodable;
use super::frame::{self, Kind};
use super::place::Place;
use crate::StoreError;
use crate::cells::folder::io_error;

/// An open file of a table.
#[derive(Debug)]
pub(super) struct TableFile {
    pub(super) disk: Arc<dyn Disk>,
    pub(super) path: PathBuf,
    pub(super) file: Arc<dyn ReadFile>,
    pub(super) bytes: u64,
}

/// Error of a read: bytes that are damaged, or a failure of the disk.
pub(super) enum ReadError {
    Damaged(String),
    Store(StoreError),
}

impl From<Undecodable> for ReadError {
    fn from(_: Undecodable) -> Self {
        Self::Damaged("a block cannot be decoded".to_owned())
    }
}

impl TableFile {
    /// Opens the file at a path.
    pub(super) fn open(disk: Arc<dyn Disk>, path: &Path) -> Result<Self, StoreError> {
        let failed = |error: io::Error| io_error(path, &error);
        let file = disk.open(path).map_err(failed)?;
        let bytes = file.len().map_err(failed)?;
        Ok(Self {
            path: path.to_owned(),
            disk,
            file,
            bytes,
        })
    }

    /// Reads bytes.
    pub(super) fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<(), ReadError> {
        self.file.read_at(buffer, offset).map_err(|error| {
            if is_damage(&error) {
                ReadError::Damaged(format!("offset {offset}: {error}"))
            } else {
                ReadError::Store(io_error(&self.path, &error))
            }
        })
    }

    /// Reads and verifies a block.
    pub(super) fn read_block(&self, place: Place, kind: Kind) -> Result<Bytes, ReadError> {
        let end = place.offset.checked_add(place.bytes as u64);
        if end.is_none_or(|end| end > self.bytes) {
            return Err(ReadError::Damaged(format!(
                "offset {}: the file is cut off",
                place.offset
            )));
        }
        let mut stored = vec![0; place.bytes];
        self.read_at(&mut stored, place.offset)?;
        frame::decode(&stored, kind)
            .map_err(|detail| ReadError::Damaged(format!("offset {}: {detail}", place.offset)))
    }
}

/// Whether an error of the disk is damage: of the medium, or of a file that is shorter than it was.
pub(super) fn is_damage(error: &io::Error) -> bool {
    const EIO: i32 = 5;
    error.raw_os_error() == Some(EIO) || error.kind() == ErrorKind::UnexpectedEof
}
