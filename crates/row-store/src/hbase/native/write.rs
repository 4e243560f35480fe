//! Writes a batch.
//!
//! The mutations of a row, from the whole batch, are divided into *steps*. Within a step they have one timestamp, the
//! server's, and at one timestamp a delete hides a put. A put behind a delete of its column begins a new step, which
//! waits for the next millisecond:
//!
//! ```text
//!   put a, delete b, put c, put b        the mutations of a row
//!   [put a, delete b, put c]  [put b]    its steps: each is atomic
//! ```
//!
//! Nearly every batch has one step of puts for each row.

use std::time::Duration;

use hashbrown::HashMap;
use rustc_hash::FxBuildHasher;

use super::cell_block::{Cell, NOW, cell_type};
use super::cluster::Cluster;
use super::messages::{Action, MutationProto, mutate_type};
use super::multi::{self, RowRequest};
use crate::{MutationRef, StoreError, WriteBatch};

/// Most rows of a call.
const ROWS_OF_A_CALL: usize = 1_000;

/// The delay between two steps of a row.
const NEXT_MILLISECOND: Duration = Duration::from_millis(2);

/// A step of a row.
#[derive(Debug, Default)]
struct Step<'a> {
    row: &'a [u8],
    puts: Vec<Cell<'a>>,
    deletes: Vec<Cell<'a>>,
    deletes_row: bool,
    bytes: usize,
}

/// The steps of a row.
type Steps<'a> = Vec<Step<'a>>;

/// Applies a batch.
///
/// # Errors
///
/// As [`crate::RowStore::write`].
pub(super) async fn write(cluster: &Cluster, batch: &WriteBatch) -> Result<(), StoreError> {
    super::super::checks::check_batch(batch)?;
    let mut rows = steps(batch);
    let rounds = rows.iter().map(Vec::len).max().unwrap_or_default();
    for round in 0..rounds {
        if round > 0 {
            tokio::time::sleep(NEXT_MILLISECOND).await;
        }
        let steps: Vec<Step<'_>> = rows
            .iter_mut()
            .filter_map(|steps| steps.get_mut(round).map(std::mem::take))
            .collect();
        let written = multi::perform(cluster, batch.table(), &steps, ROWS_OF_A_CALL).await;
        written.map_err(|error| error.into_store_error(Some(batch.table())))?;
    }
    Ok(())
}

/// The steps of each row.
fn steps(batch: &WriteBatch) -> Vec<Steps<'_>> {
    let mut rows: Vec<Steps<'_>> = Vec::with_capacity(batch.row_count());
    let mut places: HashMap<&[u8], usize, FxBuildHasher> = HashMap::default();
    places.reserve(batch.row_count());
    for row in batch.iter() {
        let place = *places.entry(row.key).or_insert_with(|| {
            rows.push(Vec::new());
            rows.len() - 1
        });
        for mutation in row.iter() {
            add(&mut rows[place], row.key, batch, mutation);
        }
    }
    for step in rows.iter_mut().flatten() {
        step.keep_last_puts();
    }
    rows
}

fn add<'a>(steps: &mut Steps<'a>, row: &'a [u8], batch: &'a WriteBatch, mutation: MutationRef<'a>) {
    let name = |family: crate::FamilyId| batch.families()[family.index()].as_bytes();
    let cell = |family, qualifier, timestamp_ms: Option<i64>, kind, value| Cell {
        row,
        family,
        qualifier,
        timestamp_ms: timestamp_ms.unwrap_or(NOW),
        kind,
        value,
    };
    let needs_step = match (steps.last(), mutation) {
        (None, _) => true,
        (
            Some(step),
            MutationRef::Put {
                family, qualifier, ..
            },
        ) => step.hides(name(family), qualifier),
        (Some(_), _) => false,
    };
    if needs_step {
        steps.push(Step {
            row,
            ..Step::default()
        });
    }
    let Some(step) = steps.last_mut() else { return };
    step.bytes += 32 + row.len();
    match mutation {
        MutationRef::Put {
            family,
            qualifier,
            timestamp_ms,
            value,
        } => {
            step.bytes += qualifier.len() + value.len();
            step.puts
                .push(cell(name(family), qualifier, timestamp_ms, cell_type::PUT, value));
        }
        MutationRef::DeleteColumn {
            family,
            qualifier,
            up_to_ms,
        } => {
            step.bytes += qualifier.len();
            step.deletes.push(cell(
                name(family),
                qualifier,
                up_to_ms,
                cell_type::DELETE_COLUMN,
                &[],
            ));
        }
        MutationRef::DeleteFamily { family } => {
            step.deletes
                .push(cell(name(family), &[], None, cell_type::DELETE_FAMILY, &[]));
        }
        MutationRef::DeleteRow => step.deletes_row = true,
    }
}

