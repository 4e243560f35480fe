//! Watches: events, resume tokens, limits.

use std::time::Duration;

use futures::StreamExt as _;
use oxtsdb_client::{ErrorReason, UidClient, UidEvent, UidWatch, WatchOptions, WatchUpdate};
use oxtsdb_proto::error::reason_of;
use oxtsdb_proto::uid::v1 as pb;
use oxtsdb_schema::UidKind::{self, Metric, Tagk, Tagv};
use tonic::Code;
use uid_service::UidSettings;

use super::raw;
use crate::support::{Service, Wrapped};

/// Opens a watch from now on.
async fn open(client: &UidClient, options: WatchOptions) -> UidWatch {
    let mut watch = client.watch(options);
    let first = watch.next().await;
    assert!(matches!(first, WatchUpdate::Resync { .. }), "{first:?}");
    watch
}

/// The next `count` events, as text.
async fn events(watch: &mut UidWatch, count: usize) -> Vec<String> {
    let mut texts = Vec::new();
    while texts.len() < count {
        match watch.next().await {
            WatchUpdate::Events { events, .. } => texts.extend(events.iter().map(text)),
            WatchUpdate::Heartbeat => {}
            other => panic!("{other:?} after {texts:?}"),
        }
    }
    texts
}

fn text(event: &UidEvent) -> String {
    match event {
        UidEvent::Assigned(mapping) => format!("{} {} = {}", mapping.kind, mapping.name, mapping.uid),
        UidEvent::Renamed { mapping, old_name } => {
            format!("{} {old_name} > {} = {}", mapping.kind, mapping.name, mapping.uid)
        }
        UidEvent::Deleted(mapping) => format!("{} -{} = {}", mapping.kind, mapping.name, mapping.uid),
    }
}

/// Assigns three names, renames one and deletes one.
async fn happen(service: &Service, names: [&str; 3]) {
    let [assigned, renamed, deleted] = names;
    service.assign(Metric, &[assigned, renamed, deleted]).await;
    let to = format!("{renamed}.new");
    service.client.rename(Metric, renamed, &to, None).await.unwrap();
    service.client.delete(Metric, deleted, None).await.unwrap();
}

#[tokio::test]
async fn reports_what_happens_in_order() {
    for store in [Wrapped::atomic(), Wrapped::stepwise()] {
        let service = Service::start(store, &UidSettings::default()).await;
        let mut watch = open(&service.client, WatchOptions::default()).await;
        happen(&service, ["a", "b", "c"]).await;
        assert_eq!(
            events(&mut watch, 5).await,
            [
                "metrics a = 000001",
                "metrics b = 000002",
                "metrics c = 000003",
                "metrics b > b.new = 000002",
                "metrics -c = 000003"
            ]
        );
    }
}

#[tokio::test]
async fn filters_kinds_and_assignments() {
    let service = Service::start(Wrapped::atomic(), &UidSettings::default()).await;
    let only = |kinds: &[UidKind], skip_assigned| WatchOptions {
        kinds: kinds.to_vec(),
        skip_assigned,
        ..WatchOptions::default()
    };
    let mut tags = open(&service.client, only(&[Tagk, Tagv], false)).await;
    let mut changes = open(&service.client, only(&[], true)).await;
    happen(&service, ["a", "b", "c"]).await;
    service.assign(Tagk, &["host"]).await;
    assert_eq!(events(&mut tags, 1).await, ["tagk host = 000001"]);
    assert_eq!(
        events(&mut changes, 2).await,
        ["metrics b > b.new = 000002", "metrics -c = 000003"]
    );
}

