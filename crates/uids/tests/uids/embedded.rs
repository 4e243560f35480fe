//! The service on the store that it runs on by default.

use std::sync::Arc;

use oxtsdb_row_store::cells::{CellConfig, CellStore};
use oxtsdb_row_store::{StoreControl as _, Writers};
use oxtsdb_schema::{Name, NameRules, UidKind};
use oxtsdb_uids::cache::CacheLimits;
use oxtsdb_uids::table::KindName;
use oxtsdb_uids::testing;
use oxtsdb_uids::uids::{Freshness, Purpose, Uids};
use tempfile::TempDir;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_new_names_count_up_and_stay() {
    let folder = TempDir::new().unwrap();
    let config = testing::config();
    let names: Vec<KindName> = (0..10_000)
        .map(|number| {
            (
                UidKind::Tagv,
                Name::parse(&format!("host-{number}"), &NameRules::default()).unwrap(),
            )
        })
        .collect();

    let store = Arc::new(CellStore::open(CellConfig::new(folder.path())).unwrap());
    testing::make_tables(&*store, &config).await;
    let service = Uids::new(store.clone(), Writers::Single, config.clone());
    let mut assigned = Vec::new();
    for batch in names.chunks(4096) {
        assigned.extend(service.get_or_create(batch, Purpose::Write).await);
    }
    let assigned: Vec<_> = assigned.into_iter().map(|outcome| outcome.unwrap().uid).collect();
    let numbers: Vec<u64> = assigned.iter().map(oxtsdb_schema::Uid::number).collect();
    assert_eq!(numbers, (1..=10_000).collect::<Vec<u64>>());
    // As after a crash: nothing is closed. The task that assigned may still be about to end.
    drop(service);
    while Arc::strong_count(&store) > 1 {
        tokio::task::yield_now().await;
    }
    drop(store);

    let store = Arc::new(CellStore::open(CellConfig::new(folder.path())).unwrap());
    let mut config = config;
    config.cache = CacheLimits { bytes: 0, ttl: None };
    let service = Uids::new(store.clone(), Writers::Single, config);
    let results = service.lookup_uids(&names, Freshness::Store).await;
    assert_eq!(
        results.into_iter().map(Result::unwrap).collect::<Vec<_>>(),
        assigned
    );
    let uids: Vec<_> = assigned.iter().map(|uid| (UidKind::Tagv, *uid)).collect();
    let results = service.lookup_names(&uids, Freshness::Cached).await;
    assert!(
        results
            .into_iter()
            .map(Result::unwrap)
            .eq(names.into_iter().map(|(_, name)| name))
    );
    store.close().await.unwrap();
}
