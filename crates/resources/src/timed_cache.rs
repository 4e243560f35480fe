//! A cache that is bounded in bytes and in time.

use std::fmt;
use std::hash::Hash;
use std::time::{Duration, Instant};

use hashbrown::{DefaultHashBuilder, Equivalent};
use quick_cache::Weighter;
use quick_cache::sync::{Cache, DefaultLifecycle};

/// Entries that expire a fixed time after they were added; hits do not extend it.
pub struct TimedCache<K, V> {
    entries: Cache<K, (V, Instant), Weight<K, V>, DefaultHashBuilder>,
    ttl: Option<Duration>,
}

/// The memory of an entry: a fixed part, and the bytes of its text.
#[derive(Debug)]
pub struct EntryBytes<K, V> {
    /// Memory without the text, in bytes.
    pub fixed: u64,
    /// The length of the text.
    pub text: fn(&K, &V) -> usize,
}

impl<K, V> Clone for EntryBytes<K, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K, V> Copy for EntryBytes<K, V> {}

#[derive(Clone)]
struct Weight<K, V>(EntryBytes<K, V>);

impl<K, V> Weighter<K, (V, Instant)> for Weight<K, V> {
    fn weight(&self, key: &K, (value, _): &(V, Instant)) -> u64 {
        let EntryBytes { fixed, text } = self.0;
        fixed + text(key, value) as u64
    }
}

impl<K, V> fmt::Debug for TimedCache<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TimedCache")
            .field("ttl", &self.ttl)
            .finish_non_exhaustive()
    }
}

impl<K: Hash + Eq + Clone, V: Clone> TimedCache<K, V> {
    /// A cache of at most `bytes`; 0 disables it. Without `ttl` an entry stays until its memory is needed.
    pub fn new(bytes: u64, ttl: Option<Duration>, entry: EntryBytes<K, V>) -> Self {
        let entries = usize::try_from(bytes / entry.fixed.max(1)).unwrap_or(usize::MAX);
        let (hash, lifecycle) = (DefaultHashBuilder::default(), DefaultLifecycle::default());
        Self {
            entries: Cache::with(entries, bytes, Weight(entry), hash, lifecycle),
            ttl,
        }
    }

    /// The value of a key, if its entry has not expired.
    pub fn get<Q: Hash + Equivalent<K> + ?Sized>(&self, key: &Q) -> Option<V> {
        let (value, added) = self.entries.get(key)?;
        let is_expired = self.ttl.is_some_and(|ttl| added.elapsed() >= ttl);
        (!is_expired).then_some(value)
    }

    /// Adds or replaces an entry.
    pub fn insert(&self, key: K, value: V) {
        self.entries.insert(key, (value, Instant::now()));
    }

    /// Removes an entry.
    pub fn remove<Q: Hash + Equivalent<K> + ?Sized>(&self, key: &Q) {
        self.entries.remove(key);
    }

    /// The keys of entries that match, expired ones included. Reads all entries.
    pub fn keys_of(&self, matches: impl Fn(&K, &V) -> bool) -> Vec<K> {
        let entries = self.entries.iter();
        let matching = entries.filter(|(key, (value, _))| matches(key, value));
        matching.map(|(key, _)| key).collect()
    }

    /// Removes all entries.
    pub fn clear(&self) {
        self.entries.clear();
    }

    /// The number of entries, including expired ones.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The memory of all entries, in bytes.
    pub fn byte_len(&self) -> u64 {
        self.entries.weight()
    }
}
