//! Names to UIDs and UIDs to names: the cache, else one read for all who ask at once.
//!
//! A read that another caller began may have begun before a mapping was made. What it found is true
//! for ever; that it found nothing is not, so who must know reads again.

use std::hash::Hash;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use oxtsdb_schema::{Name, Uid};

use crate::cache::UidCache;
use crate::error::UidServiceError;
use crate::flight::Flights;
use crate::table::{KindName, KindUid, UidTable};

/// An answer for one item: what was found, if anything.
type Found<V> = Result<Option<V>, UidServiceError>;

/// What it means that nothing was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Absence {
    /// There was nothing when the call came, or later.
    Certain,
    /// There was nothing a moment ago; the caller will look again.
    Provisional,
}

/// Finds mappings.
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

    /// The UIDs of names, in their order.
    pub(crate) async fn uids(&self, names: &[KindName], absence: Absence) -> Vec<Found<Uid>> {
        let read = |names: Vec<KindName>| async move { self.read_uids(&names).await }.boxed();
        look_up(names, |name| self.cache.uid(name), &self.uid_reads, read, absence).await
    }

    /// The names of UIDs, in their order.
    pub(crate) async fn names(&self, uids: &[KindUid]) -> Vec<Found<Name>> {
        let read = |uids: Vec<KindUid>| async move { self.read_names(&uids).await }.boxed();
        look_up(
            uids,
            |uid| self.cache.name(uid),
            &self.name_reads,
            read,
            Absence::Certain,
        )
        .await
    }

    /// As [`Lookup::uids`], from the store in any case. The cache learns of it.
    pub(crate) async fn read_uids(&self, names: &[KindName]) -> Vec<Found<Uid>> {
        let answers = self.table.uids(names).await;
        for (key, answer) in names.iter().zip(&answers) {
            match answer {
                Ok(Some(uid)) => self.cache.insert(key.0, &key.1, *uid),
                Ok(None) => self.cache.forget_name(key),
                Err(_) => {}
            }
        }
        answers
    }

    /// As [`Lookup::names`], from the store in any case. The cache learns of it.
    pub(crate) async fn read_names(&self, uids: &[KindUid]) -> Vec<Found<Name>> {
        let answers = self.table.names(uids).await;
        for (key, answer) in uids.iter().zip(&answers) {
            match answer {
                Ok(Some(name)) => self.cache.insert_name(*key, name.clone()),
                Ok(None) => self.cache.forget_uid(key),
                Err(_) => {}
            }
        }
        answers
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
    let mut answers: Vec<Found<V>> = keys.iter().map(|key| Ok(cached(key))).collect();
    let missing: Vec<usize> = (0..keys.len())
        .filter(|place| matches!(answers[*place], Ok(None)))
        .collect();
    if missing.is_empty() {
        return answers;
    }
    let (followers, leader) = reads.join(missing.iter().map(|place| keys[*place].clone()));
    if let Some(leader) = leader {
        let found = read(leader.keys().to_vec()).await;
        leader.finish(found);
    }
    let mut unread = Vec::new();
    for (place, follower) in missing.into_iter().zip(followers) {
        let is_ours = follower.leads();
        match follower.answer().await {
            Some(Ok(None)) if !is_ours && absence == Absence::Certain => unread.push(place),
            Some(answer) => answers[place] = answer,
            // A leader whose caller went away leaves its keys unread.
            None => unread.push(place),
        }
    }
    if !unread.is_empty() {
        let keys = unread.iter().map(|place| keys[*place].clone()).collect();
        for (place, answer) in unread.into_iter().zip(read(keys).await) {
            answers[place] = answer;
        }
    }
    answers
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use tokio::sync::Notify;

    use super::*;

    #[tokio::test]
    async fn a_read_that_began_too_early_does_not_hide_a_mapping() {
        let reads = Flights::new();
        let (begun, go_on) = (Notify::new(), Notify::new());
        let (count, assigned) = (AtomicUsize::new(0), AtomicBool::new(false));
        let read = |keys: Vec<&'static str>| {
            let found = assigned.load(Ordering::SeqCst).then_some(7);
            let first = count.fetch_add(1, Ordering::SeqCst) == 0;
            let (begun, go_on) = (&begun, &go_on);
            async move {
                if first {
                    begun.notify_one();
                    go_on.notified().await;
                }
                keys.iter().map(|_| Ok(found)).collect()
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
        let only = |answers: Vec<Found<i32>>| answers.into_iter().next().unwrap().unwrap();
        assert_eq!(
            (only(early), only(provisional), only(certain)),
            (None, None, Some(7))
        );
        assert_eq!(count.into_inner(), 2, "the provisional one followed");
    }
}
