//! A scan in progress: fetches the newest versions of rows, in order, and recovers when its scanner is lost.
//!
//! A scanner lives in the gateway that opened it, under a small number that a restarted gateway reuses. It is
//! therefore used only on the connection that opened it. If that connection or the scanner's lease is lost,
//! the cursor opens another scanner behind the last complete row.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use hbase_thrift::hbase::{THbaseSyncClient, TScan};

use super::connection::{Connection, ConnectionId};
use super::error::{CallError, RequestContext};
use super::pool::{Call, Pool};
use super::queue::Route;
use super::range::{Assembler, KeyRange};
use super::raw;
use crate::hbase::fetched::{Fetched, Held, Memory};
use crate::{Row, Scan, StoreError, TableName};

/// Cells of a part of a row; wider rows arrive in several parts.
const CELLS_PER_PART: i32 = 1_000;
/// The fewest and the most parts per fetch, if the limit of the scan allows.
const PARTS: std::ops::RangeInclusive<usize> = 128..=1_024;
/// How often a scan is resumed without receiving a new row.
const ATTEMPTS: usize = 3;

/// A scan in progress, which returns the newest versions of rows in order.
pub(super) struct Cursor {
    pub(super) pool: Arc<Pool>,
    pub(super) table: TableName,
    scan: Scan,
    /// The range not received yet.
    range: KeyRange,
    /// Whether only keys are requested.
    is_of_keys: bool,
    /// A filter of rows for HBase, beside the scan's filter.
    pattern: Option<Arc<str>>,
    /// Rows left until the limit.
    rest: u64,
    /// The fetch in progress.
    next: Option<Call<FetchResult>>,
    /// Fetched rows.
    ready: VecDeque<Row>,
    /// Their count.
    held: Held,
    is_at_end: bool,
    /// Failed attempts since the last row.
    failures: usize,
    /// The size of the next fetch; reduced after oversized responses.
    parts: usize,
    most_parts: usize,
    cells: i32,
}

/// The result of a fetch.
pub(super) struct FetchResult {
    /// The matching rows.
    pub(super) fetched: Fetched,
    /// Number of received parts, of matching and other rows.
    pub(super) parts: usize,
    is_at_end: bool,
    pub(super) continuation: Continuation,
}

/// The state with which a scan continues.
pub(super) struct Continuation {
    scanner: Scanner,
    pub(super) assembler: Assembler,
}

impl Cursor {
    /// A scan that has not started.
    pub(super) fn new(pool: Arc<Pool>, table: TableName, scan: Scan) -> Self {
        let parts = scan.batch_rows.clamp(*PARTS.start(), *PARTS.end());
        Self {
            parts,
            most_parts: parts,
            cells: CELLS_PER_PART,
            rest: scan.limit.unwrap_or(u64::MAX),
            range: KeyRange::from_scan(&scan),
            is_of_keys: false,
            pattern: None,
            pool,
            table,
            scan,
            next: None,
            ready: VecDeque::new(),
            held: Held::default(),
            is_at_end: false,
            failures: 0,
        }
    }

    /// As [`Cursor::new`], for keys only: each row has one cell without its value. The first fetch requests `parts`
    /// parts.
    pub(super) fn keys_only(pool: Arc<Pool>, table: TableName, scan: Scan, parts: usize) -> Self {
        Self {
            parts,
            most_parts: *PARTS.end(),
            is_of_keys: true,
            ..Self::new(pool, table, scan)
        }
    }

    /// The same scan of rows that pass a filter of HBase.
    pub(super) fn with_pattern(self, pattern: Arc<str>) -> Self {
        Self {
            pattern: Some(pattern),
            ..self
        }
    }

    /// The same scan, with a first fetch of `parts` parts.
    pub(super) fn with_parts(self, parts: usize) -> Self {
        Self { parts, ..self }
    }

    /// Whether HBase filters the rows.
    pub(super) fn has_pattern(&self) -> bool {
        self.pattern.is_some()
    }

    /// The scan, if only the keys of its rows are requested.
    pub(super) fn scan_to_get(&self) -> Option<Scan> {
        self.is_of_keys.then(|| self.scan.clone())
    }

    /// The start of the range that has not been received.
    pub(super) fn start(&self) -> &[u8] {
        self.range.start()
    }

    /// Its end; `None`: unbounded.
    pub(super) fn stop(&self) -> Option<&[u8]> {
        self.range.stop()
    }

    /// The rest of an ascending scan in up to `parts` parts, split evenly between two keys.
    pub(super) fn split(&self, first: &[u8], last: &[u8], parts: usize) -> Vec<Self> {
        let part = |range| Self {
            range,
            is_of_keys: self.is_of_keys,
            pattern: self.pattern.clone(),
            parts: self.parts,
            most_parts: self.most_parts,
            cells: self.cells,
            ..Self::new(self.pool.clone(), self.table.clone(), self.scan.clone())
        };
        self.range
            .split(first, last, parts)
            .into_iter()
            .map(part)
            .collect()
    }

