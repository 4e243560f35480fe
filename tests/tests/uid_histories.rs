//! Histories of 64 clients of 4 replicas of the UID service are accepted by the checker, and those of replicas with a
//! planted bug are not.
//!
//! The replicas share one store in memory that looks like HBase's. Each has its own way to it, which delays
//! operations, rejects them, and loses their responses.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{bail, ensure};
use async_trait::async_trait;
use oxtsdb_client::{Error, ErrorReason, Uid, UidClient, UidEvent, UidKind, WatchOptions, WatchUpdate};
use oxtsdb_row_store::intercept::{Intercept, InterceptedStore, Operation as StoreOperation, Response};
use oxtsdb_row_store::memory::MemoryStore;
use oxtsdb_row_store::{RowStore, StoreError};
use oxtsdb_server::{Shutdown, ShutdownTrigger};
use oxtsdb_tests::uid_histories::{self, Action, Change, Event, Operation, Watch};
use oxtsdb_tests::{random, sizes};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use tokio::task::JoinSet;
use uid_service::UidSettings;

const CLIENTS: usize = 64;
const REPLICAS: usize = 4;
const KIND: UidKind = UidKind::Metric;

/// Names that the clients request UIDs of.
const CREATED: usize = 200;

/// Names that they look up, and rename to.
const NAMES: usize = 500;

/// The contract's bound for caches of other replicas, 3 s, and what the failures of the store add.
const STALENESS: Duration = Duration::from_secs(5);

/// The pause whose length shows how late timers are on a busy machine.
const PAUSE: Duration = Duration::from_millis(50);

/// A bug of one replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bug {
    /// It does not see what other replicas have logged, and keeps its cache.
    StaleCache,
    /// Its compare-and-sets succeed always.
    LostCompareAndSet,
    /// Its counters return numbers again, and it does not see that they are taken.
    DoubleAssignment,
}

/// The way of one replica to the store.
#[derive(Debug)]
struct Network {
    random: Mutex<StdRng>,
    bug: Option<Bug>,
}

/// What happens to an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Performed,
    /// It has no effect.
    Rejected,
    /// It is performed, and its response lost.
    ResponseLost,
    /// It fails, and is performed later.
    Late(Duration),
}

impl Network {
    fn draw(&self) -> (Duration, Fate) {
        let mut random = self.random.lock().unwrap_or_else(PoisonError::into_inner);
        let delay = match random.random_range(0..100) {
            0..60 => 0,
            60..95 => random.random_range(0..2_000),
            _ => random.random_range(0..30_000),
        };
        let fate = match random.random_range(0..1000) {
            0..5 => Fate::Rejected,
            5..10 => Fate::ResponseLost,
            10..12 => Fate::Late(Duration::from_millis(random.random_range(1..100))),
            _ => Fate::Performed,
        };
        (Duration::from_micros(delay), fate)
    }

    /// The response of a replica with a bug; `None`: that of the store.
    async fn bug(
        &self,
        operation: &StoreOperation,
        store: &dyn RowStore,
    ) -> Option<Result<Response, StoreError>> {
        match (self.bug?, operation) {
            (Bug::StaleCache, StoreOperation::Scan { table, .. })
                if table.to_string().ends_with("-state") =>
            {
                Some(Ok(Response::Scan(Box::pin(futures::stream::empty()))))
            }
            // It would append where another replica has, again and again, and suspends its cache while it cannot read.
            (Bug::StaleCache, StoreOperation::CheckAndPut { table, .. })
                if table.to_string().ends_with("-state") =>
            {
                Some(Err(StoreError::Unavailable {
                    detail: "rejected by the test".to_owned(),
                }))
            }
            (
                Bug::LostCompareAndSet,
                StoreOperation::CheckAndPut {
                    table,
                    condition,
                    value,
                },
            ) => {
                let mut batch = oxtsdb_row_store::WriteBatch::new(table.clone());
                let family = batch.family(&condition.cell.family);
                batch
                    .row(&condition.cell.row)
                    .put(family, &condition.cell.qualifier, value);
                Some(store.write(batch).await.map(|()| Response::Held(true)))
            }
            (Bug::DoubleAssignment, StoreOperation::Increment { table, cell, amount }) => {
                // Reads the counter, and writes it after others may have done so.
                let sum = store.increment(table, cell, 0).await;
                tokio::time::sleep(Duration::from_millis(2)).await;
                drop(store.increment(table, cell, *amount).await);
                Some(sum.map(|sum| Response::Sum(sum + amount)))
            }
            (
                Bug::DoubleAssignment,
                StoreOperation::CheckAndPut {
                    table,
                    condition,
                    value,
                },
            ) if condition.cell.family == "name" && condition.expected.is_none() => {
                let mut batch = oxtsdb_row_store::WriteBatch::new(table.clone());
                let family = batch.family("name");
                batch
                    .row(&condition.cell.row)
                    .put(family, &condition.cell.qualifier, value);
                Some(store.write(batch).await.map(|()| Response::Held(true)))
            }
            _ => None,
        }
    }
}

