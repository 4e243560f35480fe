//! The cell store against the memory store: random operations, flushes, reopenings and crashes, and equal
//! cells after each.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use futures::TryStreamExt;
use oxtsdb_row_store::cells::{CellConfig, CellStore};
use oxtsdb_row_store::memory::MemoryStore;
use oxtsdb_row_store::{
    CellAddress, Clock, Condition, FamilyDef, Row, RowStore, Scan, StoreControl as _, TableDef, TableName,
    WriteBatch,
};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::support::files::copy_folder;

const START_MS: i64 = 1_700_000_000_000;
/// The families: one version, three versions, and one with a time to live of ten seconds.
const FAMILIES: [&str; 3] = ["one", "three", "short"];

#[derive(Clone, Debug)]
enum Mutation {
    Put {
        family: usize,
        column: u8,
        value: Vec<u8>,
    },
    PutAt {
        family: usize,
        column: u8,
        age_ms: i64,
        value: Vec<u8>,
    },
    DeleteColumn {
        family: usize,
        column: u8,
    },
    DeleteColumnUpTo {
        family: usize,
        column: u8,
        age_ms: i64,
    },
    DeleteFamily {
        family: usize,
    },
    DeleteRow,
}

#[derive(Clone, Debug)]
enum Operation {
    Write(Vec<(u8, Vec<Mutation>)>),
    Increment {
        row: u8,
        family: usize,
        amount: i64,
    },
    CheckAndPut {
        row: u8,
        family: usize,
        column: u8,
        expected: Option<Vec<u8>>,
        value: Vec<u8>,
    },
    Append {
        row: u8,
        family: usize,
        column: u8,
        value: Vec<u8>,
    },
    CommitIf {
        row: u8,
        expected: Option<Vec<u8>>,
        rows: Vec<(u8, Vec<Mutation>)>,
    },
    Wait(i64),
    Flush,
    Reopen,
    CloseAndReopen,
}

fn value() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        Just(vec![]),
        Just(vec![1]),
        Just(vec![0, 5]),
        vec(any::<u8>(), 8),
        vec(any::<u8>(), 0..40)
    ]
}

fn mutation() -> impl Strategy<Value = Mutation> {
    let family = || 0..FAMILIES.len();
    prop_oneof![
        5 => (family(), 0..6_u8, value()).prop_map(|(family, column, value)| Mutation::Put { family, column, value }),
        3 => (family(), 0..6_u8, -3_000..12_000_i64, value())
            .prop_map(|(family, column, age_ms, value)| Mutation::PutAt { family, column, age_ms, value }),
        2 => (family(), 0..6_u8).prop_map(|(family, column)| Mutation::DeleteColumn { family, column }),
        1 => (family(), 0..6_u8, -3_000..12_000_i64)
            .prop_map(|(family, column, age_ms)| Mutation::DeleteColumnUpTo { family, column, age_ms }),
        1 => family().prop_map(|family| Mutation::DeleteFamily { family }),
        1 => Just(Mutation::DeleteRow),
    ]
}

fn rows() -> impl Strategy<Value = Vec<(u8, Vec<Mutation>)>> {
    vec((0..5_u8, vec(mutation(), 0..5)), 1..5)
}

fn operation() -> impl Strategy<Value = Operation> {
    let family = || 0..FAMILIES.len();
    prop_oneof![
        8 => rows().prop_map(Operation::Write),
        2 => (0..5_u8, family(), -2..5_i64).prop_map(|(row, family, amount)| Operation::Increment { row, family, amount }),
        2 => (0..5_u8, family(), 0..6_u8, proptest::option::of(value()), value()).prop_map(
            |(row, family, column, expected, value)| Operation::CheckAndPut { row, family, column, expected, value }
        ),
        1 => (0..5_u8, family(), 0..6_u8, value())
            .prop_map(|(row, family, column, value)| Operation::Append { row, family, column, value }),
        1 => (0..5_u8, proptest::option::of(value()), rows())
            .prop_map(|(row, expected, rows)| Operation::CommitIf { row, expected, rows }),
        3 => (0..6_000_i64).prop_map(Operation::Wait),
        2 => Just(Operation::Flush),
        1 => Just(Operation::Reopen),
        1 => Just(Operation::CloseAndReopen),
    ]
}

