//! The interface of expressions to the engine, and the computation pool in which they run.

use std::collections::BTreeSet;
use std::sync::Arc;

use oxtsdb_resources::ComputePool;
use oxtsdb_schema::{Annotation, Uid, UidKind, UidWidths};
use tokio_util::sync::CancellationToken;

use super::error::ExpressionError;
use super::series::Series;
use crate::context::admission::Admitted;
use crate::context::budget::Held;
use crate::context::query_context::QueryContext;
use crate::error::QueryError;
use crate::exec::engine::{Engine, WholeResult};
use crate::exec::statistics::Statistics;
use crate::names::ResolvedNames;
use crate::spec::{QuerySpec, SubQuery};

/// The series that a query returned.
#[derive(Debug)]
pub struct Found {
    /// The series of each sub-query.
    pub series: Vec<Vec<Series>>,
    /// The global annotations, if requested; `None`: none nearby.
    pub global_annotations: Option<Vec<Arc<Annotation>>>,
    /// Counts of the reads and the time.
    pub statistics: Statistics,
    /// Their memory.
    pub held: Held,
}

/// Runs the inputs of expressions within an admitted query.
///
/// # Errors
///
/// Errors of the query.
pub async fn series(engine: &Engine, spec: &QuerySpec, admitted: &mut Admitted) -> Result<Found, QueryError> {
    let widths: UidWidths = engine.storage().layout.widths;
    let mut results = vec![Vec::new(); spec.sub_queries.len()];
    let WholeResult {
        groups,
        global_annotations,
        statistics,
        held,
    } = engine.collect_within(spec, admitted).await?;
    for group in groups {
        if let Some(list) = results.get_mut(group.query) {
            list.push(Series::from_group(group, &widths));
        }
    }
    Ok(Found {
        series: results,
        global_annotations,
        statistics,
        held,
    })
}

/// The UIDs of the tag keys of each sub-query's filters, without unknown keys.
///
/// # Errors
///
/// When the name directory fails.
pub async fn query_tags(
    engine: &Engine,
    sub_queries: &[SubQuery],
    context: &QueryContext,
) -> Result<Vec<BTreeSet<Uid>>, QueryError> {
    let all = sub_queries.iter().flat_map(keys).map(|key| (UidKind::Tagk, key));
    let known = ResolvedNames::resolve(all, &*engine.storage().directory, context.deadline()).await?;
    let uid_of = |key: &str| known.find(UidKind::Tagk, key);
    let of_query = |query: &SubQuery| keys(query).filter_map(uid_of).collect();
    Ok(sub_queries.iter().map(of_query).collect())
}

fn keys(query: &SubQuery) -> impl Iterator<Item = &str> {
    query.filter.tags.iter().map(|filter| filter.key.as_str())
}

/// Computes expressions in their pool. Meanwhile the query releases its permit to other queries.
///
/// # Errors
///
/// Errors of the computation, and [`ExpressionError::Query`] if it panics. The context of the query interrupts
/// it: see [`QueryContext::run`].
pub async fn computed<T: Send + 'static, E: From<ExpressionError> + Send + 'static>(
    pool: &ComputePool,
    admitted: &mut Admitted,
    compute: impl FnOnce(&CancellationToken) -> Result<T, E> + Send + 'static,
) -> Result<T, E> {
    admitted.pause();
    let cancellation = admitted.context().cancellation().clone();
    let pool = admitted.context().compute(pool);
    let computed = pool.run(move || compute(&cancellation)).await;
    computed.unwrap_or_else(|panicked| Err(ExpressionError::Query(panicked.into()).into()))
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, LazyLock};
    use std::time::Instant;

    use oxtsdb_resources::ClientId;
    use tokio::sync::oneshot;

    use super::*;
    use crate::context::admission::QueryResources;
    use crate::context::deadline::Deadline;
    use crate::context::limits::Limits;
    use crate::context::running::{QueryDescription, RunningQueries};

    /// A computation that continues until it is cancelled, and the signal that it stopped.
    fn endless() -> (
        impl FnOnce(&CancellationToken) -> Result<(), ExpressionError> + Send,
        oneshot::Receiver<()>,
    ) {
        let (stopped, is_stopped) = oneshot::channel();
        let compute = move |cancellation: &CancellationToken| {
            while !cancellation.is_cancelled() {
                std::thread::yield_now();
            }
            // The test may not wait for it.
            let _ = stopped.send(());
            Err(ExpressionError::Cancelled)
        };
        (compute, is_stopped)
    }

    async fn run(
        running: RunningQueries,
        compute: impl FnOnce(&CancellationToken) -> Result<(), ExpressionError> + Send + 'static,
        deadline: Option<Instant>,
    ) -> Result<(), ExpressionError> {
        // The pool outlives the computations, as in a server.
        static POOL: LazyLock<ComputePool> = LazyLock::new(|| ComputePool::new(4).unwrap());
        let registration = running.register(QueryDescription::default(), Arc::default());
        let resources = QueryResources::unlimited().unwrap();
        let reserved = resources
            .reserve(
                ClientId::Local,
                Limits::NONE,
                Arc::default(),
                &Deadline::default(),
            )
            .await?;
        let mut admitted = Admitted::new(reserved, Deadline::new(deadline, None), registration);
        let context = admitted.context().clone();
        context.run(computed(&POOL, &mut admitted, compute)).await
    }

    async fn listed(running: &RunningQueries) -> u64 {
        loop {
            if let Some(query) = running.list().first() {
                return query.id;
            }
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn an_operator_lists_and_cancels_a_computation() {
        let running = RunningQueries::default();
        let (compute, is_stopped) = endless();
        let computed = tokio::spawn(run(running.clone(), compute, None));
        assert!(running.cancel(listed(&running).await));
        let error = computed.await.unwrap().unwrap_err();
        assert!(
            matches!(error, ExpressionError::Query(QueryError::Cancelled)),
            "{error}"
        );
        // It stopped, or left the queue before it started.
        let _ = is_stopped.await;
        assert!(running.list().is_empty());
    }

    #[tokio::test]
    async fn a_deadline_stops_a_computation() {
        let running = RunningQueries::default();
        let (compute, is_stopped) = endless();
        let error = run(running, compute, Some(Instant::now())).await;
        let is_deadline = matches!(error, Err(ExpressionError::Query(QueryError::DeadlineExceeded)));
        assert!(is_deadline, "{error:?}");
        // It stopped, or left the queue before it started.
        let _ = is_stopped.await;
    }

    #[tokio::test]
    async fn dropping_the_future_stops_a_computation() {
        let running = RunningQueries::default();
        let (compute, is_stopped) = endless();
        let computed = tokio::spawn(run(running.clone(), compute, None));
        listed(&running).await;
        computed.abort();
        assert!(computed.await.unwrap_err().is_cancelled());
        // It stopped, or left the queue before it started.
        let _ = is_stopped.await;
        assert!(running.list().is_empty());
    }
}
