//! Packed rows, in blocks, in memory and in both: their points and cells equal those of an unpacked scan.

#![expect(clippy::unwrap_used, reason = "a test panics when something fails")]

use futures::TryStreamExt;
use oxtsdb_row_store::embedded::{EmbeddedConfig, EmbeddedStore};
use oxtsdb_row_store::{
    FamilyDef, PointColumns, PointValues, Row, RowStore, Scan, TableDef, TableName, WriteBatch,
};
use proptest::collection::vec;
use proptest::prelude::*;

const FAMILIES: [&str; 2] = ["t", "u"];

/// A cell of a row: its qualifier and value.
type Cell = (usize, Vec<u8>, Vec<u8>);

#[derive(Clone, Debug)]
enum Operation {
    /// This many points per row, continuing from the previous ones; the last row has gaps, backward jumps and
    /// other cells in between.
    Append(usize, Vec<Cell>),
    DeleteColumn(u16),
    DeleteRow(u8),
    Flush,
    Reopen,
}

fn cell() -> impl Strategy<Value = Cell> {
    let seconds = 0..3600_u16;
    let float = |seconds: u16, value: f32| {
        let qualifier = (seconds << 4 | 11).to_be_bytes();
        (0, qualifier.to_vec(), value.to_be_bytes().to_vec())
    };
    let millis = |millis: u32, value: i64| {
        let qualifier = (0xf << 28 | millis << 6 | 7).to_be_bytes();
        (0, qualifier.to_vec(), value.to_be_bytes().to_vec())
    };
    prop_oneof![
        4 => (seconds.clone(), any::<i8>()).prop_map(|(seconds, value)| int(seconds, value)),
        2 => (seconds.clone(), any::<f32>()).prop_map(move |(seconds, value)| float(seconds, value)),
        2 => (0..3_600_000_u32, any::<i64>()).prop_map(move |(at, value)| millis(at, value)),
        1 => vec(any::<u8>(), 1..7).prop_map(|bytes| (0, bytes.clone(), bytes)),
        1 => (seconds, any::<i8>()).prop_map(|(seconds, value)| (1, int(seconds, value).1, vec![7])),
    ]
}

fn int(seconds: u16, value: i8) -> Cell {
    (
        0,
        (seconds << 4).to_be_bytes().to_vec(),
        value.to_be_bytes().to_vec(),
    )
}

fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        6 => (1..20_usize, vec(cell(), 0..4)).prop_map(|(count, cells)| Operation::Append(count, cells)),
        1 => (0..200_u16).prop_map(Operation::DeleteColumn),
        1 => (0..4_u8).prop_map(Operation::DeleteRow),
        2 => Just(Operation::Flush),
        1 => Just(Operation::Reopen),
    ]
}

fn table() -> TableName {
    "points".parse().unwrap()
}

async fn scan(store: &EmbeddedStore, packed: bool) -> Vec<Row> {
    let mut scan = Scan::range("", "");
    scan.allows_packed = packed;
    let batches: Vec<Vec<Row>> = store
        .scan(&table(), scan)
        .await
        .unwrap()
        .try_collect()
        .await
        .unwrap();
    batches.into_iter().flatten().collect()
}

/// Rows 0 and 1 have only integers or only doubles, row 2 has these cells.
async fn append(store: &EmbeddedStore, at: &mut u16, count: usize, cells: &[Cell]) {
    let mut batch = WriteBatch::new(table());
    let families = FAMILIES.map(|family| batch.family(family));
    for _ in 0..count {
        *at += 1;
        let (_, qualifier, value) = int(*at, at.to_be_bytes()[1].cast_signed());
        batch.row(&[0]).put(families[0], &qualifier, &value);
        batch.row(&[2]).put(families[0], &qualifier, &value);
        let qualifier = (*at << 4 | 15).to_be_bytes();
        let value = f64::from(*at) / 7.0;
        batch.row(&[1]).put(families[0], &qualifier, &value.to_be_bytes());
    }
    for (family, qualifier, value) in cells {
        batch.row(&[2]).put(families[*family], qualifier, value);
    }
    store.write(batch).await.unwrap();
}

/// The expected point columns for the cells of a row.
fn assert_points(row: &Row, points: &PointColumns) {
    assert_eq!(row.len(), points.len());
    for (place, cell) in row.cells().enumerate() {
        assert_eq!(cell.qualifier.len(), points.qualifier_width);
        let qualifier = cell
            .qualifier
            .iter()
            .fold(0_i64, |number, byte| number << 8 | i64::from(*byte));
        assert_eq!(points.times[place], qualifier >> 4);
        let sign = if cell.value[0] >= 0x80 { -1 } else { 0 };
        let bits = cell
            .value
            .iter()
            .fold(sign, |number: i64, byte| number << 8 | i64::from(*byte));
        match (points.values(), qualifier & 8, cell.value.len()) {
            (PointValues::Ints(values), 0, _) => assert_eq!(values[place], bits),
            (PointValues::Doubles(values), 8, 8) => assert_eq!(values[place].to_bits(), bits.cast_unsigned()),
            (PointValues::Doubles(values), 8, 4) => {
                let value = f32::from_be_bytes(cell.value.try_into().unwrap());
                assert_eq!(values[place].to_bits(), f64::from(value).to_bits());
            }
            other => panic!("{other:?}"),
        }
    }
}

/// Performs the operations and compares after each; returns the number of rows read as points.
async fn check(operations: &[Operation]) -> usize {
    let folder = tempfile::tempdir().unwrap();
    let open = || EmbeddedStore::open(EmbeddedConfig::new(folder.path())).unwrap();
    let mut store = open();
    let def = TableDef {
        name: table(),
        families: FAMILIES.map(FamilyDef::new).to_vec(),
    };
    store.create_table(&def).await.unwrap();
    let (mut at, mut points, mut read) = (0, PointColumns::default(), 0);
    for operation in operations {
        let mut batch = WriteBatch::new(table());
        let family = batch.family(FAMILIES[0]);
        match operation {
            Operation::Append(count, cells) => append(&store, &mut at, *count, cells).await,
            Operation::DeleteColumn(seconds) => {
                batch.row(&[0]).delete_column(family, &int(*seconds, 0).1);
                store.write(batch).await.unwrap();
            }
            Operation::DeleteRow(row) => {
                batch.row(&[*row]).delete_row();
                store.write(batch).await.unwrap();
            }
            Operation::Flush => store.flush().await.unwrap(),
            Operation::Reopen => {
                drop(store);
                store = open();
            }
        }
        let plain = scan(&store, false).await;
        let packed = scan(&store, true).await;
        assert_eq!(packed, plain);
        for (packed, plain) in packed.iter().zip(&plain) {
            assert!(!packed.is_empty());
            if packed.read_points(&mut points).unwrap() {
                assert_points(plain, &points);
                read += 1;
            }
        }
    }
    read
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn packed_scan_agrees_with_unpacked_scan(operations in vec(operation(), 1..25)) {
        tokio::runtime::Runtime::new()
            .unwrap()
            .block_on(check(&operations));
    }
}

#[tokio::test]
async fn reads_points_from_a_block_and_later_puts() {
    use Operation::{Append, Flush};
    let read = check(&[Append(5, vec![]), Flush, Append(3, vec![])]).await;
    assert_eq!(read, 9, "three rows, three times");
}
