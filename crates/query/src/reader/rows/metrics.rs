//! The metrics in row keys.

use futures::TryStreamExt as _;
use oxtsdb_row_store::{Scan, prefix_end};

use super::RowReader;
use crate::error::QueryError;
use crate::reader::scan::point_columns;

impl RowReader {
    /// One row is read of each metric in each bucket, and the next scan begins after its metric. A metric in several buckets
    /// is repeated.
    pub(super) async fn metrics_of_keys(&self) -> Result<Vec<Vec<u8>>, QueryError> {
        let layout = &self.layout;
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
                scan.columns = point_columns();
                scan.limit = Some(1);
                scan.batch_rows = 1;
                let mut rows = self.store.scan(&self.table, scan).await?;
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
}