    /// The last key of the rest of an ascending scan; `None` if it has no rows.
    pub(super) fn last_key(&self) -> impl Future<Output = Result<Option<Vec<u8>>, CallError>> + Send + use<> {
        let scan = Scan {
            reverse: true,
            filter: None,
            ..self.scan.clone()
        };
        // Beside it one row that may be outside the range, and the next one, which completes it.
        let mut keys = Self::keys_only(self.pool.clone(), self.table.clone(), scan, 3);
        keys.range = self.range.reversed();
        async move { Ok(keys.first().await?.first().map(|row| row.key().to_vec())) }
    }

    /// The next rows, without fetching more than it takes to complete one; empty at the end.
    pub(super) async fn first(&mut self) -> Result<Vec<Row>, CallError> {
        while !self.is_at_end {
            let Some(fetched) = self.fetched().await? else {
                continue;
            };
            if !fetched.fetched.rows.is_empty() {
                return Ok(fetched.fetched.rows);
            }
            // A wide row goes on.
            self.continue_with(fetched.continuation, self.parts);
        }
        Ok(Vec::new())
    }

    pub(super) fn store_error(&self, error: CallError) -> StoreError {
        error.into_store_error(RequestContext::idempotent(&self.table))
    }

    /// The next rows; empty at the end.
    pub(super) async fn next_batch(&mut self) -> Result<Vec<Row>, CallError> {
        while self.ready.is_empty() && !self.is_at_end {
            self.fetch().await?;
        }
        let count = self.ready.len().min(self.scan.batch_rows);
        let batch = self.ready.drain(..count).collect();
        if self.ready.is_empty() {
            self.held = Held::default();
        }
        Ok(batch)
    }

    /// The next rows, all that are fetched; `None` at the end.
    pub(super) async fn next_fetched(&mut self) -> Result<Option<Fetched>, CallError> {
        while self.ready.is_empty() && !self.is_at_end {
            self.fetch().await?;
        }
        let rows: Vec<Row> = self.ready.drain(..).collect();
        let held = std::mem::take(&mut self.held);
        Ok((!rows.is_empty()).then_some(Fetched { rows, held }))
    }

    /// Waits for rows and starts the next fetch.
    pub(super) async fn fetch(&mut self) -> Result<(), CallError> {
        let Some(fetched) = self.fetched().await? else {
            return Ok(());
        };
        let rest = usize::try_from(self.rest).unwrap_or(usize::MAX);
        let before = self.ready.len();
        self.ready.extend(fetched.fetched.rows.into_iter().take(rest));
        self.held.merge(fetched.fetched.held);
        self.rest -= (self.ready.len() - before) as u64;
        if self.rest == 0 {
            self.is_at_end = true;
        }
        self.continue_with(fetched.continuation, self.parts);
        Ok(())
    }

    /// The result of the next fetch, without starting another one; `None` at the end and if the fetch has to be
    /// retried.
    pub(super) async fn fetched(&mut self) -> Result<Option<FetchResult>, CallError> {
        if self.is_at_end {
            return Ok(None);
        }
        let call = match self.next.take() {
            Some(call) => call,
            None => self.open_scanner()?,
        };
        let fetched = match call.response().await {
            Ok(fetched) => fetched,
            Err(error) => return self.recover(error).map(|()| None),
        };
        if let Some(key) = fetched.continuation.assembler.last_key() {
            self.failures = 0;
            self.range.resume_after(key);
        }
        self.is_at_end = fetched.is_at_end;
        Ok(Some(fetched))
    }

    /// Whether nothing is left to fetch.
    pub(super) fn is_at_end(&self) -> bool {
        self.is_at_end
    }

    /// Starts the next fetch, of up to `parts` parts. If it cannot be queued, a new scanner is opened when it is
    /// needed.
    pub(super) fn continue_with(&mut self, continuation: Continuation, parts: usize) {
        self.parts = parts.min(self.most_parts);
        if !self.is_at_end {
            self.next = self.continue_scanner(continuation).ok();
        }
    }

    /// Starts the next fetch on a new scanner opened at `key`; false if `key` is not ahead.
    pub(super) fn jump(&mut self, key: Vec<u8>, parts: usize) -> bool {
        if self.is_at_end || !self.range.seek(key) {
            return false;
        }
        self.parts = parts.min(self.most_parts);
        self.is_at_end = self.range.is_empty();
        if !self.is_at_end {
            self.next = self.open_scanner().ok();
        }
        true
    }

