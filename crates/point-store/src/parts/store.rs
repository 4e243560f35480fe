//! The store: opening, closing, and the operations of [`PointStore`].

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};

use async_trait::async_trait;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use futures::stream;
use oxtsdb_schema::MetricUid;
use oxtsdb_schema::{TagkUid, TagvUid};
use parking_lot::{Mutex, RwLock};
use tokio::sync::oneshot;

use super::clock_record;
use super::clock_watch::ClockWatch;
use super::commit;
use super::config::PartsConfig;
use super::core::{Core, Errors, FlushJob, FlushQueue, FlushState, Stop};
use super::days::check::{Checked, DayStats, DaysStats};
use super::days::pace::{CheckPacer, RatePacer};
use super::days::policy::MergePolicy;
use super::days::{Days, Saved};
use super::folder::Folder;
use super::head::{Head, Heads};
use super::journal::{self, EncodedBatch, Journal, JournalOptions, Replayed};
use super::part::PageCache;
use super::queue::{Queue, Reply, Request, closed};
use super::read::{BatchReader, WindowReader};
use super::series::{SeriesCatalogue, SeriesKey};
use super::{background, flush, snapshot};
use crate::{
    ColumnStream, Counters, DamagedPart, Figures, HighestUids, Point, PointBatch, PointStore,
    PointStoreError, ReadEstimate, ReadRequest, SeriesNumber, SeriesReader, TagTest, TimeRange, Timings,
};
use oxtsdb_storage_file::disk::Disk;

/// A [`PointStore`] in a local folder.
///
/// Dropping it stops its threads and leaves the folder as a crash would; [`PointStore::close`] writes parts first.
#[derive(Debug)]
pub struct PartsStore {
    core: Arc<Core>,
    /// `None`: it is closed. The lock of the folder is released after the threads have ended.
    running: Mutex<Option<(Threads, Folder)>>,
}

#[derive(Debug)]
struct Threads {
    commit: JoinHandle<()>,
    apply: JoinHandle<()>,
    flush: JoinHandle<()>,
    background: [JoinHandle<()>; 2],
}

/// Statistics of a store.
#[derive(Clone, Debug, Default)]
pub struct PartsStats {
    /// Figures of the store.
    pub figures: Figures,
    /// Each day, ascending.
    pub days: Vec<DayStats>,
}

