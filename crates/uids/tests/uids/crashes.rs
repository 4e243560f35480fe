//! An assignment may fail at any operation: the table stays consistent, and the next one succeeds.

use std::time::Duration;

use oxtsdb_row_store::memory::MemoryStore;
use oxtsdb_schema::{Name, NameRules, Uid, UidKind};
use oxtsdb_uids::table::KindName;
use oxtsdb_uids::testing::{self, Failure, Wrapped, check_invariants};
use oxtsdb_uids::uids::{Purpose, Uids};

async fn uids(store: Wrapped) -> Uids {
    testing::uids(store, &testing::config()).await
}

fn names() -> Vec<KindName> {
    let name = |text| Name::parse(text, &NameRules::default()).unwrap();
    vec![
        (UidKind::Metric, name("sys.cpu")),
        (UidKind::Tagk, name("host")),
        (UidKind::Tagv, name("web01")),
        (UidKind::Tagk, name("dc")),
        (UidKind::Metric, name("sys.mem")),
    ]
}

/// Returns the UIDs that `names` got before the store failed; none if there was no response.
async fn assign_until_failure(store: Wrapped, names: &[KindName]) -> Vec<(KindName, Uid)> {
    let service = uids(store).await;
    // The test's clock advances while all tasks are idle, so a hanging store costs no time.
    let patience = Duration::from_secs(3600);
    match tokio::time::timeout(patience, service.get_or_create(names, Purpose::Write)).await {
        Ok(outcomes) => {
            let known = names.iter().cloned().zip(outcomes);
            known
                .filter_map(|(name, outcome)| Some((name, outcome.ok()?.uid)))
                .collect()
        }
        Err(_no_response) => Vec::new(),
    }
}

async fn check_and_repeat(store: &MemoryStore, atomic: bool, known: Vec<(KindName, Uid)>, case: &str) {
    let (forward, _) = check_invariants(store).await;
    let mut names = names();
    names.reverse();
    names.push((
        UidKind::Metric,
        Name::parse("another", &NameRules::default()).unwrap(),
    ));
    let outcomes = uids(Wrapped::over(store.clone(), atomic))
        .await
        .get_or_create(&names, Purpose::Write)
        .await;
    let (after, _) = check_invariants(store).await;
    assert_eq!(after.len(), names.len(), "{case}");
    for (stored, uid) in forward {
        assert_eq!(after[&stored], uid, "{case}: a UID changed");
    }
    for ((kind, name), outcome) in names.iter().zip(outcomes) {
        let uid = outcome.unwrap_or_else(|error| panic!("{case}: {error}")).uid;
        assert_eq!(
            after[&(kind.qualifier().to_vec(), name.as_bytes().to_vec())],
            uid.as_bytes(),
            "{case}"
        );
    }
    for ((kind, name), uid) in known {
        let stored = &after[&(kind.qualifier().to_vec(), name.as_bytes().to_vec())];
        assert_eq!(stored, uid.as_bytes(), "{case}: an acknowledged UID was lost");
    }
}

const FAILURES: [Failure; 4] = [
    Failure::DoneLate,
    Failure::Refused,
    Failure::DoneButUnknown,
    Failure::Silent,
];

#[tokio::test(start_paused = true)]
async fn a_failure_at_any_operation_leaves_a_consistent_table() {
    for (atomic, failure) in [true, false]
        .into_iter()
        .flat_map(|atomic| FAILURES.map(|failure| (atomic, failure)))
    {
        for operations in 0.. {
            let store = MemoryStore::new();
            let failing = Wrapped::over(store.clone(), atomic).failing_after(operations, failure);
            let known = assign_until_failure(failing.clone(), &names()).await;
            failing.execute_delayed().await;
            let complete = (1..=operations).contains(&failing.operations_left());
            assert!(
                !complete || known.len() == names().len(),
                "the store never failed"
            );
            check_and_repeat(
                &store,
                atomic,
                known,
                &format!("{failure:?} after {operations}, atomic: {atomic}"),
            )
            .await;
            if complete {
                let least = if atomic { 7 } else { 17 };
                assert!(
                    operations >= least,
                    "only {operations} operations were interrupted"
                );
                break;
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_failing_rival_does_not_affect_the_other() {
    for (atomic, failure) in [true, false]
        .into_iter()
        .flat_map(|atomic| FAILURES.map(|failure| (atomic, failure)))
    {
        for rival_atomic in [true, false] {
            for operations in 0..40 {
                let store = MemoryStore::new();
                let failing = Wrapped::over(store.clone(), atomic).failing_after(operations, failure);
                let healthy = Wrapped::over(store.clone(), rival_atomic);
                let requested = names();
                let (known, rival) = tokio::join!(
                    assign_until_failure(failing.clone(), &requested),
                    assign_until_failure(healthy, &requested)
                );
                failing.execute_delayed().await;
                assert_eq!(rival.len(), requested.len(), "the healthy one succeeds");
                for (name, uid) in &known {
                    assert!(rival.contains(&(name.clone(), *uid)), "{name:?} has two UIDs");
                }
                let case = format!("{failure:?} after {operations}, atomic: {atomic}, rival: {rival_atomic}");
                check_and_repeat(&store, atomic, known, &case).await;
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn dropping_an_assignment_leaves_a_consistent_table() {
    for atomic in [true, false] {
        for polls in 0..120 {
            let store = MemoryStore::new();
            let service = uids(Wrapped::over(store.clone(), atomic)).await;
            // A runtime of its own: its end cancels background work.
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_time()
                .build()
                .unwrap();
            let worker = std::thread::spawn(move || {
                runtime.block_on(async {
                    let requested = names();
                    let mut assigning = Box::pin(service.get_or_create(&requested, Purpose::Write));
                    for _ in 0..polls {
                        if futures::poll!(&mut assigning).is_ready() {
                            break;
                        }
                        tokio::task::yield_now().await;
                    }
                });
            });
            worker.join().unwrap();
            check_and_repeat(
                &store,
                atomic,
                Vec::new(),
                &format!("dropped after {polls} polls"),
            )
            .await;
        }
    }
}
