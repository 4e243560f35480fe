//! Compactions of the cell store remove expired cells.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use oxtsdb_row_store::cells::{CellConfig, CellStore};
use oxtsdb_row_store::{
    Clock, ColumnSelection, FamilyDef, RowStore, StoreControl as _, TableDef, TableName, WriteBatch,
};

use crate::support::files::noise;

const START_MS: i64 = 1_700_000_000_000;
const ROWS: u32 = 500;

/// Bytes of table files after `ROWS` rows with a kilobyte each, a minute, and compactions.
async fn bytes_left(ttl: Option<Duration>) -> u64 {
    let folder = tempfile::tempdir().unwrap();
    let now_ms = Arc::new(AtomicI64::new(START_MS));
    let mut config = CellConfig::new(folder.path());
    config.clock = Clock::new({
        let now_ms = now_ms.clone();
        move || now_ms.load(Ordering::Relaxed)
    });
    let store = CellStore::open(config).unwrap();
    let table: TableName = "t".parse().unwrap();
    let family = |name: &str, ttl| FamilyDef {
        name: name.to_owned(),
        max_versions: 1,
        ttl,
    };
    let def = TableDef {
        name: table.clone(),
        families: vec![family("kept", None), family("f", ttl)],
    };
    store.create_table(&def).await.unwrap();
    let mut random = noise(0);
    let mut batch = WriteBatch::new(table.clone());
    let (kept, short) = (batch.family("kept"), batch.family("f"));
    for number in 0..ROWS {
        let value: Vec<u8> = random.by_ref().take(1_000).collect();
        batch
            .row(&number.to_be_bytes())
            .put(short, b"q", &value)
            .put(kept, b"q", b"v");
    }
    store.write(batch).await.unwrap();
    store.flush().await.unwrap();
    now_ms.fetch_add(60_000, Ordering::Relaxed);

    let mut least = u64::MAX;
    for round in 0..100_u32 {
        let mut batch = WriteBatch::new(table.clone());
        let family = batch.family("kept");
        for number in [0, ROWS] {
            batch
                .row(&number.to_be_bytes())
                .put(family, b"round", &round.to_be_bytes());
        }
        store.write(batch).await.unwrap();
        store.flush().await.unwrap();
        least = least.min(store.stats().unwrap().table_bytes);
    }
    let row = store
        .get(&table, &7_u32.to_be_bytes(), &ColumnSelection::All)
        .await;
    let row = row.unwrap().unwrap();
    assert!(row.get("kept", b"q").is_some());
    assert_eq!(row.get("f", b"q").is_some(), ttl.is_none());
    store.close().await.unwrap();
    least
}

#[tokio::test]
async fn compactions_remove_expired_cells_only() {
    let kept = bytes_left(None).await;
    assert!(kept > 500_000, "{kept} bytes");
    let left = bytes_left(Some(Duration::from_secs(10))).await;
    assert!(left < 100_000, "{left} bytes");
}

/// A delete followed by a version that has expired already: the older value in a table file stays hidden.
#[tokio::test]
async fn an_expired_version_after_a_delete_hides_older_values() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = CellConfig::new(folder.path());
    config.clock = Clock::new(|| START_MS);
    let store = CellStore::open(config).unwrap();
    let table: TableName = "t".parse().unwrap();
    let family = FamilyDef {
        name: "f".to_owned(),
        max_versions: 2,
        ttl: Some(Duration::from_secs(10)),
    };
    let def = TableDef {
        name: table.clone(),
        families: vec![family],
    };
    store.create_table(&def).await.unwrap();
    let mut batch = WriteBatch::new(table.clone());
    let f = batch.family("f");
    batch.row(b"r").put(f, b"q", b"old");
    store.write(batch).await.unwrap();
    store.flush().await.unwrap();
    let mut batch = WriteBatch::new(table.clone());
    let f = batch.family("f");
    batch
        .row(b"r")
        .delete_family(f)
        .put_at(f, b"q", START_MS - 10_001, b"expired");
    store.write(batch).await.unwrap();
    store.flush().await.unwrap();
    assert_eq!(
        store.get(&table, b"r", &ColumnSelection::All).await.unwrap(),
        None
    );
}
