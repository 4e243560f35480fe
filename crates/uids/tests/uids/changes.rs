//! Renames and deletes are exact despite races and failures at any operation.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use futures::StreamExt as _;
use oxtsdb_row_store::intercept::{Intercept, InterceptedStore, Operation, Response};
use oxtsdb_row_store::memory::MemoryStore;
use oxtsdb_row_store::{RowStore, StoreError, WriteBatch, Writers};
use oxtsdb_schema::{Name, NameRules, Uid, UidKind, UidWidth};
use oxtsdb_uids::change::ChangeRequest;
use oxtsdb_uids::error::UidServiceError;
use oxtsdb_uids::suggest::Mapping;
use oxtsdb_uids::table::KindName;
use oxtsdb_uids::testing::{self, Failure, Wrapped, cells, check_invariants, table};
use oxtsdb_uids::uids::{Freshness, Purpose, Uids};
use oxtsdb_uids::watch::{Event, WatchRequest};

const KIND: UidKind = UidKind::Metric;

fn name(text: &str) -> Name {
    Name::parse(text, &NameRules::default()).unwrap()
}

async fn uids(store: &Wrapped) -> Arc<Uids> {
    Arc::new(testing::uids(store.clone(), &testing::config()).await)
}

/// A further replica, with an interceptor in front of its store.
fn intercepted(store: &Wrapped, intercept: Arc<dyn Intercept>) -> Arc<Uids> {
    let store = InterceptedStore::new(Arc::new(store.inner.clone()), intercept).like_hbase();
    Arc::new(Uids::new(Arc::new(store), Writers::Multiple, testing::config()))
}

/// A watch of renames and deletes.
fn renames() -> WatchRequest {
    WatchRequest {
        kinds: vec![KIND],
        skip_assigned: true,
        resume: None,
        heartbeat: Duration::from_secs(1),
    }
}

async fn assign(uids: &Uids, text: &str) -> Uid {
    let mut outcomes = uids.get_or_create(&[(KIND, name(text))], Purpose::Write).await;
    outcomes.remove(0).unwrap().uid
}

async fn uid_of(uids: &Uids, text: &str) -> Option<Uid> {
    let mut results = uids.lookup_uids(&[(KIND, name(text))], Freshness::Cached).await;
    match results.remove(0) {
        Ok(uid) => Some(uid),
        Err(UidServiceError::NameNotFound { .. }) => None,
        Err(error) => panic!("{error}"),
    }
}

async fn name_of(uids: &Uids, uid: Uid) -> Option<String> {
    let result = uids
        .lookup_names(&[(KIND, uid)], Freshness::Cached)
        .await
        .remove(0);
    result.ok().map(|name| name.to_text())
}

fn request(text: &str) -> ChangeRequest {
    ChangeRequest {
        name: (KIND, name(text)),
        expected: None,
    }
}

async fn rename(uids: &Uids, from: &str, to: &str) -> Result<Mapping, UidServiceError> {
    uids.rename(&request(from), &name(to), SystemTime::now()).await
}

async fn delete(uids: &Uids, text: &str) -> Result<Mapping, UidServiceError> {
    uids.delete(&request(text), SystemTime::now()).await
}

fn both_stores() -> [Wrapped; 2] {
    [Wrapped::atomic(), Wrapped::stepwise()]
}

#[tokio::test]
async fn a_renamed_uid_has_the_new_name_only() {
    for store in both_stores() {
        let uids = uids(&store).await;
        let uid = assign(&uids, "old").await;
        let mapping = rename(&uids, "old", "new").await.unwrap();
        assert_eq!((mapping.uid, mapping.name.to_text().as_str()), (uid, "new"));
        assert_eq!(uid_of(&uids, "old").await, None);
        assert_eq!(uid_of(&uids, "new").await, Some(uid));
        assert_eq!(name_of(&uids, uid).await.as_deref(), Some("new"));
        let (forward, reverse) = check_invariants(&store.inner).await;
        assert_eq!((forward.len(), reverse), (1, 1));
        assert_ne!(assign(&uids, "old").await, uid, "the name is free");
    }
}

