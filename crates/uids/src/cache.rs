//! In-memory cache of mappings in both directions, bounded in bytes and in time.
//!
//! The cache holds existing mappings only. Absence is not cached, because another replica or an OpenTSDB may
//! assign the name at any time. An existing mapping changes only if an operator renames or deletes a name.
//! Changes by this service invalidate it, changes by other replicas as soon as this one has read them from the
//! log ([`crate::change`]). Other programs send no invalidation, so an entry expires a fixed time after it was
//! read; hits do not extend it. (OpenTSDB keeps entries until it terminates or its caches are dropped.)
//!
//! A read of the store that started before an invalidation may return what it invalidates. So every read begins with
//! a [`ReadMark`], and a mapping that was read under an older mark than the last invalidation is not added.
//!
//! While this replica does not read the log, it does not know which mappings have changed: after a time limit, which
//! each read extends, every look-up reads the store (`coherence`).

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use oxtsdb_resources::{EntryBytes, TimedCache};
use oxtsdb_schema::{Name, Uid};

use crate::table::{KindName, KindUid};

/// The cache.
#[derive(Debug)]
pub struct UidCache {
    uids: TimedCache<KindName, Uid>,
    names: TimedCache<KindUid, Name>,
    /// Invalidations so far.
    invalidations: AtomicU64,
    began: tokio::time::Instant,
    /// Until when the cache may be used, in milliseconds after `began`.
    usable_until: AtomicU64,
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

/// Memory of an entry without its name. Measured: names of 20 bytes take 217 to 423 bytes each in both directions
/// together, depending on the spare capacity of the hash tables.
const ENTRY_BYTES: u64 = 190;

impl UidCache {
    /// An empty cache.
    pub fn new(limits: CacheLimits) -> Self {
        Self {
            uids: TimedCache::new(
                limits.bytes,
                limits.ttl,
                EntryBytes {
                    fixed: ENTRY_BYTES,
                    text: |(_, name): &KindName, _| name.as_bytes().len(),
                },
            ),
            names: TimedCache::new(
                limits.bytes,
                limits.ttl,
                EntryBytes {
                    fixed: ENTRY_BYTES,
                    text: |_, name: &Name| name.as_bytes().len(),
                },
            ),
            invalidations: AtomicU64::new(0),
            began: tokio::time::Instant::now(),
            usable_until: AtomicU64::new(u64::MAX),
        }
    }

    /// Entries of both directions.
    pub fn entries(&self) -> u64 {
        (self.uids.len() + self.names.len()) as u64
    }

    /// Their bytes.
    pub fn byte_len(&self) -> u64 {
        self.uids.byte_len() + self.names.byte_len()
    }

    /// The UID of a name, if it is cached.
    pub fn uid(&self, name: &KindName) -> Option<Uid> {
        self.uids.get(name)
    }

    /// The name of a UID, if it is cached.
    pub fn name(&self, uid: &KindUid) -> Option<Name> {
        self.names.get(uid)
    }

    /// Marks the beginning of a read of the store.
    pub fn mark(&self) -> ReadMark {
        ReadMark(self.invalidations.load(Ordering::SeqCst))
    }

    /// Adds the UID of a name, read from its forward cell after `mark`. Not the reverse direction: writers look up names
    /// only, and it would take as much memory again.
    pub fn insert_uid(&self, mark: ReadMark, name: KindName, uid: Uid) {
        self.uids.insert(name.clone(), uid);
        if !self.is_current(mark) {
            self.invalidate_name(&name);
        }
    }

    /// Adds the name of a UID. Not the forward direction: a reverse cell alone may be an orphan of an assignment that lost a
    /// race.
    pub fn insert_name(&self, mark: ReadMark, uid: KindUid, name: Name) {
        self.names.insert(uid, name);
        if !self.is_current(mark) {
            self.invalidate_uid(&uid);
        }
    }

    /// Removes a name that is no longer in the table.
    pub fn invalidate_name(&self, name: &KindName) {
        self.uids.remove(name);
    }

    /// Removes a UID that is no longer in the table.
    pub fn invalidate_uid(&self, uid: &KindUid) {
        self.names.remove(uid);
    }

    /// Removes mappings that have changed, also if a read in progress returns them.
    pub fn invalidate<'a>(&self, names: impl IntoIterator<Item = &'a KindName>, uid: &KindUid) {
        // First: a read that adds its mapping after this sees it, one that added it before is undone below.
        self.invalidations.fetch_add(1, Ordering::SeqCst);
        names.into_iter().for_each(|name| self.invalidate_name(name));
        self.invalidate_uid(uid);
    }

    /// As [`UidCache::invalidate`], for UIDs with names that are not known any more. Returns the names that were cached. Reads
    /// all entries.
    pub fn invalidate_uids(&self, uids: &HashSet<KindUid>) -> Vec<KindName> {
        self.invalidations.fetch_add(1, Ordering::SeqCst);
        let names = self.uids.keys_of(|(kind, _), uid| uids.contains(&(*kind, *uid)));
        names.iter().for_each(|name| self.invalidate_name(name));
        uids.iter().for_each(|uid| self.invalidate_uid(uid));
        names
    }

