//! Requests, queueing and gateways: which requests are sent, how often, and to which gateway.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::support::Gate;
use crate::support::fake_gateway::{Action, FakeGateway, Request};
use crate::support::proxy::Proxy;
use crate::support::reply;
use futures::FutureExt as _;
use futures::future::{BoxFuture, join_all};
use oxtsdb_row_store::hbase::Compression;
use oxtsdb_row_store::hbase::thrift::{ThriftConfig, ThriftStore};
use oxtsdb_row_store::{
    CellAddress, ColumnSelection, Retry, RowStore, StoreControl as _, StoreError, TableName,
};
use parking_lot::Mutex;

fn table() -> TableName {
    "tsdb".parse().unwrap()
}

/// The cell with this row key.
fn cell(row: &str) -> CellAddress {
    CellAddress::new(row, "t", "q")
}

fn config(gateways: &[&str]) -> ThriftConfig {
    let mut config = ThriftConfig::new(gateways.iter().copied());
    config.connections = 1;
    config.connect_timeout = Duration::from_secs(5);
    config.request_timeout = Duration::from_secs(10);
    config
}

/// A gateway that responds to an increment with the number of increments so far, unless `special` overrides it.
fn counting(
    increments: &Arc<AtomicUsize>,
    special: impl Fn(&Request) -> Option<Action> + Send + Sync + 'static,
) -> FakeGateway {
    let increments = increments.clone();
    FakeGateway::start(move |request| {
        if let Some(action) = special(request).or_else(|| request.greeting()) {
            return action;
        }
        match request.name.as_str() {
            "getTableNames" => Action::Reply(reply::names(&["tsdb"])),
            "getRowsWithColumns" => Action::Reply(reply::rows(&[(b"row", &[b"q"])])),
            "atomicIncrement" => {
                let count = increments.fetch_add(1, Ordering::SeqCst) + 1;
                Action::Reply(reply::long(i64::try_from(count).unwrap()))
            }
            other => panic!("unexpected call of {other}"),
        }
    })
}

fn plain() -> FakeGateway {
    counting(&Arc::default(), |_| None)
}

/// An address without a listener.
fn unused_address() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().to_string()
}

async fn read(store: &ThriftStore) -> Result<(), StoreError> {
    store
        .get(&table(), b"row", &ColumnSelection::All)
        .await
        .map(|row| assert!(row.is_some()))
}

/// Repeats an action until it returns true.
async fn until_done(what: &str, mut done: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !done().await {
        assert!(Instant::now() < deadline, "{what} does not come about");
        tokio::task::yield_now().await;
    }
}

/// Waits for a condition in this process.
async fn until(what: &str, condition: impl Fn() -> bool) {
    until_done(what, async || {
        tokio::time::sleep(Duration::from_millis(5)).await;
        condition()
    })
    .await;
}

#[tokio::test]
async fn rejects_invalid_settings() {
    type Change = fn(&mut ThriftConfig);
    let cases: [(Change, &str); 6] = [
        (
            |config| config.gateways.clear(),
            "no HBase Thrift gateway is configured",
        ),
        (
            |config| config.gateways = vec!["localhost".to_owned()],
            "`localhost` is not the address",
        ),
        (
            |config| config.gateways = vec!["localhost:http".to_owned()],
            "expected host:port",
        ),
        (|config| config.connections = 0, "`connections` is 0"),
        (|config| config.queue = 0, "`queue` is 0"),
        (
            |config| config.request_timeout = Duration::ZERO,
            "`request_timeout` is 0",
        ),
    ];
    for (change, expected) in cases {
        let mut config = config(&["localhost:9090"]);
        change(&mut config);
        let error = ThriftStore::connect(config).await.unwrap_err();
        assert!(matches!(error, StoreError::Invalid { .. }), "{error}");
        assert!(error.to_string().contains(expected), "{error}");
    }
    assert_eq!("snappy".parse::<Compression>().unwrap(), Compression::Snappy);
    assert!(
        "zip"
            .parse::<Compression>()
            .unwrap_err()
            .to_string()
            .contains("`zip`")
    );
}

#[tokio::test]
async fn reports_unreachable_gateways_in_one_line() {
    let (one, two) = (unused_address(), "no-such-host.invalid:9090");
    let mut config = config(&[&one, two]);
    config.connect_timeout = Duration::from_millis(500);
    let error = ThriftStore::connect(config).await.unwrap_err();
    assert!(matches!(error, StoreError::Unavailable { .. }), "{error}");
    assert_eq!(error.retry(), Retry::Safe);
    let error = error.to_string();
    assert!(
        error.contains(&one) && error.contains("Connection refused"),
        "{error}"
    );
    assert!(error.contains(two) && !error.contains('\n'), "{error}");
}

