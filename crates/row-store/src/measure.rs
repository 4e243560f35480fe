//! The size of a range of rows.

use std::collections::BTreeMap;

/// The size of a range, determined from its keys without reading its rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RangeMeasure {
    /// Rows. May include rows that were deleted recently.
    pub rows: u64,
    /// Approximate bytes in the store: of rows in memory and of encoded blocks on disk.
    pub bytes: u64,
    /// The last counted key, if the range has further rows.
    pub last_key: Option<Vec<u8>>,
}

impl RangeMeasure {
    /// Sums the first `limit` rows, with their sizes in bytes.
    pub(crate) fn from_rows(rows: BTreeMap<Vec<u8>, u64>, limit: usize) -> Self {
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
