//! The changes of one row since the last flush.
//!
//! ```text
//!   PUT            0 family | time | length | qualifier | length | value
//!   DELETE_COLUMN  1 family | time | length | qualifier
//!   DELETE_FAMILY  2 family | time
//!   DELETE_ROW     3      0 | time
//! ```
//!
//! The operation and the family share the first byte. Times and lengths are varints, a time as the difference
//! to the previous entry. A buffer is only appended to, in commit order, which makes deletes exact: a delete
//! hides the cells before it, not those after it.

use super::varint::{self, Reader};

/// A change of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry<'a> {
    pub(super) action: Action,
    pub(super) family: u8,
    /// The timestamp of the cell; for a delete, the newest timestamp that it hides.
    pub(super) timestamp_ms: i64,
    pub(super) qualifier: &'a [u8],
    pub(super) value: &'a [u8],
}

/// The kind of an [`Entry`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Put,
    DeleteColumn,
    DeleteFamily,
    DeleteRow,
}

/// The size at which a buffer is first checked for overwritten cells.
const COMPACT_AT: usize = 16 << 10;

/// The entries of a row.
#[derive(Clone, Debug)]
pub(super) struct RowBuffer {
    bytes: Vec<u8>,
    last_ms: i64,
    entries: usize,
    only_puts: bool,
    compact_at: usize,
}

impl RowBuffer {
    pub(super) fn new() -> Self {
        Self {
            bytes: Vec::new(),
            last_ms: 0,
            entries: 0,
            only_puts: true,
            compact_at: COMPACT_AT,
        }
    }

    /// Number of entries.
    pub(super) fn len(&self) -> usize {
        self.entries
    }

    /// Whether there are no deletes.
    pub(super) fn has_only_puts(&self) -> bool {
        self.only_puts
    }

    pub(super) fn byte_len(&self) -> usize {
        self.bytes.len()
    }

    /// The last byte: the position where the next entry is appended, for prefetching.
    pub(super) fn last_byte(&self) -> u8 {
        self.bytes.last().copied().unwrap_or_default()
    }

    /// The memory that the buffer occupies, in bytes.
    pub(super) fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    /// Whether it has grown enough for a compaction to pay off.
    pub(super) fn wants_compaction(&self) -> bool {
        self.bytes.len() >= self.compact_at
    }

    /// Replaces the content by its compacted form. The next compaction is due when that has grown fourfold.
    pub(super) fn replace(&mut self, mut rewritten: Self) {
        rewritten.compact_at = COMPACT_AT.max(4 * rewritten.bytes.len());
        *self = rewritten;
    }

    #[inline]
    pub(super) fn push(&mut self, entry: &Entry<'_>) {
        let operation = match entry.action {
            Action::Put => 0,
            Action::DeleteColumn => 1 << 4,
            Action::DeleteFamily => 2 << 4,
            Action::DeleteRow => 3 << 4,
        };
        self.bytes.push(operation | entry.family);
        varint::put(
            &mut self.bytes,
            varint::zigzag(entry.timestamp_ms.wrapping_sub(self.last_ms)),
        );
        self.last_ms = entry.timestamp_ms;
        self.entries += 1;
        self.only_puts &= entry.action == Action::Put;
        match entry.action {
            Action::Put => {
                self.sized(entry.qualifier);
                self.sized(entry.value);
            }
            Action::DeleteColumn => self.sized(entry.qualifier),
            Action::DeleteFamily | Action::DeleteRow => {}
        }
    }

    #[inline]
    fn sized(&mut self, bytes: &[u8]) {
        varint::put(&mut self.bytes, bytes.len() as u64);
        self.bytes.extend_from_slice(bytes);
    }

    /// The entries, in order.
    pub(super) fn entries(&self) -> impl Iterator<Item = Entry<'_>> {
        let mut reader = Reader(&self.bytes);
        let mut last_ms = 0_i64;
        std::iter::from_fn(move || {
            let first = reader.byte()?;
            last_ms = last_ms.wrapping_add(reader.signed()?);
            let action = match first >> 4 {
                0 => Action::Put,
                1 => Action::DeleteColumn,
                2 => Action::DeleteFamily,
                _ => Action::DeleteRow,
            };
            let mut entry = Entry {
                action,
                family: first & 0xf,
                timestamp_ms: last_ms,
                qualifier: &[],
                value: &[],
            };
            if matches!(action, Action::Put | Action::DeleteColumn) {
                let length = reader.length()?;
                entry.qualifier = reader.bytes(length)?;
            }
            if action == Action::Put {
                let length = reader.length()?;
                entry.value = reader.bytes(length)?;
            }
            Some(entry)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_round_trip() {
        let put = |timestamp_ms, value| Entry {
            action: Action::Put,
            family: 15,
            timestamp_ms,
            qualifier: b"q",
            value,
        };
        let entries = [
            put(1_700_000_000_000, b"one"),
            put(i64::MIN, b""),
            put(i64::MAX, b"three"),
            Entry {
                action: Action::DeleteColumn,
                family: 1,
                timestamp_ms: 7,
                qualifier: b"",
                value: b"",
            },
            Entry {
                action: Action::DeleteFamily,
                family: 2,
                timestamp_ms: 8,
                qualifier: b"",
                value: b"",
            },
            Entry {
                action: Action::DeleteRow,
                family: 0,
                timestamp_ms: 8,
                qualifier: b"",
                value: b"",
            },
        ];
        let mut buffer = RowBuffer::new();
        for entry in &entries {
            buffer.push(entry);
        }
        assert_eq!(buffer.entries().collect::<Vec<_>>(), entries);
        assert_eq!((buffer.len(), buffer.has_only_puts()), (entries.len(), false));
    }
}
