//! What to read.

use std::fmt;
use std::sync::Arc;

use futures::stream::BoxStream;

use crate::{DamageLog, Row, StoreError};

/// Rows of a scan, in batches that are never empty. Dropping the stream ends the scan.
pub type RowStream = BoxStream<'static, Result<Vec<Row>, StoreError>>;

/// Says by its key whether a row is wanted.
///
/// A store may ask it before it reads the row's cells, which makes passing over a row cheap.
#[derive(Clone)]
pub struct RowFilter {
    keep: Arc<Keep>,
    seek: Option<Arc<Seek>>,
}

/// Says whether a row key is wanted.
type Keep = dyn Fn(&[u8]) -> bool + Send + Sync;

/// Says where the rows behind an unwanted one may be wanted again.
type Seek = dyn Fn(&[u8]) -> Option<Vec<u8>> + Send + Sync;

impl RowFilter {
    /// A filter that keeps the rows for whose keys `keep` is true.
    pub fn new(keep: impl Fn(&[u8]) -> bool + Send + Sync + 'static) -> Self {
        Self {
            keep: Arc::new(keep),
            seek: None,
        }
    }

    /// The filter with hints: `seek` is given a key that is not kept, and says that no row between
    /// that one and its result is kept either. A scan may go on there, as HBase's filters make it do
    /// with `SEEK_NEXT_USING_HINT`; a reversed one does not.
    #[must_use]
    pub fn with_seek(mut self, seek: impl Fn(&[u8]) -> Option<Vec<u8>> + Send + Sync + 'static) -> Self {
        self.seek = Some(Arc::new(seek));
        self
    }

    /// Whether the row is wanted.
    pub fn keeps(&self, row_key: &[u8]) -> bool {
        (self.keep)(row_key)
    }

    /// Whether there are hints at all.
    pub fn has_seek(&self) -> bool {
        self.seek.is_some()
    }

    /// Where to go on behind a row that is not kept; `None`: with the next row.
    pub fn seek_after(&self, row_key: &[u8]) -> Option<Vec<u8>> {
        (self.seek.as_ref()?)(row_key).filter(|target| target.as_slice() > row_key)
    }
}

impl fmt::Debug for RowFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RowFilter")
    }
}

/// Which columns of a row to return.
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

/// A scan of one table: a range of row keys, and what to return of it.
#[derive(Clone, Debug)]
pub struct Scan {
    /// First row key inside; empty: the table's first row.
    pub start: Vec<u8>,
    /// First row key outside; empty: through the table's last row.
    pub stop: Vec<u8>,
    /// Which columns. A row without any of them is not returned.
    pub columns: ColumnSelection,
    /// Versions of a cell, newest first; at least 1.
    pub max_versions: u32,
    /// Rows to return at most.
    pub limit: Option<u64>,
    /// From the end of the range to its start.
    pub reverse: bool,
    /// Rows in a batch, at most; at least 1.
    pub batch_rows: usize,
    /// Which rows to return, by their keys.
    pub filter: Option<RowFilter>,
    /// The cells of rows may be packed ([`Row::unpacked`](crate::Row::unpacked)), so that who takes them
    /// decodes them.
    pub allows_packed: bool,
    /// Passes over damaged rows, and records them here, instead of failing with
    /// [`StoreError::Corrupt`]. Of rows in a damaged range it returns what was written since the
    /// damage, and what an older version has.
    pub skip_damaged: Option<DamageLog>,
}

impl Scan {
    /// Rows from `start` (inside) to `stop` (outside); empty means open.
    pub fn range(start: impl Into<Vec<u8>>, stop: impl Into<Vec<u8>>) -> Self {
        Self {
            start: start.into(),
            stop: stop.into(),
            columns: ColumnSelection::All,
            max_versions: 1,
            limit: None,
            reverse: false,
            batch_rows: 128,
            filter: None,
            allows_packed: false,
            skip_damaged: None,
        }
    }

    /// Rows whose keys start with `prefix`; empty: all rows.
    pub fn prefix(prefix: &[u8]) -> Self {
        Self::range(prefix, prefix_end(prefix))
    }

    /// Takes the scan up after the last row that was received from it.
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

/// The first key that is greater than all keys with this prefix; empty if there is none.
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
