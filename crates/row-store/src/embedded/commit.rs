//! The commit thread: serializes all changes of the store.
//!
//! It takes all queued requests and combines them into groups. A group is one frame of the journal and one
//! sync; only then is it applied to the memtables and acknowledged, so everything readable is durable.
//! Conditional operations (check-and-put, increment, append, commit) are evaluated against the current state,
//! so a group ends before an operation that depends on what the group itself writes. Their results are
//! journaled as plain puts with explicit timestamps: replay evaluates no conditions.
//!
//! ```text
//!   payload of a frame   items
//!   item   kind (1) | table (2) | families (1) | family (1) ... | rows (4) | row ...
//!   row    0 | length | key | length | encoded mutations
//!          id               | length | encoded mutations
//! ```
//!
//! The mutations are those of a [`WriteBatch`](crate::WriteBatch), byte for byte; `family` maps each family of
//! the batch to the table's family. The first time a segment mentions a row, the row includes its key and is
//! assigned the next id of its table in this segment, starting at 1. Points keep arriving for the same rows,
//! and row keys are longer than points: ids reduce the journal to a third. Ids and lengths are varints.

mod evaluate;
mod replay;

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustc_hash::FxBuildHasher;

use evaluate::Change;
pub(super) use replay::Replay;

use super::catalog::Table;
use super::core::Core;
use super::journal::Journal;
use super::queue::{Operation, Outcome, Queue, Reply, Request};
use super::varint;
use crate::StoreError;

/// The size at which a group ends.
const GROUP_BYTES: usize = 8 << 20;
/// Rows that are prefetched together before they are modified.
const PREFETCH_ROWS: usize = 32;
/// How long after a failed write the commit thread probes the journal, if no other write arrives.
const RETRY: Duration = Duration::from_secs(1);
/// The kind of an item: a batch of mutations.
const WRITE: u8 = 1;

/// Commits queued requests until the queue is closed.
pub(super) fn run(core: &Core, queue: &Queue, journal: Journal) {
    // Callers must not wait for a thread that has ended, not even after a panic.
    let _abandon = Abandon(queue);
    let mut committer = Committer {
        core,
        journal,
        memory_bytes: active_bytes(core),
        id_epoch: 1,
        failing: false,
    };
    let mut group = Group::default();
    loop {
        let deadline = committer.failing.then(|| Instant::now() + RETRY);
        let Some(requests) = queue.take(deadline) else {
            return;
        };
        if requests.is_empty() {
            committer.probe();
        }
        for request in requests {
            match request {
                Request::Change {
                    table,
                    operation,
                    reply,
                    permit,
                } => {
                    if group.must_end_before(&table, &operation) {
                        committer.commit(&mut group);
                    }
                    match committer.evaluate(&table, operation) {
                        Ok((Some(change), outcome)) => {
                            group.add(Pending {
                                table,
                                change,
                                outcome,
                                reply,
                                _permit: permit,
                            });
                        }
                        Ok((None, outcome)) => drop(reply.send(Ok(outcome))),
                        Err(error) => drop(reply.send(Err(error))),
                    }
                    if group.bytes >= GROUP_BYTES {
                        committer.commit(&mut group);
                    }
                }
                Request::Flush { reply } => {
                    committer.commit(&mut group);
                    committer.flush(reply);
                }
            }
        }
        committer.commit(&mut group);
    }
}

struct Abandon<'a>(&'a Queue);

impl Drop for Abandon<'_> {
    fn drop(&mut self) {
        self.0.abandon();
    }
}

/// A change that waits until its group is durable.
struct Pending {
    table: Arc<Table>,
    change: Change,
    outcome: Outcome,
    reply: Reply,
    _permit: tokio::sync::OwnedSemaphorePermit,
}

/// Changes that become durable together.
#[derive(Default)]
struct Group {
    pending: Vec<Pending>,
    bytes: usize,
    /// Tables that plain batches of the group write to. Tracking their rows would slow down every batch for the
    /// benefit of the few conditional operations.
    tables: Vec<u16>,
    /// Rows that conditional operations of the group write to.
    rows: HashSet<(u16, Vec<u8>), FxBuildHasher>,
}

