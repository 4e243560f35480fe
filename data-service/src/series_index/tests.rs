use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::{StreamExt as _, TryStreamExt as _};
use oxtsdb_row_store::WriteBatch;
use oxtsdb_row_store::intercept::{Intercept, InterceptedStore, Operation, Response};
use oxtsdb_row_store::memory::MemoryStore;
use oxtsdb_schema::row_key::write_row_key;
use oxtsdb_schema::{BaseTime, Timestamp, Value};
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use uid_service::UidSettings;

use oxtsdb_query::SeriesIndex as _;

use super::*;
use crate::annotation::{AnnotationKey, Annotations, Edit, Precondition};
use crate::test_stack::TestStack;
use crate::{NewPoint, Writer};

/// 2013-01-01 00:00:00 UTC, an exact hour.
const T: u32 = 1_356_998_400;

async fn write(writer: &Writer, host: &str) {
    let point = NewPoint {
        metric: "m",
        tags: &[("host", host)],
        timestamp: Timestamp::from_seconds(T),
        value: Value::Int(1),
    };
    writer.write(&[point], None).await.unwrap();
}

fn metric() -> MetricUid {
    MetricUid::from_bytes(&[0, 0, 1]).unwrap()
}

fn index(stack: &TestStack) -> &Arc<dyn oxtsdb_query::SeriesIndex> {
    stack.service.engine.storage().index.as_ref().unwrap()
}

/// The tag values of the listed series, as numbers; all have one tag key.
fn values(list: &SeriesList) -> Vec<u8> {
    list.iter().map(|tags| *tags.last().unwrap()).collect()
}