    /// Removes all entries, also those that reads in progress return. Returns their number, about.
    pub fn clear(&self) -> u64 {
        self.invalidations.fetch_add(1, Ordering::SeqCst);
        let entries = self.uids.len() + self.names.len();
        self.uids.clear();
        self.names.clear();
        entries as u64
    }

    /// Sets until when the cache may be used; without a call, always.
    pub fn use_until(&self, until: tokio::time::Instant) {
        let until = until.duration_since(self.began).as_millis();
        let until = u64::try_from(until).unwrap_or(u64::MAX);
        self.usable_until.store(until, Ordering::Relaxed);
    }

    /// Whether the cache may be used. Look-ups check it once for all their names.
    pub fn is_usable(&self) -> bool {
        let until = self.usable_until.load(Ordering::Relaxed);
        until == u64::MAX || self.began.elapsed() < Duration::from_millis(until)
    }

    fn is_current(&self, mark: ReadMark) -> bool {
        self.invalidations.load(Ordering::SeqCst) == mark.0
    }
}

#[cfg(test)]
mod tests {
    use oxtsdb_schema::UidKind;

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
        cache.insert_uid(cache.mark(), (UidKind::Tagk, name.clone()), uid);
        cache.insert_name(cache.mark(), (UidKind::Tagk, uid), name.clone());
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
            cache.insert_uid(cache.mark(), (UidKind::Metric, name.clone()), uid);
            cache.insert_name(cache.mark(), (UidKind::Metric, uid), name);
        }
        for (entries, weight) in [
            (cache.uids.len(), cache.uids.byte_len()),
            (cache.names.len(), cache.names.byte_len()),
        ] {
            assert!(weight <= 100_000, "{weight} bytes");
            assert!(entries as u64 >= 50_000 / (ENTRY_BYTES + 11), "{entries} entries");
        }
    }

    #[test]
    fn kinds_are_separate_and_so_are_directions() {
        let cache = cache(None);
        let (name, uid) = entry(7);
        cache.insert_name(cache.mark(), (UidKind::Tagk, uid), name.clone());
        assert_eq!(cache.name(&(UidKind::Tagk, uid)), Some(name.clone()));
        assert_eq!(cache.uid(&(UidKind::Tagk, name.clone())), None);
        assert_eq!(cache.name(&(UidKind::Tagv, uid)), None);
        cache.insert_uid(cache.mark(), (UidKind::Tagk, name.clone()), uid);
        assert_eq!(cache.uid(&(UidKind::Tagk, name.clone())), Some(uid));
        assert_eq!(cache.uid(&(UidKind::Metric, name.clone())), None);
        cache.insert_uid(cache.mark(), (UidKind::Metric, name), uid);
        assert_eq!(cache.name(&(UidKind::Metric, uid)), None);
    }

    #[test]
    fn invalidations_remove_mappings_that_were_read_before_them() {
        let cache = cache(None);
        let (name, uid) = entry(7);
        let (key, reverse) = ((UidKind::Tagk, name.clone()), (UidKind::Tagk, uid));
        for is_all in [false, true] {
            let mark = cache.mark();
            let insert = |mark| {
                cache.insert_uid(mark, key.clone(), uid);
                cache.insert_name(mark, reverse, name.clone());
            };
            insert(mark);
            if is_all {
                cache.clear();
            } else {
                cache.invalidate([&key], &reverse);
            }
            assert_eq!((cache.uid(&key), cache.name(&reverse)), (None, None));
            insert(mark);
            assert_eq!(
                (cache.uid(&key), cache.name(&reverse)),
                (None, None),
                "a late read"
            );
            insert(cache.mark());
            assert_eq!(cache.uid(&key), Some(uid));
        }
    }

    #[test]
    fn invalidations_by_uid_remove_all_names_of_the_uid() {
        let cache = cache(None);
        let [(name, uid), (other, other_uid)] = [entry(7), entry(8)];
        let (old, kept) = ((UidKind::Tagv, name.clone()), (UidKind::Tagv, other));
        let mark = cache.mark();
        cache.insert_uid(mark, old.clone(), uid);
        cache.insert_uid(mark, kept.clone(), other_uid);
        // UIDs of kinds are separate.
        cache.insert_uid(mark, (UidKind::Tagk, name), uid);
        let changed = HashSet::from([(UidKind::Tagv, uid)]);
        assert_eq!(cache.invalidate_uids(&changed), std::slice::from_ref(&old));
        assert_eq!((cache.uid(&old), cache.uid(&kept)), (None, Some(other_uid)));
        cache.insert_uid(mark, old.clone(), uid);
        assert_eq!(cache.uid(&old), None, "a late read");
        assert_eq!(cache.entries(), 2);
    }
}
