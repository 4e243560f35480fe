//! Scans over gateways that break, lose scanners, and return wide rows in parts.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use crate::support::fake_gateway::{Action, FakeGateway, Request};
use crate::support::reply;
use futures::StreamExt;
use oxtsdb_row_store::hbase::thrift::{ThriftConfig, ThriftStore};
use oxtsdb_row_store::{
    FetchMemory, KeyPart, Row, RowFilter, RowStore, Scan, StoreControl as _, StoreError, TableName,
};
use parking_lot::Mutex;

/// Rows of the table.
const ROWS: usize = 1_000;

fn key(number: usize) -> Vec<u8> {
    format!("row{number:04}").into_bytes()
}

/// A part of a row: its key and the index of the part.
type Part = (Vec<u8>, u8);

/// A gateway with one scannable table; each row has the given number of single-cell parts.
struct Table {
    parts_per_row: u8,
    next_scanner: AtomicUsize,
    /// The remaining parts of each scanner.
    scanners: Mutex<HashMap<i32, Vec<Part>>>,
    /// The connection that opened each scanner.
    opened_on: Mutex<HashMap<i32, usize>>,
    /// Whether a scanner was used on another connection.
    mixed_up: AtomicBool,
    closed: AtomicUsize,
    fetches: AtomicUsize,
    /// Number of rows that each get requested.
    gets: Mutex<Vec<usize>>,
    /// The filters of the scanners.
    filters: Mutex<Vec<String>>,
}

impl Table {
    fn new(parts_per_row: u8) -> Arc<Self> {
        Arc::new(Self {
            parts_per_row,
            next_scanner: AtomicUsize::new(0),
            scanners: Mutex::default(),
            opened_on: Mutex::default(),
            mixed_up: AtomicBool::new(false),
            closed: AtomicUsize::new(0),
            fetches: AtomicUsize::new(0),
            gets: Mutex::default(),
            filters: Mutex::default(),
        })
    }

    fn answer(&self, request: &Request) -> Action {
        if let Some(greeting) = request.greeting() {
            return greeting;
        }
        match request.name.as_str() {
            "getTableNames" => Action::Reply(reply::names(&["tsdb"])),
            "getRowsWithColumns" => self.get(request),
            "scannerOpenWithScan" => self.open(request),
            "scannerGetList" => self.fetch(request),
            "scannerClose" => {
                self.closed.fetch_add(1, Ordering::SeqCst);
                self.scanners.lock().remove(&request.integer(&[1]).unwrap());
                Action::Reply(reply::nothing())
            }
            other => panic!("unexpected call of {other}"),
        }
    }

    fn open(&self, request: &Request) -> Action {
        let is_reversed = request.truths.contains(&vec![2, 9]);
        let start = request.string(&[2, 1]);
        let stop = request.string(&[2, 2]);
        let is_inside = |key: &Vec<u8>| match is_reversed {
            false => {
                start.is_none_or(|start| key.as_slice() >= start)
                    && stop.is_none_or(|stop| key.as_slice() < stop)
            }
            true => {
                start.is_none_or(|start| key.as_slice() <= start)
                    && stop.is_none_or(|stop| key.as_slice() > stop)
            }
        };
        let mut rows: Vec<Vec<u8>> = (0..ROWS).map(key).filter(is_inside).collect();
        if is_reversed {
            rows.reverse();
        }
        // Other filters of HBase accept all rows here.
        let filter = String::from_utf8_lossy(request.string(&[2, 6]).unwrap_or_default()).into_owned();
        let is_of_keys = filter.contains("KeyOnlyFilter()");
        let parts_per_row = if is_of_keys { 1 } else { self.parts_per_row };
        self.filters.lock().push(filter);
        let mut parts: Vec<Part> = rows
            .into_iter()
            .flat_map(|key| (0..parts_per_row).map(move |part| (key.clone(), part)))
            .collect();
        // Popped from the end.
        parts.reverse();
        let id = i32::try_from(self.next_scanner.fetch_add(1, Ordering::SeqCst)).unwrap();
        self.scanners.lock().insert(id, parts);
        self.opened_on.lock().insert(id, request.connection);
        Action::Reply(reply::integer(id))
    }

