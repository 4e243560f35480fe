use std::collections::BTreeMap;
use std::sync::Arc;

use oxtsdb_ingest::NewPoint;
use oxtsdb_query::{Limits, QueryContext, QueryResources, SeriesFilter};
use oxtsdb_row_store::memory::MemoryStore;
use oxtsdb_row_store::{CellAddress, RowStore as _, WriteBatch};
use oxtsdb_schema::data_table::APPEND_QUALIFIER;
use oxtsdb_schema::row::{CellRef, append_point, compact, decode_cell};
use oxtsdb_schema::{BaseTime, Qualifier, RowKeyLayout, RowKeyRef, Timestamp, Value, row_key::write_row_key};
use oxtsdb_test_stack::TestStack;
use proptest::prelude::*;

use super::*;

/// An exact hour.
const T: u32 = 1_346_846_400;
const T_MS: i64 = T as i64 * 1000;

/// Instants and values by the last tag value of the series.
type Points = BTreeMap<(u8, i64), i64>;

fn tsuid(series: u8) -> [u8; 9] {
    [0, 0, 1, 0, 0, 1, 0, 0, series]
}

fn engine(stack: &TestStack) -> Engine {
    let uids = stack.service.uids.clone();
    let (store, layout) = (Arc::new(stack.store.clone()), *uids.layout());
    Engine::new(
        store,
        ("tsdb".parse().unwrap(), "tsdb-meta".parse().unwrap()),
        layout,
        Arc::new(uids),
        Limits::NONE,
        QueryResources::unlimited().unwrap(),
    )
}

fn delete_all_series(first_ms: i64, last_ms: i64, dry_run: bool) -> Deletion {
    Deletion {
        source: RowSource::All,
        range: TimeRange { first_ms, last_ms },
        dry_run,
    }
}

async fn deleted(engine: &Engine, deletion: Deletion) -> Result<Deleted, QueryError> {
    let steps = delete(engine, RequestContext::default(), deletion).await?;
    let steps: Vec<_> = steps.try_collect().await?;
    Ok(*steps.last().unwrap())
}

/// All points of a table as it is shown to queries, and how many cells are no points.
async fn stored(storage: &Storage) -> (Points, usize) {
    let (mut points, mut others) = (Points::new(), 0);
    let scan = RowScan {
        source: RowSource::All,
        hours: Hours::ALL,
        start_after_row_key: Vec::new(),
        limit: None,
    };
    let context = QueryContext::unregistered(oxtsdb_query::Budget::from_limits(Limits::NONE));
    let rows = scan_rows(storage, scan, &context).await.unwrap();
    let rows: Vec<_> = rows.try_collect().await.unwrap();
    for row in rows.iter().flatten() {
        let key = RowKeyRef::decode(row.key(), &storage.layout).unwrap();
        let series = *row.key().last().unwrap();
        for cell in row.cells() {
            let mut cell_points = Vec::new();
            let cell = CellRef {
                qualifier: cell.qualifier,
                value: cell.value,
                timestamp_ms: cell.timestamp_ms,
            };
            decode_cell(cell, &mut cell_points).unwrap();
            others += usize::from(cell_points.is_empty());
            for point in cell_points {
                let Value::Int(value) = point.value else { panic!() };
                let time_ms = key.base_time().millis() + i64::from(point.qualifier.offset_ms());
                points.insert((series, time_ms), value);
            }
        }
    }
    (points, others)
}

/// How the points of a row are stored.
#[derive(Clone, Copy, Debug)]
enum Form {
    Cells,
    Compacted,
    Appended,
    /// Half as one compacted cell, half as another.
    TwoCompacted,
}

fn timestamp(time_ms: i64) -> Timestamp {
    if time_ms % 1000 == 0 {
        Timestamp::from_opentsdb(time_ms / 1000).unwrap()
    } else {
        Timestamp::from_opentsdb(time_ms).unwrap()
    }
}