#[tokio::test]
async fn detects_thrift2_gateways() {
    let gateway = FakeGateway::start(|_| Action::Reply(reply::integer(2)));
    let mut config = config(&[&gateway.address]);
    config.connect_timeout = Duration::from_millis(500);
    let error = ThriftStore::connect(config).await.unwrap_err().to_string();
    assert!(error.contains("it is a Thrift2 gateway"), "{error}");
}

#[tokio::test]
async fn framing_must_match_the_gateway() {
    let answer = |request: &Request| match request.name.as_str() {
        "getThriftServerType" => Action::Reply(reply::integer(1)),
        "getTableNames" => Action::Reply(reply::names(&["tsdb"])),
        "getRowsWithColumns" => Action::Reply(reply::rows(&[(b"row", &[b"q"])])),
        other => panic!("unexpected call of {other}"),
    };
    let (framed, plain) = (FakeGateway::start_framed(answer), FakeGateway::start(answer));
    for (gateway, right, advice) in [
        (&framed, true, "it speaks in frames, set `framed`"),
        (&plain, false, "it speaks without frames, do not set `framed`"),
    ] {
        let mut config = config(&[&gateway.address]);
        config.connect_timeout = Duration::from_millis(500);
        config.framed = !right;
        let error = ThriftStore::connect(config.clone())
            .await
            .unwrap_err()
            .to_string();
        assert!(
            error.contains(&gateway.address) && error.contains(advice),
            "{error}"
        );
        config.framed = right;
        let store = ThriftStore::connect(config).await.unwrap();
        read(&store).await.unwrap();
    }
}

#[tokio::test]
async fn skips_dead_gateways() {
    let gateway = plain();
    let dead = unused_address();
    let mut config = config(&[&dead, &gateway.address]);
    config.connections = 4;
    let store = ThriftStore::connect(config).await.unwrap();
    for read in join_all((0..50).map(|_| read(&store))).await {
        read.unwrap();
    }
}

#[tokio::test]
async fn spreads_work_over_gateways() {
    let (one, two) = (plain(), plain());
    let mut config = config(&[&one.address, &two.address]);
    config.connections = 4;
    let store = ThriftStore::connect(config).await.unwrap();
    until_done("a connection with each", async || {
        join_all((0..20).map(|_| read(&store))).await;
        one.connections() > 0 && two.connections() > 0
    })
    .await;
}

#[tokio::test]
async fn leaves_a_hanging_gateway_and_returns_to_it() {
    let hangs = Arc::new(AtomicBool::new(false));
    let served = Arc::new(AtomicUsize::new(0));
    let one = {
        let (hangs, served) = (hangs.clone(), served.clone());
        counting(&Arc::default(), move |request| {
            if hangs.load(Ordering::SeqCst) {
                return Some(Action::Silence);
            }
            if request.name == "getRowsWithColumns" {
                served.fetch_add(1, Ordering::SeqCst);
            }
            None
        })
    };
    let two = plain();
    let mut config = config(&[&one.address, &two.address]);
    config.connections = 2;
    config.request_timeout = Duration::from_millis(500);
    config.connect_timeout = Duration::from_millis(300);
    let store = ThriftStore::connect(config).await.unwrap();
    let reads = || join_all((0..20).map(|_| read(&store)));
    until_done("a connection with each", async || {
        reads().await;
        one.connections() > 0 && two.connections() > 0
    })
    .await;
    hangs.store(true, Ordering::SeqCst);
    // At most one request of each connection encounters it.
    let results = reads().await;
    let failed = results.iter().filter(|result| result.is_err()).count();
    assert!(failed <= 1, "{results:?}");
    for result in reads().await {
        result.unwrap();
    }
    store.check_health().await.unwrap();
    hangs.store(false, Ordering::SeqCst);
    let before = served.load(Ordering::SeqCst);
    until_done("a request for the one that hung", async || {
        for result in reads().await {
            result.unwrap();
        }
        served.load(Ordering::SeqCst) > before
    })
    .await;
}

