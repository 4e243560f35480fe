//! The engine: admits queries, runs them within their contexts, and returns their frames.
//!
//! Sub-queries run one after the other; [`super::sub_query`] has their stages. Dropping the stream of frames
//! cancels the query: the scan stops with its next batch, and so do computations on other threads. While the
//! client reads no frames, the query releases its permit to others.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::task::Poll;
use std::time::{Duration, Instant};

use crate::SPANS;
use futures::stream::{Stream, StreamExt as _};
use oxtsdb_row_store::{RowStore, TableName};
use oxtsdb_schema::{Annotation, HistogramCodecs, RowKeyLayout};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tracing::{Instrument as _, info_span};

use crate::context::admission::{Admitted, QueryResources, RequestContext};
use crate::context::budget::{Held, Usage};
use crate::context::deadline::Deadline;
use crate::context::limits::Limits;
use crate::context::running::{QueryDescription, RunningQueries};
use crate::error::QueryError;
use crate::exec::encoded::{GroupEncoder, ResultForm};
use crate::exec::environment::Environment;
use crate::exec::execution::{execute, plans};
use crate::exec::frame::{Delivery, Frame, Group};
use crate::exec::statistics::Statistics;
use crate::exec::totals::QueryTotals;
use crate::names::NameDirectory;
use crate::plan::query_plan::Plan;
use crate::plan::selection::matches::MatchCache;
use crate::reader::columns::{ColumnReader, PointStorage};
use crate::reader::estimate::Estimate;
use crate::reader::rows::RowReader;
use crate::rollup::Rollups;
use crate::series_index::SeriesIndex;
use crate::spec::QuerySpec;
use crate::storage::Storage;

/// Frames that may wait for a slow client.
const WAITING_FRAMES: usize = 8;

/// Points in memory from which on results are emitted before the scan ends: 32 MiB.
const EMIT_THRESHOLD: u64 = 2 << 20;

/// Runs queries over a store and a name directory. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Engine(Arc<Inner>);

#[derive(Clone, Debug)]
struct Inner {
    environment: Environment,
    running: RunningQueries,
}

/// A whole result in memory.
#[derive(Debug)]
pub struct WholeResult {
    /// The groups of all sub-queries, in their order.
    pub groups: Vec<Group>,
    /// The global annotations, if requested; `None`: none nearby.
    pub global_annotations: Option<Vec<Arc<Annotation>>>,
    /// Counts of the rows, points and series that were read.
    pub statistics: Statistics,
    /// The memory of the groups.
    pub held: Held,
}

impl Engine {
    /// An engine over the table of points and the table of series metadata.
    pub fn new(
        store: Arc<dyn RowStore>,
        (table, meta_table): (TableName, TableName),
        layout: RowKeyLayout,
        directory: Arc<dyn NameDirectory>,
        limits: Limits,
        resources: QueryResources,
    ) -> Self {
        let storage = Storage {
            reader: Arc::new(RowReader::new(Arc::clone(&store), table.clone(), layout)),
            store,
            table,
            meta_table,
            layout,
            directory,
            matches: MatchCache::default(),
            index: None,
            rollups: None,
        };
        let environment = Environment {
            storage,
            limits,
            resources,
            histograms: None,
            emit_threshold: EMIT_THRESHOLD,
            skipped_cells: Arc::default(),
            totals: Arc::default(),
        };
        Self(Arc::new(Inner {
            environment,
            running: RunningQueries::default(),
        }))
    }

    /// Emits results as soon as `points` points are in memory, instead of two million. Results are the same.
    #[must_use]
    pub fn with_emit_threshold(self, points: u64) -> Self {
        self.with(|environment| environment.emit_threshold = points)
    }

    /// Uses an index of the series of metrics.
    #[must_use]
    pub fn with_series_index(self, index: Option<Arc<dyn SeriesIndex>>) -> Self {
        self.with(|environment| environment.storage.index = index)
    }

    /// Decodes histograms with these codecs.
    #[must_use]
    pub fn with_histograms(self, codecs: Option<HistogramCodecs>) -> Self {
        self.with(|environment| environment.histograms = codecs)
    }

    /// Reads points from columns, if they are not in rows.
    #[must_use]
    pub fn with_points(self, points: Option<PointStorage>) -> Self {
        let Some(points) = points else { return self };
        self.with(|Environment { storage, .. }| {
            let (rows, table) = (Arc::clone(&storage.store), storage.table.clone());
            storage.reader = Arc::new(ColumnReader::new(points, rows, table, storage.layout));
        })
    }

    /// Reads rollups for sub-queries that they can serve.
    #[must_use]
    pub fn with_rollups(self, rollups: Option<Arc<Rollups>>) -> Self {
        self.with(|environment| environment.storage.rollups = rollups)
    }

    /// Resolves names by another directory.
    #[must_use]
    pub fn with_directory(self, directory: Arc<dyn NameDirectory>) -> Self {
        self.with(|environment| environment.storage.directory = directory)
    }

