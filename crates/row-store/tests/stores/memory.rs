//! The memory store passes the conformance suite.

use oxtsdb_row_store::memory::MemoryStore;
use oxtsdb_row_store::{RowStore, StoreControl as _, StoreError, conformance};

#[tokio::test]
async fn conforms() {
    conformance::ordered_suite(&MemoryStore::new()).await;
}

#[tokio::test]
async fn closed_store_is_unavailable() {
    let store = MemoryStore::new();
    store.close().await.unwrap();
    let error = store.tables().await.unwrap_err();
    assert!(matches!(error, StoreError::Unavailable { .. }), "{error}");
}
