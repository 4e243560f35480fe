//! The queue of the commit thread.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use parking_lot::{Condvar, Mutex};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use super::catalog::Table;
use crate::{CellAddress, Condition, StoreError, WriteBatch};

/// A request that changes the store.
#[derive(Debug)]
pub(super) enum Operation {
    /// Applies a batch; `families` maps each family of the batch to the table's family.
    Write { batch: WriteBatch, families: Vec<u8> },
    /// Adds to a counter.
    Increment { cell: CellAddress, amount: i64 },
    /// Extends a value.
    Append { cell: CellAddress, value: Vec<u8> },
    /// Applies a batch if all conditions hold.
    CommitIf {
        conditions: Vec<Condition>,
        batch: WriteBatch,
        families: Vec<u8>,
    },
}

impl Operation {
    fn byte_len(&self) -> usize {
        let of_cell = |cell: &CellAddress| cell.row.len() + cell.family.len() + cell.qualifier.len();
        let of_condition = |condition: &Condition| {
            of_cell(&condition.cell) + condition.expected.as_ref().map_or(0, Vec::len)
        };
        match self {
            Self::Write { batch, .. } => batch.byte_len(),
            Self::Increment { cell, .. } => of_cell(cell),
            Self::Append { cell, value } => of_cell(cell) + value.len(),
            Self::CommitIf {
                conditions, batch, ..
            } => conditions.iter().map(of_condition).sum::<usize>() + batch.byte_len(),
        }
    }
}

/// The result of an [`Operation`].
#[derive(Clone, Debug)]
pub(super) enum Outcome {
    Done,
    Sum(i64),
    Appended(Vec<u8>),
    Held(bool),
}

/// Where the result of a request is sent.
pub(super) type Reply = oneshot::Sender<Result<Outcome, StoreError>>;

/// A request in the queue.
#[derive(Debug)]
pub(super) enum Request {
    Change {
        table: Arc<Table>,
        operation: Operation,
        reply: Reply,
        /// Its share of the queue's capacity, released with the reply.
        permit: OwnedSemaphorePermit,
    },
    /// Begins another memtable.
    Flush {
        reply: oneshot::Sender<Result<(), StoreError>>,
    },
}

/// The minimum size that a request counts, in bytes, which bounds the number of requests.
const LEAST: usize = 512;

/// A queue bounded in bytes. Callers wait asynchronously while it is full.
#[derive(Debug)]
pub(super) struct Queue {
    state: Mutex<State>,
    ready: Condvar,
    capacity_permits: Arc<Semaphore>,
    capacity: u32,
}

#[derive(Debug, Default)]
struct State {
    requests: VecDeque<Request>,
    closed: bool,
}

pub(super) fn closed() -> StoreError {
    StoreError::Unavailable {
        detail: "the store is closed".to_owned(),
    }
}

impl Queue {
    pub(super) fn new(capacity_bytes: u32) -> Self {
        Self {
            state: Mutex::default(),
            ready: Condvar::new(),
            capacity_permits: Arc::new(Semaphore::new(capacity_bytes as usize)),
            capacity: capacity_bytes,
        }
    }

    /// Queues a change and waits for its outcome.
    pub(super) async fn change(
        &self,
        table: Arc<Table>,
        operation: Operation,
    ) -> Result<Outcome, StoreError> {
        let bytes = operation.byte_len();
        // A request larger than the queue takes all of its capacity.
        let share = u32::try_from(bytes.max(LEAST))
            .unwrap_or(u32::MAX)
            .min(self.capacity);
        let permit = self
            .capacity_permits
            .clone()
            .acquire_many_owned(share)
            .await
            .map_err(|_| closed())?;
        let (reply, response) = oneshot::channel();
        self.push(Request::Change {
            table,
            operation,
            reply,
            permit,
        })?;
        response.await.unwrap_or_else(|_| Err(stopped()))
    }

    /// Queues a flush and waits for it.
    pub(super) async fn flush(&self) -> Result<(), StoreError> {
        let (reply, response) = oneshot::channel();
        self.push(Request::Flush { reply })?;
        response.await.unwrap_or_else(|_| Err(stopped()))
    }

    /// Whether the queue accepts requests.
    pub(super) fn check(&self) -> Result<(), StoreError> {
        if self.state.lock().closed {
            Err(closed())
        } else {
            Ok(())
        }
    }

    fn push(&self, request: Request) -> Result<(), StoreError> {
        let mut state = self.state.lock();
        if state.closed {
            return Err(closed());
        }
        state.requests.push_back(request);
        self.ready.notify_one();
        Ok(())
    }

    /// Waits for requests and takes them all: none if none arrive before `deadline`, `None` once the queue is
    /// closed and empty.
    pub(super) fn take(&self, deadline: Option<Instant>) -> Option<VecDeque<Request>> {
        let mut state = self.state.lock();
        while state.requests.is_empty() {
            if state.closed {
                return None;
            }
            match deadline {
                None => self.ready.wait(&mut state),
                Some(deadline) if self.ready.wait_until(&mut state, deadline).timed_out() => break,
                Some(_) => {}
            }
        }
        Some(std::mem::take(&mut state.requests))
    }

    /// Rejects further requests. Queued ones are still taken.
    pub(super) fn close(&self) {
        self.state.lock().closed = true;
        self.capacity_permits.close();
        self.ready.notify_all();
    }

    /// Rejects further requests and drops the queued ones, which nothing will take.
    pub(super) fn abandon(&self) {
        self.close();
        self.state.lock().requests.clear();
    }
}

/// The error of a commit thread that ended before it replied.
fn stopped() -> StoreError {
    StoreError::Io {
        place: "commit thread".to_owned(),
        detail: "it stopped before it replied".to_owned(),
    }
}