impl PartsStore {
    /// Opens a store, creating it if necessary. Blocks while the journal is replayed.
    ///
    /// # Errors
    ///
    /// - [`PointStoreError::Unavailable`] if another process has it open.
    /// - [`PointStoreError::Format`] for another format, [`PointStoreError::Invalid`] for other widths of UIDs.
    /// - [`PointStoreError::Damaged`] if the journal, the series or the manifest of the store are damaged or missing,
    ///   unless [`PartsConfig::accept_losses`] is set. A torn frame at the end of the journal is cut off and logged;
    ///   damaged and missing parts are set aside.
    /// - [`PointStoreError::Io`] and [`PointStoreError::Full`] from the operating system.
    pub fn open(config: PartsConfig) -> Result<Self, PointStoreError> {
        let disk = &config.disk;
        let mut folder = Folder::open(&**disk, &config.path)?;
        let series = SeriesCatalogue::open(Arc::clone(disk), &folder.series(), config.widths)?;
        // Of a copy that could not be repaired, the series are not durable.
        let saved = series.saved().unwrap_or(0);
        let cache = Arc::new(PageCache::new(config.cache_bytes, config.open_files));
        // Parts have no series that are in the journal only.
        let days = Days::open(
            Arc::clone(disk),
            &folder,
            cache,
            MergePolicy::default(),
            series.len(),
            config.accept_losses,
        )
        .map_err(with_advice)?;
        let head = Head::new(config.shards);
        let mut replay = |replayed: Replayed<'_>| match replayed {
            Replayed::Series(number, key) => series.restore(number, key),
            Replayed::Points(batch) => {
                batch
                    .check(series.len())
                    .map_err(|error| PointStoreError::Damaged {
                        path: folder.journal(),
                        detail: error.to_string(),
                    })?;
                head.append(batch);
                Ok(())
            }
        };
        let options = JournalOptions {
            cut: days.cut(),
            has_list: folder.has_manifests() && !folder.is_new(),
            accept_losses: config.accept_losses,
            ..journal::OPTIONS
        };
        let opened = Journal::open(Arc::clone(disk), &folder.journal(), options, &mut replay);
        let (mut journal, recovered) = opened.map_err(with_advice)?;
        let saved = Saved {
            cut: journal.files().cut(),
            series: saved,
        };
        complete(&**disk, &mut folder, &days, saved)?;
        if recovered.frames > 0 {
            tracing::info!(
                frames = recovered.frames,
                points = recovered.points,
                "replayed the journal of points"
            );
        }
        let lost = [days.losses(), &recovered.losses].concat();
        let losses = losses(&lost, days.newest_ms(), config.clock.now_ms());
        let mut heads = Heads {
            active: Arc::new(head),
            frozen: Vec::new(),
        };
        let mut flush = FlushState::default();
        if !recovered.losses.is_empty() {
            // With the journal's points in parts, the next start does not find the damage again.
            let head = std::mem::replace(&mut heads.active, Arc::new(Head::new(config.shards)));
            heads.frozen.push(Arc::clone(&head));
            flush.jobs.push_back(FlushJob::Head {
                head,
                segment: journal.rotate()?,
                cut: journal.durable(),
                series: series.len(),
            });
        }
        let recorded_ms = clock_record::read(&**disk, &config.path)?;
        let core = Arc::new(Core {
            series,
            days,
            queue: Queue::default(),
            heads: RwLock::new(heads),
            flush: FlushQueue::new(flush),
            journal: journal.files(),
            pacer: RatePacer::new(config.merge_bytes_per_second),
            stop: Stop::default(),
            errors: Mutex::new(Errors::default()),
            losses,
            counters: Counters::default(),
            timings: Arc::default(),
            clock: ClockWatch::new(config.retention, config.clock_confirmed_ms),
            retention_edge_ms: AtomicI64::new(i64::MIN),
            durable_series: AtomicU32::new(0),
            config,
        });
        let newest_ms = core.newest_ms(core.config.clock.now_ms());
        core.clock.set_witness(recorded_ms, newest_ms);
        core.advance_retention();
        let threads = Threads::start(&core, journal)?;
        Ok(Self {
            core,
            running: Mutex::new(Some((threads, folder))),
        })
    }

    /// Writes all points in memory as parts.
    ///
    /// # Errors
    ///
    /// If they cannot be written; no point is lost.
    pub async fn flush(&self) -> Result<(), PointStoreError> {
        self.request(|reply| Request::Flush {
            snapshot: None,
            reply,
        })
        .await
    }

    /// Its folder.
    pub fn path(&self) -> &Path {
        &self.core.config.path
    }

    /// The metrics that have series, by their UIDs, ascending, and how many they have.
    pub fn metric_counts(&self) -> Vec<(MetricUid, u64)> {
        self.core.series.metrics()
    }

    /// Statistics.
    pub fn stats(&self) -> PartsStats {
        self.core.stats()
    }

    /// The losses with which the store was opened, because [`PartsConfig::accept_losses`] is set: each file, the
    /// reason, and the instants that lost points have if they were written in order. They are part of
    /// [`PointStore::damage`] until the store is closed, and not of [`PointStore::lost`], since the lost points are
    /// unknown.
    pub fn losses(&self) -> &[DamagedPart] {
        &self.core.losses
    }

    /// Reads all files and checks them, at a rate of bytes per second; 0: no limit. Damaged parts are set aside. Blocks;
    /// `progress` is called several times a second with the bytes read, and returns whether to go on.
    ///
    /// # Errors
    ///
    /// Errors of the disk.
    pub fn check(
        &self,
        bytes_per_second: u64,
        progress: &mut (dyn FnMut(u64) -> bool + Send),
    ) -> Result<Checked, PointStoreError> {
        let pacer = CheckPacer::new(&self.core.pacer, bytes_per_second, progress);
        let series = self.core.series.verify();
        let mut checked = self.core.days.check(&pacer)?;
        match series {
            Ok(()) => {}
            Err(error @ PointStoreError::Damaged { .. }) => checked.damaged.push(error),
            Err(error) => return Err(error),
        }
        Ok(checked)
    }

    /// Makes a copy of the store in a folder on the same file system, which is empty or absent: hard links to files
    /// that never change, and a copy of the series. It has all points that were acknowledged before this call, and of
    /// others every point that was submitted before one of them. No write waits for it.
    ///
    /// The folder can be opened as a store. File `STORE` is written last: without it, it is no store.
    ///
    /// # Errors
    ///
    /// [`PointStoreError::Invalid`] if the folder is not empty; errors of the disk, after which it is removed.
    pub async fn snapshot(&self, target: &Path) -> Result<(), PointStoreError> {
        let snapshot = Some(target.to_owned());
        self.request(|reply| Request::Flush { snapshot, reply }).await?;
        let (core, target) = (Arc::clone(&self.core), target.to_owned());
        let completed = tokio::task::spawn_blocking(move || snapshot::complete(&core, &target));
        completed.await.map_err(|error| PointStoreError::Io {
            place: "snapshot".to_owned(),
            detail: error.to_string(),
        })?
    }

    /// Queues a request, and waits for its outcome.
    fn request(
        &self,
        request: impl FnOnce(Reply) -> Request,
    ) -> BoxFuture<'static, Result<(), PointStoreError>> {
        let (reply, response) = oneshot::channel();
        self.core.queue.push(request(reply));
        async { response.await.unwrap_or_else(|_| Err(stopped())) }.boxed()
    }
}

