//! A store with atomicity and failures that a test controls, and the invariants of its table of UIDs.
#![allow(
    missing_docs,
    clippy::missing_panics_doc,
    clippy::unwrap_used,
    reason = "for tests, which fail by panicking"
)]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use futures::TryStreamExt as _;
use oxtsdb_row_store::intercept::{Intercept, InterceptedStore, Operation, Response};
use oxtsdb_row_store::memory::MemoryStore;
use oxtsdb_row_store::{Row, RowStore, Scan, StoreError, TableDef, TableName, WriteBatch, Writers};
use oxtsdb_schema::{Name, NameRules, UidKind};
use parking_lot::Mutex;

use crate::config::UidConfig;
use crate::state::StateTable;
use crate::table::{KindName, UidTable};
use crate::uids::Uids;

pub type Cell = (Vec<u8>, String, Vec<u8>, Vec<u8>);

pub fn cell(row: &[u8], family: &str, kind: UidKind, value: &[u8]) -> Cell {
    (
        row.to_vec(),
        family.to_owned(),
        kind.qualifier().to_vec(),
        value.to_vec(),
    )
}

pub fn counter(kind: UidKind, number: u64) -> Cell {
    cell(&[0], "id", kind, &number.to_be_bytes())
}

pub fn table() -> TableName {
    "tsdb-uid".parse().unwrap()
}

/// A [`MemoryStore`] that may look like HBase, without atomic commits and with other writers, and may fail.
#[derive(Clone, Debug)]
pub struct Wrapped {
    pub inner: MemoryStore,
    atomic: bool,
    faults: Arc<Faults>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Operations fail without effect.
    Refused,
    /// The first one is executed and returns an error; all others are rejected.
    DoneButUnknown,
    /// One never responds and is executed when the test triggers it; all others succeed.
    DoneLate,
    /// Operations never respond.
    Silent,
    /// Conditional puts are executed twice, as by a Thrift server that has lost the first response; the second one is
    /// returned.
    Repeated,
}

/// The count of operations before a failure, and its kind. Scans are not counted and never fail.
#[derive(Debug)]
struct Faults {
    /// Remaining operations that succeed; later ones fail.
    left: AtomicUsize,
    /// The kind of failure.
    failure: Failure,
    late: Mutex<Vec<Operation>>,
}

impl Faults {
    fn after(operations: usize, failure: Failure) -> Arc<Self> {
        Arc::new(Self {
            left: AtomicUsize::new(operations),
            failure,
            late: Mutex::default(),
        })
    }
}

impl Wrapped {
    pub fn atomic() -> Self {
        Self::over(MemoryStore::new(), true)
    }

    pub fn stepwise() -> Self {
        Self::over(MemoryStore::new(), false)
    }

    pub fn over(inner: MemoryStore, atomic: bool) -> Self {
        Self {
            inner,
            atomic,
            faults: Faults::after(usize::MAX, Failure::Refused),
        }
    }

    /// A wrapper of the same data that fails after `operations` operations.
    pub fn failing_after(&self, operations: usize, failure: Failure) -> Self {
        Self {
            faults: Faults::after(operations, failure),
            ..self.clone()
        }
    }

    pub fn is_atomic(&self) -> bool {
        self.atomic
    }

    pub fn row_store(&self) -> Arc<dyn RowStore> {
        let store = InterceptedStore::new(
            Arc::new(self.inner.clone()),
            Arc::clone(&self.faults) as Arc<dyn Intercept>,
        );
        Arc::new(if self.atomic { store } else { store.like_hbase() })
    }

    /// Puts a cell, as another writer would.
    pub async fn put(&self, row: &[u8], family: &str, kind: UidKind, value: &[u8]) {
        let mut batch = WriteBatch::new(table());
        let family = batch.family(family);
        batch.row(row).put(family, kind.qualifier(), value);
        self.inner.write(batch).await.unwrap();
    }

    /// The writers of a store of this kind.
    pub fn writers(&self) -> Writers {
        match self.atomic {
            true => Writers::Single,
            false => Writers::Multiple,
        }
    }

    pub fn operations_left(&self) -> usize {
        self.faults.left.load(Ordering::SeqCst)
    }

    /// Executes the delayed operation.
    pub async fn execute_delayed(&self) {
        let late = std::mem::take(&mut *self.faults.late.lock());
        for operation in late {
            // Its condition may no longer hold.
            operation.perform(&self.inner).await.unwrap();
        }
    }
}

