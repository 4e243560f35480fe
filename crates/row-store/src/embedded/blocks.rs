//! Row blocks on disk, in an LSM tree.
//!
//! The key is the table's id (2 bytes) and the row key, the value a row block. Blocks are written
//! by sorted bulk ingestion only: a flush becomes new table files, which are synced before they
//! can be seen, all at once. So the tree's own journal stays empty, and opening it again is quick.

use std::fmt;
use std::fs;
use std::io::ErrorKind;
use std::ops::Bound;
use std::path::{Path, PathBuf};

use fjall::config::{BlockSizePolicy, CompressionPolicy};
use fjall::{CompressionType, Database, Keyspace, KeyspaceCreateOptions, Slice};

use super::block;
use super::catalog::Table;
use super::folder::{io_error, missing, sync_folder};
use crate::cell_list::CellList;
use crate::{PointColumns, StoreError};

/// Key of the newest time that was flushed; no table has the id 0.
const TIME_KEY: [u8; 2] = [0, 0];
/// Some eight hours of 10-second points lie in one block of the tree; a bigger one compresses keys
/// better and costs a single read more.
const TREE_BLOCK: u32 = 16 << 10;

/// Takes the block of a row that is to be written, or `None` to remove it.
pub(super) type WriteBlock<'a> = dyn FnMut(&Table, &[u8], Option<Vec<u8>>) -> Result<(), StoreError> + 'a;

/// The tree.
pub(super) struct Blocks {
    path: PathBuf,
    // Dropped before the database, which waits for its threads.
    rows: Keyspace,
    _database: Database,
}

impl fmt::Debug for Blocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Blocks")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

/// The key of a row in the tree.
fn key(table: &Table, row: &[u8]) -> Vec<u8> {
    [&table.id.to_be_bytes(), row].concat()
}

/// Makes an empty tree, aside: the engine cannot open what a crash left of one that was being made.
fn make(path: &Path) -> Result<(), StoreError> {
    let aside = path.with_extension("new");
    let failed = |error| io_error(&aside, &error);
    if aside.exists() {
        fs::remove_dir_all(&aside).map_err(failed)?;
    }
    drop(open(&aside, 0)?);
    fs::rename(&aside, path).map_err(failed)?;
    path.parent().map_or(Ok(()), sync_folder)
}

fn open(path: &Path, cache_bytes: u64) -> Result<(Database, Keyspace), StoreError> {
    let failed = |error| engine_error(path, &error);
    let database = Database::builder(path)
        .cache_size(cache_bytes)
        .worker_threads(1)
        .open()
        .map_err(failed)?;
    let options = || {
        KeyspaceCreateOptions::default()
            .data_block_size_policy(BlockSizePolicy::all(TREE_BLOCK))
            // Row blocks are packed already, but keys and rows of little content are not.
            .data_block_compression_policy(CompressionPolicy::all(CompressionType::Lz4))
    };
    let rows = database.keyspace("rows", options).map_err(failed)?;
    Ok((database, rows))
}

impl Blocks {
    pub(super) fn open(path: &Path, cache_bytes: u64) -> Result<Self, StoreError> {
        if !path.exists() {
            make(path)?;
        }
        check_trees(path)?;
        let (database, rows) = open(path, cache_bytes)?;
        Ok(Self {
            path: path.to_owned(),
            rows,
            _database: database,
        })
    }

    /// The cells of a row.
    pub(super) fn get(&self, table: &Table, row: &[u8]) -> Result<Option<CellList>, StoreError> {
        let block = self
            .rows
            .get(key(table, row))
            .map_err(|error| self.error(&error))?;
        block.map(|block| decode(table, row, &block)).transpose()
    }

    /// Key and block of the rows in a range that the filter keeps, in order.
    pub(super) fn range(
        &self,
        table: &Table,
        start: &[u8],
        stop: &[u8],
        reverse: bool,
    ) -> impl Iterator<Item = Result<(Slice, Slice), StoreError>> + use<> {
        let first = Bound::Included(key(table, start));
        let last = match (stop, table.id.checked_add(1)) {
            ([], Some(next)) => Bound::Excluded(next.to_be_bytes().to_vec()),
            ([], None) => Bound::Unbounded,
            (stop, _) => Bound::Excluded(key(table, stop.max(start))),
        };
        let path = self.path.clone();
        let mut range = self.rows.range((first, last));
        std::iter::from_fn(move || {
            let guard = if reverse { range.next_back() } else { range.next() };
            guard.map(|guard| guard.into_inner().map_err(|error| engine_error(&path, &error)))
        })
    }

