//! Keeps the caches of this process coherent with renames and deletes, and reports these to watches.
//!
//! A change of this process invalidates them before it is acknowledged. Those of other replicas are read from the log
//! each [`POLL`]: a look-up returns an old mapping for at most that long after the change was acknowledged, plus the
//! time of the read. If the log cannot be read for [`SUSPEND_AFTER`], the cache is bypassed until it can.
//!
//! On a store without other writers there are no other replicas, and the log is read at the start only.

use std::sync::Arc;
use std::time::Duration;

use oxtsdb_row_store::StoreError;
use oxtsdb_schema::UidKind;
use parking_lot::Mutex;
use tokio::time::Instant;
use tracing::warn;

use crate::assign::Assigner;
use crate::change::{Change, ChangeSink, Changed, Changes};
use crate::error::UidServiceError;
use crate::lookup::Lookup;
use crate::suggest::Mapping;
use crate::table::KindName;
use crate::watch::{Assignments, Event, ForeignChange, ForeignScan, Hub, Position};

/// The pause between two reads of the log.
pub(crate) const POLL: Duration = Duration::from_secs(1);

/// How long another replica may return a mapping after its change was reported: a poll, and the time of its reads.
pub(crate) const REPLICA_LAG: Duration = Duration::from_millis(1500);

/// How long the cache is used without a read of the log.
const SUSPEND_AFTER: Duration = Duration::from_secs(3);

/// The caches of this process.
#[derive(Debug)]
pub(crate) struct Coherence {
    lookup: Arc<Lookup>,
    assigner: Assigner,
    hub: Arc<Hub>,
    assignments: Arc<Assignments>,
    foreign: ForeignScan,
    /// When the log was read last.
    read_at: Mutex<Option<Instant>>,
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
            read_at: Mutex::default(),
        }
    }

    /// Forgets all mappings. Returns the number of cached entries, about.
    pub(crate) fn clear(&self) -> u64 {
        let entries = self.lookup.clear();
        self.assigner.forget_all();
        entries
    }

    /// Reads the log. Returns the pause before the next call.
    pub(crate) async fn poll(&self, changes: &Changes) -> Duration {
        let is_alone = changes.is_alone();
        if is_alone && self.read_at.lock().is_some() && !changes.has_pending() {
            return POLL;
        }
        let began = Instant::now();
        let read = self.read_or_suspend(changes, began, is_alone).await;
        match read {
            // What was read is old: the cache stays suspended until the next read.
            Ok(()) if !is_alone && began.elapsed() > SUSPEND_AFTER => {
                *self.read_at.lock() = Some(began);
                return Duration::ZERO;
            }
            Ok(()) => {
                *self.read_at.lock() = Some(began);
                self.lookup.suspend_cache(false);
            }
            Err(error) if is_alone => warn!(%error, "failed to read the log of changes"),
            Err(error) => {
                let mut read_at = self.read_at.lock();
                let last = *read_at.get_or_insert(began);
                if last.elapsed() > SUSPEND_AFTER {
                    warn!(%error, "the log of changes cannot be read; the cache of names is bypassed");
                    self.lookup.suspend_cache(true);
                }
            }
        }
        POLL
    }

    /// As [`Coherence::read`]. While it takes too long, the cache is suspended.
    async fn read_or_suspend(
        &self,
        changes: &Changes,
        began: Instant,
        is_alone: bool,
    ) -> Result<(), StoreError> {
        let mut read = std::pin::pin!(self.read(changes));
        if is_alone {
            return read.await;
        }
        let last = *self.read_at.lock().get_or_insert(began);
        match tokio::time::timeout_at(last + SUSPEND_AFTER, &mut read).await {
            Ok(result) => result,
            Err(_elapsed) => {
                warn!("the log of changes is read too slowly; the cache of names is bypassed");
                self.lookup.suspend_cache(true);
                read.await
            }
        }
    }
}

impl Coherence {
    /// Finds what other programs have changed since the last scan.
    ///
    /// # Errors
    ///
    /// The table cannot be read.
    pub(crate) async fn scan_foreign(&self) -> Result<(), UidServiceError> {
        for kind in UidKind::ALL {
            let changes = self.foreign.scan(kind).await?;
            if !changes.is_empty() {
                warn!(%kind, count = changes.len(), "another program has renamed or deleted names");
            }
            for ForeignChange { uid, name } in &changes {
                let old = self.lookup.cached_name(uid);
                let names = old.into_iter().chain(name.clone());
                let names: Vec<KindName> = names.map(|name| (kind, name)).collect();
                self.lookup.invalidate(&names, uid);
                self.assigner.forget(&names);
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
        if self.hub.position().is_none() {
            let counters = self.assignments.counters().await?;
            let log = changes.position().unwrap_or(0);
            self.hub.start_at(Position { log, counters });
        } else if !changes.is_alone() {
            self.assignments.poll().await?;
        }
        Ok(())
    }
}

/// The event of a change.
pub(crate) fn event(changed: Changed) -> Event {
    let Changed {
        uid: (kind, uid),
        change,
    } = changed;
    match change {
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
        self.hub.resync();
    }
}