#[tokio::test]
async fn a_deleted_name_gets_another_uid_and_its_metadata_is_gone() {
    for store in both_stores() {
        let uids = uids(&store).await;
        let uid = assign(&uids, "name").await;
        let mut batch = WriteBatch::new(table());
        let family = batch.family("name");
        batch.row(uid.as_bytes()).put(family, b"metric_meta", b"{}");
        store.inner.write(batch).await.unwrap();
        assert_eq!(delete(&uids, "name").await.unwrap().uid, uid);
        assert_eq!(uid_of(&uids, "name").await, None);
        assert_eq!(name_of(&uids, uid).await, None);
        let left = cells(&store.inner).await;
        assert_eq!(left, [testing::counter(KIND, 1)], "the counter only");
        assert_eq!(assign(&uids, "name").await.number(), uid.number() + 1);
        check_invariants(&store.inner).await;
    }
}

#[tokio::test]
async fn a_deleted_random_uid_is_not_assigned_again() {
    for store in both_stores() {
        let mut config = testing::config();
        config.layout.kinds.metric.random = true;
        config.layout.kinds.metric.width = UidWidth::new(1).unwrap();
        let uids = testing::uids(store.clone(), &config).await;
        let names = |prefix: &str, count| -> Vec<KindName> {
            let name = |number| (KIND, name(&format!("{prefix}.{number}")));
            (0..count).map(name).collect()
        };
        let assigned = uids.get_or_create(&names("deleted", 180), Purpose::Write).await;
        let deleted: HashSet<Uid> = assigned
            .into_iter()
            .flatten()
            .map(|assigned| assigned.uid)
            .collect();
        assert!(deleted.len() > 150, "{}", deleted.len());
        for (_, name) in names("deleted", 180) {
            // A few have none: their draws met numbers in use.
            let _ = delete(&uids, &name.to_text()).await;
        }
        assert!(check_invariants(&store.inner).await.0.is_empty());
        // Another replica, too.
        let uids = testing::uids(store.clone(), &config).await;
        let assigned = uids.get_or_create(&names("new", 30), Purpose::Write).await;
        let new: Vec<Uid> = assigned
            .into_iter()
            .flatten()
            .map(|assigned| assigned.uid)
            .collect();
        assert!(
            !new.is_empty() && new.iter().all(|uid| !deleted.contains(uid)),
            "{new:?}"
        );
    }
}

/// Executes each conditional put twice and returns the second response, as a Thrift server may.
#[derive(Debug)]
struct Repeats;

#[async_trait]
impl Intercept for Repeats {
    async fn intercept(&self, operation: Operation, store: &dyn RowStore) -> Result<Response, StoreError> {
        if matches!(operation, Operation::CheckAndPut { .. }) {
            operation.clone().perform(store).await?;
        }
        operation.perform(store).await
    }
}

#[tokio::test]
async fn puts_that_a_gateway_repeats_are_recognized() {
    let store = Wrapped::stepwise();
    testing::uids(store.clone(), &testing::config()).await;
    let uids = intercepted(&store, Arc::new(Repeats));
    let uid = assign(&uids, "one").await;
    assert_eq!(uid.number(), 1);
    assert_eq!(rename(&uids, "one", "two").await.unwrap().uid, uid);
    assert_eq!(name_of(&uids, uid).await.as_deref(), Some("two"));
    assert_eq!(delete(&uids, "two").await.unwrap().uid, uid);
    assert_eq!(cells(&store.inner).await, [testing::counter(KIND, 1)]);
    let state = &testing::config().state_table;
    let log = testing::cells_of(&store.inner, state).await;
    let entries: Vec<&[u8]> = log.iter().map(|(.., value)| &value[..]).collect();
    let first_claims = |entry: &&[u8]| entry.windows(10).any(|part| part == b"\"claims\":0");
    assert_eq!(entries.len(), 2, "{entries:?}");
    assert!(entries.iter().all(first_claims), "own entries are not taken over");
}

