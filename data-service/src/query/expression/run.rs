//! What expressions need of the engine, and where they are computed: beside the threads that answer
//! requests.

use std::collections::{BTreeSet, HashMap};
use std::time::Instant;

use oxtsdb_schema::{Uid, UidKind, UidWidths};
use tokio_util::sync::CancellationToken;

use super::error::ExpressionError;
use super::series::Series;
use crate::query::{Engine, QueryError, QuerySpec, Statistics, SubQuery};

/// The series of each sub-query.
///
/// # Errors
///
/// Those of the query.
pub async fn series(
    engine: &Engine,
    spec: QuerySpec,
    deadline: Option<Instant>,
) -> Result<(Vec<Vec<Series>>, Statistics), QueryError> {
    let widths: UidWidths = engine.layout().widths;
    let mut results = vec![Vec::new(); spec.sub_queries.len()];
    let (groups, statistics) = engine.answer(spec, deadline).await?;
    for group in groups {
        if let Some(list) = results.get_mut(group.query) {
            list.push(Series::of_group(group, &widths));
        }
    }
    Ok((results, statistics))
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

/// Computes on a thread that may block. The computation hears when the deadline passes or nobody waits
/// for the result any more.
///
/// # Errors
///
/// Those of the computation; [`ExpressionError::Cancelled`] after the deadline.
pub async fn computed<T: Send + 'static, E: From<ExpressionError> + Send + 'static>(
    compute: impl FnOnce(&CancellationToken) -> Result<T, E> + Send + 'static,
    deadline: Option<Instant>,
) -> Result<T, E> {
    let cancelled = CancellationToken::new();
    let _cancel = cancelled.clone().drop_guard();
    let task = tokio::task::spawn_blocking(move || compute(&cancelled));
    let ended = match deadline {
        None => task.await,
        Some(deadline) => match tokio::time::timeout_at(deadline.into(), task).await {
            Ok(ended) => ended,
            Err(_) => return Err(ExpressionError::Cancelled.into()),
        },
    };
    ended.unwrap_or_else(|error| {
        let detail = error.to_string();
        Err(ExpressionError::Query(QueryError::Internal { detail }).into())
    })
}
