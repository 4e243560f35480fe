//! The flush thread: turns frozen rows into row blocks, and gives their journal segments back.

use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::block;
use super::blocks::WriteBlock;
use super::catalog::Table;
use super::core::Core;
use super::journal;
use super::memtable::Memtable;
use super::merge::{self, View};
use crate::StoreError;
use crate::rules::Columns;

/// How long after a failure a flush is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// Room on the disk that a flush leaves for the engine's own files.
const SPARE_BYTES: u64 = 4 << 20;

/// Flushes whatever is frozen, until told to stop.
pub(super) fn run(core: &Core) {
    // Whoever waits must not wait for a thread that is gone, even if it panicked.
    let _ended = Ended(core);
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
        let result = flush(core, through);
        let mut job = core.flush.state.lock();
        let waiting = std::mem::take(&mut job.waiting);
        match &result {
            Ok(()) => {
                job.through_segment = None;
                job.error = None;
            }
            Err(error) => {
                tracing::error!(%error, "cannot flush; writes go on until memory is full");
                job.error = Some(error.clone());
            }
        }
        core.flush.changed.notify_all();
        for caller in waiting {
            // A caller that is gone needs no answer.
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
    let room_bytes = SPARE_BYTES + frozen.iter().map(|(_, rows)| rows.bytes() as u64).sum::<u64>();
    core.blocks.ingest(now_ms, room_bytes, |write| {
        for (table, rows) in &frozen {
            write_table(core, table, rows, now_ms, write)?;
        }
        for (table, _) in &frozen {
            table.generation.fetch_add(1, Ordering::SeqCst);
        }
        Ok(())
    })?;
    for (table, _) in &frozen {
        table.memory.write().frozen = None;
    }
    // The rows are in blocks now: replaying them once more would do no harm.
    journal::remove_through(&core.folder.journal(), through_segment)?;
    core.counters.journal_frozen_bytes.store(0, Ordering::Relaxed);
    core.counters.flushes.fetch_add(1, Ordering::Relaxed);
    Ok(())
}

/// Merges the rows of a table with their blocks.
fn write_table(
    core: &Core,
    table: &Table,
    rows: &Memtable,
    now_ms: i64,
    write: &mut WriteBlock<'_>,
) -> Result<(), StoreError> {
    let view = View {
        columns: Columns::All,
        max_versions: table.max_versions,
        oldest_ms: table.oldest_ms(now_ms),
        trims_stored: true,
    };
    for (key, buffer) in rows.range((Bound::Unbounded, Bound::Unbounded)) {
        if core.flush.state.lock().stopping {
            return Err(StoreError::Unavailable {
                detail: "the store is closing".to_owned(),
            });
        }
        let stored = core.blocks.get(table, key)?;
        let was_stored = stored.is_some();
        let cells = merge::merge(stored, &[buffer], &view);
        if !cells.is_empty() {
            write(table, key, Some(block::encode(&cells)))?;
        } else if was_stored {
            write(table, key, None)?;
        }
    }
    Ok(())
}
