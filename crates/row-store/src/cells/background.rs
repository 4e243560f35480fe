//! The threads that write tables: one flushes frozen memtables, one merges tables.
//!
//! ```text
//!   flush   oldest frozen memtable ─► table, durable ─► manifest ─► visible ─► segments of the journal removed
//!   merge   neighbours of similar size ─► one table, durable ─► manifest ─► visible ─► inputs removed
//! ```
//!
//! Until the end of a flush its changes are in the journal, too. A flush or merge that fails is repeated.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::core::Core;
use super::expiry::Expiry;
use super::merge::{Merge, Source};
use super::queue::closed;
use super::table::{CommitRange, TableError};
use super::tree::{Frozen, ReadError, TreeTable};
use crate::StoreError;

/// The pause after a failure, doubled up to the longest.
const PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// How often the merge thread looks for expired columns and damaged tables.
const LOOK: Duration = Duration::from_secs(1);
/// Tables that are merged at least.
const MIN_MERGED: usize = 4;
/// Smaller tables count as having this many bytes: merging them costs little.
const SMALL_BYTES: u64 = 1 << 20;
/// Space that a merge leaves.
const MERGE_RESERVE: u64 = 64 << 20;

/// Writes frozen memtables as tables until the store stops.
pub(super) fn flush(core: &Core) {
    let mut pause = PAUSE;
    loop {
        let frozen = {
            let mut state = core.background.lock();
            loop {
                if core.stopping.load(Ordering::Relaxed) {
                    return;
                }
                if let Some(frozen) = core.tree.version().frozen.first() {
                    break frozen.clone();
                }
                core.background_changed.wait(&mut state);
            }
        };
        let flushed = flush_memtable(core, &frozen);
        if core.stopping.load(Ordering::Relaxed) {
            return;
        }
        let mut state = core.background.lock();
        state.flush_error = flushed.as_ref().err().cloned();
        match flushed {
            Ok(()) => {
                state.flushes += 1;
                pause = PAUSE;
            }
            Err(error) => {
                tracing::error!(%error, "cannot write cells from memory to a file; trying again");
                core.background_changed.notify_all();
                if !core.stopping.load(Ordering::Relaxed) {
                    core.background_changed.wait_for(&mut state, pause);
                }
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        }
        core.background_changed.notify_all();
    }
}

/// Writes the oldest frozen memtable as a table.
pub(super) fn flush_memtable(core: &Core, frozen: &Frozen) -> Result<(), StoreError> {
    let commits = CommitRange {
        first: core.tree.cut() + 1,
        last: frozen.memtable.last_commit(),
    };
    let expiry = Expiry::at(&core.catalog, core.time.now_ms());
    let cursor = frozen.memtable.all();
    // A removed key hides the key in older tables.
    let has_older = !core.tree.version().tables.is_empty();
    let mut merge = Merge::new(vec![Source::Memory(cursor)], false, has_older);
    write_table(core, &mut merge, commits, &expiry).map_err(|error| match error {
        ReadError::Store(error) | ReadError::Table(TableError::Store(error)) => error,
        // Unreachable: a memtable is no file.
        ReadError::Table(TableError::Damaged(damage)) => StoreError::Io {
            place: "memory".to_owned(),
            detail: damage.detail,
        },
    })?;
    core.tree.add_flushed(commits)?;
    core.journal.remove_through(frozen.segment)?;
    Ok(())
}

/// Writes the keys of a merge as a table, without expired columns. Stops with the store.
fn write_table(
    core: &Core,
    merge: &mut Merge<'_>,
    commits: CommitRange,
    expiry: &Expiry,
) -> Result<(), ReadError> {
    let mut writer = core.tree.new_table(commits)?;
    while merge.advance()? {
        if core.stopping.load(Ordering::Relaxed) {
            return Err(closed().into());
        }
        let mut value = merge.value();
        let expiring = value.and_then(|value| expiry.column(merge.key(), value));
        match expiring {
            // As a removed key, it hides the key in older tables: a delete may have been followed by an old version.
            Some((_, true)) if merge.keeps_removed() => value = None,
            Some((_, true)) => continue,
            Some((column, false)) => writer.note_expiring(column),
            None => {}
        }
        writer
            .push(merge.key(), value.map(|value| value.as_ref()))
            .map_err(StoreError::from)?;
    }
    writer.finish().map_err(StoreError::from)?;
    Ok(())
}

/// Merges tables until the store stops.
pub(super) fn merge(core: &Core) {
    let mut pause = PAUSE;
    loop {
        let flushes = core.background.lock().flushes;
        let merged = merge_next(core);
        let mut state = core.background.lock();
        if core.stopping.load(Ordering::Relaxed) {
            return;
        }
        state.merge_error = merged.as_ref().err().cloned();
        match merged {
            Ok(true) => {
                pause = PAUSE;
                core.background_changed.notify_all();
            }
            Ok(false) => {
                pause = PAUSE;
                // Another table may have been written meanwhile.
                if state.flushes == flushes {
                    core.background_changed.wait_for(&mut state, LOOK);
                }
            }
            Err(error) => {
                tracing::error!(%error, "cannot merge files of cells; trying again");
                core.background_changed.notify_all();
                core.background_changed.wait_for(&mut state, pause);
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        }
    }
}

/// Merges the tables that are due; `false` if none are.
pub(super) fn merge_next(core: &Core) -> Result<bool, StoreError> {
    let expiry = Expiry::at(&core.catalog, core.time.now_ms());
    let tables = core.tree.version().tables.clone();
    let free = core.free_bytes()?;
    let Some(range) = choose(&tables, free.saturating_sub(MERGE_RESERVE), &expiry) else {
        return Ok(false);
    };
    let is_oldest = range.start == 0;
    let inputs = tables.get(range).unwrap_or_default();
    let (Some(first), Some(last)) = (inputs.first(), inputs.last()) else {
        return Ok(false);
    };
    let commits = CommitRange {
        first: first.table.commits().first,
        last: last.table.commits().last,
    };
    let write = || {
        let mut sources = Vec::with_capacity(inputs.len());
        for input in inputs.iter().rev() {
            let cursor = input.table.cursor(&[], &super::key::AFTER_ALL, false, false)?;
            sources.push(Source::Table(Box::new(cursor)));
        }
        write_table(
            core,
            &mut Merge::new(sources, false, !is_oldest),
            commits,
            &expiry,
        )
    };
    match write() {
        Ok(()) => core.tree.replace_merged(inputs, commits).map(|()| true),
        Err(ReadError::Table(TableError::Damaged(damage))) => {
            // The next attempt passes over the damaged blocks.
            core.tree.salvage(&damage).map(|()| true)
        }
        Err(ReadError::Table(TableError::Store(error)) | ReadError::Store(error)) => Err(error),
    }
}

/// Chooses neighbours to merge: a table with expired columns or damage alone, else the newest run of at least
/// [`MIN_MERGED`] tables, each at most as large as all newer ones of the run together.
fn choose(tables: &[Arc<TreeTable>], limit_bytes: u64, expiry: &Expiry) -> Option<Range<usize>> {
    let bytes = |table: &Arc<TreeTable>| table.table.byte_len();
    let is_due = |table: &Arc<TreeTable>| {
        (table.table.is_salvaged() || expiry.is_due(&table.table)) && bytes(table) <= limit_bytes
    };
    if let Some(index) = tables.iter().position(is_due) {
        return Some(index..index + 1);
    }
    let sizes: Vec<u64> = tables.iter().map(|table| bytes(table).max(SMALL_BYTES)).collect();
    choose_by_size(&sizes).filter(|range| {
        let inputs = tables.get(range.clone()).unwrap_or_default();
        inputs.iter().map(bytes).sum::<u64>() <= limit_bytes
    })
}

/// The newest run of tables, given their sizes, oldest first.
fn choose_by_size(sizes: &[u64]) -> Option<Range<usize>> {
    for end in (MIN_MERGED..=sizes.len()).rev() {
        let mut start = end - 1;
        let mut sum = *sizes.get(start)?;
        while let Some(size) = start.checked_sub(1).and_then(|before| sizes.get(before))
            && *size <= sum
        {
            sum += size;
            start -= 1;
        }
        if end - start >= MIN_MERGED {
            return Some(start..end);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chooses_runs_of_similar_sizes() {
        assert_eq!(choose_by_size(&[1, 1, 1]), None);
        assert_eq!(choose_by_size(&[1, 1, 1, 1]), Some(0..4));
        assert_eq!(choose_by_size(&[100, 1, 1, 1, 1]), Some(1..5));
        assert_eq!(choose_by_size(&[4, 4, 4, 1, 1, 1]), None);
        assert_eq!(choose_by_size(&[4, 4, 4, 4, 1]), Some(0..4));
        assert_eq!(choose_by_size(&[2, 4, 4, 1, 1, 1, 1]), Some(0..7));
    }

    /// Writes of equal size, merged whenever possible: a byte is written about once for each doubling, not more often.
    #[test]
    fn merges_write_a_byte_a_few_times() {
        let (mut sizes, mut written, mut most) = (Vec::new(), 0, 0);
        for _ in 0..4_096 {
            sizes.push(1_u64);
            while let Some(range) = choose_by_size(&sizes) {
                let sum: u64 = sizes[range.clone()].iter().sum();
                written += sum;
                sizes.splice(range, [sum]);
            }
            most = most.max(sizes.len());
        }
        assert!(written < 4_096 * 8, "{written}");
        assert!(most <= 24, "{most} tables");
    }
}
