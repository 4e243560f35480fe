//! Look-ups of UIDs by name and of names by UID, from the cache or by one read for all concurrent requests.
//!
//! A read that another request started may predate an assignment: its misses may be stale. A look-up that needs a
//! certain miss reads again. Its hits are valid: a rename or a delete makes later requests read again
//! ([`Lookup::invalidate`]).

use std::collections::HashSet;
use std::hash::Hash;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use oxtsdb_schema::{Name, Uid};
use tokio::time::Instant;

use crate::cache::UidCache;
use crate::error::UidServiceError;
use crate::flight::Flights;
use crate::table::{KindName, KindUid, UidTable};

/// The result for one item: the mapping, if it exists.
type Found<V> = Result<Option<V>, UidServiceError>;

/// How reliable a miss must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Absence {
    /// The mapping did not exist at some time after the look-up started.
    Certain,
    /// The mapping may have been assigned just before the look-up; the caller checks again.
    Provisional,
}

/// Looks up mappings.
#[derive(Debug)]
pub(crate) struct Lookup {
    table: UidTable,
    cache: UidCache,
    uid_reads: Flights<KindName, Found<Uid>>,
    name_reads: Flights<KindUid, Found<Name>>,
}

impl Lookup {
    pub(crate) fn new(table: UidTable, cache: UidCache) -> Self {
        Self {
            table,
            cache,
            uid_reads: Flights::new(),
            name_reads: Flights::new(),
        }
    }

    /// Returns the UIDs of names, in their order.
    pub(crate) async fn uids(&self, names: &[KindName], absence: Absence) -> Vec<Found<Uid>> {
        let read = |names: Vec<KindName>| async move { self.read_uids(&names).await }.boxed();
        let is_usable = self.cache.is_usable();
        let cached = |name: &KindName| self.cache.uid(name).filter(|_| is_usable);
        look_up(names, cached, &self.uid_reads, read, absence).await
    }

    /// Returns the names of UIDs, in their order.
    pub(crate) async fn names(&self, uids: &[KindUid]) -> Vec<Found<Name>> {
        let read = |uids: Vec<KindUid>| async move { self.read_names(&uids).await }.boxed();
        let is_usable = self.cache.is_usable();
        let cached = |uid: &KindUid| self.cache.name(uid).filter(|_| is_usable);
        look_up(uids, cached, &self.name_reads, read, Absence::Certain).await
    }

    /// Forgets mappings that have changed, in the cache and in reads in progress.
    pub(crate) fn invalidate(&self, names: &[KindName], uid: &KindUid) {
        self.cache.invalidate(names, uid);
        names.iter().for_each(|name| self.uid_reads.forget(name));
        self.name_reads.forget(uid);
    }

    /// As [`Lookup::invalidate`], for UIDs with names that are not known any more. Returns the names that were cached.
    pub(crate) fn invalidate_uids(&self, uids: &HashSet<KindUid>) -> Vec<KindName> {
        let names = self.cache.invalidate_uids(uids);
        names.iter().for_each(|name| self.uid_reads.forget(name));
        uids.iter().for_each(|uid| self.name_reads.forget(uid));
        names
    }

    /// Forgets all mappings. Returns the number of cached entries, about.
    pub(crate) fn clear(&self) -> u64 {
        let entries = self.cache.clear();
        self.uid_reads.forget_all();
        self.name_reads.forget_all();
        entries
    }

    /// The cache.
    pub(crate) fn cache(&self) -> &UidCache {
        &self.cache
    }

    /// Sets until when the cache is used.
    pub(crate) fn use_cache_until(&self, until: Instant) {
        self.cache.use_until(until);
    }

    /// Whether the cache is used: renames and deletes by other replicas are known.
    pub(crate) fn uses_cache(&self) -> bool {
        self.cache.is_usable()
    }

