use std::sync::Arc;

use async_trait::async_trait;
use futures::TryStreamExt as _;
use oxtsdb_data_settings::DataSettings;
use oxtsdb_row_store::intercept::{Intercept, InterceptedStore, Operation, Response};
use oxtsdb_row_store::memory::MemoryStore;
use oxtsdb_row_store::{Row, RowStore, Scan, StoreError, WriteBatch};
use oxtsdb_test_stack::TestStack;
use parking_lot::Mutex;
use uid_service::UidSettings;

use super::*;

/// Fails the first writes to table `tsdb`.
#[derive(Debug)]
struct FailsAtFirst(Mutex<u32>);

#[async_trait]
impl Intercept for FailsAtFirst {
    async fn intercept(&self, operation: Operation, store: &dyn RowStore) -> Result<Response, StoreError> {
        let is_write =
            matches!(operation, Operation::Write { .. }) && operation.table().to_string() == "tsdb";
        if is_write && *self.0.lock() > 0 {
            *self.0.lock() -= 1;
            return Err(StoreError::Unavailable {
                detail: "the region moves".to_owned(),
            });
        }
        operation.perform(store).await
    }
}

fn settings() -> DataSettings {
    let mut settings = DataSettings::default();
    settings.compaction.compact_rows_after = Some(60);
    settings
}

/// A row with two cells, `hours_ago`.
fn old_row(batch: &mut WriteBatch, hours_ago: i64) {
    let hour_ms = 3_600_000;
    let base_ms = (now_ms() / hour_ms - hours_ago) * hour_ms;
    let base = u32::try_from(base_ms / 1000).unwrap().to_be_bytes();
    let family = batch.family("t");
    let key = [&[0, 0, 1][..], &base, &[0, 0, 1, 0, 0, 1]].concat();
    batch
        .row(&key)
        .put_at(family, &[0, 0], base_ms + 500, &[1])
        .put_at(family, &[0, 0x10], base_ms + 1500, &[2]);
}

async fn cells(store: &MemoryStore) -> Vec<usize> {
    let scan = store
        .scan(&"tsdb".parse().unwrap(), Scan::range([], []))
        .await
        .unwrap();
    let rows: Vec<Vec<Row>> = scan.try_collect().await.unwrap();
    rows.iter().flatten().map(Row::len).collect()
}

#[tokio::test]
async fn compacts_ended_hours_of_the_look_back_despite_failures() {
    let store = MemoryStore::new();
    let tables = TestStack::over(
        store.clone(),
        Arc::new(store.clone()),
        Arc::new(store.clone()),
        DataSettings::default(),
        UidSettings::default(),
    );
    drop(tables.await);
    let mut batch = WriteBatch::new("tsdb".parse().unwrap());
    for hours_ago in [30, 20, 3, 0] {
        old_row(&mut batch, hours_ago);
    }
    store.write(batch).await.unwrap();
    let hook = FailsAtFirst(Mutex::new(1));
    let failing = InterceptedStore::new(Arc::new(store.clone()), Arc::new(hook));
    let stack = TestStack::over(
        store.clone(),
        Arc::new(store.clone()),
        Arc::new(failing),
        settings(),
        UidSettings::default(),
    )
    .await;
    let deadline = Instant::now() + Duration::from_secs(30);
    // The row of 30 hours ago is before the look-back, the last hour goes on.
    while cells(&store).await != [2, 1, 1, 2] {
        assert!(Instant::now() < deadline, "{:?}", cells(&store).await);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    stack.trigger.shut_down().await;
}

#[tokio::test]
async fn stops_when_the_program_drains() {
    let stack = TestStack::start().await;
    let compactor = Compactor::from_engine(&stack.service.engine, false).unwrap();
    let job = Background::from_settings(compactor, &stack.service.engine, &settings().compaction).unwrap();
    let running = tokio::spawn(job.run(stack.shutdown.clone()));
    stack.trigger.shut_down().await;
    tokio::time::timeout(Duration::from_secs(5), running)
        .await
        .unwrap()
        .unwrap();
}

#[tokio::test]
async fn is_off_by_default() {
    let stack = TestStack::start().await;
    let compactor = Compactor::from_engine(&stack.service.engine, false).unwrap();
    let settings = CompactionSettings::default();
    assert!(Background::from_settings(compactor, &stack.service.engine, &settings).is_none());
}
