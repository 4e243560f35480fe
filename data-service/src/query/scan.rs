//! Rows from the store, in batches; those of one series come in order of time.

use std::sync::Arc;

use futures::stream::{self, BoxStream, StreamExt as _, TryStreamExt as _};
use oxtsdb_row_store::{ColumnSelection, Row, RowStore, Scan, StoreError, TableName};

use super::plan::{Plan, Read};

/// Rows in a batch: enough to make the hand-over between threads cheap.
const BATCH_ROWS: usize = 256;

/// Salt buckets that are scanned at a time.
const BUCKETS_AT_A_TIME: usize = 4;

/// Family `t`, which holds the points.
pub(crate) fn point_columns() -> ColumnSelection {
    ColumnSelection::Family(String::from_utf8_lossy(oxtsdb_schema::data_table::FAMILY).into_owned())
}

/// Reads the rows of a plan. Dropping the stream ends the scan.
pub fn rows(
    store: &Arc<dyn RowStore>,
    table: &TableName,
    plan: &Plan,
) -> BoxStream<'static, Result<Vec<Row>, StoreError>> {
    let (store, table) = (Arc::clone(store), table.clone());
    match &plan.read {
        Read::Ranges(ranges) => {
            let filter = plan.selection.row_filter();
            let open = move |(start, stop): (Vec<u8>, Vec<u8>)| {
                let (store, table) = (Arc::clone(&store), table.clone());
                let mut scan = Scan::range(start, stop);
                scan.columns = point_columns();
                scan.batch_rows = BATCH_ROWS;
                scan.filter = filter.clone();
                stream::once(async move { store.scan(&table, scan).await })
                    .try_flatten()
                    .boxed()
            };
            stream::iter(ranges.clone())
                .map(open)
                .flatten_unordered(BUCKETS_AT_A_TIME)
                .boxed()
        }
        Read::Rows(rows) => {
            let selection = plan.selection.clone();
            let read = move |mut keys: Vec<Vec<u8>>| {
                let (store, table) = (Arc::clone(&store), table.clone());
                // Names may have been judged since the plan was made.
                keys.retain(|key| selection.may_keep(key));
                async move {
                    let rows = store.get_rows(&table, &keys, &point_columns()).await?;
                    Ok(rows.into_iter().flatten().collect())
                }
            };
            stream::iter(rows.batches(BATCH_ROWS)).then(read).boxed()
        }
    }
}
