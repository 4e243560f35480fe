//! Hostile responses: no panic, no large allocation, a specific error, and the next call works.

use std::sync::Arc;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::support::Gate;
use crate::support::fake_gateway::{Action, FakeGateway, Request};
use crate::support::reply;
use oxtsdb_row_store::hbase::thrift::{ThriftConfig, ThriftStore};
use oxtsdb_row_store::{CellAddress, ColumnSelection, RowStore, StoreError, TableName};
use thrift::protocol::{
    TFieldIdentifier, TListIdentifier, TMapIdentifier, TMessageType, TOutputProtocol, TType,
};

/// Limits this process to a gigabyte more than it uses: announcing two must not allocate them.
fn limit_memory() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
        let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
        let pages: u64 = statm.split_whitespace().next().unwrap().parse().unwrap();
        let limit = pages * 4096 + (1 << 30) + (1 << 29);
        let maximum = getrlimit(Resource::As).maximum;
        setrlimit(
            Resource::As,
            Rlimit {
                current: Some(limit),
                maximum,
            },
        )
        .unwrap();
    });
}

fn config(gateway: &FakeGateway) -> ThriftConfig {
    limit_memory();
    let mut config = ThriftConfig::new([gateway.address.as_str()]);
    config.connections = 1;
    config.connect_timeout = Duration::from_secs(10);
    config.request_timeout = Duration::from_secs(10);
    config.max_reply_bytes = 1 << 20;
    config
}

fn table() -> TableName {
    "tsdb".parse().unwrap()
}

/// A gateway that responds to reads of rows with `hostile` while it is `armed`.
struct Hostile {
    gateway: FakeGateway,
    armed: Arc<AtomicBool>,
}

impl Hostile {
    fn start(hostile: impl Fn(&Request) -> Action + Send + Sync + 'static) -> Self {
        let armed = Arc::new(AtomicBool::new(false));
        let gateway = {
            let armed = armed.clone();
            FakeGateway::start(move |request| {
                if let Some(greeting) = request.greeting() {
                    return greeting;
                }
                match request.name.as_str() {
                    "getTableNames" => Action::Reply(reply::names(&["tsdb"])),
                    "getRowsWithColumns" if armed.load(Ordering::SeqCst) => hostile(request),
                    "getRowsWithColumns" => Action::Reply(reply::rows(&[(b"row", &[b"q"])])),
                    other => panic!("unexpected call of {other}"),
                }
            })
        };
        Self { gateway, armed }
    }

    /// The error of a read that gets the hostile response; checks that the next read works.
    async fn error(&self, config: ThriftConfig) -> StoreError {
        let store = ThriftStore::connect(config).await.unwrap();
        let table = table();
        let read = || store.get(&table, b"row", &ColumnSelection::All);
        self.armed.store(true, Ordering::SeqCst);
        let before = self.gateway.connections();
        let error = read().await.expect_err("a hostile response");
        self.armed.store(false, Ordering::SeqCst);
        let row = read().await.unwrap().expect("the row is there");
        assert_eq!(row.get("t", b"q").unwrap().value, b"value");
        assert!(self.gateway.connections() > before, "on a new connection");
        error
    }
}

/// The error of a read after a response with these fields.
async fn error_of(write: fn(&mut reply::Output) -> thrift::Result<()>) -> String {
    let hostile = Hostile::start(move |_| Action::Reply(reply::fields(write)));
    let config = config(&hostile.gateway);
    hostile.error(config).await.to_string()
}

fn rows(output: &mut reply::Output, size: i32) -> thrift::Result<()> {
    output.write_field_begin(&TFieldIdentifier::new("success", TType::List, 0))?;
    output.write_list_begin(&TListIdentifier::new(TType::Struct, size))
}

fn key(output: &mut reply::Output, length: i32) -> thrift::Result<()> {
    output.write_field_begin(&TFieldIdentifier::new("row", TType::String, 1))?;
    output.write_i32(length)
}

#[tokio::test]
async fn rejects_strings_of_two_gigabytes() {
    let error = error_of(|output| {
        rows(output, 1)?;
        key(output, i32::MAX)
    })
    .await;
    assert!(
        error.contains("a response that needs more than 1048576 bytes"),
        "{error}"
    );
}

