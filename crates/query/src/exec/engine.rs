//! The engine: runs the stages of a query, keeps to its deadline and budget, sends frames.
//!
//! A query runs once it is admitted: see [`crate::exec::resources`]. Sub-queries run one after the other. Most fit
//! in memory and are aggregated after the scan. If a sub-query exceeds the emit threshold, the engine reads
//! the extents of the remaining series and switches to incremental aggregation: after each time slice it
//! emits all results up to the watermark and frees them.
//!
//! Dropping the stream of frames cancels the query: the scan stops with its next batch, and so do
//! computations on other threads. While the client takes no frames, the query gives its permit to others.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use futures::stream::{self, Stream, StreamExt as _};
use oxtsdb_row_store::{DamageLog, RowStore, TableName};
use oxtsdb_schema::{BaseTime, RowKeyLayout, Uid, UidKind, UidWidths};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::error::QueryError;
use crate::exec::budget::{Budget, Held, Limits, POINT_BYTES, Resource, Usage};
use crate::exec::collect::Collector;
use crate::exec::compute::{Computation, Piece, tasks};
use crate::exec::frame::{Delivery, Frame, Group, Statistics};
use crate::exec::group::{Grouping, SpanGroup, group};
use crate::exec::open_groups::OpenGroups;
use crate::exec::resources::{Admitted, PAUSE_AFTER, QueryResources, RequestContext};
use crate::exec::running::RunningQueries;
use crate::exec::scan::{self, Portion, bytes_of};
use crate::exec::span::{Span, SpanShape};
use crate::exec::survey::Survey;
use crate::exec::whole_groups::WholeGroups;
use crate::function::rate::Rater;
use crate::names::{NameDirectory, Names};
use crate::plan::estimate::Estimate;
use crate::plan::hours::Hours;
use crate::plan::{Plan, PlanContext};
use crate::points::Points;
use crate::series_index::SeriesIndex;
use crate::spec::{QuerySpec, SubQuery};

/// Frames that may wait for a slow client.
const WAITING_FRAMES: usize = 8;

/// Tasks of groups that are computed at a time.
const TASKS_AT_A_TIME: usize = 2;

/// When so many points are held, what is known is told: 32 MiB.
const TELL_POINTS: u64 = 2 << 20;

/// From so many series on they are grouped in the computation pool.
const MANY_SPANS: usize = 4096;

/// Answers queries from a store and the names of a UID service. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Engine(Arc<Inner>);

#[derive(Clone, Debug)]
struct Inner {
    store: Arc<dyn RowStore>,
    table: TableName,
    meta_table: TableName,
    layout: RowKeyLayout,
    directory: Arc<dyn NameDirectory>,
    limits: Limits,
    resources: QueryResources,
    tell_points: u64,
    running: RunningQueries,
    skipped_cells: Arc<AtomicU64>,
    series_index: Option<Arc<dyn SeriesIndex>>,
}

impl Engine {
    /// An engine over the table of points, and that of series metadata.
    pub fn new(
        store: Arc<dyn RowStore>,
        (table, meta_table): (TableName, TableName),
        layout: RowKeyLayout,
        directory: Arc<dyn NameDirectory>,
        limits: Limits,
        resources: QueryResources,
    ) -> Self {
        Self(Arc::new(Inner {
            store,
            table,
            meta_table,
            layout,
            directory,
            limits,
            resources,
            tell_points: TELL_POINTS,
            running: RunningQueries::default(),
            skipped_cells: Arc::default(),
            series_index: None,
        }))
    }

    /// The engine, but it tells what is known when so many points are held, in place of two million. What
    /// is told is the same.
    #[must_use]
    pub fn telling_at(self, tell_points: u64) -> Self {
        let inner = (*self.0).clone();
        Self(Arc::new(Inner { tell_points, ..inner }))
    }

    /// The engine with an index that says which series there are.
    #[must_use]
    pub fn with_series_index(self, series_index: Option<Arc<dyn SeriesIndex>>) -> Self {
        let inner = (*self.0).clone();
        Self(Arc::new(Inner {
            series_index,
            ..inner
        }))
    }

    /// Which series there are, if that is known.
    pub fn series_index(&self) -> Option<&Arc<dyn SeriesIndex>> {
        self.0.series_index.as_ref()
    }

