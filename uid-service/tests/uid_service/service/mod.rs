//! The service through its generated client, in one process.
mod changes;
mod in_use;
mod listing;
mod watch;

use crate::support;
use crate::support::{
    Failure, Service, Wrapped, cell, check_invariants, counter, outcome, pb_kind, uid_name,
};
use oxtsdb_client::{AssignedUid, Rejection};
use oxtsdb_proto::common::v1::ErrorReason;
use oxtsdb_proto::error::reason_of;
use oxtsdb_proto::uid::v1::uid_service_client::UidServiceClient;
use oxtsdb_proto::uid::v1::{self as pb, UidValue};
use oxtsdb_row_store::RowStore as _;
use oxtsdb_schema::Uid;
use oxtsdb_schema::UidKind::{self, Metric, Tagk, Tagv};
use tonic::Code;
use uid_service::UidSettings;

async fn service() -> Service {
    Service::start(Wrapped::atomic(), &UidSettings::default()).await
}

fn uid_value(kind: UidKind, uid: &str) -> UidValue {
    UidValue {
        kind: pb_kind(kind).into(),
        uid: hex::decode(uid).unwrap().into(),
    }
}

async fn raw(
    store: Wrapped,
) -> UidServiceClient<pb::uid_service_server::UidServiceServer<uid_service::UidServiceHandler>> {
    let service = support::assemble(&store, &UidSettings::default()).await.unwrap();
    UidServiceClient::new(service.uids)
}

/// A result of the generated client as the typed client returns it.
fn decoded(result: pb::get_or_create_uids_response::Result) -> Result<AssignedUid, Rejection> {
    use pb::get_or_create_uids_response::result::Outcome;

    match result.outcome.expect("every result has an outcome") {
        Outcome::Uid(uid) => Ok(AssignedUid {
            uid: Uid::from_bytes(&uid).unwrap(),
            created: result.created,
        }),
        Outcome::Error(error) => Err(error.into()),
    }
}

#[tokio::test]
async fn an_invalid_item_does_not_affect_the_others() {
    let mut client = raw(Wrapped::atomic()).await;
    let names = vec![
        uid_name(Metric, "good"),
        uid_name(Metric, "bad name"),
        uid_name(Metric, ""),
        uid_name(Tagk, "日本"),
        pb::UidName {
            kind: 0,
            name: "x".into(),
            tag_key: String::new(),
        },
        uid_name(Metric, &"x".repeat(40_000)),
        uid_name(Metric, "good"),
        uid_name(Tagv, "good"),
    ];
    let request = pb::GetOrCreateUidsRequest {
        names,
        explicit: false,
        ..Default::default()
    };
    let response = client.get_or_create_uids(request).await.unwrap().into_inner();
    let results: Vec<_> = response.results.into_iter().map(decoded).collect();
    let outcomes: Vec<String> = results.iter().map(outcome).collect();
    assert_eq!(
        outcomes,
        [
            "000001",
            "INVALID_NAME",
            "INVALID_NAME",
            "INVALID_NAME",
            "INVALID_FIELD",
            "INVALID_NAME",
            "000001",
            "000001"
        ]
    );
    let created: Vec<bool> = results
        .iter()
        .map(|result| result.as_ref().is_ok_and(|assigned| assigned.created))
        .collect();
    assert_eq!(
        created,
        [true, false, false, false, false, false, false, true],
        "a duplicate is created once"
    );
    let error = results[1].as_ref().expect_err("a bad name has an error");
    assert_eq!(
        (error.code, error.is_retry_safe()),
        (Code::InvalidArgument, false)
    );
    assert_eq!(
        error.message,
        "names[1]: name `bad name` has the illegal character ` ` at position 3, \
         allowed are letters, digits, `-`, `_`, `.`, `/` and what --extra-name-characters of the UID service adds"
    );
    assert_eq!(
        (error.metadata["kind"].as_str(), error.metadata["name"].as_str()),
        ("UID_KIND_METRIC", "bad name")
    );
}

