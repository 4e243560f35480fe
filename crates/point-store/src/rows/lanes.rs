//! Lanes: each has at most one write in flight; requests that arrive meanwhile are coalesced into the next batch.
//!
//! ```text
//!   request ─┬─► lane 0   queue ──► coalesced by row ──► store ──► results
//!            ├─► lane 1   ...
//!            └─► ...               all points of a row take the same lane
//! ```
//!
//! Writes of a row therefore reach the store in the order in which they arrived, also on a store that reorders
//! concurrent writes. And the points of many requests become fewer and larger rows: while the store is busy this
//! delays no request by more than the write in flight; a batching delay (linger), if set, by up to that long.
//!
//! A request is acknowledged after the store has confirmed the batch that contains its points. If that batch fails,
//! every request in it fails; if an append to a row fails, every request with points of that row. Memory is bounded
//! by the [`Permit`] that each request holds until its points are stored.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures::future::{BoxFuture, FutureExt as _, Shared, join_all};
use futures::stream::{self, StreamExt as _};
use hashbrown::HashMap;
use oxtsdb_row_store::{CellAddress, RowStore, StoreError, TableName, WriteBatch};
use oxtsdb_schema::{RowKeyLayout, RowKeyRef};
use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, sleep_until};

use super::batch::Rows;
use super::form::Form;
use super::group::PointsByRow;
use crate::Permit;

/// The number of lanes: one is written while the other gathers. The store spreads a write over all its connections.
/// More lanes would mean smaller writes, and smaller calls on each connection; HBase takes a third less time for a
/// cell in calls of 1,000 than in calls of 100.
pub const LANES: usize = 2;

/// Bytes of points at which a batch is complete.
const WRITE_BYTES: usize = 1 << 20;

/// Concurrent appends of a lane.
const CONCURRENT_APPENDS: usize = 16;

/// Completes when the process drains.
pub type Draining = Shared<BoxFuture<'static, ()>>;

/// The lanes to a table. Cloning is cheap, clones share the lanes.
#[derive(Clone, Debug)]
pub(super) struct Lanes(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    store: Arc<dyn RowStore>,
    table: TableName,
    layout: RowKeyLayout,
    form: Form,
    linger: Duration,
    draining: Draining,
    lanes: [Lane; LANES],
}

#[derive(Debug, Default)]
struct Lane {
    state: Mutex<State>,
    /// Notified when the queue is enough for a batch.
    full: Notify,
}

#[derive(Debug, Default)]
struct State {
    waiting: Vec<Part>,
    waiting_bytes: usize,
    /// A task is running for this lane.
    busy: bool,
}

/// The points of a request on one lane.
#[derive(Debug)]
struct Part {
    points: WriteBatch,
    arrived: Instant,
    result: oneshot::Sender<Result<(), StoreError>>,
    _permit: Arc<Permit>,
}

impl Lanes {
    /// Lanes that write in `form`. A batch is written `linger` after its first points arrived, or earlier if it is
    /// complete or the process is draining.
    pub(super) fn new(
        store: Arc<dyn RowStore>,
        table: TableName,
        layout: RowKeyLayout,
        form: Form,
        linger: Duration,
        draining: Draining,
    ) -> Self {
        Self(Arc::new(Inner {
            store,
            table,
            layout,
            form,
            linger,
            draining,
            lanes: Default::default(),
        }))
    }

    /// Queues a request behind the earlier ones. The returned future completes when the store has confirmed all its
    /// points, or has failed. Dropping it cancels parts that are still queued; a write in flight continues.
    ///
    /// Must be called within a Tokio runtime.
    pub(super) fn submit(
        &self,
        rows: Rows,
        permit: Permit,
    ) -> impl Future<Output = Result<(), StoreError>> + Send + use<> {
        let permit = Arc::new(permit);
        let mut receivers = Vec::with_capacity(LANES);
        for (lane, points) in rows.into_lanes().into_iter().enumerate() {
            if points.is_empty() {
                continue;
            }
            let (result, receiver) = oneshot::channel();
            receivers.push(receiver);
            self.push(
                lane,
                Part {
                    points,
                    arrived: Instant::now(),
                    result,
                    _permit: Arc::clone(&permit),
                },
            );
        }
        async move {
            let results = join_all(receivers).await;
            results
                .into_iter()
                .try_for_each(|result| result.unwrap_or_else(|_| Err(lost())))
        }
    }

