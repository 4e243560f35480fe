//! From batches of rows to spans, off the runtime's threads.
//!
//! A few rows are decoded inline. More go to workers: each takes every batch and builds the spans of its
//! share of the series, so no two touch one series and nothing has to be merged.
//!
//! A worker is a queue of commands, not a thread. As long as it has commands, one job for it is in the
//! computation pool; a job performs one command and, if there are more, puts the next job behind those of
//! other queries. So no thread ever waits for a row, and any number of queries shares the pool.

use std::collections::VecDeque;
use std::hash::BuildHasher as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use oxtsdb_resources::{ComputePool, Panicked, compute::panic_message};
use parking_lot::Mutex;
use rustc_hash::FxBuildHasher;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use crate::error::QueryError;
use crate::exec::budget::Budget;
use crate::exec::frame::Statistics;
use crate::exec::scan::{RowBatch, bytes_of};
use crate::exec::span::{Span, SpanBuilder, SpanShape};
use crate::exec::survey::Survey;

/// Up to so many rows, of so many bytes, are decoded inline; it takes less than a millisecond.
const ROWS_INLINE: usize = 32;
const BYTES_INLINE: u64 = 256 << 10;

/// Workers of a query at most.
const MAX_WORKERS: usize = 4;

/// Batches that may wait for a worker.
const WAITING_BATCHES: usize = 4;

/// From so many spans on they are sorted in the computation pool.
const MANY_SPANS: usize = 16_384;

/// Takes batches of rows and gives spans.
#[derive(Debug)]
pub struct Collector {
    shape: SpanShape,
    budget: Budget,
    compute: ComputePool,
    waiting: Vec<RowBatch>,
    waiting_rows: usize,
    waiting_bytes: u64,
    workers: Vec<Arc<Worker>>,
}

#[derive(Debug)]
struct Worker {
    share: Share,
    compute: ComputePool,
    state: Mutex<WorkerState>,
    /// For batches that wait.
    capacity: Arc<Semaphore>,
}

#[derive(Debug)]
struct WorkerState {
    commands: VecDeque<Command>,
    /// `None` while a job uses it, and once the worker has failed.
    builder: Option<SpanBuilder>,
    /// Whether a job is in the pool.
    is_scheduled: bool,
    failure: Option<QueryError>,
}

/// What a worker is to do.
#[derive(Debug)]
enum Command {
    /// Take the rows of its share.
    Add(Arc<RowBatch>, OwnedSemaphorePermit),
    /// Know which series there are: [`SpanBuilder::expect`].
    Expect(Arc<Survey>),
    /// Give what is final before an instant: [`SpanBuilder::take`].
    Take(i64, Reply<Vec<Span>>),
    /// Say that all commands before are done.
    Barrier(Reply<()>),
    /// Give the statistics; nothing comes after it.
    Finish(Reply<Statistics>),
}

/// Where a reply goes; `None` once it is sent.
type Reply<T> = Option<oneshot::Sender<T>>;

impl Collector {
    /// No rows yet.
    pub const fn new(shape: SpanShape, budget: Budget, compute: ComputePool) -> Self {
        Self {
            shape,
            budget,
            compute,
            waiting: Vec::new(),
            waiting_rows: 0,
            waiting_bytes: 0,
            workers: Vec::new(),
        }
    }

    /// Takes rows.
    ///
    /// # Errors
    ///
    /// What was wrong with these rows or earlier ones, and [`QueryError::OverBudget`].
    pub async fn add(&mut self, rows: RowBatch) -> Result<(), QueryError> {
        if self.workers.is_empty() {
            self.waiting_rows += rows.len();
            self.waiting_bytes += bytes_of(rows.rows());
            self.waiting.push(rows);
            if self.waiting_rows <= ROWS_INLINE && self.waiting_bytes <= BYTES_INLINE {
                return Ok(());
            }
            return self.start_workers().await;
        }
        self.send_rows(rows).await
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
        for worker in &self.workers {
            worker.submit(Command::Expect(Arc::clone(survey)))?;
        }
        Ok(())
    }

    /// Waits until all rows that came were decoded, as far as there are workers.
    ///
    /// # Errors
    ///
    /// As [`Collector::add`].
    pub async fn settle(&mut self) -> Result<(), QueryError> {
        self.request_of_all(Command::Barrier).await.map(drop)
    }

    /// What is final of each series before an instant, from where it was called last, ascending by TSUID;
    /// see [`SpanBuilder::take`].
    ///
    /// # Errors
    ///
    /// As [`Collector::add`].
    pub async fn take(&mut self, known_until_ms: i64) -> Result<Vec<Span>, QueryError> {
        if self.workers.is_empty() {
            self.start_workers().await?;
        }
        let spans = self
            .request_of_all(|reply| Command::Take(known_until_ms, reply))
            .await?;
        let sort = move || {
            let mut spans: Vec<Span> = spans.into_iter().flatten().collect();
            spans.sort_unstable_by(|a, b| a.tsuid.cmp(&b.tsuid));
            spans
        };
        if self.budget.usage().of(crate::exec::budget::Resource::Series) < MANY_SPANS as u64 {
            return Ok(sort());
        }
        Ok(self.compute.run(sort).await?)
    }

    /// What has not been taken, ascending by TSUID, and what was read.
    ///
    /// # Errors
    ///
    /// As [`Collector::add`].
    pub async fn finish(mut self) -> Result<(Vec<Span>, Statistics), QueryError> {
        if self.workers.is_empty() {
            let mut builder = SpanBuilder::new(self.shape.clone(), self.budget.clone());
            for row in self.waiting.iter().flat_map(RowBatch::rows) {
                builder.add(row)?;
            }
            return Ok((builder.take(i64::MAX)?, builder.into_statistics()));
        }
        let spans = self.take(i64::MAX).await?;
        let mut statistics = Statistics::default();
        for counted in self.request_of_all(Command::Finish).await? {
            statistics.add_read(counted);
        }
        Ok((spans, statistics))
    }

