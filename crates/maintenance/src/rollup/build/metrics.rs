//! The metrics of a build.

use std::time::Instant;

use oxtsdb_query::{QueryError, Storage};
use oxtsdb_schema::{MetricUid, Uid, UidKind};

/// The metric of a name, or all metrics that have points, ascending by UID.
pub(super) async fn find(
    storage: &Storage,
    name: Option<&str>,
    deadline: Option<Instant>,
) -> Result<Vec<MetricUid>, QueryError> {
    if let Some(name) = name {
        let uids = storage
            .directory
            .uids(&[(UidKind::Metric, name)], deadline)
            .await?;
        return match uids.first() {
            Some(Some(uid)) => Ok(vec![(*uid).into()]),
            _ => Err(QueryError::UnknownName {
                kind: UidKind::Metric,
                name: name.to_owned(),
            }),
        };
    }
    let mut metrics = storage.reader.metrics().await?;
    metrics.sort_unstable();
    metrics.dedup();
    // Zeros are the metric of global annotations.
    metrics.retain(|uid| uid.iter().any(|byte| *byte != 0));
    Ok(metrics
        .iter()
        .filter_map(|uid| MetricUid::from_bytes(uid).ok())
        .collect())
}

/// The name of a metric; its UID as hex if it has none.
pub(super) async fn name(
    storage: &Storage,
    metric: MetricUid,
    deadline: Option<Instant>,
) -> Result<String, QueryError> {
    let uid: Uid = metric.into();
    let names = storage.directory.names(UidKind::Metric, &[uid], deadline).await?;
    let name = names.into_iter().next().flatten();
    Ok(name.map_or_else(|| uid.to_string(), |name| name.to_string()))
}
