//! The executor over stores that fail, and beside other writers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use oxtsdb_row_store::intercept::{Intercept, InterceptedStore, Operation, Response};
use oxtsdb_row_store::memory::MemoryStore;
use oxtsdb_row_store::{RowStore, TableDef, TableName, WriteBatch};
use oxtsdb_schema::row::{CellRef, DuplicatePolicy, Points, decode_row};
use oxtsdb_schema::{SaltLayout, UidWidths, Value};
use oxtsdb_test_stack::TestStack;
use proptest::prelude::*;

use super::*;

/// 2013-01-01 00:00 UTC.
const BASE: u32 = 1_356_998_400;
const BASE_MS: i64 = 1_356_998_400_000;
const FOREVER: Hours = Hours::ALL;

/// Qualifier, value, and the time of the write in milliseconds after the hour's end.
type Cell = (Vec<u8>, Vec<u8>, i64);

type Content = BTreeMap<Vec<u8>, Vec<(u32, Value)>>;

fn table() -> TableName {
    "tsdb".parse().unwrap()
}

fn layout() -> RowKeyLayout {
    RowKeyLayout {
        salt: SaltLayout::new(0, 20).unwrap(),
        widths: UidWidths::default(),
    }
}

fn key(series: u8, hour: u32) -> Vec<u8> {
    let base = (BASE + hour * 3600).to_be_bytes();
    [&[0, 0, 1][..], &base, &[0, 0, 1, 0, 0, series]].concat()
}

async fn new_store() -> MemoryStore {
    let store = MemoryStore::new();
    store
        .create_table(&TableDef::new(table(), &[FAMILY]))
        .await
        .unwrap();
    store
}

async fn put(store: &dyn RowStore, row: &[u8], cells: &[Cell]) {
    let mut batch = WriteBatch::new(table());
    let family = batch.family(FAMILY);
    batch.row(row);
    for (qualifier, value, after_ms) in cells {
        batch.put_at(family, qualifier, BASE_MS + 3_600_000 + after_ms, value);
    }
    store.write(batch).await.unwrap();
}

/// Cells of one second each, with values of one byte.
fn seconds(values: &[(u16, u8)]) -> Vec<Cell> {
    values
        .iter()
        .map(|(second, value)| {
            (
                (second << 4).to_be_bytes().to_vec(),
                vec![*value],
                i64::from(*second),
            )
        })
        .collect()
}

async fn compactor(store: Arc<dyn RowStore>) -> Compactor {
    let stack = TestStack::start().await;
    let mut compactor = Compactor::from_engine(&stack.service.engine, false).unwrap();
    compactor.storage.store = store;
    compactor.storage.layout = layout();
    compactor
}

fn all() -> Pass {
    Pass {
        metric: None,
        hours: FOREVER,
        start_after_row_key: Vec::new(),
        min_age: Duration::from_secs(600),
        rate: Rate::default(),
        courtesy: Courtesy::None,
    }
}

/// Runs a pass to its end.
async fn run(compactor: &Compactor, pass: Pass) -> Result<Figures, CompactionError> {
    let mut figures = Figures::default();
    compactor.run(pass, |step| figures.add(step.figures)).await?;
    Ok(figures)
}

async fn rows(store: &dyn RowStore) -> Vec<Row> {
    let scan = store.scan(&table(), Scan::range([], [])).await.unwrap();
    let batches: Vec<_> = scan.try_collect().await.unwrap();
    batches.into_iter().flatten().collect()
}

/// The points of all rows, the newest of each instant.
async fn content(store: &dyn RowStore) -> Content {
    let rows = rows(store).await;
    rows.iter()
        .map(|row| {
            let cells: Vec<_> = row
                .cells()
                .map(|cell| CellRef {
                    qualifier: cell.qualifier,
                    value: cell.value,
                    timestamp_ms: cell.timestamp_ms,
                })
                .collect();
            let mut points = Points::new();
            decode_row(cells, DuplicatePolicy::KeepNewest, &mut points).unwrap();
            (row.key().to_vec(), points.iter().collect())
        })
        .collect()
}

/// The number of cells of each row.
async fn cells(store: &dyn RowStore) -> Vec<usize> {
    rows(store).await.iter().map(Row::len).collect()
}

