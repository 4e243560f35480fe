//! Scans.
//!
//! While the caller processes a batch of rows, the [`Cursor`] fetches the next one. A scan with seek hints in its
//! filter selects few of many rows; it runs in two steps instead ([`super::selective`]). A scan in any order of rows
//! uses several connections, and HBase filters its rows if it can ([`super::spread`]).

use std::sync::Arc;

use futures::stream::{StreamExt, empty, try_unfold};

use super::cursor::Cursor;
use super::error::{CallError, RequestContext};
use super::key_pattern::KeyPattern;
use super::pool::Pool;
use super::range::KeyRange;
use super::versions::Versions;
use super::{selective, spread, tables};
use crate::{ColumnSelection, RowStream, Scan, StoreError, TableName};

/// Opens a scan and fetches its first rows: only then does HBase report that a table does not exist.
pub(super) async fn open(pool: Arc<Pool>, table: TableName, scan: Scan) -> Result<RowStream, StoreError> {
    let store_error = |error: CallError| error.into_store_error(RequestContext::idempotent(&table));
    let selects_nothing = matches!(&scan.columns, ColumnSelection::Columns(columns) if columns.is_empty());
    let range = KeyRange::from_scan(&scan);
    if selects_nothing || range.is_empty() || scan.limit == Some(0) {
        // HBase takes an empty selection for all columns, and a range with equal bounds for a get.
        let exists = tables::find(&pool, &table).await.map_err(store_error)?.is_some();
        return if exists {
            Ok(empty().boxed())
        } else {
            Err(StoreError::NoSuchTable { table })
        };
    }
    let is_selective = selective::applies_to(&scan);
    if spread::applies_to(&scan) {
        let pattern = scan.filter.as_ref().and_then(KeyPattern::from_filter);
        if pattern.is_some() || !is_selective {
            return spread::open(pool, table, scan, pattern).await;
        }
    }
    if is_selective {
        return selective::open(pool, table, scan).await;
    }
    let versions = Versions::load(&pool, &table, scan.max_versions)
        .await
        .map_err(store_error)?;
    let mut cursor = Cursor::new(pool, table, scan);
    cursor.fetch().await.map_err(|error| cursor.store_error(error))?;
    Ok(
        try_unfold((cursor, versions), |(mut cursor, versions)| async move {
            let rows = cursor
                .next_batch()
                .await
                .map_err(|error| cursor.store_error(error))?;
            let completed = versions.complete(&cursor.pool, &cursor.table, rows).await;
            let rows = completed.map_err(|error| cursor.store_error(error))?;
            Ok((!rows.is_empty()).then_some((rows, (cursor, versions))))
        })
        .boxed(),
    )
}
