//! Entries of a block: ascending keys, each with a value or removed.
//!
//! ```text
//!   block     entry ... | offset of a restart (4) ... | number of restarts (4)
//!   entry     shared | rest | value length + 1, or 0 if removed | rest of the key | value
//! ```
//!
//! A key is the first `shared` bytes of the key before it and its own rest. Every 16th entry is a restart, which shares
//! nothing, so that a key is found by binary search.

use bytes::Bytes;
use oxtsdb_storage_file::varint::{self, Reader};

const RESTART: usize = 16;

/// Builds a block.
#[derive(Debug, Default)]
pub(crate) struct BlockWriter {
    bytes: Vec<u8>,
    restarts: Vec<u32>,
    entries: usize,
    last_key: Vec<u8>,
}

impl BlockWriter {
    /// Adds an entry, greater than all others.
    pub(crate) fn push(&mut self, key: &[u8], value: Option<&[u8]>) {
        let shared = if self.entries.is_multiple_of(RESTART) {
            self.restarts
                .push(u32::try_from(self.bytes.len()).unwrap_or(u32::MAX));
            0
        } else {
            let pairs = self.last_key.iter().zip(key);
            pairs.take_while(|(a, b)| a == b).count()
        };
        let rest = key.get(shared..).unwrap_or_default();
        varint::put(&mut self.bytes, shared as u64);
        varint::put(&mut self.bytes, rest.len() as u64);
        varint::put(&mut self.bytes, value.map_or(0, |value| value.len() as u64 + 1));
        self.bytes.extend_from_slice(rest);
        self.bytes.extend_from_slice(value.unwrap_or_default());
        self.last_key.truncate(shared);
        self.last_key.extend_from_slice(rest);
        self.entries += 1;
    }

    pub(crate) const fn byte_len(&self) -> usize {
        self.bytes.len()
    }

    pub(crate) const fn len(&self) -> usize {
        self.entries
    }

    pub(crate) fn last_key(&self) -> &[u8] {
        &self.last_key
    }

    /// The block; the writer is empty afterwards.
    pub(crate) fn finish(&mut self) -> Vec<u8> {
        let mut bytes = std::mem::take(&mut self.bytes);
        for restart in &self.restarts {
            bytes.extend_from_slice(&restart.to_be_bytes());
        }
        let restarts = u32::try_from(self.restarts.len()).unwrap_or(u32::MAX);
        bytes.extend_from_slice(&restarts.to_be_bytes());
        *self = Self::default();
        bytes
    }
}

/// A block is not what [`BlockWriter`] writes.
#[derive(Debug)]
pub(crate) struct Undecodable;

/// A key, and its value unless it was removed.
pub(crate) type KeyValue = (Vec<u8>, Option<Bytes>);

/// A block of entries.
#[derive(Clone, Debug)]
pub(crate) struct Block {
    bytes: Bytes,
    /// Where the entries end.
    end: usize,
    restarts: usize,
}

struct Entry {
    shared: usize,
    rest: std::ops::Range<usize>,
    value: Option<std::ops::Range<usize>>,
}

impl Block {
    pub(crate) fn decode(bytes: Bytes) -> Result<Self, Undecodable> {
        let count = bytes.last_chunk().copied().map(u32::from_be_bytes);
        let restarts = count
            .and_then(|count| usize::try_from(count).ok())
            .ok_or(Undecodable)?;
        let table = restarts.checked_mul(4).and_then(|table| table.checked_add(4));
        let end = table
            .and_then(|table| bytes.len().checked_sub(table))
            .ok_or(Undecodable)?;
        Ok(Self { bytes, end, restarts })
    }

    fn entry(&self, offset: usize) -> Result<Entry, Undecodable> {
        let decode = || {
            let mut reader = Reader(self.bytes.get(offset..self.end)?);
            let shared = reader.length()?;
            let rest = reader.length()?;
            let value = reader.length()?;
            let start = self.end - reader.0.len();
            let rest = start..start.checked_add(rest)?;
            let value = match value.checked_sub(1) {
                Some(length) => Some(rest.end..rest.end.checked_add(length)?),
                None => None,
            };
            let end = value.as_ref().map_or(rest.end, |value| value.end);
            (end <= self.end).then_some(Entry { shared, rest, value })
        };
        decode().ok_or(Undecodable)
    }

    fn restart(&self, index: usize) -> Result<usize, Undecodable> {
        let offset = self
            .bytes
            .get(self.end + 4 * index..)
            .and_then(<[u8]>::first_chunk);
        let offset = offset.copied().map(u32::from_be_bytes).ok_or(Undecodable)?;
        usize::try_from(offset).map_err(|_| Undecodable)
    }

