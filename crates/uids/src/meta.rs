//! Metadata of UIDs: the cells `metric_meta`, `tagk_meta` and `tagv_meta`.
//!
//! A change reads the stored bytes, changes the document, and puts it if the cell still holds these bytes, as
//! OpenTSDB does. An etag is a hash of the stored bytes, so a change by any program is a mismatch. Deletes are up to
//! the version that was read: HBase has no check-and-delete.
//!
//! A new UID gets its document with `--enable-realtime-uid`, see `new_document`; `sync` creates missing ones and
//! `purge` deletes all.
//!
//! Source: OpenTSDB 2.4, `UIDMeta`.

mod purge;
mod sync;

use std::time::{SystemTime, UNIX_EPOCH};

use oxtsdb_row_store::{CellAddress, CellRef, ColumnSelection, Condition, Row, StoreError, WriteBatch};
use oxtsdb_schema::stored_json::etag;
use oxtsdb_schema::uid_meta::UidDocument;
use oxtsdb_schema::uid_table::meta_qualifier;
use oxtsdb_schema::{Name, UidKind};

pub use self::purge::Purged;
use crate::error::UidServiceError;
use crate::table::{KindUid, NAME, UidTable, is_uncertain};

/// Attempts of a change while others change the document too.
const ATTEMPTS: u32 = 32;

/// Rows of a read.
const READ_ROWS: usize = 128;

/// The most bytes of a document that is written.
pub(crate) const MAX_DOCUMENT: usize = 1 << 20;

/// A UID with its metadata.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Described {
    /// Its name.
    pub name: Name,
    /// The stored document, or an empty one.
    pub document: UidDocument,
    /// Of the stored document; empty: there is none.
    pub etag: String,
}

/// The metadata of the UIDs of one table. Cloning is cheap.
#[derive(Clone, Debug)]
pub struct Metadata {
    table: UidTable,
}

/// The cells of a UID.
struct Stored {
    name: Option<Name>,
    document: Option<Vec<u8>>,
}

impl Metadata {
    /// The metadata of a table.
    pub fn new(table: UidTable) -> Self {
        Self { table }
    }

    /// The table.
    pub fn table(&self) -> &UidTable {
        &self.table
    }

    /// Reads the metadata of UIDs, in their order. Documents after the first `max_bytes` of them fail with
    /// [`UidServiceError::TooLarge`].
    pub async fn get(&self, uids: &[KindUid], max_bytes: usize) -> Vec<Result<Described, UidServiceError>> {
        let mut all = Vec::with_capacity(uids.len());
        let mut bytes = 0;
        for uids in uids.chunks(READ_ROWS) {
            for (uid, stored) in uids.iter().zip(self.read(uids).await) {
                let described = stored.and_then(|stored| {
                    let length = stored.document.as_ref().map_or(0, Vec::len);
                    if bytes > 0 && bytes + length > max_bytes {
                        return Err(UidServiceError::TooLarge { max_bytes });
                    }
                    bytes += length;
                    described(*uid, stored.name, stored.document.as_deref())
                });
                all.push(described);
            }
        }
        all
    }

    /// Applies `change` to the document of a UID; to an empty one if there is none. With an etag, the stored document
    /// must have it. Returns the result.
    ///
    /// # Errors
    ///
    /// See [`UidServiceError`].
    pub async fn update(
        &self,
        key: KindUid,
        expected: Option<&str>,
        change: impl Fn(&mut UidDocument) + Send + Sync,
    ) -> Result<Described, UidServiceError> {
        // Documents of attempts that have an unknown outcome or found another document: HBase's Thrift server repeats
        // a put that it has executed.
        let mut attempted: Vec<Option<Vec<u8>>> = Vec::new();
        let mut is_retried = false;
        for _ in 0..ATTEMPTS {
            let stored = self.read_one(key).await?;
            if attempted.contains(&stored.document) {
                return described(key, stored.name, stored.document.as_deref());
            }
            check_etag(key, expected, stored.document.as_deref())?;
            let mut new = described(key, stored.name, stored.document.as_deref())?;
            change(&mut new.document);
            let bytes = new.document.encode();
            if bytes.len() > MAX_DOCUMENT {
                return Err(UidServiceError::DocumentTooLarge {
                    bytes: bytes.len(),
                    max_bytes: MAX_DOCUMENT,
                });
            }
            // Custom fields in the order in which they are stored.
            new.document = UidDocument::decode(key.0, &bytes).unwrap_or(new.document);
            new.etag = etag(Some(&bytes));
            if stored.document.as_ref() == Some(&bytes) {
                return Ok(new);
            }
            match self
                .table
                .check_and_put(meta_cell(key), stored.document, &bytes)
                .await
            {
                Ok(true) => return Ok(new),
                Ok(false) => {}
                Err(error) if is_uncertain(&error) && !is_retried => is_retried = true,
                Err(error) => return Err(error.into()),
            }
            attempted.push(Some(bytes));
        }
        Err(UidServiceError::MetaContended {
            kind: key.0,
            uid: key.1,
        })
    }

