//! Workers: each reads and decodes columns or decodes rows of its share of the series, in the computation pool.
//!
//! A worker is a queue of commands, not a thread. While it has commands, one job for it is in the computation pool; a
//! job performs commands for about a millisecond and schedules the next job behind the jobs of other queries. So no
//! thread waits for a row, and any number of queries shares the pool. A worker with few points in memory performs its
//! commands inline, until it receives rows: a hand-over between threads takes longer.

use std::collections::VecDeque;
use std::hash::BuildHasher as _;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use oxtsdb_resources::{ComputePool, Panicked, compute::panic_message};
use parking_lot::Mutex;
use rustc_hash::FxBuildHasher;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use crate::error::QueryError;
use crate::exec::column_read::{ColumnRead, Progress};
use crate::exec::extents::SeriesExtents;
use crate::exec::series_builder::SeriesBuilder;
use crate::exec::series_points::SeriesPoints;
use crate::exec::statistics::Statistics;
use crate::reader::columns::source::ColumnSource;
use crate::reader::scan::RowBatch;

/// A job begins no command after this time: then jobs of other queries run.
const JOB_TIME: Duration = Duration::from_millis(1);

/// Batches that may wait for a worker.
const WAITING_BATCHES: usize = 4;

/// A queue of commands for one share of the series.
#[derive(Debug)]
pub(super) struct Worker {
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
    builder: Option<SeriesBuilder>,
    /// Whether a job is in the pool.
    is_scheduled: bool,
    /// Whether the caller performs commands.
    is_inline: bool,
    /// Whether the query was dropped.
    is_cleared: bool,
    failure: Option<QueryError>,
}

/// A command of a worker.
#[derive(Debug)]
pub(super) enum Command {
    /// Read and add the columns of its share.
    Read(Box<ColumnRead>),
    /// Add the rows of its share.
    Add(Arc<RowBatch>, OwnedSemaphorePermit),
    /// Expect the rows of these series only: [`SeriesBuilder::expect`].
    Expect(Arc<SeriesExtents>),
    /// Return the points up to an instant: [`SeriesBuilder::take`].
    Take(i64, Reply<Vec<SeriesPoints>>),
    /// Reply when all earlier commands are done.
    Barrier(Reply<()>),
    /// Return the statistics; the last command.
    Finish(Reply<Statistics>),
}

/// Receives a reply; `None` once it is sent.
pub(super) type Reply<T> = Option<oneshot::Sender<T>>;

impl Worker {
    /// A worker for a share of the series.
    pub(super) fn new(share: Share, builder: SeriesBuilder, compute: ComputePool) -> Self {
        let is_inline = share
            .columns
            .as_ref()
            .is_some_and(|columns| columns.is_read_inline);
        Self {
            share,
            compute,
            state: Mutex::new(WorkerState {
                commands: VecDeque::new(),
                builder: Some(builder),
                is_scheduled: false,
                is_inline,
                is_cleared: false,
                failure: None,
            }),
            capacity: Arc::new(Semaphore::new(WAITING_BATCHES)),
        }
    }

    /// Submits rows, once the worker has capacity for them.
    pub(super) async fn add(self: &Arc<Self>, batch: &Arc<RowBatch>) -> Result<(), QueryError> {
        let permit = Arc::clone(&self.capacity).acquire_owned().await;
        let permit = permit.map_err(|_| self.failure())?;
        self.submit(Command::Add(Arc::clone(batch), permit))
    }

    /// Submits a command and returns the receiver of its reply.
    pub(super) fn request<T>(
        self: &Arc<Self>,
        command: impl Fn(Reply<T>) -> Command,
    ) -> Result<oneshot::Receiver<T>, QueryError> {
        let (sender, reply) = oneshot::channel();
        self.submit(command(Some(sender)))?;
        Ok(reply)
    }

    /// Drops all commands. A job that is in the pool finds nothing to do.
    pub(super) fn clear(&self) {
        let mut state = self.state.lock();
        state.is_cleared = true;
        state.commands.clear();
    }

    /// Adds a command, and schedules a job if there is none or performs it.
    pub(super) fn submit(self: &Arc<Self>, command: Command) -> Result<(), QueryError> {
        let mut state = self.state.lock();
        if let Some(failure) = &state.failure {
            return Err(failure.clone());
        }
        state.is_inline &= !matches!(command, Command::Add(..));
        let is_inline = state.is_inline;
        state.commands.push_back(command);
        if !std::mem::replace(&mut state.is_scheduled, true) {
            drop(state);
            if is_inline {
                Arc::clone(self).perform_some();
            } else {
                self.schedule();
            }
        }
        Ok(())
    }