    /// Cells without points that all queries since the start have passed over; it goes on counting.
    pub fn skipped_cells(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.0.skipped_cells)
    }

    /// What a query may use, if it does not say less itself.
    pub fn limits(&self) -> &Limits {
        &self.0.limits
    }

    /// What all queries share.
    pub fn resources(&self) -> &QueryResources {
        &self.0.resources
    }

    /// Waits until a query of a client may run that is not one of [`Engine::run`].
    ///
    /// # Errors
    ///
    /// As [`QueryResources::admit`].
    pub async fn admit(&self, request: RequestContext) -> Result<Admitted, QueryError> {
        let inner = &*self.0;
        let admitted = inner
            .resources
            .admit(request.client, inner.limits, Arc::default());
        in_time(request.deadline, QueryError::DeadlineExceeded, admitted).await
    }

    /// The deadline of a query that begins now, and the error when it passes.
    pub fn deadline(&self, request: &RequestContext) -> (Option<Instant>, QueryError) {
        self.0.deadline(request)
    }

    /// The queries that are being answered.
    pub fn running(&self) -> &RunningQueries {
        &self.0.running
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

    /// Answers a query. An error is the last item; frames before it are a part of a result that
    /// must not be taken for the whole. Dropping the stream cancels the query.
    ///
    /// Must be called within a Tokio runtime.
    pub fn run(
        &self,
        query: QuerySpec,
        request: RequestContext,
    ) -> impl Stream<Item = Result<Delivery, QueryError>> + Send + Unpin + use<> {
        let (frames, receiver) = mpsc::channel(WAITING_FRAMES);
        let inner = Arc::clone(&self.0);
        let usage: Arc<Usage> = Arc::default();
        let registration = inner.running.register(&query, Arc::clone(&usage));
        tokio::spawn(async move {
            let (deadline, passed) = inner.deadline(&request);
            let limits = inner.limits.with_request(query.max_scanned_points);
            let answer = async {
                let admitted = inner.resources.admit(request.client, limits, usage).await?;
                inner.answer(&query, admitted, deadline, &frames).await
            };
            let result = tokio::select! {
                result = in_time(deadline, passed, answer) => result,
                () = registration.ended.cancelled() => Err(QueryError::Ended),
                () = frames.closed() => return,
            };
            // A client that gets an error does not find the query in the list any more.
            drop(registration);
            if let Err(error) = result {
                // A client that is gone needs no error.
                let _ = frames.send(Err(error)).await;
            }
        });
        ReceiverStream::new(receiver)
    }

    /// How the sub-queries of a query would be answered, and what would be read for each.
    ///
    /// # Errors
    ///
    /// Those of a query that come before anything is read.
    pub async fn explain(
        &self,
        query: &QuerySpec,
        request: RequestContext,
    ) -> Result<Vec<(Plan, Estimate)>, QueryError> {
        let inner = &*self.0;
        let (deadline, passed) = inner.deadline(&request);
        let limits = inner.limits.with_request(query.max_scanned_points);
        let explained = async {
            let admitted = inner
                .resources
                .admit(request.client, limits, Arc::default())
                .await?;
            let mut explained = Vec::with_capacity(query.sub_queries.len());
            for plan in inner.plans(query, admitted.budget(), deadline).await? {
                let estimate = plan.estimate(&inner.store, &inner.table, &inner.layout).await?;
                explained.push((plan, estimate));
            }
            Ok(explained)
        };
        in_time(deadline, passed, explained).await
    }

    /// As [`Engine::run`], but each group has all its points; there is no [`Frame::More`]. A result whose
    /// points take more memory than a query may hold is refused.
    pub fn run_whole(
        &self,
        query: QuerySpec,
        request: RequestContext,
    ) -> impl Stream<Item = Result<Delivery, QueryError>> + Send + Unpin + use<> {
        let mut groups = WholeGroups::default();
        self.run(query, request).flat_map(move |delivery| {
            let deliveries = delivery.and_then(|delivery| groups.take(delivery));
            let deliveries: Vec<_> = match deliveries {
                Ok(deliveries) => deliveries.into_iter().map(Ok).collect(),
                Err(error) => vec![Err(error)],
            };
            stream::iter(deliveries)
        })
    }

    /// As [`Engine::run_whole`], and waits for the whole result.
    ///
    /// # Errors
    ///
    /// The first error, in place of the result.
    pub async fn answer(&self, query: QuerySpec, request: RequestContext) -> Result<WholeAnswer, QueryError> {
        let mut deliveries = self.run_whole(query, request);
        let mut groups = Vec::new();
        let mut all: Option<Held> = None;
        while let Some(delivery) = deliveries.next().await {
            let Delivery { frame, held } = delivery?;
            let held = match all.take() {
                Some(mut all) => {
                    all.merge(held);
                    all
                }
                None => held,
            };
            match frame {
                Frame::Group(group) => groups.push(group),
                Frame::More { .. } | Frame::Done { .. } => {}
                Frame::Statistics(statistics) => {
                    return Ok(WholeAnswer {
                        groups,
                        statistics,
                        held,
                    });
                }
            }
            all = Some(held);
        }
        Err(QueryError::Internal {
            detail: "the result has no last frame".to_owned(),
        })
    }
}

