//! The columns of points that a read selects.

use oxtsdb_row_store::ColumnSelection;

use super::form::CellForm;
use super::place::is_point_family;

/// The columns of points that a read selects.
#[derive(Clone, Debug)]
pub(super) enum PointColumns {
    All,
    /// These qualifiers, ascending.
    Some(Vec<Vec<u8>>),
}

impl PointColumns {
    /// The columns of a selection; `None` if none can be that of a point.
    pub(super) fn of(selection: &ColumnSelection, form: &CellForm) -> Option<Self> {
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
