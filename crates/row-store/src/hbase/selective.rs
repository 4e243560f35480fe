//! Scans for few of many rows.
//!
//! A filter with hints is for few rows among many, and the gateway would send all of them. So such a scan
//! lists the keys first, each with one cell without a value, and the filter judges these:
//!
//! ```text
//!   keys of a range ──► filter ──┬─ few are wanted ──► these rows by their keys ─┐
//!        ▲                       ├─ many of them ────► the part of the range ────┼─► rows, in order
//!        └── where it says ◄─────┴─ none for long                                │
//! ```
//!
//! Where none of the last keys is wanted, another scanner is opened where the filter says. That costs as
//! much as a hundred keys or more, so after each time that led to nothing twice as many are batch before
//! the next. While rows are read, the next keys are batch.
//!
//! A row is read after its key was batch. What is written in between is read too, as it is where a scan
//! comes to a row later than to another one.

use std::sync::Arc;

use futures::stream::{StreamExt, TryStreamExt, iter, try_unfold};

use super::cursor::Cursor;
use super::error::{CallError, RequestContext};
use super::pool::Pool;
use super::read;
use crate::{Row, RowFilter, RowStream, Scan, StoreError, TableName};

/// Keys that are batch at first, and behind each jump.
const FIRST_KEYS: usize = 64;
/// Keys in a row that are not wanted, from which on a jump is worth it.
const MIN_MISMATCHES_TO_JUMP: usize = FIRST_KEYS / 2;
/// Jumps in vain, one after the other, after which no more keys are batch before the next.
const DOUBLINGS: u32 = 4;
/// Rows that are read together, at most: one less than the scan of a part of the range fetches at once, so
/// that it knows with the first fetch that it is at its end.
const ROWS_PER_READ: usize = 127;
/// If one of so many keys is wanted, or more, a scan is faster than rows by their keys.
const DENSE: usize = 4;
/// Fewer rows than this are always read by their keys.
const FEW_ROWS: usize = 8;

/// Whether a scan is better done so. Limits, older versions and descending order are for the other way.
pub(super) fn applies_to(scan: &Scan) -> bool {
    let has_hints = scan.filter.as_ref().is_some_and(RowFilter::has_seek);
    has_hints && !scan.reverse && scan.limit.is_none() && scan.max_versions <= 1
}

/// Opens such a scan, and lists its first keys.
pub(super) async fn open(pool: Arc<Pool>, table: TableName, scan: Scan) -> Result<RowStream, StoreError> {
    let mut keys = Keys {
        cursor: Cursor::of_keys(pool.clone(), table.clone(), scan.clone(), FIRST_KEYS),
        fruitless_jumps: 0,
    };
    let store_error = {
        let table = table.clone();
        move |error: CallError| error.into_store_error(RequestContext::idempotent(&table))
    };
    let first = keys.next().await.map_err(&store_error)?;
    let rows_per_read = ROWS_PER_READ.min(scan.batch_rows);
    let connections = pool.config().connections;
    let reader = Arc::new(Reader { pool, table, scan });
    let batch = try_unfold((keys, Some(first)), |(mut keys, first)| async move {
        let batch = match first {
            Some(first) => first,
            None => keys.next().await?,
        };
        Ok::<_, CallError>(batch.map(|batch| (batch, (keys, None))))
    })
    .map_ok(move |batch| iter(batch.split(rows_per_read)).map(Ok))
    .try_flatten();
    let rows = batch
        .map_ok(move |batch| Arc::clone(&reader).read(batch))
        .try_buffered(connections)
        .try_filter(|rows| std::future::ready(!rows.is_empty()));
    Ok(rows.map_err(store_error).boxed())
}

/// The keys of a scan.
struct Keys {
    cursor: Cursor,
    /// Jumps since the last key that is wanted.
    fruitless_jumps: u32,
}

/// Keys that are wanted, at least one, among those that were batch.
struct KeyBatch {
    keys: Vec<Vec<u8>>,
    is_dense: bool,
}

impl Keys {
    /// The next keys that are wanted; `None` at the end.
    async fn next(&mut self) -> Result<Option<KeyBatch>, CallError> {
        while !self.cursor.is_at_end() {
            let Some(fetched) = self.cursor.fetched().await? else {
                continue;
            };
            let (rows, count, continuation) = (fetched.rows, fetched.parts, fetched.continuation);
            if !rows.is_empty() {
                self.fruitless_jumps = 0;
            }
            let is_worth_it = continuation.assembler.trailing_mismatches() >= MIN_MISMATCHES_TO_JUMP;
            let target = continuation.assembler.seek().filter(|_| is_worth_it);
            let behind = FIRST_KEYS << self.fruitless_jumps.min(DOUBLINGS);
            if target.is_some_and(|key| self.cursor.jump(key, behind)) {
                self.fruitless_jumps += 1;
            } else {
                self.cursor.continue_with(continuation, 4 * count);
            }
            if !rows.is_empty() {
                return Ok(Some(KeyBatch {
                    is_dense: rows.len() >= FEW_ROWS && rows.len() * DENSE >= count,
                    keys: rows.iter().map(|row| row.key().to_vec()).collect(),
                }));
            }
        }
        Ok(None)
    }
}

impl KeyBatch {
    /// The same in portions of so many keys, at most.
    fn split(self, keys: usize) -> Vec<KeyBatch> {
        let is_dense = self.is_dense;
        let portion = |keys: &[Vec<u8>]| KeyBatch {
            keys: keys.to_vec(),
            is_dense,
        };
        self.keys.chunks(keys).map(portion).collect()
    }
}

/// Reads rows whose keys were batch.
struct Reader {
    pool: Arc<Pool>,
    table: TableName,
    scan: Scan,
}

impl Reader {
    async fn read(self: Arc<Self>, batch: KeyBatch) -> Result<Vec<Row>, CallError> {
        match batch.keys.as_slice() {
            keys @ [first, .., last] if batch.is_dense => {
                let mut rows = self.range(first, last).await?;
                // What was written in between belongs to no list, and would make the batch too long.
                rows.retain(|row| keys.binary_search_by(|key| key.as_slice().cmp(row.key())).is_ok());
                Ok(rows)
            }
            keys => {
                let rows = read::get_rows(&self.pool, &self.table, keys, &self.scan.columns).await?;
                Ok(rows.into_iter().flatten().collect())
            }
        }
    }

    /// The rows from one key to another, both inside, that are wanted.
    async fn range(&self, first: &[u8], last: &[u8]) -> Result<Vec<Row>, CallError> {
        let mut scan = self.scan.clone();
        scan.start = first.to_vec();
        scan.stop = [last, &[0]].concat();
        let mut cursor = Cursor::new(Arc::clone(&self.pool), self.table.clone(), scan);
        let mut rows = Vec::new();
        loop {
            let batch = cursor.next_batch().await?;
            if batch.is_empty() {
                return Ok(rows);
            }
            rows.extend(batch);
        }
    }
}
