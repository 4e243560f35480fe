//! Annotations in stored rows.

use std::sync::Arc;

use futures::TryStreamExt as _;
use oxtsdb_row_store::{CellRef, Row};
use oxtsdb_schema::Annotation;
use oxtsdb_schema::annotation::is_annotation;

use crate::context::budget::Held;
use crate::context::query_context::QueryContext;
use crate::error::QueryError;
use crate::plan::hours::Hours;
use crate::row_scan::{RowScan, RowSource, scan_rows};
use crate::storage::Storage;

/// The cells of a row that are annotations.
pub fn annotation_cells(row: &Row) -> impl Iterator<Item = CellRef<'_>> {
    row.cells().filter(|cell| is_annotation(cell.qualifier))
}

/// Reads the global annotations of some hours, in the order of the table: by hour, then by qualifier. Cells that are
/// no annotation are left out.
///
/// # Errors
///
/// Those of the store and of the context, and [`QueryError::OverBudget`].
pub async fn global_annotations(
    storage: &Storage,
    hours: Hours,
    context: &QueryContext,
) -> Result<(Vec<Arc<Annotation>>, Held), QueryError> {
    let budget = context.budget();
    let scan = RowScan {
        source: RowSource::GlobalAnnotations,
        hours,
        start_after_row_key: Vec::new(),
        limit: None,
    };
    let mut found = Vec::new();
    let mut held = budget.hold(0)?;
    let mut rows = context.run(scan_rows(storage, scan, context)).await?;
    while let Some(batch) = context.run(rows.try_next()).await? {
        let bytes = batch.iter().map(|row| row.byte_len() as u64).sum();
        budget.use_rows(batch.len() as u64, bytes)?;
        for cell in batch.iter().flat_map(annotation_cells) {
            if let Ok(annotation) = Annotation::decode(cell.value) {
                held.grow(annotation.held_bytes())?;
                found.push(Arc::new(annotation));
            }
        }
    }
    Ok((found, held))
}

/// Whether a global annotation is in a range, by OpenTSDB's comparison of numbers: it begins at or after the start and
/// ends at or before the end, whatever the units of the three. One without an end passes, however late it begins.
///
/// Source: OpenTSDB 2.4, `Annotation.getGlobalAnnotations`.
pub const fn ends_within(annotation: &Annotation, (start, end): (i64, i64)) -> bool {
    annotation.start_time >= start && annotation.end_time <= end
}
