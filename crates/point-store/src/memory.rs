//! A store in memory, for tests and as the reference for other implementations.
//!
//! Deliberately simple: ordered maps under one lock. Reads return small items, so that callers meet series that extend
//! over several of them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use futures::future::BoxFuture;
use futures::{FutureExt as _, StreamExt as _, stream};
use oxtsdb_schema::{TagkUid, TagvUid, UidWidths};
use parking_lot::Mutex;

use crate::series_list::SeriesList;
use crate::{
    ColumnStream, Columns, Point, PointBatch, PointKind, PointStore, PointStoreError, ReadEstimate,
    ReadRequest, SeriesColumns, SeriesNumber, SeriesReader, TagTest, TimeRange,
};

/// The most points of a series in one item of a read.
const ITEM_POINTS: usize = 100;

/// The most series in one item of a read.
const ITEM_SERIES: usize = 3;

/// A [`PointStore`] in memory. Clones are the same store.
#[derive(Clone, Debug)]
pub struct MemoryPoints {
    data: Arc<Mutex<Data>>,
    closed: Arc<AtomicBool>,
}

#[derive(Debug)]
struct Data {
    series: SeriesList,
    points: BTreeMap<(SeriesNumber, i64), (PointKind, u64)>,
}

impl MemoryPoints {
    /// An empty store of keys with UIDs of these widths.
    pub fn new(widths: UidWidths) -> Self {
        let data = Data {
            series: SeriesList::new(widths),
            points: BTreeMap::new(),
        };
        Self {
            data: Arc::new(Mutex::new(data)),
            closed: Arc::default(),
        }
    }

    /// Opens the store again after [`PointStore::close`], with all of its points.
    #[must_use]
    pub fn reopen(&self) -> Self {
        Self {
            closed: Arc::default(),
            ..self.clone()
        }
    }

    fn check_open(&self) -> Result<(), PointStoreError> {
        if self.closed.load(Ordering::Relaxed) {
            return Err(PointStoreError::Unavailable("the store is closed".to_owned()));
        }
        Ok(())
    }

    fn append_now(&self, batch: &PointBatch) -> Result<(), PointStoreError> {
        self.check_open()?;
        let mut data = self.data.lock();
        batch.check(u32::try_from(data.series.len()).unwrap_or(u32::MAX))?;
        for (series, point) in batch.iter() {
            let place = (series, point.time_ms);
            data.points.insert(place, (point.kind, point.bits));
        }
        Ok(())
    }

    fn read_now(&self, request: &ReadRequest) -> Result<Vec<SeriesColumns>, PointStoreError> {
        self.check_open()?;
        let TimeRange { first_ms, last_ms } = request.range;
        if first_ms > last_ms {
            return Ok(Vec::new());
        }
        let data = self.data.lock();
        let mut read = Vec::new();
        for series in &request.series {
            let stored = data.points.range((*series, first_ms)..=(*series, last_ms));
            let points: Vec<Point> = stored
                .map(|((_, time_ms), (kind, bits))| Point {
                    time_ms: *time_ms,
                    kind: *kind,
                    bits: *bits,
                })
                .collect();
            let items = points.chunks(ITEM_POINTS);
            read.extend(items.map(|points| SeriesColumns::from_points(*series, points)));
        }
        Ok(read)
    }
}

#[derive(Debug)]
struct MemoryReader {
    store: MemoryPoints,
    range: TimeRange,
}

impl SeriesReader for MemoryReader {
    fn is_empty(&self) -> bool {
        let metrics = self.store.metrics().into_iter();
        let series = metrics.flat_map(|metric| self.store.metric_series(&metric));
        let request = ReadRequest {
            series: series.collect(),
            range: self.range,
        };
        self.store.read_now(&request).is_ok_and(|read| read.is_empty())
    }

    fn read(&mut self, series: SeriesNumber, points: &mut Columns) -> Result<(), PointStoreError> {
        let request = ReadRequest {
            series: vec![series],
            range: self.range,
        };
        let read = self.store.read_now(&request)?;
        *points = read.iter().flat_map(SeriesColumns::points).collect();
        Ok(())
    }
}

#[async_trait]
impl PointStore for MemoryPoints {
    fn numbers(&self, keys: &[&[u8]]) -> Result<Vec<SeriesNumber>, PointStoreError> {
        self.check_open()?;
        self.data.lock().series.add(keys, usize::MAX)
    }

    fn find(&self, key: &[u8]) -> Option<SeriesNumber> {
        self.data.lock().series.find(key)
    }

