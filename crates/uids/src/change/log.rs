//! The log of changes, which all replicas of the service share.
//!
//! ```text
//!   row  e | number (8 bytes, big endian)      column  s:c      value  an entry
//! ```
//!
//! A replica appends by a compare-and-put of the row after the last one, on condition that it is absent, after it has
//! read all rows before. So numbers have no gaps, and an append knows every pending entry before it: an entry that
//! conflicts with a pending one is not appended. Pending entries are thereby locks of their UID and their names.
//!
//! The last row is never trimmed: the next number follows from it.
//!
//! Entries that are read or finished are reported to the sink in the same step in which this replica's position in the
//! log moves: the position is never ahead of a report, also if a call is cancelled.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures::TryStreamExt as _;
use oxtsdb_row_store::{CellAddress, ColumnSelection, Condition, Row, Scan, StoreError, WriteBatch, Writers};
use parking_lot::Mutex;
use tokio::time::Instant;
use tracing::warn;

use super::entry::{Entry, State};
use super::{ChangeSink, Changed};
use crate::state::{STATE_FAMILY, StateTable};
use crate::table::is_uncertain;

/// The prefix of the rows of the log.
const PREFIX: u8 = b'e';

/// The qualifier of an entry.
const QUALIFIER: &[u8] = b"c";

/// How long a pending entry belongs to the replica that claimed it, counted from when another one sees the claim.
/// The owner takes steps for [`OWN_TIME`] only, so that no two replicas take steps of one change at a time.
const LEASE: Duration = Duration::from_secs(60);

/// How long a replica takes steps after a claim. The rest of [`LEASE`] is for a request that is on its way to the
/// store. HBase's Thrift servers must give it up in that time (`hbase.client.operation.timeout`).
const OWN_TIME: Duration = Duration::from_secs(20);

/// Rows that are read at once.
const BATCH: usize = 256;

/// Attempts of a conditional put while its responses are lost.
const ATTEMPTS: u32 = 4;

/// The log as this replica knows it.
#[derive(Debug)]
pub(crate) struct ChangeLog {
    state: StateTable,
    /// Identifies this process.
    owner: String,
    /// There are no other replicas: entries of other owners are left by a process that has ended.
    alone: bool,
    known: Arc<Mutex<Known>>,
    sink: Arc<dyn ChangeSink>,
    /// Held while the log is read or appended to.
    turn: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct Known {
    /// The number of the last entry; 0: none. `None`: nothing was read yet.
    last: Option<u64>,
    pending: BTreeMap<u64, Pending>,
    /// Entries that this process takes steps of.
    active: HashSet<u64>,
    /// Entries that this process has finished since the last read began.
    finished: HashSet<u64>,
}

#[derive(Clone, Debug)]
struct Pending {
    entry: Entry,
    /// When this replica saw it first with this owner.
    since: Instant,
    /// This replica owns it, and none of its requests can still reach the store.
    is_idle: bool,
}

impl Known {
    fn position(&self) -> Option<u64> {
        let first_pending = self.pending.keys().next();
        first_pending.map(|number| number - 1).or(self.last)
    }
}

/// The outcome of [`ChangeLog::append`].
#[derive(Debug)]
pub(crate) enum Appended {
    /// The entry is pending, and the caller takes its steps.
    Ours(Claim),
    /// The same change is pending and abandoned: [`ChangeLog::claim`] takes it over.
    Abandoned(u64, Entry),
    /// A pending entry excludes it.
    Conflict(Entry),
}

/// The right to take the steps of an entry for [`OWN_TIME`]. Dropping it leaves the entry pending, until [`LEASE`] is
/// over: a request of a step may still reach the store.
#[derive(Debug)]
pub(crate) struct Claim {
    number: u64,
    entry: Entry,
    began: Instant,
    known: Arc<Mutex<Known>>,
}

impl Claim {
    pub(crate) fn entry(&self) -> &Entry {
        &self.entry
    }

    /// Whether no step was taken before.
    pub(crate) fn is_new(&self) -> bool {
        self.entry.claims == 0
    }

