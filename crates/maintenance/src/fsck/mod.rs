//! The check of table `tsdb`: its findings, each confirmed by a second read, and repairs of rows.
//!
//! ```text
//!   scan ──► rows ──► UIDs without a name ──► check_row ──► suspects ──► second read, check_row ──► findings
//!            a batch  looked up twice         (schema)
//! ```
//!
//! A batch of rows is in memory at a time, charged to the memory of queries. Of UIDs, those with a name are remembered up to
//! a limit, and looked up again beyond it.
//!
//! On the embedded store the cells beside the points are checked: `PointReader::cells`. Repairs change these cells past the
//! view that shows points as rows, since that view cannot compare and change a point atomically.

pub mod repair;

use std::sync::Arc;
use std::time::Duration;

use futures::TryStreamExt as _;
use futures::stream::{self, BoxStream, StreamExt as _};
use hashbrown::HashSet;
use oxtsdb_query::{Admitted, Engine, Hours, NameDirectory, NameError, QueryError, RowBatch};
use oxtsdb_resources::{ComputePool, Panicked};
use oxtsdb_row_store::{ColumnSelection, Row, RowFilter, RowStore, Scan, StoreError, TableName};
use oxtsdb_schema::row::{CheckRules, RowCheck, check_row, row_uids};
use oxtsdb_schema::{BaseTime, CellRef, MetricUid, RowKeyLayout, Uid, UidKind};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The column family of table `tsdb`.
const FAMILY: &str = "t";

/// Rows of a batch at most.
const BATCH_ROWS: usize = 128;

/// UIDs that are remembered at most.
const MAX_REMEMBERED: usize = 1 << 20;

/// Pause before UIDs without a name are looked up again: a replica may return what it has cached for so long.
const SETTLE: Duration = Duration::from_secs(2);

/// Which rows to check, and how.
#[derive(Clone, Debug)]
pub struct CheckOptions {
    /// The findings to repair.
    pub rules: CheckRules,
    /// Only rows of this metric.
    pub metric: Option<MetricUid>,
    /// The first row key, inclusive, and the end, exclusive; empty: unbounded.
    pub range: (Vec<u8>, Vec<u8>),
    /// Only rows of these hours.
    pub hours: Hours,
    /// Only rows with greater keys; empty: all.
    pub start_after: Vec<u8>,
    /// Rows with a younger cell are left alone.
    pub grace: Duration,
}

/// A row with findings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckedRow {
    /// Its key.
    pub key: Vec<u8>,
    /// The findings.
    pub check: RowCheck,
    /// Whether it was left alone, because it has a recent cell.
    pub is_recent: bool,
}

/// The result of a batch.
#[derive(Clone, Debug, Default)]
pub struct CheckedBatch {
    /// Rows read.
    pub rows: u64,
    /// Cells read.
    pub cells: u64,
    /// Rows with findings.
    pub rows_with_findings: Vec<CheckedRow>,
    /// The last row read.
    pub last_row_key: Vec<u8>,
}