/// A whole result in memory.
#[derive(Debug)]
pub struct WholeAnswer {
    /// The groups of all sub-queries, in their order.
    pub groups: Vec<Group>,
    /// What it took.
    pub statistics: Statistics,
    /// The memory of the groups.
    pub held: Held,
}

/// Runs until a deadline, at which it fails with `passed`.
///
/// # Errors
///
/// Those of `work`, and `passed`.
pub async fn in_time<T>(
    deadline: Option<Instant>,
    passed: QueryError,
    work: impl Future<Output = Result<T, QueryError>>,
) -> Result<T, QueryError> {
    match deadline {
        None => work.await,
        Some(deadline) => tokio::time::timeout_at(deadline.into(), work)
            .await
            .unwrap_or(Err(passed)),
    }
}

type Frames = mpsc::Sender<Result<Delivery, QueryError>>;

impl Inner {
    /// The deadline of a query that begins now, and the error when it passes.
    fn deadline(&self, request: &RequestContext) -> (Option<Instant>, QueryError) {
        let deadline = self.resources.deadline(request.deadline);
        let passed = match self.resources.timeout {
            Some(timeout) if deadline != request.deadline => QueryError::TimedOut {
                seconds: timeout.as_secs(),
            },
            _ => QueryError::DeadlineExceeded,
        };
        (deadline, passed)
    }

    async fn answer(
        &self,
        query: &QuerySpec,
        admitted: Admitted,
        deadline: Option<Instant>,
        frames: &Frames,
    ) -> Result<(), QueryError> {
        let started = Instant::now();
        // All plans first: one unknown name fails the whole query before anything is read.
        let plans = self.plans(query, admitted.budget(), deadline).await?;
        self.check_rows(&plans, admitted.budget().limits()).await?;
        let mut answer = Answer::new(self, query, deadline, frames, admitted);
        for (index, (sub_query, plan)) in query.sub_queries.iter().zip(&plans).enumerate() {
            answer.question(index, sub_query, plan).await?;
        }
        answer.finish(started).await
    }

    /// How the questions of a query are answered.
    async fn plans(
        &self,
        query: &QuerySpec,
        budget: &Budget,
        deadline: Option<Instant>,
    ) -> Result<Vec<Plan>, QueryError> {
        if query.end_ms < query.start_ms {
            return Err(QueryError::EndBeforeStart {
                start_ms: query.start_ms,
                end_ms: query.end_ms,
            });
        }
        query.check_regexps()?;
        let mut plans = Vec::with_capacity(query.sub_queries.len());
        for sub_query in &query.sub_queries {
            let context = PlanContext {
                layout: &self.layout,
                budget,
                compute: &self.resources.compute,
                directory: &*self.directory,
                index: self.series_index.as_deref(),
                deadline,
            };
            plans.push(Plan::new(query, sub_query, context).await?);
        }
        Ok(plans)
    }

    /// Refuses a query before it is run, if it is sure to read more rows than it may.
    async fn check_rows(&self, plans: &[Plan], limits: &Limits) -> Result<(), QueryError> {
        let mut rows = 0;
        for plan in plans.iter().filter(|_| limits.is_set(Resource::Rows)) {
            let estimate = plan.estimate(&self.store, &self.table, &self.layout).await?;
            rows += estimate.rows.map_or(0, |rows| rows.at_least);
        }
        limits.check(Resource::Rows, rows)
    }
}

