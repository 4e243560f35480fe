//! The guarantees, and the same cells as a table of columns shows.

use futures::TryStreamExt as _;
use oxtsdb_row_store::memory::MemoryStore;
use oxtsdb_row_store::{ColumnSelection, Row, Scan, StoreError, TableDef, WriteBatch};
use oxtsdb_schema::{BaseTime, SaltLayout, Timestamp, Tsuid, Value};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use super::*;
use crate::conformance::{self, Promises, Subject};
use crate::parts::{PartsConfig, PartsStore};
use crate::view::TableView;
use oxtsdb_storage_file::disk::simulated::SimulatedDisk;

/// 2013-01-01 00:00 UTC.
const START_SECONDS: u32 = 1_356_998_400;

fn table() -> TableName {
    "tsdb".parse().unwrap()
}

async fn rows_in(form: Form, layout: RowKeyLayout) -> (MemoryStore, RowPoints) {
    let store = MemoryStore::new();
    let table = TableDef::new(table(), &["t"]);
    store.create_table(&table).await.unwrap();
    let config = RowsConfig {
        table: table.name,
        layout,
        form,
        ordered_writes: true,
        linger: Duration::ZERO,
        use_otsdb_timestamp: false,
        draining: std::future::pending().boxed().shared(),
    };
    let points = RowPoints::new(Arc::new(store.clone()), config);
    (store, points)
}

struct Rows(Form);

#[async_trait]
impl Subject for Rows {
    async fn create(&self) -> Arc<dyn PointStore> {
        let (_, points) = rows_in(self.0, RowKeyLayout::default()).await;
        Arc::new(points)
    }

    async fn reopen(&self) -> Option<Arc<dyn PointStore>> {
        None
    }

    fn promises(&self) -> Promises {
        Promises {
            has_index: false,
            replaces_kinds: false,
            keeps_dropped_appends: false,
        }
    }
}

#[tokio::test]
async fn single_cells_pass_the_conformance_suite() {
    conformance::suite(&Rows(Form::Single)).await;
}

#[tokio::test]
async fn appended_cells_pass_the_conformance_suite() {
    conformance::suite(&Rows(Form::Appended)).await;
}

fn tsuid(metric: u8, tagv: u8) -> Vec<u8> {
    vec![0, 0, metric, 0, 0, 1, 0, 0, tagv]
}

fn int(second: u32, value: i64) -> Point {
    Point::new(
        Timestamp::from_seconds(START_SECONDS + second),
        &Value::Int(value),
    )
}

/// A batch of points of series by their keys.
fn keyed(points: &[(Vec<u8>, Point)]) -> KeyedBatch {
    let mut batch = KeyedBatch::default();
    for (key, point) in points {
        let series = batch.add_key(|buffer| buffer.extend_from_slice(key));
        batch.push(series, *point);
    }
    batch
}

async fn all_rows(store: &dyn RowStore) -> Vec<Row> {
    let scan = store.scan(&table(), Scan::prefix(b"")).await.unwrap();
    let batches: Vec<_> = scan.try_collect().await.unwrap();
    batches.into_iter().flatten().collect()
}

async fn points_of(store: &RowPoints, key: &[u8]) -> Vec<Point> {
    let series = store.numbers(&[key]).unwrap();
    let request = ReadRequest {
        series,
        range: TimeRange::ALL,
    };
    let items: Vec<_> = store.read(request).try_collect().await.unwrap();
    items.iter().flatten().flat_map(SeriesColumns::points).collect()
}

/// Puts a cell beside the adapter.
async fn put(store: &MemoryStore, key: &[u8], qualifier: &[u8], value: &[u8]) {
    let mut row_key = Vec::new();
    let base = BaseTime::from_seconds(START_SECONDS);
    write_row_key(&RowKeyLayout::default(), key, base, &mut row_key);
    let mut batch = WriteBatch::new(table());
    let family = batch.family("t");
    batch.row(&row_key).put(family, qualifier, value);
    store.write(batch).await.unwrap();
}

#[tokio::test]
async fn delete_keeps_the_other_points_and_cells_of_a_row() {
    let (store, points) = rows_in(Form::Compacted, RowKeyLayout::default()).await;
    let key = tsuid(1, 1);
    let appended: Vec<_> = (0..4).map(|second| (key.clone(), int(second, 7))).collect();
    points.append_keyed(keyed(&appended), Box::new(())).await.unwrap();
    let annotation = [1, 0, 0];
    put(&store, &key, &annotation, b"{}").await;
    let series = points.numbers(&[&key]).unwrap();
    let second = |second: i64| (i64::from(START_SECONDS) + second) * 1000;
    let range = TimeRange {
        first_ms: second(1),
        last_ms: second(2),
    };
    points.delete(&series, range).await.unwrap();
    assert_eq!(points_of(&points, &key).await, [int(0, 7), int(3, 7)]);
    let rows = all_rows(&store).await;
    assert!(rows[0].get("t", &annotation).is_some(), "{rows:?}");
}

#[tokio::test]
async fn lists_series_of_rows_that_others_wrote() {
    let (store, points) = rows_in(Form::Single, RowKeyLayout::default()).await;
    put(&store, &tsuid(2, 5), &[0, 0], &[1]).await;
    put(&store, &tsuid(1, 1), &[1, 0, 0], b"{}").await;
    assert!(
        points.metric_series(&[0, 0, 1]).is_empty(),
        "an annotation is no point"
    );
    let [series] = points.metric_series(&[0, 0, 2])[..] else {
        panic!("one series")
    };
    let mut key = Vec::new();
    assert!(points.key(series, &mut key));
    assert_eq!(key, tsuid(2, 5));
    assert_eq!(points_of(&points, &key).await, [int(0, 1)]);
}

