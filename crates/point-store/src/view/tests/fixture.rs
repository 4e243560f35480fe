//! A view over stores in memory, and a table of cells to compare it with.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use async_trait::async_trait;
use futures::future::BoxFuture;
use futures::{StreamExt as _, TryStreamExt as _};
use oxtsdb_row_store::memory::MemoryStore;
use oxtsdb_row_store::{ColumnSelection, Row, RowStore, Scan, StoreError, TableDef, TableName, WriteBatch};
use oxtsdb_schema::{BaseTime, Qualifier, RowKey, RowKeyLayout, TagkUid, TagvUid, Timestamp, Tsuid, Value};
use parking_lot::Mutex;

use crate::memory::MemoryPoints;
use crate::view::TableView;
use crate::{
    ColumnStream, DamagedPart, Point, PointBatch, PointStore, PointStoreError, ReadEstimate, ReadRequest,
    SeriesNumber, SeriesReader, TagTest, TimeRange,
};

/// 2013-01-01 00:00 UTC, in hours.
pub(super) const FIRST_HOUR: u32 = 376_944;

pub(super) struct Fixture {
    pub(super) layout: RowKeyLayout,
    pub(super) table: TableName,
    pub(super) rows: MemoryStore,
    pub(super) points: Arc<Observed>,
    pub(super) view: TableView,
}

impl Fixture {
    pub(super) async fn new() -> Self {
        Self::with_layout(RowKeyLayout::default()).await
    }

    pub(super) async fn with_layout(layout: RowKeyLayout) -> Self {
        let table: TableName = "tsdb".parse().unwrap();
        let rows = MemoryStore::new();
        rows.create_table(&TableDef::new(table.clone(), &["t"]))
            .await
            .unwrap();
        let points = Arc::new(Observed {
            inner: MemoryPoints::new(layout.widths),
            reads: AtomicUsize::default(),
            read_points: Arc::default(),
            damage: Mutex::default(),
            appends: AtomicUsize::default(),
            deletes: AtomicUsize::default(),
            is_volatile: AtomicBool::default(),
            acknowledge: Arc::default(),
        });
        let store: Arc<dyn PointStore> = Arc::<Observed>::clone(&points);
        let view = TableView::new(Arc::new(rows.clone()), store, layout, table.clone());
        Self {
            layout,
            table,
            rows,
            points,
            view,
        }
    }

    /// The key of a row: the tag value and hours after the first one.
    pub(super) fn key(&self, metric: u8, tagv: u16, hour: u32) -> Vec<u8> {
        key(&self.layout, metric, tagv, hour)
    }

    pub(super) fn batch(&self) -> (WriteBatch, oxtsdb_row_store::FamilyId) {
        let mut batch = WriteBatch::new(self.table.clone());
        let family = batch.family("t");
        (batch, family)
    }

    /// Puts one cell with the store's time.
    pub(super) async fn put(&self, key: &[u8], qualifier: &[u8], value: &[u8]) {
        let (mut batch, t) = self.batch();
        batch.row(key).put(t, qualifier, value);
        self.view.write(batch).await.unwrap();
    }

    /// Appends integers to the point store: one a minute for some series and hours.
    pub(super) async fn fill(&self, metric: u8, series: u16, hours: std::ops::Range<u32>, each: u32) {
        let keys: Vec<_> = (0..series).map(|tagv| tsuid(metric, tagv)).collect();
        let keys: Vec<&[u8]> = keys.iter().map(AsRef::as_ref).collect();
        let numbers = self.points.numbers(&keys).unwrap();
        let mut batch = PointBatch::default();
        for series in numbers {
            for hour in hours.clone() {
                for minute in 0..each {
                    let seconds = (FIRST_HOUR + hour) * 3600 + minute * 3600 / each;
                    let value = Value::Int(i64::from(minute));
                    batch.push(
                        series,
                        crate::Point::new(Timestamp::from_seconds(seconds), &value),
                    );
                }
            }
        }
        self.points.append(batch).await.unwrap();
    }

    pub(super) async fn scan(&self, scan: Scan) -> Vec<Row> {
        scan_of(&self.view, &self.table, scan).await.unwrap()
    }

    pub(super) async fn get(&self, key: &[u8]) -> Option<Row> {
        let all = ColumnSelection::All;
        self.view.get(&self.table, key, &all).await.unwrap()
    }

    /// Qualifiers and values of a row.
    pub(super) async fn cells(&self, key: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
        self.get(key).await.as_ref().map(cells).unwrap_or_default()
    }

    /// Qualifiers and values of a row in the row store.
    pub(super) async fn stored_cells(&self, key: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
        let row = self
            .rows
            .get(&self.table, key, &ColumnSelection::All)
            .await
            .unwrap();
        row.as_ref().map(cells).unwrap_or_default()
    }
}

/// Qualifiers and values of a row.
pub(super) fn cells(row: &Row) -> Vec<(Vec<u8>, Vec<u8>)> {
    row.cells()
        .map(|cell| (cell.qualifier.to_vec(), cell.value.to_vec()))
        .collect()
}

