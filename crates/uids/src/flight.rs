//! Single flight: concurrent requests for one key share one operation.
//!
//! The first request for a key becomes its leader, and resolves all of its keys in one batch. Requests that
//! arrive for the same key meanwhile become followers, and wait for the leader's result.

use std::hash::Hash;
use std::sync::Arc;

use hashbrown::HashMap;
use parking_lot::Mutex;
use tokio::sync::watch;

/// The results of a leader, in the order of its keys; `None` while it works.
type Results<V> = Option<Arc<[V]>>;

/// Operations in flight, by key.
#[derive(Debug)]
pub(crate) struct Flights<K, V> {
    in_flight: Arc<Mutex<HashMap<K, Follower<V>>>>,
}

/// Waits for the result of one key.
#[derive(Debug)]
pub(crate) struct Follower<V> {
    results: watch::Receiver<Results<V>>,
    /// Index of the key among the leader's keys.
    index: usize,
    is_leader: bool,
}

/// The obligation to resolve some keys. Dropping it without results wakes the followers with `None`.
#[derive(Debug)]
pub(crate) struct Leader<K: Hash + Eq, V> {
    keys: Vec<K>,
    results: watch::Sender<Results<V>>,
    /// Of `results`: identifies the flight.
    receiver: watch::Receiver<Results<V>>,
    in_flight: Arc<Mutex<HashMap<K, Follower<V>>>>,
}

impl<K: Hash + Eq + Clone, V: Clone> Flights<K, V> {
    pub(crate) fn new() -> Self {
        Self {
            in_flight: Arc::default(),
        }
    }

    /// Returns a follower for each key, in their order, and the leader of the keys that are not in flight.
    pub(crate) fn join(&self, keys: impl IntoIterator<Item = K>) -> (Vec<Follower<V>>, Option<Leader<K, V>>) {
        let (sender, receiver) = watch::channel(None);
        let mut new_keys = Vec::new();
        let mut in_flight = self.in_flight.lock();
        let followers = keys
            .into_iter()
            .map(|key| {
                if let Some(other) = in_flight.get(&key) {
                    return other.follow();
                }
                let mine = Follower {
                    results: receiver.clone(),
                    index: new_keys.len(),
                    is_leader: true,
                };
                in_flight.insert(key.clone(), mine.follow());
                new_keys.push(key);
                mine
            })
            .collect();
        drop(in_flight);
        let leader = (!new_keys.is_empty()).then(|| Leader {
            keys: new_keys,
            results: sender,
            receiver,
            in_flight: self.in_flight.clone(),
        });
        (followers, leader)
    }
}

impl<K: Hash + Eq, V> Flights<K, V> {
    /// Makes later requests for a key lead an operation of their own: one in flight may return what is no longer
    /// true.
    pub(crate) fn forget(&self, key: &K) {
        self.in_flight.lock().remove(key);
    }

    /// Makes later requests for all keys lead operations of their own.
    pub(crate) fn forget_all(&self) {
        self.in_flight.lock().clear();
    }
}

impl<K: Hash + Eq, V> Leader<K, V> {
    /// The distinct keys to resolve.
    pub(crate) fn keys(&self) -> &[K] {
        &self.keys
    }

    /// Sends the results, in the order of the keys, to all followers.
    pub(crate) fn finish(self, results: Vec<V>) {
        self.results.send_replace(Some(results.into()));
    }
}

impl<K: Hash + Eq, V> Drop for Leader<K, V> {
    fn drop(&mut self) {
        let mut in_flight = self.in_flight.lock();
        for key in &self.keys {
            // A forgotten key may have another leader.
            let is_own = |other: &Follower<V>| other.results.same_channel(&self.receiver);
            if in_flight.get(key).is_some_and(is_own) {
                in_flight.remove(key);
            }
        }
    }
}

impl<V: Clone> Follower<V> {
    /// Whether the request of this follower leads the key.
    pub(crate) fn is_leader(&self) -> bool {
        self.is_leader
    }

    /// Waits for the result; `None` if the leader was dropped without one.
    pub(crate) async fn result(mut self) -> Option<V> {
        let results = self.results.wait_for(Option::is_some).await.ok()?;
        results.as_ref()?.get(self.index).cloned()
    }

    fn follow(&self) -> Self {
        Self {
            results: self.results.clone(),
            index: self.index,
            is_leader: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn concurrent_requests_share_a_leader() {
        let flights = Flights::new();
        let (first, leader) = flights.join(["a", "b", "a"]);
        assert_eq!(
            first.iter().map(Follower::is_leader).collect::<Vec<_>>(),
            [true, true, false]
        );
        let leader = leader.unwrap();
        assert_eq!(leader.keys(), ["a", "b"]);
        let (second, other) = flights.join(["c", "b"]);
        assert_eq!(other.unwrap().keys(), ["c"]);
        leader.finish(vec![1, 2]);
        let mut results = Vec::new();
        for follower in first.into_iter().chain(second) {
            results.push(follower.result().await);
        }
        assert_eq!(
            results,
            [Some(1), Some(2), Some(1), None, Some(2)],
            "the leader of c was dropped"
        );
        assert_eq!(flights.join(["b"]).1.unwrap().keys(), ["b"]);
    }

    #[tokio::test]
    async fn a_forgotten_key_has_another_leader() {
        let flights = Flights::new();
        let (mut early, first) = flights.join(["a"]);
        flights.forget(&"a");
        let (mut late, second) = flights.join(["a"]);
        assert_eq!(second.as_ref().unwrap().keys(), ["a"]);
        first.unwrap().finish(vec![1]);
        assert_eq!(
            flights.join(["a"]).1.map(|_| ()),
            None,
            "the second one is in flight"
        );
        second.unwrap().finish(vec![2]);
        assert_eq!(early.remove(0).result().await, Some(1));
        assert_eq!(late.remove(0).result().await, Some(2));
    }
}