    /// Rows by key; none for the health check.
    fn get(&self, request: &Request) -> Action {
        let keys = request.strings.iter().filter(|(path, _)| path == &[2]);
        let keys: Vec<&[u8]> = keys
            .map(|(_, key)| key.as_slice())
            .filter(|key| key.starts_with(b"row"))
            .collect();
        self.gets.lock().push(keys.len());
        let qualifiers: Vec<[u8; 1]> = (0..self.parts_per_row).map(|part| [part]).collect();
        let columns: Vec<&[u8]> = qualifiers.iter().map(<[u8; 1]>::as_slice).collect();
        let rows: Vec<(&[u8], &[&[u8]])> = keys.iter().map(|key| (*key, columns.as_slice())).collect();
        Action::Reply(reply::rows(&rows))
    }

    fn fetch(&self, request: &Request) -> Action {
        self.fetches.fetch_add(1, Ordering::SeqCst);
        let id = request.integer(&[1]).unwrap();
        if self.opened_on.lock().get(&id) != Some(&request.connection) {
            self.mixed_up.store(true, Ordering::SeqCst);
        }
        let count = usize::try_from(request.integer(&[2]).unwrap()).unwrap();
        let mut scanners = self.scanners.lock();
        let Some(rest) = scanners.get_mut(&id) else {
            return Action::Reply(reply::illegal_argument("scanner ID is invalid"));
        };
        let parts: Vec<Part> = rest.drain(rest.len().saturating_sub(count)..).rev().collect();
        let qualifiers: Vec<[u8; 1]> = parts.iter().map(|(_, part)| [*part]).collect();
        let columns: Vec<[&[u8]; 1]> = qualifiers
            .iter()
            .map(|qualifier| [qualifier.as_slice()])
            .collect();
        let rows: Vec<(&[u8], &[&[u8]])> = parts
            .iter()
            .zip(&columns)
            .map(|((key, _), columns)| (key.as_slice(), columns.as_slice()))
            .collect();
        Action::Reply(reply::rows(&rows))
    }
}

fn start(table: &Arc<Table>) -> FakeGateway {
    let table = table.clone();
    FakeGateway::start(move |request| table.answer(request))
}

async fn connect(gateway: &FakeGateway) -> ThriftStore {
    let mut config = ThriftConfig::new([gateway.address.as_str()]);
    config.connections = 2;
    config.request_timeout = Duration::from_secs(10);
    ThriftStore::connect(config).await.unwrap()
}

fn name() -> TableName {
    "tsdb".parse().unwrap()
}

/// Scans, running `between` after each batch.
async fn scan(
    store: &ThriftStore,
    scan: Scan,
    mut after_batch: impl FnMut(usize),
) -> Result<Vec<Row>, StoreError> {
    let mut stream = store.scan(&name(), scan).await?;
    let (mut rows, mut batches) = (Vec::new(), 0);
    while let Some(batch) = stream.next().await {
        rows.extend(batch?);
        assert!(rows.len() <= ROWS, "more rows than there are");
        batches += 1;
        after_batch(batches);
    }
    Ok(rows)
}

/// Cuts the connections after one batch. A scan that reads on several connections at once gets a batch from one of
/// them between two cuts, so the request of another may lose its connection as often as there are cuts.
fn cut_after(gateway: &FakeGateway, batch: usize) -> impl FnMut(usize) {
    move |batches| {
        if batches == batch {
            gateway.cut();
        }
    }
}

fn assert_all_rows(rows: &[Row], cells: usize) {
    let keys: Vec<Vec<u8>> = rows.iter().map(|row| row.key().to_vec()).collect();
    assert_eq!(
        keys,
        (0..ROWS).map(key).collect::<Vec<_>>(),
        "each row once, in order"
    );
    assert!(rows.iter().all(|row| row.len() == cells), "complete rows");
}

