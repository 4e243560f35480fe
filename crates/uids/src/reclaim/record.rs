//! Records of UIDs that are being reclaimed, in table `tsdb-uid-state`.
//!
//! ```text
//!   row: r | kind (1) | UID        s:v   state (1) | time, ms (8) | name
//! ```
//!
//! Every change of a record is a compare-and-put of its whole value: if two operators change it at once, one wins. A
//! record that is done stays as [`State::Done`] and is deleted later: a delete could hide a record that is written in
//! the same millisecond.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures::StreamExt as _;
use futures::TryStreamExt as _;
use futures::stream::BoxStream;
use oxtsdb_row_store::{CellAddress, ColumnSelection, Condition, Row, Scan, StoreError, WriteBatch};
use oxtsdb_schema::{Name, Uid, UidKind};

use crate::state::{STATE_FAMILY, StateTable, kind_byte, kind_of_byte};

const PREFIX: u8 = b'r';
const VALUE: &[u8] = b"v";

/// How long a record stays after it is done.
const DONE_AGE: Duration = Duration::from_secs(3600);

/// Where a UID is on its way to be assigned again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// No longer reclaimed: restored, or assigned again.
    Done,
    /// Its forward mapping is being removed.
    Quarantining,
    /// It has no forward mapping. Its reverse mapping still names it.
    Quarantined,
    /// Its forward mapping is being put back.
    Restoring,
    /// Its reverse mapping is being removed.
    Releasing,
    /// It has no mapping, and can be assigned again when no cache holds its old name.
    Free,
}

impl State {
    const ALL: [Self; 6] = [
        Self::Done,
        Self::Quarantining,
        Self::Quarantined,
        Self::Restoring,
        Self::Releasing,
        Self::Free,
    ];

    const fn byte(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Quarantining => 1,
            Self::Quarantined => 2,
            Self::Restoring => 3,
            Self::Releasing => 4,
            Self::Free => 5,
        }
    }
}

/// The record of a UID.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Its kind.
    pub kind: UidKind,
    /// The UID.
    pub uid: Uid,
    /// Where it is.
    pub state: State,
    /// When the state began; [`State::Quarantined`] begins when the forward mapping is gone.
    pub since: SystemTime,
    /// The name that it had.
    pub name: Name,
    /// The stored value, for conditions.
    pub(super) stored: Option<Vec<u8>>,
    /// The version of the cell.
    pub(super) timestamp_ms: i64,
}

impl Record {
    /// A record that is not stored yet.
    pub(super) fn new(kind: UidKind, uid: Uid, name: Name) -> Self {
        Self {
            kind,
            uid,
            state: State::Done,
            since: UNIX_EPOCH,
            name,
            stored: None,
            timestamp_ms: 0,
        }
    }

    /// Whether it is in its state for at least `quarantine`.
    pub(super) fn is_free_for(&self, quarantine: Duration, now: SystemTime) -> bool {
        now.duration_since(self.since).unwrap_or_default() >= quarantine
    }
}

/// The records. Cloning is cheap.
#[derive(Clone, Debug)]
pub(crate) struct Records(StateTable);

impl Records {
    pub(crate) fn new(state: StateTable) -> Self {
        Self(state)
    }

    /// Reads the record of a UID; `None` if it has none.
    pub(super) async fn get(&self, kind: UidKind, uid: Uid) -> Result<Option<Record>, StoreError> {
        let table = self.0.name();
        let row = self
            .0
            .store()
            .get(table, &row(kind, Some(uid)), &ColumnSelection::All)
            .await?;
        Ok(row.as_ref().and_then(decode))
    }

    /// Reads the records of UIDs, in their order; `None` for each that has none.
    pub(super) async fn get_all(
        &self,
        kind: UidKind,
        uids: &[Uid],
    ) -> Result<Vec<Option<Record>>, StoreError> {
        let keys: Vec<Vec<u8>> = uids.iter().map(|uid| row(kind, Some(*uid))).collect();
        let rows = self
            .0
            .store()
            .get_rows(self.0.name(), &keys, &ColumnSelection::All, None)
            .await?;
        Ok(rows.iter().map(|row| row.as_ref().and_then(decode)).collect())
    }