/// An answer in the making.
struct Answer<'a> {
    engine: &'a Inner,
    query: &'a QuerySpec,
    deadline: Option<Instant>,
    frames: &'a Frames,
    admitted: Admitted,
    budget: Budget,
    statistics: Statistics,
    /// Groups of all questions so far.
    groups: usize,
    cancelled: CancellationToken,
    /// Dropped with the answer, at the deadline for example; tasks on other threads hear of it.
    _cancel: DropGuard,
}

impl<'a> Answer<'a> {
    fn new(
        engine: &'a Inner,
        query: &'a QuerySpec,
        deadline: Option<Instant>,
        frames: &'a Frames,
        admitted: Admitted,
    ) -> Self {
        let budget = admitted.budget().clone();
        let cancelled = CancellationToken::new();
        Self {
            engine,
            query,
            deadline,
            frames,
            admitted,
            budget,
            statistics: Statistics::default(),
            groups: 0,
            _cancel: cancelled.clone().drop_guard(),
            cancelled,
        }
    }

    /// Answers a question.
    async fn question(&mut self, index: usize, sub_query: &SubQuery, plan: &Plan) -> Result<(), QueryError> {
        let mut question = Question {
            index,
            plan,
            grouping: if sub_query.aggregator.is_none() {
                Grouping::Each
            } else {
                Grouping::ByTags(plan.group_by.as_slice().into())
            },
            can_tell_early: can_tell_early(self.query, sub_query, plan),
            computation: Arc::new(Computation::new(
                self.query,
                sub_query,
                &plan.hours,
                self.cancelled.clone(),
                self.budget.clone(),
                self.engine.resources.compute.clone(),
            )),
            first_group: self.groups,
            open: None,
            skip_damaged: self.query.skip_damaged_rows.then(DamageLog::default),
        };
        let shape = SpanShape {
            layout: self.engine.layout,
            duplicates: self.query.duplicates,
            skip_damaged_rows: self.query.skip_damaged_rows,
            begins_until_ms: plan.begins_until_ms,
            downsample: plan.downsample.clone(),
            rate: sub_query.rate.map(|rate| {
                let from_epoch = self.query.quirks.rates_begin_at_the_epoch;
                Rater::new(rate, from_epoch.then(|| plan.hours.start.millis()))
            }),
        };
        let compute = self.engine.resources.compute.clone();
        let mut collector = Collector::new(shape, self.budget.clone(), compute);
        let mut portions = scan::rows(
            &self.engine.store,
            &self.engine.table,
            plan,
            &self.budget,
            question.skip_damaged.as_ref(),
        );
        while let Some(portion) = portions.next().await {
            match portion? {
                Portion::Rows(mut rows) => {
                    self.budget.use_rows(rows.len() as u64, bytes_of(rows.rows()))?;
                    plan.selection
                        .judge(rows.rows_mut(), &*self.engine.directory, self.deadline)
                        .await?;
                    collector.add(rows).await?;
                }
                Portion::Until(until_ms) => {
                    if !question.can_tell_early || until_ms >= plan.hours.stop_ms() {
                        continue;
                    }
                    collector.settle().await?;
                    if self.budget.series_bytes() >= self.emit_threshold() {
                        self.tell(&mut question, &mut collector, until_ms).await?;
                    }
                }
            }
        }
        let (spans, counted) = collector.finish().await?;
        let skipped = &self.engine.skipped_cells;
        skipped.fetch_add(counted.skipped_cells, Ordering::Relaxed);
        self.statistics.add_read(counted);
        if let Some(damage) = &question.skip_damaged {
            let layout = &self.engine.layout;
            self.statistics.add_damage(damage, layout, &plan.hours);
        }
        let (pieces, names) = match question.open.take() {
            Some(mut open) => {
                open.add(spans, &self.budget)?;
                (open.finish().collect(), None)
            }
            None => {
                let groups = self.group(spans, &question.grouping).await?;
                self.groups += groups.len();
                let names = self.names_of(&groups).await?;
                (whole(groups), Some(names))
            }
        };
        let budget = self.budget.clone();
        let done = |piece: Piece| budget.release_series(piece.group.held_bytes());
        self.compute(&question, pieces, names.as_ref(), done).await?;
        // What series take beside their points.
        self.budget.release_all_series();
        let groups = self.groups - question.first_group;
        self.send(Frame::Done { query: index, groups }).await
    }

