//! Atomic commits: of all tables, but not of rows that may have points.

use async_trait::async_trait;
use oxtsdb_row_store::{AtomicCommit, Condition, StoreError, WriteBatch};

use super::TableView;

#[async_trait]
impl AtomicCommit for TableView {
    async fn commit_if(&self, conditions: &[Condition], batch: WriteBatch) -> Result<bool, StoreError> {
        let Some(atomic) = self.rows.atomic() else {
            return Err(StoreError::Invalid {
                detail: "the row store has no atomic commits".to_owned(),
            });
        };
        let conditional = conditions.iter().map(|condition| &*condition.cell.row);
        for row in conditional.chain(batch.iter().map(|row| row.key)) {
            self.reject_series(batch.table(), row, "atomic commits")?;
        }
        for condition in conditions {
            self.store_counter(batch.table(), &condition.cell).await?;
        }
        self.store_mutated_counters(&batch).await?;
        atomic.commit_if(conditions, batch).await
    }
}