    fn key(&self, series: SeriesNumber, key: &mut Vec<u8>) -> bool {
        self.data.lock().series.copy_key(series, key)
    }

    fn metrics(&self) -> Vec<Vec<u8>> {
        self.data.lock().series.metrics()
    }

    fn metric_series(&self, metric: &[u8]) -> Vec<SeriesNumber> {
        self.data.lock().series.metric_series(metric)
    }

    fn select(&self, metric: &[u8], tests: &[TagTest]) -> Vec<SeriesNumber> {
        self.data.lock().series.select(metric, tests)
    }

    fn tag_values(&self, metric: &[u8], tagk: TagkUid) -> Vec<TagvUid> {
        self.data.lock().series.tag_values(metric, tagk)
    }

    fn append(&self, batch: PointBatch) -> BoxFuture<'static, Result<(), PointStoreError>> {
        let result = self.append_now(&batch);
        async move {
            tokio::task::yield_now().await;
            result
        }
        .boxed()
    }

    fn read(&self, request: ReadRequest) -> ColumnStream {
        match self.read_now(&request) {
            Ok(read) => stream::iter(read).chunks(ITEM_SERIES).map(Ok).boxed(),
            Err(error) => stream::once(async { Err(error) }).boxed(),
        }
    }

    fn reader(&self, range: TimeRange) -> Result<Box<dyn SeriesReader>, PointStoreError> {
        self.check_open()?;
        let store = self.clone();
        Ok(Box::new(MemoryReader { store, range }))
    }

    fn points_in_memory(&self, series: &[SeriesNumber], range: TimeRange) -> Option<u64> {
        Some(self.estimate(series, range).most_points)
    }

    fn estimate(&self, series: &[SeriesNumber], range: TimeRange) -> ReadEstimate {
        let request = ReadRequest {
            series: series.to_vec(),
            range,
        };
        let read = self.read_now(&request).unwrap_or_default();
        let points = read.iter().map(|columns| columns.len() as u64).sum();
        ReadEstimate {
            points,
            most_points: points,
            memory_points: points,
            bytes: read.iter().map(|columns| columns.byte_len() as u64).sum(),
            ..ReadEstimate::default()
        }
    }

    async fn last(
        &self,
        series: &[SeriesNumber],
        range: TimeRange,
    ) -> Result<Vec<Option<Point>>, PointStoreError> {
        tokio::task::yield_now().await;
        let newest = |series: &SeriesNumber| {
            let request = ReadRequest {
                series: vec![*series],
                range,
            };
            let read = self.read_now(&request)?;
            Ok(read.last().and_then(|columns| columns.points().last()))
        };
        series.iter().map(newest).collect()
    }

    async fn delete(&self, series: &[SeriesNumber], range: TimeRange) -> Result<(), PointStoreError> {
        tokio::task::yield_now().await;
        self.check_open()?;
        let mut data = self.data.lock();
        data.points
            .retain(|(number, time_ms), _| !(range.contains(*time_ms) && series.contains(number)));
        Ok(())
    }

    async fn check_health(&self) -> Result<(), PointStoreError> {
        self.check_open()
    }

    async fn close(&self) -> Result<(), PointStoreError> {
        self.closed.store(true, Ordering::Relaxed);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::conformance::{self, Subject};

    #[derive(Debug, Default)]
    struct Memory(Mutex<Option<MemoryPoints>>);

    #[async_trait]
    impl Subject for Memory {
        async fn create(&self) -> Arc<dyn PointStore> {
            let store = MemoryPoints::new(UidWidths::default());
            *self.0.lock() = Some(store.clone());
            Arc::new(store)
        }

        async fn reopen(&self) -> Option<Arc<dyn PointStore>> {
            let store = self.0.lock().as_ref()?.reopen();
            *self.0.lock() = Some(store.clone());
            Some(Arc::new(store))
        }
    }

    #[tokio::test]
    async fn passes_the_conformance_suite() {
        conformance::suite(&Memory::default()).await;
    }

    #[tokio::test]
    async fn rejects_points_of_unknown_series() {
        let store = MemoryPoints::new(UidWidths::default());
        let mut batch = PointBatch::default();
        let kind = PointKind::from_byte(0).unwrap();
        let point = Point {
            time_ms: 0,
            kind,
            bits: 0,
        };
        batch.push(SeriesNumber(0), point);
        let error = store.append(batch).await.unwrap_err();
        assert!(matches!(error, PointStoreError::Invalid(_)), "{error}");
    }
}