    /// The highest id of a table that has rows, if one has.
    pub(super) fn last_table(&self) -> Result<Option<u16>, StoreError> {
        let Some(last) = self.rows.last_key_value() else {
            return Ok(None);
        };
        let key = last.key().map_err(|error| self.error(&error))?;
        let id = key.first_chunk().map(|id| u16::from_be_bytes(*id));
        Ok(id.filter(|id| *id != 0))
    }

    /// The newest time that was flushed.
    pub(super) fn time_ms(&self) -> Result<Option<i64>, StoreError> {
        let value = self.rows.get(TIME_KEY).map_err(|error| self.error(&error))?;
        Ok(value.and_then(|value| Some(i64::from_be_bytes(value.as_ref().try_into().ok()?))))
    }

    /// Writes the blocks that `fill` hands over (tables by id, rows by key; no block removes the
    /// row's), makes them durable, and then visible all at once.
    ///
    /// `room_bytes` is what they need at most; without it on the disk nothing is begun, since the
    /// files of an ingestion that fails stay until the store is opened again.
    pub(super) fn ingest(
        &self,
        time_ms: i64,
        room_bytes: u64,
        fill: impl FnOnce(&mut WriteBlock<'_>) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let available = fs4::available_space(&self.path).map_err(|error| io_error(&self.path, &error))?;
        if available < room_bytes {
            return Err(StoreError::Full {
                place: self.path.display().to_string(),
            });
        }
        let failed = |error| engine_error(&self.path, &error);
        let mut ingestion = self.rows.start_ingestion().map_err(failed)?;
        ingestion.write(TIME_KEY, time_ms.to_be_bytes()).map_err(failed)?;
        fill(&mut |table, row, block| {
            let key = key(table, row);
            let written = match block {
                Some(block) => ingestion.write(key, block),
                None => ingestion.write_tombstone(key),
            };
            written.map_err(failed)
        })?;
        ingestion.finish().map_err(failed)
    }

    /// Bytes on disk.
    pub(super) fn byte_len(&self) -> u64 {
        self.rows.disk_space()
    }

    fn error(&self, error: &fjall::Error) -> StoreError {
        engine_error(&self.path, error)
    }
}

/// Decodes the block of a row.
pub(super) fn decode(table: &Table, row: &[u8], block: &[u8]) -> Result<CellList, StoreError> {
    block::decode(block).map_err(|detail| damaged(table, row, detail))
}

/// Reads the points of a block that has nothing else; `false` if it has.
pub(super) fn decode_points(
    table: &Table,
    row: &[u8],
    block: &[u8],
    points: &mut PointColumns,
) -> Result<bool, StoreError> {
    block::decode_points(block, points).map_err(|detail| damaged(table, row, detail))
}

fn damaged(table: &Table, row: &[u8], detail: &str) -> StoreError {
    StoreError::Corrupt {
        place: format!("table `{}` row {}", table.def.name, row.escape_ascii()),
        detail: detail.to_owned(),
    }
}

/// The engine takes a tree without this file for a new one.
fn check_trees(path: &Path) -> Result<(), StoreError> {
    let Ok(trees) = fs::read_dir(path.join("keyspaces")) else {
        return Ok(());
    };
    for tree in trees {
        let tree = tree.map_err(|error| io_error(path, &error))?.path();
        let has_tables = fs::read_dir(tree.join("tables")).is_ok_and(|mut tables| tables.next().is_some());
        let current = tree.join("current");
        if has_tables && !current.exists() {
            return Err(missing(&current));
        }
    }
    Ok(())
}

fn engine_error(path: &Path, error: &fjall::Error) -> StoreError {
    use fjall::Error as E;
    use fjall::LsmError;

    let place = || path.display().to_string();
    match error {
        E::Io(error) | E::Storage(LsmError::Io(error)) => match error.kind() {
            // Files are not as the engine left them.
            ErrorKind::NotFound
            | ErrorKind::AlreadyExists
            | ErrorKind::UnexpectedEof
            | ErrorKind::InvalidData => StoreError::Corrupt {
                place: place(),
                detail: error.to_string(),
            },
            _ => io_error(path, error),
        },
        E::Poisoned | E::KeyspaceDeleted | E::Locked => StoreError::Io {
            place: place(),
            detail: error.to_string(),
        },
        // Checksums, tags, lengths.
        error => StoreError::Corrupt {
            place: place(),
            detail: error.to_string(),
        },
    }
}
