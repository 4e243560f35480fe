//! Streams the last points of many series.
//!
//! Points are sent as the scan finds them. After a series' point was sent, a scan retains only its TSUID, so that a
//! million series fit in the memory of a query.

use futures::FutureExt as _;
use futures::stream::{self, Stream, StreamExt as _};
use oxtsdb_schema::Tsuid;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use crate::context::admission::{Admitted, PAUSE_AFTER, RequestContext};
use crate::context::budget::Held;
use crate::context::query_context::QueryContext;
use crate::context::running::QueryDescription;
use crate::error::QueryError;
use crate::exec::engine::Engine;
use crate::last::search::{LastPoint, LookBack, SeriesNames, find_last_point, names_of};
use crate::names::{check_metrics, uids_of_series};
use crate::plan::metric_series::MetricSeries;
use crate::plan::tsuids::check_tsuid;
use crate::quirks::Quirks;
use crate::spec::SeriesFilter;
use crate::storage::Storage;

/// Most points of a batch.
const BATCH_POINTS: usize = 1024;

/// Estimated memory of a point and of its names.
const POINT_BYTES: u64 = 128;
const NAMES_BYTES: u64 = 512;

/// Searches of single series that run concurrently.
const SERIES_AT_A_TIME: usize = 16;

/// Batches that may wait for a slow client.
const WAITING_BATCHES: usize = 2;

/// A query for last points.
#[derive(Clone, Debug, PartialEq)]
pub struct LastQuery {
    /// Series and sets of series.
    pub targets: Vec<LastTarget>,
    /// The range of the search.
    pub look_back: LookBack,
    /// Whether the names of series are resolved.
    pub with_names: bool,
}

/// A series or a set of series.
#[derive(Clone, Debug, PartialEq)]
pub enum LastTarget {
    /// A series by names.
    Name {
        /// The metric.
        metric: String,
        /// Tag keys and values.
        tags: Vec<(String, String)>,
    },
    /// A series by the bytes of its TSUID.
    Tsuid(Vec<u8>),
    /// The matching series of a metric.
    Metric {
        /// The metric.
        metric: String,
        /// Selects series.
        filter: SeriesFilter,
    },
}

/// An item of the result.
#[derive(Debug)]
pub enum LastItem {
    /// Last points of one target.
    Points(LastBatch),
    /// A target failed; the others continue.
    Failed {
        /// Number of the target.
        target: usize,
        /// The reason.
        error: QueryError,
    },
}

/// Last points of one target, and their memory.
#[derive(Debug)]
pub struct LastBatch {
    /// Number of the target.
    pub target: usize,
    /// The points.
    pub points: Vec<LastPoint>,
    /// The name of each series, if requested.
    pub names: Vec<SeriesNames>,
    /// The memory of both.
    pub held: Held,
}

/// Finds last points. An error is the last item. Dropping the stream cancels the query.
///
/// Must be called within a Tokio runtime.
pub fn last_points(
    engine: &Engine,
    query: LastQuery,
    request: RequestContext,
) -> impl Stream<Item = Result<LastItem, QueryError>> + Send + Unpin + use<> {
    let (items, receiver) = mpsc::channel(WAITING_BATCHES);
    let engine = engine.clone();
    tokio::spawn(async move {
        let work = async {
            let admitted = engine.admit(request, query.description(), None).await?;
            let context = admitted.context().clone();
            let mut output = Output {
                items: &items,
                admitted,
                with_names: query.with_names,
                storage: engine.storage(),
            };
            context.run(find(&engine, &context, &query, &mut output)).await
        };
        let result = tokio::select! {
            result = work => result,
            () = items.closed() => return,
        };
        if let Err(error) = result {
            // A client that has disconnected needs no error.
            let _ = items.send(Err(error)).await;
        }
    });
    ReceiverStream::new(receiver)
}

impl LastQuery {
    /// Its entry in the list of running queries.
    fn description(&self) -> QueryDescription {
        let target = |target: &LastTarget| match target {
            LastTarget::Name { metric, .. } | LastTarget::Metric { metric, .. } => format!("last:{metric}"),
            LastTarget::Tsuid(_) => "last:(1 TSUID)".to_owned(),
        };
        QueryDescription {
            sub_queries: self.targets.iter().map(target).collect(),
            range_ms: (self.look_back.from_ms, self.look_back.now_ms),
        }
    }
}

/// Sends batches. While the client reads none, the query releases its permit to others.
struct Output<'a> {
    items: &'a mpsc::Sender<Result<LastItem, QueryError>>,
    admitted: Admitted,
    with_names: bool,
    storage: &'a Storage,
}

