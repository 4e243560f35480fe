//! The cache of series: from the names of a point to its series.
//!
//! Every point needs a look-up, so a look-up allocates nothing: the key is written into a reused buffer. It has the point's
//! names in the order received, or the text of a request as it came; tags in another order make another entry for the
//! same series. Entries have a fingerprint of the key instead of the key, which would take half of their memory.
//!
//! Memory is bounded. Entries are added to the young generation. When memory is nearly full it becomes the old generation;
//! reading an old entry moves it to the young one. When memory is full, an eighth of the old generation is dropped. So series
//! that fit are all cached, also if each is read once before the first is read again.
//!
//! Series that no longer get points give their memory back: their entries expire, are not renewed, and are dropped
//! `UNUSED` steps later, some shards at each step.
//!
//! Entries are removed when an operator renames or deletes one of their names; see `watch`. They expire also,
//! because other programs rename and delete names: a set time after they were added, however often they
//! are read. Look-ups read no clock: time advances in steps (`LIFE` of them in the time to live) by
//! [`SeriesCache::advance_clock`], called once for each batch of points. The time to live varies by up to a quarter,
//! so that entries added together do not all expire together.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hashbrown::HashTable;
use oxtsdb_schema::RowKeyLayout;
use parking_lot::RwLock;

use super::changes::ChangedUids;
use super::series::{Fingerprint, Series, SeriesKey, SeriesText};

/// Shards, each with a lock of its own.
const SHARDS: usize = 64;

/// Shards from which unused entries are dropped at a step of the clock.
const SHARDS_A_STEP: usize = 4;

/// Size of an entry without its TSUID, in bytes; an estimate: its slot of a table that is half full, reference count, length and
/// head of the series, and what the allocator rounds up.
const ENTRY_BYTES: usize = 62;

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
    /// Of fingerprints.
    seed: u64,
    shards: [RwLock<Shard>; SHARDS],
    /// Capacity of a shard, in bytes.
    shard_bytes: usize,
    /// Points with a series that was found, and points with one that was not.
    hits: AtomicU64,
    misses: AtomicU64,
}

/// Entries by fingerprint. Slots have nothing but the pointer, so a table that grows reads its entries: a shard is small.
#[derive(Debug, Default)]
struct Shard {
    young: HashTable<Series>,
    old: HashTable<Series>,
    /// Bytes of both.
    bytes: usize,
}