impl Core {
    pub(super) fn stats(&self) -> PartsStats {
        let DaysStats { days, merges } = self.days.stats();
        let sum = |value: fn(&DayStats) -> u64| days.iter().map(value).sum();
        let figures = Figures {
            series: u64::from(self.series.len()),
            series_bytes: self.series.byte_len() as u64,
            head_bytes: self.heads.read().byte_len() as u64,
            journal_bytes: self.journal.byte_len(),
            points: sum(|day| day.points),
            parts: sum(|day| day.parts as u64),
            part_bytes: sum(|day| day.bytes),
            index_bytes: sum(|day| day.memory_bytes as u64),
            merge_debt_bytes: sum(|day| day.merge_debt_bytes),
            page_cache_bytes: self.days.cache_bytes(),
            disk_free_bytes: self.config.disk.free_bytes(&self.config.path).ok(),
            disk_reserve_bytes: self.config.reserve_bytes,
            clock: self.clock.stats(),
            counters: self.counters.clone(),
            merges,
        };
        PartsStats { figures, days }
    }

    /// Computes the instant before which points are dropped, and returns it; `None`: none are.
    ///
    /// The edge follows the clock only as far as there are points. Points in the future of the
    /// [watched clock](super::clock_watch) do not count: they would let the edge follow a clock that is ahead.
    pub(super) fn advance_retention(&self) -> Option<i64> {
        let config = &self.config;
        let now_ms = self.clock.time_ms(config.clock.now_ms(), config.uptime.now_ms());
        if let Some(time_ms) = self.clock.to_record()
            && let Err(error) = clock_record::write(&*config.disk, &config.path, time_ms)
        {
            tracing::warn!(%error, "cannot record the time; trying again in 10 minutes");
        }
        let retention = i64::try_from(config.retention?.as_millis()).unwrap_or(i64::MAX);
        let newest_ms = self.newest_ms(now_ms);
        let edge_ms = newest_ms.map(|newest_ms| newest_ms.saturating_sub(retention));
        self.retention_edge_ms
            .store(edge_ms.unwrap_or(i64::MIN), Ordering::Relaxed);
        edge_ms
    }

