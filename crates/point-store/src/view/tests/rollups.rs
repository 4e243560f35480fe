//! A table of rollups shows the cells that were put.

use std::collections::BTreeMap;
use std::sync::Arc;

use oxtsdb_row_store::{ColumnSelection, Row, RowBuilder, RowStore as _, Scan, WriteBatch};
use oxtsdb_schema::rollup::qualifier;
use oxtsdb_schema::{BaseTime, RollupConfig, RowKeyLayout, SaltLayout, Value};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use super::fixture::{FIRST_HOUR, Fixture, cells, scan_of};
use crate::rollups::RollupColumns;
use crate::view::TableView;
use crate::view::form::Aggregates;
use crate::view::shown::shown_rollups;
use crate::view::window::WindowSize;
use crate::{PointStore, TimeRange};

/// A change of one row.
#[derive(Clone, Debug)]
enum Change {
    Put(u8, u16, Value),
    /// A small integer in 8 bytes.
    PutOdd(u8, u16, i8),
    /// By the name of the aggregator.
    PutNamed(u16, i8),
    DeleteColumn(u8, u16, Value),
}

/// A row: metric, tag value, hour.
type Place = (u8, u16, u32);
/// Values by qualifier.
type Cells = BTreeMap<Vec<u8>, Vec<u8>>;
/// The rows of a table.
type Rows = BTreeMap<Vec<u8>, Cells>;

fn places() -> impl Strategy<Value = Place> {
    let hours = select(vec![0, 1, 24, 48, 30_000]);
    (1..3_u8, prop_oneof![0..3_u16, 255..258_u16], hours)
}

fn values() -> impl Strategy<Value = Value> {
    prop_oneof![
        3 => select(vec![0, -1, 127, 128, 70_000, i64::MIN]).prop_map(Value::Int),
        1 => select(vec![0.5, -0.0]).prop_map(Value::Float),
        1 => select(vec![0.1, 3e300]).prop_map(Value::Double),
    ]
}

fn changes() -> impl Strategy<Value = Change> {
    let (ids, offsets) = (
        || select(vec![0_u8, 1, 2, 63, 64, 127]),
        || select(vec![0_u16, 1, 2, 3839, 4095]),
    );
    prop_oneof![
        12 => (ids(), offsets(), values()).prop_map(|(id, offset, value)| Change::Put(id, offset, value)),
        2 => (ids(), offsets(), any::<i8>()).prop_map(|(id, offset, value)| Change::PutOdd(id, offset, value)),
        1 => (offsets(), any::<i8>()).prop_map(|(offset, value)| Change::PutNamed(offset, value)),
        3 => (ids(), offsets(), values()).prop_map(|(id, offset, value)| Change::DeleteColumn(id, offset, value)),
    ]
}

/// The cell of a small integer in 8 bytes.
fn odd(id: u8, offset: u16, value: i8) -> ([u8; 3], [u8; 8]) {
    let qualifier = qualifier(id, offset, &Value::Int(i64::MAX));
    (qualifier, i64::from(value).to_be_bytes())
}

fn named(offset: u16, value: i8) -> (Vec<u8>, [u8; 1]) {
    let [_, high, low] = qualifier(0, offset, &Value::Int(0));
    ([b"sum:", &[high, low][..]].concat(), value.to_be_bytes())
}

/// Adds the mutation of a change to a row that was begun.
fn add(batch: &mut WriteBatch, change: &Change) {
    let family = batch.family("t");
    match change {
        Change::Put(id, offset, value) => {
            let qualifier = qualifier(*id, *offset, value);
            batch.put(family, &qualifier, value.encoded().as_bytes());
        }
        Change::PutOdd(id, offset, value) => {
            let (qualifier, value) = odd(*id, *offset, *value);
            batch.put(family, &qualifier, &value);
        }
        Change::PutNamed(offset, value) => {
            let (qualifier, value) = named(*offset, *value);
            batch.put(family, &qualifier, &value);
        }
        Change::DeleteColumn(id, offset, value) => {
            batch.delete_column(family, &qualifier(*id, *offset, value));
        }
    }
}

/// The cells of a row after a change: a slot has one plain value.
fn apply(cells: &mut Cells, change: &Change) {
    let slot = |id: u8, offset: u16, cell: &[u8]| matches!(*cell, [cell_id, high, low] if cell_id == id && u16::from_be_bytes([high, low]) >> 4 == offset);
    match change {
        Change::Put(id, offset, value) => {
            cells.retain(|cell, _| !slot(*id, *offset, cell));
            let qualifier = qualifier(*id, *offset, value).to_vec();
            cells.insert(qualifier, value.encoded().as_bytes().to_vec());
        }
        Change::PutOdd(id, offset, value) => {
            cells.retain(|cell, _| !slot(*id, *offset, cell));
            let (qualifier, value) = odd(*id, *offset, *value);
            cells.insert(qualifier.to_vec(), value.to_vec());
        }
        Change::PutNamed(offset, value) => {
            let (qualifier, value) = named(*offset, *value);
            cells.insert(qualifier, value.to_vec());
        }
        Change::DeleteColumn(id, offset, value) => {
            cells.remove(&qualifier(*id, *offset, value)[..]);
        }
    }
}

