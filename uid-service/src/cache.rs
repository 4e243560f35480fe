//! In-memory cache of mappings in both directions, bounded in bytes and in time.
//!
//! The cache holds existing mappings only. Absence is not cached, because another replica or an OpenTSDB may
//! assign the name at any time. An existing mapping changes only if an operator renames or deletes a name.
//! Changes by this service invalidate it, those of other replicas as soon as this one has read them from the log
//! ([`crate::change`]). Other programs send no invalidation, so an entry expires a fixed time after it was read or
//! assigned; hits do not extend it. (OpenTSDB keeps entries until it terminates or its caches are dropped.)
//!
//! A read of the store that started before an invalidation may return what it invalidates. So every read begins with
//! a [`ReadMark`], and a mapping that was read under an older mark than the last invalidation is not added.
//!
//! While this replica cannot read the log, it does not know which mappings have changed: the cache is suspended, and
//! every look-up reads the store.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use moka::sync::Cache;
use oxtsdb_schema::{Name, Uid, UidKind};

use crate::table::{KindName, KindUid};

/// The cache. Clones share its entries.
#[derive(Clone, Debug)]
pub struct UidCache {
    uids: Cache<KindName, Uid>,
    names: Cache<KindUid, Name>,
    state: Arc<CacheState>,
}

#[derive(Debug, Default)]
struct CacheState {
    /// Invalidations so far.
    invalidations: AtomicU64,
    is_suspended: AtomicBool,
}

/// The time at which a read of the store began, in invalidations.
#[derive(Clone, Copy, Debug)]
pub struct ReadMark(u64);

/// Bounds of the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheLimits {
    /// Memory for each direction, in bytes; 0 disables the cache.
    pub bytes: u64,
    /// Time to live of an entry; `None`: until its memory is needed.
    pub ttl: Option<Duration>,
}

/// Memory of an entry without its name. Measured: a million mappings of names of 20 bytes take 690 bytes
/// each, both directions together.
const ENTRY_BYTES: u32 = 325;

impl UidCache {
    /// An empty cache.
    pub fn new(limits: CacheLimits) -> Self {
        let mut uids = Cache::builder()
            .max_capacity(limits.bytes)
            .weigher(|(_, name): &KindName, _: &Uid| weight(name));
        let mut names = Cache::builder()
            .max_capacity(limits.bytes)
            .weigher(|_: &KindUid, name: &Name| weight(name));
        if let Some(ttl) = limits.ttl {
            uids = uids.time_to_live(ttl);
            names = names.time_to_live(ttl);
        }
        Self {
            uids: uids.build(),
            names: names.build(),
            state: Arc::default(),
        }
    }

    /// The UID of a name, if it is cached.
    pub fn uid(&self, name: &KindName) -> Option<Uid> {
        self.uids.get(name).filter(|_| !self.is_suspended())
    }

    /// The name of a UID, if it is cached.
    pub fn name(&self, uid: &KindUid) -> Option<Name> {
        self.names.get(uid).filter(|_| !self.is_suspended())
    }

    /// Marks the beginning of a read of the store.
    pub fn mark(&self) -> ReadMark {
        ReadMark(self.state.invalidations.load(Ordering::SeqCst))
    }

    /// Adds a complete mapping: one that was assigned, or read from its forward cell, after `mark`.
    pub fn insert(&self, mark: ReadMark, kind: UidKind, name: &Name, uid: Uid) {
        self.uids.insert((kind, name.clone()), uid);
        if !self.is_current(mark) {
            self.uids.invalidate(&(kind, name.clone()));
        }
        self.insert_name(mark, (kind, uid), name.clone());
    }

    /// Adds the reverse direction only: a reverse cell alone may be an orphan of an assignment that lost a
    /// race.
    pub fn insert_name(&self, mark: ReadMark, uid: KindUid, name: Name) {
        self.names.insert(uid, name);
        if !self.is_current(mark) {
            self.names.invalidate(&uid);
        }
    }

    /// Removes a name that is no longer in the table.
    pub fn invalidate_name(&self, name: &KindName) {
        self.uids.invalidate(name);
    }

    /// Removes a UID that is no longer in the table.
    pub fn invalidate_uid(&self, uid: &KindUid) {
        self.names.invalidate(uid);
    }

