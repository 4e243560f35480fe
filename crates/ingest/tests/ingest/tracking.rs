use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use oxtsdb_data_settings::DataSettings;
use oxtsdb_ingest::columns::{Block, Continuation, Declaration, Failures, Tables, TablesLimits, encode};
use oxtsdb_ingest::{IngestResources, Precision, TimeOptions, TimeUnit};
use oxtsdb_ingest::{NewPoint, Writer};
use oxtsdb_row_store::intercept::{Intercept, InterceptedStore, Operation, Response};
use oxtsdb_row_store::memory::MemoryStore;
use oxtsdb_row_store::{ColumnSelection, RowStore, StoreError, WriteBatch, Writers};
use oxtsdb_schema::ts_meta::TsMeta;
use oxtsdb_schema::{Timestamp, Value};
use oxtsdb_server::store::StoreKind;
use oxtsdb_test_stack::{Gate, Pass, TestStack};
use uid_service::UidSettings;

const ROW_OF_A: &str = "000001000001000001 name:74735f637472 0000000000000001";
const ROW_OF_B: &str = "000001000001000002 name:74735f637472 0000000000000001";

async fn write(writer: &Writer, host: &str, seconds: u32) -> Result<(), oxtsdb_ingest::WriteError> {
    let point = NewPoint {
        metric: "m",
        tags: &[("host", host)],
        timestamp: Timestamp::from_seconds(seconds),
        value: Value::Int(1),
    };
    writer.write(&[point, point], None).await.map(drop)
}

/// Deletes the row of series `host=a` without the service.
async fn remove_row_of_a(store: &MemoryStore) {
    let mut batch = WriteBatch::new("tsdb-meta".parse().unwrap());
    batch.row(&[0, 0, 1, 0, 0, 1, 0, 0, 1]).delete_row();
    store.write(batch).await.unwrap();
}

#[tokio::test]
async fn tracks_a_series_with_its_first_point_only() {
    let stack = TestStack::start().await;
    let writer = &stack.service.writer;
    write(writer, "a", 1_356_998_400).await.unwrap();
    assert_eq!(stack.cells("tsdb-meta").await, [ROW_OF_A]);
    // The table is not written again, not even for points of another hour.
    remove_row_of_a(&stack.store).await;
    write(writer, "a", 1_356_998_410).await.unwrap();
    write(writer, "a", 1_357_998_400).await.unwrap();
    write(writer, "b", 1_357_998_400).await.unwrap();
    assert_eq!(stack.cells("tsdb-meta").await, [ROW_OF_B]);
}

#[tokio::test]
async fn tracks_again_in_each_hour_of_the_clock() {
    let stack = TestStack::start().await;
    let writer = &stack.service.writer;
    write(writer, "a", 1_356_998_400).await.unwrap();
    remove_row_of_a(&stack.store).await;
    let series = oxtsdb_metadata::uids::series::SeriesRef::Names {
        metric: "m",
        tags: &[("host", "a")],
    };
    let resolved = writer.resolve([series].into_iter(), None).await.unwrap();
    let series = resolved.series[0].as_ref().unwrap();
    let hour = series.tracked_hour();
    series.set_tracked_hour(hour - 1);
    write(writer, "a", 1_356_998_420).await.unwrap();
    assert_eq!(stack.cells("tsdb-meta").await, [ROW_OF_A]);
    assert!(series.tracked_hour() >= hour);
}

#[tokio::test]
async fn tracks_again_after_a_restart() {
    let stack = TestStack::start().await;
    write(&stack.service.writer, "a", 1_356_998_400).await.unwrap();
    remove_row_of_a(&stack.store).await;
    let store: Arc<dyn RowStore> = Arc::new(stack.store.clone());
    let uids = stack.service.uids.clone();
    let resources = IngestResources::unlimited().unwrap();
    let layout = *uids.layout();
    let shutdown = stack.shutdown.clone();
    let rows = (Arc::clone(&store), StoreKind::Embedded);
    let points = data_service::points::in_rows(rows, layout, &stack.settings, shutdown).unwrap();
    let next = Writer::new(
        store,
        Writers::Single,
        points,
        uids,
        &stack.settings,
        None,
        resources,
    )
    .unwrap();
    write(&next, "a", 1_356_998_410).await.unwrap();
    assert_eq!(stack.cells("tsdb-meta").await, [ROW_OF_A]);
}