    /// Whether another step may be taken.
    pub(crate) fn is_valid(&self) -> bool {
        self.began.elapsed() < OWN_TIME
    }
}

impl Claim {
    /// Leaves the entry pending. No request of its steps can still reach the store, so that it can be claimed again at
    /// once.
    pub(crate) fn give_up(self) {
        if let Some(pending) = self.known.lock().pending.get_mut(&self.number) {
            pending.is_idle = true;
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.known.lock().active.remove(&self.number);
    }
}

impl ChangeLog {
    pub(crate) fn new(state: StateTable, writers: Writers, sink: Arc<dyn ChangeSink>) -> Self {
        Self {
            state,
            owner: format!("{:016x}", rand::random::<u64>()),
            alone: writers == Writers::Single,
            known: Arc::default(),
            sink,
            turn: tokio::sync::Mutex::default(),
        }
    }

    /// A pending entry of this replica.
    pub(crate) fn entry(&self, uid: crate::table::KindUid, change: super::Change, time_ms: u64) -> Entry {
        Entry {
            uid,
            change,
            state: State::Pending,
            time_ms,
            owner: self.owner.clone(),
            claims: 0,
        }
    }

    /// Reads what was added to the log, and whether pending entries were completed, and reports it.
    ///
    /// The first read only notes where the log ends: what was added before it is reported as missed.
    pub(crate) async fn read(&self) -> Result<(), StoreError> {
        let _turn = self.turn.lock().await;
        self.read_in_turn().await
    }

    async fn read_in_turn(&self) -> Result<(), StoreError> {
        let (last, mut pending) = {
            let mut known = self.known.lock();
            known.finished.clear();
            let others = known
                .pending
                .keys()
                .filter(|number| !known.active.contains(number));
            (known.last, others.copied().collect::<BTreeSet<_>>())
        };
        let mut read = BTreeMap::new();
        let mut done = Vec::new();
        let mut is_gap = last.is_none() && !self.alone;
        let mut end = last.unwrap_or(0);
        let mut rows = self
            .state
            .store()
            .scan(self.state.name(), scan(end + 1, u64::MAX))
            .await?;
        while let Some(batch) = rows.try_next().await? {
            for row in batch {
                let Some(number) = number_of(row.key()) else {
                    continue;
                };
                is_gap |= number != end + 1;
                end = number;
                let entry = entry_of(Some(&row));
                if entry.as_ref().is_some_and(|entry| entry.state == State::Pending) {
                    pending.insert(number);
                }
                read.insert(number, entry);
            }
        }
        // After the scan: an entry that was completed before a later one of its UID was appended must be found
        // completed too, or their events would be in the wrong order.
        if !pending.is_empty() {
            let keys: Vec<Vec<u8>> = pending.iter().map(|number| row_key(*number)).collect();
            let rows = self
                .state
                .store()
                .get_rows(self.state.name(), &keys, &column(), None)
                .await?;
            read.extend(
                pending
                    .into_iter()
                    .zip(rows.iter().map(|row| entry_of(row.as_ref()))),
            );
        }
        let mut known = self.known.lock();
        known.last = Some(end);
        for (number, entry) in read {
            // The process itself reports the end of its own changes. The read may have found them pending.
            if known.active.contains(&number) || known.finished.contains(&number) {
                continue;
            }
            match entry {
                Some(entry) if entry.state == State::Pending => {
                    let is_known = known
                        .pending
                        .get(&number)
                        .is_some_and(|pending| pending.entry == entry);
                    if !is_known {
                        let since = Instant::now();
                        // Its append or claim failed before a step was taken.
                        let is_idle = entry.owner == self.owner;
                        let pending = Pending {
                            entry,
                            since,
                            is_idle,
                        };
                        known.pending.insert(number, pending);
                    }
                }
                entry => {
                    let was_pending = known.pending.remove(&number).is_some();
                    // It was completed and trimmed meanwhile: nothing says whether it was made.
                    is_gap |= was_pending && entry.is_none();
                    let is_new = |entry: &Entry| entry.state == State::Done && last.is_some();
                    done.extend(entry.filter(is_new).map(Changed::from));
                }
            }
        }
        if is_gap {
            self.sink.missed();
        }
        self.sink.changed(&done, known.position());
        Ok(())
    }

