//! Atomic commits: of all tables, but not of points.

use async_trait::async_trait;
use oxtsdb_row_store::{AtomicCommit, Condition, MutationRef, StoreError, WriteBatch};

use super::TableView;
use super::place::{SeriesHour, is_point_family, rejected};

/// Rejects conditions on points, puts into columns of points, and deletes of such columns, of their family or of rows
/// that may have them.
#[async_trait]
impl AtomicCommit for TableView {
    async fn commit_if(&self, conditions: &[Condition], batch: WriteBatch) -> Result<bool, StoreError> {
        let Some(atomic) = self.rows.atomic() else {
            return Err(StoreError::Invalid {
                detail: "the row store has no atomic commits".to_owned(),
            });
        };
        for condition in conditions {
            self.store_counter(batch.table(), &condition.cell).await?;
            self.reject_point(batch.table(), &condition.cell, "a condition")?;
        }
        self.reject_points(&batch)?;
        for row in batch.iter() {
            self.number_series(batch.table(), row.key).await?;
        }
        self.store_mutated_counters(&batch).await?;
        atomic.commit_if(conditions, batch).await
    }
}

impl TableView {
    /// Rejects a batch with mutations that may concern points.
    fn reject_points(&self, batch: &WriteBatch) -> Result<(), StoreError> {
        if !self.has_points(batch.table()) {
            return Ok(());
        }
        let concerns = |family: usize| {
            batch
                .families()
                .get(family)
                .is_some_and(|name| is_point_family(name))
        };
        for row in batch.iter() {
            if SeriesHour::of(row.key, &self.layout).is_none() {
                continue;
            }
            for mutation in row.iter() {
                let qualifier = match mutation {
                    MutationRef::Put {
                        family, qualifier, ..
                    }
                    | MutationRef::DeleteColumn {
                        family, qualifier, ..
                    } if concerns(family.index()) && self.form.names_points(qualifier) => qualifier,
                    MutationRef::DeleteFamily { family } if concerns(family.index()) => &[],
                    MutationRef::DeleteRow => &[],
                    _ => continue,
                };
                return Err(rejected(
                    batch.table(),
                    row.key,
                    qualifier,
                    "part of an atomic commit",
                ));
            }
        }
        Ok(())
    }
}