    /// About the newest instant up to `until_ms` that has a point: in parts the end of its day.
    fn newest_ms(&self, until_ms: i64) -> Option<i64> {
        let range = TimeRange {
            first_ms: 0,
            last_ms: until_ms,
        };
        let in_parts = self.days.days_in(range);
        let in_parts = in_parts.last().map(|list| list.day().last_ms().min(until_ms));
        let in_heads = |head: &Arc<Head>| {
            let extent = head.extent()?;
            [extent.last_ms, extent.first_ms]
                .into_iter()
                .find(|ms| *ms <= until_ms)
        };
        let in_heads = self.heads.read().iter().filter_map(in_heads).max();
        in_parts.max(in_heads)
    }
}

#[async_trait]
impl PointStore for PartsStore {
    fn numbers(&self, keys: &[&[u8]]) -> Result<Vec<SeriesNumber>, PointStoreError> {
        if self.core.stop.is_set() {
            return Err(closed());
        }
        self.core.series.numbers(keys)
    }

    fn find(&self, key: &[u8]) -> Option<SeriesNumber> {
        self.core.series.find(key)
    }

    fn is_durable(&self, series: SeriesNumber) -> bool {
        series.0 < self.core.durable_series.load(Ordering::Acquire)
    }

    fn key(&self, series: SeriesNumber, key: &mut Vec<u8>) -> bool {
        self.core.series.key(series, key)
    }

    fn highest_uids(&self) -> Option<HighestUids> {
        Some(self.core.series.highest_uids())
    }

    fn metrics(&self) -> Vec<Vec<u8>> {
        let metrics = self.core.series.metrics().into_iter();
        metrics.map(|(metric, _)| metric.as_bytes().to_vec()).collect()
    }

    fn metric_series(&self, metric: &[u8]) -> Vec<SeriesNumber> {
        let series = &self.core.series;
        let metric = series.metric_number(metric);
        metric.map_or(Vec::new(), |metric| series.metric_series(metric).to_vec())
    }

    fn select(&self, metric: &[u8], tests: &[TagTest]) -> Vec<SeriesNumber> {
        let series = &self.core.series;
        let metric = series.metric_number(metric);
        metric.map_or(Vec::new(), |metric| series.select(metric, tests))
    }

    fn select_few(&self, metric: &[u8], tests: &[TagTest], most: usize) -> Option<Vec<SeriesNumber>> {
        let series = &self.core.series;
        series.select_few(series.metric_number(metric)?, tests, most)
    }

    fn series_count(&self, metric: &[u8]) -> u64 {
        let series = &self.core.series;
        series
            .metric_number(metric)
            .map_or(0, |metric| series.series_count(metric))
    }

    fn tag_values(&self, metric: &[u8], tagk: TagkUid) -> Vec<TagvUid> {
        let series = &self.core.series;
        let metric = series.metric_number(metric);
        let values = metric.map_or(Vec::new(), |metric| series.tag_values(metric, tagk));
        values.into_iter().map(|(value, _)| value).collect()
    }

