//! Names by prefix, and exports.

use futures::StreamExt as _;
use oxtsdb_proto::uid::v1::{self as pb, UidMapping};
use oxtsdb_schema::UidKind::{self, Metric, Tagk, Tagv};
use tonic::Code;
use uid_service::UidSettings;

use super::raw;
use crate::support::{Service, Wrapped, pb_kind, uid_name};

#[tokio::test]
async fn suggestions_are_paged_in_byte_order() {
    let store = Wrapped::atomic();
    let mut client = raw(store.clone()).await;
    let service = Service::start(store, &UidSettings::default()).await;
    let names = ["sys.b", "sys.c", "Sys.a", "sys.a", "sys", "é", "~", "syt", "zz"];
    let uids = service
        .client
        .get_or_create_uids(
            &names
                .into_iter()
                .filter(|name| *name != "~")
                .map(|name| (Metric, name))
                .collect::<Vec<_>>(),
            false,
        )
        .await
        .unwrap();
    assert_eq!(uids.len(), 8);
    service.put(b"~", "id", Metric, &[0, 0, 9]).await;
    service.assign(Tagk, &["sys.k"]).await;

    let mut pages = async |prefix: &str, page_size| {
        let mut names = Vec::new();
        let mut page_token = String::new();
        loop {
            let request = pb::SuggestNamesRequest {
                kind: pb_kind(Metric).into(),
                prefix: prefix.to_owned(),
                page_size,
                page_token: page_token.clone(),
            };
            let page = client.suggest_names(request).await.unwrap().into_inner();
            names.push(
                page.mappings
                    .into_iter()
                    .map(|mapping| mapping.name)
                    .collect::<Vec<_>>(),
            );
            page_token = page.next_page_token;
            if page_token.is_empty() {
                return names;
            }
        }
    };
    assert_eq!(
        pages("sys", 2).await,
        [vec!["sys", "sys.a"], vec!["sys.b", "sys.c"]]
    );
    assert_eq!(
        pages("sys", 3).await,
        [vec!["sys", "sys.a", "sys.b"], vec!["sys.c"]]
    );
    let all = ["Sys.a", "sys", "sys.a", "sys.b", "sys.c", "syt", "zz", "~", "é"];
    assert_eq!(pages("", 0).await.concat(), all, "the counters are no name");
    assert_eq!(pages("", 1).await.concat(), all);
    assert_eq!(pages("é", 0).await, [["é"]]);
    assert_eq!(pages("日", 0).await, [Vec::<String>::new()]);

    let mut rejection = async |kind: i32, prefix: &str, page_size, page_token: &str| {
        let (prefix, page_token) = (prefix.to_owned(), page_token.to_owned());
        let request = pb::SuggestNamesRequest {
            kind,
            prefix,
            page_size,
            page_token,
        };
        let error = client.suggest_names(request).await.unwrap_err();
        assert_eq!(error.code(), Code::InvalidArgument);
        error.message().to_owned()
    };
    assert!(
        rejection(0, "", 0, "")
            .await
            .starts_with("kind: 0 is not a kind of UID")
    );
    assert_eq!(
        rejection(1, "", -1, "").await,
        "page_size: is -1, at least 0 is expected"
    );
    for token in ["x", "00", "01", "0102616263", "0101616263", "ff"] {
        let message = rejection(1, "sys", 0, token).await;
        assert!(
            message.starts_with("page_token: is not from the page before"),
            "{token}: {message}"
        );
    }
}

#[tokio::test]
async fn suggestions_skip_damaged_rows() {
    let store = Wrapped::atomic();
    let service = Service::start(store.clone(), &UidSettings::default()).await;
    for number in 0..6 {
        // Too short for a UID.
        service
            .put(format!("b{number}").as_bytes(), "id", Metric, &[1])
            .await;
    }
    service.assign(Metric, &["a", "c", "d"]).await;
    let names = service.client.suggest_names(Metric, "", 3).await.unwrap();
    let names: Vec<_> = names.into_iter().map(|mapping| mapping.name).collect();
    assert_eq!(names, ["a", "c", "d"]);
    let request = pb::SuggestNamesRequest {
        kind: pb_kind(Metric).into(),
        page_size: 2,
        ..Default::default()
    };
    let mut client = raw(store).await;
    let page = client.suggest_names(request).await.unwrap().into_inner();
    assert_eq!(page.mappings.len(), 2);
    assert!(!page.next_page_token.is_empty(), "there is one more");
}

#[tokio::test]
async fn long_names_make_short_pages() {
    let store = Wrapped::atomic();
    let service = Service::start(store.clone(), &UidSettings::default()).await;
    for number in 0..40 {
        service
            .assign(Metric, &[&format!("{number:02}{}", "x".repeat(32_000))])
            .await;
    }
    let mut client = raw(store).await;
    let request = pb::SuggestNamesRequest {
        kind: 1,
        page_size: 3000,
        ..Default::default()
    };
    let page = client.suggest_names(request).await.unwrap().into_inner();
    assert_eq!(page.mappings.len(), 32, "a mebibyte of names");
    assert!(!page.next_page_token.is_empty());
    let mut export = client
        .export_uids(pb::ExportUidsRequest::default())
        .await
        .unwrap()
        .into_inner();
    let mut batches = Vec::new();
    while let Some(batch) = export.message().await.unwrap() {
        batches.push(batch.mappings.len());
    }
    assert_eq!(batches, [32, 8]);
}

#[tokio::test]
async fn an_export_is_complete_and_can_be_resumed() {
    let store = Wrapped::atomic();
    let service = Service::start(store.clone(), &UidSettings::default()).await;
    for kind in UidKind::ALL {
        let names: Vec<_> = (0..5000).map(|number| (kind, format!("n{number:04}"))).collect();
        service.client.get_or_create_uids(&names, false).await.unwrap();
    }
    let mut client = raw(store).await;
    let mut export = async |kinds: &[UidKind], start_after: Option<pb::UidName>| {
        let kinds = kinds.iter().map(|kind| pb_kind(*kind).into()).collect();
        let stream = client
            .export_uids(pb::ExportUidsRequest { kinds, start_after })
            .await
            .unwrap();
        let batches: Vec<_> = stream
            .into_inner()
            .map(|batch| batch.unwrap().mappings)
            .collect()
            .await;
        assert!(batches.iter().all(|batch| (1..=4096).contains(&batch.len())));
        batches.concat()
    };
    let all = export(&[], None).await;
    let expected: Vec<UidMapping> = UidKind::ALL
        .into_iter()
        .flat_map(|kind| {
            (0..5000_u32).map(move |number| UidMapping {
                kind: pb_kind(kind).into(),
                name: format!("n{number:04}"),
                uid: (number + 1).to_be_bytes()[1..].to_vec().into(),
            })
        })
        .collect();
    assert_eq!(all, expected);
    assert_eq!(
        export(&[Tagv, Metric, Tagv], None).await,
        [&all[..5000], &all[10_000..]].concat()
    );
    assert_eq!(export(&[], Some(uid_name(Tagk, "n4997"))).await, all[9998..]);
    assert_eq!(
        export(&[Metric, Tagv], Some(uid_name(Tagk, "n4997"))).await,
        all[10_000..]
    );
    assert_eq!(export(&[Metric], Some(uid_name(Metric, "n4999"))).await, []);
}
