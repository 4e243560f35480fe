//! Mappings held in memory, both directions, bounded in bytes and in time.
//!
//! Only what is in the table is held, never that a name is unknown: an unknown name can become
//! known at any moment, at another replica or in an OpenTSDB too. A mapping that is there changes
//! only when an operator renames or deletes a name, and whoever did that cannot tell us; so a mapping
//! is held for a set time at most, counted from when it was read or assigned, however often it is
//! asked for. (OpenTSDB holds it until it ends or is told to drop its caches.)

use std::time::Duration;

use moka::sync::Cache;
use oxtsdb_schema::{Name, Uid, UidKind};

use crate::table::{KindName, KindUid};

/// The mappings. Cloning is cheap and shares them.
#[derive(Clone, Debug)]
pub struct UidCache {
    uids: Cache<KindName, Uid>,
    names: Cache<KindUid, Name>,
}

/// How much is held, and how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheLimits {
    /// Memory for each direction, in bytes; 0 holds nothing.
    pub bytes: u64,
    /// How long a mapping is held; `None`: as long as there is room.
    pub ttl: Option<Duration>,
}

/// What an entry takes beside its name. Measured: a million mappings of names of 20 bytes take 690
/// bytes each, both directions together.
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
        }
    }

    /// The UID of a name, if it is held.
    pub fn uid(&self, name: &KindName) -> Option<Uid> {
        self.uids.get(name)
    }

    /// The name of a UID, if it is held.
    pub fn name(&self, uid: &KindUid) -> Option<Name> {
        self.names.get(uid)
    }

    /// Holds a complete mapping: one that was read forward, or assigned.
    pub fn insert(&self, kind: UidKind, name: &Name, uid: Uid) {
        self.uids.insert((kind, name.clone()), uid);
        self.names.insert((kind, uid), name.clone());
    }

    /// Holds what a UID stands for. Not the other direction: a reverse mapping alone may be the
    /// remains of an assignment that another one overtook.
    pub fn insert_name(&self, uid: KindUid, name: Name) {
        self.names.insert(uid, name);
    }

    /// Drops a name that the table does not hold any more.
    pub fn forget_name(&self, name: &KindName) {
        self.uids.invalidate(name);
    }

    /// Drops a UID that the table does not hold any more.
    pub fn forget_uid(&self, uid: &KindUid) {
        self.names.invalidate(uid);
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
    fn a_mapping_goes_when_its_time_is_over_however_often_it_is_asked_for() {
        let cache = cache(Some(Duration::from_millis(1)));
        let (name, uid) = entry(7);
        cache.insert(UidKind::Tagk, &name, uid);
        while cache.uid(&(UidKind::Tagk, name.clone())).is_some() {
            std::thread::yield_now();
        }
        while cache.name(&(UidKind::Tagk, uid)).is_some() {
            std::thread::yield_now();
        }
    }

    #[test]
    fn what_is_held_is_bounded_in_bytes() {
        let cache = cache(None);
        for (name, uid) in (1..10_000).map(entry) {
            cache.insert(UidKind::Metric, &name, uid);
        }
        cache.uids.run_pending_tasks();
        cache.names.run_pending_tasks();
        let held = cache.uids.entry_count();
        assert!(
            (1..=100_000 / u64::from(ENTRY_BYTES)).contains(&held),
            "{held} entries"
        );
        assert!(cache.uids.weighted_size() <= 100_000);
        assert!(cache.names.weighted_size() <= 100_000);
    }

    #[test]
    fn kinds_are_apart_and_a_reverse_mapping_names_no_uid() {
        let cache = cache(None);
        let (name, uid) = entry(7);
        cache.insert_name((UidKind::Tagk, uid), name.clone());
        assert_eq!(cache.name(&(UidKind::Tagk, uid)), Some(name.clone()));
        assert_eq!(cache.uid(&(UidKind::Tagk, name.clone())), None);
        assert_eq!(cache.name(&(UidKind::Tagv, uid)), None);
        cache.insert(UidKind::Tagk, &name, uid);
        assert_eq!(cache.uid(&(UidKind::Tagk, name.clone())), Some(uid));
        assert_eq!(cache.uid(&(UidKind::Metric, name)), None);
    }
}
