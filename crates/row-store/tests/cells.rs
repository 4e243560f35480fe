//! The cell store passes the conformance suite.

use std::time::Duration;

use oxtsdb_row_store::cells::{CellConfig, CellStore};
use oxtsdb_row_store::{RowStore as _, TableDef, WriteBatch, conformance};

#[tokio::test]
async fn conforms() {
    let folder = tempfile::tempdir().unwrap();
    let store = CellStore::open(CellConfig::new(folder.path())).unwrap();
    conformance::suite(&store).await;
}

#[tokio::test]
async fn knows_which_ranges_have_no_rows() {
    let folder = tempfile::tempdir().unwrap();
    let table = TableDef::new("t".parse().unwrap(), &["f"]);
    let store = CellStore::open(CellConfig::new(folder.path())).unwrap();
    store.create_table(&table).await.unwrap();
    let put = async |store: &CellStore, row: &[u8]| {
        let mut batch = WriteBatch::new(table.name.clone());
        let family = batch.family("f");
        batch.row(row).put(family, b"q", b"v");
        store.write(batch).await.unwrap();
    };
    put(&store, b"aaaa1").await;
    store.close().await.unwrap();
    let store = CellStore::open(CellConfig::new(folder.path())).unwrap();
    // The first call reads the prefixes in the background.
    let known = async {
        while store.may_have_rows(&table.name, b"b", b"c") {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), known)
        .await
        .unwrap();
    assert!(store.may_have_rows(&table.name, b"aaaa", b"aaab"));
    put(&store, b"bbbb1").await;
    assert!(store.may_have_rows(&table.name, b"b", b"c"));
    assert!(!store.may_have_rows(&table.name, b"c", b""));
}

#[tokio::test]
async fn conforms_with_frequent_flushes() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = CellConfig::new(folder.path());
    config.memory_bytes = 256 << 10;
    let store = CellStore::open(config).unwrap();
    conformance::suite(&store).await;
}
