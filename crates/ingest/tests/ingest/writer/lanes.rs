//! Requests are coalesced in lanes to a store of rows.

mod failures;

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures::poll;
use oxtsdb_data_settings::{DataSettings, WriteForm};
use oxtsdb_ingest::{NewPoint, WriteError, WriteOutcome, Writer};
use oxtsdb_metadata::uids::series::SeriesRef;
use oxtsdb_point_store::rows::{LANES, lane_of};
use oxtsdb_row_store::cells::{CellConfig, CellStore};
use oxtsdb_row_store::intercept::{Intercept, InterceptedStore, Operation, Response};
use oxtsdb_row_store::memory::MemoryStore;
use oxtsdb_row_store::{ColumnSelection, Row, RowStore, StoreError, TableName};
use oxtsdb_schema::row::{CellRef, decode_row};
use oxtsdb_schema::row_key::write_row_key;
use oxtsdb_schema::{BaseTime, DuplicatePolicy, Points, Timestamp, UidKind, Value};
use oxtsdb_test_stack::{Gate, TestStack};
use tokio::time::Instant;
use uid_service::UidSettings;

/// Row keys of metric `m` with the tag values `a` and `b`, in the first hour.
const ROW_A: &str = "00000100000000000001000001";
const ROW_B: &str = "00000100000000000001000002";

/// Other tag values.
const HOSTS: [&str; 20] = [
    "a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o", "p", "q", "r", "s", "t",
];

fn settings(write_form: WriteForm, linger_ms: u64) -> DataSettings {
    let mut settings = DataSettings::default();
    settings.writing.write_form = write_form;
    settings.writing.linger_ms = linger_ms;
    settings
}

/// Gives the names of tests their UIDs, so that a write comes to the store when it is polled first.
async fn assign_names(stack: &TestStack) {
    let names = [(UidKind::Metric, "m"), (UidKind::Tagk, "host")];
    let hosts = HOSTS.map(|host| (UidKind::Tagv, host));
    let names: Vec<_> = names.into_iter().chain(hosts).collect();
    stack
        .service
        .uids
        .assign_for(&names, |_| None, None)
        .await
        .unwrap();
    for host in HOSTS {
        let series = SeriesRef::Names {
            metric: "m",
            tags: &[("host", host)],
        };
        let resolution = stack.service.writer.resolve([series].into_iter(), None).await;
        assert!(resolution.unwrap().series[0].is_ok());
    }
}

/// Writes a point for each of these hosts and times; the value is the number given.
async fn put(writer: &Writer, points: &[(&str, u32, i64)]) -> Result<WriteOutcome, WriteError> {
    let tags: Vec<_> = points.iter().map(|(host, ..)| [("host", *host)]).collect();
    let points: Vec<_> = points
        .iter()
        .zip(&tags)
        .map(|((_, seconds, value), tags)| NewPoint {
            metric: "m",
            tags,
            timestamp: Timestamp::from_seconds(*seconds),
            value: Value::Int(*value),
        })
        .collect();
    writer.write(&points, None).await
}

/// Writes many points of one row.
async fn put_many(writer: &Writer, host: &str, count: i64) -> Result<WriteOutcome, WriteError> {
    let tags = [("host", host)];
    let points: Vec<_> = (1..=count)
        .map(|ms| NewPoint {
            metric: "m",
            tags: &tags,
            timestamp: Timestamp::from_millis(ms).unwrap(),
            value: Value::Int(1),
        })
        .collect();
    writer.write(&points, None).await
}

/// The lane of a host's first hour.
async fn lane(stack: &TestStack, host: &str) -> usize {
    let series = SeriesRef::Names {
        metric: "m",
        tags: &[("host", host)],
    };
    let resolution = stack.service.writer.resolve([series].into_iter(), None).await;
    let series = resolution.unwrap().series.remove(0).unwrap();
    let layout = stack.service.writer.uids().layout();
    let mut key = Vec::new();
    write_row_key(layout, series.tsuid(), BaseTime::MIN, &mut key);
    lane_of(&key, LANES)
}

/// A host with a row in the same lane as host `a`, or in another lane.
async fn host(stack: &TestStack, same_lane: bool) -> &'static str {
    let first = lane(stack, "a").await;
    for host in &HOSTS[1..] {
        if (lane(stack, host).await == first) == same_lane {
            return host;
        }
    }
    panic!("20 rows are all on one lane, or each on its own");
}

fn full() -> StoreError {
    StoreError::Full {
        detail: "disk".to_owned(),
    }
}

