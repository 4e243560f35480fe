//! Damage that a store has isolated, and which scans may skip.

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::{StoreError, TableName};

/// Rows of a table that lost stored cells, all of them or some.
///
/// Reading them fails with [`StoreError::Corrupt`] unless the read skips damage
/// ([`Scan::skip_damaged`](crate::Scan::skip_damaged)). Writes are accepted. Rows within the range that are
/// known to be intact can be read by key; a scan of the range fails regardless, since the lost bytes may have
/// held rows between them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DamagedRange {
    /// The table.
    pub table: TableName,
    /// First row key, inclusive; empty: the table's first row.
    pub start: Vec<u8>,
    /// Last row key, exclusive; empty: through the table's last row.
    pub stop: Vec<u8>,
    /// The file with the damaged bytes.
    pub file: String,
    /// The damage, in words.
    pub detail: String,
}

impl DamagedRange {
    /// The error of a read that touches the range.
    pub fn error(&self) -> StoreError {
        StoreError::Corrupt {
            place: self.place(),
            detail: self.detail.clone(),
        }
    }

    /// Table, rows and file.
    fn place(&self) -> String {
        let named = |key: &[u8], open: &str| match key {
            [] => open.to_owned(),
            key => key.escape_ascii().to_string(),
        };
        format!(
            "table `{}` rows from {} to {}, file {}",
            self.table,
            named(&self.start, "the first"),
            named(&self.stop, "the end"),
            self.file
        )
    }
}

impl fmt::Display for DamagedRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place(), self.detail)
    }
}

/// The most ranges that a log keeps; further ones are only counted.
const MAX_RANGES: usize = 1_000;

/// Collects the damage that a scan skipped. Clones share one list.
#[derive(Clone, Debug, Default)]
pub struct DamageLog(Arc<Mutex<Recorded>>);

#[derive(Debug, Default)]
struct Recorded {
    ranges: Vec<DamagedRange>,
    omitted: u64,
}

impl DamageLog {
    /// Adds a range unless it is already recorded.
    pub fn record(&self, range: DamagedRange) {
        let mut recorded = self.0.lock();
        if recorded.ranges.contains(&range) {
            return;
        }
        if recorded.ranges.len() < MAX_RANGES {
            recorded.ranges.push(range);
        } else {
            recorded.omitted += 1;
        }
    }

    /// The skipped ranges, at most 1,000.
    pub fn ranges(&self) -> Vec<DamagedRange> {
        self.0.lock().ranges.clone()
    }

    /// The number of skipped ranges beyond [`DamageLog::ranges`].
    pub fn omitted(&self) -> u64 {
        self.0.lock().omitted
    }

    /// Whether the scan skipped nothing.
    pub fn is_empty(&self) -> bool {
        self.0.lock().ranges.is_empty()
    }
}
