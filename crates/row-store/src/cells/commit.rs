//! The commit thread: serializes all changes of the store.
//!
//! It takes all queued requests and combines them into groups. A group is evaluated on the acknowledged state, written
//! to the journal as one frame, synced and applied. Only then are replies sent, including replies to requests that
//! changed nothing or failed, since their outcome may depend on changes of the group.
//!
//! # Failures
//!
//! After a failed write or sync it is unknown whether the frame is on disk. Nothing of the group is applied, and no later
//! group is evaluated, until the journal has certainly lost the frame ([`Journal::make_durable`]). Meanwhile reads go on,
//! further writes are rejected, and the group waits. Then it is evaluated again, on the same state as before. If the
//! repair takes too long, or the store stops, the group's callers get an error that reports an unknown outcome.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use oxtsdb_storage_file::journal::Journal;
use tokio::sync::OwnedSemaphorePermit;

use super::catalog::Table;
use super::config::MAX_TABLES;
use super::core::Core;
use super::evaluate::evaluate;
use super::frame::{self, Changes};
use super::queue::{Operation, Outcome, Queue, Reply, Request};
use crate::StoreError;

/// The size at which a group ends.
const GROUP_BYTES: u64 = 8 << 20;
/// How often the thread looks for other work while no requests arrive.
const IDLE: Duration = Duration::from_secs(1);
/// The pause between two attempts to recover from a failure, doubled up to the longest.
const PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// How long the requests of a failed group wait for its recovery.
const HELD: Duration = Duration::from_secs(5);
/// Frozen memtables at which writes wait for flushes.
const MAX_FROZEN: usize = 3;
/// Commits queued requests until the queue is closed.
pub(super) fn run(core: &Core, queue: &Queue, journal: Journal) {
    // Callers must not wait for a thread that has ended, not even after a panic.
    let _abandon = Abandon(queue);
    let mut committer = Committer::new(core, queue, journal);
    let mut group = Group::default();
    while let Some(requests) = queue.take(Some(Instant::now() + IDLE)) {
        for request in requests {
            match request {
                Request::Change {
                    table,
                    operation,
                    reply,
                    permit,
                } => {
                    let change = Change {
                        table,
                        operation,
                        reply,
                        permit,
                    };
                    group.evaluate(core, change);
                    if group.bytes >= GROUP_BYTES {
                        committer.commit(&mut group);
                    }
                }
                Request::Flush { reply } => {
                    committer.commit(&mut group);
                    // The caller may have gone.
                    drop(reply.send(committer.freeze()));
                }
            }
        }
        committer.commit(&mut group);
        if core.tree.version().active.byte_len() >= core.memtable_bytes
            && let Err(error) = committer.freeze()
        {
            // The next group finds it, too.
            tracing::warn!(%error, "cannot begin another segment of the journal");
        }
    }
}

struct Abandon<'a>(&'a Queue);

impl Drop for Abandon<'_> {
    fn drop(&mut self) {
        self.0.abandon();
    }
}

/// A request.
pub(super) struct Change {
    pub(super) table: Arc<Table>,
    pub(super) operation: Operation,
    pub(super) reply: Reply,
    /// Released with the reply.
    pub(super) permit: OwnedSemaphorePermit,
}

/// Changes that become durable together.
#[derive(Default)]
pub(super) struct Group {
    changes: Changes,
    bytes: u64,
    waiting: Vec<(Change, Result<Outcome, StoreError>)>,
}

impl Group {
    /// Adds a request, evaluated after the group's others.
    pub(super) fn evaluate(&mut self, core: &Core, change: Change) {
        let evaluated = evaluate(core, &self.changes, &change.table, &change.operation);
        let outcome = evaluated.map(|(changes, outcome)| {
            for (key, value) in changes {
                self.bytes += (key.len() + value.as_ref().map_or(0, Vec::len)) as u64;
                self.changes.insert(key, value);
            }
            outcome
        });
        self.waiting.push((change, outcome));
    }

    /// Replies to all requests, with an error or with their outcomes.
    fn answer(&mut self, error: Option<&StoreError>) {
        for (change, outcome) in std::mem::take(self).waiting {
            let outcome = error.map_or(outcome, |error| Err(error.clone()));
            // The caller may have gone.
            drop(change.reply.send(outcome));
            drop(change.permit);
        }
    }

    /// Evaluates the requests again.
    fn again(&mut self, core: &Core) {
        for (change, _) in std::mem::take(self).waiting {
            self.evaluate(core, change);
        }
    }
}

pub(super) struct Committer<'a> {
    core: &'a Core,
    queue: &'a Queue,
    journal: Journal,
}

