//! Deletes annotations: one, or all of a range.

use futures::TryStreamExt as _;
use oxtsdb_query::annotation::annotation_cells;
use oxtsdb_query::{Hours, QueryContext, Storage};
use oxtsdb_row_store::{Row, WriteBatch};
use oxtsdb_schema::{Annotation, RowKeyRef, annotation};

use super::edit::check;
use super::list::{Source, rows_of};
use super::{AnnotationError, AnnotationKey, Annotations, FAMILY, Precondition};

/// Deletes that are written together.
const BATCH: usize = 1000;

impl Annotations {
    /// Deletes an annotation.
    ///
    /// # Errors
    ///
    /// [`AnnotationError::NotFound`], [`AnnotationError::EtagMismatch`], and [`AnnotationError::Store`].
    pub async fn remove(
        &self,
        key: &AnnotationKey,
        precondition: &Precondition,
    ) -> Result<(), AnnotationError> {
        let current = self.find(key).await?;
        let Some(cell) = &current else {
            return Err(AnnotationError::NotFound);
        };
        check(precondition, current.as_ref())?;
        let mut batch = WriteBatch::new(self.table.clone());
        let family = batch.family(FAMILY);
        batch
            .row(key.row())
            .delete_column_up_to(family, &cell.qualifier, cell.timestamp_ms);
        self.store.write(batch).await?;
        self.changes.announce(|| key.subject());
        if *precondition == Precondition::None {
            return Ok(());
        }
        // An edit in the same millisecond is deleted too; a later one is still there.
        match self.find(key).await? {
            Some(newer) if newer.qualifier == cell.qualifier => Err(AnnotationError::EtagMismatch {
                expected: cell.etag(),
                stored: newer.etag(),
            }),
            _ => Ok(()),
        }
    }

    /// Deletes the annotations of sources that begin in a range, both ends inside, and returns how many there were. A
    /// cell that is no annotation begins at the time of its qualifier.
    ///
    /// # Errors
    ///
    /// [`AnnotationError::Store`], and errors of the context. Some of the annotations may have been deleted.
    pub async fn remove_range(
        &self,
        storage: &Storage,
        sources: &[Source],
        (start_ms, end_ms): (i64, i64),
        context: &QueryContext,
    ) -> Result<u64, AnnotationError> {
        let mut removed = 0;
        for source in sources {
            let hours = Hours::overlapping(start_ms, end_ms);
            let mut rows = rows_of(storage, source, hours, context).await?;
            let mut batch = WriteBatch::new(self.table.clone());
            while let Some(row_batch) = context.run(rows.try_next()).await? {
                let bytes = row_batch.iter().map(|row| row.byte_len() as u64).sum();
                context.budget().use_rows(row_batch.len() as u64, bytes)?;
                for row in &row_batch {
                    self.delete_cells(&mut batch, row, (start_ms, end_ms));
                }
                if batch.mutation_count() >= BATCH {
                    removed += self.write(&mut batch).await?;
                }
            }
            removed += self.write(&mut batch).await?;
        }
        Ok(removed)
    }

    /// Adds deletes of the annotations of a row that begin in a range.
    fn delete_cells(&self, batch: &mut WriteBatch, row: &Row, (start_ms, end_ms): (i64, i64)) {
        let Ok(key) = RowKeyRef::decode(row.key(), &self.layout) else {
            return;
        };
        let base_ms = key.base_time().millis();
        let family = batch.family(FAMILY);
        for cell in annotation_cells(row) {
            let begins_ms = match Annotation::decode(cell.value) {
                Ok(annotation) => annotation.start_ms(),
                Err(_) => base_ms + annotation::offset_ms(cell.qualifier).unwrap_or_default(),
            };
            if (start_ms..=end_ms).contains(&begins_ms) {
                batch
                    .row(row.key())
                    .delete_column_up_to(family, cell.qualifier, cell.timestamp_ms);
            }
        }
    }

    /// Writes a batch of deletes, and returns how many there were.
    async fn write(&self, batch: &mut WriteBatch) -> Result<u64, AnnotationError> {
        let full = std::mem::replace(batch, WriteBatch::new(self.table.clone()));
        let count = full.mutation_count() as u64;
        if count > 0 {
            self.store.write(full).await?;
        }
        Ok(count)
    }
}
