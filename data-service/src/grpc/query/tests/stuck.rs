//! A store with scans that never end.

use std::sync::Arc;

use async_trait::async_trait;
use futures::stream::{self, StreamExt as _};
use oxtsdb_row_store::intercept::{Intercept, InterceptedStore, Operation, Response};
use oxtsdb_row_store::memory::MemoryStore;
use oxtsdb_row_store::{RowStore, StoreError};
use tokio::sync::watch;

/// Scans return their rows and then block without ending.
#[derive(Debug)]
pub(super) struct Stuck {
    open_scans: Arc<watch::Sender<usize>>,
}

/// Counts a scan as open until it is dropped.
struct OpenScan(Arc<watch::Sender<usize>>);

impl Drop for OpenScan {
    fn drop(&mut self) {
        self.0.send_modify(|open| *open -= 1);
    }
}

impl Stuck {
    /// The store and the number of open scans.
    pub(super) fn over(inner: MemoryStore) -> (Arc<dyn RowStore>, watch::Receiver<usize>) {
        let (sender, receiver) = watch::channel(0);
        let hook = Arc::new(Self {
            open_scans: Arc::new(sender),
        });
        (Arc::new(InterceptedStore::new(Arc::new(inner), hook)), receiver)
    }
}

#[async_trait]
impl Intercept for Stuck {
    async fn intercept(&self, operation: Operation, store: &dyn RowStore) -> Result<Response, StoreError> {
        let rows = match operation.perform(store).await? {
            Response::Scan(rows) => rows,
            other => return Ok(other),
        };
        self.open_scans.send_modify(|open| *open += 1);
        let open = OpenScan(Arc::clone(&self.open_scans));
        let stuck = rows.chain(stream::pending()).map(move |batch| {
            let _alive = &open;
            batch
        });
        Ok(Response::Scan(stuck.boxed()))
    }
}
