//! Records what clients of several replicas do at once.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{bail, ensure};
use oxtsdb_client::{Error, ErrorReason, Uid, UidClient, UidEvent, UidKind, WatchOptions, WatchUpdate};
use oxtsdb_schema::UidWidth;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use tokio::task::JoinSet;

use super::{Action, Change, Event, Operation, Violation, Watch};

/// Clients.
const CLIENTS: usize = 64;

const KIND: UidKind = UidKind::Metric;

/// Names that the clients request UIDs of.
const CREATED: usize = 200;

/// Names that they look up, and rename to.
const NAMES: usize = 500;

/// A pause; its measured length shows how late timers are on a busy machine.
const PAUSE: Duration = Duration::from_millis(50);

/// How long a client waits after a look-up that failed.
const AFTER_FAILURE: Duration = Duration::from_millis(10);

/// State that all clients share.
#[derive(Debug)]
struct Recording {
    began: Instant,
    /// Operations that are left to start.
    left: AtomicUsize,
    /// The disturbance has ended.
    is_calm: AtomicBool,
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
        left.is_ok() || !self.is_calm.load(Ordering::Relaxed)
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
    Ok(Uid::from_number(uid, UidWidth::DEFAULT)?)
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
        let Some(action) = action else {
            tokio::time::sleep(AFTER_FAILURE).await;
            continue;
        };
        let mapping = match &action {
            Action::LookupUid { name, uid: Some(uid) } if choice >= 80 => Some((name.clone(), *uid)),
            _ => None,
        };
        let end = recording.now();
        history.push(Operation { start, end, action });
        let Some((name, uid)) = mapping else { continue };
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
    let uid = match results.into_iter().next() {
        Some(Ok(uid)) => Some(recording.note(uid)),
        Some(Err(rejection)) if rejection.reason == Some(ErrorReason::NameNotFound) => None,
        Some(Err(rejection)) => {
            recording.expect_uncertain(rejection.reason, &rejection)?;
            return Ok(None);
        }
        None => bail!("no result"),
    };
    Ok(Some(Action::LookupUid { name, uid }))
}

async fn lookup_name(service: &UidClient, recording: &Recording, uid: u64) -> anyhow::Result<Option<Action>> {
    let Ok(results) = service.lookup_names(&[(KIND, wide(uid)?)]).await else {
        return Ok(None);
    };
    let name = match results.into_iter().next() {
        Some(Ok(name)) => Some(name),
        Some(Err(rejection)) if rejection.reason == Some(ErrorReason::UidNotFound) => None,
        Some(Err(rejection)) => {
            recording.expect_uncertain(rejection.reason, &rejection)?;
            return Ok(None);
        }
        None => bail!("no result"),
    };
    Ok(Some(Action::LookupName { uid, name }))
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

/// Settings of a recording.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Operations at least.
    pub operations: usize,
    /// How long watches go on after the last operation.
    pub settle: Duration,
    /// How long a mapping may be returned after it has changed; late timers add to it.
    pub staleness: Duration,
    /// A replica has a bug: any error is expected.
    pub is_damaged: bool,
}

/// A recording.
#[derive(Debug)]
pub struct Recorded {
    /// The operations, by their start.
    pub history: Vec<Operation>,
    /// One of each replica.
    pub watches: Vec<Watch>,
    /// The bound of staleness, in microseconds.
    pub staleness: u64,
}

impl Recorded {
    /// Checks the history, and the watches.
    ///
    /// # Errors
    ///
    /// The first violation.
    pub fn check(&self) -> Result<(), Violation> {
        super::check(&self.history, self.staleness)?;
        self.watches
            .iter()
            .try_for_each(|watch| super::check_watch(watch, &self.history, self.staleness))
    }

    /// Prints what it has.
    pub fn print(&self) {
        let changes = |is: fn(Change) -> bool| {
            let outcomes = self
                .history
                .iter()
                .filter_map(|operation| match operation.action {
                    Action::Rename { outcome, .. } | Action::Delete { outcome, .. } => Some(outcome),
                    _ => None,
                });
            outcomes.filter(|outcome| is(*outcome)).count()
        };
        println!(
            "{} operations: {} renames and deletes done, {} of unknown outcome; staleness up to {} ms is accepted",
            self.history.len(),
            changes(|outcome| matches!(outcome, Change::Done(_))),
            changes(|outcome| matches!(outcome, Change::Unknown(_))),
            self.staleness / 1000,
        );
        for watch in &self.watches {
            println!("a watch returned {} events", watch.events.len());
        }
    }
}

/// Records `CLIENTS` clients, evenly spread over the replicas, until they have done all operations and the
/// disturbance, which runs beside them, has ended.
///
/// # Errors
///
/// If the disturbance fails, or a response is neither possible nor an outage.
pub async fn record(
    replicas: &[UidClient],
    random: &mut StdRng,
    plan: &Plan,
    disturbance: impl Future<Output = anyhow::Result<()>>,
) -> anyhow::Result<Recorded> {
    let recording = Arc::new(Recording {
        began: Instant::now(),
        left: AtomicUsize::new(plan.operations),
        is_calm: AtomicBool::new(false),
        late: AtomicU64::new(0),
        is_damaged: plan.is_damaged,
        uids: Mutex::default(),
    });
    let (stop, stopped) = tokio::sync::watch::channel(());
    let mut clock = JoinSet::new();
    clock.spawn(measure(Arc::clone(&recording)));
    let mut watches = JoinSet::new();
    for service in replicas {
        watches.spawn(watch(service.clone(), Arc::clone(&recording), stopped.clone()));
    }
    let mut clients = JoinSet::new();
    for (_, service) in (0..CLIENTS).zip(replicas.iter().cycle()) {
        let random = StdRng::seed_from_u64(random.random());
        clients.spawn(client(service.clone(), Arc::clone(&recording), random));
    }
    let disturbed = disturbance.await;
    recording.is_calm.store(true, Ordering::Relaxed);
    disturbed?;
    let mut history = Vec::new();
    while let Some(recorded) = clients.join_next().await {
        history.extend(recorded??);
    }
    history.sort_by_key(|operation| operation.start);
    tokio::time::sleep(plan.settle).await;
    drop(stop);
    let watches = watches.join_all().await;
    let late = Duration::from_micros(recording.late.load(Ordering::Relaxed));
    Ok(Recorded {
        history,
        watches,
        staleness: micros(plan.staleness + 4 * late),
    })
}