#[async_trait]
impl Intercept for Faults {
    async fn intercept(&self, operation: Operation, store: &dyn RowStore) -> Result<Response, StoreError> {
        if matches!(operation, Operation::Scan { .. }) {
            return operation.perform(store).await;
        }
        let lost = || StoreError::TimedOut {
            detail: "lost by the test".to_owned(),
        };
        let before = self
            .left
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        match (before, self.failure) {
            (Ok(1), Failure::DoneButUnknown) => operation.perform(store).await.and_then(|_| Err(lost())),
            (Ok(1), Failure::DoneLate) => {
                self.left.store(usize::MAX, Ordering::SeqCst);
                self.late.lock().push(operation);
                Err(lost())
            }
            (Ok(_), Failure::Repeated) if matches!(operation, Operation::CheckAndPut { .. }) => {
                operation.clone().perform(store).await?;
                operation.perform(store).await
            }
            (Ok(_), _) => operation.perform(store).await,
            (Err(_), Failure::Silent) => std::future::pending().await,
            (Err(_), _) => Err(StoreError::Unavailable {
                detail: "rejected by the test".to_owned(),
            }),
        }
    }
}

/// The default configuration of [`table`].
pub fn config() -> UidConfig {
    UidConfig::new(table()).unwrap()
}

/// The tables of a configuration.
pub fn definitions(config: &UidConfig) -> [TableDef; 2] {
    [
        UidTable::definition(config.table.clone()),
        StateTable::definition(config.state_table.clone()),
    ]
}

/// Creates missing tables.
pub async fn make_tables(store: &dyn RowStore, config: &UidConfig) {
    for definition in definitions(config) {
        store.create_table(&definition).await.unwrap();
    }
}

/// The UIDs of a store. Nothing is read, so that a store can fail from the first operation on.
pub async fn uids(store: Wrapped, config: &UidConfig) -> Uids {
    make_tables(&store.inner, config).await;
    Uids::new(store.row_store(), store.writers(), config.clone())
}

/// All cells of the table, in order.
pub async fn cells(store: &MemoryStore) -> Vec<Cell> {
    cells_of(store, &table()).await
}

/// All cells of a table of UIDs, in order.
pub async fn cells_of(store: &dyn RowStore, table: &TableName) -> Vec<Cell> {
    let rows = store.scan(table, Scan::range([], [])).await.unwrap();
    let rows: Vec<Vec<Row>> = rows.try_collect().await.unwrap();
    let mut cells: Vec<Cell> = rows
        .iter()
        .flatten()
        .flat_map(|row| {
            row.cells().map(|cell| {
                (
                    row.key().to_vec(),
                    cell.family.to_owned(),
                    cell.qualifier.to_vec(),
                    cell.value.to_vec(),
                )
            })
        })
        .collect();
    cells.sort();
    cells
}

/// Checks the invariants: no UID has two names, each forward mapping has its reverse mapping.
/// (A name cannot have two UIDs: it is one cell.) Returns the forward mappings and the number of reverse
/// mappings.
pub async fn check_invariants(store: &MemoryStore) -> (Mappings, usize) {
    check_cells(cells(store).await)
}

/// UIDs by kind and name.
pub type Mappings = BTreeMap<(Vec<u8>, Vec<u8>), Vec<u8>>;

/// As [`check_invariants`], of all cells of a table.
pub fn check_cells(cells: Vec<Cell>) -> (Mappings, usize) {
    let mut forward = BTreeMap::new();
    let mut reverse = BTreeMap::new();
    let mut counters = BTreeMap::new();
    for (row, family, kind, value) in cells {
        match (family.as_str(), row.as_slice()) {
            ("id", [0]) => drop(counters.insert(kind, value)),
            ("id", _) => drop(forward.insert((kind, row), value)),
            _ => drop(reverse.insert((kind, row), value)),
        }
    }
    let mut named = BTreeMap::new();
    for ((kind, name), uid) in &forward {
        let other = named.insert((kind.clone(), uid.clone()), name.clone());
        assert_eq!(other, None, "{} has two names", hex::encode(uid));
        assert_eq!(
            reverse.get(&(kind.clone(), uid.clone())),
            Some(name),
            "{} cannot be read back",
            String::from_utf8_lossy(name)
        );
    }
    (forward, reverse.len())
}

/// Names `name.0`, `name.1`, …
pub fn names(kind: UidKind, count: usize) -> Vec<KindName> {
    let name = |number| Name::parse(&format!("name.{number}"), &NameRules::default()).unwrap();
    (0..count).map(|number| (kind, name(number))).collect()
}