#[tokio::test]
async fn a_resumed_watch_returns_what_it_has_missed() {
    for (one, two) in [(Wrapped::atomic(), None), (Wrapped::stepwise(), Some(()))] {
        let first = Service::start(one.clone(), &UidSettings::default()).await;
        let mut watch = open(&first.client, WatchOptions::default()).await;
        happen(&first, ["a", "b", "c"]).await;
        events(&mut watch, 5).await;
        // The position of a rename or delete is reported with the next update.
        let WatchUpdate::Heartbeat = watch.next().await else {
            panic!("no heartbeat")
        };
        let resume_token = watch.resume_token().map(str::to_owned);
        drop(watch);
        happen(&first, ["d", "e", "f"]).await;
        // On HBase, at another replica.
        let second = match two {
            Some(()) => Service::start(one, &UidSettings::default()).await,
            None => first,
        };
        let mut watch = second.client.watch(WatchOptions {
            resume_token,
            ..WatchOptions::default()
        });
        // Assignments are those that exist. Earlier ones may be repeated.
        let mut missed = vec![
            "metrics -f = 000006",
            "metrics d = 000004",
            "metrics e > e.new = 000005",
            "metrics e.new = 000005",
        ];
        while !missed.is_empty() {
            let received_events = events(&mut watch, 1).await;
            missed.retain(|event| !received_events.iter().any(|received| received == event));
        }
        happen(&second, ["g", "h", "i"]).await;
        while !events(&mut watch, 1)
            .await
            .contains(&"metrics g = 000007".to_owned())
        {}
    }
}

#[tokio::test]
async fn reports_assignments_renames_and_deletes_of_other_replicas() {
    let store = Wrapped::stepwise();
    let (one, two) = (
        Service::start(store.clone(), &UidSettings::default()).await,
        Service::start(store, &UidSettings::default()).await,
    );
    let mut watch = open(&two.client, WatchOptions::default()).await;
    one.assign(Tagv, &["a", "b"]).await;
    assert_eq!(
        events(&mut watch, 2).await,
        ["tagv a = 000001", "tagv b = 000002"]
    );
    one.client.rename(Tagv, "a", "c", None).await.unwrap();
    one.client.delete(Tagv, "b", None).await.unwrap();
    assert_eq!(
        events(&mut watch, 2).await,
        ["tagv a > c = 000001", "tagv -b = 000002"]
    );
}

#[tokio::test]
async fn a_slow_watch_is_told_to_resync() {
    let service = Service::start(Wrapped::atomic(), &UidSettings::default()).await;
    let mut watch = open(&service.client, WatchOptions::default()).await;
    let names: Vec<String> = (0..4096).map(|number| format!("{number:0200}")).collect();
    for kind in [Metric, Tagk, Tagv] {
        let names: Vec<(UidKind, &str)> = names.iter().map(|name| (kind, name.as_str())).collect();
        service.client.get_or_create_uids(&names, false).await.unwrap();
    }
    loop {
        match watch.next().await {
            WatchUpdate::Resync { .. } => break,
            WatchUpdate::Events { .. } | WatchUpdate::Heartbeat => {}
            WatchUpdate::Interrupted(error) => panic!("{error}"),
        }
    }
    service.client.delete(Tagk, &names[0], None).await.unwrap();
    let deleted = format!("tagk -{} = 000001", names[0]);
    while !events(&mut watch, 1).await.contains(&deleted) {}
}

#[tokio::test]
async fn rejects_tokens_that_are_old_or_of_another_table_and_too_many_watches() {
    let mut settings = UidSettings::default();
    settings.changes.max_uid_watches = 1;
    let store = Wrapped::atomic();
    let service = Service::start(store.clone(), &settings).await;
    let mut client = raw(store).await;
    let mut watch = async |resume_token: String| {
        let request = pb::WatchUidsRequest {
            resume_token,
            ..pb::WatchUidsRequest::default()
        };
        client.watch_uids(request).await.map(tonic::Response::into_inner)
    };
    let mut first = watch(String::new()).await.unwrap();
    let token = first.next().await.unwrap().unwrap().resume_token;
    drop(first);
    let refused = |status: tonic::Status| (status.code(), reason_of(&status).unwrap());
    let other = token.replace(&token[2..18], "0123456789abcdef");
    assert_eq!(
        refused(watch(other).await.unwrap_err()),
        (Code::OutOfRange, ErrorReason::ResumeTokenExpired)
    );
    assert_eq!(
        refused(watch("none".to_owned()).await.unwrap_err()),
        (Code::InvalidArgument, ErrorReason::InvalidField)
    );
    drop(watch(token).await.unwrap());
    let options = WatchOptions {
        heartbeat: Duration::from_secs(1),
        ..WatchOptions::default()
    };
    let _open = open(&service.client, options.clone()).await;
    let mut second = service.client.watch(options);
    let WatchUpdate::Interrupted(error) = second.next().await else {
        panic!("a second watch")
    };
    assert_eq!(error.reason(), Some(ErrorReason::Overloaded), "{error}");
}
