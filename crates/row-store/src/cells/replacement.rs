//! Replaces a damaged table file by one with its intact blocks.

use std::fs;
use std::path::PathBuf;

use super::engine::TREE_BLOCK;
use super::folder::{io_error, sync_folder};
use super::salvage::{self, Damage};
use super::set_aside::SetAside;
use super::table_file::TableFile;
use crate::StoreError;

/// A damaged table file and its replacement.
#[derive(Debug)]
pub(super) struct Replacement {
    path: PathBuf,
    pub(super) id: u64,
    pub(super) damage: Damage,
    /// Where the damaged file is preserved.
    kept: PathBuf,
    /// The file with all intact blocks.
    new: PathBuf,
}

impl Replacement {
    /// Writes a file with all intact blocks of a damaged one; `None` if the file is not damaged.
    pub(super) fn prepare(set_aside: &SetAside, file: &TableFile) -> Result<Option<Self>, StoreError> {
        let Some(damage) = salvage::inspect(file)? else {
            return Ok(None);
        };
        let kept = set_aside.place_for(&format!("table-{}", file.id))?;
        let new = kept.with_extension("new");
        if new.exists() {
            fs::remove_file(&new).map_err(|error| io_error(&new, &error))?;
        }
        let replacement = Self {
            path: file.path.clone(),
            id: file.id,
            damage,
            kept,
            new,
        };
        salvage::rewrite(
            &replacement.path,
            &replacement.damage,
            &replacement.new,
            file.id,
            TREE_BLOCK,
        )?;
        Ok(Some(replacement))
    }

    /// Records the damage, preserves the damaged file and installs its replacement. The tree must be closed.
    ///
    /// The damage is recorded first, so that rows are never missing without a record. A crash before the end leaves
    /// the damaged file in place, which is then replaced again.
    pub(super) fn put(&self, set_aside: &SetAside) -> Result<(), StoreError> {
        let named = if self.path.exists() {
            fs::hard_link(&self.path, &self.kept)
                .or_else(|_| fs::copy(&self.path, &self.kept).map(drop))
                .map_err(|error| io_error(&self.kept, &error))?;
            &self.kept
        } else {
            &self.path
        };
        sync_folder(set_aside.folder())?;
        if let Some(detail) = &self.damage.structure
            && self.damage.gaps.is_empty()
        {
            tracing::warn!(
                file = %self.path.display(), kept = %named.display(), detail,
                "rewrote a damaged file; no row was lost"
            );
        }
        set_aside.add(&self.damage.gaps, named)?;
        let failed = |error| io_error(&self.path, &error);
        if let Some(folder) = self.path.parent()
            && !folder.exists()
        {
            // All table files are missing, including their folder.
            fs::create_dir(folder).map_err(failed)?;
            folder.parent().map_or(Ok(()), sync_folder)?;
        }
        fs::rename(&self.new, &self.path).map_err(failed)?;
        self.path.parent().map_or(Ok(()), sync_folder)
    }
}

impl Drop for Replacement {
    fn drop(&mut self) {
        // It exists only if it was not installed.
        drop(fs::remove_file(&self.new));
    }
}
