//! A store on a single machine: a journal with group commit, memtables, and row blocks on disk.
//!
//! ```text
//!   write ──► queue ──► commit thread ──► journal, one sync per group ──► memtable ──► response
//!                                                                           │ when full
//!   read ◄── merge ◄──┬── memtable                                       flush thread
//!                     └── row blocks ◄─────────────────────────────────────┘
//! ```
//!
//! The unit of storage is the row. Writes since the last flush are in the memtable, as one buffer per row, and
//! in the journal. A flush merges each of these rows with its stored block and writes the new block. A row
//! block is a fraction of the size of its cells; see `block`.
//!
//! # Crash recovery
//!
//! A write is acknowledged once its journal frame is synced. Opening the store replays the journal into the
//! memtables. A flush makes its blocks visible atomically and only then removes journal segments; replaying a
//! segment whose rows are already in blocks has no effect.

mod block;
mod blocks;
mod catalog;
mod commit;
mod compact;
mod compaction_state;
mod config;
mod core;
mod descriptors;
mod engine;
mod flush;
mod folder;
mod journal;
mod memtable;
mod merge;
mod packed;
mod queue;
mod read;
mod replacement;
mod row_buffer;
mod salvage;
mod set_aside;
mod table_file;
mod table_list;
mod varint;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{self, JoinHandle};

use async_trait::async_trait;
use futures::stream::{StreamExt, try_unfold};
use parking_lot::{Mutex, RwLock};

use self::blocks::{BlockError, Blocks};
use self::catalog::Catalog;
use self::compaction_state::CompactionState;
use self::config::MIN_TABLE_DESCRIPTORS;
pub use self::config::{EmbeddedConfig, EmbeddedStats};
use self::core::Core;
use self::engine::Settings;
use self::folder::Folder;
use self::queue::{Operation, Outcome, Queue};
use self::read::Cursor;
use self::set_aside::SetAside;
use crate::rules::{self, Columns};
use crate::{
    AtomicCommit, CellAddress, ColumnSelection, Condition, DamageLog, DamagedRange, RangeMeasure, Row,
    RowStore, RowStream, Scan, StoreError, TableDef, TableName, WriteBatch,
};

/// Up to this many rows are read on the caller's thread: handing them to another thread takes longer than
/// reading them, even if one or the other comes from disk.
const READ_INLINE: usize = 4;

/// A [`RowStore`] in a local folder.
///
/// Dropping it stops its threads and leaves the folder as a crash would; [`RowStore::close`] flushes first.
#[derive(Debug)]
pub struct EmbeddedStore {
    opened: RwLock<Option<Opened>>,
}

#[derive(Debug)]
struct Opened {
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
        let folder = Folder::open(&config.path)?;
        let catalog = Arc::new(Catalog::open(folder.tables())?);
        let settings = Settings {
            path: folder.blocks(),
            cache_bytes: config.cache_bytes,
            table_descriptors: config.table_descriptors.max(MIN_TABLE_DESCRIPTORS),
        };
        let set_aside = SetAside::open(folder.damage(), folder.set_aside(), catalog.clone())?;
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

    fn opened(&self) -> Result<(Arc<Core>, Arc<Queue>), StoreError> {
        match &*self.opened.read() {
            Some(opened) => Ok((opened.core.clone(), opened.queue.clone())),
            None => Err(StoreError::Unavailable {
                detail: "the store is closed".to_owned(),
            }),
        }
    }

    async fn change(&self, table: &TableName, operation: Operation) -> Result<Outcome, StoreError> {
        let (core, queue) = self.opened()?;
        let table = core.catalog.table(table)?;
        queue.change(table, operation).await
    }

    async fn read_rows(
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
    async fn commit(&self, conditions: &[Condition], batch: WriteBatch) -> Result<bool, StoreError> {
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
    fn stop(self) {
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
async fn off_runtime<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
) -> Result<T, StoreError> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|error| StoreError::Io {
            place: "read".to_owned(),
            detail: error.to_string(),
        })?
}

fn check_cell(table: &TableDef, cell: &CellAddress) -> Result<(), StoreError> {
    rules::check_row_key(&cell.row)?;
    rules::check_qualifier(&cell.qualifier)?;
    rules::family_index(table, &cell.family).map(drop)
}

/// Unreachable: the commit thread returns the kind of outcome that the operation requires.
fn unexpected(outcome: &Outcome) -> StoreError {
    StoreError::Io {
        place: "commit thread".to_owned(),
        detail: format!("unexpected outcome {outcome:?}"),
    }
}

#[async_trait]
impl RowStore for EmbeddedStore {
    async fn create_table(&self, table: &TableDef) -> Result<bool, StoreError> {
        let (core, _) = self.opened()?;
        let table = table.clone();
        off_runtime(move || core.catalog.create(&table)).await
    }

    async fn tables(&self) -> Result<Vec<TableDef>, StoreError> {
        Ok(self.opened()?.0.catalog.definitions())
    }

    async fn get_rows(
        &self,
        table: &TableName,
        rows: &[Vec<u8>],
        columns: &ColumnSelection,
    ) -> Result<Vec<Option<Row>>, StoreError> {
        self.read_rows(table, rows, columns, None).await
    }