    /// Bytes of series from which on results are emitted: early enough for the next slice to fit.
    fn emit_threshold(&self) -> u64 {
        let quarter = self.budget.limits().memory.most / 4;
        (self.engine.tell_points * POINT_BYTES).min(quarter)
    }

    /// Tells what is known when all rows before an instant were read.
    async fn tell(
        &mut self,
        question: &mut Question<'_>,
        collector: &mut Collector,
        until_ms: i64,
    ) -> Result<(), QueryError> {
        let known_until_ms = match &question.plan.downsample {
            None => until_ms,
            Some((windows, _)) => match windows.known_until(until_ms) {
                Some(known_until_ms) => known_until_ms,
                None => return Ok(()),
            },
        };
        let spans = collector.take(known_until_ms).await?;
        let mut open = match question.open.take() {
            Some(mut open) => {
                open.add(spans, &self.budget)?;
                open
            }
            None => self.open_groups(question, collector, spans, until_ms).await?,
        };
        let pieces = open.take_known(known_until_ms);
        let budget = self.budget.clone();
        let put_back = |piece| budget.release_series(open.put_back(piece));
        self.compute(question, pieces, None, put_back).await?;
        question.open = Some(open);
        Ok(())
    }

    /// Finds out which groups there will be, and tells them without points.
    async fn open_groups(
        &mut self,
        question: &Question<'_>,
        collector: &mut Collector,
        spans: Vec<Span>,
        until_ms: i64,
    ) -> Result<OpenGroups, QueryError> {
        let engine = self.engine;
        let seconds = u32::try_from(until_ms / 1000).unwrap_or(u32::MAX);
        let rest = Hours {
            start: BaseTime::of_seconds(seconds),
            ..question.plan.hours
        };
        let survey = Survey::of_rest(
            (&engine.store, &engine.table),
            question.plan,
            rest,
            &engine.layout,
            &*engine.directory,
            self.deadline,
            (&self.budget, question.skip_damaged.as_ref()),
        );
        let mut survey = survey.await?;
        survey.add_read(&spans, until_ms);
        let survey = Arc::new(survey);
        collector.expect(&survey).await?;
        let spans = survey.with_series(spans);
        let groups = self.group(spans, &question.grouping).await?;
        self.groups += groups.len();
        let names = self.names_of(&groups).await?;
        for (index, group) in groups.iter().enumerate() {
            let head = names.group(question, index, group, &engine.layout.widths)?;
            self.send(Frame::Group(head)).await?;
        }
        Ok(OpenGroups::new(groups, survey))
    }

    /// Computes pieces and sends their points, in their order; with names as groups that are whole.
    async fn compute(
        &mut self,
        question: &Question<'_>,
        pieces: Vec<Piece>,
        names: Option<&Names>,
        mut done: impl FnMut(Piece),
    ) -> Result<(), QueryError> {
        let mut computed = stream::iter(tasks(pieces))
            .map(|task| Arc::clone(&question.computation).run(task))
            .buffered(TASKS_AT_A_TIME);
        while let Some(task) = computed.next().await {
            for mut piece in task? {
                let points = std::mem::take(&mut piece.points);
                let held = piece.held.take();
                self.statistics.points_sent += points.len() as u64;
                let frame = match names {
                    None => Frame::More {
                        number: question.first_group + piece.index,
                        points,
                    },
                    Some(names) => {
                        let widths = &self.engine.layout.widths;
                        let head = names.group(question, piece.index, &piece.group, widths)?;
                        Frame::Group(Group {
                            is_whole: true,
                            points,
                            ..head
                        })
                    }
                };
                self.send_held(frame, held).await?;
                done(piece);
            }
        }
        Ok(())
    }

    /// Looks up the names that groups need.
    async fn names_of(&self, groups: impl IntoIterator<Item = &SpanGroup>) -> Result<Names, QueryError> {
        let uids = uids_of(groups, &self.engine.layout.widths);
        Names::of_uids(uids, &*self.engine.directory, self.deadline).await
    }