/// Why a check failed.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// The store failed, or cannot read a row.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The UID service failed.
    #[error("look up the UIDs of rows: {0}")]
    Names(#[from] NameError),
    /// A batch needs more memory than there is.
    #[error(transparent)]
    Memory(#[from] QueryError),
    /// A bug.
    #[error("the check of a row panicked: {0}")]
    Panicked(#[from] Panicked),
}

/// Checks and repairs one table. Cloning is cheap.
#[derive(Clone, Debug)]
pub struct Fsck {
    store: Arc<dyn RowStore>,
    table: TableName,
    layout: RowKeyLayout,
    directory: Arc<dyn NameDirectory>,
    compute: ComputePool,
    /// Whether most points are not in the rows of `store`.
    has_other_points: bool,
    /// One permit: a check reads the whole table.
    running: Arc<Semaphore>,
}

impl Fsck {
    /// The check of the table of an engine.
    pub fn from_engine(engine: &Engine) -> Self {
        let storage = engine.storage();
        Self {
            store: Arc::clone(storage.reader.cells()),
            table: storage.table.clone(),
            layout: storage.layout,
            directory: Arc::clone(&storage.directory),
            compute: engine.resources().compute.clone(),
            has_other_points: storage.reader.columns().is_some(),
            running: Arc::new(Semaphore::new(1)),
        }
    }

    /// The layout of row keys.
    pub const fn layout(&self) -> RowKeyLayout {
        self.layout
    }

    /// Whether most points are not in rows, and so not checked.
    pub const fn has_other_points(&self) -> bool {
        self.has_other_points
    }

    /// The permit of a check; `None` while another one runs.
    pub fn start(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.running).try_acquire_owned().ok()
    }

    /// Checks rows, batch by batch, while the stream is read.
    pub fn check(
        &self,
        options: CheckOptions,
        admitted: Arc<Admitted>,
        permit: OwnedSemaphorePermit,
    ) -> BoxStream<'static, Result<CheckedBatch, CheckError>> {
        let pass = Pass {
            rows: self.scan(&options),
            fsck: self.clone(),
            rules: Arc::new(options.rules),
            grace: options.grace,
            admitted,
            remembered: Remembered::default(),
            _permit: permit,
        };
        stream::try_unfold(pass, |mut pass| async move {
            let batch = pass.next().await?;
            Ok(batch.map(|batch| (batch, pass)))
        })
        .boxed()
    }

    /// The rows to check, in the order of the table.
    fn scan(&self, options: &CheckOptions) -> BoxStream<'static, Result<Vec<Row>, StoreError>> {
        let (layout, hours) = (self.layout, options.hours);
        let ranges = match options.metric {
            None => vec![options.range.clone()],
            Some(metric) => {
                let stop = u32::try_from(hours.stop_seconds).map_or(BaseTime::MAX, BaseTime::from_seconds);
                oxtsdb_schema::row_key::metric_ranges(&layout, metric, hours.start, stop)
            }
        };
        let after = match options.start_after.as_slice() {
            [] => Vec::new(),
            key => [key, &[0]].concat(),
        };
        let base_time_at = layout.salt.width() + layout.widths.metric.bytes();
        let (store, table) = (Arc::clone(&self.store), self.table.clone());
        let ranges = ranges
            .into_iter()
            .filter(move |(_, stop)| stop.is_empty() || *stop > after)
            .map({
                let after = match options.start_after.as_slice() {
                    [] => Vec::new(),
                    key => [key, &[0]].concat(),
                };
                move |(start, stop)| (start.max(after.clone()), stop)
            });
        stream::iter(ranges.collect::<Vec<_>>())
            .map(move |(start, stop)| {
                let mut scan = Scan::range(start, stop);
                scan.columns = ColumnSelection::Family(FAMILY.to_owned());
                scan.batch_rows = BATCH_ROWS;
                scan.filter = Some(
                    RowFilter::new(move |key| {
                        let base_time = key.get(base_time_at..).and_then(|key| key.first_chunk());
                        let hour = base_time
                            .and_then(|bytes| BaseTime::from_seconds_exact(u32::from_be_bytes(*bytes)).ok());
                        hour.is_none_or(|hour| hours.contains(hour))
                    })
                    .keeping_most(true),
                );
                let (store, table) = (Arc::clone(&store), table.clone());
                stream::once(async move { store.scan(&table, scan).await }).try_flatten()
            })
            .flatten()
            .boxed()
    }
}

/// A running check.
struct Pass {
    rows: BoxStream<'static, Result<Vec<Row>, StoreError>>,
    fsck: Fsck,
    rules: Arc<CheckRules>,
    grace: Duration,
    admitted: Arc<Admitted>,
    remembered: Remembered,
    _permit: OwnedSemaphorePermit,
}

/// Names of UIDs that were looked up.
#[derive(Debug, Default)]
struct Remembered {
    named: HashSet<(UidKind, Uid)>,
    unknown: Arc<HashSet<(UidKind, Uid)>>,
}

impl Pass {
    /// Checks the next batch; `None` at the end.
    async fn next(&mut self) -> Result<Option<CheckedBatch>, CheckError> {
        let Some(rows) = self.rows.try_next().await? else {
            return Ok(None);
        };
        let rows = Arc::new(RowBatch::new(rows, self.admitted.budget())?);
        let mut checked = CheckedBatch {
            rows: rows.len() as u64,
            cells: rows.rows().iter().map(|row| row.len() as u64).sum(),
            rows_with_findings: Vec::new(),
            last_row_key: rows.rows().last().map_or_else(Vec::new, |row| row.key().to_vec()),
        };
        self.look_up(&rows).await?;
        let suspects = self.check_all(&rows).await?;
        drop(rows);
        if suspects.is_empty() {
            return Ok(Some(checked));
        }
        let keys: Vec<Vec<u8>> = suspects.into_iter().map(|row| row.key).collect();
        let columns = ColumnSelection::Family(FAMILY.to_owned());
        let again = self
            .fsck
            .store
            .get_rows(&self.fsck.table, &keys, &columns, None)
            .await?;
        let again = again.into_iter().flatten().collect();
        let again = Arc::new(RowBatch::new(again, self.admitted.budget())?);
        checked.rows_with_findings = self.check_all(&again).await?;
        Ok(Some(checked))
    }

