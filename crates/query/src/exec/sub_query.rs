//! The execution of one sub-query: scan, group, aggregate, send.
//!
//! Most sub-queries fit in memory and are aggregated after the scan. If a sub-query exceeds the emit threshold,
//! it reads the extents of the remaining series and switches to incremental aggregation: after each time slice
//! it emits all results up to the watermark and frees them.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures::stream::{self, StreamExt as _};
use oxtsdb_row_store::DamageLog;
use oxtsdb_schema::{Annotation, BaseTime};

use crate::annotation;
use crate::context::budget::POINT_BYTES;
use crate::context::query_context::QueryContext;
use crate::error::QueryError;
use crate::exec::collect::Collector;
use crate::exec::environment::Environment;
use crate::exec::extents::SeriesExtents;
use crate::exec::frame::{Frame, Group};
use crate::exec::group::{Grouping, SeriesGroup, group};
use crate::exec::group_names::{GroupPlace, named_group, uids_of};
use crate::exec::group_task::{AggregationContext, GroupTask, batches};
use crate::exec::incremental::IncrementalAggregator;
use crate::exec::output::FrameOutput;
use crate::exec::scan::columns::ColumnSource;
use crate::exec::scan::{self, ScanItem};
use crate::exec::series_builder::SeriesOptions;
use crate::exec::series_points::SeriesPoints;
use crate::function::rate::Rater;
use crate::names::Names;
use crate::plan::access_path::AccessPath;
use crate::plan::hours::Hours;
use crate::plan::lookahead::Lookahead;
use crate::plan::query_plan::Plan;
use crate::points::Points;
use crate::spec::{QuerySpec, SubQuery};
use crate::storage::PointStorage;

/// Batches of group tasks that are computed at a time.
const BATCHES_AT_A_TIME: usize = 2;

/// From so many series on they are grouped in the computation pool.
const MANY_SERIES: usize = 4096;