    /// Removes mappings that have changed, also if a read in progress returns them.
    pub fn invalidate<'a>(&self, names: impl IntoIterator<Item = &'a KindName>, uid: &KindUid) {
        // First: a read that adds its mapping after this sees it, one that added it before is undone below.
        self.state.invalidations.fetch_add(1, Ordering::SeqCst);
        names.into_iter().for_each(|name| self.invalidate_name(name));
        self.invalidate_uid(uid);
    }

    /// Removes all entries, also those that reads in progress return. Returns their number, about.
    pub fn clear(&self) -> u64 {
        self.state.invalidations.fetch_add(1, Ordering::SeqCst);
        let entries = self.uids.entry_count() + self.names.entry_count();
        self.uids.invalidate_all();
        self.names.invalidate_all();
        entries
    }

    /// Sets whether look-ups find nothing.
    pub fn suspend(&self, is_suspended: bool) {
        self.state.is_suspended.store(is_suspended, Ordering::Relaxed);
    }

    fn is_suspended(&self) -> bool {
        self.state.is_suspended.load(Ordering::Relaxed)
    }

    fn is_current(&self, mark: ReadMark) -> bool {
        self.state.invalidations.load(Ordering::SeqCst) == mark.0
    }
}

fn weight(name: &Name) -> u32 {
    u32::try_from(name.as_bytes().len())
        .unwrap_or(u32::MAX)
        .saturating_add(ENTRY_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(number: u64) -> (Name, Uid) {
        let name = Name::from_stored(format!("name-{number:06}").as_bytes()).unwrap();
        (
            name,
            Uid::from_number(number, oxtsdb_schema::UidWidth::DEFAULT).unwrap(),
        )
    }

    fn cache(ttl: Option<Duration>) -> UidCache {
        UidCache::new(CacheLimits { bytes: 100_000, ttl })
    }

    #[test]
    fn entries_expire_despite_hits() {
        let cache = cache(Some(Duration::from_millis(1)));
        let (name, uid) = entry(7);
        cache.insert(cache.mark(), UidKind::Tagk, &name, uid);
        while cache.uid(&(UidKind::Tagk, name.clone())).is_some() {
            std::thread::yield_now();
        }
        while cache.name(&(UidKind::Tagk, uid)).is_some() {
            std::thread::yield_now();
        }
    }

    #[test]
    fn memory_is_bounded() {
        let cache = cache(None);
        for (name, uid) in (1..10_000).map(entry) {
            cache.insert(cache.mark(), UidKind::Metric, &name, uid);
        }
        cache.uids.run_pending_tasks();
        cache.names.run_pending_tasks();
        let entries = cache.uids.entry_count();
        assert!(
            (1..=100_000 / u64::from(ENTRY_BYTES)).contains(&entries),
            "{entries} entries"
        );
        assert!(cache.uids.weighted_size() <= 100_000);
        assert!(cache.names.weighted_size() <= 100_000);
    }

    #[test]
    fn kinds_are_separate_and_a_reverse_mapping_adds_no_forward_one() {
        let cache = cache(None);
        let (name, uid) = entry(7);
        cache.insert_name(cache.mark(), (UidKind::Tagk, uid), name.clone());
        assert_eq!(cache.name(&(UidKind::Tagk, uid)), Some(name.clone()));
        assert_eq!(cache.uid(&(UidKind::Tagk, name.clone())), None);
        assert_eq!(cache.name(&(UidKind::Tagv, uid)), None);
        cache.insert(cache.mark(), UidKind::Tagk, &name, uid);
        assert_eq!(cache.uid(&(UidKind::Tagk, name.clone())), Some(uid));
        assert_eq!(cache.uid(&(UidKind::Metric, name)), None);
    }

    #[test]
    fn invalidations_remove_mappings_that_were_read_before_them() {
        let cache = cache(None);
        let (name, uid) = entry(7);
        let (key, reverse) = ((UidKind::Tagk, name.clone()), (UidKind::Tagk, uid));
        for is_all in [false, true] {
            let mark = cache.mark();
            cache.insert(mark, UidKind::Tagk, &name, uid);
            if is_all {
                cache.clear();
            } else {
                cache.invalidate([&key], &reverse);
            }
            assert_eq!((cache.uid(&key), cache.name(&reverse)), (None, None));
            cache.insert(mark, UidKind::Tagk, &name, uid);
            assert_eq!(
                (cache.uid(&key), cache.name(&reverse)),
                (None, None),
                "a late read"
            );
            cache.insert(cache.mark(), UidKind::Tagk, &name, uid);
            assert_eq!(cache.uid(&key), Some(uid));
        }
    }

    #[test]
    fn a_suspended_cache_finds_nothing() {
        let cache = cache(None);
        let (name, uid) = entry(7);
        cache.insert(cache.mark(), UidKind::Tagk, &name, uid);
        cache.suspend(true);
        assert_eq!(cache.uid(&(UidKind::Tagk, name.clone())), None);
        cache.suspend(false);
        assert_eq!(cache.uid(&(UidKind::Tagk, name)), Some(uid));
    }
}
