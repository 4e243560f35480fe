//! The cache of series: from the names of a point to its series.
//!
//! Every point needs a look-up, so a look-up allocates nothing: the caller writes the key into a reused buffer, or
//! looks up the text of a request as it came. The key has the point's names in the order received; tags in another
//! order make another entry for the same series.
//!
//! Memory is bounded. Entries are added to the young generation. When memory is nearly full it becomes the old generation;
//! reading an old entry moves it to the young one. When memory is full, an eighth of the old generation is dropped. So series
//! that fit are all cached, also if each is read once before the first is read again.
//!
//! Series that no longer get points give their memory back: their entries expire, are not renewed, and are dropped
//! `UNUSED` steps later, a shard at each step.
//!
//! Entries are removed when an operator renames or deletes one of their names; see `watch`. They expire also,
//! because other programs rename and delete names: a set time after they were added, however often they
//! are read. Look-ups read no clock: time advances in steps (`LIFE` of them in the time to live) by
//! [`SeriesCache::advance_clock`], called once for each batch of points. The time to live varies by up to a quarter,
//! so that entries added together do not all expire together.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hashbrown::{DefaultHashBuilder, HashTable};
use oxtsdb_schema::RowKeyLayout;
use parking_lot::RwLock;

use super::changes::ChangedUids;
use super::series::{Series, SeriesKey};

/// Shards, each with a lock of its own.
const SHARDS: usize = 16;

/// Size of an entry without its key and its TSUID, in bytes; an estimate: its slot of a table that is half full, the
/// series, and what the allocator rounds up.
const ENTRY_BYTES: usize = 80;

/// Steps of the clock in the time to live. Entries expire after three quarters of them to all of them.
const LIFE: u32 = 16;

/// Steps after which an expired entry is dropped: 53 minutes by default. A series with a point after that time is
/// tracked again anyway, in its next hour, so nothing is lost with its entry.
const UNUSED: u32 = 16 * LIFE;

/// The state of a cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheFigures {
    /// Look-ups that found an entry.
    pub hits: u64,
    /// Look-ups that found none.
    pub misses: u64,
    /// Entries.
    pub entries: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// A cache of series by [`SeriesRef`](super::series::SeriesRef); see the module.
#[derive(Debug)]
pub struct SeriesCache {
    began: Instant,
    /// `None`: entries do not expire.
    step: Option<Duration>,
    /// Steps since `began`.
    now: AtomicU32,
    hasher: DefaultHashBuilder,
    shards: [RwLock<Shard>; SHARDS],
    /// Capacity of a shard, in bytes.
    shard_bytes: usize,
    /// Points with a series that was found, and points with one that was not.
    hits: AtomicU64,
    misses: AtomicU64,
}

#[derive(Debug, Default)]
struct Shard {
    young: HashTable<Entry>,
    old: HashTable<Entry>,
    /// Bytes of both.
    bytes: usize,
}

#[derive(Clone, Debug)]
struct Entry {
    /// With its key.
    series: Series,
    hash: SlotHash,
    /// The first step at which it is expired.
    expires_at: u32,
}

/// The part of a hash by which a table finds an entry, so that a table that grows reads no keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SlotHash(u32);

impl SlotHash {
    const fn from_hash(hash: u64) -> Self {
        Self((hash & 0xffff_ffff) as u32)
    }

    /// A table uses the lowest bits and the highest seven.
    const fn for_table(self) -> u64 {
        (self.0 as u64) << 32 | self.0 as u64
    }
}

impl SeriesCache {
    /// A cache of about `bytes`. Entries expire after `ttl`; `None`: never.
    pub fn new(bytes: usize, ttl: Option<Duration>) -> Self {
        Self {
            began: Instant::now(),
            step: ttl.map(|ttl| (ttl / LIFE).max(Duration::from_nanos(1))),
            now: AtomicU32::new(0),
            hasher: DefaultHashBuilder::default(),
            shards: std::array::from_fn(|_| RwLock::default()),
            shard_bytes: bytes / SHARDS,
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
        }
    }

    /// Counts points with a series that was found, and points with one that was not.
    pub fn count(&self, hits: usize, misses: usize) {
        self.hits.fetch_add(hits as u64, Ordering::Relaxed);
        self.misses.fetch_add(misses as u64, Ordering::Relaxed);
    }

