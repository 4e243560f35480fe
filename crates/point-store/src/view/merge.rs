//! Rows of points, or of counters, merged with the rows of the row store.

use std::cmp::{Ordering, Reverse};
use std::collections::VecDeque;
use std::sync::Arc;

use futures::stream::try_unfold;
use futures::{StreamExt as _, TryStreamExt as _};
use oxtsdb_row_store::{CellRef, Row, RowBuilder, RowStream, Scan, StoreError};

/// Two streams of rows in one order.
pub(super) struct Merged {
    points: RowStream,
    stored: RowStream,
    /// Rows that were read and not yet emitted; `None` at the end of a stream.
    next_points: Option<VecDeque<Row>>,
    next_stored: Option<VecDeque<Row>>,
    families: Arc<[String]>,
    reverse: bool,
    batch_rows: usize,
    limit: Option<u64>,
    max_versions: usize,
}

impl Merged {
    pub(super) fn new(points: RowStream, stored: RowStream, families: Arc<[String]>, scan: &Scan) -> Self {
        Self {
            points,
            stored,
            next_points: Some(VecDeque::new()),
            next_stored: Some(VecDeque::new()),
            families,
            reverse: scan.reverse,
            batch_rows: scan.batch_rows,
            limit: scan.limit,
            max_versions: usize::try_from(scan.max_versions).unwrap_or(usize::MAX),
        }
    }

    /// The rows of both.
    pub(super) fn into_stream(self) -> RowStream {
        try_unfold(self, |mut merged| async move {
            let rows = merged.next_batch().await?;
            Ok((!rows.is_empty()).then_some((rows, merged)))
        })
        .boxed()
    }

    /// The next rows; none at the end. A batch ends where more would have to be read.
    async fn next_batch(&mut self) -> Result<Vec<Row>, StoreError> {
        let limit = self
            .limit
            .map(|limit| usize::try_from(limit).unwrap_or(usize::MAX));
        let most = limit.map_or(self.batch_rows, |limit| limit.min(self.batch_rows));
        let mut rows = Vec::new();
        while rows.len() < most {
            let is_read = |next: &Option<VecDeque<Row>>| next.as_ref().is_none_or(|next| !next.is_empty());
            if !is_read(&self.next_points) || !is_read(&self.next_stored) {
                if !rows.is_empty() {
                    break;
                }
                self.read().await?;
            }
            let Some(row) = self.next_row() else { break };
            rows.push(row);
        }
        if let Some(limit) = &mut self.limit {
            *limit -= rows.len() as u64;
        }
        Ok(rows)
    }

    /// Reads on where no rows are left.
    async fn read(&mut self) -> Result<(), StoreError> {
        if self.next_points.as_ref().is_some_and(VecDeque::is_empty) {
            self.next_points = self.points.try_next().await?.map(VecDeque::from);
        }
        if self.next_stored.as_ref().is_some_and(VecDeque::is_empty) {
            self.next_stored = self.stored.try_next().await?.map(VecDeque::from);
        }
        Ok(())
    }

    /// The next row of both.
    fn next_row(&mut self) -> Option<Row> {
        let points = self.next_points.as_mut().filter(|rows| !rows.is_empty());
        let stored = self.next_stored.as_mut().filter(|rows| !rows.is_empty());
        let (points, stored) = match (points, stored) {
            (Some(points), Some(stored)) => (points, stored),
            (Some(rows), None) | (None, Some(rows)) => return rows.pop_front(),
            (None, None) => return None,
        };
        let order = points.front().map(Row::key).cmp(&stored.front().map(Row::key));
        match if self.reverse { order.reverse() } else { order } {
            Ordering::Less => points.pop_front(),
            Ordering::Greater => stored.pop_front(),
            Ordering::Equal => {
                let (points, stored) = (points.pop_front()?, stored.pop_front()?);
                merge_rows(&points, &stored, &self.families, self.max_versions)
            }
        }
    }
}

/// Merges the cells of a row. Of cells with one column and timestamp, the point's cell is kept.
pub(super) fn merge_rows(
    points: &Row,
    stored: &Row,
    families: &Arc<[String]>,
    max_versions: usize,
) -> Option<Row> {
    let family_of = |cell: &CellRef<'_>| families.iter().position(|family| family == cell.family);
    let cells = points.cells().chain(stored.cells());
    let mut cells: Vec<_> = cells.filter_map(|cell| Some((family_of(&cell)?, cell))).collect();
    // Stable: points come first.
    cells.sort_by_key(|(family, cell)| (*family, cell.qualifier, Reverse(cell.timestamp_ms)));
    cells.dedup_by_key(|(family, cell)| (*family, cell.qualifier, cell.timestamp_ms));
    let mut row = RowBuilder::new(points.key(), Arc::clone(families));
    let (mut column, mut versions) = (None, 0);
    for (family, cell) in cells {
        versions = if column == Some((family, cell.qualifier)) {
            versions + 1
        } else {
            1
        };
        column = Some((family, cell.qualifier));
        if versions <= max_versions {
            row.push(family, cell.qualifier, cell.timestamp_ms, cell.value);
        }
    }
    row.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(families: &Arc<[String]>, cells: &[(&[u8], i64, &[u8])]) -> Row {
        let mut row = RowBuilder::new(b"key", Arc::clone(families));
        for (qualifier, timestamp_ms, value) in cells {
            row.push(0, qualifier, *timestamp_ms, value);
        }
        row.finish().unwrap()
    }

    #[test]
    fn cells_of_one_column_are_versions() {
        let families: Arc<[String]> = Arc::new(["t".to_owned()]);
        let points = row(&families, &[(&[0, 7], 5, b"point"), (&[0, 0x17], 5, b"point")]);
        let stored = row(
            &families,
            &[
                (&[0, 7], 9, b"newer"),
                (&[0, 7], 5, b"equal"),
                (&[0, 7], 1, b"older"),
                (&[1, 0, 0], 2, b"{}"),
            ],
        );
        for (max_versions, expected) in [(1, &[9, 5, 2][..]), (2, &[9, 5, 5, 2]), (9, &[9, 5, 1, 5, 2])] {
            let merged = merge_rows(&points, &stored, &families, max_versions).unwrap();
            assert!(
                merged
                    .cells()
                    .map(|cell| cell.timestamp_ms)
                    .eq(expected.iter().copied())
            );
            let is_point = |cell: CellRef<'_>| cell.timestamp_ms != 5 || cell.value == b"point";
            assert!(merged.cells().all(is_point), "the point replaces an equal cell");
        }
    }
}
