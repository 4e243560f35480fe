//! The cache of series: from a point's names to where its rows are.
//!
//! It is asked once for each point, so a look-up allocates nothing: the caller writes the key into
//! a buffer that it keeps. The key is the point's names as they came, in the order in which they
//! came; tags in another order are another entry of the same series.
//!
//! Memory is bounded by two generations: entries go into the young one; when that is full, it
//! becomes the old one, and what was old is dropped. An old entry that is asked for is young again.
//!
//! Time is bounded too, because others can rename and delete the names: an entry is forgotten a set
//! time after it was made, however often it was asked for. No clock is read for that: the time goes on
//! in a few steps ([`LIFE`] for a whole life) when [`SeriesCache::tell_time`] is called, once for a batch
//! of points. Lives differ by up to a quarter, so that what was learned together is not all asked
//! for again at one time.

use std::hash::BuildHasher as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use hashbrown::{DefaultHashBuilder, HashTable};
use oxtsdb_schema::{BaseTime, RowKey, RowKeyLayout, Tsuid};
use parking_lot::RwLock;

/// A series, ready to be written to.
#[derive(Debug)]
pub(crate) struct Series {
    /// The key of its row of hour 0.
    key: RowKey,
    /// Where the base time lies in the key.
    base_time_at: usize,
    salt_width: usize,
    /// The hour of the clock in which its row of table `tsdb-meta` was stored last, in hours since the
    /// epoch; 0: not yet by this process.
    tracked_hour: AtomicU32,
}

/// Bytes of the base time in a row key.
const BASE_TIME_BYTES: usize = 4;

impl Series {
    pub(crate) fn new(layout: &RowKeyLayout, tsuid: &Tsuid) -> Self {
        let base_time_at = layout.salt.width() + layout.widths.metric.bytes();
        Self {
            key: RowKey::new(layout, tsuid, BaseTime::MIN),
            base_time_at,
            salt_width: layout.salt.width(),
            tracked_hour: AtomicU32::new(0),
        }
    }

    /// Appends the key of the row of hour 0; see [`set_base_time`].
    pub(crate) fn key(&self) -> &[u8] {
        self.key.as_bytes()
    }

    /// Where [`set_base_time`] is to put the base time.
    pub(crate) fn base_time_at(&self) -> usize {
        self.base_time_at
    }

    /// The TSUID: the key without salt and base time.
    pub(crate) fn tsuid(&self) -> Vec<u8> {
        let key = self.key();
        let (metric, tags) = (
            &key[self.salt_width..self.base_time_at],
            &key[self.base_time_at + BASE_TIME_BYTES..],
        );
        [metric, tags].concat()
    }

    /// See [`Series::set_tracked_hour`]; 0: never.
    #[inline]
    pub(crate) fn tracked_hour(&self) -> u32 {
        self.tracked_hour.load(Ordering::Relaxed)
    }

    /// Notes that the series' row of table `tsdb-meta` was stored in this hour of the clock.
    pub(crate) fn set_tracked_hour(&self, hour: u32) {
        self.tracked_hour.store(hour, Ordering::Relaxed);
    }
}

/// Makes a series' key that of an hour.
pub(crate) fn set_base_time(key: &mut [u8], base_time_at: usize, base: BaseTime) {
    key[base_time_at..base_time_at + BASE_TIME_BYTES].copy_from_slice(&base.seconds().to_be_bytes());
}

/// A series as a point names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SeriesRef<'a> {
    /// By names; tags in the order given.
    Names {
        metric: &'a str,
        tags: &'a [(&'a str, &'a str)],
    },
    /// By TSUID, as it came.
    Tsuid(&'a [u8]),
}

impl SeriesRef<'_> {
    /// Puts the key of the cache into `key`, in place of what was there.
    ///
    /// FE and FF never occur in UTF-8, so no two series have one key.
    pub(crate) fn write_key(&self, key: &mut Vec<u8>) {
        key.clear();
        match self {
            Self::Names { metric, tags } => {
                key.extend_from_slice(metric.as_bytes());
                for (tagk, tagv) in *tags {
                    key.push(0xff);
                    key.extend_from_slice(tagk.as_bytes());
                    key.push(0xff);
                    key.extend_from_slice(tagv.as_bytes());
                }
            }
            Self::Tsuid(tsuid) => {
                key.push(0xfe);
                key.extend_from_slice(tsuid);
            }
        }
    }
}