#[tokio::test]
async fn recovers_from_an_outage() {
    let gateway = plain();
    let proxy = Proxy::start(&gateway.address);
    let mut config = config(&[&proxy.address]);
    config.connect_timeout = Duration::from_millis(500);
    let store = ThriftStore::connect(config).await.unwrap();
    proxy.reject();
    let started = Instant::now();
    let error = read(&store).await.unwrap_err();
    assert!(matches!(error, StoreError::Unavailable { .. }), "{error}");
    assert!(
        started.elapsed() < Duration::from_secs(3),
        "{:?}",
        started.elapsed()
    );
    let error = store.check_health().await.unwrap_err();
    assert!(matches!(error, StoreError::Unavailable { .. }), "{error}");
    proxy.resume();
    until_done("recovery", async || read(&store).await.is_ok()).await;
    store.check_health().await.unwrap();
}

/// A connected store; its gateway rejects connections from now on. Requests wait up to 10 s for the gateway.
async fn away() -> (FakeGateway, Proxy, ThriftStore) {
    let gateway = plain();
    let proxy = Proxy::start(&gateway.address);
    let mut config = config(&[&proxy.address]);
    config.connect_timeout = Duration::from_secs(10);
    let store = ThriftStore::connect(config).await.unwrap();
    proxy.reject();
    (gateway, proxy, store)
}

#[tokio::test]
async fn request_waits_for_a_gateway_to_return() {
    let (_gateway, proxy, store) = away().await;
    let waiting = read(&store);
    futures::pin_mut!(waiting);
    assert!(futures::poll!(&mut waiting).is_pending());
    proxy.resume();
    waiting.await.unwrap();
}