#[tokio::test]
async fn rejects_what_does_not_fit_the_table() {
    for store in both_stores() {
        let uids = uids(&store).await;
        let (one, two) = (assign(&uids, "one").await, assign(&uids, "two").await);
        let before = cells(&store.inner).await;
        let error = rename(&uids, "one", "two").await.unwrap_err();
        assert!(
            matches!(&error, UidServiceError::NameTaken { uid, .. } if *uid == two),
            "{error}"
        );
        let error = rename(&uids, "one", "one").await.unwrap_err();
        assert!(matches!(error, UidServiceError::NameTaken { .. }), "{error}");
        for error in [
            rename(&uids, "none", "three").await.unwrap_err(),
            delete(&uids, "none").await.unwrap_err(),
        ] {
            assert!(matches!(error, UidServiceError::NameNotFound { .. }), "{error}");
        }
        let expecting = ChangeRequest {
            expected: Some(two),
            ..request("one")
        };
        for error in [
            uids.rename(&expecting, &name("three"), SystemTime::now())
                .await
                .unwrap_err(),
            uids.delete(&expecting, SystemTime::now()).await.unwrap_err(),
        ] {
            assert!(
                matches!(&error, UidServiceError::UidMismatch { uid, .. } if *uid == one),
                "{error}"
            );
        }
        assert_eq!(cells(&store.inner).await, before);
    }
}

#[tokio::test]
async fn the_retry_of_a_rename_with_the_uid_succeeds() {
    for store in both_stores() {
        let uids = uids(&store).await;
        let request = ChangeRequest {
            expected: Some(assign(&uids, "old").await),
            ..request("old")
        };
        for _ in 0..2 {
            let mapping = uids.rename(&request, &name("new"), SystemTime::now()).await;
            assert_eq!(Some(mapping.unwrap().uid), request.expected);
        }
    }
}

