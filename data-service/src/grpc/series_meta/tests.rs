use std::sync::Arc;

use futures::TryStreamExt as _;
use oxtsdb_data_settings::DataSettings;
use oxtsdb_ingest::NewPoint;
use oxtsdb_proto::common::v1::{ErrorReason, SeriesKey, SeriesName, Tag, series_key};
use oxtsdb_proto::data::v1::series_meta_service_client::SeriesMetaServiceClient;
use oxtsdb_proto::data::v1::series_meta_service_server::SeriesMetaServiceServer;
use oxtsdb_proto::data::v1::{
    DeleteSeriesMetaRequest, GetSeriesMetaRequest, PurgeMetaRequest, SeriesMeta, SyncMetaRequest,
    SyncMetaResponse, UpdateSeriesMetaRequest,
};
use oxtsdb_proto::error::reason_of;
use oxtsdb_row_store::intercept::InterceptedStore;
use oxtsdb_row_store::memory::MemoryStore;
use oxtsdb_row_store::{ColumnSelection, RowStore, WriteBatch};
use oxtsdb_schema::{Timestamp, Value};
use oxtsdb_test_stack::{Pass, TestStack};
use prost_types::FieldMask;
use tonic::{Code, Status};
use uid_service::UidSettings;

use crate::grpc::SeriesMetaHandler;
use crate::test_handlers::series_meta_handler;

const TSUID: [u8; 9] = [0, 0, 1, 0, 0, 1, 0, 0, 1];

type Client = SeriesMetaServiceClient<SeriesMetaServiceServer<SeriesMetaHandler>>;

/// The embedded store, and one like HBase.
async fn stacks(settings: &DataSettings) -> Vec<TestStack> {
    let mut stacks = Vec::new();
    for is_embedded in [true, false] {
        let store = MemoryStore::new();
        let intercepted = InterceptedStore::new(Arc::new(store.clone()), Arc::new(Pass));
        let (settings, uid_settings) = (settings.clone(), UidSettings::default());
        let stack = if is_embedded {
            let shared: Arc<dyn RowStore> = Arc::new(intercepted);
            TestStack::over(store, Arc::clone(&shared), shared, settings, uid_settings).await
        } else {
            let shared: Arc<dyn RowStore> = Arc::new(intercepted.like_hbase());
            TestStack::over_hbase(store, Arc::clone(&shared), shared, settings, uid_settings).await
        };
        stacks.push(stack);
    }
    stacks
}

fn client(stack: &TestStack) -> Client {
    SeriesMetaServiceClient::new(SeriesMetaServiceServer::new(series_meta_handler(stack), 4 << 20))
}

async fn write(stack: &TestStack, host: &str, seconds: u32) {
    let point = NewPoint {
        metric: "m",
        tags: &[("host", host)],
        timestamp: Timestamp::from_seconds(seconds),
        value: Value::Int(1),
    };
    stack.service.writer.write(&[point], None).await.unwrap();
}

fn by_name(host: &str) -> Option<SeriesKey> {
    let name = SeriesName {
        metric: "m".to_owned(),
        tags: vec![Tag {
            key: "host".to_owned(),
            value: host.to_owned(),
        }],
    };
    Some(SeriesKey {
        key: Some(series_key::Key::Name(name)),
    })
}

fn by_tsuid(tsuid: &[u8]) -> Option<SeriesKey> {
    Some(SeriesKey {
        key: Some(series_key::Key::Tsuid(tsuid.to_vec().into())),
    })
}

async fn get(client: &mut Client, series: Option<SeriesKey>) -> Result<SeriesMeta, Status> {
    let response = client.get_series_meta(GetSeriesMetaRequest { series }).await?;
    Ok(response.into_inner().meta.unwrap())
}

async fn update(
    client: &mut Client,
    meta: SeriesMeta,
    paths: Option<&[&str]>,
    allow_missing: bool,
) -> Result<SeriesMeta, Status> {
    let request = UpdateSeriesMetaRequest {
        series: by_name("a"),
        meta: Some(meta),
        update_mask: paths.map(|paths| FieldMask {
            paths: paths.iter().map(|path| (*path).to_owned()).collect(),
        }),
        allow_missing,
    };
    let response = client.update_series_meta(request).await?;
    Ok(response.into_inner().meta.unwrap())
}