/// The shared store, which performs late operations after their failure.
#[derive(Debug)]
struct Way {
    network: Network,
    store: MemoryStore,
}

#[async_trait]
impl Intercept for Way {
    async fn intercept(
        &self,
        operation: StoreOperation,
        store: &dyn RowStore,
    ) -> Result<Response, StoreError> {
        let (delay, fate) = self.network.draw();
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        if let Some(response) = self.network.bug(&operation, store).await {
            return response;
        }
        let lost = || StoreError::TimedOut {
            detail: "lost by the test".to_owned(),
        };
        match fate {
            Fate::Performed => operation.perform(store).await,
            Fate::Rejected => Err(StoreError::Unavailable {
                detail: "rejected by the test".to_owned(),
            }),
            Fate::ResponseLost => operation.perform(store).await.and_then(|_| Err(lost())),
            Fate::Late(pause) => {
                let store = self.store.clone();
                tokio::spawn(async move {
                    tokio::time::sleep(pause).await;
                    drop(operation.perform(&store).await);
                });
                Err(lost())
            }
        }
    }
}

/// Replicas of the service over one store; the first has the bug.
async fn replicas(
    random: &mut StdRng,
    bug: Option<Bug>,
) -> anyhow::Result<(Vec<UidClient>, ShutdownTrigger)> {
    let store = MemoryStore::new();
    let settings = UidSettings::default();
    uid_service::store_part(&settings)?.make_tables(&store).await?;
    let (shutdown, trigger) = Shutdown::new(Duration::ZERO);
    let mut clients = Vec::new();
    for replica in 0..REPLICAS {
        let way = Way {
            network: Network {
                random: Mutex::new(StdRng::seed_from_u64(random.random())),
                bug: bug.filter(|_| replica == 0),
            },
            store: store.clone(),
        };
        let store = InterceptedStore::new(Arc::new(store.clone()), Arc::new(way)).like_hbase();
        let store: Arc<dyn RowStore> = Arc::new(store);
        // The checks of its start are subject to the same failures.
        let service = loop {
            match uid_service::assemble(Arc::clone(&store), &settings, shutdown.clone()).await {
                Ok(service) => break service,
                Err(error) if error.downcast_ref::<StoreError>().is_some() => {}
                Err(error) if format!("{error:#}").contains("by the test") => {}
                Err(error) => return Err(error),
            }
        };
        clients.push(UidClient::in_process(service.routes()));
    }
    Ok((clients, trigger))
}

/// What all clients share.
#[derive(Debug)]
struct Recording {
    began: Instant,
    /// Operations that are left to start.
    left: AtomicUsize,
    until: Instant,
    /// By how much a pause of [`PAUSE`] was too long at most, in microseconds.
    late: AtomicU64,
    /// A replica has a bug, so that the table may be damaged.
    is_damaged: bool,
    /// UIDs that were seen, to be looked up.
    uids: Mutex<Vec<u64>>,
}

