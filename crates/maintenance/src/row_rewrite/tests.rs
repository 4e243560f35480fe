use std::sync::Arc;

use async_trait::async_trait;
use oxtsdb_row_store::intercept::{Intercept, InterceptedStore, Operation, Response};
use oxtsdb_row_store::memory::MemoryStore;
use oxtsdb_row_store::{Row, TableDef};
use parking_lot::Mutex;

use super::*;

const ROW: &[u8] = b"row";

fn table() -> TableName {
    "tsdb".parse().unwrap()
}

async fn store_with(cells: &[(&[u8], &[u8], i64)]) -> MemoryStore {
    let store = MemoryStore::new();
    store
        .create_table(&TableDef::new(table(), &[FAMILY]))
        .await
        .unwrap();
    put(&store, cells).await;
    store
}

async fn put(store: &dyn RowStore, cells: &[(&[u8], &[u8], i64)]) {
    let mut batch = WriteBatch::new(table());
    let family = batch.family(FAMILY);
    batch.row(ROW);
    for (qualifier, value, timestamp_ms) in cells {
        batch.put_at(family, qualifier, *timestamp_ms, value);
    }
    store.write(batch).await.unwrap();
}

async fn cells(store: &dyn RowStore) -> Vec<(Vec<u8>, Vec<u8>, i64)> {
    let row: Option<Row> = store.get(&table(), ROW, &ColumnSelection::All).await.unwrap();
    row.iter()
        .flat_map(Row::cells)
        .map(|cell| (cell.qualifier.to_vec(), cell.value.to_vec(), cell.timestamp_ms))
        .collect()
}

fn replace(put: Put, up_to_ms: i64) -> RowRewrite {
    let removal = |qualifier: &[u8]| Removal {
        qualifier: qualifier.to_vec(),
        up_to_ms,
    };
    RowRewrite {
        row_key: ROW.to_vec(),
        cells: vec![NewCell {
            qualifier: b"ab".to_vec(),
            value: b"12".to_vec(),
            put,
        }],
        remove: vec![removal(b"a"), removal(b"b")],
    }
}

#[tokio::test]
async fn replaces_cells_and_keeps_later_ones() {
    let store = store_with(&[(b"a", b"1", 10), (b"b", b"2", 20), (b"c", b"3", 15)]).await;
    // Written after the row was read.
    put(&store, &[(b"b", b"4", 30)]).await;
    let confirmed = rewrite(&store, &table(), &[replace(Put::At(20), 20)]).await;
    assert_eq!(confirmed.unwrap(), [true]);
    let expected: [(&[u8], &[u8], i64); 3] = [(b"ab", b"12", 20), (b"b", b"4", 30), (b"c", b"3", 15)];
    let expected = expected.map(|(qualifier, value, at)| (qualifier.to_vec(), value.to_vec(), at));
    assert_eq!(cells(&store).await, expected);
}

#[tokio::test]
async fn removes_nothing_without_the_new_cell() {
    // A newer cell of the same column.
    let before: &[(&[u8], &[u8], i64)] = &[(b"a", b"1", 10), (b"ab", b"99", 40), (b"b", b"2", 20)];
    let store = store_with(before).await;
    let stored = cells(&store).await;
    for put in [Put::At(20), Put::Stored] {
        let confirmed = rewrite(&store, &table(), &[replace(put, 20)]).await;
        assert_eq!(confirmed.unwrap(), [false]);
        assert_eq!(cells(&store).await, stored);
    }
}

/// Acknowledges puts that it drops, and records operations.
#[derive(Debug, Default)]
struct LosesPuts(Mutex<Vec<&'static str>>);

#[async_trait]
impl Intercept for LosesPuts {
    async fn intercept(&self, operation: Operation, store: &dyn RowStore) -> Result<Response, StoreError> {
        match &operation {
            Operation::Write { .. } => {
                self.0.lock().push("write");
                Ok(Response::Written)
            }
            _ => {
                self.0.lock().push("read");
                operation.perform(store).await
            }
        }
    }
}

#[tokio::test]
async fn a_lost_put_is_found_before_the_delete() {
    let store = store_with(&[(b"a", b"1", 10), (b"b", b"2", 20)]).await;
    let hook = Arc::new(LosesPuts::default());
    let lossy = InterceptedStore::new(Arc::new(store), Arc::clone(&hook) as Arc<dyn Intercept>);
    let confirmed = rewrite(&lossy, &table(), &[replace(Put::At(20), 20)]).await;
    assert_eq!(confirmed.unwrap(), [false]);
    assert_eq!(*hook.0.lock(), ["write", "read"]);
}
