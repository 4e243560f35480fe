//! Numbers for the time columns of a part, equal columns the same one.

use std::hash::{BuildHasher, RandomState};

use hashbrown::HashMap;
use rustc_hash::FxBuildHasher;

use oxtsdb_storage_file::varint;

/// Columns that are remembered: they fit into 2^20 buckets of the table, 26 MB. Later ones are stored, and not found
/// again: the series of an agent repeat its columns in the same order for each metric, so the first columns are found
/// again.
const REMEMBERED: usize = (1 << 20) / 8 * 7;

/// Shared time columns of a part that is being written.
#[derive(Debug, Default)]
pub(super) struct SharedTimes {
    /// Columns are compared by two keyed hashes, 128 bits that a writer of points cannot foresee.
    hashers: [RandomState; 2],
    numbers: HashMap<(u64, u64), u32, FxBuildHasher>,
    next: u32,
    /// The page that is being built.
    lengths: Vec<u8>,
    columns: Vec<u8>,
    count: u64,
}

impl SharedTimes {
    /// The number of a column by its encoding.
    pub(super) fn number(&mut self, encoded: &[u8]) -> u32 {
        let [one, other] = &self.hashers;
        let hash = (one.hash_one(encoded), other.hash_one(encoded));
        if let Some(number) = self.numbers.get(&hash) {
            return *number;
        }
        let number = self.next;
        self.next += 1;
        if self.numbers.len() < REMEMBERED {
            self.numbers.insert(hash, number);
        }
        varint::put(&mut self.lengths, encoded.len() as u64);
        self.columns.extend_from_slice(encoded);
        self.count += 1;
        number
    }

    /// Bytes of the page so far.
    pub(super) const fn byte_len(&self) -> usize {
        self.lengths.len() + self.columns.len()
    }

    /// Appends the page to `bytes`, and begins the next one. Returns its number of columns; `None` if it has none.
    pub(super) fn finish(&mut self, bytes: &mut Vec<u8>) -> Option<u64> {
        let count = std::mem::take(&mut self.count);
        if count == 0 {
            return None;
        }
        varint::put(bytes, count);
        bytes.append(&mut self.lengths);
        bytes.append(&mut self.columns);
        Some(count)
    }
}
