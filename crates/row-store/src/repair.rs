//! Repairs: changes of cells that are made together, or not at all.
//!
//! Each cell of a repair must have its old or its new value; a repair that was applied before, or in part, is completed, so
//! that it can be repeated.
//!
//! On a store with atomic commits a repair is one commit. On HBase its changes are made one by one, each as a
//! compare-and-set (a delete removes only the version that was compared), puts before removals. If a condition fails
//! meanwhile, the changes before it are made back. A crash leaves a part, which the same repair completes and its inverse
//! makes back.

use std::collections::{BTreeSet, HashMap};

use tracing::warn;

use crate::{
    AtomicCommit, CellAddress, ColumnSelection, Condition, Retry, RowStore, StoreError, TableName, WriteBatch,
};

/// How often a repair is started again because another writer was faster.
const ATTEMPTS: usize = 4;

/// Columns that are read by name; of more, whole rows are read.
const MAX_COLUMNS: usize = 64;

/// Rows of one read of the store.
const READ_ROWS: usize = 1024;

/// A conditional change of one cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CellChange {
    /// The cell.
    pub cell: CellAddress,
    /// The value that it must have; `None`: absent.
    pub old: Option<Vec<u8>>,
    /// The value that it gets; `None`: it is deleted.
    pub new: Option<Vec<u8>>,
}

impl CellChange {
    /// A condition without a change.
    pub fn guard(cell: CellAddress, value: Option<Vec<u8>>) -> Self {
        Self {
            cell,
            old: value.clone(),
            new: value,
        }
    }

    /// Whether the cell is only compared.
    pub fn is_guard(&self) -> bool {
        self.old == self.new
    }

    /// The change back.
    #[must_use]
    pub fn inverse(self) -> Self {
        Self {
            cell: self.cell,
            old: self.new,
            new: self.old,
        }
    }
}

/// The effect of a repair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Applied {
    /// Cells were changed.
    Changed,
    /// All cells had their new values.
    Already,
}

/// Why a repair was not applied.
#[derive(Clone, Debug)]
pub enum RepairFailure {
    /// A cell has neither its old nor its new value.
    StateChanged {
        /// The cell.
        cell: CellAddress,
        /// Whether other cells have their new values, as after an attempt that lost the store before it could make
        /// them back.
        is_partly_applied: bool,
    },
    /// The store failed. A part may be applied; the repair can be repeated.
    Store(StoreError),
}

impl From<StoreError> for RepairFailure {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// A repair: changes of cells of one table.
#[derive(Clone, Copy, Debug)]
pub struct CellRepair<'a> {
    /// The store.
    pub store: &'a dyn RowStore,
    /// The table.
    pub table: &'a TableName,
    /// The changes, of different cells.
    pub changes: &'a [CellChange],
    /// The timestamps of the new values, by change, in milliseconds; a cell with a younger value keeps its timestamp.
    /// `None`, or no item: the time of the store, which compare-and-set always takes.
    pub timestamps_ms: &'a [Option<i64>],
}

/// A value and its timestamp.
type Stored = Option<(Vec<u8>, i64)>;

/// A change with its place in the repair and the cell that it replaces.
type Pending<'a> = (usize, &'a CellChange, &'a Stored);

