//! Damage that a store has set aside.

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::{StoreError, TableName};

/// Rows of a table whose stored cells were lost, all or in part.
///
/// A read of them fails with [`StoreError::Corrupt`], unless it passes over damage
/// ([`Scan::skip_damaged`](crate::Scan::skip_damaged)). Writes to them go on. Rows within that are known
/// to be intact can be read by their keys; a scan of the range fails in any case, since the lost
/// bytes may have held rows between them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DamagedRange {
    /// The table.
    pub table: TableName,
    /// First row key inside; empty: the table's first row.
    pub start: Vec<u8>,
    /// First row key outside; empty: through the table's last row.
    pub stop: Vec<u8>,
    /// The file that has the damaged bytes.
    pub file: String,
    /// What was found.
    pub detail: String,
}

impl DamagedRange {
    /// The error of a read that meets the range.
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

/// Ranges that a log keeps, at most; it counts those beyond.
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
    /// Adds a range, once.
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

    /// The ranges that were skipped so far, at most 1,000.
    pub fn ranges(&self) -> Vec<DamagedRange> {
        self.0.lock().ranges.clone()
    }

    /// Ranges beyond those of [`DamageLog::ranges`].
    pub fn omitted(&self) -> u64 {
        self.0.lock().omitted
    }

    /// Whether no damage was met.
    pub fn is_empty(&self) -> bool {
        self.0.lock().ranges.is_empty()
    }
}
