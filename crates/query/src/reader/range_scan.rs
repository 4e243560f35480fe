//! Scans several ranges of row keys, such as a metric's ranges in all salt buckets.

use std::sync::Arc;

use futures::stream::{self, BoxStream, Stream, StreamExt as _, TryStreamExt as _};
use oxtsdb_row_store::{Row, RowStore, Scan, StoreError, TableName};
use oxtsdb_schema::{RowKeyLayout, Tsuid};
use rustc_hash::FxHashSet;

use crate::plan::hours::Hours;

/// Ranges that are scanned concurrently.
const CONCURRENT_RANGES: usize = 4;

/// A range of row keys: from the first, inclusive, to the second, exclusive; empty: to the end of the table.
pub(crate) type KeyRange = (Vec<u8>, Vec<u8>);

/// Scans ranges one after the other with the options of `template`. Dropping the stream cancels the scan.
pub(crate) fn scan_in_order(
    store: &Arc<dyn RowStore>,
    table: &TableName,
    ranges: Vec<KeyRange>,
    template: Scan,
) -> BoxStream<'static, Result<Vec<Row>, StoreError>> {
    scans(store, table, ranges, template).flatten().boxed()
}

/// As [`scan_in_order`], but concurrently. Only the rows of one range are in order.
pub(crate) fn scan_concurrently(
    store: &Arc<dyn RowStore>,
    table: &TableName,
    ranges: Vec<KeyRange>,
    template: Scan,
) -> BoxStream<'static, Result<Vec<Row>, StoreError>> {
    scans(store, table, ranges, template)
        .flatten_unordered(CONCURRENT_RANGES)
        .boxed()
}

/// A stream of rows for each range, which opens its scan when it is polled.
fn scans(
    store: &Arc<dyn RowStore>,
    table: &TableName,
    ranges: Vec<KeyRange>,
    template: Scan,
) -> impl Stream<Item = BoxStream<'static, Result<Vec<Row>, StoreError>>> + use<> {
    let (store, table) = (Arc::clone(store), table.clone());
    stream::iter(ranges).map(move |(start, stop)| {
        let (store, table) = (Arc::clone(&store), table.clone());
        let scan = Scan {
            start,
            stop,
            ..template.clone()
        };
        stream::once(async move { store.scan(&table, scan).await })
            .try_flatten()
            .boxed()
    })
}

/// The ranges that hold series which may be of several metrics, ascending.
pub(crate) fn series_ranges(tsuids: &[Tsuid], layout: &RowKeyLayout, hours: Hours) -> Vec<KeyRange> {
    let bucket = |tsuid: &Tsuid| {
        if layout.salt.width() == 0 {
            0
        } else {
            layout.salt.bucket(tsuid.as_bytes())
        }
    };
    let mut ranges: Vec<_> = tsuids
        .iter()
        .map(|tsuid| (bucket(tsuid), tsuid.metric(&layout.widths)))
        .collect::<FxHashSet<_>>()
        .into_iter()
        .map(|(bucket, metric)| hours.range(layout, metric, bucket))
        .collect();
    ranges.sort_unstable();
    ranges.dedup();
    ranges
}

#[cfg(test)]
mod tests {
    use oxtsdb_row_store::memory::MemoryStore;
    use oxtsdb_row_store::{TableDef, WriteBatch};

    use super::*;

    #[tokio::test]
    async fn scans_all_ranges_with_the_template() {
        let memory = MemoryStore::new();
        let table: TableName = "t".parse().unwrap();
        memory
            .create_table(&TableDef::new(table.clone(), &["f"]))
            .await
            .unwrap();
        let mut batch = WriteBatch::new(table.clone());
        let family = batch.family("f");
        for key in 0..100_u8 {
            batch.row(&[key]).put(family, b"q", b"v");
        }
        memory.write(batch).await.unwrap();
        let store: Arc<dyn RowStore> = Arc::new(memory);
        let ranges: Vec<KeyRange> = (0..10)
            .map(|tens| (vec![tens * 10 + 2], vec![tens * 10 + 5]))
            .collect();
        let mut template = Scan::range([], []);
        template.batch_rows = 2;
        let keys = async |scan: BoxStream<'static, Result<Vec<Row>, StoreError>>| {
            let batches: Vec<_> = scan.try_collect().await.unwrap();
            assert!(batches.iter().all(|batch| batch.len() <= 2));
            let rows = batches.iter().flatten();
            rows.map(|row| row.key()[0]).collect::<Vec<_>>()
        };
        let expected: Vec<u8> = (0..100).filter(|key| (2..5).contains(&(key % 10))).collect();
        let in_order = scan_in_order(&store, &table, ranges.clone(), template.clone());
        assert_eq!(keys(in_order).await, expected);
        let mut all = keys(scan_concurrently(&store, &table, ranges, template)).await;
        all.sort_unstable();
        assert_eq!(all, expected);
    }
}
