//! Merges the stored cells of a row with its later changes into the visible cells.
//!
//! Changes are applied in commit order. A put adds a version or replaces the one with the same timestamp; a
//! delete removes earlier cells that are not newer than the delete. Each column then keeps its newest versions,
//! as many as requested and not expired. Dropping old versions and expired cells early does not change the
//! result, because later changes drop the oldest first, too. For the same reason applying a buffer to cells
//! that already include it has no effect.

use std::cmp::Ordering;

use super::row_buffer::{Action, Entry, RowBuffer};
use crate::cell_list::{CellList, RawCell};
use crate::rules::Columns;

fn same_column(a: &Entry<'_>, b: &Entry<'_>) -> bool {
    column_order(a, b).is_eq()
}

/// Orders entries by column. Two-byte qualifiers, the common case, avoid a call of `memcmp`.
#[inline]
fn column_order(a: &Entry<'_>, b: &Entry<'_>) -> Ordering {
    let qualifiers = || match (a.qualifier, b.qualifier) {
        (&[a, c], &[b, d]) => (a, c).cmp(&(b, d)),
        (a, b) => a.cmp(b),
    };
    a.family.cmp(&b.family).then_with(qualifiers)
}

/// Sorts entries by column, stably. Concurrent writers leave rows nearly sorted, so each entry is first
/// inserted among the few entries before it.
fn sort_by_column(entries: &mut [Entry<'_>]) {
    const NEAR: usize = 16;
    for index in 1..entries.len() {
        let (sorted, rest) = entries.split_at(index);
        let is_in_place = |before: &Entry<'_>| column_order(before, &rest[0]).is_le();
        if sorted.last().is_none_or(is_in_place) {
            continue;
        }
        let near = &sorted[index.saturating_sub(NEAR)..];
        match near.iter().rposition(is_in_place) {
            None if near.len() < index => return entries.sort_by(column_order),
            position => {
                let place = index - near.len() + position.map_or(0, |position| position + 1);
                entries[place..=index].rotate_right(1);
            }
        }
    }
}

/// What a read selects, by family.
#[derive(Clone, Debug)]
pub(super) struct View {
    pub(super) columns: Columns,
    /// Maximum versions of a column.
    pub(super) max_versions: [u32; 16],
    /// Older cells have expired.
    pub(super) oldest_ms: [i64; 16],
    /// Whether stored cells may have more versions than selected, or expired ones.
    pub(super) trims_stored: bool,
}

impl View {
    /// Whether all stored cells are visible.
    pub(super) fn selects_all(&self) -> bool {
        !self.trims_stored && matches!(self.columns, Columns::All)
    }

    fn selects(&self, family: u8, qualifier: &[u8]) -> bool {
        matches!(self.columns, Columns::All) || self.columns.contains(family, qualifier)
    }

    fn is_expired(&self, family: u8, timestamp_ms: i64) -> bool {
        timestamp_ms < self.oldest_ms[usize::from(family & 0xf)]
    }
}

/// The visible cells, in order. `stored` is in order; `buffers` are ordered from old to new.
pub(super) fn merge(stored: Option<CellList>, buffers: &[&RowBuffer], view: &View) -> CellList {
    if buffers.iter().all(|buffer| buffer.len() == 0) {
        return match stored {
            Some(stored) if view.selects_all() => stored,
            Some(stored) => trim(stored.iter().map(put_of), view),
            None => CellList::default(),
        };
    }
    if let Some(cells) = appended(stored.as_ref(), buffers, view) {
        return cells;
    }
    let stored = stored.unwrap_or_default();
    let mut entries: Vec<Entry<'_>> = stored
        .iter()
        .filter(|cell| view.selects(cell.family, cell.qualifier))
        .map(put_of)
        .collect();
    for buffer in buffers {
        for entry in buffer.entries() {
            apply(&mut entries, entry, |entry| {
                view.selects(entry.family, entry.qualifier)
            });
        }
    }
    sort_by_column(&mut entries);
    trim(entries.into_iter(), view)
}

/// The shortest equivalent buffer, given the maximum versions of each family.
pub(super) fn compact(buffer: &RowBuffer, max_versions: [u32; 16]) -> RowBuffer {
    let mut row = None::<i64>;
    let mut families = [None::<i64>; 16];
    let mut entries = Vec::new();
    for entry in buffer.entries() {
        match entry.action {
            Action::DeleteRow => row = row.max(Some(entry.timestamp_ms)),
            Action::DeleteFamily => {
                let family = &mut families[usize::from(entry.family & 0xf)];
                *family = (*family).max(Some(entry.timestamp_ms));
            }
            Action::Put | Action::DeleteColumn => {}
        }
        apply(&mut entries, entry, |_| true);
    }
    sort_by_column(&mut entries);

    // Deletes come first: they apply to the stored cells, since the affected entries of this buffer are already
    // gone.
    let mut compacted = RowBuffer::new();
    let delete = |action, family, timestamp_ms| Entry {
        action,
        family,
        timestamp_ms,
        qualifier: &[],
        value: &[],
    };
    if let Some(timestamp_ms) = row {
        compacted.push(&delete(Action::DeleteRow, 0, timestamp_ms));
    }
    for (family, timestamp_ms) in (0_u8..).zip(families) {
        if let Some(timestamp_ms) = timestamp_ms {
            compacted.push(&delete(Action::DeleteFamily, family, timestamp_ms));
        }
    }
    for column in entries.chunk_by(|a, b| same_column(a, b)) {
        let newest = column
            .iter()
            .filter(|entry| entry.action == Action::DeleteColumn)
            .map(|entry| entry.timestamp_ms)
            .max();
        if let (Some(timestamp_ms), [first, ..]) = (newest, column) {
            compacted.push(&Entry {
                action: Action::DeleteColumn,
                timestamp_ms,
                value: &[],
                ..*first
            });
        }
    }
    let view = View {
        columns: Columns::All,
        max_versions,
        oldest_ms: [i64::MIN; 16],
        trims_stored: true,
    };
    let cells = trim(entries.into_iter(), &view);
    for cell in cells.iter() {
        compacted.push(&put_of(cell));
    }
    compacted
}

fn put_of(cell: RawCell<'_>) -> Entry<'_> {
    let RawCell {
        family,
        qualifier,
        timestamp_ms,
        value,
    } = cell;
    Entry {
        action: Action::Put,
        family,
        timestamp_ms,
        qualifier,
        value,
    }
}

/// The common case without a sort: only puts, each to a column after the previous one.
fn appended(stored: Option<&CellList>, buffers: &[&RowBuffer], view: &View) -> Option<CellList> {
    let mut last: Option<(u8, &[u8])> = stored
        .and_then(|stored| stored.iter().next_back())
        .map(|cell| (cell.family, cell.qualifier));
    for entry in buffers.iter().flat_map(|buffer| buffer.entries().take(1)) {
        // Detects most other rows early.
        if entry.action != Action::Put || last.is_some_and(|last| last >= (entry.family, entry.qualifier)) {
            return None;
        }
    }
    let mut cells = match stored {
        Some(stored) if view.selects_all() => stored.clone(),
        Some(stored) => trim(stored.iter().map(put_of), view),
        None => CellList::default(),
    };
    cells.reserve(
        buffers.iter().map(|buffer| buffer.len()).sum(),
        buffers.iter().map(|buffer| buffer.byte_len()).sum(),
    );
    for entry in buffers.iter().flat_map(|buffer| buffer.entries()) {
        let column = (entry.family, entry.qualifier);
        if entry.action != Action::Put || last.is_some_and(|last| last >= column) {
            return None;
        }
        last = Some(column);
        if view.selects(entry.family, entry.qualifier) && !view.is_expired(entry.family, entry.timestamp_ms) {
            cells.push(entry.family, entry.qualifier, entry.timestamp_ms, entry.value);
        }
    }
    Some(cells)
}

/// Appends an entry. Deletes of a column are kept and applied once the entries of the column are adjacent;
/// other deletes are applied immediately.
fn apply<'a>(entries: &mut Vec<Entry<'a>>, entry: Entry<'a>, wants: impl Fn(&Entry<'_>) -> bool) {
    match entry.action {
        Action::Put | Action::DeleteColumn => {
            if wants(&entry) {
                entries.push(entry);
            }
        }
        Action::DeleteFamily => {
            entries.retain(|earlier| {
                earlier.family != entry.family || earlier.timestamp_ms > entry.timestamp_ms
            });
        }
        Action::DeleteRow => entries.retain(|earlier| earlier.timestamp_ms > entry.timestamp_ms),
    }
}

