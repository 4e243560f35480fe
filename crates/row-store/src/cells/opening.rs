//! Opening the tree despite damaged table files.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use super::engine::{engine_error, is_damage};
use super::replacement::Replacement;
use super::salvage;
use super::set_aside::SetAside;
use super::table_list;
use crate::StoreError;

/// The most damaged files that an open replaces.
const MAX_DAMAGED: usize = 1_000;

/// Opens the tree in a folder, replacing the damaged files that prevent it.
pub(super) fn open<E>(
    path: &Path,
    set_aside: &SetAside,
    open: impl Fn() -> Result<E, fjall::Error>,
) -> Result<E, StoreError> {
    table_list::check_trees(path)?;
    for file in table_list::damaged_ends(path)? {
        if let Some(replacement) = Replacement::prepare(set_aside, &file)? {
            replacement.put(set_aside)?;
        }
    }
    let mut attempts = 0;
    loop {
        let error = match catch_unwind(AssertUnwindSafe(&open)) {
            Ok(Ok(engine)) => return Ok(engine),
            Ok(Err(error)) if is_damage(&error) => engine_error(path, &error),
            Ok(Err(error)) => return Err(engine_error(path, &error)),
            Err(_panic) => StoreError::Corrupt {
                place: path.display().to_string(),
                detail: "the engine panicked while it opened its files".to_owned(),
            },
        };
        attempts += 1;
        if attempts > MAX_DAMAGED || !set_damaged_files_aside(path, set_aside, &error)? {
            return Err(error);
        }
    }
}

/// Replaces the files that prevent opening; `false` if there are none.
fn set_damaged_files_aside(
    path: &Path,
    set_aside: &SetAside,
    error: &StoreError,
) -> Result<bool, StoreError> {
    tracing::warn!(%error, "the cells cannot be opened; looking for damaged files");
    let (rows, settings) = table_list::closed_files(path)?;
    for file in settings {
        salvage::check_open(&file.path).map_err(|detail| StoreError::Corrupt {
            place: file.path.display().to_string(),
            detail,
        })?;
    }
    let mut found = false;
    for file in rows {
        if salvage::check_open(&file.path).is_err()
            && let Some(replacement) = Replacement::prepare(set_aside, &file)?
        {
            replacement.put(set_aside)?;
            found = true;
        }
    }
    Ok(found)
}
