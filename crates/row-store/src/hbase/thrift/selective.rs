//! Scans that select few of many rows.
//!
//! A filter with seek hints is expected to match few rows unless it says otherwise ([`RowFilter::keeping_most`]), and
//! the gateway would send all of them. Such a scan first lists keys, each with one cell and no value, and applies the
//! filter to them:
//!
//! ```text
//!   keys of a range ──► filter ──┬─ few match ───► get these rows by key ──┐
//!        ▲                       ├─ many match ──► scan this part ─────────┼─► rows, in order
//!        └── seek hint ◄─────────┴─ none matches for a while               │
//! ```
//!
//! If none of the last keys matches, another scanner is opened at the filter's hint. Opening one costs as much
//! as listing a hundred keys or more, so after each jump without a match the number of keys listed before the
//! next jump doubles. Keys are listed while rows are being read.
//!
//! A row is read after its key was listed. Writes in between are visible, as they are when a plain scan reaches
//! one row later than another.

use std::sync::Arc;

use futures::stream::{StreamExt, TryStreamExt, iter, try_unfold};

use super::cursor::Cursor;
use super::error::{CallError, RequestContext};
use super::pool::Pool;
use super::read;
use crate::hbase::fetched::Fetched;
use crate::{RowFilter, RowStream, Scan, StoreError, TableName};

/// Keys listed at first, and after each jump.
const FIRST_KEYS: usize = 64;
/// Consecutive mismatches after which a jump pays off.
const MIN_MISMATCHES_TO_JUMP: usize = FIRST_KEYS / 2;
/// Consecutive fruitless jumps after which the number of listed keys no longer doubles.
const DOUBLINGS: u32 = 4;
/// The most rows per read: one less than the scan of a part fetches, so that its first fetch already reaches
/// the end.
const ROWS_PER_READ: usize = 127;
/// If at least one of this many keys matches, a scan is faster than reading rows by key.
const DENSE: usize = 4;
/// Fewer rows than this are always read by key.
const FEW_ROWS: usize = 8;

/// Whether a scan should use this access path. Scans with limits, older versions or descending order do not.
pub(super) fn applies_to(scan: &Scan) -> bool {
    let lists_keys = |filter: &RowFilter| filter.has_seek() && !filter.keeps_most();
    let lists_keys = scan.filter.as_ref().is_some_and(lists_keys);
    lists_keys && !scan.reverse && scan.limit.is_none() && scan.max_versions <= 1
}

/// Opens a selective scan and lists its first keys.
pub(super) async fn open(pool: Arc<Pool>, table: TableName, scan: Scan) -> Result<RowStream, StoreError> {
    let mut keys = Keys {
        cursor: Cursor::keys_only(pool.clone(), table.clone(), scan.clone(), FIRST_KEYS),
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
        .map_ok(|fetched| fetched.rows)
        .try_filter(|rows| std::future::ready(!rows.is_empty()));
    Ok(rows.map_err(store_error).boxed())
}

/// Lists the keys of a scan.
struct Keys {
    cursor: Cursor,
    /// Jumps since the last matching key.
    fruitless_jumps: u32,
}

/// Matching keys, at least one, among those that one fetch listed.
struct KeyBatch {
    keys: Vec<Vec<u8>>,
    is_dense: bool,
}

impl Keys {
    /// The next matching keys; `None` at the end.
    async fn next(&mut self) -> Result<Option<KeyBatch>, CallError> {
        while !self.cursor.is_at_end() {
            let Some(fetched) = self.cursor.fetched().await? else {
                continue;
            };
            let (rows, count, continuation) = (fetched.fetched.rows, fetched.parts, fetched.continuation);
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
    /// Splits the batch into batches of at most `keys` keys.
    fn split(self, keys: usize) -> Vec<KeyBatch> {
        let is_dense = self.is_dense;
        let portion = |keys: &[Vec<u8>]| KeyBatch {
            keys: keys.to_vec(),
            is_dense,
        };
        self.keys.chunks(keys).map(portion).collect()
    }
}

/// Reads the rows of listed keys.
struct Reader {
    pool: Arc<Pool>,
    table: TableName,
    scan: Scan,
}

impl Reader {
    async fn read(self: Arc<Self>, batch: KeyBatch) -> Result<Fetched, CallError> {
        match batch.keys.as_slice() {
            keys @ [first, .., last] if batch.is_dense => {
                let mut fetched = self.range(first, last).await?;
                // Rows written in between were not listed, and would make the batch too long.
                fetched
                    .rows
                    .retain(|row| keys.binary_search_by(|key| key.as_slice().cmp(row.key())).is_ok());
                Ok(fetched)
            }
            keys => read::get(&self.pool, &self.table, &self.scan, keys).await,
        }
    }

    /// The matching rows between two keys, both inclusive.
    async fn range(&self, first: &[u8], last: &[u8]) -> Result<Fetched, CallError> {
        let mut scan = self.scan.clone();
        scan.start = first.to_vec();
        scan.stop = [last, &[0]].concat();
        let mut cursor = Cursor::new(Arc::clone(&self.pool), self.table.clone(), scan);
        let mut all = Fetched::default();
        while let Some(result) = cursor.next_fetched().await? {
            all.rows.extend(result.rows);
            all.held.merge(result.held);
        }
        Ok(all)
    }
}