    /// Deletes the document of a UID, up to the version that is read here. With an etag, it must have it.
    ///
    /// # Errors
    ///
    /// [`UidServiceError::EtagMismatch`], or the store fails.
    pub async fn delete(&self, key: KindUid, expected: Option<&str>) -> Result<(), UidServiceError> {
        let row = self
            .table
            .store()
            .get(self.table.name(), key.1.as_bytes(), &columns(key.0))
            .await?;
        let cell = row.as_ref().and_then(|row| document_cell(row, key.0));
        check_etag(key, expected, cell.map(|cell| cell.value))?;
        let Some(cell) = cell else { return Ok(()) };
        let mut batch = WriteBatch::new(self.table.name().clone());
        let family = batch.family(NAME);
        batch
            .row(key.1.as_bytes())
            .delete_column_up_to(family, cell.qualifier, cell.timestamp_ms);
        Ok(self.table.store().write(batch).await?)
    }

    async fn read_one(&self, key: KindUid) -> Result<Stored, UidServiceError> {
        let read = self.read(&[key]).await.pop();
        read.unwrap_or(Err(UidServiceError::Interrupted))
    }

    /// Reads names and documents, with one read of the store for each kind.
    async fn read(&self, uids: &[KindUid]) -> Vec<Result<Stored, UidServiceError>> {
        let none = || Stored {
            name: None,
            document: None,
        };
        let mut all: Vec<Result<Stored, UidServiceError>> = uids.iter().map(|_| Ok(none())).collect();
        for kind in UidKind::ALL {
            let of_kind = uids.iter().enumerate().filter(|(_, (other, _))| *other == kind);
            let (places, keys): (Vec<usize>, Vec<Vec<u8>>) = of_kind
                .map(|(place, (_, uid))| (place, uid.as_bytes().to_vec()))
                .unzip();
            if keys.is_empty() {
                continue;
            }
            let rows = self
                .table
                .store()
                .get_rows(self.table.name(), &keys, &columns(kind), None)
                .await;
            let rows: Vec<Result<Option<Row>, StoreError>> = match rows {
                Ok(rows) => rows.into_iter().map(Ok).collect(),
                Err(error) => places.iter().map(|_| Err(error.clone())).collect(),
            };
            for (place, row) in places.into_iter().zip(rows) {
                all[place] = row.map_err(UidServiceError::from).and_then(|row| {
                    let Some(row) = row else { return Ok(none()) };
                    let name = crate::table::value(&row, NAME, kind).map(Name::from_stored);
                    Ok(Stored {
                        name: name.transpose().map_err(|_| UidServiceError::EmptyName {
                            kind,
                            uid: uids[place].1,
                        })?,
                        document: document_cell(&row, kind).map(|cell| cell.value.to_vec()),
                    })
                });
            }
        }
        all
    }
}

/// The bytes of the document of a UID that is assigned now.
pub(crate) fn new_document(kind: UidKind) -> Vec<u8> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let seconds = since.map_or(0, |since| since.as_secs());
    UidDocument::new(kind, i64::try_from(seconds).unwrap_or(i64::MAX)).encode()
}

fn described(
    (kind, uid): KindUid,
    name: Option<Name>,
    stored: Option<&[u8]>,
) -> Result<Described, UidServiceError> {
    let name = name.ok_or(UidServiceError::UidNotFound { kind, uid })?;
    let document =
        match stored {
            Some(stored) => UidDocument::decode(kind, stored)
                .map_err(|source| UidServiceError::CorruptMeta { kind, uid, source })?,
            None => UidDocument::new(kind, 0),
        };
    Ok(Described {
        name,
        document,
        etag: etag(stored),
    })
}

fn check_etag(
    (kind, uid): KindUid,
    expected: Option<&str>,
    stored: Option<&[u8]>,
) -> Result<(), UidServiceError> {
    let stored = etag(stored);
    match expected {
        Some(expected) if expected != stored => Err(UidServiceError::EtagMismatch { kind, uid, stored }),
        _ => Ok(()),
    }
}

fn meta_cell((kind, uid): KindUid) -> CellAddress {
    CellAddress::new(uid.as_bytes(), NAME, meta_qualifier(kind))
}

/// The condition that a UID has no document.
fn absent(key: KindUid) -> Condition {
    Condition {
        cell: meta_cell(key),
        expected: None,
    }
}

/// The document of a row. An empty cell counts as absent, as in a condition.
fn document_cell(row: &Row, kind: UidKind) -> Option<CellRef<'_>> {
    row.get(NAME, meta_qualifier(kind))
        .filter(|cell| !cell.value.is_empty())
}

/// The name and the document of a UID.
fn columns(kind: UidKind) -> ColumnSelection {
    ColumnSelection::Columns(vec![
        (NAME.to_owned(), kind.qualifier().to_vec()),
        (NAME.to_owned(), meta_qualifier(kind).to_vec()),
    ])
}
