//! The keys of all series in memory, by number, and their numbers by key.
//!
//! ```text
//!   record   number (4) | length (2) | key | padding to a multiple of 4    in chunks that never move
//!   slot     hash (4) | place of the record (4)                            hash table, in 256 shards
//!   entry    place of the record (4) | metric number (4)                   by series number, in chunks
//! ```
//!
//! A place counts units of 4 bytes over all chunks. The table is sharded by the hash because a shard that grows moves
//! its slots: growing one table of ten million would stall all callers. For the same reason nothing else moves. A
//! slot has a part of the hash, so that growing reads no keys, and a lookup rarely reads another series' key.

use std::hash::Hasher as _;

use hashbrown::HashTable;
use rustc_hash::FxHasher;

use super::MetricNumber;
use crate::{PointStoreError, SeriesNumber};

const SHARDS: usize = 256;
const CHUNK_BYTES: usize = 1 << 20;
const CHUNK_ENTRIES: usize = 1 << 16;
const UNIT: usize = 4;
const CHUNK_UNITS: usize = CHUNK_BYTES / UNIT;
/// Number and length.
const HEAD: usize = 6;

/// The hash of a key.
#[derive(Clone, Copy, Debug)]
pub(super) struct KeyHash(u64);

/// Keys and numbers.
#[derive(Debug)]
pub(super) struct Keys {
    records: Vec<Vec<u8>>,
    shards: Vec<HashTable<Slot>>,
    entries: Vec<Vec<Entry>>,
    len: u32,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    hash: u32,
    place: u32,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    place: u32,
    metric: MetricNumber,
}

impl KeyHash {
    pub(super) fn new(key: &[u8]) -> Self {
        let mut hasher = FxHasher::default();
        hasher.write(key);
        Self(hasher.finish())
    }

    const fn shard(self) -> usize {
        (self.0 >> 56) as usize
    }

    const fn slot(self) -> u32 {
        (self.0 & 0xffff_ffff) as u32
    }
}

impl Slot {
    /// The table uses the lowest bits and the highest seven.
    const fn table_hash(hash: u32) -> u64 {
        (hash as u64) << 32 | hash as u64
    }
}

impl Default for Keys {
    fn default() -> Self {
        Self {
            records: Vec::new(),
            shards: vec![HashTable::new(); SHARDS],
            entries: Vec::new(),
            len: 0,
        }
    }
}

impl Keys {
    /// The number of series.
    pub(super) const fn len(&self) -> u32 {
        self.len
    }

    /// The number of a key.
    pub(super) fn find(&self, hash: KeyHash, key: &[u8]) -> Option<SeriesNumber> {
        let is_same = |slot: &Slot| slot.hash == hash.slot() && self.record(slot.place).1 == key;
        let slot = self.shards[hash.shard()].find(Slot::table_hash(hash.slot()), is_same)?;
        Some(self.record(slot.place).0)
    }

    /// The key of a series.
    pub(super) fn key(&self, series: SeriesNumber) -> Option<&[u8]> {
        Some(self.record(self.entry(series)?.place).1)
    }

    /// The metric of a series.
    pub(super) fn metric(&self, series: SeriesNumber) -> Option<MetricNumber> {
        Some(self.entry(series)?.metric)
    }