fn shown(rows: &[Row]) -> Rows {
    rows.iter()
        .map(|row| (row.key().to_vec(), cells(row).into_iter().collect()))
        .collect()
}

async fn table(layout: RowKeyLayout) -> Fixture {
    let mut fixture = Fixture::with_layout(layout).await;
    let points: Arc<dyn PointStore> = Arc::<super::fixture::Observed>::clone(&fixture.points);
    let rows = Arc::new(fixture.rows.clone());
    fixture.view = TableView::from_rollups(rows, points, layout, fixture.table.clone()).unwrap();
    fixture
}

async fn check(layout: RowKeyLayout, window: WindowSize, writes: &[Vec<(Place, Change)>]) {
    let mut fixture = table(layout).await;
    fixture.view.window = window;
    let mut expected = Rows::new();
    for changes in writes {
        let (mut batch, _) = fixture.batch();
        for ((metric, tagv, hour), change) in changes {
            let key = fixture.key(*metric, *tagv, *hour);
            batch.row(&key);
            add(&mut batch, change);
            apply(expected.entry(key).or_default(), change);
        }
        fixture.view.write(batch).await.unwrap();
    }
    let keys: Vec<_> = expected.keys().cloned().collect();
    expected.retain(|_, cells| !cells.is_empty());
    let scanned = fixture.scan(Scan::prefix(b"")).await;
    assert!(scanned.is_sorted_by(|one, next| one.key() < next.key()));
    assert!(
        scanned.iter().all(|row| cells(row).is_sorted()),
        "in order of their qualifiers"
    );
    assert_eq!(shown(&scanned), expected);
    for row in &scanned {
        let all = shown_rollups(row, &layout).into_iter();
        let all: Cells = all.map(|cell| (cell.qualifier, cell.value)).collect();
        assert_eq!(Some(&all), expected.get(row.key()), "a row is shown as it is");
    }
    let mut backwards = Scan::prefix(b"");
    backwards.reverse = true;
    backwards.batch_rows = 2;
    let mut backwards = fixture.scan(backwards).await;
    backwards.reverse();
    assert_eq!(backwards, scanned);
    let request = fixture
        .view
        .get_rows(&fixture.table, &keys, &ColumnSelection::All, None);
    let rows: Vec<Row> = request.await.unwrap().into_iter().flatten().collect();
    assert_eq!(rows, scanned);
    if let [_, second, .., last] = &keys[..] {
        let part = Scan::range(second.clone(), last.clone());
        let part = scan_of(&fixture.view, &fixture.table, part).await.unwrap();
        let within = |row: &&Row| (&second[..]..&last[..]).contains(&row.key());
        assert_eq!(part, scanned.iter().filter(within).cloned().collect::<Vec<_>>());
    }
    // A table that is opened later knows the aggregates that there are.
    let points: Arc<dyn PointStore> = Arc::<super::fixture::Observed>::clone(&fixture.points);
    assert!(Aggregates::from_store(&*points).is_ok());
}

fn windows() -> impl Strategy<Value = WindowSize> {
    (1..5_usize, select(vec![8, 500, 2_000, 1 << 20]))
        .prop_map(|(first_series, bytes)| WindowSize { first_series, bytes })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn shows_the_rollups_that_were_put(
        salted in any::<bool>(),
        window in windows(),
        writes in vec(vec((places(), changes()), 0..30), 1..6),
    ) {
        let layout = RowKeyLayout {
            salt: SaltLayout::new(usize::from(salted), 20).unwrap(),
            ..RowKeyLayout::default()
        };
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(check(layout, window, &writes));
    }
}

/// The row of values of one type and of another that replace each other, as they are put in one batch or in two.
#[tokio::test]
async fn values_of_other_types_replace_each_other_in_columns() {
    let fixture = table(RowKeyLayout::default()).await;
    let key = fixture.key(1, 1, 0);
    let (int, double) = (Value::Int(5), Value::Double(0.1));
    for (first, second) in [(int, double), (double, int)] {
        let (mut batch, t) = fixture.batch();
        batch
            .row(&key)
            .put(t, &qualifier(2, 7, &first), first.encoded().as_bytes());
        fixture.view.write(batch).await.unwrap();
        let (mut batch, t) = fixture.batch();
        batch
            .row(&key)
            .put(t, &qualifier(2, 7, &second), second.encoded().as_bytes());
        batch.delete_column(t, &qualifier(2, 7, &first));
        fixture.view.write(batch).await.unwrap();
        let expected = (
            qualifier(2, 7, &second).to_vec(),
            second.encoded().as_bytes().to_vec(),
        );
        assert_eq!(fixture.cells(&key).await, [expected]);
        assert_eq!(fixture.stored_cells(&key).await, [], "all are columns");
    }
    let deletes = fixture.points.deletes.load(std::sync::atomic::Ordering::Relaxed);
    assert_eq!(deletes, 0, "the puts replace the values");
}