impl SeriesCache {
    /// A cache of about `bytes`. Entries expire after `ttl`; `None`: never.
    pub fn new(bytes: usize, ttl: Option<Duration>) -> Self {
        Self {
            began: Instant::now(),
            step: ttl.map(|ttl| (ttl / LIFE).max(Duration::from_nanos(1))),
            now: AtomicU32::new(0),
            seed: RandomState::new().hash_one(SHARDS),
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

    /// Sets the clock, and drops entries that were not used for long, of some shards for each step.
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
        for step in (before..now).take(SHARDS / SHARDS_A_STEP) {
            let first = step as usize * SHARDS_A_STEP % SHARDS;
            for shard in &self.shards[first..first + SHARDS_A_STEP] {
                shard.write().drop_unused(now);
            }
        }
    }

    /// The series of a key.
    pub fn get(&self, key: SeriesKey<'_>) -> Option<Series> {
        let key = Fingerprint::new(key, self.seed);
        let now = self.now.load(Ordering::Relaxed);
        let shard = &self.shards[key.shard(SHARDS)];
        match shard.read().find(key, now) {
            Found::Nothing => return None,
            Found::Young(series) => return Some(series.clone()),
            Found::Old => {}
        }
        shard.write().renew(key, self.shard_bytes)
    }

    /// The series of all of these texts, in their order. Takes the lock of each shard once.
    pub fn get_all(&self, texts: &[SeriesText<'_>]) -> Vec<Option<Series>> {
        const END: usize = usize::MAX;
        let now = self.now.load(Ordering::Relaxed);
        let mut buffer = Vec::new();
        let fingerprint = |text: &SeriesText<'_>| Fingerprint::new(text.key(&mut buffer), self.seed);
        let keys: Vec<_> = texts.iter().map(fingerprint).collect();
        // The keys of each shard as a linked list, in their order.
        let mut first = [END; SHARDS];
        let mut next = vec![END; keys.len()];
        for (index, key) in keys.iter().enumerate().rev() {
            next[index] = std::mem::replace(&mut first[key.shard(SHARDS)], index);
        }
        let (mut series, mut old) = (vec![None; keys.len()], Vec::new());
        for (shard, first) in self.shards.iter().zip(first) {
            if first == END {
                continue;
            }
            let own = std::iter::successors(Some(first), |index| {
                Some(next[*index]).filter(|next| *next != END)
            });
            let entries = shard.read();
            // Waits for the memory of several entries overlap, waits of one look-up do not.
            let mut candidates = Vec::with_capacity(keys.len() / SHARDS * 2);
            candidates.extend(own.map(|index| (index, entries.candidate(keys[index]))));
            let touched = candidates.iter().flat_map(|(_, candidate)| candidate);
            std::hint::black_box(touched.fold(0, |sum, series| sum ^ series.expires_at()));
            for (index, candidate) in candidates {
                match entries.find_from(candidate, keys[index], now) {
                    Found::Nothing => {}
                    Found::Young(entry) => series[index] = Some(entry.clone()),
                    Found::Old => old.push(index),
                }
            }
            drop(entries);
            if !old.is_empty() {
                let mut shard = shard.write();
                for index in old.drain(..) {
                    series[index] = shard.renew(keys[index], self.shard_bytes);
                }
            }
        }
        series
    }

    /// Adds the series of a key and returns the cached one. A series with the same UIDs stays, and keeps its tracked
    /// hour.
    pub fn insert(&self, key: SeriesKey<'_>, series: &Series) -> Series {
        let now = self.now.load(Ordering::Relaxed);
        let key = Fingerprint::new(key, self.seed);
        let mut shard = self.shards[key.shard(SHARDS)].write();
        if let Some(entry) = shard.young.find_mut(key.table_hash(), is(key)) {
            if entry.tsuid() != series.tsuid() {
                *entry = series.cached(key, self.expires_at(now, key));
            } else if entry.expires_at() <= now {
                entry.set_expires_at(self.expires_at(now, key));
            }
            return entry.clone();
        }
        let series = series.cached(key, self.expires_at(now, key));
        shard.insert(series.clone(), self.shard_bytes);
        series
    }

    /// Removes the series that use one of these UIDs.
    pub(crate) fn forget(&self, layout: &RowKeyLayout, uids: &ChangedUids) {
        for shard in &self.shards {
            shard.write().retain(|series| !series.uses(layout, uids));
        }
    }

    /// Removes all series.
    pub(crate) fn clear(&self) {
        for shard in &self.shards {
            *shard.write() = Shard::default();
        }
    }

    /// The step at which an entry that is added now expires.
    fn expires_at(&self, now: u32, key: Fingerprint) -> u32 {
        // By bits of the hash that tables use least.
        let shorter = u32::try_from(key.table_hash() >> 32 & u64::from(LIFE / 4 - 1)).unwrap_or(0);
        self.step.map_or(u32::MAX, |_| now.saturating_add(LIFE - shorter))
    }
}

/// The state of a key in a shard.
enum Found<'s> {
    /// Nothing, or an entry that is expired.
    Nothing,
    Young(&'s Series),
    /// An entry of the old generation, which moves to the young one when it is read.
    Old,
}

/// Whether an entry has this key.
fn is(key: Fingerprint) -> impl Fn(&Series) -> bool {
    move |series| series.fingerprint() == key
}

fn table_hash(series: &Series) -> u64 {
    series.fingerprint().table_hash()
}

fn byte_len(series: &Series) -> usize {
    ENTRY_BYTES + series.tsuid().len()
}

impl Shard {
    fn find(&self, key: Fingerprint, now: u32) -> Found<'_> {
        if let Some(series) = self.young.find(key.table_hash(), is(key)) {
            return match now < series.expires_at() {
                true => Found::Young(series),
                false => Found::Nothing,
            };
        }
        let old = self.old.find(key.table_hash(), is(key));
        match old.is_some_and(|series| now < series.expires_at()) {
            true => Found::Old,
            false => Found::Nothing,
        }
    }

    /// The first young entry with a slot that matches bits of the hash of `key`, usually the entry of `key`. The search
    /// reads slots of the table and no entry.
    fn candidate(&self, key: Fingerprint) -> Option<&Series> {
        self.young.find(key.table_hash(), |_| true)
    }

    /// As [`Self::find`], with the key's [`Self::candidate`].
    fn find_from<'s>(&'s self, candidate: Option<&'s Series>, key: Fingerprint, now: u32) -> Found<'s> {
        match candidate.filter(|series| series.fingerprint() == key && now < series.expires_at()) {
            Some(series) => Found::Young(series),
            None => self.find(key, now),
        }
    }

    /// Moves an entry of the old generation to the young one, unless another thread has done so.
    fn renew(&mut self, key: Fingerprint, shard_bytes: usize) -> Option<Series> {
        let series = match self.old.find_entry(key.table_hash(), is(key)) {
            Ok(entry) => entry.remove().0,
            Err(_) => return self.young.find(key.table_hash(), is(key)).cloned(),
        };
        self.bytes = self.bytes.saturating_sub(byte_len(&series));
        self.insert(series.clone(), shard_bytes);
        Some(series)
    }

    fn retain(&mut self, keep: impl Fn(&Series) -> bool) {
        let Self { young, old, bytes } = self;
        for table in [young, old] {
            table.retain(|series| {
                let keeps = keep(series);
                if !keeps {
                    *bytes = bytes.saturating_sub(byte_len(series));
                }
                keeps
            });
        }
    }

    /// Drops entries that expired [`UNUSED`] steps ago, and the memory of their slots.
    fn drop_unused(&mut self, now: u32) {
        self.retain(|series| now < series.expires_at().saturating_add(UNUSED));
        for table in [&mut self.young, &mut self.old] {
            if table.capacity() / 4 > table.len() {
                table.shrink_to(table.len() * 2, table_hash);
            }
        }
    }

    /// Drops an eighth of the old generation.
    fn evict(&mut self) {
        let mut place = 0_usize;
        self.old.retain(|series| {
            let keeps = !place.is_multiple_of(8);
            place += 1;
            if !keeps {
                self.bytes = self.bytes.saturating_sub(byte_len(series));
            }
            keeps
        });
    }

    fn insert(&mut self, series: Series, shard_bytes: usize) {
        self.bytes += byte_len(&series);
        if self.old.is_empty() && self.bytes > shard_bytes / 8 * 7 {
            self.old = std::mem::take(&mut self.young);
        } else if self.bytes > shard_bytes {
            self.evict();
        }
        self.young.insert_unique(table_hash(&series), series, table_hash);
    }
}

#[cfg(test)]
mod tests {
    use oxtsdb_schema::{Tsuid, UidWidths};

