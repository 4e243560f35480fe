//! From batches of rows to spans, off the runtime's threads.
//!
//! A few rows are decoded where they are. More go to workers: each takes every batch and builds the
//! spans of its share of the series, so no two touch one series and nothing has to be merged.

use std::hash::BuildHasher as _;
use std::sync::{Arc, LazyLock};

use oxtsdb_row_store::Row;
use rustc_hash::FxBuildHasher;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use super::budget::Budget;
use super::error::QueryError;
use super::frame::Statistics;
use super::span::{Span, SpanBuilder, SpanShape};
use super::survey::Survey;

/// Up to so many rows are decoded on the spot; it takes less than a millisecond.
const ROWS_ON_THE_SPOT: usize = 32;

/// Workers of a query. To find out takes several files of the system.
static WORKERS: LazyLock<usize> =
    LazyLock::new(|| std::thread::available_parallelism().map_or(1, |count| count.get().min(4)));

/// Batches that may wait for a worker.
const WAITING_BATCHES: usize = 4;

/// Takes batches of rows and gives spans.
#[derive(Debug)]
pub struct Collector {
    shape: SpanShape,
    budget: Budget,
    waiting: Vec<Row>,
    workers: Vec<Worker>,
}

#[derive(Debug)]
struct Worker {
    orders: mpsc::Sender<Order>,
    result: JoinHandle<Result<SpanBuilder, QueryError>>,
}

/// What a worker is to do.
#[derive(Debug)]
enum Order {
    /// Take the rows of its share.
    Add(Arc<Vec<Row>>),
    /// Know which series there are: [`SpanBuilder::expect`].
    Expect(Arc<Survey>),
    /// Give what is known before an instant: [`SpanBuilder::take`].
    Take(i64, oneshot::Sender<Vec<Span>>),
    /// Say that all orders before are done.
    Settle(oneshot::Sender<()>),
}

impl Collector {
    /// No rows yet.
    pub const fn new(shape: SpanShape, budget: Budget) -> Self {
        Self {
            shape,
            budget,
            waiting: Vec::new(),
            workers: Vec::new(),
        }
    }

    /// Takes rows.
    ///
    /// # Errors
    ///
    /// What was wrong with these rows or earlier ones, and [`QueryError::OverBudget`].
    pub async fn add(&mut self, rows: Vec<Row>) -> Result<(), QueryError> {
        if self.workers.is_empty() {
            self.waiting.extend(rows);
            if self.waiting.len() <= ROWS_ON_THE_SPOT {
                return Ok(());
            }
            return self.start_workers().await;
        }
        self.send_all(rows).await
    }

    /// Says which series and hours will come; rows of others do not count from now on.
    ///
    /// # Errors
    ///
    /// As [`Collector::add`].
    pub async fn expect(&mut self, survey: &Arc<Survey>) -> Result<(), QueryError> {
        if self.workers.is_empty() {
            self.start_workers().await?;
        }
        for index in 0..self.workers.len() {
            self.send(index, Order::Expect(Arc::clone(survey))).await?;
        }
        Ok(())
    }

    /// Waits until all rows that came were decoded, as far as there are workers.
    ///
    /// # Errors
    ///
    /// As [`Collector::add`].
    pub async fn settle(&mut self) -> Result<(), QueryError> {
        self.ask_all(Order::Settle).await.map(drop)
    }

    /// What is known of each series before an instant, from where it was called last, ascending by TSUID;
    /// see [`SpanBuilder::take`].
    ///
    /// # Errors
    ///
    /// As [`Collector::add`].
    pub async fn take(&mut self, known_until_ms: i64) -> Result<Vec<Span>, QueryError> {
        if self.workers.is_empty() {
            self.start_workers().await?;
        }
        let spans = self.ask_all(|reply| Order::Take(known_until_ms, reply)).await?;
        let mut spans: Vec<Span> = spans.into_iter().flatten().collect();
        spans.sort_unstable_by(|a, b| a.tsuid.cmp(&b.tsuid));
        Ok(spans)
    }