    /// Appends an entry, unless a pending one excludes it.
    pub(crate) async fn append(&self, entry: &Entry) -> Result<Appended, StoreError> {
        let _turn = self.turn.lock().await;
        let value = entry.encode();
        let mut attempt = 0;
        loop {
            self.read_in_turn().await?;
            if let Some(conflict) = self.conflicting(entry) {
                return Ok(conflict);
            }
            let number = self.known.lock().last.unwrap_or(0) + 1;
            match self.put(number, None, &value).await {
                Ok(true) => return Ok(self.begin(number, entry)),
                Ok(false) => {}
                Err(error) if is_uncertain(&error) && attempt < ATTEMPTS => attempt += 1,
                Err(error) => return Err(error),
            }
            // Its time and its owner make an entry unique, but for a request that was repeated, by this process or unseen
            // by HBase's Thrift server.
            if self.stored(number).await?.as_ref() == Some(entry) {
                return Ok(self.begin(number, entry));
            }
        }
    }

    /// Appends the entry of a change that is made, and reports it.
    pub(crate) async fn append_done(&self, entry: &Entry) -> Result<(), StoreError> {
        let _turn = self.turn.lock().await;
        let value = entry.encode();
        let mut attempt = 0;
        loop {
            self.read_in_turn().await?;
            let number = self.known.lock().last.unwrap_or(0) + 1;
            let is_appended = match self.put(number, None, &value).await {
                Ok(is_appended) => is_appended,
                Err(error) if is_uncertain(&error) && attempt < ATTEMPTS => {
                    attempt += 1;
                    false
                }
                Err(error) => return Err(error),
            };
            if is_appended || self.stored(number).await?.as_ref() == Some(entry) {
                let mut known = self.known.lock();
                known.last = known.last.max(Some(number));
                let changed = [Changed::from(entry.clone())];
                self.sink.changed(&changed, known.position());
                return Ok(());
            }
        }
    }

    fn begin(&self, number: u64, entry: &Entry) -> Appended {
        let mut known = self.known.lock();
        known.last = known.last.max(Some(number));
        let since = Instant::now();
        let entry = entry.clone();
        known.pending.insert(
            number,
            Pending {
                entry: entry.clone(),
                since,
                is_idle: false,
            },
        );
        known.active.insert(number);
        Appended::Ours(self.claim_of(number, entry, since))
    }

    fn claim_of(&self, number: u64, entry: Entry, began: Instant) -> Claim {
        Claim {
            number,
            entry,
            began,
            known: Arc::clone(&self.known),
        }
    }

    /// Whether a pending entry excludes this one.
    pub(crate) fn excludes(&self, entry: &Entry) -> bool {
        let known = self.known.lock();
        let mut pending = known.pending.values();
        pending.any(|pending| pending.entry.conflicts_with(entry))
    }

    /// The pending entry that excludes another one.
    fn conflicting(&self, entry: &Entry) -> Option<Appended> {
        let known = self.known.lock();
        let (number, pending) = known
            .pending
            .iter()
            .find(|(_, pending)| pending.entry.conflicts_with(entry))?;
        let same = pending.entry.uid == entry.uid && pending.entry.change == entry.change;
        let pending_entry = pending.entry.clone();
        Some(if same && self.is_abandoned(&known, *number) {
            Appended::Abandoned(*number, pending_entry)
        } else {
            Appended::Conflict(pending_entry)
        })
    }

    fn is_abandoned(&self, known: &Known, number: u64) -> bool {
        let owner_gave_up =
            |pending: &Pending| self.alone || pending.is_idle || pending.since.elapsed() > LEASE;
        !known.active.contains(&number) && known.pending.get(&number).is_some_and(owner_gave_up)
    }

    /// The pending entries that no process takes steps of: own entries that failed, and entries that other replicas have
    /// not completed in time.
    pub(crate) fn abandoned(&self) -> Vec<(u64, Entry)> {
        let known = self.known.lock();
        known
            .pending
            .iter()
            .filter(|(number, _)| self.is_abandoned(&known, **number))
            .map(|(number, pending)| (*number, pending.entry.clone()))
            .collect()
    }

