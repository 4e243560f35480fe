//! Scans in any order of rows: parts of their range are read on all idle connections.
//!
//! ```text
//!   first rows, last key ─► the rest in parts, one for each idle connection:
//!   start ├──────┤       ├──────┼──────┼──────┤ last key ── stop
//! ```
//!
//! HBase cannot say how many rows a range has. It is split at keys in equal distances between its first and its last
//! row, as numbers of the first eight bytes that differ: even for keys with dense UIDs. Where rows are not even, a
//! connection that is done early takes a share of another part. The extent of a range is kept ([`super::extents`]):
//! the next scan of the range begins with the parts.
//!
//! With a [`KeyPattern`] HBase sends few of the rows that it reads, so parts are limited by their rows, and the first
//! rows are read without the pattern, as keys. They also say whether the filter's seek hints skip more than HBase
//! reads in the time of a seek; if so, the scan is a selective one ([`super::selective`]).

use std::collections::VecDeque;
use std::sync::Arc;

use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, Stream, StreamExt, TryStreamExt, iter, once, select, try_unfold};

use super::cursor::Cursor;
use super::error::{CallError, RequestContext};
use super::extents::{Extent, SAMPLE, rows_behind};
use super::key_pattern::KeyPattern;
use super::pool::Pool;
use super::{read, selective};
use crate::hbase::fetched::{Fetched, Memory};
use crate::{Row, RowStream, Scan, StoreError, TableName};

/// Rows of the first fetch.
const FIRST_ROWS: usize = 64;
/// Rows of later fetches. A part that has fewer rows is not split.
const ROWS: usize = 128;
/// A seek pays off if it skips this many keys or more.
const MIN_SKIPPED: usize = 16;
/// About how many rows HBase filters for one fetch: some tenths of a second if they have hundreds of cells.
const FILTERED_ROWS: usize = 10_000;
/// The most parts that a range is split into at once.
const MAX_PARTS: usize = 1_024;

/// Whether a scan should use this access path.
pub(super) fn applies_to(scan: &Scan) -> bool {
    scan.any_order && !scan.reverse && scan.limit.is_none() && scan.max_versions <= 1
}

/// Opens a scan. Unless it knows the range, it fetches the first rows.
pub(super) async fn open(
    pool: Arc<Pool>,
    table: TableName,
    scan: Scan,
    pattern: Option<KeyPattern>,
) -> Result<RowStream, StoreError> {
    let store_error = {
        let table = table.clone();
        move |error: CallError| error.into_store_error(RequestContext::idempotent(&table))
    };
    let (first_rows, extent, rest) = match pool.extents.get(&table, &scan) {
        Some(extent) => (Vec::new(), extent, Some(scan.clone())),
        None => {
            let start = start(&pool, &table, &scan, pattern.is_some()).await;
            let (first_rows, extent, is_all) = start.map_err(&store_error)?;
            let latest = first_rows.last().filter(|_| !is_all);
            let rest = latest.map(|row| scan.clone().resume_after(row.key()));
            (first_rows, extent, rest)
        }
    };
    let first_rows = matching(
        pool.clone(),
        table.clone(),
        scan.clone(),
        first_rows,
        pattern.is_some(),
    );
    let first_rows = in_batches(once(first_rows), scan.batch_rows).map_err(store_error.clone());
    let Some(rest) = rest else {
        return Ok(first_rows.boxed());
    };
    if pattern.is_some() && skips(&scan, &extent.sample) {
        let rest = selective::open(pool, table, rest).await?;
        return Ok(select(first_rows, rest).boxed());
    }
    let rows = extent.rows();
    let mut parts = free_connections(&pool).min(rows / ROWS).max(1);
    let cursor = match pattern {
        None => Cursor::new(pool.clone(), table, rest),
        Some(pattern) => {
            parts = parts.max(rows / FILTERED_ROWS);
            let cursor = match pattern.is_precise {
                true => Cursor::new(pool.clone(), table, rest),
                false => Cursor::keys_only(pool.clone(), table, rest, ROWS),
            };
            cursor.with_pattern(pattern.text.into())
        }
    };
    let cursor = cursor.with_parts(ROWS);
    let first = extent
        .sample
        .first()
        .map_or(cursor.start(), Vec::as_slice)
        .max(cursor.start())
        .to_vec();
    let last = extent.last.clone();
    let rest = in_batches(
        self::rows(&pool, Part { cursor, last }.split(&first, parts)),
        scan.batch_rows,
    );
    Ok(select(first_rows, rest.map_err(store_error)).boxed())
}

/// The first rows of a range, or their keys regardless of the filter; its extent; whether these are all.
async fn start(
    pool: &Arc<Pool>,
    table: &TableName,
    scan: &Scan,
    of_keys: bool,
) -> Result<(Vec<Row>, Arc<Extent>, bool), CallError> {
    let mut cursor = match of_keys {
        true => {
            let all = Scan {
                filter: None,
                ..scan.clone()
            };
            Cursor::keys_only(pool.clone(), table.clone(), all, SAMPLE)
        }
        false => Cursor::new(pool.clone(), table.clone(), scan.clone()).with_parts(FIRST_ROWS),
    };
    let last = cursor.last_key();
    let (rows, last) = futures::try_join!(cursor.first(), last)?;
    let extent = Arc::new(Extent::new(
        rows.iter().map(|row| row.key().to_vec()).collect(),
        last,
    ));
    pool.extents.put(table, scan, &extent);
    Ok((rows, extent, cursor.is_at_end()))
}

