//! Row blocks on disk, in an LSM tree.
//!
//! The key is the table's id (2 bytes) and the row key, the value a row block. Blocks are written
//! by sorted bulk ingestion only: a flush becomes new table files, which are synced before they
//! can be seen, all at once. So the tree's own journal stays empty, and opening it again is quick.
//!
//! # Damage
//!
//! A read, a flush or a compaction that meets a damaged table file fails with a [`Fault`].
//! [`Blocks::repair`] finds the file, records which keys its damaged blocks may have had (see
//! `set_aside`), closes the tree, puts a file of the same rows without these in its place (see
//! `salvage`), and opens the tree again. From then on the tree is whole: flushes and compactions
//! pass through it as ever. Only reads look at the record of what is missing.

mod opening;
#[cfg(test)]
mod tests;

use std::fmt;
use std::ops::Bound;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use fjall::Slice;
use parking_lot::{Mutex, RwLock, RwLockReadGuard};

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

/// Key of the newest time that was flushed; no table has the id 0.
const TIME_KEY: [u8; 2] = [0, 0];
/// A repair may block flushes for so long before health reports it: it waits for the compaction that is
/// under way, and for reads.
const REPAIR_LIMIT: Duration = Duration::from_secs(60);

/// Takes the block of a row that is to be written, or `None` to remove it.
pub(super) type WriteBlock<'a> = dyn FnMut(&Table, &[u8], Option<Vec<u8>>) -> Result<(), StoreError> + 'a;

/// Why row blocks cannot be read or written.
#[derive(Debug)]
pub(super) enum BlockError {
    /// A table file may be damaged: after a successful [`Blocks::repair`] the same can be done again.
    Damaged(Fault),
    /// All else.
    Store(StoreError),
}

impl From<StoreError> for BlockError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl BlockError {
    /// The error, for a caller that does not repair.
    pub(super) fn into_error(self) -> StoreError {
        match self {
            Self::Damaged(fault) => fault.error,
            Self::Store(error) => error,
        }
    }
}

/// An error of the engine that a damaged file may be the cause of.
#[derive(Debug)]
pub(super) struct Fault {
    error: StoreError,
    at: FaultAt,
    /// Repairs that were made before.
    repairs: u64,
}

/// Where to look for the damaged file.
#[derive(Debug)]
enum FaultAt {
    Key(Vec<u8>),
    After(Vec<u8>),
    Before(Vec<u8>),
    /// Anywhere; a panic may have left locks of the tree behind.
    Anywhere {
        panicked: bool,
    },
}

/// The tree.
pub(super) struct Blocks {
    settings: Settings,
    pub(super) set_aside: SetAside,
    /// Flushes and compactions share it, a repair has it alone.
    busy: RwLock<()>,
    /// The tree, or why it could not be opened again.
    engine: RwLock<Result<Engine, StoreError>>,
    repairing: Mutex<()>,
    repairs: AtomicU64,
    /// When the repair that is under way began to block flushes.
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

/// Rows of a range, in order.
pub(super) struct Range<'a> {
    iterator: fjall::Iter,
    reverse: bool,
    /// The last key returned, or the bound that the range begins at.
    position: Vec<u8>,
    blocks: &'a Blocks,
    // A tree is not closed while it is being read.
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
    /// Opens the tree, or makes one. Damaged files that it cannot be opened with are set aside.
    pub(super) fn open(settings: Settings, set_aside: SetAside) -> Result<Self, StoreError> {
        if !settings.path.exists() {
            Engine::make(&settings.path)?;
        }
        make_private(&settings.path)?;
        let engine = open(&settings, &set_aside)?;
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

    /// The tree. New readers queue behind a repair that waits for it, so reads that overlap do not starve
    /// the repair. Hence a thread must not hold it twice, except under `busy`: a repair locks that first, and
    /// does not wait for the tree while a flush, which reads rows as it writes, is under way.
    fn engine(&self) -> Result<Opened<'_>, StoreError> {
        RwLockReadGuard::try_map(self.engine.read(), |engine| engine.as_ref().ok())
            .map_err(|guard| guard.as_ref().err().cloned().unwrap_or_else(|| self.closed()))
    }

    fn closed(&self) -> StoreError {
        StoreError::Unavailable {
            detail: format!("{} is being repaired", self.settings.path.display()),
        }
    }

    /// Whether the tree is open, or about to be.
    ///
    /// # Errors
    ///
    /// It could not be opened again, or a repair that blocks flushes takes longer than `REPAIR_LIMIT`.
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

    /// Whether a read would wait until the tree is open again.
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

    /// Does something that may fail on damaged files; repairs these, and does it again.
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
        // Held until the number of repairs is part of the fault.
        let engine = self.engine()?;
        let block = engine.rows.get(&key);
        block.map_err(|error| self.fault(&error, || FaultAt::Key(key)))
    }

    /// Key and block of the rows in a range, in order.
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

    /// The highest id of a table that has rows, if one has.
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

    /// The newest time that was flushed.
    pub(super) fn time_ms(&self) -> Result<Option<i64>, StoreError> {
        self.with_repair(|| {
            let engine = self.engine()?;
            let value = engine.rows.get(TIME_KEY);
            let value = value.map_err(|error| self.fault(&error, || FaultAt::Key(TIME_KEY.to_vec())))?;
            Ok(value.and_then(|value| Some(i64::from_be_bytes(value.as_ref().try_into().ok()?))))
        })
    }

    /// Writes the blocks that `fill` hands over (tables by id, rows by key; no block removes the
    /// row's), makes them durable, and then visible all at once.
    ///
    /// `needed_bytes` is what they need at most; without it on the disk nothing is begun, since the
    /// files of an ingestion that fails stay until the store is opened again.
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

    /// Runs the compaction that is due, if one is. A damaged file fails it.
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

    /// Finds the damaged file behind a fault and sets it aside; `false` if there is none. Waits for
    /// a flush and a compaction that are under way.
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
            // The tree may not be usable.
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

    /// Closes the tree, replaces files, and opens it again. That also removes what failed flushes and
    /// compactions left.
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
            // After a panic its locks may not be usable.
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
        // Also if that failed: reads of all else go on.
        *engine = open(&self.settings, &self.set_aside);
        self.repairs.fetch_add(1, Ordering::SeqCst);
        replaced.and(engine.as_ref().map(drop).map_err(StoreError::clone))
    }

    /// Opens the tree again if that failed before.
    pub(super) fn heal(&self) -> Result<(), StoreError> {
        let _repairing = self.repairing.lock();
        if self.engine().is_ok() {
            return Ok(());
        }
        self.reopen(&[])
    }

    /// Opens the tree again, which closes its files and removes what failed flushes and compactions
    /// left on the disk.
    pub(super) fn reopen_all(&self) -> Result<(), StoreError> {
        let _repairing = self.repairing.lock();
        self.reopen(&[])
    }

    /// Bytes free on the disk.
    pub(super) fn available(&self) -> Result<u64, StoreError> {
        let path = &self.settings.path;
        fs4::available_space(path).map_err(|error| io_error(path, &error))
    }

    /// Bytes on disk; 0 while they are not known.
    pub(super) fn byte_len(&self) -> u64 {
        match self.engine.try_read_recursive().as_deref() {
            Some(Ok(engine)) => engine.rows.disk_space(),
            _ => 0,
        }
    }

    /// Sets the block of a row aside that is damaged although its file is whole.
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
