//! Compaction of rows: all points of a row in one cell, as OpenTSDB's compaction leaves them.
//!
//! In HBase a cell repeats its row key and costs memory and time of its own, so that an hour of a series takes a
//! fraction of both as one cell. OpenTSDB compacts the rows that its process wrote or read; this compaction reads all
//! rows of a range of hours.
//!
//! ```text
//!   ranges       hours of each metric and bucket, in the order of the table
//!   scan         rows, in batches
//!   plan         pure: the new cell of each row, or why it stays         computation threads
//!   row_rewrite  put, read back, remove                                  in portions of bounded bytes
//!   pause        for the rate, and in the background for queries
//! ```
//!
//! A pass holds no state but the key of its last row, so that any process resumes it. Repeating a pass, or running
//! several at once, beside OpenTSDB too, is safe at any moment: rows end up with the same bytes.

pub mod background;
mod figures;
mod pace;
mod plan;
mod ranges;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures::TryStreamExt as _;
use oxtsdb_query::{Engine, Hours, Storage};
use oxtsdb_resources::{ComputePool, MemoryPool, Panicked};
use oxtsdb_row_store::{ColumnSelection, Row, Scan, StoreError};
use oxtsdb_schema::{BaseTime, MetricUid, RowKeyLayout};

pub use self::figures::{Figures, Finding, Problem};
use self::pace::Pace;
pub use self::pace::{Courtesy, Rate};
pub use self::plan::LEAST_MIN_AGE;
use self::plan::{PlannedRow, Stays, plan_row};
use self::ranges::Ranges;
use crate::row_rewrite::{FAMILY, rewrite};

/// Rows of a batch.
const BATCH_ROWS: usize = 128;

/// The approximate size of a write of new cells, in bytes.
const PORTION_BYTES: usize = 1 << 20;

/// Compacts rows of a table in HBase.
#[derive(Clone, Debug)]
pub struct Compactor {
    storage: Storage,
    memory: MemoryPool,
    compute: ComputePool,
}

/// Why rows are not compacted here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotCompactable {
    /// The points are in no rows.
    #[error("the embedded store has no rows to compact: it merges its files by itself")]
    Embedded,
    /// Cells have the timestamps of their points.
    #[error(
        "with --use-otsdb-timestamp cells have the timestamps of their points, so that a point that is written \
         while its row is compacted could be lost"
    )]
    DataTimestamps,
}

/// Which rows to compact, and how fast.
#[derive(Clone, Debug)]
pub struct Pass {
    /// The metric; `None`: all.
    pub metric: Option<MetricUid>,
    /// The hours. Those that ended less than `min_age` ago are left out.
    pub hours: Hours,
    /// Only rows with greater keys; empty: all.
    pub start_after_row_key: Vec<u8>,
    /// The least age of a row's newest cell, at least [`LEAST_MIN_AGE`].
    pub min_age: Duration,
    /// The speed at most.
    pub rate: Rate,
    /// Whether the pass gives way to queries.
    pub courtesy: Courtesy,
}

/// A batch of a pass is complete.
#[derive(Debug)]
pub struct Step<'a> {
    /// Of the rows of this batch.
    pub figures: &'a Figures,
    /// Rows of this batch that an operator has to look at.
    pub findings: Vec<Finding>,
    /// The last row of the batch; all rows of the pass up to it are done.
    pub last_row_key: &'a [u8],
}

/// Why a pass ended early. It can be resumed after the last row of its last step.
#[derive(Debug, thiserror::Error)]
pub enum CompactionError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A bug.
    #[error(transparent)]
    Panicked(#[from] Panicked),
}

impl Compactor {
    /// Compacts the rows that queries read. `use_otsdb_timestamp`: the service writes cells with the timestamps of
    /// their points.
    ///
    /// # Errors
    ///
    /// If they must not be compacted.
    pub fn from_engine(engine: &Engine, use_otsdb_timestamp: bool) -> Result<Self, NotCompactable> {
        if engine.storage().reader.columns().is_some() {
            return Err(NotCompactable::Embedded);
        }
        if use_otsdb_timestamp {
            return Err(NotCompactable::DataTimestamps);
        }
        Ok(Self {
            storage: engine.storage().clone(),
            memory: engine.resources().memory.clone(),
            compute: engine.resources().compute.clone(),
        })
    }