fn interval(span: &str) -> oxtsdb_schema::RollupInterval {
    let json = format!(
        r#"{{"aggregationIds": {{"sum": 0, "count": 1}}, "intervals": [
            {{"table": "t", "preAggregationTable": "p", "interval": "1h", "rowSpan": "{span}"}}]}}"#
    );
    RollupConfig::parse(&json).unwrap().intervals()[0].clone()
}

/// Values of two aggregates in rows of several intervals, and the range reads of one aggregate's columns.
#[tokio::test]
async fn an_aggregate_is_read_by_the_instants_of_its_intervals() {
    for span in ["1d", "1n"] {
        let (fixture, interval) = (table(RowKeyLayout::default()).await, interval(span));
        let (mut batch, t) = fixture.batch();
        let first = FIRST_HOUR * 3600;
        let hours: Vec<u32> = (0..24 * 70).map(|hour| first + hour * 3600).collect();
        for seconds in &hours {
            let (base, offset) = interval.place(*seconds).unwrap();
            let key = fixture.key(1, 1, base.seconds() / 3600 - FIRST_HOUR);
            batch.row(&key);
            for id in [0, 1] {
                let value = Value::Int(i64::from(*seconds) + i64::from(id));
                batch.put(t, &qualifier(id, offset, &value), value.encoded().as_bytes());
            }
        }
        fixture.view.write(batch).await.unwrap();
        let store: Arc<dyn PointStore> = Arc::<super::fixture::Observed>::clone(&fixture.points);
        let columns = RollupColumns::new(store, interval.clone(), 1);
        let series = columns.metric_series(&[0, 0, 1]);
        let read = |from: u32, to: u32| {
            let range = TimeRange {
                first_ms: i64::from(from) * 1000,
                last_ms: i64::from(to) * 1000,
            };
            let mut points = crate::Columns::default();
            columns
                .reader(range)
                .unwrap()
                .read(series[0], &mut points)
                .unwrap();
            points
        };
        let all = read(first, u32::MAX);
        assert!(
            all.times_ms.iter().eq(hours
                .iter()
                .map(|seconds| i64::from(*seconds) * 1000)
                .collect::<Vec<_>>()
                .iter())
        );
        assert!(
            all.bits.iter().eq(hours
                .iter()
                .map(|seconds| u64::from(*seconds) + 1)
                .collect::<Vec<_>>()
                .iter())
        );
        // Whole rows: those that begin in the range.
        let second = hours
            .iter()
            .map(|seconds| interval.base_time(*seconds))
            .find(|base| base.seconds() > first);
        if let Some(second) = second {
            let rest = read(first + 1, u32::MAX);
            assert_eq!(rest.times_ms[0], second.millis(), "{span}");
            let only = read(first, second.seconds() - 1);
            assert_eq!(only.len() + rest.len(), all.len(), "{span}");
        }
        let last = columns.last(&series, TimeRange::ALL).await.unwrap();
        assert_eq!(last[0].unwrap().time_ms, all.times_ms[all.len() - 1]);
    }
}

#[tokio::test]
async fn rows_of_another_span_are_errors() {
    let fixture = table(RowKeyLayout::default()).await;
    let (mut batch, t) = fixture.batch();
    let key = fixture.key(1, 1, 5);
    batch.row(&key).put(t, &qualifier(0, 1, &Value::Int(1)), &[1]);
    let day = fixture.key(1, 2, 0);
    batch.row(&day).put(t, &qualifier(0, 24, &Value::Int(1)), &[1]);
    fixture.view.write(batch).await.unwrap();
    let store: Arc<dyn PointStore> = Arc::<super::fixture::Observed>::clone(&fixture.points);
    let columns = RollupColumns::new(store, interval("1d"), 0);
    let mut reader = columns.reader(TimeRange::ALL).unwrap();
    let mut points = crate::Columns::default();
    let base = BaseTime::from_seconds((FIRST_HOUR + 5) * 3600).seconds();
    for (series, expected) in columns.metric_series(&[0, 0, 1]).into_iter().zip([
        format!("base time {base} and offset 1: no row begins then"),
        "offset 24: its offset is beyond the row span".to_owned(),
    ]) {
        let error = reader.read(series, &mut points).unwrap_err().to_string();
        assert!(error.contains(&expected), "{error}");
    }
}

#[tokio::test]
async fn a_row_of_cells_with_a_type_each_is_shown_with_the_newest() {
    let layout = RowKeyLayout::default();
    let fixture = table(layout).await;
    let key = fixture.key(1, 1, 0);
    let mut row = RowBuilder::new(&key, Arc::from(["t".to_owned()]));
    row.push(0, &qualifier(0, 3, &Value::Int(7)), 20, &[7]);
    row.push(
        0,
        &qualifier(0, 3, &Value::Float(0.5)),
        10,
        &0.5_f32.to_be_bytes(),
    );
    let row = row.finish().unwrap();
    let cells = shown_rollups(&row, &layout);
    assert_eq!(cells.len(), 1);
    assert_eq!(cells[0].value, [7]);
}