#[tokio::test]
async fn resends_idempotent_requests_after_a_lost_connection() {
    let reads = Arc::new(AtomicUsize::new(0));
    let gateway = {
        let reads = reads.clone();
        counting(&Arc::default(), move |request| {
            let breaks = request.name == "getRowsWithColumns" && reads.fetch_add(1, Ordering::SeqCst) < 2;
            breaks.then(|| Action::BytesAndClose(Vec::new()))
        })
    };
    let store = ThriftStore::connect(config(&[&gateway.address])).await.unwrap();
    read(&store).await.unwrap();
    assert_eq!(reads.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn sends_non_idempotent_requests_once() {
    let sent = Arc::new(AtomicUsize::new(0));
    let gateway = {
        let sent = sent.clone();
        counting(&Arc::default(), move |request| {
            let once = ["atomicIncrement", "append", "checkAndPut"].contains(&request.name.as_str());
            once.then(|| {
                sent.fetch_add(1, Ordering::SeqCst);
                Action::BytesAndClose(Vec::new())
            })
        })
    };
    let store = ThriftStore::connect(config(&[&gateway.address])).await.unwrap();
    let condition = oxtsdb_row_store::Condition {
        cell: cell("row"),
        expected: None,
    };
    let errors = [
        store.increment(&table(), &cell("row"), 1).await.err(),
        store.append(&table(), &cell("row"), b"v").await.err(),
        store.check_and_put(&table(), &condition, b"v").await.err(),
    ];
    for error in errors {
        let error = error.expect("the connection breaks");
        assert_eq!(error.retry(), Retry::IfIdempotent, "{error}");
    }
    assert_eq!(sent.load(Ordering::SeqCst), 3);
    read(&store).await.unwrap();
}

#[tokio::test]
async fn replaces_connections_closed_while_idle() {
    let increments = Arc::new(AtomicUsize::new(0));
    let gateway = counting(&increments, |_| None);
    let store = ThriftStore::connect(config(&[&gateway.address])).await.unwrap();
    for number in 1..=20 {
        gateway.cut();
        // Not even an increment, which is never sent twice, fails.
        assert_eq!(store.increment(&table(), &cell("row"), 1).await.unwrap(), number);
    }
}

/// A gateway with increments that wait for a gate, and the received calls: row keys of increments, names of other
/// calls.
struct Blocked {
    gate: Gate,
    came: Arc<Mutex<Vec<String>>>,
    gateway: FakeGateway,
    store: ThriftStore,
}

impl Blocked {
    async fn new(queue: usize) -> Self {
        let (gate, came) = (Gate::default(), Arc::<Mutex<Vec<String>>>::default());
        let gateway = {
            let (gate, came) = (gate.clone(), came.clone());
            counting(&Arc::default(), move |request| {
                if request.name != "atomicIncrement" {
                    came.lock().push(request.name.clone());
                    return None;
                }
                let row = String::from_utf8(request.string(&[2]).unwrap().to_vec()).unwrap();
                came.lock().push(row);
                let answer = reply::long(7).encode(&request.name, request.sequence);
                Some(Action::BytesAfter(gate.clone(), answer))
            })
        };
        let mut config = config(&[&gateway.address]);
        config.queue = queue;
        config.request_timeout = Duration::from_secs(30);
        Self {
            gate,
            came,
            store: ThriftStore::connect(config).await.unwrap(),
            gateway,
        }
    }

    fn increment(&self, row: &str) -> impl Future<Output = Result<i64, StoreError>> {
        let cell = cell(row);
        async move { self.store.increment(&table(), &cell, 1).await }
    }

    /// Increments `1`, which is in flight, and `2` and `3`, which wait.
    async fn fill(&self) -> [BoxFuture<'_, Result<i64, StoreError>>; 3] {
        let mut all = ["1", "2", "3"].map(|row| self.increment(row).boxed());
        for (number, increment) in all.iter_mut().enumerate() {
            assert!(futures::poll!(increment).is_pending());
            if number == 0 {
                self.until_it_came("1").await;
            }
        }
        all
    }

    async fn until_it_came(&self, row: &str) {
        until(row, || self.came.lock().iter().any(|came| came == row)).await;
    }
}

#[tokio::test]
async fn full_queue_rejects_immediately() {
    let blocked = Blocked::new(2).await;
    let [first, second, third] = blocked.fill().await;
    let error = blocked.increment("4").await.unwrap_err();
    assert!(matches!(error, StoreError::Unavailable { .. }), "{error}");
    assert!(
        error
            .to_string()
            .contains("2 requests to HBase are already waiting"),
        "{error}"
    );
    assert_eq!(error.retry(), Retry::Safe);
    blocked.gate.open();
    for increment in [first.await, second.await, third.await] {
        assert_eq!(increment.unwrap(), 7);
    }
    let came = blocked.came.lock().clone();
    assert!(came.ends_with(&["1", "2", "3"].map(str::to_owned)), "{came:?}");
}

#[tokio::test]
async fn health_check_precedes_queued_requests() {
    let blocked = Blocked::new(2).await;
    let [first, second, third] = blocked.fill().await;
    let health = blocked.store.check_health();
    futures::pin_mut!(health);
    assert!(
        futures::poll!(&mut health).is_pending(),
        "accepted although the queue is full"
    );
    blocked.gate.open();
    health.await.unwrap();
    second.await.unwrap();
    third.await.unwrap();
    first.await.unwrap();
    let came = blocked.came.lock().clone();
    assert!(
        came.ends_with(&["1", "getRowsWithColumns", "2", "3"].map(str::to_owned)),
        "{came:?}"
    );
}

#[tokio::test]
async fn request_dropped_while_queued_is_not_sent() {
    let blocked = Blocked::new(2).await;
    let first = blocked.increment("1");
    futures::pin_mut!(first);
    assert!(futures::poll!(&mut first).is_pending());
    blocked.until_it_came("1").await;
    for _ in 0..10 {
        // More than the capacity: dropped requests leave the queue.
        let dropped = blocked.increment("dropped");
        futures::pin_mut!(dropped);
        assert!(futures::poll!(&mut dropped).is_pending());
    }
    let last = blocked.increment("last");
    futures::pin_mut!(last);
    assert!(futures::poll!(&mut last).is_pending());
    blocked.gate.open();
    first.await.unwrap();
    last.await.unwrap();
    let came = blocked.came.lock().clone();
    assert!(came.ends_with(&["1", "last"].map(str::to_owned)), "{came:?}");
}

#[tokio::test]
async fn request_dropped_in_flight_completes_and_discards_its_response() {
    let blocked = Blocked::new(2).await;
    let connections = blocked.gateway.connections();
    {
        let dropped = blocked.increment("dropped");
        futures::pin_mut!(dropped);
        assert!(futures::poll!(&mut dropped).is_pending());
        blocked.until_it_came("dropped").await;
    }
    blocked.gate.open();
    read(&blocked.store).await.unwrap();
    assert_eq!(
        blocked.gateway.connections(),
        connections,
        "on the same connection"
    );
}

#[tokio::test]
async fn expired_request_is_not_sent() {
    let gate = Gate::default();
    let gateway = {
        let gate = gate.clone();
        counting(&Arc::default(), move |request| {
            let answer = || reply::long(7).encode(&request.name, request.sequence);
            (request.name == "atomicIncrement").then(|| Action::BytesAfter(gate.clone(), answer()))
        })
    };
    let mut config = config(&[&gateway.address]);
    config.request_timeout = Duration::from_millis(500);
    let store = ThriftStore::connect(config).await.unwrap();
    let row = cell("row");
    let (name, other) = (table(), table());
    let (first, second) = (store.increment(&name, &row, 1), store.increment(&other, &row, 1));
    let (first, second) = futures::join!(first, second);
    gate.open();
    let errors = [first.unwrap_err(), second.unwrap_err()];
    // The first may have taken effect; the second has not.
    assert_eq!(errors[0].retry(), Retry::IfIdempotent, "{}", errors[0]);
    assert_eq!(errors[1].retry(), Retry::Safe, "{}", errors[1]);
}

#[tokio::test]
async fn closed_store_is_unavailable() {
    let gateway = plain();
    let store = ThriftStore::connect(config(&[&gateway.address])).await.unwrap();
    store.close().await.unwrap();
    store.close().await.unwrap();
    let error = read(&store).await.unwrap_err();
    assert!(matches!(error, StoreError::Unavailable { .. }), "{error}");
    assert!(error.to_string().contains("closed"), "{error}");
}

#[tokio::test]
async fn close_fails_requests_waiting_for_a_gateway() {
    let (_gateway, _proxy, store) = away().await;
    let waiting = read(&store);
    futures::pin_mut!(waiting);
    assert!(futures::poll!(&mut waiting).is_pending());
    let started = Instant::now();
    store.close().await.unwrap();
    let error = waiting.await.unwrap_err();
    assert!(matches!(error, StoreError::Unavailable { .. }), "{error}");
    assert!(
        started.elapsed() < Duration::from_secs(5),
        "{:?}",
        started.elapsed()
    );
}

#[tokio::test]
async fn maps_hbase_exceptions_to_store_errors() {
    let line: Arc<Mutex<String>> = Arc::default();
    let gateway = {
        let line = line.clone();
        counting(&Arc::default(), move |request| {
            let about_cells = ["getRowsWithColumns", "atomicIncrement"].contains(&request.name.as_str());
            about_cells.then(|| {
                let trace = format!(
                    "{}\n\tat org.apache.hadoop.hbase.client.HTable.get(HTable.java:1)",
                    line.lock()
                );
                Action::Reply(reply::io_error(&trace))
            })
        })
    };
    let store = ThriftStore::connect(config(&[&gateway.address])).await.unwrap();
    let hbase = "org.apache.hadoop.hbase";
    type Check = fn(&StoreError) -> bool;
    // The message, and the resulting error of a read and of an increment.
    let cases: [(String, Check, Check); 6] = [
        (
            format!("{hbase}.TableNotFoundException: tsdb"),
            |error| matches!(error, StoreError::NoSuchTable { .. }),
            |error| matches!(error, StoreError::NoSuchTable { .. }),
        ),
        (
            format!(
                "{hbase}.regionserver.NoSuchColumnFamilyException: {hbase}.regionserver.NoSuchColumnFamilyException: Column family x does not exist in region tsdb,,1."
            ),
            |error| matches!(error, StoreError::NoSuchFamily { family, .. } if family == "x"),
            |error| matches!(error, StoreError::NoSuchFamily { family, .. } if family == "x"),
        ),
        (
            format!(
                "{hbase}.client.RetriesExhaustedWithDetailsException: Failed 3 actions: NotServingRegionException: 3 times, servers with issues: localhost,1,2"
            ),
            |error| matches!(error, StoreError::Unavailable { .. }),
            |error| error.retry() == Retry::IfIdempotent,
        ),
        (
            format!("{hbase}.RegionTooBusyException: Over memstore limit=512.0 M"),
            |error| matches!(error, StoreError::Unavailable { .. }),
            |error| error.retry() == Retry::IfIdempotent,
        ),
        (
            format!(
                "{hbase}.DoNotRetryIOException: {hbase}.DoNotRetryIOException: Field is not a long, it's 7 bytes wide"
            ),
            |error| matches!(error, StoreError::NotACounter { length: 7 }),
            |error| matches!(error, StoreError::NotACounter { length: 7 }),
        ),
        (
            "java.io.IOException: something else".to_owned(),
            |error| matches!(error, StoreError::Io { detail, .. } if detail == "java.io.IOException: something else"),
            |error| error.retry() == Retry::IfIdempotent,
        ),
    ];
    for (message, of_read, of_increment) in cases {
        line.lock().clone_from(&message);
        let error = read(&store).await.unwrap_err();
        assert!(of_read(&error), "{message}: {error:?}");
        assert!(
            !error.to_string().contains("HTable.java"),
            "without the stack trace: {error}"
        );
        let error = store.increment(&table(), &cell("row"), 1).await.unwrap_err();
        assert!(of_increment(&error), "{message}: {error:?}");
    }
    assert_eq!(gateway.connections(), 1, "the connection is as good as before");
}