impl Step<'_> {
    /// Whether a delete of the step hides a put that follows it.
    fn hides(&self, family: &[u8], qualifier: &[u8]) -> bool {
        let hides = |delete: &Cell<'_>| {
            delete.family == family
                && (delete.kind == cell_type::DELETE_FAMILY || delete.qualifier == qualifier)
        };
        self.deletes_row || self.deletes.iter().any(hides)
    }

    /// Of puts into one cell at one time, which the server could not order, the last one remains.
    fn keep_last_puts(&mut self) {
        if self.puts.len() < 2 {
            return;
        }
        let mut last: HashMap<(&[u8], &[u8], i64), usize, FxBuildHasher> = HashMap::default();
        last.reserve(self.puts.len());
        for (place, put) in self.puts.iter().enumerate() {
            last.insert((put.family, put.qualifier, put.timestamp_ms), place);
        }
        if last.len() < self.puts.len() {
            let mut place = 0;
            self.puts.retain(|put| {
                place += 1;
                last.get(&(put.family, put.qualifier, put.timestamp_ms)) == Some(&(place - 1))
            });
        }
    }
}

impl RowRequest for Step<'_> {
    fn row(&self) -> &[u8] {
        self.row
    }

    fn bytes(&self) -> usize {
        self.bytes
    }

    fn actions(&self, cells: &mut Vec<u8>) -> Vec<Action> {
        let mut actions = Vec::with_capacity(1);
        if !self.puts.is_empty() {
            actions.push(mutation_action(mutate_type::PUT, &self.puts, cells));
        }
        if self.deletes_row {
            let mutation = MutationProto {
                row: Some(self.row.to_vec().into()),
                mutate_type: Some(mutate_type::DELETE),
                ..MutationProto::default()
            };
            actions.push(Action {
                mutation: Some(mutation),
                ..Action::default()
            });
        } else if !self.deletes.is_empty() {
            actions.push(mutation_action(mutate_type::DELETE, &self.deletes, cells));
        }
        actions
    }
}

/// A mutation with its cells in the block.
fn mutation_action(mutate_type: i32, list: &[Cell<'_>], cells: &mut Vec<u8>) -> Action {
    for cell in list {
        cell.encode(cells);
    }
    let mutation = MutationProto {
        mutate_type: Some(mutate_type),
        associated_cell_count: i32::try_from(list.len()).ok(),
        ..MutationProto::default()
    };
    Action {
        mutation: Some(mutation),
        ..Action::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(fill: impl FnOnce(&mut WriteBatch, crate::FamilyId)) -> WriteBatch {
        let mut batch = WriteBatch::new("t".parse().unwrap());
        let family = batch.family("f");
        fill(&mut batch, family);
        batch
    }

    /// The steps of each row: `+` puts, `-` deletes, of qualifiers.
    fn texts(batch: &WriteBatch) -> Vec<Vec<String>> {
        let text = |step: &Step<'_>| {
            let puts = step
                .puts
                .iter()
                .map(|put| format!("+{}", String::from_utf8_lossy(put.qualifier)));
            let deletes = step
                .deletes
                .iter()
                .map(|delete| format!("-{}", String::from_utf8_lossy(delete.qualifier)));
            let row = step.deletes_row.then(|| "-row".to_owned());
            puts.chain(deletes).chain(row).collect::<Vec<_>>().join(" ")
        };
        steps(batch)
            .iter()
            .map(|steps| steps.iter().map(text).collect())
            .collect()
    }

    #[test]
    fn a_put_behind_a_delete_of_its_column_is_a_later_step() {
        let one = batch(|batch, f| {
            batch
                .row(b"r")
                .put(f, b"a", b"")
                .delete_column(f, b"b")
                .put(f, b"c", b"")
                .put(f, b"b", b"");
            batch.row(b"s").put(f, b"a", b"");
            batch.row(b"r").delete_row().put(f, b"z", b"");
        });
        assert_eq!(texts(&one), [vec!["+a +c -b", "+b -row", "+z"], vec!["+a"]]);
        let family = batch(|batch, f| {
            batch
                .row(b"r")
                .delete_family(f)
                .put(f, b"a", b"")
                .put_at(f, b"a", 5, b"");
        });
        assert_eq!(texts(&family), [vec!["-", "+a +a"]]);
    }

    #[test]
    fn keeps_the_last_of_two_puts_into_one_cell() {
        let batch = batch(|batch, f| {
            batch
                .row(b"r")
                .put(f, b"a", b"1")
                .put(f, b"b", b"2")
                .put_at(f, b"a", 7, b"3");
            batch.row(b"r").put(f, b"a", b"4");
        });
        let rows = steps(&batch);
        let values: Vec<&[u8]> = rows[0][0].puts.iter().map(|put| put.value).collect();
        assert_eq!(values, [b"2", b"3", b"4"]);
    }
}
