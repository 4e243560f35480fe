//! The documents of a metric's series.

use std::fmt;

use futures::TryStreamExt as _;
use oxtsdb_row_store::{Row, RowFilter, RowStream, Scan, StoreError};
use oxtsdb_schema::{Tsuid, Uid, UidWidths};

use super::MetaTable;
use super::documents::{MetaError, SeriesMeta, Stored, columns};

/// Rows of a batch. A document may have a megabyte.
const BATCH_ROWS: usize = 64;

/// The series of a metric that have documents, in batches. Dropping it ends the scan.
pub struct Documents {
    rows: RowStream,
    widths: UidWidths,
}

impl fmt::Debug for Documents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Documents").finish_non_exhaustive()
    }
}

impl MetaTable {
    /// The series of a metric that have all of these tags (each a tagk UID and a tagv UID), and have a
    /// document.
    ///
    /// # Errors
    ///
    /// Errors of the store.
    pub async fn for_metric(&self, metric: Uid, tags: Vec<Vec<u8>>) -> Result<Documents, StoreError> {
        let mut scan = Scan::prefix(metric.as_bytes());
        let (metric_width, tag_width) = (self.widths.metric.bytes(), self.widths.tag_bytes());
        scan.filter = Some(RowFilter::new(move |key| {
            let pairs = key
                .get(metric_width..)
                .unwrap_or_default()
                .chunks_exact(tag_width);
            tags.iter()
                .all(|tag| pairs.clone().any(|pair| pair == tag.as_slice()))
        }));
        self.documents(scan).await
    }

    /// The series of a part of the table that have a document.
    ///
    /// # Errors
    ///
    /// Errors of the store.
    pub(crate) async fn documents(&self, mut scan: Scan) -> Result<Documents, StoreError> {
        scan.columns = columns();
        scan.batch_rows = BATCH_ROWS;
        Ok(Documents {
            rows: self.store.scan(&self.name, scan).await?,
            widths: self.widths,
        })
    }
}

impl Documents {
    /// The rows of the next batch; `None`: there are no more.
    ///
    /// # Errors
    ///
    /// Errors of the store.
    pub async fn next(&mut self) -> Result<Option<Vec<Row>>, StoreError> {
        self.rows.try_next().await
    }

    /// Decodes a batch. Rows that are no series are left out.
    ///
    /// # Errors
    ///
    /// [`MetaError::Corrupt`].
    pub fn decode(&self, rows: &[Row]) -> Result<Vec<(Tsuid, SeriesMeta)>, MetaError> {
        self.decoded(rows).collect()
    }

    /// As [`Documents::decode`], without what cannot be decoded.
    pub(crate) fn decode_intact(&self, rows: &[Row]) -> Vec<(Tsuid, SeriesMeta)> {
        self.decoded(rows).filter_map(Result::ok).collect()
    }

    fn decoded(&self, rows: &[Row]) -> impl Iterator<Item = Result<(Tsuid, SeriesMeta), MetaError>> {
        rows.iter().filter_map(|row| {
            let tsuid = Tsuid::from_bytes(row.key(), &self.widths).ok()?;
            match Stored::from_row(Some(row)).decode(&tsuid) {
                Ok(meta) => meta.document.is_some().then_some(Ok((tsuid, meta))),
                Err(error) => Some(Err(error)),
            }
        })
    }
}
