//! Reads: rows assembled from their cells, each as of one snapshot.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use bytes::Bytes;

use super::catalog::Table;
use super::core::Core;
use super::key::{self, Column};
use super::merge::Merge;
use super::table::TableError;
use super::tree::{ReadError, Snapshot};
use crate::cell_list::{CellList, RawCell};
use crate::rules::Columns;
use crate::{DamageLog, DamagedRange, RangeMeasure, Row, Scan, StoreError};

/// The most cells that one step of a scan examines, rounded up to whole rows: a step holds a thread, and delays
/// repairs.
const STEP_CELLS: usize = 16_384;
/// The most bytes that one step of a scan copies, rounded up to whole rows.
const STEP_BYTES: usize = 8 << 20;
/// The most cells and bytes of a part of a row; the cell that exceeds the bytes is part of it.
const PART_CELLS: usize = 1_024;
const PART_BYTES: usize = 1 << 20;
/// The most cells and bytes that a read examines on the caller's thread.
const INLINE_CELLS: usize = 256;
const INLINE_BYTES: usize = 64 << 10;
/// Consecutive mismatches after which the filter is queried for a seek hint: examining the next key is cheaper
/// than a seek.
const SEEK_AFTER: usize = 64;

/// How many cells a read may examine.
#[derive(Debug)]
pub(super) struct Allowance {
    cells: usize,
    bytes: usize,
}

impl Allowance {
    /// Any number of cells, for reads that may block.
    pub(super) const UNBOUNDED: Self = Self {
        cells: usize::MAX,
        bytes: usize::MAX,
    };

    /// The cells of reads on the threads of a runtime.
    pub(super) const INLINE: Self = Self {
        cells: INLINE_CELLS,
        bytes: INLINE_BYTES,
    };

    /// Takes a cell; `false` if none may follow it.
    const fn take(&mut self, bytes: usize) -> bool {
        self.cells = self.cells.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(bytes);
        self.cells > 0 && self.bytes > 0
    }
}

/// The selected keys and values of a row.
type Items = Vec<(Vec<u8>, Bytes)>;

/// The cells that a read of a table selects.
#[derive(Debug)]
pub(super) struct View {
    columns: Columns,
    max_versions: [u32; 16],
    /// The oldest timestamp of each family that has not expired.
    oldest_ms: [i64; 16],
}

impl View {
    pub(super) fn new(core: &Core, table: &Table, columns: Columns, max_versions: u32) -> Self {
        Self {
            columns,
            max_versions: table.max_versions.map(|kept| kept.min(max_versions)),
            oldest_ms: table.oldest_ms(core.time.now_ms()),
        }
    }

    /// The selected keys and values of a row, or more; `None` if the allowance does not suffice.
    fn items(
        &self,
        snapshot: &Snapshot,
        row_prefix: Vec<u8>,
        allowance: &mut Allowance,
    ) -> Result<Option<Items>, TableError> {
        let (start, end) = match &self.columns {
            Columns::All => key::bounds(row_prefix),
            Columns::Family(family) => key::bounds(key::family_prefix(&row_prefix, *family)),
            Columns::Some(columns) => {
                let mut keys: Vec<Vec<u8>> = columns
                    .iter()
                    .map(|(family, qualifier)| key::column(&row_prefix, *family, qualifier))
                    .collect();
                keys.dedup();
                let mut selected = Vec::new();
                for key in keys {
                    let value = snapshot.get(&key)?;
                    if !allowance.take(value.as_ref().map_or(0, Bytes::len)) {
                        return Ok(None);
                    }
                    selected.extend(value.map(|value| (key, value)));
                }
                return Ok(Some(selected));
            }
        };
        let mut selected = Vec::new();
        let mut items = snapshot.range(&start, &end, false)?;
        while items.advance()? {
            selected.extend(items.value().map(|value| (items.key().to_vec(), value.clone())));
            if !allowance.take(items.value().map_or(0, Bytes::len)) {
                return Ok(None);
            }
        }
        Ok(Some(selected))
    }
}