    /// Its size, and the numbers of hits and misses.
    pub fn figures(&self) -> CacheFigures {
        let mut figures = CacheFigures {
            hits: self.hits.load(Ordering::Relaxed),
            misses: self.misses.load(Ordering::Relaxed),
            ..CacheFigures::default()
        };
        for shard in &self.shards {
            let shard = shard.read();
            figures.entries += (shard.young.len() + shard.old.len()) as u64;
            figures.bytes += shard.bytes as u64;
        }
        figures
    }

    /// Advances the clock of the cache, which expires entries.
    pub fn advance_clock(&self) {
        let Some(step) = self.step else { return };
        let steps = self.began.elapsed().as_nanos() / step.as_nanos();
        self.advance_to(u32::try_from(steps).unwrap_or(u32::MAX));
    }

    /// Sets the clock, and drops entries that were not used for long, of a shard for each step.
    fn advance_to(&self, now: u32) {
        let before = self.now.load(Ordering::Relaxed);
        // All readers share its cache line, so it is written only if it changes.
        let advances = before < now
            && self
                .now
                .compare_exchange(before, now, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok();
        if !advances {
            return;
        }
        for step in (before..now).take(SHARDS) {
            self.shards[step as usize % SHARDS].write().drop_unused(now);
        }
    }

    /// The series of a key.
    pub fn get(&self, key: SeriesKey<'_>) -> Option<Series> {
        let hash = key.hash(&self.hasher);
        let now = self.now.load(Ordering::Relaxed);
        let shard = &self.shards[shard_of(hash)];
        match shard.read().find(hash, key, now) {
            Found::Nothing => return None,
            Found::Young(entry) => return Some(entry.series.clone()),
            Found::Old => {}
        }
        shard.write().renew(hash, key, self.shard_bytes)
    }

    /// The series of all of these keys, in their order. Takes the lock of each shard once.
    pub fn get_all<'k>(
        &self,
        keys: impl ExactSizeIterator<Item = SeriesKey<'k>> + Clone,
    ) -> Vec<Option<Series>> {
        const END: usize = usize::MAX;
        let now = self.now.load(Ordering::Relaxed);
        let keys: Vec<_> = keys.map(|key| (key, key.hash(&self.hasher))).collect();
        // The keys of each shard as a linked list, in their order.
        let mut first = [END; SHARDS];
        let mut next = vec![END; keys.len()];
        for (index, (_, hash)) in keys.iter().enumerate().rev() {
            next[index] = std::mem::replace(&mut first[shard_of(*hash)], index);
        }
        let mut series = vec![None; keys.len()];
        let mut old = Vec::new();
        for (shard, first) in self.shards.iter().zip(first) {
            if first == END {
                continue;
            }
            let entries = shard.read();
            // In steps over all keys: waits for the memory of one entry, series or key overlap with those for others.
            let mut candidates = Vec::with_capacity(keys.len() / SHARDS * 2);
            let mut index = first;
            while index != END {
                let slot = SlotHash::from_hash(keys[index].1);
                let candidate = entries.young.find(slot.for_table(), |entry| entry.hash == slot);
                candidates.push((index, candidate));
                index = next[index];
            }
            let series_of = |candidate: &Option<&Entry>| candidate.map_or(0, |entry| entry.series.touch());
            let touched = candidates.iter().map(|(_, candidate)| series_of(candidate));
            std::hint::black_box(touched.fold(0, |sum, touched| sum ^ touched));
            for (index, candidate) in &mut candidates {
                let (key, _) = keys[*index];
                *candidate = candidate.filter(|entry| key.is(entry.series.key()) && now < entry.expires_at);
            }
            for (index, candidate) in candidates {
                let (key, hash) = keys[index];
                let entry = candidate.map_or_else(|| entries.find(hash, key, now), Found::Young);
                match entry {
                    Found::Nothing => {}
                    Found::Young(entry) => series[index] = Some(entry.series.clone()),
                    Found::Old => old.push(index),
                }
            }
            drop(entries);
            if !old.is_empty() {
                let mut shard = shard.write();
                for index in old.drain(..) {
                    let (key, hash) = keys[index];
                    series[index] = shard.renew(hash, key, self.shard_bytes);
                }
            }
        }
        series
    }

