//! A name has one UID and a UID one name under concurrent assignment.

use std::collections::HashMap;
use std::sync::Arc;

use oxtsdb_row_store::memory::MemoryStore;
use oxtsdb_schema::{Name, NameRules, UidKind, UidWidth};
use oxtsdb_uids::config::UidConfig;
use oxtsdb_uids::table::KindName;
use oxtsdb_uids::testing::{self, Wrapped, check_invariants, counter, names};
use oxtsdb_uids::uids::{Freshness, Purpose, Uids};
use proptest::prelude::*;

async fn uids(store: Wrapped, config: &UidConfig) -> Arc<Uids> {
    Arc::new(testing::uids(store, config).await)
}

/// 64 clients, spread over the services, assign the same names in batches, each with a different first
/// batch. Returns the number of results that report a name as created.
async fn clients_agree(services: &[Arc<Uids>], requested: Vec<KindName>, batch: usize) -> usize {
    let requested = Arc::new(requested);
    let mut clients = tokio::task::JoinSet::new();
    for client in 0..64 {
        let (service, requested) = (services[client % services.len()].clone(), requested.clone());
        clients.spawn(async move {
            let mut results = Vec::with_capacity(requested.len());
            let mut batches: Vec<&[KindName]> = requested.chunks(batch).collect();
            let length = batches.len();
            batches.rotate_left(client % length);
            for names in batches {
                results.extend(service.get_or_create(names, Purpose::Write).await);
            }
            let assigned: Vec<_> = results.into_iter().map(Result::unwrap).collect();
            let created = assigned.iter().filter(|assigned| assigned.created).count();
            let mut uids: Vec<_> = assigned.into_iter().map(|assigned| assigned.uid).collect();
            // Back into the order of the names.
            let first = requested
                .chunks(batch)
                .take(client % length)
                .map(<[_]>::len)
                .sum();
            uids.rotate_right(first);
            (uids, created)
        });
    }
    let results = clients.join_all().await;
    assert!(
        results.iter().all(|(uids, _)| *uids == results[0].0),
        "clients got different UIDs"
    );
    results.iter().map(|(_, created)| created).sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sixty_four_clients_of_one_service_agree() {
    for store in [Wrapped::atomic(), Wrapped::stepwise()] {
        let service = uids(store.clone(), &testing::config()).await;
        let created = clients_agree(&[service], names(UidKind::Tagv, 20_000), 4096).await;
        assert_eq!(created, 20_000, "each name is created once");
        let (forward, reverse) = check_invariants(&store.inner).await;
        assert_eq!((forward.len(), reverse), (20_000, 20_000), "no orphan");
        assert!(
            testing::cells(&store.inner)
                .await
                .contains(&counter(UidKind::Tagv, 20_000)),
            "no hole"
        );
    }
}

/// Starts all services before the first request, so that they race.
async fn replicas(store: &MemoryStore, atomic: [bool; 8], config: &UidConfig) -> Vec<Arc<Uids>> {
    let mut services = Vec::new();
    for atomic in atomic {
        services.push(uids(Wrapped::over(store.clone(), atomic), config).await);
    }
    services
}

/// Replicas share nothing but the store.
async fn replicas_agree(replicas: &[Wrapped], count: usize) -> (MemoryStore, usize) {
    let mut services = Vec::new();
    for store in replicas {
        services.push(uids(store.clone(), &testing::config()).await);
    }
    let created = clients_agree(&services, names(UidKind::Metric, count), 250).await;
    assert_eq!(created, count, "each name is created once");
    let store = replicas[0].inner.clone();
    let (forward, reverse) = check_invariants(&store).await;
    assert_eq!(forward.len(), count);
    (store, reverse)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn atomic_replicas_agree_and_skip_no_uid() {
    let store = MemoryStore::new();
    let replicas = vec![Wrapped::over(store, true); 4];
    let (store, reverse) = replicas_agree(&replicas, 1500).await;
    assert_eq!(reverse, 1500);
    assert!(
        testing::cells(&store)
            .await
            .contains(&counter(UidKind::Metric, 1500))
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stepwise_replicas_agree_and_leave_no_orphans() {
    let store = MemoryStore::new();
    let replicas = vec![Wrapped::over(store, false); 4];
    let (_, reverse) = replicas_agree(&replicas, 1500).await;
    assert_eq!(reverse, 1500, "the losers of a race remove their reverse cells");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn atomic_and_stepwise_replicas_agree() {
    let store = MemoryStore::new();
    let replicas = [true, false, true, false].map(|atomic| Wrapped::over(store.clone(), atomic));
    let (_, reverse) = replicas_agree(&replicas, 1500).await;
    assert_eq!(reverse, 1500);
}

#[tokio::test]
async fn racing_replicas_do_not_exceed_the_largest_uid() {
    for atomic in [true, false] {
        let store = MemoryStore::new();
        let mut config = testing::config();
        config.layout.kinds.metric.width = UidWidth::new(1).unwrap();
        let services = replicas(&store, [atomic; 8], &config).await;
        let mut clients = tokio::task::JoinSet::new();
        for (client, service) in services.into_iter().enumerate() {
            clients.spawn(async move {
                let mut assigned = 0;
                for (kind, name) in names(UidKind::Metric, 50) {
                    let name = Name::parse(&format!("{client}.{name}"), &NameRules::default()).unwrap();
                    let outcome = service
                        .get_or_create(&[(kind, name)], Purpose::Write)
                        .await
                        .remove(0);
                    assigned += usize::from(outcome.is_ok());
                }
                assigned
            });
        }
        let assigned: usize = clients.join_all().await.into_iter().sum();
        assert_eq!(assigned, 255, "8 × 50 names compete for 255 numbers");
        let (forward, reverse) = check_invariants(&store).await;
        assert_eq!((forward.len(), reverse), (255, 255));
        assert!(
            testing::cells(&store)
                .await
                .contains(&counter(UidKind::Metric, 255))
        );
    }
}

#[tokio::test]
async fn replicas_that_draw_the_same_random_uids_do_not_share_them() {
    let store = MemoryStore::new();
    let mut config = testing::config();
    config.layout.kinds.metric.random = true;
    config.layout.kinds.metric.width = UidWidth::new(1).unwrap();
    let services = replicas(
        &store,
        [true, true, true, false, true, true, true, false],
        &config,
    )
    .await;
    let mut clients = tokio::task::JoinSet::new();
    for (client, service) in services.into_iter().enumerate() {
        // Half of a space of 255 numbers, so that each batch meets others.
        let names: Vec<KindName> = (0..16)
            .map(|number| format!("{client}.{number}"))
            .map(|name| {
                (
                    UidKind::Metric,
                    Name::parse(&name, &NameRules::default()).unwrap(),
                )
            })
            .collect();
        clients.spawn(async move { service.get_or_create(&names, Purpose::Write).await });
    }
    let outcomes = clients.join_all().await.concat();
    let assigned = outcomes.iter().filter(|outcome| outcome.is_ok()).count();
    let (forward, reverse) = check_invariants(&store).await;
    assert_eq!((forward.len(), reverse), (assigned, assigned));
    assert!(assigned > 100, "nine draws are enough for nearly all: {assigned}");
}

#[tokio::test]
async fn a_cancelled_caller_does_not_affect_the_others() {
    let service = uids(Wrapped::stepwise(), &testing::config()).await;
    let requested = names(UidKind::Metric, 50);
    for after in 0..200 {
        let mut impatient = Box::pin(service.get_or_create(&requested, Purpose::Write));
        for _ in 0..after {
            if futures::poll!(&mut impatient).is_ready() {
                break;
            }
            tokio::task::yield_now().await;
        }
        drop(impatient);
        let patient = service.get_or_create(&requested, Purpose::Write).await;
        assert!(patient.iter().all(Result::is_ok), "after {after}: {patient:?}");
    }
}

/// A step of a task.
#[derive(Clone, Debug)]
enum Step {
    Assign(Vec<KindName>),
    LookUpNames(Vec<KindName>),
    /// Reads back the UIDs that it got so far.
    LookUpUids,
}

fn step() -> impl Strategy<Value = Step> {
    let kind = prop_oneof![Just(UidKind::Metric), Just(UidKind::Tagk)];
    let name = (kind, 0..12_usize).prop_map(|(kind, number)| names(kind, 12).swap_remove(number));
    let some = prop::collection::vec(name, 1..8);
    prop_oneof![
        3 => some.clone().prop_map(Step::Assign),
        1 => some.prop_map(Step::LookUpNames),
        1 => Just(Step::LookUpUids),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Several tasks perform random steps on several replicas, which assign atomically or stepwise.
    #[test]
    fn names_and_uids_stay_a_bijection(
        replicas in prop::collection::vec(any::<bool>(), 1..4),
        tasks in prop::collection::vec(prop::collection::vec(step(), 1..8), 2..6),
        random in any::<bool>(),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let store = MemoryStore::new();
            let mut config = testing::config();
            config.layout.kinds.metric.random = random;
            config.layout.kinds.metric.width = UidWidth::new(1).unwrap();
            let mut services = Vec::new();
            for atomic in &replicas {
                services.push(uids(Wrapped::over(store.clone(), *atomic), &config).await);
            }
            let mut running = tokio::task::JoinSet::new();
            for (place, steps) in tasks.into_iter().enumerate() {
                running.spawn(perform(services[place % services.len()].clone(), steps));
            }
            let mut known = HashMap::new();
            for (name, uid) in running.join_all().await.concat() {
                let before = known.insert(name.clone(), uid);
                assert!(before.is_none_or(|before| before == uid), "{name:?} has both {before:?} and {uid}");
            }
            let (forward, reverse) = check_invariants(&store).await;
            assert_eq!(forward.len(), reverse, "an orphan was left");
            for ((kind, name), uid) in known {
                let stored = &forward[&(kind.qualifier().to_vec(), name.as_bytes().to_vec())];
                assert_eq!(stored, uid.as_bytes());
            }
        });
    }
}

/// Performs the steps and returns the UIDs that it got.
async fn perform(service: Arc<Uids>, steps: Vec<Step>) -> Vec<(KindName, oxtsdb_schema::Uid)> {
    let mut known: Vec<(KindName, oxtsdb_schema::Uid)> = Vec::new();
    for step in steps {
        match step {
            Step::Assign(requested) => {
                let outcomes = service.get_or_create(&requested, Purpose::Write).await;
                known.extend(
                    requested
                        .into_iter()
                        .zip(outcomes.into_iter().map(|outcome| outcome.unwrap().uid)),
                );
            }
            Step::LookUpNames(requested) => {
                let results = service.lookup_uids(&requested, Freshness::Cached).await;
                known.extend(
                    requested
                        .into_iter()
                        .zip(results)
                        .filter_map(|(name, uid)| Some((name, uid.ok()?))),
                );
            }
            Step::LookUpUids => {
                let uids: Vec<_> = known.iter().map(|((kind, _), uid)| (*kind, *uid)).collect();
                let results = service.lookup_names(&uids, Freshness::Store).await;
                for (((_, name), uid), result) in known.iter().zip(results) {
                    assert_eq!(&result.unwrap(), name, "{uid} is {name:?}");
                }
            }
        }
    }
    known
}
