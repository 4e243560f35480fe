//! Names of one kind in byte order: pages of those with a prefix, or an export of all.
//!
//! The last name of a page is the cursor of the next one, so names that are assigned between two pages cause
//! neither gaps nor duplicates. (OpenTSDB's empty prefix omits names that begin with a blank, `~` or an
//! accented letter; here it selects all names.)

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

/// A page of mappings in byte order of their names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// The mappings.
    pub mappings: Vec<Mapping>,
    /// Whether more mappings follow.
    pub more: bool,
}

/// Maximum count of mappings in a message.
pub const MAX_MAPPINGS: usize = 4096;

/// Maximum bytes of names in a page or message, which has at least one name: a quarter of the default message
/// limit of gRPC clients.
const MAX_BYTES: usize = 1 << 20;

/// Reads a page of names that begin with `prefix` and come after `after`.
///
/// A row that cannot be decoded is logged and skipped: it has no usable UID, and must not hide the names after
/// it.
pub(crate) async fn page(
    table: &UidTable,
    kind: UidKind,
    prefix: &[u8],
    after: Option<&[u8]>,
    size: usize,
) -> Result<Page, UidServiceError> {
    let mut scan = scan(Scan::prefix(prefix), kind, after);
    // Without a row limit: skipped rows would count, and end the page early.
    scan.batch_rows = scan.batch_rows.min(size + 1);
    let mut rows = table.store().scan(table.name(), scan).await?;
    let mut page = Page::default();
    let mut bytes = 0;
    while let Some(batch) = rows.try_next().await? {
        for row in batch {
            let mapping = match mapping(table, kind, &row) {
                Ok(mapping) => mapping,
                Err(error) => {
                    warn!(%kind, %error, "skipped a damaged row of names");
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

/// Streams all mappings of `kinds`, in that order; the first kind starts after the name `after`.
/// Batches are not empty and have at most [`MAX_MAPPINGS`] mappings.
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
        buffered: VecDeque::new(),
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
    /// Read and not yet returned.
    buffered: VecDeque<Mapping>,
}

impl Export {
    async fn next_batch(&mut self) -> Result<Vec<Mapping>, UidServiceError> {
        let mut batch = Vec::new();
        let mut bytes = 0;
        loop {
            while let Some(mapping) = self.buffered.front() {
                bytes += mapping.name.as_bytes().len();
                if batch.len() == MAX_MAPPINGS || (bytes > MAX_BYTES && !batch.is_empty()) {
                    return Ok(batch);
                }
                batch.extend(self.buffered.pop_front());
            }
            if !self.read_more().await? {
                return Ok(batch);
            }
        }
    }

    /// Opens the scan of the next kind, or buffers a batch of the current one; returns false at the end.
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
                    self.buffered.push_back(mapping(&self.table, *kind, row)?);
                }
            }
            None => self.rows = None,
        }
        Ok(true)
    }
}

/// Restricts `scan` to the forward mappings of a kind, without the counters' row.
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
