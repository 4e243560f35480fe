//! Runs a sub-query of histograms.
//!
//! All histograms of its series, or the sums of their windows, are in memory before the first group is merged.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures::StreamExt as _;
use oxtsdb_resources::{ComputePool, yield_to_others};
use oxtsdb_row_store::DamageLog;

use super::HistogramResults;
use super::merge::{self, Timed};
use super::read::{ReadOptions, Reader};
use crate::annotation;
use crate::context::budget::Held;
use crate::context::query_context::QueryContext;
use crate::error::QueryError;
use crate::exec::encoded::ResultForm;
use crate::exec::environment::Environment;
use crate::exec::frame::{EncodedGroups, Frame, Group};
use crate::exec::group::{Grouping, SeriesGroup, group};
use crate::exec::group_frames::{GroupFrames, uids_of};
use crate::exec::output::FrameOutput;
use crate::exec::series_points::SeriesPoints;
use crate::function::downsample::{WindowLayout, Windows};
use crate::names::Names;
use crate::plan::query_plan::Plan;
use crate::points::Points;
use crate::reader::scan::ScanItem;
use crate::spec::{QuerySpec, SubQuery};

/// A running sub-query.
pub(crate) struct HistogramExecution<'a> {
    environment: &'a Environment,
    context: &'a QueryContext,
    query: &'a QuerySpec,
    sub_query: &'a SubQuery,
    results: &'a HistogramResults,
    /// Its number in the query.
    index: usize,
    plan: &'a Plan,
}

/// A group, with the histograms of its series.
type TimedGroup = (SeriesGroup, Vec<Vec<Timed>>);

/// Computes the results of groups of histograms.
#[derive(Debug)]
struct Computation {
    frames: GroupFrames,
    results: HistogramResults,
    context: QueryContext,
    /// The instants of the result.
    range_ms: (i64, i64),
}

impl<'a> HistogramExecution<'a> {
    /// A sub-query, with its number in the query.
    pub(crate) fn new(
        environment: &'a Environment,
        context: &'a QueryContext,
        query: &'a QuerySpec,
        (index, sub_query, results): (usize, &'a SubQuery, &'a HistogramResults),
        plan: &'a Plan,
    ) -> Self {
        Self {
            environment,
            context,
            query,
            sub_query,
            results,
            index,
            plan,
        }
    }

    /// The computation threads, for jobs of the query.
    fn compute(&self) -> ComputePool {
        self.context.compute(&self.environment.resources.compute)
    }

    /// Runs it and sends its frames.
    pub(crate) async fn run(self, output: &mut FrameOutput<'_>) -> Result<(), QueryError> {
        let reader = self.read(output).await?;
        let (groups, _held) = self.groups(reader);
        let computation = Arc::new(self.computation(&groups, output).await?);
        let first_group = output.groups;
        for group in groups {
            let computation = Arc::clone(&computation);
            let first = output.groups;
            let compute = move || computation.results(first, group);
            let results = self.compute().run(compute).await??;
            output.groups += results.len();
            self.send(results, &output.form.clone(), output).await?;
        }
        let (query, groups) = (self.index, output.groups - first_group);
        output.send(Frame::Done { query, groups }).await
    }

    /// Reads the histograms of all series.
    async fn read(&self, output: &mut FrameOutput<'_>) -> Result<Reader, QueryError> {
        let (environment, plan) = (self.environment, self.plan);
        let budget = self.context.budget();
        let options = ReadOptions {
            layout: environment.storage.layout,
            codecs: environment.histograms,
            windows: plan.downsample.as_ref().map(|(windows, _)| windows.clone()),
            in_stored_order: self.query.quirks.histograms_in_stored_order,
            annotations: self.query.annotations.of_series,
        };
        let mut reader = Reader::new(options, budget.clone())?;
        let damage = self.query.skip_damaged_rows.then(DamageLog::default);
        let storage = &environment.storage;
        let mut items = plan.access_path.rows(budget, damage.as_ref());
        while let Some(item) = items.next().await {
            let ScanItem::Rows(mut rows) = item? else {
                continue;
            };
            budget.use_rows(rows.len() as u64, rows.byte_len())?;
            plan.selection()
                .resolve_and_filter(rows.rows_mut(), &*storage.directory, self.context.deadline())
                .await?;
            let add = move || reader.add(rows.rows()).map(|()| reader);
            reader = self.compute().run(add).await??;
        }
        let counted = std::mem::take(&mut reader.statistics);
        environment
            .skipped_cells
            .fetch_add(counted.skipped_cells, Ordering::Relaxed);
        output.statistics.add_read(counted);
        if let Some(damage) = &damage {
            output.statistics.add_damage(damage, &storage.layout, &plan.hours);
        }
        Ok(reader)
    }