/// Locks that writers share out among themselves.
const SHARDS: usize = 16;

/// What an entry costs beside its key and its row key, in bytes; an estimate.
const ENTRY_BYTES: usize = 160;

/// Steps of time that an entry lives, at most; at least three quarters of them.
const LIFE: u32 = 16;

/// See the module.
#[derive(Debug)]
pub(crate) struct SeriesCache {
    began: Instant,
    /// `None`: time stands still.
    step: Option<Duration>,
    /// Steps since the beginning.
    now: AtomicU32,
    hasher: DefaultHashBuilder,
    shards: [RwLock<Shard>; SHARDS],
    /// Bytes of one generation of one shard.
    generation_bytes: usize,
}

#[derive(Debug, Default)]
struct Shard {
    young: HashTable<Entry>,
    old: HashTable<Entry>,
    young_bytes: usize,
}

#[derive(Clone, Debug)]
struct Entry {
    hash: u64,
    key: Box<[u8]>,
    series: Arc<Series>,
    /// The first step at which it is no more.
    ends: u32,
}

impl SeriesCache {
    /// A cache that takes about so many bytes, and forgets an entry after `ttl`; `None`: never.
    pub(crate) fn new(bytes: usize, ttl: Option<Duration>) -> Self {
        Self {
            began: Instant::now(),
            step: ttl.map(|ttl| (ttl / LIFE).max(Duration::from_nanos(1))),
            now: AtomicU32::new(0),
            hasher: DefaultHashBuilder::default(),
            shards: std::array::from_fn(|_| RwLock::default()),
            generation_bytes: bytes / SHARDS / 2,
        }
    }

    /// Notes what time it is.
    pub(crate) fn tell_time(&self) {
        let Some(step) = self.step else { return };
        let steps = self.began.elapsed().as_nanos() / step.as_nanos();
        let now = u32::try_from(steps).unwrap_or(u32::MAX);
        // All readers share it, so it is written as seldom as can be.
        if self.now.load(Ordering::Relaxed) != now {
            self.now.store(now, Ordering::Relaxed);
        }
    }

    /// The series of a key.
    pub(crate) fn get(&self, key: &[u8]) -> Option<Arc<Series>> {
        let now = self.now.load(Ordering::Relaxed);
        let hash = self.hasher.hash_one(key);
        let shard = self.shard(hash);
        let is_old = {
            let shard = shard.read();
            if let Some(entry) = shard.young.find(hash, |entry| *entry.key == *key) {
                return (now < entry.ends).then(|| Arc::clone(&entry.series));
            }
            let old = shard.old.find(hash, |entry| *entry.key == *key);
            old.is_some_and(|entry| now < entry.ends)
        };
        if !is_old {
            return None;
        }
        let mut shard = shard.write();
        // Another may have moved it meanwhile.
        let entry = match shard.old.find_entry(hash, |entry| *entry.key == *key) {
            Ok(entry) => entry.remove().0,
            Err(_) => {
                return shard
                    .young
                    .find(hash, |entry| *entry.key == *key)
                    .map(|entry| Arc::clone(&entry.series));
            }
        };
        let series = Arc::clone(&entry.series);
        shard.insert(entry, self.generation_bytes);
        Some(series)
    }

    /// Remembers the series of a key, and returns the one that is remembered: if there was one with
    /// the same UIDs it stays, with what is known about it.
    pub(crate) fn insert(&self, key: &[u8], series: &Arc<Series>) -> Arc<Series> {
        let now = self.now.load(Ordering::Relaxed);
        let hash = self.hasher.hash_one(key);
        let mut shard = self.shard(hash).write();
        if let Some(entry) = shard.young.find_mut(hash, |entry| *entry.key == *key) {
            if entry.ends <= now {
                if entry.series.key() != series.key() {
                    entry.series = Arc::clone(series);
                }
                entry.ends = self.end(now, hash);
            }
            return Arc::clone(&entry.series);
        }
        let entry = Entry {
            hash,
            key: key.into(),
            series: Arc::clone(series),
            ends: self.end(now, hash),
        };
        shard.insert(entry, self.generation_bytes);
        Arc::clone(series)
    }

    /// When an entry ends that is made now.
    fn end(&self, now: u32, hash: u64) -> u32 {
        let shorter = u32::from(hash.to_be_bytes()[4]) % (LIFE / 4);
        self.step.map_or(u32::MAX, |_| now.saturating_add(LIFE - shorter))
    }