#[tokio::test]
async fn coalesces_requests_while_the_store_is_busy() {
    let (stack, gate) = Gate::hbase_stack(DataSettings::default()).await;
    assign_names(&stack).await;
    let mut first = pin!(put(&stack.service.writer, &[("a", 1, 1)]));
    assert!(poll!(first.as_mut()).is_pending());
    gate.until_waiting(1).await;
    let mut second = pin!(put(&stack.service.writer, &[("a", 2, 2), ("a", 4, 4)]));
    let mut third = pin!(put(&stack.service.writer, &[("a", 3, 3)]));
    assert!(poll!(second.as_mut()).is_pending());
    assert!(poll!(third.as_mut()).is_pending());
    assert!(stack.cells("tsdb").await.is_empty());

    gate.release(1);
    assert_eq!(first.await.unwrap().written, 1);
    gate.until_waiting(1).await;
    assert!(
        poll!(second.as_mut()).is_pending(),
        "not before the store has confirmed"
    );
    gate.release(1);
    assert_eq!(second.await.unwrap().written, 2);
    assert_eq!(third.await.unwrap().written, 1);
    assert_eq!(gate.passed(), 2);
    let expected = [
        format!("{ROW_A} t:0010 01"),
        format!("{ROW_A} t:002000300040 02030400"),
    ];
    assert_eq!(stack.cells("tsdb").await, expected);
}

#[tokio::test]
async fn the_store_decides_the_form_unless_it_is_set() {
    let cells = |qualifiers: &[&str]| -> Vec<String> {
        qualifiers
            .iter()
            .map(|cell| format!("{ROW_A} t:{cell}"))
            .collect()
    };
    let (single, compacted) = (cells(&["0010 01", "0020 02"]), cells(&["00100020 010200"]));
    let appended = cells(&["050000 001001002002"]);
    for (like_hbase, form, expected) in [
        (false, WriteForm::Auto, &single),
        (true, WriteForm::Auto, &compacted),
        (false, WriteForm::Cells, &single),
        (true, WriteForm::Cells, &single),
        (false, WriteForm::Rows, &compacted),
        (false, WriteForm::Appends, &appended),
        (true, WriteForm::Appends, &appended),
    ] {
        let settings = settings(form, 0);
        let (stack, gate) = match like_hbase {
            false => Gate::stack(settings).await,
            true => Gate::hbase_stack(settings).await,
        };
        gate.release(1);
        put(&stack.service.writer, &[("a", 1, 1), ("a", 2, 2)])
            .await
            .unwrap();
        assert_eq!(&stack.cells("tsdb").await, expected, "{form:?}");
    }
}

#[tokio::test]
async fn an_hour_that_is_not_over_is_written_as_opentsdb_would_have_it() {
    // An hour far ahead, and one long ago.
    for (hour, form, cells) in [
        (4_102_444_800, WriteForm::Auto, 2),
        (4_102_444_800, WriteForm::Rows, 1),
        (1_356_998_400, WriteForm::Auto, 1),
    ] {
        let (stack, gate) = Gate::hbase_stack(settings(form, 0)).await;
        gate.release(2);
        let points = [("a", hour, 1), ("a", hour + 1, 2)];
        put(&stack.service.writer, &points).await.unwrap();
        assert_eq!(stack.cells("tsdb").await.len(), cells, "{hour} {form}");
    }
}

#[tokio::test]
async fn cells_have_the_timestamps_of_their_points_if_set() {
    for (form, expected) in [
        (WriteForm::Cells, vec![1_356_998_400_000, 1_356_998_401_000]),
        (WriteForm::Rows, vec![1_356_998_401_000]),
    ] {
        let mut settings = settings(form, 0);
        settings.writing.use_otsdb_timestamp = true;
        let stack = TestStack::with(settings, UidSettings::default()).await;
        let points = [("a", 1_356_998_401, 2), ("a", 1_356_998_400, 1)];
        put(&stack.service.writer, &points).await.unwrap();
        let key = hex::decode(ROW_A.replacen("00000000", "50e22700", 1)).unwrap();
        let table = "tsdb".parse().unwrap();
        let row = stack.store.get(&table, &key, &ColumnSelection::All).await;
        let row = row.unwrap().unwrap();
        let timestamps: Vec<i64> = row.cells().map(|cell| cell.timestamp_ms).collect();
        assert_eq!(timestamps, expected, "{form}");
    }
    let mut appends = settings(WriteForm::Appends, 0);
    appends.writing.use_otsdb_timestamp = true;
    assert!(
        appends
            .check()
            .unwrap_err()
            .to_string()
            .contains("--use-otsdb-timestamp")
    );
}

