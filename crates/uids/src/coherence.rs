//! Keeps the caches of this process coherent with renames and deletes, and reports these to watches.
//!
//! A change of this process invalidates them before it is acknowledged. Those of other replicas are read from the log
//! each [`POLL`], and the cache is used for [`REPLICA_LAG`] after the start of the last read that succeeded: a look-up
//! returns an old mapping for at most that long after the change was acknowledged, also if the store or this process
//! pauses.
//!
//! On a store without other writers there are no other replicas, and the log is read at the start only.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use oxtsdb_row_store::StoreError;
use oxtsdb_schema::{Uid, UidKind};
use tokio::time::Instant;
use tracing::{info, warn};

use crate::assign::Assigner;
use crate::change::{Change, ChangeSink, Changed, Changes};
use crate::error::UidServiceError;
use crate::lookup::Lookup;
use crate::suggest::Mapping;
use crate::table::KindName;
use crate::watch::{Assignments, Event, ForeignChange, ForeignScan, Hub};

/// The interval of reads of the log, from start to start.
pub(crate) const POLL: Duration = Duration::from_millis(500);

/// How long another replica may return a mapping after its change was acknowledged.
pub(crate) const REPLICA_LAG: Duration = Duration::from_millis(1500);

/// The caches of this process.
#[derive(Debug)]
pub(crate) struct Coherence {
    lookup: Arc<Lookup>,
    assigner: Assigner,
    hub: Arc<Hub>,
    assignments: Arc<Assignments>,
    foreign: ForeignScan,
    /// The log was read once.
    was_read: AtomicBool,
    /// The last read of the log failed.
    is_failing: AtomicBool,
}

impl Coherence {
    pub(crate) fn new(
        lookup: Arc<Lookup>,
        assigner: Assigner,
        hub: Arc<Hub>,
        assignments: Arc<Assignments>,
        foreign: ForeignScan,
    ) -> Self {
        Self {
            lookup,
            assigner,
            hub,
            assignments,
            foreign,
            was_read: AtomicBool::new(false),
            is_failing: AtomicBool::new(false),
        }
    }

    /// Forgets all mappings. Returns the number of cached entries, about.
    pub(crate) fn clear(&self) -> u64 {
        let entries = self.lookup.clear();
        self.assigner.forget_all();
        entries
    }

    /// Reads the log for the caches. Returns the pause before the next call.
    pub(crate) async fn poll(&self, changes: &Changes) -> Duration {
        let is_alone = changes.is_alone();
        let was_read = self.was_read.load(Ordering::Relaxed);
        if is_alone && was_read && !changes.has_pending() {
            return POLL;
        }
        let began = Instant::now();
        if !is_alone && !was_read {
            self.lookup.use_cache_until(began + REPLICA_LAG);
        }
        match changes.poll().await {
            Ok(()) => {
                self.was_read.store(true, Ordering::Relaxed);
                if !is_alone {
                    self.lookup.use_cache_until(began + REPLICA_LAG);
                }
                if self.is_failing.swap(false, Ordering::Relaxed) {
                    info!("the log of changes is read again");
                }
            }
            Err(error) => {
                if !self.is_failing.swap(true, Ordering::Relaxed) {
                    warn!(%error, "failed to read the log of changes; the cache of names is bypassed until it is read");
                }
            }
        }
        POLL.saturating_sub(began.elapsed())
    }

    /// Reads the counters for watches. Returns the pause before the next call.
    pub(crate) async fn poll_assignments(&self, changes: &Changes) -> Duration {
        let began = Instant::now();
        if let Err(error) = self.report_assignments(changes).await {
            warn!(%error, "failed to read what other replicas have assigned");
        }
        POLL.saturating_sub(began.elapsed())
    }

    async fn report_assignments(&self, changes: &Changes) -> Result<(), StoreError> {
        if self.hub.position().is_none() {
            let counters = self.assignments.counters().await?;
            if changes.position().is_some() {
                self.hub.start_at(counters);
            }
        } else if !changes.is_alone() {
            self.assignments.poll().await?;
        }
        Ok(())
    }

    /// Finds what other programs have changed since the last scan.
    ///
    /// # Errors
    ///
    /// The table cannot be read.
    pub(crate) async fn scan_foreign(&self, log: &Changes) -> Result<(), UidServiceError> {
        for kind in UidKind::ALL {
            let Some(changes) = self.foreign.scan(kind).await? else {
                warn!(%kind, "another program has renamed or deleted many names; all cached mappings are dropped");
                self.missed();
                continue;
            };
            if !changes.is_empty() {
                warn!(%kind, count = changes.len(), "another program has renamed or deleted names");
            }
            if !changes.is_empty() {
                let uids = changes.iter().map(|change| change.uid).collect();
                self.assigner.forget(&self.lookup.invalidate_uids(&uids));
            }
            for ForeignChange { uid, name } in &changes {
                let names: Vec<KindName> = name.iter().map(|name| (kind, name.clone())).collect();
                self.lookup.invalidate(&names, uid);
                self.assigner.forget(&names);
            }
            let deleted = changes.iter().filter(|change| change.name.is_none());
            let deleted: Vec<Uid> = deleted.map(|change| change.uid.1).collect();
            if let Err(error) = log.withhold(kind, &deleted).await {
                warn!(%kind, %error, "UIDs that another program has deleted were not recorded; they may be assigned again");
            }
            let events = changes.into_iter();
            let events = events.map(|ForeignChange { uid, name }| Event::Foreign { uid, name });
            self.hub.publish(events, |_| {});
        }
        Ok(())
    }

    /// Reads what has changed.
    ///
    /// # Errors
    ///
    /// The store failed.
    pub(crate) async fn read(&self, changes: &Changes) -> Result<(), StoreError> {
        changes.poll().await?;
        self.report_assignments(changes).await
    }
}

/// The event of a change.
pub(crate) fn event(changed: Changed) -> Event {
    let Changed {
        uid: (kind, uid),
        change,
    } = changed;
    match change {
        // A mapping that was restored: `crate::reclaim`.
        Change::Rename { from, to } if from == to => Event::Assigned(Mapping { kind, name: to, uid }),
        Change::Rename { from, to } => Event::Renamed {
            mapping: Mapping { kind, name: to, uid },
            old: from,
        },
        Change::Delete { name } => Event::Deleted(Mapping { kind, name, uid }),
    }
}

impl ChangeSink for Coherence {
    fn invalidate(&self, changes: &[Changed]) {
        for Changed { uid, change } in changes {
            let names: Vec<KindName> = [Some(change.from()), change.to()]
                .into_iter()
                .flatten()
                .map(|name| (uid.0, name.clone()))
                .collect();
            self.foreign.changed_by_service(*uid, change.to());
            self.lookup.invalidate(&names, uid);
            self.assigner.forget(&names);
        }
    }

    fn changed(&self, changes: &[Changed], position: Option<u64>) {
        self.invalidate(changes);
        let events = changes.iter().cloned().map(event);
        self.hub.publish(events, |reported| {
            reported.log = position.unwrap_or(0).max(reported.log);
        });
    }

    fn missed(&self) {
        self.clear();
        self.hub.resync(|_| true);
    }
}