#[tokio::test]
async fn a_batch_has_1_to_4096_items() {
    let mut client = raw(Wrapped::atomic()).await;
    for items in [0, 4097] {
        let names: Vec<_> = (0..items).map(|i| uid_name(Metric, &format!("m{i}"))).collect();
        let request = pb::GetOrCreateUidsRequest {
            names: names.clone(),
            explicit: false,
            ..Default::default()
        };
        let errors = [
            client.get_or_create_uids(request).await.unwrap_err(),
            client
                .lookup_uids(pb::LookupUidsRequest {
                    names,
                    bypass_cache: false,
                    ..Default::default()
                })
                .await
                .unwrap_err(),
            client
                .lookup_names(pb::LookupNamesRequest {
                    uids: vec![uid_value(Metric, "000001"); items],
                    bypass_cache: false,
                    ..Default::default()
                })
                .await
                .unwrap_err(),
        ];
        for error in errors {
            assert_eq!(error.code(), Code::InvalidArgument, "{error}");
            assert_eq!(reason_of(&error), Some(ErrorReason::BatchTooLarge));
            assert!(
                error
                    .message()
                    .ends_with(&format!("has {items} items, 1 to 4096 are allowed"))
            );
        }
    }
    let names = (0..4096).map(|i| uid_name(Metric, &format!("m{i:04}"))).collect();
    let full = client
        .get_or_create_uids(pb::GetOrCreateUidsRequest {
            names,
            explicit: false,
            ..Default::default()
        })
        .await
        .unwrap();
    let uids: Vec<String> = full
        .into_inner()
        .results
        .into_iter()
        .map(|result| outcome(&decoded(result)))
        .collect();
    let consecutive: Vec<String> = (1..=4096).map(|number| format!("{number:06x}")).collect();
    assert_eq!(uids, consecutive, "in the order of the request");
}

#[tokio::test]
async fn lookups_return_mappings_or_errors_by_item() {
    let service = service().await;
    service.assign(Metric, &["sys.cpu", "é"]).await;
    // OpenTSDB's command line stores names that no rule allows.
    service.put(b"odd name!", "id", Metric, &[0, 0, 9]).await;
    let names = ["é", "nobody", "odd name!", "\u{0}", "sys.cpu", "日"];
    let results = service
        .client
        .lookup_uids(&names.map(|name| (Metric, name)))
        .await;
    let outcomes: Vec<String> = results
        .unwrap()
        .into_iter()
        .map(|result| match result {
            Ok(uid) => hex::encode(uid.as_bytes()),
            Err(rejection) => format!("{:?}", rejection.reason.unwrap()),
        })
        .collect();
    assert_eq!(
        outcomes,
        [
            "000002",
            "NameNotFound",
            "000009",
            "NameNotFound",
            "000001",
            "InvalidName"
        ]
    );

    let uids = ["000001", "000002", "000003", "0001"];
    let uids = uids.map(|uid| (Metric, Uid::parse(uid).unwrap()));
    let results = service.client.lookup_names(&uids).await.unwrap();
    let outcomes: Vec<String> = results
        .into_iter()
        .map(|result| {
            result
                .unwrap_or_else(|rejection| format!("{:?} {}", rejection.reason.unwrap(), rejection.message))
        })
        .collect();
    assert_eq!(
        outcomes,
        [
            "sys.cpu",
            "é",
            "UidNotFound no such UID for `metrics`: 000003",
            "InvalidUidWidth uids[3]: UID of `metrics` has 2 bytes, expected 3"
        ]
    );
}

