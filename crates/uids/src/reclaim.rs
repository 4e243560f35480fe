//! Reclaims UIDs that nothing references, so that their numbers can be assigned again.
//!
//! An operator finds mappings that no row references, and puts them into quarantine; after it, looks for references
//! again, restores those that have some, and releases the others (`tsdb uid reclaim`).
//!
//! ```text
//!                    record          table tsdb-uid                          after a crash here
//!   quarantine    1  Quarantining                                            quarantine again continues
//!                 2                  forward mapping removed                 quarantine again continues
//!                 3  Quarantined                                             -
//!   restore       1  Restoring                                               restore again continues
//!                 2                  forward mapping put if absent           restore again continues
//!                 3  Done                                                    -
//!   release       1  Releasing                                               release again continues
//!                 2                  reverse mapping and metadata removed    release again continues
//!                 3  Free                                                    -
//! ```
//!
//! While a name is in quarantine, a write of it gets another UID. Writers that have the old one in a cache may still
//! write points with it; its reverse mapping stays, so that they can be read. The quarantine must therefore last
//! longer than any cache of any writer: a second search, which starts after it, then finds all that they wrote. The
//! TSDs of OpenTSDB keep mappings until they end or their caches are dropped; on a table that they use, the release
//! needs a confirmation that this was done.
//!
//! A released number waits as long again before it is assigned, because caches of readers hold its old name. It is
//! assigned when the kind's counter has reached the largest number (`free`), with a compare-and-put of the reverse
//! mapping, as any other.
//!
//! Each step that removes or puts a mapping announces it in the log of changes ([`crate::change`]) before its last
//! record, for the caches of other replicas and for watches: a quarantine and a release as a delete, a restore as a
//! rename of the name to itself. (A pending entry would be completed by another replica, as if it were a delete.)
//!
//! Names in quarantine do not count for the quota of their kind; they count for the quota of their tag key until
//! the release. After a crash a quota counts too much, never too little.
//!
//! Renames and foreign writers may change a mapping between two steps. Each step reads what it changes: a mapping
//! that differs from the record is left as it is, and the UID is no longer reclaimed.

pub(crate) mod free;
pub(crate) mod record;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures::StreamExt as _;
use oxtsdb_row_store::{Condition, StoreError, WriteBatch};
use oxtsdb_schema::uid_table::meta_qualifier;
use oxtsdb_schema::{Name, Uid, UidKind};
use tracing::warn;

use crate::change::{Change, Changed, Changes};
use crate::error::UidServiceError;
use crate::policy::Policy;
use crate::policy::quota::Quotas;
use crate::suggest::Mapping;
use crate::table::{ID, NAME, UidTable, column, forward_cell, reverse_cell};

use record::Records;
pub use record::{Record, State};

/// UIDs that are processed at the same time.
const CONCURRENCY: usize = 32;

/// Reclaims the UIDs of a table. Cloning is cheap.
#[derive(Clone, Debug)]
pub(crate) struct Reclaim {
    pub(crate) table: UidTable,
    pub(crate) records: Records,
    pub(crate) changes: Arc<Changes>,
    /// How long a UID stays in quarantine, and how old a mapping must be.
    pub(crate) quarantine: Duration,
    pub(crate) quotas: Quotas,
    pub(crate) policy: Arc<Policy>,
}

/// Why a UID was not put into quarantine, restored or released.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ReclaimError {
    /// The name has another UID, or none.
    #[error(
        "`{name}` of `{kind}` has {}, not {uid}",
        stored_uid.map_or_else(|| "no UID".to_owned(), |stored| format!("the UID {stored}"))
    )]
    OtherUid {
        /// The kind.
        kind: UidKind,
        /// The name.
        name: Name,
        /// The expected UID.
        uid: Uid,
        /// The UID of the name.
        stored_uid: Option<Uid>,
    },
    /// The mapping, or the record of the UID, is not what the step expects.
    #[error("{uid} of `{kind}` {detail}")]
    Changed {
        /// The kind.
        kind: UidKind,
        /// The UID.
        uid: Uid,
        /// The state that was found.
        detail: String,
    },
    /// The mapping is too young, or the quarantine is not over.
    #[error("{uid} of `{kind}` can be reclaimed by a search for references that starts after {}", seconds(*not_before))]
    TooEarly {
        /// The kind.
        kind: UidKind,
        /// The UID.
        uid: Uid,
        /// The earliest start of the search.
        not_before: SystemTime,
    },
    /// The store or the table fails.
    #[error(transparent)]
    Service(#[from] UidServiceError),
}

