//! Lanes: on each, one write is under way at a time, and what comes meanwhile is the next one.
//!
//! ```text
//!   request ─┬─► lane 0   waiting ──► brought together by row ──► store ──► answers
//!            ├─► lane 1   ...
//!            └─► ...                  a row always takes the same lane
//! ```
//!
//! That gives two things at once. Writes of a row reach the store in the order in which they came,
//! also on a store that does not keep the order of writes that are under way together. And the
//! points of many requests become fewer and larger rows: while the store is busy without anybody
//! waiting longer than it takes, and by a linger, if one is set, for as long as that.
//!
//! Nobody is answered before the store has confirmed the write that has its points. If that fails,
//! all that have points in it are told, of an append those whose row it was. Memory is bounded by the
//! [`WritePermit`] that each request has while a point of it is here.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures::future::{FutureExt as _, join_all};
use futures::stream::{self, StreamExt as _};
use hashbrown::HashMap;
use oxtsdb_row_store::{CellAddress, RowStore, StoreError, TableName, WriteBatch};
use oxtsdb_schema::{RowKeyLayout, RowKeyRef};
use oxtsdb_server::Shutdown;
use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, sleep_until};

use super::form::Form;
use super::group::PointsByRow;
use super::rows::Rows;
use super::writer::WritePermit;

/// How many lanes there are: one is written while the other one gathers. The store sends a write over all its
/// connections; with more lanes the writes, and what each connection gets of them, would be smaller, and
/// HBase takes a third less time for a cell in calls of 1,000 than in calls of 100.
pub(super) const LANES: usize = 2;

/// A write that has so many bytes of points does not wait for more.
const WRITE_BYTES: usize = 1 << 20;

/// Rows that a lane appends to at a time.
const APPENDS_AT_A_TIME: usize = 16;

/// All lanes to a table.
#[derive(Clone, Debug)]
pub(super) struct Lanes(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    store: Arc<dyn RowStore>,
    table: TableName,
    layout: RowKeyLayout,
    form: Form,
    linger: Duration,
    shutdown: Shutdown,
    lanes: [Lane; LANES],
}

#[derive(Debug, Default)]
struct Lane {
    state: Mutex<State>,
    /// Told when what waits is enough for a write.
    full: Notify,
}

#[derive(Debug, Default)]
struct State {
    waiting: Vec<Part>,
    waiting_bytes: usize,
    /// A task is at work on this lane.
    busy: bool,
}

/// The part of a request that takes one lane.
#[derive(Debug)]
struct Part {
    points: WriteBatch,
    came: Instant,
    answer: oneshot::Sender<Result<(), StoreError>>,
    _permit: Arc<WritePermit>,
}

impl Lanes {
    /// Lanes that write in a form. A write waits for `linger` after its first points came, unless
    /// there is enough before or the program is about to end.
    pub(super) fn new(
        store: Arc<dyn RowStore>,
        table: TableName,
        layout: RowKeyLayout,
        form: Form,
        linger: Duration,
        shutdown: Shutdown,
    ) -> Self {
        Self(Arc::new(Inner {
            store,
            table,
            layout,
            form,
            linger,
            shutdown,
            lanes: Default::default(),
        }))
    }

    /// Takes a request in, behind those that came before. What it returns completes when the store
    /// has all its points, or has failed; nothing is taken back when that is dropped, though what
    /// nobody waits for any more is not begun.
    ///
    /// Must be called within a Tokio runtime.
    pub(super) fn submit(
        &self,
        rows: Rows,
        permit: WritePermit,
    ) -> impl Future<Output = Result<(), StoreError>> + Send + use<> {
        let permit = Arc::new(permit);
        let mut answers = Vec::with_capacity(LANES);
        for (lane, points) in rows.into_lanes().into_iter().enumerate() {
            if points.is_empty() {
                continue;
            }
            let (answer, answered) = oneshot::channel();
            answers.push(answered);
            self.push(
                lane,
                Part {
                    points,
                    came: Instant::now(),
                    answer,
                    _permit: Arc::clone(&permit),
                },
            );
        }
        async move {
            let answers = join_all(answers).await;
            answers
                .into_iter()
                .try_for_each(|answer| answer.unwrap_or_else(|_| Err(lost())))
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

/// The task that had the points ended by itself, a fault of the server.
fn lost() -> StoreError {
    StoreError::Io {
        place: "write".to_owned(),
        detail: "it ended without an answer".to_owned(),
    }
}

impl Inner {
    /// Writes until nothing waits on the lane.
    async fn work(self: Arc<Self>, index: usize) {
        let lane = &self.lanes[index];
        loop {
            self.linger(lane).await;
            let Some(parts) = lane.take() else { return };
            // A panic is reported where it happens. It drops the parts, and so their requests fail;
            // the lane goes on.
            let _ = AssertUnwindSafe(self.write(parts)).catch_unwind().await;
        }
    }

    async fn linger(&self, lane: &Lane) {
        while let Some(until) = lane.lingers_until(self.linger) {
            tokio::select! {
                biased;
                () = lane.full.notified() => {}
                () = self.shutdown.draining() => return,
                () = sleep_until(until) => return,
            }
        }
    }

    async fn write(&self, parts: Vec<Part>) {
        let points = PointsByRow::of(parts.iter().map(|part| &part.points));
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
            // Who does not wait any more needs no answer.
            let _ = part.answer.send(written.clone());
        }
    }

    /// Appends to one row after the other, some at a time: they are rows of their own.
    async fn append(&self, appends: Vec<(CellAddress, Vec<u8>)>, parts: Vec<Part>) {
        let append = |(cell, value): (CellAddress, Vec<u8>)| async move {
            let appended = self.store.append(&self.table, &cell, &value).await;
            appended.err().map(|error| (cell.row, error))
        };
        let failed: HashMap<Vec<u8>, StoreError> = stream::iter(appends)
            .map(append)
            .buffer_unordered(APPENDS_AT_A_TIME)
            .filter_map(std::future::ready)
            .collect()
            .await;
        for part in parts {
            let error = part.points.iter().find_map(|row| failed.get(row.key));
            let _ = part.answer.send(error.cloned().map_or(Ok(()), Err));
        }
    }
}

impl Lane {
    /// When the linger of what waits ends; `None` if a write is due.
    fn lingers_until(&self, linger: Duration) -> Option<Instant> {
        let state = self.state.lock();
        let first = state.waiting.first()?;
        let is_due = linger.is_zero() || state.waiting_bytes >= WRITE_BYTES;
        (!is_due).then(|| first.came + linger)
    }

    /// What the next write has. `None`: nothing waits, and the lane is left.
    fn take(&self) -> Option<Vec<Part>> {
        let mut state = self.state.lock();
        // Their clients have given up, after an outage perhaps: no need to write what will be sent
        // again.
        state.waiting.retain(|part| !part.answer.is_closed());
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

#[cfg(test)]
mod tests;
