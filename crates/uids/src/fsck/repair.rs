//! Applies repairs: conditional changes of cells.
//!
//! A repair is applied as a whole or not at all. Each of its cells must have its old or its new value; a repair
//! that was applied before, or in part, is completed, so that it can be repeated.
//!
//! On a store with atomic commits it is one commit. On HBase its changes are made one by one, each as a
//! compare-and-set (a delete removes only the version that was compared). If one of its conditions fails
//! meanwhile, the changes before it are made back. A crash leaves a part, which the same repair completes, and its
//! inverse makes back.

use oxtsdb_row_store::{AtomicCommit, CellAddress, Condition, StoreError, WriteBatch};
use tracing::warn;

use super::cells::{self, StoredCell};
use super::classify::differs;
use super::finding::CellChange;
use crate::table::{UidTable, is_uncertain};

/// How often a repair is started again because another writer was faster.
const ATTEMPTS: usize = 4;

/// The effect of a repair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Applied {
    /// Cells were changed.
    Changed,
    /// All cells had their new values.
    Already,
}

/// Why a repair was not applied.
#[derive(Clone, Debug, thiserror::Error)]
pub enum RepairError {
    /// A cell has neither its old nor its new value.
    #[error(
        "cell {}:{} of row {} has another value than the plan saw{}; make another plan",
        .cell.family,
        String::from_utf8_lossy(&.cell.qualifier),
        hex::encode(&.cell.row),
        if *.is_partly_applied { ", others have their new values" } else { "" }
    )]
    StateChanged {
        /// The cell.
        cell: CellAddress,
        /// Whether other cells have their new values, as after an attempt that lost the store before it could make
        /// them back.
        is_partly_applied: bool,
    },
    /// A rename or delete of a UID or a name of the repair is not complete.
    #[error(
        "a rename or delete of one of its names or UIDs is in progress; repeat it later, or make another plan"
    )]
    InProgress,
    /// The store failed. A part may be applied; the repair can be repeated.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Applies the changes of a repair.
///
/// # Errors
///
/// [`RepairError`].
pub async fn apply(table: &UidTable, changes: &[CellChange]) -> Result<Applied, RepairError> {
    let mut contended = None;
    for _ in 0..ATTEMPTS {
        let stored = read(table, changes).await?;
        if let Some(changed) = foreign(changes, &stored) {
            return Err(state_changed(changed, changes, &stored));
        }
        let pending: Vec<(&CellChange, Option<&StoredCell>)> = changes
            .iter()
            .zip(&stored)
            .filter(|(change, stored)| differs(stored.as_ref(), change.new.as_deref()))
            .map(|(change, stored)| (change, stored.as_ref()))
            .collect();
        if pending.is_empty() {
            return Ok(Applied::Already);
        }
        let is_done = match table.store().atomic() {
            Some(commit) => commit_all(table, commit, changes, &stored, &pending).await?,
            None => apply_stepwise(table, changes, &pending).await?,
        };
        if is_done {
            return Ok(Applied::Changed);
        }
        contended = pending.first().map(|(change, _)| (*change).clone());
    }
    let Some(change) = contended.as_ref().or(changes.first()) else {
        return Ok(Applied::Already);
    };
    let stored = read(table, changes).await?;
    Err(state_changed(change, changes, &stored))
}

/// The changes whose cells have their new values.
///
/// # Errors
///
/// The store failed.
pub(super) async fn made(table: &UidTable, changes: &[CellChange]) -> Result<Vec<CellChange>, StoreError> {
    let stored = read(table, changes).await?;
    let pairs = changes.iter().zip(&stored);
    let made = pairs.filter(|(change, stored)| !differs(stored.as_ref(), change.new.as_deref()));
    Ok(made.map(|(change, _)| change.clone()).collect())
}

fn state_changed(change: &CellChange, changes: &[CellChange], stored: &[Option<StoredCell>]) -> RepairError {
    let mut pairs = changes.iter().zip(stored);
    RepairError::StateChanged {
        cell: change.cell.clone(),
        is_partly_applied: pairs
            .any(|(change, stored)| !change.is_guard() && !differs(stored.as_ref(), change.new.as_deref())),
    }
}

async fn read(table: &UidTable, changes: &[CellChange]) -> Result<Vec<Option<StoredCell>>, StoreError> {
    let addresses: Vec<CellAddress> = changes.iter().map(|change| change.cell.clone()).collect();
    cells::read(table, &addresses).await
}

/// The first change whose cell has neither value.
fn foreign<'a>(changes: &'a [CellChange], stored: &[Option<StoredCell>]) -> Option<&'a CellChange> {
    let mut pairs = changes.iter().zip(stored);
    let foreign = pairs.find(|(change, stored)| {
        differs(stored.as_ref(), change.old.as_deref()) && differs(stored.as_ref(), change.new.as_deref())
    });
    foreign.map(|(change, _)| change)
}

/// Returns false if a cell has changed meanwhile.
async fn commit_all(
    table: &UidTable,
    commit: &dyn AtomicCommit,
    changes: &[CellChange],
    stored: &[Option<StoredCell>],
    pending: &[(&CellChange, Option<&StoredCell>)],
) -> Result<bool, StoreError> {
    let conditions: Vec<Condition> = changes
        .iter()
        .zip(stored)
        .map(|(change, stored)| Condition {
            cell: change.cell.clone(),
            expected: stored.as_ref().map(|stored| stored.value.clone()),
        })
        .collect();
    let mut batch = WriteBatch::new(table.name().clone());
    for (change, stored) in pending {
        add(&mut batch, change, *stored);
    }
    commit.commit_if(&conditions, batch).await
}

