//! Lists annotations by series and range, in pages.
//!
//! The annotations of a series are among its points, so a page reads the rows of the series in the range. It ends when
//! it has enough annotations, or has read [`PAGE_ROWS`] rows or [`PAGE_BYTES`]; it may then be empty although others
//! follow. The next one starts at the [`Position`] where it ended.

use futures::TryStreamExt as _;
use futures::stream::BoxStream;
use oxtsdb_query::annotation::annotation_cells;
use oxtsdb_query::{Held, Hours, QueryContext, QueryError, RowScan, RowSource, Storage, scan_rows};
use oxtsdb_row_store::Row;
use oxtsdb_schema::{Annotation, BaseTime, RowKeyRef, Tsuid, stored_json};

use super::{AnnotationError, Annotations, StoredAnnotation};

/// Rows of a page, at most.
const PAGE_ROWS: u64 = 10_000;

/// Bytes of the rows of a page, and of its annotations, at most; one more row or annotation may be read.
const PAGE_BYTES: u64 = 64 << 20;
const PAGE_ANNOTATION_BYTES: u64 = 1 << 20;

/// An owner of annotations.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// No series: global annotations.
    Global,
    /// One series.
    Series(Tsuid),
}

/// A page to read.
#[derive(Clone, Debug)]
pub struct PageRequest {
    /// The series, or global annotations.
    pub source: Source,
    /// First and last instant, both inside.
    pub range_ms: (i64, i64),
    /// Most annotations.
    pub size: usize,
    /// Where the page before ended.
    pub after: Option<Position>,
}

/// A place in a listing: behind an annotation, or behind all of an hour.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Position {
    /// The base time of the last row that was read.
    pub hour: BaseTime,
    /// Begin and qualifier of the annotation; `None`: the hour is done.
    pub cell: Option<(i64, Vec<u8>)>,
}

/// A page of annotations.
#[derive(Debug)]
pub struct Page {
    /// In order of their begin.
    pub annotations: Vec<StoredAnnotation>,
    /// Where the next page starts; `None`: this was the last.
    pub next: Option<Position>,
    /// The memory of the annotations.
    pub held: Held,
}

impl Annotations {
    /// Lists annotations by their begin. Cells that are no annotation are left out.
    ///
    /// # Errors
    ///
    /// Errors of the store and of the context.
    pub async fn list(
        &self,
        storage: &Storage,
        request: &PageRequest,
        context: &QueryContext,
    ) -> Result<Page, AnnotationError> {
        let budget = context.budget();
        let mut page = Page {
            annotations: Vec::new(),
            next: None,
            held: budget.hold(0)?,
        };
        let mut hours = Hours::overlapping(request.range_ms.0, request.range_ms.1);
        match &request.after {
            None => {}
            Some(Position { hour, cell: Some(_) }) => hours.start = *hour,
            Some(Position { hour, cell: None }) if *hour == BaseTime::MAX => return Ok(page),
            Some(Position { hour, cell: None }) => hours.start = hour.next_hour(),
        }
        if !hours.contains(hours.start) {
            return Ok(page);
        }
        let mut rows = rows_of(storage, &request.source, hours, context).await?;
        let (mut read_rows, mut read_bytes) = (0, 0);
        while let Some(row_batch) = context.run(rows.try_next()).await? {
            for row in &row_batch {
                let bytes = row.byte_len() as u64;
                budget.use_rows(1, bytes)?;
                read_rows += 1;
                read_bytes += bytes;
                let Ok(key) = RowKeyRef::decode(row.key(), &self.layout) else {
                    continue;
                };
                let hour = key.base_time();
                if !add_row(&mut page, row, hour, request)? {
                    return Ok(page);
                }
                if read_rows >= PAGE_ROWS || read_bytes >= PAGE_BYTES {
                    page.next = Some(Position { hour, cell: None });
                    return Ok(page);
                }
            }
        }
        Ok(page)
    }
}

/// Adds the annotations of a row; `false` if the page is full.
fn add_row(
    page: &mut Page,
    row: &Row,
    hour: BaseTime,
    request: &PageRequest,
) -> Result<bool, AnnotationError> {
    let (start_ms, end_ms) = request.range_ms;
    let after = request.after.as_ref().filter(|after| after.hour == hour);
    let after = after.and_then(|after| after.cell.as_ref());
    let mut annotations: Vec<_> = annotation_cells(row)
        .filter_map(|cell| Some((cell, Annotation::decode(cell.value).ok()?)))
        .filter(|(_, annotation)| (start_ms..=end_ms).contains(&annotation.start_ms()))
        .filter(|(cell, annotation)| {
            let place = (annotation.start_ms(), cell.qualifier);
            after.is_none_or(|(after_ms, qualifier)| place > (*after_ms, qualifier.as_slice()))
        })
        .collect();
    annotations.sort_unstable_by_key(|(cell, annotation)| (annotation.start_ms(), cell.qualifier));
    let mut last = None;
    for (cell, annotation) in annotations {
        if page.annotations.len() >= request.size || page.held.bytes() >= PAGE_ANNOTATION_BYTES {
            // Without one of this row the hours before it are done.
            page.next = last.or(Some(Position {
                hour,
                cell: after.cloned().or(Some((i64::MIN, Vec::new()))),
            }));
            return Ok(false);
        }
        last = Some(Position {
            hour,
            cell: Some((annotation.start_ms(), cell.qualifier.to_vec())),
        });
        page.held.grow(annotation.held_bytes())?;
        let etag = stored_json::etag(Some(cell.value));
        page.annotations.push(StoredAnnotation { annotation, etag });
    }
    Ok(true)
}

/// The rows of a source, in order of time.
pub(super) async fn rows_of(
    storage: &Storage,
    source: &Source,
    hours: Hours,
    context: &QueryContext,
) -> Result<BoxStream<'static, Result<Vec<Row>, QueryError>>, QueryError> {
    let scan = RowScan {
        source: match source {
            Source::Global => RowSource::GlobalAnnotations,
            Source::Series(tsuid) => RowSource::Tsuids(vec![tsuid.as_bytes().to_vec()]),
        },
        hours,
        start_after_row_key: Vec::new(),
        limit: None,
    };
    context.run(scan_rows(storage, scan, context)).await
}
