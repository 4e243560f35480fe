//! Evaluates the operations of a group: which keys they put and remove.
//!
//! An operation sees the tree, then what earlier operations of the group changed, then its own earlier mutations.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::catalog::Table;
use super::core::Core;
use super::frame::Changes;
use super::key::{self, Column, TIME_KEY, Version};
use super::queue::{Operation, Outcome};
use super::read;
use crate::rules;
use crate::{CellAddress, Condition, MutationRef, StoreError, WriteBatch};

/// Evaluates an operation after the changes of its group. Returns its own changes and its outcome.
pub(super) fn evaluate(
    core: &Core,
    group: &Changes,
    table: &Table,
    operation: &Operation,
) -> Result<(Changes, Outcome), StoreError> {
    let mut evaluation = Evaluation {
        core,
        group,
        table,
        now_ms: core.time.now_ms(),
        own: Changes::new(),
    };
    let outcome = evaluation.apply(operation)?;
    let Evaluation { now_ms, mut own, .. } = evaluation;
    if !own.is_empty() {
        own.insert(TIME_KEY.to_vec(), Some(now_ms.to_be_bytes().to_vec()));
    }
    Ok((own, outcome))
}

struct Evaluation<'a> {
    core: &'a Core,
    group: &'a Changes,
    table: &'a Table,
    now_ms: i64,
    own: Changes,
}

