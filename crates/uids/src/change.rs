//! Renames and deletes of mappings, exact despite races and crashes.
//!
//! ```text
//!   request ─► look up ─► append to the log ─► steps ─► record the end ─► invalidate caches ─► acknowledge
//!                            (pending)                     (done)
//! ```
//!
//! HBase has no transaction over the rows of a mapping. So a change is first appended to a `log` that all replicas
//! share, as pending. A pending entry excludes other changes of its UID and of its names. Then its `steps` are taken;
//! each step can be repeated. If a replica crashes or loses the store between two steps, a replica takes the entry over
//! after a minute and completes it: until then a request of a step may still reach the store, and a later change of the
//! same names must not meet it. If no request can be on its way, the replica itself completes the change within seconds,
//! and after a restart on the embedded store, which has no other replicas, at once. Other replicas invalidate their
//! caches by the entries that are recorded as done, and watches report these entries.
//!
//! An acknowledged change is done in the table, recorded in the log, and gone from the caches of this process.

mod entry;
mod log;
mod steps;

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use oxtsdb_row_store::{StoreError, Writers};
use oxtsdb_schema::{Name, Uid, UidKind};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;
use tracing::{info, warn};

use crate::deleted::DeletedUids;
use crate::error::UidServiceError;
use crate::state::StateTable;
use crate::suggest::Mapping;
use crate::table::{KindName, KindUid, UidTable};

pub use self::entry::Change;
use self::entry::{Entry, State};
use self::log::{Appended, ChangeLog, Claim};
use self::steps::{Interrupted, Outcome};

/// Attempts of the steps of a change within its request.
const ATTEMPTS: u32 = 3;

/// How often a request is begun again because the mapping changed after it was looked up.
const RACES: u32 = 8;

/// The pause between two attempts of the steps.
const PAUSE: Duration = Duration::from_millis(50);

/// The pause between two trims of the log.
const TRIM_INTERVAL: Duration = Duration::from_secs(600);

/// Which completed changes the log keeps. A replica, or a watch, that has not read a change before it is trimmed
/// starts with empty caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogRetention {
    /// So many entries at most.
    pub entries: u64,
    /// Entries that began within this time.
    pub age: Duration,
}

/// A mapping that was renamed or deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changed {
    /// The UID.
    pub uid: KindUid,
    /// The change of its name.
    pub change: Change,
}

impl From<Entry> for Changed {
    fn from(entry: Entry) -> Self {
        Self {
            uid: entry.uid,
            change: entry.change,
        }
    }
}

/// A receiver of the changes that other replicas, or this one, have made. It is called while the log is locked: its
/// methods neither block nor use the log.
pub(crate) trait ChangeSink: Send + Sync + std::fmt::Debug {
    /// Cached mappings of the names and UIDs of these changes may be wrong.
    fn invalidate(&self, changes: &[Changed]);

    /// Changes are made and recorded. With them, all up to number `position` of the log were reported.
    fn changed(&self, changes: &[Changed], position: Option<u64>);

    /// Changes were missed: any cached mapping may be wrong.
    fn missed(&self);
}

/// Renames and deletes mappings of one table.
#[derive(Debug)]
pub(crate) struct Changes {
    table: UidTable,
    deleted: DeletedUids,
    log: ChangeLog,
    sink: Arc<dyn ChangeSink>,
    retention: LogRetention,
    trimmed_at: Mutex<Option<Instant>>,
    /// Wakes [`Changes::keep_up`] after a poll.
    polled: Notify,
}

/// A request for a change of a name's mapping.
#[derive(Clone, Debug)]
pub struct ChangeRequest {
    /// The current name.
    pub name: KindName,
    /// The UID that it must have; `None`: any.
    pub expected: Option<Uid>,
}

impl Changes {
    pub(crate) fn new(
        table: UidTable,
        state: StateTable,
        writers: Writers,
        sink: Arc<dyn ChangeSink>,
        retention: LogRetention,
    ) -> Self {
        Self {
            table,
            deleted: DeletedUids::new(state.clone()),
            log: ChangeLog::new(state, writers, Arc::clone(&sink)),
            sink,
            retention,
            trimmed_at: Mutex::default(),
            polled: Notify::new(),
        }
    }

    /// Gives a UID the name `to`.
    ///
    /// # Errors
    ///
    /// See [`UidServiceError`]. After a failure of the store the change may still be completed.
    pub(crate) async fn rename(
        &self,
        request: &ChangeRequest,
        to: &Name,
        now: SystemTime,
    ) -> Result<Mapping, UidServiceError> {
        for _ in 1..RACES {
            match self.rename_once(request, to, now).await {
                Err(UidServiceError::ChangedMeanwhile { .. }) => {}
                result => return result,
            }
        }
        self.rename_once(request, to, now).await
    }

