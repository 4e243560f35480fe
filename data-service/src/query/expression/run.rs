//! Where expressions are computed: beside the threads that answer requests.

use std::time::Instant;

use oxtsdb_schema::UidWidths;
use tokio_util::sync::CancellationToken;

use super::error::ExpressionError;
use super::series::Series;
use crate::query::{Engine, QueryError, QuerySpec, Statistics};

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