    fn push(&self, index: usize, part: Part) {
        let lane = &self.0.lanes[index];
        let mut state = lane.state.lock();
        state.waiting_bytes += part.points.byte_len();
        state.waiting.push(part);
        if !state.busy {
            state.busy = true;
            tokio::spawn(Arc::clone(&self.0).work(index));
        } else if state.waiting_bytes >= WRITE_BYTES {
            lane.full.notify_one();
        }
    }
}

/// The error if the task that writes panicked.
pub(super) fn lost() -> StoreError {
    StoreError::Io {
        place: "write".to_owned(),
        detail: "it ended without a result".to_owned(),
    }
}

impl Inner {
    /// Writes batches until the queue is empty.
    async fn work(self: Arc<Self>, index: usize) {
        let lane = &self.lanes[index];
        loop {
            self.linger(lane).await;
            let Some(parts) = lane.take() else { return };
            // The panic hook logs the panic. It drops the parts, which fails their requests; the lane continues.
            let _ = AssertUnwindSafe(self.write(parts)).catch_unwind().await;
        }
    }

    async fn linger(&self, lane: &Lane) {
        while let Some(until) = lane.lingers_until(self.linger) {
            tokio::select! {
                biased;
                () = lane.full.notified() => {}
                () = self.draining.clone() => return,
                () = sleep_until(until) => return,
            }
        }
    }

    async fn write(&self, parts: Vec<Part>) {
        let points = PointsByRow::from_batches(parts.iter().map(|part| &part.points));
        if self.form == Form::Appended {
            let appends = points.into_appends();
            return self.append(appends, parts).await;
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let batch = points.into_cells(&self.table, |key| {
            let key = RowKeyRef::decode(key, &self.layout);
            key.is_ok_and(|key| self.form.compacts(key.base_time(), now.as_secs()))
        });
        let written = self.store.write(batch).await;
        for part in parts {
            // The receiver may be dropped.
            let _ = part.result.send(written.clone());
        }
    }

    /// Appends to rows, some of them concurrently: each row occurs once.
    async fn append(&self, appends: Vec<(CellAddress, Vec<u8>)>, parts: Vec<Part>) {
        let append = |(cell, value): (CellAddress, Vec<u8>)| async move {
            let appended = self.store.append(&self.table, &cell, &value).await;
            appended.err().map(|error| (cell.row, error))
        };
        let failed: HashMap<Vec<u8>, StoreError> = stream::iter(appends)
            .map(append)
            .buffer_unordered(CONCURRENT_APPENDS)
            .filter_map(std::future::ready)
            .collect()
            .await;
        for part in parts {
            let error = part.points.iter().find_map(|row| failed.get(row.key));
            let _ = part.result.send(error.cloned().map_or(Ok(()), Err));
        }
    }
}

impl Lane {
    /// When the linger of the queue ends; `None` if a batch is due.
    fn lingers_until(&self, linger: Duration) -> Option<Instant> {
        let state = self.state.lock();
        let first = state.waiting.first()?;
        let is_due = linger.is_zero() || state.waiting_bytes >= WRITE_BYTES;
        (!is_due).then(|| first.arrived + linger)
    }

    /// The next batch; `None` if the queue is empty, and the lane is then idle.
    fn take(&self) -> Option<Vec<Part>> {
        let mut state = self.state.lock();
        // Their clients have given up, for example during an outage, and will send the points again.
        state.waiting.retain(|part| !part.result.is_closed());
        let mut bytes = 0;
        let count = state
            .waiting
            .iter()
            .take_while(|part| {
                let fits = bytes < WRITE_BYTES;
                bytes += part.points.byte_len();
                fits
            })
            .count();
        let parts: Vec<Part> = state.waiting.drain(..count).collect();
        state.waiting_bytes = state.waiting.iter().map(|part| part.points.byte_len()).sum();
        state.busy = !parts.is_empty();
        state.busy.then_some(parts)
    }
}