    /// As [`Lookup::uids`], but bypasses the cache and updates it.
    pub(crate) async fn read_uids(&self, names: &[KindName]) -> Vec<Found<Uid>> {
        let mark = self.cache.mark();
        let results = self.table.uids(names).await;
        for (key, result) in names.iter().zip(&results) {
            match result {
                Ok(Some(uid)) => self.cache.insert_uid(mark, key.clone(), *uid),
                Ok(None) => self.cache.invalidate_name(key),
                Err(_) => {}
            }
        }
        results
    }

    /// As [`Lookup::names`], but bypasses the cache and updates it.
    pub(crate) async fn read_names(&self, uids: &[KindUid]) -> Vec<Found<Name>> {
        let mark = self.cache.mark();
        let results = self.table.names(uids).await;
        for (key, result) in uids.iter().zip(&results) {
            match result {
                Ok(Some(name)) => self.cache.insert_name(mark, *key, name.clone()),
                Ok(None) => self.cache.invalidate_uid(key),
                Err(_) => {}
            }
        }
        results
    }
}

async fn look_up<'a, K, V>(
    keys: &[K],
    cached: impl Fn(&K) -> Option<V>,
    reads: &Flights<K, Found<V>>,
    read: impl Fn(Vec<K>) -> BoxFuture<'a, Vec<Found<V>>>,
    absence: Absence,
) -> Vec<Found<V>>
where
    K: Hash + Eq + Clone,
    V: Clone,
{
    let mut results: Vec<Found<V>> = keys.iter().map(|key| Ok(cached(key))).collect();
    let missing: Vec<usize> = (0..keys.len())
        .filter(|index| matches!(results[*index], Ok(None)))
        .collect();
    if missing.is_empty() {
        return results;
    }
    let (followers, leader) = reads.join(missing.iter().map(|index| keys[*index].clone()));
    if let Some(leader) = leader {
        let outcomes = read(leader.keys().to_vec()).await;
        leader.finish(outcomes);
    }
    let mut unread = Vec::new();
    for (index, follower) in missing.into_iter().zip(followers) {
        let is_leader = follower.is_leader();
        match follower.result().await {
            Some(Ok(None)) if !is_leader && absence == Absence::Certain => unread.push(index),
            Some(result) => results[index] = result,
            // The caller of the leader cancelled its request.
            None => unread.push(index),
        }
    }
    if !unread.is_empty() {
        let keys = unread.iter().map(|index| keys[*index].clone()).collect();
        for (index, result) in unread.into_iter().zip(read(keys).await) {
            results[index] = result;
        }
    }
    results
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use tokio::sync::Notify;

    use super::*;

    #[tokio::test]
    async fn a_stale_miss_is_read_again() {
        let reads = Flights::new();
        let (begun, go_on) = (Notify::new(), Notify::new());
        let (count, assigned) = (AtomicUsize::new(0), AtomicBool::new(false));
        let read = |keys: Vec<&'static str>| {
            let value = assigned.load(Ordering::SeqCst).then_some(7);
            let first = count.fetch_add(1, Ordering::SeqCst) == 0;
            let (begun, go_on) = (&begun, &go_on);
            async move {
                if first {
                    begun.notify_one();
                    go_on.notified().await;
                }
                keys.iter().map(|_| Ok(value)).collect()
            }
            .boxed()
        };
        let key = ["name"];
        let early = look_up(&key, |_| None, &reads, read, Absence::Certain);
        let late = async {
            begun.notified().await;
            assigned.store(true, Ordering::SeqCst);
            let provisional = look_up(&key, |_| None, &reads, read, Absence::Provisional);
            let certain = look_up(&key, |_| None, &reads, read, Absence::Certain);
            let release = async { go_on.notify_one() };
            let (provisional, certain, ()) = tokio::join!(provisional, certain, release);
            (provisional, certain)
        };
        let (early, (provisional, certain)) = tokio::join!(early, late);
        let only = |results: Vec<Found<i32>>| results.into_iter().next().unwrap().unwrap();
        assert_eq!(
            (only(early), only(provisional), only(certain)),
            (None, None, Some(7))
        );
        assert_eq!(
            count.into_inner(),
            2,
            "the provisional look-up followed the first read"
        );
    }
}