impl<'a> Committer<'a> {
    pub(super) const fn new(core: &'a Core, queue: &'a Queue, journal: Journal) -> Self {
        Self { core, queue, journal }
    }

    /// Makes a group durable and replies to its requests. Leaves it empty.
    pub(super) fn commit(&mut self, group: &mut Group) {
        let mut began = None;
        while !group.changes.is_empty() {
            let ready = self
                .wait_for_capacity()
                .and_then(|()| self.core.check_space(group.bytes));
            if let Err(error) = ready {
                // Nothing was written.
                group.answer(Some(&error));
                return;
            }
            match self.write(&group.changes) {
                Ok(commit) => {
                    let changes = group.changes.iter();
                    let changes = changes.map(|(key, value)| (key.as_slice(), value.as_deref()));
                    self.core.tree.apply(changes, commit);
                    self.core.groups.fetch_add(1, Ordering::Relaxed);
                    self.core.prefixes.add(group.changes.keys().map(Vec::as_slice));
                    break;
                }
                Err(error) => {
                    let deadline = *began.get_or_insert_with(Instant::now) + HELD;
                    self.recover(group, error, deadline);
                    group.again(self.core);
                }
            }
        }
        group.answer(None);
    }

    fn write(&mut self, changes: &Changes) -> Result<u64, StoreError> {
        let commit = self.journal.append(|buffer| frame::encode(buffer, changes))?;
        self.journal.sync()?;
        Ok(commit)
    }

    /// Returns when the frame of a failed group is certainly absent, or the store stops. Until then reads go on, and
    /// writes are rejected. The group is empty afterwards if its requests got an error.
    fn recover(&mut self, group: &mut Group, error: StoreError, deadline: Instant) {
        tracing::error!(%error, "a write to the journal of cells failed; writes are rejected until it is repaired");
        let mut last = error;
        self.core.background.lock().write_error = Some(last.clone());
        let mut pause = PAUSE;
        while let Err(error) = self.journal.make_durable().map_err(StoreError::from) {
            if error != last {
                tracing::error!(%error, "the journal of cells cannot be repaired; trying again");
            }
            last = error;
            self.core.background.lock().write_error = Some(last.clone());
            if Instant::now() >= deadline {
                group.answer(Some(&unknown(&last)));
            }
            match self.queue.take(Some(Instant::now() + pause)) {
                Some(requests) => requests.into_iter().for_each(|request| reject(request, &last)),
                None => {
                    // The store stops.
                    group.answer(Some(&unknown(&last)));
                    return;
                }
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
        if Instant::now() >= deadline {
            group.answer(Some(&unknown(&last)));
        }
        tracing::info!("the journal of cells is repaired");
        self.core.background.lock().write_error = None;
    }

    /// Waits until flushes and merges have caught up.
    ///
    /// # Errors
    ///
    /// Their error, if they fail.
    fn wait_for_capacity(&self) -> Result<(), StoreError> {
        let mut state = self.core.background.lock();
        loop {
            let version = self.core.tree.version();
            let error = if version.frozen.len() >= MAX_FROZEN {
                state.flush_error.as_ref().or(state.merge_error.as_ref())
            } else if version.tables.len() >= MAX_TABLES {
                state.merge_error.as_ref()
            } else {
                return Ok(());
            };
            match error {
                Some(error) => return Err(without_effect(error)),
                None => drop(self.core.background_changed.wait_for(&mut state, IDLE)),
            }
        }
    }

    /// Freezes the memtable; the journal's segments up to now have its commits.
    pub(super) fn freeze(&mut self) -> Result<(), StoreError> {
        if self.core.tree.version().active.is_empty() {
            return Ok(());
        }
        let segment = self.journal.rotate()?;
        self.core.tree.freeze(segment);
        let _state = self.core.background.lock();
        self.core.background_changed.notify_all();
        Ok(())
    }
}

/// Rejects a request without effect.
fn reject(request: Request, error: &StoreError) {
    // The caller may have gone.
    match request {
        Request::Change { reply, .. } => drop(reply.send(Err(without_effect(error)))),
        Request::Flush { reply } => drop(reply.send(Err(without_effect(error)))),
    }
}

/// The error of a write that was not attempted.
fn without_effect(error: &StoreError) -> StoreError {
    match error {
        StoreError::Full { .. } => error.clone(),
        error => StoreError::Unavailable {
            detail: error.to_string(),
        },
    }
}

/// The error of a write with an unknown outcome.
fn unknown(error: &StoreError) -> StoreError {
    StoreError::Io {
        place: "the journal of cells".to_owned(),
        detail: format!("a write failed, and it is unknown whether it takes effect: {error}"),
    }
}