#[tokio::test(start_paused = true)]
async fn points_linger_for_others_of_their_row() {
    for form in [WriteForm::Rows, WriteForm::Cells] {
        let stack = TestStack::with(settings(form, 50), UidSettings::default()).await;
        assign_names(&stack).await;
        let began = Instant::now();
        let mut first = pin!(put(&stack.service.writer, &[("a", 1, 1), ("b", 1, 1)]));
        assert!(poll!(first.as_mut()).is_pending());
        tokio::time::sleep(Duration::from_millis(30)).await;
        assert!(poll!(first.as_mut()).is_pending());
        assert!(stack.cells("tsdb").await.is_empty());
        let second = put(&stack.service.writer, &[("a", 2, 2)]);
        let (first, second) = futures::join!(first, second);
        assert_eq!((first.unwrap().written, second.unwrap().written), (2, 1));
        let waited = began.elapsed();
        assert!(
            (50..55).contains(&waited.as_millis()),
            "of both writes the first one begins the linger: {waited:?}"
        );
        let expected = match form {
            WriteForm::Rows => vec![format!("{ROW_A} t:00100020 010200"), format!("{ROW_B} t:0010 01")],
            _ => vec![
                format!("{ROW_A} t:0010 01"),
                format!("{ROW_A} t:0020 02"),
                format!("{ROW_B} t:0010 01"),
            ],
        };
        assert_eq!(stack.cells("tsdb").await, expected);
    }
}

#[tokio::test(start_paused = true)]
async fn linger_ends_when_a_batch_is_complete() {
    let stack = TestStack::with(settings(WriteForm::Rows, 10_000), UidSettings::default()).await;
    assign_names(&stack).await;
    let began = Instant::now();
    let mut first = pin!(put(&stack.service.writer, &[("a", 3599, 1)]));
    assert!(poll!(first.as_mut()).is_pending());
    // The lane begins to linger.
    tokio::task::yield_now().await;
    let (first, many) = futures::join!(first, put_many(&stack.service.writer, "a", 200_000));
    assert_eq!((first.unwrap().written, many.unwrap().written), (1, 200_000));
    assert!(began.elapsed() < Duration::from_secs(10));
    // The next one lingers as it should.
    put(&stack.service.writer, &[("a", 3598, 1)]).await.unwrap();
    assert!(began.elapsed() >= Duration::from_secs(10));
}

#[tokio::test(start_paused = true)]
async fn linger_ends_on_shutdown() {
    let stack = TestStack::with(settings(WriteForm::Rows, 10_000), UidSettings::default()).await;
    assign_names(&stack).await;
    let began = Instant::now();
    let writer = stack.service.writer.clone();
    let mut first = pin!(put(&writer, &[("a", 1, 1)]));
    assert!(poll!(first.as_mut()).is_pending());
    stack.trigger.shut_down().await;
    assert_eq!(first.await.unwrap().written, 1);
    // Requests that arrive during a drain are not delayed either.
    assert_eq!(put(&writer, &[("a", 2, 2)]).await.unwrap().written, 1);
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
}

#[tokio::test]
async fn a_write_that_fails_fails_the_requests_with_points_in_it() {
    let (stack, gate) = Gate::hbase_stack(DataSettings::default()).await;
    assign_names(&stack).await;
    let other = host(&stack, false).await;
    let mut on_one = pin!(put(&stack.service.writer, &[("a", 1, 1)]));
    assert!(poll!(on_one.as_mut()).is_pending());
    gate.until_waiting(1).await;
    let other_first = [(other, 1, 1)];
    let mut on_other = pin!(put(&stack.service.writer, &other_first));
    assert!(poll!(on_other.as_mut()).is_pending());
    gate.until_waiting(2).await;
    let (both_points, other_points) = ([("a", 2, 1), (other, 2, 1)], [(other, 3, 1)]);
    let mut on_both = pin!(put(&stack.service.writer, &both_points));
    let mut later = pin!(put(&stack.service.writer, &other_points));
    assert!(poll!(on_both.as_mut()).is_pending());
    assert!(poll!(later.as_mut()).is_pending());

    gate.fail([full()]);
    gate.release(1);
    let error = on_one.await.unwrap_err();
    assert!(
        matches!(error, WriteError::Store(StoreError::Full { .. })),
        "{error:?}"
    );
    assert!(poll!(on_other.as_mut()).is_pending());
    // The lane continues with the waiting batch; that batch fails too, and the other lane does not.
    gate.until_waiting(2).await;
    gate.release(1);
    assert_eq!(on_other.await.unwrap().written, 1);
    gate.until_waiting(2).await;
    gate.fail([full()]);
    gate.release(2);
    assert!(on_both.await.is_err(), "a part of it was not stored");
    assert_eq!(later.await.unwrap().written, 1);
}