/// Requests a list until it is complete.
async fn until_listed(index: &dyn oxtsdb_query::SeriesIndex) -> Vec<u8> {
    let asking = async {
        loop {
            match index.list(metric()).await {
                Ok(list) => return values(&list),
                Err(NotListed::Collecting | NotListed::Reading) => tokio::task::yield_now().await,
                Err(why) => panic!("{why}"),
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(30), asking)
        .await
        .unwrap()
}

/// A store with rows of points of series 1 to `series`, each in hours 0 to 2, from before series were
/// tracked; series 2 has its row.
async fn old_store(series: u8) -> MemoryStore {
    let settings = DataSettings::default();
    let store = MemoryStore::new();
    let part = crate::store_part(&settings, 0).unwrap();
    part.make_tables(&store).await.unwrap();
    let layout = RowKeyLayout::default();
    let mut points = WriteBatch::new("tsdb".parse().unwrap());
    let family = points.family("t");
    for value in 1..=series {
        for hour in 0..3 {
            let mut key = Vec::new();
            let base = BaseTime::of_seconds(T + hour * 3600);
            write_row_key(&layout, &[0, 0, 1, 0, 0, 1, 0, 0, value], base, &mut key);
            points.row(&key).put(family, &[0, 0], &[1]);
        }
    }
    store.write(points).await.unwrap();
    let mut meta = WriteBatch::new("tsdb-meta".parse().unwrap());
    let family = meta.family("name");
    meta.row(&[0, 0, 1, 0, 0, 1, 0, 0, 2])
        .put(family, b"ts_ctr", &7_i64.to_be_bytes());
    store.write(meta).await.unwrap();
    store
}

async fn open(store: &MemoryStore) -> SeriesIndex {
    open_over(Arc::new(store.clone())).await
}

async fn open_over(store: Arc<dyn RowStore>) -> SeriesIndex {
    let index = SeriesIndex::open(store, None, RowKeyLayout::default(), &DataSettings::default()).await;
    index.unwrap().unwrap()
}

#[tokio::test]
async fn lists_series_written_before_and_after_reading() {
    let stack = TestStack::start().await;
    for host in ["a", "b", "a"] {
        write(&stack.service.writer, host).await;
    }
    assert_eq!(values(&index(&stack).list(metric()).await.unwrap()), [1, 2]);
    write(&stack.service.writer, "c").await;
    assert_eq!(values(&index(&stack).list(metric()).await.unwrap()), [1, 2, 3]);
    let other = MetricUid::from_bytes(&[0, 0, 9]).unwrap();
    assert!(index(&stack).list(other).await.unwrap().is_empty());
    // Another process on the same folder.
    let next = open(&stack.store).await;
    assert_eq!(values(&next.list(metric()).await.unwrap()), [1, 2, 3]);
}

/// Stores an annotation on the series of metric 1 with this tag value.
async fn annotate(engine: &oxtsdb_query::Engine, value: u8) {
    let annotations = Annotations::of(engine);
    let tsuid = [0, 0, 1, 0, 0, 1, 0, 0, value];
    let key = AnnotationKey::at_instant(annotations.layout(), &tsuid, i64::from(T) * 1000).unwrap();
    let edit = Edit {
        notes: Some(Some("n".to_owned())),
        ..Edit::default()
    };
    annotations.put(&key, &edit, &Precondition::None).await.unwrap();
}

#[tokio::test]
async fn lists_a_series_that_has_only_annotations() {
    let stack = TestStack::start().await;
    write(&stack.service.writer, "a").await;
    assert_eq!(values(&index(&stack).list(metric()).await.unwrap()), [1]);
    let counters = stack.cells("tsdb-meta").await;
    for value in [2, 1, 2] {
        annotate(&stack.service.engine, value).await;
    }
    assert_eq!(values(&index(&stack).list(metric()).await.unwrap()), [1, 2]);
    let next = open(&stack.store).await;
    assert_eq!(values(&next.list(metric()).await.unwrap()), [1, 2]);
    // The counter of a series with points is as before; that of the other one says that it has none.
    let tracked = stack.cells("tsdb-meta").await;
    assert_eq!(tracked[..1], counters);
    assert_eq!(
        tracked[1..],
        ["000001000001000002 name:74735f637472 0000000000000000"]
    );
    write(&stack.service.writer, "b").await;
    assert!(stack.cells("tsdb-meta").await[1].ends_with(" 0000000000000001"));
}

#[tokio::test]
async fn a_collection_finds_the_points_of_annotated_series() {
    let store = old_store(3).await;
    let same: Arc<dyn RowStore> = Arc::new(store.clone());
    let (settings, uid_settings) = (DataSettings::default(), UidSettings::default());
    let stack = TestStack::over(store, Arc::clone(&same), same, settings, uid_settings).await;
    for value in [3, 4] {
        annotate(&stack.service.engine, value).await;
    }
    assert_eq!(until_listed(&**index(&stack)).await, [1, 2, 3, 4]);
    let row = [0, 0, 1, 0, 0, 1, 0, 0, 3];
    let table = "tsdb-meta".parse().unwrap();
    let row = stack
        .store
        .get(&table, &row, &oxtsdb_row_store::ColumnSelection::All)
        .await;
    let row = row.unwrap().unwrap();
    let newest_ms = (i64::from(T) + 7200) * 1000;
    assert_eq!(row.get("name", b"ts_ctr").unwrap().timestamp_ms, newest_ms);
}

/// Delays the rows of scans of `tsdb-meta`.
#[derive(Debug)]
struct Late {
    begun: Semaphore,
    may_go: Semaphore,
}

#[async_trait]
impl Intercept for Late {
    async fn intercept(&self, operation: Operation, store: &dyn RowStore) -> Result<Response, StoreError> {
        let is_late = matches!(operation, Operation::Scan { .. }) && operation.table().name() == "tsdb-meta";
        let response = operation.perform(store).await?;
        let Response::Scan(rows) = response else {
            return Ok(response);
        };
        let rows: Vec<_> = rows.try_collect().await?;
        if is_late {
            self.begun.add_permits(1);
            self.may_go.acquire().await.unwrap().forget();
        }
        Ok(Response::Scan(futures::stream::iter(rows).map(Ok).boxed()))
    }
}

#[tokio::test]
async fn lists_a_series_written_while_the_list_is_read() {
    let store = MemoryStore::new();
    let late = Arc::new(Late {
        begun: Semaphore::new(0),
        may_go: Semaphore::new(0),
    });
    let hook = Arc::clone(&late) as Arc<dyn Intercept>;
    let held = Arc::new(InterceptedStore::new(Arc::new(store.clone()), hook));
    let uid_store = Arc::new(store.clone());
    let (settings, uid_settings) = (DataSettings::default(), UidSettings::default());
    let stack = TestStack::over(store, uid_store, held, settings, uid_settings).await;
    write(&stack.service.writer, "a").await;
    let reading = tokio::spawn({
        let index = Arc::clone(index(&stack));
        async move { index.list(metric()).await }
    });
    late.begun.acquire().await.unwrap().forget();
    // The rows were read before this one was stored.
    write(&stack.service.writer, "b").await;
    late.may_go.add_permits(1);
    assert_eq!(values(&reading.await.unwrap().unwrap()), [1, 2]);
    assert_eq!(values(&index(&stack).list(metric()).await.unwrap()), [1, 2]);
}

#[tokio::test]
async fn collects_untracked_series_while_queries_scan() {
    let store = old_store(3).await;
    let index = open(&store).await;
    assert_eq!(index.list(metric()).await.unwrap_err(), NotListed::Collecting);
    assert_eq!(until_listed(&index).await, [1, 2, 3]);
    // The rows have the time of the last point; the existing row is unchanged.
    let meta = store
        .scan(&"tsdb-meta".parse().unwrap(), Scan::prefix(&[]))
        .await
        .unwrap();
    let rows: Vec<Vec<_>> = meta.try_collect().await.unwrap();
    let tracked: Vec<_> = rows
        .iter()
        .flatten()
        .map(|row| {
            let cell = row.get("name", b"ts_ctr").unwrap();
            (*row.key().last().unwrap(), cell.timestamp_ms, cell.value[7])
        })
        .collect();
    let newest_ms = (i64::from(T) + 7200) * 1000;
    assert_eq!((tracked[0], tracked[2]), ((1, newest_ms, 1), (3, newest_ms, 1)));
    assert_eq!((tracked[1].0, tracked[1].2), (2, 7));
    // The store records that the collection is complete.
    assert_eq!(
        values(&open(&store).await.list(metric()).await.unwrap()),
        [1, 2, 3]
    );
}

/// Fails the next writes to a table.
#[derive(Debug)]
struct Failing(Mutex<Vec<&'static str>>);

#[async_trait]
impl Intercept for Failing {
    async fn intercept(&self, operation: Operation, store: &dyn RowStore) -> Result<Response, StoreError> {
        let is_write = matches!(operation, Operation::Write { .. });
        let next = self.0.lock().last().copied();
        if is_write && next == Some(operation.table().name()) {
            self.0.lock().pop();
            return Err(StoreError::Unavailable {
                detail: "for a test".to_owned(),
            });
        }
        operation.perform(store).await
    }
}

#[tokio::test]
async fn repeats_a_collection_that_was_interrupted() {
    let store = old_store(4).await;
    let failing = Arc::new(Failing(Mutex::new(vec!["tsdb-meta-complete", "tsdb-meta"])));
    let hook = Arc::clone(&failing) as Arc<dyn Intercept>;
    let index = open_over(Arc::new(InterceptedStore::new(Arc::new(store.clone()), hook))).await;
    let failed = async {
        while !failing.0.lock().is_empty() {
            // Each failure is followed by another attempt, by the next caller.
            let why = index.list(metric()).await.unwrap_err();
            assert!(matches!(why, NotListed::Collecting | NotListed::Failed), "{why}");
            // As after a crash, nothing is marked.
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), failed)
        .await
        .unwrap();
    assert_eq!(until_listed(&index).await, [1, 2, 3, 4]);
    assert_eq!(
        values(&open(&store).await.list(metric()).await.unwrap()),
        [1, 2, 3, 4]
    );
}

#[tokio::test]
async fn lists_a_series_written_before_the_collection() {
    let store = old_store(2).await;
    let names = ["a", "b"];
    let stack = TestStack::over(
        store.clone(),
        Arc::new(store.clone()),
        Arc::new(store),
        DataSettings::default(),
        UidSettings::default(),
    )
    .await;
    // The UIDs of the old series.
    for host in names {
        write(&stack.service.writer, host).await;
    }
    write(&stack.service.writer, "c").await;
    assert_eq!(
        index(&stack).list(metric()).await.unwrap_err(),
        NotListed::Collecting
    );
    write(&stack.service.writer, "d").await;
    assert_eq!(until_listed(&**index(&stack)).await, [1, 2, 3, 4]);
}

/// Forwards all operations.
#[derive(Debug)]
struct Pass;

#[async_trait]
impl Intercept for Pass {
    async fn intercept(&self, operation: Operation, store: &dyn RowStore) -> Result<Response, StoreError> {
        operation.perform(store).await
    }
}

#[tokio::test]
async fn other_writers_require_trust_tsuid_tracking() {
    let store = old_store(3).await;
    let like_hbase = InterceptedStore::new(Arc::new(store.clone()), Arc::new(Pass)).like_hbase();
    let like_hbase: Arc<dyn RowStore> = Arc::new(like_hbase);
    let layout = RowKeyLayout::default();
    let mut settings = DataSettings::default();
    let none = SeriesIndex::open(Arc::clone(&like_hbase), None, layout, &settings)
        .await
        .unwrap();
    assert!(none.is_none());
    settings.series_index.trust_tsuid_tracking = true;
    assert!(
        settings
            .check()
            .unwrap_err()
            .to_string()
            .starts_with("--trust-tsuid-tracking true: expected --enable-tsuid-tracking"),
    );
    settings.series_index.enable_tsuid_tracking = true;
    settings.check().unwrap();
    let index = SeriesIndex::open(like_hbase, None, layout, &settings)
        .await
        .unwrap()
        .unwrap();
    // It is believed, and nothing but the tables of OpenTSDB is touched.
    assert_eq!(values(&index.list(metric()).await.unwrap()), [2]);
    let tables = store.tables().await.unwrap();
    assert_eq!(tables.len(), 3, "{tables:?}");
}

#[tokio::test]
async fn queries_do_not_wait_for_a_long_list() {
    let store = MemoryStore::new();
    crate::store_part(&DataSettings::default(), 0)
        .unwrap()
        .make_tables(&store)
        .await
        .unwrap();
    let index = open(&store).await;
    let mut meta = WriteBatch::new("tsdb-meta".parse().unwrap());
    let family = meta.family("name");
    let series = u32::try_from(SERIES_WAITED_FOR).unwrap() + 10_000;
    for value in 0..series {
        let key = [&[0, 0, 1, 0, 0, 1], &value.to_be_bytes()[1..]].concat();
        meta.row(&key).put(family, b"ts_ctr", &1_i64.to_be_bytes());
    }
    store.write(meta).await.unwrap();
    assert_eq!(index.list(metric()).await.unwrap_err(), NotListed::Reading);
    assert_eq!(until_listed(&index).await.len(), series as usize);
    let mut settings = DataSettings::default();
    settings.memory.series_index_mib = 1;
    let long = [vec![0, 0, 2], vec![7; 3000]].concat();
    let mut meta = WriteBatch::new("tsdb-meta".parse().unwrap());
    let family = meta.family("name");
    for number in 0..400_u32 {
        let key = [long.as_slice(), &number.to_be_bytes()].concat();
        meta.row(&key).put(family, b"ts_ctr", &1_i64.to_be_bytes());
    }
    store.write(meta).await.unwrap();
    let small = SeriesIndex::open(Arc::new(store), None, RowKeyLayout::default(), &settings).await;
    let (small, metric) = (
        small.unwrap().unwrap(),
        MetricUid::from_bytes(&[0, 0, 2]).unwrap(),
    );
    assert_eq!(small.list(metric).await.unwrap_err(), NotListed::Failed);
    assert_eq!(small.list(metric).await.unwrap_err(), NotListed::TooLarge);
}

#[tokio::test]
async fn a_catalogue_lists_the_series_of_points_and_annotations() {
    let stack = TestStack::with_points().await;
    write(&stack.service.writer, "a").await;
    assert_eq!(values(&index(&stack).list(metric()).await.unwrap()), [1]);
    write(&stack.service.writer, "b").await;
    annotate(&stack.service.engine, 7).await;
    assert_eq!(values(&index(&stack).list(metric()).await.unwrap()), [1, 2, 7]);
    let rows = stack.cells("tsdb-meta").await;
    assert_eq!(rows.len(), 3, "look-ups find each: {rows:?}");
    assert!(
        stack
            .store
            .tables()
            .await
            .unwrap()
            .iter()
            .all(|def| def.name.to_string() != "tsdb-meta-complete")
    );
}
