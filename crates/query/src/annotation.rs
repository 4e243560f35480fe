//! Annotations in stored rows.

use std::sync::Arc;

use futures::TryStreamExt as _;
use oxtsdb_row_store::{CellRef, Row};
use oxtsdb_schema::Annotation;
use oxtsdb_schema::annotation::is_annotation;

use crate::context::budget::Held;
use crate::context::query_context::QueryContext;
use crate::error::QueryError;
use crate::exec::series_points::SeriesPoints;
use crate::plan::hours::Hours;
use crate::quirks::Quirks;
use crate::row_scan::{RowScan, RowSource, scan_rows};
use crate::spec::QuerySpec;
use crate::storage::Storage;

/// The cells of a row that are annotations.
pub fn annotation_cells(row: &Row) -> impl Iterator<Item = CellRef<'_>> {
    row.cells().filter(|cell| is_annotation(cell.qualifier))
}

/// The annotations of a group of series that begin in a range, in order; `None` if no row of the series has any.
pub(crate) fn group_annotations<'a>(
    series: impl Iterator<Item = &'a SeriesPoints>,
    (start_ms, end_ms): (i64, i64),
    quirks: Quirks,
) -> Option<Vec<Arc<Annotation>>> {
    let mut selected: Option<Vec<_>> = None;
    for annotations in series.filter_map(|one| one.annotations.as_deref()) {
        let in_range = |annotation: &&Arc<Annotation>| (start_ms..=end_ms).contains(&annotation.start_ms());
        let selected = selected.get_or_insert_default();
        selected.extend(annotations.iter().filter(in_range).cloned());
    }
    if let Some(selected) = &mut selected {
        sort(selected, quirks);
    }
    selected
}

/// Sorts annotations by their begin; equal ones stay in order.
pub(crate) fn sort(annotations: &mut [Arc<Annotation>], quirks: Quirks) {
    if quirks.annotations_by_number {
        annotations.sort_by_key(|annotation| annotation.start_time);
    } else {
        annotations.sort_by_key(|annotation| annotation.start_ms());
    }
}

/// Memory of annotations, in bytes.
pub(crate) fn held_bytes(annotations: &[Arc<Annotation>]) -> u64 {
    annotations.iter().map(|annotation| annotation.held_bytes()).sum()
}

/// Reads the global annotations of a query. `None` if no annotation of the scanned hours passes the quirk's test, which
/// runs before the test of the range.
///
/// # Errors
///
/// As [`global_annotations`].
pub(crate) async fn global_of_query(
    storage: &Storage,
    query: &QuerySpec,
    context: &QueryContext,
) -> Result<Option<(Vec<Arc<Annotation>>, Held)>, QueryError> {
    let (start_ms, end_ms) = (query.start_ms, query.end_ms);
    let hours = Hours::overlapping(start_ms, end_ms);
    let (mut annotations, held) = global_annotations(storage, hours, context).await?;
    if query.quirks.annotations_by_number {
        let seconds = (start_ms / 1000, end_ms / 1000);
        annotations.retain(|annotation| ends_within(annotation, seconds));
    }
    if annotations.is_empty() {
        return Ok(None);
    }
    annotations.retain(|annotation| (start_ms..=end_ms).contains(&annotation.start_ms()));
    sort(&mut annotations, query.quirks);
    Ok(Some((annotations, held)))
}

/// Reads the global annotations of some hours, in the order of the table: by hour, then by qualifier. Cells that are
/// no annotation are left out.
///
/// # Errors
///
/// Errors of the store and of the context, and [`QueryError::OverBudget`].
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
    let mut annotations = Vec::new();
    let mut held = budget.hold(0)?;
    let mut rows = context.run(scan_rows(storage, scan, context)).await?;
    while let Some(batch) = context.run(rows.try_next()).await? {
        let bytes = batch.iter().map(|row| row.byte_len() as u64).sum();
        budget.use_rows(batch.len() as u64, bytes)?;
        for cell in batch.iter().flat_map(annotation_cells) {
            if let Ok(annotation) = Annotation::decode(cell.value) {
                held.grow(annotation.held_bytes())?;
                annotations.push(Arc::new(annotation));
            }
        }
    }
    Ok((annotations, held))
}

/// Whether a global annotation is in a range, by OpenTSDB's comparison of numbers: it begins at or after the start and
/// ends at or before the end, whatever the units of the three. One without an end passes, however late it begins.
///
/// Source: OpenTSDB 2.4, `Annotation.getGlobalAnnotations`.
pub const fn ends_within(annotation: &Annotation, (start, end): (i64, i64)) -> bool {
    annotation.start_time >= start && annotation.end_time <= end
}