    fn append(&self, batch: PointBatch) -> BoxFuture<'static, Result<(), PointStoreError>> {
        // A batch that a part cannot hold must not get into the head: no flush could end.
        if let Err(error) = batch.check(self.core.series.len()) {
            return std::future::ready(Err(error)).boxed();
        }
        let encoded = EncodedBatch::from_batch(&batch);
        self.request(|reply| Request::Append {
            batch,
            encoded,
            reply,
        })
    }

    fn read(&self, request: ReadRequest) -> ColumnStream {
        if self.core.stop.is_set() {
            return Box::pin(stream::once(async { Err(closed()) }));
        }
        let reader = BatchReader::new(Arc::clone(&self.core), request.series, request.range);
        Box::pin(stream::try_unfold(reader, |mut reader| async {
            let read = tokio::task::spawn_blocking(move || {
                let batch = reader.next_batch()?;
                Ok::<_, PointStoreError>((batch, reader))
            });
            let (batch, reader) = read.await.map_err(|error| PointStoreError::Io {
                place: "read".to_owned(),
                detail: error.to_string(),
            })??;
            Ok((!batch.is_empty()).then_some((batch, reader)))
        }))
    }

    fn reader(&self, range: TimeRange) -> Result<Box<dyn SeriesReader>, PointStoreError> {
        if self.core.stop.is_set() {
            return Err(closed());
        }
        Ok(Box::new(WindowReader::new(Arc::clone(&self.core), range)))
    }

    fn estimate(&self, series: &[SeriesNumber], range: TimeRange) -> ReadEstimate {
        self.core.estimate(series, range)
    }

    fn points_in_memory(&self, series: &[SeriesNumber], range: TimeRange) -> Option<u64> {
        self.core.points_in_memory(series, range)
    }

    async fn last(
        &self,
        series: &[SeriesNumber],
        range: TimeRange,
    ) -> Result<Vec<Option<Point>>, PointStoreError> {
        if self.core.stop.is_set() {
            return Err(closed());
        }
        let (core, series) = (Arc::clone(&self.core), series.to_vec());
        let points = tokio::task::spawn_blocking(move || {
            let mut reader = WindowReader::new(core, range);
            series.iter().map(|series| reader.newest(*series)).collect()
        })
        .await;
        points.map_err(|error| PointStoreError::Io {
            place: "read".to_owned(),
            detail: error.to_string(),
        })?
    }

    async fn delete(&self, series: &[SeriesNumber], range: TimeRange) -> Result<(), PointStoreError> {
        let series = series.to_vec();
        self.request(|reply| Request::Delete { series, range, reply })
            .await
    }

    async fn check_health(&self) -> Result<(), PointStoreError> {
        if self.running.lock().is_none() {
            return Err(closed());
        }
        let errors = self.core.errors.lock();
        let error = [&errors.write, &errors.flush, &errors.merge, &errors.small_merge]
            .into_iter()
            .find_map(Option::clone);
        error.map_or(Ok(()), Err)
    }

    fn damage(&self) -> Vec<DamagedPart> {
        let mut damage = self.core.days.damage();
        damage.extend_from_slice(&self.core.losses);
        damage
    }

    fn lost(&self, series: &[SeriesNumber], range: TimeRange) -> Vec<DamagedPart> {
        let key = |series: &SeriesNumber| {
            let metric = self.core.series.metric_of(*series)?;
            Some(SeriesKey {
                metric,
                series: *series,
            })
        };
        let keys = || series.iter().filter_map(key).collect();
        self.core.days.lost(keys, range)
    }

    fn figures(&self) -> Option<Figures> {
        Some(self.core.stats().figures)
    }

    fn timings(&self) -> Option<Arc<Timings>> {
        Some(Arc::clone(&self.core.timings))
    }

    fn retention_edge_ms(&self) -> Option<i64> {
        let edge_ms = self.core.retention_edge_ms.load(Ordering::Relaxed);
        (edge_ms > i64::MIN).then_some(edge_ms)
    }

    async fn close(&self) -> Result<(), PointStoreError> {
        if self.running.lock().is_none() {
            return Ok(());
        }
        let flushed = self.flush().await;
        let running = self.running.lock().take();
        if let Some((threads, folder)) = running {
            let core = Arc::clone(&self.core);
            let stopped = tokio::task::spawn_blocking(move || {
                threads.stop(&core);
                drop(folder);
            });
            stopped.await.map_err(|error| PointStoreError::Io {
                place: "close".to_owned(),
                detail: error.to_string(),
            })?;
        }
        flushed
    }
}