#[tokio::test]
async fn acknowledges_points_after_their_series_are_tracked() {
    let (stack, gate) = Gate::meta_stack(DataSettings::default()).await;
    let writer = &stack.service.writer;
    let mut first = tokio::spawn({
        let writer = writer.clone();
        async move { write(&writer, "a", 1_356_998_400).await }
    });
    gate.until_waiting(1).await;
    assert_eq!(stack.cells("tsdb").await.len(), 1, "the points are stored");
    // Another point of the series is not acknowledged either; it tracks the series itself.
    let mut second = tokio::spawn({
        let writer = writer.clone();
        async move { write(&writer, "a", 1_356_998_410).await }
    });
    gate.until_waiting(2).await;
    assert!(futures::poll!(&mut first).is_pending() && futures::poll!(&mut second).is_pending());
    gate.fail([StoreError::Unavailable {
        detail: "for a test".to_owned(),
    }]);
    gate.release(1);
    let failed = first.await.unwrap();
    assert!(failed.is_err(), "its row may be missing: {failed:?}");
    gate.release(1);
    second.await.unwrap().unwrap();
    assert_eq!(stack.cells("tsdb-meta").await, [ROW_OF_A]);
}

/// Tables with series `host=a` and `host=b`.
async fn declared(writer: &Writer) -> Tables {
    let mut tables = Tables::new(TablesLimits {
        series: 2,
        symbol_bytes: 1000,
        tags: 8,
        ttl: None,
    });
    let series = [[1, 2], [1, 3]];
    let series = series.iter().map(|tags| Declaration::Symbols { metric: 0, tags });
    let symbols = Continuation {
        first: 0,
        new: ["m", "host", "a", "b"].into_iter(),
    };
    let series = Continuation {
        first: 0,
        new: series,
    };
    tables.declare(symbols, series).unwrap();
    tables.resolve(writer, None).await.unwrap();
    tables
}

/// Stores two points of series `host=a` by its number.
async fn write_declared(writer: &Writer, tables: &mut Tables) -> Result<(), oxtsdb_ingest::WriteError> {
    let block = Block {
        series: &[0],
        timestamps: &[1_356_998_400_000, 1_356_998_401_000],
        ints: &[1, 2],
        ..Block::default()
    };
    let mut batch = writer.batch_in_time(2, None).await.unwrap();
    let mut failures = Failures::new(1);
    let options = TimeOptions {
        unit: TimeUnit::Milliseconds,
        precision: Precision::Auto,
        allow_any_time: false,
    };
    let rules = options.rules(SystemTime::now());
    let blocks = [block].into_iter();
    encode(blocks, &rules, tables.series(), batch.encoded(), &mut failures).unwrap();
    assert_eq!((batch.points(), failures.failed()), (2, 0));
    writer.store(batch, None).await
}

#[tokio::test]
async fn tracks_declared_series_with_their_first_point() {
    let stack = TestStack::start().await;
    let writer = &stack.service.writer;
    let mut tables = declared(writer).await;
    write_declared(writer, &mut tables).await.unwrap();
    assert_eq!(
        stack.cells("tsdb-meta").await,
        [ROW_OF_A],
        "the other series has no point"
    );
    remove_row_of_a(&stack.store).await;
    write_declared(writer, &mut tables).await.unwrap();
    assert!(stack.cells("tsdb-meta").await.is_empty(), "it is tracked");
}

#[tokio::test]
async fn tracks_a_declared_series_again_after_a_failure() {
    let (stack, gate) = Gate::meta_stack(DataSettings::default()).await;
    let writer = &stack.service.writer;
    let mut tables = declared(writer).await;
    gate.fail([StoreError::Unavailable {
        detail: "for a test".to_owned(),
    }]);
    gate.release(1);
    write_declared(writer, &mut tables).await.unwrap_err();
    gate.release(1);
    write_declared(writer, &mut tables).await.unwrap();
    assert_eq!(stack.cells("tsdb-meta").await, [ROW_OF_A]);
}

#[tokio::test]
async fn counts_points_of_declared_series() {
    let stack = stack(true, [true, true, true]).await;
    let writer = &stack.service.writer;
    let mut tables = declared(writer).await;
    for points in [2, 4, 6] {
        write_declared(writer, &mut tables).await.unwrap();
        assert_eq!(row_of_a(&stack).await, (Some(points), true));
    }
}

