//! The service on a real HBase.
//!
//! `OXTSDB_TEST_HBASE` names its Thrift gateways, as `host:port[,host:port]`; `tests/hbase/interop.sh` sets it.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use oxtsdb_row_store::hbase::thrift::{ThriftConfig, ThriftStore};
use oxtsdb_row_store::{RowStore as _, StoreError, Writers};
use oxtsdb_schema::UidKind;
use oxtsdb_uids::config::UidConfig;
use oxtsdb_uids::testing::{self, cells_of, check_cells, names};
use oxtsdb_uids::uids::{Purpose, Uids};

async fn connect() -> ThriftStore {
    let gateways =
        std::env::var("OXTSDB_TEST_HBASE").expect("OXTSDB_TEST_HBASE names HBase's Thrift gateways");
    ThriftStore::connect(ThriftConfig::new(gateways.split(',')))
        .await
        .unwrap()
}

/// A configuration with a new table for one test.
async fn config(store: &ThriftStore, random_metric_uids: bool) -> UidConfig {
    let nanos = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos();
    let table = format!("uids_{nanos:x}").parse().unwrap();
    let mut config = UidConfig::new(table).unwrap();
    config.layout.kinds.metric.random = random_metric_uids;
    // On a loaded machine the creation can outlast its request; then the table appears later.
    for definition in testing::definitions(&config) {
        while let Err(error) = store.create_table(&definition).await {
            assert!(matches!(error, StoreError::TimedOut { .. }), "{error}");
        }
    }
    config
}

/// A replica with connections of its own.
async fn replica(config: &UidConfig) -> Arc<Uids> {
    let store = Arc::new(connect().await);
    Arc::new(Uids::new(store, Writers::Multiple, config.clone()))
}

/// Clients of two replicas assign the same names, each in a different order.
async fn race(random_metric_uids: bool) {
    const NAMES: usize = 600;
    const CLIENTS: usize = 12;
    let store = connect().await;
    let config = config(&store, random_metric_uids).await;
    let replicas = [replica(&config).await, replica(&config).await];
    let mut clients = tokio::task::JoinSet::new();
    for client in 0..CLIENTS {
        let replica = Arc::clone(&replicas[client % 2]);
        clients.spawn(async move {
            let mut requested = names(UidKind::Metric, NAMES);
            requested.rotate_left(client * NAMES / CLIENTS);
            let mut results = Vec::with_capacity(NAMES);
            for some in requested.chunks(50) {
                let outcomes = replica.get_or_create(some, Purpose::Write).await;
                results.extend(some.iter().cloned().zip(outcomes.into_iter().map(Result::unwrap)));
            }
            results
        });
    }
    let results = clients.join_all().await.concat();
    let (forward, reverse) = check_cells(cells_of(&store, &config.table).await);
    assert_eq!((forward.len(), reverse), (NAMES, NAMES), "no orphan");
    for ((kind, name), assigned) in &results {
        let stored = &forward[&(kind.qualifier().to_vec(), name.as_bytes().to_vec())];
        assert_eq!(stored, assigned.uid.as_bytes(), "{name}");
    }
    let created = results.iter().filter(|(_, assigned)| assigned.created).count();
    assert_eq!(created, NAMES, "each name is created once");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs an HBase: tests/hbase/interop.sh"]
async fn replicas_agree_and_leave_no_orphans() {
    race(false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs an HBase: tests/hbase/interop.sh"]
async fn replicas_with_random_uids_agree() {
    race(true).await;
}
