//! How much a range of rows holds.

use std::collections::BTreeMap;

/// What was found of a range by its keys, without reading its rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RangeMeasure {
    /// Rows. One that was deleted a while ago may be among them.
    pub rows: u64,
    /// Bytes that they take in the store, about: of rows in memory and of packed blocks on disk.
    pub bytes: u64,
    /// The key of the last row that was counted, if there are more behind it.
    pub last_key: Option<Vec<u8>>,
}

impl RangeMeasure {
    /// The first `limit` rows of some, with their bytes.
    pub(crate) fn of(rows: BTreeMap<Vec<u8>, u64>, limit: usize) -> Self {
        let mut measure = Self::default();
        let is_cut = rows.len() > limit;
        for (key, bytes) in rows.into_iter().take(limit) {
            measure.rows += 1;
            measure.bytes += bytes;
            if is_cut {
                measure.last_key = Some(key);
            }
        }
        measure
    }
}
