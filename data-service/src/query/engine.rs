//! The engine: runs the stages of a query, keeps to its deadline and limits, sends frames.
//!
//! Questions are answered one after the other, so that memory is bounded by the largest. Whoever
//! drops the stream of frames ends the query: the scan stops with its next batch, and so does what
//! is computed on other threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use futures::stream::{self, Stream, StreamExt as _};
use oxtsdb_row_store::{RowStore, TableName};
use oxtsdb_schema::{RowKeyLayout, Uid, UidKind, UidWidths};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;

use super::aggregate::{Series, aggregate};
use super::collect::{Budget, Collector, joined};
use super::error::QueryError;
use super::frame::{Frame, Group, Statistics};
use super::function::Aggregator;
use super::group::{Grouping, SpanGroup, group};
use super::names::{NameDirectory, Names};
use super::plan::Plan;
use super::points::{Points, Values};
use super::rate::{RateOptions, Rates};
use super::scan;
use super::span::{Span, SpanBuilder};
use super::spec::{Limits, QuerySpec, SubQuery};

/// Frames that may wait for a slow client.
const WAITING_FRAMES: usize = 8;

/// Groups are computed together until they have so many points, which makes the hand-over between
/// threads cheap.
const POINTS_PER_TASK: usize = 65_536;

/// Up to so many steps are taken on the spot; it takes less than a millisecond. Where instants differ,
/// each point is a step for every series of its group.
const STEPS_ON_THE_SPOT: usize = 100_000;

/// Groups that are computed at a time, in tasks of [`POINTS_PER_TASK`].
const TASKS_AT_A_TIME: usize = 2;

/// Answers queries from a store and the names of a UID service. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Engine(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    store: Arc<dyn RowStore>,
    table: TableName,
    meta_table: TableName,
    layout: RowKeyLayout,
    directory: Arc<dyn NameDirectory>,
    limits: Limits,
    skipped_cells: Arc<AtomicU64>,
}

impl Engine {
    /// An engine over the table of points, and that of series metadata.
    pub fn new(
        store: Arc<dyn RowStore>,
        (table, meta_table): (TableName, TableName),
        layout: RowKeyLayout,
        directory: Arc<dyn NameDirectory>,
        limits: Limits,
    ) -> Self {
        Self(Arc::new(Inner {
            store,
            table,
            meta_table,
            layout,
            directory,
            limits,
            skipped_cells: Arc::default(),
        }))
    }

    /// Cells without points that all queries since the start have passed over; it goes on counting.
    pub fn skipped_cells(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.0.skipped_cells)
    }

    /// The store that it reads.
    pub fn store(&self) -> &Arc<dyn RowStore> {
        &self.0.store
    }

    /// The table of points.
    pub fn table(&self) -> &TableName {
        &self.0.table
    }

    /// The table of series metadata.
    pub fn meta_table(&self) -> &TableName {
        &self.0.meta_table
    }

    /// How row keys are built.
    pub fn layout(&self) -> &RowKeyLayout {
        &self.0.layout
    }

    /// Where names come from.
    pub fn directory(&self) -> &Arc<dyn NameDirectory> {
        &self.0.directory
    }

    /// Answers a query. An error is the last item; frames before it are a part of an answer that
    /// must not be taken for the whole. Dropping the stream ends the query.
    ///
    /// Must be called within a Tokio runtime.
    pub fn run(
        &self,
        query: QuerySpec,
        deadline: Option<Instant>,
    ) -> impl Stream<Item = Result<Frame, QueryError>> + Send + Unpin + use<> {
        let (frames, receiver) = mpsc::channel(WAITING_FRAMES);
        let inner = Arc::clone(&self.0);
        tokio::spawn(async move {
            let answer = inner.answer(&query, deadline, &frames);
            let in_time = async {
                match deadline {
                    None => answer.await,
                    Some(deadline) => tokio::time::timeout_at(deadline.into(), answer)
                        .await
                        .unwrap_or(Err(QueryError::DeadlineExceeded)),
                }
            };
            let result = tokio::select! {
                result = in_time => result,
                () = frames.closed() => return,
            };
            if let Err(error) = result {
                // A client that is gone needs no error.
                let _ = frames.send(Err(error)).await;
            }
        });
        ReceiverStream::new(receiver)
    }

    /// Answers a query and waits for the whole of it.
    ///
    /// # Errors
    ///
    /// The first error, in place of the answer.
    pub async fn answer(
        &self,
        query: QuerySpec,
        deadline: Option<Instant>,
    ) -> Result<(Vec<Group>, Statistics), QueryError> {
        let mut frames = self.run(query, deadline);
        let (mut groups, mut statistics) = (Vec::new(), None);
        while let Some(frame) = frames.next().await {
            match frame? {
                Frame::Group(group) => groups.push(group),
                Frame::Done { .. } => {}
                Frame::Statistics(counted) => statistics = Some(counted),
            }
        }
        let statistics = statistics.ok_or_else(|| QueryError::Internal {
            detail: "the answer has no last frame".to_owned(),
        })?;
        Ok((groups, statistics))
    }
}

