//! Deletes what was placed in a tree and, on request, its definition.
//!
//! Rows are deleted in the order of the table, a batch at a time; cells that are not OpenTSDB's stay. A deletion that
//! was interrupted is repeated. With the definition:
//!
//! 1. The tree is switched off, so that no series are added: by this process from now on, by others within the age of
//!    their lists.
//! 2. All rows are deleted but the row of the definition.
//! 3. The definition and the rules are deleted. Until then the tree exists, and the deletion can be repeated.
//!
//! Source: OpenTSDB 2.4, `Tree.deleteTree`.

use futures::stream::{self, BoxStream, StreamExt as _, TryStreamExt as _};
use oxtsdb_row_store::{ColumnSelection, Row, RowStream, Scan, WriteBatch};
use oxtsdb_schema::tree::{TreeCell, TreeId};

use super::Trees;
use super::edit::{EditMode, TreeEdit};
use super::error::TreeError;
use super::table::FAMILY_NAME;

/// Rows of a batch.
const BATCH_ROWS: usize = 128;

/// Bytes of mutations of a write.
const WRITE_BYTES: usize = 1 << 20;

/// The progress of a deletion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Deleted {
    /// Branches, with the root.
    pub branches: u64,
    /// Leaves of these branches.
    pub leaves: u64,
    /// Collisions and series that did not match.
    pub problems: u64,
    /// The last report.
    pub is_done: bool,
}

/// The next step of a deletion.
enum Step {
    Begin,
    Rows(RowStream),
    Definition,
    Done,
}

impl Trees {
    /// Deletes a tree and reports progress. Dropping the stream interrupts the deletion.
    ///
    /// The stream fails with [`TreeError::TreeNotFound`], unless rows without a definition are left of the tree, or
    /// with errors of the table.
    pub fn delete(
        &self,
        id: TreeId,
        with_definition: bool,
    ) -> BoxStream<'static, Result<Deleted, TreeError>> {
        let this = self.clone();
        let begin = (this, Step::Begin, Deleted::default());
        stream::try_unfold(begin, move |(this, step, deleted)| async move {
            this.delete_step(id, with_definition, step, deleted).await
        })
        .boxed()
    }

    async fn delete_step(
        self,
        id: TreeId,
        with_definition: bool,
        step: Step,
        mut deleted: Deleted,
    ) -> Result<Option<(Deleted, (Self, Step, Deleted))>, TreeError> {
        let next = match step {
            Step::Done => return Ok(None),
            Step::Begin => {
                let has_definition = self.begin_deletion(id, with_definition).await?;
                let mut scan = Scan::prefix(&id.row_key());
                scan.batch_rows = BATCH_ROWS;
                scan.columns = ColumnSelection::Family(FAMILY_NAME.to_owned());
                let mut rows = self.0.table.store.scan(&self.0.table.name, scan).await?;
                if !has_definition {
                    // Only what an interrupted deletion left.
                    let first = rows.try_next().await?.ok_or(TreeError::TreeNotFound(id))?;
                    rows = stream::iter([Ok(first)]).chain(rows).boxed();
                }
                Step::Rows(rows)
            }
            Step::Rows(mut rows) => match rows.try_next().await? {
                Some(batch) => {
                    self.delete_rows(&batch, &mut deleted).await?;
                    Step::Rows(rows)
                }
                None if with_definition => Step::Definition,
                None => Step::Done,
            },
            Step::Definition => {
                self.delete_definition(id).await?;
                Step::Done
            }
        };
        deleted.is_done = matches!(next, Step::Done);
        Ok(Some((deleted, (self, next, deleted))))
    }

    /// Switches the tree off if its definition will be deleted. Returns whether it has one.
    async fn begin_deletion(&self, id: TreeId, with_definition: bool) -> Result<bool, TreeError> {
        let Some(stored) = self.0.table.tree(id).await? else {
            return Ok(false);
        };
        if with_definition && stored.tree.definition.enabled {
            let off = TreeEdit {
                enabled: Some(false),
                ..TreeEdit::default()
            };
            self.update(id, &off, EditMode::Merge, None).await?;
        }
        self.0.enabled.invalidate();
        // Batches that are being stored by this process end first.
        drop(self.0.placing.write().await);
        Ok(true)
    }

    /// Deletes the branches, leaves and problems of rows.
    async fn delete_rows(&self, rows: &[Row], deleted: &mut Deleted) -> Result<(), TreeError> {
        let mut batch = self.batch();
        let family = batch.family(FAMILY_NAME);
        for row in rows {
            let mut begun = false;
            for cell in row.cells() {
                match TreeCell::decode(cell.qualifier) {
                    Some(TreeCell::Branch) => deleted.branches += 1,
                    Some(TreeCell::Leaf(_)) => deleted.leaves += 1,
                    Some(TreeCell::Collision(_) | TreeCell::NotMatched(_)) => deleted.problems += 1,
                    Some(TreeCell::Tree | TreeCell::Rule { .. }) | None => continue,
                }
                if batch.byte_len() > WRITE_BYTES {
                    let full = std::mem::replace(&mut batch, self.batch());
                    self.0.table.store.write(full).await?;
                    batch.family(FAMILY_NAME);
                    begun = false;
                }
                if !std::mem::replace(&mut begun, true) {
                    batch.row(row.key());
                }
                batch.delete_column(family, cell.qualifier);
            }
        }
        if !batch.is_empty() {
            self.0.table.store.write(batch).await?;
        }
        Ok(())
    }

    async fn delete_definition(&self, id: TreeId) -> Result<(), TreeError> {
        let columns = ColumnSelection::Family(FAMILY_NAME.to_owned());
        let table = &self.0.table;
        let row = table.store.get(&table.name, &id.row_key(), &columns).await?;
        let mut batch = self.batch();
        let family = batch.family(FAMILY_NAME);
        let mutations = batch.row(&id.row_key());
        for cell in row.iter().flat_map(|row| row.cells()) {
            if matches!(
                TreeCell::decode(cell.qualifier),
                Some(TreeCell::Tree | TreeCell::Rule { .. })
            ) {
                mutations.delete_column(family, cell.qualifier);
            }
        }
        if !batch.is_empty() {
            table.store.write(batch).await?;
        }
        self.0.enabled.invalidate();
        Ok(())
    }

    fn batch(&self) -> WriteBatch {
        WriteBatch::new(self.0.table.name.clone())
    }
}
