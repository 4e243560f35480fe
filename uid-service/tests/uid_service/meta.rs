//! Metadata of UIDs: documents byte for byte as OpenTSDB stores them, etags, concurrent changes.
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::support::{Failure, Service, Wrapped};
use oxtsdb_client::{Code, Error, ErrorReason, Uid, UidKind, UidMeta, UidMetaAction};
use oxtsdb_row_store::{ColumnSelection, RowStore as _, WriteBatch};
use uid_service::UidSettings;

const UID: [u8; 3] = [0, 0, 1];

fn uid() -> Uid {
    Uid::from_bytes(&UID).unwrap()
}

fn at(seconds: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(seconds)
}

/// The service over an atomic store and over one like HBase, with metric `m`.
async fn services(settings: &UidSettings) -> Vec<Service> {
    let mut services = Vec::new();
    for store in [Wrapped::atomic(), Wrapped::stepwise()] {
        let service = Service::start(store, settings).await;
        service.assign(UidKind::Metric, &["m"]).await;
        services.push(service);
    }
    services
}

async fn stored(service: &Service) -> Option<String> {
    stored_as(service, b"metric_meta").await
}

async fn stored_as(service: &Service, qualifier: &[u8]) -> Option<String> {
    let table = "tsdb-uid".parse().unwrap();
    let row = service.store.inner.get(&table, &UID, &ColumnSelection::All).await;
    let row = row.unwrap()?;
    let cell = row.get("name", qualifier)?;
    Some(String::from_utf8(cell.value.to_vec()).unwrap())
}

async fn store(service: &Service, document: &str) {
    let mut batch = WriteBatch::new("tsdb-uid".parse().unwrap());
    let family = batch.family("name");
    batch.row(&UID).put(family, b"metric_meta", document.as_bytes());
    service.store.inner.write(batch).await.unwrap();
}

fn reason(error: &Error) -> (Code, Option<ErrorReason>) {
    let Error::Rejected(rejection) = error else {
        panic!("{error}")
    };
    (rejection.code, rejection.reason)
}

#[tokio::test]
async fn a_uid_without_a_document_has_its_name_and_no_etag() {
    for service in services(&UidSettings::default()).await {
        let meta = service.client.get_uid_meta(UidKind::Metric, uid()).await.unwrap();
        let expected = UidMeta {
            name: "m".to_owned(),
            ..UidMeta::new(UidKind::Metric, uid())
        };
        assert_eq!(meta, expected);
        let error = service
            .client
            .get_uid_meta(UidKind::Tagk, uid())
            .await
            .unwrap_err();
        assert_eq!(reason(&error), (Code::NotFound, Some(ErrorReason::UidNotFound)));
        let wide = Uid::from_bytes(&[0, 0, 0, 1]).unwrap();
        let error = service
            .client
            .get_uid_meta(UidKind::Tagk, wide)
            .await
            .unwrap_err();
        assert_eq!(
            reason(&error),
            (Code::InvalidArgument, Some(ErrorReason::InvalidUidWidth))
        );
    }
}