type Frames = mpsc::Sender<Result<Frame, QueryError>>;

impl Inner {
    async fn answer(
        &self,
        query: &QuerySpec,
        deadline: Option<Instant>,
        frames: &Frames,
    ) -> Result<(), QueryError> {
        let started = Instant::now();
        if query.end_ms < query.start_ms {
            return Err(QueryError::EndBeforeStart {
                start_ms: query.start_ms,
                end_ms: query.end_ms,
            });
        }
        query.check_regexps()?;
        let limits = self.limits.with_request(query.max_scanned_points);
        let budget = Budget::new(limits);
        // All plans first: one unknown name fails the whole query before anything is read.
        let mut plans = Vec::with_capacity(query.sub_queries.len());
        for sub_query in &query.sub_queries {
            let plan = Plan::new(
                query,
                sub_query,
                &self.layout,
                &limits,
                &*self.directory,
                deadline,
            );
            plans.push(plan.await?);
        }
        // Dropped with this future, at the deadline for example; tasks on other threads hear of it.
        let cancelled = CancellationToken::new();
        let _cancel = cancelled.clone().drop_guard();
        let mut statistics = Statistics::default();
        for (index, (sub_query, plan)) in query.sub_queries.iter().zip(plans).enumerate() {
            let spans = self
                .read(query, &plan, &budget, deadline, &mut statistics)
                .await?;
            let grouping = if sub_query.aggregator.is_none() {
                Grouping::Each
            } else {
                Grouping::ByTags(&plan.group_by)
            };
            let groups = group(spans, grouping, &self.layout.widths);
            let count = groups.len();
            let uids = uids_of(&groups, &self.layout.widths);
            let names = Names::of_uids(uids, &*self.directory, deadline).await?;
            let computation = Arc::new(Computation::new(query, sub_query, cancelled.clone()));
            let mut computed = stream::iter(tasks(groups))
                .map(|task| {
                    let computation = Arc::clone(&computation);
                    async move { computation.run(task).await }
                })
                .buffered(TASKS_AT_A_TIME);
            while let Some(task) = computed.next().await {
                for computed in task? {
                    statistics.points_sent += computed.points.len() as u64;
                    let group = names.group(index, plan.metric.as_ref(), computed, &self.layout.widths)?;
                    send(frames, Frame::Group(group)).await;
                }
            }
            send(
                frames,
                Frame::Done {
                    query: index,
                    groups: count,
                },
            )
            .await;
        }
        statistics.elapsed = started.elapsed();
        send(frames, Frame::Statistics(statistics)).await;
        Ok(())
    }

    /// Reads the spans of a plan.
    async fn read(
        &self,
        query: &QuerySpec,
        plan: &Plan,
        budget: &Budget,
        deadline: Option<Instant>,
        statistics: &mut Statistics,
    ) -> Result<Vec<Span>, QueryError> {
        let (layout, duplicates) = (self.layout, query.duplicates);
        let new_builder = || SpanBuilder::new(layout, duplicates, plan.downsample.clone());
        let mut collector = Collector::new(new_builder, layout, budget.clone());
        let mut batches = scan::rows(&self.store, &self.table, plan);
        while let Some(batch) = batches.next().await {
            let mut rows = batch?;
            statistics.rows += rows.len() as u64;
            plan.selection
                .judge(&mut rows, &*self.directory, deadline)
                .await?;
            collector.add(rows).await?;
        }
        let (spans, counted) = collector.finish().await?;
        statistics.points += counted.points;
        statistics.duplicates += counted.duplicates;
        statistics.skipped_cells += counted.skipped_cells;
        self.skipped_cells
            .fetch_add(counted.skipped_cells, Ordering::Relaxed);
        Ok(spans)
    }
}

/// Sends a frame. That the client is gone is noticed elsewhere, and ends the query.
async fn send(frames: &Frames, frame: Frame) {
    let _ = frames.send(Ok(frame)).await;
}

/// Cuts groups into tasks of about [`POINTS_PER_TASK`] points.
fn tasks(groups: Vec<SpanGroup>) -> Vec<Vec<SpanGroup>> {
    let mut tasks: Vec<Vec<SpanGroup>> = Vec::new();
    let mut room = 0;
    for group in groups {
        let points = group.point_count();
        match tasks.last_mut().filter(|_| room >= points) {
            Some(task) => task.push(group),
            None => {
                tasks.push(vec![group]);
                room = POINTS_PER_TASK;
            }
        }
        room = room.saturating_sub(points);
    }
    tasks
}

/// What is computed for each group of a question.
#[derive(Debug)]
struct Computation {
    aggregator: Aggregator,
    rate: Option<RateOptions>,
    start_ms: i64,
    end_ms: i64,
    rates_begin_at_the_epoch: bool,
    cancelled: CancellationToken,
}