    /// Takes an abandoned entry over; `None` if another replica, or another task, has been faster.
    pub(crate) async fn claim(&self, number: u64, entry: &Entry) -> Result<Option<Claim>, StoreError> {
        {
            let mut known = self.known.lock();
            if !self.is_abandoned(&known, number) {
                return Ok(None);
            }
            known.active.insert(number);
        }
        let claimed = entry.claimed_by(&self.owner);
        // Dropped if the put fails.
        let claim = self.claim_of(number, claimed.clone(), Instant::now());
        let is_put = self.put(number, Some(entry.encode()), &claimed.encode()).await?;
        if !is_put && self.stored(number).await?.as_ref() != Some(&claimed) {
            return Ok(None);
        }
        if let Some(pending) = self.known.lock().pending.get_mut(&number) {
            pending.entry = claimed;
            pending.since = claim.began;
            pending.is_idle = false;
        }
        Ok(Some(claim))
    }

    /// Records the end of a change, and reports it if it is made. Returns the recorded state: if this replica was too slow, another one has taken
    /// the change over.
    pub(crate) async fn finish(&self, claim: Claim, state: State) -> Result<State, StoreError> {
        let (number, pending) = (claim.number, claim.entry.encode());
        let finished = claim.entry.with(state).encode();
        let mut attempt = 0;
        let recorded = loop {
            match self.put(number, Some(pending.clone()), &finished).await {
                Ok(true) => break state,
                Ok(false) => {}
                Err(error) if is_uncertain(&error) && attempt < ATTEMPTS => {
                    attempt += 1;
                    continue;
                }
                Err(error) => {
                    claim.give_up();
                    return Err(error);
                }
            }
            // Trimmed entries were completed.
            break self.stored(number).await?.map_or(state, |entry| entry.state);
        };
        if recorded != State::Pending {
            let made = (recorded == State::Done).then(|| Changed::from(claim.entry.clone()));
            let mut known = self.known.lock();
            known.pending.remove(&number);
            known.finished.insert(number);
            self.sink.changed(made.as_slice(), known.position());
        }
        Ok(recorded)
    }

    /// Whether there are no other replicas.
    pub(crate) fn is_alone(&self) -> bool {
        self.alone
    }

    /// Whether this replica has entries to complete.
    pub(crate) fn has_pending(&self) -> bool {
        !self.known.lock().pending.is_empty()
    }

    /// The number up to which all entries are completed and were reported. `None`: the log was not read yet.
    pub(crate) fn position(&self) -> Option<u64> {
        self.known.lock().position()
    }

    /// The completed entries after a number, up to the last one that was read, in their order; `None` if some were
    /// trimmed.
    pub(crate) async fn entries_after(&self, after: u64) -> Result<Option<Vec<Entry>>, StoreError> {
        let to = self.known.lock().last.unwrap_or(0);
        let mut entries = Vec::new();
        let mut last = after;
        let mut rows = self
            .state
            .store()
            .scan(self.state.name(), scan(after + 1, to.saturating_add(1)))
            .await?;
        while let Some(batch) = rows.try_next().await? {
            for row in batch {
                let Some(number) = number_of(row.key()) else {
                    continue;
                };
                if number != last + 1 {
                    return Ok(None);
                }
                last = number;
                entries.extend(entry_of(Some(&row)).filter(|entry| entry.state == State::Done));
            }
        }
        Ok((last == to).then_some(entries))
    }

    /// Deletes completed entries: all but the last `max_entries`, and those that began before `oldest_ms`.
    pub(crate) async fn trim(&self, max_entries: u64, oldest_ms: u64) -> Result<u64, StoreError> {
        let Some(last) = self.known.lock().last else {
            return Ok(0);
        };
        let mut deleted = 0;
        let mut rows = self.state.store().scan(self.state.name(), scan(0, last)).await?;
        let mut batch = WriteBatch::new(self.state.name().clone());
        while let Some(read) = rows.try_next().await? {
            for row in read {
                let Some(number) = number_of(row.key()) else {
                    continue;
                };
                let Some(entry) = entry_of(Some(&row)) else {
                    continue;
                };
                let excess = number + max_entries <= last;
                if entry.state != State::Pending && (excess || entry.time_ms < oldest_ms) {
                    batch.row(row.key()).delete_row();
                    deleted += 1;
                }
            }
            if batch.row_count() >= BATCH {
                let full = std::mem::replace(&mut batch, WriteBatch::new(self.state.name().clone()));
                self.state.store().write(full).await?;
            }
        }
        if !batch.is_empty() {
            self.state.store().write(batch).await?;
        }
        Ok(deleted)
    }

