//! The operations of a point store.

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use oxtsdb_schema::{TagkUid, TagvUid};

use crate::{
    Columns, Figures, HighestUids, KeyedBatch, Point, PointBatch, PointStoreError, SeriesColumns,
    SeriesNumber, Statistics, TagTest, Timings,
};

/// Instants from the first to the last, both inclusive, in milliseconds since the epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeRange {
    /// The first instant.
    pub first_ms: i64,
    /// The last instant.
    pub last_ms: i64,
}

impl TimeRange {
    /// All instants.
    pub const ALL: Self = Self {
        first_ms: 0,
        last_ms: i64::MAX,
    };

    /// Whether an instant is in the range.
    #[inline]
    pub const fn contains(&self, time_ms: i64) -> bool {
        self.first_ms <= time_ms && time_ms <= self.last_ms
    }

    /// Whether two ranges have an instant in common.
    pub const fn overlaps(&self, other: &Self) -> bool {
        self.first_ms <= other.last_ms && other.first_ms <= self.last_ms
    }
}

/// The points to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadRequest {
    /// The series, without repetitions; their points are returned in this order. Unknown ones have no points.
    pub series: Vec<SeriesNumber>,
    /// The instants.
    pub range: TimeRange,
}

/// Points that were read: batches of series in the order of the request. Series without points in the range are
/// absent. A long series may extend over several items, in order of time. Dropping the stream cancels the read.
pub type ColumnStream = BoxStream<'static, Result<Vec<SeriesColumns>, PointStoreError>>;

/// Metadata of a block's points, known without decoding them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BlockSummary {
    /// How many points were read before it.
    pub after: usize,
    /// The instants of its first and last point.
    pub range: TimeRange,
    /// The number of points.
    pub count: usize,
    /// Of all values.
    pub statistics: Statistics,
}

/// Reads series one after the other, as of the instant at which it was opened. Points that are appended meanwhile may
/// be among them.
///
/// Reading blocks on the disk and decodes: not for the threads of an asynchronous runtime.
pub trait SeriesReader: Send + std::fmt::Debug {
    /// Announces the series that are read next: a hint to fetch their memory together, which has no other effect.
    fn announce(&mut self, series: &[SeriesNumber]) {
        let _ = series;
    }

    /// Whether no series has points in the range of the reader, as far as that is known without reading.
    fn is_empty(&self) -> bool {
        false
    }

    /// Replaces `points` by the points of a series in the range of the reader; by none if the series is unknown.
    ///
    /// # Errors
    ///
    /// As [`PointStore::read`].
    fn read(&mut self, series: SeriesNumber, points: &mut Columns) -> Result<(), PointStoreError>;

    /// As [`SeriesReader::read`], but summarizes blocks that `summarizes` accepts instead of decoding them, if the store
    /// has their statistics and no other source has points of the series on the same day.
    ///
    /// # Errors
    ///
    /// As [`PointStore::read`].
    fn read_summarized(
        &mut self,
        series: SeriesNumber,
        summarizes: &dyn Fn(&BlockSummary) -> bool,
        points: &mut Columns,
        summaries: &mut Vec<BlockSummary>,
    ) -> Result<(), PointStoreError> {
        let _ = summarizes;
        summaries.clear();
        self.read(series, points)
    }

    /// The newest point of a series in the range of the reader; `None` if it has none or is unknown.
    ///
    /// # Errors
    ///
    /// As [`SeriesReader::read`].
    fn last(&mut self, series: SeriesNumber) -> Result<Option<Point>, PointStoreError> {
        let mut points = Columns::default();
        self.read(series, &mut points)?;
        Ok(points.last())
    }
}

/// The cost of a read, estimated from metadata: within a factor of two where series are alike and write evenly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadEstimate {
    /// Points.
    pub points: u64,
    /// Points if the series are denser than others of the same files.
    pub most_points: u64,
    /// Points in memory, included in `points`.
    pub memory_points: u64,
    /// Files.
    pub files: u64,
    /// Blocks of files.
    pub blocks: u64,
    /// Bytes of these points, in files and in memory.
    pub bytes: u64,
}