/// A service with settings of tracking, over a store with the properties of HBase or the embedded one.
async fn stack(is_embedded: bool, [tracking, realtime, incrementing]: [bool; 3]) -> TestStack {
    let store = MemoryStore::new();
    let intercepted = InterceptedStore::new(Arc::new(store.clone()), Arc::new(Pass));
    let mut settings = DataSettings::default();
    settings.series_index.enable_tsuid_tracking = tracking;
    settings.series_index.enable_realtime_ts = realtime;
    settings.series_index.enable_tsuid_incrementing = incrementing;
    let uid_settings = UidSettings::default();
    if is_embedded {
        let shared: Arc<dyn RowStore> = Arc::new(intercepted);
        TestStack::over(store, Arc::clone(&shared), shared, settings, uid_settings).await
    } else {
        let shared: Arc<dyn RowStore> = Arc::new(intercepted.like_hbase());
        TestStack::over_hbase(store, Arc::clone(&shared), shared, settings, uid_settings).await
    }
}

/// The counter of series `host=a`, and whether it has a document as OpenTSDB creates it.
async fn row_of_a(stack: &TestStack) -> Stored {
    let (table, key) = ("tsdb-meta".parse().unwrap(), [0, 0, 1, 0, 0, 1, 0, 0, 1]);
    let row = stack.store.get(&table, &key, &ColumnSelection::All);
    let Some(row) = row.await.unwrap() else {
        return (None, false);
    };
    let value = |qualifier: &[u8]| row.get("name", qualifier).map(|cell| cell.value);
    let counter = value(b"ts_ctr").map(|value| i64::from_be_bytes(value.try_into().unwrap()));
    let Some(document) = value(b"ts_meta") else {
        return (counter, false);
    };
    let created_seconds = TsMeta::decode(document).unwrap().created_seconds;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    assert!(i64::try_from(now.as_secs()).unwrap() - created_seconds < 60);
    let expected = format!(
        r#"{{"tsuid":"000001000001000001","displayName":"","description":"","notes":"","created":{created_seconds},"custom":null,"units":"","dataType":"","retention":0,"max":"NaN","min":"NaN"}}"#
    );
    assert_eq!(std::str::from_utf8(document).unwrap(), expected);
    (counter, true)
}

async fn put_row_of_a(stack: &TestStack, counter: Option<i64>, document: Option<&[u8]>) {
    let mut batch = WriteBatch::new("tsdb-meta".parse().unwrap());
    let family = batch.family("name");
    batch.row(&[0, 0, 1, 0, 0, 1, 0, 0, 1]);
    if let Some(counter) = counter {
        batch.put(family, b"ts_ctr", &counter.to_be_bytes());
    }
    if let Some(document) = document {
        batch.put(family, b"ts_meta", document);
    }
    stack.store.write(batch).await.unwrap();
}

/// A counter, and whether there is a document.
type Stored = (Option<i64>, bool);

/// Tracking, realtime, incrementing; the effect of a batch of two points on HBase, and on the embedded store.
const EFFECTS: [([bool; 3], Stored, Stored); 8] = [
    ([false, false, false], (None, false), (Some(1), false)),
    ([false, false, true], (None, false), (Some(1), false)),
    ([false, true, false], (None, false), (Some(1), true)),
    ([false, true, true], (None, false), (Some(2), true)),
    ([true, false, false], (Some(1), false), (Some(1), false)),
    ([true, false, true], (Some(1), false), (Some(1), false)),
    ([true, true, false], (None, true), (Some(1), true)),
    ([true, true, true], (Some(2), true), (Some(2), true)),
];

#[tokio::test]
async fn settings_have_opentsdb_s_effects() {
    for (settings, on_hbase, on_embedded) in EFFECTS {
        for (is_embedded, expected) in [(false, on_hbase), (true, on_embedded)] {
            let stack = stack(is_embedded, settings).await;
            write(&stack.service.writer, "a", 1_356_998_400).await.unwrap();
            assert_eq!(row_of_a(&stack).await, expected, "{settings:?} {is_embedded}");
        }
    }
}

