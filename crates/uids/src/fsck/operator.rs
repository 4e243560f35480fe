//! Checks and repairs of a running service: one check at a time, and caches that follow the repairs.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures::StreamExt as _;
use futures::stream::BoxStream;
use oxtsdb_row_store::{CellAddress, Clock};
use oxtsdb_schema::uid_table::{COUNTER_ROW, encode_counter};
use oxtsdb_schema::{Name, Uid, UidKind};
use tokio::sync::Semaphore;

use super::repair::{self, Applied, RepairError};
use super::{CellChange, Event, FsckOptions, check_except};
use crate::change::{Change, Changed, Changes};
use crate::error::UidServiceError;
use crate::layout::UidLayout;
use crate::reclaim::record::Records;
use crate::table::{ID, NAME, UidTable, counter_cell};

/// How often a counter is read and compared before the call fails.
const ATTEMPTS: usize = 16;

/// Checks and repairs one table. Cloning is cheap.
#[derive(Clone, Debug)]
pub struct Fsck {
    table: UidTable,
    reclaimed: Records,
    changes: Arc<Changes>,
    clock: Clock,
    /// One permit: a check takes memory and reads the whole table.
    running: Arc<Semaphore>,
}

impl Fsck {
    pub(crate) fn new(table: UidTable, reclaimed: Records, changes: Arc<Changes>) -> Self {
        Self {
            table,
            reclaimed,
            changes,
            clock: Clock::system(),
            running: Arc::new(Semaphore::new(1)),
        }
    }

    /// The format of the UIDs and names.
    pub fn layout(&self) -> &UidLayout {
        self.table.layout()
    }

    /// Starts a check, which runs while its events are read; see [`super::check`].
    ///
    /// # Errors
    ///
    /// [`UidServiceError::CheckRunning`].
    pub fn check(
        &self,
        kinds: Vec<UidKind>,
        grace: Duration,
    ) -> Result<BoxStream<'static, Result<Event, UidServiceError>>, UidServiceError> {
        let permit = Arc::clone(&self.running).try_acquire_owned();
        let permit = permit.map_err(|_| UidServiceError::CheckRunning)?;
        let options = FsckOptions {
            kinds,
            grace,
            started_ms: self.clock.now_ms(),
        };
        let events = check_except(self.table.clone(), Some(self.reclaimed.clone()), options);
        // The permit lives as long as the stream.
        Ok(events
            .map(move |event| {
                let _permit = &permit;
                event
            })
            .boxed())
    }

    /// Applies a repair, removes what it changed from the cache of this process, and announces it to other replicas.
    ///
    /// # Errors
    ///
    /// [`RepairError`]. If a repair fails, the changes that it has made are announced, if the store can be read and
    /// written. If the announcement fails, the same repair announces them again.
    pub async fn repair(&self, changes: &[CellChange]) -> Result<Applied, RepairError> {
        // The change completes what a check may have taken for damage.
        if self.changes.is_pending(&concerned(changes)).await? {
            return Err(RepairError::InProgress);
        }
        for (kind, uid) in deleted_uids(changes) {
            self.changes.withhold(kind, &[uid]).await?;
        }
        let applied = repair::apply(&self.table, changes).await;
        let made = match &applied {
            Ok(_) => changed_mappings(changes),
            Err(_) => {
                self.changes.invalidate(&changed_mappings(changes));
                changed_mappings(&repair::made(&self.table, changes).await?)
            }
        };
        self.changes.announce(&made, SystemTime::now()).await?;
        applied
    }

    /// Raises a kind's counter to `minimum`, if it is lower. Returns the counter.
    ///
    /// # Errors
    ///
    /// The counter cannot be read, or other writers kept changing it.
    pub async fn raise_counter(&self, kind: UidKind, minimum: u64) -> Result<u64, UidServiceError> {
        for _ in 0..ATTEMPTS {
            let counter = self.table.counter(kind).await?;
            if counter.number >= minimum {
                return Ok(counter.number);
            }
            let value = encode_counter(minimum);
            let cell = counter_cell(kind);
            if self.table.check_and_put(cell, counter.stored, &value).await? {
                return Ok(minimum);
            }
        }
        Err(UidServiceError::CounterContended { kind })
    }
}

