//! The execution of one sub-query: scan, group, aggregate, send.
//!
//! Most sub-queries fit in memory and are aggregated after the scan. If a sub-query exceeds the emit threshold,
//! it reads the extents of the remaining series, and from then on it aggregates after each time slice: it emits all
//! results up to the watermark, or keeps them if the client needs whole groups, and frees the points.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use crate::SPANS;
use futures::stream::{self, BoxStream, StreamExt as _};
use oxtsdb_point_store::TimeRange;
use oxtsdb_resources::ComputePool;
use oxtsdb_row_store::DamageLog;
use oxtsdb_schema::BaseTime;
use tracing::{Instrument as _, info_span};

use crate::context::budget::{Held, POINT_BYTES, SERIES_BYTES};
use crate::context::demand::Demand;
use crate::context::query_context::QueryContext;
use crate::context::resource::Resource;
use crate::error::QueryError;
use crate::exec::aggregation::AggregationContext;
use crate::exec::batches::{self, Batch};
use crate::exec::collect::Collector;
use crate::exec::encoded::ResultForm;
use crate::exec::environment::Environment;
use crate::exec::extents::SeriesExtents;
use crate::exec::filled_result::{FilledResult, Holds};
use crate::exec::frame::Frame;
use crate::exec::group::Grouping;
use crate::exec::group_frames::{GroupFrames, uids_of};
use crate::exec::group_task;
use crate::exec::incremental::{IncrementalAggregator, PointsToCome};
use crate::exec::output::FrameOutput;
use crate::exec::series_builder::{RollupSource, SeriesOptions};
use crate::exec::series_points::SeriesPoints;
use crate::exec::statistics::RollupUse;
use crate::function::rate::Rater;
use crate::names::Names;
use crate::plan::hours::Hours;
use crate::plan::lookahead::Lookahead;
use crate::plan::query_plan::Plan;
use crate::reader::access_path::{AccessPath, PathMemory, PointScan, ScanRequest};
use crate::reader::scan::ScanItem;
use crate::spec::{QuerySpec, SubQuery};
use crate::storage::Storage;

/// Batches of group tasks that are computed at a time.
const BATCHES_AT_A_TIME: usize = 2;

/// Memory of a row of points, at most: an hour with a point a second.
const ROW_BYTES: u64 = 3600 * POINT_BYTES;

/// An estimate that exceeds a limit by this factor is certain to exceed it. Points that were written several times count several times
/// until their files are merged.
const CERTAINLY_TOO_LARGE: u64 = 2;

/// Memory for points in time slices, at least.
const LEAST_FOR_SLICES: u64 = 256 << 10;

/// Batches of groups that would fit into the memory of a query: estimates may be too low, and results are beside the points.
const BATCHES_OF_MEMORY: u64 = 4;

/// Number of series from which a step over all of them is taken in the computation pool.
const MANY_SERIES: usize = 4096;

/// A running sub-query.
pub(super) struct SubQueryExecution<'a> {
    environment: &'a Environment,
    context: &'a QueryContext,
    query: &'a QuerySpec,
    sub_query: &'a SubQuery,
    /// The storage of the table that is read.
    storage: &'a Storage,
    /// Its number in the query.
    index: usize,
    plan: &'a Plan,
    /// The path of the plan, or to the batch of groups that is read.
    access_path: Arc<dyn AccessPath>,
    is_one_group: bool,
    can_emit_early: bool,
    /// The estimated memory of the points of the path; of histograms it is not known.
    memory: PathMemory,
    /// `None` until the series are known.
    groups: Option<Groups>,
    /// The damage that was skipped, if the query may skip any.
    skip_damaged: Option<DamageLog>,
}

/// The groups of a sub-query, and how they are aggregated.
struct Groups {
    aggregator: IncrementalAggregator,
    aggregation: Arc<AggregationContext>,
}

