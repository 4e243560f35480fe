//! The cell store passes the conformance suite.

use futures::{FutureExt as _, TryStreamExt as _};
use oxtsdb_row_store::cells::{CellConfig, CellStore};
use oxtsdb_row_store::{RowStore as _, Scan, TableDef, TableName, WriteBatch, conformance};

#[tokio::test]
async fn conforms() {
    let folder = tempfile::tempdir().unwrap();
    let store = CellStore::open(CellConfig::new(folder.path())).unwrap();
    conformance::suite(&store).await;
}

#[tokio::test]
async fn conforms_with_frequent_flushes() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = CellConfig::new(folder.path());
    config.memory_bytes = 256 << 10;
    let store = CellStore::open(config).unwrap();
    conformance::suite(&store).await;
}

#[tokio::test]
async fn begins_scans_inline() {
    let folder = tempfile::tempdir().unwrap();
    let store = CellStore::open(CellConfig::new(folder.path())).unwrap();
    let table: TableName = "t".parse().unwrap();
    let definition = TableDef::new(table.clone(), &["f"]);
    store.create_table(&definition).await.unwrap();
    let mut batch = WriteBatch::new(table.clone());
    let family = batch.family("f");
    for row in 0..20_u8 {
        batch.row(&[row]).put(family, b"q", b"v");
    }
    store.write(batch).await.unwrap();

    let mut rows = store.scan(&table, Scan::range([20], [])).await.unwrap();
    let next = rows.try_next().now_or_never().expect("no other thread");
    assert!(next.unwrap().is_none(), "nothing is there");

    let mut rows = store.scan(&table, Scan::prefix(&[])).await.unwrap();
    let first = rows.try_next().now_or_never().expect("no other thread");
    assert_eq!(first.unwrap().unwrap().len(), 16);
    let rest = rows.try_next().await.unwrap().unwrap();
    assert_eq!(rest.len(), 4, "another thread reads the rest");
    assert!(rows.try_next().await.unwrap().is_none());
}
