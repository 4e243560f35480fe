//! Points in OpenTSDB's rows and cells: the [`PointStore`] of HBase, an adapter over a [`RowStore`].
//!
//! ```text
//!   batch ──► row key, qualifier, value ──► lanes, by row key ──► coalesced by row ──► RowStore
//!   read  ◄── newest point of each instant ◄── cells of rows ◄── scans of the metric's hours
//! ```
//!
//! | Module | Content |
//! |---|---|
//! | `batch` | a batch of points as cells of rows |
//! | `lanes` | ordered queues to the store |
//! | `group` | coalesces points by row |
//! | `form` | the cells that hold the points of a row |
//! | `read` | reads and deletes |
//!
//! A series is its row key here, so batches name series by their keys ([`PointStore::prefers_keys`]), and memory for
//! writes does not grow with the number of series. Numbers are handles of this process for the other calls; at most
//! [`MAX_NUMBERS`] are given.
//!
//! Differences from a store of columns:
//!
//! - Instants have a column for each resolution, type and width. All are kept; the newest by the timestamp of its
//!   cell is read, which for two writes within a millisecond may be either.
//! - NaN and infinite values are rejected.
//! - A series is known if it has points or a handle.
//! - Dropping the future of an append may cancel points that still wait for an earlier write.
//! - Reads of series scan all rows of their metric in the range: cells lie in order of time, then series. Queries do
//!   not use them: they scan the rows themselves (`oxtsdb-query`).

mod batch;
mod form;
mod group;
mod lanes;
mod read;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures::future::BoxFuture;
use futures::{FutureExt as _, StreamExt as _, stream};
use oxtsdb_row_store::{RowStore, TableName};
use oxtsdb_schema::row_key::write_row_key;
use oxtsdb_schema::{RowKeyLayout, TagkUid, TagvUid};
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::task::JoinSet;

pub use self::batch::{CELL_BYTES, lane_of, largest_point_bytes};
pub use self::form::Form;
pub use self::lanes::{Draining, LANES};

use self::batch::Rows;
use self::lanes::{Lanes, lost};
use crate::series_list::SeriesList;
use crate::{
    ColumnStream, Columns, KeyedBatch, Permit, Point, PointBatch, PointStore, PointStoreError, ReadEstimate,
    ReadRequest, SeriesColumns, SeriesNumber, SeriesReader, TagTest, TimeRange,
};

/// The most series that have numbers.
pub const MAX_NUMBERS: usize = 1 << 20;

/// Series that one scan reads.
const READ_SERIES: usize = 1024;

/// How points are written to rows.
#[derive(Clone, Debug)]
pub struct RowsConfig {
    /// The table of points.
    pub table: TableName,
    /// The layout of its keys.
    pub layout: RowKeyLayout,
    /// The cells that hold points.
    pub form: Form,
    /// The store applies concurrent writes of a task in the order in which the task first polled them.
    pub ordered_writes: bool,
    /// How long a batch waits for more points.
    pub linger: Duration,
    /// Cells have the timestamp of their point, in place of the store's.
    pub use_otsdb_timestamp: bool,
    /// Ends the wait.
    pub draining: Draining,
}

/// A [`PointStore`] over rows; see the module's documentation. Cloning is cheap, clones are the same store.
#[derive(Clone, Debug)]
pub struct RowPoints(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    store: Arc<dyn RowStore>,
    table: TableName,
    layout: RowKeyLayout,
    use_otsdb_timestamp: bool,
    /// Lanes to the store; `None`: batches are stored as they are, since the store keeps their order, single cells are
    /// written, and nothing waits for more points.
    lanes: Option<Lanes>,
    series: Mutex<SeriesList>,
    /// Executes the reads of callers that block.
    runtime: Handle,
    closed: AtomicBool,
}

impl RowPoints {
    /// Points in the table of a store, which must exist; the owner of the store closes it.
    ///
    /// Must be called within a Tokio runtime.
    pub fn new(store: Arc<dyn RowStore>, config: RowsConfig) -> Self {
        let RowsConfig {
            table,
            layout,
            form,
            ordered_writes,
            linger,
            use_otsdb_timestamp,
            draining,
        } = config;
        let as_they_are = form == Form::Single && linger.is_zero() && ordered_writes;
        let lanes = (!as_they_are)
            .then(|| Lanes::new(Arc::clone(&store), table.clone(), layout, form, linger, draining));
        Self(Arc::new(Inner {
            store,
            table,
            layout,
            use_otsdb_timestamp,
            lanes,
            series: Mutex::new(SeriesList::new(layout.widths)),
            runtime: Handle::current(),
            closed: AtomicBool::new(false),
        }))
    }

