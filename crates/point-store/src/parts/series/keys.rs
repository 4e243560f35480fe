//! The keys of all series in memory, by number, and their numbers by key.
//!
//! ```text
//!   template   metric UID | tagk UIDs        shared by all keys that differ in the values of their tags only
//!   values     tagv UIDs of a key            in chunks that never move
//!   entry      place of the values (4) | number of the template (4)     by series number, in chunks
//!   slot       hash (4) | series number (4)                             hash table, in 256 shards
//! ```
//!
//! A place counts tagv UIDs over all chunks. Keys are not stored as they are: a fleet has millions of series and some hundred
//! templates, so that three tags of 3 bytes take 9 bytes and not 21. The table is sharded by the hash because a shard that
//! grows moves its slots: growing one table of ten million would stall all callers. For the same reason nothing else
//! moves. A slot has a part of the hash, so that growing reads no keys, and a lookup rarely reads another series' key.

use std::hash::Hasher as _;

use hashbrown::HashTable;
use oxtsdb_schema::UidWidths;
use rustc_hash::FxHasher;

use super::MetricNumber;
use crate::{PointStoreError, SeriesNumber};

const SHARDS: usize = 256;
/// Tagv UIDs of a chunk: more than a key has.
const CHUNK_VALUES: usize = 1 << 18;
const CHUNK_ENTRIES: usize = 1 << 16;

/// The hash of a key, or of a template.
#[derive(Clone, Copy, Debug)]
pub(super) struct KeyHash(u64);

/// Keys and numbers.
#[derive(Debug)]
pub(super) struct Keys {
    widths: UidWidths,
    templates: Vec<Template>,
    /// Numbers of templates by their UIDs.
    template_numbers: HashTable<u32>,
    /// Bytes of the UIDs of all templates.
    template_bytes: usize,
    values: Vec<Vec<u8>>,
    shards: Vec<HashTable<Slot>>,
    entries: Vec<Vec<Entry>>,
    len: u32,
}

#[derive(Debug)]
struct Template {
    metric: MetricNumber,
    /// UIDs of the metric and of the tag keys.
    uids: Box<[u8]>,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    hash: u32,
    series: SeriesNumber,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    place: u32,
    template: u32,
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

impl Keys {
    pub(super) fn new(widths: UidWidths) -> Self {
        Self {
            widths,
            templates: Vec::new(),
            template_numbers: HashTable::new(),
            template_bytes: 0,
            values: Vec::new(),
            shards: vec![HashTable::new(); SHARDS],
            entries: Vec::new(),
            len: 0,
        }
    }

    /// The number of series.
    pub(super) const fn len(&self) -> u32 {
        self.len
    }

    /// The number of a key.
    pub(super) fn find(&self, hash: KeyHash, key: &[u8]) -> Option<SeriesNumber> {
        let is_same = |slot: &Slot| slot.hash == hash.slot() && self.has_key(slot.series, key);
        let slot = self.shards[hash.shard()].find(Slot::table_hash(hash.slot()), is_same)?;
        Some(slot.series)
    }

    /// Replaces `key` by the key of a series; `false` if there is no such series.
    pub(super) fn read(&self, series: SeriesNumber, key: &mut Vec<u8>) -> bool {
        key.clear();
        let Some((template, values)) = self.parts(series) else {
            return false;
        };
        let (metric, tagks) = template.uids.split_at(self.widths.metric.bytes());
        key.extend_from_slice(metric);
        let tagks = tagks.chunks_exact(self.widths.tagk.bytes());
        for (tagk, tagv) in tagks.zip(values.chunks_exact(self.widths.tagv.bytes())) {
            key.extend_from_slice(tagk);
            key.extend_from_slice(tagv);
        }
        true
    }

    /// The metric of a series.
    pub(super) fn metric(&self, series: SeriesNumber) -> Option<MetricNumber> {
        Some(self.templates[self.entry(series)?.template as usize].metric)
    }