#[tokio::test]
async fn does_not_begin_writes_of_dropped_requests() {
    let (stack, gate) = Gate::hbase_stack(DataSettings::default()).await;
    assign_names(&stack).await;
    let mut first = pin!(put(&stack.service.writer, &[("a", 1, 1)]));
    assert!(poll!(first.as_mut()).is_pending());
    gate.until_waiting(1).await;
    {
        let mut given_up = pin!(put(&stack.service.writer, &[("a", 2, 2)]));
        assert!(poll!(given_up.as_mut()).is_pending());
    }
    let mut last = pin!(put(&stack.service.writer, &[("a", 3, 3)]));
    assert!(poll!(last.as_mut()).is_pending());
    gate.release(2);
    first.await.unwrap();
    last.await.unwrap();
    let expected = [format!("{ROW_A} t:0010 01"), format!("{ROW_A} t:0030 03")];
    assert_eq!(stack.cells("tsdb").await, expected);
}

#[tokio::test(start_paused = true)]
async fn a_request_holds_its_permit_until_the_store_responds() {
    let mut settings = DataSettings::default();
    settings.memory.max_writes_mib = 1;
    let (stack, gate) = Gate::hbase_stack(settings).await;
    assign_names(&stack).await;
    {
        let mut given_up = pin!(put_many(&stack.service.writer, "a", 200_000));
        assert!(poll!(given_up.as_mut()).is_pending());
        gate.until_waiting(1).await;
    }
    // Given up when it was under way already: the points are still in memory.
    let mut next = pin!(put(&stack.service.writer, &[("b", 1, 1)]));
    assert!(poll!(next.as_mut()).is_pending());
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(gate.waiting(), 1, "the next one is not let in");
    gate.release(2);
    assert_eq!(next.await.unwrap().written, 1);
}

/// The points of a row, as queries read them.
fn points(row: &Row) -> Vec<(u32, Value)> {
    let cells = row.cells().map(|cell| CellRef {
        qualifier: cell.qualifier,
        value: cell.value,
        timestamp_ms: cell.timestamp_ms,
    });
    let mut points = Points::new();
    decode_row(cells, DuplicatePolicy::Error, &mut points).unwrap();
    points.iter().collect()
}

#[tokio::test]
async fn all_forms_on_disk_are_read_alike() {
    let folder = tempfile::tempdir().unwrap();
    let embedded: Arc<dyn RowStore> = Arc::new(CellStore::open(CellConfig::new(folder.path())).unwrap());
    let table: TableName = "tsdb".parse().unwrap();
    let memory = MemoryStore::new();
    // One form after the other into the same rows.
    for (round, form) in (0_u32..).zip([WriteForm::Cells, WriteForm::Rows, WriteForm::Appends]) {
        let stack = TestStack::over(
            memory.clone(),
            Arc::new(memory.clone()),
            Arc::clone(&embedded),
            settings(form, 0),
            UidSettings::default(),
        )
        .await;
        for part in 0..3 {
            let seconds = 1 + round * 100 + part * 10;
            let points: Vec<_> = (seconds..seconds + 3)
                .flat_map(|seconds| {
                    [
                        ("a", seconds, i64::from(seconds)),
                        ("b", seconds, -i64::from(seconds)),
                    ]
                })
                .collect();
            put(&stack.service.writer, &points).await.unwrap();
        }
    }
    for (key, sign) in [(ROW_A, 1), (ROW_B, -1)] {
        let row = embedded
            .get(&table, &hex::decode(key).unwrap(), &ColumnSelection::All)
            .await
            .unwrap()
            .unwrap();
        // 9 cells, 3 compacted ones, an append cell.
        assert_eq!(row.len(), 9 + 3 + 1);
        let seconds = (0..3).flat_map(|round| {
            (0..3).flat_map(move |part| (0..3).map(move |n| 1 + round * 100 + part * 10 + n))
        });
        let expected: Vec<_> = seconds
            .map(|seconds: u32| (seconds * 1000, Value::Int(sign * i64::from(seconds))))
            .collect();
        assert_eq!(points(&row), expected);
    }
    embedded.close().await.unwrap();
}
