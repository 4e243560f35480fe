//! Points of several batches, brought together by row.
//!
//! ```text
//!   row a: 10 s, 20 s   row b: 10 s       row a: 10 s, 15 s, 20 s
//!   row a: 15 s, 20 s                ──►  row b: 10 s
//! ```
//!
//! Batches come in the order in which their points are to count: of several points for one instant
//! the last one stays, which is 20 s of the second batch above.

use hashbrown::HashMap;
use oxtsdb_row_store::{CellAddress, FamilyId, MutationRef, TableName, WriteBatch};
use oxtsdb_schema::Qualifier;
use oxtsdb_schema::data_table::APPEND_QUALIFIER;
use oxtsdb_schema::row::{CompactedCell, append_point};
use rustc_hash::FxBuildHasher;

use super::rows::{FAMILY, POINT_BYTES};

/// The most points of a compacted cell, as many as OpenTSDB compacts at once. With milliseconds its
/// qualifier then has 16 KiB.
const CELL_POINTS: usize = 4096;

/// Points by row.
#[derive(Debug, Default)]
pub(super) struct PointsByRow<'a> {
    /// In the order in which they came first.
    keys: Vec<&'a [u8]>,
    /// In the order in which they came.
    points: Vec<Point<'a>>,
}

#[derive(Clone, Copy, Debug)]
struct Point<'a> {
    /// The place of its row among the keys.
    row: usize,
    qualifier: Qualifier,
    value: &'a [u8],
}

impl<'a> PointsByRow<'a> {
    /// The points of batches in which each cell holds one point.
    pub(super) fn of(batches: impl Iterator<Item = &'a WriteBatch>) -> Self {
        let mut all = Self::default();
        let mut places: HashMap<&[u8], usize, FxBuildHasher> = HashMap::default();
        for row in batches.flat_map(WriteBatch::iter) {
            let place = *places.entry(row.key).or_insert_with(|| {
                all.keys.push(row.key);
                all.keys.len() - 1
            });
            all.points
                .extend(row.iter().filter_map(|mutation| match mutation {
                    MutationRef::Put { qualifier, value, .. } => {
                        let (qualifier, _) = Qualifier::read(qualifier).ok()?;
                        Some(Point {
                            row: place,
                            qualifier,
                            value,
                        })
                    }
                    _ => None,
                }));
        }
        all
    }

    /// The rows with a cell for each point.
    pub(super) fn into_single_cells(mut self, table: &TableName) -> WriteBatch {
        self.keep_last_of_each(|point| point.qualifier);
        self.batch(table, |batch, family, points| {
            for point in points {
                batch.put(family, point.qualifier.as_bytes(), point.value);
            }
        })
    }

    /// The rows with their points in compacted cells.
    pub(super) fn into_compacted_cells(mut self, table: &TableName) -> WriteBatch {
        self.keep_last_of_each(|point| point.qualifier.offset_ms());
        let mut cell = CompactedCell::new();
        self.batch(table, |batch, family, points| {
            for points in points.chunks(CELL_POINTS) {
                cell.clear();
                for point in points {
                    cell.push_encoded(point.qualifier, point.value)
                        .expect("points are sorted, and no instant is there twice");
                }
                let (qualifier, value) = cell.finish().expect("a chunk has a point");
                batch.put(family, qualifier, value);
            }
        })
    }

    /// What is to be appended to which cells. All points are in it, as they came: the last one of an
    /// instant counts when they are read.
    pub(super) fn into_appends(mut self) -> Vec<(CellAddress, Vec<u8>)> {
        self.points.sort_by_key(|point| point.row);
        self.rows()
            .map(|(key, points)| {
                let mut value = Vec::with_capacity(points.len() * POINT_BYTES / 4);
                for point in points {
                    append_point(point.qualifier, point.value, &mut value);
                }
                (CellAddress::new(key, FAMILY, APPEND_QUALIFIER), value)
            })
            .collect()
    }

    /// Sorts by row and by what makes two points the same one, of which the last stays.
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

    /// The rows of points that are sorted by row.
    fn rows(&self) -> impl Iterator<Item = (&'a [u8], &[Point<'a>])> {
        self.points
            .chunk_by(|a, b| a.row == b.row)
            .filter_map(|points| Some((self.keys[points.first()?.row], points)))
    }

    /// A batch in which `put` puts the points of each row.
    fn batch(
        &self,
        table: &TableName,
        mut put: impl FnMut(&mut WriteBatch, FamilyId, &[Point<'_>]),
    ) -> WriteBatch {
        let mut batch = WriteBatch::new(table.clone());
        let family = batch.family(FAMILY);
        for (key, points) in self.rows() {
            batch.row(key);
            put(&mut batch, family, points);
        }
        batch
    }
}

#[cfg(test)]
mod tests;
