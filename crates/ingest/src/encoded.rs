//! A batch of points that is being made.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use oxtsdb_point_store::rows::CELL_BYTES;
use oxtsdb_point_store::{KeyedBatch, Permit, Point, PointBatch, PointStore, SeriesNumber};
use oxtsdb_row_store::StoreError;
use oxtsdb_schema::{Timestamp, Value};

use super::PointErrorReason;
use super::tracking::Untracked;

/// Points as columns, and the series that are to be tracked with them.
#[derive(Debug)]
pub struct EncodedPoints {
    store: Arc<dyn PointStore>,
    /// The store takes keys of series. Else the points carry the store's series numbers, and there are no keys.
    by_keys: bool,
    batch: KeyedBatch,
    points: u64,
    /// The series of the last point, as this batch knows it; of batches by keys.
    last: Option<(usize, SeriesNumber)>,
    /// Older points are rejected.
    edge_ms: i64,
    /// Rejected points of this batch.
    rejected: u64,
    /// Counts the rejected points of all batches.
    too_old: Arc<AtomicU64>,
    /// Why a series has no number; nothing of the batch is stored then.
    failure: Option<StoreError>,
    untracked: Untracked,
}

/// A series of a batch.
pub(crate) trait BatchSeries {
    /// Identifies the series within the batch.
    fn place(&self) -> usize;

    /// Appends its key, the TSUID.
    fn append_key(&self, key: &mut Vec<u8>);

    /// Its number.
    ///
    /// # Errors
    ///
    /// Errors of the store.
    fn number(&mut self, store: &dyn PointStore) -> Result<SeriesNumber, StoreError>;
}

impl EncodedPoints {
    /// An empty batch for this number of points. The series of `untracked` are stored with them, and rejected points
    /// are added to `too_old`.
    pub(super) fn new(
        store: Arc<dyn PointStore>,
        points: usize,
        too_old: Arc<AtomicU64>,
        untracked: Untracked,
    ) -> Self {
        Self {
            by_keys: store.prefers_keys(),
            edge_ms: store.retention_edge_ms().unwrap_or(i64::MIN),
            store,
            batch: KeyedBatch::with_capacity(points),
            points: 0,
            last: None,
            rejected: 0,
            too_old,
            failure: None,
            untracked,
        }
    }

    /// Points so far, including points of series without a number.
    pub(crate) const fn points(&self) -> u64 {
        self.points
    }

    /// Bytes in memory until the points are stored.
    pub(crate) fn byte_len(&self) -> usize {
        let points = self.batch.byte_len();
        // Cells take more than columns, and replace them.
        let cells = match self.by_keys {
            true => self.batch.points().len() * CELL_BYTES.saturating_sub(PointBatch::POINT_BYTES),
            false => 0,
        };
        self.untracked.byte_len() + points + cells
    }

    /// The series of these points that are not tracked yet; the caller that adds a point adds its series.
    #[inline]
    pub(crate) const fn untracked(&mut self) -> &mut Untracked {
        &mut self.untracked
    }

    /// Takes the series that are to be tracked; none remain.
    pub(super) fn take_untracked(&mut self) -> Untracked {
        self.untracked.take()
    }

    /// Counts the points that were rejected, once the batch is stored: one that is dropped is encoded again.
    pub(super) fn count_rejected(&self) {
        self.too_old.fetch_add(self.rejected, Ordering::Relaxed);
    }

    /// Adds a point.
    ///
    /// # Errors
    ///
    /// [`PointErrorReason::BeforeRetention`].
    #[inline]
    pub(crate) fn point(
        &mut self,
        series: &mut impl BatchSeries,
        timestamp: Timestamp,
        value: &Value,
    ) -> Result<(), PointErrorReason> {
        let point = Point::new(timestamp, value);
        // Before the series gets a number: one of rejected points only stays unknown.
        if point.time_ms < self.edge_ms {
            return Err(self.reject(point.time_ms));
        }
        self.points += 1;
        if self.by_keys {
            let number = self.number_of(series);
            self.batch.push(number, point);
            return Ok(());
        }
        match series.number(&*self.store) {
            Ok(number) => self.batch.push(number, point),
            Err(error) => self.failure = Some(error),
        }
        Ok(())
    }

    /// The number of a series within this batch.
    #[inline]
    fn number_of(&mut self, series: &impl BatchSeries) -> SeriesNumber {
        let place = series.place();
        if let Some((last, number)) = self.last
            && last == place
        {
            return number;
        }
        let number = self.batch.add_key(|key| series.append_key(key));
        self.last = Some((place, number));
        number
    }

    #[cold]
    fn reject(&mut self, timestamp_ms: i64) -> PointErrorReason {
        self.rejected += 1;
        PointErrorReason::BeforeRetention {
            timestamp_ms,
            edge_ms: self.edge_ms,
        }
    }

    /// Appends the points. Appends take effect in the order of the calls.
    pub(super) fn append(self, permit: Permit) -> impl Future<Output = Result<(), StoreError>> + Send {
        let Self {
            store,
            by_keys,
            batch,
            failure,
            ..
        } = self;
        let appended = match failure {
            Some(error) => Err(error),
            None if by_keys => Ok((store.append_keyed(batch, permit), None)),
            None => Ok((store.append(batch.into_points()), Some(permit))),
        };
        async move {
            let (appended, permit) = appended?;
            appended.await?;
            drop(permit);
            Ok(())
        }
    }
}