    /// Runs a pass; `report` is called after each batch. It may be dropped at any time.
    ///
    /// # Errors
    ///
    /// The store fails. The rows up to the last one reported are done.
    pub async fn run(
        &self,
        pass: Pass,
        mut report: impl FnMut(Step<'_>) + Send,
    ) -> Result<(), CompactionError> {
        let min_age = pass.min_age.max(LEAST_MIN_AGE);
        let hours = ended(pass.hours, now_ms(), min_age);
        let (store, table, layout) = (&self.storage.store, &self.storage.table, self.storage.layout);
        let mut ranges = Ranges::new(layout, pass.metric, hours, &pass.start_after_row_key);
        let mut pace = Pace::new(pass.rate, pass.courtesy);
        while let Some((start, stop)) = ranges.next(&**store, table).await? {
            let mut scan = Scan::range(start, stop);
            scan.columns = ColumnSelection::Family(FAMILY.to_owned());
            scan.batch_rows = BATCH_ROWS;
            let mut batches = store.scan(table, scan).await?;
            while let Some(rows) = batches.try_next().await? {
                let Some(last_row_key) = rows.last().map(|row| row.key().to_vec()) else {
                    continue;
                };
                let settled_before_ms = now_ms().saturating_sub(millis(min_age));
                let (figures, findings) = self.batch(rows, settled_before_ms).await?;
                report(Step {
                    figures: &figures,
                    findings,
                    last_row_key: &last_row_key,
                });
                pace.pause(figures.rows, figures.bytes).await;
            }
        }
        Ok(())
    }

    /// Compacts the rows of a batch.
    async fn batch(
        &self,
        rows: Vec<Row>,
        settled_before_ms: i64,
    ) -> Result<(Figures, Vec<Finding>), CompactionError> {
        let bytes = rows.iter().map(|row| row.byte_len() as u64).sum::<u64>();
        // The rows and the new cells, which exist before the reservation could fail.
        let _held = self.memory.charge(bytes.saturating_mul(2));
        let layout = self.storage.layout;
        let planned = self
            .compute
            .run(move || plan_batch(&rows, &layout, settled_before_ms));
        let Planned {
            mut figures,
            mut findings,
            rows,
        } = planned.await?;
        figures.bytes = bytes;
        let mut rows = rows.into_iter().peekable();
        while rows.peek().is_some() {
            let (mut rewrites, mut row_figures, mut portion_bytes) = (Vec::new(), Vec::new(), 0);
            while portion_bytes < PORTION_BYTES
                && let Some(row) = rows.next()
            {
                portion_bytes += row.rewrite.put_bytes();
                rewrites.push(row.rewrite);
                row_figures.push(row.figures);
            }
            let confirmed = rewrite(&*self.storage.store, &self.storage.table, &rewrites).await?;
            for ((row, confirmed), row_figures) in rewrites.into_iter().zip(confirmed).zip(row_figures) {
                if confirmed {
                    figures.add(&row_figures);
                } else {
                    figures.count(Problem::Unconfirmed);
                    findings.push(Finding {
                        row_key: row.row_key,
                        problem: Problem::Unconfirmed,
                        detail:
                            "the new cell was not read back, so no cell was removed: the row was written or \
                                 deleted meanwhile"
                                .to_owned(),
                    });
                }
            }
        }
        Ok((figures, findings))
    }
}

/// The plans of a batch.
#[derive(Debug)]
struct Planned {
    figures: Figures,
    findings: Vec<Finding>,
    rows: Vec<PlannedRow>,
}

fn plan_batch(rows: &[Row], layout: &RowKeyLayout, settled_before_ms: i64) -> Planned {
    let mut planned = Planned {
        figures: Figures::default(),
        findings: Vec::new(),
        rows: Vec::new(),
    };
    let figures = &mut planned.figures;
    for row in rows {
        figures.rows += 1;
        match plan_row(row, layout, settled_before_ms) {
            Ok(row) => planned.rows.push(row),
            Err(Stays::Compact) => figures.already_compact += 1,
            Err(Stays::Appended) => figures.appended += 1,
            Err(Stays::Recent) => figures.recent += 1,
            Err(Stays::TooLarge) => figures.too_large += 1,
            Err(Stays::DataTimestamps) => figures.data_timestamps += 1,
            Err(Stays::Problem(problem, detail)) => {
                figures.count(problem);
                planned.findings.push(Finding {
                    row_key: row.key().to_vec(),
                    problem,
                    detail,
                });
            }
        }
    }
    planned
}

/// The hours that ended at least `min_age` ago.
fn ended(hours: Hours, now_ms: i64, min_age: Duration) -> Hours {
    let ended_seconds = now_ms.saturating_sub(millis(min_age)).max(0) / 1000;
    let last = BaseTime::from_seconds(u32::try_from(ended_seconds).unwrap_or(u32::MAX));
    Hours {
        stop_seconds: hours.stop_seconds.min(u64::from(last.seconds())),
        ..hours
    }
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

fn now_ms() -> i64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    millis(since_epoch)
}

#[cfg(test)]
mod tests;
