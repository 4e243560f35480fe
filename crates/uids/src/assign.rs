//! Assigns UIDs to names.
//!
//! A mapping consists of three cells, written in this order: the counter of the kind, the reverse mapping
//! (UID to name), the forward mapping (name to UID). Readers start from the forward mapping, so a UID
//! is visible only when its mapping is complete. The other order could publish a UID that has no name, and its
//! number could be assigned again.
//!
//! - `stepwise` writes the cells one by one with compare-and-put, as OpenTSDB does, so that both can
//!   assign in one table concurrently. A crash or a lost race costs a number, never a mapping.
//! - `atomic` writes the cells of a whole batch in one commit, on stores that support it: no number is
//!   skipped, no mapping is incomplete.
//!
//! A process writes at most one batch at a time. Requests that arrive meanwhile are merged into the next
//! batch, so that a thousand writers of one new name cost a few commits, and the UIDs of one request
//! are consecutive.
//!
//! An assigned mapping is not cached here: the caller caches it, and in `tsdb serve` both caches are in one process. The
//! first look-up of another caller reads the store and caches it.
//!
//! Source of the order: OpenTSDB 2.4, `UniqueId.UniqueIdAllocator`.

mod atomic;
mod claim;
mod outcome;
mod random;
mod stepwise;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use oxtsdb_schema::{AssignedUid, PerKind, UidKind};
use parking_lot::Mutex;

use crate::error::UidServiceError;
use crate::flight::{Flights, Leader};
use crate::in_use::InUse;
use crate::reclaim::free::FreeNumbers;
use crate::suggest::Mapping;
use crate::table::{KindName, UidTable};
use crate::usage::Scarcity;
use crate::watch::Assignments;

pub(crate) use outcome::Outcome;

/// The purpose of a request for UIDs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// For a point to write: rejects new names of kinds that are not created on first use.
    Write,
    /// An explicit assignment by an operator or a tool.
    Explicit,
}

/// Names of a batch: a commit of some hundred kilobytes.
const BATCH_NAMES: usize = 8192;

/// Bytes of names in the queue.
const MAX_QUEUED_BYTES: usize = 64 << 20;