pub(super) fn undecodable(table: &Table, row: &[u8]) -> StoreError {
    StoreError::Corrupt {
        place: format!("table `{}` row {}", table.def.name, row.escape_ascii()),
        detail: "a cell cannot be decoded".to_owned(),
    }
}

/// Selects from the columns of a row, given in the order of their keys.
fn assemble(
    table: &Table,
    row: Vec<u8>,
    prefix_len: usize,
    items: &[(Vec<u8>, Bytes)],
    view: &View,
) -> Result<Option<Row>, StoreError> {
    let mut cells = CellList::default();
    let mut qualifier = Vec::new();
    let mut has_long = false;
    for (key, stored) in items {
        let damaged = || undecodable(table, &row);
        let column = key
            .get(prefix_len..)
            .and_then(|after_row| Column::decode(after_row, stored, &mut qualifier));
        let column = column.ok_or_else(damaged)?;
        let name = column.long_qualifier.unwrap_or(&qualifier);
        if !view.columns.contains(column.family, name) {
            continue;
        }
        has_long |= column.long_qualifier.is_some();
        let family = usize::from(column.family);
        let max_versions = view.max_versions.get(family).ok_or_else(damaged)?;
        let oldest_ms = view.oldest_ms.get(family).ok_or_else(damaged)?;
        for version in column.versions().take(*max_versions as usize) {
            let (time, value) = version.ok_or_else(damaged)?;
            if time >= *oldest_ms {
                cells.push(column.family, name, time, value);
            }
        }
    }
    if has_long {
        // Stable: versions keep their order.
        let mut sorted: Vec<RawCell<'_>> = cells.iter().collect();
        sorted.sort_by_key(|cell| (cell.family, cell.qualifier));
        let mut in_order = CellList::default();
        for cell in sorted {
            in_order.push(cell.family, cell.qualifier, cell.timestamp_ms, cell.value);
        }
        cells = in_order;
    }
    Ok(Row::from_cells(row.as_slice(), table.families.clone(), cells))
}

/// Reads rows by key; `None` if the allowance does not suffice for all of them.
pub(super) fn rows(
    core: &Core,
    snapshot: &Snapshot,
    table: &Table,
    keys: &[Vec<u8>],
    view: &View,
    skip_damaged: Option<&DamageLog>,
    mut allowance: Allowance,
) -> Result<Option<Vec<Option<Row>>>, ReadError> {
    let mut rows = Vec::with_capacity(keys.len());
    for row in keys {
        if let Some(damage) = core.tree.set_aside.row_damage(table, row) {
            skip_or_fail(skip_damaged, damage)?;
        }
        let prefix = key::row_prefix(table.id, row);
        let prefix_len = prefix.len();
        let Some(items) = view.items(snapshot, prefix, &mut allowance)? else {
            return Ok(None);
        };
        rows.push(assemble(table, row.clone(), prefix_len, &items, view)?);
    }
    Ok(Some(rows))
}

/// The remainder of a family of a row that is read in parts.
#[derive(Debug)]
pub(super) struct RowCursor {
    row: Vec<u8>,
    view: View,
    /// The keys that follow: from this one (inclusive) to `end` (exclusive).
    next: Vec<u8>,
    end: Vec<u8>,
    pub(super) done: bool,
}

impl RowCursor {
    pub(super) fn new(table: &Table, row: &[u8], family: u8, view: View) -> Self {
        let prefix = key::row_prefix(table.id, row);
        let (next, end) = key::bounds(key::family_prefix(&prefix, family));
        Self {
            row: row.to_vec(),
            view,
            next,
            end,
            done: false,
        }
    }
}

