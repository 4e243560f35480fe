//! Series that have no place: collisions, and series that did not match. A tree has one row of each, which is read in
//! parts.
//!
//! Source: OpenTSDB 2.4, `Tree.fetchCollisions`, `Tree.fetchNotMatched`.

use futures::stream::{self, BoxStream, StreamExt as _, TryStreamExt as _};
use oxtsdb_query::{Budget, Held};
use oxtsdb_row_store::{ColumnSelection, Row};
use oxtsdb_schema::tree::{TreeCell, TreeId};

use super::Trees;
use super::error::TreeError;
use super::table::FAMILY_NAME;

/// Memory of a problem beside its text, in bytes; an estimate.
const PROBLEM_BYTES: usize = 160;

/// Columns of a read of requested series.
const COLUMNS: usize = 512;

/// Why a series has no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Problem {
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

/// Some problems of a tree as TSUID and text, by TSUID, and their memory.
#[derive(Debug)]
pub struct Problems {
    /// TSUID and text, ascending by TSUID; [`Problem`] defines the text.
    pub problems: Vec<(Vec<u8>, String)>,
    /// The memory of `problems`, charged to the budget of the read until it is dropped.
    pub held: Held,
}

impl Trees {
    /// Stored problems of a tree, by TSUID; of these series, or of all if there are none. They are charged to a budget.
    ///
    /// The stream fails with [`TreeError::TreeNotFound`], if the table cannot be read, or if the budget is exceeded.
    pub fn problems(
        &self,
        id: TreeId,
        problem: Problem,
        mut series: Vec<Vec<u8>>,
        budget: Budget,
    ) -> BoxStream<'static, Result<Problems, TreeError>> {
        let this = self.clone();
        let opened = async move {
            this.check_exists(id).await?;
            let key = problem.row_key(id);
            let table = this.0.table.clone();
            let parts = if series.is_empty() {
                let parts = table.store.get_in_parts(&table.name, &key, FAMILY_NAME);
                parts.await?
            } else {
                series.sort_unstable();
                series.dedup();
                let column = |tsuid: &Vec<u8>| (FAMILY_NAME.to_owned(), problem.cell(tsuid).encode());
                let selections = series
                    .chunks(COLUMNS)
                    .map(|series| series.iter().map(column).collect());
                let selections: Vec<_> = selections.map(ColumnSelection::Columns).collect();
                let read = move |columns| {
                    let table = table.clone();
                    async move {
                        let row = table.store.get(&table.name, &key, &columns).await?;
                        Ok(row.into_iter().collect())
                    }
                };
                stream::iter(selections).then(read).boxed()
            };
            budget.use_rows(1, 0)?;
            let compute = this.0.compute.clone();
            Ok::<_, TreeError>(parts.map_err(TreeError::from).and_then(move |part| {
                let (compute, budget) = (compute.clone(), budget.clone());
                async move {
                    let bytes = part.iter().map(|row: &Row| row.byte_len() as u64).sum();
                    budget.use_rows(0, bytes)?;
                    let _part = budget.hold(bytes)?;
                    let problems = compute.run(move || decode(problem, &part)).await?;
                    let bytes = problems
                        .iter()
                        .map(|(tsuid, text)| (PROBLEM_BYTES + tsuid.len() + text.len()) as u64);
                    Ok(Problems {
                        held: budget.hold(bytes.sum())?,
                        problems,
                    })
                }
            }))
        };
        stream::once(opened).try_flatten().boxed()
    }
}

fn decode(problem: Problem, part: &[Row]) -> Vec<(Vec<u8>, String)> {
    let cells = part.iter().flat_map(Row::cells);
    let problems = cells.filter_map(|cell| {
        let tsuid = match (problem, TreeCell::decode(cell.qualifier)) {
            (Problem::Collision, Some(TreeCell::Collision(tsuid))) => tsuid,
            (Problem::NotMatched, Some(TreeCell::NotMatched(tsuid))) => tsuid,
            _ => return None,
        };
        // ISO-8859-1, as OpenTSDB reads and writes it.
        let text = cell.value.iter().copied().map(char::from).collect();
        Some((tsuid.to_vec(), text))
    });
    problems.collect()
}