/// Writes rows, each with an annotation.
async fn write_rows(store: &MemoryStore, rows: &[(u8, u32, Form, BTreeMap<u32, i64>)]) -> Points {
    let mut points = Points::new();
    let mut batch = WriteBatch::new("tsdb".parse().unwrap());
    let family = batch.family("t");
    // Recent appends are deleted later.
    let written_ms = oxtsdb_query::language::time::now_ms() - 60_000;
    for (series, hour, form, offsets) in rows {
        let base = BaseTime::from_seconds(T + hour * 3600);
        let mut key = Vec::new();
        write_row_key(&RowKeyLayout::default(), &tsuid(*series), base, &mut key);
        batch.row(&key).put(family, &[1, 0, 5], b"{}");
        let own: Vec<_> = offsets
            .iter()
            .map(|(offset_ms, value)| (base.millis() + i64::from(*offset_ms), *value))
            .collect();
        points.extend(own.iter().map(|(time_ms, value)| ((*series, *time_ms), *value)));
        let valued = |(time_ms, value): &(i64, i64)| (timestamp(*time_ms), Value::Int(*value));
        let mut put = |(qualifier, value): (Vec<u8>, Vec<u8>)| {
            batch.row(&key).put_at(family, &qualifier, written_ms, &value);
        };
        match form {
            Form::Cells => {
                for point in &own {
                    put(compact([valued(point)]).unwrap());
                }
            }
            Form::Compacted => put(compact(own.iter().map(valued)).unwrap()),
            Form::TwoCompacted => {
                let (one, two) = own.split_at(own.len() / 2);
                for half in [one, two].into_iter().filter(|half| !half.is_empty()) {
                    put(compact(half.iter().map(valued)).unwrap());
                }
            }
            Form::Appended => {
                let mut bytes = Vec::new();
                for (time, value) in own.iter().map(valued) {
                    append_point(
                        Qualifier::new(time, &value),
                        value.encoded().as_bytes(),
                        &mut bytes,
                    );
                }
                put((APPEND_QUALIFIER.to_vec(), bytes));
            }
        }
    }
    store.write(batch).await.unwrap();
    points
}

fn any_form() -> impl Strategy<Value = Form> {
    prop::sample::select(vec![
        Form::Cells,
        Form::Compacted,
        Form::TwoCompacted,
        Form::Appended,
    ])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn exactly_the_points_of_the_range_are_deleted(
        rows in prop::collection::vec(
            (any_form(), prop::collection::btree_map(0..3_600_000_u32, any::<i64>(), 1..12)),
            6,
        ),
        first_ms in 0..10_800_000_i64,
        length_ms in 0..10_800_000_i64,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let rows: Vec<_> = (0_u8..)
                .zip(rows)
                .map(|(index, (form, offsets))| (index % 2 + 1, u32::from(index / 2), form, offsets))
                .collect();
            let stack = TestStack::start().await;
            let mut expected = write_rows(&stack.store, &rows).await;
            let engine = engine(&stack);
            let (first_ms, last_ms) = (T_MS + first_ms, T_MS + first_ms + length_ms);
            let before = expected.len();
            expected.retain(|(_, time_ms), _| !(first_ms..=last_ms).contains(time_ms));
            let planned = deleted(&engine, delete_all_series(first_ms, last_ms, true)).await.unwrap();
            assert_eq!(stored(engine.storage()).await.0.len(), before, "a dry run deletes nothing");
            let done = deleted(&engine, delete_all_series(first_ms, last_ms, false)).await.unwrap();
            assert_eq!((planned, done.points), (done, (before - expected.len()) as u64));
            assert_eq!((done.damaged_cells, done.contended_rows), (0, 0));
            assert_eq!(stored(engine.storage()).await, (expected, rows.len()), "annotations stay");
            let again = deleted(&engine, delete_all_series(first_ms, last_ms, false)).await.unwrap();
            assert_eq!(again, Deleted::default());
        });
    }
}