/// The rows, or the matching rows of listed keys.
async fn matching(
    pool: Arc<Pool>,
    table: TableName,
    scan: Scan,
    rows: Vec<Row>,
    of_keys: bool,
) -> Result<Fetched, CallError> {
    if !of_keys {
        let held = Memory::from_scan(&scan).hold(&rows);
        return Ok(Fetched { rows, held });
    }
    let keeps = |key: &&[u8]| scan.filter.as_ref().is_none_or(|filter| filter.keeps(key));
    let keys = rows.iter().map(Row::key).filter(keeps).map(<[u8]>::to_vec);
    read::get(&pool, &table, &scan, &keys.collect::<Vec<_>>()).await
}

/// Whether seeks after keys, which are in order, skip many of them.
fn skips(scan: &Scan, keys: &[Vec<u8>]) -> bool {
    let Some(filter) = &scan.filter else {
        return false;
    };
    let (mut at, mut seeks) = (0, 0);
    while let Some(key) = keys.get(at) {
        at += 1;
        if !filter.keeps(key) {
            seeks += 1;
            let target = filter.seek_after(key).unwrap_or_default();
            at = at.max(keys.partition_point(|key| *key < target));
        }
    }
    seeks * MIN_SKIPPED <= keys.len()
}

/// Connections that a scan may use, at least one.
fn free_connections(pool: &Pool) -> usize {
    (pool.idle_connections() + 1).min(pool.config().connections)
}

/// Rows in batches of up to `size`.
fn in_batches(
    rows: impl Stream<Item = Result<Fetched, CallError>> + Send,
    size: usize,
) -> impl Stream<Item = Result<Vec<Row>, CallError>> + Send {
    rows.map_ok(move |fetched| {
        let (mut rows, mut held) = (fetched.rows, Some(fetched.held));
        iter(std::iter::from_fn(move || {
            // The caller counts the batch that it gets; the others are still counted here.
            if rows.len() <= size {
                drop(held.take());
            }
            let batch: Vec<Row> = rows.drain(..rows.len().min(size)).collect();
            (!batch.is_empty()).then_some(Ok(batch))
        }))
    })
    .try_flatten()
}

/// A part of a range that has not been read.
struct Part {
    cursor: Cursor,
    /// A key after which no rows are expected; `None`: not known.
    last: Option<Vec<u8>>,
}

impl Part {
    /// Fetches rows; returns them and the rest of the part, split into several parts if connections are idle.
    async fn advance(mut self) -> Result<(Fetched, Vec<Self>), CallError> {
        let Some(fetched) = self.cursor.fetched().await? else {
            let rest = (!self.cursor.is_at_end()).then_some(self);
            return Ok((Fetched::default(), rest.into_iter().collect()));
        };
        let (pool, table) = (self.cursor.pool.clone(), self.cursor.table.clone());
        let (rows, scan) = (fetched.fetched, self.cursor.scan_to_get());
        let rest = if self.cursor.is_at_end() {
            Vec::new()
        } else {
            match self.shares(&rows.rows).await? {
                1 => {
                    self.cursor.continue_with(fetched.continuation, ROWS);
                    vec![self]
                }
                parts => {
                    let first = self.cursor.start().to_vec();
                    self.split(&first, parts)
                }
            }
        };
        let Some(scan) = scan else {
            return Ok((rows, rest));
        };
        let keys: Vec<Vec<u8>> = rows.rows.iter().map(|row| row.key().to_vec()).collect();
        Ok((read::get(&pool, &table, &scan, &keys).await?, rest))
    }

    /// How many connections should read the rest, if these are the rows read last.
    async fn shares(&mut self, rows: &[Row]) -> Result<usize, CallError> {
        let free = free_connections(&self.cursor.pool);
        // If HBase filters rows, the returned ones say nothing about the number of rows that it reads.
        let (Some(first), Some(latest), false) = (rows.first(), rows.last(), self.cursor.has_pattern())
        else {
            return Ok(1);
        };
        if free == 1 {
            return Ok(1);
        }
        if self.last.is_none() {
            self.last = self.cursor.last_key().await?;
        }
        let rest = self
            .last
            .as_ref()
            .map_or(0, |last| rows_behind(first.key(), latest.key(), last, rows.len()));
        Ok(free.min(rest / ROWS).max(1))
    }

    /// The part in up to `parts` parts, split evenly between `first` and its last key.
    fn split(self, first: &[u8], parts: usize) -> Vec<Self> {
        let last = self.last.unwrap_or_default();
        let cursors = self.cursor.split(first, &last, parts.min(MAX_PARTS));
        let part = |cursor: Cursor| Self {
            last: Some(
                cursor
                    .stop()
                    .map_or_else(|| last.clone(), |stop| stop.min(&last).to_vec()),
            ),
            cursor,
        };
        cursors.into_iter().map(part).collect()
    }
}

/// The rows of parts, of as many at a time as there are connections.
fn rows(pool: &Pool, parts: Vec<Part>) -> impl Stream<Item = Result<Fetched, CallError>> + Send + use<> {
    type Reads = FuturesUnordered<BoxFuture<'static, Result<(Fetched, Vec<Part>), CallError>>>;
    let connections = pool.config().connections;
    let state = (VecDeque::from(parts), Reads::new());
    try_unfold(state, move |(mut waiting, mut reads)| async move {
        loop {
            while reads.len() < connections
                && let Some(part) = waiting.pop_front()
            {
                reads.push(Box::pin(part.advance()));
            }
            let Some(read) = reads.next().await else {
                return Ok(None);
            };
            let (rows, rest) = read?;
            // In front of parts that have not begun, so that few scanners are open.
            for part in rest.into_iter().rev() {
                waiting.push_front(part);
            }
            if !rows.rows.is_empty() {
                return Ok(Some((rows, (waiting, reads))));
            }
        }
    })
}
