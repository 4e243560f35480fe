//! Names of and within table `tsdb`, which holds the points, and of the related tables.
//!
//! Family names are fixed; table names are settings of a deployment, and these are their defaults.
//!
//! Source: OpenTSDB 2.4, `TSDB.FAMILY`, `Config.setDefaults`, `Const.MAX_NUM_TAGS`, `TSMeta`.

use crate::Qualifier;

/// The family of table `tsdb` (and of `tsdb-tree` and the rollup tables).
pub const FAMILY: &[u8] = b"t";

/// Default name of the table of points (`tsd.storage.hbase.data_table`).
pub const DATA_TABLE: &str = "tsdb";

/// Default name of the table of names and UIDs (`tsd.storage.hbase.uid_table`).
pub const UID_TABLE: &str = "tsdb-uid";

/// Default name of the table of series metadata (`tsd.storage.hbase.meta_table`).
pub const META_TABLE: &str = "tsdb-meta";

/// The family of table `tsdb-meta`.
pub const META_FAMILY: &str = "name";

/// The qualifier of a series' counter of points in table `tsdb-meta`: 8 bytes, signed. The timestamp of the
/// cell is the arrival time of the last point.
pub const COUNTER_QUALIFIER: &[u8] = b"ts_ctr";

/// Default name of the table of trees (`tsd.storage.hbase.tree_table`).
pub const TREE_TABLE: &str = "tsdb-tree";

/// The default limit of tags per series (`tsd.storage.max_tags`).
pub const MAX_TAGS_DEFAULT: usize = 8;

/// The qualifier of the cell that holds a row's points if they are written by append
/// (`tsd.storage.enable_appends`).
pub const APPEND_QUALIFIER: &[u8] = &[0x05, 0x00, 0x00];

/// Whether a compacted cell that begins with this qualifier looks like the column of appended points: its first point is
/// 80 to 95 s after the hour. OpenTSDB's `fsck` and `/api/query/last` decode such a cell as appended points whatever its length,
/// and report damage; cells of one point they decode as points. So no compacted cell may begin with it.
#[must_use]
pub fn begins_as_append(qualifier: Qualifier) -> bool {
    qualifier.as_bytes().first() == APPEND_QUALIFIER.first()
}