impl Group {
    /// Whether an operation depends on what this group writes.
    fn must_end_before(&self, table: &Table, operation: &Operation) -> bool {
        let writes = |row: &[u8]| !self.rows.is_empty() && self.rows.contains(&(table.id, row.to_vec()));
        let depends = match operation {
            Operation::Write { .. } => return false,
            Operation::Increment { cell, .. } | Operation::Append { cell, .. } => writes(&cell.row),
            Operation::CommitIf { conditions, .. } => {
                conditions.iter().any(|condition| writes(&condition.cell.row))
            }
        };
        depends || self.tables.contains(&table.id)
    }

    fn add(&mut self, pending: Pending) {
        let Change {
            batch, conditional, ..
        } = &pending.change;
        self.bytes += batch.byte_len();
        if *conditional {
            self.rows
                .extend(batch.iter().map(|row| (pending.table.id, row.key.to_vec())));
        } else if !self.tables.contains(&pending.table.id) {
            self.tables.push(pending.table.id);
        }
        self.pending.push(pending);
    }
}

struct Committer<'a> {
    core: &'a Core,
    journal: Journal,
    /// Bytes of all active memtables.
    memory_bytes: usize,
    /// Identifies the current assignment of row ids; one per segment.
    id_epoch: u64,
    /// Whether the last write failed.
    failing: bool,
}