#[tokio::test]
async fn a_change_stores_what_opentsdb_stores() {
    for service in services(&UidSettings::default()).await {
        // Vector V95.
        let custom = [
            ("owner", "Jane"),
            ("department", "Ops"),
            ("z", "1"),
            ("a", "2"),
            ("mm", "3"),
        ];
        let change = UidMeta {
            display_name: "CPU".to_owned(),
            created: Some(at(1_356_998_400)),
            custom: Some(
                custom
                    .map(|(key, value)| (key.to_owned(), Some(value.to_owned())))
                    .into(),
            ),
            ..UidMeta::new(UidKind::Metric, uid())
        };
        let changed = service.client.update_uid_meta(&change, None).await.unwrap();
        assert_eq!(
            stored(&service).await.unwrap(),
            r#"{"type":"METRIC","displayName":"CPU","description":"","notes":"","created":1356998400,"custom":{"owner":"Jane","mm":"3","a":"2","z":"1","department":"Ops"}}"#
        );
        let stored_order = changed
            .custom
            .as_ref()
            .unwrap()
            .iter()
            .map(|(key, _)| key.as_str());
        assert_eq!(
            stored_order.collect::<Vec<_>>(),
            ["owner", "mm", "a", "z", "department"]
        );
        let expected = UidMeta {
            name: "m".to_owned(),
            etag: changed.etag.clone(),
            custom: changed.custom.clone(),
            ..change.clone()
        };
        assert_eq!(changed, expected);
        // A mask clears what it names.
        let change = UidMeta::new(UidKind::Metric, uid());
        let changed = service
            .client
            .update_uid_meta(&change, Some(&["custom"]))
            .await
            .unwrap();
        assert!(changed.custom.is_none() && changed.display_name == "CPU");
        assert!(stored(&service).await.unwrap().ends_with(r#""custom":null}"#));
        assert_eq!(
            service
                .client
                .get_uid_metas(&[(UidKind::Metric, uid())])
                .await
                .unwrap(),
            [Ok(changed)]
        );
    }
}

#[tokio::test]
async fn a_document_that_opentsdb_wrote_is_compared_as_it_is() {
    for service in services(&UidSettings::default()).await {
        store(&service, r#"{"unknown":[1],"created":5,"notes":"theirs"}"#).await;
        let change = UidMeta {
            display_name: "ours".to_owned(),
            ..UidMeta::new(UidKind::Metric, uid())
        };
        service.client.update_uid_meta(&change, None).await.unwrap();
        assert_eq!(
            stored(&service).await.unwrap(),
            r#"{"type":"METRIC","displayName":"ours","description":"","notes":"theirs","created":5,"custom":null}"#
        );
    }
}

#[tokio::test]
async fn a_change_that_a_gateway_repeats_is_no_other_version() {
    let store = Wrapped::stepwise().failing_after(usize::MAX, Failure::Repeated);
    let service = Service::start(store, &UidSettings::default()).await;
    assert_eq!(service.assign(UidKind::Metric, &["m"]).await, ["000001"]);
    let change = |notes: &str, etag: &str| UidMeta {
        notes: notes.to_owned(),
        etag: etag.to_owned(),
        ..UidMeta::new(UidKind::Metric, uid())
    };
    let first = service
        .client
        .update_uid_meta(&change("1", ""), None)
        .await
        .unwrap();
    let second = service
        .client
        .update_uid_meta(&change("2", &first.etag), None)
        .await;
    assert_eq!(second.unwrap().notes, "2");
}

#[tokio::test]
async fn an_etag_rejects_changes_of_another_version() {
    for service in services(&UidSettings::default()).await {
        let change = |notes: &str, etag: &str| UidMeta {
            notes: notes.to_owned(),
            etag: etag.to_owned(),
            ..UidMeta::new(UidKind::Metric, uid())
        };
        let client = &service.client;
        let first = client.update_uid_meta(&change("1", ""), None).await.unwrap();
        let second = client
            .update_uid_meta(&change("2", &first.etag), None)
            .await
            .unwrap();
        assert_ne!(first.etag, second.etag);
        let error = client
            .update_uid_meta(&change("3", &first.etag), None)
            .await
            .unwrap_err();
        assert_eq!(reason(&error), (Code::Aborted, Some(ErrorReason::EtagMismatch)));
        let error = client
            .delete_uid_meta(UidKind::Metric, uid(), Some(&first.etag))
            .await;
        assert_eq!(
            reason(&error.unwrap_err()),
            (Code::Aborted, Some(ErrorReason::EtagMismatch))
        );
        assert!(stored(&service).await.unwrap().contains(r#""notes":"2""#));
        // The etag depends on the stored bytes only, not on the writer.
        store(&service, &stored(&service).await.unwrap()).await;
        client
            .delete_uid_meta(UidKind::Metric, uid(), Some(&second.etag))
            .await
            .unwrap();
        assert_eq!(stored(&service).await, None);
        client
            .delete_uid_meta(UidKind::Metric, uid(), None)
            .await
            .unwrap();
        assert_eq!(
            client.get_uid_meta(UidKind::Metric, uid()).await.unwrap().name,
            "m"
        );
    }
}

#[tokio::test]
async fn concurrent_changes_of_different_fields_all_take_effect() {
    for service in services(&UidSettings::default()).await {
        let changes = (0..24).map(|number| {
            let client = service.client.clone();
            tokio::spawn(async move {
                let mut change = UidMeta::new(UidKind::Metric, uid());
                let text = format!("by {number}");
                let field = match number % 3 {
                    0 => {
                        change.notes = text;
                        "notes"
                    }
                    1 => {
                        change.description = text;
                        "description"
                    }
                    _ => {
                        change.display_name = text;
                        "display_name"
                    }
                };
                client.update_uid_meta(&change, Some(&[field])).await.unwrap();
            })
        });
        for change in futures::future::join_all(changes).await {
            change.unwrap();
        }
        let meta = service.client.get_uid_meta(UidKind::Metric, uid()).await.unwrap();
        for text in [meta.notes, meta.description, meta.display_name] {
            assert!(text.starts_with("by "), "lost: `{text}`");
        }
    }
}

#[tokio::test]
async fn rejects_unknown_fields_and_damaged_documents() {
    for service in services(&UidSettings::default()).await {
        let change = UidMeta::new(UidKind::Metric, uid());
        let error = service
            .client
            .update_uid_meta(&change, Some(&["name"]))
            .await
            .unwrap_err();
        assert_eq!(
            reason(&error),
            (Code::InvalidArgument, Some(ErrorReason::InvalidField))
        );
        store(&service, "{broken").await;
        let error = service
            .client
            .update_uid_meta(&change, Some(&["notes"]))
            .await
            .unwrap_err();
        assert_eq!(reason(&error), (Code::DataLoss, Some(ErrorReason::CorruptCell)));
        let large = UidMeta {
            notes: "x".repeat(2 << 20),
            ..change
        };
        service
            .client
            .delete_uid_meta(UidKind::Metric, uid(), None)
            .await
            .unwrap();
        let error = service.client.update_uid_meta(&large, None).await.unwrap_err();
        assert_eq!(
            reason(&error),
            (Code::InvalidArgument, Some(ErrorReason::InvalidField))
        );
    }
}

#[tokio::test]
async fn new_uids_have_documents_if_the_setting_says_so() {
    let mut settings = UidSettings::default();
    settings.naming.enable_realtime_uid = true;
    for service in services(&settings).await {
        let meta = service.client.get_uid_meta(UidKind::Metric, uid()).await.unwrap();
        let created = meta.created.unwrap();
        assert!(created.elapsed().unwrap_or_default() < Duration::from_secs(60));
        let seconds = created.duration_since(UNIX_EPOCH).unwrap().as_secs();
        assert_eq!(
            stored(&service).await.unwrap(),
            format!(
                r#"{{"type":"METRIC","displayName":"","description":"","notes":"","created":{seconds},"custom":null}}"#
            )
        );
        assert!(!meta.etag.is_empty());
        service.assign(UidKind::Tagv, &["v"]).await;
        assert!(stored_as(&service, b"tagv_meta").await.is_some());
    }
}

#[tokio::test]
async fn sync_creates_and_corrects_documents() {
    for service in services(&UidSettings::default()).await {
        service.assign(UidKind::Tagk, &["k"]).await;
        let missing = (UidKind::Tagv, uid(), at(7200));
        let metric = (UidKind::Metric, uid(), at(7200));
        let tagk = (UidKind::Tagk, uid(), at(7200));
        let sync = async |plan_only| {
            let done = service
                .client
                .sync_uid_meta(&[metric, missing, tagk], plan_only)
                .await
                .unwrap();
            let [first, second, third] = &done[..] else {
                panic!("{done:?}")
            };
            let rejection = second.as_ref().unwrap_err();
            assert_eq!(rejection.reason, Some(ErrorReason::UidNotFound));
            (*first.as_ref().unwrap(), *third.as_ref().unwrap())
        };
        store(&service, r#"{"type":"METRIC","created":10801}"#).await;
        assert_eq!(
            sync(true).await,
            (UidMetaAction::Corrected, UidMetaAction::Created)
        );
        assert_eq!(stored_as(&service, b"tagk_meta").await, None);
        assert_eq!(
            sync(false).await,
            (UidMetaAction::Corrected, UidMetaAction::Created)
        );
        for qualifier in [&b"metric_meta"[..], b"tagk_meta"] {
            let document = stored_as(&service, qualifier).await.unwrap();
            assert!(document.contains(r#""created":7200,"#), "{document}");
        }
        assert_eq!(sync(false).await, (UidMetaAction::None, UidMetaAction::None));
        store(&service, r#"{"type":"METRIC","created":10800}"#).await;
        assert_eq!(sync(false).await, (UidMetaAction::None, UidMetaAction::None));
    }
}

#[tokio::test]
async fn a_purge_deletes_the_documents_of_all_kinds() {
    let mut settings = UidSettings::default();
    settings.naming.enable_realtime_uid = true;
    for service in services(&settings).await {
        let names: Vec<String> = (0..1500).map(|number| format!("v{number}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        service.assign(UidKind::Tagv, &names).await;
        for (plan_only, expected) in [(true, (1501, 0)), (false, (1501, 1501)), (false, (0, 0))] {
            let purge = service.client.purge_uid_meta(plan_only);
            let progress = purge.collect().await.unwrap();
            let last = progress.last().unwrap();
            assert_eq!((last.documents, last.deleted), expected);
        }
        assert_eq!(stored(&service).await, None);
        let meta = service.client.get_uid_meta(UidKind::Metric, uid()).await.unwrap();
        assert_eq!((meta.name.as_str(), meta.etag.as_str()), ("m", ""));
    }
}
