//! The writer: resolves the series of points, encodes the points and stores them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use futures::future::{BoxFuture, FutureExt as _, TryFutureExt as _};
use oxtsdb_access::MetricScope;
use oxtsdb_data_settings::DataSettings;
use oxtsdb_metadata::meta::MetaTable;
use oxtsdb_metadata::series_index::SeriesIndex;
use oxtsdb_metadata::uids::Uids;
use oxtsdb_metadata::uids::series::{Requested, Series, SeriesText};
use oxtsdb_metadata::uids::series_cache::{CacheFigures, SeriesCache};
use oxtsdb_point_store::rows::largest_point_bytes;
use oxtsdb_point_store::{Figures, PointStore, SeriesNumber};
use oxtsdb_resources::{ClientId, ComputePool, MemoryPool};
use oxtsdb_row_store::{RowStore, StoreError, TableName, Writers};
use oxtsdb_schema::{HistogramCodecs, Timestamp, Value};
use oxtsdb_server::settings::SettingError;
use oxtsdb_server::telemetry::SPANS;
use tracing::{Instrument as _, info_span};

use super::budget::{WriteBudget, WritePermit};
use super::encoded::{BatchSeries, EncodedPoints};
use super::resolve::{Resolution, Resolved, Resolver};
use super::tracking::Tracker;
use super::{IngestCounts, NewPoint, PointError, PointRef, WriteError, WriteOutcome};

/// Resources of the process for ingestion.
#[derive(Clone, Debug)]
pub struct IngestResources {
    /// Memory for writes from when they are received until they are stored.
    pub memory: MemoryPool,
    /// Threads for decompressing and parsing.
    pub compute: ComputePool,
}

impl IngestResources {
    /// Without a limit of memory, for tests and tools.
    ///
    /// # Errors
    ///
    /// If the system gives no threads.
    pub fn unlimited() -> std::io::Result<Self> {
        Ok(Self {
            memory: MemoryPool::unlimited("ingest"),
            compute: ComputePool::with_default_threads()?,
        })
    }
}

/// Writes points. Cloning is cheap, clones share the caches and the limit.
#[derive(Clone, Debug)]
pub struct Writer(
    pub(super) Arc<Inner>,
    /// The metrics that its caller may write; `None`: all of them.
    Option<MetricScope>,
);

#[derive(Debug)]
pub(super) struct Inner {
    pub(super) points: Arc<dyn PointStore>,
    /// The table of points, for other cells than these.
    pub(super) store: Arc<dyn RowStore>,
    pub(super) data_table: TableName,
    /// The codecs of histograms; `None`: histograms are rejected.
    histograms: Option<HistogramCodecs>,
    /// Points by protocol; front ends count.
    counts: Arc<IngestCounts>,
    /// Points that were older than the retention.
    pub(super) too_old: Arc<AtomicU64>,
    resolver: Resolver,
    meta_table: MetaTable,
    pub(super) tracker: Tracker,
    /// Memory for batches that the store has not confirmed.
    budget: WriteBudget,
    resources: IngestResources,
    /// The most bytes of a point in a batch.
    largest_point_bytes: usize,
}

impl Writer {
    /// A writer of points into `points`, and of their series into the table of `store` that `settings` name; it must
    /// exist. New series are added to `index`.
    ///
    /// # Errors
    ///
    /// If a setting is out of its range.
    pub fn new(
        store: Arc<dyn RowStore>,
        writers: Writers,
        points: Arc<dyn PointStore>,
        uids: Uids,
        settings: &DataSettings,
        index: Option<SeriesIndex>,
        resources: IngestResources,
    ) -> Result<Self, SettingError> {
        let layout = *uids.layout();
        let meta_table = settings.tables.meta_table_name()?;
        let meta_table = MetaTable::new(
            Arc::clone(&store),
            writers,
            meta_table,
            layout.widths,
            uids.meta_changes().clone(),
        );
        let tracker = Tracker::new(meta_table.clone(), &settings.series_index, index);
        let cache_bytes = settings.memory.series_cache_mib << 20;
        let cache = Arc::new(SeriesCache::new(cache_bytes, settings.naming.cache_ttl()));
        uids.keep_coherent(&cache);
        let inner = Inner {
            points,
            store,
            data_table: settings.tables.data_table_name()?,
            histograms: settings.histograms.codecs()?,
            counts: Arc::default(),
            too_old: Arc::default(),
            meta_table,
            tracker,
            resolver: Resolver {
                uids,
                cache,
                max_tags: settings.writing.max_tags,
            },
            budget: WriteBudget::new(settings.memory.max_writes_mib << 20),
            resources,
            largest_point_bytes: largest_point_bytes(&layout, settings.writing.max_tags),
        };
        Ok(Self(Arc::new(inner), None))
    }

