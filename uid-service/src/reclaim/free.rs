//! Released numbers, which are assigned when the counter of their kind has reached the largest number.
//!
//! A number can be assigned when it has been free as long as a quarantine lasts: until then caches of readers may
//! hold its old name. Numbers are read ahead; a draw reads their records again, because another process may have
//! assigned one meanwhile, and its name may have been deleted. Several processes may draw the same number: the
//! compare-and-put of its reverse mapping decides, and the losers draw others. The record of an assigned number is done; if the process ends before that is written,
//! the next draw finds the number in use and does it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use futures::TryStreamExt as _;
use oxtsdb_row_store::StoreError;
use oxtsdb_schema::UidKind;
use parking_lot::Mutex;
use tracing::{debug, warn};

use super::record::{Record, Records, State};
use crate::layout::PerKind;
use crate::table::UidTable;

/// How long no free numbers are looked for when there were none: with all numbers in use, every new name would cause
/// a scan.
const PAUSE: Duration = Duration::from_secs(5);

/// The most numbers that are read ahead.
const READ_AHEAD: usize = 8192;

/// The released numbers of a table. Cloning is cheap; clones share what was read.
#[derive(Clone, Debug)]
pub(crate) struct FreeNumbers {
    records: Records,
    quarantine: Arc<Mutex<Duration>>,
    read: Arc<tokio::sync::Mutex<PerKind<Read>>>,
}

/// Numbers that were read and not drawn.
#[derive(Debug, Default)]
struct Read {
    records: VecDeque<Record>,
    none_at: Option<Instant>,
}

impl FreeNumbers {
    pub(crate) fn new(records: Records, quarantine: Duration) -> Self {
        Self {
            records,
            quarantine: Arc::new(Mutex::new(quarantine)),
            read: Arc::default(),
        }
    }

    /// Sets how long a number has to be free before it is assigned.
    pub(crate) fn set_quarantine(&self, quarantine: Duration) {
        *self.quarantine.lock() = quarantine;
    }

    /// Draws up to `count` free numbers. Each can be drawn by another process as well.
    ///
    /// # Errors
    ///
    /// The store fails.
    pub(crate) async fn draw(&self, kind: UidKind, count: usize) -> Result<Vec<Record>, StoreError> {
        let mut read = self.read.lock().await;
        let read = read.get_mut(kind);
        if read.records.is_empty() {
            if read.none_at.is_some_and(|at| at.elapsed() < PAUSE) {
                return Ok(Vec::new());
            }
            read.records = self.find(kind).await?;
            read.none_at = read.records.is_empty().then(Instant::now);
        }
        let mut drawn = Vec::new();
        while drawn.len() < count && !read.records.is_empty() {
            let next = (count - drawn.len()).min(read.records.len());
            let next = read.records.drain(..next).collect();
            drawn.extend(self.records.unchanged(next).await?);
        }
        Ok(drawn)
    }

    /// Notes that a drawn number has a reverse mapping. Another process may have put it for a name that it then
    /// found assigned, and may be about to remove it; otherwise the number is in use.
    pub(crate) async fn has_name(&self, table: &UidTable, record: Record, now: SystemTime) {
        let of_uid = (record.kind, record.uid);
        let name = table.names(&[of_uid]).await.pop();
        let Some(Ok(Some(name))) = name else { return };
        let uid = table.uids(&[(record.kind, name)]).await.pop();
        if matches!(uid, Some(Ok(Some(uid))) if uid == record.uid) {
            self.in_use(record, now).await;
        }
    }

    /// Notes that this process assigned a drawn number.
    pub(crate) async fn in_use(&self, mut record: Record, now: SystemTime) {
        match self.records.put(&mut record, State::Done, now).await {
            Ok(true) => {}
            Ok(false) => {
                debug!(kind = %record.kind, uid = %record.uid, "another process has assigned a reclaimed UID")
            }
            Err(error) => {
                warn!(kind = %record.kind, uid = %record.uid, %error, "failed to record that a reclaimed UID was assigned; a later assignment does it");
            }
        }
    }

    async fn find(&self, kind: UidKind) -> Result<VecDeque<Record>, StoreError> {
        let now = SystemTime::now();
        let quarantine = *self.quarantine.lock();
        let mut found = VecDeque::new();
        let mut records = self.records.list(Some(kind), None).await?;
        while let Some(batch) = records.try_next().await? {
            let usable = |record: &Record| {
                let age = now.duration_since(record.since).unwrap_or_default();
                record.state == State::Free && age >= quarantine
            };
            found.extend(batch.into_iter().filter(usable));
            if found.len() >= READ_AHEAD {
                found.truncate(READ_AHEAD);
                break;
            }
        }
        Ok(found)
    }
}
