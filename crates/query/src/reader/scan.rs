//! Scans rows by ranges of their keys, in batches, in order of time.
//!
//! A scan is split into time slices. While one slice is decoded, tasks read the next ones ahead; within a slice the salt
//! buckets are read concurrently. Slices are emitted in order, so the rows of each series are in order of time. After
//! each slice the scan emits a watermark: all earlier rows have been read, so results up to it can be emitted.
//!
//! ```text
//!   hours      0 1 2 3 4 5 6 7 8 …
//!   slices     ├─────┼─────┼───────┼ …     short at first; later their length follows slice_bytes
//!   bucket 0   decoded, read ahead, read ahead
//!   bucket 1   decoded, read ahead, read ahead
//! ```

pub(super) mod density;
pub(super) mod slices;

use std::sync::Arc;

use futures::stream::{self, BoxStream, Stream, StreamExt as _, TryStreamExt as _};
use oxtsdb_point_store::TimeRange;
use oxtsdb_row_store::{ColumnSelection, DamageLog, Row, RowFilter, RowStore, Scan, TableName};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_util::task::AbortOnDropHandle;
use tracing::Instrument as _;

use self::density::Density;
use self::slices::{Slice, Slices};
use super::range_scan::{KeyRange, scan_concurrently};
use crate::context::budget::{Budget, Held};
use crate::error::QueryError;
use crate::plan::hours::Hours;
use crate::plan::selection::row_selection::Selection;

/// Rows in a batch: enough to amortize the hand-over between threads.
pub(super) const BATCH_ROWS: usize = 256;

/// Slices that are read ahead of the current one.
pub(super) const SLICES_AHEAD: usize = 2;

/// Most waiting batches of a slice that is read ahead.
const WAITING_BATCHES: usize = 4;

/// Slices of at most this many hours are read hour by hour.
const HOURS_BY_THEMSELVES: usize = 8;

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
pub enum ScanItem {
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

/// The rows of an access path.
#[derive(Clone, Debug)]
pub struct RowRanges {
    pub(super) store: Arc<dyn RowStore>,
    pub(super) table: TableName,
    /// Ranges of row keys that begin and end with a base time: one for each salt bucket, ascending. A series lies in one
    /// of them.
    pub(super) ranges: Arc<[KeyRange]>,
    pub(super) selection: Selection,
    pub(super) hours: Hours,
}

impl RowRanges {
    /// Whether there may be rows, as far as that is known without reading.
    pub(super) fn may_have_rows(&self) -> bool {
        let mut ranges = self.ranges.iter();
        ranges.any(|(start, stop)| self.store.may_have_rows(&self.table, start, stop))
    }

    /// Reads the rows. Dropping the stream cancels the scan.
    ///
    /// Must be polled within a Tokio runtime.
    pub(super) fn items(
        self,
        budget: &Budget,
        skip_damaged: Option<&DamageLog>,
    ) -> BoxStream<'static, Result<ScanItem, QueryError>> {
        let density = Arc::new(Density::new(slice_bytes(budget)));
        self.source(density, budget, skip_damaged).items().boxed()
    }

    /// The same ranges, to be read slice by slice.
    pub(super) fn source(
        self,
        density: Arc<Density>,
        budget: &Budget,
        skip_damaged: Option<&DamageLog>,
    ) -> Source {
        Source {
            filter: self.selection.row_filter(),
            store: self.store,
            table: self.table,
            ranges: self.ranges,
            hours: self.hours,
            density,
            budget: budget.clone(),
            skip_damaged: skip_damaged.cloned(),
        }
    }

    /// Calls `seen` with the key of each possibly matching row in the given hours, the last of the path. Reads only keys
    /// where the store supports it.
    ///
    /// # Errors
    ///
    /// Errors of the store.
    pub(crate) async fn keys(
        self,
        hours: Hours,
        budget: &Budget,
        skip_damaged: Option<&DamageLog>,
        seen: impl Fn(&[u8]) + Send + Sync + 'static,
    ) -> Result<(), QueryError> {
        let (selection, seek) = (self.selection.clone(), self.selection.clone());
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
        let rest = self.ranges.iter().map(|range| slices::rest_of(range, hours));
        let source = Source {
            store: self.store,
            table: self.table,
            ranges: rest.collect(),
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
}

/// Ranges of row keys that are read slice by slice.
pub(super) struct Source {
    store: Arc<dyn RowStore>,
    table: TableName,
    ranges: Arc<[KeyRange]>,
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
    pub(super) fn may_have_rows(&self, slice: Slice) -> bool {
        self.ranges.iter().any(|range| {
            let (start, stop) = slice.clip(range);
            self.store.may_have_rows(&self.table, &start, &stop)
        })
    }

    /// The rows of a slice; rows of one series are in order.
    ///
    /// The rows of an hour may come in any order, which the store can use to read them concurrently. A slice of many
    /// hours has few rows in each of them, and is one scan of each bucket.
    pub(super) fn open(&self, slice: Slice) -> BoxStream<'static, Result<Vec<Row>, QueryError>> {
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
                let ranges = ranges.iter().map(|range| slice.clip(range));
                let ranges = ranges.filter(|(start, stop)| stop.is_empty() || start < stop);
                scan_concurrently(&store, &table, ranges.collect(), scan.clone())
            })
            .flatten()
            .map_err(QueryError::from)
            .boxed()
    }
}

/// Reads ahead, up to [`WAITING_BATCHES`] and [`slice_bytes`].
pub(super) fn read_ahead(
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
