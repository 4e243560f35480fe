//! The cache of mappings between names and UIDs.

use std::sync::Arc;
use std::time::{Duration, Instant};

use moka::sync::Cache;
use oxtsdb_schema::{Uid, UidKind};

/// How long an unknown name is cached as unknown.
const ABSENT_TTL: Duration = Duration::from_secs(1);

/// Entries of the cache of unknown names, of each kind.
const ABSENT_ENTRIES: u64 = 10_000;

/// Size of a cache entry without its text, in bytes. Measured with 200,000 names: 350 to 390.
const ENTRY_BYTES: usize = 380;

/// What the mappings of a kind may take, in 32nds of the cache: nearly all names are tag values.
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
    uids: [Cache<Arc<str>, Uid>; 3],
    names: [Cache<Uid, Arc<str>>; 3],
    absent: [Cache<Arc<str>, ()>; 3],
    created: Instant,
    ttl: Option<Duration>,
}

impl NameCache {
    /// A cache of at most `bytes` whose entries expire after `ttl`; `None`: never.
    pub(super) fn new(bytes: u64, ttl: Option<Duration>) -> Self {
        let direction_bytes = |kind| bytes * share(kind) / 32 / 2;
        Self {
            created: Instant::now(),
            ttl,
            uids: UidKind::ALL.map(|kind| {
                let cache = Cache::builder()
                    .max_capacity(direction_bytes(kind))
                    .weigher(|name: &Arc<str>, _| entry_bytes(name));
                match ttl {
                    Some(ttl) => cache.time_to_live(ttl).build(),
                    None => cache.build(),
                }
            }),
            names: UidKind::ALL.map(|kind| {
                let cache = Cache::builder()
                    .max_capacity(direction_bytes(kind))
                    .weigher(|_, name: &Arc<str>| entry_bytes(name));
                match ttl {
                    Some(ttl) => cache.time_to_live(ttl).build(),
                    None => cache.build(),
                }
            }),
            absent: UidKind::ALL.map(|_| {
                Cache::builder()
                    .max_capacity(ABSENT_ENTRIES)
                    .time_to_live(ABSENT_TTL)
                    .build()
            }),
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
        self.uids[slot(kind)].entry_count() + self.names[slot(kind)].entry_count()
    }

    /// About their bytes.
    pub(super) fn byte_len(&self) -> u64 {
        self.uids.iter().map(Cache::weighted_size).sum::<u64>()
            + self.names.iter().map(Cache::weighted_size).sum::<u64>()
    }

    /// Forgets everything.
    pub(super) fn clear(&self) {
        self.uids.iter().for_each(Cache::invalidate_all);
        self.names.iter().for_each(Cache::invalidate_all);
        self.absent.iter().for_each(Cache::invalidate_all);
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
        self.absent[slot(kind)].contains_key(name)
    }

    /// Adds a mapping that was looked up by its name, in both directions.
    pub(super) fn insert(&self, kind: UidKind, name: Arc<str>, uid: Uid) {
        self.absent[slot(kind)].invalidate(&name);
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
            self.uids[slot].invalidate(&name);
        }
        self.names[slot].invalidate(uid);
        for name in names {
            self.uids[slot].invalidate(*name);
            self.absent[slot].invalidate(*name);
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

fn entry_bytes(name: &Arc<str>) -> u32 {
    u32::try_from(name.len() + ENTRY_BYTES).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The memory that an entry takes was measured: 350 to 390 bytes beside its text.
    #[test]
    fn entries_count_with_the_memory_that_they_take() {
        let cache = NameCache::new(1 << 20, None);
        for number in 1..=10_000 {
            let uid = Uid::from_number(number, oxtsdb_schema::UidWidth::DEFAULT).unwrap();
            for kind in UidKind::ALL {
                cache.insert(kind, format!("name-{number:06}").into(), uid);
            }
        }
        cache.uids.iter().for_each(Cache::run_pending_tasks);
        cache.names.iter().for_each(Cache::run_pending_tasks);
        let entries: u64 = UidKind::ALL.map(|kind| cache.entries(kind)).iter().sum();
        assert!(entries > 1000, "{entries} entries");
        assert!(entries * 350 <= 1 << 20, "{entries} entries");
        assert!(
            cache.entries(UidKind::Tagv) > 2 * cache.entries(UidKind::Metric),
            "most names are tag values"
        );
    }
}