/// Waits for a condition of a server in this process.
async fn until(what: &str, condition: impl Fn() -> bool) {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
    while !condition() {
        assert!(
            tokio::time::Instant::now() < deadline,
            "{what} does not come about"
        );
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn joins_the_parts_of_a_row() {
    for parts in [1, 2, 7, 200] {
        let table = Table::new(parts);
        let gateway = start(&table);
        let store = connect(&gateway).await;
        let rows = scan(&store, Scan::prefix(b""), |_| {}).await.unwrap();
        assert_all_rows(&rows, parts.into());
    }
}

#[tokio::test]
async fn scan_resumes_after_a_lost_connection() {
    for parts in [1, 3] {
        let table = Table::new(parts);
        let gateway = start(&table);
        let store = connect(&gateway).await;
        let rows = scan(&store, Scan::prefix(b""), |_| gateway.cut()).await.unwrap();
        assert_all_rows(&rows, parts.into());
        assert!(
            table.next_scanner.load(Ordering::SeqCst) > 1,
            "more than one scanner was needed"
        );
    }
}

#[tokio::test]
async fn scan_resumes_after_an_expired_lease() {
    let table = Table::new(3);
    let gateway = start(&table);
    let store = connect(&gateway).await;
    let rows = scan(&store, Scan::prefix(b""), |_| table.scanners.lock().clear())
        .await
        .unwrap();
    assert_all_rows(&rows, 3);
    assert!(
        gateway.connections() <= 2,
        "the connections are as good as before"
    );
}

#[tokio::test]
async fn uses_a_scanner_only_on_its_connection() {
    let table = Table::new(1);
    let gateway = start(&table);
    let mut config = ThriftConfig::new([gateway.address.as_str()]);
    config.connections = 1;
    let store = ThriftStore::connect(config).await.unwrap();
    let mut stream = store.scan(&name(), Scan::prefix(b"")).await.unwrap();
    let mut rows = Vec::new();
    while let Some(batch) = stream.next().await {
        rows.extend(batch.unwrap());
        // With a single connection, this response implies that the next batch was fetched.
        store.check_health().await.unwrap();
        gateway.cut();
        // The scan continues on a new connection.
        store.check_health().await.unwrap();
    }
    assert_all_rows(&rows, 1);
    assert!(
        !table.mixed_up.load(Ordering::SeqCst),
        "a scanner of another connection was used"
    );
}

#[tokio::test]
async fn scan_without_progress_fails() {
    let table = Table::new(1);
    let gateway = {
        let table = table.clone();
        FakeGateway::start(move |request| match request.name.as_str() {
            "scannerGetList" if table.fetches.load(Ordering::SeqCst) > 2 => Action::BytesAndClose(Vec::new()),
            _ => table.answer(request),
        })
    };
    let store = connect(&gateway).await;
    let error = scan(&store, Scan::prefix(b""), |_| {}).await.unwrap_err();
    assert!(matches!(error, StoreError::Io { .. }), "{error}");
}

#[tokio::test]
async fn closes_scanners_at_the_end_and_on_drop() {
    let table = Table::new(1);
    let gateway = start(&table);
    let store = connect(&gateway).await;
    scan(&store, Scan::prefix(b""), |_| {}).await.unwrap();
    until("closing", || table.closed.load(Ordering::SeqCst) == 1).await;
    let mut stream = store.scan(&name(), Scan::prefix(b"")).await.unwrap();
    stream.next().await.unwrap().unwrap();
    drop(stream);
    until("closing", || table.closed.load(Ordering::SeqCst) == 2).await;
    assert!(table.scanners.lock().is_empty(), "none is left");
    // Dropped before the gateway has responded.
    drop(futures::poll!(store.scan(&name(), Scan::prefix(b""))));
    until("an end", || {
        let opened = table.next_scanner.load(Ordering::SeqCst);
        opened == table.closed.load(Ordering::SeqCst)
    })
    .await;
}

#[tokio::test]
async fn limit_bounds_the_fetch_size() {
    let table = Table::new(1);
    let gateway = start(&table);
    let store = connect(&gateway).await;
    let mut limited = Scan::prefix(b"");
    limited.limit = Some(5);
    assert_eq!(scan(&store, limited, |_| {}).await.unwrap().len(), 5);
    assert_eq!(table.fetches.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn filtered_rows_are_not_reread() {
    let table = Table::new(1);
    let gateway = start(&table);
    let store = connect(&gateway).await;
    let mut filtered = Scan::prefix(b"");
    filtered.filter = Some(RowFilter::new(|key| key.ends_with(b"00")));
    filtered.batch_rows = 1;
    let rows = scan(&store, filtered, |_| gateway.cut()).await.unwrap();
    assert_eq!(rows.len(), ROWS / 100);
    let fetched = table.fetches.load(Ordering::SeqCst);
    assert!(fetched < 40, "{fetched} fetches for {ROWS} rows");
}

#[tokio::test]
async fn panicking_filter_fails_only_its_scan() {
    let table = Table::new(1);
    let gateway = start(&table);
    let mut config = ThriftConfig::new([gateway.address.as_str()]);
    config.connections = 1;
    let store = ThriftStore::connect(config).await.unwrap();
    let mut filtered = Scan::prefix(b"");
    filtered.filter = Some(RowFilter::new(|_| panic!("on purpose")));
    let error = scan(&store, filtered, |_| {}).await.unwrap_err();
    assert!(matches!(error, StoreError::Io { .. }), "{error}");
    let rows = scan(&store, Scan::prefix(b""), |_| {}).await.unwrap();
    assert_all_rows(&rows, 1);
}

#[tokio::test]
async fn fetches_less_after_oversized_responses() {
    let table = Table::new(20);
    let gateway = start(&table);
    let mut config = ThriftConfig::new([gateway.address.as_str()]);
    config.connections = 1;
    // A response of 128 parts, the initial fetch size, would need more.
    config.max_reply_bytes = 4 << 10;
    let store = ThriftStore::connect(config).await.unwrap();
    let rows = scan(&store, Scan::prefix(b""), |_| {}).await.unwrap();
    assert_all_rows(&rows, 20);
    let mut config = ThriftConfig::new([gateway.address.as_str()]);
    config.max_reply_bytes = 200;
    let store = ThriftStore::connect(config).await.unwrap();
    let error = scan(&store, Scan::prefix(b""), |_| {}).await.unwrap_err();
    assert!(
        error
            .to_string()
            .contains("more than 200 bytes (max_reply_bytes)"),
        "{error}"
    );
}

fn number(key: &[u8]) -> usize {
    std::str::from_utf8(&key[3..]).unwrap().parse().unwrap()
}

/// A filter for the first `matching` of each `stride` rows, with seek hints.
fn some_of(matching: usize, stride: usize) -> Scan {
    let filter = RowFilter::new(move |key| number(key) % stride < matching);
    let mut scan = Scan::prefix(b"");
    scan.filter = Some(filter.with_seek(move |row| Some(key((number(row) / stride + 1) * stride))));
    scan
}

#[tokio::test]
async fn reads_only_matching_rows_when_few_match() {
    let table = Table::new(3);
    let gateway = start(&table);
    let store = connect(&gateway).await;
    table.gets.lock().clear();
    let rows = scan(&store, some_of(1, 500), |_| {}).await.unwrap();
    let keys: Vec<Vec<u8>> = rows.iter().map(|row| row.key().to_vec()).collect();
    assert_eq!(keys, [key(0), key(500)]);
    assert!(rows.iter().all(|row| row.len() == 3), "complete rows");
    assert_eq!(*table.gets.lock(), [1, 1]);
    let scanners = table.next_scanner.load(Ordering::SeqCst);
    assert_eq!(scanners, 3, "at the start, at row 500 and behind all rows");
    assert_eq!(table.fetches.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn dense_matches_are_read_by_scan() {
    let table = Table::new(3);
    let gateway = start(&table);
    let store = connect(&gateway).await;
    table.gets.lock().clear();
    let mut most = some_of(9, 10);
    most.batch_rows = 1_000;
    let rows = scan(&store, most, |_| {}).await.unwrap();
    assert_eq!(rows.len(), ROWS / 10 * 9);
    assert!(rows.is_sorted_by_key(|row| row.key().to_vec()));
    assert!(rows.iter().all(|row| row.len() == 3), "complete rows");
    assert!(
        table.gets.lock().iter().sum::<usize>() < 8,
        "{:?}",
        table.gets.lock()
    );
}

#[tokio::test]
async fn selective_scan_resumes_after_a_lost_connection() {
    let table = Table::new(3);
    let gateway = start(&table);
    let store = connect(&gateway).await;
    for (matching, stride, batch_rows) in [(1, 100, 2), (1, 3, 10)] {
        for batch in [1, 2, 4, 5] {
            let mut few = some_of(matching, stride);
            few.batch_rows = batch_rows;
            let rows = scan(&store, few, cut_after(&gateway, batch)).await.unwrap();
            assert_eq!(rows.len(), ROWS.div_ceil(stride));
            assert!(rows.is_sorted_by_key(|row| row.key().to_vec()));
        }
    }
}

fn in_any_order(mut scan: Scan) -> Scan {
    scan.any_order = true;
    scan
}

async fn sorted(store: &ThriftStore, of: Scan, after_batch: impl FnMut(usize)) -> Vec<Row> {
    let mut rows = scan(store, of, after_batch).await.unwrap();
    rows.sort_unstable_by(|a, b| a.key().cmp(b.key()));
    rows
}

#[tokio::test]
async fn scan_in_any_order_uses_all_connections() {
    for parts in [1, 7, 200] {
        let table = Table::new(parts);
        let gateway = start(&table);
        let store = connect(&gateway).await;
        // Then the range is known.
        for _ in 0..2 {
            let rows = sorted(&store, in_any_order(Scan::prefix(b"")), |_| {}).await;
            assert_all_rows(&rows, parts.into());
        }
        assert!(!table.mixed_up.load(Ordering::SeqCst));
        let mut connections: Vec<usize> = table.opened_on.lock().values().copied().collect();
        connections.sort_unstable();
        connections.dedup();
        assert!(connections.len() > 1, "{connections:?}");
    }
}

#[tokio::test]
async fn rows_are_read_without_their_keys_if_most_match() {
    let table = Table::new(3);
    let gateway = start(&table);
    let store = connect(&gateway).await;
    let mut most = in_any_order(some_of(9, 10));
    most.filter = most.filter.map(|filter| filter.keeping_most(true));
    table.filters.lock().clear();
    let rows = sorted(&store, most, |_| {}).await;
    assert_eq!(rows.len(), ROWS / 10 * 9);
    assert!(rows.iter().all(|row| row.len() == 3), "complete rows");
    let filters = table.filters.lock();
    let of_keys = filters.iter().filter(|filter| filter.contains("KeyOnlyFilter"));
    assert_eq!(of_keys.count(), 1, "the last key: {filters:?}");
}

#[tokio::test]
async fn a_known_range_of_few_rows_is_one_fetch() {
    let table = Table::new(1);
    let gateway = start(&table);
    let store = connect(&gateway).await;
    // First its rows and its last key, then only the rows.
    for scanners in [2, 3] {
        let few = in_any_order(Scan::range(key(7), key(57)));
        assert_eq!(sorted(&store, few, |_| {}).await.len(), 50);
        assert_eq!(table.next_scanner.load(Ordering::SeqCst), scanners);
        assert_eq!(table.fetches.load(Ordering::SeqCst), scanners);
    }
}

/// Bytes that scans hold, and the most that they held.
#[derive(Debug, Default)]
struct Counted {
    now: AtomicU64,
    most: AtomicU64,
}

impl FetchMemory for Counted {
    fn fetched(&self, bytes: u64) {
        let now = self.now.fetch_add(bytes, Ordering::SeqCst) + bytes;
        self.most.fetch_max(now, Ordering::SeqCst);
    }

    fn returned(&self, bytes: u64) {
        self.now.fetch_sub(bytes, Ordering::SeqCst);
    }
}

#[tokio::test]
async fn counts_rows_that_are_fetched_and_not_returned() {
    let table = Table::new(3);
    let gateway = start(&table);
    let store = connect(&gateway).await;
    let plain = Scan::prefix(b"");
    let row = scan(&store, plain.clone(), |_| {}).await.unwrap().remove(0);
    for mut of in [
        plain.clone(),
        in_any_order(plain),
        some_of(9, 10),
        some_of(1, 10),
        in_any_order(some_of(1, 10)),
        ending_with(b"3"),
    ] {
        let counted = Arc::new(Counted::default());
        of.memory = Some(counted.clone());
        let mut batches = store.scan(&name(), of.clone()).await.unwrap();
        batches.next().await.unwrap().unwrap();
        while batches.next().await.transpose().unwrap().is_some() {}
        assert_eq!(counted.now.load(Ordering::SeqCst), 0);
        let most = counted.most.load(Ordering::SeqCst);
        assert!(most >= row.byte_len() as u64, "{most}");
        // A caller that leaves.
        let mut batches = store.scan(&name(), of).await.unwrap();
        batches.next().await.unwrap().unwrap();
        drop(batches);
        until("no rows", || counted.now.load(Ordering::SeqCst) == 0).await;
    }
}

#[tokio::test]
async fn scan_in_any_order_resumes_after_a_lost_connection() {
    let table = Table::new(3);
    let gateway = start(&table);
    let store = connect(&gateway).await;
    for batch in [1, 2, 5, 9, 14, 20] {
        let mut all = in_any_order(Scan::prefix(b""));
        all.batch_rows = 40;
        assert_all_rows(&sorted(&store, all, cut_after(&gateway, batch)).await, 3);
    }
}

/// A scan of the rows with a number that ends with one of these digits.
fn ending_with(digits: &'static [u8]) -> Scan {
    let filter = RowFilter::new(move |key| digits.contains(&key[6])).with_seek(|_| None);
    let part = KeyPart {
        prefix: Vec::new(),
        endings: digits.iter().map(|digit| vec![*digit]).collect(),
    };
    let mut scan = in_any_order(Scan::prefix(b""));
    scan.filter = Some(filter.with_parts([part]));
    scan
}

#[tokio::test]
async fn hbase_filters_keys_that_contain_given_bytes() {
    let table = Table::new(3);
    let gateway = start(&table);
    let store = connect(&gateway).await;
    let rows = sorted(&store, ending_with(b"37"), |_| {}).await;
    assert_eq!(rows.len(), ROWS / 5);
    assert!(
        rows.iter()
            .all(|row| row.len() == 3 && [b'3', b'7'].contains(&row.key()[6]))
    );
    let filters = table.filters.lock();
    let rows = filters
        .iter()
        .filter(|filter| *filter == r"RowFilter(=,'regexstring:(?:[\x33\x37])')");
    assert!(rows.count() >= 2, "{filters:?}");
}

#[tokio::test]
async fn scans_without_the_filter_of_hbase_if_it_takes_too_long() {
    let table = Table::new(3);
    let slow = table.clone();
    let gateway = FakeGateway::start(move |request| {
        let is_filtered = request.name == "scannerGetList" && {
            let id = usize::try_from(request.integer(&[1]).unwrap()).unwrap();
            slow.filters.lock()[id].contains("RowFilter")
        };
        if is_filtered {
            Action::Silence
        } else {
            slow.answer(request)
        }
    });
    let mut config = ThriftConfig::new([gateway.address.as_str()]);
    (config.connections, config.request_timeout) = (2, Duration::from_millis(700));
    let store = ThriftStore::connect(config).await.unwrap();
    let rows = sorted(&store, ending_with(b"3"), |_| {}).await;
    assert_eq!(rows.len(), ROWS / 10);
}
