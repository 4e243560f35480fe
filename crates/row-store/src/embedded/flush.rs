//! The flush thread: merges frozen memtables into row blocks and removes their journal segments.

use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::block;
use super::blocks::{self, BlockError, WriteBlock};
use super::catalog::Table;
use super::core::Core;
use super::descriptors::{self, Spare};
use super::journal;
use super::memtable::Memtable;
use super::merge::{self, View};
use crate::StoreError;
use crate::rules::Columns;

/// The delay before a failed flush is retried.
const RETRY: Duration = Duration::from_secs(1);

/// Disk space that a flush leaves for the engine's own files.
const SPARE_BYTES: u64 = 4 << 20;

/// Flushes frozen memtables until the store stops.
pub(super) fn run(core: &Core) {
    // Callers must not wait for a thread that has ended, not even after a panic.
    let _ended = Ended(core);
    let mut spare = Spare::new(core.folder.lock_file(), descriptors::FLUSH);
    loop {
        let through = {
            let mut job = core.flush.state.lock();
            loop {
                if job.stopping {
                    return;
                }
                if let Some(through) = job.through_segment {
                    break through;
                }
                core.flush.changed.wait(&mut job);
            }
        };
        let result = spare.lend(|| flush(core, through));
        let mut job = core.flush.state.lock();
        let waiting = std::mem::take(&mut job.waiting);
        match &result {
            Ok(()) => {
                job.through_segment = None;
                job.error = None;
            }
            Err(error) => {
                tracing::error!(%error, "cannot flush; writes continue until memory is full");
                job.error = Some(error.clone());
            }
        }
        core.flush.changed.notify_all();
        for caller in waiting {
            // The caller may have gone.
            drop(caller.send(result.clone()));
        }
        if result.is_err() && !job.stopping {
            core.flush.changed.wait_for(&mut job, RETRY);
        }
    }
}

struct Ended<'a>(&'a Core);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        let mut job = self.0.flush.state.lock();
        job.error = Some(StoreError::Io {
            place: "flush thread".to_owned(),
            detail: "it stopped".to_owned(),
        });
        job.waiting.clear();
        self.0.flush.changed.notify_all();
    }
}

fn flush(core: &Core, through_segment: u64) -> Result<(), StoreError> {
    let tables = core.catalog.by_id();
    let frozen: Vec<(&Arc<Table>, Arc<Memtable>)> = tables
        .values()
        .filter_map(|table| Some((table, table.memory.read().frozen.clone()?)))
        .collect();

    let now_ms = core.now_ms();
    let needed_bytes = SPARE_BYTES + frozen.iter().map(|(_, rows)| rows.bytes() as u64).sum::<u64>();
    core.blocks.heal()?;
    let ingest = || {
        core.blocks.with_repair(|| {
            core.blocks.ingest(now_ms, needed_bytes, |write| {
                for (table, rows) in &frozen {
                    write_table(core, table, rows, now_ms, write)?;
                }
                for (table, _) in &frozen {
                    table.generation.fetch_add(1, Ordering::SeqCst);
                }
                Ok(())
            })
        })
    };
    match ingest() {
        Err(StoreError::Unavailable { detail }) if !core.flush.state.lock().stopping => {
            // Descriptors ran out. A tree that was just reopened holds none for table files.
            tracing::warn!(
                detail,
                "reopening the row blocks to free their descriptors for the flush"
            );
            core.blocks.reopen_all()?;
            ingest()
        }
        ingested => ingested,
    }?;
    core.compaction.request();
    for (table, _) in &frozen {
        table.memory.write().frozen = None;
    }
    // The rows are in blocks now; replaying them again would have no effect.
    journal::remove_through(&core.folder.journal(), through_segment)?;
    core.counters.journal_frozen_bytes.store(0, Ordering::Relaxed);
    core.counters.flushes.fetch_add(1, Ordering::Relaxed);
    Ok(())
}

/// Merges the memtable of a table with the stored blocks of its rows.
fn write_table(
    core: &Core,
    table: &Table,
    rows: &Memtable,
    now_ms: i64,
    write: &mut WriteBlock<'_>,
) -> Result<(), BlockError> {
    let view = View {
        columns: Columns::All,
        max_versions: table.max_versions,
        oldest_ms: table.oldest_ms(now_ms),
        trims_stored: true,
    };
    for (key, buffer) in rows.range((Bound::Unbounded, Bound::Unbounded)) {
        if core.flush.state.lock().stopping {
            return Err(BlockError::Store(StoreError::Unavailable {
                detail: "the store is closing".to_owned(),
            }));
        }
        let block = core.blocks.get(table, key)?;
        let was_stored = block.is_some();
        let stored = match block.map(|block| (blocks::decode(table, key, &block), block)) {
            None => None,
            Some((Ok(cells), _)) => Some(cells),
            Some((Err(error), block)) => {
                // The damaged block must not hold up the new cells.
                core.blocks
                    .set_row_aside(table, key, &block, &error.to_string())?;
                None
            }
        };
        let cells = merge::merge(stored, &[buffer], &view);
        if !cells.is_empty() {
            write(table, key, Some(block::encode(&cells)))?;
        } else if was_stored {
            write(table, key, None)?;
        }
    }
    Ok(())
}