    /// Gives the next number to a key that has none.
    ///
    /// # Errors
    ///
    /// [`PointStoreError::Full`] after 2^32 - 1 series or 16 GiB of keys.
    pub(super) fn insert(
        &mut self,
        hash: KeyHash,
        key: &[u8],
        metric: MetricNumber,
    ) -> Result<SeriesNumber, PointStoreError> {
        let full = || PointStoreError::Full(format!("no numbers are left after {} series", self.len));
        let next = self.len.checked_add(1).ok_or_else(full)?;
        let length = u16::try_from(key.len()).map_err(|_| {
            PointStoreError::Invalid(format!("a key has {} bytes, limit is {}", key.len(), u16::MAX))
        })?;
        let record_bytes = (HEAD + key.len()).next_multiple_of(UNIT);
        let fits = |chunk: &Vec<u8>| chunk.len() + record_bytes <= CHUNK_BYTES;
        let (chunk, start) = match self.records.last() {
            Some(chunk) if fits(chunk) => (self.records.len() - 1, chunk.len()),
            _ => (self.records.len(), 0),
        };
        let place = u32::try_from(chunk * CHUNK_UNITS + start / UNIT).map_err(|_| full())?;
        if chunk == self.records.len() {
            self.records.push(Vec::with_capacity(CHUNK_BYTES));
        }
        let series = SeriesNumber(self.len);
        let records = &mut self.records[chunk];
        records.extend_from_slice(&series.0.to_be_bytes());
        records.extend_from_slice(&length.to_be_bytes());
        records.extend_from_slice(key);
        records.resize(start + record_bytes, 0);
        if series.index().is_multiple_of(CHUNK_ENTRIES) {
            self.entries.push(Vec::with_capacity(CHUNK_ENTRIES));
        }
        self.entries[series.index() / CHUNK_ENTRIES].push(Entry { place, metric });
        let slot = Slot {
            hash: hash.slot(),
            place,
        };
        let rehash = |slot: &Slot| Slot::table_hash(slot.hash);
        self.shards[hash.shard()].insert_unique(rehash(&slot), slot, rehash);
        self.len = next;
        Ok(series)
    }

    /// Bytes of memory.
    pub(super) fn byte_len(&self) -> usize {
        let slots: usize = self.shards.iter().map(HashTable::allocation_size).sum();
        self.records.len() * CHUNK_BYTES + self.entries.len() * CHUNK_ENTRIES * size_of::<Entry>() + slots
    }

    fn entry(&self, series: SeriesNumber) -> Option<&Entry> {
        let chunk = self.entries.get(series.index() / CHUNK_ENTRIES)?;
        chunk.get(series.index() % CHUNK_ENTRIES)
    }

    /// The number and the key of the record at a place.
    fn record(&self, place: u32) -> (SeriesNumber, &[u8]) {
        let place = place as usize;
        let record = &self.records[place / CHUNK_UNITS][place % CHUNK_UNITS * UNIT..];
        let [n0, n1, n2, n3, l0, l1, rest @ ..] = record else {
            return (SeriesNumber(u32::MAX), &[]);
        };
        let length = usize::from(u16::from_be_bytes([*l0, *l1]));
        (
            SeriesNumber(u32::from_be_bytes([*n0, *n1, *n2, *n3])),
            &rest[..length],
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_all_keys_after_growth_and_over_chunks() {
        let mut keys = Keys::default();
        let key = |number: u32| {
            let mut key = number.to_be_bytes().to_vec();
            key.resize(4 + number as usize % 40, 7);
            key
        };
        for number in 0..100_000 {
            let key = key(number);
            let hash = KeyHash::new(&key);
            assert_eq!(keys.find(hash, &key), None);
            let series = keys.insert(hash, &key, MetricNumber(number / 2)).unwrap();
            assert_eq!(series, SeriesNumber(number));
        }
        assert!(keys.records.len() > 2 && keys.entries.len() == 2);
        for number in 0..100_000 {
            let (key, series) = (key(number), SeriesNumber(number));
            assert_eq!(keys.find(KeyHash::new(&key), &key), Some(series));
            assert_eq!(keys.key(series), Some(key.as_slice()));
            assert_eq!(keys.metric(series), Some(MetricNumber(number / 2)));
        }
        assert_eq!(keys.key(SeriesNumber(100_000)), None);
    }

    #[test]
    fn a_key_of_the_longest_length_fits_and_a_longer_one_is_rejected() {
        let mut keys = Keys::default();
        let long = vec![9; usize::from(u16::MAX)];
        for _ in 0..40 {
            keys.insert(KeyHash::new(&long), &long, MetricNumber(0)).unwrap();
        }
        assert_eq!(keys.key(SeriesNumber(39)), Some(long.as_slice()));
        let longer = [long.as_slice(), &[1]].concat();
        let rejected = keys.insert(KeyHash::new(&longer), &longer, MetricNumber(0));
        assert!(matches!(rejected, Err(PointStoreError::Invalid(_))));
        assert_eq!(keys.len(), 40);
    }
}
