//! Copies of a store in another folder.
//!
//! All tables are copied as they are at one instant, key by key: a row of another instant could belong to a counter that
//! the copy does not have. The copy opens as a store.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use super::folder::{Folder, io_error, replace};
use super::key;
use super::set_aside::SetAside;
use super::store::{Core, FORMAT};
use super::tree::Tree;
use crate::StoreError;

/// Copies a store into a folder, which must be empty or absent.
///
/// # Errors
///
/// [`StoreError::Invalid`] if the folder has files; those of the disk, after which the copy is incomplete.
pub(super) fn copy(core: &Core, target: &Path) -> Result<(), StoreError> {
    let is_empty = match fs::read_dir(target) {
        Ok(mut entries) => entries.next().is_none(),
        Err(error) => error.kind() == ErrorKind::NotFound,
    };
    if !is_empty {
        return Err(StoreError::Invalid {
            detail: format!("the folder of the copy, {}, is not empty", target.display()),
        });
    }
    let folder = Folder::open(target, FORMAT)?;
    let set_aside = SetAside::open(
        folder.damage(),
        folder.set_aside(),
        core.catalog.clone(),
        key::rows_of,
    )?;
    let copied = Tree::open(core.settings(folder.cells()), set_aside)?;
    core.tree
        .with(|engine| Ok(copied.with(|target| Ok(target.copy_all(engine)?))??))?;
    // After the cells: a table is defined before it has any.
    for (from, to) in [
        (core.folder.tables(), folder.tables()),
        (core.folder.damage(), folder.damage()),
    ] {
        match fs::read(&from) {
            Ok(bytes) => replace(&to, &bytes)?,
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(io_error(&from, &error)),
        }
    }
    Ok(())
}