#[tokio::test]
async fn allocates_strings_as_their_bytes_arrive() {
    let hostile = Hostile::start(|request| {
        let announced = reply::fields(|output| {
            rows(output, 1)?;
            key(output, 1 << 30)
        });
        Action::BytesAndClose(announced.encode(&request.name, request.sequence))
    });
    let mut config = config(&hostile.gateway);
    // Three attempts that allocated the announced length would need 3 GiB.
    config.max_reply_bytes = 2 << 30;
    let error = hostile.error(config).await;
    assert!(matches!(error, StoreError::Io { .. }), "{error}");
    assert!(error.to_string().contains("closed the connection"), "{error}");
}

#[tokio::test]
async fn rejects_negative_lengths() {
    let error = error_of(|output| {
        rows(output, 1)?;
        key(output, -1)
    })
    .await;
    assert!(error.contains("a string with a length of -1"), "{error}");
    let error = error_of(|output| rows(output, i32::MIN)).await;
    assert!(error.contains("a list with a length of -2147483648"), "{error}");
    let error = error_of(|output| {
        rows(output, 1)?;
        output.write_field_begin(&TFieldIdentifier::new("columns", TType::Map, 2))?;
        output.write_map_begin(&TMapIdentifier::new(TType::String, TType::Struct, -5))
    })
    .await;
    assert!(error.contains("a map with a length of -5"), "{error}");
}

#[tokio::test]
async fn rejects_huge_containers() {
    let error = error_of(|output| rows(output, i32::MAX)).await;
    assert!(
        error.contains("a list of 2147483647 elements, at most 65536 are expected"),
        "{error}"
    );
    let error = error_of(|output| rows(output, 65_536)).await;
    assert!(
        error.contains("a response that needs more than 1048576 bytes"),
        "{error}"
    );
    let error = error_of(|output| {
        rows(output, 1)?;
        output.write_field_begin(&TFieldIdentifier::new("columns", TType::Map, 2))?;
        output.write_map_begin(&TMapIdentifier::new(TType::String, TType::Struct, i32::MAX))
    })
    .await;
    assert!(
        error.contains("a response that needs more than 1048576 bytes"),
        "{error}"
    );
}

#[tokio::test]
async fn rejects_deep_nesting() {
    let error = error_of(|output| {
        output.write_field_begin(&TFieldIdentifier::new("unknown", TType::List, 99))?;
        for _ in 0..100_000 {
            output.write_list_begin(&TListIdentifier::new(TType::List, 1))?;
        }
        Ok(())
    })
    .await;
    assert!(error.contains("cannot parse past"), "{error}");
}

#[tokio::test]
async fn aborts_endless_responses() {
    // An unknown field: a struct of endless fields that need no memory.
    let hostile = Hostile::start(|request| {
        let begin = reply::fields(|output| {
            output.write_field_begin(&TFieldIdentifier::new("unknown", TType::Struct, 99))
        });
        let mut begin = begin.encode(&request.name, request.sequence);
        // Without the stop.
        begin.pop();
        let field = [2, 0, 1, 1].repeat(16 << 10);
        Action::Endless(begin, field)
    });
    let mut config = config(&hostile.gateway);
    config.request_timeout = Duration::from_secs(60);
    let started = Instant::now();
    let error = hostile.error(config).await;
    assert!(
        error.to_string().contains("a response that needs more than"),
        "{error}"
    );
    assert!(
        started.elapsed() < Duration::from_secs(50),
        "long before the deadline"
    );
}

#[tokio::test]
async fn rejects_truncated_responses() {
    let whole = reply::rows(&[(b"row", &[b"q"])])
        .encode("getRowsWithColumns", 1)
        .len();
    for length in 0..whole {
        let hostile = Hostile::start(move |request| {
            let mut bytes = reply::rows(&[(b"row", &[b"q"])]).encode(&request.name, request.sequence);
            bytes.truncate(length);
            Action::BytesAndClose(bytes)
        });
        let config = config(&hostile.gateway);
        let error = hostile.error(config).await;
        assert!(matches!(error, StoreError::Io { .. }), "{length} bytes: {error}");
    }
}

#[tokio::test]
async fn rejects_trailing_bytes() {
    let hostile = Hostile::start(|request| {
        let mut bytes = reply::rows(&[]).encode(&request.name, request.sequence);
        bytes.extend_from_slice(b"more");
        Action::Bytes(bytes)
    });
    let config = config(&hostile.gateway);
    let error = hostile.error(config).await.to_string();
    assert!(error.contains("4 bytes after the end of a response"), "{error}");
}

