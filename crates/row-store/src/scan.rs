//! Requests for rows: which keys, which columns, which versions.

use std::fmt;
use std::sync::Arc;

use futures::stream::BoxStream;

use crate::{DamageLog, Row, StoreError};

/// The rows of a scan, in non-empty batches. Dropping the stream cancels the scan.
pub type RowStream = BoxStream<'static, Result<Vec<Row>, StoreError>>;

/// Selects rows by their keys.
///
/// A store may apply the filter before it reads a row's cells, so rejecting a row is cheap.
#[derive(Clone)]
pub struct RowFilter {
    keep: Arc<Keep>,
    seek: Option<Arc<Seek>>,
    ranges: Option<Arc<Ranges>>,
    parts: Arc<[KeyPart]>,
    keeps_most: bool,
}

/// Bytes that a row key contains: a prefix, directly followed by one of several endings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyPart {
    /// The common prefix of all alternatives.
    pub prefix: Vec<u8>,
    /// The bytes that follow the prefix, one for each alternative.
    pub endings: Vec<Vec<u8>>,
}

/// Whether a row key matches.
type Keep = dyn Fn(&[u8]) -> bool + Send + Sync;

/// The next key that may match after a key that does not.
type Seek = dyn Fn(&[u8]) -> Option<Vec<u8>> + Send + Sync;

/// The ranges of the keys that may match between two keys, up to a number of ranges.
type Ranges = dyn Fn(&[u8], &[u8], usize) -> Option<Vec<KeyRange>> + Send + Sync;

/// Row keys from the first (inside) to the second (outside).
pub type KeyRange = (Vec<u8>, Vec<u8>);

impl RowFilter {
    /// A filter that selects the rows for which `keep` returns true.
    pub fn new(keep: impl Fn(&[u8]) -> bool + Send + Sync + 'static) -> Self {
        Self {
            keep: Arc::new(keep),
            seek: None,
            ranges: None,
            parts: Arc::default(),
            keeps_most: false,
        }
    }

    /// Declares whether most rows are expected to match: a remote store then reads rows, and does not list their keys
    /// first.
    #[must_use]
    pub fn keeping_most(mut self, keeps_most: bool) -> Self {
        self.keeps_most = keeps_most;
        self
    }

    /// Adds a necessary condition that a remote store can evaluate before it sends rows: each matching key contains all
    /// of these parts, anywhere.
    #[must_use]
    pub fn with_parts(mut self, parts: impl Into<Arc<[KeyPart]>>) -> Self {
        self.parts = parts.into();
        self
    }

    /// Adds seek hints: for a key that does not match, `seek` returns the next key that may match. A scan can then
    /// skip the keys in between, as HBase's `SEEK_NEXT_USING_HINT` does. Reversed scans ignore hints.
    #[must_use]
    pub fn with_seek(mut self, seek: impl Fn(&[u8]) -> Option<Vec<u8>> + Send + Sync + 'static) -> Self {
        self.seek = Some(Arc::new(seek));
        self
    }

    /// Adds a necessary condition that a remote store can evaluate by seeking: between two keys, from the first (inside) to
    /// the second (outside), only keys in some ranges match. `ranges` returns these in order, without overlaps, or
    /// `None` if it does not know them or they are more than a number.
    #[must_use]
    pub fn with_ranges(
        mut self,
        ranges: impl Fn(&[u8], &[u8], usize) -> Option<Vec<KeyRange>> + Send + Sync + 'static,
    ) -> Self {
        self.ranges = Some(Arc::new(ranges));
        self
    }

    /// The ranges of the keys that may match from `start` (inside) to `stop` (outside); `None`: they are not known, or more
    /// than `most`.
    pub fn ranges(&self, start: &[u8], stop: &[u8], most: usize) -> Option<Vec<KeyRange>> {
        (self.ranges.as_ref()?)(start, stop, most)
    }

    /// Whether a row matches.
    pub fn keeps(&self, row_key: &[u8]) -> bool {
        (self.keep)(row_key)
    }

    /// The parts that each matching key contains.
    pub fn parts(&self) -> &[KeyPart] {
        &self.parts
    }

