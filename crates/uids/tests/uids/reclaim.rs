//! Reclaim of UIDs: quarantine, restore, release, and assignment of released numbers.

use std::time::{Duration, SystemTime};

use futures::{StreamExt as _, TryStreamExt as _};
use oxtsdb_row_store::memory::MemoryStore;
use oxtsdb_row_store::{RowStore as _, WriteBatch};
use oxtsdb_schema::UidKind::Tagv;
use oxtsdb_schema::{Name, NameRules, Uid, UidKind, UidWidth};
use oxtsdb_uids::change::ChangeRequest;
use oxtsdb_uids::config::UidConfig;
use oxtsdb_uids::error::UidServiceError;
use oxtsdb_uids::fsck::{Event, FindingType};
use oxtsdb_uids::policy::watch::LivePolicy;
use oxtsdb_uids::reclaim::{ReclaimError, Step};
use oxtsdb_uids::suggest::Mapping;
use oxtsdb_uids::table::KindName;
use oxtsdb_uids::testing::{self, Failure, Wrapped};
use oxtsdb_uids::uids::{Freshness, Purpose, Uids};
use oxtsdb_uids::watch::{self, WatchRequest, WatchUpdate};

/// Long enough that a mapping can be too young.
const QUARANTINE: Duration = Duration::from_millis(3);

fn key(name: &str) -> KindName {
    (Tagv, Name::parse(name, &NameRules::default()).unwrap())
}

fn config(width: usize) -> UidConfig {
    let mut config = testing::config();
    config.layout.kinds.tagv.width = UidWidth::new(width).unwrap();
    config
}

async fn uids(store: &Wrapped, config: &UidConfig) -> Uids {
    testing::uids(store.clone(), config)
        .await
        .with_quarantine(QUARANTINE)
}

async fn assign(uids: &Uids, name: &str) -> Result<Uid, UidServiceError> {
    let outcome = uids.get_or_create(&[key(name)], Purpose::Write).await.remove(0);
    outcome.map(|assigned| assigned.uid)
}

async fn lookup(uids: &Uids, name: &str) -> Option<Uid> {
    uids.lookup_uids(&[key(name)], Freshness::Store)
        .await
        .remove(0)
        .ok()
}

async fn name_of(uids: &Uids, uid: Uid) -> Option<String> {
    let name = uids
        .lookup_names(&[(Tagv, uid)], Freshness::Store)
        .await
        .remove(0);
    name.ok().map(|name| name.to_text())
}