impl From<StoreError> for ReclaimError {
    fn from(error: StoreError) -> Self {
        Self::Service(error.into())
    }
}

/// One of the three operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Removes the forward mapping of a UID to which a search found no reference.
    Quarantine {
        /// When the search started.
        searched_at: SystemTime,
    },
    /// Puts the forward mapping back.
    Restore,
    /// Removes the reverse mapping of a UID to which a search after the quarantine found no reference.
    Release {
        /// When the search started.
        searched_at: SystemTime,
    },
}

impl Reclaim {
    /// Does a step for each of some mappings. Returns their results, in order.
    pub(crate) async fn step(
        &self,
        step: Step,
        mappings: &[Mapping],
        now: SystemTime,
    ) -> Vec<Result<(), ReclaimError>> {
        let each: Vec<_> = mappings
            .iter()
            .map(|mapping| {
                let (this, mapping) = (self.clone(), mapping.clone());
                async move {
                    match step {
                        Step::Quarantine { searched_at } => this.quarantine(&mapping, searched_at, now).await,
                        Step::Restore => this.restore(&mapping, now).await,
                        Step::Release { searched_at } => this.release(&mapping, searched_at, now).await,
                    }
                }
            })
            .collect();
        if matches!(step, Step::Release { .. })
            && let Err(error) = self.records.delete_done(now).await
        {
            warn!(%error, "failed to delete old records of reclaimed UIDs");
        }
        futures::stream::iter(each).buffered(CONCURRENCY).collect().await
    }

    async fn quarantine(
        &self,
        mapping: &Mapping,
        searched_at: SystemTime,
        now: SystemTime,
    ) -> Result<(), ReclaimError> {
        let Mapping { kind, name, uid } = mapping;
        let stored = self.records.get(*kind, *uid).await?;
        let mut record = match stored {
            Some(record) if record.state == State::Quarantined && record.name == *name => return Ok(()),
            Some(record) if record.state == State::Quarantining && record.name == *name => record,
            // A free number that has a mapping was assigned again, and the process ended before it recorded that.
            Some(record) if matches!(record.state, State::Done | State::Free) => Record {
                name: name.clone(),
                ..record
            },
            Some(record) => return Err(in_state(&record)),
            None => Record::new(*kind, *uid, name.clone()),
        };
        let forward = self.forward(*kind, name).await?;
        if record.state != State::Quarantining {
            let stored_uid = forward.as_ref().map(|cell| cell.uid);
            let Some(forward) = forward.filter(|cell| cell.uid == *uid) else {
                return Err(other_uid(mapping, stored_uid));
            };
            self.check_reverse(mapping).await?;
            let not_before = written(forward.timestamp_ms) + self.quarantine;
            if searched_at < not_before || searched_at > now {
                return Err(too_early(mapping, not_before));
            }
            if !self.records.put(&mut record, State::Quarantining, now).await? {
                return Err(raced(mapping));
            }
        }
        if let Err(error) = self.check_reverse(mapping).await {
            if !matches!(error, ReclaimError::Changed { .. }) {
                return Err(error);
            }
            // It was renamed meanwhile, and is in use.
            self.records.put(&mut record, State::Done, now).await?;
            return Err(error);
        }
        self.remove_forward(mapping).await?;
        self.announce_removed(mapping, now).await?;
        if !self.records.put(&mut record, State::Quarantined, now).await? {
            return Err(raced(mapping));
        }
        Ok(self.quotas.quarantined(&self.policy, *kind).await?)
    }

    async fn restore(&self, mapping: &Mapping, now: SystemTime) -> Result<(), ReclaimError> {
        let Mapping { kind, name, uid } = mapping;
        let mut record = self.record(mapping).await?;
        match record.state {
            State::Quarantined => {
                // An attempt that finds the name taken keeps the time of the quarantine.
                let since = record.since;
                if !self.records.put(&mut record, State::Restoring, since).await? {
                    return Err(raced(mapping));
                }
            }
            State::Quarantining | State::Restoring => {}
            State::Done | State::Releasing | State::Free => return Err(in_state(&record)),
        }
        if !self.has_reverse(mapping).await? {
            // A rename that was in progress has completed: the UID would have two names.
            self.records.put(&mut record, State::Done, now).await?;
            let detail = "has another name than in its quarantine; it is no longer reclaimed";
            return Err(changed(mapping, detail));
        }
        let put = self
            .table
            .check_and_put(forward_cell(*kind, name), None, uid.as_bytes())
            .await?;
        let stored_uid = if put {
            Some(*uid)
        } else {
            self.forward(*kind, name).await?.map(|cell| cell.uid)
        };
        let (state, since) = if stored_uid == Some(*uid) {
            let restored = Change::Rename {
                from: name.clone(),
                to: name.clone(),
            };
            self.announce(mapping, restored, now).await?;
            self.quotas.restored(&self.policy, *kind).await?;
            (State::Done, now)
        } else {
            (State::Quarantined, record.since)
        };
        if !self.records.put(&mut record, state, since).await? {
            return Err(raced(mapping));
        }
        if stored_uid != Some(*uid) {
            return Err(other_uid(mapping, stored_uid));
        }
        Ok(())
    }

