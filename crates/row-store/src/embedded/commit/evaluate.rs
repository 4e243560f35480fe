//! Evaluates conditional operations against the current state.

use std::collections::BTreeSet;

use super::super::catalog::Table;
use super::super::core::Core;
use super::super::queue::{Operation, Outcome};
use super::super::read;
use crate::rules::{self, Columns};
use crate::{CellAddress, Condition, StoreError, WriteBatch};

/// Mutations to commit.
#[derive(Debug)]
pub(super) struct Change {
    pub(super) batch: WriteBatch,
    /// The table's family for each family of the batch.
    pub(super) families: Vec<u8>,
    /// Whether it depends on the state of the store.
    pub(super) conditional: bool,
}

/// The change of an operation, if any, and its outcome.
pub(super) fn evaluate(
    core: &Core,
    table: &Table,
    operation: Operation,
) -> Result<(Option<Change>, Outcome), StoreError> {
    match operation {
        Operation::Write { batch, families } => Ok((
            Some(Change {
                batch,
                families,
                conditional: false,
            }),
            Outcome::Done,
        )),
        Operation::Increment { cell, amount } => {
            let found = newest(core, table, &cell)?;
            let sum = rules::incremented(found.as_ref().map(|(_, value)| value.as_slice()), amount)?;
            let change =
                (amount != 0).then(|| put_over(core, table, &cell, found.as_ref(), &sum.to_be_bytes()));
            Ok((change.transpose()?, Outcome::Sum(sum)))
        }
        Operation::Append { cell, value } => {
            let found = newest(core, table, &cell)?;
            let mut appended = found.as_ref().map_or_else(Vec::new, |(_, value)| value.clone());
            appended.extend_from_slice(&value);
            rules::check_value(&appended)?;
            let change = put_over(core, table, &cell, found.as_ref(), &appended)?;
            Ok((Some(change), Outcome::Appended(appended)))
        }
        Operation::CommitIf {
            conditions,
            batch,
            families,
        } => {
            if !all_hold(core, table, &conditions)? {
                return Ok((None, Outcome::Held(false)));
            }
            Ok((
                Some(Change {
                    batch,
                    families,
                    conditional: true,
                }),
                Outcome::Held(true),
            ))
        }
    }
}

/// Whether all conditions hold; reads their rows together.
fn all_hold(core: &Core, table: &Table, conditions: &[Condition]) -> Result<bool, StoreError> {
    let mut columns = BTreeSet::new();
    let mut keys = Vec::with_capacity(conditions.len());
    for Condition { cell, .. } in conditions {
        columns.insert((
            rules::family_index(&table.def, &cell.family)?,
            cell.qualifier.as_slice(),
        ));
        keys.push(cell.row.clone());
    }
    let columns = columns
        .into_iter()
        .map(|(family, qualifier)| (family, qualifier.to_vec()));
    let view = read::view(core, table, Columns::Some(columns.collect()), 1);
    let rows = read::rows(core, table, &keys, &view, None)?;
    Ok(conditions.iter().zip(&rows).all(|(condition, row)| {
        let cell = &condition.cell;
        let found = row
            .as_ref()
            .and_then(|row| row.get(&cell.family, &cell.qualifier));
        rules::condition_holds(condition.expected.as_deref(), found.map(|found| found.value))
    }))
}

/// Timestamp and value of the newest cell of a column.
fn newest(core: &Core, table: &Table, cell: &CellAddress) -> Result<Option<(i64, Vec<u8>)>, StoreError> {
    let family = rules::family_index(&table.def, &cell.family)?;
    let columns = Columns::Some(vec![(family, cell.qualifier.clone())]);
    let rows = read::rows(
        core,
        table,
        std::slice::from_ref(&cell.row),
        &read::view(core, table, columns, 1),
        None,
    )?;
    let row = rows.into_iter().next().flatten();
    Ok(row.and_then(|row| {
        row.cells()
            .next()
            .map(|cell| (cell.timestamp_ms, cell.value.to_vec()))
    }))
}

/// Puts a value derived from the cell's current value, with a timestamp that is not hidden by it.
fn put_over(
    core: &Core,
    table: &Table,
    cell: &CellAddress,
    found: Option<&(i64, Vec<u8>)>,
    value: &[u8],
) -> Result<Change, StoreError> {
    let timestamp_ms = found
        .map_or(i64::MIN, |(timestamp_ms, _)| *timestamp_ms)
        .max(core.now_ms());
    let mut batch = WriteBatch::new(table.def.name.clone());
    let family = batch.family(&cell.family);
    batch
        .row(&cell.row)
        .put_at(family, &cell.qualifier, timestamp_ms, value);
    Ok(Change {
        batch,
        families: vec![rules::family_index(&table.def, &cell.family)?],
        conditional: true,
    })
}
