use oxtsdb_point_store::memory::MemoryPoints;
use oxtsdb_point_store::{Point, PointBatch, PointStore, TimeRange};
use oxtsdb_query::{ColumnReader, PointStorage, RowReader};
use oxtsdb_row_store::memory::MemoryStore;
use oxtsdb_row_store::{TableDef, WriteBatch};
use oxtsdb_schema::SaltLayout;
use oxtsdb_schema::{Timestamp, Value};

use super::*;

fn layout() -> RowKeyLayout {
    RowKeyLayout {
        salt: SaltLayout::new(1, 20).unwrap(),
        widths: UidWidths::default(),
    }
}

fn tables() -> Tables {
    Tables {
        data: vec!["tsdb".parse().unwrap(), "rollups".parse().unwrap()],
        meta: "tsdb-meta".parse().unwrap(),
        tree: "tsdb-tree".parse().unwrap(),
    }
}

/// A search over rows.
fn search(store: Arc<dyn RowStore>, memory: MemoryPool) -> Search {
    let reader = RowReader::new(Arc::clone(&store), "tsdb".parse().unwrap(), layout());
    Search::new(store, Arc::new(reader), layout(), memory)
}

async fn store() -> Arc<dyn RowStore> {
    let store = MemoryStore::new();
    for (table, family) in [
        ("tsdb", "t"),
        ("rollups", "t"),
        ("tsdb-meta", "name"),
        ("tsdb-tree", "t"),
    ] {
        let def = TableDef::new(table.parse().unwrap(), &[family]);
        store.create_table(&def).await.unwrap();
    }
    Arc::new(store)
}

async fn put(store: &dyn RowStore, table: &str, family: &str, key: &str, qualifier: &[u8], value: &[u8]) {
    let mut batch = WriteBatch::new(table.parse().unwrap());
    let family = batch.family(family);
    batch
        .row(&hex::decode(key).unwrap())
        .put(family, qualifier, value);
    store.write(batch).await.unwrap();
}

fn numbers(references: &Found) -> [Vec<u64>; 3] {
    UidKind::ALL.map(|kind| references.numbers(kind).collect())
}

#[tokio::test]
async fn finds_references_in_all_places() {
    let store = store().await;
    let put = |table, family, key, qualifier: &'static [u8], value: &'static [u8]| {
        let store = &store;
        async move { put(&**store, table, family, key, qualifier, value).await }
    };
    put(
        "tsdb",
        "t",
        "0500000150473ec0000001000001000002000002",
        b"\0\0",
        b"\x01",
    )
    .await;
    // A later bucket, and an annotation only.
    put("tsdb", "t", "1300000250473ec0000003000009", b"\x01\0\0", b"{}").await;
    put("tsdb", "t", "0000000050473ec0", b"\x01\0\0", b"{}").await;
    put("rollups", "t", "0700000350473ec0000001000004", b"sum", b"\x01").await;
    put(
        "tsdb-meta",
        "name",
        "000005000004000005",
        b"ts_ctr",
        b"\0\0\0\0\0\0\0\x01",
    )
    .await;
    put("tsdb-tree", "t", "0001", b"tree", b"{}").await;
    let leaf = br#"{"displayName":"x","tsuid":"00000600000500000A"}"#;
    put("tsdb-tree", "t", "00010000abcd", b"leaf:\0\0\0\x01", leaf).await;
    put(
        "tsdb-tree",
        "t",
        "000101",
        b"tree_collision:\0\0\x07\0\0\x06\0\0\x0b",
        b"x",
    )
    .await;
    put(
        "tsdb-tree",
        "t",
        "000102",
        b"tree_not_matched:\0\0\x08\0\0\x07\0\0\x0c",
        b"x",
    )
    .await;
    let search = search(store, MemoryPool::unlimited("test"));
    let references = search.run(&tables()).await.unwrap();
    assert_eq!(
        numbers(&references),
        [
            vec![0, 1, 2, 3, 5, 6, 7, 8],
            vec![1, 2, 3, 4, 5, 6, 7],
            vec![1, 2, 4, 5, 9, 10, 11, 12]
        ]
    );
    assert_eq!((references.rows, references.unknown), (9, 0));
}

#[tokio::test]
async fn counts_rows_of_unknown_form() {
    let store = store().await;
    for (table, family, key, qualifier, value) in [
        ("tsdb", "t", "0500000150", &b"\0\0"[..], &b"\x01"[..]),
        ("tsdb", "t", "0500000150473ec000000100000100", b"\0\0", b"\x01"),
        ("tsdb-meta", "name", "0000", b"ts_ctr", b"\x01"),
        ("tsdb-tree", "t", "00010000abcd", b"leaf:\0\0\0\x01", b"{"),
    ] {
        put(&*store, table, family, key, qualifier, value).await;
    }
    let search = search(store, MemoryPool::unlimited("test"));
    let references = search.run(&tables()).await.unwrap();
    assert_eq!(references.unknown, 4);
}

#[tokio::test]
async fn fails_when_the_memory_does_not_suffice() {
    let store = store().await;
    for number in 0..3000_u32 {
        let key = format!(
            "{:06x}000001{:06x}",
            number * 5000 % (1 << 24),
            number * 5000 % (1 << 24)
        );
        put(&*store, "tsdb-meta", "name", &key, b"ts_ctr", b"\x01").await;
    }
    let search = search(store, MemoryPool::new("test", 100_000));
    let error = search.run(&tables()).await.unwrap_err();
    assert!(matches!(error, SearchError::Memory(_)), "{error}");
}

#[tokio::test]
async fn references_of_columns_are_those_of_points_and_other_cells() {
    let layout = RowKeyLayout::default();
    let points: Arc<dyn PointStore> = Arc::new(MemoryPoints::new(layout.widths));
    let series = [
        [0, 0, 1, 0, 0, 1, 0, 0, 1],
        [0, 0, 1, 0, 0, 1, 0, 0, 2],
        [0, 0, 2, 0, 0, 1, 0, 0, 3],
    ];
    let given = points.numbers(&series.each_ref().map(|key| &key[..])).unwrap();
    let mut batch = PointBatch::default();
    for series in &given[..2] {
        batch.push(*series, Point::new(Timestamp::from_seconds(7200), &Value::Int(1)));
    }
    points.append(batch).await.unwrap();
    points.delete(&given[..1], TimeRange::ALL).await.unwrap();
    let cells = store().await;
    put(
        &*cells,
        "tsdb",
        "t",
        "00000300000000000004000005",
        &[1, 0, 0],
        b"{}",
    )
    .await;
    let points = PointStorage {
        columns: points,
        cells: Arc::clone(&cells),
        rollups: Arc::default(),
    };
    let reader = ColumnReader::new(points, Arc::clone(&cells), "tsdb".parse().unwrap(), layout);
    let search = Search::new(cells, Arc::new(reader), layout, MemoryPool::unlimited("test"));
    let references = search.run(&tables()).await.unwrap();
    // Series 0 was deleted, series 2 never had a point.
    assert_eq!(numbers(&references), [vec![1, 3], vec![1, 4], vec![2, 5]]);
    assert_eq!(references.unknown, 0);
}
