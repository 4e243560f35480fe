//! Table files of the LSM tree, by their keys.

use std::path::PathBuf;
use std::sync::Arc;

/// First and last key of a table file, both inclusive.
pub(super) type KeyRange = (Vec<u8>, Vec<u8>);

/// A table file of the tree.
#[derive(Clone, Debug)]
pub(super) struct TableFile {
    pub(super) id: u64,
    pub(super) path: PathBuf,
    /// First and last key; `None` if the tree is closed.
    pub(super) keys: Option<KeyRange>,
    /// Paths of the files of its run, in key order, if the tree is closed. Key ranges within a run do not
    /// overlap, so the neighbours bound the keys of an unreadable file.
    pub(super) run: Arc<[PathBuf]>,
}