    async fn release(
        &self,
        mapping: &Mapping,
        searched_at: SystemTime,
        now: SystemTime,
    ) -> Result<(), ReclaimError> {
        let Mapping { kind, name, uid } = mapping;
        let mut record = self.record(mapping).await?;
        match record.state {
            State::Quarantined => {
                let not_before = record.since + self.quarantine;
                if searched_at < not_before || searched_at > now {
                    return Err(too_early(mapping, not_before));
                }
                let forward = self.forward(*kind, name).await?;
                let in_use = forward.is_some_and(|cell| cell.uid == *uid);
                if in_use || !self.has_reverse(mapping).await? {
                    // Another program has changed the mapping.
                    self.records.put(&mut record, State::Done, now).await?;
                    let detail = "has another mapping than in its quarantine; it is no longer reclaimed";
                    return Err(changed(mapping, detail));
                }
                if !self.records.put(&mut record, State::Releasing, now).await? {
                    return Err(raced(mapping));
                }
            }
            State::Releasing => {}
            State::Free => return Ok(()),
            State::Done | State::Quarantining | State::Restoring => return Err(in_state(&record)),
        }
        if !self.remove_reverse(mapping).await? {
            // Another program has given it a name: nothing can release it any more.
            self.records.put(&mut record, State::Done, now).await?;
            let detail = "has another name than in its quarantine; it is no longer reclaimed";
            return Err(changed(mapping, detail));
        }
        self.announce_removed(mapping, now).await?;
        if !self.records.put(&mut record, State::Free, now).await? {
            return Err(raced(mapping));
        }
        Ok(self.quotas.released(&self.policy, *kind, *uid).await?)
    }

    async fn announce_removed(&self, mapping: &Mapping, now: SystemTime) -> Result<(), StoreError> {
        let name = mapping.name.clone();
        self.announce(mapping, Change::Delete { name }, now).await
    }

    /// Invalidates a mapping in the caches of all replicas, and reports it to watches.
    async fn announce(&self, mapping: &Mapping, change: Change, now: SystemTime) -> Result<(), StoreError> {
        let changed = Changed {
            uid: (mapping.kind, mapping.uid),
            change,
        };
        self.changes.announce(&[changed], now).await
    }

    /// The record of a mapping.
    async fn record(&self, mapping: &Mapping) -> Result<Record, ReclaimError> {
        let record = self.records.get(mapping.kind, mapping.uid).await?;
        match record {
            Some(record) if record.name == mapping.name => Ok(record),
            Some(record) => Err(changed(
                mapping,
                format!("is recorded with the name `{}`", record.name),
            )),
            None => Err(changed(mapping, "is not in quarantine")),
        }
    }

    async fn forward(&self, kind: UidKind, name: &Name) -> Result<Option<Forward>, ReclaimError> {
        let store = self.table.store();
        let row = store
            .get(self.table.name(), name.as_bytes(), &column(ID, kind))
            .await?;
        let Some(cell) = row.as_ref().and_then(|row| row.get(ID, kind.qualifier())) else {
            return Ok(None);
        };
        let key = (kind, name.clone());
        Ok(Some(Forward {
            uid: self.table.stored_uid(&key, cell.value)?,
            timestamp_ms: cell.timestamp_ms,
        }))
    }

    /// Checks that the reverse mapping of a UID has its name.
    async fn check_reverse(&self, mapping: &Mapping) -> Result<(), ReclaimError> {
        let result = self.table.names(&[(mapping.kind, mapping.uid)]).await.pop();
        match result.unwrap_or(Ok(None))? {
            Some(name) if name == mapping.name => Ok(()),
            Some(name) => Err(changed(
                mapping,
                format!("has the name `{name}`, not `{}`", mapping.name),
            )),
            None => Err(changed(mapping, "has no name; check the table")),
        }
    }