#[tokio::test]
async fn rejects_the_response_to_another_call() {
    type Change = fn(&Request) -> Vec<u8>;
    let cases: [(Change, &str); 4] = [
        (
            |request| reply::rows(&[]).encode("getRow", request.sequence),
            "WrongMethodName",
        ),
        (
            |request| reply::rows(&[]).encode(&request.name, request.sequence - 1),
            "BadSequenceId",
        ),
        (
            |request| reply::header(&request.name, TMessageType::Call, request.sequence),
            "InvalidMessageType",
        ),
        (
            |request| reply::header(&"x".repeat(1_000), TMessageType::Reply, request.sequence),
            "a call's name of 1000 bytes",
        ),
    ];
    for (change, expected) in cases {
        let hostile = Hostile::start(move |request| Action::Bytes(change(request)));
        let config = config(&hostile.gateway);
        let error = hostile.error(config).await;
        assert!(matches!(error, StoreError::Io { .. }), "{error}");
        assert!(error.to_string().contains(expected), "{error}");
    }
}

#[tokio::test]
async fn reports_server_exceptions() {
    let hostile = Hostile::start(|request| {
        let exception = reply::fields(|output| {
            output.write_field_begin(&TFieldIdentifier::new("message", TType::String, 1))?;
            output.write_string("Internal error processing getRowsWithColumns")?;
            output.write_field_begin(&TFieldIdentifier::new("type", TType::I32, 2))?;
            output.write_i32(6)
        });
        let mut bytes = exception.encode(&request.name, request.sequence);
        // The kind of message is the fourth byte.
        bytes[3] = 3;
        Action::Bytes(bytes)
    });
    let config = config(&hostile.gateway);
    let error = hostile.error(config).await.to_string();
    assert!(
        error.contains("Internal error processing getRowsWithColumns"),
        "{error}"
    );
}

#[tokio::test]
async fn rejects_unrequested_rows() {
    let hostile = Hostile::start(|_| Action::Reply(reply::rows(&[(b"another", &[b"q"])])));
    let config = config(&hostile.gateway);
    let store = ThriftStore::connect(config).await.unwrap();
    hostile.armed.store(true, Ordering::SeqCst);
    let error = store
        .get(&table(), b"row", &ColumnSelection::All)
        .await
        .unwrap_err();
    assert!(
        error.to_string().contains("row `another` was not requested"),
        "{error}"
    );
}

#[tokio::test]
async fn rejects_overlong_qualifiers() {
    let hostile = Hostile::start(|_| Action::Reply(reply::rows(&[(b"row", &[&[7; 17 << 20]])])));
    let mut config = config(&hostile.gateway);
    config.max_reply_bytes = 64 << 20;
    let store = ThriftStore::connect(config).await.unwrap();
    hostile.armed.store(true, Ordering::SeqCst);
    let error = store
        .get(&table(), b"row", &ColumnSelection::All)
        .await
        .unwrap_err();
    assert!(
        error.to_string().contains("a qualifier of 17825792 bytes"),
        "{error}"
    );
}

#[tokio::test]
async fn rejects_garbage() {
    let mut random = 7_u64;
    for _ in 0..100 {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let seed = random;
        let hostile = Hostile::start(move |request| {
            // The first bytes look like a response, the rest is random.
            let mut bytes = reply::header(&request.name, TMessageType::Reply, request.sequence);
            let mut random = seed;
            if random.is_multiple_of(4) {
                bytes.clear();
            }
            bytes.extend((0..200).map(|_| {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                // Small numbers are more often a type or a length than large ones.
                let byte = random.to_be_bytes()[1];
                if byte.is_multiple_of(2) { byte % 16 } else { byte }
            }));
            Action::BytesAndClose(bytes)
        });
        let config = config(&hostile.gateway);
        let store = ThriftStore::connect(config).await.unwrap();
        hostile.armed.store(true, Ordering::SeqCst);
        // It may happen to be a valid response, which then has no requested row.
        if let Ok(row) = store.get(&table(), b"row", &ColumnSelection::All).await {
            assert_eq!(row, None, "seed {seed}");
        }
        hostile.armed.store(false, Ordering::SeqCst);
        assert!(
            store
                .get(&table(), b"row", &ColumnSelection::All)
                .await
                .unwrap()
                .is_some()
        );
    }
}