    /// The groups in their order, and the memory of all histograms.
    fn groups(&self, reader: Reader) -> (Vec<TimedGroup>, Held) {
        let layout = self.environment.storage.layout;
        let grouping = if self.sub_query.aggregator.is_none() {
            Grouping::Each
        } else {
            Grouping::ByTags(self.plan.group_by.as_slice().into())
        };
        let Reader { mut series, held, .. } = reader;
        let begins =
            |first_ms: Option<i64>| first_ms.is_some_and(|first_ms| first_ms <= self.plan.begins_until_ms);
        series.retain(|_, one| begins(one.first_ms));
        let named = series.iter_mut().map(|(tsuid, one)| SeriesPoints {
            tsuid: tsuid.clone(),
            points: Points::default(),
            from_epoch: None,
            annotations: one.annotations.take(),
            is_named: true,
        });
        let groups = group(named.collect(), &grouping, &layout);
        let with_histograms = groups.into_iter().map(|group| {
            let of_series = |one: &SeriesPoints| series.remove(&one.tsuid).map(|one| one.histograms);
            let histograms = group.series.iter().filter_map(of_series).collect();
            (group, histograms)
        });
        (with_histograms.collect(), held)
    }

    async fn computation(
        &self,
        groups: &[TimedGroup],
        output: &FrameOutput<'_>,
    ) -> Result<Computation, QueryError> {
        let (storage, query) = (&self.environment.storage, self.query);
        let widths = storage.layout.widths;
        let uids = uids_of(groups.iter().map(|(group, _)| group), &widths);
        let frames = GroupFrames {
            rollup: None,
            query: self.index,
            first_group: output.groups,
            metric: self.plan.metric.clone(),
            names: Names::resolve(uids, &*storage.directory, self.context).await?,
            widths,
            range_ms: (query.start_ms, query.end_ms),
            quirks: query.quirks,
            is_early: false,
            encoder: None,
            global: None,
        };
        let range_ms = match &self.plan.downsample {
            Some((windows, _)) if query.quirks.histograms_of_whole_range_are_empty && is_whole(windows) => {
                (0, -1)
            }
            _ => self.plan.result_range_ms(query),
        };
        Ok(Computation {
            frames,
            results: self.results.clone(),
            context: self.context.clone(),
            range_ms,
        })
    }

    /// Sends the results of a group.
    async fn send(
        &self,
        results: Vec<(Group, Held)>,
        form: &ResultForm,
        output: &mut FrameOutput<'_>,
    ) -> Result<(), QueryError> {
        let count = |group: &Group| group.points.len() as u64;
        let points = results.iter().map(|(group, _)| count(group)).sum();
        output.statistics.points_sent += points;
        let ResultForm::Encoded(encoder) = form else {
            for (group, held) in results {
                output.send_held(Frame::Group(group), Some(held)).await?;
            }
            return Ok(());
        };
        let global = output.global.as_ref().map(|(global, _)| Arc::clone(global));
        let (encoder, budget) = (Arc::clone(encoder), self.context.budget().clone());
        let encode = move || {
            let mut groups = results.into_iter().map(|(group, held)| (group, Some(held)));
            encoder.encode(&mut groups, global.as_deref(), &budget)
        };
        let (parts, held) = self.compute().run(encode).await??;
        let groups = EncodedGroups { parts, points };
        output.send_held(Frame::Encoded(groups), Some(held)).await
    }
}

fn is_whole(windows: &Windows) -> bool {
    matches!(windows.layout, WindowLayout::Whole { .. })
}

impl Computation {
    /// The results of a group, numbered from `first` on, each with its memory.
    fn results(
        &self,
        first: usize,
        (group, histograms): TimedGroup,
    ) -> Result<Vec<(Group, Held)>, QueryError> {
        let budget = self.context.budget();
        let head = self.frames.head(0, &group)?;
        let merged = merge::merged(histograms);
        let parts = merge::parts(&merged, &self.results);
        let mut results = Vec::with_capacity(parts.len());
        for (place, part) in parts.into_iter().enumerate() {
            yield_to_others();
            if self.context.cancellation().is_cancelled() {
                return Err(QueryError::DeadlineExceeded);
            }
            let points = merge::points(&merged, part, self.range_ms);
            let result = Group {
                number: first + place,
                is_whole: true,
                metric: format!("{}{part}", head.metric).into(),
                part: Some(part),
                annotations: annotation::group_annotations(
                    group.series.iter(),
                    self.frames.range_ms,
                    self.frames.quirks,
                ),
                points,
                ..head.clone()
            };
            let held = budget.hold(result.held_bytes())?;
            results.push((result, held));
        }
        Ok(results)
    }
}
