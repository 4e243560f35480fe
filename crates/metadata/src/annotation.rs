//! Annotations: notes on a series or on everything, stored as cells of table `tsdb`.
//!
//! ```text
//!   key ──► find ──► put      check-and-put against the bytes that were read
//!              │  └► remove   one, up to the version that was read
//!   range ─────┴───► list     pages in order of time
//!                 └► remove_range
//! ```
//!
//! The bytes are OpenTSDB's ([`oxtsdb_schema::annotation`]), so both can edit on the same table: each puts a cell only
//! if it is still what it has read. A change without an etag that loses such a race reads again and is applied to the
//! winner's annotation; one with an etag fails.
//!
//! HBase has no check-and-delete: a delete covers the versions up to the one that was read, so that a later edit
//! survives it. Deletes of a range find the annotations of series in salted tables too, where OpenTSDB misses them.
//!
//! With `tsd.storage.use_otsdb_timestamp` OpenTSDB gives an annotation its start time as the timestamp of its cell. A
//! check-and-put has the store's time: in such a deployment edits of OpenTSDB are hidden by earlier ones of this
//! service.
//!
//! Source: OpenTSDB 2.4, `Annotation`.

mod edit;
mod error;
mod key;
mod list;
mod remove;

use std::sync::Arc;

use oxtsdb_query::{Engine, SeriesIndex};
use oxtsdb_row_store::{ColumnSelection, RowStore, TableName};
use oxtsdb_schema::annotation::AnnotationQualifier;
use oxtsdb_schema::{Annotation, RowKeyLayout, stored_json};

use crate::meta::changes::MetaChanges;

pub use edit::{Edit, Precondition};
pub use error::{AnnotationError, KeyError};
pub use key::{AnnotationKey, document_time, series_of};
pub use list::{PageRequest, Position, Source};

/// The family of annotations.
pub(crate) const FAMILY: &str = "t";

/// The longest stored annotation, in bytes; longer ones of other writers are read.
pub(crate) const MAX_STORED_BYTES: usize = 1 << 20;

/// Reads and changes annotations.
#[derive(Clone, Debug)]
pub struct Annotations {
    store: Arc<dyn RowStore>,
    table: TableName,
    layout: RowKeyLayout,
    index: Option<Arc<dyn SeriesIndex>>,
    changes: MetaChanges,
}

/// An annotation as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredAnnotation {
    /// The decoded cell.
    pub annotation: Annotation,
    /// The version of the stored bytes.
    pub etag: String,
}

/// The cell of an annotation.
#[derive(Clone, Debug)]
struct FoundCell {
    qualifier: AnnotationQualifier,
    value: Vec<u8>,
    timestamp_ms: i64,
}

impl FoundCell {
    fn etag(&self) -> String {
        stored_json::etag(Some(&self.value))
    }
}

impl Annotations {
    /// The annotations of the table that an engine reads.
    pub fn from_engine(engine: &Engine) -> Annotations {
        let storage = engine.storage();
        Annotations {
            store: Arc::clone(&storage.store),
            table: storage.table.clone(),
            layout: storage.layout,
            index: storage.index.clone(),
            changes: MetaChanges::default(),
        }
    }

    /// The same, with changes announced.
    #[must_use]
    pub fn announcing(self, changes: &MetaChanges) -> Annotations {
        let changes = changes.clone();
        Annotations { changes, ..self }
    }

    /// How row keys are built.
    pub fn layout(&self) -> &RowKeyLayout {
        &self.layout
    }

    /// An annotation; `None` if there is none.
    ///
    /// # Errors
    ///
    /// [`AnnotationError::Store`], and [`AnnotationError::Damaged`] if the cell is no annotation.
    pub async fn get(&self, key: &AnnotationKey) -> Result<Option<StoredAnnotation>, AnnotationError> {
        let Some(cell) = self.find(key).await? else {
            return Ok(None);
        };
        let annotation = self.decode(key, &cell)?;
        let etag = cell.etag();
        Ok(Some(StoredAnnotation { annotation, etag }))
    }

    /// The cell of an annotation.
    async fn find(&self, key: &AnnotationKey) -> Result<Option<FoundCell>, AnnotationError> {
        let qualifiers = key.qualifiers();
        let columns = qualifiers
            .iter()
            .map(|qualifier| (FAMILY.to_owned(), qualifier.to_vec()))
            .collect();
        let columns = ColumnSelection::Columns(columns);
        let Some(row) = self.store.get(&self.table, key.row(), &columns).await? else {
            return Ok(None);
        };
        let cell = qualifiers.iter().find_map(|qualifier| {
            let cell = row.get(FAMILY, qualifier)?;
            // HBase cannot distinguish an empty cell from an absent one when it compares.
            (!cell.value.is_empty()).then(|| FoundCell {
                qualifier: qualifier.clone(),
                value: cell.value.to_vec(),
                timestamp_ms: cell.timestamp_ms,
            })
        });
        Ok(cell)
    }

    fn decode(&self, key: &AnnotationKey, cell: &FoundCell) -> Result<Annotation, AnnotationError> {
        Annotation::decode(&cell.value).map_err(|error| AnnotationError::Damaged {
            table: self.table.to_string(),
            row_key: hex::encode_upper(key.row()),
            qualifier: hex::encode_upper(&cell.qualifier),
            error,
        })
    }
}

#[cfg(test)]
mod tests;