/// The next part of a row; advances `cursor`. `None` is not the end: all versions may have expired.
pub(super) fn part(
    core: &Core,
    snapshot: &Snapshot,
    table: &Table,
    cursor: &mut RowCursor,
) -> Result<Option<Row>, ReadError> {
    if let Some(damage) = core.tree.set_aside.row_damage(table, &cursor.row) {
        skip_or_fail(None, damage)?;
    }
    let mut allowance = Allowance {
        cells: PART_CELLS,
        bytes: PART_BYTES,
    };
    let (mut selected, mut next) = (Items::new(), None);
    let mut items = snapshot.range(&cursor.next, &cursor.end, false)?;
    while items.advance()? {
        selected.extend(items.value().map(|value| (items.key().to_vec(), value.clone())));
        if !allowance.take(items.value().map_or(0, Bytes::len)) {
            // Behind all versions of the key in a memtable; no other key begins with it.
            next = Some(key::bounds(items.key().to_vec()).1);
            break;
        }
    }
    let prefix_len = key::row_prefix(table.id, &cursor.row).len();
    let part = assemble(table, cursor.row.clone(), prefix_len, &selected, &cursor.view)?;
    match next {
        Some(next) => cursor.next = next,
        None => cursor.done = true,
    }
    Ok(part)
}

/// The remainder of a scan: its range shrinks and its limit decreases.
#[derive(Debug)]
pub(super) struct Cursor {
    pub(super) scan: Scan,
    pub(super) view: View,
    pub(super) done: bool,
}

/// The next rows of a scan; advances `cursor`. An empty result is not the end.
pub(super) fn step(
    core: &Core,
    snapshot: &Snapshot,
    table: &Table,
    cursor: &mut Cursor,
) -> Result<Vec<Row>, ReadError> {
    cursor.done |= is_over(&cursor.scan);
    if cursor.done {
        return Ok(Vec::new());
    }
    let scan = &cursor.scan;
    let set_aside = &core.tree.set_aside;
    let subrange = set_aside.first_subrange(table, &scan.start, &scan.stop, scan.reverse);
    if let Some(damage) = subrange.damage {
        skip_or_fail(scan.skip_damaged.as_ref(), damage)?;
    }
    let (start, stop) = match (&subrange.end, scan.reverse) {
        (None, _) => (&scan.start, &scan.stop),
        (Some(end), true) => (end, &scan.stop),
        (Some(end), false) => (&scan.start, end),
    };
    let mut step = Step {
        table,
        scan,
        view: &cursor.view,
        rows: Vec::new(),
        bytes: 0,
        mismatches: 0,
        prefix: Vec::new(),
        row: Vec::new(),
        is_kept: false,
        items: Vec::new(),
    };
    let (start, stop) = range(table, start, stop);
    let next = step.run(snapshot.range(&start, &stop, scan.reverse)?)?;
    let rows = step.rows;
    if let Some(limit) = &mut cursor.scan.limit {
        *limit -= rows.len() as u64;
    }
    match (next, subrange.end) {
        (Some(Next::After(row)), _) => cursor.scan = cursor.scan.clone().resume_after(&row),
        (Some(Next::Seek(row)), _) => cursor.scan.start = row,
        (None, Some(end)) if cursor.scan.reverse => cursor.scan.stop = end,
        (None, Some(end)) => cursor.scan.start = end,
        (None, None) => cursor.done = true,
    }
    cursor.done |= is_over(&cursor.scan);
    Ok(rows)
}

/// Whether the scan is complete.
fn is_over(scan: &Scan) -> bool {
    scan.limit == Some(0) || (!scan.stop.is_empty() && scan.stop <= scan.start)
}

/// The keys of the rows from `start` (inclusive) to `stop` (exclusive; empty: unbounded).
fn range(table: &Table, start: &[u8], stop: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let end = match (stop, table.id.checked_add(1)) {
        ([], Some(next)) => next.to_be_bytes().to_vec(),
        ([], None) => key::LAST.to_vec(),
        (stop, _) => key::row_prefix(table.id, stop),
    };
    (key::row_prefix(table.id, start), end)
}

/// Where a step ended before the end of its range.
enum Next {
    After(Vec<u8>),
    Seek(Vec<u8>),
}

/// A step of a scan: the row being read, and the finished rows.
struct Step<'a> {
    table: &'a Table,
    scan: &'a Scan,
    view: &'a View,
    rows: Vec<Row>,
    bytes: usize,
    mismatches: usize,
    /// The prefix of the current row's keys; empty before the first row.
    prefix: Vec<u8>,
    row: Vec<u8>,
    is_kept: bool,
    items: Vec<(Vec<u8>, Bytes)>,
}

