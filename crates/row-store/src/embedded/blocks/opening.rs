//! Opening the tree despite damaged table files.

use std::panic::catch_unwind;
use std::path::Path;

use super::super::engine::{Engine, Settings, engine_error, is_damage};
use super::super::replacement::Replacement;
use super::super::salvage;
use super::super::set_aside::SetAside;
use super::super::table_list;
use crate::StoreError;

/// The most damaged files that an open replaces.
const MAX_DAMAGED: usize = 1_000;

/// Opens the tree, replacing the damaged files that prevent it.
pub(super) fn open(settings: &Settings, set_aside: &SetAside) -> Result<Engine, StoreError> {
    table_list::check_trees(&settings.path)?;
    for file in table_list::damaged_ends(&settings.path)? {
        if let Some(replacement) = Replacement::prepare(set_aside, &file)? {
            replacement.put(set_aside)?;
        }
    }
    let mut attempts = 0;
    loop {
        let error = match catch_unwind(|| Engine::open(settings)) {
            Ok(Ok(engine)) => return Ok(engine),
            Ok(Err(error)) if is_damage(&error) => engine_error(&settings.path, &error),
            Ok(Err(error)) => return Err(engine_error(&settings.path, &error)),
            Err(_panic) => StoreError::Corrupt {
                place: settings.path.display().to_string(),
                detail: "the engine panicked while it opened its files".to_owned(),
            },
        };
        attempts += 1;
        if attempts > MAX_DAMAGED || !set_damaged_files_aside(&settings.path, set_aside, &error)? {
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
    tracing::warn!(%error, "the row blocks cannot be opened; looking for damaged files");
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