    use super::super::series::{SeriesRef, Syntax};
    use super::*;

    fn series(number: u32) -> Series {
        let mut bytes = vec![0, 0, 1, 0, 0, 1];
        bytes.extend_from_slice(&number.to_be_bytes()[1..]);
        let tsuid = Tsuid::from_bytes(&bytes, &UidWidths::default()).unwrap();
        Series::new(&tsuid)
    }

    fn key(series: SeriesRef<'_>) -> SeriesKey<'static> {
        series.key(Box::leak(Box::default()))
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
    fn looks_up_many_keys_as_one_by_one() {
        let cache = SeriesCache::new(64 << 10, Some(Duration::from_secs(3600)));
        let texts: Vec<String> = (0..1000).map(|number| format!("metric.{number}")).collect();
        let texts: Vec<_> = (texts.iter())
            .map(|metric| SeriesText {
                syntax: Syntax::Telnet,
                metric,
                tags: "a=b",
            })
            .collect();
        let keys = texts.iter().map(|text| text.key(Box::leak(Box::default())));
        let keys: Vec<_> = keys.collect();
        for (number, key) in (1..).zip(&keys).take(900) {
            cache.insert(*key, &series(number));
        }
        let numbers = |entries: Vec<Option<Series>>| -> Vec<Option<Vec<u8>>> {
            entries
                .iter()
                .map(|series| Some(series.as_ref()?.tsuid().to_vec()))
                .collect()
        };
        // Some are evicted, others are in the old generation.
        let together = numbers(cache.get_all(&texts));
        let known = together.iter().flatten().count();
        assert!((100..900).contains(&known), "{known}");
        assert_eq!(together, numbers(cache.get_all(&texts)));
        assert_eq!(
            together,
            numbers(keys.iter().map(|key| cache.get(*key)).collect())
        );
        for (number, cached_tsuid) in (1..).zip(together) {
            assert!(cached_tsuid.is_none_or(|tsuid| tsuid == series(number).tsuid()));
        }
        cache.now.store(u32::MAX - 1, Ordering::Relaxed);
        assert!(cache.get_all(&texts).iter().all(Option::is_none), "expired");
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
