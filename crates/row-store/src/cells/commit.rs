//! The commit thread: serializes all changes of the store.
//!
//! It takes all queued requests and combines them into groups. A group is one batch of the engine and one sync;
//! all of its requests are answered after that, including those that changed nothing or failed, since their
//! outcome may depend on changes of the group.

use std::sync::atomic::Ordering;

use tokio::sync::OwnedSemaphorePermit;

use super::evaluate::{Changes, evaluate};
use super::queue::{Outcome, Queue, Reply, Request};
use super::store::Core;
use crate::StoreError;

/// The size at which a group ends.
const GROUP_BYTES: u64 = 8 << 20;

/// Commits queued requests until the queue is closed.
pub(super) fn run(core: &Core, queue: &Queue) {
    // Callers must not wait for a thread that has ended, not even after a panic.
    let _abandon = Abandon(queue);
    let mut group = Group::default();
    while let Some(requests) = queue.take(None) {
        for request in requests {
            match request {
                Request::Change {
                    table,
                    operation,
                    reply,
                    permit,
                } => {
                    let outcome =
                        evaluate(core, &group.changes, &table, &operation).map(|(changes, outcome)| {
                            group.add(changes);
                            outcome
                        });
                    group.waiting.push((outcome, reply, permit));
                    if group.bytes >= GROUP_BYTES {
                        group.commit(core);
                    }
                }
                Request::Flush { reply } => {
                    group.commit(core);
                    drop(reply.send(core.tree.flush()));
                }
            }
        }
        group.commit(core);
    }
}

struct Abandon<'a>(&'a Queue);

impl Drop for Abandon<'_> {
    fn drop(&mut self) {
        self.0.abandon();
    }
}

/// A request whose group is not yet durable.
type Waiting = (Result<Outcome, StoreError>, Reply, OwnedSemaphorePermit);

/// Changes that become durable together.
#[derive(Default)]
struct Group {
    changes: Changes,
    bytes: u64,
    waiting: Vec<Waiting>,
}

impl Group {
    fn add(&mut self, changes: Changes) {
        for (key, value) in changes {
            self.bytes += (key.len() + value.as_ref().map_or(0, Vec::len)) as u64;
            self.changes.insert(key, value);
        }
    }

    /// Makes the group durable and answers its requests. Leaves it empty.
    fn commit(&mut self, core: &Core) {
        let Self {
            changes,
            bytes,
            waiting,
        } = std::mem::take(self);
        let committed = if changes.is_empty() {
            Ok(())
        } else {
            core.groups.fetch_add(1, Ordering::Relaxed);
            let committed = core.tree.commit(bytes, || {
                changes
                    .iter()
                    .map(|(key, value)| (key.as_slice(), value.as_deref()))
            });
            // A group that failed may be there after the tree is reopened.
            core.prefixes.add(changes.keys().map(Vec::as_slice));
            committed
        };
        for (outcome, reply, _permit) in waiting {
            // What a failed group would have changed is not there, so no outcome of it counts.
            drop(reply.send(committed.clone().and(outcome)));
        }
    }
}