fn failure<T: std::fmt::Debug>(result: Result<T, Status>) -> (Code, Option<ErrorReason>) {
    let status = result.unwrap_err();
    (status.code(), reason_of(&status))
}

/// The stored document of series `host=a`.
async fn stored(stack: &TestStack) -> Option<String> {
    let table = "tsdb-meta".parse().unwrap();
    let row = stack
        .store
        .get(&table, &TSUID, &ColumnSelection::All)
        .await
        .unwrap()?;
    let cell = row.get("name", b"ts_meta")?;
    Some(String::from_utf8(cell.value.to_vec()).unwrap())
}

async fn put(stack: &TestStack, table: &str, row: &[u8], qualifier: &[u8], value: &[u8]) {
    let mut batch = WriteBatch::new(table.parse().unwrap());
    let family = batch.family("name");
    batch.row(row).put(family, qualifier, value);
    stack.store.write(batch).await.unwrap();
}

#[tokio::test]
async fn a_series_has_metadata_once_it_is_tracked() {
    for stack in stacks(&DataSettings::default()).await {
        let mut client = client(&stack);
        assert_eq!(
            failure(get(&mut client, by_name("a")).await),
            (Code::NotFound, Some(ErrorReason::NameNotFound))
        );
        let is_embedded = stack.service.engine.storage().index.is_some();
        write(&stack, "a", 1_356_998_400).await;
        if !is_embedded {
            assert_eq!(
                failure(get(&mut client, by_name("a")).await),
                (Code::NotFound, Some(ErrorReason::SeriesNotFound)),
                "tracking is off"
            );
            continue;
        }
        let meta = get(&mut client, by_name("a")).await.unwrap();
        assert_eq!(meta, get(&mut client, by_tsuid(&TSUID)).await.unwrap());
        assert_eq!(
            (&*meta.tsuid, meta.name.clone().unwrap().tags[0].value.as_str()),
            (&TSUID[..], "a")
        );
        assert_eq!((meta.total_points, meta.etag.as_str()), (Some(1), ""));
        assert!(meta.last_received.is_some() && meta.created.is_none());
        assert_eq!(
            failure(get(&mut client, by_tsuid(&[0, 0, 1])).await),
            (Code::InvalidArgument, Some(ErrorReason::InvalidUidWidth))
        );
        assert_eq!(
            failure(get(&mut client, None).await),
            (Code::InvalidArgument, Some(ErrorReason::InvalidField))
        );
    }
}

#[tokio::test]
async fn changes_are_stored_as_opentsdb_stores_them() {
    let mut settings = DataSettings::default();
    settings.series_index.enable_tsuid_tracking = true;
    for stack in stacks(&settings).await {
        let mut client = client(&stack);
        write(&stack, "a", 1_356_998_400).await;
        let change = SeriesMeta {
            units: "pct".to_owned(),
            retention_days: 30,
            max: Some(100.0),
            min: Some(-1.5),
            ..SeriesMeta::default()
        };
        assert_eq!(
            failure(update(&mut client, change.clone(), None, false).await),
            (Code::NotFound, Some(ErrorReason::SeriesNotFound))
        );
        let first = update(&mut client, change.clone(), None, true).await.unwrap();
        let expected = r#"{"tsuid":"000001000001000001","displayName":"","description":"","notes":"","created":0,"custom":null,"units":"pct","dataType":"","retention":30,"max":100.0,"min":-1.5}"#;
        assert_eq!(stored(&stack).await.unwrap(), expected);
        assert_eq!(first, get(&mut client, by_name("a")).await.unwrap());
        assert_eq!(first.total_points, Some(1), "the counter that was there is kept");

        let other = SeriesMeta {
            notes: "n".to_owned(),
            etag: first.etag.clone(),
            ..SeriesMeta::default()
        };
        let second = update(&mut client, other.clone(), Some(&["notes", "max"]), false)
            .await
            .unwrap();
        assert_eq!((second.max, second.units.as_str()), (None, "pct"));
        assert_eq!(
            failure(update(&mut client, other, None, false).await),
            (Code::Aborted, Some(ErrorReason::EtagMismatch))
        );
        assert_eq!(
            failure(update(&mut client, change, Some(&["total_points"]), false).await),
            (Code::InvalidArgument, Some(ErrorReason::InvalidField))
        );
        let delete = |etag: &str| DeleteSeriesMetaRequest {
            series: by_name("a"),
            etag: etag.to_owned(),
        };
        let stale = client.delete_series_meta(delete(&first.etag)).await;
        assert_eq!(failure(stale), (Code::Aborted, Some(ErrorReason::EtagMismatch)));
        client.delete_series_meta(delete(&second.etag)).await.unwrap();
        client.delete_series_meta(delete("")).await.unwrap();
        assert_eq!(stored(&stack).await, None);
        assert_eq!(
            get(&mut client, by_name("a")).await.unwrap().total_points,
            Some(1)
        );
    }
}

