//! Merging the cells of a row whose points do not simply follow one another: cells of both
//! resolutions, points written after a compaction, instants that are there twice.
//!
//! Each cell is a column of points. The columns are merged by instant; of equal instants the column
//! with the newer cell timestamp comes first, then the cell that comes first. The first point of an
//! instant is kept. Columns are walked in stored order, except that appended points are sorted
//! before, and the last of an instant replaces those before it, whatever the policy.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::cell::{
    AppendedPoints, CellKind, CellRef, CompactedPoints, RawPoint, decode_value, shown, single_point,
};
use super::decode::{DuplicatePolicy, RowStats};
use super::error::RowError;
use super::points::Points;

/// The points of one cell that are not merged yet.
enum Column<'a> {
    /// No more.
    Point,
    Compacted(CompactedPoints<'a>),
    Appended(std::vec::IntoIter<RawPoint<'a>>),
}

/// The next point of a column, in the order in which points are taken.
struct Head<'a> {
    /// Instant, newest cell first, index of the column.
    rank: (u32, Reverse<i64>, usize),
    point: RawPoint<'a>,
}

/// Merges cells into `out`. On an error `out` holds some of the points.
pub(super) fn merge<'a>(
    cells: impl Iterator<Item = CellRef<'a>>,
    duplicates: DuplicatePolicy,
    out: &mut Points,
) -> Result<RowStats, RowError> {
    let mut stats = RowStats::default();
    let mut columns = Vec::new();
    let mut heads = BinaryHeap::new();
    for cell in cells {
        let mut column = match CellKind::of(cell.qualifier) {
            CellKind::Point => {
                heads.push(head(single_point(cell)?, cell.timestamp_ms, columns.len()));
                columns.push((Column::Point, cell.timestamp_ms));
                continue;
            }
            CellKind::Compacted => Column::Compacted(CompactedPoints::of(cell)),
            CellKind::Appended => Column::Appended(last_of_each_instant(cell, &mut stats)?),
            other => {
                stats.skip(other);
                continue;
            }
        };
        if let Some(point) = column.next(&mut stats)? {
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
            && let Some(next) = column.next(&mut stats)?
        {
            heads.push(head(next, *timestamp_ms, index));
        }
        let offset_ms = point.0.offset_ms();
        match previous {
            Some(kept) if kept.0.offset_ms() == offset_ms => {
                if duplicates == DuplicatePolicy::Error && kept.1 != point.1 {
                    return Err(duplicate(kept, point));
                }
                stats.duplicates += 1;
                continue;
            }
            Some(before) if before.0.offset_ms() > offset_ms => stats.out_of_order += 1,
            _ => {}
        }
        out.push(offset_ms, decode_value(point.0, point.1)?);
        previous = Some(point);
    }
    Ok(stats)
}

impl<'a> Column<'a> {
    fn next(&mut self, stats: &mut RowStats) -> Result<Option<RawPoint<'a>>, RowError> {
        match self {
            Column::Point => Ok(None),
            Column::Compacted(points) => {
                let next = points.next();
                if next.is_none() {
                    // Counted once: the column is not asked again.
                    stats.cut_off_cells += usize::from(points.end()?);
                }
                Ok(next)
            }
            Column::Appended(points) => Ok(points.next()),
        }
    }
}

fn head(point: RawPoint<'_>, timestamp_ms: i64, index: usize) -> Reverse<Head<'_>> {
    Reverse(Head {
        rank: (point.0.offset_ms(), Reverse(timestamp_ms), index),
        point,
    })
}

/// The points of a cell of appended points, ascending, and of each instant the last that arrived.
fn last_of_each_instant<'a>(
    cell: CellRef<'a>,
    stats: &mut RowStats,
) -> Result<std::vec::IntoIter<RawPoint<'a>>, RowError> {
    let mut walk = AppendedPoints::of(cell);
    let mut points: Vec<_> = walk.by_ref().collect();
    walk.end()?;
    let arrived = points.len();
    // Reversed and sorted stably, the last that arrived is the first of its instant.
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
        kept_value: shown(kept.1),
        other: other.0.to_string(),
        other_value: shown(other.1),
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
