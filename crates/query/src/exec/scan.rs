//! Scans the rows of a plan in batches, in order of time.
//!
//! A scan is split into time slices. While one slice is decoded, tasks read the next ones ahead; within a slice the salt
//! buckets are read concurrently. Slices are emitted in order, so the rows of each series are in order of time. After
//! each slice the scan emits a watermark: all earlier rows have been read, so results up to it can be emitted (see
//! [`crate::exec::sub_query`]).
//!
//! ```text
//!   hours      0 1 2 3 4 5 6 7 8 …
//!   slices     ├─────┼─────┼───────┼ …     short at first; later their length follows slice_bytes
//!   bucket 0   decoded, read ahead, read ahead
//!   bucket 1   decoded, read ahead, read ahead
//! ```

pub(crate) mod columns;
mod density;
mod slices;

use std::sync::Arc;

use futures::stream::{self, BoxStream, Stream, StreamExt as _, TryStreamExt as _};
use oxtsdb_point_store::TimeRange;
use oxtsdb_row_store::{ColumnSelection, DamageLog, Row, RowFilter, RowStore, Scan, TableName};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_util::task::AbortOnDropHandle;

use crate::context::budget::{Budget, Held};
use crate::error::QueryError;
use crate::plan::access_path::{AccessPath, ColumnSeries};
use crate::plan::hours::Hours;
use crate::plan::query_plan::Plan;
use crate::range_scan::scan_concurrently;
use crate::storage::Storage;
use density::Density;
use slices::{Slice, Slices};
use tracing::Instrument as _;

/// Rows in a batch: enough to amortize the hand-over between threads.
const BATCH_ROWS: usize = 256;

/// Slices that are read ahead of the current one.
const SLICES_AHEAD: usize = 2;

/// Most waiting batches of a slice that is read ahead.
const WAITING_BATCHES: usize = 4;

/// Slices of at most this many hours are read hour by hour.
const HOURS_BY_THEMSELVES: usize = 8;

/// Batches of single rows that are read concurrently.
const READS_AT_A_TIME: usize = 2;

/// Target size of a slice, and most of its bytes that may wait while an earlier slice is decoded: large enough to
/// amortize the hand-over, small enough that several slices fit in the memory of the query. Packed rows take little
/// more than a byte for a point; decoded points take 16.
fn slice_bytes(budget: &Budget) -> u64 {
    const LEAST: u64 = 64 << 10;
    const MOST: u64 = 8 << 20;
    let memory = budget.limits().memory.most.min(budget.reserved_bytes());
    (memory / 64).clamp(LEAST, MOST)
}

/// Rows and their memory, which is held until they are decoded.
#[derive(Debug)]
pub struct RowBatch {
    rows: Vec<Row>,
    _held: Held,
    /// The permits of rows that were read ahead.
    waits: Option<OwnedSemaphorePermit>,
}

impl RowBatch {
    /// A batch of rows; their memory is held from now on.
    ///
    /// # Errors
    ///
    /// As [`Budget::hold`].
    pub fn new(rows: Vec<Row>, budget: &Budget) -> Result<Self, QueryError> {
        let held = budget.hold(bytes_of(&rows))?;
        Ok(Self {
            rows,
            _held: held,
            waits: None,
        })
    }

    /// The rows.
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// The rows, mutable so that some can be dropped.
    pub const fn rows_mut(&mut self) -> &mut Vec<Row> {
        &mut self.rows
    }

    /// Bytes of rows.
    pub fn byte_len(&self) -> u64 {
        bytes_of(&self.rows)
    }

    /// How many rows there are.
    pub const fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }
}

/// Bytes of rows: keys, qualifiers, values.
pub(crate) fn bytes_of(rows: &[Row]) -> u64 {
    rows.iter().map(Row::byte_len).sum::<usize>() as u64
}

/// An item of a scan, in order of time.
#[derive(Debug)]
pub(crate) enum ScanItem {
    /// The columns of all series in a range. The decoding workers read them.
    Columns(TimeRange),
    /// Rows.
    Rows(RowBatch),
    /// All rows with points before this timestamp, milliseconds since the epoch, were emitted.
    Watermark(i64),
}

/// Family `t`, which holds the points.
pub(crate) fn point_columns() -> ColumnSelection {
    ColumnSelection::Family(String::from_utf8_lossy(oxtsdb_schema::data_table::FAMILY).into_owned())
}

