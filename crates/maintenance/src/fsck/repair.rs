//! Applies repairs of rows: conditional changes of cells.
//!
//! A repair is applied as a whole or not at all. Each of its cells must have its old or its new value; a repair that was
//! applied before, or in part, is completed, so that it can be repeated.
//!
//! On a store with atomic commits it is one commit. On HBase its changes are made one by one, each as a compare-and-set (a
//! delete removes only the version that was compared), puts before removals. If a condition fails meanwhile, the changes
//! before it are made back. A crash leaves a part, which the same repair completes and its inverse makes back.

use oxtsdb_row_store::{
    AtomicCommit, CellAddress, ColumnSelection, Condition, Retry, RowStore, StoreError, TableName, WriteBatch,
};
use oxtsdb_schema::row::RowChange;
use tracing::warn;

use super::{FAMILY, Fsck};

/// How often a repair is started again because another writer was faster.
const ATTEMPTS: usize = 4;

/// Columns of a row that are read one by one; of more, the whole row is read.
const MAX_COLUMNS: usize = 64;

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
        "cell {} of row {} has another value than the plan saw{}; make another plan",
        hex::encode_upper(.qualifier),
        hex::encode_upper(.row_key),
        if *.is_partly_applied { ", others have their new values" } else { "" }
    )]
    StateChanged {
        /// The row.
        row_key: Vec<u8>,
        /// The cell.
        qualifier: Vec<u8>,
        /// Whether other cells have their new values, as after an attempt that lost the store before it could make
        /// them back.
        is_partly_applied: bool,
    },
    /// The store failed. A part may be applied; the repair can be repeated.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A value and its timestamp.
type Stored = Option<(Vec<u8>, i64)>;

/// A row that is being repaired.
struct RowRepair<'a> {
    store: &'a dyn RowStore,
    table: &'a TableName,
    row_key: &'a [u8],
    changes: &'a [RowChange],
}

impl Fsck {
    /// Applies the changes of a row.
    ///
    /// # Errors
    ///
    /// [`RepairError`].
    pub async fn repair(&self, row_key: &[u8], changes: &[RowChange]) -> Result<Applied, RepairError> {
        let repair = RowRepair {
            store: &*self.store,
            table: &self.table,
            row_key,
            changes,
        };
        repair.apply().await
    }
}

