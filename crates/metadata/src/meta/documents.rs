//! Documents of series: read, changed and deleted.
//!
//! A change reads the stored bytes, changes the document, and puts it if the cell still holds these bytes. An etag is a
//! hash of the stored bytes, so a change by any program is a mismatch. OpenTSDB compares with its own serialisation
//! of what it has read; `oxtsdb_schema::ts_meta` therefore serialises as it does.
//!
//! Source: OpenTSDB 2.4, `TSMeta.syncToStorage`, `TSMeta.delete`; `UniqueIdRpc.handleTSMeta` for the creation.

use oxtsdb_row_store::{
    CellAddress, CellRef, ColumnSelection, Condition, Retry, Row, StoreError, WriteBatch,
};
use oxtsdb_schema::Tsuid;
use oxtsdb_schema::data_table::{COUNTER_QUALIFIER, META_FAMILY};
use oxtsdb_schema::document::DocumentError;
use oxtsdb_schema::stored_json::etag;
use oxtsdb_schema::ts_meta::{TS_META_QUALIFIER, TsMeta};

use super::MetaTable;
use super::new_series::NewSeries;

/// Attempts of a change while others change the document too.
const ATTEMPTS: u32 = 32;

/// The most bytes of a document that is written.
const MAX_DOCUMENT: usize = 1 << 20;

/// The stored metadata of a series.
#[derive(Clone, Debug, PartialEq)]
pub struct SeriesMeta {
    /// The document, if there is one.
    pub document: Option<TsMeta>,
    /// Of the stored document; empty: there is none.
    pub etag: String,
    /// The counter of points, if there is one.
    pub counter: Option<PointCounter>,
}

/// The counter of a series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PointCounter {
    /// Points that writers have counted so far.
    pub points: i64,
    /// When the cell was written, in milliseconds.
    pub written_ms: i64,
}

