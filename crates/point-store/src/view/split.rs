//! Splits a batch into operations on points and mutations of the other cells.

use oxtsdb_row_store::{FamilyId, MutationRef, StoreError, WriteBatch};
use oxtsdb_schema::{BaseTime, RowKeyLayout};

use super::form::{CellForm, PointColumn};
use super::place::{SeriesHour, is_durable, is_point_family, rejected};
use crate::{Point, PointBatch, PointStore, SeriesNumber};

/// An operation on points.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PointOperation {
    Append(PointBatch),
    /// Deletes the points of these instants if their cells have these columns.
    DeleteCells {
        series: SeriesNumber,
        cells: Vec<(i64, PointColumn)>,
    },
}

/// A column of a point: row key, qualifier.
pub(super) type Column = (Vec<u8>, PointColumn);

/// The parts of a batch.
#[derive(Debug)]
pub(super) struct Split<'f> {
    form: &'f CellForm,
    /// In order of effect.
    pub(super) operations: Vec<PointOperation>,
    /// The mutations of other cells; deletes of values of rollups are among them, since their columns may hold such cells.
    pub(super) stored: WriteBatch,
    /// The columns of points that were put, alone or compacted. A cell of the row store in such a column is replaced.
    pub(super) put: Vec<Column>,
    /// Whether series got numbers for cells of the row store; an append makes them durable.
    pub(super) has_new_series: bool,
    /// Whether an odd encoding was put into a column that can hold a point.
    has_odd: bool,
    /// Whether the row store's batch has begun the row.
    is_begun: bool,
}

/// A row that is being split.
struct SplitRow<'a> {
    key: &'a [u8],
    base: BaseTime,
    tsuid: &'a [u8],
    /// Whether the series had a durable number before this row.
    is_known: bool,
    /// Puts of points with the timestamps of their cells.
    puts: Vec<(i64, Point)>,
    /// Deletes of columns that these puts replace: a delete costs the store more than a put.
    replaced: Vec<(i64, PointColumn)>,
}

impl<'f> Split<'f> {
    /// Splits a batch.
    ///
    /// # Errors
    ///
    /// [`StoreError::Invalid`] for mutations that a view of points does not have; if the point store gives no series
    /// number.
    pub(super) fn new(
        batch: &WriteBatch,
        points: &dyn PointStore,
        layout: &RowKeyLayout,
        form: &'f CellForm,
    ) -> Result<Self, StoreError> {
        let mut split = Self {
            form,
            operations: Vec::new(),
            stored: WriteBatch::new(batch.table().clone()),
            put: Vec::new(),
            has_new_series: false,
            has_odd: false,
            is_begun: false,
        };
        let is_points: Vec<bool> = batch
            .families()
            .iter()
            .map(|name| is_point_family(name))
            .collect();
        // The same families in the same order: their ids are equal.
        for name in batch.families() {
            split.stored.family(name);
        }
        for mutations in batch.iter() {
            let hour = SeriesHour::from_key(mutations.key, layout);
            let mut row = hour.as_ref().map(|hour| SplitRow {
                key: mutations.key,
                base: hour.base,
                tsuid: hour.tsuid.as_bytes(),
                is_known: is_durable(points, hour.tsuid.as_bytes()),
                puts: Vec::new(),
                replaced: Vec::new(),
            });
            split.is_begun = false;
            for mutation in mutations.iter() {
                let is_kept = match &mut row {
                    Some(row) => split.split(row, &mutation, &is_points, points)?,
                    None => true,
                };
                if is_kept {
                    let is_put = matches!(mutation, MutationRef::Put { .. });
                    if let Some(row) = row.as_ref().filter(|row| is_put && !row.is_known) {
                        points.numbers(&[row.tsuid])?;
                        split.has_new_series = true;
                    }
                    copy(split.stored_row(mutations.key), &mutation);
                }
            }
            if let Some(row) = &mut row {
                split.append(row, points)?;
            }
        }
        Ok(split)
    }

    /// The row store's batch, to add mutations of the current row.
    fn stored_row(&mut self, key: &[u8]) -> &mut WriteBatch {
        if !self.is_begun {
            self.stored.row(key);
            self.is_begun = true;
        }
        &mut self.stored
    }