#[tokio::test]
async fn a_created_series_has_a_counter_of_0_and_is_announced() {
    for stack in stacks(&DataSettings::default()).await {
        let names = [("metrics", "m"), ("tagk", "host"), ("tagv", "a")];
        let names = names.map(|(kind, name)| (kind.parse().unwrap(), name));
        stack.uid_client.get_or_create_uids(&names, true).await.unwrap();
        let mut announced = stack.service.writer.meta_table().new_series().subscribe(10);
        let change = SeriesMeta {
            notes: "made".to_owned(),
            ..SeriesMeta::default()
        };
        let made = update(&mut client(&stack), change, None, true).await.unwrap();
        assert_eq!((made.total_points, made.created), (Some(0), None));
        assert_eq!(announced.try_recv().unwrap().tsuid.as_bytes(), TSUID);
    }
}

#[tokio::test]
async fn damaged_cells_are_data_loss() {
    for stack in stacks(&DataSettings::default()).await {
        let mut client = client(&stack);
        write(&stack, "a", 1_356_998_400).await;
        put(&stack, "tsdb-meta", &TSUID, b"ts_meta", b"{").await;
        let corrupt = (Code::DataLoss, Some(ErrorReason::CorruptCell));
        assert_eq!(failure(get(&mut client, by_name("a")).await), corrupt);
        put(&stack, "tsdb-meta", &TSUID, b"ts_meta", b"{}").await;
        put(&stack, "tsdb-meta", &TSUID, b"ts_ctr", b"{").await;
        assert_eq!(failure(get(&mut client, by_name("a")).await), corrupt);
    }
}

async fn sync(client: &mut Client, validate_only: bool, start_after: &[u8]) -> SyncMetaResponse {
    let request = SyncMetaRequest {
        validate_only,
        start_after: start_after.to_vec().into(),
    };
    let stream = client.sync_meta(request).await.unwrap().into_inner();
    let messages: Vec<SyncMetaResponse> = stream.try_collect().await.unwrap();
    assert!(messages.last().unwrap().position.is_empty());
    let sum = |count: fn(&SyncMetaResponse) -> u64| messages.iter().map(count).sum();
    SyncMetaResponse {
        rows: sum(|message| message.rows),
        series: sum(|message| message.series),
        series_created: sum(|message| message.series_created),
        series_corrected: sum(|message| message.series_corrected),
        uids_created: sum(|message| message.uids_created),
        uids_corrected: sum(|message| message.uids_corrected),
        failed: sum(|message| message.failed),
        position: messages[0].position.clone(),
    }
}

