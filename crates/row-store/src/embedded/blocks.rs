//! Row blocks on disk, in an LSM tree.
//!
//! The key is the table's id (2 bytes) followed by the row key, the value a row block. Blocks are written only
//! by sorted bulk ingestion: a flush writes new table files, syncs them, and then makes them visible
//! atomically. The tree's own journal therefore stays empty, and reopening the tree is fast.
//!
//! # Damage
//!
//! A read, flush or compaction that encounters a damaged table file fails with a [`Fault`]. [`Blocks::repair`]
//! locates the file, records which keys its damaged blocks may have had (see `set_aside`), closes the tree,
//! replaces the file by one with its intact blocks (see `salvage`), and reopens the tree. Afterwards the tree
//! is consistent: flushes and compactions need no special cases, and only reads consult the record of lost
//! keys.

mod fault;
pub(crate) mod opening;
#[cfg(test)]
mod tests;

use std::fmt;
use std::ops::Bound;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use fjall::Slice;
use parking_lot::{Mutex, RwLock, RwLockReadGuard};

pub(super) use self::fault::BlockError;
use self::fault::{Fault, FaultAt};
use self::opening::open;
use super::block;
use super::catalog::Table;
use super::engine::{Engine, Settings, engine_error, is_damage};
use super::folder::{io_error, make_private};
use super::replacement::Replacement;
use super::set_aside::SetAside;
use super::table_list;
use crate::cell_list::CellList;
use crate::{PointColumns, StoreError};

/// Key of the newest flushed time; no table has the id 0.
const TIME_KEY: [u8; 2] = [0, 0];
/// How long a repair may block flushes before health checks fail: it waits for a running compaction and for
/// reads.
const REPAIR_LIMIT: Duration = Duration::from_secs(60);

/// Writes the block of a row, or removes it if there is none.
pub(super) type WriteBlock<'a> = dyn FnMut(&Table, &[u8], Option<Vec<u8>>) -> Result<(), StoreError> + 'a;

/// The tree.
pub(super) struct Blocks {
    settings: Settings,
    pub(super) set_aside: SetAside,
    /// Shared by flushes and compactions, exclusive for a repair.
    busy: RwLock<()>,
    /// The tree, or why it could not be reopened.
    engine: RwLock<Result<Engine, StoreError>>,
    repairing: Mutex<()>,
    repairs: AtomicU64,
    /// When the current repair began to block flushes.
    reopening_since: Mutex<Option<Instant>>,
}

impl fmt::Debug for Blocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Blocks")
            .field("path", &self.settings.path)
            .finish_non_exhaustive()
    }
}

/// The key of a row in the tree.
fn key(table: &Table, row: &[u8]) -> Vec<u8> {
    [&table.id.to_be_bytes(), row].concat()
}

type Opened<'a> = parking_lot::MappedRwLockReadGuard<'a, Engine>;

/// The rows of a range, in order.
pub(super) struct Range<'a> {
    iterator: fjall::Iter,
    reverse: bool,
    /// The last key returned; initially the bound at which the range starts.
    position: Vec<u8>,
    blocks: &'a Blocks,
    // Keeps the tree open while it is being read.
    _engine: Opened<'a>,
}

impl Iterator for Range<'_> {
    type Item = Result<(Slice, Slice), BlockError>;

    fn next(&mut self) -> Option<Self::Item> {
        let guard = if self.reverse {
            self.iterator.next_back()
        } else {
            self.iterator.next()
        };
        Some(match guard?.into_inner() {
            Ok((key, block)) => {
                self.position.clear();
                self.position.extend_from_slice(&key);
                Ok((key, block))
            }
            Err(error) => {
                let position = self.position.clone();
                Err(self.blocks.fault(&error, || {
                    if self.reverse {
                        FaultAt::Before(position)
                    } else {
                        FaultAt::After(position)
                    }
                }))
            }
        })
    }
}

