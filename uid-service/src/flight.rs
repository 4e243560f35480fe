//! Equal work that is wanted several times at once is done once.
//!
//! Who asks first for a key leads: it does the work for all of its keys in one batch. Who asks for
//! the same key meanwhile follows: it waits for that answer.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::watch;

/// The answers of a leader, in the order of its keys; none until it has them.
type Answers<V> = Option<Arc<[V]>>;

/// Work under way, by key. Cloning is cheap and shares it.
#[derive(Debug)]
pub(crate) struct Flights<K, V> {
    under_way: Arc<Mutex<HashMap<K, Follower<V>>>>,
}

/// Waits for the answer to one key.
#[derive(Debug)]
pub(crate) struct Follower<V> {
    answers: watch::Receiver<Answers<V>>,
    place: usize,
    leads: bool,
}

/// The duty to find the answers for some keys. Dropped without them, it tells the followers so.
#[derive(Debug)]
pub(crate) struct Leader<K: Hash + Eq, V> {
    keys: Vec<K>,
    answers: watch::Sender<Answers<V>>,
    under_way: Arc<Mutex<HashMap<K, Follower<V>>>>,
}

impl<K: Hash + Eq + Clone, V: Clone> Flights<K, V> {
    pub(crate) fn new() -> Self {
        Self {
            under_way: Arc::default(),
        }
    }

    /// A follower for each key, in their order, and the duty for those that nobody does yet.
    pub(crate) fn join(&self, keys: impl IntoIterator<Item = K>) -> (Vec<Follower<V>>, Option<Leader<K, V>>) {
        let (sender, receiver) = watch::channel(None);
        let mut led = Vec::new();
        let mut under_way = self.under_way.lock();
        let followers = keys
            .into_iter()
            .map(|key| {
                if let Some(other) = under_way.get(&key) {
                    return other.follow(false);
                }
                let mine = Follower {
                    answers: receiver.clone(),
                    place: led.len(),
                    leads: true,
                };
                under_way.insert(key.clone(), mine.follow(false));
                led.push(key);
                mine
            })
            .collect();
        drop(under_way);
        let leader = (!led.is_empty()).then(|| Leader {
            keys: led,
            answers: sender,
            under_way: self.under_way.clone(),
        });
        (followers, leader)
    }
}

impl<K: Hash + Eq, V> Leader<K, V> {
    /// What to find answers for; no key twice.
    pub(crate) fn keys(&self) -> &[K] {
        &self.keys
    }

    /// Gives the answers, in the order of the keys, to all who wait.
    pub(crate) fn finish(self, answers: Vec<V>) {
        self.answers.send_replace(Some(answers.into()));
    }
}

impl<K: Hash + Eq, V> Drop for Leader<K, V> {
    fn drop(&mut self) {
        let mut under_way = self.under_way.lock();
        for key in &self.keys {
            under_way.remove(key);
        }
    }
}

impl<V: Clone> Follower<V> {
    /// True for the one that asked first, whose duty the key became.
    pub(crate) fn leads(&self) -> bool {
        self.leads
    }

    /// The answer; `None` if the leader was dropped without one.
    pub(crate) async fn answer(mut self) -> Option<V> {
        let answers = self.answers.wait_for(Option::is_some).await.ok()?;
        answers.as_ref()?.get(self.place).cloned()
    }

    fn follow(&self, leads: bool) -> Self {
        Self {
            answers: self.answers.clone(),
            place: self.place,
            leads,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_key_under_way_is_followed_and_then_free_again() {
        let flights = Flights::new();
        let (first, leader) = flights.join(["a", "b", "a"]);
        assert_eq!(
            first.iter().map(Follower::leads).collect::<Vec<_>>(),
            [true, true, false]
        );
        let leader = leader.unwrap();
        assert_eq!(leader.keys(), ["a", "b"]);
        let (second, other) = flights.join(["c", "b"]);
        assert_eq!(other.unwrap().keys(), ["c"]);
        leader.finish(vec![1, 2]);
        let mut answers = Vec::new();
        for follower in first.into_iter().chain(second) {
            answers.push(follower.answer().await);
        }
        assert_eq!(
            answers,
            [Some(1), Some(2), Some(1), None, Some(2)],
            "the leader of c was dropped"
        );
        assert_eq!(flights.join(["b"]).1.unwrap().keys(), ["b"]);
    }
}
