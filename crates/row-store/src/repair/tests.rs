use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::TryStreamExt as _;

use super::*;
use crate::intercept::{Intercept, InterceptedStore, Operation, Response};
use crate::memory::MemoryStore;
use crate::{Row, Scan, TableDef};

const KEY: &[u8] = b"row";
const FAMILY: &str = "t";

/// Fails one operation, before or after it was performed.
#[derive(Debug)]
struct FailAt {
    left: AtomicUsize,
    after: bool,
}

#[async_trait::async_trait]
impl Intercept for FailAt {
    async fn intercept(&self, operation: Operation, store: &dyn RowStore) -> Result<Response, StoreError> {
        let fails = self.left.fetch_sub(1, Ordering::Relaxed) == 0;
        if fails && !self.after {
            return Err(lost());
        }
        let response = operation.perform(store).await;
        if fails { Err(lost()) } else { response }
    }
}

fn lost() -> StoreError {
    StoreError::TimedOut {
        detail: "lost".to_owned(),
    }
}

fn table() -> TableName {
    "tsdb".parse().unwrap()
}

/// A store without atomic commits that fails at one operation.
fn like_hbase(memory: &MemoryStore, position: usize, after: bool) -> InterceptedStore {
    let hook = FailAt {
        left: AtomicUsize::new(position),
        after,
    };
    InterceptedStore::new(Arc::new(memory.clone()), Arc::new(hook)).like_hbase()
}

/// Cells of the row.
async fn store(cells: &[(&[u8], &[u8])]) -> MemoryStore {
    let store = MemoryStore::new();
    store.create_table(&TableDef::new(table(), &["t"])).await.unwrap();
    let mut batch = WriteBatch::new(table());
    let family = batch.family(FAMILY);
    batch.row(KEY);
    for (qualifier, value) in cells {
        batch.put_at(family, qualifier, 5, value);
    }
    store.write(batch).await.unwrap();
    store
}

async fn cells(store: &MemoryStore) -> Vec<(Vec<u8>, Vec<u8>)> {
    let rows = store.scan(&table(), Scan::range([], [])).await.unwrap();
    let rows: Vec<Vec<Row>> = rows.try_collect().await.unwrap();
    let cells = rows.iter().flatten().flat_map(Row::cells);
    cells
        .map(|cell| (cell.qualifier.to_vec(), cell.value.to_vec()))
        .collect()
}

fn change(qualifier: &[u8], old: Option<&[u8]>, new: Option<&[u8]>) -> CellChange {
    CellChange {
        cell: CellAddress::new(KEY, FAMILY, qualifier),
        old: old.map(<[u8]>::to_vec),
        new: new.map(<[u8]>::to_vec),
    }
}

/// A comparison, a replaced, a new and two removed cells.
fn changes() -> Vec<CellChange> {
    vec![
        change(b"k", Some(b"kept"), Some(b"kept")),
        change(b"a", Some(b"1"), Some(b"2")),
        change(b"b", None, Some(b"new")),
        change(b"c", Some(b"3"), None),
        change(b"d", Some(b"4"), None),
    ]
}

fn inverse(changes: &[CellChange]) -> Vec<CellChange> {
    changes.iter().rev().cloned().map(CellChange::inverse).collect()
}

async fn apply(store: &dyn RowStore, changes: &[CellChange]) -> Result<Applied, RepairFailure> {
    let repair = CellRepair {
        store,
        table: &table(),
        changes,
        timestamps_ms: &[Some(5); 5],
    };
    repair.apply().await
}

fn owned(cells: &[(&[u8], &[u8])]) -> Vec<(Vec<u8>, Vec<u8>)> {
    let cell = |(qualifier, value): &(&[u8], &[u8])| (qualifier.to_vec(), value.to_vec());
    cells.iter().map(cell).collect()
}

const BEFORE: &[(&[u8], &[u8])] = &[(b"a", b"1"), (b"c", b"3"), (b"d", b"4"), (b"k", b"kept")];
const AFTER: &[(&[u8], &[u8])] = &[(b"a", b"2"), (b"b", b"new"), (b"k", b"kept")];

#[tokio::test]
async fn an_interrupted_repair_can_be_repeated_or_made_back() {
    let changes = changes();
    let mut completed = 0;
    for (position, after) in (0..24).flat_map(|position| [(position, false), (position, true)]) {
        for makes_back in [false, true] {
            let memory = store(BEFORE).await;
            let failing = like_hbase(&memory, position, after);
            completed += usize::from(apply(&failing, &changes).await.is_ok());
            let like_hbase = like_hbase(&memory, usize::MAX, after);
            let (changes, expected) = if makes_back {
                (inverse(&changes), BEFORE)
            } else {
                (changes.clone(), AFTER)
            };
            apply(&like_hbase, &changes).await.unwrap();
            assert_eq!(cells(&memory).await, owned(expected), "{position} {after}");
            assert_eq!(apply(&like_hbase, &changes).await.unwrap(), Applied::Already);
        }
    }
    assert!(completed > 10, "later positions are beyond the end");
}

#[tokio::test]
async fn a_changed_cell_prevents_the_repair() {
    for place in 0..changes().len() {
        let memory = store(BEFORE).await;
        let changed = &changes()[place];
        let mut batch = WriteBatch::new(table());
        let family = batch.family(FAMILY);
        batch
            .row(KEY)
            .put_at(family, &changed.cell.qualifier, 6, b"other");
        memory.write(batch).await.unwrap();
        let before = cells(&memory).await;
        let like_hbase = like_hbase(&memory, usize::MAX, false);
        for store in [&memory as &dyn RowStore, &like_hbase] {
            let error = apply(store, &changes()).await.unwrap_err();
            assert!(
                matches!(
                    &error,
                    RepairFailure::StateChanged { cell, is_partly_applied: false }
                        if *cell == changed.cell
                ),
                "{error:?}"
            );
            assert_eq!(cells(&memory).await, before);
        }
    }
}

#[tokio::test]
async fn a_part_that_was_not_made_back_is_reported() {
    // All changes are made; then another writer changes a cell.
    for changed in changes() {
        let memory = store(AFTER).await;
        let mut batch = WriteBatch::new(table());
        let family = batch.family(FAMILY);
        batch
            .row(KEY)
            .put_at(family, &changed.cell.qualifier, 6, b"other");
        memory.write(batch).await.unwrap();
        let error = apply(&memory, &changes()).await.unwrap_err();
        assert!(
            matches!(
                &error,
                RepairFailure::StateChanged {
                    is_partly_applied: true,
                    ..
                }
            ),
            "{error:?}"
        );
    }
}

#[tokio::test]
async fn new_values_have_their_timestamps_unless_the_cell_is_younger() {
    let memory = store(&[(b"a", b"1")]).await;
    let changes = [
        change(b"a", Some(b"1"), Some(b"2")),
        change(b"b", None, Some(b"3")),
    ];
    let repair = CellRepair {
        store: &memory,
        table: &table(),
        changes: &changes,
        timestamps_ms: &[Some(4), Some(3)],
    };
    assert_eq!(repair.apply().await.unwrap(), Applied::Changed);
    let row = memory.get(&table(), KEY, &ColumnSelection::All).await.unwrap();
    let row = row.unwrap();
    let cells = row.cells().map(|cell| (cell.value, cell.timestamp_ms));
    assert_eq!(cells.collect::<Vec<_>>(), [(&b"2"[..], 5), (b"3", 3)]);
}