    /// Starts the workers, and gives them the rows that wait.
    async fn start_workers(&mut self) -> Result<(), QueryError> {
        let count = self.compute.threads().min(MAX_WORKERS);
        for share in 0..count {
            let builder = SpanBuilder::new(self.shape.clone(), self.budget.clone());
            self.workers.push(Arc::new(Worker {
                share: Share {
                    share,
                    of: count,
                    metric_at: self.shape.layout.salt.width(),
                    metric_width: self.shape.layout.widths.metric.bytes(),
                },
                compute: self.compute.clone(),
                state: Mutex::new(WorkerState {
                    commands: VecDeque::new(),
                    builder: Some(builder),
                    is_scheduled: false,
                    failure: None,
                }),
                capacity: Arc::new(Semaphore::new(WAITING_BATCHES)),
            }));
        }
        for rows in std::mem::take(&mut self.waiting) {
            self.send_rows(rows).await?;
        }
        Ok(())
    }

    async fn send_rows(&mut self, rows: RowBatch) -> Result<(), QueryError> {
        let batch = Arc::new(rows);
        for worker in &self.workers {
            let permit = Arc::clone(&worker.capacity).acquire_owned().await;
            let permit = permit.map_err(|_| worker.failure())?;
            worker.submit(Command::Add(Arc::clone(&batch), permit))?;
        }
        Ok(())
    }

    /// Sends a command to all workers, and waits for their replies.
    async fn request_of_all<T>(
        &mut self,
        command: impl Fn(Reply<T>) -> Command,
    ) -> Result<Vec<T>, QueryError> {
        let mut requested = Vec::with_capacity(self.workers.len());
        for worker in &self.workers {
            let (sender, reply) = oneshot::channel();
            worker.submit(command(Some(sender)))?;
            requested.push((worker, reply));
        }
        let mut replies = Vec::with_capacity(requested.len());
        for (worker, reply) in requested {
            replies.push(reply.await.map_err(|_| worker.failure())?);
        }
        Ok(replies)
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        // Jobs that are in the pool find nothing to do.
        for worker in &self.workers {
            worker.state.lock().commands.clear();
        }
    }
}

impl Worker {
    /// Adds a command, and schedules a job if there is none.
    fn submit(self: &Arc<Self>, command: Command) -> Result<(), QueryError> {
        let mut state = self.state.lock();
        if let Some(failure) = &state.failure {
            return Err(failure.clone());
        }
        state.commands.push_back(command);
        if !std::mem::replace(&mut state.is_scheduled, true) {
            drop(state);
            self.schedule();
        }
        Ok(())
    }

    fn schedule(self: &Arc<Self>) {
        let worker = Arc::clone(self);
        self.compute.spawn(move || worker.perform_next());
    }

    /// One job: the next command.
    fn perform_next(self: Arc<Self>) {
        let (mut command, mut builder) = {
            let mut state = self.state.lock();
            let Some(command) = state.commands.pop_front() else {
                state.is_scheduled = false;
                return;
            };
            // It is there: only the one job of a worker takes it, and no job follows a failure.
            let Some(builder) = state.builder.take() else {
                return;
            };
            (command, builder)
        };
        let performed = catch_unwind(AssertUnwindSafe(|| {
            self.share.perform(&mut builder, &mut command)
        }));
        let failure = match performed {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(error),
            Err(panic) => Some(QueryError::from(Panicked {
                message: panic_message(&*panic),
            })),
        };
        let mut state = self.state.lock();
        if failure.is_some() {
            state.failure = failure;
            state.is_scheduled = false;
            // Replies that are not sent are dropped now, not before: a caller that waits for one looks for
            // the failure then.
            let commands = std::mem::take(&mut state.commands);
            drop(state);
            self.capacity.close();
            drop((command, commands));
            return;
        }
        state.builder = Some(builder);
        state.is_scheduled = !state.commands.is_empty();
        let goes_on = state.is_scheduled;
        drop(state);
        if goes_on {
            self.schedule();
        }
    }

    /// Why it takes no more commands.
    fn failure(&self) -> QueryError {
        let failure = self.state.lock().failure.clone();
        failure.unwrap_or_else(|| QueryError::Internal {
            detail: "a worker ended early".to_owned(),
        })
    }
}

impl Share {
    fn perform(&self, builder: &mut SpanBuilder, command: &mut Command) -> Result<(), QueryError> {
        fn send<T>(reply: &mut Reply<T>, value: T) {
            if let Some(reply) = reply.take() {
                // The query may have been cancelled meanwhile.
                let _ = reply.send(value);
            }
        }
        match command {
            Command::Add(rows, _permit) => {
                for row in rows.rows().iter().filter(|row| self.has_row(row.key())) {
                    builder.add(row)?;
                }
            }
            Command::Expect(survey) => {
                builder.expect(Arc::clone(survey), |tsuid| self.has_series(tsuid.as_bytes()))?;
            }
            Command::Barrier(reply) => send(reply, ()),
            Command::Take(known_until_ms, reply) => send(reply, builder.take(*known_until_ms)?),
            Command::Finish(reply) => send(reply, builder.take_statistics()),
        }
        Ok(())
    }
}

/// Which series a worker has: a hash of their tags decides.
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

#[cfg(test)]
mod tests;
