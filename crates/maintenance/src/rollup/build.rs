//! Builds rollups from points, which OpenTSDB leaves to other programs.
//!
//! ```text
//!   metrics ─► chunks of the range ─► points of each series ─► windows ─► rows of the rollup tables
//! ```
//!
//! Sums, counts, minima and maxima of all intervals are computed in one pass over the points, with the numbers of a query
//! that downsamples points. Only whole intervals are built. The points are read as queries read them: a step, which is
//! some series of a chunk in columns or an hour of a metric in rows, is admitted like a query, is listed, and can be
//! cancelled; between two steps the build holds no permit. A build is idempotent (`cells`), so it is resumed with the
//! step after the last one that was reported.

mod cells;
mod columns;
mod metrics;
mod plan;
mod position;
mod rows;
mod skipped;
mod window;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, SystemTime};

use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use oxtsdb_point_store::PointStore;
use oxtsdb_query::{Engine, Hours, QueryDescription, QueryError, RequestContext, RowBatch};
use oxtsdb_resources::Reservation;
use oxtsdb_row_store::{ColumnSelection, Scan};
use oxtsdb_schema::data_table::FAMILY;
use oxtsdb_schema::{BaseTime, HOUR_SECONDS, MetricUid, UidKind};
use oxtsdb_server::Shutdown;
use tokio::sync::mpsc;

pub(crate) use cells::WrittenCells;
use oxtsdb_metadata::uids::{Uids, UidsError};
pub use plan::PlanError;
use plan::{BuildPlan, BuiltRow};
pub use position::{Position, PositionError};
use skipped::is_of_data;
pub(crate) use skipped::{SkipLog, Skipped};

const DAY_SECONDS: u32 = 86_400;

/// The length of a chunk where points are in columns. Opening files costs less for several days at once.
const COLUMNS_CHUNK: u32 = 8 * DAY_SECONDS;

/// The length of a chunk where points are in rows.
const ROWS_CHUNK: u32 = DAY_SECONDS;

/// Jobs of a step.
const STEP_JOBS: usize = 16;

/// Jobs that run at a time.
const CONCURRENT_JOBS: usize = 4;

/// Windows in memory from which on they are written.
const WRITE_BYTES: usize = 4 << 20;

/// Memory of a build: windows, the points of the jobs, rows that are compared.
const BUILD_BYTES: u64 = 64 << 20;

/// How long a build waits for its memory.
const MEMORY_WAIT: Duration = Duration::from_secs(30);

/// A build.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BuildRequest {
    /// The metric; `None`: all.
    pub metric: Option<String>,
    /// The range in milliseconds, its end exclusive. Whole intervals in it are built, up to the clock.
    pub range_ms: (i64, i64),
    /// The intervals; none: all that can be built.
    pub intervals: Vec<String>,
    /// Where to go on.
    pub position: Option<Position>,
    /// Whether the build goes on without points that cannot be read.
    pub skips_unreadable: bool,
}

/// How far a build is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BuildProgress {
    /// Where a build goes on after this.
    pub position: Option<Position>,
    /// The metric that was being built.
    pub metric: String,
    /// Chunks of metrics that are done, and all of them.
    pub chunks: (u64, u64),
    /// Points read since the build was started or resumed.
    pub points: u64,
    /// Cells since then.
    pub cells: WrittenCells,
    /// Rows and ranges that could not be read.
    pub(crate) skipped: Skipped,
}

