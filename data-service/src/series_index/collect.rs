//! Collects the series of a metric from its points, where table `tsdb-meta` is incomplete.
//!
//! A key-only scan visits all rows of the metric once. Each series without a row in `tsdb-meta` gets one, with the
//! time of its newest hour, as if it had been tracked when that hour was written.

use std::sync::Arc;

use futures::TryStreamExt as _;
use hashbrown::HashMap;
use oxtsdb_query::SeriesList;
use oxtsdb_row_store::{ColumnSelection, RowFilter, RowStore, Scan, StoreError, TableName, WriteBatch};
use oxtsdb_schema::data_table::{COUNTER_QUALIFIER, FAMILY, META_FAMILY};
use oxtsdb_schema::row_key::metric_ranges;
use oxtsdb_schema::{BaseTime, MetricUid, RowKeyLayout};
use parking_lot::Mutex;
use rustc_hash::FxBuildHasher;

/// Memory of a collected series beside its tags, in bytes; an estimate.
const SERIES_BYTES: usize = 48;

/// Rows in a batch of writes.
const BATCH_ROWS: usize = 4096;

/// The newest hour of each series, by its tags.
type Newest = HashMap<Box<[u8]>, BaseTime, FxBuildHasher>;

#[derive(Debug, Default)]
struct Collected {
    newest: Newest,
    bytes: usize,
}

/// The series of a metric that have points and are not in `listed`, with their newest hours. `None` if they
/// need more than `limit_bytes` of memory.
///
/// # Errors
///
/// When the store fails.
pub(super) async fn unlisted(
    store: &dyn RowStore,
    table: &TableName,
    layout: &RowKeyLayout,
    metric: MetricUid,
    listed: &Arc<SeriesList>,
    limit_bytes: usize,
) -> Result<Option<Newest>, StoreError> {
    let collected: Arc<Mutex<Collected>> = Arc::default();
    for (start, stop) in metric_ranges(layout, metric, BaseTime::MIN, BaseTime::MAX) {
        let mut scan = Scan::range(start, stop);
        scan.columns = ColumnSelection::Family(String::from_utf8_lossy(FAMILY).into_owned());
        let (layout, listed, seen) = (*layout, Arc::clone(listed), Arc::clone(&collected));
        // The filter rejects all rows, so that no cell is read.
        scan.filter = Some(RowFilter::new(move |key| {
            visit(key, &layout, &listed, limit_bytes, &mut seen.lock());
            false
        }));
        let mut batches = store.scan(table, scan).await?;
        while batches.try_next().await?.is_some() {}
        if collected.lock().bytes > limit_bytes {
            return Ok(None);
        }
    }
    let newest = std::mem::take(&mut collected.lock().newest);
    Ok(Some(newest))
}

fn visit(key: &[u8], layout: &RowKeyLayout, listed: &SeriesList, limit_bytes: usize, seen: &mut Collected) {
    let base_at = layout.salt.width() + layout.widths.metric.bytes();
    let Some((base, tags)) = key.get(base_at..).and_then(<[u8]>::split_first_chunk) else {
        return;
    };
    let hour = BaseTime::of_seconds(u32::from_be_bytes(*base));
    if let Some(newest) = seen.newest.get_mut(tags) {
        *newest = hour.max(*newest);
        return;
    }
    if tags.is_empty() || seen.bytes > limit_bytes || listed.contains(tags) {
        return;
    }
    seen.bytes += tags.len() + SERIES_BYTES;
    seen.newest.insert(tags.into(), hour);
}

/// Writes the rows of series.
///
/// # Errors
///
/// When the store fails; some rows may be written.
pub(super) async fn write_rows(
    store: &dyn RowStore,
    meta_table: &TableName,
    metric: MetricUid,
    newest: &Newest,
) -> Result<(), StoreError> {
    let mut rows = newest.iter();
    loop {
        let mut batch = WriteBatch::new(meta_table.clone());
        let family = batch.family(META_FAMILY);
        for (tags, hour) in rows.by_ref().take(BATCH_ROWS) {
            batch.row(&[metric.as_bytes(), tags].concat()).put_at(
                family,
                COUNTER_QUALIFIER,
                hour.millis(),
                &1_i64.to_be_bytes(),
            );
        }
        if batch.is_empty() {
            return Ok(());
        }
        store.write(batch).await?;
    }
}