impl Step<'_> {
    /// Reads rows until a limit is reached; `None` at the end of the range.
    fn run(&mut self, mut items: Merge<'_>) -> Result<Option<Next>, ReadError> {
        let mut cells = 0;
        while items.advance()? {
            let key = items.key();
            if self.prefix.is_empty() || !key.starts_with(&self.prefix) {
                if !self.prefix.is_empty() {
                    self.finish_row()?;
                    if self.is_full() || cells >= STEP_CELLS {
                        return Ok(Some(Next::After(std::mem::take(&mut self.row))));
                    }
                }
                if let ControlFlow::Break(seek) = self.begin_row(key)? {
                    return Ok(Some(Next::Seek(seek)));
                }
            }
            if self.is_kept {
                self.items
                    .extend(items.value().map(|value| (items.key().to_vec(), value.clone())));
            }
            cells += 1;
        }
        self.finish_row()?;
        Ok(None)
    }

    fn is_full(&self) -> bool {
        let limit = self
            .scan
            .limit
            .map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
        self.rows.len() >= self.scan.batch_rows.min(limit) || self.bytes >= STEP_BYTES
    }

    /// Begins the row of a key. Breaks with the filter's seek hint, if it is due.
    fn begin_row(&mut self, key: &[u8]) -> Result<ControlFlow<Vec<u8>>, StoreError> {
        let decoded =
            key::row_prefix_len(key).and_then(|length| Some((key.get(..length)?, key::row_of(key)?)));
        let (prefix, row) = decoded.ok_or_else(|| undecodable(self.table, key))?;
        self.prefix.clear();
        self.prefix.extend_from_slice(prefix);
        self.row = row;
        let filter = self.scan.filter.as_ref();
        self.is_kept = filter.is_none_or(|filter| filter.keeps(&self.row));
        if self.is_kept {
            self.mismatches = 0;
            return Ok(ControlFlow::Continue(()));
        }
        self.mismatches += 1;
        let is_due = self.mismatches.is_multiple_of(SEEK_AFTER) && !self.scan.reverse;
        let seek = filter
            .filter(|_| is_due)
            .and_then(|filter| filter.seek_after(&self.row));
        Ok(seek.map_or(ControlFlow::Continue(()), ControlFlow::Break))
    }

    fn finish_row(&mut self) -> Result<(), StoreError> {
        if self.items.is_empty() {
            return Ok(());
        }
        if self.scan.reverse {
            self.items.reverse();
        }
        let row = assemble(
            self.table,
            self.row.clone(),
            self.prefix.len(),
            &self.items,
            self.view,
        )?;
        self.items.clear();
        self.bytes += row.as_ref().map_or(0, Row::byte_len);
        self.rows.extend(row);
        Ok(())
    }
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

/// Measures the first rows of a range by their keys.
pub(super) fn measure(
    snapshot: &Snapshot,
    table: &Table,
    start: &[u8],
    stop: &[u8],
    limit: usize,
) -> Result<RangeMeasure, ReadError> {
    let (start, stop) = range(table, start, stop);
    let mut rows = BTreeMap::new();
    let (mut prefix, mut bytes) = (Vec::new(), 0);
    let add = |rows: &mut BTreeMap<Vec<u8>, u64>, prefix: &[u8], bytes| {
        rows.extend(key::row_of(prefix).map(|row| (row, bytes)));
    };
    let mut items = snapshot.range(&start, &stop, false)?;
    while items.advance()? {
        let key = items.key();
        if prefix.is_empty() || !key.starts_with(&prefix) {
            add(&mut rows, &prefix, bytes);
            if rows.len() > limit {
                return Ok(RangeMeasure::from_rows(rows, limit));
            }
            let length = key::row_prefix_len(key).ok_or_else(|| undecodable(table, key))?;
            prefix = key.get(..length).unwrap_or_default().to_vec();
            bytes = 0;
        }
        bytes += (key.len() + items.value().map_or(0, Bytes::len)) as u64;
    }
    add(&mut rows, &prefix, bytes);
    Ok(RangeMeasure::from_rows(rows, limit))
}