#[tokio::test]
async fn completes_a_rename_that_opentsdb_left_half_done() {
    for store in both_stores() {
        let uids = uids(&store).await;
        let uid = assign(&uids, "old").await;
        let mut batch = WriteBatch::new(table());
        let (id, reverse) = (batch.family("id"), batch.family("name"));
        batch.row(uid.as_bytes()).put(reverse, KIND.qualifier(), b"new");
        batch.row(b"new").put(id, KIND.qualifier(), uid.as_bytes());
        store.inner.write(batch).await.unwrap();
        rename(&uids, "old", "new").await.unwrap();
        let (forward, _) = check_invariants(&store.inner).await;
        assert_eq!(forward.len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn other_replicas_forget_what_has_changed() {
    let store = Wrapped::stepwise();
    let (one, two) = (uids(&store).await, uids(&store).await);
    two.start();
    let (renamed, deleted) = (assign(&one, "old").await, assign(&one, "deleted").await);
    // Let the replica read the log and fill its cache.
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(uid_of(&two, "old").await, Some(renamed));
    assert_eq!(name_of(&two, renamed).await.as_deref(), Some("old"));
    assert_eq!(uid_of(&two, "deleted").await, Some(deleted));
    rename(&one, "old", "new").await.unwrap();
    delete(&one, "deleted").await.unwrap();
    tokio::time::sleep(Duration::from_millis(1100)).await;
    assert_eq!(uid_of(&two, "old").await, None);
    assert_eq!(uid_of(&two, "new").await, Some(renamed));
    assert_eq!(name_of(&two, renamed).await.as_deref(), Some("new"));
    assert_eq!(uid_of(&two, "deleted").await, None);
    assert_eq!(name_of(&two, deleted).await, None);
}

/// Performs operations until its flag is set; later ones hang.
#[derive(Debug, Default)]
struct Hanging(AtomicBool);

#[async_trait]
impl Intercept for Hanging {
    async fn intercept(&self, operation: Operation, store: &dyn RowStore) -> Result<Response, StoreError> {
        if self.0.load(Ordering::SeqCst) {
            std::future::pending().await
        }
        operation.perform(store).await
    }
}

#[tokio::test(start_paused = true)]
async fn a_replica_whose_reads_hang_uses_its_cache_for_the_lag_only() {
    let store = Wrapped::stepwise();
    let one = uids(&store).await;
    let uid = assign(&one, "old").await;
    let hanging = Arc::new(Hanging::default());
    let two = intercepted(&store, Arc::clone(&hanging) as _);
    two.start();
    // Some time after a read of the log.
    tokio::time::sleep(Duration::from_millis(2100)).await;
    assert_eq!(uid_of(&two, "old").await, Some(uid));
    let mut watch = Box::pin(two.watch(renames()).await.unwrap());
    assert!(watch.next().await.unwrap().is_ok());
    hanging.0.store(true, Ordering::SeqCst);
    rename(&one, "old", "new").await.unwrap();
    assert_eq!(uid_of(&two, "old").await, Some(uid), "cached");
    tokio::time::sleep(two.replica_lag()).await;
    let result = tokio::time::timeout(Duration::from_secs(1), uid_of(&two, "old")).await;
    assert!(
        result.is_err(),
        "the look-up reads the store, which does not respond: {result:?}"
    );
    let heartbeat = tokio::time::timeout(Duration::from_secs(3), watch.next()).await;
    let heartbeat = heartbeat.expect("the watch does not hang").unwrap();
    assert!(
        heartbeat.is_err(),
        "the watch may have missed the rename: {heartbeat:?}"
    );
}

/// Performs conditional puts to the table of names late.
#[derive(Debug, Default)]
struct Slow {
    /// Notified when one begins.
    begun: tokio::sync::Notify,
}

#[async_trait]
impl Intercept for Slow {
    async fn intercept(&self, operation: Operation, store: &dyn RowStore) -> Result<Response, StoreError> {
        if matches!(&operation, Operation::CheckAndPut { table: written, .. } if *written == table()) {
            self.begun.notify_one();
            tokio::time::sleep(Duration::from_secs(12)).await;
        }
        operation.perform(store).await
    }
}

#[tokio::test(start_paused = true)]
async fn changes_are_known_in_time_while_an_abandoned_one_is_completed() {
    let store = Wrapped::stepwise();
    let one = uids(&store).await;
    let slow = Arc::new(Slow::default());
    let two = intercepted(&store, Arc::clone(&slow) as _);
    two.start();
    let (abandoned, renamed) = (assign(&one, "abandoned").await, assign(&one, "old").await);
    // Two look-ups, the entry of the log, and nothing of the change.
    let crashed = uids(&store.failing_after(3, Failure::Silent)).await;
    let begun = rename(&crashed, "abandoned", "completed");
    tokio::time::timeout(Duration::from_secs(1), begun)
        .await
        .unwrap_err();
    tokio::time::timeout(Duration::from_secs(100), slow.begun.notified())
        .await
        .expect("the replica completes the change");
    assert_eq!(uid_of(&two, "completed").await, None);
    assert_eq!(uid_of(&two, "old").await, Some(renamed));
    let request = WatchRequest {
        heartbeat: Duration::from_secs(3600),
        ..renames()
    };
    let mut watch = Box::pin(two.watch(request).await.unwrap());

    rename(&one, "old", "new").await.unwrap();
    let reported = async {
        loop {
            let update = watch.next().await.unwrap().unwrap();
            let mut events = update.events.iter().map(|event| &**event);
            if events.any(|event| matches!(event, Event::Renamed { mapping, .. } if mapping.uid == renamed)) {
                return;
            }
        }
    };
    tokio::time::timeout(two.replica_lag(), reported)
        .await
        .expect("the watch returns the rename in time");
    assert_eq!(uid_of(&two, "old").await, None);
    assert_eq!(uid_of(&two, "new").await, Some(renamed));
    assert_eq!(uid_of(&two, "completed").await, None, "still not completed");
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert_eq!(uid_of(&two, "completed").await, Some(abandoned));
    check_invariants(&store.inner).await;
}

/// Never appends to the log.
#[derive(Debug)]
struct NoAppend;

#[async_trait]
impl Intercept for NoAppend {
    async fn intercept(&self, operation: Operation, store: &dyn RowStore) -> Result<Response, StoreError> {
        match &operation {
            Operation::CheckAndPut { condition, .. } if condition.cell.row.starts_with(b"e") => {
                std::future::pending().await
            }
            _ => operation.perform(store).await,
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_change_loses_no_event_of_another_replica() {
    let store = Wrapped::stepwise();
    let one = uids(&store).await;
    let renamed = assign(&one, "old").await;
    assign(&one, "kept").await;
    let two = intercepted(&store, Arc::new(NoAppend));
    let mut watch = Box::pin(two.watch(renames()).await.unwrap());
    assert_eq!(uid_of(&two, "old").await, Some(renamed), "cached");
    rename(&one, "old", "new").await.unwrap();
    // Reads the other replica's change, and is cancelled while it appends its own.
    let cancelled = rename(&two, "kept", "other");
    tokio::time::timeout(Duration::from_secs(1), cancelled)
        .await
        .unwrap_err();
    two.start();
    let reported = async { while watch.next().await.unwrap().unwrap().events.is_empty() {} };
    tokio::time::timeout(Duration::from_secs(10), reported)
        .await
        .expect("the watch returns the rename");
    assert_eq!(uid_of(&two, "old").await, None);
}

#[tokio::test(start_paused = true)]
async fn a_watch_resumed_at_a_new_replica_returns_changes_behind_a_pending_one() {
    let store = Wrapped::stepwise();
    let one = uids(&store).await;
    let renamed = assign(&one, "old").await;
    assign(&one, "pending").await;
    let mut request = renames();
    let first = {
        let mut watch = Box::pin(one.watch(request.clone()).await.unwrap());
        watch.next().await.unwrap().unwrap()
    };
    // Two look-ups, the entry of the log, and nothing of the change.
    let crashed = uids(&store.failing_after(3, Failure::Silent)).await;
    let begun = rename(&crashed, "pending", "other");
    tokio::time::timeout(Duration::from_secs(1), begun)
        .await
        .unwrap_err();
    rename(&one, "old", "new").await.unwrap();

    let two = uids(&store).await;
    request.resume = Some(first.resume_token);
    let mut watch = Box::pin(two.watch(request).await.unwrap());
    let update = watch.next().await.unwrap().unwrap();
    let is_rename = |event: &Event| matches!(event, Event::Renamed { mapping, .. } if mapping.uid == renamed);
    assert!(update.events.iter().any(|event| is_rename(event)), "{update:?}");
}

#[tokio::test(start_paused = true)]
async fn a_late_put_of_a_rename_does_not_meet_the_next_rename() {
    for operations in 1..16 {
        let store = Wrapped::stepwise();
        let uid = assign(&*uids(&store).await, "old").await;
        let failing = store.failing_after(operations, Failure::DoneLate);
        let service = uids(&failing).await;
        drop(rename(&service, "old", "new").await);
        service.start();
        // Completed, unless a put of it may still arrive.
        tokio::time::sleep(Duration::from_secs(5)).await;
        match rename(&service, "new", "old").await {
            Ok(_) | Err(UidServiceError::NameNotFound { .. } | UidServiceError::InProgress { .. }) => {}
            Err(error) => panic!("after {operations}: {error}"),
        }
        failing.execute_delayed().await;
        tokio::time::sleep(Duration::from_secs(70)).await;
        let (forward, reverse) = check_invariants(&store.inner).await;
        assert_eq!((forward.len(), reverse), (1, 1), "after {operations}");
        assert!(forward.values().all(|stored_uid| stored_uid == uid.as_bytes()));
    }
}

const FAILURES: [Failure; 4] = [
    Failure::DoneLate,
    Failure::Refused,
    Failure::DoneButUnknown,
    Failure::Silent,
];

/// Makes a change over a store that fails after some operations; returns whether it was acknowledged, and the
/// operations that were left.
async fn change_until_failure(store: &Wrapped, is_rename: bool) -> bool {
    let service = uids(store).await;
    let change = async {
        match is_rename {
            true => rename(&service, "old", "new").await,
            false => delete(&service, "old").await,
        }
    };
    // The test's clock advances while all tasks are idle, so a hanging store costs no time.
    let outcome = tokio::time::timeout(Duration::from_secs(3600), change).await;
    outcome.is_ok_and(|outcome| outcome.is_ok())
}

/// Another replica completes the change, after which the name and the UID fit.
async fn check_completion(store: &MemoryStore, atomic: bool, uid: Uid, acknowledged: bool, case: &str) {
    let replica = uids(&Wrapped::over(store.clone(), atomic)).await;
    replica.start();
    // A lease of a minute, and then what it takes.
    tokio::time::sleep(Duration::from_secs(70)).await;
    let (forward, reverse) = check_invariants(store).await;
    assert_eq!(forward.len(), reverse, "{case}: an orphan");
    let mappings = (
        uid_of(&replica, "old").await,
        uid_of(&replica, "new").await,
        name_of(&replica, uid).await,
    );
    let unchanged = (Some(uid), None, Some("old".to_owned()));
    let renamed = (None, Some(uid), Some("new".to_owned()));
    let deleted = (None, None, None);
    assert!(
        mappings == renamed || mappings == deleted || (mappings == unchanged && !acknowledged),
        "{case}: {mappings:?}"
    );
    // Nothing is locked any more.
    match mappings {
        (_, Some(_), _) => drop(rename(&replica, "new", "another").await.unwrap()),
        (Some(_), _, _) => drop(rename(&replica, "old", "another").await.unwrap()),
        _ => assert_ne!(
            assign(&replica, "old").await,
            uid,
            "{case}: a UID was assigned again"
        ),
    }
    check_invariants(store).await;
}

#[tokio::test(start_paused = true)]
async fn a_failure_at_any_operation_is_completed_by_another_replica() {
    for atomic in [true, false] {
        for failure in FAILURES {
            for is_rename in [true, false] {
                let mut operations = 0;
                loop {
                    let case = format!("{atomic}, {failure:?}, {is_rename}, after {operations}");
                    let healthy = Wrapped::over(MemoryStore::new(), atomic);
                    let uid = assign(&*uids(&healthy).await, "old").await;
                    let failing = healthy.failing_after(operations, failure);
                    let acknowledged = change_until_failure(&failing, is_rename).await;
                    let is_over = failing.operations_left() > 0 && failure != Failure::DoneLate;
                    failing.execute_delayed().await;
                    check_completion(&healthy.inner, atomic, uid, acknowledged, &case).await;
                    operations += 1;
                    if is_over || operations > 40 {
                        assert!(acknowledged, "{case}");
                        break;
                    }
                }
            }
        }
    }
}

#[tokio::test]
async fn concurrent_changes_and_assignments_leave_one_name_for_each_uid() {
    for store in both_stores() {
        let replicas = match store.writers() {
            Writers::Multiple => vec![uids(&store).await, uids(&store).await, uids(&store).await],
            Writers::Single => vec![uids(&store).await],
        };
        let mut clients = tokio::task::JoinSet::new();
        for client in 0..24_usize {
            let uids = Arc::clone(&replicas[client % replicas.len()]);
            clients.spawn(async move {
                for round in 0..30 {
                    let (one, two) = (
                        format!("name.{}", (client + round) % 5),
                        format!("name.{}", (client * 7 + round * 3) % 5),
                    );
                    let outcome = match (client + round) % 4 {
                        0 => rename(&uids, &one, &two).await.map(drop),
                        1 => delete(&uids, &one).await.map(drop),
                        _ => {
                            assign(&uids, &one).await;
                            Ok(())
                        }
                    };
                    match outcome {
                        Ok(())
                        | Err(
                            UidServiceError::NameNotFound { .. }
                            | UidServiceError::NameTaken { .. }
                            | UidServiceError::InProgress { .. },
                        ) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
            });
        }
        clients.join_all().await;
        let (forward, reverse) = check_invariants(&store.inner).await;
        assert_eq!(forward.len(), reverse);
    }
}

#[tokio::test(start_paused = true)]
async fn finds_changes_by_other_programs() {
    let store = Wrapped::stepwise();
    let service = uids(&store).await;
    let (renamed, deleted, kept) = (
        assign(&service, "renamed").await,
        assign(&service, "deleted").await,
        assign(&service, "kept").await,
    );
    service.start();
    tokio::time::sleep(Duration::from_secs(2)).await;
    for (name, uid) in [("renamed", renamed), ("deleted", deleted), ("kept", kept)] {
        assert_eq!(uid_of(&service, name).await, Some(uid));
        assert_eq!(name_of(&service, uid).await.as_deref(), Some(name));
    }
    // As OpenTSDB does, without a log.
    let mut batch = WriteBatch::new(table());
    let (id, name_family) = (batch.family("id"), batch.family("name"));
    let qualifier = KIND.qualifier();
    batch
        .row(renamed.as_bytes())
        .put(name_family, qualifier, b"other");
    batch.row(b"other").put(id, qualifier, renamed.as_bytes());
    batch.row(b"renamed").delete_column(id, qualifier);
    batch
        .row(deleted.as_bytes())
        .delete_column(name_family, qualifier);
    batch.row(b"deleted").delete_column(id, qualifier);
    store.inner.write(batch).await.unwrap();
    assert_eq!(uid_of(&service, "renamed").await, Some(renamed), "cached");
    tokio::time::sleep(Duration::from_secs(301)).await;
    assert_eq!(uid_of(&service, "renamed").await, None);
    assert_eq!(uid_of(&service, "other").await, Some(renamed));
    assert_eq!(name_of(&service, renamed).await.as_deref(), Some("other"));
    assert_eq!(
        (
            uid_of(&service, "deleted").await,
            name_of(&service, deleted).await
        ),
        (None, None)
    );
    assert_eq!(uid_of(&service, "kept").await, Some(kept));
}