#[tokio::test]
async fn compacts_rows_and_counts_them() {
    let store = new_store().await;
    put(&store, &key(1, 0), &seconds(&[(0, 1), (10, 2), (20, 3)])).await;
    put(&store, &key(2, 0), &seconds(&[(5, 1)])).await;
    put(&store, &key(3, 0), &[(vec![5, 0, 0], vec![0, 0, 1], 0)]).await;
    let damaged = [seconds(&[(0, 1)]), vec![(vec![0, 0, 0, 0x10], vec![1], 0)]].concat();
    put(&store, &key(4, 0), &damaged).await;
    put(&store, &key(1, 1), &seconds(&[(0, 1), (1, 2)])).await;
    let before = rows(&store).await;
    let compactor = compactor(Arc::new(store.clone())).await;
    let (mut figures, mut findings, mut last) = (Figures::default(), Vec::new(), Vec::new());
    let steps = |step: Step<'_>| {
        figures.add(step.figures);
        findings.extend(step.findings);
        last = step.last_row_key.to_vec();
    };
    compactor.run(all(), steps).await.unwrap();
    let expected = Figures {
        rows: 5,
        bytes: before.iter().map(|row| row.byte_len() as u64).sum(),
        compacted: 2,
        already_compact: 1,
        appended: 1,
        damaged: 1,
        points: 5,
        cells_before: 5,
        cells_after: 2,
        bytes_before: 5 * (13 + 1 + 3),
        bytes_after: 2 * (13 + 1) + (6 + 4) + (4 + 3),
        ..Figures::default()
    };
    assert_eq!(figures, expected);
    assert_eq!(findings.len(), 1);
    assert_eq!(
        (&findings[0].row_key, findings[0].problem),
        (&key(4, 0), Problem::Damaged)
    );
    assert_eq!(last, key(1, 1));
    assert_eq!(cells(&store).await, [1, 1, 1, 2, 1]);
    let again = run(&compactor, all()).await.unwrap();
    assert_eq!((again.compacted, again.already_compact), (0, 3));
}

#[tokio::test]
async fn resumes_behind_a_row_and_keeps_to_its_hours() {
    let store = new_store().await;
    for hour in 0..4 {
        put(&store, &key(1, hour), &seconds(&[(0, 1), (10, 2)])).await;
    }
    let compactor = compactor(Arc::new(store.clone())).await;
    let pass = Pass {
        hours: Hours {
            start: BaseTime::from_seconds(BASE),
            stop_seconds: u64::from(BASE) + 3 * 3600,
        },
        start_after_row_key: key(1, 0),
        ..all()
    };
    let figures = run(&compactor, pass).await.unwrap();
    assert_eq!((figures.rows, figures.compacted), (2, 2));
    assert_eq!(cells(&store).await, [2, 1, 1, 2]);
}

#[test]
fn hours_end_before_the_minimum_age() {
    let now_ms = BASE_MS + 2 * 3_600_000 + 599_000;
    let stop = |age| ended(Hours::ALL, now_ms, Duration::from_secs(age)).stop_seconds;
    assert_eq!(stop(600), u64::from(BASE) + 3600);
    assert_eq!(stop(599), u64::from(BASE) + 7200);
    assert_eq!(stop(u64::MAX / 1000), 0);
}

#[tokio::test]
async fn recent_rows_stay() {
    let store = new_store().await;
    let mut batch = WriteBatch::new(table());
    let family = batch.family(FAMILY);
    batch
        .row(&key(1, 0))
        .put(family, &[0, 0], &[1])
        .put(family, &[0, 0x10], &[2]);
    store.write(batch).await.unwrap();
    let compactor = compactor(Arc::new(store.clone())).await;
    let figures = run(&compactor, all()).await.unwrap();
    assert_eq!((figures.compacted, figures.recent), (0, 1));
    assert_eq!(cells(&store).await, [2]);
}

#[tokio::test]
async fn stores_that_must_not_be_compacted_are_rejected() {
    let rows = TestStack::start().await;
    let timestamps = Compactor::from_engine(&rows.service.engine, true).unwrap_err();
    assert_eq!(timestamps, NotCompactable::DataTimestamps);
    let embedded = TestStack::with_points().await;
    let error = Compactor::from_engine(&embedded.service.engine, false).unwrap_err();
    assert_eq!(error, NotCompactable::Embedded);
}

/// Fails from an operation on; the failing write has an effect or not.
#[derive(Debug)]
struct Crash {
    operations: AtomicUsize,
    at: usize,
    after_the_effect: bool,
}

#[async_trait]
impl Intercept for Crash {
    async fn intercept(&self, operation: Operation, store: &dyn RowStore) -> Result<Response, StoreError> {
        let number = self.operations.fetch_add(1, Ordering::Relaxed);
        if number < self.at {
            return operation.perform(store).await;
        }
        if number == self.at && self.after_the_effect {
            operation.perform(store).await?;
        }
        Err(StoreError::Unavailable {
            detail: "crash".to_owned(),
        })
    }
}