    /// Whether a UID is between the begin of its quarantine and its release.
    pub(crate) async fn is_reclaimed(&self, kind: UidKind, uid: Uid) -> Result<bool, StoreError> {
        let record = self.get(kind, uid).await?;
        Ok(record.is_some_and(|record| match record.state {
            State::Quarantining | State::Quarantined | State::Restoring | State::Releasing => true,
            State::Done | State::Free => false,
        }))
    }

    /// Puts a record into a state, if it is as it was read. Returns whether it was.
    pub(super) async fn put(
        &self,
        record: &mut Record,
        state: State,
        now: SystemTime,
    ) -> Result<bool, StoreError> {
        let value = [
            &[state.byte()][..],
            &millis(now).to_be_bytes(),
            record.name.as_bytes(),
        ]
        .concat();
        let condition = Condition {
            cell: CellAddress::new(row(record.kind, Some(record.uid)), STATE_FAMILY, VALUE),
            expected: record.stored.clone(),
        };
        let done = self
            .0
            .store()
            .check_and_put(self.0.name(), &condition, &value)
            .await?;
        if done {
            record.state = state;
            record.since = UNIX_EPOCH + Duration::from_millis(millis(now));
            record.stored = Some(value);
        }
        Ok(done)
    }

    /// Streams the records of a kind, or of all, after the record of a UID, by kind and UID.
    pub(crate) async fn list(
        &self,
        kind: Option<UidKind>,
        after: Option<Uid>,
    ) -> Result<BoxStream<'static, Result<Vec<Record>, StoreError>>, StoreError> {
        let mut scan = match kind {
            Some(kind) => Scan::prefix(&row(kind, None)),
            None => Scan::prefix(&[PREFIX]),
        };
        if let (Some(kind), Some(after)) = (kind, after) {
            scan = scan.resume_after(&row(kind, Some(after)));
        }
        scan.batch_rows = 1024;
        let rows = self.0.store().scan(self.0.name(), scan).await?;
        let records = rows.map_ok(|rows| rows.iter().filter_map(decode).collect());
        Ok(records.boxed())
    }

    /// Deletes records that are done for an hour.
    pub(super) async fn delete_done(&self, now: SystemTime) -> Result<(), StoreError> {
        let mut records = self.list(None, None).await?;
        while let Some(batch) = records.try_next().await? {
            let mut deletes = WriteBatch::new(self.0.name().clone());
            let family = deletes.family(STATE_FAMILY);
            for record in batch {
                let age = now.duration_since(record.since).unwrap_or_default();
                if record.state == State::Done && age >= DONE_AGE {
                    deletes
                        .row(&row(record.kind, Some(record.uid)))
                        .delete_column_up_to(family, VALUE, record.timestamp_ms);
                }
            }
            if !deletes.is_empty() {
                self.0.store().write(deletes).await?;
            }
        }
        Ok(())
    }
}

fn row(kind: UidKind, uid: Option<Uid>) -> Vec<u8> {
    let uid = uid.as_ref().map_or(&[][..], Uid::as_bytes);
    [&[PREFIX, kind_byte(kind)][..], uid].concat()
}

fn decode(row: &Row) -> Option<Record> {
    let [_, kind, uid @ ..] = row.key() else {
        return None;
    };
    let cell = row.get(STATE_FAMILY, VALUE)?;
    let (state, rest) = cell.value.split_first()?;
    let (time, name) = rest.split_first_chunk()?;
    Some(Record {
        kind: kind_of_byte(*kind)?,
        uid: Uid::from_bytes(uid).ok()?,
        state: State::ALL.into_iter().find(|one| one.byte() == *state)?,
        since: UNIX_EPOCH.checked_add(Duration::from_millis(u64::from_be_bytes(*time)))?,
        name: Name::from_stored(name).ok()?,
        stored: Some(cell.value.to_vec()),
        timestamp_ms: cell.timestamp_ms,
    })
}

fn millis(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