    /// Whether most rows are expected to match.
    pub fn keeps_most(&self) -> bool {
        self.keeps_most
    }

    /// Whether the filter has seek hints.
    pub fn has_seek(&self) -> bool {
        self.seek.is_some()
    }

    /// The next key that may match after a rejected key; `None`: the next row.
    pub fn seek_after(&self, row_key: &[u8]) -> Option<Vec<u8>> {
        (self.seek.as_ref()?)(row_key).filter(|target| target.as_slice() > row_key)
    }
}

impl fmt::Debug for RowFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RowFilter")
    }
}

/// The columns of a row to return.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ColumnSelection {
    /// All columns of all families.
    #[default]
    All,
    /// All columns of one family.
    Family(String),
    /// These columns, as family and qualifier.
    Columns(Vec<(String, Vec<u8>)>),
}

/// Counts the memory of rows that a store has fetched for a scan and that the scan has not returned yet.
pub trait FetchMemory: fmt::Debug + Send + Sync {
    /// Counts fetched rows. They exist, so this cannot fail: the owner rejects its next allocation.
    fn fetched(&self, bytes: u64);

    /// Counts rows that were returned or dropped.
    fn returned(&self, bytes: u64);
}

/// A scan of one table: a range of row keys, and the part of each row to return.
#[derive(Clone, Debug)]
pub struct Scan {
    /// First row key, inclusive; empty: from the first row.
    pub start: Vec<u8>,
    /// Last row key, exclusive; empty: to the last row.
    pub stop: Vec<u8>,
    /// The columns to return. Rows with none of them are omitted.
    pub columns: ColumnSelection,
    /// Versions of a cell, newest first; at least 1.
    pub max_versions: u32,
    /// The most rows to return.
    pub limit: Option<u64>,
    /// Whether the scan descends from the end of the range to its start.
    pub reverse: bool,
    /// Whether rows may come in any order, so that a store can read parts of the range concurrently. Such a scan cannot
    /// be resumed.
    pub any_order: bool,
    /// The most rows in a batch; at least 1.
    pub batch_rows: usize,
    /// Selects rows by key.
    pub filter: Option<RowFilter>,
    /// Skips damaged rows and records them here instead of failing with [`StoreError::Corrupt`]. In a damaged range
    /// the scan returns cells that were written since, and cells that older versions still hold.
    pub skip_damaged: Option<DamageLog>,
    /// Counts rows that a store reads ahead.
    pub memory: Option<Arc<dyn FetchMemory>>,
}

impl Scan {
    /// The rows from `start` (inclusive) to `stop` (exclusive); empty means unbounded.
    pub fn range(start: impl Into<Vec<u8>>, stop: impl Into<Vec<u8>>) -> Self {
        Self {
            start: start.into(),
            stop: stop.into(),
            columns: ColumnSelection::All,
            max_versions: 1,
            limit: None,
            reverse: false,
            any_order: false,
            batch_rows: 128,
            filter: None,
            skip_damaged: None,
            memory: None,
        }
    }

    /// The rows with keys that have this prefix; empty: all rows.
    pub fn prefix(prefix: &[u8]) -> Self {
        Self::range(prefix, prefix_end(prefix))
    }

    /// Continues the scan after the last row that was received from it.
    #[must_use]
    pub fn resume_after(mut self, last_row_key: &[u8]) -> Self {
        if self.reverse {
            self.stop = last_row_key.to_vec();
        } else {
            self.start = [last_row_key, &[0]].concat();
        }
        self
    }
}

/// The smallest key greater than all keys with this prefix; empty if there is none.
pub fn prefix_end(prefix: &[u8]) -> Vec<u8> {
    let kept = prefix
        .iter()
        .rposition(|byte| *byte != 0xff)
        .map_or(0, |last| last + 1);
    let mut end = prefix[..kept].to_vec();
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    end
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefix_end_is_the_next_key_of_that_length() {
        assert_eq!(prefix_end(b"ab"), b"ac");
        assert_eq!(prefix_end(&[1, 0xff, 0xff]), [2]);
        assert!(
            prefix_end(&[0xff, 0xff]).is_empty(),
            "no key is greater than all of them"
        );
        assert!(prefix_end(b"").is_empty());
    }
}