impl Recording {
    fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    fn goes_on(&self) -> bool {
        let left = self
            .left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        left.is_ok() || Instant::now() < self.until
    }

    fn note(&self, uid: Uid) -> u64 {
        let number = uid.number();
        let mut uids = self.uids.lock().unwrap_or_else(PoisonError::into_inner);
        if uids.last() != Some(&number) {
            uids.push(number);
        }
        number
    }

    fn any_uid(&self, random: &mut StdRng) -> Option<u64> {
        let uids = self.uids.lock().unwrap_or_else(PoisonError::into_inner);
        // Recent ones mostly: old ones are deleted.
        let first = uids.len().saturating_sub(1000);
        (first < uids.len()).then(|| uids[random.random_range(first..uids.len())])
    }
}

fn wide(uid: u64) -> anyhow::Result<Uid> {
    Ok(Uid::from_number(uid, oxtsdb_schema::UidWidth::DEFAULT)?)
}

impl Recording {
    /// Checks that the service could not say what it did.
    fn expect_uncertain(
        &self,
        reason: Option<ErrorReason>,
        error: &dyn std::fmt::Display,
    ) -> anyhow::Result<()> {
        use ErrorReason as R;

        let is_uncertain = matches!(
            reason,
            None | Some(R::StoreUnavailable | R::DeadlineExceeded | R::NoFreeUid)
        );
        ensure!(is_uncertain || self.is_damaged, "{error}");
        Ok(())
    }

    /// The outcome of a change that failed.
    fn failed_change(&self, error: &Error, uid: u64) -> anyhow::Result<Change> {
        use ErrorReason as R;

        Ok(match error.reason() {
            Some(R::NameNotFound) => Change::NotFound,
            Some(R::NameTaken | R::UidMismatch | R::OperationInProgress | R::StateChanged) => {
                Change::Rejected
            }
            reason => {
                self.expect_uncertain(reason, error)?;
                Change::Unknown(uid)
            }
        })
    }
}

/// Runs operations and records them.
async fn client(
    service: UidClient,
    recording: Arc<Recording>,
    mut random: StdRng,
) -> anyhow::Result<Vec<Operation>> {
    let mut history = Vec::new();
    while recording.goes_on() {
        let choice = random.random_range(0..100);
        let names = if choice < 25 { CREATED } else { NAMES };
        let name = format!("n{}", random.random_range(0..names));
        let start = recording.now();
        let action = match choice {
            0..25 => get_or_create(&service, &recording, name).await?,
            25..50 => match recording.any_uid(&mut random) {
                Some(uid) => lookup_name(&service, &recording, uid).await?,
                None => None,
            },
            _ => lookup_uid(&service, &recording, name).await?,
        };
        let Some(action) = action else { continue };
        let found = match &action {
            Action::LookupUid {
                name,
                found: Some(uid),
            } if choice >= 80 => Some((name.clone(), *uid)),
            _ => None,
        };
        let end = recording.now();
        history.push(Operation { start, end, action });
        let Some((name, uid)) = found else { continue };
        let start = recording.now();
        let action = if choice < 92 {
            let to = format!("n{}", random.random_range(0..NAMES));
            if to == name {
                continue;
            }
            let outcome = match service.rename(KIND, &name, &to, Some(wide(uid)?)).await {
                Ok(_) => Change::Done(uid),
                Err(error) => recording.failed_change(&error, uid)?,
            };
            Action::Rename {
                from: name,
                to,
                outcome,
            }
        } else {
            let outcome = match service.delete(KIND, &name, Some(wide(uid)?)).await {
                Ok(_) => Change::Done(uid),
                Err(error) => recording.failed_change(&error, uid)?,
            };
            Action::Delete { name, outcome }
        };
        let end = recording.now();
        history.push(Operation { start, end, action });
    }
    Ok(history)
}