    async fn rename_once(
        &self,
        request: &ChangeRequest,
        to: &Name,
        now: SystemTime,
    ) -> Result<Mapping, UidServiceError> {
        let ChangeRequest { name, expected } = request;
        let kind = name.0;
        let from_uid = self.uid_of(kind, &name.1).await?;
        let to_uid = self.uid_of(kind, to).await?;
        let Some(uid) = from_uid else {
            // The retry of a rename that succeeded; its end may not be recorded.
            return match to_uid {
                Some(uid) if *expected == Some(uid) && self.is_name_of(kind, uid, to).await? => {
                    self.make_rename((kind, uid), &name.1, to, now).await
                }
                _ => Err(not_found(name)),
            };
        };
        check_expected(name, uid, *expected)?;
        if let Some(taken) = to_uid.filter(|taken| *taken != uid || *to == name.1) {
            return Err(UidServiceError::NameTaken {
                kind,
                name: to.clone(),
                uid: taken,
            });
        }
        self.make_rename((kind, uid), &name.1, to, now).await
    }

    async fn make_rename(
        &self,
        (kind, uid): KindUid,
        from: &Name,
        to: &Name,
        now: SystemTime,
    ) -> Result<Mapping, UidServiceError> {
        let change = Change::Rename {
            from: from.clone(),
            to: to.clone(),
        };
        match self.make((kind, uid), change, now).await? {
            Outcome::Made => Ok(Mapping {
                kind,
                name: to.clone(),
                uid,
            }),
            Outcome::Taken(taken) => Err(UidServiceError::NameTaken {
                kind,
                name: to.clone(),
                uid: taken,
            }),
            Outcome::Changed => Err(UidServiceError::ChangedMeanwhile {
                kind,
                name: from.clone(),
            }),
        }
    }

    /// Deletes a mapping and the UID's metadata.
    ///
    /// # Errors
    ///
    /// As [`Changes::rename`].
    pub(crate) async fn delete(
        &self,
        request: &ChangeRequest,
        now: SystemTime,
    ) -> Result<Mapping, UidServiceError> {
        for _ in 1..RACES {
            match self.delete_once(request, now).await {
                Err(UidServiceError::ChangedMeanwhile { .. }) => {}
                result => return result,
            }
        }
        self.delete_once(request, now).await
    }

    async fn delete_once(
        &self,
        request: &ChangeRequest,
        now: SystemTime,
    ) -> Result<Mapping, UidServiceError> {
        let ChangeRequest { name, expected } = request;
        let kind = name.0;
        let Some(uid) = self.uid_of(kind, &name.1).await? else {
            return Err(not_found(name));
        };
        check_expected(name, uid, *expected)?;
        let change = Change::Delete { name: name.1.clone() };
        match self.make((kind, uid), change, now).await? {
            Outcome::Made => Ok(Mapping {
                kind,
                name: name.1.clone(),
                uid,
            }),
            Outcome::Taken(_) | Outcome::Changed => Err(UidServiceError::ChangedMeanwhile {
                kind,
                name: name.1.clone(),
            }),
        }
    }

    /// Invalidates caches of this process, for changes that a repair of the table has made, or may have made in part.
    pub(crate) fn invalidate(&self, changed: &[Changed]) {
        self.sink.invalidate(changed);
    }

    /// Records changes that a repair of the table has made, for the caches of other replicas.
    ///
    /// # Errors
    ///
    /// The store failed: other replicas may keep the old mappings until they expire.
    pub(crate) async fn announce(&self, changed: &[Changed], now: SystemTime) -> Result<(), StoreError> {
        self.invalidate(changed);
        let time_ms = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
        let time_ms = u64::try_from(time_ms).unwrap_or(u64::MAX);
        for Changed { uid, change } in changed {
            let entry = self.log.entry(*uid, change.clone(), time_ms).with(State::Done);
            self.log.append_done(&entry).await?;
        }
        Ok(())
    }

    /// Whether a rename or delete of one of the UIDs or names of these changes is not complete.
    ///
    /// # Errors
    ///
    /// The store failed.
    pub(crate) async fn is_pending(&self, changes: &[Changed]) -> Result<bool, StoreError> {
        self.log.read().await?;
        let mut entries = changes
            .iter()
            .map(|changed| self.log.entry(changed.uid, changed.change.clone(), 0));
        Ok(entries.any(|entry| self.log.excludes(&entry)))
    }

