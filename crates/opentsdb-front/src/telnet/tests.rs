//! Sessions over sockets.

mod failures;
mod window;

use std::sync::Arc;
use std::time::Duration;

use oxtsdb_data_settings::DataSettings;
use oxtsdb_row_store::StoreError;
use oxtsdb_test_stack::service::{Service, points, read_to_end};
use oxtsdb_test_stack::{Gate, TestStack};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use uid_service::UidSettings;

const T: u32 = 1_356_998_400;

#[tokio::test]
async fn stores_the_documented_example_byte_for_byte() {
    let service = Service::start().await;
    let reply = service
        .telnet("put sys.cpu.nice 1346846400 18 host=web01 dc=lga\n")
        .await;
    assert_eq!(reply, "", "a stored point is silent");
    let row = "00000150473ec0000001000001000002000002";
    assert_eq!(service.cells().await, [format!("{row} t:0000 12")]);
}

#[tokio::test]
async fn stores_floats_in_four_bytes_if_that_is_exact() {
    let service = Service::start().await;
    service
        .telnet("put m 1356998400 0.5 a=b\nput m 1356998401 4.2 a=b\n")
        .await;
    let cells = service.cells().await;
    let values: Vec<&str> = cells.iter().filter_map(|cell| cell.split(' ').nth(2)).collect();
    assert_eq!(values, ["3f000000", "4010cccccccccccd"]);
}

#[tokio::test]
async fn replies_in_the_order_of_the_lines() {
    let service = Service::start().await;
    let nine: String = (1..=9).map(|n| format!(" k{n}=v")).collect();
    let input = format!(
        "put a.b {T} 1 x=y\n\
         put a.b {T} 1 x=y!\n\
         put a.b\n\
         put a.b {T} 1 \n\
         bogus\n\
         put a.b {T} 1{nine}\n\
         help\n\
         \n\
         put a!b {T} 1 x=y\n\
         put a.b {T} 1 x!=y\r\n"
    );
    let tags = (1..=9).map(|n| format!("k{n}=v")).collect::<Vec<_>>().join(", ");
    let expected = format!(
        "put: illegal argument: Invalid tag value with key [x] (\"y!\"): illegal character: ! (letters, digits and -_./ are allowed, and what --extra-name-characters adds)\n\
         put: illegal argument: not enough arguments (need least 4, got 1)\n\
         put: illegal argument: Need at least one tag (metric=a.b, tags={{}})\n\
         unknown command: bogus.  Try `help'.\n\
         put: illegal argument: Too many tags: 9 maximum allowed: 8, tags: {{{tags}}}\n\
         available commands: stats dropcaches version exit help put rollup histogram \n\
         unknown command: .  Try `help'.\n\
         put: illegal argument: Invalid metric name (\"a!b\"): illegal character: ! (letters, digits and -_./ are allowed, and what --extra-name-characters adds)\n\
         put: illegal argument: Invalid tag name with value [y] (\"x!\"): illegal character: ! (letters, digits and -_./ are allowed, and what --extra-name-characters adds)\n"
    );
    assert_eq!(service.telnet(input).await, expected);
    assert_eq!(service.cells().await.len(), 1);
}

#[tokio::test]
async fn reports_unknown_names_if_they_are_not_assigned_on_write() {
    let mut uid_settings = UidSettings::default();
    uid_settings.naming.auto_create_metrics = false;
    let service = Service::start_with(DataSettings::default(), uid_settings).await;
    let reply = service.telnet(format!("put x {T} 1 a=b\n")).await;
    assert_eq!(reply, "put: unknown metric: No such name for 'metrics': 'x'\n");
}

#[tokio::test]
async fn does_not_store_half_a_line_at_the_end() {
    let service = Service::start().await;
    let reply = service
        .telnet(format!("put m {T} 1 a=b\nput m {} 12 a=b", T + 1))
        .await;
    assert_eq!(reply, "");
    assert_eq!(service.cells().await.len(), 1);
}

