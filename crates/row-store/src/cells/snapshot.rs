//! Copies of a store in another folder: hard links to its tables, which never change.
//!
//! The copy has the tables of one version, so it has the store's state after one commit. It opens as a store: file
//! `STORE` is written last.

use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::Arc;

use oxtsdb_storage_file::disk::Disk;
use oxtsdb_storage_file::folder::{create_dir_durably, read_all};
use oxtsdb_storage_file::journal::{Journal, JournalOptions, Rejected};

use super::core::{Core, JOURNAL};
use super::folder::{self, io_error, mark_copy, replace_file};
use crate::StoreError;

/// Bytes that are copied at a time.
const COPY_BYTES: usize = 1 << 20;

/// Copies the tables of a store into a folder, which must be empty or absent.
///
/// # Errors
///
/// [`StoreError::Invalid`] if the folder has files; errors of the disk, after which the copy is incomplete.
pub(super) fn copy(core: &Core, target: &Path) -> Result<(), StoreError> {
    let disk = &core.tree.disk;
    let is_empty = match disk.list(target) {
        Ok(entries) => entries.is_empty(),
        Err(error) => error.kind() == ErrorKind::NotFound,
    };
    if !is_empty {
        return Err(StoreError::Invalid {
            detail: format!("the folder of the copy, {}, is not empty", target.display()),
        });
    }
    let tables = folder::tables(target);
    create_dir_durably(&**disk, &tables).map_err(|error| io_error(&tables, &error))?;
    let version = core.tree.version();
    for table in &version.tables {
        let to = tables.join(table.table.commits().to_string());
        link_or_copy(&**disk, table.table.path(), &to).map_err(|error| io_error(&to, &error))?;
    }
    disk.sync_dir(&tables)
        .map_err(|error| io_error(&tables, &error))?;
    let from = core.folder.path();
    // After the cells: a table is defined before it has any.
    for (from, to) in [
        (folder::definitions(from), folder::definitions(target)),
        (folder::damage(from), folder::damage(target)),
    ] {
        match read_all(&**disk, &from, u64::MAX) {
            Ok(bytes) => replace_file(&**disk, &to, &bytes)?,
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(io_error(&from, &error)),
        }
    }
    let manifest = core.tree.manifest(&version.tables).encode();
    replace_file(&**disk, &folder::manifest(target), &manifest)?;
    let options = JournalOptions {
        cut: Some(version.cut()),
        ..JOURNAL
    };
    let nothing = &mut |_, _: &[u8]| Ok::<_, Rejected<StoreError>>(());
    Journal::open(Arc::clone(disk), &folder::journal(target), options, nothing)?;
    mark_copy(&**disk, target)
}

/// A second name for a file, or a copy of it on another file system.
fn link_or_copy(disk: &dyn Disk, from: &Path, to: &Path) -> io::Result<()> {
    match disk.link(from, to) {
        Err(error) if error.kind() == ErrorKind::CrossesDevices => {}
        linked => return linked,
    }
    let source = disk.open(from)?;
    let mut copy = disk.create(to)?;
    let (length, mut offset) = (source.len()?, 0);
    let mut buffer = vec![0; COPY_BYTES];
    while offset < length {
        let left = usize::try_from(length - offset).unwrap_or(usize::MAX);
        let bytes = buffer.get_mut(..left.min(COPY_BYTES)).unwrap_or_default();
        source.read_at(bytes, offset)?;
        copy.write(bytes)?;
        offset += bytes.len() as u64;
    }
    copy.sync()
}