impl ReadEstimate {
    /// Points, with a margin for series that are denser than others.
    pub fn likely_points(&self) -> u64 {
        let margin = self.points.saturating_add(self.points / 4);
        margin.min(self.most_points.max(self.points))
    }
}

/// Points that were lost to damage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DamagedPart {
    /// The file, where it was set aside.
    pub path: PathBuf,
    /// The instants that its points may have had.
    pub range: TimeRange,
    /// The reason.
    pub detail: String,
}

/// A caller's resources for a batch in memory; dropped when the points have left memory.
pub type Permit = Box<dyn std::any::Any + Send + Sync>;

/// A store of points.
///
/// Numbers of series are valid for one open store: whether they are the same after it was opened again is up to the
/// implementation.
///
/// - An append that returned `Ok` is durable and visible to every later read.
/// - Appends take effect in the order in which [`PointStore::append`] was called. Within a batch, a later point of
///   the same series and instant replaces an earlier one.
/// - A read sees each series as of some instant during the read.
#[async_trait]
pub trait PointStore: Send + Sync + std::fmt::Debug {
    /// The numbers of series by their keys (TSUIDs), in the order of the keys. Unknown series get new numbers, which
    /// are durable with the first append after that, which may be empty.
    ///
    /// # Errors
    ///
    /// [`PointStoreError::Invalid`] for a key that is no TSUID; [`PointStoreError::Full`] if there are no more numbers.
    fn numbers(&self, keys: &[&[u8]]) -> Result<Vec<SeriesNumber>, PointStoreError>;

    /// The number of a series; `None` if it was never written.
    fn find(&self, key: &[u8]) -> Option<SeriesNumber>;

    /// Whether the number of a series is durable. A new number may not be, until an append has returned that began
    /// after the number was given.
    fn is_durable(&self, _series: SeriesNumber) -> bool {
        true
    }

    /// Replaces `key` by the key of a series; `false` if there is no such series.
    fn key(&self, series: SeriesNumber, key: &mut Vec<u8>) -> bool;

    /// The highest UID of each kind that its series use, also series with all points deleted; `None` if other programs
    /// write to the store, so that it does not know all series.
    fn highest_uids(&self) -> Option<HighestUids> {
        None
    }

    /// The UIDs of the metrics that have series, ascending.
    fn metrics(&self) -> Vec<Vec<u8>>;

    /// All series of a metric, by its UID, in order of their keys.
    fn metric_series(&self, metric: &[u8]) -> Vec<SeriesNumber>;

    /// The series of a metric, by its UID, that pass all tests, ascending by number. The first call for a metric, and
    /// calls after many new series, take time in proportion to the metric.
    fn select(&self, metric: &[u8], tests: &[TagTest]) -> Vec<SeriesNumber>;

    /// As [`PointStore::select`], if that takes microseconds: a test names values that at most `most` series have, or the
    /// metric has few series, and no series was added since the last selection.
    fn select_few(&self, _metric: &[u8], _tests: &[TagTest], _most: usize) -> Option<Vec<SeriesNumber>> {
        None
    }

    /// How many series a metric has, by its UID; they never become fewer.
    fn series_count(&self, metric: &[u8]) -> u64 {
        self.metric_series(metric).len() as u64
    }

    /// The values of a tag key among the series of a metric, ascending. Takes as long as [`PointStore::select`].
    fn tag_values(&self, metric: &[u8], tagk: TagkUid) -> Vec<TagvUid>;

    /// Appends points: durable and visible when the future returns `Ok`. Appends take effect in the order of the calls,
    /// so the batch is submitted before this returns; the future only waits, and may be dropped.
    ///
    /// Fails with [`PointStoreError::Full`], [`PointStoreError::Io`] or [`PointStoreError::Unavailable`]; with
    /// [`PointStoreError::Invalid`] if a series is unknown or an instant not one of [`crate::Point`], and then no point
    /// is appended.
    fn append(&self, batch: PointBatch) -> BoxFuture<'static, Result<(), PointStoreError>>;

