//! Interceptors of a store: one blocks writes until a test releases them, one forwards everything.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use oxtsdb_data_settings::DataSettings;
use oxtsdb_row_store::intercept::{Intercept, InterceptedStore, Operation, Response};
use oxtsdb_row_store::memory::MemoryStore;
use oxtsdb_row_store::{RowStore, StoreError};
use parking_lot::Mutex;
use tokio::sync::{Semaphore, SemaphorePermit, watch};
use uid_service::UidSettings;

use super::TestStack;

/// The table of points.
const POINTS: &[&str] = &["tsdb"];

/// Blocks all writes to some tables until they are released, and then fails those that a test selects.
#[derive(Debug)]
pub struct Gate {
    tables: &'static [&'static str],
    permits: Semaphore,
    waiting: watch::Sender<usize>,
    failures: Mutex<VecDeque<StoreError>>,
    passed: AtomicUsize,
}

impl Gate {
    /// A service that blocks writes of points; UIDs are assigned without blocking.
    pub async fn stack(settings: DataSettings) -> (TestStack, Arc<Gate>) {
        Gate::stack_over(settings, POINTS).await
    }

    /// A service that blocks writes to `tsdb-meta`; points are stored without blocking.
    pub async fn meta_stack(settings: DataSettings) -> (TestStack, Arc<Gate>) {
        Gate::stack_over(settings, &["tsdb-meta"]).await
    }

    /// As [`Gate::stack`], on a store with the properties of HBase.
    pub async fn hbase_stack(settings: DataSettings) -> (TestStack, Arc<Gate>) {
        let (store, gated, gate) = Gate::store(POINTS);
        let (uid_store, gated) = (Arc::new(store.clone()), Arc::new(gated.like_hbase()));
        let stack = TestStack::over_hbase(store, uid_store, gated, settings, UidSettings::default()).await;
        (stack, gate)
    }

    async fn stack_over(settings: DataSettings, tables: &'static [&'static str]) -> (TestStack, Arc<Gate>) {
        let (store, gated, gate) = Gate::store(tables);
        let (uid_store, gated) = (Arc::new(store.clone()), Arc::new(gated));
        let stack = TestStack::over(store, uid_store, gated, settings, UidSettings::default()).await;
        (stack, gate)
    }

    /// A service that blocks assignments of UIDs; points are stored without blocking.
    pub async fn uid_stack() -> (TestStack, Arc<Gate>) {
        Gate::uid_stack_with(DataSettings::default()).await
    }

    /// As [`Gate::uid_stack`], with settings.
    pub async fn uid_stack_with(settings: DataSettings) -> (TestStack, Arc<Gate>) {
        let (store, gated, gate) = Gate::store(&["tsdb-uid"]);
        let data_store = Arc::new(store.clone());
        let uid_store = Arc::new(gated);
        let stack = TestStack::over(store, uid_store, data_store, settings, UidSettings::default()).await;
        (stack, gate)
    }

    /// A store, the same store with a gate, and the gate.
    fn store(tables: &'static [&'static str]) -> (MemoryStore, InterceptedStore, Arc<Gate>) {
        let store = MemoryStore::new();
        let gate = Arc::new(Gate {
            tables,
            permits: Semaphore::new(0),
            waiting: watch::Sender::new(0),
            failures: Mutex::default(),
            passed: AtomicUsize::new(0),
        });
        let hook = Arc::clone(&gate) as Arc<dyn Intercept>;
        let gated = InterceptedStore::new(Arc::new(store.clone()), hook);
        (store, gated, gate)
    }

    /// Releases this number of writes, blocked or later ones.
    pub fn release(&self, writes: usize) {
        self.permits.add_permits(writes);
    }

    /// The next released writes fail with these errors, in this order, and are not performed.
    pub fn fail(&self, errors: impl IntoIterator<Item = StoreError>) {
        self.failures.lock().extend(errors);
    }

    /// Writes that block now.
    pub fn waiting(&self) -> usize {
        *self.waiting.borrow()
    }

    /// Writes that were released and did not fail.
    pub fn passed(&self) -> usize {
        self.passed.load(Ordering::Relaxed)
    }

    /// Completes when this number of writes block.
    pub async fn until_waiting(&self, writes: usize) {
        let mut waiting = self.waiting.subscribe();
        let reached = waiting.wait_for(|waiting| *waiting == writes);
        let reached = tokio::time::timeout(Duration::from_secs(30), reached).await;
        assert!(
            reached.is_ok(),
            "{} writes wait, expected {writes}",
            self.waiting()
        );
    }
}

/// Counts a write as blocked until it is dropped.
struct Waiting<'a>(&'a watch::Sender<usize>);

impl<'a> Waiting<'a> {
    fn begin(count: &'a watch::Sender<usize>) -> Self {
        count.send_modify(|waiting| *waiting += 1);
        Self(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|waiting| *waiting -= 1);
    }
}

#[async_trait]
impl Intercept for Gate {
    async fn intercept(&self, operation: Operation, store: &dyn RowStore) -> Result<Response, StoreError> {
        let writes = !matches!(operation, Operation::GetRows { .. } | Operation::Scan { .. });
        if writes && self.tables.contains(&operation.table().name()) {
            let waiting = Waiting::begin(&self.waiting);
            // The semaphore is never closed.
            let _permit = self.permits.acquire().await.map(SemaphorePermit::forget);
            drop(waiting);
            let failure = self.failures.lock().pop_front();
            if let Some(error) = failure {
                return Err(error);
            }
            self.passed.fetch_add(1, Ordering::Relaxed);
        }
        operation.perform(store).await
    }
}

/// Forwards all operations.
#[derive(Debug)]
pub struct Pass;

#[async_trait]
impl Intercept for Pass {
    async fn intercept(&self, operation: Operation, store: &dyn RowStore) -> Result<Response, StoreError> {
        operation.perform(store).await
    }
}
