//! Collects columns and batches of rows into series, off the runtime's threads.
//!
//! Workers read columns, each for its share of the series. A few rows are decoded inline. More rows go to workers: each
//! worker receives every batch and builds its share of the series. No two workers build the same series, so no merge
//! follows.

use std::sync::Arc;

use oxtsdb_point_store::TimeRange;
use oxtsdb_resources::ComputePool;

use crate::context::budget::Budget;
use crate::context::resource::Resource;
use crate::error::QueryError;
use crate::exec::column_read::ColumnRead;
use crate::exec::extents::SeriesExtents;
use crate::exec::series_builder::{SeriesBuilder, SeriesOptions};
use crate::exec::series_points::SeriesPoints;
use crate::exec::statistics::Statistics;
use crate::exec::worker::{Command, Reply, Share, Worker};
use crate::reader::columns::source::{ColumnSource, MAX_WORKERS};
use crate::reader::scan::RowBatch;

/// Most rows, and most bytes of rows, that are decoded inline, which takes less than 1 ms.
const ROWS_INLINE: usize = 32;
const BYTES_INLINE: u64 = 256 << 10;

/// Number of series from which on they are sorted in the compute pool.
const MANY_SERIES: usize = 16_384;

/// Collects batches of rows into series.
#[derive(Debug)]
pub(crate) struct Collector {
    options: SeriesOptions,
    budget: Budget,
    compute: ComputePool,
    waiting: Vec<RowBatch>,
    waiting_rows: usize,
    waiting_bytes: u64,
    workers: Vec<Arc<Worker>>,
    columns: Option<ColumnSource>,
}

impl Collector {
    /// An empty collector. Workers read the columns of the source, if there is one.
    pub(crate) const fn new(
        options: SeriesOptions,
        budget: Budget,
        compute: ComputePool,
        columns: Option<ColumnSource>,
    ) -> Self {
        Self {
            columns,
            options,
            budget,
            compute,
            waiting: Vec::new(),
            waiting_rows: 0,
            waiting_bytes: 0,
            workers: Vec::new(),
        }
    }

    /// Lets the workers read the columns in a range, after all earlier input.
    ///
    /// # Errors
    ///
    /// As [`Collector::add`].
    pub(crate) async fn read(&mut self, range: TimeRange) -> Result<(), QueryError> {
        if self.workers.is_empty() {
            self.start_workers().await?;
        }
        for worker in &self.workers {
            worker.submit(Command::Read(Box::new(ColumnRead::new(range, &self.budget)?)))?;
        }
        Ok(())
    }

    /// Adds rows.
    ///
    /// # Errors
    ///
    /// The error of these rows or of earlier ones, and [`QueryError::OverBudget`].
    pub(crate) async fn add(&mut self, rows: RowBatch) -> Result<(), QueryError> {
        if self.workers.is_empty() {
            self.waiting_rows += rows.len();
            self.waiting_bytes += rows.byte_len();
            self.waiting.push(rows);
            if self.waiting_rows <= ROWS_INLINE && self.waiting_bytes <= BYTES_INLINE {
                return Ok(());
            }
            return self.start_workers().await;
        }
        self.send_rows(rows).await
    }

    /// Sets the series and hours with rows to come; rows of other series are ignored from now on.
    ///
    /// # Errors
    ///
    /// As [`Collector::add`].
    pub(crate) async fn expect(&mut self, extents: &Arc<SeriesExtents>) -> Result<(), QueryError> {
        if self.workers.is_empty() {
            self.start_workers().await?;
        }
        for worker in &self.workers {
            worker.submit(Command::Expect(Arc::clone(extents)))?;
        }
        Ok(())
    }

    /// Waits until the workers have decoded all rows that were added.
    ///
    /// # Errors
    ///
    /// As [`Collector::add`].
    pub(crate) async fn barrier(&mut self) -> Result<(), QueryError> {
        self.request_of_all(Command::Barrier).await.map(drop)
    }

