//! The cell store passes the conformance suite.

use std::time::Duration;

use oxtsdb_row_store::cells::{CellConfig, CellStore};
use oxtsdb_row_store::{
    ColumnSelection, RowStore as _, StoreControl as _, TableDef, WriteBatch, conformance,
};

#[tokio::test]
async fn conforms() {
    let folder = tempfile::tempdir().unwrap();
    let store = CellStore::open(CellConfig::new(folder.path())).unwrap();
    conformance::ordered_suite(&store).await;
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
    conformance::ordered_suite(&store).await;
}

/// A row may have 100,000 leaves of a tree: only a narrow one is read on the caller's thread.
#[test]
fn wide_rows_are_read_off_the_threads_of_the_runtime() {
    let folder = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(1)
        .build()
        .unwrap();
    runtime.block_on(async {
        let table = TableDef::new("t".parse().unwrap(), &["f"]);
        let store = CellStore::open(CellConfig::new(folder.path())).unwrap();
        store.create_table(&table).await.unwrap();
        let mut batch = WriteBatch::new(table.name.clone());
        let family = batch.family("f");
        batch.row(b"narrow").put(family, b"q", b"v");
        batch.row(b"large").put(family, b"q", &[0; 100_000]);
        for number in 0..1000_u32 {
            batch.row(b"wide").put(family, &number.to_be_bytes(), b"v");
        }
        store.write(batch).await.unwrap();
        let (release, released) = std::sync::mpsc::channel::<()>();
        let blocked = tokio::task::spawn_blocking(move || released.recv());
        let all = ColumnSelection::All;
        assert_eq!(
            store
                .get(&table.name, b"narrow", &all)
                .await
                .unwrap()
                .unwrap()
                .len(),
            1
        );
        let columns = (0..1000_u32).map(|number| ("f".to_owned(), number.to_be_bytes().to_vec()));
        let columns = ColumnSelection::Columns(columns.collect());
        let mut reads = [
            store.get(&table.name, b"wide", &all),
            store.get(&table.name, b"wide", &columns),
            store.get(&table.name, b"large", &all),
        ];
        for read in &mut reads {
            assert!(
                futures::poll!(read).is_pending(),
                "read on the thread of the runtime"
            );
        }
        drop(release);
        let mut cells = Vec::new();
        for read in reads {
            cells.push(read.await.unwrap().unwrap().len());
        }
        assert_eq!(cells, [1000, 1000, 1]);
        blocked.await.unwrap().unwrap_err();
        store.close().await.unwrap();
    });
}