/// Reads the rows of a plan. Dropping the stream cancels the scan.
///
/// Must be polled within a Tokio runtime.
pub(crate) fn rows(
    storage: &Storage,
    plan: &Plan,
    budget: &Budget,
    skip_damaged: Option<&DamageLog>,
) -> BoxStream<'static, Result<ScanItem, QueryError>> {
    match &plan.access_path {
        AccessPath::Ranges(ranges) | AccessPath::Columns(ColumnSeries { ranges, .. }) => {
            let source = Source {
                store: Arc::clone(&storage.store),
                table: storage.table.clone(),
                ranges: Arc::from(ranges.as_slice()),
                filter: plan.selection.row_filter(),
                hours: plan.hours,
                density: Arc::new(Density::new(slice_bytes(budget))),
                budget: budget.clone(),
                skip_damaged: skip_damaged.cloned(),
            };
            source.items().boxed()
        }
        AccessPath::Rows(rows) => {
            let (store, table) = (Arc::clone(&storage.store), storage.table.clone());
            let (selection, budget) = (plan.selection.clone(), budget.clone());
            let skip_damaged = skip_damaged.cloned();
            let read = move |mut keys: Vec<Vec<u8>>| {
                let (store, table, budget) = (Arc::clone(&store), table.clone(), budget.clone());
                let skip_damaged = skip_damaged.clone();
                // Rows are in order of hours, so all hours before the last row's hour are complete.
                let hour = keys.last().and_then(|key| selection.base_time(key));
                // The match cache may have grown since the plan was made.
                keys.retain(|key| selection.may_match(key));
                async move {
                    let columns = point_columns();
                    let rows = match &skip_damaged {
                        None => store.get_rows(&table, &keys, &columns).await?,
                        Some(damage) => {
                            store
                                .get_rows_skipping_damage(&table, &keys, &columns, damage)
                                .await?
                        }
                    };
                    let rows = RowBatch::new(rows.into_iter().flatten().collect(), &budget)?;
                    let rows = ScanItem::Rows(rows);
                    let until = hour.map(|hour| ScanItem::Watermark(hour.millis()));
                    let items = [Some(rows), until].into_iter().flatten();
                    Ok::<_, QueryError>(stream::iter(items.map(Ok)))
                }
            };
            stream::iter(rows.batches(BATCH_ROWS))
                .map(read)
                .buffered(READS_AT_A_TIME)
                .try_flatten()
                .boxed()
        }
    }
}

/// Calls `seen` with the key of each possibly matching row of a plan in the given hours, the last of the plan. Reads
/// only keys where the store, which has the rows, supports it.
///
/// # Errors
///
/// Errors of the store.
pub(crate) async fn keys(
    (store, storage): (&Arc<dyn RowStore>, &Storage),
    plan: &Plan,
    hours: Hours,
    budget: &Budget,
    skip_damaged: Option<&DamageLog>,
    seen: impl Fn(&[u8]) + Send + Sync + 'static,
) -> Result<(), QueryError> {
    let ranges = plan.access_path.ranges(&storage.layout, hours);
    let (selection, seek) = (plan.selection.clone(), plan.selection.clone());
    // Any hint, even an empty one, makes a store that fetches cells list the keys first.
    let filter = RowFilter::new(move |key| {
        if selection.may_match(key) {
            seen(key);
        }
        false
    })
    .with_seek(move |key| {
        if seek.may_match(key) {
            None
        } else {
            seek.seek_after(key)
        }
    });
    let source = Source {
        store: Arc::clone(store),
        table: storage.table.clone(),
        ranges: ranges.iter().map(|range| slices::rest_of(range, hours)).collect(),
        filter: Some(filter),
        hours,
        density: Arc::new(Density::new(slice_bytes(budget))),
        budget: budget.clone(),
        skip_damaged: skip_damaged.cloned(),
    };
    let mut items = source.items();
    while items.try_next().await?.is_some() {}
    Ok(())
}

/// Ranges of row keys that are read slice by slice.
struct Source {
    store: Arc<dyn RowStore>,
    table: TableName,
    ranges: Arc<[(Vec<u8>, Vec<u8>)]>,
    filter: Option<RowFilter>,
    hours: Hours,
    density: Arc<Density>,
    budget: Budget,
    skip_damaged: Option<DamageLog>,
}