#[tokio::test]
async fn the_cache_is_bypassed_on_request() {
    let store = Wrapped::atomic();
    let mut client = raw(store.clone()).await;
    let service = Service {
        client: oxtsdb_client::UidClient::in_process(
            support::assemble(&store, &UidSettings::default())
                .await
                .unwrap()
                .routes(),
        ),
        store,
    };
    let mut uid_of_a = async |bypass_cache| {
        let names = vec![uid_name(Metric, "a")];
        let response = client
            .lookup_uids(pb::LookupUidsRequest {
                names,
                bypass_cache,
                ..Default::default()
            })
            .await
            .unwrap();
        match response.into_inner().results.remove(0).outcome.unwrap() {
            pb::lookup_uids_response::result::Outcome::Uid(uid) => hex::encode(uid),
            pb::lookup_uids_response::result::Outcome::Error(error) => format!("{:?}", error.reason()),
        }
    };
    assert_eq!(uid_of_a(false).await, "NameNotFound");
    assert_eq!(service.assign(Metric, &["a"]).await, ["000001"]);
    assert_eq!(uid_of_a(false).await, "000001", "that it was unknown is not kept");
    service.put(b"a", "id", Metric, &[0, 0, 7]).await;
    assert_eq!(uid_of_a(false).await, "000001");
    assert_eq!(uid_of_a(true).await, "000007");
    assert_eq!(uid_of_a(false).await, "000007", "and the cache has learnt of it");
}

#[tokio::test]
async fn explicit_calls_create_kinds_without_auto_create() {
    let mut settings = UidSettings::default();
    settings.naming.auto_create_metrics = false;
    let service = Service::start(Wrapped::atomic(), &settings).await;
    assert_eq!(service.assign(Metric, &["m"]).await, ["AUTO_CREATE_DISABLED"]);
    assert_eq!(service.assign(Tagk, &["host"]).await, ["000001"]);
    let explicit = service
        .client
        .get_or_create_uids(&[(Metric, "m")], true)
        .await
        .unwrap();
    assert_eq!(outcome(&explicit[0]), "000001");
    assert_eq!(
        service.assign(Metric, &["m", "n"]).await,
        ["000001", "AUTO_CREATE_DISABLED"]
    );
    let layout = service.client.get_uid_layout().await.unwrap();
    let auto: Vec<bool> = layout.kinds.iter().map(|kind| kind.auto_create).collect();
    assert_eq!(auto, [false, true, true]);
}

#[tokio::test]
async fn usage_and_layout_cover_each_kind() {
    let mut settings = UidSettings::default();
    settings.tables.uid_width_tagk = 1;
    settings.tables.uid_width_tagv = 8;
    settings.naming.extra_name_characters = " :".into();
    settings.naming.max_name_length = 100;
    let service = Service::start(Wrapped::stepwise(), &settings).await;
    service.assign(Tagk, &["a", "b", "c d:"]).await;
    let usage = service.client.get_uid_usage().await.unwrap().kinds;
    let numbers: Vec<(u64, u64)> = usage.iter().map(|kind| (kind.used, kind.available)).collect();
    assert_eq!(numbers, [(0, 0xff_ffff), (3, 252), (0, i64::MAX as u64)]);
    assert!(usage.iter().all(|kind| kind.read_time.is_some()));
    let layout = service.client.get_uid_layout().await.unwrap();
    assert_eq!(
        layout.kinds.iter().map(|kind| kind.width).collect::<Vec<_>>(),
        [3, 1, 8]
    );
    assert_eq!(
        (layout.extra_name_characters.as_str(), layout.max_name_length),
        (" :", 100)
    );
    let long = service.assign(Tagv, &[&"x".repeat(101), &"x".repeat(100)]).await;
    assert_eq!(long, ["INVALID_NAME", "0000000000000001"]);
}

