//! The tables of the memory store, and the operations on them.

use std::cmp::Reverse;
use std::collections::{BTreeMap, btree_map};
use std::ops::Bound;
use std::sync::Arc;

use crate::rules::{self, Columns};
use crate::{
    CellAddress, Clock, Condition, MutationRef, Row, RowBuilder, StoreError, TableDef, TableName, WriteBatch,
};

/// The versions of a column, newest first.
type Versions = BTreeMap<Reverse<i64>, Vec<u8>>;
/// The columns of a row: family, qualifier.
pub(super) type Cells = BTreeMap<(u8, Vec<u8>), Versions>;

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) clock: Clock,
    pub(super) last_ms: i64,
    pub(super) closed: bool,
    pub(super) tables: BTreeMap<TableName, Table>,
}

#[derive(Debug)]
pub(super) struct Table {
    pub(super) def: TableDef,
    pub(super) families: Arc<[String]>,
    pub(super) rows: BTreeMap<Vec<u8>, Cells>,
}

impl State {
    /// The store's time, which never decreases.
    pub(super) fn now_ms(&mut self) -> i64 {
        self.last_ms = self.last_ms.max(self.clock.now_ms());
        self.last_ms
    }

    pub(super) fn table(&self, name: &TableName) -> Result<&Table, StoreError> {
        self.tables
            .get(name)
            .ok_or_else(|| StoreError::NoSuchTable { table: name.clone() })
    }

    pub(super) fn write(&mut self, batch: &WriteBatch) -> Result<(), StoreError> {
        let now_ms = self.now_ms();
        let missing = || StoreError::NoSuchTable {
            table: batch.table().clone(),
        };
        let table = self.tables.get_mut(batch.table()).ok_or_else(missing)?;
        let families = rules::check_batch(&table.def, batch)?;
        for row in batch.iter() {
            for mutation in row.iter() {
                table.apply(row.key, &families, &mutation, now_ms);
            }
        }
        Ok(())
    }

    /// The newest cell of a column.
    pub(super) fn newest(
        &mut self,
        table: &TableName,
        cell: &CellAddress,
    ) -> Result<Option<(i64, Vec<u8>)>, StoreError> {
        let now_ms = self.now_ms();
        let table = self.table(table)?;
        rules::check_row_key(&cell.row)?;
        rules::check_qualifier(&cell.qualifier)?;
        let column = (
            rules::family_index(&table.def, &cell.family)?,
            cell.qualifier.clone(),
        );
        let oldest_ms = table.oldest_kept_ms(column.0, now_ms);
        let versions = table.rows.get(&cell.row).and_then(|cells| cells.get(&column));
        Ok(versions
            .and_then(|versions| versions.first_key_value())
            .filter(|(Reverse(timestamp_ms), _)| *timestamp_ms >= oldest_ms)
            .map(|(Reverse(timestamp_ms), value)| (*timestamp_ms, value.clone())))
    }

    /// Puts a value derived from the cell's current value, with a timestamp that is not hidden by it.
    pub(super) fn put_over(
        &mut self,
        table: &TableName,
        cell: &CellAddress,
        newest_ms: Option<i64>,
        value: &[u8],
    ) -> Result<(), StoreError> {
        let timestamp_ms = self.now_ms().max(newest_ms.unwrap_or(i64::MIN));
        let mut batch = WriteBatch::new(table.clone());
        let family = batch.family(&cell.family);
        batch
            .row(&cell.row)
            .put_at(family, &cell.qualifier, timestamp_ms, value);
        self.write(&batch)
    }

    pub(super) fn holds(&mut self, table: &TableName, condition: &Condition) -> Result<bool, StoreError> {
        let newest = self.newest(table, &condition.cell)?;
        Ok(rules::condition_holds(
            condition.expected.as_deref(),
            newest.as_ref().map(|(_, value)| value.as_slice()),
        ))
    }
}

impl Table {
    fn oldest_kept_ms(&self, family: u8, now_ms: i64) -> i64 {
        let ttl = self
            .def
            .families
            .get(usize::from(family))
            .and_then(|family| family.ttl);
        rules::oldest_kept_ms(ttl, now_ms)
    }

    fn max_versions(&self, family: u8) -> usize {
        self.def
            .families
            .get(usize::from(family))
            .map_or(1, |family| family.max_versions as usize)
    }

    fn apply(&mut self, key: &[u8], families: &[u8], mutation: &MutationRef<'_>, now_ms: i64) {
        match *mutation {
            MutationRef::Put {
                family,
                qualifier,
                timestamp_ms,
                value,
            } => {
                let family = families[family.index()];
                let kept = self.max_versions(family);
                let versions = self
                    .rows
                    .entry(key.to_vec())
                    .or_default()
                    .entry((family, qualifier.to_vec()))
                    .or_default();
                versions.insert(Reverse(timestamp_ms.unwrap_or(now_ms)), value.to_vec());
                while versions.len() > kept {
                    versions.pop_last();
                }
            }
            MutationRef::DeleteColumn {
                family,
                qualifier,
                up_to_ms,
            } => {
                let family = families[family.index()];
                self.delete(key, up_to_ms.unwrap_or(now_ms), |column| {
                    column.0 == family && column.1 == qualifier
                });
            }
            MutationRef::DeleteFamily { family } => {
                let family = families[family.index()];
                self.delete(key, now_ms, |column| column.0 == family);
            }
            MutationRef::DeleteRow => self.delete(key, now_ms, |_| true),
        }
    }

    /// Removes the cells that are not newer than `up_to_ms`.
    fn delete(&mut self, key: &[u8], up_to_ms: i64, concerns: impl Fn(&(u8, Vec<u8>)) -> bool) {
        let btree_map::Entry::Occupied(mut row) = self.rows.entry(key.to_vec()) else {
            return;
        };
        row.get_mut().retain(|column, versions| {
            if concerns(column) {
                versions.retain(|Reverse(timestamp_ms), _| *timestamp_ms > up_to_ms);
            }
            !versions.is_empty()
        });
        if row.get().is_empty() {
            row.remove();
        }
    }

    /// The visible part of a row; `None` if no cell is visible.
    pub(super) fn read(
        &self,
        key: &[u8],
        cells: &Cells,
        columns: &Columns,
        max_versions: usize,
        now_ms: i64,
    ) -> Option<Row> {
        let mut row = RowBuilder::new(key, self.families.clone());
        for ((family, qualifier), versions) in cells {
            if !columns.contains(*family, qualifier) {
                continue;
            }
            let oldest_ms = self.oldest_kept_ms(*family, now_ms);
            for (Reverse(timestamp_ms), value) in versions.iter().take(max_versions) {
                if *timestamp_ms >= oldest_ms {
                    row.push(usize::from(*family), qualifier, *timestamp_ms, value);
                }
            }
        }
        row.finish()
    }

    /// The keys from `start` (inclusive) to `stop` (exclusive).
    pub(super) fn range(&self, start: &[u8], stop: &[u8]) -> btree_map::Range<'_, Vec<u8>, Cells> {
        let stop = match stop {
            [] => Bound::Unbounded,
            // The map panics when a range ends before its start; this one is empty.
            stop => Bound::Excluded(stop.max(start)),
        };
        let start = Bound::Included(start);
        self.rows.range::<[u8], _>((start, stop))
    }
}