impl Blocks {
    /// Opens the tree, creating it if necessary. Damaged files that prevent opening are replaced.
    pub(super) fn open(settings: Settings, set_aside: SetAside) -> Result<Self, StoreError> {
        if !settings.path.exists() {
            Engine::make(&settings.path)?;
        }
        make_private(&settings.path)?;
        let engine = open(&settings.path, &set_aside, || Engine::open(&settings))?;
        Ok(Self {
            settings,
            set_aside,
            busy: RwLock::default(),
            engine: RwLock::new(Ok(engine)),
            repairing: Mutex::default(),
            repairs: AtomicU64::new(0),
            reopening_since: Mutex::default(),
        })
    }

    /// The tree. New readers queue behind a repair that waits for the lock, so that overlapping reads do not starve
    /// it. A thread must therefore not acquire the lock twice, except while it holds `busy`: a repair acquires that
    /// lock first, and so does not wait for the tree while a flush, which reads rows as it writes, is running.
    fn engine(&self) -> Result<Opened<'_>, StoreError> {
        RwLockReadGuard::try_map(self.engine.read(), |engine| engine.as_ref().ok())
            .map_err(|guard| guard.as_ref().err().cloned().unwrap_or_else(|| self.closed()))
    }

    fn closed(&self) -> StoreError {
        StoreError::Unavailable {
            detail: format!("{} is being repaired", self.settings.path.display()),
        }
    }

    /// Whether the tree is open or about to be.
    ///
    /// # Errors
    ///
    /// If it could not be reopened, or if a repair has been blocking flushes for longer than `REPAIR_LIMIT`.
    pub(super) fn check(&self) -> Result<(), StoreError> {
        if let Some(since) = *self.reopening_since.lock()
            && since.elapsed() >= REPAIR_LIMIT
        {
            return Err(StoreError::Unavailable {
                detail: format!(
                    "the repair of {} has been blocking flushes for {} s",
                    self.settings.path.display(),
                    since.elapsed().as_secs()
                ),
            });
        }
        match self.engine.try_read_recursive().as_deref() {
            Some(Err(error)) => Err(error.clone()),
            Some(Ok(_)) | None => Ok(()),
        }
    }

    /// Whether a read would wait until the tree is reopened.
    pub(super) fn is_reopening(&self) -> bool {
        self.engine.is_locked_exclusive()
    }

    fn fault(&self, error: &fjall::Error, at: impl FnOnce() -> FaultAt) -> BlockError {
        let store_error = engine_error(&self.settings.path, error);
        if is_damage(error) {
            BlockError::Damaged(Fault {
                error: store_error,
                at: at(),
                repairs: self.repairs.load(Ordering::SeqCst),
            })
        } else {
            BlockError::Store(store_error)
        }
    }

    /// Runs an operation; if it fails on damaged files, repairs them and retries.
    pub(super) fn with_repair<T>(
        &self,
        mut attempt: impl FnMut() -> Result<T, BlockError>,
    ) -> Result<T, StoreError> {
        loop {
            match attempt() {
                Ok(done) => return Ok(done),
                Err(BlockError::Store(error)) => return Err(error),
                Err(BlockError::Damaged(fault)) => {
                    if !self.repair(&fault)? {
                        return Err(fault.error);
                    }
                }
            }
        }
    }

    /// The block of a row.
    pub(super) fn get(&self, table: &Table, row: &[u8]) -> Result<Option<Slice>, BlockError> {
        let key = key(table, row);
        // Held until the number of repairs is recorded in the fault.
        let engine = self.engine()?;
        let block = engine.rows.get(&key);
        block.map_err(|error| self.fault(&error, || FaultAt::Key(key)))
    }

    /// Keys and blocks of the rows in a range, in order.
    pub(super) fn range(
        &self,
        table: &Table,
        start: &[u8],
        stop: &[u8],
        reverse: bool,
    ) -> Result<Range<'_>, StoreError> {
        let first = key(table, start);
        let last = match (stop, table.id.checked_add(1)) {
            ([], Some(next)) => Bound::Excluded(next.to_be_bytes().to_vec()),
            ([], None) => Bound::Unbounded,
            (stop, _) => Bound::Excluded(key(table, stop.max(start))),
        };
        let position = match (&last, reverse) {
            (_, false) => first.clone(),
            (Bound::Excluded(last), true) => last.clone(),
            _ => vec![0xff; 3],
        };
        let engine = self.engine()?;
        Ok(Range {
            iterator: engine.rows.range((Bound::Included(first), last)),
            reverse,
            position,
            blocks: self,
            _engine: engine,
        })
    }

    /// The highest id of a table with rows.
    pub(super) fn last_table(&self) -> Result<Option<u16>, StoreError> {
        self.with_repair(|| {
            let engine = self.engine()?;
            let Some(last) = engine.rows.last_key_value() else {
                return Ok(None);
            };
            let key = last
                .key()
                .map_err(|error| self.fault(&error, || FaultAt::Before(vec![0xff; 3])))?;
            let id = key.first_chunk().map(|id| u16::from_be_bytes(*id));
            Ok(id.filter(|id| *id != 0))
        })
    }

    /// The newest flushed time.
    pub(super) fn time_ms(&self) -> Result<Option<i64>, StoreError> {
        self.with_repair(|| {
            let engine = self.engine()?;
            let value = engine.rows.get(TIME_KEY);
            let value = value.map_err(|error| self.fault(&error, || FaultAt::Key(TIME_KEY.to_vec())))?;
            Ok(value.and_then(|value| Some(i64::from_be_bytes(value.as_ref().try_into().ok()?))))
        })
    }

    /// Writes the blocks that `fill` produces, ordered by table id and row key, makes them durable, and then
    /// visible atomically. A row without a block is removed.
    ///
    /// Fails before it writes anything if less than `needed_bytes` are available on disk, since the files of a
    /// failed ingestion remain until the tree is reopened.
    pub(super) fn ingest(
        &self,
        time_ms: i64,
        needed_bytes: u64,
        fill: impl FnOnce(&mut WriteBlock<'_>) -> Result<(), BlockError>,
    ) -> Result<(), BlockError> {
        let path = &self.settings.path;
        let available = fs4::available_space(path).map_err(|error| io_error(path, &error))?;
        if available < needed_bytes {
            return Err(BlockError::Store(StoreError::Full {
                place: path.display().to_string(),
            }));
        }
        let _busy = self.busy.read();
        let engine = self.engine()?;
        let failed = |error| engine_error(path, &error);
        let mut ingestion = engine.rows.start_ingestion().map_err(failed)?;
        ingestion.write(TIME_KEY, time_ms.to_be_bytes()).map_err(failed)?;
        fill(&mut |table, row, block| {
            let key = key(table, row);
            let written = match block {
                Some(block) => ingestion.write(key, block),
                None => ingestion.write_tombstone(key),
            };
            written.map_err(failed)
        })?;
        Ok(ingestion.finish().map_err(failed)?)
    }

    /// Runs the compaction that is due, if any. A damaged file makes it fail.
    pub(super) fn compact(&self) -> Result<(), BlockError> {
        let _busy = self.busy.read();
        let engine = self.engine()?;
        match catch_unwind(AssertUnwindSafe(|| engine.compact())) {
            Ok(compacted) => {
                compacted.map_err(|error| self.fault(&error, || FaultAt::Anywhere { panicked: false }))
            }
            Err(_panic) => Err(BlockError::Damaged(Fault {
                error: StoreError::Io {
                    place: self.settings.path.display().to_string(),
                    detail: "a compaction panicked".to_owned(),
                },
                at: FaultAt::Anywhere { panicked: true },
                repairs: self.repairs.load(Ordering::SeqCst),
            })),
        }
    }

    /// Finds and replaces the damaged files behind a fault; `false` if there are none. Waits for a running flush
    /// and compaction.
    pub(super) fn repair(&self, fault: &Fault) -> Result<bool, StoreError> {
        let _repairing = self.repairing.lock();
        if self.repairs.load(Ordering::SeqCst) != fault.repairs {
            return Ok(true);
        }
        let suspects = match &fault.at {
            FaultAt::Key(key) => self.engine()?.files_of(key),
            FaultAt::After(key) => self.engine()?.files_near(key, false),
            FaultAt::Before(key) => self.engine()?.files_near(key, true),
            FaultAt::Anywhere { panicked: false } => self.engine()?.files(),
            // The tree may be unusable.
            FaultAt::Anywhere { panicked: true } => table_list::closed_files(&self.settings.path)?.0,
        };
        let mut replacements = Vec::new();
        for file in suspects {
            replacements.extend(Replacement::prepare(&self.set_aside, &file)?);
        }
        let panicked = matches!(fault.at, FaultAt::Anywhere { panicked: true });
        if replacements.is_empty() && !panicked {
            return Ok(false);
        }
        if !panicked {
            let engine = self.engine()?;
            for replacement in &mut replacements {
                for gap in &mut replacement.damage.gaps {
                    gap.intact = engine.newer_keys(replacement.id, &gap.start, &gap.stop);
                }
            }
        }
        self.reopen(&replacements)?;
        Ok(!replacements.is_empty())
    }

    /// Closes the tree, replaces files, and reopens it. Reopening also removes what failed flushes and compactions
    /// left behind.
    fn reopen(&self, replacements: &[Replacement]) -> Result<(), StoreError> {
        *self.reopening_since.lock() = Some(Instant::now());
        let reopened = self.reopen_alone(replacements);
        *self.reopening_since.lock() = None;
        reopened
    }

    fn reopen_alone(&self, replacements: &[Replacement]) -> Result<(), StoreError> {
        let _busy = self.busy.write();
        let mut engine = self.engine.write();
        let current = match engine.as_ref() {
            // After a panic its locks may be unusable.
            Ok(engine) => catch_unwind(AssertUnwindSafe(|| engine.files())).ok(),
            Err(_) => None,
        };
        // A compaction may have replaced the file in the meantime.
        let is_current = |id: u64| {
            current
                .as_ref()
                .is_none_or(|files| files.iter().any(|file| file.id == id))
        };
        *engine = Err(self.closed());
        let replaced = replacements
            .iter()
            .filter(|replacement| is_current(replacement.id))
            .try_for_each(|replacement| replacement.put(&self.set_aside));
        // Reopened even if a replacement failed, so that other rows can be read.
        *engine = open(&self.settings.path, &self.set_aside, || {
            Engine::open(&self.settings)
        });
        self.repairs.fetch_add(1, Ordering::SeqCst);
        replaced.and(engine.as_ref().map(drop).map_err(StoreError::clone))
    }

    /// Reopens the tree if an earlier attempt failed.
    pub(super) fn heal(&self) -> Result<(), StoreError> {
        let _repairing = self.repairing.lock();
        if self.engine().is_ok() {
            return Ok(());
        }
        self.reopen(&[])
    }

    /// Reopens the tree, which closes its files and removes what failed flushes and compactions left on disk.
    pub(super) fn reopen_all(&self) -> Result<(), StoreError> {
        let _repairing = self.repairing.lock();
        self.reopen(&[])
    }

    /// Free bytes on disk.
    pub(super) fn available(&self) -> Result<u64, StoreError> {
        let path = &self.settings.path;
        fs4::available_space(path).map_err(|error| io_error(path, &error))
    }

    /// Bytes on disk; 0 while unknown.
    pub(super) fn byte_len(&self) -> u64 {
        match self.engine.try_read_recursive().as_deref() {
            Some(Ok(engine)) => engine.rows.disk_space(),
            _ => 0,
        }
    }

    /// Isolates the damaged block of a row whose file is intact.
    pub(super) fn set_row_aside(
        &self,
        table: &Table,
        row: &[u8],
        block: &[u8],
        detail: &str,
    ) -> Result<(), StoreError> {
        self.set_aside.add_row(&key(table, row), block, detail)
    }
}

/// Decodes the block of a row.
pub(super) fn decode(table: &Table, row: &[u8], block: &[u8]) -> Result<CellList, StoreError> {
    block::decode(block).map_err(|detail| damaged(table, row, detail))
}

/// Decodes a block that consists of points only; `false` if it has other cells.
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