impl Drop for PartsStore {
    fn drop(&mut self) {
        if let Some((threads, _folder)) = self.running.get_mut().take() {
            threads.stop(&self.core);
        }
    }
}

impl Threads {
    fn start(core: &Arc<Core>, journal: Journal) -> Result<Self, PointStoreError> {
        let (sender, receiver) = mpsc::sync_channel(commit::GROUPS_AHEAD);
        // Before any caller gives a number.
        let logged = core.series.len();
        core.durable_series.store(logged, Ordering::Release);
        Ok(Self {
            commit: spawn("points-commit", core, move |core| {
                commit::run(core, journal, logged, &sender);
            })?,
            apply: spawn("points-apply", core, move |core| commit::apply(core, &receiver))?,
            flush: spawn("points-flush", core, flush::run)?,
            background: [
                spawn("points-merge", core, background::run)?,
                spawn("points-merge-sm", core, background::run_small)?,
            ],
        })
    }

    /// Ends the threads. Requests in the queue are done, heads are not flushed.
    fn stop(self, core: &Core) {
        core.queue.close();
        // The commit thread may wait for a flush, so the flush thread stops after it; the apply thread ends with it.
        for thread in [self.commit, self.apply] {
            join(thread);
        }
        core.flush.stop();
        core.stop.set();
        core.pacer.stop();
        join(self.flush);
        self.background.into_iter().for_each(join);
    }
}

fn join(thread: JoinHandle<()>) {
    if thread.join().is_err() {
        tracing::error!("a thread of the point store panicked");
    }
}

fn spawn(
    name: &str,
    core: &Arc<Core>,
    run: impl FnOnce(&Core) + Send + 'static,
) -> Result<JoinHandle<()>, PointStoreError> {
    let core = Arc::clone(core);
    let spawned = thread::Builder::new()
        .name(name.to_owned())
        .spawn(move || run(&core));
    spawned.map_err(|error| PointStoreError::io(format!("thread {name}"), &error))
}

/// Writes the manifests of a store that has none, and marks it as complete.
fn complete(disk: &dyn Disk, folder: &mut Folder, days: &Days, saved: Saved) -> Result<(), PointStoreError> {
    let is_older = !folder.has_manifests();
    let completed = days.record(saved).and_then(|()| folder.complete(disk));
    match completed {
        // Reads go on.
        Err(error @ PointStoreError::Full(_)) => {
            tracing::warn!(%error, "manifests are not written until the disk has space");
            Ok(())
        }
        Ok(()) if is_older => {
            tracing::info!(folder = %folder.path().display(), "the folder has manifests now, and a newer format");
            Ok(())
        }
        completed => completed,
    }
}

/// Adds advice for the operator to the error of a file that is damaged or missing.
fn with_advice(error: PointStoreError) -> PointStoreError {
    match error {
        PointStoreError::Damaged { path, detail } => PointStoreError::Damaged {
            path,
            detail: format!("{detail}; restore a snapshot, or accept the loss with `tsdb store salvage`"),
        },
        error => error,
    }
}

/// The losses of an opened store. Lost points are probably newer than points in parts.
fn losses(lost: &[PointStoreError], newest_ms: Option<i64>, now_ms: i64) -> Vec<DamagedPart> {
    let first_ms = newest_ms.unwrap_or(0);
    let range = TimeRange {
        first_ms,
        last_ms: now_ms.max(first_ms),
    };
    let loss = |error: &PointStoreError| match error {
        PointStoreError::Damaged { path, detail } => (path.clone(), detail.clone()),
        error => (PathBuf::new(), error.to_string()),
    };
    let losses = lost
        .iter()
        .map(loss)
        .map(|(path, detail)| DamagedPart { path, range, detail });
    losses.collect()
}

/// The error of a thread that ended before it replied.
fn stopped() -> PointStoreError {
    PointStoreError::Unavailable("it stopped before the request was done".to_owned())
}