/// A group without its spans, and its result.
struct Computed {
    group: SpanGroup,
    points: Points,
}

impl Computation {
    fn new(query: &QuerySpec, sub_query: &SubQuery, cancelled: CancellationToken) -> Self {
        Self {
            aggregator: sub_query.aggregator.under(query.quirks),
            rate: sub_query.rate,
            start_ms: query.start_ms,
            end_ms: query.end_ms,
            rates_begin_at_the_epoch: query.quirks.rates_begin_at_the_epoch,
            cancelled,
        }
    }

    async fn run(self: Arc<Self>, groups: Vec<SpanGroup>) -> Result<Vec<Computed>, QueryError> {
        let steps: usize = groups
            .iter()
            .map(|group| group.point_count() * group.spans.len())
            .sum();
        let compute = move || groups.into_iter().map(|group| self.group(group)).collect();
        if steps <= STEPS_ON_THE_SPOT {
            return compute();
        }
        joined(tokio::task::spawn_blocking(compute).await)
    }

    /// Rate, aggregation, cut to the range.
    fn group(&self, mut group: SpanGroup) -> Result<Computed, QueryError> {
        let from_epoch = self.rates_begin_at_the_epoch;
        let rates: Option<Vec<Rates>> = self.rate.map(|rate| {
            let rates = group
                .spans
                .iter()
                .map(|span| rate.apply(&span.points, from_epoch));
            rates.collect()
        });
        let series: Vec<Series<'_>> = match &rates {
            None => group
                .spans
                .iter()
                .map(|span| Series {
                    points: &span.points,
                    before: None,
                })
                .collect(),
            Some(rates) => rates
                .iter()
                .map(|rates| Series {
                    points: &rates.points,
                    before: rates.from_epoch,
                })
                .collect(),
        };
        let range = (self.start_ms, self.end_ms);
        let points = aggregate(&series, self.aggregator, rates.is_some(), range, &self.cancelled);
        if self.cancelled.is_cancelled() {
            // Nobody hears it; the groups that are left need not be looked at.
            return Err(QueryError::DeadlineExceeded);
        }
        check_finite(&points)?;
        for span in &mut group.spans {
            span.points = Points::default();
        }
        Ok(Computed { group, points })
    }
}

impl SpanGroup {
    fn point_count(&self) -> usize {
        self.spans.iter().map(|span| span.points.len()).sum()
    }
}

/// Refuses infinite results, as OpenTSDB does.
fn check_finite(points: &Points) -> Result<(), QueryError> {
    let infinite = match points.values() {
        Values::Ints(_) => None,
        Values::Doubles(values) => values.iter().position(|value| value.is_infinite()),
        Values::Mixed(values) => values.iter().position(|value| value.as_f64().is_infinite()),
    };
    match infinite {
        None => Ok(()),
        Some(index) => Err(QueryError::Infinite {
            time_ms: points.times_ms()[index],
            value: points.values().get(index).as_f64(),
        }),
    }
}

/// The UIDs whose names the groups of a question need, by kind.
fn uids_of(groups: &[SpanGroup], widths: &UidWidths) -> [Vec<Uid>; 3] {
    let mut needed: [Vec<Uid>; 3] = Default::default();
    let [metrics, tagks, tagvs] = &mut needed;
    for group in groups {
        metrics.extend(group.spans.first().map(|span| span.tsuid.metric(widths).uid()));
        tagks.extend(group.tags.iter().map(|(tagk, _)| tagk.uid()));
        tagks.extend(group.aggregate_tags.iter().map(|tagk| tagk.uid()));
        tagvs.extend(group.tags.iter().map(|(_, tagv)| tagv.uid()));
    }
    needed
}

impl Names {
    fn group(
        &self,
        query: usize,
        metric: Option<&Arc<str>>,
        computed: Computed,
        widths: &UidWidths,
    ) -> Result<Group, QueryError> {
        let Computed { group, points } = computed;
        let metric = match (metric, group.spans.first()) {
            (Some(metric), _) => Arc::clone(metric),
            (None, Some(span)) => self.name(UidKind::Metric, span.tsuid.metric(widths).uid())?,
            (None, None) => Arc::from(""),
        };
        let mut tags = Vec::with_capacity(group.tags.len());
        for (tagk, tagv) in &group.tags {
            tags.push((
                self.name(UidKind::Tagk, tagk.uid())?,
                self.name(UidKind::Tagv, tagv.uid())?,
            ));
        }
        let aggregate_tags = group
            .aggregate_tags
            .iter()
            .map(|tagk| self.name(UidKind::Tagk, tagk.uid()))
            .collect::<Result<_, _>>()?;
        let tsuids = group.spans.into_iter().map(|span| span.tsuid).collect();
        Ok(Group {
            query,
            metric,
            tags,
            aggregate_tags,
            tsuids,
            points,
        })
    }
}
