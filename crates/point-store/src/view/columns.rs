//! The columns of points that a read selects, and the cells that have them.

use oxtsdb_row_store::{ColumnSelection, RowBuilder};

use super::form::CellForm;
use super::place::is_point_family;
use crate::Point;

/// The columns of points that a read selects.
#[derive(Clone, Debug)]
pub(super) enum PointColumns {
    All,
    /// These qualifiers, ascending.
    Some(Vec<Vec<u8>>),
}

impl PointColumns {
    /// The point columns of a selection; `None` if no point can have a selected column.
    pub(super) fn from_selection(selection: &ColumnSelection, form: &CellForm) -> Option<Self> {
        match selection {
            ColumnSelection::All => Some(Self::All),
            ColumnSelection::Family(family) => is_point_family(family).then_some(Self::All),
            ColumnSelection::Columns(columns) => {
                let points = columns
                    .iter()
                    .filter(|(family, qualifier)| is_point_family(family) && form.names_points(qualifier));
                let mut qualifiers: Vec<_> = points.map(|(_, qualifier)| qualifier.clone()).collect();
                qualifiers.sort_unstable();
                (!qualifiers.is_empty()).then_some(Self::Some(qualifiers))
            }
        }
    }

    /// Whether a column is selected.
    pub(super) fn contains(&self, qualifier: &[u8]) -> bool {
        match self {
            Self::All => true,
            Self::Some(qualifiers) => qualifiers
                .binary_search_by(|selected| selected.as_slice().cmp(qualifier))
                .is_ok(),
        }
    }
}

/// Adds the selected cells of points to a row, in order of their qualifiers. The points are of one row and ascend.
pub(super) fn push_cells(
    row: &mut RowBuilder,
    family: usize,
    points: impl Iterator<Item = Point> + Clone,
    columns: &PointColumns,
    form: &CellForm,
) {
    for resolution in form.resolutions() {
        for point in points
            .clone()
            .filter(|point| point.kind.resolution() == *resolution)
        {
            let (column, value) = form.cell_of(&point);
            if columns.contains(column.as_bytes()) {
                let timestamp_ms = form.timestamp_ms(point.time_ms);
                row.push(family, column.as_bytes(), timestamp_ms, value.as_bytes());
            }
        }
    }
}
