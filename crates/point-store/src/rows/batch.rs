//! A batch of points as cells of rows.

use std::hash::BuildHasher as _;

use oxtsdb_row_store::{FamilyId, TableName, WriteBatch};
use oxtsdb_schema::{BaseTime, Qualifier, RowKeyLayout, Timestamp, Value};
use rustc_hash::FxBuildHasher;

/// The family of table `tsdb`.
pub(super) const FAMILY: &str = "t";

/// The usual upper bound of a point in a batch, in bytes: row key, qualifier, value.
pub(super) const POINT_BYTES: usize = 64;

/// The upper bound of a point's cell and its row's frame, without the row key: operations, lengths, family,
/// qualifier, timestamp, value.
pub const CELL_BYTES: usize = 32;

/// The upper bound of a point: a row of its own with a key of `max_tags` tags, and a cell.
pub fn largest_point_bytes(layout: &RowKeyLayout, max_tags: usize) -> usize {
    let tag = layout.widths.tagk.bytes() + layout.widths.tagv.bytes();
    let key = layout.salt.width() + layout.widths.metric.bytes() + size_of::<u32>() + max_tags * tag;
    key + CELL_BYTES
}

/// Encoded points, each in a cell of its own. Consecutive points of one row share the row.
///
/// There is one batch for each lane to the store, or only one; the row key decides the lane.
#[derive(Debug)]
pub(super) struct Rows {
    lanes: Vec<WriteBatch>,
    family: FamilyId,
    use_otsdb_timestamp: bool,
    /// The current row: its series and hour.
    last: Option<(usize, BaseTime)>,
    /// The lane of that row.
    lane: usize,
}

impl Rows {
    /// Empty batches with capacity for `points`, on 1 lane or more. With `use_otsdb_timestamp` a cell has the
    /// timestamp of its point, else one of the store.
    pub(super) fn new(table: &TableName, points: usize, lanes: usize, use_otsdb_timestamp: bool) -> Self {
        let mut empty = WriteBatch::new(table.clone());
        let family = empty.family(FAMILY);
        let mut lanes = vec![empty; lanes];
        let bytes = points * POINT_BYTES / lanes.len();
        lanes.iter_mut().for_each(|batch| batch.reserve(bytes));
        Self {
            lanes,
            family,
            use_otsdb_timestamp,
            last: None,
            lane: 0,
        }
    }

    /// The batch of each lane.
    pub(super) fn into_lanes(self) -> Vec<WriteBatch> {
        self.lanes
    }

    /// Adds a point. `series` identifies the series within this batch; `key` returns the row
    /// key, and is called if the point begins another row.
    #[inline]
    pub(super) fn point<'k>(
        &mut self,
        series: usize,
        timestamp: Timestamp,
        value: &Value,
        key: impl FnOnce(BaseTime) -> &'k [u8],
    ) {
        let base = timestamp.base_time();
        if self.last != Some((series, base)) {
            let key = key(base);
            self.lane = lane_of(key, self.lanes.len());
            self.lanes[self.lane].row(key);
            self.last = Some((series, base));
        }
        let (batch, qualifier) = (&mut self.lanes[self.lane], Qualifier::new(timestamp, value));
        if self.use_otsdb_timestamp {
            let timestamp_ms = timestamp.as_millis();
            batch.put_at(
                self.family,
                qualifier.as_bytes(),
                timestamp_ms,
                value.encoded().as_bytes(),
            );
        } else {
            batch.put(self.family, qualifier.as_bytes(), value.encoded().as_bytes());
        }
    }
}

/// The lane of a row: writes of one row keep their order.
#[inline]
pub fn lane_of(row_key: &[u8], lanes: usize) -> usize {
    if lanes == 1 {
        return 0;
    }
    // The upper bits are the better ones.
    usize::try_from(FxBuildHasher.hash_one(row_key) >> 33).unwrap_or(0) % lanes
}