/// Columns with OpenTSDB's qualifiers of points, and others.
fn qualifier(column: u8) -> &'static [u8] {
    [
        &b"\x00\x07"[..],
        b"\x00\x10",
        b"\x00\x20",
        b"q",
        b"",
        b"\xf0\x00\x01\x07",
    ][usize::from(column)]
}

fn key(row: u8) -> Vec<u8> {
    [&b"r"[..], b"r\0", b"s", b"\xff\xff", b"\x00"][usize::from(row)].to_vec()
}

fn table() -> TableName {
    "model".parse().unwrap()
}

fn definition() -> TableDef {
    let family = |name: &str, max_versions, ttl| FamilyDef {
        name: name.to_owned(),
        max_versions,
        ttl,
    };
    let families = vec![
        family(FAMILIES[0], 1, None),
        family(FAMILIES[1], 3, None),
        family(FAMILIES[2], 2, Some(Duration::from_secs(10))),
    ];
    TableDef {
        name: table(),
        families,
    }
}

fn batch(rows: &[(u8, Vec<Mutation>)], now_ms: i64) -> WriteBatch {
    let mut batch = WriteBatch::new(table());
    // In another order than the table defines them.
    let ids: BTreeMap<usize, _> = (0..FAMILIES.len())
        .rev()
        .map(|family| (family, batch.family(FAMILIES[family])))
        .collect();
    for (row, mutations) in rows {
        batch.row(&key(*row));
        for mutation in mutations {
            match mutation {
                Mutation::Put {
                    family,
                    column,
                    value,
                } => batch.put(ids[family], qualifier(*column), value),
                Mutation::PutAt {
                    family,
                    column,
                    age_ms,
                    value,
                } => batch.put_at(ids[family], qualifier(*column), now_ms - age_ms, value),
                Mutation::DeleteColumn { family, column } => {
                    batch.delete_column(ids[family], qualifier(*column))
                }
                Mutation::DeleteColumnUpTo {
                    family,
                    column,
                    age_ms,
                } => batch.delete_column_up_to(ids[family], qualifier(*column), now_ms - age_ms),
                Mutation::DeleteFamily { family } => batch.delete_family(ids[family]),
                Mutation::DeleteRow => batch.delete_row(),
            };
        }
    }
    batch
}

/// Performs an operation and returns its outcome.
async fn perform(store: &dyn RowStore, operation: &Operation, now_ms: i64) -> String {
    let cell =
        |row: u8, family: usize, column: u8| CellAddress::new(key(row), FAMILIES[family], qualifier(column));
    match operation {
        Operation::Write(rows) => format!("{:?}", store.write(batch(rows, now_ms)).await),
        Operation::Increment { row, family, amount } => {
            format!(
                "{:?}",
                store.increment(&table(), &cell(*row, *family, 0), *amount).await
            )
        }
        Operation::CheckAndPut {
            row,
            family,
            column,
            expected,
            value,
        } => {
            let condition = Condition {
                cell: cell(*row, *family, *column),
                expected: expected.clone(),
            };
            format!("{:?}", store.check_and_put(&table(), &condition, value).await)
        }
        Operation::Append {
            row,
            family,
            column,
            value,
        } => {
            format!(
                "{:?}",
                store.append(&table(), &cell(*row, *family, *column), value).await
            )
        }
        Operation::CommitIf { row, expected, rows } => {
            let condition = Condition {
                cell: cell(*row, 0, 3),
                expected: expected.clone(),
            };
            format!(
                "{:?}",
                store
                    .atomic()
                    .unwrap()
                    .commit_if(&[condition], batch(rows, now_ms))
                    .await
            )
        }
        Operation::Wait(_) | Operation::Flush | Operation::Reopen | Operation::CloseAndReopen => {
            String::new()
        }
    }
}

async fn contents(store: &dyn RowStore, max_versions: u32, reverse: bool) -> Vec<Row> {
    let mut scan = Scan::range("", "");
    (scan.max_versions, scan.reverse, scan.batch_rows) = (max_versions, reverse, 2);
    let batches: Vec<Vec<Row>> = store
        .scan(&table(), scan)
        .await
        .unwrap()
        .try_collect()
        .await
        .unwrap();
    batches.into_iter().flatten().collect()
}