#[tokio::test]
async fn random_metric_uids_do_not_change_the_counter() {
    for store in [Wrapped::atomic(), Wrapped::stepwise()] {
        let mut settings = UidSettings::default();
        settings.naming.random_metric_uids = true;
        settings.tables.uid_width_metric = 2;
        let service = Service::start(store, &settings).await;
        let names: Vec<String> = (0..500).map(|number| format!("m{number}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let uids = service.assign(Metric, &names).await;
        assert_eq!(service.assign(Metric, &names).await, uids);
        service.assign(Tagk, &["host"]).await;
        let (forward, reverse) = check_invariants(&service.store.inner).await;
        assert_eq!((forward.len(), reverse), (501, 501));
        let cells = service.cells().await;
        assert!(cells.contains(&counter(Tagk, 1)));
        assert!(
            !cells
                .iter()
                .any(|(row, _, kind, _)| row == &[0] && kind == b"metrics")
        );
        assert!(
            uids.windows(2).any(|pair| pair[0] > pair[1]),
            "500 random numbers do not ascend"
        );
        let usage = service.client.get_uid_usage().await.unwrap().kinds;
        assert_eq!((usage[0].used, usage[0].available), (500, 65_535 - 500));
    }
}

#[tokio::test]
async fn random_draws_without_a_free_uid_are_retryable() {
    for store in [Wrapped::atomic(), Wrapped::stepwise()] {
        let mut settings = UidSettings::default();
        settings.naming.random_metric_uids = true;
        settings.tables.uid_width_metric = 1;
        let service = Service::start(store, &settings).await;
        for number in 1..=255_u8 {
            service
                .put(&[number], "name", Metric, format!("m{number}").as_bytes())
                .await;
        }
        let results = service
            .client
            .get_or_create_uids(&[(Metric, "one.more")], false)
            .await
            .unwrap();
        assert_no_free_uid(&results[0]);
    }
}

/// The item failed, and another attempt may succeed.
fn assert_no_free_uid(result: &Result<AssignedUid, Rejection>) {
    assert_eq!(outcome(result), "NO_FREE_UID");
    let error = result.as_ref().expect_err("the item has an error");
    assert_eq!(error.code, Code::Unavailable);
    assert!(error.is_retry_safe(), "{error:?}");
    assert_eq!(error.metadata["kind"], "UID_KIND_METRIC");
}

#[tokio::test]
async fn a_counter_behind_used_uids_catches_up_over_several_attempts() {
    // Numbers in use that one attempt passes over at most: 4096, and 16 rounds of one number.
    for (store, passed_over) in [(Wrapped::atomic(), 4096_u32), (Wrapped::stepwise(), 16)] {
        let service = Service::start(store, &UidSettings::default()).await;
        for number in 1..=passed_over + 1 {
            let uid = &number.to_be_bytes()[1..];
            service
                .put(uid, "name", Metric, format!("m{number}").as_bytes())
                .await;
        }
        let names = [(Metric, "new"), (Tagk, "host")];
        let results = service.client.get_or_create_uids(&names, false).await.unwrap();
        assert_no_free_uid(&results[0]);
        assert_eq!(outcome(&results[1]), "000001", "the other kind");
        let results = service
            .client
            .get_or_create_uids(&names[..1], false)
            .await
            .unwrap();
        let uid = format!("{:06x}", passed_over + 2);
        assert_eq!(outcome(&results[0]), uid);
    }
}

#[tokio::test]
async fn skips_numbers_in_use() {
    for store in [Wrapped::atomic(), Wrapped::stepwise()] {
        let service = Service::start(store, &UidSettings::default()).await;
        service.put(&[0, 0, 2], "name", Metric, b"garbage").await;
        service.put(&[0, 0, 3], "name", Tagk, b"another kind").await;
        assert_eq!(service.assign(Metric, &["a", "b", "c"]).await.len(), 3);
        let (forward, _) = check_invariants(&service.store.inner).await;
        let uids: Vec<String> = forward.values().map(hex::encode).collect();
        assert_eq!(forward.len(), 3);
        assert!(!uids.contains(&"000002".to_owned()), "{uids:?}");
        assert!(service.cells().await.contains(&counter(Metric, 4)));
        assert!(
            service
                .cells()
                .await
                .contains(&cell(&[0, 0, 2], "name", Metric, b"garbage"))
        );
    }
}

#[tokio::test]
async fn a_corrupt_counter_affects_only_its_kind() {
    for store in [Wrapped::atomic(), Wrapped::stepwise()] {
        let service = Service::start(store, &UidSettings::default()).await;
        service.preset(Metric, &[0, 0, 3]).await;
        service.preset(Tagv, &(-5_i64).to_be_bytes()).await;
        let names = [(Metric, "m"), (Tagk, "k"), (Tagv, "v")];
        let results = service.client.get_or_create_uids(&names, false).await.unwrap();
        assert_eq!(
            results.iter().map(outcome).collect::<Vec<_>>(),
            ["CORRUPT_CELL", "000001", "CORRUPT_CELL"]
        );
        let error = results[0].as_ref().expect_err("the first item has an error");
        assert_eq!(
            error.message,
            "no UID can be assigned to `metrics`: UID counter `000003` has 3 bytes, expected 8"
        );
        assert_eq!(
            (
                error.metadata["row_key"].as_str(),
                error.metadata["qualifier"].as_str()
            ),
            ("00", "metrics")
        );
        let error = service.client.get_uid_usage().await.unwrap_err();
        assert_eq!(error.code(), Code::DataLoss);
    }
}

#[tokio::test]
async fn detects_a_stored_width_that_differs_from_the_configured_one() {
    let service = Service::start(Wrapped::stepwise(), &UidSettings::default()).await;
    service.assign(Tagk, &["host"]).await;
    // A process with other settings writes to the same table.
    service.put(b"later", "id", Tagk, &[0, 0, 0, 2]).await;
    let results = service
        .client
        .get_or_create_uids(&[(Tagk, "later")], false)
        .await
        .unwrap();
    assert_eq!(outcome(&results[0]), "TABLE_MISMATCH");
    let error = results[0].as_ref().expect_err("the item has an error");
    assert_eq!(
        (
            error.metadata["stored_width"].as_str(),
            error.metadata["configured_width"].as_str()
        ),
        ("4", "3")
    );

    let mut settings = UidSettings::default();
    settings.tables.uid_width_tagk = 2;
    let error = support::assemble(&service.store, &settings).await.unwrap_err();
    assert_eq!(
        format!("{error:#}"),
        "table `tsdb-uid`: `host` of `tagk` has a UID of 3 bytes, but --uid-width-tagk is 2: set it to 3"
    );
}

#[tokio::test]
async fn rejects_a_table_with_other_families() {
    let store = Wrapped::atomic();
    let other = oxtsdb_row_store::TableDef::new(support::table(), &["t"]);
    store.inner.create_table(&other).await.unwrap();
    let error = support::assemble(&store, &UidSettings::default())
        .await
        .unwrap_err();
    assert_eq!(
        format!("{error:#}"),
        "create table `tsdb-uid`: table `tsdb-uid` exists with other column families: it has t (1 versions), \
         requested are id (1 versions), name (1 versions)"
    );
}

#[tokio::test]
async fn an_unavailable_store_fails_the_call() {
    let store = Wrapped::atomic();
    let service = Service::start(store.clone(), &UidSettings::default()).await;
    service.assign(Metric, &["known"]).await;
    // Of the start three counters and some UIDs are read; then the names and a counter, and the commit fails.
    let mut broken = raw(store.failing_after(4 + 2, Failure::Refused)).await;
    let names = vec![uid_name(Metric, "known"), uid_name(Metric, "new")];
    let request = pb::GetOrCreateUidsRequest {
        names: names.clone(),
        explicit: false,
        ..Default::default()
    };
    let results = broken
        .get_or_create_uids(request)
        .await
        .unwrap()
        .into_inner()
        .results;
    let results: Vec<_> = results.into_iter().map(decoded).collect();
    assert_eq!(
        results.iter().map(outcome).collect::<Vec<_>>(),
        ["000001", "STORE_UNAVAILABLE"]
    );
    let error = results[1].as_ref().expect_err("the second item has an error");
    assert!(error.is_retry_safe());
    let error = broken
        .lookup_uids(pb::LookupUidsRequest {
            names,
            bypass_cache: true,
            ..Default::default()
        })
        .await
        .unwrap_err();
    assert_eq!(
        (error.code(), reason_of(&error)),
        (Code::Unavailable, Some(ErrorReason::StoreUnavailable))
    );
}