    /// Adds the series of a key and returns the cached one. A series with the same UIDs stays, and keeps its tracked
    /// hour.
    pub fn insert(&self, key: SeriesKey<'_>, series: &Series) -> Series {
        let now = self.now.load(Ordering::Relaxed);
        let hash = key.hash(&self.hasher);
        let mut shard = self.shards[shard_of(hash)].write();
        let slot = SlotHash::from_hash(hash);
        if let Some(entry) = shard
            .young
            .find_mut(slot.for_table(), |entry| key.is(entry.series.key()))
        {
            let is_same = entry.series.tsuid() == series.tsuid();
            if !is_same {
                entry.series = series.with_key(key);
            }
            if !is_same || entry.expires_at <= now {
                entry.expires_at = self.expires_at(now, hash);
            }
            return entry.series.clone();
        }
        let series = series.with_key(key);
        let entry = Entry {
            series: series.clone(),
            hash: slot,
            expires_at: self.expires_at(now, hash),
        };
        shard.insert(entry, self.shard_bytes);
        series
    }

    /// Removes the series that use one of these UIDs.
    pub(crate) fn forget(&self, layout: &RowKeyLayout, uids: &ChangedUids) {
        for shard in &self.shards {
            shard.write().retain(|entry| !entry.series.uses(layout, uids));
        }
    }

    /// Removes all series.
    pub(crate) fn clear(&self) {
        for shard in &self.shards {
            *shard.write() = Shard::default();
        }
    }

    /// The step at which an entry that is added now expires.
    fn expires_at(&self, now: u32, hash: u64) -> u32 {
        let shorter = u32::from(hash.to_be_bytes()[4]) % (LIFE / 4);
        self.step.map_or(u32::MAX, |_| now.saturating_add(LIFE - shorter))
    }
}

