//! Reads: merges memtables and row blocks, consistently for each row.
//!
//! A read first takes a snapshot of the memtables, then reads blocks. If a flush became visible in between, the
//! blocks may contain writes newer than the snapshot, so the read restarts; see [`Table::generation`].

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::blocks::{self, BlockError};
use super::catalog::Table;
use super::core::Core;
use super::memtable::Memtable;
use super::merge::{self, View};
use super::packed::PackedRow;
use super::row_buffer::RowBuffer;
use crate::cell_list::CellList;
use crate::rules::Columns;
use crate::{DamageLog, DamagedRange, RangeMeasure, Row, Scan, StoreError};

/// The most keys that one step of a scan examines. Steps are bounded because each holds a lock and a thread.
const STEP_KEYS: usize = 4_096;
/// The most bytes that one step of a scan copies.
const STEP_BYTES: usize = 8 << 20;

/// Consecutive mismatches after which the filter is queried for a seek hint: examining the next key is cheaper
/// than a seek.
const SEEK_AFTER: usize = 64;

/// What a read of a table selects.
pub(super) fn view(core: &Core, table: &Table, columns: Columns, max_versions: u32) -> View {
    let mut versions = table.max_versions;
    let mut trims_stored = false;
    for (version_limit, family) in versions.iter_mut().zip(&table.def.families) {
        trims_stored |= max_versions < *version_limit || family.ttl.is_some();
        *version_limit = (*version_limit).min(max_versions);
    }
    View {
        columns,
        max_versions: versions,
        oldest_ms: table.oldest_ms(core.now_ms()),
        trims_stored,
    }
}

/// Reads rows by key. Repairs the damage that it encounters, which may block.
pub(super) fn rows(
    core: &Core,
    table: &Table,
    keys: &[Vec<u8>],
    view: &View,
    skip_damaged: Option<&DamageLog>,
) -> Result<Vec<Option<Row>>, StoreError> {
    core.blocks
        .with_repair(|| try_rows(core, table, keys, view, skip_damaged))
}

/// Reads rows by key.
pub(super) fn try_rows(
    core: &Core,
    table: &Table,
    keys: &[Vec<u8>],
    view: &View,
    skip_damaged: Option<&DamageLog>,
) -> Result<Vec<Option<Row>>, BlockError> {
    loop {
        let generation = table.generation.load(Ordering::SeqCst);
        let (active, frozen) = {
            let memory = table.memory.read();
            let active: Vec<Option<RowBuffer>> =
                keys.iter().map(|key| memory.active.get(key).cloned()).collect();
            (active, memory.frozen.clone())
        };
        let mut rows = Vec::with_capacity(keys.len());
        for (key, active) in keys.iter().zip(&active) {
            if let Some(damage) = core.blocks.set_aside.of_row(table, key) {
                skip_or_fail(skip_damaged, damage)?;
            }
            let stored = match core.blocks.get(table, key)? {
                Some(block) => stored_cells(core, table, key, &block, skip_damaged)?,
                None => None,
            };
            let frozen = frozen.as_ref().and_then(|frozen| frozen.get(key));
            let buffers: Vec<&RowBuffer> = frozen.into_iter().chain(active).collect();
            rows.push(Row::of(
                key,
                table.families.clone(),
                merge::merge(stored, &buffers, view),
            ));
        }
        if table.generation.load(Ordering::SeqCst) == generation {
            return Ok(rows);
        }
    }
}

/// The remainder of a scan: its range shrinks and its limit decreases.
#[derive(Debug)]
pub(super) struct Cursor {
    pub(super) scan: Scan,
    pub(super) view: View,
    pub(super) done: bool,
}

/// The next rows of a scan; advances `cursor`. An empty result is not the end.
pub(super) fn step(core: &Core, table: &Arc<Table>, cursor: &mut Cursor) -> Result<Vec<Row>, StoreError> {
    cursor.done |= is_over(&cursor.scan);
    if cursor.done {
        return Ok(Vec::new());
    }
    core.blocks.with_repair(|| try_step(core, table, cursor))
}

fn try_step(core: &Core, table: &Arc<Table>, cursor: &mut Cursor) -> Result<Vec<Row>, BlockError> {
    loop {
        let scan = &cursor.scan;
        let subrange = core
            .blocks
            .set_aside
            .first_subrange(table, &scan.start, &scan.stop, scan.reverse);
        if let Some(damage) = subrange.damage {
            skip_or_fail(scan.skip_damaged.as_ref(), damage)?;
        }
        let part = subrange.end.as_ref().map(|end| {
            let mut part = scan.clone();
            *(if scan.reverse {
                &mut part.start
            } else {
                &mut part.stop
            }) = end.clone();
            part
        });
        let generation = table.generation.load(Ordering::SeqCst);
        let step = read_step(core, table, part.as_ref().unwrap_or(scan), &cursor.view)?;
        if table.generation.load(Ordering::SeqCst) != generation {
            continue;
        }
        if let Some(limit) = &mut cursor.scan.limit {
            *limit -= step.rows.len() as u64;
        }
        match (step.seek, step.last_key, subrange.end) {
            (Some(key), ..) => cursor.scan.start = key,
            (None, Some(key), _) => cursor.scan = cursor.scan.clone().resume_after(&key),
            (None, None, Some(end)) if cursor.scan.reverse => cursor.scan.stop = end,
            (None, None, Some(end)) => cursor.scan.start = end,
            (None, None, None) => cursor.done = true,
        }
        cursor.done |= is_over(&cursor.scan);
        return Ok(step.rows);
    }
}

