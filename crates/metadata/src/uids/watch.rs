//! Keeps the caches coherent: follows the UID service's watch of renames and deletes.
//!
//! A change is removed from the caches when it is reported, and once more after the lag of the service's replicas:
//! until then, a look-up may have been served by a replica that did not know of it yet.
//!
//! While the watch is interrupted, changes are unknown. It resumes without a loss within a second if any replica is
//! reachable. If none is, cached mappings are used until they expire by age, because an outage of the UID service must
//! not stop writes to known series. If the service can be reached but rejects the watch, the caches are emptied every
//! [`WITHOUT_WATCH`].

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::Duration;

use oxtsdb_client::{UidEvent, WatchOptions, WatchUpdate};
use oxtsdb_proto::common::v1::ErrorReason;
use oxtsdb_schema::UidKind;
use tokio::time::Instant;
use tracing::{info, warn};

use super::changes::ChangedUids;
use super::series_cache::SeriesCache;
use super::{Inner, Uids};
use crate::meta::changes::Subject;

/// The interval of heartbeats: a watch is taken as broken after three.
const HEARTBEAT: Duration = Duration::from_secs(1);

/// The time by which the lag of replicas is extended: a look-up that was served within it arrives in this time.
const IN_FLIGHT: Duration = Duration::from_millis(500);

/// The pause between two times that the caches are emptied because there is no watch.
const WITHOUT_WATCH: Duration = Duration::from_secs(10);

/// How often names of UIDs in use are looked up again while some have none.
const NAMELESS: Duration = Duration::from_secs(10);

/// Changes that wait for the lag of replicas. With more, everything is forgotten after it.
const MAX_WAITING: usize = 1024;

/// Mappings to remove from the caches.
#[derive(Clone, Debug)]
enum Stale {
    Events(Arc<[UidEvent]>),
    Everything,
}

/// How long a start waits for the watch. It goes on without one, too.
const START: Duration = Duration::from_secs(5);

/// Follows the watch until the caches are dropped. Returns when it is open, so that what is looked up from then on
/// need not be forgotten because of changes before it. Must be called within a Tokio runtime.
pub(super) async fn start(uids: &Uids) {
    let options = WatchOptions {
        skip_assigned: true,
        heartbeat: HEARTBEAT,
        ..WatchOptions::default()
    };
    let mut watch = uids.0.client.watch(options);
    let mut follower = Follower {
        inner: Arc::downgrade(&uids.0),
        waiting: VecDeque::new(),
        interrupted: false,
        emptied_at: None,
        compared_at: None,
    };
    let first = tokio::time::timeout(START, watch.next()).await.ok();
    follower.follow(first).await;
    tokio::spawn(async move {
        let mut opened = watch.opened();
        loop {
            let update = match follower.waiting.front() {
                Some((due, _)) => tokio::time::timeout_at(*due, watch.next()).await.ok(),
                None => Some(watch.next().await),
            };
            if follower.follow(update).await.is_none() {
                return;
            }
            let was_opened = std::mem::replace(&mut opened, watch.opened()) != opened;
            if follower.compare_use(was_opened, watch.counters()).await.is_none() {
                return;
            }
        }
    });
}

struct Follower {
    inner: Weak<Inner>,
    waiting: VecDeque<(Instant, Stale)>,
    interrupted: bool,
    emptied_at: Option<Instant>,
    compared_at: Option<Instant>,
}