async fn get_or_create(
    service: &UidClient,
    recording: &Recording,
    name: String,
) -> anyhow::Result<Option<Action>> {
    let outcome = match service.get_or_create_uids(&[(KIND, &name)], true).await {
        Ok(results) => match results.into_iter().next() {
            Some(Ok(assigned)) => Some((recording.note(assigned.uid), assigned.created)),
            Some(Err(rejection)) => {
                recording.expect_uncertain(rejection.reason, &rejection)?;
                None
            }
            None => bail!("no result"),
        },
        Err(error) => {
            recording.expect_uncertain(error.reason(), &error)?;
            None
        }
    };
    Ok(Some(Action::GetOrCreate { name, outcome }))
}

async fn lookup_uid(
    service: &UidClient,
    recording: &Recording,
    name: String,
) -> anyhow::Result<Option<Action>> {
    let Ok(results) = service.lookup_uids(&[(KIND, &name)]).await else {
        return Ok(None);
    };
    let found = match results.into_iter().next() {
        Some(Ok(uid)) => Some(recording.note(uid)),
        Some(Err(rejection)) if rejection.reason == Some(ErrorReason::NameNotFound) => None,
        Some(Err(rejection)) => {
            recording.expect_uncertain(rejection.reason, &rejection)?;
            return Ok(None);
        }
        None => bail!("no result"),
    };
    Ok(Some(Action::LookupUid { name, found }))
}

async fn lookup_name(service: &UidClient, recording: &Recording, uid: u64) -> anyhow::Result<Option<Action>> {
    let Ok(results) = service.lookup_names(&[(KIND, wide(uid)?)]).await else {
        return Ok(None);
    };
    let found = match results.into_iter().next() {
        Some(Ok(name)) => Some(name),
        Some(Err(rejection)) if rejection.reason == Some(ErrorReason::UidNotFound) => None,
        Some(Err(rejection)) => {
            recording.expect_uncertain(rejection.reason, &rejection)?;
            return Ok(None);
        }
        None => bail!("no result"),
    };
    Ok(Some(Action::LookupName { uid, found }))
}

/// Records a watch until the sender of `stopped` is dropped.
async fn watch(
    service: UidClient,
    recording: Arc<Recording>,
    mut stopped: tokio::sync::watch::Receiver<()>,
) -> Watch {
    let mut watch = service.watch(WatchOptions::default());
    let mut recorded = Watch::default();
    loop {
        let update = tokio::select! {
            update = watch.next() => update,
            _ = stopped.changed() => break,
        };
        let now = recording.now();
        match update {
            WatchUpdate::Events { events, .. } => {
                recorded
                    .events
                    .extend(events.into_iter().map(|event| (now, event_of(event))));
            }
            WatchUpdate::Resync { .. } => recorded.events.push((now, Event::Resync)),
            WatchUpdate::Heartbeat | WatchUpdate::Interrupted(_) => {}
        }
    }
    recorded.end = recording.now();
    recorded
}

fn event_of(event: UidEvent) -> Event {
    match event {
        UidEvent::Assigned(mapping) => Event::Assigned {
            uid: mapping.uid.number(),
            name: mapping.name,
        },
        UidEvent::Renamed { mapping, old_name } => Event::Renamed {
            uid: mapping.uid.number(),
            from: old_name,
            to: mapping.name,
        },
        UidEvent::Deleted(mapping) => Event::Deleted {
            uid: mapping.uid.number(),
            name: mapping.name,
        },
    }
}