/// The remaining cells of entries sorted by column, and by commit order within a column.
fn trim<'a>(entries: impl Iterator<Item = Entry<'a>>, view: &View) -> CellList {
    let mut cells = CellList::default();
    cells.reserve(entries.size_hint().0, 0);
    let mut versions: Vec<Entry<'a>> = Vec::new();
    let mut finish = |versions: &mut Vec<Entry<'a>>| {
        let max_versions = versions
            .first()
            .map_or(0, |first| view.max_versions[usize::from(first.family & 0xf)]);
        if versions.len() > 1 {
            // Newest first, with only the last entry of each timestamp.
            versions.reverse();
            versions.sort_by_key(|version| std::cmp::Reverse(version.timestamp_ms));
            versions.dedup_by_key(|version| version.timestamp_ms);
        }
        for version in versions.iter().take(max_versions as usize) {
            if !view.is_expired(version.family, version.timestamp_ms) {
                cells.push(
                    version.family,
                    version.qualifier,
                    version.timestamp_ms,
                    version.value,
                );
            }
        }
        versions.clear();
    };
    let mut column: Option<Entry<'a>> = None;
    for entry in entries.filter(|entry| view.selects(entry.family, entry.qualifier)) {
        if column.is_some_and(|column| !same_column(&column, &entry)) {
            finish(&mut versions);
        }
        column = Some(entry);
        match entry.action {
            Action::DeleteColumn => versions.retain(|version| version.timestamp_ms > entry.timestamp_ms),
            _ => versions.push(entry),
        }
    }
    finish(&mut versions);
    cells
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Entries whose columns are `jumps` apart; the timestamp is the index in the sequence.
    fn entries<'a>(jumps: &[i8], qualifiers: &'a [[u8; 2]]) -> Vec<Entry<'a>> {
        let mut column = 128_i16;
        (0..)
            .zip(jumps)
            .map(|(timestamp_ms, jump)| {
                column = (column + i16::from(*jump)).clamp(0, 255);
                let qualifier: &[u8] = &qualifiers[usize::from(column.unsigned_abs())];
                Entry {
                    action: Action::Put,
                    family: 0,
                    timestamp_ms,
                    // Some are shorter, as no real ones are.
                    qualifier: if column % 7 == 0 {
                        &qualifier[1..]
                    } else {
                        qualifier
                    },
                    value: b"",
                }
            })
            .collect()
    }

    proptest! {
        #[test]
        fn sort_is_stable(near in prop::collection::vec(-3_i8..5, 0..200), far in prop::collection::vec(any::<i8>(), 0..60)) {
            let qualifiers: Vec<[u8; 2]> = (0..=255).map(|byte| [byte / 16, byte]).collect();
            for jumps in [&near[..], &far, &[&near[..], &far].concat()] {
                let mut expected = entries(jumps, &qualifiers);
                let mut sorted = expected.clone();
                expected.sort_by(|a, b| (a.family, a.qualifier).cmp(&(b.family, b.qualifier)));
                sort_by_column(&mut sorted);
                prop_assert_eq!(sorted, expected);
            }
        }
    }
}
