//! The service on a real HBase.
//!
//! `OXTSDB_TEST_HBASE` names its Thrift gateways, as `host:port[,host:port]`; without it there is
//! nothing to test.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use oxtsdb_row_store::hbase::{HbaseConfig, HbaseStore};
use oxtsdb_row_store::{RowStore as _, StoreError, TableName};
use oxtsdb_schema::{Name, NameRules, UidKind};
use support::{cells_of, check_cells};
use uid_service::UidSettings;
use uid_service::table::{KindName, UidTable};
use uid_service::uids::{Purpose, Uids};

async fn connect() -> Option<HbaseStore> {
    let Ok(gateways) = std::env::var("OXTSDB_TEST_HBASE") else {
        eprintln!("SKIPPED: OXTSDB_TEST_HBASE names no HBase Thrift gateway");
        return None;
    };
    let config = HbaseConfig::new(gateways.split(','));
    Some(HbaseStore::connect(config).await.unwrap())
}

/// Settings with a table that no other test has, and that is there.
async fn settings(store: &HbaseStore, random_metric_uids: bool) -> UidSettings {
    let nanos = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos();
    let mut settings = UidSettings::default();
    settings.tables.uid_table = format!("uids_{nanos:x}");
    settings.naming.random_metric_uids = random_metric_uids;
    let part = uid_service::store_part(&settings).unwrap();
    // A loaded machine may take longer than a request may; then the table is there a little later.
    while let Err(error) = store.create_table(&part.table.def).await {
        assert!(matches!(error, StoreError::TimedOut { .. }), "{error}");
    }
    settings
}

/// A replica with connections of its own.
async fn replica(settings: &UidSettings) -> Arc<Uids> {
    let config = settings.check().unwrap();
    let store = Arc::new(connect().await.unwrap());
    let table = UidTable::new(store, config.table, config.layout);
    Arc::new(Uids::new(table, config.cache))
}

fn names(kind: UidKind, count: usize) -> Vec<KindName> {
    let name = |number| Name::parse(&format!("name.{number}"), &NameRules::default()).unwrap();
    (0..count).map(|number| (kind, name(number))).collect()
}

/// Clients of two replicas ask for the same names, each beginning elsewhere.
async fn race(random_metric_uids: bool) {
    const NAMES: usize = 600;
    const CLIENTS: usize = 12;
    let Some(store) = connect().await else { return };
    let settings = settings(&store, random_metric_uids).await;
    let replicas = [replica(&settings).await, replica(&settings).await];
    let mut clients = tokio::task::JoinSet::new();
    for client in 0..CLIENTS {
        let replica = Arc::clone(&replicas[client % 2]);
        clients.spawn(async move {
            let mut wanted = names(UidKind::Metric, NAMES);
            wanted.rotate_left(client * NAMES / CLIENTS);
            let mut told = Vec::with_capacity(NAMES);
            for some in wanted.chunks(50) {
                let outcomes = replica.get_or_create(some, Purpose::Write).await;
                told.extend(some.iter().cloned().zip(outcomes.into_iter().map(Result::unwrap)));
            }
            told
        });
    }
    let told = clients.join_all().await.concat();
    let table: TableName = settings.tables.uid_table.parse().unwrap();
    let (forward, reverse) = check_cells(cells_of(&store, &table).await);
    assert_eq!((forward.len(), reverse), (NAMES, NAMES), "no orphan is left");
    for ((kind, name), assigned) in &told {
        let stored = &forward[&(kind.qualifier().to_vec(), name.as_bytes().to_vec())];
        assert_eq!(stored, assigned.uid.as_bytes(), "{name}");
    }
    let created = told.iter().filter(|(_, assigned)| assigned.created).count();
    assert_eq!(created, NAMES, "each name is created once");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_agree_and_clear_up_behind_them() {
    race(false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_that_draw_uids_agree_too() {
    race(true).await;
}
