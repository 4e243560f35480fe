use std::sync::Arc;

use oxtsdb_proto::data::v1::columns::{Block, SeriesDeclaration, block};
use oxtsdb_proto::data::v1::{Columns, IntColumn, WriteColumnsRequest};
use oxtsdb_row_store::intercept::InterceptedStore;
use oxtsdb_row_store::memory::MemoryStore;
use oxtsdb_row_store::{RowStore, StoreError, WriteBatch};
use oxtsdb_schema::{Timestamp, Value};
use uid_service::UidSettings;

use crate::settings::DataSettings;
use crate::test_stack::{Gate, Pass, TestStack};
use crate::write::IngestResources;
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

/// Takes the row of series `host=a` away behind the service's back.
async fn remove_row_of_a(store: &MemoryStore) {
    let mut batch = WriteBatch::new("tsdb-meta".parse().unwrap());
    batch.row(&[0, 0, 1, 0, 0, 1, 0, 0, 1]).delete_row();
    store.write(batch).await.unwrap();
}

#[tokio::test]
async fn a_series_gets_its_row_with_its_first_point_and_no_other_one() {
    let stack = TestStack::start().await;
    let writer = &stack.service.writer;
    write(writer, "a", 1_356_998_400).await.unwrap();
    assert_eq!(stack.cells("tsdb-meta").await, [ROW_OF_A]);
    // The table is not written to again, be it for another hour of points.
    remove_row_of_a(&stack.store).await;
    write(writer, "a", 1_356_998_410).await.unwrap();
    write(writer, "a", 1_357_998_400).await.unwrap();
    write(writer, "b", 1_357_998_400).await.unwrap();
    assert_eq!(stack.cells("tsdb-meta").await, [ROW_OF_B]);
}

#[tokio::test]
async fn each_hour_of_the_clock_the_row_is_stored_again() {
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
async fn a_process_that_begins_anew_stores_the_row_anew() {
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
async fn points_are_acknowledged_when_their_series_have_rows() {
    let (stack, gate) = Gate::meta_stack(DataSettings::default()).await;
    let writer = &stack.service.writer;
    let mut first = tokio::spawn({
        let writer = writer.clone();
        async move { write(&writer, "a", 1_356_998_400).await }
    });
    gate.until_waiting(1).await;
    assert_eq!(stack.cells("tsdb").await.len(), 1, "the points are stored");
    // Neither is another point of the series, which looks after its row itself.
    let mut second = tokio::spawn({
        let writer = writer.clone();
        async move { write(&writer, "a", 1_356_998_410).await }
    });
    gate.until_waiting(2).await;
    assert!(futures::poll!(&mut first).is_pending() && futures::poll!(&mut second).is_pending());
    gate.fail([StoreError::Unavailable {
        detail: "for a test".to_owned(),
    }]);
    gate.let_go(1);
    let failed = first.await.unwrap();
    assert!(failed.is_err(), "its row may be missing: {failed:?}");
    gate.let_go(1);
    second.await.unwrap().unwrap();
    assert_eq!(stack.cells("tsdb-meta").await, [ROW_OF_A]);
}

#[tokio::test]
async fn series_of_columns_are_tracked_once_a_point_is_stored() {
    let stack = TestStack::start().await;
    let declaration = |value| SeriesDeclaration {
        metric_symbol: 0,
        tag_symbols: vec![1, value],
        ..SeriesDeclaration::default()
    };
    let values = IntColumn { values: vec![1, 2] };
    let columns = Columns {
        new_symbols: ["m", "host", "a", "b"].map(str::to_owned).to_vec(),
        new_series: vec![declaration(2), declaration(3)],
        blocks: vec![Block {
            series: vec![0],
            base_timestamp_ms: 1_356_998_400_000,
            timestamp_deltas_ms: vec![0, 1000],
            values: Some(block::Values::Ints(values)),
        }],
    };
    let request = WriteColumnsRequest {
        columns: Some(columns),
        ..WriteColumnsRequest::default()
    };
    let answer = stack.client().write_columns(request).await.unwrap().into_inner();
    assert_eq!((answer.written, answer.failed), (2, 0));
    assert_eq!(
        stack.cells("tsdb-meta").await,
        [ROW_OF_A],
        "the other was declared only"
    );
}

#[tokio::test]
async fn where_others_write_series_are_tracked_as_opentsdb_is_set_to() {
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
        let settings = DataSettings {
            enable_tsuid_tracking: tracking,
            enable_tsuid_incrementing: incrementing,
            ..DataSettings::default()
        };
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