#[tokio::test]
async fn error_shows_the_bytes_of_a_non_thrift_peer() {
    let gateway = FakeGateway::start(|_| {
        Action::BytesAndClose(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n".to_vec())
    });
    for framed in [false, true] {
        let mut config = config(&gateway);
        config.framed = framed;
        config.connect_timeout = Duration::from_millis(300);
        let error = ThriftStore::connect(config).await.unwrap_err();
        assert!(matches!(error, StoreError::Unavailable { .. }), "{error}");
        let error = error.to_string();
        assert!(
            framed || error.contains("no Thrift response but `HTTP/1.1 400"),
            "{error}"
        );
        assert!(
            error.contains(&gateway.address) && !error.contains('\n'),
            "{error}"
        );
    }
}

#[tokio::test]
async fn unresponsive_peer_times_out() {
    let gateway = FakeGateway::start(|_| Action::Silence);
    let mut config = config(&gateway);
    config.connect_timeout = Duration::from_millis(200);
    let started = Instant::now();
    let error = ThriftStore::connect(config).await.unwrap_err();
    assert!(matches!(error, StoreError::Unavailable { .. }), "{error}");
    assert!(error.to_string().contains("no response in time"), "{error}");
    assert!(
        started.elapsed() < Duration::from_secs(5),
        "{:?}",
        started.elapsed()
    );
}

#[tokio::test]
async fn unanswered_read_times_out() {
    let hostile = Hostile::start(|_| Action::Silence);
    let mut config = config(&hostile.gateway);
    config.request_timeout = Duration::from_millis(300);
    let error = hostile.error(config).await;
    assert!(matches!(error, StoreError::TimedOut { .. }), "{error}");
}

#[tokio::test]
async fn trickling_response_does_not_extend_the_deadline() {
    let gate = Gate::default();
    let hostile = {
        let gate = gate.clone();
        Hostile::start(move |request| {
            let begin = reply::header(&request.name, TMessageType::Reply, request.sequence);
            Action::Drops(gate.clone(), begin)
        })
    };
    let mut config = config(&hostile.gateway);
    config.request_timeout = Duration::from_millis(500);
    let started = Instant::now();
    let error = hostile.error(config).await;
    gate.open();
    assert!(matches!(error, StoreError::TimedOut { .. }), "{error}");
    assert!(
        started.elapsed() < Duration::from_secs(5),
        "{:?}",
        started.elapsed()
    );
}

#[tokio::test]
async fn discards_late_responses() {
    let gate = Gate::default();
    let gateway = {
        let gate = gate.clone();
        FakeGateway::start(move |request| {
            if let Some(greeting) = request.greeting() {
                return greeting;
            }
            match (request.name.as_str(), request.connection) {
                ("getTableNames", _) => Action::Reply(reply::names(&[])),
                // Late, and with the sequence number that the next call on this connection would have.
                ("atomicIncrement", 0) => {
                    let mut late = reply::long(1).encode(&request.name, request.sequence);
                    late.extend(reply::long(1).encode(&request.name, request.sequence + 1));
                    Action::BytesAfter(gate.clone(), late)
                }
                ("atomicIncrement", _) => Action::Reply(reply::long(2)),
                (other, _) => panic!("unexpected call of {other}"),
            }
        })
    };
    let mut config = config(&gateway);
    config.request_timeout = Duration::from_millis(300);
    let store = ThriftStore::connect(config).await.unwrap();
    let cell = CellAddress::new("row", "t", "q");
    let error = store.increment(&table(), &cell, 1).await.unwrap_err();
    assert!(matches!(error, StoreError::TimedOut { .. }), "{error}");
    gate.open();
    assert_eq!(store.increment(&table(), &cell, 1).await.unwrap(), 2);
    assert_eq!(gateway.connections(), 2);
}

#[tokio::test]
async fn rejects_inconsistent_frames() {
    let cases: [(i32, &str); 3] = [
        (i32::MAX, "no Thrift response but `\\x7f\\xff\\xff\\xff"),
        (-1, "no Thrift response but `\\xff\\xff\\xff\\xff"),
        (20, "a frame ends within a response"),
    ];
    for (length, expected) in cases {
        let gateway = FakeGateway::start_framed(move |request| {
            if let Some(greeting) = request.greeting() {
                return greeting;
            }
            let mut bytes = length.to_be_bytes().to_vec();
            bytes.extend(reply::names(&["tsdb"]).encode(&request.name, request.sequence));
            Action::BytesAndClose(bytes)
        });
        let mut config = config(&gateway);
        config.framed = true;
        let error = ThriftStore::connect(config).await.unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}