    /// Gives the next number to a key that has none. The key is a valid TSUID.
    ///
    /// # Errors
    ///
    /// [`PointStoreError::Full`] after 2^32 - 1 series or tagv UIDs; [`PointStoreError::Invalid`] for a key of more than 64 KiB.
    pub(super) fn insert(
        &mut self,
        hash: KeyHash,
        key: &[u8],
        metric: MetricNumber,
    ) -> Result<SeriesNumber, PointStoreError> {
        let full = || PointStoreError::Full(format!("no numbers are left after {} series", self.len));
        let next = self.len.checked_add(1).ok_or_else(full)?;
        if key.len() > usize::from(u16::MAX) {
            let message = format!("a key has {} bytes, limit is {}", key.len(), u16::MAX);
            return Err(PointStoreError::Invalid(message));
        }
        let (tagk, tagv) = (self.widths.tagk.bytes(), self.widths.tagv.bytes());
        let (metric_uid, tags) = key.split_at(self.widths.metric.bytes().min(key.len()));
        let tags = || tags.chunks_exact(tagk + tagv).map(|tag| tag.split_at(tagk));
        let value_bytes = tags().len() * tagv;
        let fits = |chunk: &Vec<u8>| chunk.len() + value_bytes <= CHUNK_VALUES * tagv;
        let (chunk, start) = match self.values.last() {
            Some(chunk) if fits(chunk) => (self.values.len() - 1, chunk.len() / tagv),
            _ => (self.values.len(), 0),
        };
        let place = u32::try_from(chunk * CHUNK_VALUES + start).map_err(|_| full())?;
        let mut uids = metric_uid.to_vec();
        tags().for_each(|(tagk, _)| uids.extend_from_slice(tagk));
        let template = self.template(uids, metric);
        if chunk == self.values.len() {
            self.values.push(Vec::with_capacity(CHUNK_VALUES * tagv));
        }
        tags().for_each(|(_, value)| self.values[chunk].extend_from_slice(value));
        let series = SeriesNumber(self.len);
        if series.index().is_multiple_of(CHUNK_ENTRIES) {
            self.entries.push(Vec::with_capacity(CHUNK_ENTRIES));
        }
        self.entries[series.index() / CHUNK_ENTRIES].push(Entry { place, template });
        let slot = Slot {
            hash: hash.slot(),
            series,
        };
        let rehash = |slot: &Slot| Slot::table_hash(slot.hash);
        self.shards[hash.shard()].insert_unique(rehash(&slot), slot, rehash);
        self.len = next;
        Ok(series)
    }

    /// Bytes of memory.
    pub(super) fn byte_len(&self) -> usize {
        let slots: usize = self.shards.iter().map(HashTable::allocation_size).sum();
        let templates = self.templates.capacity() * size_of::<Template>()
            + self.template_numbers.allocation_size()
            + self.template_bytes;
        let values = self.values.len() * CHUNK_VALUES * self.widths.tagv.bytes();
        values + self.entries.len() * CHUNK_ENTRIES * size_of::<Entry>() + slots + templates
    }

    /// The number of a template, which is added if it is new.
    fn template(&mut self, uids: Vec<u8>, metric: MetricNumber) -> u32 {
        let Self { templates, .. } = self;
        let hash = |uids: &[u8]| KeyHash::new(uids).0;
        let is_same = |number: &u32| *templates[*number as usize].uids == *uids;
        if let Some(number) = self.template_numbers.find(hash(&uids), is_same) {
            return *number;
        }
        // There are no more templates than series.
        let number = u32::try_from(templates.len()).unwrap_or(u32::MAX);
        self.template_bytes += uids.len();
        let rehash = |number: &u32| hash(&templates[*number as usize].uids);
        self.template_numbers.insert_unique(hash(&uids), number, rehash);
        templates.push(Template {
            metric,
            uids: uids.into(),
        });
        number
    }

    /// Whether a series has this key.
    fn has_key(&self, series: SeriesNumber, key: &[u8]) -> bool {
        let Some((template, values)) = self.parts(series) else {
            return false;
        };
        let (metric, tagks) = template.uids.split_at(self.widths.metric.bytes());
        let Some(tags) = key.strip_prefix(metric) else {
            return false;
        };
        let tagks = tagks.chunks_exact(self.widths.tagk.bytes());
        let own = tagks.zip(values.chunks_exact(self.widths.tagv.bytes()));
        let tag_bytes = self.widths.tagk.bytes() + self.widths.tagv.bytes();
        own.len() * tag_bytes == tags.len()
            && own.zip(tags.chunks_exact(tag_bytes)).all(|((tagk, tagv), tag)| {
                let (other_tagk, other_tagv) = tag.split_at(tagk.len());
                tagk == other_tagk && tagv == other_tagv
            })
    }

    fn entry(&self, series: SeriesNumber) -> Option<&Entry> {
        let chunk = self.entries.get(series.index() / CHUNK_ENTRIES)?;
        chunk.get(series.index() % CHUNK_ENTRIES)
    }