    /// What has not been taken, ascending by TSUID, and what was read.
    ///
    /// # Errors
    ///
    /// As [`Collector::add`].
    pub async fn finish(mut self) -> Result<(Vec<Span>, Statistics), QueryError> {
        if self.workers.is_empty() {
            let mut builder = SpanBuilder::new(self.shape, self.budget);
            for row in &self.waiting {
                builder.add(row)?;
            }
            return Ok((builder.take(i64::MAX)?, builder.into_statistics()));
        }
        let spans = self.take(i64::MAX).await?;
        let mut statistics = Statistics::default();
        for worker in self.workers {
            // A worker ends when nobody can send to it any more.
            drop(worker.orders);
            statistics.add_read(joined(worker.result.await)?.into_statistics());
        }
        Ok((spans, statistics))
    }

    /// Starts the workers, and gives them the rows that wait.
    async fn start_workers(&mut self) -> Result<(), QueryError> {
        let count = *WORKERS;
        for share in 0..count {
            let (orders, received) = mpsc::channel(WAITING_BATCHES);
            let builder = SpanBuilder::new(self.shape.clone(), self.budget.clone());
            let share = Share {
                share,
                of: count,
                metric_at: self.shape.layout.salt.width(),
                metric_width: self.shape.layout.widths.metric.bytes(),
            };
            let result = tokio::task::spawn_blocking(move || work(builder, received, share));
            self.workers.push(Worker { orders, result });
        }
        let waiting = std::mem::take(&mut self.waiting);
        self.send_all(waiting).await
    }

    async fn send_all(&mut self, rows: Vec<Row>) -> Result<(), QueryError> {
        let batch = Arc::new(rows);
        for index in 0..self.workers.len() {
            self.send(index, Order::Add(Arc::clone(&batch))).await?;
        }
        Ok(())
    }

    /// Gives an order to all workers, and waits for what they reply.
    async fn ask_all<T>(
        &mut self,
        order: impl Fn(oneshot::Sender<T>) -> Order,
    ) -> Result<Vec<T>, QueryError> {
        let mut asked = Vec::with_capacity(self.workers.len());
        for index in 0..self.workers.len() {
            let (sender, reply) = oneshot::channel();
            self.send(index, order(sender)).await?;
            asked.push(reply);
        }
        let mut replies = Vec::with_capacity(asked.len());
        for (index, reply) in asked.into_iter().enumerate() {
            match reply.await {
                Ok(reply) => replies.push(reply),
                Err(_) => return Err(self.failure(index).await),
            }
        }
        Ok(replies)
    }

    async fn send(&mut self, index: usize, order: Order) -> Result<(), QueryError> {
        if self.workers[index].orders.send(order).await.is_err() {
            return Err(self.failure(index).await);
        }
        Ok(())
    }

    /// Why a worker does not take orders any more.
    async fn failure(&mut self, index: usize) -> QueryError {
        match joined(self.workers.swap_remove(index).result.await) {
            Err(error) => error,
            Ok(_) => QueryError::Internal {
                detail: "a worker ended early".to_owned(),
            },
        }
    }
}

/// Does what is ordered, until nobody can order any more.
fn work(
    mut builder: SpanBuilder,
    mut orders: mpsc::Receiver<Order>,
    share: Share,
) -> Result<SpanBuilder, QueryError> {
    while let Some(order) = orders.blocking_recv() {
        match order {
            Order::Add(rows) => {
                for row in rows.iter().filter(|row| share.has_row(row.key())) {
                    builder.add(row)?;
                }
            }
            Order::Expect(survey) => {
                builder.expect(survey, |tsuid| share.has_series(tsuid.as_bytes()))?;
            }
            // Whoever asked may be gone.
            Order::Settle(reply) => drop(reply.send(())),
            Order::Take(known_until_ms, reply) => {
                let _ = reply.send(builder.take(known_until_ms)?);
            }
        }
    }
    Ok(builder)
}

/// Which series a worker has, told by their tags.
#[derive(Clone, Copy, Debug)]
struct Share {
    share: usize,
    of: usize,
    metric_at: usize,
    metric_width: usize,
}

impl Share {
    fn has_row(&self, row_key: &[u8]) -> bool {
        self.has_tags(row_key.get(self.metric_at + self.metric_width + size_of::<u32>()..))
    }

    fn has_series(&self, tsuid: &[u8]) -> bool {
        self.has_tags(tsuid.get(self.metric_width..))
    }

    fn has_tags(&self, tags: Option<&[u8]>) -> bool {
        let hash = FxBuildHasher.hash_one(tags);
        // The upper bits are the better ones.
        usize::try_from(hash >> 33).unwrap_or(0) % self.of == self.share
    }
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