/// A running sub-query.
pub(super) struct SubQueryExecution<'a> {
    environment: &'a Environment,
    context: &'a QueryContext,
    query: &'a QuerySpec,
    sub_query: &'a SubQuery,
    /// Its number in the query.
    index: usize,
    plan: &'a Plan,
    grouping: Grouping,
    can_emit_early: bool,
    aggregation: Arc<AggregationContext>,
    /// Number of its first group in the result.
    first_group: usize,
    /// Set once results were emitted before the scan ended.
    incremental: Option<IncrementalAggregator>,
    /// The damage that was skipped, if the query may skip any.
    skip_damaged: Option<DamageLog>,
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
        Self {
            environment,
            context,
            query,
            sub_query,
            index,
            plan,
            grouping: if sub_query.aggregator.is_none() {
                Grouping::Each
            } else {
                Grouping::ByTags(plan.group_by.as_slice().into())
            },
            can_emit_early: can_emit_early(query, sub_query, plan),
            aggregation: Arc::new(AggregationContext::new(
                query,
                sub_query,
                &plan.hours,
                context,
                environment.resources.compute.clone(),
            )),
            first_group: 0,
            incremental: None,
            skip_damaged: query.skip_damaged_rows.then(DamageLog::default),
        }
    }

    /// Runs it and sends its frames.
    pub(super) async fn run(mut self, output: &mut FrameOutput<'_>) -> Result<(), QueryError> {
        self.first_group = output.groups;
        let columns = self.columns();
        let mut collector = Collector::new(
            self.series_options(),
            self.context.budget().clone(),
            self.environment.resources.compute.clone(),
            columns.as_ref().map(|(_, columns)| columns.clone()),
        );
        self.scan(columns, &mut collector, output).await?;
        let (series, counted) = collector.finish().await?;
        self.environment
            .skipped_cells
            .fetch_add(counted.skipped_cells, Ordering::Relaxed);
        output.statistics.add_read(counted);
        if let Some(damage) = &self.skip_damaged {
            let layout = &self.environment.storage.layout;
            output.statistics.add_damage(damage, layout, &self.plan.hours);
        }
        let (tasks, names) = match self.incremental.take() {
            Some(mut incremental) => {
                incremental.add(series, self.context.budget())?;
                let tasks: Vec<GroupTask> = incremental.finish().collect();
                self.send_annotations(output, &tasks).await?;
                (tasks, None)
            }
            None => {
                let groups = self.group(series).await?;
                output.groups += groups.len();
                let names = self.names_of(&groups).await?;
                (whole(groups), Some(names))
            }
        };
        let budget = self.context.budget();
        let done = |task: GroupTask| budget.release_series(task.group.held_bytes());
        self.aggregate(output, tasks, names.as_ref(), done).await?;
        // What series take beside their points.
        budget.release_all_series();
        let groups = output.groups - self.first_group;
        let query = self.index;
        output.send(Frame::Done { query, groups }).await
    }

    fn series_options(&self) -> SeriesOptions {
        SeriesOptions {
            layout: self.environment.storage.layout,
            duplicates: self.query.duplicates,
            skip_damaged_rows: self.query.skip_damaged_rows,
            begins_until_ms: self.plan.begins_until_ms,
            downsample: self.plan.downsample.clone(),
            rate: self.sub_query.rate.map(|rate| {
                let from_epoch = self.query.quirks.rates_begin_at_the_epoch;
                Rater::new(rate, from_epoch.then(|| self.plan.hours.start.millis()))
            }),
            annotations: self.query.annotations.of_series,
            names_without_points: !self.query.quirks.series_without_points_have_no_names,
        }
    }

    /// The columns that the plan reads.
    fn columns(&self) -> Option<(&'a PointStorage, ColumnSource)> {
        let points = self.environment.storage.points.as_ref()?;
        let AccessPath::Columns(series) = &self.plan.access_path else {
            return None;
        };
        let (storage, skip_damaged) = (&self.environment.storage, self.skip_damaged.as_ref());
        let windows = self.plan.downsample.as_ref().map(|(windows, _)| windows);
        let lookahead = Lookahead::of(self.query, self.sub_query, windows);
        let source = ColumnSource::of(storage, points, self.plan, series, lookahead, skip_damaged);
        Some((points, source))
    }

    /// Scans the columns or rows of the plan, and emits final results whenever too many points are in memory.
    async fn scan(
        &mut self,
        columns: Option<(&PointStorage, ColumnSource)>,
        collector: &mut Collector,
        output: &mut FrameOutput<'_>,
    ) -> Result<(), QueryError> {
        let (storage, budget) = (&self.environment.storage, self.context.budget());
        let skip_damaged = self.skip_damaged.as_ref();
        let mut items = match &columns {
            Some((points, source)) => {
                let slice_bytes = self.slice_bytes();
                scan::columns::items(
                    storage,
                    points,
                    self.plan,
                    source,
                    slice_bytes,
                    budget,
                    skip_damaged,
                )
            }
            None => scan::rows(storage, self.plan, budget, skip_damaged),
        };
        while let Some(item) = items.next().await {
            match item? {
                ScanItem::Columns(range) => collector.read(range).await?,
                ScanItem::Rows(mut rows) => {
                    budget.use_rows(rows.len() as u64, rows.byte_len())?;
                    self.plan
                        .selection
                        .resolve_and_filter(rows.rows_mut(), &*storage.directory, self.context.deadline())
                        .await?;
                    collector.add(rows).await?;
                }
                ScanItem::Watermark(until_ms) => {
                    if !self.can_emit_early || until_ms >= self.plan.hours.stop_ms() {
                        continue;
                    }
                    collector.barrier().await?;
                    if budget.series_bytes() >= self.emit_threshold_bytes() {
                        self.emit_final(collector, output, until_ms).await?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Bytes of series from which on results are emitted: early enough for the next slice to fit.
    fn emit_threshold_bytes(&self) -> u64 {
        let quarter = self.context.budget().limits().memory.most / 4;
        (self.environment.emit_threshold * POINT_BYTES).min(quarter)
    }

    /// Bytes of a slice of columns. A query that fits into one slice emits nothing before its end.
    fn slice_bytes(&self) -> u64 {
        let eighth = self.context.budget().limits().memory.most / 8;
        (self.environment.emit_threshold * POINT_BYTES * 4).min(eighth)
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
        let series = collector.take(final_until_ms).await?;
        let mut incremental = match self.incremental.take() {
            Some(mut incremental) => {
                incremental.add(series, self.context.budget())?;
                incremental
            }
            None => {
                self.start_incremental(collector, output, series, (watermark_ms, final_until_ms))
                    .await?
            }
        };
        let tasks = incremental.take_final(final_until_ms);
        let budget = self.context.budget();
        let put_back = |task| budget.release_series(incremental.put_back(task));
        self.aggregate(output, tasks, None, put_back).await?;
        self.incremental = Some(incremental);
        Ok(())
    }

    /// Reads the extents of the remaining series, and sends all groups without points.
    async fn start_incremental(
        &self,
        collector: &mut Collector,
        output: &mut FrameOutput<'_>,
        series: Vec<SeriesPoints>,
        (watermark_ms, final_until_ms): (i64, i64),
    ) -> Result<IncrementalAggregator, QueryError> {
        let storage = &self.environment.storage;
        let seconds = u32::try_from(watermark_ms / 1000).unwrap_or(u32::MAX);
        let rest = Hours {
            start: BaseTime::of_seconds(seconds),
            ..self.plan.hours
        };
        let extents = SeriesExtents::scan(storage, self.plan, rest, self.context, self.skip_damaged.as_ref());
        let mut extents = extents.await?;
        extents.add_read(&series, watermark_ms);
        let extents = Arc::new(extents);
        collector.expect(&extents).await?;
        let groups = self.group(extents.with_series(series)).await?;
        output.groups += groups.len();
        let names = self.names_of(&groups).await?;
        for (index, group) in groups.iter().enumerate() {
            let head = named_group(&names, self.place(index), group, &storage.layout.widths)?;
            output.send(Frame::Group(head)).await?;
        }
        let mut incremental = IncrementalAggregator::new(groups, extents);
        // The series that were not read yet have windows by now, if there is a fill policy.
        let filled = collector.take(final_until_ms).await?;
        incremental.add(filled, self.context.budget())?;
        Ok(incremental)
    }

    /// Aggregates groups and sends their points, in their order; with names as whole groups.
    async fn aggregate(
        &self,
        output: &mut FrameOutput<'_>,
        tasks: Vec<GroupTask>,
        names: Option<&Names>,
        mut done: impl FnMut(GroupTask),
    ) -> Result<(), QueryError> {
        let mut computed = stream::iter(batches(tasks))
            .map(|batch| Arc::clone(&self.aggregation).run(batch))
            .buffered(BATCHES_AT_A_TIME);
        while let Some(batch) = computed.next().await {
            for mut task in batch? {
                let points = std::mem::take(&mut task.points);
                let held = task.held.take();
                output.statistics.points_sent += points.len() as u64;
                let place = self.place(task.index);
                let frame = match names {
                    None => Frame::More {
                        number: place.number,
                        points,
                    },
                    Some(names) => {
                        let widths = &self.environment.storage.layout.widths;
                        let head = named_group(names, place, &task.group, widths)?;
                        Frame::Group(Group {
                            is_whole: true,
                            annotations: self.annotations_of(&task.group),
                            points,
                            ..head
                        })
                    }
                };
                output.send_held(frame, held).await?;
                done(task);
            }
        }
        Ok(())
    }

    /// Sends the annotations of groups whose points were emitted before the scan ended.
    async fn send_annotations(
        &self,
        output: &mut FrameOutput<'_>,
        tasks: &[GroupTask],
    ) -> Result<(), QueryError> {
        for task in tasks {
            if let Some(annotations) = self.annotations_of(&task.group) {
                let number = self.place(task.index).number;
                output.send(Frame::Annotations { number, annotations }).await?;
            }
        }
        Ok(())
    }

    /// The annotations of a group that begin in the range of the query.
    fn annotations_of(&self, group: &SeriesGroup) -> Option<Vec<Arc<Annotation>>> {
        let range_ms = (self.query.start_ms, self.query.end_ms);
        annotation::of_group(group.series.iter(), range_ms, self.query.quirks)
    }

    /// Where one of its groups is in the result.
    fn place(&self, index: usize) -> GroupPlace<'_> {
        GroupPlace {
            number: self.first_group + index,
            query: self.index,
            metric: self.plan.metric.as_ref(),
        }
    }

    /// Resolves the names of groups.
    async fn names_of(&self, groups: &[SeriesGroup]) -> Result<Names, QueryError> {
        let storage = &self.environment.storage;
        let uids = uids_of(groups, &storage.layout.widths);
        Names::of_uids(uids, &*storage.directory, self.context.deadline()).await
    }

    /// Groups series.
    async fn group(&self, series: Vec<SeriesPoints>) -> Result<Vec<SeriesGroup>, QueryError> {
        let widths = self.environment.storage.layout.widths;
        if series.len() < MANY_SERIES {
            return Ok(group(series, &self.grouping, &widths));
        }
        let grouping = self.grouping.clone();
        let compute = &self.environment.resources.compute;
        Ok(compute.run(move || group(series, &grouping, &widths)).await?)
    }
}

/// Whether results can be emitted before the scan ends: not with one value for the whole range, nor with windows
/// that depend on each series, nor where a quirk lets series contribute before their first point. These need
/// the first point of every series.
fn can_emit_early(query: &QuerySpec, sub_query: &SubQuery, plan: &Plan) -> bool {
    let contributes_before_it_begins = match (sub_query.rate, &plan.downsample) {
        (Some(_), _) => query.quirks.rates_begin_at_the_epoch,
        // Downsampled values are never integers.
        (None, Some(_)) => false,
        (None, None) => query.quirks.floats_to_come_count,
    };
    let has_fixed_windows = plan
        .downsample
        .as_ref()
        .is_none_or(|(windows, _)| windows.final_until(0).is_some());
    !contributes_before_it_begins && has_fixed_windows
}

/// Tasks for groups whose points are complete.
fn whole(groups: Vec<SeriesGroup>) -> Vec<GroupTask> {
    let whole = |(index, group)| GroupTask {
        index,
        group,
        from_ms: i64::MIN,
        until_ms: i64::MAX,
        points: Points::default(),
        held: None,
    };
    groups.into_iter().enumerate().map(whole).collect()
}