    /// Returns the engine for a caller that sees its own queries only, see [`Engine::running`].
    #[must_use]
    pub fn with_queries_of(self, caller: &Arc<str>) -> Self {
        let mut inner = (*self.0).clone();
        inner.running = inner.running.for_caller(caller);
        Self(Arc::new(inner))
    }

    fn with(self, change: impl FnOnce(&mut Environment)) -> Self {
        let mut inner = (*self.0).clone();
        change(&mut inner.environment);
        Self(Arc::new(inner))
    }

    /// The data that it reads.
    pub fn storage(&self) -> &Storage {
        &self.0.environment.storage
    }

    /// The limits of queries that do not set lower ones.
    pub fn limits(&self) -> &Limits {
        &self.0.environment.limits
    }

    /// The resources that all queries share.
    pub fn resources(&self) -> &QueryResources {
        &self.0.environment.resources
    }

    /// The running queries: all queries, or the queries of a caller.
    pub fn running(&self) -> &RunningQueries {
        &self.0.running
    }

    /// Cells without points that all queries since the start skipped; the counter continues.
    pub fn skipped_cells(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.0.environment.skipped_cells)
    }

    /// The totals of all queries since the start.
    pub fn totals(&self) -> Arc<QueryTotals> {
        Arc::clone(&self.0.environment.totals)
    }

    /// Registers a query, and waits for its permit and its memory. The query runs in the context of the
    /// result: see [`crate::QueryContext::run`].
    ///
    /// # Errors
    ///
    /// [`QueryError::NotAdmitted`] and [`QueryError::NoMemory`]: the query did not start. The errors of
    /// [`crate::QueryContext::run`].
    pub async fn admit(
        &self,
        request: RequestContext,
        description: QueryDescription,
        max_points: Option<u64>,
    ) -> Result<Admitted, QueryError> {
        let admitted = self.admit_query(request, description, max_points).await?;
        admitted.reserve_share();
        Ok(admitted)
    }

    /// As [`Engine::admit`], for a query of points, which reserves memory when it is planned.
    async fn admit_query(
        &self,
        request: RequestContext,
        description: QueryDescription,
        max_points: Option<u64>,
    ) -> Result<Admitted, QueryError> {
        let timeout = self.0.environment.resources.timeout;
        self.admit_within(request, description, max_points, timeout).await
    }

    /// As [`Engine::admit`], without the time limit of queries: of operators' calls that take as long as the table is
    /// large. A deadline of the request holds.
    ///
    /// # Errors
    ///
    /// As [`Engine::admit`].
    pub async fn admit_untimed(
        &self,
        request: RequestContext,
        description: QueryDescription,
    ) -> Result<Admitted, QueryError> {
        let admitted = self.admit_within(request, description, None, None).await?;
        admitted.reserve_share();
        Ok(admitted)
    }

    async fn admit_within(
        &self,
        request: RequestContext,
        description: QueryDescription,
        max_points: Option<u64>,
        timeout: Option<Duration>,
    ) -> Result<Admitted, QueryError> {
        let environment = &self.0.environment;
        let usage: Arc<Usage> = Arc::default();
        let registration = self.0.running.register(description, Arc::clone(&usage));
        let deadline = Deadline::new(request.deadline, timeout);
        let limits = environment.limits.with_request(max_points);
        let begun = Instant::now();
        let reserving = async {
            tokio::select! {
                reserved = environment.resources.reserve(request.client, limits, usage, &deadline) => reserved,
                () = deadline.passed() => Err(deadline.exceeded()),
                () = registration.cancellation().cancelled() => Err(QueryError::Cancelled),
            }
        };
        let reserved = reserving.instrument(info_span!(target: SPANS, "queue")).await;
        environment.totals.queue.observe_since(begun);
        let reserved = reserved.inspect_err(|error| registration.failed(error))?;
        Ok(Admitted::new(reserved, deadline, registration))
    }

    /// Runs a query, and returns the stream of its frames when there is the first one. An error is the last item; frames
    /// before it are a part of a result and must not be taken for the whole. Dropping the future or the stream cancels
    /// the query.
    ///
    /// Must be polled within a Tokio runtime.
    pub async fn run(
        &self,
        query: QuerySpec,
        request: RequestContext,
    ) -> impl Stream<Item = Result<Delivery, QueryError>> + Send + Unpin + use<> {
        self.frames(query, request, ResultForm::Frames).await
    }

    /// Runs a query in the task of the caller up to its first frame, and then, if it has not ended by then, in a task
    /// of its own, because the caller may not poll the stream for long. Most queries end within the first task: a
    /// hand-over costs about as much as a small query.
    async fn frames(
        &self,
        query: QuerySpec,
        request: RequestContext,
        form: ResultForm,
    ) -> ReceiverStream<Result<Delivery, QueryError>> {
        let (frames, receiver) = mpsc::channel(WAITING_FRAMES);
        let engine = self.clone();
        let mut run = Box::pin(async move {
            let result = tokio::select! {
                result = engine.run_to(&query, request, &frames, form) => result,
                () = frames.closed() => return,
            };
            if let Err(error) = result {
                // A client that has disconnected needs no error.
                let _ = frames.send(Err(error)).await;
            }
        });
        let has_ended = poll_fn(|context| match run.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(true),
            Poll::Pending if receiver.is_empty() => Poll::Pending,
            Poll::Pending => Poll::Ready(false),
        });
        if !has_ended.await {
            tokio::spawn(run.in_current_span());
        }
        ReceiverStream::new(receiver)
    }

    /// Admits a query and sends its frames.
    async fn run_to(
        &self,
        query: &QuerySpec,
        request: RequestContext,
        frames: &mpsc::Sender<Result<Delivery, QueryError>>,
        form: ResultForm,
    ) -> Result<(), QueryError> {
        let mut admitted = self
            .admit_query(request, query.description(), query.max_scanned_points)
            .await?;
        let context = admitted.context().clone();
        let environment = &self.0.environment;
        context
            .run(execute(environment, query, &mut admitted, frames, form))
            .await
    }

    /// Returns the plan of each sub-query, and an estimate of its reads.
    ///
    /// # Errors
    ///
    /// The errors of a query that arise before its first read.
    pub async fn explain(
        &self,
        query: &QuerySpec,
        request: RequestContext,
    ) -> Result<Vec<(Plan, Estimate)>, QueryError> {
        let environment = &self.0.environment;
        let admitted = self
            .admit(request, query.description(), query.max_scanned_points)
            .await?;
        let context = admitted.context();
        let explained = async {
            let mut explained = Vec::with_capacity(query.sub_queries.len());
            for plan in plans(environment, query, context).await? {
                let estimate = plan.access_path.estimate().await?;
                explained.push((plan, estimate));
            }
            Ok(explained)
        };
        context.run(explained).await
    }

    /// As [`Engine::run`], with whole groups: there is no [`Frame::More`], and no frame of a group follows one of the
    /// next. Fails if the points of a result exceed the memory of a query.
    pub async fn run_whole(
        &self,
        query: QuerySpec,
        request: RequestContext,
    ) -> impl Stream<Item = Result<Delivery, QueryError>> + Send + Unpin + use<> {
        self.frames(query, request, ResultForm::WholeGroups).await
    }

    /// As [`Engine::run_whole`], with groups encoded by the threads that compute them: [`Frame::Encoded`] in place of
    /// [`Frame::Group`] and [`Frame::GlobalAnnotations`].
    pub async fn run_encoded(
        &self,
        query: QuerySpec,
        request: RequestContext,
        encoder: Arc<dyn GroupEncoder>,
    ) -> impl Stream<Item = Result<Delivery, QueryError>> + Send + Unpin + use<> {
        self.frames(query, request, ResultForm::Encoded(encoder)).await
    }

    /// As [`Engine::run_whole`], and waits for the whole result.
    ///
    /// # Errors
    ///
    /// The first error, in place of the result.
    pub async fn collect(
        &self,
        query: QuerySpec,
        request: RequestContext,
    ) -> Result<WholeResult, QueryError> {
        let mut admitted = self
            .admit_query(request, query.description(), query.max_scanned_points)
            .await?;
        let context = admitted.context().clone();
        context.run(self.collect_within(&query, &mut admitted)).await
    }

    /// As [`Engine::collect`], within the context of a query that is admitted already.
    ///
    /// # Errors
    ///
    /// The first error, in place of the result.
    pub async fn collect_within(
        &self,
        query: &QuerySpec,
        admitted: &mut Admitted,
    ) -> Result<WholeResult, QueryError> {
        loop {
            let result = self.collect_once(query, admitted).await;
            admitted.note_collected(result.is_ok());
            match result {
                // The collected part of the result is dropped.
                Err(error) if admitted.can_start_again(&error) => admitted.start_again().await?,
                result => return result,
            }
        }
    }

    async fn collect_once(
        &self,
        query: &QuerySpec,
        admitted: &mut Admitted,
    ) -> Result<WholeResult, QueryError> {
        let (frames, receiver) = mpsc::channel(WAITING_FRAMES);
        let form = ResultForm::WholeGroups;
        let executed = async {
            let executed = execute(&self.0.environment, query, admitted, &frames, form).await;
            // Ends the stream of frames.
            drop(frames);
            executed
        };
        let collected = collected(ReceiverStream::new(receiver));
        // An error of the execution comes first: the stream of frames ends with it.
        let ((), result) = tokio::try_join!(executed, collected)?;
        Ok(result)
    }
}

async fn collected(
    mut deliveries: ReceiverStream<Result<Delivery, QueryError>>,
) -> Result<WholeResult, QueryError> {
    let mut groups = Vec::new();
    let mut global_annotations = None;
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
            Frame::GlobalAnnotations(annotations) => global_annotations = Some(annotations),
            Frame::More { .. } | Frame::Annotations { .. } | Frame::Encoded(_) | Frame::Done { .. } => {}
            Frame::Statistics(statistics) => {
                return Ok(WholeResult {
                    groups,
                    global_annotations,
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
