//! The cache of mappings between names and UIDs.

use std::sync::Arc;
use std::time::{Duration, Instant};

use oxtsdb_resources::{EntryBytes, TimedCache};
use oxtsdb_schema::{Uid, UidKind};

/// How long an unknown name is cached as unknown.
const ABSENT_TTL: Duration = Duration::from_secs(1);

/// Memory for the names of each kind that are cached as unknown, in bytes.
const ABSENT_BYTES: u64 = 2 << 20;

/// Memory of an entry without its text, in bytes. Measured with 130,000 to 400,000 names of 11 bytes in both directions, which
/// share the text: 89 to 134 bytes for each direction, depending on the spare capacity of the hash tables.
const ENTRY_BYTES: u64 = 150;

/// The share of a kind's mappings, in 32nds of the cache: nearly all names are tag values.
const fn share(kind: UidKind) -> u64 {
    match kind {
        UidKind::Metric => 6,
        UidKind::Tagk => 2,
        UidKind::Tagv => 24,
    }
}

/// Mappings in both directions, and names that have none; for each kind.
#[derive(Debug)]
pub(super) struct NameCache {
    uids: [TimedCache<Arc<str>, Uid>; 3],
    names: [TimedCache<Uid, Arc<str>>; 3],
    absent: [TimedCache<Arc<str>, ()>; 3],
    created: Instant,
    ttl: Option<Duration>,
}

/// The memory of an entry by name.
fn by_name<V>() -> EntryBytes<Arc<str>, V> {
    EntryBytes {
        fixed: ENTRY_BYTES,
        text: |name, _| name.len(),
    }
}

impl NameCache {
    /// A cache of at most `bytes`. Entries expire after `ttl`; `None`: never.
    pub(super) fn new(bytes: u64, ttl: Option<Duration>) -> Self {
        let direction_bytes = |kind| bytes * share(kind) / 32 / 2;
        let by_uid = EntryBytes {
            fixed: ENTRY_BYTES,
            text: |_: &Uid, name: &Arc<str>| name.len(),
        };
        Self {
            created: Instant::now(),
            ttl,
            uids: UidKind::ALL.map(|kind| TimedCache::new(direction_bytes(kind), ttl, by_name())),
            names: UidKind::ALL.map(|kind| TimedCache::new(direction_bytes(kind), ttl, by_uid)),
            absent: UidKind::ALL.map(|_| TimedCache::new(ABSENT_BYTES, Some(ABSENT_TTL), by_name())),
        }
    }

    /// How many times the entries of a moment have expired by age.
    pub(super) fn age(&self) -> u64 {
        let ages = |ttl: Duration| self.created.elapsed().as_nanos() / ttl.as_nanos().max(1);
        self.ttl
            .map_or(0, |ttl| u64::try_from(ages(ttl)).unwrap_or(u64::MAX))
    }

    /// Entries of both directions, of a kind.
    pub(super) fn entries(&self, kind: UidKind) -> u64 {
        (self.uids[slot(kind)].len() + self.names[slot(kind)].len()) as u64
    }

    /// About their bytes.
    pub(super) fn byte_len(&self) -> u64 {
        let uids = self.uids.iter().map(TimedCache::byte_len);
        let names = self.names.iter().map(TimedCache::byte_len);
        uids.chain(names).sum()
    }

    /// Forgets everything.
    pub(super) fn clear(&self) {
        self.uids.iter().for_each(TimedCache::clear);
        self.names.iter().for_each(TimedCache::clear);
        self.absent.iter().for_each(TimedCache::clear);
    }

    /// The UID of a name.
    pub(super) fn uid(&self, kind: UidKind, name: &str) -> Option<Uid> {
        self.uids[slot(kind)].get(name)
    }

    /// The name of a UID.
    pub(super) fn name(&self, kind: UidKind, uid: &Uid) -> Option<Arc<str>> {
        self.names[slot(kind)].get(uid)
    }

    /// Whether the name had no UID a moment ago.
    pub(super) fn is_absent(&self, kind: UidKind, name: &str) -> bool {
        self.absent[slot(kind)].get(name).is_some()
    }

    /// Adds a mapping that was looked up by its name, in both directions.
    pub(super) fn insert(&self, kind: UidKind, name: Arc<str>, uid: Uid) {
        self.absent[slot(kind)].remove(&name);
        self.insert_name(kind, uid, Arc::clone(&name));
        self.uids[slot(kind)].insert(name, uid);
    }

    /// Adds the name of a UID.
    pub(super) fn insert_name(&self, kind: UidKind, uid: Uid, name: Arc<str>) {
        self.names[slot(kind)].insert(uid, name);
    }

    /// Removes a UID, these names, and the name that the UID was cached with.
    pub(super) fn forget(&self, kind: UidKind, uid: &Uid, names: &[&str]) {
        let slot = slot(kind);
        if let Some(name) = self.names[slot].get(uid) {
            self.uids[slot].remove(&name);
        }
        self.names[slot].remove(uid);
        for name in names {
            self.uids[slot].remove(*name);
            self.absent[slot].remove(*name);
        }
    }

    /// Adds a name that has no UID.
    pub(super) fn insert_absent(&self, kind: UidKind, name: &str) {
        self.absent[slot(kind)].insert(name.into(), ());
    }
}

/// The position of a kind in the arrays of [`NameCache`].
fn slot(kind: UidKind) -> usize {
    match kind {
        UidKind::Metric => 0,
        UidKind::Tagk => 1,
        UidKind::Tagv => 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The memory that an entry takes was measured; see [`ENTRY_BYTES`].
    #[test]
    fn entries_count_with_the_memory_that_they_take() {
        let cache = NameCache::new(1 << 20, None);
        for number in 1..=10_000 {
            let uid = Uid::from_number(number, oxtsdb_schema::UidWidth::DEFAULT).unwrap();
            for kind in UidKind::ALL {
                cache.insert(kind, format!("name-{number:06}").into(), uid);
            }
        }
        let entries: u64 = UidKind::ALL.map(|kind| cache.entries(kind)).iter().sum();
        assert!(entries > 1000, "{entries} entries");
        assert!(entries * ENTRY_BYTES <= 1 << 20, "{entries} entries");
        assert!(
            cache.entries(UidKind::Tagv) > 2 * cache.entries(UidKind::Metric),
            "most names are tag values"
        );
    }
}