impl Committer<'_> {
    fn evaluate(&self, table: &Table, operation: Operation) -> Result<(Option<Change>, Outcome), StoreError> {
        evaluate::evaluate(self.core, table, operation)
    }

    /// Makes a group durable, applies it and acknowledges it. Leaves it empty.
    fn commit(&mut self, group: &mut Group) {
        if group.pending.is_empty() {
            return;
        }
        let Group { pending, .. } = std::mem::take(group);
        let time_ms = self.core.now_ms();
        let mut slots = Vec::new();
        let journaled = self
            .reserve_capacity()
            .and_then(|()| self.append(&pending, time_ms, &mut slots));
        let journal_bytes = self.journal.unflushed_bytes();
        self.core
            .counters
            .journal_active_bytes
            .store(journal_bytes, Ordering::Relaxed);
        if let Err(error) = journaled {
            for pending in pending {
                drop(pending.reply.send(Err(error.clone())));
            }
            return;
        }
        self.core.counters.groups.fetch_add(1, Ordering::Relaxed);
        let mut slots = slots.as_slice();
        for Pending { table, change, .. } in &pending {
            let mut memory = table.memory.write();
            let before = memory.active.bytes();
            let own;
            (own, slots) = slots.split_at(change.batch.row_count());
            for (index, (row, slot)) in change.batch.iter().zip(own).enumerate() {
                if index.is_multiple_of(PREFETCH_ROWS) {
                    memory.active.prefetch(own[index..].iter().take(PREFETCH_ROWS));
                }
                memory
                    .active
                    .apply(*slot, &row, &change.families, time_ms, &table.max_versions);
            }
            self.memory_bytes = self.memory_bytes + memory.active.bytes() - before;
        }
        for pending in pending {
            drop(pending.reply.send(Ok(pending.outcome)));
        }
    }

    /// Appends changes to the journal and the memtable slots of their rows to `slots`.
    fn append(&mut self, pending: &[Pending], time_ms: i64, slots: &mut Vec<u32>) -> Result<(), StoreError> {
        let Self {
            core,
            journal,
            memory_bytes,
            id_epoch,
            failing,
        } = self;
        let appended = journal.append(time_ms, |payload| {
            for Pending { table, change, .. } in pending {
                let mut memory = table.memory.write();
                let before = memory.active.bytes();
                payload.push(WRITE);
                payload.extend_from_slice(&table.id.to_be_bytes());
                // At most 16 families, and at least a byte per row: frames over 4 GiB are rejected
                // as a whole.
                payload.push(u8::try_from(change.families.len()).unwrap_or(u8::MAX));
                payload.extend_from_slice(&change.families);
                let rows = u32::try_from(change.batch.row_count()).unwrap_or(u32::MAX);
                payload.extend_from_slice(&rows.to_be_bytes());
                for row in change.batch.iter() {
                    let slot = memory.active.slot(row.key);
                    slots.push(slot);
                    if let Some(id) = memory.active.id(slot, *id_epoch) {
                        varint::put(payload, u64::from(id));
                    } else {
                        payload.push(0);
                        varint::put(payload, row.key.len() as u64);
                        payload.extend_from_slice(row.key);
                    }
                    varint::put(payload, row.as_bytes().len() as u64);
                    payload.extend_from_slice(row.as_bytes());
                }
                *memory_bytes = *memory_bytes + memory.active.bytes() - before;
            }
        });
        if appended.is_err() || *failing {
            *failing = appended.is_err();
            *core.write_error.lock() = appended.as_ref().err().cloned();
        }
        if appended.is_err() {
            // Ids were assigned in a frame that was not written.
            journal.begin_segment();
            *id_epoch += 1;
        }
        appended
    }

    /// Checks after a failed write whether the journal can be written again. Otherwise nothing would detect that: a
    /// load balancer sends no writes to an unhealthy store.
    fn probe(&mut self) {
        let was_full = matches!(*self.core.write_error.lock(), Some(StoreError::Full { .. }));
        let probed = self.journal.probe(self.core.now_ms(), was_full);
        if probed.is_ok() {
            tracing::info!("the journal can be written again");
        }
        self.failing = probed.is_err();
        *self.core.write_error.lock() = probed.err();
    }

    /// Ensures that memtables and journal are within their limits: starts a flush if necessary, and waits for the
    /// previous one.
    fn reserve_capacity(&mut self) -> Result<(), StoreError> {
        let config = &self.core.config;
        if self.memory_bytes < config.memory_bytes && self.journal.unflushed_bytes() < config.journal_bytes {
            return Ok(());
        }
        self.freeze()
    }

    /// Hands all memtables to the flush thread once it has finished the previous ones.
    fn freeze(&mut self) -> Result<(), StoreError> {
        {
            let mut job = self.core.flush.state.lock();
            while job.through_segment.is_some() {
                if let Some(error) = &job.error {
                    return Err(error.clone());
                }
                self.core.flush.changed.wait(&mut job);
            }
        }
        let counters = &self.core.counters;
        counters
            .journal_frozen_bytes
            .store(self.journal.unflushed_bytes(), Ordering::Relaxed);
        counters.journal_active_bytes.store(0, Ordering::Relaxed);
        let through = self.journal.rotate();
        self.id_epoch += 1;
        for table in self.core.catalog.by_id().values() {
            let mut memory = table.memory.write();
            if !memory.active.is_empty() {
                memory.frozen = Some(Arc::new(std::mem::take(&mut memory.active)));
            }
        }
        self.memory_bytes = 0;
        self.core.flush.state.lock().through_segment = Some(through);
        self.core.flush.changed.notify_all();
        Ok(())
    }

    /// Starts a flush of everything; the flush thread sends the reply.
    fn flush(&mut self, reply: tokio::sync::oneshot::Sender<Result<(), StoreError>>) {
        let frozen = self.freeze();
        let mut job = self.core.flush.state.lock();
        match frozen {
            Err(error) => drop(reply.send(Err(error))),
            // The flush may have ended already.
            Ok(()) if job.through_segment.is_none() => drop(reply.send(Ok(()))),
            Ok(()) => job.waiting.push(reply),
        }
    }
}

/// Bytes of all active memtables.
fn active_bytes(core: &Core) -> usize {
    core.catalog
        .by_id()
        .values()
        .map(|table| table.memory.read().active.bytes())
        .sum()
}