    /// Groups spans.
    async fn group(&self, spans: Vec<Span>, grouping: &Grouping) -> Result<Vec<SpanGroup>, QueryError> {
        let widths = self.engine.layout.widths;
        if spans.len() < MANY_SPANS {
            return Ok(group(spans, grouping, &widths));
        }
        let grouping = grouping.clone();
        let grouped = self
            .engine
            .resources
            .compute
            .run(move || group(spans, &grouping, &widths));
        Ok(grouped.await?)
    }

    /// The last frame.
    async fn finish(mut self, started: Instant) -> Result<(), QueryError> {
        let usage = self.budget.usage();
        self.statistics.series = usage.of(Resource::Series);
        self.statistics.rows = usage.of(Resource::Rows);
        self.statistics.bytes = usage.of(Resource::Bytes);
        self.statistics.elapsed = started.elapsed();
        let statistics = std::mem::take(&mut self.statistics);
        self.send(Frame::Statistics(statistics)).await
    }

    /// Sends a frame, and holds its memory until the client's side is done with it. A client that takes no
    /// frames holds up no other query: this one gives its permit away until there is space again. That
    /// the client is gone is noticed elsewhere, and cancels the query.
    async fn send(&mut self, frame: Frame) -> Result<(), QueryError> {
        self.send_held(frame, None).await
    }

    /// As [`Answer::send`], with a part of the frame's memory.
    async fn send_held(&mut self, frame: Frame, held: Option<Held>) -> Result<(), QueryError> {
        let mut held = match held {
            Some(held) => held,
            None => self.budget.hold(0)?,
        };
        held.grow(frame.held_bytes().saturating_sub(held.bytes()))?;
        let delivery = Ok(Delivery { frame, held });
        let space = match tokio::time::timeout(PAUSE_AFTER, self.frames.reserve()).await {
            Ok(space) => space,
            Err(_elapsed) => {
                self.admitted.pause();
                let space = self.frames.reserve().await;
                self.admitted.resume().await;
                space
            }
        };
        if let Ok(space) = space {
            space.send(delivery);
        }
        Ok(())
    }
}

/// A question that is being answered.
struct Question<'a> {
    index: usize,
    plan: &'a Plan,
    grouping: Grouping,
    can_tell_early: bool,
    computation: Arc<Computation>,
    /// The number of its first group in the answer.
    first_group: usize,
    /// Once something was told before all was read.
    open: Option<OpenGroups>,
    /// The damage that was passed over, if the query may pass over any.
    skip_damaged: Option<DamageLog>,
}

/// Whether a part of an answer can be told before all rows were read. Not with one value for the whole
/// range, nor where windows follow each series, nor where OpenTSDB lets series have a say before they
/// begin: these need all first points.
fn can_tell_early(query: &QuerySpec, sub_query: &SubQuery, plan: &Plan) -> bool {
    let says_before_it_begins = match (sub_query.rate, &plan.downsample) {
        (Some(_), _) => query.quirks.rates_begin_at_the_epoch,
        // Windows are floating point whatever comes.
        (None, Some(_)) => false,
        (None, None) => query.quirks.floats_to_come_count,
    };
    let windows_are_known = plan
        .downsample
        .as_ref()
        .is_none_or(|(windows, _)| windows.known_until(0).is_some());
    !says_before_it_begins && windows_are_known
}

/// Groups of which all is known.
fn whole(groups: Vec<SpanGroup>) -> Vec<Piece> {
    let whole = |(index, group)| Piece {
        index,
        group,
        from_ms: i64::MIN,
        until_ms: i64::MAX,
        points: Points::default(),
        held: None,
    };
    groups.into_iter().enumerate().map(whole).collect()
}

/// The UIDs whose names the groups of a question need, by kind.
fn uids_of<'a>(groups: impl IntoIterator<Item = &'a SpanGroup>, widths: &UidWidths) -> [Vec<Uid>; 3] {
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
    /// A group without points, of which more is to come.
    fn group(
        &self,
        question: &Question<'_>,
        index: usize,
        group: &SpanGroup,
        widths: &UidWidths,
    ) -> Result<Group, QueryError> {
        let metric = match (&question.plan.metric, group.spans.first()) {
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
        Ok(Group {
            number: question.first_group + index,
            is_whole: false,
            query: question.index,
            metric,
            tags,
            aggregate_tags,
            tsuids: group.spans.iter().map(|span| span.tsuid.clone()).collect(),
            points: Points::default(),
        })
    }
}
