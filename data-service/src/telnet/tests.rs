use std::sync::Arc;
use std::time::Duration;

use oxtsdb_row_store::StoreError;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use uid_service::UidSettings;

use crate::settings::DataSettings;
use crate::test_stack::service::{Service, points, read_to_end};
use crate::test_stack::{Gate, TestStack};

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
        "put: illegal argument: Invalid tag value with key [x] (\"y!\"): illegal character: !\n\
         put: illegal argument: not enough arguments (need least 4, got 1)\n\
         put: illegal argument: Need at least one tag (metric=a.b, tags={{}})\n\
         unknown command: bogus.  Try `help'.\n\
         put: illegal argument: Too many tags: 9 maximum allowed: 8, tags: {{{tags}}}\n\
         available commands: stats version exit help put \n\
         unknown command: .  Try `help'.\n\
         put: illegal argument: Invalid metric name (\"a!b\"): illegal character: !\n\
         put: illegal argument: Invalid tag name with value [y] (\"x!\"): illegal character: !\n"
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
    // E9 is é. As UTF-8 it would be two characters, of which © is no letter.
    assert_eq!(service.telnet(b"put caf\xe9 1356998400 1 a=\xe9\n").await, "");
    let utf8 = "put café 1356998400 1 a=b\nhelp\n".as_bytes();
    let reply = service.telnet(utf8).await;
    assert_eq!(
        reply,
        "put: illegal argument: Invalid metric name (\"caf\u{c3}\u{a9}\"): illegal character: \u{a9}\n\
         available commands: stats version exit help put \n"
    );
    assert_eq!(service.cells().await.len(), 1);
}

#[tokio::test]
async fn reports_version_and_statistics() {
    let service = Service::start().await;
    let reply = service.telnet(format!("put m {T} 1 a=b\nversion\nstats\n")).await;
    let mut lines = reply.lines();
    assert!(
        lines
            .next()
            .unwrap()
            .starts_with(concat!("oxtsdb ", env!("CARGO_PKG_VERSION"), " built"))
    );
    assert_eq!(lines.next(), Some("Speaks the protocol of OpenTSDB 2.4.1"));
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
        assert_eq!(reply, "available commands: stats version exit help put \n");
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
        "available commands: stats version exit help put \n"
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
    assert_eq!(telnet, "available commands: stats version exit help put \n");
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

/// A service whose points come to a gate, two batches of a connection at a time.
async fn gated_in_pairs(settings: DataSettings) -> (Service, Arc<Gate>) {
    let (stack, gate) = Gate::stack(settings).await;
    // A batch counts for more than 1 KiB, and less than 1.5 as long as it has few lines.
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
        place: "disk".to_owned(),
    }
}