    /// Opens a scanner on the remaining range.
    fn open_scanner(&self) -> Result<Call<FetchResult>, CallError> {
        let pool = self.pool.clone();
        let (table, parts) = (raw::table_name(&self.table), self.parts());
        let range = self.range.scan_range();
        let pattern = self.pattern.as_deref();
        let scan = if self.is_of_keys {
            raw::scan_of_keys(range, &self.scan.columns, pattern, parts)
        } else {
            raw::scan(range, &self.scan.columns, pattern, self.cells, parts)
        };
        let assembler = Assembler::new(self.range.clone(), self.scan.filter.clone());
        let memory = Memory::from_scan(&self.scan);
        let deadline = Instant::now() + self.pool.config().request_timeout;
        self.pool
            .submit(Route::Any, deadline, move |connection, deadline| {
                let scanner = Scanner::open(connection, deadline, pool, table, scan)?;
                scanner.fetch(connection, deadline, assembler, parts, &memory)
            })
    }

    /// Fetches from an open scanner.
    fn continue_scanner(&self, continuation: Continuation) -> Result<Call<FetchResult>, CallError> {
        let Continuation { scanner, assembler } = continuation;
        let parts = self.parts();
        let deadline = Instant::now() + self.pool.config().request_timeout;
        let (connection, memory) = (scanner.connection, Memory::from_scan(&self.scan));
        self.pool.submit(
            Route::Connection(connection),
            deadline,
            move |connection, deadline| scanner.fetch(connection, deadline, assembler, parts, &memory),
        )
    }

    /// The number of parts to fetch. Without a filter, not many more than the limit leaves rows.
    fn parts(&self) -> i32 {
        let rest = usize::try_from(self.rest).unwrap_or(usize::MAX);
        let parts = match self.scan.filter {
            // The first row of a descending scan may be outside the range.
            None => self.parts.min(rest.saturating_add(1)),
            Some(_) => self.parts,
        };
        i32::try_from(parts).unwrap_or(i32::MAX)
    }

    /// Prepares another attempt after the last complete row, if the error is recoverable.
    fn recover(&mut self, error: CallError) -> Result<(), CallError> {
        self.failures += 1;
        let is_recoverable = match &error {
            CallError::ScannerLost | CallError::ConnectionLost { .. } => self.failures < ATTEMPTS,
            CallError::Exception(exception) => exception.is_scanner_expired() && self.failures < ATTEMPTS,
            // Limited by the size itself, which cannot be halved forever.
            CallError::ResponseTooLarge { .. } => self.fetch_less(),
            // HBase did not find enough matching rows in time. Without its filter each fetch makes progress.
            CallError::TimedOut { .. } => self.pattern.take().is_some(),
            CallError::NotSent { .. } => false,
        };
        if !is_recoverable {
            return Err(error);
        }
        tracing::debug!(table = %self.table, %error, "resuming the scan");
        Ok(())
    }

    /// Halves the size of a fetch; false if it is minimal.
    fn fetch_less(&mut self) -> bool {
        if self.parts > 1 {
            self.parts /= 2;
            self.most_parts = self.parts;
        } else if self.cells > 1 {
            self.cells /= 2;
        } else {
            return false;
        }
        true
    }
}

/// A scanner that is open in a gateway; dropping it closes it.
struct Scanner {
    pool: Arc<Pool>,
    connection: ConnectionId,
    id: i32,
}

impl Scanner {
    fn open(
        connection: &mut Connection,
        deadline: Instant,
        pool: Arc<Pool>,
        table: Vec<u8>,
        scan: TScan,
    ) -> Result<Self, CallError> {
        let id = connection.call("scannerOpenWithScan", deadline, |client| {
            client.scanner_open_with_scan(table, scan, raw::no_attributes())
        })?;
        connection.scanners += 1;
        Ok(Self {
            pool,
            connection: connection.id,
            id,
        })
    }

    fn fetch(
        self,
        connection: &mut Connection,
        deadline: Instant,
        mut assembler: Assembler,
        parts: i32,
        memory: &Memory,
    ) -> Result<FetchResult, CallError> {
        let received = connection.call("scannerGetList", deadline, |client| {
            client.next_rows(self.id, parts)
        })?;
        let count = received.len();
        // A short result is the last one.
        let is_at_end = i32::try_from(count).is_ok_and(|count| count < parts);
        let added = assembler.add(received, is_at_end);
        let rows =
            added.map_err(|error| CallError::from_thrift(error, connection.gateway(), "scannerGetList"))?;
        let held = memory.hold(&rows);
        Ok(FetchResult {
            fetched: Fetched { rows, held },
            parts: count,
            is_at_end,
            continuation: Continuation {
                scanner: self,
                assembler,
            },
        })
    }
}

impl Drop for Scanner {
    fn drop(&mut self) {
        let id = self.id;
        self.pool
            .submit_detached(self.connection, move |connection, deadline| {
                connection.scanners = connection.scanners.saturating_sub(1);
                connection.call("scannerClose", deadline, |client| client.scanner_close(id))
            });
    }
}