    fn check_open(&self) -> Result<(), PointStoreError> {
        if self.0.closed.load(Ordering::Relaxed) {
            return Err(PointStoreError::Unavailable("the store is closed".to_owned()));
        }
        Ok(())
    }

    /// The points as cells.
    fn rows_of(&self, batch: &KeyedBatch) -> Result<Rows, PointStoreError> {
        let (points, layout) = (batch.points(), &self.0.layout);
        let lanes = if self.0.lanes.is_some() { LANES } else { 1 };
        let mut rows = Rows::new(&self.0.table, points.len(), lanes, self.0.use_otsdb_timestamp);
        let mut key = Vec::new();
        for (series, point) in points.iter() {
            let value = point.value();
            let value = value.map_err(|error| PointStoreError::Invalid(error.to_string()))?;
            let key = &mut key;
            rows.point(series.index(), point.timestamp(), &value, |base| {
                key.clear();
                write_row_key(layout, batch.key(series), base, key);
                key
            });
        }
        Ok(rows)
    }

    /// The batch with the keys of its series.
    fn keyed(&self, batch: &PointBatch) -> Result<KeyedBatch, PointStoreError> {
        let known = self.0.series.lock();
        batch.check(u32::try_from(known.len()).unwrap_or(u32::MAX))?;
        let mut keyed = KeyedBatch::with_capacity(batch.len());
        let mut last = None;
        for (series, point) in batch.iter() {
            let place = match last {
                Some((number, place)) if number == series => place,
                _ => {
                    let key = known.key(series).unwrap_or_default();
                    keyed.add_key(|buffer| buffer.extend_from_slice(key))
                }
            };
            last = Some((series, place));
            keyed.push(place, point);
        }
        Ok(keyed)
    }

    /// Executes a read for a caller that blocks: on a thread of its own, since the caller may be one of a runtime.
    fn wait<T: Send>(&self, read: impl Future<Output = T> + Send) -> Result<T, PointStoreError> {
        let runtime = &self.0.runtime;
        let ended = std::thread::scope(|scope| scope.spawn(|| runtime.block_on(read)).join());
        ended.map_err(|_panic| PointStoreError::Io {
            place: "read of rows".to_owned(),
            detail: "it ended without a result".to_owned(),
        })
    }

    /// Gives numbers to the series that rows have, if the store can be read.
    fn list(&self, metric: Option<&[u8]>) {
        let keys = self.wait(async {
            let metrics = match metric {
                Some(metric) => vec![metric.to_vec()],
                None => read::metrics(&self.0).await?,
            };
            let mut keys = Vec::new();
            for metric in metrics {
                keys.extend(read::series_keys(&self.0, &metric).await?);
            }
            Ok::<_, PointStoreError>(keys)
        });
        let added = keys.and_then(|keys| {
            let keys = keys?;
            let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
            self.0.series.lock().add(&keys, MAX_NUMBERS)
        });
        if let Err(error) = added {
            tracing::warn!(%error, "the series of the table cannot be listed");
        }
    }

    /// The keys of series; unknown ones are omitted.
    fn keys_of(&self, series: &[SeriesNumber]) -> Vec<(SeriesNumber, Vec<u8>)> {
        let known = self.0.series.lock();
        let keys = series.iter();
        keys.filter_map(|series| Some((*series, known.key(*series)?.to_vec())))
            .collect()
    }

    async fn read_some(
        &self,
        series: &[SeriesNumber],
        range: TimeRange,
    ) -> Result<Vec<SeriesColumns>, PointStoreError> {
        self.check_open()?;
        read::columns(&self.0, &self.keys_of(series), range).await
    }
}

#[async_trait]
impl PointStore for RowPoints {
    fn numbers(&self, keys: &[&[u8]]) -> Result<Vec<SeriesNumber>, PointStoreError> {
        self.check_open()?;
        self.0.series.lock().add(keys, MAX_NUMBERS)
    }

    /// Of a series with a handle.
    fn find(&self, key: &[u8]) -> Option<SeriesNumber> {
        self.0.series.lock().find(key)
    }

    fn key(&self, series: SeriesNumber, key: &mut Vec<u8>) -> bool {
        self.0.series.lock().copy_key(series, key)
    }

    /// Reads the keys of the table.
    fn metrics(&self) -> Vec<Vec<u8>> {
        self.list(None);
        self.0.series.lock().metrics()
    }

    /// Reads the keys of the metric's rows.
    fn metric_series(&self, metric: &[u8]) -> Vec<SeriesNumber> {
        self.list(Some(metric));
        self.0.series.lock().metric_series(metric)
    }

