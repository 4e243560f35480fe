//! Gives names their UIDs.
//!
//! Three cells make a mapping: the kind's counter moves on, the reverse mapping (UID to name)
//! appears, then the forward mapping (name to UID). Readers start from the forward mapping, so a UID
//! exists for them only when it is complete. The other order could publish a UID that nothing can
//! name, and whose number another name may be given too.
//!
//! - `stepwise` writes the cells one by one, each by compare-and-put, as OpenTSDB does; both can
//!   assign on one table at once. A crash or a lost race costs a number, never a mapping.
//! - `atomic` writes the cells of a whole batch in one commit, where the store has such: no hole
//!   and no orphan.
//!
//! One batch at a time is under way in a process. Requests that come meanwhile are put together as
//! the next one, so a thousand writers of one new name each cost a few commits, not a thousand; and
//! the numbers of one request follow each other.
//!
//! Source of the order: OpenTSDB 2.4, `UniqueId.UniqueIdAllocator`.

mod atomic;
mod claim;
mod random;
mod stepwise;

use std::collections::VecDeque;
use std::sync::Arc;

use oxtsdb_schema::Uid;
use parking_lot::Mutex;

use crate::cache::UidCache;
use crate::error::UidServiceError;
use crate::flight::{Flights, Leader};
use crate::table::{KindName, UidTable};
use crate::usage::Scarcity;

/// A name's UID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Assigned {
    /// The UID.
    pub uid: Uid,
    /// True if this request had it assigned.
    pub created: bool,
}

/// What became of one name.
pub(crate) type Outcome = Result<Assigned, UidServiceError>;

/// How often a batch starts again after others changed its cells.
const ATTEMPTS: u32 = 32;

/// Numbers that are passed over because a reverse mapping is there, at most, before names are
/// refused. Then the counter stays where it came to, so that the next request goes on from there.
const MAX_PASSED_OVER: usize = 4096;

/// Names in one batch: a commit of some hundred kilobytes.
const BATCH_NAMES: usize = 8192;

/// Bytes of names that may wait for their turn.
const MAX_WAITING_BYTES: usize = 64 << 20;

/// Assigns, one batch at a time. Cloning is cheap.
#[derive(Clone, Debug)]
pub(crate) struct Assigner(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    table: UidTable,
    cache: UidCache,
    scarcity: Scarcity,
    under_way: Flights<KindName, Outcome>,
    waiting: Mutex<Waiting>,
    turn: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct Waiting {
    leaders: VecDeque<Leader<KindName, Outcome>>,
    bytes: usize,
}

impl Assigner {
    pub(crate) fn new(table: UidTable, cache: UidCache) -> Self {
        let scarcity = Scarcity::new(table.layout().clone());
        Self(Arc::new(Inner {
            table,
            cache,
            scarcity,
            under_way: Flights::new(),
            waiting: Mutex::default(),
            turn: tokio::sync::Mutex::default(),
        }))
    }

    /// The UIDs of names, in their order, assigned in that order where there was none.
    ///
    /// What was begun is finished even if this future is dropped.
    pub(crate) async fn assign(&self, names: Vec<KindName>) -> Vec<Outcome> {
        let (followers, leader) = self.0.under_way.join(names);
        if let Some(leader) = leader {
            match self.0.wait_for_a_turn(leader) {
                Ok(()) => drop(tokio::spawn({
                    let inner = self.0.clone();
                    async move { inner.assign_all_waiting().await }
                })),
                Err(leader) => {
                    let refusal = Err(UidServiceError::Overloaded {
                        limit: MAX_WAITING_BYTES,
                    });
                    let refusals = vec![refusal; leader.keys().len()];
                    leader.finish(refusals);
                }
            }
        }
        let mut outcomes = Vec::with_capacity(followers.len());
        for follower in followers {
            let leads = follower.leads();
            let outcome = follower
                .answer()
                .await
                .unwrap_or(Err(UidServiceError::Interrupted));
            outcomes.push(outcome.map(|Assigned { uid, created }| Assigned {
                uid,
                created: created && leads,
            }));
        }
        outcomes
    }
}

impl Inner {
    /// Queues names; gives them back if too many wait.
    fn wait_for_a_turn(&self, leader: Leader<KindName, Outcome>) -> Result<(), Leader<KindName, Outcome>> {
        let mut waiting = self.waiting.lock();
        let bytes = bytes_of(&leader);
        if !waiting.leaders.is_empty() && waiting.bytes + bytes > MAX_WAITING_BYTES {
            return Err(leader);
        }
        waiting.bytes += bytes;
        waiting.leaders.push_back(leader);
        Ok(())
    }

    fn next_batch(&self) -> Vec<Leader<KindName, Outcome>> {
        let mut waiting = self.waiting.lock();
        let mut batch = Vec::new();
        let mut names = 0;
        while let Some(leader) = waiting.leaders.front() {
            names += leader.keys().len();
            if names > BATCH_NAMES && !batch.is_empty() {
                break;
            }
            waiting.bytes -= bytes_of(leader);
            batch.extend(waiting.leaders.pop_front());
        }
        batch
    }

    /// Whoever has the turn does the work of all who wait; the others find nothing left.
    async fn assign_all_waiting(&self) {
        let _turn = self.turn.lock().await;
        loop {
            let batch = self.next_batch();
            if batch.is_empty() {
                return;
            }
            let names: Vec<KindName> = batch.iter().flat_map(Leader::keys).cloned().collect();
            let outcomes = assign_batch(&self.table, &names).await;
            for ((kind, name), outcome) in names.iter().zip(&outcomes) {
                if let Ok(Assigned { uid, created }) = outcome {
                    self.cache.insert(*kind, name, *uid);
                    if *created {
                        self.scarcity.note(*kind, uid.number());
                    }
                }
            }
            let mut outcomes = outcomes.into_iter();
            for leader in batch {
                let own = outcomes.by_ref().take(leader.keys().len()).collect();
                leader.finish(own);
            }
        }
    }
}

fn bytes_of(leader: &Leader<KindName, Outcome>) -> usize {
    leader
        .keys()
        .iter()
        .map(|(_, name)| name.as_bytes().len() + 64)
        .sum()
}

/// Assigns names, none of them twice, in the way that the store allows.
async fn assign_batch(table: &UidTable, names: &[KindName]) -> Vec<Outcome> {
    match table.store().atomic() {
        Some(commit) => atomic::assign(table, commit, names).await,
        None => stepwise::assign(table, names).await,
    }
}

/// The first outcome of a name: what the table holds, or, provisionally, that others were faster.
fn already_there(found: Result<Option<Uid>, UidServiceError>, key: &KindName) -> (bool, Outcome) {
    match found {
        Ok(Some(uid)) => (true, Ok(Assigned { uid, created: false })),
        Ok(None) => (
            false,
            Err(UidServiceError::Contended {
                kind: key.0,
                name: key.1.clone(),
            }),
        ),
        Err(error) => (true, Err(error)),
    }
}

/// Waits a little, longer with each attempt, so that of those who race one comes through.
async fn back_off(attempt: u32) {
    let limit_us = 100_u64 << attempt.min(8);
    tokio::time::sleep(std::time::Duration::from_micros(rand::random_range(0..=limit_us))).await;
}
