//! The store: opening, flushing, closing, and the paths that reads and commits share.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{self, JoinHandle};

use parking_lot::{Mutex, RwLock};

use super::blocks::{BlockError, Blocks};
use super::catalog::Catalog;
use super::compaction_state::CompactionState;
use super::config::{EmbeddedConfig, EmbeddedStats, MIN_TABLE_DESCRIPTORS};
use super::core::{self, Core};
use super::engine::Settings;
use super::folder::{Folder, make_private};
use super::queue::{Operation, Outcome, Queue};
use super::set_aside::SetAside;
use super::{commit, compact, flush, journal, read};
use crate::rules::{self, Columns};
use crate::{
    CellAddress, ColumnSelection, Condition, DamageLog, Row, StoreError, TableDef, TableName, WriteBatch,
};

/// The format of the folder.
const FORMAT: u32 = 1;
/// Up to this many rows are read on the caller's thread: handing them to another thread takes longer than
/// reading them, even if one or the other comes from disk.
const READ_INLINE: usize = 4;

/// A [`RowStore`] in a local folder.
///
/// Dropping it stops its threads and leaves the folder as a crash would; [`RowStore::close`] flushes first.
#[derive(Debug)]
pub struct EmbeddedStore {
    pub(super) opened: RwLock<Option<Opened>>,
}

#[derive(Debug)]
pub(super) struct Opened {
    core: Arc<Core>,
    queue: Arc<Queue>,
    commit: JoinHandle<()>,
    flush: JoinHandle<()>,
    compaction: JoinHandle<()>,
}

impl EmbeddedStore {
    /// Opens a store, creating it if necessary. Blocks while the journal is replayed.
    ///
    /// # Errors
    ///
    /// - [`StoreError::Unavailable`] if another process has it open.
    /// - [`StoreError::Invalid`] if its format is newer than this code.
    /// - [`StoreError::Corrupt`] with the place of the damage. A torn frame at the end of the journal is not
    ///   damage: it is truncated and logged.
    /// - [`StoreError::Io`] and [`StoreError::Full`] from the operating system.
    pub fn open(config: EmbeddedConfig) -> Result<Self, StoreError> {
        let folder = Folder::open(&config.path, FORMAT)?;
        make_private(&folder.journal())?;
        let catalog = Arc::new(Catalog::open(folder.tables())?);
        let settings = Settings {
            path: folder.blocks(),
            cache_bytes: config.cache_bytes,
            table_descriptors: config.table_descriptors.max(MIN_TABLE_DESCRIPTORS),
        };
        let set_aside = SetAside::open(folder.damage(), folder.set_aside(), catalog.clone(), |gap| gap)?;
        let blocks = Blocks::open(settings, set_aside)?;
        if let Some(id) = blocks.last_table()?
            && !catalog.by_id().contains_key(&id)
        {
            return Err(StoreError::Corrupt {
                place: folder.tables().display().to_string(),
                detail: format!("table {id} is not defined, and there are rows of it"),
            });
        }
        let mut replay = commit::Replay::new(catalog.by_id());
        let recovered = journal::recover(&folder.journal(), |frame| replay.apply(frame))?;
        let last_ms = recovered.last_ms.max(blocks.time_ms()?.unwrap_or(i64::MIN));
        let core = Arc::new(Core {
            config,
            catalog,
            blocks,
            last_ms: last_ms.into(),
            flush: core::FlushState::default(),
            compaction: CompactionState::default(),
            counters: core::Counters::default(),
            write_error: Mutex::new(None),
            folder,
        });
        core.counters
            .journal_active_bytes
            .store(recovered.journal.unflushed_bytes(), Ordering::Relaxed);
        let queue = Arc::new(Queue::new(core.config.queue_bytes));
        let commit = spawn("oxtsdb-commit", {
            let (core, queue) = (core.clone(), queue.clone());
            move || commit::run(&core, &queue, recovered.journal)
        })?;
        let flush = spawn("oxtsdb-flush", {
            let core = core.clone();
            move || flush::run(&core)
        })?;
        let compaction = spawn("oxtsdb-compact", {
            let core = core.clone();
            move || compact::run(&core)
        })?;
        // Resumes compaction where the last process stopped.
        core.compaction.request();
        Ok(Self {
            opened: RwLock::new(Some(Opened {
                core,
                queue,
                commit,
                flush,
                compaction,
            })),
        })
    }

    /// Flushes all rows in memory to row blocks and waits until that is done.
    ///
    /// # Errors
    ///
    /// If they cannot be written; no data is lost.
    pub async fn flush(&self) -> Result<(), StoreError> {
        let (_, queue) = self.opened()?;
        queue.flush().await
    }

