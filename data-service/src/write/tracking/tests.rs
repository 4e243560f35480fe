use std::sync::Arc;
use std::time::SystemTime;

use oxtsdb_row_store::intercept::InterceptedStore;
use oxtsdb_row_store::memory::MemoryStore;
use oxtsdb_row_store::{RowStore, StoreError, WriteBatch};
use oxtsdb_schema::{Timestamp, Value};
use uid_service::UidSettings;

use crate::settings::DataSettings;
use crate::test_stack::{Gate, Pass, TestStack};
use crate::write::columns::{Block, Continuation, Declaration, Failures, Tables, TablesLimits, encode};
use crate::write::{IngestResources, Precision, TimeOptions, TimeUnit};
use crate::{NewPoint, Writer};

const ROW_OF_A: &str = "000001000001000001 name:74735f637472 0000000000000001";
const ROW_OF_B: &str = "000001000001000002 name:74735f637472 0000000000000001";

async fn write(writer: &Writer, host: &str, seconds: u32) -> Result<(), crate::WriteError> {
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
    let series = crate::uids::series::SeriesRef::Names {
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
    let next = Writer::new(
        store,
        uids,
        &stack.settings,
        None,
        resources,
        stack.shutdown.clone(),
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

#[tokio::test]
async fn tracks_declared_series_with_their_first_point() {
    let stack = TestStack::start().await;
    let writer = &stack.service.writer;
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
    encode(blocks, &rules, tables.series(), batch.rows(), &mut failures).unwrap();
    assert_eq!((batch.points(), failures.failed()), (2, 0));
    writer.store(batch, None).await.unwrap();
    assert_eq!(
        stack.cells("tsdb-meta").await,
        [ROW_OF_A],
        "the other series has no point"
    );
}

#[tokio::test]
async fn follows_opentsdb_settings_on_shared_tables() {
    for (tracking, incrementing, expected) in [
        (false, false, None),
        (false, true, None),
        (true, false, Some(ROW_OF_A.to_owned())),
        (
            true,
            true,
            Some(ROW_OF_A.replace("0000000000000001", "000000000000002a")),
        ),
    ] {
        let store = MemoryStore::new();
        let like_hbase = InterceptedStore::new(Arc::new(store.clone()), Arc::new(Pass)).like_hbase();
        let like_hbase: Arc<dyn RowStore> = Arc::new(like_hbase);
        let mut settings = DataSettings::default();
        settings.series_index.enable_tsuid_tracking = tracking;
        settings.series_index.enable_tsuid_incrementing = incrementing;
        let uid_store = Arc::clone(&like_hbase);
        let stack = TestStack::over(store, uid_store, like_hbase, settings, UidSettings::default()).await;
        if expected.is_some() {
            // OpenTSDB has counted 41 points.
            let mut batch = WriteBatch::new("tsdb-meta".parse().unwrap());
            let family = batch.family("name");
            batch
                .row(&[0, 0, 1, 0, 0, 1, 0, 0, 1])
                .put(family, b"ts_ctr", &41_i64.to_be_bytes());
            stack.store.write(batch).await.unwrap();
        }
        write(&stack.service.writer, "a", 1_356_998_400).await.unwrap();
        let cells = stack.cells("tsdb-meta").await;
        assert_eq!(cells, Vec::from_iter(expected), "{tracking} {incrementing}");
    }
}
