//! Scans.
//!
//! While the caller processes rows, the next ones are fetched. A scan in any order reads regions side by side.

use std::collections::VecDeque;
use std::sync::Arc;

use futures::stream::{self, BoxStream, StreamExt as _, TryStreamExt as _};
use tracing::Instrument as _;

use super::super::fetched::{Fetched, Memory};
use super::cluster::Cluster;
use super::cursor::Cursor;
use super::error::CallError;
use super::filter::Pushed;
use super::messages::ScanMessage;
use super::read::{columns_of, get_rows};
use super::regions::Place;
use crate::{ColumnSelection, Row, RowFilter, RowStream, Scan, StoreError, TableName};

/// Regions that a scan in any order reads side by side.
const REGIONS_AT_A_TIME: usize = 4;

/// Listed keys in one read of rows.
const KEYS_AT_A_TIME: usize = 256;

/// Opens a scan and fetches its first rows, or finds out that the table does not exist.
///
/// # Errors
///
/// As [`crate::RowStore::scan`].
pub(super) async fn open(
    cluster: &Arc<Cluster>,
    table: &TableName,
    scan: Scan,
) -> Result<RowStream, StoreError> {
    let store_error = |error: CallError| error.into_store_error(Some(table));
    let selects_nothing = matches!(&scan.columns, ColumnSelection::Columns(columns) if columns.is_empty());
    let is_empty = !scan.stop.is_empty() && scan.start >= scan.stop;
    let pushed = Pushed::from_scan(&scan);
    if selects_nothing || is_empty || scan.limit == Some(0) || pushed == Pushed::NoRows {
        let located = cluster.locate(table, Place::Of(&scan.start), cluster.deadline());
        located.await.map_err(store_error)?;
        return Ok(stream::empty().boxed());
    }
    let parts = if scan.any_order && scan.limit.is_none() {
        parts(cluster, table, &scan).await.map_err(store_error)?
    } else {
        vec![scan]
    };
    let mut readers = parts
        .into_iter()
        .map(|scan| Reader::new(cluster, table, scan, pushed.clone()));
    let (Some(first), rest) = (readers.next(), readers.collect::<Vec<_>>()) else {
        return Ok(stream::empty().boxed());
    };
    let first = first.opened().await?;
    if rest.is_empty() {
        return Ok(first);
    }
    let rest = stream::iter(rest).map(|reader| {
        let opened = stream::once(reader.opened());
        opened.try_flatten().boxed()
    });
    Ok(stream::once(std::future::ready(first))
        .chain(rest)
        .flatten_unordered(REGIONS_AT_A_TIME)
        .boxed())
}

/// A scan for each region of a range.
async fn parts(cluster: &Arc<Cluster>, table: &TableName, scan: &Scan) -> Result<Vec<Scan>, CallError> {
    let mut parts = Vec::new();
    let mut start = scan.start.clone();
    loop {
        let region = cluster
            .locate(table, Place::Of(&start), cluster.deadline())
            .await?;
        let is_last = region.end.is_empty() || (!scan.stop.is_empty() && *region.end >= *scan.stop);
        let stop = if is_last {
            scan.stop.clone()
        } else {
            region.end.to_vec()
        };
        parts.push(Scan {
            start: std::mem::replace(&mut start, stop.clone()),
            stop,
            ..scan.clone()
        });
        if is_last {
            return Ok(parts);
        }
    }
}

/// Reads the rows of a scan that match.
#[derive(Debug)]
struct Reader {
    cluster: Arc<Cluster>,
    table: TableName,
    cursor: Cursor,
    filter: Option<RowFilter>,
    /// If the cursor lists keys: the matching keys; their rows are read next.
    keys: Option<VecDeque<Vec<u8>>>,
    columns: ColumnSelection,
    /// Rows that are left of the limit.
    left: u64,
    batch_rows: usize,
    memory: Memory,
}

impl Reader {
    fn new(cluster: &Arc<Cluster>, table: &TableName, scan: Scan, pushed: Pushed) -> Self {
        let (filter, lists_keys) = match pushed {
            Pushed::Filter(filter) => (Some(filter), false),
            Pushed::Keys(filter) => (Some(filter), true),
            Pushed::Nothing | Pushed::NoRows => (None, false),
        };
        let template = ScanMessage {
            column: columns_of(&scan.columns),
            filter,
            max_versions: Some(scan.max_versions),
            ..ScanMessage::default()
        };
        let most_rows = scan.limit.filter(|_| scan.filter.is_none());
        let cursor = Cursor::new(Arc::clone(cluster), table.clone(), &scan, template, most_rows);
        Self {
            cluster: Arc::clone(cluster),
            table: table.clone(),
            cursor,
            keys: lists_keys.then(VecDeque::new),
            memory: Memory::from_scan(&scan),
            filter: scan.filter,
            columns: scan.columns,
            left: scan.limit.unwrap_or(u64::MAX),
            batch_rows: scan.batch_rows,
        }
    }

