//! What expressions need of the engine, and where they are computed: in the computation pool.

use std::collections::{BTreeSet, HashMap};
use std::time::Instant;

use oxtsdb_resources::ComputePool;
use oxtsdb_schema::{Uid, UidKind, UidWidths};
use tokio_util::sync::CancellationToken;

use super::error::ExpressionError;
use super::series::Series;
use crate::exec::budget::Held;
use crate::exec::engine::WholeAnswer;
use crate::exec::running::Registration;
use crate::{Engine, QueryError, QuerySpec, RequestContext, Statistics, SubQuery};

/// The series that a query found.
#[derive(Debug)]
pub struct Found {
    /// Those of each sub-query.
    pub series: Vec<Vec<Series>>,
    /// What it took.
    pub statistics: Statistics,
    /// Their memory.
    pub held: Held,
}

/// The series of each sub-query.
///
/// # Errors
///
/// Those of the query.
pub async fn series(engine: &Engine, spec: QuerySpec, request: RequestContext) -> Result<Found, QueryError> {
    let widths: UidWidths = engine.layout().widths;
    let mut results = vec![Vec::new(); spec.sub_queries.len()];
    let WholeAnswer {
        groups,
        statistics,
        held,
    } = engine.answer(spec, request).await?;
    for group in groups {
        if let Some(list) = results.get_mut(group.query) {
            list.push(Series::of_group(group, &widths));
        }
    }
    Ok(Found {
        series: results,
        statistics,
        held,
    })
}

/// The UIDs of the tag keys of each sub-query's filters; keys that nobody has written are left out.
///
/// # Errors
///
/// When the UID service cannot be asked.
pub async fn query_tags(
    engine: &Engine,
    sub_queries: &[SubQuery],
    deadline: Option<Instant>,
) -> Result<Vec<BTreeSet<Uid>>, QueryError> {
    let wanted: BTreeSet<&str> = sub_queries.iter().flat_map(keys).collect();
    let names: Vec<_> = wanted.into_iter().map(|key| (UidKind::Tagk, key)).collect();
    let uids = if names.is_empty() {
        Vec::new()
    } else {
        engine.directory().uids(&names, deadline).await?
    };
    let known: HashMap<&str, Uid> = names
        .into_iter()
        .zip(uids)
        .filter_map(|((_, key), uid)| Some((key, uid?)))
        .collect();
    let of_query = |query: &SubQuery| keys(query).filter_map(|key| known.get(key).copied()).collect();
    Ok(sub_queries.iter().map(of_query).collect())
}

fn keys(query: &SubQuery) -> impl Iterator<Item = &str> {
    query.filter.tags.iter().map(|filter| filter.key.as_str())
}

/// Computes in the computation pool. The computation is cancelled when the deadline passes, when it is ended
/// as one of the running queries, or when the caller drops the future.
///
/// # Errors
///
/// Those of the computation; [`ExpressionError::Cancelled`] after the deadline; [`QueryError::Ended`].
pub async fn computed<T: Send + 'static, E: From<ExpressionError> + Send + 'static>(
    pool: &ComputePool,
    registration: Registration,
    compute: impl FnOnce(&CancellationToken) -> Result<T, E> + Send + 'static,
    deadline: Option<Instant>,
) -> Result<T, E> {
    let cancelled = CancellationToken::new();
    let _cancel = cancelled.clone().drop_guard();
    let task = pool.run(move || compute(&cancelled));
    let in_time = async {
        match deadline {
            None => Ok(task.await),
            Some(deadline) => tokio::time::timeout_at(deadline.into(), task).await,
        }
    };
    let ended = tokio::select! {
        ended = in_time => ended.map_err(|_| ExpressionError::Cancelled)?,
        () = registration.ended.cancelled() => return Err(ExpressionError::Query(QueryError::Ended).into()),
    };
    ended.unwrap_or_else(|panicked| Err(ExpressionError::Query(panicked.into()).into()))
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, LazyLock};

    use super::*;
    use crate::exec::running::RunningQueries;
    use crate::{QuerySpec, Quirks};
    use oxtsdb_schema::DuplicatePolicy;
    use tokio::sync::oneshot;

    fn register(running: &RunningQueries) -> Registration {
        let spec = QuerySpec {
            start_ms: 0,
            end_ms: 1000,
            sub_queries: Vec::new(),
            duplicates: DuplicatePolicy::KeepNewest,
            max_scanned_points: None,
            quirks: Quirks::NONE,
            skip_damaged_rows: false,
            with_surroundings: false,
        };
        running.register(&spec, Arc::default())
    }

    /// A computation that goes on until it hears that nobody wants its result, and what it says then.
    fn endless() -> (
        impl FnOnce(&CancellationToken) -> Result<(), ExpressionError> + Send,
        oneshot::Receiver<()>,
    ) {
        let (stopped, is_stopped) = oneshot::channel();
        let compute = move |cancelled: &CancellationToken| {
            while !cancelled.is_cancelled() {
                std::thread::yield_now();
            }
            // The test may not wait for it.
            let _ = stopped.send(());
            Err(ExpressionError::Cancelled)
        };
        (compute, is_stopped)
    }

    async fn of_pool(
        registration: Registration,
        compute: impl FnOnce(&CancellationToken) -> Result<(), ExpressionError> + Send + 'static,
        deadline: Option<Instant>,
    ) -> Result<(), ExpressionError> {
        // It outlives the computations, as that of a server does.
        static POOL: LazyLock<ComputePool> = LazyLock::new(|| ComputePool::new(4).unwrap());
        computed(&POOL, registration, compute, deadline).await
    }

    #[tokio::test]
    async fn a_computation_is_listed_and_can_be_ended() {
        let running = RunningQueries::default();
        let (compute, is_stopped) = endless();
        let computed = tokio::spawn(of_pool(register(&running), compute, None));
        let id = running.list()[0].id;
        assert!(running.end(id));
        let error = computed.await.unwrap().unwrap_err();
        assert!(
            matches!(error, ExpressionError::Query(QueryError::Ended)),
            "{error}"
        );
        is_stopped.await.unwrap();
        assert!(running.list().is_empty());
    }

    #[tokio::test]
    async fn a_deadline_stops_a_computation() {
        let running = RunningQueries::default();
        let (compute, is_stopped) = endless();
        let error = of_pool(register(&running), compute, Some(Instant::now())).await;
        assert!(matches!(error, Err(ExpressionError::Cancelled)), "{error:?}");
        is_stopped.await.unwrap();
    }

    #[tokio::test]
    async fn a_computation_stops_when_nobody_waits_for_it() {
        let running = RunningQueries::default();
        let (compute, is_stopped) = endless();
        let computed = tokio::spawn(of_pool(register(&running), compute, None));
        computed.abort();
        assert!(computed.await.unwrap_err().is_cancelled());
        // Aborted before it began, or stopped.
        let _ = is_stopped.await;
        assert!(running.list().is_empty());
    }
}