    /// Returns the untaken points of each series before an instant, ascending by TSUID; see [`SeriesBuilder::take`].
    ///
    /// # Errors
    ///
    /// As [`Collector::add`].
    pub(crate) async fn take(&mut self, final_until_ms: i64) -> Result<Vec<SeriesPoints>, QueryError> {
        if self.workers.is_empty() {
            self.start_workers().await?;
        }
        let taken = self.request_of_all(|reply| Command::Take(final_until_ms, reply));
        self.merged(taken.await?).await
    }

    /// Merges the series of all workers; each worker has sorted its own.
    async fn merged(&self, taken: Vec<Vec<SeriesPoints>>) -> Result<Vec<SeriesPoints>, QueryError> {
        let merge = move || {
            let mut taken = taken.into_iter();
            let mut series = taken.next().unwrap_or_default();
            series.reserve_exact(taken.as_slice().iter().map(Vec::len).sum());
            taken.for_each(|more| series.extend(more));
            // The stable sort merges sorted runs.
            series.sort_by(|a, b| a.tsuid.cmp(&b.tsuid));
            series
        };
        if self.budget.usage().get(Resource::Series) < MANY_SERIES as u64 {
            return Ok(merge());
        }
        Ok(self.compute.run(merge).await?)
    }

    /// Returns the points that were not taken yet, ascending by TSUID, and the statistics.
    ///
    /// # Errors
    ///
    /// As [`Collector::add`].
    pub(crate) async fn finish(self) -> Result<(Vec<SeriesPoints>, Statistics), QueryError> {
        if self.workers.is_empty() {
            let mut builder = SeriesBuilder::new(self.options.clone(), self.budget.clone());
            for batch in &self.waiting {
                for row in batch.rows() {
                    builder.add(row)?;
                }
            }
            return Ok((builder.take(i64::MAX)?, builder.into_statistics()));
        }
        // Both at once, so that the workers wait for nothing in between.
        let taken = self.request_of_all(|reply| Command::Take(i64::MAX, reply));
        let (taken, finished) = tokio::try_join!(taken, self.request_of_all(Command::Finish))?;
        let mut statistics = Statistics::default();
        for counted in finished {
            statistics.add_read(counted);
        }
        Ok((self.merged(taken).await?, statistics))
    }

    /// Starts the workers, and gives them the rows that wait.
    async fn start_workers(&mut self) -> Result<(), QueryError> {
        let most = self
            .columns
            .as_ref()
            .map_or(MAX_WORKERS, ColumnSource::most_workers);
        let count = self.compute.threads().min(most);
        for share in 0..count {
            let builder = SeriesBuilder::new(self.options.clone(), self.budget.clone());
            let share = Share {
                share,
                of: count,
                metric_at: self.options.layout.salt.width(),
                metric_width: self.options.layout.widths.metric.bytes(),
                columns: self.columns.clone(),
            };
            let worker = Worker::new(share, builder, self.compute.clone());
            self.workers.push(Arc::new(worker));
        }
        for rows in std::mem::take(&mut self.waiting) {
            self.send_rows(rows).await?;
        }
        Ok(())
    }

    async fn send_rows(&mut self, rows: RowBatch) -> Result<(), QueryError> {
        let batch = Arc::new(rows);
        for worker in &self.workers {
            worker.add(&batch).await?;
        }
        Ok(())
    }

    /// Sends a command to all workers, and waits for their replies.
    async fn request_of_all<T>(&self, command: impl Fn(Reply<T>) -> Command) -> Result<Vec<T>, QueryError> {
        let mut requested = Vec::with_capacity(self.workers.len());
        for worker in &self.workers {
            requested.push((worker, worker.request(&command)?));
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
        for worker in &self.workers {
            worker.clear();
        }
    }
}

#[cfg(test)]
mod tests;