#[tokio::test]
async fn damaged_cell_fails_its_reads() {
    let (store, points) = rows_in(Form::Single, RowKeyLayout::default()).await;
    // A double of 3 bytes.
    put(&store, &tsuid(1, 1), &[0, 0x0f], &[1, 2, 3]).await;
    let series = points.numbers(&[&tsuid(1, 1)]).unwrap();
    let error: StoreError = points.last(&series, TimeRange::ALL).await.unwrap_err().into();
    assert!(matches!(error, StoreError::Corrupt { .. }), "{error}");
}

#[tokio::test]
async fn value_that_is_not_finite_is_rejected() {
    let (store, points) = rows_in(Form::Single, RowKeyLayout::default()).await;
    let nan = Point {
        kind: crate::PointKind::new(crate::Resolution::Seconds, crate::ValueKind::Double),
        bits: f64::NAN.to_bits(),
        ..int(0, 0)
    };
    let batch = keyed(&[(tsuid(1, 1), nan)]);
    let error = points.append_keyed(batch, Box::new(())).await.unwrap_err();
    assert!(matches!(error, PointStoreError::Invalid(_)), "{error}");
    assert!(all_rows(&store).await.is_empty());
}

#[tokio::test]
async fn permit_is_held_until_the_points_are_stored() {
    let (_, points) = rows_in(Form::Single, RowKeyLayout::default()).await;
    let permit = Arc::new(());
    let batch = keyed(&[(tsuid(1, 1), int(0, 1))]);
    let append = points.append_keyed(batch, Box::new(Arc::clone(&permit)));
    assert_eq!(Arc::strong_count(&permit), 2);
    append.await.unwrap();
    tokio::task::yield_now().await;
    assert_eq!(Arc::strong_count(&permit), 1);
}

/// Qualifiers and values of rows by key.
type Cells = Vec<(Vec<u8>, Vec<(Vec<u8>, Vec<u8>)>)>;

fn cells(rows: &[Row]) -> Cells {
    let cells_of = |row: &Row| {
        row.cells()
            .map(|cell| (cell.qualifier.to_vec(), cell.value.to_vec()))
            .collect()
    };
    rows.iter()
        .map(|row| (row.key().to_vec(), cells_of(row)))
        .collect()
}

fn values() -> impl Strategy<Value = Value> {
    prop_oneof![
        4 => select(vec![0, 1, -1, 127, 128, -32_768, 70_000, i64::MAX, i64::MIN]).prop_map(Value::Int),
        1 => select(vec![0.5, -0.0, 3e7]).prop_map(Value::Float),
        1 => select(vec![0.1, -0.0, 3e300]).prop_map(Value::Double),
    ]
}

/// A point: metric, tag value, milliseconds after the start, whether in milliseconds, value.
type TestPoint = (u8, u8, i64, bool, Value);

fn points() -> impl Strategy<Value = TestPoint> {
    (1..4_u8, 0..6_u8, 0..400_000_000_i64, any::<bool>(), values())
}

/// Writes the same points to rows and to parts, an instant of a series once, and compares the cells.
async fn check(layout: RowKeyLayout, batches: &[Vec<TestPoint>]) {
    let (rows, in_rows) = rows_in(Form::Single, layout).await;
    let config = PartsConfig {
        widths: layout.widths,
        ..PartsConfig::new("/points", Arc::new(SimulatedDisk::new()))
    };
    let in_parts = tokio::task::spawn_blocking(|| PartsStore::open(config).unwrap());
    let in_parts: Arc<dyn PointStore> = Arc::new(in_parts.await.unwrap());
    let (others, _) = rows_in(Form::Single, layout).await;
    let view = TableView::new(Arc::new(others), Arc::clone(&in_parts), layout, table());
    let mut seen = std::collections::BTreeSet::new();
    for batch in batches {
        let mut new = Vec::new();
        for (metric, tagv, offset_ms, is_ms, value) in batch {
            let time_ms = i64::from(START_SECONDS) * 1000 + offset_ms;
            let timestamp = if *is_ms {
                Timestamp::from_millis(time_ms).unwrap()
            } else {
                Timestamp::from_seconds(u32::try_from(time_ms / 1000).unwrap())
            };
            let key = tsuid(*metric, *tagv);
            assert!(Tsuid::from_bytes(&key, &layout.widths).is_ok());
            if seen.insert((key.clone(), timestamp.as_millis())) {
                new.push((key, Point::new(timestamp, value)));
            }
        }
        in_rows.append_keyed(keyed(&new), Box::new(())).await.unwrap();
        in_parts.append_keyed(keyed(&new), Box::new(())).await.unwrap();
    }
    assert_eq!(cells(&all_rows(&view).await), cells(&all_rows(&rows).await));
    for row in all_rows(&rows).await.iter().take(3) {
        let same = view
            .get(&table(), row.key(), &ColumnSelection::All)
            .await
            .unwrap();
        assert_eq!(cells(same.as_slice()), cells(std::slice::from_ref(row)));
    }
    in_parts.close().await.unwrap();
}

fn layouts() -> impl Strategy<Value = RowKeyLayout> {
    let salts = select(vec![(0, 1), (1, 20), (2, 3)]);
    salts.prop_map(|(width, buckets)| RowKeyLayout {
        salt: SaltLayout::new(width, buckets).unwrap(),
        ..RowKeyLayout::default()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(50))]

    #[test]
    fn parts_show_the_cells_that_rows_store(layout in layouts(), batches in vec(vec(points(), 0..60), 1..5)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(check(layout, &batches));
    }
}
