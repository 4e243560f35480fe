use std::io;
use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use super::*;
use crate::{Shutdown, ShutdownTrigger};

const SOON: Duration = Duration::from_secs(10);

const OPTIONS: ListenerOptions = ListenerOptions {
    alpn: crate::tls::Alpn::Http1,
    name: "test",
    limit: 2,
    limit_setting: "--max-connections",
    idle_timeout: None,
    client_timeout: CLIENT_TIMEOUT,
    drain_limit: SOON,
};

/// A server of lines: `busy` begins a request that never ends, others are sent back. After `linger` a connection
/// ignores the request to close.
struct Server {
    address: SocketAddr,
    counts: Arc<ConnectionCounts>,
    trigger: Option<ShutdownTrigger>,
    task: JoinHandle<()>,
}

impl Server {
    async fn start(connections: &Connections, options: ListenerOptions) -> Server {
        let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = socket.local_addr().unwrap();
        let (shutdown, trigger) = Shutdown::new(Duration::ZERO);
        let counts = Arc::<ConnectionCounts>::default();
        let listener = connections.listener(options, Arc::clone(&counts));
        let task = tokio::spawn(listener.serve(socket, shutdown, |stream, connection| async move {
            let lingers = AtomicBool::new(false);
            let closing = async {
                connection.closing().await;
                if lingers.load(Ordering::Relaxed) {
                    std::future::pending::<()>().await;
                }
            };
            tokio::select! {
                served = serve_lines(stream, &connection, &lingers) => served,
                () = closing => Ok(()),
            }
        }));
        Server {
            address,
            counts,
            trigger: Some(trigger),
            task,
        }
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// An idle connection that has received a response.
    async fn idle(&self) -> TcpStream {
        let mut stream = self.connect().await;
        echo(&mut stream, "x\n").await.unwrap();
        stream
    }

    /// A connection with a request in progress.
    async fn busy(&self) -> TcpStream {
        let mut stream = self.connect().await;
        assert_eq!(echo(&mut stream, "busy\n").await.unwrap(), "busy\n");
        stream
    }
}

async fn serve_lines(
    mut stream: ClientStream,
    connection: &Connection,
    lingers: &AtomicBool,
) -> io::Result<()> {
    let mut requests = Vec::new();
    let mut input = [0; 64];
    loop {
        let read = stream.read(&mut input).await?;
        if read == 0 {
            return Ok(());
        }
        let request = connection.request();
        if input[..read].starts_with(b"busy") {
            requests.push(connection.request());
        }
        if input[..read].starts_with(b"linger") {
            lingers.store(true, Ordering::Relaxed);
        }
        if input[..read].starts_with(b"flood") {
            stream.write_all(&vec![0; 64 << 20]).await?;
        }
        stream.write_all(&input[..read]).await?;
        stream.flush().await?;
        drop(request);
    }
}

async fn echo(stream: &mut TcpStream, line: &str) -> io::Result<String> {
    stream.write_all(line.as_bytes()).await?;
    let mut reply = vec![0; line.len()];
    tokio::time::timeout(SOON, stream.read_exact(&mut reply)).await??;
    Ok(String::from_utf8(reply).unwrap())
}

/// Waits until the server has closed the connection.
async fn assert_closed(stream: &mut TcpStream) {
    let mut rest = Vec::new();
    let read = tokio::time::timeout(SOON, stream.read_to_end(&mut rest)).await;
    // An end, or a reset.
    drop(read.expect("the connection is closed"));
    assert!(rest.is_empty());
}

#[tokio::test]
async fn the_connection_that_was_idle_the_longest_gives_way() {
    let server = Server::start(&Connections::unlimited(), OPTIONS).await;
    let mut first = server.idle().await;
    tokio::time::sleep(Duration::from_millis(5)).await;
    let mut second = server.idle().await;
    tokio::time::sleep(Duration::from_millis(5)).await;
    // Used again: now the other one was idle for longer.
    echo(&mut first, "y\n").await.unwrap();
    let mut third = server.idle().await;
    assert_closed(&mut second).await;
    echo(&mut first, "z\n").await.unwrap();
    echo(&mut third, "z\n").await.unwrap();
    assert_eq!(server.counts.evicted.load(Ordering::Relaxed), 1);
    assert_eq!(server.counts.refused.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn sockets_that_never_send_do_not_lock_out_new_clients() {
    let server = Server::start(&Connections::unlimited(), OPTIONS).await;
    let mut silent = Vec::new();
    for _ in 0..50 {
        silent.push(server.connect().await);
    }
    server.idle().await;
    assert!(server.counts.open.load(Ordering::Relaxed) <= 2);
}

#[tokio::test]
async fn a_new_connection_is_refused_only_if_all_are_busy() {
    let server = Server::start(&Connections::unlimited(), OPTIONS).await;
    let (mut first, mut second) = (server.busy().await, server.busy().await);
    let mut third = server.connect().await;
    assert_closed(&mut third).await;
    assert_eq!(server.counts.refused.load(Ordering::Relaxed), 1);
    echo(&mut first, "x\n").await.unwrap();
    echo(&mut second, "x\n").await.unwrap();
}

#[tokio::test]
async fn a_connection_that_does_not_close_does_not_keep_others_from_giving_way() {
    let server = Server::start(&Connections::unlimited(), OPTIONS).await;
    let mut lingering = server.idle().await;
    echo(&mut lingering, "linger\n").await.unwrap();
    tokio::time::sleep(Duration::from_millis(5)).await;
    let mut idle = server.idle().await;
    let mut third = server.idle().await;
    assert_closed(&mut idle).await;
    assert_eq!(server.counts.evicted.load(Ordering::Relaxed), 2);
    // The slowly closing connection is known by now: the next client does not wait for it.
    let began = Instant::now();
    let mut fourth = server.idle().await;
    assert!(began.elapsed() < CLOSING_TIMEOUT, "{:?}", began.elapsed());
    assert_closed(&mut third).await;
    echo(&mut fourth, "z\n").await.unwrap();
    assert_eq!(server.counts.refused.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn listeners_share_the_limit_of_the_process() {
    let connections = Connections::new(2);
    let one = Server::start(&connections, OPTIONS).await;
    let other = Server::start(&connections, OPTIONS).await;
    let mut idle = one.idle().await;
    let mut busy = one.busy().await;
    other.idle().await;
    assert_closed(&mut idle).await;
    echo(&mut busy, "x\n").await.unwrap();
}

#[tokio::test]
async fn an_idle_connection_is_closed_and_a_busy_one_is_not() {
    let options = ListenerOptions {
        idle_timeout: Some(Duration::from_millis(300)),
        ..OPTIONS
    };
    let server = Server::start(&Connections::unlimited(), options).await;
    let mut busy = server.busy().await;
    let mut idle = server.idle().await;
    assert_closed(&mut idle).await;
    echo(&mut busy, "x\n").await.unwrap();
}

#[tokio::test]
async fn stopping_closes_what_is_idle_at_once() {
    let mut server = Server::start(
        &Connections::unlimited(),
        ListenerOptions {
            limit: 100,
            ..OPTIONS
        },
    )
    .await;
    let mut open = vec![server.idle().await];
    for _ in 0..50 {
        open.push(server.connect().await);
    }
    // All are accepted.
    open.push(server.idle().await);
    server.trigger.take().unwrap().shut_down().await;
    let ended = tokio::time::timeout(Duration::from_secs(3), server.task).await;
    ended.expect("it ends long before the drain limit").unwrap();
}

#[tokio::test]
async fn stopping_waits_for_requests_up_to_the_drain_limit() {
    let options = ListenerOptions {
        drain_limit: Duration::from_secs(2),
        ..OPTIONS
    };
    let mut server = Server::start(&Connections::unlimited(), options).await;
    let mut busy = server.busy().await;
    server.trigger.take().unwrap().shut_down().await;
    tokio::time::sleep(Duration::from_millis(1000)).await;
    echo(&mut busy, "still here\n").await.unwrap();
    tokio::time::timeout(SOON, server.task).await.unwrap().unwrap();
    assert_closed(&mut busy).await;
}

#[tokio::test]
async fn a_client_that_does_not_read_is_cut_off() {
    let options = ListenerOptions {
        client_timeout: Duration::from_millis(400),
        ..OPTIONS
    };
    let server = Server::start(&Connections::unlimited(), options).await;
    let mut stream = server.connect().await;
    stream.write_all(b"flood\n").await.unwrap();
    let waiting = async {
        while server.counts.accepted.load(Ordering::Relaxed) == 0
            || server.counts.open.load(Ordering::Relaxed) > 0
        {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(SOON, waiting)
        .await
        .expect("the connection is cut off");
}

#[tokio::test]
async fn a_client_that_reads_a_little_now_and_then_is_cut_off() {
    let options = ListenerOptions {
        client_timeout: Duration::from_millis(600),
        ..OPTIONS
    };
    let server = Server::start(&Connections::unlimited(), options).await;
    let mut stream = server.connect().await;
    stream.write_all(b"flood\n").await.unwrap();
    let mut byte = [0];
    let dripping = async {
        while stream.read(&mut byte).await.is_ok_and(|read| read > 0)
            && (server.counts.accepted.load(Ordering::Relaxed) == 0
                || server.counts.open.load(Ordering::Relaxed) > 0)
        {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(SOON, dripping)
        .await
        .expect("the connection is cut off");
    assert_eq!(server.counts.open.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn a_client_that_reads_steadily_gets_everything() {
    let options = ListenerOptions {
        client_timeout: Duration::from_millis(600),
        ..OPTIONS
    };
    let server = Server::start(&Connections::unlimited(), options).await;
    let mut stream = server.connect().await;
    stream.write_all(b"flood\n").await.unwrap();
    let mut received = 0;
    let mut buffer = vec![0; 1 << 20];
    // For longer than the time-out, with pauses.
    while received < (64 << 20) + 6 {
        tokio::time::sleep(Duration::from_millis(15)).await;
        let read = tokio::time::timeout(SOON, stream.read(&mut buffer))
            .await
            .unwrap()
            .unwrap();
        assert!(read > 0, "cut off after {received} bytes");
        received += read;
    }
}

#[tokio::test(start_paused = true)]
async fn a_connection_has_limits_for_its_first_byte_and_for_a_head() {
    let connections = Connections::unlimited();
    let listener = connections.listener(OPTIONS, Arc::default());
    let peer = SocketAddr::from(([127, 0, 0, 1], 1));
    let state_of = |protocol: fn(&Connection), received: &'static [usize]| {
        let listener = listener.clone();
        async move {
            let connection = listener.admit(peer).await.unwrap();
            protocol(&connection);
            for bytes in received {
                connection.state().received(*bytes);
            }
            tokio::time::advance(OPENING_TIMEOUT).await;
            let is_overdue = connection.state().is_overdue(connections_now(&listener), None);
            let request = connection.request();
            let is_overdue_busy = connection.state().is_overdue(connections_now(&listener), None);
            assert!(!is_overdue_busy, "a request is in progress");
            drop(request);
            is_overdue
        }
    };
    assert!(state_of(|_| (), &[]).await, "no byte");
    assert!(!state_of(Connection::is_telnet, &[1]).await, "telnet has begun");
    assert!(
        state_of(Connection::is_http1, &[1]).await,
        "the head is not complete"
    );
    assert!(state_of(Connection::is_http2, &[24]).await, "no settings");
    assert!(
        !state_of(Connection::is_http2, &[24, 9]).await,
        "the handshake is complete"
    );
}

fn connections_now(listener: &Listener) -> u64 {
    listener.shared.now_ms()
}

/// A client of another address of this machine.
async fn connect_from(server: &Server, address: [u8; 4]) -> io::Result<TcpStream> {
    let socket = tokio::net::TcpSocket::new_v4()?;
    socket.bind(SocketAddr::from((address, 0)))?;
    socket.connect(server.address).await
}

/// The same, with a request in progress.
async fn busy_from(server: &Server, address: [u8; 4]) -> io::Result<TcpStream> {
    let mut stream = connect_from(server, address).await?;
    assert_eq!(echo(&mut stream, "busy\n").await?, "busy\n");
    Ok(stream)
}

#[tokio::test]
async fn busy_connections_are_shared_fairly_between_addresses() {
    let options = ListenerOptions { limit: 6, ..OPTIONS };
    let server = Server::start(&Connections::unlimited(), options).await;
    let [many, few, one] = [[127, 0, 0, 1], [127, 0, 0, 2], [127, 0, 0, 3]];
    let mut of_many = Vec::new();
    for _ in 0..6 {
        of_many.push(busy_from(&server, many).await.unwrap());
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let displaced = || server.counts.displaced.load(Ordering::Relaxed);
    // An address takes its share, from the newest connections of the largest.
    let mut of_others = Vec::new();
    for (address, share) in [(few, 3), (one, 2)] {
        for _ in 0..share {
            of_others.push(busy_from(&server, address).await.unwrap());
        }
        assert!(busy_from(&server, address).await.is_err(), "it has its share");
    }
    // 3 and 3, then 2 of each: the third address displaced one of each of the others.
    assert_eq!(displaced(), 5);
    assert!(busy_from(&server, many).await.is_err(), "it has its share");
    for stream in &mut of_many[..2] {
        echo(stream, "x\n").await.unwrap();
    }
    for stream in &mut of_many[2..] {
        assert_closed(stream).await;
    }
    let mut served = 0;
    for stream in &mut of_others {
        served += usize::from(echo(stream, "x\n").await.is_ok());
    }
    assert_eq!(served, 4);
    assert_eq!(displaced(), 5);
    assert_eq!(server.counts.evicted.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn a_connection_without_a_request_yet_is_not_evicted_for_a_larger_address() {
    let options = ListenerOptions { limit: 4, ..OPTIONS };
    let server = Server::start(&Connections::unlimited(), options).await;
    let [many, few] = [[127, 0, 0, 1], [127, 0, 0, 2]];
    let _of_many = (
        busy_from(&server, many).await.unwrap(),
        busy_from(&server, many).await.unwrap(),
        busy_from(&server, many).await.unwrap(),
    );
    let mut new = connect_from(&server, few).await.unwrap();
    for _ in 0..3 {
        assert!(busy_from(&server, many).await.is_err());
    }
    // Its own address displaces one of the larger one instead.
    let _other = busy_from(&server, few).await.unwrap();
    assert_eq!(server.counts.displaced.load(Ordering::Relaxed), 1);
    echo(&mut new, "x\n").await.unwrap();
    // Then it gives way like all that are idle.
    let admitted = async {
        loop {
            if let Ok(stream) = busy_from(&server, many).await {
                break stream;
            }
        }
    };
    let _late = tokio::time::timeout(SOON, admitted).await.unwrap();
    assert_closed(&mut new).await;
}

#[test]
fn hosts_of_an_ipv6_network_have_one_share() {
    let of = |address: &str| oxtsdb_resources::client_address(SocketAddr::new(address.parse().unwrap(), 1));
    assert_eq!(of("2001:db8:1:2:3:4:5:6"), of("2001:db8:1:2::9"));
    assert_ne!(of("2001:db8:1:2::9"), of("2001:db8:1:3::9"));
    assert_eq!(of("::ffff:10.1.2.3"), of("10.1.2.3"));
}
