//! Deletes the metadata of all series.
//!
//! OpenTSDB deletes the metadata of series up to the largest metric UID; here all is deleted. Counters are kept where the
//! series index is read from the rows of the table: without them it would miss series.
//!
//! Source: OpenTSDB 2.4, `MetaPurge`.

use std::fmt;

use futures::TryStreamExt as _;
use oxtsdb_query::{QueryContext, QueryError};
use oxtsdb_row_store::{RowStream, Scan, StoreError, WriteBatch};
use oxtsdb_schema::data_table::{COUNTER_QUALIFIER, META_FAMILY};
use oxtsdb_schema::ts_meta::TS_META_QUALIFIER;

use super::MetaTable;
use super::documents::columns;

/// Rows of a batch.
const BATCH_ROWS: usize = 512;

/// The result of a batch of a purge.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Purged {
    /// Documents found.
    pub documents: u64,
    /// Documents deleted.
    pub documents_deleted: u64,
    /// Counters deleted.
    pub counters_deleted: u64,
    /// The last row; `None`: all are done.
    pub position: Option<Vec<u8>>,
}

/// A purge in progress. Dropping it ends it.
pub struct MetaPurge {
    table: MetaTable,
    rows: RowStream,
    keeps_counters: bool,
    plan_only: bool,
}

impl fmt::Debug for MetaPurge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MetaPurge")
            .field("keeps_counters", &self.keeps_counters)
            .field("plan_only", &self.plan_only)
            .finish_non_exhaustive()
    }
}

impl MetaPurge {
    /// Begins with the rows after `start_after`. With `plan_only` nothing is deleted.
    ///
    /// # Errors
    ///
    /// Errors of the store.
    pub async fn start(
        table: MetaTable,
        start_after: &[u8],
        keeps_counters: bool,
        plan_only: bool,
    ) -> Result<Self, StoreError> {
        let mut scan = Scan::range(Vec::new(), Vec::new());
        scan.columns = columns();
        scan.batch_rows = BATCH_ROWS;
        if !start_after.is_empty() {
            scan = scan.resume_after(start_after);
        }
        Ok(Self {
            rows: table.store.scan(&table.name, scan).await?,
            table,
            keeps_counters,
            plan_only,
        })
    }

    /// Whether counters are kept.
    pub fn keeps_counters(&self) -> bool {
        self.keeps_counters
    }

    /// Deletes the next batch, each cell up to the version that was read.
    ///
    /// # Errors
    ///
    /// Errors of the store, and interruptions of the query. A batch may be deleted in part.
    pub async fn next(&mut self, context: &QueryContext) -> Result<Purged, QueryError> {
        let rows = async { Ok::<_, QueryError>(self.rows.try_next().await?) };
        let Some(rows) = context.run(rows).await? else {
            return Ok(Purged::default());
        };
        let mut batch = WriteBatch::new(self.table.name.clone());
        let family = batch.family(META_FAMILY);
        let (mut purged, mut counters) = (Purged::default(), 0);
        for row in &rows {
            batch.row(row.key());
            for cell in row.cells() {
                let counts = if cell.qualifier == TS_META_QUALIFIER {
                    &mut purged.documents
                } else if cell.qualifier == COUNTER_QUALIFIER && !self.keeps_counters {
                    &mut counters
                } else {
                    continue;
                };
                *counts += 1;
                batch.delete_column_up_to(family, cell.qualifier, cell.timestamp_ms);
            }
            purged.position = Some(row.key().to_vec());
        }
        if !self.plan_only && !batch.is_empty() {
            let write = async { Ok::<_, QueryError>(self.table.store.write(batch).await?) };
            context.run(write).await?;
            purged.documents_deleted = purged.documents;
            purged.counters_deleted = counters;
        }
        Ok(purged)
    }
}
