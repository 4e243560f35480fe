//! The metrics of a build.

use std::time::Instant;

use futures::TryStreamExt as _;
use oxtsdb_query::{QueryError, Storage};
use oxtsdb_row_store::{ColumnSelection, Scan, prefix_end};
use oxtsdb_schema::data_table::FAMILY;
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
    let mut metrics = match &storage.points {
        Some(points) => points.columns.metrics(),
        None => of_rows(storage).await?,
    };
    metrics.sort_unstable();
    metrics.dedup();
    // Zeros are the metric of global annotations.
    metrics.retain(|uid| uid.iter().any(|byte| *byte != 0));
    Ok(metrics
        .iter()
        .filter_map(|uid| MetricUid::from_bytes(uid).ok())
        .collect())
}

/// The metrics in row keys: one row is read of each in each bucket, and the next scan begins after its metric.
async fn of_rows(storage: &Storage) -> Result<Vec<Vec<u8>>, QueryError> {
    let layout = &storage.layout;
    let width = layout.widths.metric.bytes();
    let mut metrics = Vec::new();
    let mut salts: Vec<Vec<u8>> = layout
        .salt
        .buckets()
        .map(|bucket| layout.salt.bytes_of(bucket).as_bytes().to_vec())
        .collect();
    salts.sort_unstable();
    salts.dedup();
    for salt in salts {
        let stop = prefix_end(&salt);
        let mut start = salt.clone();
        loop {
            let mut scan = Scan::range(start.clone(), stop.clone());
            scan.columns = ColumnSelection::Family(String::from_utf8_lossy(FAMILY).into_owned());
            scan.limit = Some(1);
            scan.batch_rows = 1;
            let mut rows = storage.store.scan(&storage.table, scan).await?;
            let Some(row) = rows.try_next().await?.and_then(|rows| rows.into_iter().next()) else {
                break;
            };
            let Some(metric) = row.key().get(salt.len()..salt.len() + width) else {
                start = [row.key(), &[0]].concat();
                continue;
            };
            metrics.push(metric.to_vec());
            start = prefix_end(&[&salt, metric].concat());
            if start.is_empty() {
                break;
            }
        }
    }
    Ok(metrics)
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