    fn shard(&self, hash: u64) -> &RwLock<Shard> {
        // The table itself uses the other end of the hash.
        let index = (hash >> 40) as usize % SHARDS;
        &self.shards[index]
    }
}

impl Shard {
    fn insert(&mut self, entry: Entry, generation_bytes: usize) {
        if self.young_bytes >= generation_bytes {
            self.old = std::mem::take(&mut self.young);
            self.young_bytes = 0;
        }
        self.young_bytes += ENTRY_BYTES + entry.key.len() + entry.series.key().len();
        self.young.insert_unique(entry.hash, entry, |entry| entry.hash);
    }
}

#[cfg(test)]
mod tests {
    use oxtsdb_schema::UidWidths;

    use super::*;

    fn series(number: u32) -> Arc<Series> {
        let mut bytes = vec![0, 0, 1, 0, 0, 1];
        bytes.extend_from_slice(&number.to_be_bytes()[1..]);
        let tsuid = Tsuid::from_bytes(&bytes, &UidWidths::default()).unwrap();
        Arc::new(Series::new(&RowKeyLayout::default(), &tsuid))
    }

    fn key(series: SeriesRef<'_>) -> Vec<u8> {
        let mut key = Vec::new();
        series.write_key(&mut key);
        key
    }

    #[test]
    fn names_that_run_together_are_different_keys() {
        let names = |metric, tags| key(SeriesRef::Names { metric, tags });
        assert_ne!(names("ab", &[("c", "d")]), names("a", &[("bc", "d")]));
        assert_ne!(
            names("a", &[("b", "c"), ("d", "e")]),
            names("a", &[("d", "e"), ("b", "c")])
        );
        assert_ne!(names("a", &[]), key(SeriesRef::Tsuid(b"a")));
    }

    #[test]
    fn what_is_asked_for_stays_and_the_rest_goes_before_memory_does() {
        let bytes = 64 << 10;
        let cache = SeriesCache::new(bytes, None);
        let wanted = key(SeriesRef::Names {
            metric: "wanted",
            tags: &[],
        });
        cache.insert(&wanted, &series(1));
        for number in 2..10_000 {
            let text = format!("metric.{number}");
            cache.insert(
                &key(SeriesRef::Names {
                    metric: &text,
                    tags: &[],
                }),
                &series(number),
            );
            assert!(cache.get(&wanted).is_some(), "after {number}");
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
        assert!(cache.get(&first).is_none(), "dropped long ago");
    }

    #[test]
    fn an_entry_ends_in_time_however_often_it_is_asked_for() {
        let cache = SeriesCache::new(1 << 20, Some(Duration::from_secs(3600)));
        let at = |step| cache.now.store(step, Ordering::Relaxed);
        let key = |number| key(SeriesRef::Tsuid(&[number]));
        for number in 0..200 {
            cache.insert(&key(number), &series(1));
        }
        let mut left = Vec::new();
        for step in 0..=LIFE {
            at(step);
            left.push(
                (0..200)
                    .filter(|number| cache.get(&key(*number)).is_some())
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

        cache.insert(&key(7), &series(2));
        let again = cache.get(&key(7)).unwrap();
        assert_eq!(again.key(), series(2).key(), "what was learned anew counts");
        at(u32::MAX - 1);
        assert!(cache.get(&key(7)).is_none());
    }

    #[test]
    fn time_goes_on_when_it_is_told() {
        let cache = SeriesCache::new(1 << 20, Some(Duration::from_millis(1)));
        let key = key(SeriesRef::Tsuid(b"a"));
        cache.insert(&key, &series(1));
        assert!(cache.get(&key).is_some());
        while cache.get(&key).is_some() {
            cache.tell_time();
        }
    }

    #[test]
    fn a_row_key_gets_the_hour_behind_salt_and_metric() {
        let layout = RowKeyLayout {
            salt: oxtsdb_schema::SaltLayout::new(1, 20).unwrap(),
            widths: UidWidths::default(),
        };
        let tsuid = Tsuid::from_bytes(&[0, 0, 1, 0, 0, 1, 0, 0, 2], &layout.widths).unwrap();
        let series = Series::new(&layout, &tsuid);
        let base = BaseTime::of_seconds(1_346_846_400);
        let mut made = series.key().to_vec();
        set_base_time(&mut made, series.base_time_at(), base);
        assert_eq!(made, RowKey::new(&layout, &tsuid, base).as_bytes());
    }
}