fn mapping(name: &str, uid: Uid) -> Mapping {
    Mapping {
        kind: Tagv,
        name: key(name).1,
        uid,
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Do {
    Quarantine,
    Restore,
    Release,
}

/// Does a step as of now.
async fn once(uids: &Uids, what: Do, mapping: &Mapping) -> Result<(), ReclaimError> {
    let now = SystemTime::now();
    let step = match what {
        Do::Quarantine => Step::Quarantine { searched_at: now },
        Do::Restore => Step::Restore,
        Do::Release => Step::Release { searched_at: now },
    };
    uids.reclaim(step, std::slice::from_ref(mapping), now)
        .await
        .remove(0)
}

/// Does a step as soon as the time has come.
async fn step(uids: &Uids, what: Do, mapping: &Mapping) -> Result<(), ReclaimError> {
    loop {
        match once(uids, what, mapping).await {
            Err(ReclaimError::TooEarly { .. }) => tokio::time::sleep(Duration::from_millis(1)).await,
            result => return result,
        }
    }
}

fn number(number: u64, width: usize) -> Uid {
    Uid::from_number(number, UidWidth::new(width).unwrap()).unwrap()
}

#[tokio::test]
async fn a_number_whose_assignment_was_interrupted_is_not_assigned_after_a_delete() {
    for store in [Wrapped::atomic(), Wrapped::stepwise()] {
        for operations in 0.. {
            let store = Wrapped::over(MemoryStore::new(), store.is_atomic());
            let first = uids(&store, &config(1)).await;
            assert_eq!(assign(&first, "first").await.unwrap(), number(1, 1));
            // All other numbers were assigned.
            let mut batch = WriteBatch::new(testing::table());
            let family = batch.family("id");
            batch
                .row(&[0])
                .put(family, Tagv.qualifier(), &255_u64.to_be_bytes());
            store.inner.write(batch).await.unwrap();
            let mapping = mapping("first", number(1, 1));
            step(&first, Do::Quarantine, &mapping).await.unwrap();
            step(&first, Do::Release, &mapping).await.unwrap();
            tokio::time::sleep(QUARANTINE).await;

            let failing = store.failing_after(operations, Failure::Refused);
            let outcome = assign(&uids(&failing, &config(1)).await, "second").await;
            let healthy = uids(&store, &config(1)).await;
            if lookup(&healthy, "second").await.is_some() {
                let request = ChangeRequest {
                    name: key("second"),
                    expected: None,
                };
                healthy.delete(&request, SystemTime::now()).await.unwrap();
                let third = assign(&uids(&store, &config(1)).await, "third").await;
                assert!(
                    matches!(third, Err(UidServiceError::SpaceExhausted { .. })),
                    "{third:?} after {operations} operations"
                );
            }
            if outcome.is_ok() && failing.operations_left() > 0 {
                break;
            }
        }
    }
}

#[tokio::test]
async fn released_numbers_are_assigned_when_all_others_are_in_use() {
    for store in [Wrapped::atomic(), Wrapped::stepwise()] {
        let uids = uids(&store, &config(1)).await;
        let names: Vec<KindName> = (1..=255).map(|number| key(&format!("name-{number}"))).collect();
        let assigned = uids.get_or_create(&names, Purpose::Write).await;
        assert!(assigned.iter().all(Result::is_ok));
        let exhausted = assign(&uids, "one-more").await;
        assert!(matches!(exhausted, Err(UidServiceError::SpaceExhausted { .. })));
        for free in [7, 200] {
            let mapping = mapping(&format!("name-{free}"), number(free, 1));
            step(&uids, Do::Quarantine, &mapping).await.unwrap();
            assert_eq!(lookup(&uids, &format!("name-{free}")).await, None);
            assert_eq!(name_of(&uids, mapping.uid).await, Some(format!("name-{free}")));
            step(&uids, Do::Release, &mapping).await.unwrap();
            assert_eq!(name_of(&uids, mapping.uid).await, None);
        }
        // New names are rejected until the numbers were free for as long as a quarantine, and were looked for again.
        let again = loop {
            match assign(&uids, "again").await {
                Ok(uid) => break uid,
                Err(UidServiceError::SpaceExhausted { .. }) => {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
                Err(error) => panic!("{error}"),
            }
        };
        assert_eq!(again, number(7, 1));
        assert_eq!(name_of(&uids, again).await.as_deref(), Some("again"));
        assert_eq!(assign(&uids, "last").await.unwrap(), number(200, 1));
        let exhausted = assign(&uids, "one-more").await;
        assert!(matches!(exhausted, Err(UidServiceError::SpaceExhausted { .. })));
        let (mappings, reverse) = testing::check_invariants(&store.inner).await;
        assert_eq!((mappings.len(), reverse), (255, 255));
    }
}

#[tokio::test]
async fn a_name_that_is_written_in_quarantine_gets_another_uid() {
    for store in [Wrapped::atomic(), Wrapped::stepwise()] {
        let uids = uids(&store, &config(3)).await;
        let old = mapping("host", assign(&uids, "host").await.unwrap());
        step(&uids, Do::Quarantine, &old).await.unwrap();
        step(&uids, Do::Quarantine, &old).await.unwrap();
        let new = assign(&uids, "host").await.unwrap();
        assert_eq!(new, number(2, 3));
        let restored = step(&uids, Do::Restore, &old).await;
        assert!(
            matches!(restored, Err(ReclaimError::OtherUid { stored_uid: Some(uid), .. }) if uid == new),
            "{restored:?}"
        );
        step(&uids, Do::Release, &old).await.unwrap();
        assert_eq!(lookup(&uids, "host").await, Some(new));
        assert_eq!(name_of(&uids, old.uid).await, None);
        testing::check_invariants(&store.inner).await;
    }
}

#[tokio::test]
async fn a_restored_name_has_its_uid_again() {
    for store in [Wrapped::atomic(), Wrapped::stepwise()] {
        let uids = uids(&store, &config(3)).await;
        let host = mapping("host", assign(&uids, "host").await.unwrap());
        for _ in 0..2 {
            step(&uids, Do::Quarantine, &host).await.unwrap();
            step(&uids, Do::Restore, &host).await.unwrap();
            assert_eq!(assign(&uids, "host").await.unwrap(), host.uid);
        }
        let not_there = step(&uids, Do::Release, &host).await;
        assert!(
            matches!(not_there, Err(ReclaimError::Changed { .. })),
            "{not_there:?}"
        );
        testing::check_invariants(&store.inner).await;
    }
}

#[tokio::test]
async fn rejects_what_is_too_early_or_has_changed() {
    for store in [Wrapped::atomic(), Wrapped::stepwise()] {
        let uids = testing::uids(store.clone(), &config(3)).await;
        let host = mapping("host", assign(&uids, "host").await.unwrap());
        let early = once(&uids, Do::Quarantine, &host).await;
        assert!(matches!(early, Err(ReclaimError::TooEarly { .. })), "{early:?}");
        let uids = uids.with_quarantine(QUARANTINE);
        let other = mapping("host", number(9, 3));
        let mismatch = step(&uids, Do::Quarantine, &other).await;
        assert!(
            matches!(mismatch, Err(ReclaimError::OtherUid { .. })),
            "{mismatch:?}"
        );
        // As after a rename by another program that was interrupted after its first step.
        store.put(host.uid.as_bytes(), "name", Tagv, b"renamed").await;
        let renamed = step(&uids, Do::Quarantine, &host).await;
        assert!(
            matches!(renamed, Err(ReclaimError::Changed { .. })),
            "{renamed:?}"
        );
        store.put(host.uid.as_bytes(), "name", Tagv, b"host").await;
        step(&uids, Do::Quarantine, &host).await.unwrap();
        let uids = uids.with_quarantine(Duration::from_secs(3600));
        let early = once(&uids, Do::Release, &host).await;
        assert!(matches!(early, Err(ReclaimError::TooEarly { .. })), "{early:?}");
        // A program that had the name in its cache puts it back, under another name.
        store.put(host.uid.as_bytes(), "name", Tagv, b"renamed").await;
        store.put(b"renamed", "id", Tagv, host.uid.as_bytes()).await;
        let uids = uids.with_quarantine(QUARANTINE);
        let renamed = step(&uids, Do::Release, &host).await;
        assert!(
            matches!(renamed, Err(ReclaimError::Changed { .. })),
            "{renamed:?}"
        );
        assert_eq!(name_of(&uids, host.uid).await.as_deref(), Some("renamed"));
        testing::check_invariants(&store.inner).await;
    }
}

#[tokio::test]
async fn a_uid_that_was_renamed_is_not_restored() {
    for store in [Wrapped::atomic(), Wrapped::stepwise()] {
        let uids = uids(&store, &config(3)).await;
        let host = mapping("host", assign(&uids, "host").await.unwrap());
        step(&uids, Do::Quarantine, &host).await.unwrap();
        // As after a rename that had put its new name when the quarantine began.
        store.put(host.uid.as_bytes(), "name", Tagv, b"renamed").await;
        store.put(b"renamed", "id", Tagv, host.uid.as_bytes()).await;
        let restored = step(&uids, Do::Restore, &host).await;
        testing::check_invariants(&store.inner).await;
        assert!(
            matches!(restored, Err(ReclaimError::Changed { .. })),
            "{restored:?}"
        );
        assert_eq!(lookup(&uids, "host").await, None);
    }
}

const FAILURES: [Failure; 3] = [Failure::Refused, Failure::DoneButUnknown, Failure::DoneLate];

#[tokio::test]
async fn every_step_can_be_repeated_after_a_crash() {
    for atomic in [true, false] {
        for (what, failure) in [Do::Quarantine, Do::Restore, Do::Release]
            .into_iter()
            .flat_map(|what| FAILURES.map(|failure| (what, failure)))
        {
            for operations in 1.. {
                let store = if atomic {
                    Wrapped::atomic()
                } else {
                    Wrapped::stepwise()
                };
                let healthy = uids(&store, &config(3)).await;
                let host = mapping("host", assign(&healthy, "host").await.unwrap());
                if what != Do::Quarantine {
                    step(&healthy, Do::Quarantine, &host).await.unwrap();
                }
                let failing = store.failing_after(operations, failure);
                // The quarantine is over.
                tokio::time::sleep(QUARANTINE * 2).await;
                let crashed = uids(&failing, &config(3)).await;
                let before = once(&crashed, what, &host).await;
                drop(crashed);
                let fresh = uids(&store, &config(3)).await;
                match step(&fresh, what, &host).await {
                    // Restored before the crash, or just recorded as such.
                    Err(ReclaimError::Changed { .. }) if what == Do::Restore => {}
                    result => result.unwrap(),
                }
                let expected = (what == Do::Restore).then_some(host.uid);
                assert_eq!(
                    lookup(&fresh, "host").await,
                    expected,
                    "after {operations} operations"
                );
                let name = (what != Do::Release).then(|| "host".to_owned());
                assert_eq!(
                    name_of(&fresh, host.uid).await,
                    name,
                    "after {operations} operations"
                );
                testing::check_invariants(&store.inner).await;
                if before.is_ok() {
                    break;
                }
                assert!(operations < 50);
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn replicas_assign_a_released_number_once() {
    for store in [Wrapped::atomic(), Wrapped::stepwise()] {
        let config = config(1);
        let first = uids(&store, &config).await;
        let names: Vec<KindName> = (1..=255).map(|number| key(&format!("name-{number}"))).collect();
        first.get_or_create(&names, Purpose::Write).await;
        for free in 1..=40 {
            let mapping = mapping(&format!("name-{free}"), number(free, 1));
            step(&first, Do::Quarantine, &mapping).await.unwrap();
            step(&first, Do::Release, &mapping).await.unwrap();
        }
        tokio::time::sleep(QUARANTINE * 2).await;
        let mut clients = tokio::task::JoinSet::new();
        for replica in 0..4 {
            let uids = uids(&store, &config).await;
            clients.spawn(async move {
                let mut assigned = 0;
                for number in 0..20 {
                    // Half of the names are requested by two replicas.
                    let name = format!("new-{}-{number}", replica / 2);
                    // The last numbers may be claimed for a moment for a name that another replica assigns.
                    while assign(&uids, &name).await.is_err() {
                        tokio::time::sleep(Duration::from_millis(20)).await;
                    }
                    assigned += 1;
                }
                assigned
            });
        }
        assert_eq!(clients.join_all().await.iter().sum::<u64>(), 80);
        let (mappings, _) = testing::check_invariants(&store.inner).await;
        let new = mappings.keys().filter(|(_, name)| name.starts_with(b"new"));
        assert_eq!(new.count(), 40);
    }
}

#[tokio::test]
async fn kinds_are_reclaimed_separately() {
    let store = Wrapped::stepwise();
    let uids = uids(&store, &config(3)).await;
    let name = key("both").1;
    for kind in UidKind::ALL {
        let outcome = uids.get_or_create(&[(kind, name.clone())], Purpose::Write).await;
        assert!(outcome[0].is_ok());
    }
    let both = mapping("both", number(1, 3));
    step(&uids, Do::Quarantine, &both).await.unwrap();
    step(&uids, Do::Release, &both).await.unwrap();
    let others = [(UidKind::Metric, name.clone()), (UidKind::Tagk, name)];
    let results = uids.lookup_uids(&others, Freshness::Store).await;
    assert!(results.iter().all(Result::is_ok));
    let (mappings, reverse) = testing::check_invariants(&store.inner).await;
    assert_eq!((mappings.len(), reverse), (2, 2));
}

#[tokio::test]
async fn a_check_of_the_table_leaves_uids_in_quarantine_alone() {
    for store in [Wrapped::atomic(), Wrapped::stepwise()] {
        let uids = uids(&store, &config(3)).await;
        let host = mapping("host", assign(&uids, "host").await.unwrap());
        step(&uids, Do::Quarantine, &host).await.unwrap();
        let findings = |uids| async move {
            let uids: &Uids = uids;
            let events = uids.fsck().check(vec![Tagv], Duration::ZERO).unwrap();
            let events: Vec<Event> = events.try_collect().await.unwrap();
            match events.last() {
                // That the counter is ahead of the names is reported as well.
                Some(Event::Summary(summary)) => {
                    let of = |finding| summary.findings.get(&finding).copied().unwrap_or(0);
                    of(FindingType::MissingForward) + of(FindingType::DuplicateReverse)
                }
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(findings(&uids).await, 0);
        assign(&uids, "host").await.unwrap();
        assert_eq!(findings(&uids).await, 0);
        store.put(&[0, 0, 9], "name", Tagv, b"orphan").await;
        assert_eq!(findings(&uids).await, 1, "others are found");
    }
}

/// Opens a watch of tag values.
async fn watch(
    uids: &Uids,
) -> std::pin::Pin<Box<dyn futures::Stream<Item = Result<WatchUpdate, UidServiceError>> + Send>> {
    let request = WatchRequest {
        kinds: vec![Tagv],
        skip_assigned: false,
        resume: None,
        heartbeat: Duration::from_secs(1),
    };
    Box::pin(uids.watch(request).await.unwrap())
}

#[tokio::test(start_paused = true)]
async fn other_replicas_and_watches_follow_a_quarantine_and_a_restore() {
    let store = Wrapped::stepwise();
    let one = uids(&store, &config(3)).await;
    let host = mapping("host", assign(&one, "host").await.unwrap());
    let two = std::sync::Arc::new(uids(&store, &config(3)).await);
    two.start();
    tokio::time::sleep(Duration::from_secs(2)).await;
    let mut events = watch(&two).await;
    let cached = async || {
        let results = two.lookup_uids(&[key("host")], Freshness::Cached).await;
        results[0].as_ref().ok().copied()
    };
    let mut next = async || loop {
        let update = events.next().await.unwrap().unwrap();
        if let Some(event) = update.events.first() {
            return (**event).clone();
        }
    };
    assert_eq!(cached().await, Some(host.uid));
    step(&one, Do::Quarantine, &host).await.unwrap();
    assert_eq!(next().await, watch::Event::Deleted(host.clone()));
    assert_eq!(cached().await, None);
    step(&one, Do::Restore, &host).await.unwrap();
    assert_eq!(next().await, watch::Event::Assigned(host.clone()));
    assert_eq!(cached().await, Some(host.uid));
}

#[tokio::test]
async fn a_number_that_was_assigned_and_deleted_meanwhile_is_not_drawn() {
    let store = Wrapped::stepwise();
    let (one, two) = (uids(&store, &config(1)).await, uids(&store, &config(1)).await);
    let names: Vec<KindName> = (1..=255).map(|number| key(&format!("name-{number}"))).collect();
    one.get_or_create(&names, Purpose::Write).await;
    for free in [7, 8] {
        let mapping = mapping(&format!("name-{free}"), number(free, 1));
        step(&one, Do::Quarantine, &mapping).await.unwrap();
        step(&one, Do::Release, &mapping).await.unwrap();
    }
    tokio::time::sleep(QUARANTINE * 2).await;
    // Reads both numbers ahead, and draws the first.
    assert_eq!(assign(&one, "first").await.unwrap(), number(7, 1));
    assert_eq!(assign(&two, "second").await.unwrap(), number(8, 1));
    let request = ChangeRequest {
        name: key("second"),
        expected: None,
    };
    two.delete(&request, SystemTime::now()).await.unwrap();
    let exhausted = assign(&one, "third").await;
    assert!(
        matches!(exhausted, Err(UidServiceError::SpaceExhausted { .. })),
        "points of the deleted name have this UID: {exhausted:?}"
    );
}

#[tokio::test]
async fn a_uid_that_gets_a_name_while_it_is_released_is_no_longer_reclaimed() {
    for store in [Wrapped::atomic(), Wrapped::stepwise()] {
        let uids = uids(&store, &config(3)).await;
        let host = mapping("host", assign(&uids, "host").await.unwrap());
        step(&uids, Do::Quarantine, &host).await.unwrap();
        tokio::time::sleep(QUARANTINE * 2).await;
        // The record, the mapping in both directions, and the next state of the record.
        let crashed = self::uids(&store.failing_after(4, Failure::Refused), &config(3)).await;
        once(&crashed, Do::Release, &host).await.unwrap_err();
        store.put(host.uid.as_bytes(), "name", Tagv, b"renamed").await;
        store.put(b"renamed", "id", Tagv, host.uid.as_bytes()).await;
        let renamed = step(&uids, Do::Release, &host).await;
        assert!(
            matches!(renamed, Err(ReclaimError::Changed { .. })),
            "{renamed:?}"
        );
        step(&uids, Do::Quarantine, &mapping("renamed", host.uid))
            .await
            .unwrap();
    }
}

#[tokio::test]
async fn quotas_never_count_too_little_after_a_crash() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rules.toml");
    let rules = "[[quota]]\nkind='tagv'\nlimit=9\n[[quota]]\nkind='tagv'\ntag_key='host'\nlimit=9\n";
    std::fs::write(&path, rules).unwrap();
    let mut config = config(3);
    config.policy.file = Some(path);
    let counted = async |store: &Wrapped| {
        let policy = LivePolicy::load(config.policy.clone()).unwrap();
        uids(store, &config).await.with_policy(policy)
    };
    let used = async |uids: &Uids| {
        let quotas = uids.quotas().await.unwrap();
        quotas.iter().map(|quota| quota.used).collect::<Vec<_>>()
    };
    let names = [key("host"), key("other")];
    let tag_keys = [Some("host".to_owned()), Some("host".to_owned())];
    for what in [Do::Quarantine, Do::Restore, Do::Release] {
        for operations in 1.. {
            let store = Wrapped::stepwise();
            let healthy = counted(&store).await;
            healthy.count_quotas(SystemTime::now()).await.unwrap();
            let outcomes = healthy.get_or_create_for(&names, &tag_keys, Purpose::Write).await;
            let host = mapping("host", outcomes[0].as_ref().unwrap().uid);
            if what != Do::Quarantine {
                step(&healthy, Do::Quarantine, &host).await.unwrap();
            }
            tokio::time::sleep(QUARANTINE * 2).await;
            let crashed = counted(&store.failing_after(operations, Failure::Refused)).await;
            let before = once(&crashed, what, &host).await;
            match step(&healthy, what, &host).await {
                Err(ReclaimError::Changed { .. }) if what == Do::Restore => {}
                result => result.unwrap(),
            }
            let expected = match what {
                Do::Quarantine => [1, 2],
                Do::Restore => [2, 2],
                Do::Release => [1, 1],
            };
            let counts = used(&healthy).await;
            if before.is_ok() {
                assert_eq!(counts, expected);
                break;
            }
            assert!(
                counts
                    .iter()
                    .zip(expected)
                    .all(|(count, expected)| *count >= expected),
                "after {operations}: {counts:?}, expected at least {expected:?}"
            );
        }
    }
}