/// The mappings that are no more after a repair. (New ones need no announcement: absence is not cached.)
fn changed_mappings(changes: &[CellChange]) -> Vec<Changed> {
    let mut changed = Vec::new();
    for CellChange { cell, old, new } in changes.iter().filter(|change| !change.is_guard()) {
        let (Some(kind), Some(old)) = (UidKind::from_qualifier(&cell.qualifier), old) else {
            continue;
        };
        let Some((uid, name)) = mapping(cell, old) else {
            continue;
        };
        let new_name = new.as_deref().filter(|_| cell.family != ID);
        let change = match new_name.map(Name::from_stored) {
            Some(Ok(to)) => Change::Rename { from: name, to },
            _ => Change::Delete { name },
        };
        let change = Changed {
            uid: (kind, uid),
            change,
        };
        if !changed.contains(&change) {
            changed.push(change);
        }
    }
    changed
}

/// The UIDs that lose their reverse mapping in a repair.
fn deleted_uids(changes: &[CellChange]) -> impl Iterator<Item = (UidKind, Uid)> {
    let deletes = changes
        .iter()
        .filter(|change| change.cell.family == NAME && change.old.is_some() && change.new.is_none());
    deletes.filter_map(|CellChange { cell, .. }| {
        let kind = UidKind::from_qualifier(&cell.qualifier)?;
        Some((kind, Uid::from_bytes(&cell.row).ok()?))
    })
}

/// The mappings before and after a repair, also those that it only checks.
fn concerned(changes: &[CellChange]) -> Vec<Changed> {
    let values = |change: &CellChange| [change.old.clone(), change.new.clone()];
    let mappings = changes.iter().flat_map(|change| {
        let kind = UidKind::from_qualifier(&change.cell.qualifier);
        let cell_values = values(change).into_iter().flatten();
        cell_values.filter_map(move |value| Some((kind?, mapping(&change.cell, &value)?)))
    });
    let changed = mappings.map(|(kind, (uid, name))| Changed {
        uid: (kind, uid),
        change: Change::Delete { name },
    });
    changed.collect()
}

/// The mapping of a cell with a value.
fn mapping(cell: &CellAddress, value: &[u8]) -> Option<(Uid, Name)> {
    if cell.row == COUNTER_ROW {
        return None;
    }
    let (uid, name) = match cell.family == ID {
        true => (value, &*cell.row),
        false => (&*cell.row, value),
    };
    Uid::from_bytes(uid).ok().zip(Name::from_stored(name).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repair_changes_the_mappings_that_it_replaces_or_deletes() {
        let change = |row: &[u8], family: &str, old: Option<&[u8]>, new: Option<&[u8]>| CellChange {
            cell: CellAddress::new(row, family, UidKind::Tagk.qualifier()),
            old: old.map(<[u8]>::to_vec),
            new: new.map(<[u8]>::to_vec),
        };
        let name = |text: &str| Name::from_stored(text.as_bytes()).unwrap();
        let uid = (UidKind::Tagk, Uid::from_bytes(&[0, 0, 1]).unwrap());
        let changes = [
            change(b"kept", ID, Some(&[0, 0, 1]), Some(&[0, 0, 1])),
            change(b"new", ID, None, Some(&[0, 0, 1])),
            change(b"gone", ID, Some(&[0, 0, 1]), None),
            change(&[0, 0, 1], NAME, Some(b"a"), Some(b"b")),
            change(&[0, 0, 1], NAME, Some(b"gone"), None),
            change(COUNTER_ROW, ID, Some(&[0; 8]), Some(&[1; 8])),
        ];
        let delete = Change::Delete { name: name("gone") };
        let rename = Change::Rename {
            from: name("a"),
            to: name("b"),
        };
        let expected = [delete, rename].map(|change| Changed { uid, change });
        assert_eq!(changed_mappings(&changes), expected);
        assert_eq!(deleted_uids(&changes).collect::<Vec<_>>(), [uid]);
    }
}