    /// The template of a series, and its tagv UIDs.
    fn parts(&self, series: SeriesNumber) -> Option<(&Template, &[u8])> {
        let entry = self.entry(series)?;
        let template = &self.templates[entry.template as usize];
        let tags = (template.uids.len() - self.widths.metric.bytes()) / self.widths.tagk.bytes();
        let (place, tagv) = (entry.place as usize, self.widths.tagv.bytes());
        let values = &self.values[place / CHUNK_VALUES][place % CHUNK_VALUES * tagv..];
        Some((template, &values[..tags * tagv]))
    }
}

#[cfg(test)]
mod tests {
    use oxtsdb_schema::UidWidth;

    use super::*;

    /// Widths that differ from each other.
    fn widths() -> UidWidths {
        let [metric, tagk, tagv] = [2, 1, 3].map(|bytes| UidWidth::new(bytes).unwrap());
        UidWidths { metric, tagk, tagv }
    }

    /// A key of one of seven metrics, with 1 to 40 tags.
    fn key(number: u32) -> Vec<u8> {
        let mut key = vec![0, u8::try_from(number % 7).unwrap()];
        for tagk in 0..=u8::try_from(number % 40).unwrap() {
            key.push(tagk);
            key.extend_from_slice(&(number + u32::from(tagk)).to_be_bytes()[1..]);
        }
        key
    }

    #[test]
    fn finds_all_keys_after_growth_and_over_chunks() {
        let mut keys = Keys::new(widths());
        let mut stored = Vec::new();
        for number in 0..100_000 {
            let key = key(number);
            let hash = KeyHash::new(&key);
            assert_eq!(keys.find(hash, &key), None);
            let series = keys.insert(hash, &key, MetricNumber(number % 7)).unwrap();
            assert_eq!(series, SeriesNumber(number));
        }
        assert!(keys.values.len() > 2 && keys.entries.len() == 2);
        assert_eq!(keys.templates.len(), 7 * 40);
        for number in 0..100_000 {
            let (key, series) = (key(number), SeriesNumber(number));
            assert_eq!(keys.find(KeyHash::new(&key), &key), Some(series));
            assert!(keys.read(series, &mut stored));
            assert_eq!(stored, key);
            assert_eq!(keys.metric(series), Some(MetricNumber(number % 7)));
        }
        assert!(!keys.read(SeriesNumber(100_000), &mut stored));
        assert!(stored.is_empty());
    }

    #[test]
    fn keys_with_equal_hashes_are_told_apart() {
        let mut keys = Keys::new(widths());
        let hash = KeyHash(0);
        let all = [
            &[0, 1, 1, 0, 0, 1][..],
            &[0, 2, 1, 0, 0, 1],
            &[0, 1, 2, 0, 0, 1],
            &[0, 1, 1, 0, 0, 2],
            &[0, 1, 1, 0, 0, 1, 2, 0, 0, 1],
        ];
        for (number, key) in (0..).zip(all) {
            assert_eq!(keys.find(hash, key), None);
            keys.insert(hash, key, MetricNumber(0)).unwrap();
            assert_eq!(keys.find(hash, key), Some(SeriesNumber(number)));
        }
    }

    #[test]
    fn series_of_one_template_take_their_values_and_two_numbers() {
        let mut keys = Keys::new(UidWidths::default());
        let count: u32 = 4 << 16;
        for number in 0..count {
            let host = &number.to_be_bytes()[1..];
            let key = [&[0, 0, 1, 0, 0, 1], host, &[0, 0, 2, 0, 0, 1, 0, 0, 3, 0, 0, 9]].concat();
            keys.insert(KeyHash::new(&key), &key, MetricNumber(0)).unwrap();
        }
        let slots: usize = keys.shards.iter().map(HashTable::allocation_size).sum();
        // A chunk of values is not full.
        let most = count as usize * (9 + size_of::<Entry>()) + CHUNK_VALUES * 3 + slots + (4 << 10);
        assert!(keys.byte_len() <= most, "{} bytes", keys.byte_len());
    }

    #[test]
    fn a_key_of_the_longest_length_fits_and_a_longer_one_is_rejected() {
        let mut keys = Keys::new(widths());
        let long = vec![9; 2 + 4 * 16_383];
        for _ in 0..40 {
            keys.insert(KeyHash::new(&long), &long, MetricNumber(0)).unwrap();
        }
        let mut stored = Vec::new();
        assert!(keys.read(SeriesNumber(39), &mut stored));
        assert_eq!(stored, long);
        let longer = [long.as_slice(), &[1; 4]].concat();
        let rejected = keys.insert(KeyHash::new(&longer), &longer, MetricNumber(0));
        assert!(matches!(rejected, Err(PointStoreError::Invalid(_))));
        assert_eq!(keys.len(), 40);
    }
}