    /// The same writer, which rejects points of metrics outside `scope`.
    pub fn limited_to(&self, scope: &MetricScope) -> Self {
        Self(Arc::clone(&self.0), Some(scope.clone()))
    }

    /// Writes points, in their order. `Ok` means that all that are not among the errors are in the
    /// store's log.
    ///
    /// While the UID service is unavailable, points of series in the cache are stored, and the others are
    /// [`super::PointErrorReason::Unresolved`].
    ///
    /// With a deadline, waiting for the UID service, for a permit and for the store ends there.
    ///
    /// # Errors
    ///
    /// When the UID service fails and no series is known, when the store fails, or when there is no permit
    /// in time. A part may have been written; writing all again is safe.
    pub async fn write(
        &self,
        points: &[NewPoint<'_>],
        deadline: Option<Instant>,
    ) -> Result<WriteOutcome, WriteError> {
        self.write_refs(points.len(), |index| PointRef::from(&points[index]), deadline)
            .await
    }

    /// As [`Writer::write`]; `point` gives each of `count` points.
    ///
    /// # Errors
    ///
    /// As [`Writer::write`].
    pub async fn write_refs<'a>(
        &self,
        count: usize,
        point: impl Fn(usize) -> PointRef<'a> + Send + Sync,
        deadline: Option<Instant>,
    ) -> Result<WriteOutcome, WriteError> {
        let requested = (0..count).map(|index| Requested::Series(point(index).series));
        let time_and_value = |index| {
            let PointRef { timestamp, value, .. } = point(index);
            (timestamp, value)
        };
        self.write_points(requested, time_and_value, deadline).await
    }

