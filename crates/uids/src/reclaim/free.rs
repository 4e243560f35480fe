//! Released numbers, which are assigned when the counter of their kind has reached the largest number.
//!
//! A number can be assigned when it has been free as long as a quarantine lasts: until then caches of readers may
//! hold its old name. Numbers are read ahead. A number is taken by a compare-and-put of its record, which is done from
//! then on: only one process takes it, and never again after its new name was deleted. A number that certainly was not
//! assigned is given back; a number is lost if its process ends, or loses the store, before that.
//!
//! Random UIDs are not drawn from here; their draws avoid the numbers that are withheld.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use futures::{StreamExt as _, TryStreamExt as _};
use oxtsdb_row_store::StoreError;
use oxtsdb_schema::{PerKind, Uid, UidKind};
use parking_lot::Mutex;
use tracing::warn;

use super::record::{Record, Records, State};
use crate::deleted::DeletedUids;
use crate::state::StateTable;

/// How long no free numbers are looked for when there were none: with all numbers in use, every new name would cause
/// a scan.
const PAUSE: Duration = Duration::from_secs(5);

/// Numbers that are taken at the same time.
const CONCURRENCY: usize = 32;

/// The most numbers that are read ahead.
const READ_AHEAD: usize = 8192;

/// The released numbers of a table. Cloning is cheap; clones share what was read.
#[derive(Clone, Debug)]
pub(crate) struct FreeNumbers {
    records: Records,
    deleted: DeletedUids,
    quarantine: Arc<Mutex<Duration>>,
    read: Arc<tokio::sync::Mutex<PerKind<Read>>>,
}

/// A number that this process has taken.
#[derive(Debug)]
pub(crate) struct FreeNumber {
    record: Record,
    /// Since when it was free.
    since: SystemTime,
}

impl FreeNumber {
    pub(crate) fn uid(&self) -> Uid {
        self.record.uid
    }
}

/// Numbers that were read and not taken.
#[derive(Debug, Default)]
struct Read {
    records: VecDeque<Record>,
    none_at: Option<Instant>,
}

impl FreeNumbers {
    pub(crate) fn new(state: &StateTable, quarantine: Duration) -> Self {
        Self {
            records: Records::new(state.clone()),
            deleted: DeletedUids::new(state.clone()),
            quarantine: Arc::new(Mutex::new(quarantine)),
            read: Arc::default(),
        }
    }

    /// Sets how long a number has to be free before it is assigned.
    pub(crate) fn set_quarantine(&self, quarantine: Duration) {
        *self.quarantine.lock() = quarantine;
    }

    /// Takes up to `count` free numbers.
    ///
    /// # Errors
    ///
    /// The store fails, and no number is taken.
    pub(crate) async fn take(&self, kind: UidKind, count: usize) -> Result<Vec<FreeNumber>, StoreError> {
        let mut read = self.read.lock().await;
        let read = read.get_mut(kind);
        if read.records.is_empty() {
            if read.none_at.is_some_and(|at| at.elapsed() < PAUSE) {
                return Ok(Vec::new());
            }
            read.records = self.find(kind).await?;
            read.none_at = read.records.is_empty().then(Instant::now);
        }
        let mut taken = Vec::new();
        while taken.len() < count && !read.records.is_empty() {
            let next = (count - taken.len()).min(read.records.len());
            let each: Vec<_> = read
                .records
                .drain(..next)
                .map(|record| self.take_one(record))
                .collect();
            let mut each = futures::stream::iter(each).buffered(CONCURRENCY);
            while let Some(number) = each.next().await {
                match number {
                    Ok(number) => taken.extend(number),
                    Err(error) if taken.is_empty() => return Err(error),
                    Err(error) => warn!(%kind, %error, "failed to take a reclaimed UID"),
                }
            }
        }
        Ok(taken)
    }

    /// Takes a number; `None` if another process has taken it.
    async fn take_one(&self, record: Record) -> Result<Option<FreeNumber>, StoreError> {
        let mut number = FreeNumber {
            since: record.since,
            record,
        };
        let is_taken = self
            .records
            .put(&mut number.record, State::Done, SystemTime::now());
        Ok(is_taken.await?.then_some(number))
    }

    /// Gives back numbers that were not assigned.
    pub(crate) async fn give_back(&self, numbers: Vec<FreeNumber>) {
        for FreeNumber { mut record, since } in numbers {
            let (kind, uid) = (record.kind, record.uid);
            match self.records.put(&mut record, State::Free, since).await {
                Ok(true) => self.read.lock().await.get_mut(kind).records.push_back(record),
                Ok(false) => {
                    warn!(%kind, %uid, "the record of a reclaimed UID has changed; it is not assigned again")
                }
                Err(error) => {
                    warn!(%kind, %uid, %error, "failed to give back a reclaimed UID; it is not assigned again");
                }
            }
        }
    }

    /// Whether UIDs are withheld from random draws, in their order: deleted ones, and those that are being reclaimed or
    /// have not been free long enough.
    ///
    /// # Errors
    ///
    /// The store fails.
    pub(crate) async fn withheld(&self, kind: UidKind, uids: &[Uid]) -> Result<Vec<bool>, StoreError> {
        let (now, quarantine) = (SystemTime::now(), *self.quarantine.lock());
        let is_reclaimed = |record: &Record| match record.state {
            State::Done => false,
            State::Free => !record.is_free_for(quarantine, now),
            State::Quarantining | State::Quarantined | State::Restoring | State::Releasing => true,
        };
        let deleted = self.deleted.contains(kind, uids).await?;
        let records = self.records.get_all(kind, uids).await?;
        let withheld = deleted.into_iter().zip(records);
        Ok(withheld
            .map(|(deleted, record)| deleted || record.as_ref().is_some_and(is_reclaimed))
            .collect())
    }

    async fn find(&self, kind: UidKind) -> Result<VecDeque<Record>, StoreError> {
        let now = SystemTime::now();
        let quarantine = *self.quarantine.lock();
        let mut free_records = VecDeque::new();
        let mut records = self.records.list(Some(kind), None).await?;
        while let Some(batch) = records.try_next().await? {
            let usable = |record: &Record| record.state == State::Free && record.is_free_for(quarantine, now);
            free_records.extend(batch.into_iter().filter(usable));
            if free_records.len() >= READ_AHEAD {
                free_records.truncate(READ_AHEAD);
                break;
            }
        }
        Ok(free_records)
    }
}