    fn schedule(self: &Arc<Self>) {
        let worker = Arc::clone(self);
        self.compute.spawn(move || worker.perform_some());
    }

    /// One job: the next commands, for about a millisecond.
    fn perform_some(self: Arc<Self>) {
        let started = Instant::now();
        while self.perform_next() {
            if started.elapsed() >= JOB_TIME {
                self.schedule();
                return;
            }
        }
    }

    /// Performs the next command; returns whether there are more.
    fn perform_next(&self) -> bool {
        let (mut command, mut builder) = {
            let mut state = self.state.lock();
            let Some(command) = state.commands.pop_front() else {
                state.is_scheduled = false;
                return false;
            };
            // It is there: only the one job of a worker takes it, and no job follows a failure.
            let Some(builder) = state.builder.take() else {
                return false;
            };
            (command, builder)
        };
        let performed = catch_unwind(AssertUnwindSafe(|| {
            self.share.perform(&mut builder, &mut command)
        }));
        let (goes_on, failure) = match performed {
            Ok(Ok(Progress::Done)) => (false, None),
            Ok(Ok(Progress::GoesOn)) => (true, None),
            Ok(Err(error)) => (false, Some(error)),
            Err(panic) => {
                let message = panic_message(&*panic);
                (false, Some(QueryError::from(Panicked { message })))
            }
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
            return false;
        }
        state.builder = Some(builder);
        if goes_on && !state.is_cleared {
            state.commands.push_front(command);
        }
        state.is_scheduled = !state.commands.is_empty();
        state.is_scheduled
    }

    /// The error with which it rejects commands.
    pub(super) fn failure(&self) -> QueryError {
        let failure = self.state.lock().failure.clone();
        failure.unwrap_or_else(|| QueryError::Internal {
            detail: "a worker ended early".to_owned(),
        })
    }
}

impl Share {
    fn perform(&self, builder: &mut SeriesBuilder, command: &mut Command) -> Result<Progress, QueryError> {
        fn send<T>(reply: &mut Reply<T>, value: T) {
            if let Some(reply) = reply.take() {
                // The query may have been cancelled meanwhile.
                let _ = reply.send(value);
            }
        }
        match command {
            Command::Read(read) => {
                if let Some(columns) = &self.columns {
                    return read.perform(
                        columns,
                        self.metric_width,
                        self.span(columns.series.len()),
                        builder,
                    );
                }
            }
            Command::Add(rows, _permit) => {
                for row in rows.rows().iter().filter(|row| self.has_row(row.key())) {
                    builder.add(row)?;
                }
            }
            Command::Expect(extents) => {
                builder.expect(Arc::clone(extents), |tsuid| self.has_series(tsuid.as_bytes()))?;
            }
            Command::Barrier(reply) => send(reply, ()),
            Command::Take(final_until_ms, reply) => send(reply, builder.take(*final_until_ms)?),
            Command::Finish(reply) => send(reply, builder.take_statistics()),
        }
        Ok(Progress::Done)
    }
}

/// The series of a worker: with columns a range of neighbours, so that it reads neighbouring blocks; otherwise chosen
/// by a hash of their tags.
#[derive(Clone, Debug)]
pub(super) struct Share {
    pub(super) share: usize,
    pub(super) of: usize,
    pub(super) metric_at: usize,
    pub(super) metric_width: usize,
    pub(super) columns: Option<ColumnSource>,
}

impl Share {
    fn has_row(&self, row_key: &[u8]) -> bool {
        let base_at = self.metric_at + self.metric_width;
        let metric = row_key.get(self.metric_at..base_at).unwrap_or_default();
        let tags = row_key.get(base_at + size_of::<u32>()..).unwrap_or_default();
        self.has(metric, tags)
    }

    fn has_series(&self, tsuid: &[u8]) -> bool {
        let (metric, tags) = tsuid.split_at_checked(self.metric_width).unwrap_or_default();
        self.has(metric, tags)
    }

    fn has(&self, metric: &[u8], tags: &[u8]) -> bool {
        if let Some(columns) = &self.columns
            && let Some(series) = columns.store.find(&[metric, tags].concat())
            && let Ok(index) = columns.series.binary_search(&series)
        {
            return self.span(columns.series.len()).contains(&index);
        }
        let hash = FxBuildHasher.hash_one(tags);
        // The upper bits are the better ones.
        usize::try_from(hash >> 33).unwrap_or(0) % self.of == self.share
    }

    /// The indices of its series among `series` series.
    const fn span(&self, series: usize) -> Range<usize> {
        series * self.share / self.of..series * (self.share + 1) / self.of
    }
}
