//! Mappings held in memory, both directions, bounded in bytes.
//!
//! Only what is in the table is held, never that a name is unknown: a name gets its UID once and
//! keeps it, but an unknown name can become known at any moment, at another replica too.

use moka::sync::Cache;
use oxtsdb_schema::{Name, Uid, UidKind};

use crate::table::{KindName, KindUid};

/// The mappings. Cloning is cheap and shares them.
#[derive(Clone, Debug)]
pub struct UidCache {
    uids: Cache<KindName, Uid>,
    names: Cache<KindUid, Name>,
}

/// What an entry takes beside its name. Measured: a million mappings of names of 20 bytes take 690
/// bytes each, both directions together.
const ENTRY_BYTES: u32 = 325;

impl UidCache {
    /// A cache of so many bytes for each direction; 0 holds nothing.
    pub fn new(bytes: u64) -> Self {
        Self {
            uids: Cache::builder()
                .max_capacity(bytes)
                .weigher(|(_, name): &KindName, _: &Uid| weight(name))
                .build(),
            names: Cache::builder()
                .max_capacity(bytes)
                .weigher(|_: &KindUid, name: &Name| weight(name))
                .build(),
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

    #[test]
    fn what_is_held_is_bounded_in_bytes() {
        let cache = UidCache::new(100_000);
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
        let cache = UidCache::new(100_000);
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