impl Source {
    fn items(self) -> impl Stream<Item = Result<ScanItem, QueryError>> + Send + Unpin {
        let slices = Slices::new(self.hours, Arc::clone(&self.density));
        stream::iter(slices)
            .map(move |slice| {
                let rows = read_ahead(self.open(slice), &self.budget);
                let density = Arc::clone(&self.density);
                let rows = rows.map_ok(move |batch| {
                    density.add_bytes(bytes_of(batch.rows()));
                    ScanItem::Rows(batch)
                });
                let end = stream::iter([Ok(ScanItem::Watermark(slice.stop_ms()))]);
                let density = Arc::clone(&self.density);
                let end = end.inspect(move |_| density.add_hours(slice.hours()));
                futures::future::ready(rows.chain(end))
            })
            .buffered(SLICES_AHEAD)
            .flatten()
    }

    /// Whether a slice may have rows, as far as that is known without reading.
    fn may_have_rows(&self, slice: Slice) -> bool {
        self.ranges.iter().any(|range| {
            let (start, stop) = slice.of_range(range);
            self.store.may_have_rows(&self.table, &start, &stop)
        })
    }

    /// The rows of a slice; rows of one series are in order.
    ///
    /// The rows of an hour may come in any order, which the store can use to read them concurrently. A slice of many
    /// hours has few rows in each of them, and is one scan of each bucket.
    fn open(&self, slice: Slice) -> BoxStream<'static, Result<Vec<Row>, QueryError>> {
        let mut scan = Scan::range([], []);
        scan.columns = point_columns();
        scan.batch_rows = BATCH_ROWS;
        scan.filter = self.filter.clone();
        scan.skip_damaged = self.skip_damaged.clone();
        scan.memory = Some(Arc::new(self.budget.clone()));
        scan.any_order = slice.hours() <= HOURS_BY_THEMSELVES;
        let slices = if scan.any_order {
            slice.by_hour()
        } else {
            vec![slice]
        };
        let (store, table, ranges) = (
            Arc::clone(&self.store),
            self.table.clone(),
            Arc::clone(&self.ranges),
        );
        stream::iter(slices)
            .map(move |slice| {
                let ranges = ranges.iter().map(|range| slice.of_range(range));
                let ranges = ranges.filter(|(start, stop)| stop.is_empty() || start < stop);
                scan_concurrently(&store, &table, ranges.collect(), scan.clone())
            })
            .flatten()
            .map_err(QueryError::from)
            .boxed()
    }
}

/// Reads ahead, up to [`WAITING_BATCHES`] and [`slice_bytes`].
fn read_ahead(
    mut batches: BoxStream<'static, Result<Vec<Row>, QueryError>>,
    budget: &Budget,
) -> BoxStream<'static, Result<RowBatch, QueryError>> {
    let (sender, receiver) = mpsc::channel(WAITING_BATCHES);
    let budget = budget.clone();
    let task = AbortOnDropHandle::new(tokio::spawn(
        async move {
            // One batch may always wait, whatever its size.
            let capacity = kib(slice_bytes(&budget));
            let waiting = Arc::new(Semaphore::new(capacity as usize));
            while let Some(rows) = batches.next().await {
                let mut batch = rows.and_then(|rows| RowBatch::new(rows, &budget));
                if let Ok(batch) = &mut batch {
                    let bytes = kib(bytes_of(&batch.rows)).min(capacity);
                    // Never closed: the semaphore lives as long as the batches that hold its permits.
                    batch.waits = Arc::clone(&waiting).acquire_many_owned(bytes).await.ok();
                }
                if sender.send(batch).await.is_err() {
                    break;
                }
            }
        }
        .in_current_span(),
    ));
    // The task ends with the stream. After a panic the rows are truncated, which must not look like their end.
    stream::unfold((receiver, Some(task)), |(mut receiver, task)| async move {
        if let Some(mut batch) = receiver.recv().await {
            // The batch no longer waits: release its permit for the next one, even if it is only collected for now.
            if let Ok(batch) = &mut batch {
                batch.waits = None;
            }
            return Some((batch, (receiver, task)));
        }
        let error = task?.await.err()?;
        let detail = error.to_string();
        Some((Err(QueryError::Internal { detail }), (receiver, None)))
    })
    .boxed()
}

fn kib(bytes: u64) -> u32 {
    u32::try_from(bytes.div_ceil(1024)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