/// Why metadata of a series cannot be read or changed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum MetaError {
    /// There is no document.
    #[error("series {tsuid} has no metadata")]
    NotFound {
        /// The series.
        tsuid: Tsuid,
    },
    /// The stored document is not the one that the etag names.
    #[error("the metadata of series {tsuid} has another etag: `{stored}`")]
    EtagMismatch {
        /// The series.
        tsuid: Tsuid,
        /// The etag of the stored document; empty: there is none.
        stored: String,
    },
    /// A cell that cannot be decoded.
    #[error("`{qualifier}` of series {tsuid} is damaged: {detail}")]
    Corrupt {
        /// The series.
        tsuid: Tsuid,
        /// The qualifier of the damaged cell.
        qualifier: &'static str,
        /// Why the value cannot be decoded.
        detail: String,
    },
    /// Other programs kept changing the document.
    #[error("the metadata of series {tsuid} was not changed: other writers kept changing it")]
    Contended {
        /// The series.
        tsuid: Tsuid,
    },
    /// A document that is larger than what is written.
    #[error("the document has {bytes} bytes, limit is {max_bytes}")]
    TooLarge {
        /// The size of the encoded document, in bytes.
        bytes: usize,
        /// The limit, in bytes.
        max_bytes: usize,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The cells of a series.
#[derive(Debug, Default)]
pub(super) struct Stored {
    pub(super) document: Option<Vec<u8>>,
    counter: Option<(Vec<u8>, i64)>,
}

impl Stored {
    pub(super) fn from_row(row: Option<&Row>) -> Self {
        let Some(row) = row else { return Self::default() };
        Self {
            document: document_cell(row).map(|cell| cell.value.to_vec()),
            counter: row
                .get(META_FAMILY, COUNTER_QUALIFIER)
                .map(|cell| (cell.value.to_vec(), cell.timestamp_ms)),
        }
    }

    /// Whether there is a counter.
    pub(super) fn has_counter(&self) -> bool {
        self.counter.is_some()
    }

    pub(super) fn decode(&self, tsuid: &Tsuid) -> Result<SeriesMeta, MetaError> {
        let corrupt = |qualifier, detail| MetaError::Corrupt {
            tsuid: tsuid.clone(),
            qualifier,
            detail,
        };
        let document = self.document.as_deref().map(TsMeta::decode).transpose();
        let counter = self.counter.as_ref().map(|(value, written_ms)| {
            let bytes = value.as_slice().try_into();
            let bytes =
                bytes.map_err(|_| corrupt("ts_ctr", format!("it has {} bytes, expected 8", value.len())))?;
            Ok::<_, MetaError>(PointCounter {
                points: i64::from_be_bytes(bytes),
                written_ms: *written_ms,
            })
        });
        Ok(SeriesMeta {
            document: document.map_err(|error: DocumentError| corrupt("ts_meta", error.detail))?,
            etag: etag(self.document.as_deref()),
            counter: counter.transpose()?,
        })
    }
}

impl MetaTable {
    /// Reads what is stored of a series.
    ///
    /// # Errors
    ///
    /// [`MetaError::Corrupt`], and errors of the store.
    pub async fn series(&self, tsuid: &Tsuid) -> Result<SeriesMeta, MetaError> {
        let row = self.store.get(&self.name, tsuid.as_bytes(), &columns()).await?;
        Stored::from_row(row.as_ref()).decode(tsuid)
    }

    /// Applies `change` to the document of a series. With an etag, the stored document must have it. If there is
    /// none, `creates` decides whether an empty one is changed, and a counter of 0 is created with it. Returns
    /// the metadata that is stored then.
    ///
    /// # Errors
    ///
    /// See [`MetaError`].
    pub async fn update(
        &self,
        tsuid: &Tsuid,
        expected: Option<&str>,
        creates: bool,
        change: impl Fn(&mut TsMeta) + Send + Sync,
    ) -> Result<SeriesMeta, MetaError> {
        // Documents of attempts with an unknown outcome, or that found another document: HBase's Thrift server repeats
        // a put that it has executed.
        let mut attempted: Vec<Option<Vec<u8>>> = Vec::new();
        let mut is_retried = false;
        for _ in 0..ATTEMPTS {
            let row = self.store.get(&self.name, tsuid.as_bytes(), &columns()).await?;
            let stored = Stored::from_row(row.as_ref());
            if attempted.contains(&stored.document) {
                return stored.decode(tsuid);
            }
            check_etag(tsuid, expected, stored.document.as_deref())?;
            let mut series = stored.decode(tsuid)?;
            let is_new = series.document.is_none();
            if is_new && !creates {
                return Err(MetaError::NotFound { tsuid: tsuid.clone() });
            }
            let mut document = series.document.take().unwrap_or_else(|| TsMeta::new(0));
            change(&mut document);
            let bytes = document.encode(tsuid.as_bytes());
            if bytes.len() > MAX_DOCUMENT {
                return Err(MetaError::TooLarge {
                    bytes: bytes.len(),
                    max_bytes: MAX_DOCUMENT,
                });
            }
            let created_seconds = document.created_seconds;
            // Custom fields in the order in which they are stored.
            series.document = TsMeta::decode(&bytes).ok();
            series.etag = etag(Some(&bytes));
            if stored.document.as_ref() == Some(&bytes) {
                return Ok(series);
            }
            if is_new && !stored.has_counter() {
                self.put_if(tsuid, COUNTER_QUALIFIER, None, &0_i64.to_be_bytes())
                    .await?;
            }
            match self
                .put_if(tsuid, TS_META_QUALIFIER, stored.document, &bytes)
                .await
            {
                Ok(true) if is_new => {
                    self.announce_change(tsuid);
                    self.new_series().announce([NewSeries {
                        tsuid: tsuid.clone(),
                        created_seconds,
                    }]);
                    return self.series(tsuid).await;
                }
                Ok(true) => {
                    self.announce_change(tsuid);
                    return Ok(series);
                }
                Ok(false) => {}
                Err(error) if error.retry() == Retry::IfIdempotent && !is_retried => is_retried = true,
                Err(error) => return Err(error.into()),
            }
            attempted.push(Some(bytes));
        }
        Err(MetaError::Contended { tsuid: tsuid.clone() })
    }

    /// Deletes the document of a series, up to the version that is read here. With an etag, it must have it, and a
    /// document that is still there is another one.
    ///
    /// # Errors
    ///
    /// [`MetaError::EtagMismatch`], and errors of the store.
    pub async fn delete(&self, tsuid: &Tsuid, expected: Option<&str>) -> Result<(), MetaError> {
        let row = self.store.get(&self.name, tsuid.as_bytes(), &columns()).await?;
        let cell = row.as_ref().and_then(document_cell);
        check_etag(tsuid, expected, cell.map(|cell| cell.value))?;
        let Some(cell) = cell else { return Ok(()) };
        let mut batch = WriteBatch::new(self.name.clone());
        let family = batch.family(META_FAMILY);
        batch
            .row(tsuid.as_bytes())
            .delete_column_up_to(family, cell.qualifier, cell.timestamp_ms);
        self.store.write(batch).await?;
        self.announce_change(tsuid);
        if expected.is_none() {
            return Ok(());
        }
        // An edit in the same millisecond is deleted too; a later one is still there.
        let row = self.store.get(&self.name, tsuid.as_bytes(), &columns()).await?;
        match row.as_ref().and_then(document_cell) {
            None => Ok(()),
            Some(newer) => Err(MetaError::EtagMismatch {
                tsuid: tsuid.clone(),
                stored: etag(Some(newer.value)),
            }),
        }
    }

    async fn put_if(
        &self,
        tsuid: &Tsuid,
        qualifier: &[u8],
        expected: Option<Vec<u8>>,
        value: &[u8],
    ) -> Result<bool, StoreError> {
        let cell = CellAddress::new(tsuid.as_bytes(), META_FAMILY, qualifier);
        let condition = Condition { cell, expected };
        self.store.check_and_put(&self.name, &condition, value).await
    }
}

fn check_etag(tsuid: &Tsuid, expected: Option<&str>, stored: Option<&[u8]>) -> Result<(), MetaError> {
    let stored = etag(stored);
    match expected {
        Some(expected) if expected != stored => Err(MetaError::EtagMismatch {
            tsuid: tsuid.clone(),
            stored,
        }),
        _ => Ok(()),
    }
}

/// The document of a row. An empty cell counts as absent, as in a condition.
fn document_cell(row: &Row) -> Option<CellRef<'_>> {
    row.get(META_FAMILY, TS_META_QUALIFIER)
        .filter(|cell| !cell.value.is_empty())
}

/// The document and the counter.
pub(super) fn columns() -> ColumnSelection {
    let column = |qualifier: &[u8]| (META_FAMILY.to_owned(), qualifier.to_vec());
    ColumnSelection::Columns(vec![column(TS_META_QUALIFIER), column(COUNTER_QUALIFIER)])
}
