//! The LSM tree of the row blocks: creating, opening and inspecting it, and classifying its errors.
//!
//! Only the engine's tree is used. It has no threads of its own: compactions run on a thread of the store,
//! which can act on their errors, whereas a worker of the engine ends with the first error.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fjall::config::{BlockSizePolicy, CompressionPolicy, PartitioningPolicy};
use fjall::{AbstractTree as _, CompressionType, Database, Keyspace, KeyspaceCreateOptions, LsmError};
use rustix::io::Errno;

use super::folder::{io_error, make_private, sync_folder};
use super::table_file::TableFile;
use crate::StoreError;

/// Size of a block of the tree, about eight hours of 10-second points. Larger blocks compress keys better but
/// make single reads more expensive.
pub(crate) const TREE_BLOCK: u32 = 16 << 10;
/// The most rows of a damaged range that are recorded as intact.
const MAX_INTACT: usize = 10_000;

/// The open tree.
pub(crate) struct Engine {
    // Dropped before the database.
    pub(crate) rows: Keyspace,
    pub(crate) database: Database,
}

/// The parameters of the tree.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) path: PathBuf,
    pub(crate) cache_bytes: u64,
    pub(crate) table_descriptors: usize,
}

impl Engine {
    /// Opens a tree, creating it if necessary.
    pub(crate) fn open(settings: &Settings) -> Result<Self, fjall::Error> {
        let database = Database::builder(&settings.path)
            .cache_size(settings.cache_bytes)
            .max_cached_files(Some(settings.table_descriptors))
            .worker_threads_unchecked(0)
            .open()?;
        let options = || {
            KeyspaceCreateOptions::default()
                .data_block_size_policy(BlockSizePolicy::all(TREE_BLOCK))
                // Row blocks are already compressed, but keys and small rows are not.
                .data_block_compression_policy(CompressionPolicy::all(CompressionType::Lz4))
                // A whole filter or index of a large table exceeds what the cache admits as one entry, and would be
                // read and checked again by each look-up.
                .filter_block_partitioning_policy(PartitioningPolicy::all(true))
                .index_block_partitioning_policy(PartitioningPolicy::all(true))
        };
        let rows = database.keyspace("rows", options)?;
        Ok(Self { rows, database })
    }

    /// Creates an empty tree in a temporary folder and renames it: the engine cannot open a tree whose creation was
    /// interrupted.
    pub(crate) fn make(path: &Path) -> Result<(), StoreError> {
        let aside = path.with_extension("new");
        let failed = |error| io_error(&aside, &error);
        if aside.exists() {
            fs::remove_dir_all(&aside).map_err(failed)?;
        }
        make_private(&aside)?;
        let settings = Settings {
            path: aside.clone(),
            cache_bytes: 0,
            table_descriptors: 10,
        };
        drop(Self::open(&settings).map_err(|error| engine_error(&aside, &error))?);
        fs::rename(&aside, path).map_err(failed)?;
        path.parent().map_or(Ok(()), sync_folder)
    }

    /// Runs the compaction that is due, if any.
    pub(crate) fn compact(&self) -> Result<(), fjall::Error> {
        let watermark = self.database.supervisor.snapshot_tracker.get_seqno_safe_to_gc();
        let strategy = self.rows.config.compaction_strategy.clone();
        Ok(self.rows.tree.compact(strategy, watermark)?)
    }

    /// All table files.
    pub(crate) fn files(&self) -> Vec<TableFile> {
        files(&self.rows)
    }

    /// The table files that may contain a key.
    pub(crate) fn files_of(&self, key: &[u8]) -> Vec<TableFile> {
        let mut files = self.files();
        files.retain(|file| {
            let keys = file.keys.as_ref();
            keys.is_some_and(|(first, last)| first.as_slice() <= key && key <= last.as_slice())
        });
        files
    }

    /// Keys of a range that are in files entirely newer than file `id`. A version of a row is the whole row, so
    /// these rows lost nothing if that file is damaged.
    pub(crate) fn newer_keys(&self, id: u64, start: &[u8], stop: &[u8]) -> Vec<Vec<u8>> {
        let version = self.rows.tree.current_version();
        let Some(damaged) = version.iter_tables().find(|table| table.id() == id) else {
            return Vec::new();
        };
        let newest = damaged.get_highest_seqno();
        let mut keys = BTreeSet::new();
        for table in version
            .iter_tables()
            .filter(|table| table.get_highest_seqno() > newest)
        {
            let start = Bound::Included(lsm_tree::UserKey::from(start));
            let stop = match stop {
                [] => Bound::Unbounded,
                stop => Bound::Excluded(lsm_tree::UserKey::from(stop)),
            };
            // Damaged blocks of that file are reported separately.
            for item in table.range((start, stop)).flatten() {
                if item.key.seqno > newest {
                    keys.insert(item.key.user_key.to_vec());
                }
                if keys.len() >= MAX_INTACT {
                    break;
                }
            }
        }
        keys.into_iter().collect()
    }

    /// The table files that fail when read from a key upwards or downwards.
    ///
    /// The tree's own iterator reads each file at most two keys ahead.
    pub(crate) fn files_near(&self, key: &[u8], reverse: bool) -> Vec<TableFile> {
        const AHEAD: usize = 3;
        let version = self.rows.tree.current_version();
        let mut failing = Vec::new();
        let mut near = Vec::new();
        for run in version.iter_levels().flat_map(|level| level.iter()) {
            let is_ahead = |table: &&lsm_tree::Table| {
                let keys = &table.metadata.key_range;
                if reverse {
                    keys.min().as_ref() <= key
                } else {
                    keys.max().as_ref() >= key
                }
            };
            let ahead: Vec<_> = if reverse {
                run.iter().rev().filter(is_ahead).take(AHEAD).collect()
            } else {
                run.iter().filter(is_ahead).take(AHEAD).collect()
            };
            for table in ahead {
                let fails = if reverse {
                    table
                        .range(..=lsm_tree::UserKey::from(key))
                        .rev()
                        .take(AHEAD)
                        .any(|item| item.is_err())
                } else {
                    table
                        .range(lsm_tree::UserKey::from(key)..)
                        .take(AHEAD)
                        .any(|item| item.is_err())
                };
                if fails {
                    failing.push(file_of(table));
                }
                near.push(file_of(table));
            }
        }
        if failing.is_empty() { near } else { failing }
    }
}

/// All table files of a tree.
pub(crate) fn files(tree: &Keyspace) -> Vec<TableFile> {
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
pub(crate) fn is_damage(error: &fjall::Error) -> bool {
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
pub(crate) fn engine_error(path: &Path, error: &fjall::Error) -> StoreError {
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