#[tokio::test]
async fn joins_a_line_that_arrives_in_pieces() {
    let service = Service::start().await;
    let mut stream = service.connect().await;
    stream.set_nodelay(true).unwrap();
    for piece in format!("put m {T} 12 a=b\nexit\n").as_bytes().chunks(3) {
        stream.write_all(piece).await.unwrap();
        tokio::task::yield_now().await;
    }
    assert_eq!(read_to_end(&mut stream).await, "");
    assert!(service.cells().await[0].ends_with(" 0c"));
}

#[tokio::test]
async fn reports_a_long_line_and_closes_the_connection() {
    let service = Service::start().await;
    let too_long = "error: line is too long, at most 1024 bytes are allowed; closing\n";
    let stored = format!("put m {T} 1 a=b\n");
    for long in [
        format!("put m {T} 1 a={}\nhelp\n", "b".repeat(1024)),
        "x".repeat(1025),
    ] {
        assert_eq!(service.telnet(format!("{stored}{long}")).await, too_long);
    }
    let fits = format!("put m {T} 1 {:<width$}\n", "a=b", width = 1024 - 19);
    assert_eq!(fits.len(), 1025);
    assert_eq!(service.telnet(fits).await, "");
    assert_eq!(service.cells().await.len(), 1);
}

#[tokio::test]
async fn decodes_bytes_as_latin1() {
    let service = Service::start().await;
    // E9 is é. As UTF-8 it would be two characters, and the second one, ©, is no letter.
    assert_eq!(service.telnet(b"put caf\xe9 1356998400 1 a=\xe9\n").await, "");
    let utf8 = "put café 1356998400 1 a=b\nhelp\n".as_bytes();
    let reply = service.telnet(utf8).await;
    assert_eq!(
        reply,
        "put: illegal argument: Invalid metric name (\"caf\u{c3}\u{a9}\"): illegal character: \u{a9} (letters, digits and -_./ are allowed, and what --extra-name-characters adds)\n\
         available commands: stats dropcaches version exit help put rollup histogram \n"
    );
    assert_eq!(service.cells().await.len(), 1);
}

#[tokio::test]
async fn reports_version_and_statistics() {
    let service = Service::start().await;
    let reply = service.telnet(format!("put m {T} 1 a=b\nversion\nstats\n")).await;
    let mut lines = reply.lines();
    let version = lines.next().unwrap();
    let program = concat!("oxtsdb ", env!("CARGO_PKG_VERSION"), " (OpenTSDB 2.4.1)");
    assert!(
        version.starts_with(program) && !version.contains("unknown"),
        "{version}"
    );
    assert!(lines.next().unwrap().starts_with("Built on "));
    let added = lines
        .find(|line| line.starts_with("tsd.datapoints.added "))
        .unwrap();
    let words: Vec<&str> = added.split(' ').collect();
    assert_eq!((words[2], words[3]), ("1", "type=all"));
    assert!(words[4].starts_with("host="));
}

#[tokio::test]
async fn serves_a_hundred_clients_concurrently() {
    let service = Service::start().await;
    let clients = (0..100).map(|client| {
        let service = &service;
        async move {
            let mut lines = String::new();
            for second in 0..200 {
                lines.push_str(&format!("put load {} {second} host=h{client}\n", T + second));
            }
            service.telnet(lines + "help\n").await
        }
    });
    for reply in futures::future::join_all(clients).await {
        assert_eq!(
            reply,
            "available commands: stats dropcaches version exit help put rollup histogram \n"
        );
    }
    assert_eq!(service.cells().await.len(), 100 * 200);
}

#[tokio::test]
async fn splits_lines_into_batches() {
    let mut settings = DataSettings::default();
    settings.telnet.telnet_batch_points = 7;
    let service = Service::start_with(settings, UidSettings::default()).await;
    let mut lines = String::new();
    let mut expected = String::new();
    for second in 0..100 {
        lines.push_str(&format!("put caf\u{e9} {} 1 a=b\nx{second}\n", T + second));
        expected.push_str(&format!("unknown command: x{second}.  Try `help'.\n"));
    }
    let latin1: Vec<u8> = lines
        .chars()
        .map(|c| u8::try_from(u32::from(c)).unwrap())
        .collect();
    assert_eq!(service.telnet(latin1).await, expected);
    assert_eq!(service.cells().await.len(), 100);
}