    /// A cursor at the last restart with a key not greater than `key`, or at the first restart.
    fn restart_before(&self, key: &[u8]) -> Result<BlockCursor, Undecodable> {
        let (mut low, mut high) = (0, self.restarts);
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            let entry = self.entry(self.restart(middle)?)?;
            if self.bytes.get(entry.rest).unwrap_or_default() <= key {
                low = middle;
            } else {
                high = middle;
            }
        }
        let mut cursor = self.first();
        if low > 0 {
            cursor.next = self.restart(low)?;
        }
        cursor.advance()?;
        Ok(cursor)
    }

    /// A cursor before the first entry.
    pub(crate) fn first(&self) -> BlockCursor {
        BlockCursor {
            block: self.clone(),
            next: 0,
            key: Vec::new(),
            value: None,
            is_valid: false,
        }
    }

    /// A cursor at the first entry that is not less than a key.
    pub(crate) fn seek(&self, key: &[u8]) -> Result<BlockCursor, Undecodable> {
        let mut cursor = self.restart_before(key)?;
        while cursor.is_valid() && cursor.key() < key {
            cursor.advance()?;
        }
        Ok(cursor)
    }

    /// The value of a key; `Some(None)`: it was removed.
    pub(crate) fn get(&self, key: &[u8]) -> Result<Option<Option<Bytes>>, Undecodable> {
        let cursor = self.seek(key)?;
        Ok((cursor.is_valid() && cursor.key() == key).then(|| cursor.value()))
    }

    /// All entries.
    pub(crate) fn entries(&self) -> Result<Vec<KeyValue>, Undecodable> {
        let mut entries = Vec::new();
        let mut cursor = self.first();
        while cursor.advance()? {
            entries.push((cursor.key().to_vec(), cursor.value()));
        }
        Ok(entries)
    }

    pub(crate) fn byte_len(&self) -> usize {
        self.bytes.len()
    }
}

/// A place in a block.
#[derive(Clone, Debug)]
pub(crate) struct BlockCursor {
    block: Block,
    next: usize,
    key: Vec<u8>,
    value: Option<std::ops::Range<usize>>,
    is_valid: bool,
}

impl BlockCursor {
    /// Moves to the next entry; `false` if there is none.
    pub(crate) fn advance(&mut self) -> Result<bool, Undecodable> {
        if self.next >= self.block.end {
            self.is_valid = false;
            return Ok(false);
        }
        let entry = self.block.entry(self.next)?;
        if entry.shared > self.key.len() {
            return Err(Undecodable);
        }
        self.key.truncate(entry.shared);
        let rest = self.block.bytes.get(entry.rest.clone());
        self.key.extend_from_slice(rest.unwrap_or_default());
        self.next = entry.value.as_ref().map_or(entry.rest.end, |value| value.end);
        self.value = entry.value;
        self.is_valid = true;
        Ok(true)
    }

    pub(crate) const fn is_valid(&self) -> bool {
        self.is_valid
    }

    pub(crate) fn key(&self) -> &[u8] {
        &self.key
    }

    /// The value; `None`: the key was removed.
    pub(crate) fn value(&self) -> Option<Bytes> {
        self.value.clone().map(|value| self.block.bytes.slice(value))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn entries_round_trip(
            entries in prop::collection::btree_map(
                prop::collection::vec(0..4_u8, 0..12),
                prop::option::of(prop::collection::vec(any::<u8>(), 0..20)),
                0..80,
            ),
            probe in prop::collection::vec(0..4_u8, 0..12),
        ) {
            let mut writer = BlockWriter::default();
            for (key, value) in &entries {
                writer.push(key, value.as_deref());
            }
            let block = Block::decode(writer.finish().into()).unwrap();
            let decoded: BTreeMap<Vec<u8>, Option<Vec<u8>>> = block
                .entries()
                .unwrap()
                .into_iter()
                .map(|(key, value)| (key, value.map(|value| value.to_vec())))
                .collect();
            prop_assert_eq!(&decoded, &entries);
            let cursor = block.seek(&probe).unwrap();
            let expected = entries.range(probe.clone()..).next().map(|(key, _)| key.as_slice());
            prop_assert_eq!(cursor.is_valid().then(|| cursor.key()), expected);
            let value = block.get(&probe).unwrap().map(|value| value.map(|value| value.to_vec()));
            prop_assert_eq!(value.as_ref(), entries.get(&probe));
        }

        #[test]
        fn arbitrary_bytes_do_not_panic(bytes: Vec<u8>, key: Vec<u8>) {
            if let Ok(block) = Block::decode(bytes.into()) {
                let _ = block.entries();
                let _ = block.get(&key);
            }
        }
    }
}
