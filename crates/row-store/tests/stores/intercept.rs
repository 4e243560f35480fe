//! An intercepted store with a hook that changes nothing passes the conformance suite.

use std::sync::Arc;

use async_trait::async_trait;
use oxtsdb_row_store::intercept::{Intercept, InterceptedStore, Operation, Response};
use oxtsdb_row_store::memory::MemoryStore;
use oxtsdb_row_store::{RowStore, StoreError, conformance};

#[derive(Debug)]
struct Transparent;

#[async_trait]
impl Intercept for Transparent {
    async fn intercept(&self, operation: Operation, store: &dyn RowStore) -> Result<Response, StoreError> {
        operation.perform(store).await
    }
}

fn transparent() -> InterceptedStore {
    InterceptedStore::new(Arc::new(MemoryStore::new()), Arc::new(Transparent))
}

#[tokio::test]
async fn conforms() {
    conformance::ordered_suite(&transparent()).await;
    conformance::ordered_suite(&transparent().without_atomic_commits()).await;
}

#[tokio::test]
async fn imitates_the_capabilities_of_hbase() {
    let store = transparent().like_hbase();
    assert!(store.atomic().is_none());
    conformance::suite(&store).await;
}

#[tokio::test]
async fn hides_atomic_commits() {
    assert!(transparent().atomic().is_some());
    assert!(transparent().without_atomic_commits().atomic().is_none());
}
