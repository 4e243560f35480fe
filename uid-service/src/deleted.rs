//! Deleted random UIDs, in table `tsdb-uid-state`.
//!
//! ```text
//!   row: d | kind (1) | UID        s:t   time, ms (8)
//! ```
//!
//! A counter never returns a number twice, so a sequential UID that was deleted is not assigned again. A random draw
//! may return it: the new name would have the points of the deleted one, and those that writers with a stale cache
//! still store. So a delete records the UID before it removes the reverse mapping, and draws avoid recorded UIDs. A
//! record is permanent, because nothing has searched for points with the UID.

use std::time::{SystemTime, UNIX_EPOCH};

use oxtsdb_row_store::{ColumnSelection, StoreError, WriteBatch};
use oxtsdb_schema::{Uid, UidKind};

use crate::state::{STATE_FAMILY, StateTable, kind_byte};

const PREFIX: u8 = b'd';
const TIME: &[u8] = b"t";

/// The deleted UIDs of a table. Cloning is cheap.
#[derive(Clone, Debug)]
pub(crate) struct DeletedUids(StateTable);

impl DeletedUids {
    pub(crate) fn new(state: StateTable) -> Self {
        Self(state)
    }

    /// Records UIDs of a kind; they are not assigned again.
    ///
    /// # Errors
    ///
    /// The store fails.
    pub(crate) async fn record(&self, kind: UidKind, uids: &[Uid]) -> Result<(), StoreError> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let time_ms = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
        let mut batch = WriteBatch::new(self.0.name().clone());
        let family = batch.family(STATE_FAMILY);
        for uid in uids {
            batch
                .row(&row(kind, *uid))
                .put(family, TIME, &time_ms.to_be_bytes());
        }
        if batch.is_empty() {
            return Ok(());
        }
        self.0.store().write(batch).await
    }

    /// Whether UIDs of a kind are recorded, in their order.
    ///
    /// # Errors
    ///
    /// The store fails.
    pub(crate) async fn contains(&self, kind: UidKind, uids: &[Uid]) -> Result<Vec<bool>, StoreError> {
        let keys: Vec<Vec<u8>> = uids.iter().map(|uid| row(kind, *uid)).collect();
        let rows = self
            .0
            .store()
            .get_rows(self.0.name(), &keys, &ColumnSelection::All, None);
        Ok(rows.await?.iter().map(Option::is_some).collect())
    }
}

fn row(kind: UidKind, uid: Uid) -> Vec<u8> {
    [&[PREFIX, kind_byte(kind)], uid.as_bytes()].concat()
}