/// Whether the scan is complete.
fn is_over(scan: &Scan) -> bool {
    scan.limit == Some(0) || (!scan.stop.is_empty() && scan.stop <= scan.start)
}

struct Step {
    rows: Vec<Row>,
    /// The last examined key; `None` at the end of the range.
    last_key: Option<Vec<u8>>,
    /// The filter's seek hint, if the step ended with one.
    seek: Option<Vec<u8>>,
}

/// The rows in memory that a step may return.
struct MemoryStep {
    active: Vec<(Arc<[u8]>, RowBuffer)>,
    /// The last key of the snapshot; `None` if the snapshot is complete.
    truncated_at: Option<Arc<[u8]>>,
    frozen: Option<Arc<Memtable>>,
}

fn read_memory(table: &Table, scan: &Scan) -> MemoryStep {
    let memory = table.memory.read();
    let mut step = MemoryStep {
        active: Vec::new(),
        truncated_at: None,
        frozen: memory.frozen.clone(),
    };
    let mut bytes = 0;
    for (looked_at, (key, buffer)) in directed(memory.active.range(bounds(scan)), scan.reverse).enumerate() {
        if keeps(scan, key) {
            bytes += buffer.byte_len();
            step.active.push((key.clone(), buffer.clone()));
        }
        if looked_at + 1 >= STEP_KEYS || bytes >= STEP_BYTES || step.active.len() > scan.batch_rows {
            step.truncated_at = Some(key.clone());
            break;
        }
    }
    step
}

fn read_step(core: &Core, table: &Arc<Table>, scan: &Scan, view: &View) -> Result<Step, BlockError> {
    let memory = read_memory(table, scan);
    let comes_first = |a: &[u8], b: &[u8]| if scan.reverse { a > b } else { a < b };
    let mut active = memory.active.iter().peekable();
    let frozen = memory
        .frozen
        .as_deref()
        .map(|frozen| directed(frozen.range(bounds(scan)), scan.reverse));
    let mut frozen = frozen.into_iter().flatten().peekable();
    let mut stored = core
        .blocks
        .range(table, &scan.start, &scan.stop, scan.reverse)?
        .peekable();

    let batch_limit = scan.limit.map_or(scan.batch_rows, |limit| {
        scan.batch_rows.min(usize::try_from(limit).unwrap_or(usize::MAX))
    });
    let mut step = Step {
        rows: Vec::new(),
        last_key: None,
        seek: None,
    };
    let filter = scan.filter.as_ref().filter(|_| !scan.reverse);
    let mut mismatches = 0;
    let mut bytes = 0;
    let mut key = Vec::new();
    for _ in 0..STEP_KEYS {
        // The engine's keys begin with the table's id.
        if let Some(Err(error)) = stored.next_if(Result::is_err) {
            return Err(error);
        }
        let stored_key = match stored.peek() {
            Some(Ok((key, _))) => key.get(2..),
            _ => None,
        };
        let heads = [
            active.peek().map(|(key, _)| key.as_ref()),
            frozen.peek().map(|(key, _)| key.as_ref()),
            stored_key,
        ];
        let next = heads
            .into_iter()
            .flatten()
            .reduce(|a, b| if comes_first(b, a) { b } else { a });
        let next = match (next, &memory.truncated_at) {
            (None, None) => {
                step.last_key = None;
                return Ok(step);
            }
            // The snapshot does not include later keys.
            (None, Some(end)) => {
                step.last_key = Some(end.to_vec());
                return Ok(step);
            }
            (Some(key), Some(end)) if comes_first(end, key) => {
                step.last_key = Some(end.to_vec());
                return Ok(step);
            }
            (Some(key), _) => key,
        };
        key.clear();
        key.extend_from_slice(next);
        let next = key.as_slice();
        let stored = stored.next_if(|row| row.as_ref().is_ok_and(|(key, _)| key.get(2..) == Some(next)));
        let frozen = frozen.next_if(|(key, _)| key.as_ref() == next);
        let active = active.next_if(|(key, _)| key.as_ref() == next);
        if keeps(scan, next) {
            let block = match stored {
                Some(Ok((_, block))) => Some(block),
                _ => None,
            };
            let buffers: Vec<&RowBuffer> = frozen
                .map(|(_, buffer)| buffer)
                .into_iter()
                .chain(active.map(|(_, buffer)| buffer))
                .collect();
            let packed = scan
                .allows_packed
                .then(|| PackedRow::of(table, block.as_ref(), &buffers, view));
            let row = match packed.flatten() {
                Some(packed) => Some(Row::packed(next, table.families.clone(), Arc::new(packed))),
                None => {
                    let stored = match block {
                        Some(block) => stored_cells(core, table, next, &block, scan.skip_damaged.as_ref())?,
                        None => None,
                    };
                    let cells = merge::merge(stored, &buffers, view);
                    Row::of(next, table.families.clone(), cells)
                }
            };
            bytes += row.as_ref().map_or(0, Row::byte_len);
            step.rows.extend(row);
            mismatches = 0;
        } else {
            mismatches += 1;
            if mismatches % SEEK_AFTER == 0 {
                step.seek = filter.and_then(|filter| filter.seek_after(next));
                if step.seek.is_some() {
                    break;
                }
            }
        }
        if step.rows.len() >= batch_limit || bytes >= STEP_BYTES {
            break;
        }
    }
    step.last_key = Some(key);
    Ok(step)
}