    /// Whether [`PointStore::append_keyed`] is the cheaper way to append: series have no numbers in the store.
    fn prefers_keys(&self) -> bool {
        false
    }

    /// As [`PointStore::append`], of series by their keys. The store drops `permit` when it does not hold the points
    /// any more, at the latest when the future completes.
    fn append_keyed(
        &self,
        batch: KeyedBatch,
        permit: Permit,
    ) -> BoxFuture<'static, Result<(), PointStoreError>> {
        let keys: Vec<&[u8]> = batch.keys().collect();
        let appended = self.numbers(&keys).map(|numbers| {
            let mut points = PointBatch::with_capacity(batch.points().len());
            for (place, point) in batch.points().iter() {
                points.push(numbers[place.index()], point);
            }
            self.append(points)
        });
        Box::pin(async move {
            let result = appended?.await;
            drop(permit);
            result
        })
    }

    /// Reads points.
    fn read(&self, request: ReadRequest) -> ColumnStream;

    /// Opens a reader of the points in a range. Opening does not block.
    ///
    /// # Errors
    ///
    /// [`PointStoreError::Unavailable`] if the store is closed.
    fn reader(&self, range: TimeRange) -> Result<Box<dyn SeriesReader>, PointStoreError>;

    /// Estimates the cost of reading series, ascending by number and without repetitions. Does not block.
    fn estimate(&self, series: &[SeriesNumber], range: TimeRange) -> ReadEstimate;

    /// The most points that reading a few series in a range decodes if it reads no file: all are in memory or in cached
    /// pages. `None` if a file would be read, or if the store does not know. A page may be evicted before the read.
    fn points_in_memory(&self, series: &[SeriesNumber], range: TimeRange) -> Option<u64> {
        let _ = (series, range);
        None
    }

    /// The newest point of each series in a range, in the order of the series; `None` for series without points there.
    /// Series of a metric that ascend are found faster than others.
    ///
    /// # Errors
    ///
    /// As [`PointStore::read`].
    async fn last(
        &self,
        series: &[SeriesNumber],
        range: TimeRange,
    ) -> Result<Vec<Option<Point>>, PointStoreError>;

    /// Deletes the points of series in a range that were appended before. Durable when it returns `Ok`.
    ///
    /// # Errors
    ///
    /// If the store fails; a part may be deleted, and repeating is safe.
    async fn delete(&self, series: &[SeriesNumber], range: TimeRange) -> Result<(), PointStoreError>;

    /// Checks whether the store can serve requests; includes failures of its background threads.
    ///
    /// # Errors
    ///
    /// The reason why it cannot.
    async fn check_health(&self) -> Result<(), PointStoreError>;

    /// Points that were lost to damage; all others are served.
    fn damage(&self) -> Vec<DamagedPart> {
        Vec::new()
    }

    /// The damage that may have cost points of these series in a range.
    fn lost(&self, series: &[SeriesNumber], range: TimeRange) -> Vec<DamagedPart> {
        let _any = series;
        let mut lost = self.damage();
        lost.retain(|part| part.range.overlaps(&range));
        lost
    }

    /// Figures; `None` if the store has none.
    fn figures(&self) -> Option<Figures> {
        None
    }

    /// How long its background work takes; `None` if it has none.
    fn timings(&self) -> Option<Arc<Timings>> {
        None
    }

    /// The instant before which points are dropped: callers reject older ones. `None`: all points are kept.
    fn retention_edge_ms(&self) -> Option<i64> {
        None
    }

    /// Makes everything durable and releases files; later calls fail with [`PointStoreError::Unavailable`].
    ///
    /// # Errors
    ///
    /// If something could not be written.
    async fn close(&self) -> Result<(), PointStoreError>;
}
