use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::{StreamExt as _, TryStreamExt as _};
use oxtsdb_data_settings::DataSettings;
use oxtsdb_ingest::{NewPoint, Writer};
use oxtsdb_metadata::annotation::{AnnotationKey, Annotations, Edit, Precondition};
use oxtsdb_metadata::series_index::*;
use oxtsdb_query::SeriesIndex as _;
use oxtsdb_query::{NotListed, SeriesList};
use oxtsdb_row_store::intercept::{Intercept, InterceptedStore, Operation, Response};
use oxtsdb_row_store::memory::MemoryStore;
use oxtsdb_row_store::{RowStore, Scan, StoreError, WriteBatch, Writers};
use oxtsdb_schema::{MetricUid, Timestamp, UidWidths, Value};
use oxtsdb_test_stack::TestStack;
use tokio::sync::Semaphore;
use uid_service::UidSettings;

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
                Err(NotListed::Reading) => tokio::task::yield_now().await,
                Err(why) => panic!("{why}"),
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(30), asking)
        .await
        .unwrap()
}

/// A store with the tables of the service.
async fn empty_store() -> MemoryStore {
    let store = MemoryStore::new();
    let part = data_service::store_part(&DataSettings::default(), 0).unwrap();
    part.make_tables(&store).await.unwrap();
    store
}

fn open(store: Arc<dyn RowStore>, writers: Writers, settings: &DataSettings) -> Option<SeriesIndex> {
    SeriesIndex::open(store, writers, &UidWidths::default(), settings).unwrap()
}

/// The index of a service that begins over a store.
fn next_of(store: &MemoryStore) -> SeriesIndex {
    open(Arc::new(store.clone()), Writers::Single, &DataSettings::default()).unwrap()
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
    let next = next_of(&stack.store);
    assert_eq!(values(&next.list(metric()).await.unwrap()), [1, 2, 3]);
}

/// Stores an annotation on the series of metric 1 with this tag value.
async fn annotate(engine: &oxtsdb_query::Engine, value: u8) {
    let annotations = Annotations::from_engine(engine);
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
    let next = next_of(&stack.store);
    assert_eq!(values(&next.list(metric()).await.unwrap()), [1, 2]);
    // The counter of a series with points is as before; the counter of the other one says that it has none.
    let tracked = stack.cells("tsdb-meta").await;
    assert_eq!(tracked[..1], counters);
    assert_eq!(
        tracked[1..],
        ["000001000001000002 name:74735f637472 0000000000000000"]
    );
    write(&stack.service.writer, "b").await;
    assert!(stack.cells("tsdb-meta").await[1].ends_with(" 0000000000000001"));
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
    let store = empty_store().await;
    let mut meta = WriteBatch::new("tsdb-meta".parse().unwrap());
    let family = meta.family("name");
    meta.row(&[0, 0, 1, 0, 0, 1, 0, 0, 2])
        .put(family, b"ts_ctr", &7_i64.to_be_bytes());
    store.write(meta).await.unwrap();
    let like_hbase = InterceptedStore::new(Arc::new(store.clone()), Arc::new(Pass)).like_hbase();
    let like_hbase: Arc<dyn RowStore> = Arc::new(like_hbase);
    let mut settings = DataSettings::default();
    assert!(open(Arc::clone(&like_hbase), Writers::Multiple, &settings).is_none());
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
    let index = open(like_hbase, Writers::Multiple, &settings).unwrap();
    assert_eq!(values(&index.list(metric()).await.unwrap()), [2]);
}

#[tokio::test]
async fn queries_do_not_wait_for_a_long_list() {
    let store = empty_store().await;
    let index = next_of(&store);
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
    let small = open(Arc::new(store), Writers::Single, &settings).unwrap();
    let metric = MetricUid::from_bytes(&[0, 0, 2]).unwrap();
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
    let table = "tsdb-meta".parse().unwrap();
    let rows = stack.service.store.scan(&table, Scan::prefix(&[]));
    let rows: Vec<_> = rows.await.unwrap().try_collect().await.unwrap();
    assert_eq!(rows.concat().len(), 3, "look-ups find each: {rows:?}");
}