    /// Takes the points of a mutation; `false` if the row store has no part in it.
    fn split(
        &mut self,
        row: &mut SplitRow<'_>,
        mutation: &MutationRef<'_>,
        is_points: &[bool],
        points: &dyn PointStore,
    ) -> Result<bool, StoreError> {
        let concerns = |family: FamilyId| is_points.get(family.index()).copied().unwrap_or(false);
        match *mutation {
            MutationRef::Put {
                family,
                qualifier,
                timestamp_ms,
                value,
            } if concerns(family) && self.form.names_points(qualifier) => {
                if let Some(points) = self.form.points_of(row.base, qualifier, value) {
                    let timestamp_ms = timestamp_ms.unwrap_or(i64::MAX);
                    for point in points {
                        let column = self.form.cell_of(&point).0;
                        self.put.push((row.key.to_vec(), column));
                        if self.has_odd {
                            for column in self.form.columns_of_place(column) {
                                self.stored_row(row.key).delete_column(family, column.as_bytes());
                            }
                        }
                        row.puts.push((timestamp_ms, point));
                    }
                    return Ok(false);
                }
                // The cell replaces the point of its column.
                self.has_odd = true;
                if self.form.names_one_point(qualifier) {
                    let named = self.form.instants(row.base, qualifier).into_iter();
                    let named = named.flat_map(|(time_ms, column)| {
                        let columns = self.form.columns_of_place(column).into_iter();
                        columns.map(move |column| (time_ms, column))
                    });
                    self.delete_cells(row, named.collect(), points);
                }
            }
            MutationRef::DeleteColumn {
                family,
                qualifier,
                up_to_ms,
            } if concerns(family) && self.form.names_points(qualifier) => {
                if up_to_ms.is_some() || !self.form.deletes_columns() {
                    return Err(self.rejected(row, "deletes of points"));
                }
                let named = self.form.instants(row.base, qualifier);
                self.delete_cells(row, named, points);
            }
            MutationRef::DeleteFamily { family } if concerns(family) => {
                return Err(self.rejected(row, "deletes of families"));
            }
            MutationRef::DeleteRow => return Err(self.rejected(row, "deletes of rows")),
            MutationRef::Put { .. } | MutationRef::DeleteColumn { .. } | MutationRef::DeleteFamily { .. } => {
            }
        }
        Ok(true)
    }

    fn rejected(&self, row: &SplitRow<'_>, write: &str) -> StoreError {
        rejected(self.stored.table(), row.key, write)
    }

    /// Appends the puts of a row. Of two with one instant the later one wins, or that with the newer timestamp.
    fn append(&mut self, row: &mut SplitRow<'_>, points: &dyn PointStore) -> Result<(), StoreError> {
        row.replaced.clear();
        if row.puts.is_empty() {
            return Ok(());
        }
        // By time too, since the store takes ascending points in less time.
        row.puts
            .sort_by_key(|(timestamp_ms, point)| (*timestamp_ms, point.time_ms));
        let numbers = points.numbers(&[row.tsuid]).map_err(StoreError::from)?;
        if !matches!(self.operations.last(), Some(PointOperation::Append(_))) {
            self.operations
                .push(PointOperation::Append(PointBatch::default()));
        }
        if let (Some(PointOperation::Append(batch)), [series]) = (self.operations.last_mut(), &numbers[..]) {
            for (_, point) in row.puts.drain(..) {
                batch.push(*series, point);
            }
        }
        Ok(())
    }

    /// Deletes points of a row by the columns of their cells.
    fn delete_cells(
        &mut self,
        row: &mut SplitRow<'_>,
        mut named: Vec<(i64, PointColumn)>,
        points: &dyn PointStore,
    ) {
        // The other puts wait for later puts, which may have older cells.
        row.puts
            .retain(|(_, point)| !named.contains(&(point.time_ms, self.form.cell_of(point).0)));
        named.append(&mut row.replaced);
        let is_replaced =
            |(time_ms, _): &(i64, PointColumn)| row.puts.iter().any(|(_, point)| point.time_ms == *time_ms);
        row.replaced = named.extract_if(.., |named| is_replaced(named)).collect();
        if named.is_empty() {
            return;
        }
        let Some(number) = points.find(row.tsuid) else {
            return;
        };
        match self.operations.last_mut() {
            Some(PointOperation::DeleteCells { series, cells }) if *series == number => cells.extend(named),
            _ => self.operations.push(PointOperation::DeleteCells {
                series: number,
                cells: named,
            }),
        }
    }
}

/// Adds a mutation to a batch that has the same families.
fn copy(batch: &mut WriteBatch, mutation: &MutationRef<'_>) {
    match *mutation {
        MutationRef::Put {
            family,
            qualifier,
            timestamp_ms: Some(timestamp_ms),
            value,
        } => batch.put_at(family, qualifier, timestamp_ms, value),
        MutationRef::Put {
            family,
            qualifier,
            timestamp_ms: None,
            value,
        } => batch.put(family, qualifier, value),
        MutationRef::DeleteColumn {
            family,
            qualifier,
            up_to_ms: Some(up_to_ms),
        } => batch.delete_column_up_to(family, qualifier, up_to_ms),
        MutationRef::DeleteColumn {
            family,
            qualifier,
            up_to_ms: None,
        } => batch.delete_column(family, qualifier),
        MutationRef::DeleteFamily { family } => batch.delete_family(family),
        MutationRef::DeleteRow => batch.delete_row(),
    };
}
