//! Deletes the documents of all UIDs.
//!
//! OpenTSDB deletes them for UIDs up to the largest one of a metric only, whatever their kind.
//!
//! Source: OpenTSDB 2.4, `MetaPurge`.

use futures::stream::{self, BoxStream, StreamExt as _, TryStreamExt as _};
use oxtsdb_row_store::{ColumnSelection, RowStream, Scan, StoreError, WriteBatch};
use oxtsdb_schema::UidKind;
use oxtsdb_schema::uid_table::meta_qualifier;

use super::Metadata;
use crate::error::UidServiceError;
use crate::table::{NAME, UidTable};

/// Rows of a batch.
const BATCH_ROWS: usize = 512;

/// The result of a batch of a purge.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Purged {
    /// Documents found.
    pub documents: u64,
    /// Documents deleted.
    pub deleted: u64,
    /// The last row; `None`: all are done.
    pub position: Option<Vec<u8>>,
}

/// A purge in progress.
struct Purge {
    table: UidTable,
    rows: Option<RowStream>,
    plan_only: bool,
}

impl Metadata {
    /// Deletes all documents in rows after `start_after`, each up to the version that is read; with `plan_only` they are
    /// only counted. Dropping the stream ends the purge.
    pub fn purge(
        &self,
        start_after: Vec<u8>,
        plan_only: bool,
    ) -> BoxStream<'static, Result<Purged, UidServiceError>> {
        let table = self.table.clone();
        let start = async move {
            let columns = UidKind::ALL.map(|kind| (NAME.to_owned(), meta_qualifier(kind).to_vec()));
            let mut scan = Scan::range(Vec::new(), Vec::new());
            scan.columns = ColumnSelection::Columns(columns.into());
            scan.batch_rows = BATCH_ROWS;
            if !start_after.is_empty() {
                scan = scan.resume_after(&start_after);
            }
            let rows = table.store().scan(table.name(), scan).await?;
            Ok::<_, StoreError>(Purge {
                table,
                rows: Some(rows),
                plan_only,
            })
        };
        stream::once(start)
            .map_ok(|purge| stream::try_unfold(purge, |purge| purge.next()))
            .try_flatten()
            .map_err(UidServiceError::from)
            .boxed()
    }
}

impl Purge {
    async fn next(mut self) -> Result<Option<(Purged, Self)>, StoreError> {
        let Some(rows) = &mut self.rows else {
            return Ok(None);
        };
        let Some(rows) = rows.try_next().await? else {
            self.rows = None;
            return Ok(Some((Purged::default(), self)));
        };
        let mut batch = WriteBatch::new(self.table.name().clone());
        let family = batch.family(NAME);
        let mut purged = Purged::default();
        for row in &rows {
            batch.row(row.key());
            for cell in row.cells() {
                purged.documents += 1;
                batch.delete_column_up_to(family, cell.qualifier, cell.timestamp_ms);
            }
            purged.position = Some(row.key().to_vec());
        }
        if !self.plan_only {
            self.table.store().write(batch).await?;
            purged.deleted = purged.documents;
        }
        Ok(Some((purged, self)))
    }
}