impl<'a> SubQueryExecution<'a> {
    /// A sub-query, with its number in the query.
    pub(super) fn new(
        environment: &'a Environment,
        context: &'a QueryContext,
        query: &'a QuerySpec,
        (index, sub_query): (usize, &'a SubQuery),
        plan: &'a Plan,
    ) -> Self {
        let mut execution = Self {
            environment,
            context,
            query,
            can_emit_early: false,
            memory: PathMemory::Unknown,
            sub_query,
            storage: plan.storage(&environment.storage),
            index,
            plan,
            access_path: Arc::clone(&plan.access_path),
            is_one_group: plan.group_by.is_empty() && !sub_query.aggregator.is_none(),
            groups: None,
            skip_damaged: query.skip_damaged_rows.then(DamageLog::default),
        };
        if sub_query.histogram.is_none() {
            execution.can_emit_early = execution.can_emit_early();
            execution.memory = plan.access_path.memory(plan.downsample.as_ref());
        }
        execution
    }

    /// The memory that it needs.
    ///
    /// # Errors
    ///
    /// [`QueryError::NeverFits`].
    pub(super) fn demand(&self, form: &ResultForm) -> Result<Demand, QueryError> {
        let (series, points) = match self.memory {
            PathMemory::Columns {
                series,
                points,
                likely_points,
                ..
            } => (bytes_of_series(series, likely_points), points),
            PathMemory::Rows(rows) => {
                return Ok(Demand {
                    fixed: 0,
                    whole: Some(rows.saturating_mul(ROW_BYTES)),
                });
            }
            PathMemory::Unknown => {
                return Ok(Demand {
                    fixed: 0,
                    whole: None,
                });
            }
        };
        let whole = bytes_of_columns(self.memory);
        if self.is_cut_into_slices(form) {
            // The extents of the series, too.
            return Ok(Demand {
                fixed: (2 * series).min(whole),
                whole: Some(whole),
            });
        }
        if self.is_cut_into_batches(form) {
            // Batches are as large as its memory: few of them read the same blocks.
            let most = self.context.budget().limits().memory.most;
            return Ok(Demand {
                fixed: most,
                whole: Some(most),
            });
        }
        self.check_fits(points)?;
        Ok(Demand {
            fixed: whole,
            whole: Some(whole),
        })
    }

    /// Rejects points that have to be held together, and are certain to exceed the limit of memory.
    fn check_fits(&self, points: u64) -> Result<(), QueryError> {
        let (limit, is_raw) = (
            self.context.budget().limits().memory,
            self.plan.downsample.is_none(),
        );
        let bytes = points.saturating_mul(POINT_BYTES);
        if is_raw && bytes / CERTAINLY_TOO_LARGE > limit.most {
            return Err(QueryError::NeverFits { points, bytes, limit });
        }
        Ok(())
    }

    /// Whether time slices bound its memory: not if the results of its groups may be as large as their points and are
    /// kept until the last one.
    fn is_cut_into_slices(&self, form: &ResultForm) -> bool {
        self.can_emit_early && (form.is_early() || self.is_one_group)
    }

    /// Whether batches of groups bound its memory: if it needs more than it may have, and groups are sent one after the
    /// other.
    fn is_cut_into_batches(&self, form: &ResultForm) -> bool {
        !matches!(form, ResultForm::WholeGroups)
            && !self.is_one_group
            && !self.is_cut_into_slices(form)
            && bytes_of_columns(self.memory) > self.context.budget().limits().memory.most
            && self.plan.access_path.has_only_columns()
    }

    /// The batches of a sub-query that is cut into them, and the memory of their lists.
    async fn batches(&self) -> Result<(Vec<Batch>, Held), QueryError> {
        let (path, budget) = (Arc::clone(&self.plan.access_path), self.context.budget());
        let series = path.listed_series().unwrap_or_default();
        let mut held = budget.hold(series * batches::SERIES_BYTES)?;
        let (grouping, layout) = (self.grouping(), self.storage.layout);
        let downsample = self.plan.downsample.clone();
        let most = budget.limits().memory.most / BATCHES_OF_MEMORY;
        let cut = move || {
            let fits = |path: &dyn AccessPath| bytes_of_columns(path.memory(downsample.as_ref())) <= most;
            batches::cut(&path, &grouping, &layout, &fits)
        };
        let batches = self.compute().run(cut).await??;
        held.shrink_to(batches.iter().map(|batch| batch.path.byte_len()).sum());
        for batch in batches.iter().filter(|_| !self.can_emit_early) {
            if let PathMemory::Columns { points, .. } = batch.path.memory(self.plan.downsample.as_ref()) {
                self.check_fits(points)?;
            }
        }
        Ok((batches, held))
    }

    /// Runs it and sends its frames. Returns whether that was all of its result: not if there are no series, and another
    /// table is to be read in place of this one.
    pub(super) async fn run(mut self, output: &mut FrameOutput<'_>) -> Result<bool, QueryError> {
        self.check_result(&output.form).await?;
        let mut groups = 0;
        if self.is_cut_into_batches(&output.form) {
            let (batches, _held) = self.batches().await?;
            for batch in batches {
                self.memory = batch.path.memory(self.plan.downsample.as_ref());
                (self.access_path, self.is_one_group) = (batch.path, batch.is_one_group);
                groups += self.read_path(output).await?;
            }
        } else {
            groups = self.read_path(output).await?;
        }
        if let Some(damage) = &self.skip_damaged {
            let layout = &self.storage.layout;
            output.statistics.add_damage(damage, layout, &self.plan.hours);
        }
        let query = self.index;
        if groups == 0 && !self.plan.fallbacks.is_empty() {
            return Ok(false);
        }
        if let Some(rollup) = &self.plan.read.rollup {
            output.statistics.rollups.push(RollupUse {
                query,
                interval: rollup.interval.name().into(),
                table: self.storage.table.to_string().into(),
            });
        }
        output.send(Frame::Done { query, groups }).await?;
        Ok(true)
    }

    /// Reads a path and sends its groups. Returns how many there are.
    async fn read_path(&mut self, output: &mut FrameOutput<'_>) -> Result<usize, QueryError> {
        let begun = Instant::now();
        self.groups = None;
        let PointScan { columns, items } = self.open_scan(&output.form);
        let (budget, compute) = (self.context.budget(), self.compute());
        let mut collector = Collector::new(self.series_options(), budget.clone(), compute, columns);
        let span = info_span!(target: SPANS, "scan", sub_query = self.index);
        let scanning = async {
            self.scan(items, &mut collector, output).await?;
            collector.finish().await
        };
        let (mut series, counted) = scanning.instrument(span).await?;
        self.environment.totals.scan.observe_since(begun);
        let begun = Instant::now();
        self.environment
            .skipped_cells
            .fetch_add(counted.skipped_cells, Ordering::Relaxed);
        output.statistics.add_read(counted);
        let span = info_span!(target: SPANS, "aggregate", sub_query = self.index);
        let aggregating = async {
            if self.groups.is_none() {
                let series = std::mem::take(&mut series);
                self.groups = Some(self.group(series, None, output).await?);
            }
            self.aggregate(series, None, output).await
        };
        let groups = aggregating.instrument(span).await?;
        self.environment.totals.aggregate.observe_since(begun);
        // Releases the memory of series beside their points.
        budget.release_all_series();
        Ok(groups)
    }

    /// The computation threads, for jobs of the query.
    fn compute(&self) -> ComputePool {
        self.context.compute(&self.environment.resources.compute)
    }

    fn grouping(&self) -> Grouping {
        if self.sub_query.aggregator.is_none() {
            Grouping::Each
        } else {
            Grouping::ByTags(self.plan.group_by.as_slice().into())
        }
    }

    /// Rejects a result that is certain to exceed a limit.
    pub(super) async fn check_result(&self, form: &ResultForm) -> Result<(), QueryError> {
        let Some((windows, _)) = &self.plan.downsample else {
            return Ok(());
        };
        let result = FilledResult {
            windows: windows.filled_count(),
            returned: windows.filled_between(self.query.start_ms, self.query.end_ms),
            // Series that begin later do not count.
            range: TimeRange {
                first_ms: self.plan.hours.start.millis(),
                last_ms: self.plan.begins_until_ms.min(self.plan.hours.stop_ms() - 1),
            },
            grouping: self.grouping(),
            widths: self.storage.layout.widths,
            holds: if self.is_cut_into_batches(form) {
                Holds::Slice
            } else {
                match (self.can_emit_early, !form.is_early()) {
                    (false, _) => Holds::Series,
                    (true, true) => Holds::Groups,
                    (true, false) => Holds::Slice,
                }
            },
        };
        let (path, skip_damaged) = (&*self.plan.access_path, self.skip_damaged.as_ref());
        result
            .check(path, &self.compute(), self.context.budget(), skip_damaged)
            .await
    }

    fn series_options(&self) -> SeriesOptions {
        SeriesOptions {
            layout: self.storage.layout,
            rollup: self.plan.read.rollup.clone().map(|read| {
                let table = self.storage.table.to_string();
                Arc::new(RollupSource { read, table })
            }),
            duplicates: self.query.duplicates,
            skip_damaged_rows: self.query.skip_damaged_rows,
            begins_until_ms: self.plan.begins_until_ms,
            downsample: self
                .plan
                .downsample
                .clone()
                .map(|(windows, function)| (Arc::new(windows), function)),
            rate: self.sub_query.rate.map(|rate| {
                let from_epoch = self.query.quirks.rates_begin_at_the_epoch;
                Rater::new(rate, from_epoch.then(|| self.plan.hours.start.millis()))
            }),
            annotations: self.query.annotations.of_series,
            names_without_points: !self.query.quirks.series_without_points_have_no_names,
        }
    }

    /// The scan of the plan.
    fn open_scan(&self, form: &ResultForm) -> PointScan {
        let downsample = self.plan.downsample.as_ref();
        let windows = downsample.map(|(windows, _)| windows);
        self.access_path.scan(&ScanRequest {
            downsample,
            lookahead: Lookahead::for_sub_query(self.query, self.sub_query, windows),
            slice_bytes: self.slice_bytes(form),
            budget: self.context.budget(),
            skip_damaged: self.skip_damaged.as_ref(),
        })
    }

    /// Reads the items of the scan, and emits final results whenever too many points are in memory.
    async fn scan(
        &mut self,
        mut items: BoxStream<'static, Result<ScanItem, QueryError>>,
        collector: &mut Collector,
        output: &mut FrameOutput<'_>,
    ) -> Result<(), QueryError> {
        let (storage, budget) = (self.storage, self.context.budget());
        while let Some(item) = items.next().await {
            match item? {
                ScanItem::Columns(range) => collector.read(range).await?,
                ScanItem::Rows(mut rows) => {
                    budget.use_rows(rows.len() as u64, rows.byte_len())?;
                    self.plan
                        .selection()
                        .resolve_and_filter(rows.rows_mut(), &*storage.directory, self.context.deadline())
                        .await?;
                    collector.add(rows).await?;
                }
                ScanItem::Watermark(until_ms) => {
                    if !self.can_emit_early || until_ms >= self.plan.hours.stop_ms() {
                        continue;
                    }
                    collector.barrier().await?;
                    if budget.series_bytes() >= self.emit_threshold_bytes(&output.form) {
                        self.emit_final(collector, output, until_ms).await?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Bytes of series from which on results are emitted: early enough for the next slice to fit.
    fn emit_threshold_bytes(&self, form: &ResultForm) -> u64 {
        let quarter = self.context.budget().limits().memory.most / 4;
        let threshold = (self.environment.emit_threshold * POINT_BYTES).min(quarter);
        match self.bytes_for_slices(form) {
            Some(bytes) => threshold.min(bytes / 4),
            None => threshold,
        }
    }

    /// Bytes of a slice of columns. A query that fits into one slice emits nothing before its end.
    fn slice_bytes(&self, form: &ResultForm) -> u64 {
        let most = self.environment.emit_threshold * POINT_BYTES * 4;
        let eighth = self.context.budget().limits().memory.most / 8;
        match self.bytes_for_slices(form) {
            Some(bytes) => most.min(eighth).min(bytes / 8),
            None if self.can_emit_early && form.is_early() => most.min(eighth),
            // It has the memory for all of its points, and slices would take more time.
            None => u64::MAX,
        }
    }

    /// The reserved memory that is left for points in time slices, in bytes; `None`: it has all points at once.
    fn bytes_for_slices(&self, form: &ResultForm) -> Option<u64> {
        let reserved = self.context.budget().reserved_bytes();
        let demand = self.demand(form).ok()?;
        if demand.whole.is_some_and(|whole| whole <= reserved) {
            return None;
        }
        let series = self.access_path.listed_series().unwrap_or_default();
        let series = 2 * series * SERIES_BYTES;
        Some(reserved.saturating_sub(series).max(LEAST_FOR_SLICES))
    }

    /// Emits the results that are final once all rows before the watermark were read.
    async fn emit_final(
        &mut self,
        collector: &mut Collector,
        output: &mut FrameOutput<'_>,
        watermark_ms: i64,
    ) -> Result<(), QueryError> {
        let final_until_ms = match &self.plan.downsample {
            None => watermark_ms,
            Some((windows, _)) => match windows.final_until(watermark_ms) {
                Some(final_until_ms) => final_until_ms,
                None => return Ok(()),
            },
        };
        let mut series = collector.take(final_until_ms).await?;
        if self.groups.is_none() {
            let extents = self.extents(&series, watermark_ms).await?;
            collector.expect(&extents).await?;
            self.groups = Some(self.group(series, Some(extents), output).await?);
            // The series that were not read yet have windows by now, if there is a fill policy.
            series = collector.take(final_until_ms).await?;
        }
        self.aggregate(series, Some(final_until_ms), output)
            .await
            .map(drop)
    }

    /// The extents of all series; some were read up to the watermark.
    async fn extents(
        &self,
        series: &[SeriesPoints],
        watermark_ms: i64,
    ) -> Result<Arc<SeriesExtents>, QueryError> {
        let storage = self.storage;
        let seconds = u32::try_from(watermark_ms / 1000).unwrap_or(u32::MAX);
        let rest = Hours {
            start: BaseTime::from_seconds(seconds),
            ..self.plan.hours
        };
        let compute = &self.environment.resources.compute;
        let read_context = storage.read_context(compute, self.context);
        let (path, layout) = (&*self.access_path, &storage.layout);
        let skip_damaged = self.skip_damaged.as_ref();
        let extents = SeriesExtents::read(path, rest, layout, &read_context, skip_damaged);
        let mut extents = extents.await?;
        extents.add_read(series, watermark_ms);
        Ok(Arc::new(extents))
    }

    /// Groups series. With the extents of all series, which are there before the scan ends, the groups are sent without
    /// points, unless the client needs whole groups.
    async fn group(
        &self,
        series: Vec<SeriesPoints>,
        extents: Option<Arc<SeriesExtents>>,
        output: &mut FrameOutput<'_>,
    ) -> Result<Groups, QueryError> {
        let storage = self.storage;
        let is_early = extents.is_some() && output.form.is_early();
        let layout = storage.layout;
        let widths = layout.widths;
        let count = series.len() + extents.as_ref().map_or(0, |extents| extents.len());
        let (grouping, needs) = (self.grouping(), self.needs());
        let group = move || {
            let extents = extents.map(|extents| (extents, needs));
            let aggregator = IncrementalAggregator::new(series, extents, &grouping, &layout);
            let uids = uids_of(aggregator.groups(), &widths);
            (aggregator, uids)
        };
        let (aggregator, uids) = self.for_series(count, group).await?;
        let frames = GroupFrames {
            rollup: self
                .plan
                .read
                .rollup
                .as_ref()
                .map(|rollup| rollup.interval.name().into()),
            query: self.index,
            first_group: output.groups,
            metric: self.plan.metric.clone(),
            names: Names::resolve(uids, &*storage.directory, self.context).await?,
            widths,
            range_ms: (self.query.start_ms, self.query.end_ms),
            quirks: self.query.quirks,
            is_early,
            encoder: match &output.form {
                ResultForm::Encoded(encoder) => Some(Arc::clone(encoder)),
                ResultForm::Frames | ResultForm::WholeGroups => None,
            },
            global: output.global.as_ref().map(|(global, _)| Arc::clone(global)),
        };
        output.groups += aggregator.len();
        for (index, group) in aggregator.groups().enumerate().filter(|_| is_early) {
            output.send(Frame::Group(frames.head(index, group)?)).await?;
        }
        let compute = self.compute();
        let (query, plan) = (self.query, &self.plan);
        let aggregation = AggregationContext::new(query, self.sub_query, plan, self.context, compute, frames);
        Ok(Groups {
            aggregator,
            aggregation: Arc::new(aggregation),
        })
    }

    /// Adds later points of the series, aggregates the groups, and sends their frames in order. All points before
    /// `read_until_ms` were read then; `None`: all points. Returns how many groups there are.
    async fn aggregate(
        &mut self,
        series: Vec<SeriesPoints>,
        read_until_ms: Option<i64>,
        output: &mut FrameOutput<'_>,
    ) -> Result<usize, QueryError> {
        let Some(Groups {
            mut aggregator,
            aggregation,
        }) = self.groups.take()
        else {
            return Ok(0);
        };
        let budget = self.context.budget().clone();
        let advance = move || {
            aggregator.push(series, &budget)?;
            let tasks = match read_until_ms {
                Some(read_until_ms) => aggregator.advance(read_until_ms),
                None => aggregator.finish(),
            };
            Ok::<_, QueryError>((aggregator, group_task::batches(tasks)))
        };
        let count =
            usize::try_from(self.context.budget().usage().get(Resource::Series)).unwrap_or(usize::MAX);
        let (mut aggregator, batches) = self.for_series(count, advance).await??;
        let mut computed = stream::iter(batches)
            .map(|batch| Arc::clone(&aggregation).run(batch))
            .buffered(BATCHES_AT_A_TIME);
        while let Some(batch) = computed.next().await {
            for mut task in batch? {
                let mut held = task.held.take_if(|_| !task.frames.is_empty());
                for frame in task.frames.drain(..) {
                    output.statistics.points_sent += frame.point_count();
                    output.send_held(frame, held.take()).await?;
                }
                aggregator.put_back(task);
            }
        }
        drop(computed);
        let count = aggregator.len();
        self.groups = Some(Groups {
            aggregator,
            aggregation,
        });
        Ok(count)
    }

    /// Runs a job that takes a step for each series, in the computation pool if there are many.
    async fn for_series<T: Send + 'static>(
        &self,
        series: usize,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, QueryError> {
        if series < MANY_SERIES {
            return Ok(job());
        }
        Ok(self.compute().run(job).await?)
    }
}

/// Memory to read a path at once, in bytes; 0 if it reads no columns.
fn bytes_of_columns(memory: PathMemory) -> u64 {
    let PathMemory::Columns {
        series,
        likely_points,
        held_bytes,
        ..
    } = memory
    else {
        return 0;
    };
    let series = bytes_of_series(series, likely_points);
    held_bytes.saturating_add(held_bytes / 8).saturating_add(series)
}

/// Memory of listed series beside their points, in bytes. The catalogue has series without points in the range, too.
fn bytes_of_series(series: u64, likely_points: u64) -> u64 {
    likely_points.min(series) * SERIES_BYTES
}

impl SubQueryExecution<'_> {
    /// Whether results can be emitted before the scan ends: not with one value for the whole range, nor with windows
    /// that depend on each series: these need the first point of every series. Rows of rollups are longer than the hours
    /// that extents are made of.
    fn can_emit_early(&self) -> bool {
        let plan = self.plan;
        let has_fixed_windows = plan
            .downsample
            .as_ref()
            .is_none_or(|(windows, _)| windows.final_until(0).is_some());
        // Row keys do not say whether a series has points, or only annotations and so no type.
        let knows_types = || plan.access_path.has_only_columns();
        has_fixed_windows && plan.read.rollup.is_none() && (!self.needs().types || knows_types())
    }

    /// The later points that results depend on.
    fn needs(&self) -> PointsToCome {
        let (quirks, rates) = (&self.query.quirks, self.sub_query.rate.is_some());
        PointsToCome {
            types: quirks.floats_to_come_count && !rates && self.plan.downsample.is_none(),
            first: quirks.rates_begin_at_the_epoch && rates,
        }
    }
}