#[tokio::test]
async fn stores_received_lines_on_shutdown() {
    let mut service = Service::start().await;
    let mut stream = service.connect().await;
    // The first reply shows that the connection is served; the following lines are in its buffers.
    stream.write_all(b"help\n").await.unwrap();
    let mut lines = String::new();
    for second in 0..3000 {
        lines.push_str(&format!("put m {} {second} a=b\n", T + second));
    }
    stream.writable().await.unwrap();
    stream
        .write_all(format!("{lines}put m 1 1 a=").as_bytes())
        .await
        .unwrap();
    service.stop().await;
    assert_eq!(
        read_to_end(&mut stream).await,
        "available commands: stats dropcaches version exit help put rollup histogram \n"
    );
    let store = service.store.clone();
    service.ended().await;
    assert_eq!(points(&store).await.len(), 3000);
}

#[tokio::test]
async fn closes_idle_connections_after_the_idle_timeout() {
    let mut settings = DataSettings::default();
    settings.connections.idle_timeout_seconds = 1;
    let service = Service::start_with(settings, UidSettings::default()).await;
    let mut silent = service.connect().await;
    let mut telnet = service.connect().await;
    telnet.write_all(b"help\n").await.unwrap();
    let both = async { tokio::join!(read_to_end(&mut silent), read_to_end(&mut telnet)) };
    let (silent, telnet) = tokio::time::timeout(Duration::from_secs(10), both).await.unwrap();
    assert_eq!(silent, "");
    assert_eq!(
        telnet,
        "available commands: stats dropcaches version exit help put rollup histogram \n"
    );
}

fn lines(count: u32) -> String {
    (0..count)
        .map(|second| format!("put m {} {second} a=b\n", T + second))
        .collect()
}

fn in_batches_of(points: usize) -> DataSettings {
    let mut settings = DataSettings::default();
    settings.telnet.telnet_batch_points = points;
    settings
}

/// A gated service with a window of two batches for each connection.
async fn gated_in_pairs(settings: DataSettings) -> (Service, Arc<Gate>) {
    let (stack, gate) = Gate::stack(settings).await;
    // A small batch is charged more than 1 KiB and less than 1.5 KiB.
    let service = Service::with_server(stack, |server| server.with_telnet_window(1536)).await;
    (service, gate)
}

fn unavailable() -> StoreError {
    StoreError::Unavailable {
        detail: "starting".to_owned(),
    }
}

fn full() -> StoreError {
    StoreError::Full {
        detail: "disk".to_owned(),
    }
}

/// The value of a line of the statistics.
async fn statistic(service: &Service, name: &str, kind: &str) -> u64 {
    let stats = service.get("/api/stats").await.json();
    let line = stats
        .as_array()
        .unwrap()
        .iter()
        .find(|line| line["metric"] == name && line["tags"]["type"] == kind)
        .unwrap();
    line["value"].as_str().unwrap().parse().unwrap()
}

/// Waits until a line of the statistics has a value.
async fn until_statistic(service: &Service, name: &str, kind: &str, value: u64) {
    let reached = async { while statistic(service, name, kind).await != value {} };
    let reached = tokio::time::timeout(Duration::from_secs(30), reached).await;
    assert!(
        reached.is_ok(),
        "{name} type={kind} is {}, expected {value}",
        statistic(service, name, kind).await
    );
}

/// Points read, stored and lost since the start.
async fn counted(service: &Service) -> [u64; 3] {
    [
        statistic(service, "tsd.rpc.received", "put").await,
        statistic(service, "tsd.datapoints.added", "all").await,
        statistic(service, "tsd.rpc.errors", "hbase_errors").await,
    ]
}

#[tokio::test]
async fn drops_caches_and_refuses_to_die() {
    let service = Service::start().await;
    let lines = format!("put m {T} 1 a=b\ndropcaches x\nput m {T} 2 a=b\ndiediedie\n");
    assert_eq!(
        service.telnet(lines).await,
        "Caches dropped.\nunknown command: diediedie.  Try `help'.\n"
    );
    assert_eq!(service.cells().await.len(), 1);
}