/// Cells of a row: of both resolutions, compacted, duplicates of equal values.
fn any_cells() -> impl Strategy<Value = Vec<Cell>> {
    let second = (0..6_u16, 0..3_u8).prop_map(|(second, late)| {
        let value = u8::try_from(second).unwrap();
        ((second << 4).to_be_bytes().to_vec(), vec![value], i64::from(late))
    });
    // The same instants in milliseconds, with the same values.
    let milli = (0..6_u32, 0..3_u8).prop_map(|(second, late)| {
        let qualifier = 0xf000_0000 | ((second * 1000) << 6);
        let value = u8::try_from(second).unwrap();
        (qualifier.to_be_bytes().to_vec(), vec![value], i64::from(late))
    });
    let compacted = (0..3_u16, 0..3_u8).prop_map(|(second, late)| {
        let (first, next) = (second << 4, (second + 1) << 4);
        let qualifier = [first.to_be_bytes(), next.to_be_bytes()].concat();
        let value = u8::try_from(second).unwrap();
        (qualifier, vec![value, value + 1, 0], i64::from(late))
    });
    let annotation = Just((vec![1, 0, 0x3d], b"{}".to_vec(), 0));
    prop::collection::vec(
        prop_oneof![4 => second, 2 => milli, 2 => compacted, 1 => annotation],
        1..8,
    )
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
        .block_on(future)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn a_crash_at_any_operation_leaves_all_points(
        rows in prop::collection::vec(any_cells(), 1..4),
        after_the_effect: bool,
    ) {
        block_on(async {
            let template = compactor(Arc::new(MemoryStore::new())).await;
            for at in 0.. {
                let store = new_store().await;
                for (series, cells) in rows.iter().enumerate() {
                    put(&store, &key(u8::try_from(series).unwrap(), 0), cells).await;
                }
                let before = content(&store).await;
                let crash = Crash { operations: AtomicUsize::new(0), at, after_the_effect };
                let crashing = InterceptedStore::new(Arc::new(store.clone()), Arc::new(crash));
                let mut compactor = template.clone();
                compactor.storage.store = Arc::new(crashing);
                let complete = run(&compactor, all()).await.is_ok();
                prop_assert_eq!(&content(&store).await, &before);
                // Another pass completes what the crash has left.
                compactor.storage.store = Arc::new(store.clone());
                run(&compactor, all()).await.unwrap();
                prop_assert_eq!(&content(&store).await, &before);
                let figures = run(&compactor, all()).await.unwrap();
                prop_assert_eq!(figures.already_compact, figures.rows);
                if complete {
                    break;
                }
            }
            Ok(())
        })?;
    }

    #[test]
    fn two_compactions_at_once_leave_all_points(
        rows in prop::collection::vec(any_cells(), 1..6),
        late in prop::collection::vec((0..6_u8, 0..6_u16), 0..4),
    ) {
        block_on(async {
            let store = new_store().await;
            for (series, cells) in rows.iter().enumerate() {
                put(&store, &key(u8::try_from(series).unwrap(), 0), cells).await;
            }
            let (one, other) = tokio::join!(compactor(Arc::new(store.clone())), compactor(Arc::new(store.clone())));
            // Points that are written meanwhile win.
            let writes = async {
                for (index, (series, second)) in late.iter().enumerate() {
                    let value = u8::try_from(100 + index).unwrap();
                    let mut batch = WriteBatch::new(table());
                    let family = batch.family(FAMILY);
                    batch.row(&key(*series, 0)).put(family, &(second << 4).to_be_bytes(), &[value]);
                    store.write(batch).await.unwrap();
                    tokio::task::yield_now().await;
                }
            };
            let mut expected = content(&store).await;
            for (index, (series, second)) in late.iter().enumerate() {
                let points = expected.entry(key(*series, 0)).or_default();
                let offset_ms = u32::from(*second) * 1000;
                points.retain(|(offset, _)| *offset != offset_ms);
                points.push((offset_ms, Value::Int(100 + i64::try_from(index).unwrap())));
                points.sort_by_key(|(offset, _)| *offset);
            }
            let (one, other, ()) = tokio::join!(run(&one, all()), run(&other, all()), writes);
            one.unwrap();
            other.unwrap();
            prop_assert_eq!(content(&store).await, expected);
            Ok(())
        })?;
    }
}

#[tokio::test]
async fn a_row_that_changes_is_left_with_its_cells() {
    let store = new_store().await;
    put(&store, &key(1, 0), &seconds(&[(0, 1), (10, 2)])).await;
    // A longer cell of the same column, as of another compaction, from a clock ahead.
    let newer = [(vec![0, 0, 0, 0xa0], vec![7, 8, 0], 50_000)];
    let hook = PutsBefore {
        cells: newer.to_vec(),
        writes: AtomicUsize::new(0),
    };
    let store_with_hook = InterceptedStore::new(Arc::new(store.clone()), Arc::new(hook));
    let compactor = compactor(Arc::new(store_with_hook)).await;
    let (mut figures, mut findings) = (Figures::default(), Vec::new());
    let steps = |step: Step<'_>| {
        figures.add(step.figures);
        findings.extend(step.findings);
    };
    compactor.run(all(), steps).await.unwrap();
    assert_eq!((figures.compacted, figures.unconfirmed), (0, 1));
    assert_eq!(findings[0].problem, Problem::Unconfirmed);
    assert_eq!(cells(&store).await, [3]);
}

/// Puts cells as another client, right before the first write.
#[derive(Debug)]
struct PutsBefore {
    cells: Vec<Cell>,
    writes: AtomicUsize,
}

#[async_trait]
impl Intercept for PutsBefore {
    async fn intercept(&self, operation: Operation, store: &dyn RowStore) -> Result<Response, StoreError> {
        if matches!(operation, Operation::Write { .. }) && self.writes.fetch_add(1, Ordering::Relaxed) == 0 {
            put(store, &key(1, 0), &self.cells).await;
        }
        operation.perform(store).await
    }
}