impl RowRepair<'_> {
    async fn apply(&self) -> Result<Applied, RepairError> {
        let mut contended = self.changes.first();
        for _ in 0..ATTEMPTS {
            let stored = self.read(self.changes).await?;
            let mut pairs = self.changes.iter().zip(&stored);
            let is_foreign = |(change, stored): &(&RowChange, &Stored)| {
                differs(stored, change.old.as_ref()) && differs(stored, change.new.as_ref())
            };
            if let Some((changed, _)) = pairs.find(is_foreign) {
                return Err(self.state_changed(changed, &stored));
            }
            let pending: Vec<(&RowChange, &Stored)> = self
                .changes
                .iter()
                .zip(&stored)
                .filter(|(change, stored)| differs(stored, change.new.as_ref()))
                .collect();
            if pending.is_empty() {
                return Ok(Applied::Already);
            }
            let is_done = match self.store.atomic() {
                Some(commit) => self.commit(commit, &stored, &pending).await?,
                None => self.apply_stepwise(&pending).await?,
            };
            if is_done {
                return Ok(Applied::Changed);
            }
            contended = pending.first().map(|(change, _)| *change);
        }
        let Some(change) = contended else {
            return Ok(Applied::Already);
        };
        let stored = self.read(self.changes).await?;
        Err(self.state_changed(change, &stored))
    }

    fn state_changed(&self, change: &RowChange, stored: &[Stored]) -> RepairError {
        let mut pairs = self.changes.iter().zip(stored);
        RepairError::StateChanged {
            row_key: self.row_key.to_vec(),
            qualifier: change.qualifier.clone(),
            is_partly_applied: pairs.any(|(change, stored)| {
                let is_guard = change.old.as_ref().map(|(value, _)| value)
                    == change.new.as_ref().map(|(value, _)| value);
                !is_guard && !differs(stored, change.new.as_ref())
            }),
        }
    }

    /// The stored cells of some changes.
    async fn read(&self, changes: &[RowChange]) -> Result<Vec<Stored>, StoreError> {
        if self.row_key.len() > self.store.max_row_key(self.table) {
            return Ok(vec![None; changes.len()]);
        }
        let columns = if changes.len() > MAX_COLUMNS {
            ColumnSelection::Family(FAMILY.to_owned())
        } else {
            let columns = changes
                .iter()
                .map(|change| (FAMILY.to_owned(), change.qualifier.clone()));
            ColumnSelection::Columns(columns.collect())
        };
        let row = self.store.get(self.table, self.row_key, &columns).await?;
        let cells: hashbrown::HashMap<&[u8], (&[u8], i64)> = row
            .iter()
            .flat_map(oxtsdb_row_store::Row::cells)
            .map(|cell| (cell.qualifier, (cell.value, cell.timestamp_ms)))
            .collect();
        let stored = changes.iter().map(|change| {
            let cell = cells.get(change.qualifier.as_slice());
            cell.map(|(value, timestamp_ms)| (value.to_vec(), *timestamp_ms))
        });
        Ok(stored.collect())
    }

    fn address(&self, change: &RowChange) -> CellAddress {
        CellAddress::new(self.row_key, FAMILY, change.qualifier.clone())
    }

    /// Returns false if a cell has changed meanwhile.
    async fn commit(
        &self,
        commit: &dyn AtomicCommit,
        stored: &[Stored],
        pending: &[(&RowChange, &Stored)],
    ) -> Result<bool, StoreError> {
        let conditions: Vec<Condition> = self
            .changes
            .iter()
            .zip(stored)
            .map(|(change, stored)| Condition {
                cell: self.address(change),
                expected: stored.as_ref().map(|(value, _)| value.clone()),
            })
            .collect();
        let mut batch = WriteBatch::new(self.table.clone());
        let family = batch.family(FAMILY);
        let row = batch.row(self.row_key);
        for (change, stored) in pending {
            let replaced_ms = stored.as_ref().map(|(_, timestamp_ms)| *timestamp_ms);
            match (&change.new, replaced_ms) {
                // An older put would not replace the cell.
                (Some((value, timestamp_ms)), _) if *timestamp_ms != STORE_TIME => {
                    let timestamp_ms =
                        replaced_ms.map_or(*timestamp_ms, |replaced| replaced.max(*timestamp_ms));
                    row.put_at(family, &change.qualifier, timestamp_ms, value);
                }
                (Some((value, _)), _) => drop(row.put(family, &change.qualifier, value)),
                (None, Some(timestamp_ms)) => {
                    row.delete_column_up_to(family, &change.qualifier, timestamp_ms);
                }
                (None, None) => {}
            }
        }
        commit.commit_if(&conditions, batch).await
    }

    /// Returns false if a cell has changed meanwhile; then nothing is changed.
    async fn apply_stepwise(&self, pending: &[(&RowChange, &Stored)]) -> Result<bool, StoreError> {
        // A point must not be missing for a moment.
        let (puts, removals): (Vec<_>, Vec<_>) = pending.iter().partition(|(change, _)| change.new.is_some());
        let mut done = Vec::with_capacity(pending.len());
        for (change, _) in puts {
            if !self.set(change).await? {
                self.make_back(done).await?;
                return Ok(false);
            }
            done.push((*change).clone());
        }
        // The replacements of the removed cells must be there: the new cells, and the cells that are only compared.
        let stored = self.read(self.changes).await?;
        let mut pairs = self.changes.iter().zip(&stored);
        if pairs.any(|(change, stored)| change.new.is_some() && differs(stored, change.new.as_ref())) {
            self.make_back(done).await?;
            return Ok(false);
        }
        for (change, _) in removals {
            if !self.set(change).await? {
                self.make_back(done).await?;
                return Ok(false);
            }
            done.push((*change).clone());
        }
        Ok(true)
    }

    async fn make_back(&self, done: Vec<RowChange>) -> Result<(), StoreError> {
        for change in done.into_iter().rev() {
            let inverse = RowChange {
                qualifier: change.qualifier,
                old: change.new,
                new: change.old,
            };
            if !self.set(&inverse).await? {
                warn!(
                    row = hex::encode_upper(self.row_key),
                    "a cell of a repair was changed by another writer"
                );
            }
        }
        Ok(())
    }

    /// Changes one cell if it has its old value. Returns whether it has its new one.
    async fn set(&self, change: &RowChange) -> Result<bool, StoreError> {
        let outcome = match &change.new {
            Some((value, _)) => {
                let condition = Condition {
                    cell: self.address(change),
                    expected: change.old.as_ref().map(|(value, _)| value.clone()),
                };
                self.store.check_and_put(self.table, &condition, value).await
            }
            None => self.delete(change).await,
        };
        match outcome {
            Ok(true) => Ok(true),
            // Either lost, or the response of a first attempt was lost.
            Ok(false) => self.has_new_value(change).await,
            Err(error) if error.retry() == Retry::IfIdempotent => match self.has_new_value(change).await {
                Ok(true) => Ok(true),
                Ok(false) | Err(_) => Err(error),
            },
            Err(error) => Err(error),
        }
    }

    async fn has_new_value(&self, change: &RowChange) -> Result<bool, StoreError> {
        let stored = self.read(std::slice::from_ref(change)).await?;
        Ok(stored.iter().all(|stored| !differs(stored, change.new.as_ref())))
    }

    /// Deletes the version that has the old value. A newer one, put meanwhile, stays.
    async fn delete(&self, change: &RowChange) -> Result<bool, StoreError> {
        let stored = self.read(std::slice::from_ref(change)).await?;
        let Some(Some((value, timestamp_ms))) = stored.first() else {
            return Ok(true);
        };
        if change.old.as_ref().is_none_or(|(old, _)| old != value) {
            return Ok(false);
        }
        let mut batch = WriteBatch::new(self.table.clone());
        let family = batch.family(FAMILY);
        batch
            .row(self.row_key)
            .delete_column_up_to(family, &change.qualifier, *timestamp_ms);
        self.store.write(batch).await?;
        self.has_new_value(change).await
    }
}

/// The timestamp of a new cell that gets the time of the store.
pub const STORE_TIME: i64 = i64::MIN;

/// Whether a cell has another value than an expected one.
fn differs(stored: &Stored, expected: Option<&(Vec<u8>, i64)>) -> bool {
    stored.as_ref().map(|(value, _)| value) != expected.map(|(value, _)| value)
}

#[cfg(test)]
mod tests;