/// A line of the statistics.
async fn statistic(service: &Service, name: &str, kind: &str) -> u64 {
    let stats = service.get("/api/stats").await.json();
    let found = stats
        .as_array()
        .unwrap()
        .iter()
        .find(|line| line["metric"] == name && line["tags"]["type"] == kind)
        .unwrap();
    found["value"].as_str().unwrap().parse().unwrap()
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
async fn reads_lines_while_others_are_being_stored() {
    let (service, gate) = Service::gated(in_batches_of(10)).await;
    let mut stream = service.connect().await;
    stream.write_all(lines(35).as_bytes()).await.unwrap();
    gate.until_waiting(4).await;
    assert_eq!(counted(&service).await, [35, 0, 0]);
    // What is read later goes there too.
    let more = format!("put m {} 1 a=b\n", T + 35);
    stream.write_all(more.as_bytes()).await.unwrap();
    gate.until_waiting(5).await;
    gate.release(5);
    stream.shutdown().await.unwrap();
    assert_eq!(read_to_end(&mut stream).await, "");
    assert_eq!(counted(&service).await, [36, 36, 0]);
    assert_eq!(service.cells().await.len(), 36);
}

#[tokio::test]
async fn coalesces_points_of_a_row_while_hbase_is_busy() {
    let (stack, gate) = Gate::hbase_stack(in_batches_of(1)).await;
    let service = Service::of(stack).await;
    let mut stream = service.connect().await;
    stream.write_all(lines(1).as_bytes()).await.unwrap();
    gate.until_waiting(1).await;
    let more = lines(10).split_off(lines(1).len());
    stream.write_all(more.as_bytes()).await.unwrap();
    until_statistic(&service, "tsd.rpc.received", "put", 10).await;
    gate.release(2);
    stream.shutdown().await.unwrap();
    assert_eq!(read_to_end(&mut stream).await, "");
    assert_eq!(gate.passed(), 2);
    assert_eq!(
        service.cells().await.len(),
        2,
        "the first point, and all nine that came meanwhile"
    );
    assert_eq!(counted(&service).await, [10, 10, 0]);
}

#[tokio::test]
async fn a_full_window_pauses_reading_without_loss() {
    let (mut service, gate) = gated_in_pairs(in_batches_of(10)).await;
    let mut stream = service.connect().await;
    stream.write_all(lines(45).as_bytes()).await.unwrap();
    gate.until_waiting(2).await;
    // A third batch waits for the window; the others were not read.
    assert_eq!(statistic(&service, "tsd.rpc.received", "telnet").await, 30);
    assert_eq!((gate.waiting(), gate.passed()), (2, 0));
    // When one is stored, the next is read.
    gate.release(1);
    until_statistic(&service, "tsd.rpc.received", "telnet", 40).await;
    assert_eq!((gate.waiting(), gate.passed()), (2, 1));
    // The program is to end now; what has been received is stored before it does.
    service.stop().await;
    gate.release(100);
    assert_eq!(read_to_end(&mut stream).await, "");
    let store = service.store.clone();
    service.ended().await;
    assert_eq!(gate.passed(), 5);
    assert_eq!(points(&store).await.len(), 45);
}

#[tokio::test]
async fn completed_batches_free_the_window() {
    let mut settings = in_batches_of(4096);
    settings.memory.max_writes_mib = 1;
    let service = Service::start_with(settings, UidSettings::default()).await;
    assert_eq!(service.telnet(lines(40_000)).await, "");
    assert_eq!(service.cells().await.len(), 40_000);
}

#[tokio::test]
async fn stores_batches_behind_a_failed_batch_again() {
    let (service, gate) = Service::gated(in_batches_of(1)).await;
    let mut stream = service.connect().await;
    // The third line corrects the second.
    let seconds = [(0, 1), (1, 2), (1, 3), (2, 4)];
    let lines = seconds.map(|(second, value)| format!("put m {} {value} a=b\n", T + second));
    stream.write_all(lines.concat().as_bytes()).await.unwrap();
    gate.until_waiting(4).await;
    gate.release(1);
    gate.until_waiting(3).await;
    // The second fails, and when it is stored again too.
    gate.fail([unavailable()]);
    gate.release(3);
    gate.until_waiting(1).await;
    gate.fail([unavailable()]);
    gate.release(100);
    stream.shutdown().await.unwrap();
    assert_eq!(read_to_end(&mut stream).await, "");
    let cells = service.cells().await;
    let values: Vec<&str> = cells.iter().filter_map(|cell| cell.split(' ').nth(2)).collect();
    assert_eq!(values, ["01", "03", "04"]);
    assert_eq!(
        gate.passed(),
        1 + 2 + 3,
        "the first, the two behind the failure, these three again"
    );
    assert_eq!(counted(&service).await, [4, 4, 0]);
}

#[tokio::test]
async fn reports_lost_points_in_flight_at_once() {
    let (service, gate) = Service::gated(in_batches_of(10)).await;
    let mut stream = service.connect().await;
    stream.write_all(lines(35).as_bytes()).await.unwrap();
    gate.until_waiting(4).await;
    gate.release(1);
    gate.until_waiting(3).await;
    gate.fail([full()]);
    gate.release(100);
    let lost = "put: HBase error: no space left to write to disk (10 points are not known to be stored)\n";
    let mut reply = vec![0; lost.len()];
    stream.read_exact(&mut reply).await.unwrap();
    assert_eq!(String::from_utf8(reply).unwrap(), lost);
    // The connection goes on.
    stream.write_all(b"help\nexit\n").await.unwrap();
    assert_eq!(
        read_to_end(&mut stream).await,
        "available commands: stats version exit help put \n"
    );
    assert_eq!(counted(&service).await, [35, 25, 10]);
    assert_eq!(service.cells().await.len(), 25);
}

#[tokio::test]
async fn replies_after_the_failures_of_earlier_lines() {
    let (service, gate) = Service::gated(in_batches_of(2)).await;
    gate.release(1);
    // A series that is known: its points wait at the gate, and for nothing else.
    assert_eq!(service.telnet(format!("put m {T} 1 a=b\n")).await, "");
    let mut stream = service.connect().await;
    let input = format!("{}bogus\nput m {T} 1 a=b!\nput m {} 9 a=b\n", lines(5), T + 5);
    stream.write_all(input.as_bytes()).await.unwrap();
    stream.shutdown().await.unwrap();
    gate.until_waiting(2).await;
    // Of two batches in flight one is lost, and the other has to be stored again.
    gate.fail([full(), unavailable()]);
    gate.release(100);
    assert_eq!(
        read_to_end(&mut stream).await,
        "put: HBase error: no space left to write to disk (2 points are not known to be stored)\n\
         unknown command: bogus.  Try `help'.\n\
         put: illegal argument: Invalid tag value with key [a] (\"b!\"): illegal character: !\n"
    );
    assert_eq!(counted(&service).await, [8, 5, 2]);
    assert_eq!(service.cells().await.len(), 5);
}

#[tokio::test]
async fn stores_the_lines_of_a_disconnected_client() {
    let with_replies = "bogus\n".to_owned() + &lines(35).replace("a=b\n", "a=b\nbogus\n");
    for input in [lines(35), with_replies] {
        let (service, gate) = gated_in_pairs(in_batches_of(10)).await;
        let mut stream = service.connect().await;
        stream.write_all(input.as_bytes()).await.unwrap();
        gate.until_waiting(if input.contains("bogus") { 1 } else { 2 })
            .await;
        // The connection is reset, not closed.
        let socket = socket2::SockRef::from(&stream);
        socket.set_linger(Some(Duration::ZERO)).unwrap();
        drop(stream);
        gate.fail([unavailable()]);
        gate.release(100);
        until_statistic(&service, "tsd.datapoints.added", "all", 35).await;
        assert_eq!(service.cells().await.len(), 35);
        until_statistic(&service, "tsd.connectionmgr.connections", "open", 1).await;
    }
}

#[tokio::test]
async fn retries_until_the_store_is_available() {
    let (service, gate) = Service::gated(DataSettings::default()).await;
    gate.release(100);
    gate.fail([unavailable(), unavailable()]);
    assert_eq!(service.telnet(lines(3)).await, "");
    assert_eq!(service.cells().await.len(), 3);
}

#[tokio::test]
async fn reports_lost_points() {
    let (service, gate) = Service::gated(DataSettings::default()).await;
    gate.release(100);
    gate.fail([full()]);
    assert_eq!(
        service.telnet(format!("{}bogus\n", lines(3))).await,
        "unknown command: bogus.  Try `help'.\n\
         put: HBase error: no space left to write to disk (3 points are not known to be stored)\n"
    );
    assert_eq!(service.cells().await.len(), 0);
}

#[tokio::test]
async fn a_client_that_does_not_read_replies_holds_no_permit_and_is_disconnected() {
    let mut settings = DataSettings::default();
    settings.memory.max_writes_mib = 1;
    settings.connections.client_timeout_seconds = 1;
    let service = Service::start_with(settings, UidSettings::default()).await;
    let mut deaf = service.connect().await;
    let input = format!("put m {T} 1 a=b\n{}", "put m 1 x a=b\n".repeat(1000));
    let cut_off = async { while deaf.write_all(input.as_bytes()).await.is_ok() {} };
    let others = async {
        for second in 1..=20 {
            assert_eq!(service.telnet(format!("put m {} 1 c=d\n", T + second)).await, "");
        }
    };
    let both = futures::future::join(cut_off, others);
    tokio::time::timeout(Duration::from_secs(60), both)
        .await
        .expect("the connection is closed");
}

#[tokio::test]
async fn an_exhausted_memory_pool_pauses_reading_without_loss() {
    let memory = oxtsdb_resources::MemoryAccount::new(256 << 20, 0);
    let stack = TestStack::with_memory(DataSettings::default(), &memory).await;
    let service = Service::of(stack).await;
    let pool = memory.ingest();
    let taken = pool.try_reserve(pool.limit_bytes()).unwrap();
    let mut stream = service.connect().await;
    stream.write_all(lines(5000).as_bytes()).await.unwrap();
    stream.write_all(b"version\n").await.unwrap();
    stream.shutdown().await.unwrap();
    while pool.usage().rejected == 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(service.cells().await.len(), 0);
    drop(taken);
    let reply = read_to_end(&mut stream).await;
    assert!(reply.starts_with("oxtsdb "), "{reply}");
    assert_eq!(service.cells().await.len(), 5000);
    while pool.usage().used_bytes > 0 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_session_that_waits_for_memory_ends_on_shutdown() {
    let memory = oxtsdb_resources::MemoryAccount::new(256 << 20, 0);
    let stack = TestStack::with_memory(DataSettings::default(), &memory).await;
    let mut service = Service::of(stack).await;
    let pool = memory.ingest();
    let _taken = pool.try_reserve(pool.limit_bytes()).unwrap();
    let mut stream = service.connect().await;
    stream.write_all(lines(10).as_bytes()).await.unwrap();
    while pool.usage().rejected == 0 {
        tokio::task::yield_now().await;
    }
    let began = std::time::Instant::now();
    service.stop().await;
    service.ended().await;
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
}

#[tokio::test]
async fn stores_points_of_known_series_without_the_uid_service() {
    let (service, gate) = Service::with_gated_uids().await;
    gate.release(1);
    assert_eq!(service.telnet(format!("put m {T} 1 a=b\n")).await, "");
    let mut waiting = service.connect().await;
    waiting
        .write_all(format!("put m {T} 1 a=new\nput m {} 2 a=b\nexit\n", T + 1).as_bytes())
        .await
        .unwrap();
    gate.until_waiting(1).await;
    assert_eq!(service.telnet(format!("put m {} 3 a=b\n", T + 2)).await, "");
    assert_eq!(service.cells().await.len(), 2, "the other connection waits alone");
    gate.release(100);
    assert_eq!(read_to_end(&mut waiting).await, "");
    assert_eq!(service.cells().await.len(), 4);
}
