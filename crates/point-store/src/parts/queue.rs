//! The queue of the commit thread.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::time::Instant;

use parking_lot::{Condvar, Mutex};
use tokio::sync::oneshot;

use super::journal::EncodedBatch;
use crate::{PointBatch, PointStoreError, SeriesNumber, TimeRange};

/// The channel for the outcome of a request.
pub(super) type Reply = oneshot::Sender<Result<(), PointStoreError>>;

/// A request, in the order of effect.
#[derive(Debug)]
pub(super) enum Request {
    /// Appends points.
    Append {
        batch: PointBatch,
        /// The same points as the journal has them.
        encoded: EncodedBatch,
        reply: Reply,
    },
    /// Deletes the points of series in a range.
    Delete {
        series: Vec<SeriesNumber>,
        range: TimeRange,
        reply: Reply,
    },
    /// Writes the head to parts, then links all parts to a folder, if there is one.
    Flush { snapshot: Option<PathBuf>, reply: Reply },
}

/// Requests that wait. Their memory is bounded by the callers, which hold a permit for each batch.
#[derive(Debug, Default)]
pub(super) struct Queue {
    state: Mutex<State>,
    ready: Condvar,
}

#[derive(Debug, Default)]
struct State {
    requests: VecDeque<Request>,
    closed: bool,
}

impl Queue {
    /// Adds a request; fails its reply if the store is closed.
    pub(super) fn push(&self, request: Request) {
        let mut state = self.state.lock();
        if state.closed {
            drop(state);
            request.reply(Err(closed()));
            return;
        }
        state.requests.push_back(request);
        self.ready.notify_one();
    }

    /// Waits for requests and takes them all; none if none arrive before `deadline`, `None` once the queue is closed
    /// and empty.
    pub(super) fn take(&self, deadline: Instant) -> Option<VecDeque<Request>> {
        let mut state = self.state.lock();
        while state.requests.is_empty() {
            if state.closed {
                return None;
            }
            if self.ready.wait_until(&mut state, deadline).timed_out() {
                break;
            }
        }
        Some(std::mem::take(&mut state.requests))
    }

    /// Rejects further requests. Queued requests are still taken.
    pub(super) fn close(&self) {
        self.state.lock().closed = true;
        self.ready.notify_all();
    }

    /// Rejects further requests and fails the queued ones, which nothing will take.
    pub(super) fn abandon(&self) {
        self.close();
        let requests = std::mem::take(&mut self.state.lock().requests);
        requests
            .into_iter()
            .for_each(|request| request.reply(Err(closed())));
    }
}

impl Request {
    /// Ends the request. The caller may have dropped the receiver.
    pub(super) fn reply(self, outcome: Result<(), PointStoreError>) {
        let (Self::Append { reply, .. } | Self::Delete { reply, .. } | Self::Flush { reply, .. }) = self;
        drop(reply.send(outcome));
    }
}

/// The error of a store that is closed.
pub(super) fn closed() -> PointStoreError {
    PointStoreError::Unavailable("it is closed".to_owned())
}