    /// Reads the keys of the metric's rows.
    fn select(&self, metric: &[u8], tests: &[TagTest]) -> Vec<SeriesNumber> {
        self.list(Some(metric));
        self.0.series.lock().select(metric, tests)
    }

    /// Reads the keys of the metric's rows.
    fn tag_values(&self, metric: &[u8], tagk: TagkUid) -> Vec<TagvUid> {
        self.list(Some(metric));
        self.0.series.lock().tag_values(metric, tagk)
    }

    fn append(&self, batch: PointBatch) -> BoxFuture<'static, Result<(), PointStoreError>> {
        match self.keyed(&batch) {
            Ok(batch) => self.append_keyed(batch, Box::new(())),
            Err(error) => std::future::ready(Err(error)).boxed(),
        }
    }

    fn prefers_keys(&self) -> bool {
        true
    }

    fn append_keyed(
        &self,
        batch: KeyedBatch,
        permit: Permit,
    ) -> BoxFuture<'static, Result<(), PointStoreError>> {
        let rows = match self.check_open().and_then(|()| self.rows_of(&batch)) {
            Ok(rows) => rows,
            Err(error) => return std::future::ready(Err(error)).boxed(),
        };
        if let Some(lanes) = &self.0.lanes {
            let submitted = lanes.submit(rows, permit);
            return async { Ok(submitted.await?) }.boxed();
        }
        let store = Arc::clone(&self.0.store);
        let mut write = async move {
            for batch in rows.into_lanes().into_iter().filter(|batch| !batch.is_empty()) {
                store.write(batch).await?;
            }
            drop(permit);
            Ok(())
        }
        .boxed();
        // The first poll gives the write its place among others; see `RowStore::write`.
        match (&mut write).now_or_never() {
            Some(result) => std::future::ready(result).boxed(),
            // Later writes wait for this one, whether the caller polls it or not.
            None => {
                // Aborts it when dropped.
                let mut task = JoinSet::new();
                task.spawn_on(write, &self.0.runtime);
                let written = async move { task.join_next().await };
                written
                    .map(|written| written.and_then(Result::ok).unwrap_or_else(|| Err(lost().into())))
                    .boxed()
            }
        }
    }

    fn read(&self, request: ReadRequest) -> ColumnStream {
        let store = self.clone();
        let parts: Vec<Vec<SeriesNumber>> = request.series.chunks(READ_SERIES).map(<[_]>::to_vec).collect();
        let read = stream::iter(parts).then(move |series| {
            let store = store.clone();
            async move { store.read_some(&series, request.range).await }
        });
        let some = read.filter(|item| std::future::ready(!item.as_ref().is_ok_and(Vec::is_empty)));
        some.boxed()
    }

    fn reader(&self, range: TimeRange) -> Result<Box<dyn SeriesReader>, PointStoreError> {
        self.check_open()?;
        let store = self.clone();
        Ok(Box::new(RowReader { store, range }))
    }

    /// Nothing: rows have no metadata.
    fn estimate(&self, _: &[SeriesNumber], _: TimeRange) -> ReadEstimate {
        ReadEstimate::default()
    }

    async fn last(
        &self,
        series: &[SeriesNumber],
        range: TimeRange,
    ) -> Result<Vec<Option<Point>>, PointStoreError> {
        let mut last = Vec::with_capacity(series.len());
        for series in series.chunks(READ_SERIES) {
            let mut read = self.read_some(series, range).await?.into_iter().peekable();
            last.extend(series.iter().map(|series| {
                let columns = read.next_if(|columns| columns.series == *series)?;
                columns.points().last()
            }));
        }
        Ok(last)
    }

    async fn delete(&self, series: &[SeriesNumber], range: TimeRange) -> Result<(), PointStoreError> {
        self.check_open()?;
        for series in series.chunks(READ_SERIES) {
            read::delete(&self.0, &self.keys_of(series), range).await?;
        }
        Ok(())
    }

    async fn check_health(&self) -> Result<(), PointStoreError> {
        self.check_open()?;
        Ok(self.0.store.check_health().await?)
    }

    async fn close(&self) -> Result<(), PointStoreError> {
        self.0.closed.store(true, Ordering::Relaxed);
        Ok(())
    }
}

#[derive(Debug)]
struct RowReader {
    store: RowPoints,
    range: TimeRange,
}

impl SeriesReader for RowReader {
    fn read(&mut self, series: SeriesNumber, points: &mut Columns) -> Result<(), PointStoreError> {
        let read = self.store.wait(self.store.read_some(&[series], self.range))??;
        *points = read.iter().flat_map(SeriesColumns::points).collect();
        Ok(())
    }
}

#[cfg(test)]
mod tests;