impl CellRepair<'_> {
    /// Applies the changes.
    ///
    /// # Errors
    ///
    /// [`RepairFailure`].
    pub async fn apply(&self) -> Result<Applied, RepairFailure> {
        let mut contended = 0;
        for _ in 0..ATTEMPTS {
            let stored = self.read(self.changes).await?;
            let mut pairs = self.changes.iter().zip(&stored);
            let is_foreign = |(change, stored): &(&CellChange, &Stored)| {
                differs(stored, change.old.as_ref()) && differs(stored, change.new.as_ref())
            };
            if let Some((changed, _)) = pairs.find(is_foreign) {
                return Err(self.state_changed(changed, &stored));
            }
            let changes = self.changes.iter().zip(&stored).enumerate();
            let pending: Vec<Pending<'_>> = changes
                .filter(|(_, (change, stored))| differs(stored, change.new.as_ref()))
                .map(|(index, (change, stored))| (index, change, stored))
                .collect();
            let Some((first, ..)) = pending.first() else {
                return Ok(Applied::Already);
            };
            contended = *first;
            let is_done = match self.store.atomic() {
                Some(commit) => self.commit(commit, &stored, &pending).await?,
                None => self.apply_stepwise(&pending).await?,
            };
            if is_done {
                return Ok(Applied::Changed);
            }
        }
        let Some(change) = self.changes.get(contended) else {
            return Ok(Applied::Already);
        };
        let stored = self.read(self.changes).await?;
        Err(self.state_changed(change, &stored))
    }

    /// Returns the changes that have been made: their cells have the new values.
    ///
    /// # Errors
    ///
    /// The store fails.
    pub async fn made(&self) -> Result<Vec<CellChange>, StoreError> {
        let stored = self.read(self.changes).await?;
        let pairs = self.changes.iter().zip(&stored);
        let made = pairs.filter(|(change, stored)| !differs(stored, change.new.as_ref()));
        Ok(made.map(|(change, _)| change.clone()).collect())
    }

    fn state_changed(&self, change: &CellChange, stored: &[Stored]) -> RepairFailure {
        let mut pairs = self.changes.iter().zip(stored);
        RepairFailure::StateChanged {
            cell: change.cell.clone(),
            is_partly_applied: pairs
                .any(|(change, stored)| !change.is_guard() && !differs(stored, change.new.as_ref())),
        }
    }

    /// The stored cells of some changes, in their order.
    async fn read(&self, changes: &[CellChange]) -> Result<Vec<Stored>, StoreError> {
        let longest = self.store.max_row_key(self.table);
        let cells = changes.iter().map(|change| &change.cell);
        let cells = cells.filter(|cell| (1..=longest).contains(&cell.row.len()));
        let rows: BTreeSet<&Vec<u8>> = cells.clone().map(|cell| &cell.row).collect();
        let rows: Vec<Vec<u8>> = rows.into_iter().cloned().collect();
        let families: BTreeSet<&String> = cells.clone().map(|cell| &cell.family).collect();
        let columns: BTreeSet<(&String, &Vec<u8>)> =
            cells.map(|cell| (&cell.family, &cell.qualifier)).collect();
        let columns = match families.first() {
            _ if columns.len() <= MAX_COLUMNS => {
                let columns = columns.into_iter();
                ColumnSelection::Columns(
                    columns
                        .map(|(family, name)| (family.clone(), name.clone()))
                        .collect(),
                )
            }
            Some(family) if families.len() == 1 => ColumnSelection::Family((*family).clone()),
            _ => ColumnSelection::All,
        };
        let mut stored = HashMap::new();
        for rows in rows.chunks(READ_ROWS) {
            let stored_rows = self.store.get_rows(self.table, rows, &columns, None).await?;
            stored.extend(rows.iter().zip(stored_rows));
        }
        let cells = changes.iter().map(|CellChange { cell, .. }| {
            let row = stored.get(&cell.row)?.as_ref()?;
            let cell = row.get(&cell.family, &cell.qualifier)?;
            Some((cell.value.to_vec(), cell.timestamp_ms))
        });
        Ok(cells.collect())
    }

    /// Returns false if a cell has changed meanwhile.
    async fn commit(
        &self,
        commit: &dyn AtomicCommit,
        stored: &[Stored],
        pending: &[Pending<'_>],
    ) -> Result<bool, StoreError> {
        let conditions: Vec<Condition> = self
            .changes
            .iter()
            .zip(stored)
            .map(|(change, stored)| Condition {
                cell: change.cell.clone(),
                expected: stored.as_ref().map(|(value, _)| value.clone()),
            })
            .collect();
        let mut batch = WriteBatch::new(self.table.clone());
        let mut row = None;
        for (index, CellChange { cell, new, .. }, stored) in pending {
            if row != Some(&cell.row) {
                batch.row(&cell.row);
                row = Some(&cell.row);
            }
            let family = batch.family(&cell.family);
            let replaced_ms = stored.as_ref().map(|(_, timestamp_ms)| *timestamp_ms);
            let timestamp_ms = self.timestamps_ms.get(*index).copied().flatten();
            match (new, timestamp_ms, replaced_ms) {
                // An older put would not replace the cell.
                (Some(value), Some(timestamp_ms), _) => {
                    let timestamp_ms =
                        replaced_ms.map_or(timestamp_ms, |replaced| replaced.max(timestamp_ms));
                    batch.put_at(family, &cell.qualifier, timestamp_ms, value);
                }
                (Some(value), None, _) => drop(batch.put(family, &cell.qualifier, value)),
                (None, _, Some(replaced_ms)) => {
                    batch.delete_column_up_to(family, &cell.qualifier, replaced_ms);
                }
                (None, _, None) => {}
            }
        }
        commit.commit_if(&conditions, batch).await
    }

    /// Returns false if a cell has changed meanwhile; then nothing is changed.
    async fn apply_stepwise(&self, pending: &[Pending<'_>]) -> Result<bool, StoreError> {
        // A value must not be missing for a moment.
        let changes = pending.iter().map(|(_, change, _)| *change);
        let (puts, removals): (Vec<_>, Vec<_>) = changes.partition(|change| change.new.is_some());
        let mut done = Vec::with_capacity(pending.len());
        if !self.set_all(puts, &mut done).await? {
            return Ok(false);
        }
        // The cells that replace the removed ones must be there: new cells, and cells that are only compared.
        if !removals.is_empty() {
            let replaces = |change: &CellChange| change.new.is_some();
            if !self.verify(replaces, &mut done).await? || !self.set_all(removals, &mut done).await? {
                return Ok(false);
            }
        }
        // A cell that is only compared may have changed since it was read. A mapping of a name that was completed
        // meanwhile must not lose its other half.
        self.verify(CellChange::is_guard, &mut done).await
    }

    /// Makes changes, or returns false and makes back what was done.
    async fn set_all(
        &self,
        changes: Vec<&CellChange>,
        done: &mut Vec<CellChange>,
    ) -> Result<bool, StoreError> {
        for change in changes {
            if !self.set(change).await? {
                self.make_back(done).await?;
                return Ok(false);
            }
            done.push(change.clone());
        }
        Ok(true)
    }

    /// Whether some cells have their new values; if not, makes back what was done.
    async fn verify(
        &self,
        is_verified: impl Fn(&CellChange) -> bool,
        done: &mut Vec<CellChange>,
    ) -> Result<bool, StoreError> {
        let changes = self.changes.iter().filter(|change| is_verified(change));
        let changes: Vec<CellChange> = changes.cloned().collect();
        if changes.is_empty() {
            return Ok(true);
        }
        let stored = self.read(&changes).await?;
        let mut pairs = changes.iter().zip(&stored);
        let is_verified = pairs.all(|(change, stored)| !differs(stored, change.new.as_ref()));
        if !is_verified {
            self.make_back(done).await?;
        }
        Ok(is_verified)
    }

    async fn make_back(&self, done: &mut Vec<CellChange>) -> Result<(), StoreError> {
        for change in std::mem::take(done).into_iter().rev().map(CellChange::inverse) {
            if !self.set(&change).await? {
                warn!(
                    row = hex::encode(&change.cell.row),
                    "a cell of a repair was changed by another writer"
                );
            }
        }
        Ok(())
    }

    /// Changes one cell if it has its old value. Returns whether it has its new one.
    async fn set(&self, change: &CellChange) -> Result<bool, StoreError> {
        let outcome = match &change.new {
            Some(value) => {
                let condition = Condition {
                    cell: change.cell.clone(),
                    expected: change.old.clone(),
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

    async fn has_new_value(&self, change: &CellChange) -> Result<bool, StoreError> {
        let stored = self.read(std::slice::from_ref(change)).await?;
        Ok(stored.iter().all(|stored| !differs(stored, change.new.as_ref())))
    }

    /// Deletes the version that has the old value. A newer one, put meanwhile, stays.
    async fn delete(&self, change: &CellChange) -> Result<bool, StoreError> {
        let stored = self.read(std::slice::from_ref(change)).await?;
        let Some(Some((value, timestamp_ms))) = stored.first() else {
            return Ok(true);
        };
        if change.old.as_ref() != Some(value) {
            return Ok(false);
        }
        let mut batch = WriteBatch::new(self.table.clone());
        let family = batch.family(&change.cell.family);
        batch
            .row(&change.cell.row)
            .delete_column_up_to(family, &change.cell.qualifier, *timestamp_ms);
        self.store.write(batch).await?;
        self.has_new_value(change).await
    }
}

/// Whether a cell has another value than an expected one.
fn differs(stored: &Stored, expected: Option<&Vec<u8>>) -> bool {
    stored.as_ref().map(|(value, _)| value) != expected
}

#[cfg(test)]
mod tests;