    /// Whether the reverse mapping of a UID has its name. A failure of the store is no answer.
    async fn has_reverse(&self, mapping: &Mapping) -> Result<bool, ReclaimError> {
        match self.check_reverse(mapping).await {
            Ok(()) => Ok(true),
            Err(ReclaimError::Changed { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Removes the forward mapping of a name if it has this UID.
    async fn remove_forward(&self, mapping: &Mapping) -> Result<(), ReclaimError> {
        let Mapping { kind, name, uid } = mapping;
        let mut batch = WriteBatch::new(self.table.name().clone());
        let family = batch.family(ID);
        if let Some(atomic) = self.table.store().atomic() {
            let condition = Condition {
                cell: forward_cell(*kind, name),
                expected: Some(uid.as_bytes().to_vec()),
            };
            batch.row(name.as_bytes()).delete_column(family, kind.qualifier());
            // If it does not hold, the name has no UID or another one.
            atomic.commit_if(&[condition], batch).await?;
            return Ok(());
        }
        let Some(cell) = self.forward(*kind, name).await?.filter(|cell| cell.uid == *uid) else {
            return Ok(());
        };
        batch
            .row(name.as_bytes())
            .delete_column_up_to(family, kind.qualifier(), cell.timestamp_ms);
        Ok(self.table.store().write(batch).await?)
    }

    /// Removes the reverse mapping of a UID, and its metadata. Returns false if it has another name.
    async fn remove_reverse(&self, mapping: &Mapping) -> Result<bool, ReclaimError> {
        let Mapping { kind, name, uid } = mapping;
        let columns = vec![
            (NAME.to_owned(), kind.qualifier().to_vec()),
            (NAME.to_owned(), meta_qualifier(*kind).to_vec()),
        ];
        let store = self.table.store();
        let row = store
            .get(
                self.table.name(),
                uid.as_bytes(),
                &oxtsdb_row_store::ColumnSelection::Columns(columns),
            )
            .await?;
        let Some(row) = row else { return Ok(true) };
        let mut batch = WriteBatch::new(self.table.name().clone());
        let family = batch.family(NAME);
        match row.get(NAME, kind.qualifier()) {
            Some(cell) if cell.value != name.as_bytes() => return Ok(false),
            Some(cell) => {
                batch
                    .row(uid.as_bytes())
                    .delete_column_up_to(family, kind.qualifier(), cell.timestamp_ms);
            }
            None => {}
        }
        if let Some(cell) = row.get(NAME, meta_qualifier(*kind)) {
            batch
                .row(uid.as_bytes())
                .delete_column_up_to(family, meta_qualifier(*kind), cell.timestamp_ms);
        }
        if batch.is_empty() {
            return Ok(true);
        }
        // As a last check on stores that have it: the UID still has its name.
        if let Some(atomic) = store.atomic() {
            let condition = Condition {
                cell: reverse_cell(*kind, *uid),
                expected: row.get(NAME, kind.qualifier()).map(|cell| cell.value.to_vec()),
            };
            if !atomic.commit_if(&[condition], batch).await? {
                return Err(raced(mapping));
            }
            return Ok(true);
        }
        store.write(batch).await?;
        Ok(true)
    }
}

/// A forward mapping.
#[derive(Clone, Copy, Debug)]
struct Forward {
    uid: Uid,
    timestamp_ms: i64,
}

fn other_uid(mapping: &Mapping, stored_uid: Option<Uid>) -> ReclaimError {
    ReclaimError::OtherUid {
        kind: mapping.kind,
        name: mapping.name.clone(),
        uid: mapping.uid,
        stored_uid,
    }
}

fn changed(mapping: &Mapping, detail: impl Into<String>) -> ReclaimError {
    ReclaimError::Changed {
        kind: mapping.kind,
        uid: mapping.uid,
        detail: detail.into(),
    }
}

fn raced(mapping: &Mapping) -> ReclaimError {
    changed(mapping, "is being reclaimed by another caller")
}

fn in_state(record: &Record) -> ReclaimError {
    let detail = match record.state {
        State::Done => "is not in quarantine",
        State::Quarantining => "is being put into quarantine; do that again",
        State::Quarantined => "is in quarantine",
        State::Restoring => "is being restored; do that again",
        State::Releasing => "is being released; do that again",
        State::Free => "is released",
    };
    ReclaimError::Changed {
        kind: record.kind,
        uid: record.uid,
        detail: detail.to_owned(),
    }
}

fn too_early(mapping: &Mapping, not_before: SystemTime) -> ReclaimError {
    ReclaimError::TooEarly {
        kind: mapping.kind,
        uid: mapping.uid,
        not_before,
    }
}

/// The time of a cell.
fn written(timestamp_ms: i64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_millis(u64::try_from(timestamp_ms).unwrap_or(0))
}

/// A time in seconds since the epoch.
fn seconds(time: SystemTime) -> u64 {
    time.duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs()
}
