//! Coalesces the points of several batches by row.
//!
//! ```text
//!   row a: 10 s, 20 s   row b: 10 s       row a: 10 s, 15 s, 20 s
//!   row a: 15 s, 20 s                ──►  row b: 10 s
//! ```
//!
//! The order of the batches decides between points with one timestamp: the last one stays, which is 20 s of the second
//! batch above.

use hashbrown::HashMap;
use oxtsdb_row_store::{CellAddress, FamilyId, MutationRef, TableName, WriteBatch};
use oxtsdb_schema::Qualifier;
use oxtsdb_schema::data_table::{APPEND_QUALIFIER, begins_as_append};
use oxtsdb_schema::row::{CompactedCell, append_point};
use rustc_hash::FxBuildHasher;

use super::batch::{FAMILY, POINT_BYTES};

/// The most points of a compacted cell, as many as OpenTSDB compacts at once. With milliseconds its
/// qualifier then has 16 KiB.
const CELL_POINTS: usize = 4096;

/// Points by row.
#[derive(Debug, Default)]
pub(super) struct PointsByRow<'a> {
    /// In the order of their first occurrence.
    keys: Vec<&'a [u8]>,
    /// In the order of the batches.
    points: Vec<Point<'a>>,
}

#[derive(Clone, Copy, Debug)]
struct Point<'a> {
    /// The position of its row among the keys.
    row: usize,
    qualifier: Qualifier,
    /// The cell's timestamp, if it is not the store's.
    timestamp_ms: Option<i64>,
    value: &'a [u8],
}

impl<'a> PointsByRow<'a> {
    /// The points of batches in which each cell holds one point.
    pub(super) fn from_batches(batches: impl Iterator<Item = &'a WriteBatch>) -> Self {
        let mut all = Self::default();
        let mut places: HashMap<&[u8], usize, FxBuildHasher> = HashMap::default();
        for row in batches.flat_map(WriteBatch::iter) {
            let place = *places.entry(row.key).or_insert_with(|| {
                all.keys.push(row.key);
                all.keys.len() - 1
            });
            all.points
                .extend(row.iter().filter_map(|mutation| match mutation {
                    MutationRef::Put {
                        qualifier,
                        timestamp_ms,
                        value,
                        ..
                    } => {
                        let (qualifier, _) = Qualifier::read(qualifier).ok()?;
                        Some(Point {
                            row: place,
                            qualifier,
                            timestamp_ms,
                            value,
                        })
                    }
                    _ => None,
                }));
        }
        all
    }

    /// Encodes each row as compacted cells if `is_compacted` is true for its key, else as a cell for each point.
    pub(super) fn into_cells(
        mut self,
        table: &TableName,
        is_compacted: impl Fn(&[u8]) -> bool,
    ) -> WriteBatch {
        let compacted: Vec<bool> = self.keys.iter().map(|key| is_compacted(key)).collect();
        self.keep_last_of_each(|point| {
            // Single cells may share an instant, but not a column.
            let column = (!compacted[point.row]).then_some(point.qualifier);
            (point.qualifier.offset_ms(), column)
        });
        let mut batch = WriteBatch::new(table.clone());
        let family = batch.family(FAMILY);
        let mut cell = CompactedCell::new();
        for (row, points) in self.rows() {
            batch.row(self.keys[row]);
            if !compacted[row] {
                put_each(&mut batch, family, points);
                continue;
            }
            for points in points.chunks(CELL_POINTS) {
                let looks_appended = |point: &&Point<'_>| begins_as_append(point.qualifier);
                let single = points.iter().take_while(looks_appended).count();
                let (single, points) = points.split_at(single);
                put_each(&mut batch, family, single);
                if points.is_empty() {
                    continue;
                }
                cell.clear();
                for point in points {
                    cell.push_encoded(point.qualifier, point.value)
                        .expect("points are sorted, and no instant occurs twice");
                }
                let newest_ms = points.iter().filter_map(|point| point.timestamp_ms).max();
                let (qualifier, value) = cell.finish().expect("a chunk has a point");
                put(&mut batch, family, qualifier, newest_ms, value);
            }
        }
        batch
    }

    /// The values to append, by cell. They contain all points in order: readers use the last one of an instant.
    pub(super) fn into_appends(mut self) -> Vec<(CellAddress, Vec<u8>)> {
        self.points.sort_by_key(|point| point.row);
        self.rows()
            .map(|(row, points)| {
                let mut value = Vec::with_capacity(points.len() * POINT_BYTES / 4);
                for point in points {
                    append_point(point.qualifier, point.value, &mut value);
                }
                (CellAddress::new(self.keys[row], FAMILY, APPEND_QUALIFIER), value)
            })
            .collect()
    }

    /// Sorts by row and `key`; of points with equal keys the last wins.
    fn keep_last_of_each<K: Ord>(&mut self, key: impl Fn(&Point<'_>) -> K) {
        let key = |point: &Point<'_>| (point.row, key(point));
        self.points.sort_by_key(key);
        self.points.dedup_by(|later, kept| {
            let is_same = key(later) == key(kept);
            if is_same {
                *kept = *later;
            }
            is_same
        });
    }

    /// The points of each row, with the row's place among the keys; they are sorted by it.
    fn rows(&self) -> impl Iterator<Item = (usize, &[Point<'a>])> {
        self.points
            .chunk_by(|a, b| a.row == b.row)
            .filter_map(|points| Some((points.first()?.row, points)))
    }
}

/// Puts a cell for each point.
fn put_each(batch: &mut WriteBatch, family: FamilyId, points: &[Point<'_>]) {
    for point in points {
        put(
            batch,
            family,
            point.qualifier.as_bytes(),
            point.timestamp_ms,
            point.value,
        );
    }
}

/// Puts a cell, at a time of its own if it has one.
fn put(batch: &mut WriteBatch, family: FamilyId, qualifier: &[u8], timestamp_ms: Option<i64>, value: &[u8]) {
    match timestamp_ms {
        None => batch.put(family, qualifier, value),
        Some(timestamp_ms) => batch.put_at(family, qualifier, timestamp_ms, value),
    };
}

#[cfg(test)]
mod tests;