#[tokio::test]
async fn an_append_meanwhile_brings_nothing_back() {
    let store = MemoryStore::new();
    let stack = TestStack::over(
        store.clone(),
        Arc::new(store.clone()),
        Arc::new(store.clone()),
        oxtsdb_data_settings::DataSettings::default(),
        uid_service::UidSettings::default(),
    )
    .await;
    for cut in [1000, 5000] {
        let points = BTreeMap::from([(0, 1), (2000, 2)]);
        write_rows(&store, &[(1, 0, Form::Appended, points)]).await;
        let (layout, table) = (RowKeyLayout::default(), "tsdb".parse().unwrap());
        let range = TimeRange {
            first_ms: T_MS,
            last_ms: T_MS + cut,
        };
        let scan = store
            .scan(&table, oxtsdb_row_store::Scan::prefix(&[]))
            .await
            .unwrap();
        let rows: Vec<Vec<_>> = scan.try_collect().await.unwrap();
        let plans = Rows::plan(&layout, range, &rows.concat());
        // Another writer appends after the row was read.
        let mut appended = Vec::new();
        let value = Value::Int(9);
        let late = Qualifier::new(timestamp(T_MS + 9000), &value);
        append_point(late, value.encoded().as_bytes(), &mut appended);
        let address = CellAddress::new(plans[0].0.clone(), "t", APPEND_QUALIFIER.to_vec());
        store.append(&table, &address, &appended).await.unwrap();
        let rows = Rows {
            store: &store,
            table: &table,
            layout: &layout,
            range,
        };
        assert_eq!(rows.apply(plans).await.unwrap(), 0);
        let (left, _) = stored(engine(&stack).storage()).await;
        let mut expected = Points::from([((1, T_MS + 9000), 9)]);
        if cut < 2000 {
            expected.insert((1, T_MS + 2000), 2);
        }
        assert_eq!(left, expected);
    }
}

#[tokio::test]
async fn cells_that_do_not_decode_stay() {
    let stack = TestStack::start().await;
    write_rows(&stack.store, &[(1, 0, Form::Cells, BTreeMap::from([(0, 1)]))]).await;
    let mut batch = WriteBatch::new("tsdb".parse().unwrap());
    let family = batch.family("t");
    let mut key = Vec::new();
    write_row_key(
        &RowKeyLayout::default(),
        &tsuid(1),
        BaseTime::from_seconds(T),
        &mut key,
    );
    batch.row(&key).put(family, &[0, 0x10, 0, 0x20], &[1]);
    stack.store.write(batch).await.unwrap();
    let done = deleted(&engine(&stack), delete_all_series(T_MS, T_MS + 10, false))
        .await
        .unwrap();
    assert_eq!((done.points, done.damaged_cells), (1, 1));
    assert_eq!(
        stack.cells("tsdb").await.len(),
        2,
        "the annotation and the damaged cell"
    );
}

#[tokio::test]
async fn deletes_points_in_columns() {
    let stack = TestStack::with_points().await;
    let engine = &stack.service.engine;
    for (host, count) in [("a", 3_u32), ("b", 2)] {
        for index in 0..count * 60 {
            let point = NewPoint {
                metric: "m",
                tags: &[("host", host)],
                timestamp: Timestamp::from_seconds(T + index * 60),
                value: Value::Int(index.into()),
            };
            stack.service.writer.write(&[point], None).await.unwrap();
        }
    }
    let of_host = |host: &str, dry_run| Deletion {
        source: RowSource::Metric {
            metric: "m".to_owned(),
            filter: SeriesFilter {
                tags: vec![oxtsdb_query::TagFilter::from_tag("host", host).unwrap()],
                explicit_tags: false,
            },
        },
        range: TimeRange {
            first_ms: T_MS + 60_000,
            last_ms: T_MS + 7_200_000,
        },
        dry_run,
    };
    let expected = Deleted {
        series: 1,
        points: 120,
        ..Deleted::default()
    };
    assert_eq!(deleted(engine, of_host("a", true)).await.unwrap(), expected);
    assert_eq!(stored(engine.storage()).await.0.len(), 300);
    assert_eq!(deleted(engine, of_host("a", false)).await.unwrap(), expected);
    let (left, _) = stored(engine.storage()).await;
    assert_eq!(left.len(), 180);
    let of_a: Vec<i64> = left.range((1, 0)..(2, 0)).map(|(_, value)| *value).collect();
    assert_eq!((of_a[0], of_a[1], of_a.len()), (0, 121, 60));
    let unknown = deleted(engine, of_host("none", false)).await;
    assert!(
        matches!(unknown, Err(QueryError::UnknownName { .. })),
        "{unknown:?}"
    );
}