impl Follower {
    /// Applies an update, and what is due. `None` if the caches are dropped.
    async fn follow(&mut self, update: Option<WatchUpdate>) -> Option<()> {
        let uids = Uids(self.inner.upgrade()?);
        let now = Instant::now();
        while self.waiting.front().is_some_and(|(due, _)| *due <= now) {
            if let Some((_, stale)) = self.waiting.pop_front() {
                forget(&uids, stale).await;
            }
        }
        let (stale, lag) = match update {
            None => return Some(()),
            Some(WatchUpdate::Interrupted(error)) => {
                if !self.interrupted {
                    warn!(%error, "the watch of UIDs is interrupted: renames and deletes are unknown");
                }
                self.interrupted = true;
                // The caches have the mappings of the table that the points were written with.
                if error.reason() == Some(ErrorReason::TableMismatch) {
                    uids.compare_use().await;
                    return Some(());
                }
                let is_due = self.emptied_at.is_none_or(|at| at.elapsed() >= WITHOUT_WATCH);
                // Not before a reconnection had a chance.
                if !error.is_outage() && is_due {
                    forget(&uids, Stale::Everything).await;
                    self.emptied_at = Some(now);
                }
                return Some(());
            }
            Some(WatchUpdate::Heartbeat) => (None, Duration::ZERO),
            Some(WatchUpdate::Resync { lag }) => (Some(Stale::Everything), lag),
            Some(WatchUpdate::Events { events, lag }) => (Some(Stale::Events(events.into())), lag),
        };
        if std::mem::take(&mut self.interrupted) {
            info!("the watch of UIDs is intact again");
        }
        if let Some(stale) = stale {
            forget(&uids, stale.clone()).await;
            if !lag.is_zero() {
                self.forget_again(now + lag + IN_FLIGHT, stale);
            }
        }
        Some(())
    }

    /// Compares the UIDs in use with the service if the watch was opened again: another process may respond.
    async fn compare_use(&mut self, was_opened: bool, counters: &[(UidKind, u64)]) -> Option<()> {
        let uids = Uids(self.inner.upgrade()?);
        uids.note_assigned(counters).await;
        let health = uids.uid_health();
        // A repair by an operator ends the state, too.
        let is_due = health.has_blocked_kinds()
            || (health.has_nameless() && self.compared_at.is_none_or(|at| at.elapsed() >= NAMELESS));
        if was_opened || is_due {
            self.compared_at = Some(Instant::now());
            uids.compare_use().await;
        }
        Some(())
    }

    fn forget_again(&mut self, due: Instant, stale: Stale) {
        if self.waiting.len() >= MAX_WAITING {
            self.waiting.clear();
            self.waiting.push_back((due, Stale::Everything));
        } else {
            self.waiting.push_back((due, stale));
        }
    }
}

/// Empties all caches.
pub(super) async fn forget_everything(uids: &Uids) {
    forget(uids, Stale::Everything).await;
}

/// Visits all cached series, which takes a while if they are many.
async fn forget(uids: &Uids, stale: Stale) {
    let uids = uids.clone();
    // Fails only if the runtime shuts down.
    let _ = tokio::task::spawn_blocking(move || uids.forget(&stale)).await;
}

impl Uids {
    /// Removes mappings from all caches, also those that look-ups in progress return.
    fn forget(&self, stale: &Stale) {
        let inner = &self.0;
        match stale {
            Stale::Everything => inner.changes.record(None, || {
                inner.cache.clear();
                self.each_series_cache(SeriesCache::clear);
            }),
            Stale::Events(events) => {
                let mut uids = ChangedUids::new();
                for event in events.iter() {
                    let (UidEvent::Assigned(mapping)
                    | UidEvent::Renamed { mapping, .. }
                    | UidEvent::Deleted(mapping)) = event;
                    uids.insert((mapping.kind, mapping.uid));
                }
                for (kind, uid) in &uids {
                    self.meta_changes().announce(|| Subject::Uid(*kind, *uid));
                }
                // Series that have the name.
                self.meta_changes().announce_unknown();
                let uids = Arc::new(uids);
                inner.changes.record(Some(Arc::clone(&uids)), || {
                    for event in events.iter() {
                        match event {
                            UidEvent::Assigned(mapping) | UidEvent::Deleted(mapping) => {
                                inner.cache.forget(mapping.kind, &mapping.uid, &[&mapping.name]);
                            }
                            UidEvent::Renamed { mapping, old_name } => {
                                let names = [mapping.name.as_str(), old_name];
                                inner.cache.forget(mapping.kind, &mapping.uid, &names);
                            }
                        }
                    }
                    self.each_series_cache(|cache| cache.forget(&inner.layout, &uids));
                });
            }
        }
    }
}
