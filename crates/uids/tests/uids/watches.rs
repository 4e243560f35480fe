//! Watches: resuming after a long gap; changes made by a repair.

use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use futures::{Stream, StreamExt as _};
use oxtsdb_row_store::intercept::{Intercept, InterceptedStore, Operation, Response};
use oxtsdb_row_store::{CellAddress, RowStore, StoreError, WriteBatch, Writers};
use oxtsdb_schema::{Name, NameRules, Uid, UidKind};
use oxtsdb_uids::change::ChangeRequest;
use oxtsdb_uids::error::UidServiceError;
use oxtsdb_uids::fsck::CellChange;
use oxtsdb_uids::fsck::repair::RepairError;
use oxtsdb_uids::suggest::Mapping;
use oxtsdb_uids::testing::{self, Failure, Wrapped, table};
use oxtsdb_uids::uids::{Purpose, Uids};
use oxtsdb_uids::watch::{Event, WatchRequest, WatchUpdate};

const KIND: UidKind = UidKind::Tagv;

fn name(text: &str) -> Name {
    Name::parse(text, &NameRules::default()).unwrap()
}

async fn assign(uids: &Uids, text: &str) -> Uid {
    let mut outcomes = uids.get_or_create(&[(KIND, name(text))], Purpose::Write).await;
    outcomes.remove(0).unwrap().uid
}

type Updates = Pin<Box<dyn Stream<Item = Result<WatchUpdate, UidServiceError>> + Send>>;

async fn watch(uids: &Uids, resume: Option<String>) -> Updates {
    let request = WatchRequest {
        kinds: vec![KIND],
        skip_assigned: false,
        resume,
        heartbeat: Duration::from_secs(1),
    };
    Box::pin(uids.watch(request).await.unwrap())
}

/// Reads names slowly.
#[derive(Debug)]
struct Slow;

#[async_trait]
impl Intercept for Slow {
    async fn intercept(&self, operation: Operation, store: &dyn RowStore) -> Result<Response, StoreError> {
        if matches!(&operation, Operation::GetRows { table: read, .. } if *read == table()) {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        operation.perform(store).await
    }
}

#[tokio::test(start_paused = true)]
async fn a_resume_over_many_numbers_without_names_returns_heartbeats() {
    let store = Wrapped::atomic();
    let uids = testing::uids(store.clone(), &testing::config()).await;
    let first = watch(&uids, None).await.next().await.unwrap().unwrap();
    let mut batch = WriteBatch::new(table());
    let family = batch.family("id");
    let counter = 100_000_u64.to_be_bytes();
    batch.row(&[0]).put(family, KIND.qualifier(), &counter);
    store.inner.write(batch).await.unwrap();

    let slow = InterceptedStore::new(Arc::new(store.inner.clone()), Arc::new(Slow));
    let uids = Uids::new(Arc::new(slow), Writers::Single, testing::config());
    assign(&uids, "last").await;
    let mut watch = watch(&uids, Some(first.resume_token)).await;
    let mut heartbeats = 0;
    loop {
        let update = tokio::time::timeout(Duration::from_secs(2), watch.next()).await;
        let update = update.expect("a heartbeat each second").unwrap().unwrap();
        match update.events.first() {
            Some(event) => {
                assert!(matches!(&**event, Event::Assigned(mapping) if mapping.name == name("last")));
                break;
            }
            None => heartbeats += 1,
        }
    }
    assert!(heartbeats >= 5, "{heartbeats}");
}

fn deleted(row: &[u8], family: &str, old: &[u8]) -> CellChange {
    CellChange {
        cell: CellAddress::new(row, family, KIND.qualifier()),
        old: Some(old.to_vec()),
        new: None,
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_applied_of_a_repair_that_fails_is_reported() {
    let store = Wrapped::stepwise();
    let one = testing::uids(store.clone(), &testing::config()).await;
    let (kept, uid) = (assign(&one, "kept").await, assign(&one, "name").await);
    let other = Arc::new(testing::uids(store.clone(), &testing::config()).await);
    other.start();
    tokio::time::sleep(Duration::from_secs(2)).await;
    let mut watch = watch(&other, None).await;
    let changes = [deleted(b"name", "id", uid.as_bytes())];
    one.fsck().repair(&changes).await.unwrap();
    // As after a crash: the first change is made, and the cell of the second has another value.
    let changes = [
        deleted(b"name", "id", uid.as_bytes()),
        deleted(kept.as_bytes(), "name", b"another"),
    ];
    let error = one.fsck().repair(&changes).await.unwrap_err();
    assert!(matches!(error, RepairError::StateChanged { .. }), "{error}");
    let mut events = Vec::new();
    while events.len() < 2 {
        let update = tokio::time::timeout(Duration::from_secs(5), watch.next()).await;
        let update = update.expect("both are reported").unwrap().unwrap();
        events.extend(update.events.iter().map(|event| (**event).clone()));
    }
    let gone = Event::Deleted(Mapping {
        kind: KIND,
        name: name("name"),
        uid,
    });
    assert_eq!(events, [gone.clone(), gone]);
}

#[tokio::test(start_paused = true)]
async fn a_repair_does_not_meet_a_rename_that_is_pending() {
    let store = Wrapped::stepwise();
    let uids = testing::uids(store.clone(), &testing::config()).await;
    let uid = assign(&uids, "old").await;
    // Two look-ups, the entry of the log, four reads, and the new name.
    let crashed = testing::uids(store.failing_after(8, Failure::Silent), &testing::config()).await;
    let request = ChangeRequest {
        name: (KIND, name("old")),
        expected: None,
    };
    let to = name("new");
    let begun = crashed.rename(&request, &to, SystemTime::now());
    tokio::time::timeout(Duration::from_secs(1), begun)
        .await
        .unwrap_err();
    let changes = [deleted(b"new", "id", uid.as_bytes())];
    let error = uids.fsck().repair(&changes).await.unwrap_err();
    assert!(matches!(error, RepairError::InProgress), "{error}");
}
