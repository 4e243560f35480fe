//! Merges the cells of a row that is not in order of time: cells of both resolutions, points written after a
//! compaction, and duplicates.
//!
//! Each cell is a column of points in order of time. Columns are merged by instant; at equal instants the
//! column with the newer cell timestamp comes first, then the earlier cell, and the first point of an instant
//! is kept. Appended points are sorted first, and the last one of an instant replaces earlier ones regardless
//! of the policy; a compacted cell that is out of order is sorted as well.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::cell::{AppendedPoints, CellKind, CellRef, CompactedPoints, RawPoint, decode_value, single_point};
use super::error::RowError;
use super::points::Points;
use super::stats::{DuplicatePolicy, RowStats};

/// The remaining points of one cell.
enum Column<'a> {
    /// No more.
    Point,
    Compacted(CompactedPoints<'a>),
    Sorted(std::vec::IntoIter<RawPoint<'a>>),
}

/// The next point of a column, with its rank in the merge order.
struct Head<'a> {
    /// Instant, newest cell first, index of the column.
    rank: (u32, Reverse<i64>, usize),
    point: RawPoint<'a>,
}

/// Merges cells into `out`. After an error `out` holds some of the points.
pub(super) fn merge<'a>(
    cells: impl Iterator<Item = CellRef<'a>>,
    duplicates: DuplicatePolicy,
    out: &mut Points,
) -> Result<RowStats, RowError> {
    merge_encoded(cells, duplicates, |(qualifier, raw)| {
        out.push(qualifier.offset_ms(), decode_value(qualifier, raw)?);
        Ok(())
    })
}

/// Merges cells and emits their points, ascending, in their encoded form.
pub(super) fn merge_encoded<'a>(
    cells: impl Iterator<Item = CellRef<'a>>,
    duplicates: DuplicatePolicy,
    mut emit: impl FnMut(RawPoint<'a>) -> Result<(), RowError>,
) -> Result<RowStats, RowError> {
    let mut stats = RowStats::default();
    let mut columns = Vec::new();
    let mut heads = BinaryHeap::new();
    for cell in cells {
        let mut column = match CellKind::from_qualifier(cell.qualifier) {
            CellKind::Point => {
                heads.push(head(single_point(cell)?, cell.timestamp_ms, columns.len()));
                columns.push((Column::Point, cell.timestamp_ms));
                continue;
            }
            CellKind::Compacted => compacted(cell, &mut stats)?,
            CellKind::Appended => Column::Sorted(last_of_each_instant(cell, &mut stats)?),
            other => {
                stats.skip(other);
                continue;
            }
        };
        if let Some(point) = column.next() {
            heads.push(head(point, cell.timestamp_ms, columns.len()));
            columns.push((column, cell.timestamp_ms));
        }
    }
    let mut previous: Option<RawPoint<'a>> = None;
    while let Some(Reverse(Head {
        rank: (_, _, index),
        point,
    })) = heads.pop()
    {
        if let Some((column, timestamp_ms)) = columns.get_mut(index)
            && let Some(next) = column.next()
        {
            heads.push(head(next, *timestamp_ms, index));
        }
        let offset_ms = point.0.offset_ms();
        if let Some(kept) = previous.filter(|kept| kept.0.offset_ms() == offset_ms) {
            if duplicates == DuplicatePolicy::Error && kept.1 != point.1 {
                return Err(duplicate(kept, point));
            }
            stats.duplicates += 1;
            continue;
        }
        emit(point)?;
        previous = Some(point);
    }
    Ok(stats)
}

impl<'a> Column<'a> {
    fn next(&mut self) -> Option<RawPoint<'a>> {
        match self {
            Column::Point => None,
            Column::Compacted(points) => points.next(),
            Column::Sorted(points) => points.next(),
        }
    }
}

fn head(point: RawPoint<'_>, timestamp_ms: i64, index: usize) -> Reverse<Head<'_>> {
    Reverse(Head {
        rank: (point.0.offset_ms(), Reverse(timestamp_ms), index),
        point,
    })
}

/// A compacted cell, after one pass that checks its lengths and its order.
fn compacted<'a>(cell: CellRef<'a>, stats: &mut RowStats) -> Result<Column<'a>, RowError> {
    let mut walk = CompactedPoints::new(cell);
    let (mut previous_ms, mut descents) = (0, 0);
    for (qualifier, _) in &mut walk {
        let offset_ms = qualifier.offset_ms();
        descents += usize::from(offset_ms < previous_ms);
        previous_ms = offset_ms;
    }
    walk.end()?;
    if descents == 0 {
        return Ok(Column::Compacted(CompactedPoints::new(cell)));
    }
    stats.out_of_order += descents;
    let mut points: Vec<_> = CompactedPoints::new(cell).collect();
    points.sort_by_key(|(qualifier, _)| qualifier.offset_ms());
    Ok(Column::Sorted(points.into_iter()))
}

/// The points of a cell of appended points, ascending, with only the last arrival of each instant.
fn last_of_each_instant<'a>(
    cell: CellRef<'a>,
    stats: &mut RowStats,
) -> Result<std::vec::IntoIter<RawPoint<'a>>, RowError> {
    let mut walk = AppendedPoints::new(cell);
    let mut points: Vec<_> = walk.by_ref().collect();
    walk.end()?;
    let arrived = points.len();
    // After reversing and a stable sort, the last arrival is the first of its instant.
    points.reverse();
    points.sort_by_key(|(qualifier, _)| qualifier.offset_ms());
    points.dedup_by_key(|(qualifier, _)| qualifier.offset_ms());
    stats.duplicates += arrived - points.len();
    Ok(points.into_iter())
}

fn duplicate(kept: RawPoint<'_>, other: RawPoint<'_>) -> RowError {
    RowError::Duplicate {
        offset_ms: kept.0.offset_ms(),
        kept: kept.0.to_string(),
        kept_value: hex::encode_upper(kept.1),
        other: other.0.to_string(),
        other_value: hex::encode_upper(other.1),
    }
}

impl Ord for Head<'_> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.rank.cmp(&other.rank)
    }
}

impl PartialOrd for Head<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Head<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.rank == other.rank
    }
}

impl Eq for Head<'_> {}
