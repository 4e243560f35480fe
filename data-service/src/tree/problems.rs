//! Series that have no place: collisions, and series that did not match.
//!
//! Source: OpenTSDB 2.4, `Tree.fetchCollisions`, `Tree.fetchNotMatched`.

use oxtsdb_query::Budget;
use oxtsdb_row_store::ColumnSelection;
use oxtsdb_schema::tree::{TreeCell, TreeId};

use super::Trees;
use super::branch::charged;
use super::error::TreeError;
use super::table::FAMILY_NAME;

/// Memory of a problem, in bytes; an estimate.
pub(crate) const PROBLEM_BYTES: u64 = 256;

/// Why a series has no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Problem {
    /// Another series has it. The text is its TSUID.
    Collision,
    /// The tree matches strictly, and rules failed. The text lists them.
    NotMatched,
}

impl Problem {
    fn row_key(self, tree: TreeId) -> [u8; 3] {
        match self {
            Self::Collision => tree.collision_row_key(),
            Self::NotMatched => tree.not_matched_row_key(),
        }
    }

    fn cell(self, tsuid: &[u8]) -> TreeCell<'_> {
        match self {
            Self::Collision => TreeCell::Collision(tsuid),
            Self::NotMatched => TreeCell::NotMatched(tsuid),
        }
    }
}

impl Trees {
    /// Stored problems of a tree as TSUID and text, by TSUID; of these series, or of all if there are none. They are
    /// one row, which is charged to a budget while it is decoded.
    ///
    /// # Errors
    ///
    /// [`TreeError::TreeNotFound`]; the table cannot be read, or the budget is exceeded.
    pub(crate) async fn problems(
        &self,
        id: TreeId,
        problem: Problem,
        series: &[Vec<u8>],
        budget: &Budget,
    ) -> Result<Vec<(Vec<u8>, String)>, TreeError> {
        self.stored(id).await?;
        let columns = if series.is_empty() {
            ColumnSelection::Family(FAMILY_NAME.to_owned())
        } else {
            let column = |tsuid: &Vec<u8>| (FAMILY_NAME.to_owned(), problem.cell(tsuid).encode());
            ColumnSelection::Columns(series.iter().map(column).collect())
        };
        let table = &self.0.table;
        let row = table
            .store
            .get(&table.name, &problem.row_key(id), &columns)
            .await?;
        let _row = row.as_ref().map(|row| charged(row, budget)).transpose()?;
        let mut found = Vec::new();
        for cell in row.iter().flat_map(|row| row.cells()) {
            let tsuid = match (problem, TreeCell::decode(cell.qualifier)) {
                (Problem::Collision, Some(TreeCell::Collision(tsuid))) => tsuid,
                (Problem::NotMatched, Some(TreeCell::NotMatched(tsuid))) => tsuid,
                _ => continue,
            };
            // ISO-8859-1, as OpenTSDB reads and writes it.
            let text = cell.value.iter().copied().map(char::from).collect();
            found.push((tsuid.to_vec(), text));
        }
        Ok(found)
    }
}