    async fn stored(&self, number: u64) -> Result<Option<Entry>, StoreError> {
        let row = self
            .state
            .store()
            .get(self.state.name(), &row_key(number), &column())
            .await?;
        Ok(entry_of(row.as_ref()))
    }

    async fn put(&self, number: u64, expected: Option<Vec<u8>>, value: &[u8]) -> Result<bool, StoreError> {
        let cell = CellAddress::new(row_key(number), STATE_FAMILY, QUALIFIER);
        let condition = Condition { cell, expected };
        self.state
            .store()
            .check_and_put(self.state.name(), &condition, value)
            .await
    }
}

fn row_key(number: u64) -> Vec<u8> {
    [&[PREFIX], number.to_be_bytes().as_slice()].concat()
}

fn number_of(row: &[u8]) -> Option<u64> {
    let (PREFIX, rest) = row.split_first().map(|(first, rest)| (*first, rest))? else {
        return None;
    };
    Some(u64::from_be_bytes(rest.try_into().ok()?))
}

fn column() -> ColumnSelection {
    ColumnSelection::Columns(vec![(STATE_FAMILY.to_owned(), QUALIFIER.to_vec())])
}

/// Entries `from` (inclusive) to `to` (exclusive).
fn scan(from: u64, to: u64) -> Scan {
    let mut scan = Scan::range(row_key(from), row_key(to));
    scan.columns = column();
    scan.batch_rows = BATCH;
    scan
}

/// The entry of a row. An entry that cannot be decoded is logged; it neither blocks nor reports anything.
fn entry_of(row: Option<&Row>) -> Option<Entry> {
    let row = row?;
    let value = row.get(STATE_FAMILY, QUALIFIER)?.value;
    let entry = Entry::decode(value);
    if entry.is_none() {
        warn!(row = %hex::encode(row.key()), "skipped an unreadable entry of the log of changes");
    }
    entry
}

#[cfg(test)]
mod tests {
    use oxtsdb_row_store::RowStore as _;
    use oxtsdb_row_store::memory::MemoryStore;
    use oxtsdb_schema::{Name, Uid, UidKind, UidWidth};

    use super::*;
    use crate::change::Change;

    #[derive(Debug, Default)]
    struct Seen {
        changes: Mutex<Vec<Changed>>,
        missed: Mutex<u32>,
    }

    impl ChangeSink for Seen {
        fn invalidate(&self, _: &[Changed]) {}

        fn changed(&self, changes: &[Changed], _: Option<u64>) {
            self.changes.lock().extend_from_slice(changes);
        }

        fn missed(&self) {
            *self.missed.lock() += 1;
        }
    }

    fn delete(log: &ChangeLog, number: u64) -> Entry {
        let name = Name::from_stored(format!("name.{number}").as_bytes()).unwrap();
        let uid = Uid::from_number(number, UidWidth::DEFAULT).unwrap();
        log.entry((UidKind::Metric, uid), Change::Delete { name }, number)
    }

    #[tokio::test]
    async fn a_pending_entry_that_was_completed_and_trimmed_is_reported_as_missed() {
        let store = MemoryStore::new();
        let table: oxtsdb_row_store::TableName = "tsdb-uid-state".parse().unwrap();
        store
            .create_table(&StateTable::definition(table.clone()))
            .await
            .unwrap();
        let state = StateTable::new(Arc::new(store), table);
        let seen = Arc::new(Seen::default());
        let one = ChangeLog::new(state.clone(), Writers::Single, Arc::new(Seen::default()));
        let other = ChangeLog::new(state, Writers::Single, Arc::clone(&seen) as _);
        other.read().await.unwrap();
        let Appended::Ours(claim) = one.append(&delete(&one, 1)).await.unwrap() else {
            panic!("there is no other entry");
        };
        other.read().await.unwrap();
        assert!(other.has_pending());

        // While the other replica is paused.
        one.finish(claim, State::Done).await.unwrap();
        one.append_done(&delete(&one, 2).with(State::Done)).await.unwrap();
        assert_eq!(one.trim(1, 0).await.unwrap(), 1);
        let before = *seen.missed.lock();
        other.read().await.unwrap();
        assert!(!other.has_pending());
        assert_eq!(*seen.missed.lock(), before + 1);
        assert_eq!(seen.changes.lock().len(), 1, "the later entry");
    }
}