/// Why a build failed.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// It cannot be done as requested.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The position is not one of this build.
    #[error(transparent)]
    Position(#[from] PositionError),
    /// Reading or writing failed.
    #[error(transparent)]
    Query(#[from] QueryError),
    /// The tag of rollups has no UID.
    #[error(transparent)]
    Uids(#[from] UidsError),
    /// The tag of rollups gets no UID.
    #[error("tag of rollups `{name}` {reason}")]
    Tag {
        /// The tag key or value.
        name: String,
        /// The reason.
        reason: String,
    },
    /// The server is shutting down.
    #[error("the server is shutting down")]
    Draining,
    /// The caller has gone.
    #[error("the caller has gone")]
    Gone,
    /// A fault of the server.
    #[error("building rollups failed: {0}")]
    Internal(String),
}

/// Builds rollups. Cloning is cheap.
#[derive(Clone, Debug)]
pub struct RollupBuilder {
    engine: Engine,
    uids: Uids,
    shutdown: Shutdown,
    shared: RollupShared,
}

/// State that all builds of a process share.
#[derive(Clone, Debug, Default)]
pub struct RollupShared {
    /// Held while rows of rollups are compared and changed, so that two builds do not mix their forms of a value.
    writes: Arc<tokio::sync::Mutex<()>>,
    /// Rows and damaged ranges that the standing job has left out since the start.
    pub skipped: Arc<AtomicU64>,
}

/// A build that runs.
struct Build<'a> {
    builder: &'a RollupBuilder,
    plan: Arc<BuildPlan>,
    context: RequestContext,
    progress: BuildProgress,
    fingerprint: u64,
    sender: &'a mpsc::Sender<BuildProgress>,
    /// `None`: rows that cannot be read end the build.
    skips: Option<SkipLog>,
    _memory: Reservation,
}

impl RollupBuilder {
    /// Creates a builder for the tables of `engine`. All builders of a process have the same `shared`.
    pub const fn new(engine: Engine, uids: Uids, shutdown: Shutdown, shared: RollupShared) -> Self {
        Self {
            engine,
            uids,
            shutdown,
            shared,
        }
    }

    #[cfg(test)]
    pub(super) fn points(&self) -> Option<Arc<dyn PointStore>> {
        self.engine.storage().reader.columns().cloned()
    }

    pub(super) const fn shared(&self) -> &RollupShared {
        &self.shared
    }

    /// Checks a request, and returns the intervals that it builds.
    ///
    /// # Errors
    ///
    /// [`BuildError::Plan`] and [`BuildError::Position`].
    pub fn check(&self, request: &BuildRequest) -> Result<Vec<String>, BuildError> {
        let plan = self.plan(request)?;
        let names = plan
            .targets
            .iter()
            .map(|target| target.interval.name().to_owned());
        Ok(names.collect())
    }

    /// The longest interval that is built, in seconds.
    ///
    /// # Errors
    ///
    /// [`BuildError::Plan`].
    pub(crate) fn longest_interval(&self) -> Result<u32, BuildError> {
        let storage = self.engine.storage();
        let plan = BuildPlan::new(storage.rollups.as_deref(), (0, 0), &[], storage.layout)?;
        let seconds = plan.targets.iter().map(|target| target.interval.seconds());
        Ok(seconds.max().unwrap_or(1))
    }

    fn plan(&self, request: &BuildRequest) -> Result<BuildPlan, BuildError> {
        let storage = self.engine.storage();
        if let Some(position) = &request.position {
            position.check(request)?;
        }
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let now = now.map_or(0, |now| u32::try_from(now.as_secs()).unwrap_or(u32::MAX));
        let stop = request
            .position
            .as_ref()
            .map_or(now, |position| position.stop)
            .min(now);
        let seconds = |ms: i64| u32::try_from(ms.max(0) / 1000).unwrap_or(u32::MAX);
        let start = seconds(request.range_ms.0.saturating_add(999));
        let range = (start, seconds(request.range_ms.1).min(stop).max(start));
        let plan = BuildPlan::new(
            storage.rollups.as_deref(),
            range,
            &request.intervals,
            storage.layout,
        )?;
        Ok(plan)
    }

    /// Builds, and reports each step. Ends early if the receiver is dropped.
    ///
    /// # Errors
    ///
    /// [`BuildError`]; all reported steps are durable.
    pub async fn build(
        &self,
        request: BuildRequest,
        context: RequestContext,
        sender: &mpsc::Sender<BuildProgress>,
    ) -> Result<BuildProgress, BuildError> {
        let mut plan = self.plan(&request)?;
        plan.raw_tag = self.raw_tag(&context).await?;
        let memory = self
            .engine
            .resources()
            .memory
            .reserve(BUILD_BYTES, MEMORY_WAIT)
            .await;
        let mut build = Build {
            builder: self,
            plan: Arc::new(plan),
            context,
            progress: BuildProgress::default(),
            fingerprint: position::fingerprint(&request),
            sender,
            skips: request.skips_unreadable.then(SkipLog::default),
            _memory: memory.map_err(QueryError::from)?,
        };
        tokio::select! {
            built = build.run(&request) => built?,
            () = sender.closed() => return Err(BuildError::Gone),
        }
        build.progress.skipped = build.skips.as_ref().map(SkipLog::skipped).unwrap_or_default();
        Ok(build.progress)
    }

    /// The tag that rollups of single series get.
    async fn raw_tag(
        &self,
        context: &RequestContext,
    ) -> Result<Option<(oxtsdb_schema::TagkUid, oxtsdb_schema::TagvUid)>, BuildError> {
        let rules = self
            .engine
            .storage()
            .rollups
            .as_ref()
            .map(|rollups| rollups.rules());
        let Some(rules) = rules.filter(|rules| rules.tag_raw) else {
            return Ok(None);
        };
        let names = [
            (UidKind::Tagk, rules.aggregate_tag.as_str()),
            (UidKind::Tagv, rules.raw_value.as_str()),
        ];
        let key = |index| (index == 1).then_some(rules.aggregate_tag.as_str());
        let uids = self.uids.assign_for(&names, key, context.deadline).await?;
        let mut resolved = Vec::with_capacity(names.len());
        for ((_, name), uid) in names.iter().zip(uids) {
            resolved.push(uid.map_err(|reason| BuildError::Tag {
                name: (*name).to_owned(),
                reason: reason.to_string(),
            })?);
        }
        match resolved.as_slice() {
            [tagk, tagv] => Ok(Some(((*tagk).into(), (*tagv).into()))),
            _ => Err(BuildError::Internal("a UID is missing".to_owned())),
        }
    }
}

impl Build<'_> {
    async fn run(&mut self, request: &BuildRequest) -> Result<(), BuildError> {
        let storage = self.builder.engine.storage();
        let all = metrics::find(storage, request.metric.as_deref(), self.context.deadline).await?;
        let catalogue = storage.reader.columns().cloned();
        let length = catalogue.as_ref().map_or(ROWS_CHUNK, |_| COLUMNS_CHUNK);
        let chunks = self.plan.chunks_before(u32::MAX, length);
        self.progress.chunks = (0, chunks * all.len() as u64);
        let mut position = request.position.clone();
        for (index, metric) in all.iter().enumerate() {
            if position
                .as_ref()
                .is_some_and(|position| *metric < position.metric)
            {
                continue;
            }
            let resumed = position.take().filter(|position| position.metric == *metric);
            self.progress.metric = metrics::name(storage, *metric, self.context.deadline).await?;
            let (mut from, mut after) = (self.plan.range.0, None);
            if let Some(position) = resumed {
                (from, after) = (position.chunk, position.after);
            }
            while let Some(chunk) = self.plan.chunk(from, length) {
                self.progress.chunks.0 = index as u64 * chunks + self.plan.chunks_before(chunk.0, length);
                match &catalogue {
                    Some(points) => self.columns(points, *metric, chunk, after.take()).await?,
                    None => self.rows_of_chunk(*metric, chunk).await?,
                }
                from = chunk.1;
                self.progress.chunks.0 = index as u64 * chunks + self.plan.chunks_before(from, length);
                self.report(*metric, from, None).await?;
            }
        }
        self.progress.chunks.0 = self.progress.chunks.1;
        Ok(())
    }

    /// Reports what is done.
    async fn report(
        &mut self,
        metric: MetricUid,
        chunk: u32,
        after: Option<Vec<u8>>,
    ) -> Result<(), BuildError> {
        self.progress.position = Some(Position {
            fingerprint: self.fingerprint,
            stop: self.plan.range.1,
            metric,
            chunk,
            after,
        });
        // A caller that reads nothing must not keep the memory of a build.
        let patience = self.builder.engine.resources().client_timeout;
        let sent = self.sender.send_timeout(self.progress.clone(), patience).await;
        sent.map_err(|_| BuildError::Gone)?;
        if self.builder.shutdown.is_draining() {
            return Err(BuildError::Draining);
        }
        Ok(())
    }

    fn description(&self, (start, stop): (u32, u32)) -> QueryDescription {
        QueryDescription {
            sub_queries: vec![format!("rollup:{}", self.progress.metric)],
            range_ms: (i64::from(start) * 1000, i64::from(stop) * 1000 - 1),
        }
    }

    /// Leaves out what failed because of stored data, if the build goes on without it.
    fn or_skip<T: Default>(&self, built: Result<T, BuildError>) -> Result<T, BuildError> {
        match (&self.skips, built) {
            (Some(skips), Err(error)) if is_of_data(&error) => {
                skips.add(&format!("metric `{}`: {error}", self.progress.metric));
                Ok(T::default())
            }
            (_, built) => built,
        }
    }

    /// Builds a chunk of a metric with points in columns, series by series in the order of their TSUIDs.
    async fn columns(
        &mut self,
        points: &Arc<dyn PointStore>,
        metric: MetricUid,
        chunk: (u32, u32),
        after: Option<Vec<u8>>,
    ) -> Result<(), BuildError> {
        let engine = self.builder.engine.clone();
        let Some(seconds) = self.plan.points_of(chunk) else {
            return Ok(());
        };
        let listed = Arc::clone(points);
        let list = move || {
            let mut series = listed.metric_series(metric.as_bytes());
            if let Some(after) = after {
                let mut key = Vec::new();
                let done = series.partition_point(|series| listed.key(*series, &mut key) && key <= after);
                series.drain(..done);
            }
            let shape = columns::Shape::from_estimate(&*listed, &series, seconds);
            (series, shape)
        };
        let listed = engine.resources().compute.run(list).await;
        let (series, shape) = listed.map_err(|panicked| BuildError::Internal(panicked.to_string()))?;
        let steps = series.chunks(shape.series * STEP_JOBS);
        let count = steps.len();
        for (index, step) in steps.enumerate() {
            let admitted = engine
                .admit(self.context, self.description(seconds), None)
                .await?;
            let context = admitted.context().clone();
            let built = context.run(self.columns_step(points, step, chunk, shape)).await;
            let (points_read, cells) = self.or_skip(built)?;
            self.progress.points += points_read;
            self.progress.cells.add(cells);
            drop(admitted);
            if let Some(last) = step.last().filter(|_| index + 1 < count) {
                let mut key = Vec::new();
                points.key(*last, &mut key);
                self.report(metric, chunk.0, Some(key)).await?;
            }
        }
        Ok(())
    }

    async fn columns_step(
        &self,
        points: &Arc<dyn PointStore>,
        series: &[oxtsdb_point_store::SeriesNumber],
        chunk: (u32, u32),
        shape: columns::Shape,
    ) -> Result<(u64, WrittenCells), BuildError> {
        let storage = self.builder.engine.storage();
        let compute = &self.builder.engine.resources().compute;
        let jobs: Vec<Vec<_>> = series.chunks(shape.series).map(<[_]>::to_vec).collect();
        let jobs = stream::iter(jobs).map(|series| {
            let (points, table) = (Arc::clone(points), storage.table.clone());
            let (plan, skips) = (Arc::clone(&self.plan), self.skips.clone());
            let read =
                move || columns::build(&points, &table, &series, &plan, (chunk, shape), skips.as_ref());
            compute.run(read)
        });
        let mut jobs = jobs.buffered(CONCURRENT_JOBS);
        let (mut read, mut cells, mut pending) = (0, WrittenCells::default(), Pending::default());
        while let Some(built) = jobs.next().await {
            let (rows, points) = built.map_err(|panicked| BuildError::Internal(panicked.to_string()))??;
            read += points;
            pending.add(rows);
            if pending.bytes >= WRITE_BYTES {
                cells.add(self.write(&mut pending).await?);
            }
        }
        cells.add(self.write(&mut pending).await?);
        Ok((read, cells))
    }

    /// Builds a chunk of a metric with points in rows. Rows that cannot be decoded are left out one by one; if a scan
    /// fails for good, the rest of the chunk is left out.
    async fn rows_of_chunk(&mut self, metric: MetricUid, chunk: (u32, u32)) -> Result<(), BuildError> {
        let mut pending = Pending::default();
        let built = self.rows(metric, chunk, &mut pending).await;
        self.or_skip(built)?;
        let cells = self.write(&mut pending).await?;
        self.progress.cells.add(cells);
        Ok(())
    }

    /// Builds a chunk hour by hour. `pending` gets whole windows.
    async fn rows(
        &mut self,
        metric: MetricUid,
        chunk: (u32, u32),
        pending: &mut Pending,
    ) -> Result<(), BuildError> {
        let Some((start, stop)) = self.plan.points_of(chunk) else {
            return Ok(());
        };
        let engine = self.builder.engine.clone();
        let mut open = rows::OpenSeries::new(chunk, engine.resources().memory.empty_reservation());
        let mut hour = BaseTime::from_seconds(start);
        while hour.seconds() < stop {
            let hours = Hours {
                start: hour,
                stop_seconds: u64::from(hour.seconds()) + u64::from(HOUR_SECONDS),
            };
            let seconds = (hour.seconds(), hour.seconds().saturating_add(HOUR_SECONDS));
            let admitted = engine
                .admit(self.context, self.description(seconds), None)
                .await?;
            let context = admitted.context().clone();
            let step = self.rows_step(&admitted, metric, hours, open, pending);
            let (next, read, cells) = context.run(step).await?;
            open = next;
            self.progress.points += read;
            self.progress.cells.add(cells);
            drop(admitted);
            if self.builder.shutdown.is_draining() {
                return Err(BuildError::Draining);
            }
            match hour.next_hour() {
                next if next > hour => hour = next,
                _ => break,
            }
        }
        pending.add(open.advance(&self.plan, i64::MAX));
        Ok(())
    }

    async fn rows_step(
        &self,
        admitted: &oxtsdb_query::Admitted,
        metric: MetricUid,
        hours: Hours,
        mut open: rows::OpenSeries,
        pending: &mut Pending,
    ) -> Result<(rows::OpenSeries, u64, WrittenCells), BuildError> {
        let (engine, plan) = (&self.builder.engine, &self.plan);
        let (storage, compute) = (engine.storage(), &engine.resources().compute);
        let until_ms = hours.stop_ms();
        let (mut read, mut cells) = (0, WrittenCells::default());
        for (start, stop) in hours.ranges(&plan.layout, metric) {
            let mut scan = Scan::range(start, stop);
            scan.columns = ColumnSelection::Family(String::from_utf8_lossy(FAMILY).into_owned());
            scan.any_order = true;
            let mut batches = storage.store.scan(&storage.table, scan).await?;
            while let Some(rows) = batches.try_next().await? {
                let batch = RowBatch::new(rows, admitted.budget())?;
                let (plan, skips) = (Arc::clone(plan), self.skips.clone());
                let job = compute.run(move || {
                    let built = open.add(&batch, &plan, until_ms, skips.as_ref());
                    (open, built)
                });
                let built;
                (open, built) = job
                    .await
                    .map_err(|panicked| BuildError::Internal(panicked.to_string()))?;
                let built = built?;
                read += built.points;
                pending.add(built.rows);
                if pending.bytes >= WRITE_BYTES {
                    cells.add(self.write(pending).await?);
                }
            }
        }
        let plan = Arc::clone(plan);
        let job = compute.run(move || {
            let rows = open.advance(&plan, until_ms);
            (open, rows)
        });
        let rows;
        (open, rows) = job
            .await
            .map_err(|panicked| BuildError::Internal(panicked.to_string()))?;
        pending.add(rows);
        Ok((open, read, cells))
    }

    async fn write(&self, pending: &mut Pending) -> Result<WrittenCells, BuildError> {
        let engine = &self.builder.engine;
        let rows = std::mem::take(pending).rows;
        let _one_at_a_time = self.builder.shared.writes.lock().await;
        cells::write(
            &*engine.storage().store,
            &engine.resources().compute,
            &self.plan,
            rows,
        )
        .await
    }
}

/// Rows that are not written yet.
#[derive(Debug, Default)]
struct Pending {
    rows: Vec<BuiltRow>,
    bytes: usize,
}

impl Pending {
    fn add(&mut self, mut rows: Vec<BuiltRow>) {
        self.bytes += rows.iter().map(BuiltRow::byte_len).sum::<usize>();
        self.rows.append(&mut rows);
    }
}