#[tokio::test]
async fn counts_points_from_where_the_counter_is() {
    for is_embedded in [false, true] {
        let stack = stack(is_embedded, [true, true, true]).await;
        put_row_of_a(&stack, Some(41), None).await;
        let writer = &stack.service.writer;
        let writes = (0..20).map(|second| write(writer, "a", 1_356_998_400 + second));
        for written in futures::future::join_all(writes).await {
            written.unwrap();
        }
        // OpenTSDB creates a document when the counter becomes 1, which it does no more.
        assert_eq!(row_of_a(&stack).await, (Some(81), false), "{is_embedded}");
    }
}

#[tokio::test]
async fn keeps_an_edited_document() {
    const EDITED: &[u8] = br#"{"notes":"edited"}"#;
    for is_embedded in [false, true] {
        for settings in [[true, true, false], [true, true, true]] {
            let stack = stack(is_embedded, settings).await;
            let mut announced = stack.service.writer.meta_table().new_series().subscribe(10);
            put_row_of_a(&stack, Some(0), Some(EDITED)).await;
            write(&stack.service.writer, "a", 1_356_998_400).await.unwrap();
            let expected = format!("000001000001000001 name:74735f6d657461 {}", hex::encode(EDITED));
            let cells = stack.cells("tsdb-meta").await;
            assert!(cells.contains(&expected), "{is_embedded} {settings:?}: {cells:?}");
            announced.try_recv().unwrap_err();
        }
    }
}

#[tokio::test]
async fn announces_a_new_series_once() {
    for settings in [[true, true, false], [true, true, true]] {
        for is_embedded in [false, true] {
            let stack = stack(is_embedded, settings).await;
            let mut announced = stack.service.writer.meta_table().new_series().subscribe(10);
            for second in 0..3 {
                write(&stack.service.writer, "a", 1_356_998_400 + second)
                    .await
                    .unwrap();
            }
            let new = announced.try_recv().unwrap();
            assert_eq!(new.tsuid.as_bytes(), [0, 0, 1, 0, 0, 1, 0, 0, 1]);
            announced.try_recv().unwrap_err();
        }
    }
}

/// Counts the operations on table `tsdb-meta`.
#[derive(Debug, Default)]
struct Count {
    reads: AtomicUsize,
    writes: AtomicUsize,
}

#[async_trait::async_trait]
impl Intercept for Count {
    async fn intercept(&self, operation: Operation, store: &dyn RowStore) -> Result<Response, StoreError> {
        if operation.table().name() == "tsdb-meta" {
            let count = match operation {
                Operation::GetRows { .. } | Operation::Scan { .. } => &self.reads,
                _ => &self.writes,
            };
            count.fetch_add(1, Ordering::Relaxed);
        }
        operation.perform(store).await
    }
}

#[tokio::test]
async fn the_first_points_of_many_series_cost_one_write_and_later_ones_none() {
    let (store, count) = (MemoryStore::new(), Arc::new(Count::default()));
    let hook = Arc::clone(&count) as Arc<dyn Intercept>;
    let counted: Arc<dyn RowStore> = Arc::new(InterceptedStore::new(Arc::new(store.clone()), hook));
    let mut settings = DataSettings::default();
    settings.series_index.enable_realtime_ts = true;
    let stack = TestStack::over(
        store,
        Arc::clone(&counted),
        counted,
        settings,
        UidSettings::default(),
    )
    .await;
    let hosts: Vec<String> = (0..500).map(|number| format!("h{number}")).collect();
    let tags: Vec<[(&str, &str); 1]> = hosts.iter().map(|host| [("host", host.as_str())]).collect();
    let points = tags.iter().map(|tags| NewPoint {
        metric: "m",
        tags,
        timestamp: Timestamp::from_seconds(1_356_998_400),
        value: Value::Int(1),
    });
    let points: Vec<NewPoint<'_>> = points.collect();
    let counts = || {
        (
            count.reads.load(Ordering::Relaxed),
            count.writes.load(Ordering::Relaxed),
        )
    };
    let before = counts();
    stack.service.writer.write(&points, None).await.unwrap();
    assert_eq!(counts(), (before.0 + 1, before.1 + 1));
    stack.service.writer.write(&points, None).await.unwrap();
    assert_eq!(counts(), (before.0 + 1, before.1 + 1));
    assert_eq!(stack.cells("tsdb-meta").await.len(), 1000);
}
