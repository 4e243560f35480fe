//! From batches of rows to spans, off the runtime's threads.
//!
//! A few rows are decoded where they are. More go to workers: each takes every batch and builds the
//! spans of its share of the series, so no two touch one series and nothing has to be merged.

use std::hash::BuildHasher as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use oxtsdb_row_store::Row;
use oxtsdb_schema::RowKeyLayout;
use rustc_hash::FxBuildHasher;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::error::QueryError;
use super::frame::Statistics;
use super::span::{Span, SpanBuilder};
use super::spec::Limits;

/// Up to so many rows are decoded on the spot; it takes less than a millisecond.
const ROWS_ON_THE_SPOT: usize = 32;

/// Batches that may wait for a worker.
const WAITING_BATCHES: usize = 4;

/// How spans are built, and what they may use.
#[derive(Clone, Debug)]
pub struct Budget {
    points: Arc<AtomicU64>,
    limits: Limits,
}

impl Budget {
    /// Nothing used yet.
    pub fn new(limits: Limits) -> Self {
        Self {
            points: Arc::default(),
            limits,
        }
    }

    /// Uses points.
    fn spend(&self, points: u64) -> Result<(), QueryError> {
        self.limits.check_points(
            self.points
                .fetch_add(points, Ordering::Relaxed)
                .saturating_add(points),
        )
    }
}

/// Takes batches of rows and gives spans.
#[derive(Debug)]
pub struct Collector<F> {
    new_builder: F,
    layout: RowKeyLayout,
    budget: Budget,
    waiting: Vec<Row>,
    workers: Vec<Worker>,
}

#[derive(Debug)]
struct Worker {
    batches: mpsc::Sender<Arc<Vec<Row>>>,
    result: JoinHandle<Result<SpanBuilder, QueryError>>,
}

impl<F: Fn() -> SpanBuilder> Collector<F> {
    /// No rows yet. `new_builder` is asked for as many builders as there are workers.
    pub const fn new(new_builder: F, layout: RowKeyLayout, budget: Budget) -> Self {
        Self {
            new_builder,
            layout,
            budget,
            waiting: Vec::new(),
            workers: Vec::new(),
        }
    }

    /// Takes rows.
    ///
    /// # Errors
    ///
    /// What was wrong with these rows or earlier ones, and too many points.
    pub async fn add(&mut self, rows: Vec<Row>) -> Result<(), QueryError> {
        if self.workers.is_empty() {
            self.waiting.extend(rows);
            if self.waiting.len() <= ROWS_ON_THE_SPOT {
                return Ok(());
            }
            self.start_workers();
            let waiting = std::mem::take(&mut self.waiting);
            return self.send(waiting).await;
        }
        self.send(rows).await
    }

    /// The spans, ascending by TSUID.
    ///
    /// # Errors
    ///
    /// As [`Collector::add`].
    pub async fn finish(self) -> Result<(Vec<Span>, Statistics), QueryError> {
        if self.workers.is_empty() {
            let mut builder = (self.new_builder)();
            for row in &self.waiting {
                self.budget.spend(builder.add(row)?)?;
            }
            return Ok(builder.finish());
        }
        let (mut spans, mut statistics) = (Vec::new(), Statistics::default());
        for worker in self.workers {
            // A worker ends when nobody can send to it any more.
            drop(worker.batches);
            let (more, counted) = joined(worker.result.await)?.finish();
            spans.extend(more);
            statistics.points += counted.points;
            statistics.duplicates += counted.duplicates;
            statistics.skipped_cells += counted.skipped_cells;
        }
        spans.sort_unstable_by(|a: &Span, b: &Span| a.tsuid.cmp(&b.tsuid));
        Ok((spans, statistics))
    }

    fn start_workers(&mut self) {
        let count = std::thread::available_parallelism().map_or(1, |count| count.get().min(4));
        for share in 0..count {
            let (batches, mut received) = mpsc::channel::<Arc<Vec<Row>>>(WAITING_BATCHES);
            let mut builder = (self.new_builder)();
            let (layout, budget) = (self.layout, self.budget.clone());
            let result = tokio::task::spawn_blocking(move || {
                while let Some(batch) = received.blocking_recv() {
                    for row in batch
                        .iter()
                        .filter(|row| share_of(row.key(), &layout, count) == share)
                    {
                        budget.spend(builder.add(row)?)?;
                    }
                }
                Ok(builder)
            });
            self.workers.push(Worker { batches, result });
        }
    }

    async fn send(&mut self, rows: Vec<Row>) -> Result<(), QueryError> {
        let batch = Arc::new(rows);
        let mut ended = None;
        for (index, worker) in self.workers.iter().enumerate() {
            if worker.batches.send(Arc::clone(&batch)).await.is_err() {
                ended = Some(index);
            }
        }
        // A worker that does not receive has found an error.
        match ended {
            None => Ok(()),
            Some(index) => match joined(self.workers.swap_remove(index).result.await) {
                Err(error) => Err(error),
                Ok(_) => Err(QueryError::Internal {
                    detail: "a worker ended early".to_owned(),
                }),
            },
        }
    }
}

/// Which of `count` workers a row is for, told by its metric and tags.
fn share_of(row_key: &[u8], layout: &RowKeyLayout, count: usize) -> usize {
    let tags_at = layout.salt.width() + layout.widths.metric.bytes() + size_of::<u32>();
    let hash = FxBuildHasher.hash_one(row_key.get(tags_at..));
    // The upper bits are the better ones.
    usize::try_from(hash >> 33).unwrap_or(0) % count
}

/// The result of a stage; a panic in it is a fault of the server.
pub(super) fn joined<T>(
    result: Result<Result<T, QueryError>, tokio::task::JoinError>,
) -> Result<T, QueryError> {
    result.map_err(|error| QueryError::Internal {
        detail: error.to_string(),
    })?
}

#[cfg(test)]
mod tests;