    /// Statistics for metrics.
    ///
    /// # Errors
    ///
    /// [`StoreError::Unavailable`] if the store is closed.
    pub fn stats(&self) -> Result<EmbeddedStats, StoreError> {
        let (core, _) = self.opened()?;
        let mut stats = EmbeddedStats {
            journal_bytes: core.counters.journal_bytes(),
            block_bytes: core.blocks.byte_len(),
            flushes: core.counters.flushes.load(Ordering::Relaxed),
            groups_committed: core.counters.groups.load(Ordering::Relaxed),
            ..EmbeddedStats::default()
        };
        for table in core.catalog.by_id().values() {
            let memory = table.memory.read();
            for rows in [Some(&memory.active), memory.frozen.as_deref()]
                .into_iter()
                .flatten()
            {
                stats.rows_in_memory += rows.len() as u64;
                stats.memory_bytes += rows.bytes() as u64;
            }
        }
        Ok(stats)
    }

    pub(super) fn opened(&self) -> Result<(Arc<Core>, Arc<Queue>), StoreError> {
        match &*self.opened.read() {
            Some(opened) => Ok((opened.core.clone(), opened.queue.clone())),
            None => Err(StoreError::Unavailable {
                detail: "the store is closed".to_owned(),
            }),
        }
    }

    pub(super) async fn change(
        &self,
        table: &TableName,
        operation: Operation,
    ) -> Result<Outcome, StoreError> {
        let (core, queue) = self.opened()?;
        let table = core.catalog.table(table)?;
        queue.change(table, operation).await
    }

    pub(super) async fn read_rows(
        &self,
        table: &TableName,
        rows: &[Vec<u8>],
        columns: &ColumnSelection,
        skip_damaged: Option<&DamageLog>,
    ) -> Result<Vec<Option<Row>>, StoreError> {
        let (core, _) = self.opened()?;
        let table = core.catalog.table(table)?;
        let columns = Columns::resolve(&table.def, columns)?;
        rows.iter().try_for_each(|row| rules::check_row_key(row))?;
        let view = read::view(&core, &table, columns, 1);
        if rows.len() <= READ_INLINE && !core.blocks.is_reopening() {
            // Lets other tasks run if a caller reads in a loop.
            tokio::task::consume_budget().await;
            match read::try_rows(&core, &table, rows, &view, skip_damaged) {
                // A repair blocks; it runs off the runtime.
                Err(BlockError::Damaged(_)) => {}
                read => return read.map_err(BlockError::into_error),
            }
        }
        let (keys, skip_damaged) = (rows.to_vec(), skip_damaged.cloned());
        off_runtime(move || read::rows(&core, &table, &keys, &view, skip_damaged.as_ref())).await
    }

    /// Validates conditions and a batch, and commits them.
    pub(super) async fn commit(
        &self,
        conditions: &[Condition],
        batch: WriteBatch,
    ) -> Result<bool, StoreError> {
        let (core, queue) = self.opened()?;
        let table = core.catalog.table(batch.table())?;
        let families = rules::check_batch(&table.def, &batch)?;
        for condition in conditions {
            check_cell(&table.def, &condition.cell)?;
        }
        let operation = Operation::CommitIf {
            conditions: conditions.to_vec(),
            batch,
            families,
        };
        match queue.change(table, operation).await? {
            Outcome::Held(held) => Ok(held),
            outcome => Err(unexpected(&outcome)),
        }
    }
}

impl Opened {
    /// Stops the threads. Queued requests are committed, but memtables are not flushed.
    pub(super) fn stop(self) {
        let join = |thread: JoinHandle<()>| {
            if thread.join().is_err() {
                tracing::error!("a thread of the store panicked");
            }
        };
        self.queue.close();
        // The commit thread may be waiting for a flush, so the flush thread stops after it.
        join(self.commit);
        self.core.flush.state.lock().stopping = true;
        self.core.flush.changed.notify_all();
        join(self.flush);
        self.core.compaction.stop();
        join(self.compaction);
    }
}

impl Drop for EmbeddedStore {
    fn drop(&mut self) {
        if let Some(opened) = self.opened.get_mut().take() {
            opened.stop();
        }
    }
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, StoreError> {
    thread::Builder::new()
        .name(name.to_owned())
        .spawn(run)
        .map_err(|error| StoreError::Io {
            place: format!("thread {name}"),
            detail: error.to_string(),
        })
}

/// Runs blocking work off the runtime's threads.
pub(super) async fn off_runtime<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
) -> Result<T, StoreError> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|error| StoreError::Io {
            place: "read".to_owned(),
            detail: error.to_string(),
        })?
}

/// Validates the address of a cell.
pub(super) fn check_cell(table: &TableDef, cell: &CellAddress) -> Result<(), StoreError> {
    rules::check_row_key(&cell.row)?;
    rules::check_qualifier(&cell.qualifier)?;
    rules::family_index(table, &cell.family).map(drop)
}

/// Unreachable: the commit thread returns the kind of outcome that the operation requires.
pub(super) fn unexpected(outcome: &Outcome) -> StoreError {
    StoreError::Io {
        place: "commit thread".to_owned(),
        detail: format!("unexpected outcome {outcome:?}"),
    }
}