    /// The rows of a batch with findings.
    async fn check_all(&mut self, rows: &Arc<RowBatch>) -> Result<Vec<CheckedRow>, CheckError> {
        let (rows, rules) = (Arc::clone(rows), Arc::clone(&self.rules));
        let unknown = Arc::clone(&self.remembered.unknown);
        let now = oxtsdb_query::language::time::now_ms();
        let recent_ms = match i64::try_from(self.grace.as_millis()) {
            Ok(0) => i64::MAX,
            grace_ms => now.saturating_sub(grace_ms.unwrap_or(i64::MAX)),
        };
        let checked = self.fsck.compute.run(move || {
            let rows = rows.rows().iter();
            rows.filter_map(|row| check(row, &rules, &unknown, recent_ms))
                .collect()
        });
        Ok(checked.await?)
    }

    /// Looks up the UIDs of rows that are not known yet.
    async fn look_up(&mut self, rows: &Arc<RowBatch>) -> Result<(), CheckError> {
        if self.remembered.named.len() + self.remembered.unknown.len() > MAX_REMEMBERED {
            self.remembered = Remembered::default();
        }
        let (read, layout) = (Arc::clone(rows), self.fsck.layout);
        let uids = self.fsck.compute.run(move || {
            let uids = read.rows().iter().flat_map(|row| row_uids(row.key(), &layout));
            uids.collect::<HashSet<(UidKind, Uid)>>()
        });
        let is_new = |uid: &(UidKind, Uid)| {
            !self.remembered.named.contains(uid) && !self.remembered.unknown.contains(uid)
        };
        let new: Vec<(UidKind, Uid)> = uids.await?.into_iter().filter(is_new).collect();
        let missing = self.without_name(new).await?;
        if missing.is_empty() {
            return Ok(());
        }
        tokio::time::sleep(SETTLE.min(self.grace)).await;
        let missing = self.without_name(missing).await?;
        Arc::make_mut(&mut self.remembered.unknown).extend(missing);
        Ok(())
    }

    /// Returns the UIDs that have no name. The others are remembered.
    async fn without_name(&mut self, uids: Vec<(UidKind, Uid)>) -> Result<Vec<(UidKind, Uid)>, CheckError> {
        let mut missing = Vec::new();
        for kind in UidKind::ALL {
            let of_kind: Vec<Uid> = uids
                .iter()
                .filter(|(of, _)| *of == kind)
                .map(|(_, uid)| *uid)
                .collect();
            if of_kind.is_empty() {
                continue;
            }
            let names = self.fsck.directory.names(kind, &of_kind, None).await?;
            for (uid, name) in of_kind.into_iter().zip(names) {
                if name.is_some() {
                    self.remembered.named.insert((kind, uid));
                } else {
                    missing.push((kind, uid));
                }
            }
        }
        Ok(missing)
    }
}

/// Checks a row; `None` without findings.
fn check(
    row: &Row,
    rules: &CheckRules,
    unknown: &HashSet<(UidKind, Uid)>,
    recent_ms: i64,
) -> Option<CheckedRow> {
    let cells: Vec<CellRef<'_>> = row
        .cells()
        .map(|cell| CellRef {
            qualifier: cell.qualifier,
            value: cell.value,
            timestamp_ms: cell.timestamp_ms,
        })
        .collect();
    let check = check_row(row.key(), &cells, rules, &|kind, uid| {
        unknown.contains(&(kind, *uid))
    });
    if check.findings.is_empty() {
        return None;
    }
    Some(CheckedRow {
        key: row.key().to_vec(),
        check,
        is_recent: cells.iter().any(|cell| cell.timestamp_ms > recent_ms),
    })
}
