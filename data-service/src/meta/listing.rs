//! The documents of a metric's series.

use futures::TryStreamExt as _;
use oxtsdb_row_store::{Row, RowFilter, RowStream, Scan, StoreError};
use oxtsdb_schema::{Tsuid, Uid, UidWidths};

use super::MetaTable;
use super::documents::{MetaError, SeriesMeta, Stored, columns};

/// Rows of a batch. A document may have a megabyte.
const BATCH_ROWS: usize = 64;

/// The series of a metric that have documents, in batches. Dropping it ends the scan.
pub(crate) struct Documents {
    rows: RowStream,
    widths: UidWidths,
}

impl MetaTable {
    /// The series of a metric that have all of these tags, each of which is a tagk UID and a tagv UID, and have a
    /// document.
    ///
    /// # Errors
    ///
    /// Those of the store.
    pub(crate) async fn of_metric(&self, metric: Uid, tags: Vec<Vec<u8>>) -> Result<Documents, StoreError> {
        let mut scan = Scan::prefix(metric.as_bytes());
        scan.columns = columns();
        scan.batch_rows = BATCH_ROWS;
        let (metric_width, tag_width) = (self.widths.metric.bytes(), self.widths.tag_bytes());
        scan.filter = Some(RowFilter::new(move |key| {
            let pairs = key
                .get(metric_width..)
                .unwrap_or_default()
                .chunks_exact(tag_width);
            tags.iter()
                .all(|tag| pairs.clone().any(|pair| pair == tag.as_slice()))
        }));
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
    /// Those of the store.
    pub(crate) async fn next(&mut self) -> Result<Option<Vec<Row>>, StoreError> {
        self.rows.try_next().await
    }

    /// Decodes a batch. Rows that are no series are left out.
    ///
    /// # Errors
    ///
    /// [`MetaError::Corrupt`].
    pub(crate) fn decode(&self, rows: &[Row]) -> Result<Vec<(Tsuid, SeriesMeta)>, MetaError> {
        let mut series = Vec::with_capacity(rows.len());
        for row in rows {
            let Ok(tsuid) = Tsuid::from_bytes(row.key(), &self.widths) else {
                continue;
            };
            let meta = Stored::of(Some(row)).decode(&tsuid)?;
            if meta.document.is_some() {
                series.push((tsuid, meta));
            }
        }
        Ok(series)
    }
}
