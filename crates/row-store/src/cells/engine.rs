//! Inspecting fjall's tree, and classifying its errors.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use fjall::{AbstractTree as _, Keyspace, LsmError};
use rustix::io::Errno;

use super::folder::io_error;
use super::table_file::TableFile;
use crate::StoreError;

/// Size of a block of the tree. Larger blocks compress keys better but make single reads more expensive.
pub(super) const TREE_BLOCK: u32 = 16 << 10;

/// All table files of a tree.
pub(super) fn files(tree: &Keyspace) -> Vec<TableFile> {
    let version = tree.tree.current_version();
    version.iter_tables().map(file_of).collect()
}

fn file_of(table: &lsm_tree::Table) -> TableFile {
    let keys = &table.metadata.key_range;
    TableFile {
        id: table.id(),
        path: table.path.to_path_buf(),
        keys: Some((keys.min().to_vec(), keys.max().to_vec())),
        run: Arc::default(),
    }
}

/// Whether an error may be caused by damaged files.
pub(super) fn is_damage(error: &fjall::Error) -> bool {
    match error {
        fjall::Error::Io(error) | fjall::Error::Storage(LsmError::Io(error)) => {
            error.raw_os_error() == Some(Errno::IO.raw_os_error())
                // Files differ from what the engine wrote.
                || matches!(
                    error.kind(),
                    ErrorKind::NotFound
                        | ErrorKind::AlreadyExists
                        | ErrorKind::UnexpectedEof
                        | ErrorKind::InvalidData
                )
        }
        fjall::Error::Poisoned | fjall::Error::KeyspaceDeleted | fjall::Error::Locked => false,
        // Checksums, tags, lengths.
        _ => true,
    }
}

/// Converts an error of the engine.
pub(super) fn engine_error(path: &Path, error: &fjall::Error) -> StoreError {
    let place = || path.display().to_string();
    match error {
        error if is_damage(error) => StoreError::Corrupt {
            place: place(),
            detail: error.to_string(),
        },
        fjall::Error::Io(error) | fjall::Error::Storage(LsmError::Io(error)) => io_error(path, error),
        error => StoreError::Io {
            place: place(),
            detail: error.to_string(),
        },
    }
}
