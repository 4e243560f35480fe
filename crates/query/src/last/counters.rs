//! Reads from table `tsdb-meta` when series were last written.
//!
//! The table has a counter for each series, written by OpenTSDB if `tsd.core.meta.enable_tsuid_tracking` is set, and by
//! this service (see `write/tracking.rs`):
//!
//! ```text
//!   row key: the TSUID        name:ts_ctr    number of points; the cell's timestamp is the writer's
//!                                            clock at the last of them
//! ```
//!
//! Source: OpenTSDB 2.4, `TSMeta`, `TSUIDQuery.getLastWriteTimes`.

use std::sync::Arc;

use futures::TryStreamExt as _;
use oxtsdb_row_store::{ColumnSelection, Row, RowFilter, Scan, StoreError, prefix_end};
use oxtsdb_schema::data_table::{COUNTER_QUALIFIER, META_FAMILY};
use oxtsdb_schema::{MetricUid, TagkUid, TagvUid, Tsuid, UidWidths};
use rustc_hash::FxHashMap;

use crate::context::budget::Held;
use crate::context::limits::Limits;
use crate::context::resource::Resource;
use crate::error::QueryError;
use crate::storage::Storage;

/// Estimated memory of a series and its timestamp.
const WRITTEN_BYTES: u64 = 64;

/// A series and the time of its last write, milliseconds since the epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// The series.
    pub tsuid: Tsuid,
    /// The time of its last write.
    pub at_ms: i64,
}

/// The counters of series, in their order; series without one are left out.
///
/// # Errors
///
/// When the store fails.
pub async fn for_series(storage: &Storage, tsuids: &[Tsuid]) -> Result<Vec<Written>, QueryError> {
    let keys: Vec<Vec<u8>> = tsuids.iter().map(|tsuid| tsuid.as_bytes().to_vec()).collect();
    let rows = storage
        .store
        .get_rows(&storage.meta_table, &keys, &counter(), None)
        .await;
    match rows {
        Ok(rows) => rows
            .iter()
            .flatten()
            .filter_map(|row| written(row, &storage.layout.widths).transpose())
            .collect(),
        Err(error) => without_table(error).map(|()| Vec::new()),
    }
}

/// For each list of tags the counters of the series of a metric that have all of them, ascending by TSUID. The counters of
/// the metric are read once. The memory of the result is added to `held`.
///
/// # Errors
///
/// When the store fails, [`QueryError::OverBudget`] if there are more than `limits` allow, and the errors of
/// [`Held::grow`].
pub async fn for_metric(
    storage: &Storage,
    metric: MetricUid,
    tags: Vec<Vec<(TagkUid, TagvUid)>>,
    limits: Limits,
    held: &mut Held,
) -> Result<Vec<Vec<Written>>, QueryError> {
    let widths = storage.layout.widths;
    let start = metric.as_bytes().to_vec();
    let stop = prefix_end(&start);
    let mut counters = vec![Vec::new(); tags.len()];
    let lists = Arc::new(TagLists::new(tags));
    let filter = Arc::clone(&lists);
    let mut scan = Scan::range(start, stop);
    scan.columns = counter();
    scan.filter = Some(RowFilter::new(move |key| {
        Tsuid::from_bytes(key, &widths).is_ok_and(|tsuid| filter.within(&tsuid, &widths).next().is_some())
    }));
    let mut batches = match storage.store.scan(&storage.meta_table, scan).await {
        Ok(batches) => batches,
        Err(error) => return without_table(error).map(|()| counters),
    };
    let mut count = 0;
    while let Some(batch) = batches.try_next().await? {
        for row in &batch {
            let Some(written) = written(row, &widths)? else {
                continue;
            };
            let before = count;
            for place in lists.within(&written.tsuid, &widths) {
                count += 1;
                counters[place].push(written.clone());
            }
            limits.check(Resource::Series, count)?;
            held.grow((count - before) * WRITTEN_BYTES)?;
        }
        tokio::task::consume_budget().await;
    }
    Ok(counters)
}

/// Lists of tags, to find the lists that are subsets of a series' tags.
struct TagLists {
    lists: Vec<Vec<(TagkUid, TagvUid)>>,
    /// The places of lists by their first tags.
    by_first: FxHashMap<(TagkUid, TagvUid), Vec<usize>>,
    /// The places of empty lists.
    empty: Vec<usize>,
}

impl TagLists {
    fn new(lists: Vec<Vec<(TagkUid, TagvUid)>>) -> Self {
        let mut by_first: FxHashMap<_, Vec<usize>> = FxHashMap::default();
        let mut empty = Vec::new();
        for (place, list) in lists.iter().enumerate() {
            match list.first() {
                Some(first) => by_first.entry(*first).or_default().push(place),
                None => empty.push(place),
            }
        }
        Self {
            lists,
            by_first,
            empty,
        }
    }

    /// The places of the lists that are subsets of a series' tags.
    fn within<'a>(&'a self, tsuid: &'a Tsuid, widths: &'a UidWidths) -> impl Iterator<Item = usize> + 'a {
        let has = |tag: &(TagkUid, TagvUid)| tsuid.tags(widths).any(|other| other == *tag);
        let of_tag = |tag| self.by_first.get(&tag).into_iter().flatten();
        let lists = tsuid.tags(widths).flat_map(of_tag).copied();
        let lists = lists.filter(move |place| self.lists[*place].iter().all(has));
        lists.chain(self.empty.iter().copied())
    }
}

fn counter() -> ColumnSelection {
    ColumnSelection::Columns(vec![(META_FAMILY.to_owned(), COUNTER_QUALIFIER.to_vec())])
}

fn written(row: &Row, widths: &UidWidths) -> Result<Option<Written>, QueryError> {
    let Some(cell) = row.get(META_FAMILY, COUNTER_QUALIFIER) else {
        return Ok(None);
    };
    let tsuid =
        Tsuid::from_bytes(row.key(), widths).map_err(|error| QueryError::row_series(row.key(), &error))?;
    let at_ms = cell.timestamp_ms;
    Ok(Some(Written { tsuid, at_ms }))
}

/// Without the table there are no counters.
fn without_table(error: StoreError) -> Result<(), QueryError> {
    match error {
        StoreError::NoSuchTable { .. } => Ok(()),
        error => Err(error.into()),
    }
}