    async fn get_rows_skipping_damage(
        &self,
        table: &TableName,
        rows: &[Vec<u8>],
        columns: &ColumnSelection,
        damage: &DamageLog,
    ) -> Result<Vec<Option<Row>>, StoreError> {
        self.read_rows(table, rows, columns, Some(damage)).await
    }

    async fn scan(&self, table: &TableName, scan: Scan) -> Result<RowStream, StoreError> {
        let (core, _) = self.opened()?;
        let table = core.catalog.table(table)?;
        rules::check_scan(&scan)?;
        let columns = Columns::resolve(&table.def, &scan.columns)?;
        let view = read::view(&core, &table, columns, scan.max_versions);
        let cursor = Cursor {
            scan,
            view,
            done: false,
        };
        Ok(
            try_unfold((core, table, cursor), |(core, table, mut cursor)| async move {
                while !cursor.done {
                    let (step_core, step_table) = (core.clone(), table.clone());
                    let rows;
                    (rows, cursor) = off_runtime(move || {
                        let rows = read::step(&step_core, &step_table, &mut cursor)?;
                        Ok((rows, cursor))
                    })
                    .await?;
                    if !rows.is_empty() {
                        return Ok(Some((rows, (core, table, cursor))));
                    }
                }
                Ok(None)
            })
            .boxed(),
        )
    }

    async fn measure(
        &self,
        table: &TableName,
        start: &[u8],
        stop: &[u8],
        limit: usize,
    ) -> Result<Option<RangeMeasure>, StoreError> {
        let (core, _) = self.opened()?;
        let table = core.catalog.table(table)?;
        let (start, stop) = (start.to_vec(), stop.to_vec());
        off_runtime(move || read::measure(&core, &table, &start, &stop, limit).map(Some)).await
    }

    async fn write(&self, batch: WriteBatch) -> Result<(), StoreError> {
        let (core, queue) = self.opened()?;
        let table = core.catalog.table(batch.table())?;
        let families = rules::check_batch(&table.def, &batch)?;
        if batch.is_empty() {
            return Ok(());
        }
        queue
            .change(table, Operation::Write { batch, families })
            .await
            .map(drop)
    }

    async fn increment(&self, table: &TableName, cell: &CellAddress, amount: i64) -> Result<i64, StoreError> {
        check_cell(&self.opened()?.0.catalog.table(table)?.def, cell)?;
        match self
            .change(
                table,
                Operation::Increment {
                    cell: cell.clone(),
                    amount,
                },
            )
            .await?
        {
            Outcome::Sum(sum) => Ok(sum),
            outcome => Err(unexpected(&outcome)),
        }
    }

    async fn check_and_put(
        &self,
        table: &TableName,
        condition: &Condition,
        value: &[u8],
    ) -> Result<bool, StoreError> {
        let mut batch = WriteBatch::new(table.clone());
        let family = batch.family(&condition.cell.family);
        batch
            .row(&condition.cell.row)
            .put(family, &condition.cell.qualifier, value);
        self.commit(std::slice::from_ref(condition), batch).await
    }

    async fn append(
        &self,
        table: &TableName,
        cell: &CellAddress,
        value: &[u8],
    ) -> Result<Vec<u8>, StoreError> {
        check_cell(&self.opened()?.0.catalog.table(table)?.def, cell)?;
        rules::check_value(value)?;
        match self
            .change(
                table,
                Operation::Append {
                    cell: cell.clone(),
                    value: value.to_vec(),
                },
            )
            .await?
        {
            Outcome::Appended(value) => Ok(value),
            outcome => Err(unexpected(&outcome)),
        }
    }

    fn keeps_write_order(&self) -> bool {
        true
    }

    fn has_other_writers(&self) -> bool {
        false
    }

    fn atomic(&self) -> Option<&dyn AtomicCommit> {
        Some(self)
    }

    async fn check_health(&self) -> Result<(), StoreError> {
        let (core, queue) = self.opened()?;
        queue.check()?;
        core.blocks.check()?;
        core.compaction.check()?;
        let write_error = core.write_error.lock().clone();
        let flush_error = core.flush.state.lock().error.clone();
        write_error.or(flush_error).map_or(Ok(()), Err)
    }

    fn damage(&self) -> Vec<DamagedRange> {
        self.opened()
            .map(|(core, _)| core.blocks.set_aside.ranges())
            .unwrap_or_default()
    }

    async fn close(&self) -> Result<(), StoreError> {
        let flushed = match self.flush().await {
            // Already closed.
            Err(StoreError::Unavailable { .. }) => Ok(()),
            flushed => flushed,
        };
        let opened = self.opened.write().take();
        if let Some(opened) = opened {
            off_runtime(move || {
                opened.stop();
                Ok(())
            })
            .await?;
        }
        flushed
    }
}

#[async_trait]
impl AtomicCommit for EmbeddedStore {
    async fn commit_if(&self, conditions: &[Condition], batch: WriteBatch) -> Result<bool, StoreError> {
        self.commit(conditions, batch).await
    }
}