/// Assigns UIDs, one batch at a time. Cloning is cheap.
#[derive(Clone, Debug)]
pub(crate) struct Assigner(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    table: UidTable,
    scarcity: Scarcity,
    assignments: Arc<Assignments>,
    free: FreeNumbers,
    in_use: InUse,
    in_flight: Flights<KindName, Outcome>,
    queue: Mutex<Queue>,
    /// Held while a batch is written.
    turn: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct Queue {
    leaders: VecDeque<Leader<KindName, Outcome>>,
    bytes: usize,
    /// Names were forgotten, so that two leaders may have the same one. The names of a batch must be distinct.
    may_repeat: bool,
}

impl Assigner {
    pub(crate) fn new(
        table: UidTable,
        assignments: Arc<Assignments>,
        free: FreeNumbers,
        in_use: InUse,
    ) -> Self {
        let scarcity = Scarcity::new(table.layout().clone());
        Self(Arc::new(Inner {
            table,
            scarcity,
            assignments,
            free,
            in_use,
            in_flight: Flights::new(),
            queue: Mutex::default(),
            turn: tokio::sync::Mutex::default(),
        }))
    }

    /// Reclaimed UIDs are free for so long before they are assigned.
    pub(crate) fn set_quarantine(&self, quarantine: Duration) {
        self.0.free.set_quarantine(quarantine);
    }

    /// Returns the UIDs of names, in their order. Names without a UID get one, in that order.
    ///
    /// A batch in flight completes even if this future is dropped.
    pub(crate) async fn assign(&self, names: Vec<KindName>) -> Vec<Outcome> {
        let (followers, leader) = self.0.in_flight.join(names);
        if let Some(leader) = leader {
            match self.0.enqueue(leader) {
                Ok(()) => drop(tokio::spawn({
                    let inner = self.0.clone();
                    async move { inner.assign_queued().await }
                })),
                Err(leader) => {
                    let rejection = Err(UidServiceError::Overloaded {
                        limit: MAX_QUEUED_BYTES,
                    });
                    let rejections = vec![rejection; leader.keys().len()];
                    leader.finish(rejections);
                }
            }
        }
        let mut outcomes = Vec::with_capacity(followers.len());
        for follower in followers {
            let is_leader = follower.is_leader();
            let outcome = follower
                .result()
                .await
                .unwrap_or(Err(UidServiceError::Interrupted));
            outcomes.push(outcome.map(|AssignedUid { uid, created }| AssignedUid {
                uid,
                created: created && is_leader,
            }));
        }
        outcomes
    }
}

impl Assigner {
    /// Makes later requests for names assign anew: the mapping that an assignment in progress may return has changed.
    pub(crate) fn forget(&self, names: &[KindName]) {
        // Held, so that no leader of a forgotten name is queued before the flag is set.
        let mut queue = self.0.queue.lock();
        queue.may_repeat = true;
        names.iter().for_each(|name| self.0.in_flight.forget(name));
    }

    /// As [`Assigner::forget`], for all names.
    pub(crate) fn forget_all(&self) {
        let mut queue = self.0.queue.lock();
        queue.may_repeat = true;
        self.0.in_flight.forget_all();
    }
}

impl Inner {
    /// Queues names; returns them if the queue is full.
    fn enqueue(&self, leader: Leader<KindName, Outcome>) -> Result<(), Leader<KindName, Outcome>> {
        let mut queue = self.queue.lock();
        let bytes = bytes_of(&leader);
        if !queue.leaders.is_empty() && queue.bytes + bytes > MAX_QUEUED_BYTES {
            return Err(leader);
        }
        queue.bytes += bytes;
        queue.leaders.push_back(leader);
        Ok(())
    }

    fn next_batch(&self) -> Vec<Leader<KindName, Outcome>> {
        let mut queue = self.queue.lock();
        let mut batch = Vec::new();
        let mut names = 0;
        while let Some(leader) = queue.leaders.front() {
            names += leader.keys().len();
            if (names > BATCH_NAMES || queue.may_repeat) && !batch.is_empty() {
                return batch;
            }
            queue.bytes -= bytes_of(leader);
            batch.extend(queue.leaders.pop_front());
        }
        queue.may_repeat = false;
        batch
    }

    /// Assigns all queued names. Concurrent calls find an empty queue, or take the next batch while this one's results
    /// are sent.
    async fn assign_queued(&self) {
        loop {
            let turn = self.turn.lock().await;
            let batch = self.next_batch();
            if batch.is_empty() {
                return;
            }
            let names: Vec<KindName> = batch.iter().flat_map(Leader::keys).cloned().collect();
            let outcomes = assign_batch(&self.table, &self.free, &self.in_use, &names).await;
            let mut assigned: PerKind<Vec<Mapping>> = PerKind::default();
            for ((kind, name), outcome) in names.iter().zip(&outcomes) {
                if let Ok(AssignedUid { uid, created: true }) = outcome {
                    self.scarcity.note(*kind, uid.number());
                    let (kind, name, uid) = (*kind, name.clone(), *uid);
                    assigned.get_mut(kind).push(Mapping { kind, name, uid });
                }
            }
            // Events are in the order of the numbers.
            for kind in UidKind::ALL {
                self.assignments
                    .assigned(kind, std::mem::take(assigned.get_mut(kind)));
            }
            drop(turn);
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

/// Assigns distinct names, by the protocol that the store supports.
async fn assign_batch(
    table: &UidTable,
    free: &FreeNumbers,
    in_use: &InUse,
    names: &[KindName],
) -> Vec<Outcome> {
    match table.store().atomic() {
        Some(commit) => atomic::assign(table, free, in_use, commit, names).await,
        None => stepwise::assign(table, free, in_use, names).await,
    }
}