/// Measures how late timers are.
async fn measure(recording: Arc<Recording>) {
    loop {
        let began = Instant::now();
        tokio::time::sleep(PAUSE).await;
        let late = micros(began.elapsed().saturating_sub(PAUSE));
        recording.late.fetch_max(late, Ordering::Relaxed);
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// What was recorded.
struct Recorded {
    history: Vec<Operation>,
    watches: Vec<Watch>,
    /// The bound of staleness, in microseconds.
    staleness: u64,
}

/// Records a history of some operations, and at least of some time.
async fn record(
    random: &mut StdRng,
    bug: Option<Bug>,
    operations: usize,
    time: Duration,
    settle: Duration,
) -> anyhow::Result<Recorded> {
    let (replicas, _trigger) = replicas(random, bug).await?;
    let began = Instant::now();
    let recording = Arc::new(Recording {
        began,
        left: AtomicUsize::new(operations),
        until: began + time,
        late: AtomicU64::new(0),
        is_damaged: bug.is_some(),
        uids: Mutex::default(),
    });
    let (stop, stopped) = tokio::sync::watch::channel(());
    let clock = tokio::spawn(measure(Arc::clone(&recording)));
    let mut watches = JoinSet::new();
    for service in &replicas {
        watches.spawn(watch(service.clone(), Arc::clone(&recording), stopped.clone()));
    }
    let mut clients = JoinSet::new();
    for number in 0..CLIENTS {
        let service = replicas[number % REPLICAS].clone();
        let random = StdRng::seed_from_u64(random.random());
        clients.spawn(client(service, Arc::clone(&recording), random));
    }
    let mut history = Vec::new();
    while let Some(recorded) = clients.join_next().await {
        history.extend(recorded??);
    }
    history.sort_by_key(|operation| operation.start);
    // The last changes are due by then.
    tokio::time::sleep(settle).await;
    drop(stop);
    let watches = watches.join_all().await;
    clock.abort();
    let late = Duration::from_micros(recording.late.load(Ordering::Relaxed));
    Ok(Recorded {
        history,
        watches,
        staleness: micros(STALENESS + 4 * late),
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn histories_of_four_replicas_are_accepted() -> anyhow::Result<()> {
    let mut random = random::seeded("uid histories")?;
    let operations = sizes::of("OXTSDB_HISTORY_OPERATIONS", 15_000)?;
    let time = Duration::from_secs(8);
    let Recorded {
        history,
        watches,
        staleness,
    } = record(&mut random, None, operations, time, STALENESS).await?;
    ensure!(history.len() >= operations / 2, "{} operations", history.len());
    let count = |is: fn(&Action) -> bool| history.iter().filter(|operation| is(&operation.action)).count();
    println!(
        "{} operations: {} renames and {} deletes done, {} changes of unknown outcome",
        history.len(),
        count(|action| matches!(
            action,
            Action::Rename {
                outcome: Change::Done(_),
                ..
            }
        )),
        count(|action| matches!(
            action,
            Action::Delete {
                outcome: Change::Done(_),
                ..
            }
        )),
        count(|action| matches!(
            action,
            Action::Rename {
                outcome: Change::Unknown(_),
                ..
            } | Action::Delete {
                outcome: Change::Unknown(_),
                ..
            }
        )),
    );
    println!("staleness up to {} ms is accepted", staleness / 1000);
    uid_histories::check(&history, staleness)?;
    for watch in &watches {
        println!("a watch returned {} events", watch.events.len());
        uid_histories::check_watch(watch, &history, staleness)?;
    }
    Ok(())
}

/// Histories that are recorded until a bug shows.
const ATTEMPTS: usize = 10;

/// The violation in a history of replicas with a bug.
async fn violation(bug: Bug, time: Duration) -> anyhow::Result<String> {
    let mut random = random::seeded("uid histories")?;
    for _ in 0..ATTEMPTS {
        let recorded = record(&mut random, Some(bug), 5_000, time, Duration::ZERO).await?;
        if let Err(violation) = uid_histories::check(&recorded.history, recorded.staleness) {
            println!("{bug:?}: {violation}");
            return Ok(violation.to_string());
        }
    }
    bail!("{bug:?} was not found")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_stale_cache_is_found() -> anyhow::Result<()> {
    let found = violation(Bug::StaleCache, STALENESS * 2).await?;
    ensure!(found.contains("did not have the name"), "{found}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_lost_compare_and_set_is_found() -> anyhow::Result<()> {
    violation(Bug::LostCompareAndSet, Duration::from_secs(1)).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_double_assignment_is_found() -> anyhow::Result<()> {
    let found = violation(Bug::DoubleAssignment, Duration::from_secs(1)).await?;
    ensure!(found.contains("UID"), "{found}");
    Ok(())
}