/// The shard of a hash, by bits that tables do not use. It is computed from all bits of the hash: keys that are short and
/// differ little have uneven ones.
const fn shard_of(hash: u64) -> usize {
    (hash.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize % SHARDS
}

/// The state of a key in a shard.
enum Found<'s> {
    /// Nothing, or an entry that is expired.
    Nothing,
    Young(&'s Entry),
    /// An entry of the old generation, which moves to the young one when it is read.
    Old,
}

impl Entry {
    fn byte_len(&self) -> usize {
        ENTRY_BYTES + self.series.byte_len()
    }
}

impl Shard {
    fn find(&self, hash: u64, key: SeriesKey<'_>, now: u32) -> Found<'_> {
        let hash = SlotHash::from_hash(hash).for_table();
        if let Some(entry) = self.young.find(hash, |entry| key.is(entry.series.key())) {
            return match now < entry.expires_at {
                true => Found::Young(entry),
                false => Found::Nothing,
            };
        }
        let old = self.old.find(hash, |entry| key.is(entry.series.key()));
        match old.is_some_and(|entry| now < entry.expires_at) {
            true => Found::Old,
            false => Found::Nothing,
        }
    }

    /// Moves an entry of the old generation to the young one, unless another thread has done so.
    fn renew(&mut self, hash: u64, key: SeriesKey<'_>, shard_bytes: usize) -> Option<Series> {
        let hash = SlotHash::from_hash(hash).for_table();
        let entry = match self.old.find_entry(hash, |entry| key.is(entry.series.key())) {
            Ok(entry) => entry.remove().0,
            Err(_) => {
                let moved = self.young.find(hash, |entry| key.is(entry.series.key()));
                return moved.map(|entry| entry.series.clone());
            }
        };
        let series = entry.series.clone();
        self.bytes = self.bytes.saturating_sub(entry.byte_len());
        self.insert(entry, shard_bytes);
        Some(series)
    }

    fn retain(&mut self, keep: impl Fn(&Entry) -> bool) {
        let Self { young, old, bytes } = self;
        for table in [young, old] {
            table.retain(|entry| {
                let keeps = keep(entry);
                if !keeps {
                    *bytes = bytes.saturating_sub(entry.byte_len());
                }
                keeps
            });
        }
    }

    /// Drops entries that expired [`UNUSED`] steps ago, and the memory of their slots.
    fn drop_unused(&mut self, now: u32) {
        self.retain(|entry| now < entry.expires_at.saturating_add(UNUSED));
        for table in [&mut self.young, &mut self.old] {
            if table.capacity() / 4 > table.len() {
                table.shrink_to(table.len() * 2, |entry| entry.hash.for_table());
            }
        }
    }

    /// Drops an eighth of the old generation.
    fn evict(&mut self) {
        let mut place = 0_usize;
        self.old.retain(|entry| {
            let keeps = !place.is_multiple_of(8);
            place += 1;
            if !keeps {
                self.bytes = self.bytes.saturating_sub(entry.byte_len());
            }
            keeps
        });
    }

    fn insert(&mut self, entry: Entry, shard_bytes: usize) {
        self.bytes += entry.byte_len();
        if self.old.is_empty() && self.bytes > shard_bytes / 8 * 7 {
            self.old = std::mem::take(&mut self.young);
        } else if self.bytes > shard_bytes {
            self.evict();
        }
        let hash = |entry: &Entry| entry.hash.for_table();
        self.young.insert_unique(hash(&entry), entry, hash);
    }
}

#[cfg(test)]
mod tests {
    use oxtsdb_schema::{Tsuid, UidWidths};

    use super::super::series::{SeriesRef, SeriesText, Syntax};
    use super::*;

    fn series(number: u32) -> Series {
        let mut bytes = vec![0, 0, 1, 0, 0, 1];
        bytes.extend_from_slice(&number.to_be_bytes()[1..]);
        let tsuid = Tsuid::from_bytes(&bytes, &UidWidths::default()).unwrap();
        Series::new(&tsuid)
    }

    fn key(series: SeriesRef<'_>) -> SeriesKey<'static> {
        let mut bytes = Vec::new();
        series.key(&mut Vec::new()).append_to(&mut bytes);
        SeriesKey::Bytes(Vec::leak(bytes))
    }

    #[test]
    fn evicts_unused_entries_within_the_memory_bound() {
        let bytes = 64 << 10;
        let cache = SeriesCache::new(bytes, None);
        let used = key(SeriesRef::Names {
            metric: "used",
            tags: &[],
        });
        cache.insert(used, &series(1));
        for number in 2..10_000 {
            let text = format!("metric.{number}");
            cache.insert(
                key(SeriesRef::Names {
                    metric: &text,
                    tags: &[],
                }),
                &series(number),
            );
            assert!(cache.get(used).is_some(), "after {number}");
        }
        let entries: usize = cache
            .shards
            .iter()
            .map(|shard| shard.read())
            .map(|shard| shard.young.len() + shard.old.len())
            .sum();
        assert!(entries < 2 * bytes / ENTRY_BYTES, "{entries} entries");
        let first = key(SeriesRef::Names {
            metric: "metric.2",
            tags: &[],
        });
        assert!(cache.get(first).is_none(), "evicted");
    }

    #[test]
    fn series_that_fit_are_all_cached() {
        let keys: Vec<_> = (0..4000_u32)
            .map(|number| key(SeriesRef::Tsuid(&number.to_be_bytes())))
            .collect();
        // Twice what they take: by chance a shard has more than others.
        let (cache, series) = (SeriesCache::new(2 * 4000 * (ENTRY_BYTES + 32), None), series(1));
        for round in 0..4 {
            let missing = keys
                .iter()
                .filter(|key| cache.get(**key).is_none())
                .inspect(|key| {
                    cache.insert(**key, &series);
                });
            assert_eq!(
                missing.count(),
                if round == 0 { 4000 } else { 0 },
                "round {round}"
            );
        }
    }

    #[test]
    fn entries_and_series_are_small() {
        assert_eq!((size_of::<Entry>(), size_of::<Series>()), (16, 8));
    }

    #[test]
    fn looks_up_many_keys_as_one_by_one() {
        let cache = SeriesCache::new(64 << 10, Some(Duration::from_secs(3600)));
        let texts: Vec<String> = (0..1000).map(|number| format!("metric.{number}")).collect();
        let keys = || {
            texts.iter().map(|metric| {
                SeriesKey::Text(SeriesText {
                    syntax: Syntax::Telnet,
                    metric,
                    tags: "a=b",
                })
            })
        };
        for (number, key) in (1..).zip(keys()).take(900) {
            cache.insert(key, &series(number));
        }
        let numbers = |found: Vec<Option<Series>>| -> Vec<Option<Vec<u8>>> {
            found
                .iter()
                .map(|series| Some(series.as_ref()?.tsuid().to_vec()))
                .collect()
        };
        // Some are evicted, others are in the old generation.
        let together = numbers(cache.get_all(keys()));
        let known = together.iter().flatten().count();
        assert!((100..900).contains(&known), "{known}");
        assert_eq!(together, numbers(cache.get_all(keys())));
        assert_eq!(together, numbers(keys().map(|key| cache.get(key)).collect()));
        for (number, found) in (1..).zip(together) {
            assert!(found.is_none_or(|tsuid| tsuid == series(number).tsuid()));
        }
        cache.now.store(u32::MAX - 1, Ordering::Relaxed);
        assert!(cache.get_all(keys()).iter().all(Option::is_none), "expired");
    }

    #[test]
    fn entries_expire_however_often_they_are_read() {
        let cache = SeriesCache::new(1 << 20, Some(Duration::from_secs(3600)));
        let at = |step| cache.now.store(step, Ordering::Relaxed);
        let key = |number| key(SeriesRef::Tsuid(&[number]));
        for number in 0..200 {
            cache.insert(key(number), &series(1));
        }
        let mut left = Vec::new();
        for step in 0..=LIFE {
            at(step);
            left.push(
                (0..200)
                    .filter(|number| cache.get(key(*number)).is_some())
                    .count(),
            );
        }
        let steady = LIFE as usize * 3 / 4;
        assert_eq!(left[..=steady], vec![200; steady + 1], "{left:?}");
        assert!(
            left[steady + 1..].is_sorted_by(|one, next| one > next),
            "spread: {left:?}"
        );
        assert_eq!(left[LIFE as usize], 0);

        cache.insert(key(7), &series(2));
        let again = cache.get(key(7)).unwrap();
        assert_eq!(
            again.tsuid(),
            series(2).tsuid(),
            "the new entry replaces the expired one"
        );
        at(u32::MAX - 1);
        assert!(cache.get(key(7)).is_none());
    }

    #[test]
    fn entries_that_are_not_renewed_give_their_memory_back() {
        let cache = SeriesCache::new(16 << 20, Some(Duration::from_secs(3600)));
        let keys: Vec<_> = (0..20_000_u32)
            .map(|number| key(SeriesRef::Tsuid(&number.to_be_bytes())))
            .collect();
        let (used, unused) = keys.split_at(200);
        for key in &keys {
            cache.insert(*key, &series(1));
        }
        let slots = || {
            let shards = cache.shards.iter().map(|shard| shard.read());
            shards
                .map(|shard| shard.young.capacity() + shard.old.capacity())
                .sum::<usize>()
        };
        let (before, slots_before) = (cache.figures(), slots());
        for step in 1..=2 * UNUSED {
            cache.advance_to(step);
            for key in used {
                if cache.get(*key).is_none() {
                    cache.insert(*key, &series(1));
                }
            }
            if step == UNUSED {
                assert_eq!(
                    cache.figures().entries,
                    before.entries,
                    "none expired that long ago"
                );
            }
        }
        let after = cache.figures();
        assert_eq!(after.entries, used.len() as u64);
        assert_eq!(after.bytes, before.bytes / keys.len() as u64 * after.entries);
        assert!(slots() < slots_before / 8, "{} of {slots_before}", slots());
        assert!(unused.iter().all(|key| cache.get(*key).is_none()));
    }

    #[test]
    fn a_series_replaces_another_one_of_its_key() {
        let cache = SeriesCache::new(1 << 20, Some(Duration::from_secs(3600)));
        let key = key(SeriesRef::Names {
            metric: "renamed",
            tags: &[],
        });
        let first = cache.insert(key, &series(1));
        assert!(cache.insert(key, &series(1)).address() == first.address(), "kept");
        for cached in [cache.insert(key, &series(2)), cache.get(key).unwrap()] {
            assert_eq!(cached.tsuid(), series(2).tsuid());
        }
    }

    #[test]
    fn advance_clock_expires_entries() {
        let cache = SeriesCache::new(1 << 20, Some(Duration::from_millis(1)));
        let key = key(SeriesRef::Tsuid(b"a"));
        cache.insert(key, &series(1));
        assert!(cache.get(key).is_some());
        while cache.get(key).is_some() {
            cache.advance_clock();
        }
    }
}