struct Pair {
    now_ms: Arc<AtomicI64>,
    model: MemoryStore,
    store: Option<CellStore>,
    config: CellConfig,
}

impl Pair {
    async fn new(folder: &Path) -> Self {
        let now_ms = Arc::new(AtomicI64::new(START_MS));
        let clock = {
            let now_ms = now_ms.clone();
            Clock::new(move || now_ms.load(Ordering::Relaxed))
        };
        let mut config = CellConfig::new(folder);
        config.clock = clock.clone();
        let model = MemoryStore::with_clock(clock);
        let store = CellStore::open(config.clone()).unwrap();
        model.create_table(&definition()).await.unwrap();
        store.create_table(&definition()).await.unwrap();
        Self {
            now_ms,
            model,
            store: Some(store),
            config,
        }
    }

    async fn perform(&mut self, operation: &Operation) {
        let store = self.store.as_ref().unwrap();
        match operation {
            Operation::Wait(time_ms) => drop(self.now_ms.fetch_add(*time_ms, Ordering::Relaxed)),
            Operation::Flush => store.flush().await.unwrap(),
            Operation::Reopen | Operation::CloseAndReopen => {
                if matches!(operation, Operation::CloseAndReopen) {
                    store.close().await.unwrap();
                }
                self.store = None;
                self.store = Some(CellStore::open(self.config.clone()).unwrap());
            }
            _ => {
                let now_ms = self.now_ms.load(Ordering::Relaxed);
                let expected = perform(&self.model, operation, now_ms).await;
                assert_eq!(perform(store, operation, now_ms).await, expected);
            }
        }
    }

    async fn compare(&self) {
        let store = self.store.as_ref().unwrap();
        for (max_versions, reverse) in [(10, false), (1, true)] {
            let expected = contents(&self.model, max_versions, reverse).await;
            assert_eq!(contents(store, max_versions, reverse).await, expected);
        }
        for row in 0..5 {
            let columns = oxtsdb_row_store::ColumnSelection::Family("three".to_owned());
            let expected = self.model.get(&table(), &key(row), &columns).await.unwrap();
            assert_eq!(store.get(&table(), &key(row), &columns).await.unwrap(), expected);
        }
    }
}

fn run(test: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
        .block_on(test);
}

/// Truncates the newest segment of the journal at a random offset behind its header, as a crash may.
fn tear_journal(folder: &Path, thousandths: usize) {
    let mut segments: Vec<_> = fs::read_dir(folder.join("journal"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "journal"))
        .collect();
    segments.sort();
    let Some(newest) = segments.last() else { return };
    let bytes = fs::read(newest).unwrap();
    let end = 32 + (bytes.len() - 32) * thousandths / 1_000;
    fs::write(newest, &bytes[..end]).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn agrees_with_the_memory_store(operations in vec(operation(), 1..50)) {
        run(async {
            let folder = tempfile::tempdir().unwrap();
            let mut pair = Pair::new(folder.path()).await;
            for operation in &operations {
                pair.perform(operation).await;
                pair.compare().await;
            }
        });
    }

    #[test]
    fn crash_recovers_a_committed_state(operations in vec(operation(), 1..40), thousandths in 0..1_000_usize) {
        run(async {
            let folder = tempfile::tempdir().unwrap();
            let mut pair = Pair::new(&folder.path().join("store")).await;
            let mut states = vec![contents(&pair.model, 10, false).await];
            for operation in operations.iter().filter(|operation| !matches!(operation, Operation::Wait(_))) {
                pair.perform(operation).await;
                if matches!(operation, Operation::Flush) {
                    // Flushed cells do not need the journal.
                    states.clear();
                }
                states.push(contents(&pair.model, 10, false).await);
            }
            pair.store = None;
            let torn = folder.path().join("torn");
            copy_folder(&folder.path().join("store"), &torn);
            tear_journal(&torn, thousandths);
            let mut config = pair.config.clone();
            config.path = torn;
            let store = CellStore::open(config).unwrap();
            let state = contents(&store, 10, false).await;
            assert!(states.contains(&state), "{state:?} is none of {states:?}");
        });
    }
}
