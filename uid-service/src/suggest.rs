//! Names of one kind in byte order: by prefix in pages, or all of them.
//!
//! A page says where the next one begins by its last name, so it does not matter what is assigned
//! between two pages. (OpenTSDB's empty prefix leaves out names that begin with a blank, `~` or an
//! accented letter; here it means all names.)

use std::collections::VecDeque;

use futures::stream::BoxStream;
use futures::{StreamExt as _, TryStreamExt as _};
use oxtsdb_row_store::{Row, RowStream, Scan};
use oxtsdb_schema::{Name, Uid, UidKind};
use tracing::warn;

use crate::error::UidServiceError;
use crate::table::{FIRST_NAME_ROW, ID, UidTable, column, value};

/// A name and its UID.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// The kind.
    pub kind: UidKind,
    /// The name.
    pub name: Name,
    /// The UID.
    pub uid: Uid,
}

/// Some mappings in byte order of their names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// The mappings.
    pub mappings: Vec<Mapping>,
    /// True if there are more behind the last one.
    pub more: bool,
}

/// Mappings in one message, at most.
pub const MAX_MAPPINGS: usize = 4096;

/// Bytes of names in one page or message, except that there is always one name: a quarter of what
/// gRPC clients take by default.
const MAX_BYTES: usize = 1 << 20;

/// Reads a page of names that begin with `prefix` and come after `after`.
///
/// A row that cannot be decoded is passed over and logged: it names no UID that a client could use, and must
/// not hide the names behind it.
pub(crate) async fn page(
    table: &UidTable,
    kind: UidKind,
    prefix: &[u8],
    after: Option<&[u8]>,
    size: usize,
) -> Result<Page, UidServiceError> {
    let mut scan = scan(Scan::prefix(prefix), kind, after);
    // No limit of rows: those that are passed over would count too, and end the page early.
    scan.batch_rows = scan.batch_rows.min(size + 1);
    let mut rows = table.store().scan(table.name(), scan).await?;
    let mut page = Page::default();
    let mut bytes = 0;
    while let Some(batch) = rows.try_next().await? {
        for row in batch {
            let mapping = match mapping(table, kind, &row) {
                Ok(mapping) => mapping,
                Err(error) => {
                    warn!(%kind, %error, "passed over a damaged row of names");
                    continue;
                }
            };
            bytes += mapping.name.as_bytes().len();
            if page.mappings.len() == size || (bytes > MAX_BYTES && !page.mappings.is_empty()) {
                return Ok(Page { more: true, ..page });
            }
            page.mappings.push(mapping);
        }
    }
    Ok(page)
}

/// All mappings of the kinds, which are in order, after a name of the first of them. Batches are
/// not empty and have at most [`MAX_MAPPINGS`].
pub(crate) fn export(
    table: UidTable,
    kinds: Vec<UidKind>,
    after: Option<Name>,
) -> BoxStream<'static, Result<Vec<Mapping>, UidServiceError>> {
    let export = Export {
        table,
        kinds: kinds.into(),
        after,
        rows: None,
        read: VecDeque::new(),
    };
    futures::stream::try_unfold(export, |mut export| async move {
        let batch = export.next_batch().await?;
        Ok((!batch.is_empty()).then_some((batch, export)))
    })
    .boxed()
}

struct Export {
    table: UidTable,
    kinds: VecDeque<UidKind>,
    after: Option<Name>,
    rows: Option<(UidKind, RowStream)>,
    /// Read and not yet handed out.
    read: VecDeque<Mapping>,
}

impl Export {
    async fn next_batch(&mut self) -> Result<Vec<Mapping>, UidServiceError> {
        let mut batch = Vec::new();
        let mut bytes = 0;
        loop {
            while let Some(mapping) = self.read.front() {
                bytes += mapping.name.as_bytes().len();
                if batch.len() == MAX_MAPPINGS || (bytes > MAX_BYTES && !batch.is_empty()) {
                    return Ok(batch);
                }
                batch.extend(self.read.pop_front());
            }
            if !self.read_more().await? {
                return Ok(batch);
            }
        }
    }

    /// Reads some mappings; false at the end of the last kind.
    async fn read_more(&mut self) -> Result<bool, UidServiceError> {
        let Some((kind, rows)) = &mut self.rows else {
            let Some(kind) = self.kinds.pop_front() else {
                return Ok(false);
            };
            let after = self.after.take();
            let scan = scan(Scan::prefix(&[]), kind, after.as_ref().map(Name::as_bytes));
            self.rows = Some((kind, self.table.store().scan(self.table.name(), scan).await?));
            return Ok(true);
        };
        match rows.try_next().await? {
            Some(batch) => {
                for row in &batch {
                    self.read.push_back(mapping(&self.table, *kind, row)?);
                }
            }
            None => self.rows = None,
        }
        Ok(true)
    }
}

/// The forward mappings of a kind within the range of `scan`, without the row of the counters.
fn scan(mut scan: Scan, kind: UidKind, after: Option<&[u8]>) -> Scan {
    scan.columns = column(ID, kind);
    scan.batch_rows = 256;
    if let Some(after) = after {
        scan = scan.resume_after(after);
    }
    if scan.start.as_slice() < FIRST_NAME_ROW {
        scan.start = FIRST_NAME_ROW.to_vec();
    }
    scan
}

fn mapping(table: &UidTable, kind: UidKind, row: &Row) -> Result<Mapping, UidServiceError> {
    let name = Name::from_stored(row.key()).map_err(|_| oxtsdb_row_store::StoreError::Invalid {
        detail: "a row key is empty".to_owned(),
    })?;
    let key = (kind, name);
    let uid = table.stored_uid(&key, value(row, ID, kind).unwrap_or_default())?;
    Ok(Mapping {
        kind,
        name: key.1,
        uid,
    })
}