fn add(batch: &mut WriteBatch, change: &CellChange, stored: Option<&StoredCell>) {
    let family = batch.family(&change.cell.family);
    let row = batch.row(&change.cell.row);
    match (&change.new, stored) {
        (Some(value), _) => drop(row.put(family, &change.cell.qualifier, value)),
        (None, Some(stored)) => {
            row.delete_column_up_to(family, &change.cell.qualifier, stored.timestamp_ms);
        }
        (None, None) => {}
    }
}

/// Returns false if a cell has changed meanwhile; then nothing is changed.
async fn apply_stepwise(
    table: &UidTable,
    changes: &[CellChange],
    pending: &[(&CellChange, Option<&StoredCell>)],
) -> Result<bool, StoreError> {
    let mut done = Vec::with_capacity(pending.len());
    for (change, _) in pending {
        if !set(table, change).await? {
            make_back(table, done).await?;
            return Ok(false);
        }
        done.push((*change).clone());
    }
    // A condition on a cell that is not written, or was written first, may have changed since it was read. A
    // mapping that was completed meanwhile must not lose its other half.
    let stored = read(table, changes).await?;
    let mut pairs = changes.iter().zip(&stored);
    if pairs.any(|(change, stored)| change.is_guard() && differs(stored.as_ref(), change.new.as_deref())) {
        make_back(table, done).await?;
        return Ok(false);
    }
    Ok(true)
}

async fn make_back(table: &UidTable, done: Vec<CellChange>) -> Result<(), StoreError> {
    for change in done.into_iter().rev().map(CellChange::inverse) {
        if !set(table, &change).await? {
            warn!(
                row = hex::encode(&change.cell.row),
                "a cell of a repair was changed by another writer"
            );
        }
    }
    Ok(())
}

/// Changes one cell if it has its old value. Returns whether it has its new one.
async fn set(table: &UidTable, change: &CellChange) -> Result<bool, StoreError> {
    let outcome = match &change.new {
        Some(value) => {
            table
                .check_and_put(change.cell.clone(), change.old.clone(), value)
                .await
        }
        None => delete(table, change).await,
    };
    match outcome {
        Ok(true) => Ok(true),
        // Either lost, or the response of a first attempt was lost.
        Ok(false) => has_new_value(table, change).await,
        Err(error) if is_uncertain(&error) => match has_new_value(table, change).await {
            Ok(true) => Ok(true),
            Ok(false) | Err(_) => Err(error),
        },
        Err(error) => Err(error),
    }
}

async fn has_new_value(table: &UidTable, change: &CellChange) -> Result<bool, StoreError> {
    let stored = read(table, std::slice::from_ref(change)).await?;
    let stored = stored.first().and_then(Option::as_ref);
    Ok(!differs(stored, change.new.as_deref()))
}

/// Deletes the version that has the old value. A newer one, put meanwhile, stays.
async fn delete(table: &UidTable, change: &CellChange) -> Result<bool, StoreError> {
    let stored = read(table, std::slice::from_ref(change)).await?;
    let stored = stored.first().and_then(Option::as_ref);
    if differs(stored, change.old.as_deref()) {
        return Ok(false);
    }
    let mut batch = WriteBatch::new(table.name().clone());
    add(&mut batch, change, stored);
    table.store().write(batch).await?;
    has_new_value(table, change).await
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use oxtsdb_row_store::memory::MemoryStore;
    use oxtsdb_row_store::{RowStore as _, TableName};
    use oxtsdb_schema::UidKind;

    use super::*;
    use crate::layout::UidLayout;
    use crate::table::{ID, NAME};

    #[tokio::test]
    async fn a_part_that_was_not_made_back_is_reported() {
        let name: TableName = "tsdb-uid".parse().unwrap();
        let store = MemoryStore::new();
        let definition = UidTable::definition(name.clone());
        store.create_table(&definition).await.unwrap();
        let table = UidTable::new(Arc::new(store.clone()), name.clone(), UidLayout::default());
        let change = |row: &[u8], family: &str, new: &[u8]| CellChange {
            cell: CellAddress::new(row, family, UidKind::Metric.qualifier()),
            old: None,
            new: Some(new.to_vec()),
        };
        let changes = [change(&[0, 0, 1], NAME, b"a"), change(b"a", ID, &[0, 0, 1])];
        let put = async |row: &[u8], family: &str, value: &[u8]| {
            let mut batch = WriteBatch::new(name.clone());
            let family = batch.family(family);
            batch.row(row).put(family, UidKind::Metric.qualifier(), value);
            store.write(batch).await.unwrap();
        };
        let is_partly_applied = async || match apply(&table, &changes).await {
            Err(RepairError::StateChanged {
                is_partly_applied, ..
            }) => is_partly_applied,
            other => panic!("{other:?}"),
        };
        // Another writer has changed the second cell.
        put(b"a", ID, &[0, 0, 9]).await;
        assert!(!is_partly_applied().await);
        // An attempt before that has changed the first one, and lost the store before it could make it back.
        put(&[0, 0, 1], NAME, b"a").await;
        assert!(is_partly_applied().await);
    }
}