/// Records damage, or fails if the read does not skip damage.
fn skip_or_fail(skip_damaged: Option<&DamageLog>, damage: DamagedRange) -> Result<(), StoreError> {
    match skip_damaged {
        Some(log) => {
            log.record(damage);
            Ok(())
        }
        None => Err(damage.error()),
    }
}

/// The cells of a row block; none if it is damaged and the read skips damage.
fn stored_cells(
    core: &Core,
    table: &Table,
    row: &[u8],
    block: &[u8],
    skip_damaged: Option<&DamageLog>,
) -> Result<Option<CellList>, StoreError> {
    match (blocks::decode(table, row, block), skip_damaged) {
        (Ok(cells), _) => Ok(Some(cells)),
        (Err(error), None) => Err(error),
        (Err(error), Some(log)) => {
            log.record(DamagedRange {
                table: table.def.name.clone(),
                start: row.to_vec(),
                stop: [row, &[0]].concat(),
                file: core.folder.blocks().display().to_string(),
                detail: error.to_string(),
            });
            Ok(None)
        }
    }
}

/// Measures the first rows of a range by their keys.
pub(super) fn measure(
    core: &Core,
    table: &Table,
    start: &[u8],
    stop: &[u8],
    limit: usize,
) -> Result<RangeMeasure, StoreError> {
    core.blocks
        .with_repair(|| try_measure(core, table, start, stop, limit))
}

fn try_measure(
    core: &Core,
    table: &Table,
    start: &[u8],
    stop: &[u8],
    limit: usize,
) -> Result<RangeMeasure, BlockError> {
    let range = Scan::range(start, stop);
    loop {
        let generation = table.generation.load(Ordering::SeqCst);
        // The first rows overall are among the first rows of each source.
        let mut rows = BTreeMap::<Vec<u8>, u64>::new();
        {
            let memory = table.memory.read();
            for memtable in std::iter::once(&memory.active).chain(memory.frozen.as_deref()) {
                for (key, buffer) in memtable.range(bounds(&range)).take(limit.saturating_add(1)) {
                    *rows.entry(key.to_vec()).or_default() += buffer.byte_len() as u64;
                }
            }
        }
        let stored = core.blocks.range(table, start, stop, false)?;
        for row in stored.take(limit.saturating_add(1)) {
            let (key, block) = row?;
            let key = key.get(2..).unwrap_or_default();
            *rows.entry(key.to_vec()).or_default() += block.len() as u64;
        }
        if table.generation.load(Ordering::SeqCst) == generation {
            return Ok(RangeMeasure::of(rows, limit));
        }
    }
}

fn keeps(scan: &Scan, key: &[u8]) -> bool {
    scan.filter.as_ref().is_none_or(|filter| filter.keeps(key))
}

fn bounds(scan: &Scan) -> (Bound<&[u8]>, Bound<&[u8]>) {
    let start = scan.start.as_slice();
    let stop = match scan.stop.as_slice() {
        [] => Bound::Unbounded,
        // The map panics when a range ends before its start; this one is empty.
        stop => Bound::Excluded(stop.max(start)),
    };
    (Bound::Included(start), stop)
}

/// The iterator, reversed if requested.
fn directed<'a, T: 'a>(
    iterator: impl DoubleEndedIterator<Item = T> + 'a,
    reverse: bool,
) -> Box<dyn Iterator<Item = T> + 'a> {
    if reverse {
        Box::new(iterator.rev())
    } else {
        Box::new(iterator)
    }
}