    /// As [`Writer::write`], for points of series that may be known; `point` returns each of them.
    ///
    /// # Errors
    ///
    /// As [`Writer::write`].
    pub async fn write_points<'a>(
        &self,
        requested: impl ExactSizeIterator<Item = Requested<'a>> + Send,
        point: impl Fn(usize) -> (Timestamp, Value) + Send,
        deadline: Option<Instant>,
    ) -> Result<WriteOutcome, WriteError> {
        let series = self.resolve_points(requested, deadline).await?;
        let permit = self.permit_in_time(series.len(), deadline).await?;
        let (batch, errors) = self.encode(&series, point, permit);
        let written = batch.points();
        self.store(batch, deadline).await?;
        Ok(WriteOutcome { written, errors })
    }

    /// The cached series of these texts, in their order.
    pub fn known(&self, texts: &[SeriesText<'_>]) -> Vec<Option<Series>> {
        let mut known = self.0.resolver.known(texts);
        // Series outside the scope are resolved, and fail there.
        if let Some(scope) = &self.1 {
            for (series, _) in known
                .iter_mut()
                .zip(texts)
                .filter(|(_, text)| !scope.covers(text.metric))
            {
                *series = None;
            }
        }
        known
    }

    /// The series of points. With a deadline, waiting for the UID service ends there.
    ///
    /// # Errors
    ///
    /// When the UID service fails; while it is unavailable, only if no point has a known series. A write
    /// that stores nothing fails as a whole: clients and proxies retry calls by their status.
    pub async fn resolve_points<'a>(
        &self,
        requested: impl ExactSizeIterator<Item = Requested<'a>> + Send,
        deadline: Option<Instant>,
    ) -> Result<Vec<Resolved>, WriteError> {
        let Resolution { series, outage } = self.resolve(requested, deadline).await?;
        match outage {
            Some(error) if !series.iter().any(Result::is_ok) => Err(error.into()),
            _ => Ok(series),
        }
    }

    /// Makes a batch of the points with resolved series, and the list of errors of all other points.
    pub fn encode(
        &self,
        series: &[Resolved],
        point: impl Fn(usize) -> (Timestamp, Value),
        permit: WritePermit,
    ) -> (Batch, Vec<PointError>) {
        let mut errors = Vec::new();
        let mut batch = self.batch(series.len(), permit);
        let encoded = batch.encoded();
        for (index, series) in series.iter().enumerate() {
            match series {
                Ok(series) => {
                    let (timestamp, value) = point(index);
                    match encoded.point(&mut ResolvedSeries(series), timestamp, &value) {
                        Ok(()) => encoded.untracked().observe(series),
                        Err(reason) => errors.push(PointError {
                            index,
                            reason: Arc::new(reason),
                        }),
                    }
                }
                Err(reason) => errors.push(PointError {
                    index,
                    reason: Arc::clone(reason),
                }),
            }
        }
        batch.shrink();
        (batch, errors)
    }

    /// The requested series, in their order; a series that cannot be resolved has its reason there. Names without a
    /// UID are assigned one, if the deployment does so on write.
    ///
    /// # Errors
    ///
    /// [`WriteError::Uids`] for [`UidsError::DeadlineExceeded`](oxtsdb_metadata::uids::UidsError::DeadlineExceeded) and
    /// permanent errors of the UID service. While the service is unavailable, [`Resolution::outage`] is set instead.
    pub async fn resolve<'a>(
        &self,
        requested: impl ExactSizeIterator<Item = impl Into<Requested<'a>>> + Send,
        deadline: Option<Instant>,
    ) -> Result<Resolution, WriteError> {
        let requested = requested.map(Into::into);
        let resolver = &self.0.resolver;
        let resolving = async {
            match &self.1 {
                None => resolver.resolve(requested, deadline).await,
                Some(scope) => resolver.resolve_limited(requested, scope, deadline).await,
            }
        };
        Ok(resolving.instrument(info_span!(target: SPANS, "resolve")).await?)
    }

    /// An empty batch for this number of points; `permit` must be for as many.
    pub fn batch(&self, points: usize, permit: WritePermit) -> Batch {
        let encoded = EncodedPoints::new(
            Arc::clone(&self.0.points),
            points,
            Arc::clone(&self.0.too_old),
            self.0.tracker.untracked(),
        );
        Batch { encoded, permit }
    }

    /// The pool that writes are charged to from when they are received until they are stored.
    pub fn memory(&self) -> &MemoryPool {
        &self.0.resources.memory
    }

    /// The same for writes of a client.
    pub fn memory_of(&self, client: ClientId) -> MemoryPool {
        self.memory().for_client(client)
    }

    /// The index that new series are added to.
    pub(super) fn index(&self) -> Option<&SeriesIndex> {
        self.0.tracker.index()
    }

    /// Where large requests are decompressed and parsed.
    pub fn compute(&self) -> &ComputePool {
        &self.0.resources.compute
    }

    /// The same for requests of a client.
    pub fn compute_of(&self, client: ClientId) -> ComputePool {
        self.compute().for_client(client)
    }

    /// Points that were rejected because they were older than the retention.
    pub fn too_old_points(&self) -> u64 {
        self.0.too_old.load(Ordering::Relaxed)
    }

    /// The codecs of histograms; `None`: histograms are rejected.
    pub fn histograms(&self) -> Option<HistogramCodecs> {
        self.0.histograms
    }

    /// The table of series' metadata.
    pub fn meta_table(&self) -> &MetaTable {
        &self.0.meta_table
    }

    /// Names and UIDs.
    pub fn uids(&self) -> &Uids {
        &self.0.resolver.uids
    }

    /// The figures of the store of points, if it has any.
    pub fn point_figures(&self) -> Option<Figures> {
        self.0.points.figures()
    }

    /// The state of the cache of series.
    pub fn series_cache(&self) -> CacheFigures {
        self.0.resolver.cache.figures()
    }

    /// The points of each protocol, which front ends count.
    pub fn counts(&self) -> &Arc<IngestCounts> {
        &self.0.counts
    }

    /// The most tags of a series.
    pub fn max_tags(&self) -> usize {
        self.0.resolver.max_tags
    }

    /// Stores a batch: durable when this returns `Ok`.
    ///
    /// # Errors
    ///
    /// [`WriteError::Store`], and [`WriteError::DeadlineExceeded`]. The points may have been stored; writing them again
    /// is safe.
    pub async fn store(&self, batch: Batch, deadline: Option<Instant>) -> Result<(), WriteError> {
        if batch.points() == 0 {
            batch.encoded.count_rejected();
            return Ok(());
        }
        let span = info_span!(target: SPANS, "store", points = batch.points());
        let store = self.begin_store(batch).instrument(span);
        match deadline {
            None => store.await,
            Some(deadline) => {
                let stored = tokio::time::timeout_at(deadline.into(), store).await;
                stored.unwrap_or(Err(WriteError::DeadlineExceeded))
            }
        }
    }

    /// Stores a batch. Batches with points of one series and instant are stored in the order of the calls.
    pub fn begin_store(&self, batch: Batch) -> BoxFuture<'static, Result<(), WriteError>> {
        let Batch { mut encoded, permit } = batch;
        encoded.count_rejected();
        let untracked = encoded.take_untracked();
        let stored = encoded.append(Box::new(permit)).map_err(WriteError::from);
        if untracked.is_empty() {
            return stored.boxed();
        }
        let tracker = self.0.tracker.clone();
        async move {
            // Side by side, since the embedded store then has one sync for both; the series first, so that
            // after a crash there are no points of a series that has no row.
            let (tracked, stored) = futures::future::join(tracker.track(untracked), stored).await;
            stored.and(tracked.map_err(WriteError::from))
        }
        .boxed()
    }

    /// Reserves the memory to build and store a batch of `points`, waiting without a limit. A batch larger
    /// than the budget waits until no other is in flight.
    ///
    /// The permit comes before the batch: a waiting call holds only the request as received, which the memory
    /// pool bounds.
    pub fn permit(&self, points: usize) -> impl Future<Output = WritePermit> + Send + use<> {
        self.0.budget.permit(self.batch_bytes(points))
    }

    /// As [`Writer::permit`], with a limit of the wait.
    pub(super) async fn permit_in_time(
        &self,
        points: usize,
        deadline: Option<Instant>,
    ) -> Result<WritePermit, WriteError> {
        self.permit_of_bytes(self.batch_bytes(points), deadline).await
    }

    /// As [`Writer::permit_in_time`], for a number of bytes.
    pub(super) async fn permit_of_bytes(
        &self,
        bytes: usize,
        deadline: Option<Instant>,
    ) -> Result<WritePermit, WriteError> {
        self.0.budget.permit_in_time(bytes, deadline).await
    }

    /// The most bytes that a batch of `points` takes.
    fn batch_bytes(&self, points: usize) -> usize {
        points.saturating_mul(self.0.largest_point_bytes)
    }

    /// Waits for a permit and returns an empty batch for `points` points of declared series.
    ///
    /// # Errors
    ///
    /// [`WriteError::Overloaded`] or [`WriteError::DeadlineExceeded`] if there is no permit in time.
    pub async fn batch_in_time(&self, points: usize, deadline: Option<Instant>) -> Result<Batch, WriteError> {
        let permit = self.permit_in_time(points, deadline).await?;
        Ok(self.batch(points, permit))
    }
}

/// A resolved series of a batch.
struct ResolvedSeries<'a>(&'a Series);

impl BatchSeries for ResolvedSeries<'_> {
    fn place(&self) -> usize {
        // The caller keeps all series alive.
        self.0.address()
    }

    fn append_key(&self, key: &mut Vec<u8>) {
        key.extend_from_slice(self.0.tsuid());
    }

    #[inline]
    fn number(&mut self, store: &dyn PointStore) -> Result<SeriesNumber, StoreError> {
        self.0.number(store)
    }
}

/// Points that are encoded, and the permit to hold them.
#[derive(Debug)]
pub struct Batch {
    encoded: EncodedPoints,
    permit: WritePermit,
}

impl Batch {
    /// To add points to.
    #[inline]
    pub const fn encoded(&mut self) -> &mut EncodedPoints {
        &mut self.encoded
    }

    /// Points so far.
    pub fn points(&self) -> u64 {
        self.encoded.points()
    }

    /// Releases the memory reserved beyond the batch's size; no point is added after this.
    pub fn shrink(&mut self) {
        self.permit.shrink_to(self.encoded.byte_len());
    }
}