#[tokio::test]
async fn sync_creates_and_corrects_metadata() {
    for salt_width in [0, 1] {
        let mut settings = DataSettings::default();
        settings.tables.salt_width = salt_width;
        for stack in stacks(&settings).await {
            let mut client = client(&stack);
            for (host, hours) in [("a", [1, 2, 3]), ("b", [2, 3, 4]), ("c", [5, 6, 7])] {
                for hour in hours {
                    write(&stack, host, 1_356_998_400 + hour * 3600 + 5).await;
                }
            }
            put(
                &stack,
                "tsdb-meta",
                &[0, 0, 1, 0, 0, 1, 0, 0, 2],
                b"ts_meta",
                b"{\"created\":0}",
            )
            .await;
            put(
                &stack,
                "tsdb-meta",
                &[0, 0, 1, 0, 0, 1, 0, 0, 3],
                b"ts_meta",
                b"{broken",
            )
            .await;
            put(
                &stack,
                "tsdb-uid",
                &[0, 0, 1],
                b"metric_meta",
                b"{\"created\":2000000000}",
            )
            .await;
            let expected = SyncMetaResponse {
                rows: 9,
                series: 3,
                series_created: 1,
                series_corrected: 1,
                uids_created: 4,
                uids_corrected: 1,
                failed: 1,
                position: Vec::new().into(),
            };
            assert_eq!(sync(&mut client, true, b"").await, expected);
            assert_eq!(stored(&stack).await, None, "only a plan");
            let mut announced = stack.service.writer.meta_table().new_series().subscribe(10);
            assert_eq!(sync(&mut client, false, b"").await, expected);
            assert_eq!(announced.try_recv().unwrap().tsuid.as_bytes(), TSUID);
            announced.try_recv().unwrap_err();
            let meta = get(&mut client, by_name("a")).await.unwrap();
            assert_eq!(meta.created.unwrap().seconds, 1_356_998_400 + 3600);
            assert_eq!(meta.total_points, Some(1));
            let meta = get(&mut client, by_name("b")).await.unwrap();
            assert_eq!(meta.created.unwrap().seconds, 1_356_998_400 + 2 * 3600);
            let uids: Vec<_> = [("metrics", [0, 0, 1]), ("tagk", [0, 0, 1]), ("tagv", [0, 0, 3])]
                .map(|(kind, uid)| {
                    (
                        kind.parse().unwrap(),
                        oxtsdb_schema::Uid::from_bytes(&uid).unwrap(),
                    )
                })
                .into();
            let created = stack.uid_client.get_uid_metas(&uids).await.unwrap().into_iter();
            let created = created.map(|meta| {
                let created = meta.unwrap().created.unwrap();
                (created.duration_since(std::time::UNIX_EPOCH).unwrap().as_secs() - 1_356_998_400) / 3600
            });
            assert_eq!(created.collect::<Vec<_>>(), [1, 1, 5], "hours");
            let again = sync(&mut client, false, b"").await;
            let unchanged = SyncMetaResponse {
                rows: 9,
                series: 3,
                failed: 1,
                ..SyncMetaResponse::default()
            };
            assert_eq!(again, unchanged);
        }
    }
}

#[tokio::test]
async fn a_sync_resumes_behind_a_row() {
    let stack = TestStack::start().await;
    let mut client = client(&stack);
    for number in 0..5000 {
        write(&stack, &format!("h{number}"), 1_356_998_400).await;
    }
    let messages: Vec<SyncMetaResponse> = {
        let request = SyncMetaRequest {
            validate_only: true,
            start_after: Vec::new().into(),
        };
        let stream = client.sync_meta(request).await.unwrap().into_inner();
        stream.try_collect().await.unwrap()
    };
    let series: Vec<u64> = messages.iter().map(|message| message.series).collect();
    assert_eq!(series, [2048, 2048, 904]);
    let rest = sync(&mut client, false, &messages[0].position).await;
    assert_eq!((rest.series, rest.series_created), (2952, 2952));
    let rest = sync(&mut client, false, b"").await;
    assert_eq!((rest.series, rest.series_created), (5000, 2048));
}

#[tokio::test]
async fn a_purge_keeps_counters_that_the_index_needs() {
    let mut settings = DataSettings::default();
    settings.series_index.enable_tsuid_tracking = true;
    for stack in stacks(&settings).await {
        let mut client = client(&stack);
        for number in 0..700 {
            write(&stack, &format!("h{number}"), 1_356_998_400).await;
        }
        sync(&mut client, false, b"").await;
        let is_embedded = stack.service.engine.storage().index.is_some();
        for (validate_only, documents, deleted) in [(true, 700, 0), (false, 700, 700), (false, 0, 0)] {
            let request = PurgeMetaRequest {
                validate_only,
                start_after: Vec::new().into(),
            };
            let stream = client.purge_meta(request).await.unwrap().into_inner();
            let messages: Vec<_> = stream.try_collect().await.unwrap();
            assert_eq!(
                messages.iter().map(|message| message.documents).sum::<u64>(),
                documents
            );
            assert_eq!(
                messages
                    .iter()
                    .map(|message| message.documents_deleted)
                    .sum::<u64>(),
                deleted
            );
            let counters: u64 = messages.iter().map(|message| message.counters_deleted).sum();
            assert_eq!(counters, if is_embedded { 0 } else { deleted });
            assert!(
                messages
                    .iter()
                    .all(|message| message.keeps_counters == is_embedded)
            );
        }
        assert_eq!(
            stack.cells("tsdb-meta").await.len(),
            if is_embedded { 700 } else { 0 }
        );
    }
}
