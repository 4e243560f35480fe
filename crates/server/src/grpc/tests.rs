use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tonic::transport::{Channel, Endpoint};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

use super::*;
use crate::ShutdownTrigger;

const SOON: Duration = Duration::from_secs(10);

struct Running {
    address: SocketAddr,
    trigger: ShutdownTrigger,
    task: JoinHandle<anyhow::Result<()>>,
}

impl Running {
    async fn start(options: GrpcOptions) -> Running {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (shutdown, trigger) = Shutdown::new(Duration::ZERO);
        let task = tokio::spawn(GrpcServer::new().serve(listener, options, shutdown));
        Running {
            address,
            trigger,
            task,
        }
    }

    async fn client(&self) -> HealthClient<Channel> {
        let endpoint = Endpoint::from_shared(format!("http://{}", self.address)).unwrap();
        HealthClient::new(endpoint.connect().await.unwrap())
    }
}

/// The settings that a server announces, by their numbers.
async fn announced(address: SocketAddr) -> Vec<(u16, u32)> {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream
        .write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0")
        .await
        .unwrap();
    let mut header = [0; 9];
    stream.read_exact(&mut header).await.unwrap();
    assert_eq!(header[3], 4, "the first frame has the settings");
    let mut settings = vec![0; usize::from(header[2])];
    stream.read_exact(&mut settings).await.unwrap();
    let (settings, []) = settings.as_chunks::<6>() else {
        panic!("{settings:?} is cut short");
    };
    let setting = |[a, b, value @ ..]: &[u8; 6]| (u16::from_be_bytes([*a, *b]), u32::from_be_bytes(*value));
    settings.iter().map(setting).collect()
}

#[tokio::test]
async fn announces_windows_and_frames_for_large_messages() {
    let server = Running::start(GrpcOptions::default()).await;
    let settings = announced(server.address).await;
    let (initial_window_size, max_frame_size) = (4, 5);
    assert!(settings.contains(&(initial_window_size, 1 << 20)), "{settings:?}");
    assert!(settings.contains(&(max_frame_size, 64 << 10)), "{settings:?}");
    server.trigger.shut_down().await;
    server.task.await.unwrap().unwrap();
}

async fn is_closed(mut stream: TcpStream) -> bool {
    let mut rest = Vec::new();
    tokio::time::timeout(SOON, stream.read_to_end(&mut rest))
        .await
        .is_ok()
}

#[tokio::test]
async fn silent_sockets_neither_lock_out_clients_nor_hold_up_the_end() {
    let server = Running::start(GrpcOptions {
        max_connections: 8,
        ..GrpcOptions::default()
    })
    .await;
    let mut client = server.client().await;
    // Its stream never ends, so this connection is busy.
    let watch = client.watch(HealthCheckRequest::default()).await.unwrap();
    let mut silent = Vec::new();
    for place in 0..30 {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        if place % 2 == 0 {
            stream
                .write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
                .await
                .unwrap();
        }
        silent.push(stream);
    }
    let mut other = server.client().await;
    other.check(HealthCheckRequest::default()).await.unwrap();
    client.check(HealthCheckRequest::default()).await.unwrap();
    assert!(
        is_closed(silent.remove(0)).await,
        "the one that was idle the longest"
    );

    server.trigger.shut_down().await;
    let ended = tokio::time::timeout(Duration::from_secs(5), server.task).await;
    ended
        .expect("it ends long before the drain limit")
        .unwrap()
        .unwrap();
    drop(watch);
}

/// The first bytes of an HTTP/2 client: the preface, and settings that change nothing.
const OPENING: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

#[tokio::test]
async fn connections_that_never_spoke_give_way_before_those_that_are_used() {
    let server = Running::start(GrpcOptions {
        max_connections: 2,
        ..GrpcOptions::default()
    })
    .await;
    let mut used = TcpStream::connect(server.address).await.unwrap();
    used.write_all(OPENING).await.unwrap();
    // Its settings: the server has read the opening.
    assert!(used.read(&mut [0; 64]).await.unwrap() > 0);
    let mut silent = TcpStream::connect(server.address).await.unwrap();
    let mut third = server.client().await;
    third.check(HealthCheckRequest::default()).await.unwrap();
    let mut rest = Vec::new();
    // An end or a reset, behind settings if they were sent.
    let _ = silent.read_to_end(&mut rest).await;
    let end = loop {
        match used.try_read(&mut [0; 64]) {
            Ok(read) if read > 0 => {}
            end => break end,
        }
    };
    assert_eq!(end.unwrap_err().kind(), ErrorKind::WouldBlock, "it is open");
}

#[tokio::test]
async fn pings_do_not_keep_a_connection_from_being_idle() {
    let server = Running::start(GrpcOptions {
        max_connections: 2,
        ..GrpcOptions::default()
    })
    .await;
    let endpoint = Endpoint::from_shared(format!("http://{}", server.address)).unwrap();
    let pinging = endpoint
        .http2_keep_alive_interval(Duration::from_millis(10))
        .keep_alive_while_idle(true)
        .connect()
        .await
        .unwrap();
    let mut first = HealthClient::new(pinging);
    first.check(HealthCheckRequest::default()).await.unwrap();
    tokio::time::sleep(Duration::from_millis(20)).await;
    let mut second = TcpStream::connect(server.address).await.unwrap();
    second.write_all(OPENING).await.unwrap();
    // Time for pings.
    tokio::time::sleep(Duration::from_millis(100)).await;
    let mut third = server.client().await;
    third.check(HealthCheckRequest::default()).await.unwrap();
    // The second connection stays open: the first one was evicted, although it pinged meanwhile.
    let end = loop {
        match second.try_read(&mut [0; 64]) {
            Ok(read) if read > 0 => {}
            end => break end,
        }
    };
    assert_eq!(end.unwrap_err().kind(), ErrorKind::WouldBlock, "it is open");
    // Its client makes a new connection.
    first.check(HealthCheckRequest::default()).await.unwrap();
}

#[tokio::test]
async fn a_client_that_is_idle_is_sent_away_at_the_end() {
    let server = Running::start(GrpcOptions::default()).await;
    let mut client = server.client().await;
    client.check(HealthCheckRequest::default()).await.unwrap();
    server.trigger.shut_down().await;
    let ended = tokio::time::timeout(Duration::from_secs(5), server.task).await;
    ended
        .expect("an idle channel does not hold it up")
        .unwrap()
        .unwrap();
}