    /// Reads what other replicas have changed. Called regularly.
    ///
    /// # Errors
    ///
    /// The store failed: changes of other replicas may be unknown.
    pub(crate) async fn poll(&self) -> Result<(), StoreError> {
        self.log.read().await?;
        self.polled.notify_one();
        Ok(())
    }

    /// After each poll, completes what was abandoned, one change at a time, and trims the log if it is due. Never
    /// returns; may be cancelled at any time. Apart from the polls, because a slow store delays it for long, and caches
    /// and watches must learn of other changes meanwhile.
    pub(crate) async fn keep_up(&self) {
        loop {
            self.polled.notified().await;
            for (number, entry) in self.log.abandoned() {
                if let Err(error) = self.complete_abandoned(number, &entry).await {
                    warn!(number, %error, "a change is not complete yet");
                }
            }
            if let Err(error) = self.trim_if_due().await {
                warn!(%error, "failed to trim the log of changes");
            }
        }
    }

    async fn complete_abandoned(&self, number: u64, entry: &Entry) -> Result<(), UidServiceError> {
        if let Some(claim) = self.log.claim(number, entry).await? {
            info!(number, ?entry, "completing a change that was interrupted");
            self.complete(claim).await?;
        }
        Ok(())
    }

    async fn trim_if_due(&self) -> Result<(), StoreError> {
        let is_due = |trimmed_at: &mut Option<Instant>| {
            let is_due = trimmed_at.is_none_or(|at| at.elapsed() > TRIM_INTERVAL);
            *trimmed_at = is_due.then(Instant::now).or(*trimmed_at);
            is_due
        };
        if !is_due(&mut self.trimmed_at.lock()) {
            return Ok(());
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let oldest = now.saturating_sub(self.retention.age).as_millis();
        let oldest_ms = u64::try_from(oldest).unwrap_or(0);
        let deleted = self.log.trim(self.retention.entries, oldest_ms).await?;
        if deleted > 0 {
            info!(deleted, "trimmed the log of changes");
        }
        Ok(())
    }

    /// Whether no other replica can change the table.
    pub(crate) fn is_alone(&self) -> bool {
        self.log.is_alone()
    }

    /// Whether changes of this process, or of one that has crashed, wait for their completion.
    pub(crate) fn has_pending(&self) -> bool {
        self.log.has_pending()
    }

    async fn make(&self, uid: KindUid, change: Change, now: SystemTime) -> Result<Outcome, UidServiceError> {
        let time_ms = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
        let entry = self
            .log
            .entry(uid, change, u64::try_from(time_ms).unwrap_or(u64::MAX));
        let in_progress = |entry: &Entry| UidServiceError::InProgress {
            kind: entry.uid.0,
            name: entry.change.from().clone(),
        };
        let claim = match self.log.append(&entry).await? {
            Appended::Ours(claim) => claim,
            Appended::Abandoned(number, entry) => match self.log.claim(number, &entry).await? {
                Some(claim) => claim,
                None => return Err(in_progress(&entry)),
            },
            Appended::Conflict(entry) => return Err(in_progress(&entry)),
        };
        let checked = match claim.is_new() {
            true => self.check(claim.entry()).await,
            false => Ok(()),
        };
        match checked {
            Ok(()) => self.complete(claim).await,
            Err(error @ (UidServiceError::ChangedMeanwhile { .. } | UidServiceError::OneWay { .. })) => {
                self.log.finish(claim, State::Undone).await?;
                Err(error)
            }
            Err(error) => {
                claim.give_up();
                Err(error)
            }
        }
    }

    /// Whether a new entry can be made: the mapping is what the request has found, and has no third name.
    async fn check(&self, entry: &Entry) -> Result<(), UidServiceError> {
        let (kind, uid) = entry.uid;
        let name = entry.change.from().clone();
        if !self.still_holds(entry).await? {
            return Err(UidServiceError::ChangedMeanwhile { kind, name });
        }
        match self.third_name(entry).await? {
            Some(other) => Err(UidServiceError::OneWay {
                kind,
                name,
                uid,
                other,
            }),
            None => Ok(()),
        }
    }

    /// The name of a UID that is to be renamed, if it is neither the old nor the new one. Only while the entry excludes
    /// other changes: between two reads, another rename may have been made.
    async fn third_name(&self, entry: &Entry) -> Result<Option<Name>, UidServiceError> {
        let Some(to) = entry.change.to() else {
            return Ok(None);
        };
        let name = self.table.names(&[entry.uid]).await.pop().unwrap_or(Ok(None))?;
        Ok(name.filter(|other| other != entry.change.from() && other != to))
    }

    /// Whether the mapping is what the request has found. It was looked up before the entry excluded other changes.
    async fn still_holds(&self, entry: &Entry) -> Result<bool, UidServiceError> {
        let (kind, uid) = entry.uid;
        let from_uid = self.uid_of(kind, entry.change.from()).await?;
        match entry.change.to() {
            Some(to) if from_uid != Some(uid) => {
                Ok(self.uid_of(kind, to).await? == Some(uid) && self.is_name_of(kind, uid, to).await?)
            }
            _ => Ok(from_uid == Some(uid)),
        }
    }

    /// Takes the steps of a change, records its end, and invalidates caches.
    async fn complete(&self, claim: Claim) -> Result<Outcome, UidServiceError> {
        let mut attempt = 0;
        let outcome = loop {
            match self.take_steps(&claim).await {
                Ok(outcome) => break outcome,
                Err(Interrupted::Store(error)) if error.is_transient() && attempt < ATTEMPTS => {
                    attempt += 1;
                    tokio::time::sleep(PAUSE).await;
                }
                Err(Interrupted::InFlight(error)) => return Err(error.into()),
                Err(Interrupted::Store(error)) => {
                    claim.give_up();
                    return Err(error.into());
                }
                Err(Interrupted::Cell(error)) => {
                    claim.give_up();
                    return Err(*error);
                }
                Err(Interrupted::Expired) => {
                    claim.give_up();
                    return Err(UidServiceError::Store(StoreError::TimedOut {
                        detail: "the change takes too long; it will be completed later".to_owned(),
                    }));
                }
            }
        };
        // Even if the end cannot be recorded, this process must not use the old mapping.
        self.sink.invalidate(&[Changed::from(claim.entry().clone())]);
        let state = match outcome {
            Outcome::Made => State::Done,
            Outcome::Taken(_) | Outcome::Changed => State::Undone,
        };
        let recorded = self.log.finish(claim, state).await?;
        match recorded {
            recorded if recorded == state => Ok(outcome),
            State::Pending => Err(UidServiceError::Store(StoreError::TimedOut {
                detail: "another replica has taken the change over".to_owned(),
            })),
            State::Done => Ok(Outcome::Made),
            State::Undone => Ok(Outcome::Changed),
        }
    }

    async fn take_steps(&self, claim: &Claim) -> Result<Outcome, Interrupted> {
        let Entry {
            uid: (kind, uid),
            change,
            ..
        } = claim.entry();
        // First: a draw that no longer finds the reverse mapping finds the record.
        if matches!(change, Change::Delete { .. }) {
            self.withhold(*kind, &[*uid]).await?;
        }
        steps::take(&self.table, claim).await
    }

    /// Records UIDs that are about to be deleted, if they could be drawn again.
    ///
    /// # Errors
    ///
    /// The store fails.
    pub(crate) async fn withhold(&self, kind: UidKind, uids: &[Uid]) -> Result<(), StoreError> {
        match self.table.layout().kinds.get(kind).random {
            true => self.deleted.record(kind, uids).await,
            false => Ok(()),
        }
    }

    /// The number up to which all changes were reported; `None`: the log was not read yet.
    pub(crate) fn position(&self) -> Option<u64> {
        self.log.position()
    }

    /// The changes after a number of the log, also those behind a pending one; `None` if some were trimmed.
    pub(crate) async fn changes_after(&self, after: u64) -> Result<Option<Vec<Changed>>, StoreError> {
        let entries = self.log.entries_after(after).await?;
        Ok(entries.map(|entries| entries.into_iter().map(Changed::from).collect()))
    }

    async fn uid_of(&self, kind: UidKind, name: &Name) -> Result<Option<Uid>, UidServiceError> {
        let result = self.table.uids(&[(kind, name.clone())]).await.pop();
        result.unwrap_or(Ok(None))
    }

    /// Whether the UID's name is `name` in the reverse direction as well.
    async fn is_name_of(&self, kind: UidKind, uid: Uid, name: &Name) -> Result<bool, UidServiceError> {
        let stored_name = self.table.names(&[(kind, uid)]).await.pop().unwrap_or(Ok(None))?;
        Ok(stored_name.as_ref() == Some(name))
    }
}

fn not_found((kind, name): &KindName) -> UidServiceError {
    UidServiceError::NameNotFound {
        kind: *kind,
        name: name.clone(),
    }
}

fn check_expected(name: &KindName, uid: Uid, expected: Option<Uid>) -> Result<(), UidServiceError> {
    match expected {
        Some(expected) if expected != uid => Err(UidServiceError::UidMismatch {
            kind: name.0,
            name: name.1.clone(),
            uid,
            expected,
        }),
        _ => Ok(()),
    }
}
