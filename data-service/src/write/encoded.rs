//! A batch of points that is being made, in the form that the store takes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use oxtsdb_point_store::{Point, PointBatch, PointStore, SeriesNumber};
use oxtsdb_row_store::StoreError;
use oxtsdb_schema::{BaseTime, Timestamp, Value};

use super::PointErrorReason;
use super::rows::Rows;
use super::tracking::Untracked;

/// Encoded points, and the series that are to be tracked with them.
#[derive(Debug)]
pub(crate) struct EncodedPoints {
    form: StoreForm,
    points: u64,
    untracked: Untracked,
}

/// The form that the store takes.
#[derive(Debug)]
pub(super) enum StoreForm {
    /// Cells in OpenTSDB's rows.
    Rows(Rows),
    /// Columns.
    Columns(Columns),
}

/// Points as columns.
#[derive(Debug)]
pub(super) struct Columns {
    store: Arc<dyn PointStore>,
    batch: PointBatch,
    /// Older points are rejected.
    edge_ms: i64,
    /// How many were.
    rejected: u64,
    /// Counts those of all batches.
    too_old: Arc<AtomicU64>,
    /// Why a series has no number; nothing of the batch is stored then.
    failure: Option<StoreError>,
}

/// A series of a batch.
pub(crate) trait BatchSeries {
    /// Identifies the series within the batch.
    fn place(&self) -> usize;

    /// The key of its row of an hour.
    fn row_key(&mut self, base: BaseTime) -> &[u8];

    /// Its number.
    ///
    /// # Errors
    ///
    /// Those of the store.
    fn number(&mut self, store: &dyn PointStore) -> Result<SeriesNumber, StoreError>;
}

impl EncodedPoints {
    /// An empty batch. The series of `untracked` are stored with the points.
    pub(super) const fn new(form: StoreForm, untracked: Untracked) -> Self {
        Self {
            form,
            points: 0,
            untracked,
        }
    }

    /// Points so far.
    pub(crate) const fn points(&self) -> u64 {
        self.points
    }

    /// Bytes in memory.
    pub(crate) fn byte_len(&self) -> usize {
        let points = match &self.form {
            StoreForm::Rows(rows) => rows.byte_len(),
            StoreForm::Columns(columns) => columns.batch.byte_len(),
        };
        self.untracked.byte_len() + points
    }

    /// The series of these points that are not tracked yet; the caller that adds a point adds its series.
    #[inline]
    pub(crate) const fn untracked(&mut self) -> &mut Untracked {
        &mut self.untracked
    }

    /// The points, and the series that are to be tracked.
    pub(super) fn into_parts(mut self) -> (StoreForm, Untracked) {
        let untracked = self.untracked.take();
        (self.form, untracked)
    }

    /// Counts the points that were rejected, once the batch is stored: one that is dropped is encoded again.
    pub(super) fn count_rejected(&self) {
        if let StoreForm::Columns(columns) = &self.form {
            columns.too_old.fetch_add(columns.rejected, Ordering::Relaxed);
        }
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
        match &mut self.form {
            StoreForm::Rows(rows) => {
                rows.point(series.place(), timestamp, value, |base| series.row_key(base));
            }
            StoreForm::Columns(columns) => columns.push(series, timestamp, value)?,
        }
        self.points += 1;
        Ok(())
    }
}

impl Columns {
    pub(super) fn new(store: Arc<dyn PointStore>, points: usize, too_old: Arc<AtomicU64>) -> Self {
        Self {
            edge_ms: store.retention_edge_ms().unwrap_or(i64::MIN),
            rejected: 0,
            too_old,
            store,
            batch: PointBatch::with_capacity(points),
            failure: None,
        }
    }

    #[inline]
    fn push(
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
        match series.number(&*self.store) {
            Ok(number) => self.batch.push(number, point),
            Err(error) => self.failure = Some(error),
        }
        Ok(())
    }

    #[cold]
    fn reject(&mut self, timestamp_ms: i64) -> PointErrorReason {
        self.rejected += 1;
        PointErrorReason::BeforeRetention {
            timestamp_ms,
            edge_ms: self.edge_ms,
        }
    }

    /// Appends the points. The order of effect is that of the calls.
    pub(super) fn append(self) -> impl Future<Output = Result<(), StoreError>> + Send {
        let Self {
            store,
            batch,
            failure,
            ..
        } = self;
        let appended = match failure {
            Some(error) => Err(error),
            None => Ok(store.append(batch)),
        };
        async move { Ok(appended?.await?) }
    }
}