impl Output<'_> {
    async fn send_points(&mut self, target: usize, points: Vec<LastPoint>) -> Result<(), QueryError> {
        if points.is_empty() {
            return Ok(());
        }
        let bytes = if self.with_names {
            POINT_BYTES + NAMES_BYTES
        } else {
            POINT_BYTES
        };
        let held = self.admitted.budget().hold(points.len() as u64 * bytes)?;
        let names = if self.with_names {
            let tsuids: Vec<Tsuid> = points.iter().map(|point| point.tsuid.clone()).collect();
            names_of(self.storage, &tsuids, self.admitted.context()).await?
        } else {
            Vec::new()
        };
        let batch = LastBatch {
            target,
            points,
            names,
            held,
        };
        self.send(LastItem::Points(batch)).await;
        Ok(())
    }

    async fn send(&mut self, item: LastItem) {
        let capacity = match tokio::time::timeout(PAUSE_AFTER, self.items.reserve()).await {
            Ok(capacity) => capacity,
            Err(_elapsed) => {
                self.admitted.pause();
                let capacity = self.items.reserve().await;
                self.admitted.resume().await;
                capacity
            }
        };
        // A disconnecting client cancels the query through its context.
        if let Ok(capacity) = capacity {
            capacity.send(Ok(item));
        }
    }
}

/// Single series first, some at a time, then the sets of series one after the other.
async fn find(
    engine: &Engine,
    context: &QueryContext,
    query: &LastQuery,
    output: &mut Output<'_>,
) -> Result<(), QueryError> {
    // Collected and boxed, because the compiler cannot prove that a stream over the closure is Send.
    let searches: Vec<_> = query
        .targets
        .iter()
        .enumerate()
        .filter(|(_, target)| !matches!(target, LastTarget::Metric { .. }))
        .map(|(index, target)| {
            async move {
                (
                    index,
                    find_target_point(engine, context, target, query.look_back).await,
                )
            }
            .boxed()
        })
        .collect();
    let mut results = stream::iter(searches).buffered(SERIES_AT_A_TIME);
    while let Some((index, point)) = results.next().await {
        match point {
            Ok(point) => output.send_points(index, point.into_iter().collect()).await?,
            Err(error) => output.send(LastItem::Failed { target: index, error }).await,
        }
    }
    for (index, target) in query.targets.iter().enumerate() {
        let LastTarget::Metric { metric, filter } = target else {
            continue;
        };
        if let Err(error) = send_metric_points(
            engine,
            context,
            (metric, filter),
            query.look_back,
            (index, output),
        )
        .await
        {
            output.send(LastItem::Failed { target: index, error }).await;
        }
    }
    Ok(())
}

/// The last points of the matching series of a metric.
async fn send_metric_points(
    engine: &Engine,
    context: &QueryContext,
    (metric, filter): (&str, &SeriesFilter),
    look_back: LookBack,
    (index, output): (usize, &mut Output<'_>),
) -> Result<(), QueryError> {
    let storage = engine.storage();
    let series = MetricSeries::resolve(metric, filter, Quirks::NONE, storage, context.deadline()).await?;
    let context = storage.read_context(&engine.resources().compute, context);
    let reader = &storage.reader;
    let mut points = reader
        .last_points_of_metric(series.metric, &series.selection, look_back, &context)
        .await?;
    while let Some(batch) = points.next().await {
        let mut batch = batch?;
        while batch.len() > BATCH_POINTS {
            let rest = batch.split_off(BATCH_POINTS);
            output
                .send_points(index, std::mem::replace(&mut batch, rest))
                .await?;
        }
        output.send_points(index, batch).await?;
    }
    Ok(())
}

/// The last point of a target that is one series.
async fn find_target_point(
    engine: &Engine,
    context: &QueryContext,
    target: &LastTarget,
    look_back: LookBack,
) -> Result<Option<LastPoint>, QueryError> {
    let storage = engine.storage();
    let tsuid = match target {
        LastTarget::Name { metric, tags } => tsuid_of(storage, context, metric, tags).await?,
        LastTarget::Tsuid(bytes) => {
            let tsuid = check_tsuid(bytes, &storage.layout)?;
            let widths = &storage.layout.widths;
            check_metrics([&tsuid], widths, &*storage.directory, context.deadline()).await?;
            tsuid
        }
        LastTarget::Metric { .. } => return Ok(None),
    };
    let compute = &engine.resources().compute;
    find_last_point(storage, &tsuid, look_back, context, compute).await
}

async fn tsuid_of(
    storage: &Storage,
    context: &QueryContext,
    metric: &str,
    tags: &[(String, String)],
) -> Result<Tsuid, QueryError> {
    let tags: Vec<_> = tags
        .iter()
        .map(|(key, value)| (key.as_str(), value.as_str()))
        .collect();
    let uids = uids_of_series(metric, &tags, &*storage.directory, context.deadline());
    let (metric, mut tags) = uids.await?;
    Tsuid::new(metric, &mut tags).map_err(|error| QueryError::Tsuid {
        reason: error.to_string(),
    })
}