    fn is_done(&self) -> bool {
        let has_keys = self.keys.as_ref().is_some_and(|keys| !keys.is_empty());
        self.left == 0 || (self.cursor.is_done() && !has_keys)
    }

    /// The next rows; none at the end.
    async fn next(&mut self) -> Result<Fetched, StoreError> {
        let fetched = self.fetch().await;
        let rows = fetched.map_err(|error| error.into_store_error(Some(&self.table)))?;
        Ok(Fetched {
            held: self.memory.hold(&rows),
            rows,
        })
    }

    async fn fetch(&mut self) -> Result<Vec<Row>, CallError> {
        while !self.is_done() {
            let mut rows = match &mut self.keys {
                None => {
                    let mut rows = self.cursor.fetch().await?;
                    if let Some(filter) = &self.filter {
                        rows.retain(|row| filter.keeps(row.key()));
                    }
                    rows
                }
                Some(keys) => {
                    if keys.len() < KEYS_AT_A_TIME && !self.cursor.is_done() {
                        let listed = self.cursor.fetch().await?;
                        let matching = listed.iter().map(Row::key);
                        let filter = self.filter.as_ref();
                        let matching = matching.filter(|key| filter.is_none_or(|filter| filter.keeps(key)));
                        keys.extend(matching.map(<[u8]>::to_vec));
                        if keys.len() < KEYS_AT_A_TIME && !self.cursor.is_done() {
                            continue;
                        }
                    }
                    let some: Vec<Vec<u8>> = keys.drain(..keys.len().min(KEYS_AT_A_TIME)).collect();
                    let rows = get_rows(&self.cluster, &self.table, &some, &self.columns).await?;
                    rows.into_iter().flatten().collect()
                }
            };
            rows.truncate(usize::try_from(self.left).unwrap_or(usize::MAX));
            self.left -= rows.len() as u64;
            if !rows.is_empty() {
                return Ok(rows);
            }
        }
        Ok(Vec::new())
    }

    /// The stream of rows; the first ones are fetched.
    async fn opened(mut self) -> Result<RowStream, StoreError> {
        let batch_rows = self.batch_rows;
        let first = self.next().await?;
        let first = batches(first, batch_rows);
        if self.is_done() {
            return Ok(first);
        }
        let rest = stream::try_unfold(Some(prefetch(Box::new(self))), move |fetching| async move {
            let Some(fetching) = fetching else {
                return Ok::<_, StoreError>(None);
            };
            let (reader, fetched) = fetching.await.map_err(|error| StoreError::Io {
                place: "HBase".to_owned(),
                detail: format!("a scan ended: {error}"),
            })?;
            let fetched = fetched?;
            let next = (!reader.is_done()).then(|| prefetch(reader));
            Ok(Some((batches(fetched, batch_rows), next)))
        });
        Ok(first.chain(rest.try_flatten()).boxed())
    }
}

/// A fetch that runs while the caller processes rows. If the caller goes away, the fetch ends by itself.
fn prefetch(mut reader: Box<Reader>) -> tokio::task::JoinHandle<(Box<Reader>, Result<Fetched, StoreError>)> {
    let fetching = async move {
        let fetched = reader.next().await;
        (reader, fetched)
    };
    tokio::spawn(fetching.in_current_span())
}

/// Rows in batches, which are not empty. All of them are counted until the last one is returned.
fn batches(fetched: Fetched, batch_rows: usize) -> BoxStream<'static, Result<Vec<Row>, StoreError>> {
    let Fetched { mut rows, held } = fetched;
    if rows.is_empty() {
        return stream::empty().boxed();
    }
    if rows.len() <= batch_rows {
        return stream::once(async move {
            drop(held);
            Ok(rows)
        })
        .boxed();
    }
    let mut batches = Vec::with_capacity(rows.len().div_ceil(batch_rows));
    while rows.len() > batch_rows {
        let rest = rows.split_off(batch_rows);
        batches.push(std::mem::replace(&mut rows, rest));
    }
    batches.push(rows);
    let mut batches = batches.into_iter();
    let mut held = Some(held);
    stream::iter(std::iter::from_fn(move || {
        let batch = batches.next()?;
        if batches.len() == 0 {
            held.take();
        }
        Some(Ok(batch))
    }))
    .boxed()
}