/// The rows of a scan; checks its batches.
pub(super) async fn scan_of(
    store: &dyn RowStore,
    table: &TableName,
    scan: Scan,
) -> Result<Vec<Row>, StoreError> {
    let batch_rows = scan.batch_rows;
    let batches: Vec<_> = store.scan(table, scan).await?.try_collect().await?;
    assert!(
        batches
            .iter()
            .all(|batch| (1..=batch_rows).contains(&batch.len()))
    );
    Ok(batches.into_iter().flatten().collect())
}

pub(super) fn tsuid(metric: u8, tagv: u16) -> Tsuid {
    let [high, low] = tagv.to_be_bytes();
    let bytes = [0, 0, metric, 0, 0, 1, 0, high, low];
    Tsuid::from_bytes(&bytes, &RowKeyLayout::default().widths).unwrap()
}

pub(super) fn key(layout: &RowKeyLayout, metric: u8, tagv: u16, hour: u32) -> Vec<u8> {
    let base = BaseTime::from_seconds((FIRST_HOUR + hour) * 3600);
    RowKey::new(layout, &tsuid(metric, tagv), base)
        .as_bytes()
        .to_vec()
}

/// Qualifier and value of an integer.
pub(super) fn int(second: u32, value: i64) -> (Vec<u8>, Vec<u8>) {
    let value = Value::Int(value);
    let qualifier = Qualifier::new(Timestamp::from_seconds(FIRST_HOUR * 3600 + second), &value);
    (qualifier.as_bytes().to_vec(), value.encoded().as_bytes().to_vec())
}

/// A store that counts its reads, and that can have damage.
#[derive(Debug)]
pub(super) struct Observed {
    inner: MemoryPoints,
    pub(super) reads: AtomicUsize,
    pub(super) read_points: Arc<AtomicUsize>,
    pub(super) damage: Mutex<Vec<DamagedPart>>,
    /// Appends and deletes that were submitted.
    pub(super) appends: AtomicUsize,
    pub(super) deletes: AtomicUsize,
    /// Numbers of series are durable with the next append only.
    pub(super) is_volatile: AtomicBool,
    /// Appends are not acknowledged while a test holds this exclusively.
    pub(super) acknowledge: Arc<tokio::sync::RwLock<()>>,
}

#[async_trait]
impl PointStore for Observed {
    fn numbers(&self, keys: &[&[u8]]) -> Result<Vec<SeriesNumber>, PointStoreError> {
        self.inner.numbers(keys)
    }

    fn find(&self, key: &[u8]) -> Option<SeriesNumber> {
        self.inner.find(key)
    }

    fn is_durable(&self, _series: SeriesNumber) -> bool {
        !self.is_volatile.load(Ordering::Relaxed)
    }

    fn key(&self, series: SeriesNumber, key: &mut Vec<u8>) -> bool {
        self.inner.key(series, key)
    }

    fn metrics(&self) -> Vec<Vec<u8>> {
        self.inner.metrics()
    }

    fn metric_series(&self, metric: &[u8]) -> Vec<SeriesNumber> {
        self.inner.metric_series(metric)
    }

    fn select(&self, metric: &[u8], tests: &[TagTest]) -> Vec<SeriesNumber> {
        self.inner.select(metric, tests)
    }

    fn tag_values(&self, metric: &[u8], tagk: TagkUid) -> Vec<TagvUid> {
        self.inner.tag_values(metric, tagk)
    }

    fn append(&self, batch: PointBatch) -> BoxFuture<'static, Result<(), PointStoreError>> {
        self.appends.fetch_add(1, Ordering::Relaxed);
        self.is_volatile.store(false, Ordering::Relaxed);
        let (append, acknowledge) = (self.inner.append(batch), Arc::clone(&self.acknowledge));
        Box::pin(async move {
            let _open = acknowledge.read().await;
            append.await
        })
    }

    fn read(&self, request: ReadRequest) -> ColumnStream {
        self.reads.fetch_add(1, Ordering::Relaxed);
        let count = Arc::clone(&self.read_points);
        let items = self.inner.read(request);
        let counted = items.inspect_ok(move |item| {
            let points = item.iter().map(crate::SeriesColumns::len).sum();
            count.fetch_add(points, Ordering::Relaxed);
        });
        counted.boxed()
    }

    fn reader(&self, range: TimeRange) -> Result<Box<dyn SeriesReader>, PointStoreError> {
        self.inner.reader(range)
    }

    fn estimate(&self, series: &[SeriesNumber], range: TimeRange) -> ReadEstimate {
        self.inner.estimate(series, range)
    }

    async fn last(
        &self,
        series: &[SeriesNumber],
        range: TimeRange,
    ) -> Result<Vec<Option<Point>>, PointStoreError> {
        self.inner.last(series, range).await
    }

    async fn delete(&self, series: &[SeriesNumber], range: TimeRange) -> Result<(), PointStoreError> {
        self.deletes.fetch_add(1, Ordering::Relaxed);
        self.inner.delete(series, range).await
    }

    async fn check_health(&self) -> Result<(), PointStoreError> {
        self.inner.check_health().await
    }

    fn damage(&self) -> Vec<DamagedPart> {
        self.damage.lock().clone()
    }

    async fn close(&self) -> Result<(), PointStoreError> {
        self.inner.close().await
    }
}
