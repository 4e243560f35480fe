use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use oxtsdb_row_store::cells::{CellConfig, CellStore};
use oxtsdb_row_store::intercept::{Intercept, InterceptedStore, Operation, Response};
use oxtsdb_row_store::memory::MemoryStore;
use oxtsdb_row_store::{StoreControl as _, TableDef};
use tokio::time::Instant;

use super::*;

/// Makes reads fail, or block.
#[derive(Debug, Default)]
struct Outage {
    refuses: AtomicBool,
    is_silent: AtomicBool,
}

#[async_trait]
impl Intercept for Outage {
    async fn intercept(&self, operation: Operation, store: &dyn RowStore) -> Result<Response, StoreError> {
        if self.is_silent.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
        if self.refuses.load(Ordering::Relaxed) {
            return Err(StoreError::Unavailable {
                detail: "refused by the test".to_owned(),
            });
        }
        operation.perform(store).await
    }
}

async fn probe(outage: &Arc<Outage>) -> StoreProbe {
    let store = MemoryStore::new();
    let table: TableName = "t".parse().unwrap();
    store
        .create_table(&TableDef::new(table.clone(), &["f"]))
        .await
        .unwrap();
    let store = InterceptedStore::new(Arc::new(store), Arc::clone(outage) as Arc<dyn Intercept>);
    StoreProbe::new(Arc::new(store), table)
}

#[tokio::test(start_paused = true)]
async fn an_outage_and_its_end_are_told_once_each() {
    let outage = Arc::<Outage>::default();
    let mut watch = probe(&outage).await.watch();
    for _ in 0..3 {
        outage.refuses.store(true, Ordering::Relaxed);
        let error = StoreError::Unavailable {
            detail: "refused by the test".to_owned(),
        };
        assert_eq!(*watch.change().await, StoreHealth::Fails(error));
        outage.refuses.store(false, Ordering::Relaxed);
        assert_eq!(*watch.change().await, StoreHealth::Serves);
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_does_not_answer_is_told_in_time() {
    let outage = Arc::<Outage>::default();
    let mut watch = probe(&outage).await.watch();
    outage.is_silent.store(true, Ordering::Relaxed);
    let began = Instant::now();
    let health = watch.change().await;
    assert!(
        matches!(health, StoreHealth::Fails(StoreError::TimedOut { .. })),
        "{health:?}"
    );
    assert!(
        began.elapsed() <= (CHECK_TIMEOUT + INTERVAL) * MAX_FAILURES,
        "{:?}",
        began.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn one_failure_alone_changes_nothing() {
    let outage = Arc::<Outage>::default();
    let mut watch = probe(&outage).await.watch();
    outage.refuses.store(true, Ordering::Relaxed);
    // Longer than one interval, shorter than two.
    let one_failure = tokio::time::timeout(INTERVAL / 2, watch.change()).await;
    assert!(one_failure.is_err(), "the first check failed");
    outage.refuses.store(false, Ordering::Relaxed);
    let unchanged = tokio::time::timeout(INTERVAL * 10, watch.change()).await;
    assert!(unchanged.is_err(), "all others succeeded");
}

#[tokio::test]
async fn a_store_serves_with_damage_set_aside() {
    let folder = tempfile::tempdir().unwrap();
    let table: TableName = "t".parse().unwrap();
    let open = || CellStore::open(CellConfig::new(folder.path())).unwrap();
    let store = open();
    store
        .create_table(&TableDef::new(table.clone(), &["f"]))
        .await
        .unwrap();
    store.close().await.unwrap();
    // All rows are damaged.
    let record = "oxtsdb damage, format 2\n-\t-\ttable-1-0\toffset 0: test\n";
    std::fs::write(folder.path().join("DAMAGE"), record).unwrap();

    let probe = StoreProbe::new(Arc::new(open()), table);
    assert_eq!(probe.check().await, StoreHealth::Serves);
    let damage = probe.damage();
    assert_eq!(damage.len(), 1, "{damage:?}");
    assert_eq!(
        damage[0].to_string(),
        "table `t` rows from the first to the end, file table-1-0: offset 0: test"
    );
}