impl Evaluation<'_> {
    fn apply(&mut self, operation: &Operation) -> Result<Outcome, StoreError> {
        Ok(match operation {
            Operation::Write { batch, families } => {
                self.write(batch, families)?;
                Outcome::Done
            }
            Operation::Increment { cell, amount } => {
                let newest = self.newest(cell)?;
                let sum = rules::incremented(newest.as_ref().map(|(_, value)| value.as_slice()), *amount)?;
                if *amount != 0 {
                    self.put_over(cell, newest.map(|(time, _)| time), &sum.to_be_bytes())?;
                }
                Outcome::Sum(sum)
            }
            Operation::Append { cell, value } => {
                let (time, mut appended) = match self.newest(cell)? {
                    Some((time, current)) => (Some(time), current),
                    None => (None, Vec::new()),
                };
                appended.extend_from_slice(value);
                rules::check_value(&appended)?;
                self.put_over(cell, time, &appended)?;
                Outcome::Appended(appended)
            }
            Operation::CommitIf {
                conditions,
                batch,
                families,
            } => {
                let holds = self.all_hold(conditions)?;
                if holds {
                    self.write(batch, families)?;
                }
                Outcome::Held(holds)
            }
        })
    }

    fn write(&mut self, batch: &WriteBatch, families: &[u8]) -> Result<(), StoreError> {
        for row in batch.iter() {
            let prefix = key::row_prefix(self.table.id, row.key);
            for mutation in row.iter() {
                // `check_batch` verified that each family is in the batch.
                let family = |id: crate::FamilyId| families.get(id.index()).copied().unwrap_or(0);
                match mutation {
                    MutationRef::Put {
                        family: id,
                        qualifier,
                        timestamp_ms,
                        value,
                    } => {
                        let time = timestamp_ms.unwrap_or(self.now_ms);
                        let key = key::column(&prefix, family(id), qualifier);
                        self.put(row.key, (family(id), key), qualifier, time, value)?;
                    }
                    MutationRef::DeleteColumn {
                        family: id,
                        qualifier,
                        up_to_ms,
                    } => {
                        let key = key::column(&prefix, family(id), qualifier);
                        if let Some(stored) = self.stored(&key)? {
                            self.delete(row.key, key, &stored, up_to_ms.unwrap_or(self.now_ms))?;
                        }
                    }
                    MutationRef::DeleteFamily { family: id } => {
                        self.delete_all(row.key, key::family_prefix(&prefix, family(id)))?;
                    }
                    MutationRef::DeleteRow => self.delete_all(row.key, prefix.clone())?,
                }
            }
        }
        Ok(())
    }

    /// Puts a version of a column, and drops those that exceed the family's maximum.
    fn put(
        &mut self,
        row: &[u8],
        (family, key): (u8, Vec<u8>),
        qualifier: &[u8],
        timestamp_ms: i64,
        value: &[u8],
    ) -> Result<(), StoreError> {
        let stored = self.stored(&key)?;
        let mut versions = match &stored {
            Some(stored) => self.decode(row, &key, stored)?,
            None => Vec::new(),
        };
        match versions.binary_search_by_key(&Reverse(timestamp_ms), |(time, _)| Reverse(*time)) {
            Ok(place) => {
                if let Some(version) = versions.get_mut(place) {
                    version.1 = value;
                }
            }
            Err(place) => versions.insert(place, (timestamp_ms, value)),
        }
        versions.truncate(
            self.table
                .max_versions
                .get(usize::from(family))
                .map_or(1, |kept| *kept as usize),
        );
        let stored = key::stored(key::long_qualifier(qualifier), &versions);
        self.own.insert(key, Some(stored));
        Ok(())
    }

    /// Removes the versions of a column that are not newer than `up_to_ms`.
    fn delete(&mut self, row: &[u8], key: Vec<u8>, stored: &[u8], up_to_ms: i64) -> Result<(), StoreError> {
        let column = self.column(row, &key, stored)?;
        let mut versions = self.decode(row, &key, stored)?;
        versions.retain(|(time, _)| *time > up_to_ms);
        let left = (!versions.is_empty()).then(|| key::stored(column.long_qualifier, &versions));
        if left.as_deref() != Some(stored) {
            self.own.insert(key, left);
        }
        Ok(())
    }

    /// Deletes the columns of a row with this prefix of their keys.
    fn delete_all(&mut self, row: &[u8], prefix: Vec<u8>) -> Result<(), StoreError> {
        let (start, end) = key::bounds(prefix);
        let mut columns = self.core.tree.read(|snapshot| {
            let mut columns = BTreeMap::new();
            let mut items = snapshot.range(&start, &end, false)?;
            while items.advance()? {
                columns.insert(
                    items.key().to_vec(),
                    items.value().map_or(Vec::new(), |stored| stored.to_vec()),
                );
            }
            Ok(columns)
        })?;
        for changes in [self.group, &self.own] {
            for (key, change) in changes.range(start.clone()..end.clone()) {
                match change {
                    Some(new) => drop(columns.insert(key.clone(), new.clone())),
                    None => drop(columns.remove(key)),
                }
            }
        }
        for (key, stored) in columns {
            self.delete(row, key, &stored, self.now_ms)?;
        }
        Ok(())
    }

    /// The stored value of a column.
    fn stored(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        if let Some(change) = self.own.get(key).or_else(|| self.group.get(key)) {
            return Ok(change.clone());
        }
        let stored = self.core.tree.get(key)?;
        Ok(stored.map(|stored| stored.to_vec()))
    }

    fn column<'b>(&self, row: &[u8], key: &[u8], stored: &'b [u8]) -> Result<Column<'b>, StoreError> {
        key::row_prefix_len(key)
            .and_then(|length| Column::decode(key.get(length..)?, stored, &mut Vec::new()))
            .ok_or_else(|| read::undecodable(self.table, row))
    }

    /// The versions of a stored column.
    fn decode<'b>(&self, row: &[u8], key: &[u8], stored: &'b [u8]) -> Result<Vec<Version<'b>>, StoreError> {
        let versions = self.column(row, key, stored)?.versions().collect::<Option<_>>();
        versions.ok_or_else(|| read::undecodable(self.table, row))
    }

    /// Timestamp and value of the newest cell of a column, unless it expired.
    fn newest(&self, cell: &CellAddress) -> Result<Option<(i64, Vec<u8>)>, StoreError> {
        if let Some(damage) = self.core.tree.set_aside.row_damage(self.table, &cell.row) {
            return Err(damage.error());
        }
        let (family, key) = self.key(cell)?;
        let Some(stored) = self.stored(&key)? else {
            return Ok(None);
        };
        let versions = self.decode(&cell.row, &key, &stored)?;
        let oldest_ms = self.table.oldest_ms(self.now_ms);
        let oldest_ms = oldest_ms.get(usize::from(family)).copied().unwrap_or(i64::MIN);
        let newest = versions.first().filter(|(time, _)| *time >= oldest_ms);
        Ok(newest.map(|(time, value)| (*time, value.to_vec())))
    }

    /// Family and key of a cell's column.
    fn key(&self, cell: &CellAddress) -> Result<(u8, Vec<u8>), StoreError> {
        let family = rules::family_index(&self.table.def, &cell.family)?;
        let prefix = key::row_prefix(self.table.id, &cell.row);
        Ok((family, key::column(&prefix, family, &cell.qualifier)))
    }

    /// Puts a value derived from the cell's current value, with a timestamp that is not hidden by it.
    fn put_over(&mut self, cell: &CellAddress, newest: Option<i64>, value: &[u8]) -> Result<(), StoreError> {
        let time = self.now_ms.max(newest.unwrap_or(i64::MIN));
        self.put(&cell.row, self.key(cell)?, &cell.qualifier, time, value)
    }

    fn all_hold(&self, conditions: &[Condition]) -> Result<bool, StoreError> {
        for Condition { cell, expected } in conditions {
            let current = self.newest(cell)?;
            let current = current.as_ref().map(|(_, value)| value.as_slice());
            if !rules::condition_holds(expected.as_deref(), current) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
