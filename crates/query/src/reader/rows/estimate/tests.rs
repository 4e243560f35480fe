use async_trait::async_trait;
use oxtsdb_row_store::intercept::{Intercept, InterceptedStore, Operation, Response};
use oxtsdb_row_store::memory::MemoryStore;
use oxtsdb_row_store::{TableDef, WriteBatch};
use oxtsdb_schema::row_key::write_row_key;

use std::sync::Arc;

use super::*;

const T: u32 = 1_356_998_400;

fn hours(count: u32) -> Hours {
    Hours {
        start: BaseTime::from_seconds(T),
        stop_seconds: u64::from(T + count * 3600),
    }
}

/// `series` series of metric 1 in each hour, and one of metric 2.
async fn store(series: u32, hours: Hours) -> Arc<dyn RowStore> {
    let store = MemoryStore::new();
    let table: TableName = "tsdb".parse().unwrap();
    store
        .create_table(&TableDef::new(table.clone(), &["t"]))
        .await
        .unwrap();
    let mut batch = WriteBatch::new(table);
    let family = batch.family("t");
    let mut put = |tsuid: &[u8], hour| {
        let mut key = Vec::new();
        write_row_key(&RowKeyLayout::default(), tsuid, hour, &mut key);
        batch.row(&key).put(family, &[0, 0], &[1]);
    };
    for hour in hours.iter() {
        for value in 1..=series {
            put(&[&[0, 0, 1, 0, 0, 1], &value.to_be_bytes()[1..]].concat(), hour);
        }
        put(&[0, 0, 2, 0, 0, 1, 0, 0, 1], hour);
    }
    store.write(batch).await.unwrap();
    Arc::new(store)
}

async fn counted(store: &dyn RowStore, requested: Hours) -> Option<(f64, bool)> {
    let layout = RowKeyLayout::default();
    let metric = oxtsdb_schema::MetricUid::from_bytes(&[0, 0, 1]).unwrap();
    let ranges = [requested.range(&layout, metric, 0)];
    let counted = count(store, &"tsdb".parse().unwrap(), &ranges, requested, &layout)
        .await
        .unwrap();
    counted.map(|counted| (counted.rows, counted.is_part))
}

#[tokio::test]
async fn counts_few_rows_and_estimates_many_within_a_quarter() {
    let few = store(100, hours(24)).await;
    assert_eq!(counted(&*few, hours(24)).await, Some((2400.0, false)));
    assert_eq!(counted(&*few, hours(1)).await, Some((100.0, false)));
    // Most of the range has no rows.
    let year = Hours {
        stop_seconds: u64::from(T + 365 * 86_400),
        ..hours(1)
    };
    assert_eq!(counted(&*few, year).await, Some((2400.0, false)));
    for (series, count, expect_part) in [(3000, 10, false), (700, 40, false), (40, 3000, true)] {
        let many = store(series, hours(count)).await;
        let (rows, is_part) = counted(&*many, hours(count)).await.unwrap();
        let off = rows / f64::from(series * count);
        assert_eq!(is_part, expect_part, "{series} series, {count} hours");
        assert!(
            (0.75..1.25).contains(&off),
            "{series} series, {count} hours: {off}"
        );
    }
}

/// Performs each operation.
#[derive(Debug)]
struct Pass;

#[async_trait]
impl Intercept for Pass {
    async fn intercept(&self, operation: Operation, store: &dyn RowStore) -> Result<Response, StoreError> {
        operation.perform(store).await
    }
}

#[tokio::test]
async fn a_store_that_cannot_count_has_no_estimate() {
    let store = store(3, hours(2)).await;
    let like_hbase = InterceptedStore::new(store, Arc::new(Pass)).like_hbase();
    assert_eq!(counted(&like_hbase, hours(2)).await, None);
}
